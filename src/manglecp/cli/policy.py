"""``manglecp policy``: show, pin, compare and promote policy packages."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from functools import wraps
from pathlib import Path
from typing import Final, NoReturn, ParamSpec

import click

from manglecp.cli.files import FILE, OUTPUT_FILE, read, source_name, write_file
from manglecp.cli.options import as_json
from manglecp.cli.output import columns, count, json_text, print_json, print_result, print_stderr
from manglecp.harness import TurnBlocked
from manglecp.harness.policy import (
    ENDINGS,
    DocumentDifference,
    PackageUnchanged,
    Pin,
    PolicyError,
    PolicyPackage,
    compare_packages,
    inapplicable_reports,
    observe_package,
    promote,
    read_package,
    read_pin,
    read_reports,
    work_package,
)


def load_package(name: str) -> PolicyPackage:
    """Read the package in a folder, or the built-in one of that name. Raises :class:`.PolicyError`."""
    folder = Path(name)
    if not folder.is_dir():
        if (built_in := {"observe": observe_package, "work": work_package}.get(name)) is not None:
            return built_in()
        raise click.UsageError(f"there is no folder {click.format_filename(name)}; built in are `observe` and `work`")
    files = sorted(path for path in folder.iterdir() if path.suffix in ENDINGS)
    return read_package({path.name: read(str(path)) for path in files})


def default_pin(package: str) -> Path:
    """Return the path of the pin, beside the folder: a package must not contain its own pin."""
    folder = Path(package)
    if folder.name in ("", ".."):  # Path(".").name is empty
        folder = folder.resolve()
    if not folder.name:
        raise click.UsageError("give the path of the pin with --pin")
    return folder.with_name(f"{folder.name}.pin.json")


def load_pin(path: Path) -> Pin | None:
    """Return the pin in a file, None if the file does not exist. Raises :class:`.PolicyError`."""
    return read_pin(read(str(path)), str(path)) if path.exists() else None


def _load_existing_pin(path: Path) -> Pin:
    pin = load_pin(path)
    if pin is None:
        raise click.UsageError(f"{click.format_filename(path)} does not exist; `manglecp policy pin` creates it")
    return pin


@contextmanager
def _pin_lock(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on the folder of the pin; the file itself is replaced."""
    try:
        folder_fd = os.open(path.absolute().parent, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise click.UsageError(f"cannot write {click.format_filename(path)}: {error.strerror}") from None
    try:
        fcntl.flock(folder_fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder_fd)  # releases the lock


def write_pin(path: Path, pin: Pin) -> None:
    text = json.dumps(pin.as_json(), ensure_ascii=False, indent=2, sort_keys=True) + "\n"
    write_file(path, [text.encode()], mode=0o644)


REFUSED: Final = 1  # exit status, also for a difference
INVALID: Final = 2  # exit status
P = ParamSpec("P")


@click.group("policy")
def command() -> None:
    """Show, pin, compare and promote policy packages.

    PACKAGE is a folder of documents, TOML or JSON, or a built-in package, `observe` or `work`. Exit status: 0 success,
    or no difference; 1 refused, or a difference; 2 a file is not valid.
    """


_package = click.argument("package", metavar="PACKAGE")
_pin = click.option(
    "--pin",
    "pin_file",
    metavar="FILE",
    type=OUTPUT_FILE,
    help="The pin; by default PACKAGE.pin.json, beside the folder.",
)


def report_invalid_files(verb: Callable[P, None]) -> Callable[P, None]:
    """Return a verb that prints a ``PolicyError`` and ends with status 2."""

    @wraps(verb)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            verb(*args, **kwargs)
        except PolicyError as error:
            if kwargs.get("as_json"):
                problems = [{"file": d.file, "pointer": d.pointer, "message": d.message} for d in error.diagnostics]
                print_json({"result": "invalid", "problems": problems})
            else:
                click.echo(error.render(), err=True)
            raise click.exceptions.Exit(INVALID) from None

    return run


@command.command("show")
@_package
@as_json
@report_invalid_files
def show(package: str, as_json: bool) -> None:
    """Print the digest of PACKAGE and of each of its documents."""
    loaded = load_package(package)
    document = {
        "result": "valid",
        **_package_id(loaded),
        "documents": loaded.digests,
        "policyDocuments": loaded.documents(),
        "constraints": loaded.constraints(),
    }
    rows = [(loaded.ref, loaded.digest), *((f"  {kind}", digest) for kind, digest in loaded.digests.items())]
    print_result(document, columns(rows), as_json=as_json)


@command.command("diff", short_help="Compare a package with the pinned one, or with another.")
@_package
@click.argument("other", metavar="[OTHER]", required=False)
@_pin
@as_json
@report_invalid_files
def diff(package: str, other: str | None, pin_file: Path | None, as_json: bool) -> None:
    """Print each difference between the pinned package and PACKAGE, or between PACKAGE and OTHER."""
    if other is not None and pin_file is not None:
        raise click.UsageError("give either OTHER or --pin")
    if other is not None:
        before, after = load_package(package), load_package(other)
    else:
        before, after = _load_existing_pin(pin_file or default_pin(package)).package, load_package(package)
    differences = compare_packages(before, after)
    document = {
        "result": "differs" if differences else "same",
        "before": _package_id(before),
        "after": _package_id(after),
        "differences": list(map(asdict, differences)),
    }
    lines = _difference_lines(differences) or [f"{after.ref} {after.digest}: nothing differs"]
    print_result(document, lines, as_json=as_json)
    if differences:
        raise click.exceptions.Exit(REFUSED)


@command.command("pin")
@_package
@_pin
@as_json
@report_invalid_files
def pin(package: str, pin_file: Path | None, as_json: bool) -> None:
    """Record the digests of PACKAGE as those in force.

    If a pin exists, PACKAGE must equal the pinned package: promote a changed one with `policy promote`.
    """
    path = pin_file or default_pin(package)
    loaded = load_package(package)
    with _pin_lock(path):
        pinned = load_pin(path)
        if pinned is None:
            pinned = Pin.first(loaded, at=_now())
            write_pin(path, pinned)
            result = "pinned"
        else:
            changed = pinned.verify(loaded)
            if changed:
                _refuse_changed(path, pinned, changed, as_json=as_json)
            result = "unchanged"
    _print_pin(result, path, pinned, as_json=as_json)


def _refuse_changed(path: Path, pinned: Pin, changed: Sequence[DocumentDifference], *, as_json: bool) -> NoReturn:
    document = {"result": "refused", "pinned": _package_id(pinned.package), "differences": list(map(asdict, changed))}
    print_result(document, _difference_lines(changed), as_json=as_json)
    if not as_json:
        documents = f"{count(len(changed), 'document')} not as in {click.format_filename(path)}"
        print_stderr(f"refused: {documents}; a changed package needs `policy promote`")
    raise click.exceptions.Exit(REFUSED)


@command.command("promote", short_help="Replace the pinned package, if its own rules admit that.")
@_package
@click.option("--eval", "evaluation", metavar="FILE", type=FILE, required=True, help="The evaluation of PACKAGE.")
@click.option("--redteam", "red_team", metavar="FILE", type=FILE, required=True, help="The red-team report on PACKAGE.")
@click.option(
    "--evidence",
    metavar="FILE",
    type=FILE,
    multiple=True,
    help="The instruction to promote, and the approval where one is required. May be given several times.",
)
@_pin
@as_json
@report_invalid_files
def promote_command(
    package: str, evaluation: str, red_team: str, evidence: tuple[str, ...], pin_file: Path | None, as_json: bool
) -> None:
    """Replace the pinned package with PACKAGE, if the pinned package admits that.

    The promotion is judged as a turn under the pinned package: its floors, required attacks, risk tiers and mutation
    policy. The pin is written only if the turn reaches MutationReady.
    """
    path = pin_file or default_pin(package)
    candidate = load_package(package)
    reports = read_reports(_read_named(evaluation), _read_named(red_team), [_read_named(file) for file in evidence])
    with _pin_lock(path):
        pinned = _load_existing_pin(path)
        try:
            promoted = promote(pinned, candidate, reports, at=_now())
        except PackageUnchanged:
            _print_pin("unchanged", path, pinned, as_json=as_json)
            return
        except TurnBlocked as blocked:
            _refuse_promotion(blocked, [*inapplicable_reports(pinned, candidate, reports).values()], as_json=as_json)
        write_pin(path, promoted)
    _print_pin("promoted", path, promoted, as_json=as_json)


def _refuse_promotion(blocked: TurnBlocked, notes: Sequence[str], *, as_json: bool) -> NoReturn:
    if as_json:
        classes = sorted({finding.failure.name for finding in blocked.findings})
        findings = [finding.as_json() for finding in blocked.findings]
        print_json({"result": "rejected", "failureClasses": classes, "findings": findings, "notes": notes})
    else:
        print_stderr(*(f"refused: {f.failure.name}: {f.message}; {f.failure.remedy}" for f in blocked.findings))
        print_stderr(*(f"note: {note}" for note in notes))
    raise click.exceptions.Exit(REFUSED)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _read_named(file: str) -> tuple[str, bytes]:
    return source_name(file), read(file)


def _package_id(package: PolicyPackage) -> dict[str, str]:
    return {"packageRef": package.ref, "version": package.version, "packageDigest": package.digest}


def _print_pin(result: str, path: Path, pinned: Pin, *, as_json: bool) -> None:
    document = {"result": result, "pin": str(path), **_package_id(pinned.package), "head": pinned.head}
    lines = [f"{result}: {pinned.package.ref} {pinned.digest}", f"  in {path}, head {pinned.head}"]
    print_result(document, lines, as_json=as_json)


def _difference_lines(differences: Sequence[DocumentDifference]) -> list[str]:
    lines = []
    for difference in differences:
        change = "added" if difference.before is None else "removed" if difference.after is None else "changed"
        lines.append(f"{difference.document}: {change}")
        if change == "changed":
            lines += [f"  {c.pointer}: {_value_text(c.before)} -> {_value_text(c.after)}" for c in difference.changes]
    return lines


def _value_text(value: object) -> str:
    return "nothing" if value is None else json_text(value)
