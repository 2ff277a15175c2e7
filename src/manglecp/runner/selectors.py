"""Selectors, which pick the next action from a menu: a heuristic (:class:`FirstFit`), and an external policy process.

A policy command is a list of arguments and never run through a shell; its executable must be on a list of absolute
paths. The policy reads the situation as JSON from a private file and prints a selection. Any failure (start,
time, size, exit code, grammar, a selection id (SID) that is not on the menu) is an INVALID selection. Five failures in
a row open a circuit breaker for 30 seconds. Upstream is the Machina runner, whose interfaces this package implements.
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
from typing import Any, Final, TypeAlias

from manglecp.base.child import capture
from manglecp.runner.execution import resolve
from manglecp.runner.log import PolicyRefused, canonical
from manglecp.runner.selection import Menu, Selection, SelectionKind, parse_selection
from manglecp.toolhost import Breaker, Slots, full_state


class ControlMode(StrEnum):
    """Which kind of selector a run has. Upstream has two more modes, which combine both kinds."""

    FALLBACK_ONLY = "FALLBACK_ONLY"  # a heuristic or the operator
    POLICY_ONLY = "POLICY_ONLY"  # rules or a policy process; no fallback if the selection is INVALID


@dataclass(frozen=True, slots=True)
class Situation:
    """The input of a selector. ``request_id`` is the caller's trace id."""

    goal_digest: str
    state_digest: str
    control_mode: ControlMode
    inputs: Mapping[str, Any]
    menu: Menu
    request_id: str | None = None
    slots: Slots = field(default_factory=dict)

    def members(self) -> dict[str, Any]:
        """Return the JSON object that a policy reads: the keys of upstream, ``ds_state``, and ``request_id`` if any."""
        members = {
            "goal_digest": self.goal_digest,
            "state_digest": self.state_digest,
            "control_mode": self.control_mode.value,
            "inputs": dict(self.inputs),
            "menu": [entry.describe() for entry in self.menu.entries],
            "ds_state": full_state(self.slots),
        }
        return members if self.request_id is None else {**members, "request_id": self.request_id}


Selector: TypeAlias = Callable[[Situation], Selection | Awaitable[Selection]]
"""Returns a selection, or an awaitable of one. An exception counts as an INVALID selection."""


async def select(selector: Selector, situation: Situation) -> Selection:
    """Return the selection; INVALID if its SID is not on the menu, or if the selector raises."""
    try:
        return (await resolve(selector(situation))).restricted_to(situation.menu)
    except Exception as error:  # an error of a selector does not end the run
        return Selection.invalid("", f"the selector raised {type(error).__name__}")


class FirstFit:
    """A fallback without a model; use one instance per run.

    It picks the first action of the menu whose required arguments are among the inputs and that it has not yet picked
    for these inputs and this state; otherwise NOOP.
    """

    def __init__(self) -> None:
        self._attempts: set[tuple[str, str, str]] = set()  # AID, state digest, inputs digest

    def __call__(self, situation: Situation, /) -> Selection:
        inputs_digest = sha256(canonical(dict(situation.inputs))).hexdigest()
        for entry in situation.menu.entries:
            attempt = (entry.action.aid, situation.state_digest, inputs_digest)
            required_names = (entry.action.inputs_schema or {}).get("required")
            fits = not isinstance(required_names, list) or all(name in situation.inputs for name in required_names)
            if fits and attempt not in self._attempts:
                self._attempts.add(attempt)
                return parse_selection(f"<PICK><{entry.sid}><END>")
        return parse_selection("<NOOP><END>")


_INHERITED_VARIABLES: Final = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR")
_NOT_STARTED_CODE: Final = 127  # the exit code of the launcher if it cannot start the program
_NOT_STARTED_PREFIX: Final = b"not started: "  # which the launcher then prints, followed by the name of the error
_LAUNCHER: Final = """
import json, os, resource, sys
for kind, soft in json.loads(sys.argv[1]):
    hard = resource.getrlimit(kind)[1]
    limit = soft if hard == resource.RLIM_INFINITY else min(soft, hard)
    resource.setrlimit(kind, (limit, limit))
try:
    os.execv(sys.argv[2], sys.argv[2:])
except OSError as error:
    os.write(1, b"not started: " + type(error).__name__.encode())
    os._exit(127)
"""


