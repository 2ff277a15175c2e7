"""Identifiers."""

from __future__ import annotations

import os
import time


def random_id() -> str:
    """Return 128 random bits in hexadecimal, from the system's secure source."""
    return os.urandom(16).hex()


def ordered_id() -> str:
    """Return 48 bits of the time in milliseconds and 80 random bits in hexadecimal, for keys of database rows.

    Rows that are inserted one after the other are neighbours in an index by this key.
    """
    return f"{time.time_ns() // 1_000_000:012x}{os.urandom(10).hex()}"
