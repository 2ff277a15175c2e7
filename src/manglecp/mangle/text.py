"""Canonical text: one spelling for every value and fact, which reads back as the same value (D23)."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from manglecp.mangle.values import (
    INT_MAX,
    INT_MIN,
    Bytes,
    Duration,
    Float,
    List,
    Map,
    Name,
    Pair,
    Time,
    Value,
)

_STRING_ESCAPES: Final = {ord('"'): '\\"', ord("\\"): "\\\\", ord("\n"): "\\n", ord("\t"): "\\t"} | {
    code: f"\\x{code:02x}" for code in (*range(0x20), 0x7F) if chr(code) not in "\n\t"
}
_NEEDS_ESCAPE: Final = re.compile(r'[\x00-\x1f\x7f"\\]')
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def string_text(text: str) -> str:
    """In double quotes, with escapes where they are needed."""
    if _NEEDS_ESCAPE.search(text):
        text = text.translate(_STRING_ESCAPES)
    return f'"{text}"'


def bytes_text(data: bytes) -> str:
    """``b"…"``, with escapes for all that is not plain ASCII."""
    parts = [f"\\x{b:02x}" if b >= 0x80 or b in b"\"'\\\n\t" else chr(b) for b in data]
    return 'b"' + "".join(parts) + '"'


def float_text(value: float) -> str:
    """Shortest text that reads back as the same double, always with a fraction.

    NaN and the infinities have no literal: they print as the expressions that yield them.
    """
    if math.isnan(value):
        return "fn:sqrt(-1.0)"
    if math.isinf(value):
        return "fn:float:mult(1.0e+308, 10.0)" if value > 0 else "fn:float:mult(-1.0e+308, 10.0)"
    text = repr(value)
    if "e" in text:
        mantissa, exponent = text.split("e")
        if "." not in mantissa:
            mantissa += ".0"
        return f"{mantissa}e{exponent}"
    return text


def instant_text(ns: int) -> str:
    """RFC 3339 in UTC, fraction without trailing zeros."""
    seconds, fraction = divmod(ns, 1_000_000_000)
    text = (_EPOCH + timedelta(seconds=seconds)).isoformat()[:19]  # down to the second
    if fraction:
        text += "." + f"{fraction:09d}".rstrip("0")
    return text + "Z"


def duration_text(ns: int) -> str:
    """Go's form: ``1h30m0s``, ``2.5ms``, ``0s``."""
    if ns == 0:
        return "0s"
    sign, rest = ("-", -ns) if ns < 0 else ("", ns)
    if rest < 1_000_000_000:
        for unit, size in (("ms", 1_000_000), ("µs", 1_000), ("ns", 1)):
            if rest >= size:
                return f"{sign}{_decimal(rest, size)}{unit}"
    minutes, below = divmod(rest, 60_000_000_000)
    hours, minutes = divmod(minutes, 60)
    text = f"{_decimal(below, 1_000_000_000)}s"
    if hours:
        return f"{sign}{hours}h{minutes}m{text}"
    return f"{sign}{minutes}m{text}" if minutes else sign + text


def _decimal(number: int, unit: int) -> str:
    whole, fraction = divmod(number, unit)
    if not fraction:
        return str(whole)
    digits = len(str(unit)) - 1
    return f"{whole}." + f"{fraction:0{digits}d}".rstrip("0")


_ATOMIC: Final[dict[type, Callable[[Any], str]]] = {
    int: str,
    str: string_text,
    Name: lambda v: v.text,
    Float: lambda v: float_text(v.value),
    Bytes: lambda v: bytes_text(v.data),
    Time: lambda v: f'fn:time:parse_rfc3339("{instant_text(v.ns)}")',
    Duration: lambda v: f'fn:duration:parse("{duration_text(v.ns)}")',
}


class _Raw(str):
    """Text that is already written."""

    __slots__ = ()


def value_text(value: Value) -> str:
    """The canonical text of one value. Does not recurse."""
    atomic = _ATOMIC.get(type(value))
    if atomic is not None:
        return atomic(value)
    out: list[str] = []
    stack: list[Any] = [value]
    while stack:
        v = stack.pop()
        kind = type(v)
        if kind is _Raw:
            out.append(v)
        elif kind in _ATOMIC:
            out.append(_ATOMIC[kind](v))
        elif kind is Pair:
            stack += [_Raw(")"), v.second, _Raw(", "), v.first, _Raw("fn:pair(")]
        elif kind is List:
            stack.append(_Raw("]"))
            _push_joined(stack, [(item,) for item in v.items])
            stack.append(_Raw("["))
        elif kind is Map and not v.entries:
            out.append("fn:map()")
        else:
            opening, closing = ("[", "]") if kind is Map else ("{", "}")
            stack.append(_Raw(closing))
            _push_joined(stack, [(key, _Raw(" : "), entry) for key, entry in v.entries])
            stack.append(_Raw(opening))
    return "".join(out)


def _push_joined(stack: list[Any], groups: list[tuple[Any, ...]]) -> None:
    for index in range(len(groups) - 1, -1, -1):
        stack.extend(reversed(groups[index]))
        if index:
            stack.append(_Raw(", "))


def fact_text(predicate: str, args: Iterable[Value], interval: tuple[int, int] | None = None) -> str:
    """``p(1,/a)`` and, for a temporal fact, its ``@[start, end]``."""
    text = f"{predicate}({','.join([value_text(arg) for arg in args])})"
    return text if interval is None else text + interval_text(interval)


def interval_text(interval: tuple[int, int]) -> str:
    """``@[start, end]``; ``_`` for an end that is open."""
    start, end = interval
    if start == end:
        return f"@[{instant_text(start)}]"
    left = "_" if start == INT_MIN else instant_text(start)
    right = "_" if end == INT_MAX else instant_text(end)
    return f"@[{left}, {right}]"
