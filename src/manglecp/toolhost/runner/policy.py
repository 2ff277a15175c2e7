"""An external process as the selector: it is given the situation as JSON and prints a selection.

The command is a list of arguments and never passes a shell. Its executable has to be on a list of absolute paths; a
name alone, upstream's rule, is met by any file that somebody calls ``python3``. The situation is in a file that only
this user can read, and either its path is the last argument, as upstream does it, or it is the child's stdin.

A policy fails if it does not start, takes too long, prints too much, exits with anything but 0, says nothing or
something that is no selection, or picks what is not on the menu. A failure is an INVALID selection; what follows from
it is not decided here. After five failures in a row the policy is left alone for 30 seconds; then it has one try.

The process is awaited in a thread, so that hosts and other runs go on meanwhile. Whoever gives up the question ends the
process.
"""

from __future__ import annotations

import asyncio
import tempfile
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from manglecp.toolhost.dispatch.breakers import Breaker
from manglecp.toolhost.runner.canonical import canonical
from manglecp.toolhost.runner.control import Situation
from manglecp.toolhost.runner.errors import PolicyRefused
from manglecp.toolhost.runner.process import Ended, Limits, run
from manglecp.toolhost.runner.selection import Kind, Selection, parse

__all__ = ["ExternalPolicy", "Payload"]


class Payload(StrEnum):
    """How the situation reaches the process."""

    FILE = "file"
    STDIN = "stdin"


@dataclass(frozen=True)
class ExternalPolicy:
    """``env`` is added to the few variables that a policy inherits."""

    argv: Sequence[str]
    allowed: Collection[str]
    payload: Payload = Payload.FILE
    compatible: bool = False
    env: Mapping[str, str] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    breaker: Breaker = field(default_factory=lambda: Breaker(time.monotonic))

    def __post_init__(self) -> None:
        if isinstance(self.argv, str) or not self.argv or not all(isinstance(one, str) for one in self.argv):
            raise PolicyRefused("a command is a list of texts")
        if any("\0" in one for one in self.argv):
            raise PolicyRefused("an argument has a NUL")
        executable = self.argv[0]
        if not Path(executable).is_absolute() or ".." in Path(executable).parts or executable not in self.allowed:
            raise PolicyRefused(f"{executable[:200]!a} is not on the list of allowed executables")

    async def __call__(self, situation: Situation, /) -> Selection:
        permit = self.breaker.admit()
        if permit is None:
            return Selection.invalid("", "the policy failed too often and is left alone for a while")
        stop = threading.Event()
        try:
            ended = await asyncio.to_thread(self._run, canonical(situation.members()), stop)
        finally:
            stop.set()
            self.breaker.abandoned(permit)  # unless it is told better
        selection = self._read(ended).within(situation.menu)
        if selection.kind is Kind.INVALID:
            self.breaker.failed(permit)
        else:
            self.breaker.succeeded(permit)
        return selection

    def _run(self, payload: bytes, stop: threading.Event) -> Ended:
        with tempfile.TemporaryFile() as stdin:
            if self.payload is Payload.STDIN:
                stdin.write(payload)
                stdin.seek(0)
                return run(self.argv, stdin=stdin, env=self.env, limits=self.limits, stop=stop)
            # A folder of its own, which only this user may enter: nobody can put another file in the place of ours.
            with tempfile.TemporaryDirectory(prefix="policy-") as folder:
                file = Path(folder, "situation.json")
                file.write_bytes(payload)
                return run([*self.argv, str(file)], stdin=stdin, env=self.env, limits=self.limits, stop=stop)

    def _read(self, ended: Ended) -> Selection:
        try:
            raw = ended.output.decode()
        except UnicodeDecodeError:
            return Selection.invalid("", "the policy printed something that is not UTF-8")
        if ended.failure:
            return Selection.invalid(raw, f"the policy failed: {ended.failure}")
        return parse(raw, compatible=self.compatible)
