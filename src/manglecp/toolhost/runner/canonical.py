"""The one text of a JSON value in a run log: keys sorted at every depth, no spaces, UTF-8.

Not the canonical form of the harness, which carries some numbers as text: what stands in a run log is read back as the
input of actions, so every value has to come back as it was.
"""

from __future__ import annotations

import json
from typing import Any

__all__ = ["canonical", "copied", "same"]


def canonical(value: Any) -> bytes:
    """ValueError if there is no such text: no JSON value, not Unicode, or nested too deep to be written."""
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, RecursionError) as error:
        raise ValueError(f"no JSON value: {error}") from None


def copied(value: Any) -> Any:
    """The value once more, sharing nothing: whoever gets it may change it."""
    try:
        return json.loads(canonical(value))
    except RecursionError as error:
        raise ValueError(f"no JSON value: {error}") from None


def same(one: Any, other: Any) -> bool:
    """As values, whatever the order of keys. Python alone would take ``True`` for ``1``."""
    return canonical(one) == canonical(other)
