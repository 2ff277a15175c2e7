"""One short-lived child process: what it prints on stdout, within a time and a size, and nothing of it left behind.

The child leads a process group of its own. Whatever way it ends, the group is killed before the child is reaped: until
then the kernel cannot give its number to somebody else, so nobody else is hit. A grandchild that holds stdout open does
not delay the answer; what counts is the child.

The limits are in place before the first instruction of the program: a small program sets them and then becomes it.
Code between fork and exec in this process would have no locks it could trust, for other threads run here.

Its input is a file, not a pipe: a child that does not read cannot block us. Its stderr goes nowhere, so that a line of
log cannot spoil an answer. Of our environment it sees only what it needs to start; keys and tokens are not among that.
"""

from __future__ import annotations

import json
import os
import resource
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, Final

__all__ = ["Ended", "Limits", "run"]

_INHERITED: Final = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR")
_GLANCE: Final = 0.01
"""Seconds between two looks whether the child is still there, when it prints nothing."""
_NOT_STARTED: Final = 127
_SORRY: Final = b"not started: "
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
class Limits:
    """Upstream's numbers for a policy. ``seconds`` is wall time, the rest is what the kernel enforces."""

    seconds: float = 2.5
    output_bytes: int = 65_536
    cpu_seconds: int = 2
    memory_bytes: int = 768 * 1024 * 1024
    file_bytes: int = 10 * 1024 * 1024
    open_files: int = 64


@dataclass(frozen=True, slots=True)
class Ended:
    """``failure`` is empty if the child exited with 0 in time and printed no more than it may."""

    output: bytes
    failure: str = ""


def run(
    argv: Sequence[str], *, stdin: IO[bytes], env: Mapping[str, str], limits: Limits, stop: threading.Event
) -> Ended:
    """Start, read, end; early, if somebody sets ``stop``. Never raises for what the child does."""
    own = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    deadline = time.monotonic() + limits.seconds
    try:
        child = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _LAUNCHER, json.dumps(_wanted(limits)), *argv],
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**own, **env},
            start_new_session=True,
            shell=False,
        )
    except (OSError, ValueError) as error:
        return Ended(b"", f"not started: {type(error).__name__}")
    try:
        output, failure = _read(child, deadline, limits, stop)
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
        code = child.wait()
        if child.stdout is not None:
            child.stdout.close()
    if not failure and code == _NOT_STARTED and output.startswith(_SORRY):
        return Ended(b"", output.decode("ascii", "replace"))
    if not failure and code != 0:
        failure = f"exit code {code}" if code > 0 else f"signal {-code}"
    return Ended(output, failure)


def _wanted(limits: Limits) -> list[tuple[int, int]]:
    return [
        (resource.RLIMIT_CPU, limits.cpu_seconds),
        (resource.RLIMIT_AS, limits.memory_bytes),
        (resource.RLIMIT_FSIZE, limits.file_bytes),
        (resource.RLIMIT_NOFILE, limits.open_files),
        (resource.RLIMIT_CORE, 0),
    ]


def _read(child: subprocess.Popen[bytes], deadline: float, limits: Limits, stop: threading.Event) -> tuple[bytes, str]:
    """What the child printed until it was gone, and why it was not let finish."""
    assert child.stdout is not None
    source = child.stdout.fileno()
    os.set_blocking(source, False)
    output = bytearray()
    open_end = True
    with selectors.DefaultSelector() as selector:
        selector.register(source, selectors.EVENT_READ)
        while True:
            # Asked before reading: what a child that is gone has printed is then all there.
            gone = os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
            while open_end:
                try:
                    chunk = os.read(source, 65_536)
                except BlockingIOError:
                    break
                output += chunk
                if len(output) > limits.output_bytes:
                    return b"", f"printed more than {limits.output_bytes} bytes"
                if not chunk:
                    selector.unregister(source)
                    open_end = False
            if gone:
                return bytes(output), ""
            left = deadline - time.monotonic()
            if left <= 0:
                return b"", f"no answer within {limits.seconds:g} s"
            if stop.is_set():
                return b"", "nobody wants the answer any more"
            if open_end:
                selector.select(min(left, _GLANCE))
            else:
                time.sleep(min(left, _GLANCE))
