"""``manglecp run-log``: verify the hash chain of a run log, and replay the run from it.

No policy and no action is started. Exit status: 0 the log is sound, 1 it is not, 2 wrong command line.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any, Final, NoReturn

import click

from manglecp.cli import files
from manglecp.cli.options import document_option
from manglecp.cli.output import ProgressLine, count, fail, json_text, print_json, print_result
from manglecp.runner import MAX_LINE_BYTES, BrokenLog, replay as replay_log, verify as verify_log

_MAX_KEY_BYTES: Final = 4_096
_MAX_LOG_BYTES: Final = 1 << 30  # the records are held in memory


@click.group("run-log")
def command() -> None:
    """Verify and replay the log of a run. No action is executed."""


log_key_option: Final = files.option("--key-file FILE", type=files.FILE, help="A file with the key that seals the log.")
_log_options = files.combine(
    click.argument("file", metavar="FILE", type=files.FILE),
    files.option("--head HASH", help="The expected last hash, from a copy stored elsewhere."),
    log_key_option,
    files.option("--no-end", is_flag=True, help="Accept a log without an end record, such as one of the C++ runner."),
    document_option,
)


@command.command("verify", short_help="Verify the hash chain.")
@_log_options
def verify(file: str, head: str | None, key_file: str | None, no_end: bool, as_json: bool) -> None:
    """Verify the hash chain: report a record that was changed, removed or moved.

    A writer of the file can replace the whole chain. Detect that with --key-file, or with --head and a hash that is
    stored elsewhere.
    """
    with _open_lines(file, "verifying", as_json) as lines:
        log = verify_log(lines, key=read_key(key_file), head=head, end_required=not no_end)
    end = log.records[-1].payload
    counts = {"records": len(log.records), "steps": end.get("steps"), "reason": end.get("reason"), "head": log.head}
    document = {"ok": True, **log.header.members(), **counts}
    reason = "" if document["reason"] is None else f", {document['reason']}"
    line = f"ok: run {document['run_id']}, {count(len(log.records), 'record')}{reason}, head {log.head}"
    print_result(document, [line], as_json=as_json)


@command.command("replay")
@_log_options
def replay(file: str, head: str | None, key_file: str | None, no_end: bool, as_json: bool) -> None:
    """Verify the log, then replay the run with the recorded responses.

    Menus, selections, patches, states and the end must equal the recorded ones.
    """
    with _open_lines(file, "replaying", as_json) as lines:
        outcome = asyncio.run(replay_log(lines, key=read_key(key_file), head=head, end_required=not no_end))
    if (divergence := outcome.divergence) is not None:
        details = {"step": divergence.step, "recorded": divergence.recorded, "replayed": divergence.replayed}
        _refuse(file, divergence.line, "the replay differs from the record", as_json, **details)
    if outcome.result is None:
        print_result({"ok": True, "reason": None}, ["ok: up to the last record; the log has no end"], as_json=as_json)
        return
    line = f"ok: {outcome.result.reason} after {count(outcome.result.steps, 'step')}"
    print_result({"ok": True, **outcome.result.members()}, [line], as_json=as_json)


@contextmanager
def _open_lines(file: str, doing: str, as_json: bool) -> Iterator[Iterator[bytes]]:
    """Yield an iterator that reads the lines of a log, while the progress line shows ``doing``.

    The iterator raises ``UsageError`` after ``_MAX_LOG_BYTES``. A ``BrokenLog`` ends the process with status 1.
    """

    def read(stream: IO[bytes]) -> Iterator[bytes]:
        bytes_left = _MAX_LOG_BYTES
        while line := stream.readline(MAX_LINE_BYTES + 1):  # one byte over the limit: the verifier refuses it
            bytes_left -= len(line)
            if bytes_left < 0:
                raise click.UsageError(f"{files.source_name(file)} has more than {_MAX_LOG_BYTES:,} bytes")
            yield line

    try:
        with files.open_binary(file) as stream, ProgressLine(doing):
            yield read(stream)
    except BrokenLog as error:
        _refuse(file, error.line, error.reason, as_json)


def read_key(file: str | None) -> bytes | None:
    if file is None:
        return None
    key = files.read(file, _MAX_KEY_BYTES)
    if not key:
        raise click.UsageError(f"{files.source_name(file)} is empty; a key has at least one byte")
    return key


def _refuse(file: str, line: int, reason: str, as_json: bool, **details: Any) -> NoReturn:
    """Print why the log is not sound, and exit with status 1."""
    if as_json:
        print_json({"ok": False, "line": line, "error": reason, **details}, ok=False)
    values = (f"  {name}: {json_text(details[name])}" for name in ("recorded", "replayed") if name in details)
    fail(f"{files.source_name(file)}:{line}: {reason}", *values)
