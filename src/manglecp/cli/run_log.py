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
from manglecp.cli.output import Progress, count, json_text, print_json, write_lines

if TYPE_CHECKING:
    from manglecp.runner import VerifiedLog

_LONGEST_KEY: Final = 4_096
_LONGEST_LOG: Final = 1 << 30  # bytes; the records are held in memory


@click.group("run-log")
def command() -> None:
    """Check the log of a run, without running anything."""


_of_a_log = combine(
    click.argument("file", metavar="FILE", type=files.FILE),
    click.option("--head", metavar="HASH", help="The last hash, as it was kept elsewhere."),
    click.option("--key-file", metavar="FILE", type=files.FILE, help="Its bytes are the key that sealed the log."),
    as_json,
)


@command.command("verify", short_help="Compute every hash again, and look for what was changed.")
@_of_a_log
@click.option("--no-end", is_flag=True, help="Take a log without an end, such as one of the C++ runner.")
def verify(file: str, head: str | None, key_file: str | None, as_json: bool, no_end: bool) -> None:
    """Compute every hash again, and look for what was changed, taken out or moved.

    Whoever can write the file can write another chain into it. Against that helps a key, or a hash kept elsewhere.
    """
    from manglecp.runner import BrokenLog, verify as verified

    try:
        with _lines(file) as lines, Progress("verifying"):
            found = verified(lines, key=_key(key_file), head=head, end_required=not no_end)
    except BrokenLog as broken:
        _refuse(file, broken.line, broken.reason, as_json)
    document = {"ok": True, **_summary(found)}
    write_lines([json_text(document) if as_json else _line(document)])


@command.command("replay")
@_of_a_log
def replay(file: str, head: str | None, key_file: str | None, as_json: bool) -> None:
    """Verify the log, then play the run again with the answers of then.

    Menus, selections, patches, states and the end have to come out as they were logged.
    """
    import asyncio

    from manglecp.runner import BrokenLog, replay as played

    try:
        with _lines(file) as lines, Progress("replaying"):
            outcome = asyncio.run(played(lines, key=_key(key_file), head=head))
    except BrokenLog as broken:
        _refuse(file, broken.line, broken.reason, as_json)
    if outcome.result is None:
        different = outcome.divergence
        assert different is not None
        more = {"step": different.step, "recorded": different.recorded, "replayed": different.replayed}
        _refuse(file, different.line, "comes out differently", as_json, **more)
    document = {"ok": True, **outcome.result.members()}
    steps = count(outcome.result.steps, "step")
    write_lines([json_text(document) if as_json else f"ok: {outcome.result.reason} after {steps}"])


@contextmanager
def _lines(file: str) -> Iterator[Iterator[bytes]]:
    """Yield the lines of a log lazily, with a limit on the length of each and of all."""
    from manglecp.runner import LONGEST

    def read(stream: IO[bytes]) -> Iterator[bytes]:
        left = _LONGEST_LOG
        while line := stream.readline(LONGEST + 1):
            left -= len(line)
            if left < 0:
                raise click.UsageError(f"{files.source_name(file)} has more than {_LONGEST_LOG:,} bytes")
            yield line

    with files.open_binary(file) as stream:
        yield read(stream)


def _key(file: str | None) -> bytes | None:
    if file is None:
        return None
    key = files.read(file, _LONGEST_KEY)
    if not key:
        raise click.UsageError(f"{files.source_name(file)} is empty, and no key is")
    return key


def _summary(found: VerifiedLog) -> dict[str, Any]:
    last = found.records[-1]
    return {
        **found.header.members(),
        "records": len(found.records),
        "steps": last.payload.get("steps"),
        "reason": last.payload.get("reason"),
        "head": found.head,
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