@dataclass(frozen=True, slots=True)
class PolicyLimits:
    """The limits of a policy process; the defaults are the limits of upstream.

    This module enforces ``seconds`` (wall time) and ``output_bytes`` (stdout) by killing the process; the kernel
    enforces the others as resource limits.
    """

    seconds: float = 2.5
    output_bytes: int = 65_536
    cpu_seconds: int = 2
    memory_bytes: int = 768 * 1024 * 1024
    file_bytes: int = 10 * 1024 * 1024
    open_files: int = 64


def run_child(
    argv: Sequence[str], *, env: Mapping[str, str], limits: PolicyLimits, stop: threading.Event
) -> tuple[bytes, str]:
    """Run a policy process within its limits, or until ``stop`` is set; return its stdout and the failure, if any.

    A small launcher sets the resource limits and then executes the program: a ``preexec_fn``, which runs between fork
    and exec, would be unsafe with threads.
    """
    variables = {name: os.environ[name] for name in _INHERITED_VARIABLES if name in os.environ}
    resource_limits = [
        (resource.RLIMIT_CPU, limits.cpu_seconds),
        (resource.RLIMIT_AS, limits.memory_bytes),
        (resource.RLIMIT_FSIZE, limits.file_bytes),
        (resource.RLIMIT_NOFILE, limits.open_files),
        (resource.RLIMIT_CORE, 0),
    ]
    command = [sys.executable, "-I", "-S", "-c", _LAUNCHER, json.dumps(resource_limits), *argv]
    try:
        output, _, code = capture(
            command, {**variables, **env}, seconds=limits.seconds, limit=limits.output_bytes, stop=stop
        )
    except (OSError, ValueError) as error:
        return b"", f"not started: {type(error).__name__}"
    if len(output) > limits.output_bytes:
        return b"", f"printed more than {limits.output_bytes} bytes"
    if code is None:  # also if ``stop`` was set, but then the result is not used
        return b"", f"no selection within {limits.seconds:g} s"
    if code == _NOT_STARTED_CODE and output.startswith(_NOT_STARTED_PREFIX):
        return b"", output.decode("ascii", "replace")
    return output, "" if code == 0 else f"exit code {code}" if code > 0 else f"signal {-code}"


@dataclass(frozen=True)
class ExternalPolicy:
    """A selector that starts a policy process for each selection. The constructor raises :class:`PolicyRefused`."""

    argv: Sequence[str]
    allowed: Collection[str]  # absolute paths of executables; argv[0] must be one of them
    compatible: bool = False  # parse the output as upstream does, see parse_selection()
    env: Mapping[str, str] = field(default_factory=dict)  # further variables besides _INHERITED_VARIABLES
    limits: PolicyLimits = field(default_factory=PolicyLimits)
    breaker: Breaker = field(default_factory=lambda: Breaker(time.monotonic))

    def __post_init__(self) -> None:
        if isinstance(self.argv, str) or not self.argv or not all(isinstance(item, str) for item in self.argv):
            raise PolicyRefused("the command is not a list of texts")
        if any("\0" in item for item in self.argv):
            raise PolicyRefused("an argument contains NUL")
        executable = self.argv[0]
        if not Path(executable).is_absolute() or ".." in Path(executable).parts or executable not in self.allowed:
            raise PolicyRefused(f"{executable[:200]!a} is not on the list of allowed executables")

    async def __call__(self, situation: Situation, /) -> Selection:
        permit = self.breaker.admit()
        if permit is None:
            return Selection.invalid("", "the circuit breaker of the policy is open")
        stop = threading.Event()
        settle = self.breaker.abandoned  # a cancelled call shows neither success nor failure of the policy
        try:
            result = await asyncio.to_thread(self._run, canonical(situation.members()), stop)
            selection = self._parse(*result).restricted_to(situation.menu)
            settle = self.breaker.failed if selection.kind is SelectionKind.INVALID else self.breaker.succeeded
            return selection
        finally:
            stop.set()  # the thread of a cancelled task still waits for the process
            settle(permit)

    def _run(self, situation_json: bytes, stop: threading.Event) -> tuple[bytes, str]:
        # A private folder, so that no other user can replace the file.
        with tempfile.TemporaryDirectory(prefix="policy-") as folder:
            file = Path(folder, "situation.json")
            file.write_bytes(situation_json)
            return run_child([*self.argv, str(file)], env=self.env, limits=self.limits, stop=stop)

    def _parse(self, output: bytes, failure: str) -> Selection:
        try:
            raw = output.decode()
        except UnicodeDecodeError:
            return Selection.invalid("", "the output of the policy is not UTF-8")
        if failure:
            return Selection.invalid(raw, f"the policy failed: {failure}")
        return parse_selection(raw, compatible=self.compatible)
