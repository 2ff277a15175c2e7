"""JSON Pointer (RFC 6901): the way into a result. There is no other; text is never searched."""

from __future__ import annotations

import re
from typing import Any, Final

__all__ = ["Missing", "resolve"]

_INDEX: Final = re.compile("0|[1-9][0-9]{0,8}")


class Missing(LookupError):
    """The pointer leads nowhere."""


def resolve(document: Any, pointer: str) -> Any:
    """What the pointer leads to; the empty one leads to the whole document."""
    found = document
    for part in pointer.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict) and name in found:
            found = found[name]
        elif isinstance(found, list) and _INDEX.fullmatch(name) and int(name) < len(found):
            found = found[int(name)]
        else:
            raise Missing(pointer)
    return found
