"""Points in time as they are stored: UTC, milliseconds, always 24 characters, so that their order is that of texts."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias

__all__ = ["Clock", "Instant", "is_instant", "later", "stamp", "system_clock"]

Instant: TypeAlias = str
"""``2026-01-31T12:00:00.000Z``"""

Clock: TypeAlias = Callable[[], datetime]
"""What time it is, with a time zone."""

_FORM: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z")


def system_clock() -> datetime:
    """The clock of this machine; where the store takes one, tests give another."""
    return datetime.now(UTC)


def stamp(moment: datetime) -> Instant:
    """The moment as it is stored. One without a zone is taken for local time."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def later(instant: Instant, seconds: int) -> Instant:
    """So many seconds after it."""
    return stamp(datetime.fromisoformat(instant) + timedelta(seconds=seconds))


def is_instant(text: str) -> bool:
    """Is it a time that exists, in exactly the stored form?"""
    if _FORM.fullmatch(text) is None:
        return False
    try:
        datetime.fromisoformat(text)
    except ValueError:  # the 31st of February
        return False
    return True
