"""Selectors: the built-in heuristic, an external policy process, and the mode that arbitrates between them.

A policy command is a list of arguments and never passes a shell; its executable must be on a list of absolute paths.
It reads the situation as JSON from a private file or stdin and prints a selection. Any failure (start, time, size, exit
code, grammar, a SID that is not on the menu) is an INVALID selection. Five failures in a row open a circuit breaker for
30 seconds.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from typing import IO, Any, Final, TypeAlias

from manglecp.base.child import capture
from manglecp.runner.execution import resolve
from manglecp.runner.log import PolicyRefused, canonical
from manglecp.runner.selection import Menu, MenuAction, Selection, SelectionKind, parse_selection
from manglecp.toolhost import Breaker


class ControlMode(StrEnum):
    """Which selector decides.

    A selector that neither decides nor is compared is not called, and a failing policy is an invalid selection;
    upstream calls both in every mode and replaces a failing policy by the fallback.
    """

    FALLBACK_ONLY = "FALLBACK_ONLY"
    SHADOW_POLICY = "SHADOW_POLICY"  # the fallback decides, the policy is logged
    BLENDED = "BLENDED"  # the policy decides unless it is INVALID
    POLICY_ONLY = "POLICY_ONLY"  # the policy decides, INVALID included


@dataclass(frozen=True, slots=True)
class Situation:
    """The input of a selector."""

    goal_digest: str
    state_digest: str
    control_mode: ControlMode
    inputs: Mapping[str, Any]
    menu: Menu
    request_id: str | None = None

    def members(self) -> dict[str, Any]:
        """Return the form for a policy: upstream's keys, and the request id."""
        members = {
            "goal_digest": self.goal_digest,
            "state_digest": self.state_digest,
            "control_mode": self.control_mode.value,
            "inputs": dict(self.inputs),
            "menu": [entry.described() for entry in self.menu.entries],
        }
        return members if self.request_id is None else {**members, "request_id": self.request_id}


Selector: TypeAlias = Callable[[Situation], Selection | Awaitable[Selection]]
"""Picks from a menu, now or when awaited. A failure is an invalid selection."""


@dataclass(frozen=True, slots=True)
class SelectorDecision:
    """The selection that counts, its source, and all selections made."""

    chosen: Selection
    source: str
    fallback: Selection | None = None
    policy: Selection | None = None


async def choose(situation: Situation, fallback: Selector, policy: Selector | None) -> SelectorDecision:
    """Call the selectors of the mode. A missing policy that has to decide is INVALID."""
    mode = situation.control_mode
    policy_selection = fallback_selection = None
    if mode is not ControlMode.FALLBACK_ONLY:
        policy_selection = await _select(policy, situation)
    deciding = policy_selection if mode in (ControlMode.BLENDED, ControlMode.POLICY_ONLY) else None
    if deciding is None or (mode is ControlMode.BLENDED and deciding.kind is SelectionKind.INVALID):
        fallback_selection = await _select(fallback, situation)
        return SelectorDecision(fallback_selection, "fallback", fallback_selection, policy_selection)
    return SelectorDecision(deciding, "policy", None, policy_selection)


async def _select(selector: Selector | None, situation: Situation) -> Selection:
    if selector is None:
        return Selection.invalid("", "no policy is configured")
    try:
        return (await resolve(selector(situation))).within(situation.menu)
    except Exception as error:  # counts as an invalid selection; the run continues
        return Selection.invalid("", f"the selector raised {type(error).__name__}")


class FirstFit:
    """A selector without a model; use one instance per run.

    It picks the first action whose required arguments are present and that was not tried yet on these inputs and this
    state; otherwise NOOP.
    """

    def __init__(self) -> None:
        self._tried: set[tuple[str, str, str]] = set()

    def __call__(self, situation: Situation, /) -> Selection:
        inputs_digest = sha256(canonical(dict(situation.inputs))).hexdigest()
        for entry in situation.menu.entries:
            attempt = (entry.offer.aid, situation.state_digest, inputs_digest)
            if attempt not in self._tried and _has_required_inputs(situation, entry.offer):
                self._tried.add(attempt)
                return parse_selection(f"<PICK><{entry.sid}><END>")
        return parse_selection("<NOOP><END>")


def _has_required_inputs(situation: Situation, offer: MenuAction) -> bool:
    required = (offer.inputs_schema or {}).get("required")
    return not isinstance(required, list) or all(name in situation.inputs for name in required)


_INHERITED: Final = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR")
_NOT_STARTED: Final = 127
_NOT_STARTED_MARK: Final = b"not started: "
_LAUNCHER: Final = """
import json, os, resource, sys
for kind, most in json.loads(sys.argv[1]):
    hard = resource.getrlimit(kind)[1]
    allowed = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(kind, (allowed, allowed))
try:
    os.execv(sys.argv[2], sys.argv[2:])
except OSError as error:
    os.write(1, b"not started: " + type(error).__name__.encode())
    os._exit(127)
"""


