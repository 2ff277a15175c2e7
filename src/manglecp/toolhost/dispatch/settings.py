"""What the environment says about dispatch. It is read when it is used, so that a bad value fails no import.

========================== ================================ =======
variable                   meaning                          default
========================== ================================ =======
MACHINA_TOOLHOST_TIMEOUT    seconds that a call may take      30
MACHINA_TOOLHOST_POOL_SIZE  hosts that are kept per plugin    2
========================== ================================ =======

``MACHINA_TOOLHOST_TIMEOUT_MS`` is the C++ client's and has two meanings there; it is not read here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

__all__ = [
    "DEFAULT_TIMEOUT",
    "MAX_TIMEOUT",
    "TIMEOUT",
    "SettingError",
    "check",
    "is_timeout",
    "pool_size",
    "timeout",
]

TIMEOUT: Final = "MACHINA_TOOLHOST_TIMEOUT"
DEFAULT_TIMEOUT: Final = 30.0
DEFAULT_POOL_SIZE: Final = 2
MAX_TIMEOUT: Final = 86_400.0
MAX_POOL_SIZE: Final = 64


class SettingError(ValueError):
    """A variable holds what it cannot mean. The text names the variable, the value and what would be right."""


def is_timeout(value: object) -> bool:
    """Whether a caller may wait so many seconds; 0 is a deadline that is over."""
    return type(value) in (int, float) and 0 <= value <= MAX_TIMEOUT  # type: ignore[operator]


def check(size: object, seconds: object) -> None:
    """ValueError unless a pool can have this many hosts, and its calls this time; None leaves it to the environment."""
    if size is not None and (type(size) is not int or not 1 <= size <= MAX_POOL_SIZE):
        raise ValueError(f"size is {size!r}, and has to be a whole number from 1 to {MAX_POOL_SIZE}")
    if seconds is not None and (not is_timeout(seconds) or seconds == 0):
        raise ValueError(f"timeout is {seconds!r}: seconds are expected, more than 0 and at most {MAX_TIMEOUT:.0f}")


def timeout(environ: Mapping[str, str]) -> float:
    """Seconds that a call may take (IPC-35)."""
    name = TIMEOUT
    text = environ.get(name, "")
    if not text.strip():
        return DEFAULT_TIMEOUT
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds <= MAX_TIMEOUT:
        raise SettingError(f"{name}={text!r}: seconds are expected, more than 0 and at most {MAX_TIMEOUT:.0f}")
    return seconds


def pool_size(environ: Mapping[str, str]) -> int:
    """Hosts that are kept for one plugin."""
    name = "MACHINA_TOOLHOST_POOL_SIZE"
    text = environ.get(name, "").strip()
    if not text:
        return DEFAULT_POOL_SIZE
    if not (text.isascii() and text.isdigit() and len(text) < 4 and 1 <= int(text) <= MAX_POOL_SIZE):
        raise SettingError(f"{name}={text!r}: a whole number from 1 to {MAX_POOL_SIZE} is expected")
    return int(text)
