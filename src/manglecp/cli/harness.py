"""``manglecp harness``: extract the turns of logs as evidence, judge them, and record the work on issues."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import click
import msgspec

from manglecp.cli import session
from manglecp.cli.errors import InvalidFile
from manglecp.cli.files import DASH, FILE, OUTPUT_FILE, combine, open_binary, option, read, source_name, write_file
from manglecp.cli.options import document_option, json_option
from manglecp.cli.output import ProgressLine, count, json_text, print_result, print_stderr, write_lines
from manglecp.harness import InvalidEvidence, Judgement, judge, verify as verify_witness, witness_of
from manglecp.wire import Fault, decode

REJECTED: Final = 1  # exit status
INVALID: Final = 2
TRANSCRIPT: Final = "transcript"  # a built-in policy
MAX_EVIDENCE_BYTES: Final = 64 * 1024 * 1024
FORMATS: Final = ("anthropic", "openai", "mcp", "otel", "jsonl")

_Command = TypeVar("_Command", bound=Callable[..., None])


@click.group("harness")
def command() -> None:
    """Judge the turns of an agent: whether each result and change is backed by evidence.

    Exit status: 0 accepted, 1 rejected, 2 a file is not valid.
    """


def _log_options(*, required: bool) -> Callable[[_Command], _Command]:
    return combine(
        option("--from", "log_format", type=click.Choice(FORMATS), required=required, help="The format of the log."),
        option(
            "--policy PACKAGE",
            help="A policy package, or a JSON file of CallSpec fields and constraints; by default `observe`. "
            "`transcript` is for lists of messages, which have no stop reasons.",
        ),
        option("--strict", is_flag=True, help="Leave out evidence that is inferred and not recorded in the log."),
    )


@command.command("ingest")
@click.argument("log", metavar="LOG", type=FILE)
@_log_options(required=True)
@option("--out FILE", type=OUTPUT_FILE, help="The file; by default standard output.")
def ingest(log: str, log_format: str, policy: str | None, strict: bool, out: Path | None) -> None:
    """Print the turns of LOG as evidence, one JSON document per line.

    Each line is valid for `harness check --input`; the whole output is a log for `--from jsonl`.
    """
    lines = map(msgspec.json.encode, _read_turns(log, log_format, policy, strict))
    if out is None:
        write_lines(line.decode() for line in lines)
    else:
        with ProgressLine("reading"):
            write_file(out, (line + b"\n" for line in lines), mode=0o644)


@command.command("check")
@option("--input FILE", "file", type=FILE, help="The evidence of one turn; - is standard input.")
@option("--log LOG", type=FILE, help="A log, of which every turn is judged; one line of output for each.")
@_log_options(required=False)
@option("--witness FILE", type=OUTPUT_FILE, help="A file to write the witness of the turn to, for `harness verify`.")
@json_option("Print one JSON document, or with --log one for each turn.")
def check(
    file: str | None,
    log: str | None,
    log_format: str | None,
    policy: str | None,
    strict: bool,
    witness: Path | None,
    as_json: bool,
) -> None:
    """Judge a turn, or every turn of a log."""
    if (file is None) == (log is None):
        raise click.UsageError("give either --input or --log")
    if log is not None:
        if log_format is None:
            raise click.UsageError(f"--log needs --from, one of {', '.join(FORMATS)}")
        if witness is not None:
            raise click.UsageError("--witness goes with --input")
        _check_log(log, log_format, policy, strict, as_json)
    elif file is not None:
        if log_format or policy or strict:
            raise click.UsageError("--from, --policy and --strict go with --log")
        _check_turn(file, witness, as_json)


def _check_turn(file: str, witness: Path | None, as_json: bool) -> None:
    judgement = _judge(_read_object(file), source_name(file))
    if witness is not None:
        write_file(witness, [f"{json_text(witness_of(judgement))}\n".encode()], mode=0o644)
    print_result(judgement.as_json(), _judgement_lines(judgement), as_json=as_json, ok=judgement.result != "rejected")


def _judgement_lines(judgement: Judgement) -> Iterator[str]:
    yield f"{judgement.result}  {judgement.witness_id}"
    for finding in judgement.findings:
        yield f"{finding.failure.name}  {finding.where}"
        yield f"    {finding.message}"
        yield f"    fix: {finding.failure.remedy}"
    if judgement.join_closed and judgement.findings:
        yield "the join of requests, results and uses is closed; only the mutation of the turn is refused"


def _check_log(log: str, log_format: str, policy: str | None, strict: bool, as_json: bool) -> None:
    verdict_counts = {"accepted": 0, "rejected": 0, "invalid": 0}
    lacks_stop_reasons = False

    def verdict_lines() -> Iterator[str]:
        nonlocal lacks_stop_reasons
        for document in _read_turns(log, log_format, policy, strict):
            turn = document["turn"]
            name = f"turn {turn['number']} (line {turn['line']})"
            try:
                judgement = _judge(document, name)
            except InvalidFile as error:  # the remaining turns are judged nevertheless
                verdict_counts["invalid"] += 1
                print_stderr(f"error: {error}")
                yield json_text({**turn, **error.as_json()}) if as_json else f"{name}: invalid"
                continue
            verdict_counts[judgement.result] += 1
            lacks_stop_reasons |= any("stop reason unrecorded" in finding.message for finding in judgement.findings)
            if as_json:
                yield json_text({**turn, **judgement.as_json()})
            else:
                yield f"{name}: {' '.join([judgement.result, *judgement.failure_classes])}"

    try:
        write_lines(verdict_lines())
    finally:  # an error in the log ends the iteration; the turns before it are counted
        summary = [f"{number} {verdict}" for verdict, number in verdict_counts.items() if number]
        print_stderr(f"{count(sum(verdict_counts.values()), 'turn')}: {', '.join(summary) or 'nothing to check'}")
        if lacks_stop_reasons:
            print_stderr(f"the log has no stop reasons; --policy {TRANSCRIPT} is for such logs")
    if verdict_counts["invalid"] or verdict_counts["rejected"]:
        raise click.exceptions.Exit(INVALID if verdict_counts["invalid"] else REJECTED)


@command.command("verify", short_help="Judge the rows of a witness again.")
@click.argument("file", metavar="FILE", type=FILE)
@document_option
def verify(file: str, as_json: bool) -> None:
    """Judge the rows of the witness in FILE again, and print each difference from its claims.

    Exit status: 0 no difference, 1 at least one, 2 FILE is not a witness.
    """
    with _as_invalid_file(source_name(file)):
        outcome = verify_witness(_read_object(file))
    lines = [f"{diff.where}: {json_text(diff.found)} is not {json_text(diff.expected)}" for diff in outcome.differences]
    lines.append(f"{'holds' if outcome.holds else 'does not hold'}  {outcome.judgement.witness_id}")
    lines.append(f"taken on record: {len(outcome.on_record)}")
    print_result(outcome.as_json(), lines, as_json=as_json, ok=outcome.holds)


@contextmanager
def _as_invalid_file(name: str) -> Iterator[None]:
    """Convert an ``InvalidEvidence`` of the ``with`` block to an ``InvalidFile`` with this name."""
    try:
        yield
    except InvalidEvidence as error:
        raise InvalidFile(name, error.path, error.message) from None


def _judge(document: Mapping[str, Any], name: str) -> Judgement:
    with _as_invalid_file(name):
        return judge(document)


def _read_object(file: str) -> dict[str, Any]:
    try:
        value = decode(read(file, MAX_EVIDENCE_BYTES))
    except Fault as fault:
        raise InvalidFile(source_name(file), "", fault.message) from None
    if not isinstance(value, dict):
        raise InvalidFile(source_name(file), "", "expected an object")
    return value


def _read_turns(log: str, log_format: str, policy: str | None, strict: bool) -> Iterator[dict[str, Any]]:
    """Yield the evidence of each turn in a log. Raises ``InvalidFile``, even for a log without turns."""
    from manglecp.adapters import MAX_LINE_BYTES, LogError, ingest as ingest_log

    turn_policy, pinned_digest = _load_policy(policy)
    try:
        with open_binary(log) as stream:
            # At most one byte more than the limit is read of each line: enough for ingest_log to refuse a longer line.
            lines = iter(lambda: stream.readline(MAX_LINE_BYTES + 1), b"")
            turns = ingest_log(lines, log_format, turn_policy, pinned=pinned_digest, strict=strict)
            turn = None
            for turn in turns:
                yield turn
            if turn is None:
                raise InvalidFile(source_name(log), "", f"no turn in this log; is it in the format {log_format}?")
    except LogError as error:
        raise InvalidFile(source_name(log), error.path, error.message, error.line) from None


def _load_policy(name: str | None) -> tuple[Any, str | None]:
    """Return the package, JSON object or built-in policy of this name, and the pinned digest if a package has one."""
    if name is None:
        return None, None
    if name == TRANSCRIPT and not Path(name).exists():
        from manglecp.adapters import TRANSCRIPT_POLICY

        return TRANSCRIPT_POLICY, None
    if Path(name).is_file() or name == DASH:
        from manglecp.adapters import CONSTRAINTS

        fields = _read_object(name)
        for field, value in fields.items():
            if field in CONSTRAINTS and not isinstance(value, dict):
                raise InvalidFile(source_name(name), f"/{field}", "expected an object")
        return fields, None
    from manglecp.cli.policy import default_pin, load_package, load_pin
    from manglecp.harness.policy import PolicyError

    try:
        package = load_package(name)
        pin = load_pin(default_pin(name))
    except PolicyError as error:
        first_problem = error.diagnostics[0]
        raise InvalidFile(first_problem.file, first_problem.pointer, first_problem.message) from None
    return package, None if pin is None else pin.digest


command.add_command(session.command)
command.add_command(session.work)