@dataclass(frozen=True, slots=True)
class PolicyLimits:
    """Upstream's limits of a policy. ``seconds`` is wall time, the rest is enforced by the kernel."""

    seconds: float = 2.5
    output_bytes: int = 65_536
    cpu_seconds: int = 2
    memory_bytes: int = 768 * 1024 * 1024
    file_bytes: int = 10 * 1024 * 1024
    open_files: int = 64


@dataclass(frozen=True, slots=True)
class ChildResult:
    """The output of a child. ``failure`` is empty if the child exited with 0 within its limits."""

    output: bytes
    failure: str = ""


def run_child(
    argv: Sequence[str], *, stdin: IO[bytes], env: Mapping[str, str], limits: PolicyLimits, stop: threading.Event
) -> ChildResult:
    """Run a child process within its limits, or until ``stop`` is set; failures of the child are returned.

    A small launcher sets the limits and then becomes the program: code between fork and exec would be unsafe with
    threads. The input is a file, so that a child that does not read cannot block us.
    """
    own = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    launched = [sys.executable, "-I", "-S", "-c", _LAUNCHER, json.dumps(_resource_limits(limits)), *argv]
    try:
        output, _, code = capture(
            launched, {**own, **env}, seconds=limits.seconds, limit=limits.output_bytes, stdin=stdin, stop=stop
        )
    except (OSError, ValueError) as error:
        return ChildResult(b"", f"not started: {type(error).__name__}")
    if len(output) > limits.output_bytes:
        return ChildResult(b"", f"printed more than {limits.output_bytes} bytes")
    if code is None:
        return ChildResult(b"", f"no selection within {limits.seconds:g} s")
    if code == _NOT_STARTED and output.startswith(_NOT_STARTED_MARK):
        return ChildResult(b"", output.decode("ascii", "replace"))
    return ChildResult(output, "" if code == 0 else f"exit code {code}" if code > 0 else f"signal {-code}")


def _resource_limits(limits: PolicyLimits) -> list[tuple[int, int]]:
    return [
        (resource.RLIMIT_CPU, limits.cpu_seconds),
        (resource.RLIMIT_AS, limits.memory_bytes),
        (resource.RLIMIT_FSIZE, limits.file_bytes),
        (resource.RLIMIT_NOFILE, limits.open_files),
        (resource.RLIMIT_CORE, 0),
    ]


class Payload(StrEnum):
    """How the situation reaches the process."""

    FILE = "file"
    STDIN = "stdin"


@dataclass(frozen=True)
class ExternalPolicy:
    """A policy process. ``env`` is added to the few variables that it inherits."""

    argv: Sequence[str]
    allowed: Collection[str]
    payload: Payload = Payload.FILE
    compatible: bool = False
    env: Mapping[str, str] = field(default_factory=dict)
    limits: PolicyLimits = field(default_factory=PolicyLimits)
    breaker: Breaker = field(default_factory=lambda: Breaker(time.monotonic))

    def __post_init__(self) -> None:
        if isinstance(self.argv, str) or not self.argv or not all(isinstance(one, str) for one in self.argv):
            raise PolicyRefused("the command is not a list of texts")
        if any("\0" in one for one in self.argv):
            raise PolicyRefused("an argument contains NUL")
        executable = self.argv[0]
        if not Path(executable).is_absolute() or ".." in Path(executable).parts or executable not in self.allowed:
            raise PolicyRefused(f"{executable[:200]!a} is not on the list of allowed executables")

    async def __call__(self, situation: Situation, /) -> Selection:
        permit = self.breaker.admit()
        if permit is None:
            return Selection.invalid("", "the circuit breaker of the policy is open")
        stop = threading.Event()
        try:
            ended = await asyncio.to_thread(self._run, canonical(situation.members()), stop)
        finally:
            stop.set()
            self.breaker.abandoned(permit)  # no effect once the permit is settled below
        selection = self._read(ended).within(situation.menu)
        if selection.kind is SelectionKind.INVALID:
            self.breaker.failed(permit)
        else:
            self.breaker.succeeded(permit)
        return selection

    def _run(self, payload: bytes, stop: threading.Event) -> ChildResult:
        with tempfile.TemporaryFile() as stdin:
            if self.payload is Payload.STDIN:
                stdin.write(payload)
                stdin.seek(0)
                return run_child(self.argv, stdin=stdin, env=self.env, limits=self.limits, stop=stop)
            # A private folder, so that no other user can replace the file.
            with tempfile.TemporaryDirectory(prefix="policy-") as folder:
                file = Path(folder, "situation.json")
                file.write_bytes(payload)
                return run_child([*self.argv, str(file)], stdin=stdin, env=self.env, limits=self.limits, stop=stop)

    def _read(self, ended: ChildResult) -> Selection:
        try:
            raw = ended.output.decode()
        except UnicodeDecodeError:
            return Selection.invalid("", "the output of the policy is not UTF-8")
        if ended.failure:
            return Selection.invalid(raw, f"the policy failed: {ended.failure}")
        return parse_selection(raw, compatible=self.compatible)
