"""Servers that tests start as processes."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.deadlines import patience

__all__ = ["adapted", "mcp_serve", "serving"]

_URL: Final = re.compile(r'serving at ([^\s"]+)')


@contextmanager
def serving(command: Sequence[str], log: Path) -> Iterator[str]:
    """Start a server, yield the URL that it writes on standard error, and terminate it."""
    with log.open("wb") as stream, subprocess.Popen(command, stderr=stream) as process:
        try:
            limit = time.monotonic() + patience(60)
            while (found := _URL.search(log.read_text("utf-8", "replace"))) is None:
                assert process.poll() is None, log.read_text("utf-8", "replace")
                assert time.monotonic() < limit, "it writes no URL"
                time.sleep(0.05)
            yield found[1]
        finally:
            process.terminate()


def adapted(command: Sequence[str]) -> list[str]:
    """Return a command that serves a server on standard streams over HTTP."""
    return [sys.executable, "-m", "tests.interop.http_adapter", *command]


def mcp_serve(pack: Path, folder: Path, *options: str) -> list[str]:
    """Return a command that serves a pack to MCP hosts, with its store and workspace in a folder."""
    state = ["--degrade", "--workspace", str(folder), "--store", str(folder / "store")]
    return [sys.executable, "-m", "manglecp", "mcp", "serve", str(pack), *state, *options]
