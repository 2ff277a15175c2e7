"""``manglecp run-log``: verify the hash chain of a run log, and replay the run from it.

No policy and no action is started. Exit status: 0 the log is sound, 1 it is not, 2 wrong command line.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, Final, NoReturn

import click

from manglecp.cli import files
from manglecp.cli.files import combine
from manglecp.cli.options import as_json
from manglecp.cli.output import ProgressLine, count, json_text, print_json, write_lines

if TYPE_CHECKING:
    from manglecp.runner import VerifiedLog

_MAX_KEY_BYTES: Final = 4_096
_MAX_LOG_BYTES: Final = 1 << 30  # the records are held in memory


@click.group("run-log")
def command() -> None:
    """Verify and replay the log of a run. No action is executed."""


_log_options = combine(
    click.argument("file", metavar="FILE", type=files.FILE),
    click.option("--head", metavar="HASH", help="The expected last hash, from a copy stored elsewhere."),
    click.option("--key-file", metavar="FILE", type=files.FILE, help="A file with the key that sealed the log."),
    as_json,
)


@command.command("verify", short_help="Verify the hash chain.")
@_log_options
@click.option("--no-end", is_flag=True, help="Accept a log without an end record, such as one of the C++ runner.")
def verify(file: str, head: str | None, key_file: str | None, as_json: bool, no_end: bool) -> None:
    """Verify the hash chain: report a record that was changed, removed or moved.

    A writer of the file can replace the whole chain. Detect that with --key-file, or with --head and a hash that is
    stored elsewhere.
    """
    from manglecp.runner import BrokenLog, verify as verified

    try:
        with _lines(file) as lines, ProgressLine("verifying"):
            log = verified(lines, key=_key(key_file), head=head, end_required=not no_end)
    except BrokenLog as broken:
        _refuse(file, broken.line, broken.reason, as_json)
    document = {"ok": True, **_summary(log)}
    write_lines([json_text(document) if as_json else _line(document)])


@command.command("replay")
@_log_options
def replay(file: str, head: str | None, key_file: str | None, as_json: bool) -> None:
    """Verify the log, then replay the run with the recorded responses.

    Menus, selections, patches, states and the end must equal the recorded ones.
    """
    import asyncio

    from manglecp.runner import BrokenLog, replay as played

    try:
        with _lines(file) as lines, ProgressLine("replaying"):
            outcome = asyncio.run(played(lines, key=_key(key_file), head=head))
    except BrokenLog as broken:
        _refuse(file, broken.line, broken.reason, as_json)
    if outcome.result is None:
        different = outcome.divergence
        assert different is not None
        more = {"step": different.step, "recorded": different.recorded, "replayed": different.replayed}
        _refuse(file, different.line, "the replay differs from the record", as_json, **more)
    document = {"ok": True, **outcome.result.members()}
    steps = count(outcome.result.steps, "step")
    write_lines([json_text(document) if as_json else f"ok: {outcome.result.reason} after {steps}"])


@contextmanager
def _lines(file: str) -> Iterator[Iterator[bytes]]:
    """Yield the lines of a log lazily, with a limit on the length of each and of all."""
    from manglecp.runner import LONGEST

    def read(stream: IO[bytes]) -> Iterator[bytes]:
        left = _MAX_LOG_BYTES
        while line := stream.readline(LONGEST + 1):
            left -= len(line)
            if left < 0:
                raise click.UsageError(f"{files.source_name(file)} has more than {_MAX_LOG_BYTES:,} bytes")
            yield line

    with files.open_binary(file) as stream:
        yield read(stream)


def _key(file: str | None) -> bytes | None:
    if file is None:
        return None
    key = files.read(file, _MAX_KEY_BYTES)
    if not key:
        raise click.UsageError(f"{files.source_name(file)} is empty; a key has at least one byte")
    return key


def _summary(log: VerifiedLog) -> dict[str, Any]:
    last = log.records[-1]
    return {
        **log.header.members(),
        "records": len(log.records),
        "steps": last.payload.get("steps"),
        "reason": last.payload.get("reason"),
        "head": log.head,
    }


def _line(document: dict[str, Any]) -> str:
    ended = "" if document["reason"] is None else f", {document['reason']}"
    return f"ok: run {document['run_id']}, {count(document['records'], 'record')}{ended}, head {document['head']}"


def _refuse(file: str, line: int, reason: str, as_json: bool, **more: Any) -> NoReturn:
    if as_json:
        print_json({"ok": False, "line": line, "error": reason, **more})
    else:
        click.echo(f"{files.source_name(file)}:{line}: {reason}", err=True)
        for name in ("recorded", "replayed"):
            if name in more:
                click.echo(f"  {name}: {json_text(more[name])}", err=True)
    raise click.exceptions.Exit(1)
