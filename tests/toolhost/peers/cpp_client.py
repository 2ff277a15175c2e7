"""A client that treats a toolhost as the pool of the C++ runner does, its habits included.

It reads stdout and stderr of a listing as one, sends differences to the state that it believes the session holds and
believes every answer, looks at ``status`` and never at ``ok``, and has little patience when it leaves.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

__all__ = ["Result", "ServeSession", "listing", "run_once"]

MAX_LINE: Final = 1_048_576
_STATUSES: Final = ("OK", "INVALID_PICK", "TOOL_ERROR", "BREAKER_TRIP")
_MEGABYTE: Final = 1024 * 1024
_LIMITS: Final = {
    resource.RLIMIT_AS: 1024 * _MEGABYTE,
    resource.RLIMIT_FSIZE: 16 * _MEGABYTE,
    resource.RLIMIT_NOFILE: 64,
}


class Result(NamedTuple):
    """A ToolResult, and the state as the client sees it afterwards."""

    status: str
    output_json: str
    error: str
    slots: dict[str, Any]


def listing(host: Sequence[str], plugin: str) -> list[str]:
    """The AIDs of a plugin; AssertionError where the C++ client gives up."""
    merged = subprocess.run(
        [*host, "--list", plugin], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=30, check=False
    ).stdout
    document = json.loads(merged)
    assert document["ok"] is True
    return [tool["aid"] for tool in document["tools"]]


def run_once(host: Sequence[str], plugin: str, aid: str, input_json: str, slots: Mapping[str, Any]) -> Result:
    """What it does when a session has failed: the same call again, in run mode."""
    request = _text({"input_json": input_json, "ds_state": {"slots": dict(slots)}})
    done = subprocess.run([*host, "--run", plugin, aid], input=request, capture_output=True, timeout=30, check=False)
    return _result(json.loads(done.stdout), {})


class ServeSession:
    """One child in serve mode."""

    def __init__(self, host: Sequence[str], plugin: str, environ: Mapping[str, str] | None = None) -> None:
        self._process = subprocess.Popen(
            [*host, "--serve", plugin],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environ,
            bufsize=0,
            process_group=0,
            preexec_fn=_limit,
        )
        self.pid: Final = self._process.pid
        self._believed: dict[str, Any] = {}

    def send(self, aid: str, input_json: str, slots: Mapping[str, Any]) -> None:
        """Write a request: the state as a difference to the one that it believes in."""
        assert self._process.stdin is not None
        delta = {
            "delta": True,
            "slots": {slot: artifact for slot, artifact in slots.items() if self._believed.get(slot) != artifact},
            "removed_slots": [int(slot) for slot in self._believed if slot not in slots],
        }
        self._process.stdin.write(_text({"aid": aid, "input_json": input_json, "ds_state": delta}) + b"\n")
        self._believed = dict(slots)

    def receive(self, patience: float = 30.0) -> Result:
        """Read until the first newline."""
        assert self._process.stdout is not None
        line = b""
        while not line.endswith(b"\n"):
            assert len(line) <= MAX_LINE
            ready, _, _ = select.select([self._process.stdout], [], [], patience)
            more = os.read(self._process.stdout.fileno(), 65_536) if ready else b""
            assert more, "no answer"
            line += more
        answer = _result(json.loads(line), self._believed)
        self._believed = answer.slots
        return answer

    def call(self, aid: str, input_json: str, slots: Mapping[str, Any]) -> Result:
        """One call."""
        self.send(aid, input_json, slots)
        return self.receive()

    def leave(self, grace: float = 0.05) -> tuple[int, float]:
        """An empty line, then less and less politely; the exit status, and how long it took."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        start = time.monotonic()
        self._process.stdin.write(b"\n")
        self._process.stdin.close()
        for patience, number in ((grace, signal.SIGTERM), (max(grace, 0.1), signal.SIGKILL)):
            try:
                self._process.wait(patience)
                break
            except subprocess.TimeoutExpired:
                os.killpg(self.pid, number)
        status = self._process.wait(30)
        self._process.stdout.close()
        return status, time.monotonic() - start


def _limit() -> None:
    for limit, value in _LIMITS.items():
        resource.setrlimit(limit, (value, value))


def _text(request: Mapping[str, Any]) -> bytes:
    return json.dumps(request, ensure_ascii=False, separators=(",", ":")).replace("/", "\\/").encode()


def _result(document: Mapping[str, Any], believed: Mapping[str, Any]) -> Result:
    status = document.get("status")
    state = document.get("ds_state")
    slots = dict(believed)
    if isinstance(state, dict):
        slots = {**(slots if state.get("delta") else {}), **state.get("slots", {})}
        for slot in state.get("removed_slots", []):
            slots.pop(str(slot), None)
    return Result(
        status if status in _STATUSES else "TOOL_ERROR",
        document.get("output_json") or "{}",
        document.get("error", ""),
        slots,
    )
