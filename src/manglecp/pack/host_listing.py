"""The listing of the functions in a Python file, made by a sandboxed host process that imports the file.

The listing is untrusted: callers validate its content.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

from manglecp.base.child import capture
from manglecp.pack.diagnostics import Problems
from manglecp.pack.interpreter import PythonEnvironment, host_argv
from manglecp.pack.settings import SandboxPolicy
from manglecp.wire import Fault, decode

TIMEOUT_SECONDS: Final = 30.0
MAX_OUTPUT: Final = 4_194_304  # bytes
_INHERITED: Final = ("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ")  # environment variables that a host gets
_LINE_NUMBER: Final = re.compile(r"\((?:[^()]*, )?line (\d+)\)")  # as in Python's "(actions.py, line 3)"
_MAX_MESSAGE: Final = 300  # characters
_PACKAGES_FIX: Final = (
    "install the package into the Python environment of manglecp, put the module into the pack, or give the pack an"
    " environment of its own: [python] interpreter in pack.toml"
)
_SANDBOX_FAILED: Final = 6  # exit status of a host that cannot be sandboxed


class ListingError(ValueError):
    """There is no valid listing. Clients get a dispatch error with the same ``kind`` and ``code``."""

    def __init__(
        self,
        kind: Literal["not_found", "timeout", "parse_error", "crash", "tool_error"],
        message: str,
        code: Literal["oversize", "empty_output"] | None = None,
        fix: str | None = None,
    ) -> None:
        super().__init__(message)
        self.kind, self.code, self.fix = kind, code, fix


def run_listing(
    argv: Sequence[str],
    environ: Mapping[str, str],
    sha256: str,
    *,
    seconds: float,
    limit: int = MAX_OUTPUT,
    folder: Path | None = None,
) -> tuple[dict[str, Any], bytes]:
    """Run a host with ``--list``; return its listing, decoded and as bytes. Raises :class:`ListingError`.

    ``sha256`` is the digest of the file that has to be listed; ``limit`` is in bytes.
    """
    argv = [*argv, "--parent", str(os.getpid())]
    try:
        output, stderr, status = capture(argv, environ, seconds=seconds, limit=limit, folder=folder)
    except OSError as error:
        raise ListingError("not_found", f"the host cannot be started: {error.strerror}") from None
    if len(output) > limit:
        raise ListingError("parse_error", f"the listing has more than {limit:,} bytes", "oversize")
    if status is None:
        message = f"the host returned no listing within {seconds:g} s"
        raise ListingError("timeout", message, fix="the top level of the file should only define functions")
    try:
        document = decode(output)
    except Fault:
        document = None
    if isinstance(document, dict) and isinstance(document.get("error"), str):
        fix = "repair the sandbox of this machine, or allow degraded ones" if status == _SANDBOX_FAILED else None
        raise ListingError("tool_error", document["error"], fix=fix)
    if status:
        how = f"was ended by signal {-status}" if status < 0 else f"exited with status {status}"
        last_output = (output + b"\n" + stderr).strip().decode("utf-8", "replace")
        raise ListingError("crash", f"the host {how}" + (f": {last_output}" if last_output else ""))
    if not output:
        raise ListingError("parse_error", "the host returned no listing", "empty_output")
    if not isinstance(document, dict) or document.get("ok") is not True:
        raise ListingError("parse_error", "the listing is not a JSON object with ok = true")
    if document.get("plugin_sha256") != sha256:
        raise ListingError("parse_error", "the listing is not of the file that was hashed")
    return document, output


def list_tools(
    root: Path,
    file: str,
    sha256: str,
    problems: Problems,
    *,
    sandbox: SandboxPolicy | None = None,
    seconds: float = TIMEOUT_SECONDS,
    python: PythonEnvironment | None = None,
) -> dict[str, Any] | None:
    """Return the listing of a file of a pack; None, and report a problem, if there is no valid listing."""
    argv = [*host_argv(python), "--list", file, "--sandbox", "strict"]
    argv += ["--sha256", sha256, *(() if sandbox is None else sandbox.host_options("strict"))]
    environ = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    try:
        return run_listing(argv, environ, sha256, seconds=seconds, folder=root)[0]
    except ListingError as error:
        # The diagnostic names the file already.
        message = str(error)[: 2 * _MAX_MESSAGE].removeprefix("cannot load plugin ").removeprefix(f"{file}: ")
        message = "".join(character if character.isprintable() else " " for character in message)[:_MAX_MESSAGE]
        line = _LINE_NUMBER.search(message)
        fix = error.fix
        if message.startswith("ModuleNotFoundError"):
            fix = _PACKAGES_FIX if python is None else f"install the package into {python.folder}"
        # [:9] because int() raises for a forged number of very many digits.
        problems.add(file, message, line=int(line[1][:9]) if line else None, fix=fix)
        return None
