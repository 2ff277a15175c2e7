"""Plain JSON out of what callers give: a copy that nobody else holds, or a word about what is not JSON.

The encoder would write a number that is none as null, and null means any value.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from manglecp.wire import MAX_DEPTH

__all__ = ["NotPlain", "plain"]


class NotPlain(ValueError):
    """This is not JSON."""


def plain(value: Any, depth: int = 0) -> Any:
    """A copy made of dictionaries, lists, texts, numbers, booleans and None."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise NotPlain(f"{value} is not a number in JSON")
        return value
    if depth >= MAX_DEPTH:
        raise NotPlain(f"nested more than {MAX_DEPTH} deep")
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise NotPlain("the keys of an object are texts")
        return {key: plain(part, depth + 1) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part, depth + 1) for part in value]
    raise NotPlain(f"a Python {type(value).__name__} is not JSON")
