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
from typing import Final, NamedTuple

_CHUNK_BYTES: Final = 65_536
_MAX_STDERR_BYTES: Final = 8_192
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
    stop: threading.Event | None = None,
) -> ChildOutput:
    """Run a process in ``folder`` until it exits, then kill its process group and return the output.

    The process is killed after ``seconds``, as soon as its stdout has more than ``limit`` bytes, or when ``stop`` is
    set. The capture ends when the process exits, even if a grandchild still holds the streams open. The standard input
    of the process is empty.
    Raises OSError if the process cannot be started.
    """
    deadline = time.monotonic() + seconds
    process = subprocess.Popen(
        argv,
        cwd=folder,
        env=dict(environ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    stdout_fd, stderr_fd = process.stdout.fileno(), process.stderr.fileno()
    captured = {stdout_fd: bytearray(), stderr_fd: bytearray()}
    exited = False
    with process.stdout, process.stderr, contextlib.ExitStack() as stack:
        try:
            pidfd = os.pidfd_open(process.pid)
            stack.callback(os.close, pidfd)
            selector = stack.enter_context(selectors.DefaultSelector())
            selector.register(pidfd, selectors.EVENT_READ)
            for fd in captured:
                os.set_blocking(fd, False)
                selector.register(fd, selectors.EVENT_READ)
            while not exited and len(captured[stdout_fd]) <= limit and (timeout := deadline - time.monotonic()) > 0:
                if stop is not None and stop.is_set():
                    break
                poll_seconds = timeout if stop is None else min(timeout, _STOP_POLL_SECONDS)
                ready = {key.fd for key, _ in selector.select(poll_seconds)}
                exited = pidfd in ready
                for fd in ready & captured.keys():
                    if not _read_chunk(fd, captured[fd]):
                        selector.unregister(fd)
                del captured[stderr_fd][:-_MAX_STDERR_BYTES]  # only the end of stderr is kept
        finally:
            with contextlib.suppress(ProcessLookupError):  # before wait(): afterwards another process may have the pid
                os.killpg(process.pid, signal.SIGKILL)
            code = process.wait()
        if not exited:
            return ChildOutput(bytes(captured[stdout_fd]), bytes(captured[stderr_fd]), None)
        for fd, buffer in captured.items():  # the remaining output is still in the pipes
            while len(buffer) <= limit and _read_chunk(fd, buffer):
                pass
    return ChildOutput(bytes(captured[stdout_fd]), bytes(captured[stderr_fd][-_MAX_STDERR_BYTES:]), code)


def _read_chunk(fd: int, buffer: bytearray) -> bool:
    """Append the next bytes of a non-blocking descriptor to ``buffer``; return whether there were any."""
    try:
        data = os.read(fd, _CHUNK_BYTES)
    except BlockingIOError:
        return False
    buffer += data
    return bool(data)
