"""The listing of a Python file of a pack, made by a sandboxed host process.

The listing is not trusted: :mod:`.descriptions` checks it.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any, Final

from manglecp.base.child import capture
from manglecp.pack.diagnostics import Problems
from manglecp.pack.settings import SandboxPolicy
from manglecp.wire import Fault, decode

SECONDS: Final = 30.0
MOST_OUTPUT: Final = 4_194_304
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
    environ = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    try:
        output, _, code = capture(argv, environ, seconds=seconds, most=MOST_OUTPUT, folder=root)
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
