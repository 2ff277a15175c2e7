"""``manglecp harness``: turns from logs, and their verdicts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

import click

from manglecp.cli.files import FILE, STDIN, combine, open_binary, read_json, replace, source_name
from manglecp.cli.options import as_json
from manglecp.cli.output import ProgressLine, count, json_text, print_json, write_lines

if TYPE_CHECKING:
    from manglecp.harness import Judgement


REJECTED: Final = 1
INVALID: Final = 2
MAX_EVIDENCE_BYTES: Final = 64 * 1024 * 1024
SOURCES: Final = ("anthropic", "openai", "mcp", "jsonl")

_Command = TypeVar("_Command", bound=Callable[..., None])


@click.group("harness")
def command() -> None:
    """Judge the turns of an agent: whether each result and change is backed by evidence.

    Exit status: 0 accepted, 1 rejected, 2 a file is not valid.
    """


def _log_options(*, required: bool) -> Callable[[_Command], _Command]:
    return combine(
        click.option("--from", "source", type=click.Choice(SOURCES), required=required, help="The format of the log."),
        click.option(
            "--policy",
            metavar="PACKAGE",
            help="A policy package, or a JSON file of CallSpec fields and constraints; by default `observe`.",
        ),
        click.option("--strict", is_flag=True, help="Leave out evidence that is inferred and not recorded in the log."),
    )


@command.command("ingest")
@click.argument("log", metavar="LOG", type=FILE)
@_log_options(required=True)
@click.option(
    "--out",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The file; by default standard output.",
)
def ingest(log: str, source: str, policy: str | None, strict: bool, out: Path | None) -> None:
    """Print the turns of LOG as evidence, one JSON document per line.

    Each line is valid for `harness check --input`; the whole output is a log for `--from jsonl`.
    """
    import msgspec

    lines = (msgspec.json.encode(document).decode() for document in documents(log, source, policy, strict))
    try:
        if out is None:
            write_lines(lines)
        else:
            with ProgressLine("reading"):
                replace(out, (f"{line}\n".encode() for line in lines), mode=0o644)
    except UnreadableFile as error:
        error.report(as_json=False)


@command.command("check")
@click.option("--input", "file", metavar="FILE", type=FILE, help="The evidence of one turn; - is standard input.")
@click.option("--log", metavar="LOG", type=FILE, help="A whole log; one line for each turn.")
@_log_options(required=False)
@click.option(
    "--witness",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="A file to write the witness of the turn to, for `harness verify`.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document, or with --log one for each turn.")
def check(
    file: str | None,
    log: str | None,
    source: str | None,
    policy: str | None,
    strict: bool,
    witness: Path | None,
    as_json: bool,
) -> None:
    """Judge a turn, or every turn of a log."""
    if (file is None) == (log is None):
        raise click.UsageError("give either --input or --log")
    try:
        if log is not None:
            if source is None:
                raise click.UsageError(f"--log needs --from, one of {', '.join(SOURCES)}")
            if witness is not None:
                raise click.UsageError("--witness goes with --input")
            _check_log(log, source, policy, strict, as_json)
        elif file is not None:
            if source or policy or strict:
                raise click.UsageError("--from, --policy and --strict go with --log")
            _check_turn(file, witness, as_json)
    except UnreadableFile as error:
        error.report(as_json=as_json)


def _check_turn(file: str, witness: Path | None, as_json: bool) -> None:
    judgement = judge_document(read_object(file), source_name(file))
    if witness is not None:
        from manglecp.harness import witness_of

        replace(witness, [f"{json_text(witness_of(judgement))}\n".encode()], mode=0o644)
    write_lines([json_text(judgement.as_json())] if as_json else _lines(judgement))
    if judgement.result == "rejected":
        raise click.exceptions.Exit(REJECTED)


def _lines(judgement: Judgement) -> Iterator[str]:
    yield f"{judgement.result}  {judgement.witness_id}"
    for finding in judgement.findings:
        yield f"{finding.failure.name}  {finding.where}"
        yield f"    {finding.message}"
        yield f"    fix: {finding.failure.remedy}"
    if judgement.join_closed and judgement.findings:
        yield "the join is closed; only the mutation is refused"


def _check_log(log: str, source: str, policy: str | None, strict: bool, as_json: bool) -> None:
    counted = {"accepted": 0, "rejected": 0, "invalid": 0}

    def verdict_lines() -> Iterator[str]:
        for document in documents(log, source, policy, strict):
            turn = document["turn"]
            where = f"turn {turn['number']} (line {turn['line']})"
            try:
                judgement = judge_document(document, where)
            except UnreadableFile as error:  # of one turn; the others are judged
                counted["invalid"] += 1
                click.echo(f"error: {error}", err=True)
                yield json_text({**turn, **error.as_json()}) if as_json else f"{where}: invalid"
                continue
            counted[judgement.result] += 1
            if as_json:
                yield json_text({**turn, **judgement.as_json()})
            else:
                yield f"{where}: {' '.join([judgement.result, *judgement.failure_classes])}"

    try:
        write_lines(verdict_lines())
    finally:
        summary = [f"{number} {verdict}" for verdict, number in counted.items() if number]
        click.echo(f"{count(sum(counted.values()), 'turn')}: {', '.join(summary) or 'nothing to check'}", err=True)
    if counted["invalid"]:
        raise click.exceptions.Exit(INVALID)
    if counted["rejected"]:
        raise click.exceptions.Exit(REJECTED)


@command.command("verify", short_help="Judge the rows of a witness again.")
@click.argument("file", metavar="FILE", type=FILE)
@as_json
def verify(file: str, as_json: bool) -> None:
    """Judge the rows of the witness in FILE again, and print each difference from its claims.

    Exit status: 0 no difference, 1 at least one, 2 FILE is not a witness.
    """
    from manglecp.harness import InvalidEvidence, verify as verify_witness

    try:
        outcome = verify_witness(read_object(file))
    except InvalidEvidence as error:
        UnreadableFile(source_name(file), error.path, error.message).report(as_json=as_json)
    except UnreadableFile as error:
        error.report(as_json=as_json)
    if as_json:
        print_json(outcome.as_json())
    else:
        lines = [f"{one.where}: {json_text(one.found)} is not {json_text(one.expected)}" for one in outcome.differences]
        lines.append(f"{'holds' if outcome.holds else 'does not hold'}  {outcome.judgement.witness_id}")
        write_lines([*lines, f"taken on record: {len(outcome.on_record)}"])
    if not outcome.holds:
        raise click.exceptions.Exit(REJECTED)


class UnreadableFile(Exception):
    """An error at a JSON pointer of a file, with a line number for logs."""

    def __init__(self, name: str, path: str, message: str, line: int | None = None) -> None:
        super().__init__(f"{name}: {'' if line is None else f'line {line}: '}{path or '/'}: {message}")
        self.path = path
        self.message = message
        self.line = line

    def as_json(self) -> dict[str, Any]:
        place = {} if self.line is None else {"line": self.line}
        return {"result": "invalid", **place, "path": self.path, "message": self.message}

    def report(self, *, as_json: bool) -> NoReturn:
        """Print the error on standard error, with ``as_json`` also on standard output; end the verb with status 2."""
        click.echo(f"error: {self}", err=True)
        if as_json:
            print_json(self.as_json())
        raise click.exceptions.Exit(INVALID)


def judge_document(document: Mapping[str, Any], name: str) -> Judgement:
    from manglecp.harness import InvalidEvidence, judge

    try:
        return judge(document)
    except InvalidEvidence as error:
        raise UnreadableFile(name, error.path, error.message) from None


def read_object(file: str) -> dict[str, Any]:
    from manglecp.wire import Fault

    try:
        value = read_json(file, MAX_EVIDENCE_BYTES)
    except Fault as fault:
        raise UnreadableFile(source_name(file), "", fault.message) from None
    if not isinstance(value, dict):
        raise UnreadableFile(source_name(file), "", "expected an object")
    return value


def documents(log: str, source: str, policy: str | None, strict: bool) -> Iterator[dict[str, Any]]:
    from manglecp.adapters import LogError, LogLimits, ingest as turns_of

    limits = LogLimits()
    bound, pinned = _policy(policy)
    try:
        with open_binary(log) as stream:
            # Bounded: of a line that is too long, one byte more than the limit arrives, and is refused.
            lines = iter(lambda: stream.readline(limits.line + 1), b"")
            yield from turns_of(lines, source, bound, pinned=pinned, strict=strict, limits=limits)
    except LogError as error:
        raise UnreadableFile(source_name(log), error.path, error.message, error.line) from None


def _policy(name: str | None) -> tuple[Any, str | None]:
    """Return a package and its pinned digest, or a mapping from a file."""
    if name is None:
        return None, None
    if Path(name).is_file() or name == STDIN:
        from manglecp.adapters import CONSTRAINTS

        given = read_object(name)
        for member, value in given.items():
            if member in CONSTRAINTS and not isinstance(value, dict):
                raise UnreadableFile(source_name(name), f"/{member}", "expected an object")
        return given, None
    from manglecp.cli.policy import default_pin, load_package, load_pin
    from manglecp.harness.policy import PolicyError

    try:
        package = load_package(name)
        pin = load_pin(default_pin(name))
    except PolicyError as error:
        first = error.diagnostics[0]
        raise UnreadableFile(first.file, first.pointer, first.message) from None
    return package, None if pin is None else pin.digest
