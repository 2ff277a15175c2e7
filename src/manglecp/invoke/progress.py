"""How far a run is, as clients of session transports are told."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Literal, TypeAlias

from manglecp.wire.messages import ProgressPayload

__all__ = ["OnProgress", "telling"]

OnProgress: TypeAlias = Callable[[ProgressPayload], None]
_log = logging.getLogger(__name__)


def telling(progress: OnProgress | None) -> Callable[[str, int, int], None]:
    """What a run calls with the action that begins (none at the end), how many steps are settled, and of how many."""
    if progress is None:
        return lambda *_: None
    begun = False

    def tell(action: str, settled: int, steps: int) -> None:
        nonlocal begun
        status: Literal["started", "running", "finalizing"]
        status = "finalizing" if not action else "running" if begun else "started"
        begun = True
        # Taking steps back settles more than there are.
        percent = min(round(100 * settled / max(steps, 1)), 100)
        try:
            progress(ProgressPayload(status=status, detail=action or None, percent=percent))
        except Exception:  # a run does not fail because nobody can be told of it
            _log.exception("progress could not be told")

    return tell
