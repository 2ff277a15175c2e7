"""One conversation with one host process: what was said, and everything that was wrong with the answers.

Nothing raises for what a host does: a host that hangs, dies or answers nonsense is a finding. Answers are read as bytes
and cut at 0x0A only. Every host is told to leave and waited for.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import IO, Any, Final

from tests.deadlines import patience
from tests.toolhost.conversations.matching import differences
from tests.toolhost.conversations.script import Cast, Conversation, Step, filled

__all__ = ["Host", "play"]

PATIENCE: Final = patience(30.0)
"""Seconds for one answer, or one exit, of a host on a busy machine."""


@dataclass(frozen=True)
class Host:
    """A toolhost program, a plugin that it can load, and the roles of the plugin's tools."""

    argv: tuple[str, ...]
    plugin: str
    cast: Cast

    def first_aid(self, patience: float) -> str:
        """The first listed AID, for conversations that need some tool and do not care which."""
        argv = [*self.argv, "--list", self.plugin]
        try:
            done = subprocess.run(argv, capture_output=True, timeout=patience, check=False)
            aid = json.loads(done.stdout)["tools"][0]["aid"]
        except (ValueError, LookupError, TypeError, subprocess.TimeoutExpired):
            return "AID.NONE.v1"
        return str(aid)


def play(conversation: Conversation, host: Host, *, patience: float = PATIENCE) -> list[str]:
    """What was wrong; nothing, if all of it was as it has to be."""
    names: dict[str, Any] = {"plugin": host.plugin}
    if "<any>" in conversation.arguments:
        names["any"] = host.first_aid(patience)
    for role, members in host.cast.roles.items():
        names.update({f"{role}.{member}": value for member, value in members.items()})
    arguments = filled(list(conversation.arguments), names)
    options = host.cast.lease_options if conversation.leases else ()
    environ = {name: value for name, value in os.environ.items() if name != "MACHINA_LEASE_ENFORCE"}
    with tempfile.TemporaryFile() as stderr:  # a file is never full
        process = subprocess.Popen(
            [*host.argv, *arguments, *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env={**environ, **conversation.environ},
            bufsize=0,
        )
        try:
            talk = _lines if conversation.serves else _once
            found = list(talk(conversation, process, names, patience))
            found += _left(conversation, process.wait(timeout=patience), _all_of(stderr))
        except subprocess.TimeoutExpired:
            found = [f"the host was still there after {patience:.0f} s"]
        finally:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                assert pipe is not None
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
    return found


# ------------------------------------------------------------------------------------------------ list and run


def _once(
    conversation: Conversation, process: subprocess.Popen[bytes], names: Mapping[str, Any], patience: float
) -> Iterator[str]:
    text = filled(conversation.stdin, names) if conversation.request is None else _text(conversation.request, names)
    stdout, _ = process.communicate(text.encode().ljust(conversation.pad), timeout=patience)
    if conversation.expect is None:
        if stdout:
            yield f"stdout is {stdout[:300]!r}, expected nothing"
        return
    if stdout.endswith(b"\n"):
        yield "the answer ends with a newline"
    yield from _compared(stdout, filled(dict(conversation.expect), names), "answer")


# ------------------------------------------------------------------------------------------------------- serve


def _lines(
    conversation: Conversation, process: subprocess.Popen[bytes], names: dict[str, Any], patience: float
) -> Iterator[str]:
    assert process.stdin is not None
    assert process.stdout is not None
    reader = _Reader(process.stdout.fileno(), patience)
    for number, step in enumerate(conversation.steps, 1):
        time.sleep(step.wait)
        data = b"".join(_bytes(step, {**names, "n": str(count)}) for count in range(step.repeat))
        writer = threading.Thread(target=_write, args=(process.stdin, data, step.unterminated), daemon=True)
        writer.start()  # both sides could fill their pipes and wait for each other
        line = b""
        for count in range(step.repeat):
            answer = reader.line()
            if answer is None:
                yield f"step {number}: no line came; the host had written {reader.rest()[:300]!r}"
                return
            line = answer
            yield from _compared(line, filled(dict(step.expect), {**names, "n": str(count)}), f"step {number}: answer")
        writer.join(patience)
        for name, path in step.capture.items():
            names[name] = _part(line, filled(path, names))
    # Whoever reads on after an empty line answers what follows it.
    _write(process.stdin, b'\n{"aid":"AID.AFTER.THE.END"}\n' if conversation.end == "empty line" else b"", True)
    process.wait(timeout=patience)
    if more := reader.rest():
        yield f"the host also wrote {more[:300]!r}"


def _write(stdin: IO[bytes], data: bytes, close: bool) -> None:
    with contextlib.suppress(BrokenPipeError, ValueError):  # it is gone, or the input has ended: the answers will tell
        stdin.write(data)
        if close:
            stdin.close()


def _bytes(step: Step, names: Mapping[str, Any]) -> bytes:
    if step.hex is not None:
        line = bytes.fromhex(step.hex)
    elif step.line is not None:
        line = filled(step.line, names).encode()
    else:
        line = _text(step.send, names).encode()
    return line.ljust(step.pad) + (b"" if step.unterminated else b"\n")


class _Reader:
    """Lines from a descriptor, with an end to waiting for them."""

    def __init__(self, descriptor: int, patience: float) -> None:
        self._descriptor = descriptor
        self._patience = patience
        self._data = b""

    def line(self) -> bytes | None:
        until = time.monotonic() + self._patience
        while b"\n" not in self._data:
            ready, _, _ = select.select([self._descriptor], [], [], max(0.0, until - time.monotonic()))
            more = os.read(self._descriptor, 1 << 20) if ready else b""
            if not more:
                return None
            self._data += more
        line, _, self._data = self._data.partition(b"\n")
        return line

    def rest(self) -> bytes:
        """What there is beyond the lines that were read. At once: a host that lives may write more."""
        while select.select([self._descriptor], [], [], 0)[0] and (more := os.read(self._descriptor, 1 << 20)):
            self._data += more
        return self._data


# ------------------------------------------------------------------------------------------------------ common


def _text(request: Any, names: Mapping[str, Any]) -> str:
    return json.dumps(filled(request, names), separators=(",", ":"))


def _compared(data: bytes, expected: Mapping[str, Any], where: str) -> Iterator[str]:
    try:
        document = json.loads(data)
    except ValueError as error:
        yield f"{where} is no JSON ({error}): {data[:300]!r}"
        return
    yield from differences(expected, document, where)


def _left(conversation: Conversation, status: int, stderr: bytes) -> Iterator[str]:
    if status != conversation.exit:
        yield f"the exit status is {status}, expected {conversation.exit}; stderr: {stderr[-300:]!r}"
    if conversation.stderr == "nothing" and stderr:
        yield f"stderr is {stderr[:300]!r}, expected nothing"
    if conversation.stderr == "something" and not stderr:
        yield "nothing was said on stderr"


def _all_of(file: IO[bytes]) -> bytes:
    file.seek(0)
    return file.read()


def _part(line: bytes, path: str) -> Any:
    try:
        found: Any = json.loads(line)
        for name in path.split("."):
            found = found[name]
    except (ValueError, LookupError, TypeError):
        return ""
    return found
