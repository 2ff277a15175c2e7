"""One kind of error for what an action will not or cannot do. Its text says what, where and what would help."""

from __future__ import annotations

__all__ = ["Refused"]


class Refused(ValueError):
    """Nothing was changed."""
