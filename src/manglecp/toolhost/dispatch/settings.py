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

__all__ = ["DEFAULT_POOL_SIZE", "DEFAULT_TIMEOUT", "MAX_TIMEOUT", "SettingError", "pool_size", "timeout"]

DEFAULT_TIMEOUT: Final = 30.0
DEFAULT_POOL_SIZE: Final = 2
MAX_TIMEOUT: Final = 86_400.0
MAX_POOL_SIZE: Final = 64


class SettingError(ValueError):
    """A variable holds what it cannot mean. The text names the variable, the value and what would be right."""


def timeout(environ: Mapping[str, str]) -> float:
    """Seconds that a call may take (IPC-35)."""
    name = "MACHINA_TOOLHOST_TIMEOUT"
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
