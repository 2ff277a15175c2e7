"""Python values as JSON text: what an action returns, and the defaults of its parameters.

Dataclasses, msgspec Structs, enums and sets become what JSON has for them. What would arrive as something else is an
error instead: NaN, and two names of an object that are the same as text.
"""

from __future__ import annotations

import json
import sys
from typing import Any, Final

__all__ = ["encode_value"]

_CONTAINERS: Final = (dict, list, tuple)


def encode_value(value: Any) -> str:
    """The value as JSON; TypeError or ValueError if JSON has no meaning for it."""
    text = _encode(value)
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:  # half of a surrogate pair: JSON can say it, UTF-8 cannot
            text = _escape(value)
    if isinstance(value, _CONTAINERS):  # after encoding, which refuses what contains itself
        _check_names(value)
    return text


def _plain(value: Any) -> Any:
    """What JSON has no word for, as what it has one for. Its library is imported already, or it could not be here."""
    if isinstance(value, (set, frozenset)):
        try:
            return sorted(value)
        except TypeError:  # of several kinds
            return list(value)
    if hasattr(value, "__dataclass_fields__"):
        members = sys.modules["dataclasses"].asdict(value)
    elif hasattr(value, "__struct_fields__"):
        members = sys.modules["msgspec"].to_builtins(value)
    elif (enum := sys.modules.get("enum")) is not None and isinstance(value, enum.Enum):
        return value.value
    else:
        raise TypeError(f"the result holds a {type(value).__name__}, which has no meaning in JSON")
    _check_names(members)
    return members


_encode: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False, ensure_ascii=False, default=_plain).encode
_escape: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False, default=_plain).encode


def _check_names(value: Any) -> None:
    open_: list[Any] = [value]
    while open_:
        current = open_.pop()
        if isinstance(current, dict):
            if any(type(name) is not str for name in current) and len({_name(name) for name in current}) < len(current):
                raise ValueError("the result has two names in an object that are the same as text")
            current = current.values()
        open_ += [item for item in current if isinstance(item, _CONTAINERS)]


def _name(name: Any) -> str:
    return _encode({name: 0})
