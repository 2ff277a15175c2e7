"""The listing of a Python file of a pack, made by a sandboxed host process.

The host has a deadline, an output limit and its own process group, which is killed afterwards. The listing is not
trusted: :mod:`.descriptions` checks it.
"""

from __future__ import annotations

import contextlib
import os
import re
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from manglecp.pack.diagnostics import Problems
from manglecp.pack.settings import SandboxPolicy
from manglecp.wire import Fault, decode

SECONDS: Final = 30.0
MOST_OUTPUT: Final = 4_194_304
_CHUNK: Final = 65_536
_INHERITED: Final = ("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ")
_LINE: Final = re.compile(r"\((?:[^()]*, )?line (\d+)\)")
_LONGEST: Final = 300
_CONFINED: Final = 6  # exit status of a host that cannot be sandboxed


def list_tools(
    root: Path,
    file: str,
    sha256: str,
    problems: Problems,
    *,
    sandbox: SandboxPolicy | None = None,
    seconds: float = SECONDS,
) -> dict[str, Any] | None:
    """Return the listing of a file, or None and report a problem."""
    argv = [sys.executable, "-I", "-m", "manglecp.toolhost.host", "--list", file]
    argv += ["--sandbox", "strict", "--sha256", sha256, "--parent", str(os.getpid())]
    if sandbox is not None:
        argv += sandbox.host_options("strict")
    try:
        process = subprocess.Popen(
            argv,
            cwd=root,
            env={name: os.environ[name] for name in _INHERITED if name in os.environ},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        output, code = _output(process, time.monotonic() + seconds)
    except OSError as error:
        problems.add(file, f"no host can be started to describe it: {error.strerror}")
        return None
    if len(output) > MOST_OUTPUT:
        problems.add(file, f"its description has more than {MOST_OUTPUT:,} bytes")
    elif code is None:
        problems.add(file, f"it did not describe itself within {seconds:g} s", fix="its top level should only define")
    else:
        return _read(file, output, code, sha256, problems)
    return None


def _output(process: subprocess.Popen[bytes], deadline: float) -> tuple[bytes, int | None]:
    """Return the output and the exit status, None if it did not exit in time. Kills the process group."""
    assert process.stdout is not None
    output = bytearray()
    ended = False
    try:
        with process.stdout as stream, _pidfd(process) as pidfd, selectors.DefaultSelector() as selector:
            os.set_blocking(stream.fileno(), False)
            selector.register(stream, selectors.EVENT_READ)
            selector.register(pidfd, selectors.EVENT_READ)
            while not ended and len(output) <= MOST_OUTPUT and (left := deadline - time.monotonic()) > 0:
                ready = {key.fd for key, _ in selector.select(left)}
                ended = pidfd in ready
                if (ended or stream.fileno() in ready) and not _take(stream.fileno(), output) and not ended:
                    selector.unregister(stream)
    finally:
        with contextlib.suppress(ProcessLookupError):  # before wait(), after which the pid may be reused
            os.killpg(process.pid, signal.SIGKILL)
        code = process.wait()
    return bytes(output), code if ended else None


@contextlib.contextmanager
def _pidfd(process: subprocess.Popen[bytes]) -> Iterator[int]:
    descriptor = os.pidfd_open(process.pid)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _take(descriptor: int, output: bytearray) -> bool:
    """Read what is available; return whether more may come."""
    while len(output) <= MOST_OUTPUT:
        try:
            data = os.read(descriptor, _CHUNK)
        except BlockingIOError:
            return True
        if not data:
            return False
        output += data
    return False


def _read(file: str, output: bytes, code: int, sha256: str, problems: Problems) -> dict[str, Any] | None:
    try:
        document = decode(output)
    except Fault:
        document = None
    if not isinstance(document, dict):
        how = f"ended by signal {-code}" if code < 0 else f"exited with status {code}"
        problems.add(file, f"its host {how} and did not describe it")
        return None
    if code == 0 and document.get("ok") is True and document.get("plugin_sha256") == sha256:
        return document
    reported = document.get("error")
    message = _plain(reported, file) if isinstance(reported, str) else "its host did not describe it"
    line = _LINE.search(message)
    fix = "repair the sandbox of this machine, or allow degraded ones" if code == _CONFINED else None
    problems.add(file, message[:_LONGEST], line=int(line[1][:9]) if line else None, fix=fix)
    return None


def _plain(text: str, file: str) -> str:
    """Return the error of a host without its prefix and without control characters."""
    error = text[: 2 * _LONGEST].removeprefix("cannot load plugin ").removeprefix(f"{file}: ")
    return "".join(character if character.isprintable() else " " for character in error)
