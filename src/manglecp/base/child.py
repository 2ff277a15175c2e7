"""Capture the output of an untrusted child process, with a deadline and a size limit, and kill its process group."""

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

_CHUNK_BYTES: Final = 65_536
_STDERR_BYTES: Final = 8_192
_STOP_POLL_SECONDS: Final = 0.02


class ChildOutput(NamedTuple):
    stdout: bytes  # longer than the limit if the process wrote too much
    stderr: bytes  # the last 8 KiB
    code: int | None  # the exit status, negative for a signal; None if :func:`capture` killed the process


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
    """Run a process in ``folder`` until it exits, then kill its process group and return the output.

    The process is killed after ``seconds``, as soon as its stdout has more than ``limit`` bytes, or when ``stop`` is
    set. Its exit ends the capture even if a grandchild still holds the streams open. Without ``stdin`` there is no
    input. Raises OSError if the process cannot be started.
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
    exited = False
    with process.stdout, process.stderr, contextlib.ExitStack() as stack:
        try:
            pidfd = os.pidfd_open(process.pid)
            stack.callback(os.close, pidfd)
            selector = stack.enter_context(selectors.DefaultSelector())
            selector.register(pidfd, selectors.EVENT_READ)
            for stream in captured:
                os.set_blocking(stream, False)
                selector.register(stream, selectors.EVENT_READ)
            while not exited and len(captured[stdout]) <= limit and (left := deadline - time.monotonic()) > 0:
                if stop is not None and stop.is_set():
                    break
                ready = {key.fd for key, _ in selector.select(left if stop is None else min(left, _STOP_POLL_SECONDS))}
                exited = pidfd in ready
                for stream in ready & captured.keys():
                    if not _read_chunk(stream, captured[stream]):
                        selector.unregister(stream)
                del captured[stderr][:-_STDERR_BYTES]
        finally:
            with contextlib.suppress(ProcessLookupError):  # before wait(), after which the pid may be reused
                os.killpg(process.pid, signal.SIGKILL)
            code = process.wait()
        for stream in captured if exited else ():  # the rest that is still in the pipes
            while len(captured[stream]) <= limit and _read_chunk(stream, captured[stream]):
                pass
    return ChildOutput(bytes(captured[stdout]), bytes(captured[stderr][-_STDERR_BYTES:]), code if exited else None)


def _read_chunk(stream: int, buffer: bytearray) -> bool:
    """Append the next bytes of a non-blocking stream; return whether there were any."""
    try:
        data = os.read(stream, _CHUNK_BYTES)
    except BlockingIOError:
        return False
    buffer += data
    return bool(data)
