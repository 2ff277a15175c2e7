"""Random identifiers."""

from __future__ import annotations

import os


def random_id() -> str:
    """Return 128 random bits in hexadecimal, from the system's secure source."""
    return os.urandom(16).hex()
