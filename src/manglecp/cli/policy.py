"""``manglecp policy``: show, pin, compare and promote policy packages."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

import click

from manglecp.base.files import lock_folder
from manglecp.cli.files import FILE, OUTPUT_FILE, option, read, source_name, write_file
from manglecp.cli.options import document_option
from manglecp.cli.output import columns, count, fail, json_text, print_json, print_result, write_lines
from manglecp.harness import TurnBlocked, policy
from manglecp.harness.policy import DocumentDifference, Pin, PolicyPackage


def load_package(name: str) -> PolicyPackage:
    """Read the package in a folder, or the built-in one of that name. Raises :class:`.PolicyError`."""
    folder = Path(name)
    if not folder.is_dir():
        if (built_in := {"observe": policy.observe_package, "work": policy.work_package}.get(name)) is not None:
            return built_in()
        raise click.UsageError(f"there is no folder {click.format_filename(name)}; built in are `observe` and `work`")
    files = sorted(path for path in folder.iterdir() if path.suffix in policy.ENDINGS)
    return policy.read_package({path.name: read(str(path)) for path in files})


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
    return policy.read_pin(read(str(path)), str(path)) if path.exists() else None


def _load_existing_pin(path: Path) -> Pin:
    pin = load_pin(path)
    if pin is None:
        raise click.UsageError(f"{click.format_filename(path)} does not exist; `manglecp policy pin` creates it")
    return pin


@contextmanager
def _pin_lock(path: Path) -> Iterator[None]:
    """Lock the pin against other processes."""
    try:
        with lock_folder(path.absolute().parent):
            yield
    except OSError as error:
        raise click.UsageError(f"cannot write {click.format_filename(path)}: {error.strerror}") from None


def write_pin(path: Path, pin: Pin) -> None:
    text = json.dumps(pin.as_json(), ensure_ascii=False, indent=2, sort_keys=True) + "\n"
    write_file(path, [text.encode()], mode=0o644)


@click.group("policy")
def command() -> None:
    """Show, pin, compare and promote policy packages.

    PACKAGE is a folder of documents, TOML or JSON, or a built-in package, `observe` or `work`. Exit status: 0 success,
    or no difference; 1 refused, or a difference; 2 a file is not valid.
    """


_package = click.argument("package_name", metavar="PACKAGE")
_pin = option(
    "--pin FILE", "pin_file", type=OUTPUT_FILE, help="The pin; by default PACKAGE.pin.json, beside the folder."
)


@command.command("show")
@_package
@document_option
def show(package_name: str, as_json: bool) -> None:
    """Print the digest of PACKAGE and of each of its documents."""
    package = load_package(package_name)
    document = {
        "result": "valid",
        **_package_id(package),
        "documents": package.digests,
        "policyDocuments": package.documents(),
        "constraints": package.constraints(),
    }
    rows = [(package.ref, package.digest), *((f"  {kind}", digest) for kind, digest in package.digests.items())]
    print_result(document, columns(rows), as_json=as_json)


@command.command("diff", short_help="Compare a package with the pinned one, or with another.")
@_package
@click.argument("other", metavar="[OTHER]", required=False)
@_pin
@document_option
def diff(package_name: str, other: str | None, pin_file: Path | None, as_json: bool) -> None:
    """Print each difference between the pinned package and PACKAGE, or between PACKAGE and OTHER."""
    if other is not None and pin_file is not None:
        raise click.UsageError("give either OTHER or --pin")
    if other is not None:
        before, after = load_package(package_name), load_package(other)
    else:
        before, after = _load_existing_pin(pin_file or default_pin(package_name)).package, load_package(package_name)
    differences = policy.compare_packages(before, after)
    document = {
        "result": "differs" if differences else "same",
        "before": _package_id(before),
        "after": _package_id(after),
        "differences": list(map(asdict, differences)),
    }
    lines = _difference_lines(differences) or [f"{after.ref} {after.digest}: nothing differs"]
    print_result(document, lines, as_json=as_json, ok=not differences)


@command.command("pin")
@_package
@_pin
@document_option
def pin_command(package_name: str, pin_file: Path | None, as_json: bool) -> None:
    """Record the digests of PACKAGE as those in force.

    If a pin exists, PACKAGE must equal the pinned package: promote a changed one with `policy promote`.
    """
    path = pin_file or default_pin(package_name)
    package = load_package(package_name)
    with _pin_lock(path):
        pin = load_pin(path)
        if pin is None:
            pin = Pin.first(package, at=_now())
            write_pin(path, pin)
            result = "pinned"
        else:
            differences = pin.verify(package)
            if differences:
                _refuse_changed(path, pin, differences, as_json=as_json)
            result = "unchanged"
    _print_pin(result, path, pin, as_json=as_json)


def _refuse_changed(path: Path, pin: Pin, differences: Sequence[DocumentDifference], *, as_json: bool) -> NoReturn:
    document = {"result": "refused", "pinned": _package_id(pin.package), "differences": list(map(asdict, differences))}
    if as_json:
        print_json(document, ok=False)
    write_lines(_difference_lines(differences))
    documents = f"{count(len(differences), 'document')} not as in {click.format_filename(path)}"
    fail(f"refused: {documents}; a changed package needs `policy promote`")


@command.command("promote", short_help="Replace the pinned package, if its own rules admit that.")
@_package
@option("--eval FILE", "evaluation", type=FILE, required=True, help="The evaluation of PACKAGE.")
@option("--redteam FILE", "red_team", type=FILE, required=True, help="The red-team report on PACKAGE.")
@option(
    "--evidence FILE",
    type=FILE,
    multiple=True,
    help="The instruction to promote, and the approval where one is required. May be given several times.",
)
@_pin
@document_option
def promote_command(
    package_name: str, evaluation: str, red_team: str, evidence: tuple[str, ...], pin_file: Path | None, as_json: bool
) -> None:
    """Replace the pinned package with PACKAGE, if the pinned package admits that.

    The promotion is judged as a turn under the pinned package: its floors, required attacks, risk tiers and mutation
    policy. The pin is written only if the turn reaches MutationReady.
    """
    path = pin_file or default_pin(package_name)
    candidate = load_package(package_name)
    reports = policy.read_reports(_read_named(evaluation), _read_named(red_team), list(map(_read_named, evidence)))
    with _pin_lock(path):
        pin = _load_existing_pin(path)
        try:
            new_pin = policy.promote(pin, candidate, reports, at=_now())
        except policy.PackageUnchanged:
            _print_pin("unchanged", path, pin, as_json=as_json)
            return
        except TurnBlocked as blocked:
            notes = policy.inapplicable_reports(pin, candidate, reports).values()
            _refuse_promotion(blocked, list(notes), as_json=as_json)
        write_pin(path, new_pin)
    _print_pin("promoted", path, new_pin, as_json=as_json)


def _refuse_promotion(blocked: TurnBlocked, notes: Sequence[str], *, as_json: bool) -> NoReturn:
    if as_json:
        classes = sorted({finding.failure.name for finding in blocked.findings})
        findings = [finding.as_json() for finding in blocked.findings]
        document = {"result": "rejected", "failureClasses": classes, "findings": findings, "notes": notes}
        print_json(document, ok=False)
    refusals = (f"refused: {each.failure.name}: {each.message}; {each.failure.remedy}" for each in blocked.findings)
    fail(*refusals, *(f"note: {note}" for note in notes))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _read_named(file: str) -> tuple[str, bytes]:
    return source_name(file), read(file)


def _package_id(package: PolicyPackage) -> dict[str, str]:
    return {"packageRef": package.ref, "version": package.version, "packageDigest": package.digest}


def _print_pin(result: str, path: Path, pin: Pin, *, as_json: bool) -> None:
    document = {"result": result, "pin": str(path), **_package_id(pin.package), "head": pin.head}
    lines = [f"{result}: {pin.package.ref} {pin.digest}", f"  in {path}, head {pin.head}"]
    print_result(document, lines, as_json=as_json)


def _difference_lines(differences: Sequence[DocumentDifference]) -> list[str]:
    lines = []
    for difference in differences:
        change = "added" if difference.before is None else "removed" if difference.after is None else "changed"
        lines.append(f"{difference.document}: {change}")
        if change == "changed":
            for member in difference.changes:
                lines.append(f"  {member.pointer}: {_value_text(member.before)} -> {_value_text(member.after)}")
    return lines


def _value_text(value: object) -> str:
    return "nothing" if value is None else json_text(value)
