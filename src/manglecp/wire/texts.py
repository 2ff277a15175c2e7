"""Values that JSON and tables write as text: names, numbers, floats, instants, durations, bytes.

Each reader takes the text and gives the value, or raises a :class:`Fault` that says what would have been one.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from manglecp.base.text import quote
from manglecp.mangle import (
    CONSTANT,
    INT_MAX,
    INT_MIN,
    Bytes,
    Duration,
    Float,
    Name,
    Time,
    Value,
    duration_text,
    instant_text,
    parse_duration,
    parse_rfc3339,
)
from manglecp.wire.faults import Fault

MILLISECOND: Final = 1_000_000

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NAME: Final = re.compile(CONSTANT, re.ASCII)
_WHOLE: Final = re.compile(r"-?[0-9]+")
_DECIMAL: Final = re.compile(r"-?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_SPECIAL: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_LONGEST_NAME: Final = 128  # that is repeated
_LONGEST_NUMBER: Final = 40  # digits; leading zeros aside, twenty are enough


def read_name(text: str) -> Name:
    """``/kind/part``, or a :class:`Fault`."""
    if _NAME.fullmatch(text) is None:
        short = len(text) <= _LONGEST_NAME and _NAME.fullmatch(f"/{text}")
        fix = f"write '/{text}'" if short else "write a name such as '/kind/part'"
        raise Fault(f"{quote(text)} is not a name", fix)
    return Name(text)


def read_number(text: str) -> int:
    """A whole number of 64 bits, or a :class:`Fault`."""
    if _WHOLE.fullmatch(text) is None:
        raise Fault(f"{quote(text)} is not a whole number", "write digits such as '42', or declare the bound /float64")
    if len(text) > _LONGEST_NUMBER or not INT_MIN <= int(text) <= INT_MAX:
        raise Fault(f"{quote(text)} does not fit into 64 bits", f"numbers lie between {INT_MIN} and {INT_MAX}")
    return int(text)


def read_float(text: str) -> Float:
    """A number that 64 bits hold, ``NaN``, ``Infinity`` or ``-Infinity``; else a :class:`Fault`."""
    if text in _SPECIAL:
        return Float(_SPECIAL[text])
    if _DECIMAL.fullmatch(text) is None:
        raise Fault(f"{quote(text)} is not a number", "write digits such as '1.5' or '2e9'")
    value = float(text)
    if math.isinf(value):
        raise Fault(f"{quote(text)} does not fit into a 64-bit float")
    return Float(value)


def read_time(text: str) -> Time:
    """An instant in RFC 3339, or a :class:`Fault`."""
    return Time(read_instant(text))


def read_instant(text: str) -> int:
    """RFC 3339 as nanoseconds since 1970."""
    ns = usual_instant(text)
    if ns is None:
        ns = parse_rfc3339(text.upper())
    if ns is None:
        raise Fault(f"{quote(text)} is not a time", "write it as '2026-01-31T12:00:00Z', or as milliseconds since 1970")
    return _in_range(ns, "time")


def usual_instant(text: str) -> int | None:
    """As nearly everybody writes it, ``2026-01-31T12:00:00.123Z``; None for what needs a closer look.

    The library reads that form quickly. It reads much else too, so the signs between the digits are looked at first.
    """
    size = len(text)
    if size < 20 or text[-1] != "Z" or text[10] != "T" or text[4] != "-" or text[7] != "-":
        return None
    if text[13] != ":" or text[16] != ":" or text[11:13] > "23" or not "1678" <= text[:4] <= "2261":
        return None
    if size > 20 and (size > 27 or text[19] != "." or not text[20:-1].isdigit()):
        return None
    try:
        since = datetime.fromisoformat(text) - _EPOCH
    except ValueError:
        return None
    return ((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds) * 1_000


def instant_of_milliseconds(milliseconds: int) -> int:
    """In nanoseconds; a :class:`Fault` if 64 bits do not hold it."""
    return _in_range(milliseconds * MILLISECOND, "time")


def read_duration(text: str) -> Duration:
    """``1h30m``, or a :class:`Fault`."""
    ns = parse_duration(text)
    if ns is None:
        raise Fault(f"{quote(text)} is not a duration", "write it as '1h30m' or '250ms', or as milliseconds")
    return Duration(_in_range(ns, "duration"))


def duration_of_milliseconds(milliseconds: int) -> Duration:
    """A :class:`Fault` if 64 bits do not hold it in nanoseconds."""
    return Duration(_in_range(milliseconds * MILLISECOND, "duration"))


def _in_range(ns: int, what: str) -> int:
    if not INT_MIN <= ns <= INT_MAX:
        ends = "times lie between 1677-09-21 and 2262-04-11" if what == "time" else "durations reach about 292 years"
        raise Fault(f"the {what} is out of range", ends)
    return ns


def read_bytes(text: str) -> Bytes:
    """Strict base64, or a :class:`Fault`."""
    try:
        return Bytes(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError):
        raise Fault(f"{quote(text)} is not base64") from None


READERS: Final[Mapping[str, Callable[[str], Value]]] = {
    "string": str,
    "name": read_name,
    "number": read_number,
    "float64": read_float,
    "time": read_time,
    "duration": read_duration,
    "bytes": read_bytes,
}
"""By kind of value."""

_SPECIAL_TEXTS: Final = {Float(value): text for text, value in _SPECIAL.items()}

WRITERS: Final[Mapping[type, Callable[[Any], str]]] = {
    str: str,
    Name: lambda name: name.text,
    int: str,
    Float: lambda value: _SPECIAL_TEXTS.get(value) or repr(value.value),
    Time: lambda time: instant_text(time.ns),
    Duration: lambda duration: duration_text(duration.ns),
    Bytes: lambda data: base64.b64encode(data.data).decode(),
}
"""By class of value; what a reader of the same kind reads back."""
