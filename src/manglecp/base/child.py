"""The output of a child process that is not trusted: with a deadline, a size limit, and an end of its whole group."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Final, NamedTuple

_CHUNK: Final = 65_536
_STDERR: Final = 8_192
_STOP_INTERVAL: Final = 0.02  # seconds between two checks of ``stop``


class ChildOutput(NamedTuple):
    stdout: bytes
    """Longer than the limit if it wrote too much."""
    stderr: bytes
    """The last of it."""
    code: int | None
    """The exit status; None if the process had to be killed."""


def capture(
    argv: Sequence[str],
    environ: Mapping[str, str],
    *,
    seconds: float,
    limit: int,
    folder: Path | None = None,
    stdin: IO[bytes] | None = None,
    stop: threading.Event | None = None,
) -> ChildOutput:
    """Run a process and return its output; raises OSError. Its process group is gone afterwards.

    The end of the process counts, not the end of its streams: a grandchild may hold them open. Setting ``stop`` kills
    the process early. Without ``stdin`` there is no input.
    """
    deadline = time.monotonic() + seconds
    process = subprocess.Popen(
        argv,
        cwd=folder,
        env=dict(environ),
        stdin=subprocess.DEVNULL if stdin is None else stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    stdout, stderr = process.stdout.fileno(), process.stderr.fileno()
    captured = {stdout: bytearray(), stderr: bytearray()}
    ended = False
    with process.stdout, process.stderr, contextlib.ExitStack() as stack:
        try:
            pidfd = os.pidfd_open(process.pid)
            stack.callback(os.close, pidfd)
            selector = stack.enter_context(selectors.DefaultSelector())
            selector.register(pidfd, selectors.EVENT_READ)
            for stream in captured:
                os.set_blocking(stream, False)
                selector.register(stream, selectors.EVENT_READ)
            while not ended and len(captured[stdout]) <= limit and (left := deadline - time.monotonic()) > 0:
                if stop is not None and stop.is_set():
                    break
                ready = {key.fd for key, _ in selector.select(left if stop is None else min(left, _STOP_INTERVAL))}
                ended = pidfd in ready
                for stream in ready & captured.keys():
                    if not _take(stream, captured[stream]):
                        selector.unregister(stream)
                del captured[stderr][:-_STDERR]
        finally:
            with contextlib.suppress(ProcessLookupError):  # before wait(), after which the pid may be reused
                os.killpg(process.pid, signal.SIGKILL)
            code = process.wait()
        for stream in captured if ended else ():
            while len(captured[stream]) <= limit and _take(stream, captured[stream]):
                pass
    return ChildOutput(bytes(captured[stdout]), bytes(captured[stderr][-_STDERR:]), code if ended else None)


def _take(stream: int, buffer: bytearray) -> bool:
    try:
        data = os.read(stream, _CHUNK)
    except BlockingIOError:
        return False
    buffer += data
    return bool(data)
