"""The observer of a run: progress for the client, cancellation, and hooks for the server."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Literal, TypeAlias

import msgspec

from manglecp.wire.messages import ProgressPayload

__all__ = ["OnProgress", "RunObserver", "progress_reporter"]

OnProgress: TypeAlias = Callable[[ProgressPayload], None]
_log = logging.getLogger(__name__)


class RunObserver(msgspec.Struct, kw_only=True):
    """What a run reports to, and what may stop it."""

    cancelled: asyncio.Event = msgspec.field(default_factory=asyncio.Event)
    progress: Callable[[str, int, int], None] = lambda *_: None
    """Called with the action that begins, the number of settled steps, and the number of steps."""
    tool: str | None = None
    """Set to the name of the tool, once it is known to exist."""
    leaving: Callable[[], bool] = lambda: False
    """Set by the service: whether the run is to be left to another process between two rounds."""
    point: Callable[[str], None] = lambda _: None
    """Set by the service: called at the moments at which a crash would matter; tests crash there."""


def progress_reporter(on_progress: OnProgress | None) -> Callable[[str, int, int], None]:
    """Return a function for :attr:`RunObserver.progress` that calls ``on_progress``; an empty action is the end."""
    if on_progress is None:
        return lambda *_: None
    begun = False

    def report(action: str, settled: int, steps: int) -> None:
        nonlocal begun
        status: Literal["started", "running", "finalizing"]
        status = "finalizing" if not action else "running" if begun else "started"
        begun = True
        # Undoing steps settles more than there are.
        percent = min(round(100 * settled / max(steps, 1)), 100)
        try:
            on_progress(ProgressPayload(status=status, detail=action or None, percent=percent))
        except Exception:  # a broken observer does not fail the run
            _log.exception("progress could not be reported")

    return report
