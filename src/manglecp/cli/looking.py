"""How far a look at the world is, for whoever waits for it.

A pass that is quick is not worth a word. A longer one is a bar on a terminal, gone when it is over; where nobody
watches it is a line now and then, in the log if there is one.
"""

from __future__ import annotations

import sys
import threading
import time
from typing import TYPE_CHECKING, Final

import click

from manglecp.cli.outputs import Progress

if TYPE_CHECKING:  # most packs find nothing out
    from manglecp.toolhost import Looking

__all__ = ["ShownLooking", "looking_text"]

PATIENCE: Final = 2.0
"""Seconds of a pass before anybody hears of it."""
_AGAIN: Final = 5.0
"""Seconds between two lines."""
_WIDTH: Final = 24


def looking_text(looking: Looking, *, bar: bool = True) -> str:
    """``scan: [######..................] 1,250 of 5,000 files``."""
    from manglecp.base.text import escape_invisible  # only what takes long pays for it

    if looking.done is None:
        return escape_invisible(f"{looking.generator}: {looking.facts:,} facts")
    what = f" {looking.what}" if looking.what else ""
    if not looking.total:
        return escape_invisible(f"{looking.generator}: {looking.done:,}{what}")
    done = min(max(looking.done, 0), looking.total)
    filled = _WIDTH * done // looking.total
    drawn = f"[{'#' * filled}{'.' * (_WIDTH - filled)}] " if bar else ""
    return escape_invisible(f"{looking.generator}: {drawn}{done:,} of {looking.total:,}{what}")


class ShownLooking:
    """Told how far passes are, from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: Looking | None = None
        self._said = 0.0
        self._drawn = False

    def __call__(self, looking: Looking) -> None:
        with self._lock:
            last = self._last
            if looking.done is None and last is not None and last.generator == looking.generator:
                looking = looking._replace(done=last.done, total=last.total, what=last.what)
            self._last = None if looking.over else looking
            if looking.seconds >= PATIENCE or self._drawn:
                self._show(looking)

    def _show(self, looking: Looking) -> None:
        progress = Progress.active
        if progress is not None:
            progress.about = "" if looking.over else looking_text(looking)
        elif sys.stderr.isatty():
            self._drawn = not looking.over
            sys.stderr.write("\r\x1b[K" if looking.over else f"\r{looking_text(looking)}\x1b[K")
            sys.stderr.flush()
        elif looking.over or time.monotonic() - self._said >= _AGAIN:
            self._said = time.monotonic()
            text = looking_text(looking, bar=False)
            if looking.over:
                text = f"{looking.generator}: {looking.facts:,} facts in {looking.seconds:.1f} s"
            _say(text)


def _say(text: str) -> None:
    import logging  # as above

    log = logging.getLogger("manglecp.facts")
    if log.hasHandlers():
        log.info("%s", text)
    else:
        click.echo(text, err=True)
