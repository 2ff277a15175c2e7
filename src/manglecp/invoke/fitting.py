"""Does a value fit a schema that many values will be held against?

To find the validator of a schema by its content costs more than to use it. The schemas of a loaded pack and of tools
that are kept stay the same objects, so they are known by identity.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from manglecp.harness import fitting

__all__ = ["fits"]

_MOST: Final = 4_096
_known: dict[int, tuple[Mapping[str, Any], Callable[[Any], bool]]] = {}
"""The schema is kept with its validator, so that its identity stays its own."""


def fits(value: Any, schema: Mapping[str, Any]) -> bool:
    """``schema`` must not be changed after it was first used here."""
    found = _known.get(id(schema))
    if found is None:
        if len(_known) >= _MOST:
            _known.clear()
        found = _known[id(schema)] = (schema, fitting(dict(schema)))
    return found[1](value)
