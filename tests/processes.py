"""A server that a test started as a process, and what it writes to its log."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

from tests.deadlines import patience

__all__ = ["Logging"]


class Logging:
    """``log`` is its standard error."""

    patience: ClassVar[float] = patience(120.0)
    popen: subprocess.Popen[bytes]
    log: Path

    def said(self) -> str:
        return self.log.read_text("utf-8", "replace")

    def until(self, reached: Callable[[], bool]) -> None:
        """Wait for it. A process that ended will not get there any more."""
        limit = time.monotonic() + self.patience
        while not reached():
            assert self.popen.poll() is None, self.said()
            assert time.monotonic() < limit, self.said()
            time.sleep(0.02)
