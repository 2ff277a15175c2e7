"""Conversion of Mangle values to JSON and back, by the declared :class:`~manglecp.wire.shapes.Shape`.

The shape determines the kind of value that plain JSON stands for. Values of other kinds are wrapped with their kind:

    {"_type": "name", "value": "/x"}        likewise string, int64, float64, time, duration, bytes: the value as text
    {"_type": "pair", "value": [a, b]}      if a plain array means a list; likewise list, if it means a pair
    {"_type": "map", "value": [[k, v]]}     if a plain object means a struct, or a key is not a plain string
    {"_type": "struct", "value": {"l": v}}  if a plain object means a map; the label is the name /l

``true`` and ``false`` mean the names ``/true`` and ``/false``; ``null`` inside of another value means ``/null``.
Integers beyond 2^53 - 1, and floats without a fraction, are wrapped.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from manglecp.base.strict_json import JSON, Fault, faults_at
from manglecp.base.text import quote
from manglecp.mangle import (
    CONSTANT,
    FALSE,
    INT_MAX,
    INT_MIN,
    KIND_NAMES,
    NULL,
    TRUE,
    Bytes,
    Duration,
    Float,
    List,
    Map,
    Name,
    Pair,
    RepeatedKey,
    Struct,
    Time,
    Value,
    ValueFault,
    duration_text,
    instant_text,
    parse_duration,
    parse_rfc3339,
    value_text,
)
from manglecp.wire.shapes import ANYTHING, Shape

NS_PER_MS: Final = 1_000_000

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NAME: Final = re.compile(CONSTANT, re.ASCII)
_WHOLE: Final = re.compile(r"-?[0-9]+")
_DECIMAL: Final = re.compile(r"-?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_SPECIAL_FLOATS: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_MAX_QUOTED_NAME: Final = 128  # characters of a name that a fix repeats
_MAX_DIGITS: Final = 40  # a 64-bit number has at most twenty with its sign; a longer valid text has leading zeros


def read_name(text: str) -> Name:
    """Parse a name constant. Raises :class:`Fault`."""
    if _NAME.fullmatch(text) is None:
        lacks_slash = len(text) <= _MAX_QUOTED_NAME and _NAME.fullmatch(f"/{text}")
        fix = f"write '/{text}'" if lacks_slash else "write a name such as '/kind/part'"
        raise Fault(f"{quote(text)} is not a name", fix)
    return Name(text)


def read_number(text: str) -> int:
    """Parse a 64-bit integer. Raises :class:`Fault`."""
    if _WHOLE.fullmatch(text) is None:
        raise Fault(f"{quote(text)} is not a whole number", "write digits such as '42'")
    if len(text) > _MAX_DIGITS or not INT_MIN <= int(text) <= INT_MAX:
        raise Fault(f"{quote(text)} does not fit into 64 bits", f"numbers lie between {INT_MIN} and {INT_MAX}")
    return int(text)


def read_float(text: str) -> Float:
    if text in _SPECIAL_FLOATS:
        return Float(_SPECIAL_FLOATS[text])
    if _DECIMAL.fullmatch(text) is None:
        raise Fault(f"{quote(text)} is not a number", "write digits such as '1.5' or '2e9'")
    value = float(text)
    if math.isinf(value):
        raise Fault(f"{quote(text)} does not fit into a 64-bit float")
    return Float(value)


def read_instant(text: str) -> int:
    """Return nanoseconds since 1970 for RFC 3339 text. Raises :class:`Fault`."""
    if (ns := parse_usual_instant(text)) is None and (ns := parse_rfc3339(text.upper())) is None:
        raise Fault(f"{quote(text)} is not a time", "write it as '2026-01-31T12:00:00Z', or as milliseconds since 1970")
    return _check_range(ns, "time")


def parse_usual_instant(text: str) -> int | None:
    """Return nanoseconds since 1970 for the usual form ``2026-01-31T12:00:00.123Z``, None for any other form."""
    # fromisoformat is fast, but accepts more: other forms, hour 24, years whose nanoseconds do not fit into 64 bits.
    size = len(text)
    if size < 20 or text[-1] != "Z" or text[10] != "T" or text[4] != "-" or text[7] != "-":
        return None
    if text[13] != ":" or text[16] != ":" or text[11:13] > "23" or not "1678" <= text[:4] <= "2261":
        return None
    if size > 20 and (size > 27 or text[19] != "." or not text[20:-1].isdigit()):
        return None
    try:
        elapsed = datetime.fromisoformat(text) - _EPOCH
    except ValueError:
        return None
    return ((elapsed.days * 86_400 + elapsed.seconds) * 1_000_000 + elapsed.microseconds) * 1_000


def instant_of_milliseconds(milliseconds: int) -> int:
    """Return the instant in nanoseconds. Raises :class:`Fault` if it is out of range."""
    return _check_range(milliseconds * NS_PER_MS, "time")


def read_duration(text: str) -> Duration:
    """Parse a duration. Raises :class:`Fault`."""
    ns = parse_duration(text)
    if ns is None:
        raise Fault(f"{quote(text)} is not a duration", "write it as '1h30m' or '250ms', or as milliseconds")
    return Duration(_check_range(ns, "duration"))


def duration_of_milliseconds(milliseconds: int) -> Duration:
    """Return the duration. Raises :class:`Fault` if it is out of range."""
    return Duration(_check_range(milliseconds * NS_PER_MS, "duration"))


def _check_range(ns: int, kind: str) -> int:
    if not INT_MIN <= ns <= INT_MAX:
        bounds = "times lie between 1677-09-21 and 2262-04-11" if kind == "time" else "durations reach about 292 years"
        raise Fault(f"the {kind} is out of range", bounds)
    return ns


def read_bytes(text: str) -> Bytes:
    try:
        return Bytes(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError):
        raise Fault(f"{quote(text)} is not base64") from None


READERS: Final[Mapping[str, Callable[[str], Value]]] = {
    "string": str,
    "name": read_name,
    "number": read_number,
    "float64": read_float,
    "time": lambda text: Time(read_instant(text)),
    "duration": read_duration,
    "bytes": read_bytes,
}
"""Parsers of scalar values, by kind. They raise :class:`Fault`."""
_SPECIAL_TEXTS: Final = {Float(value): text for text, value in _SPECIAL_FLOATS.items()}

WRITERS: Final[Mapping[type, Callable[[Any], str]]] = {
    str: str,
    Name: lambda name: name.text,
    int: str,
    Float: lambda value: _SPECIAL_TEXTS.get(value) or repr(value.value),
    Time: lambda time: instant_text(time.ns),
    Duration: lambda duration: duration_text(duration.ns),
    Bytes: lambda data: base64.b64encode(data.data).decode(),
}

MAX_NESTING: Final = 100  # levels of lists, maps, pairs and structs, as in program text
SAFE_INTEGER: Final = (1 << 53) - 1  # larger integers are not exact in every JSON implementation

_TYPE: Final = "_type"
_VALUE: Final = "value"
_RESERVED_KEYS: Final = frozenset({_TYPE, "_var"})  # keys of wrapped values, and of variables
_COMPOUND_TYPES: Final = frozenset({List, Pair, Map, Struct})
_COMPOUND_KINDS: Final = frozenset(KIND_NAMES[type_] for type_ in _COMPOUND_TYPES)


def to_value(data: JSON, shape: Shape = ANYTHING, depth: int = 0) -> Value:
    """Return the value of ``data``, read by ``shape``, whose bound is not checked. Raises :class:`Fault`."""
    if type(data) is str:
        return READERS[shape.text](data)
    reader = _JSON_READERS.get(type(data))
    if reader is None:
        raise Fault(f"a Python {type(data).__name__} is not JSON")
    try:
        return reader(data, shape, depth)
    except RepeatedKey as repeated:
        raise Fault(f"the key {quote(value_text(repeated.key))} stands twice", "keep one of the two") from None
    except ValueFault as fault:  # the value is too large
        raise Fault(str(fault)) from None


def plain_value(data: JSON, depth: int = 0) -> Value:
    """Return the value of JSON that was not written for rules, such as arguments, and has no wrapped values.

    Null becomes the name ``/null``. A float without a fraction becomes an integer, as in canonical JSON. Raises
    :class:`Fault` for JSON that is too large, or nested too deeply.
    """
    if data is None or data is True or data is False:
        return NULL if data is None else TRUE if data else FALSE
    if isinstance(data, str):
        return data
    if isinstance(data, float):
        if not data.is_integer() or not INT_MIN <= data <= INT_MAX:
            return Float(data)
        data = int(data)
    if isinstance(data, int):
        if not INT_MIN <= data <= INT_MAX:
            raise Fault("the number does not fit into 64 bits", f"numbers lie between {INT_MIN} and {INT_MAX}")
        return data
    _check_nesting(depth)
    try:
        if isinstance(data, list):
            return List(tuple(_plain_part(item, depth, i) for i, item in enumerate(data)))
        return Map(tuple((key, _plain_part(item, depth, key)) for key, item in data.items()))
    except ValueFault as fault:  # the value is too large
        raise Fault(str(fault)) from None


def wrap_unusual(data: JSON) -> JSON:
    """Wrap the values that JSON permits and a fact does not: null, and integers beyond 2^53 - 1."""
    if data is None:
        return _wrap("name", NULL)
    if type(data) is int and not -SAFE_INTEGER <= data <= SAFE_INTEGER:
        return _wrap("int64", data) if INT_MIN <= data <= INT_MAX else data
    if isinstance(data, list):
        return [wrap_unusual(item) for item in data]
    return {key: wrap_unusual(item) for key, item in data.items()} if isinstance(data, dict) else data


def _plain_part(data: JSON, depth: int, step: str | int) -> Value:
    try:
        return plain_value(data, depth + 1)
    except Fault as fault:
        raise fault.inside(step) from None


def _read_null(_data: None, _shape: Shape, depth: int) -> Value:
    if depth:
        return NULL
    fix = 'give the value; the value null is {"_type": "name", "value": "/null"}'
    raise Fault("null stands for any value, and a fact states a particular one", fix)


def _read_integer(data: int, shape: Shape, _depth: int) -> Value:
    kind = shape.number
    if kind == "number":
        if not -SAFE_INTEGER <= data <= SAFE_INTEGER:
            if not INT_MIN <= data <= INT_MAX:
                raise Fault("the number does not fit into 64 bits", f"numbers lie between {INT_MIN} and {INT_MAX}")
            fix = f'write {{"_type": "int64", "value": "{data}"}}'
            raise Fault("a whole number beyond 2^53 - 1 is not exact in JSON", fix)
        return data
    if kind == "float64":
        try:
            return Float(float(data))
        except OverflowError:
            raise Fault("the number does not fit into a 64-bit float") from None
    return Time(instant_of_milliseconds(data)) if kind == "time" else duration_of_milliseconds(data)


def _read_fraction(data: float, shape: Shape, _depth: int) -> Value:
    if not shape.allows_fraction:
        raise Fault(f"{data!r} is not a whole number", "write it without a point or an exponent")
    return Float(data)


def _check_nesting(depth: int) -> None:
    if depth >= MAX_NESTING:
        raise Fault(f"nested more than {MAX_NESTING} deep")


def _read_array(data: list[Any], shape: Shape, depth: int) -> Value:
    _check_nesting(depth)
    return _read_list(data, shape, depth) if shape.array == "list" else _read_pair(data, shape, depth)


def _read_object(data: dict[str, Any], shape: Shape, depth: int) -> Value:
    if not _RESERVED_KEYS.isdisjoint(data):
        return _read_wrapped(data, shape, depth)
    _check_nesting(depth)
    if shape.object == "struct":
        return _read_struct(data, shape, depth)
    read_key = READERS[shape.key.text]
    return Map(tuple((read_key(key), _read_part(value, shape.value, depth, key)) for key, value in data.items()))


def _read_wrapped(data: dict[str, Any], shape: Shape, depth: int) -> Value:
    kind = data.get(_TYPE)
    if "_var" in data:
        raise Fault("a variable cannot stand in a fact", "give the value")
    reader = _WRAPPED_READERS.get(kind) if isinstance(kind, str) else None
    if reader is None or data.keys() != {_TYPE, _VALUE}:
        kinds = ", ".join(sorted(_WRAPPED_READERS))
        raise Fault('an object with "_type" wraps a value', f'it has "_type", one of {kinds}, and "value"')
    if kind in _COMPOUND_KINDS:
        _check_nesting(depth)
    with faults_at(_VALUE):
        return reader(data[_VALUE], shape, depth)


def _wrapped_text(kind: str) -> Callable[[Any, Shape, int], Value]:
    read = READERS[kind]

    def reader(data: Any, _shape: Shape, _depth: int) -> Value:
        if type(data) is not str:
            raise Fault(f"the value of a wrapped {kind} is a string")
        return read(data)

    return reader


def _read_wrapped_float(data: Any, _shape: Shape, _depth: int) -> Value:
    if type(data) is str:
        return read_float(data)
    if type(data) is float:
        return Float(data)
    raise Fault("the value of a wrapped float64 is a string or a number with a fraction")


def _read_wrapped_int(data: Any, _shape: Shape, _depth: int) -> Value:
    if type(data) is not str:
        fix = f'write "{data}"' if type(data) is int and abs(data) < 1 << 64 else None
        raise Fault("the value of a wrapped int64 is a string of digits", fix)
    return read_number(data)


def _read_list(data: Any, shape: Shape, depth: int) -> Value:
    return List(tuple(_read_part(item, shape.element, depth, i) for i, item in enumerate(_read_items(data, "list"))))


def _read_pair(data: Any, shape: Shape, depth: int) -> Value:
    items = _read_items(data, "pair")
    if len(items) != 2:
        raise Fault(f"a pair is an array of two, not of {len(items)}")
    return Pair(_read_part(items[0], shape.first, depth, 0), _read_part(items[1], shape.second, depth, 1))


def _read_map(data: Any, shape: Shape, depth: int) -> Value:
    return Map(_read_entries(data, "map", shape.key, lambda _: shape.value, depth))


def _read_struct(data: Any, shape: Shape, depth: int) -> Value:
    if type(data) is dict:
        fields = [(read_name(f"/{key}"), key, value) for key, value in data.items()]
        return Struct(tuple((label, _read_part(value, shape.field(label), depth, key)) for label, key, value in fields))
    return Struct(_read_entries(data, "struct", ANYTHING, shape.field, depth))


def _read_entries(
    data: Any, kind: str, key_shape: Shape, value_shape: Callable[[Value], Shape], depth: int
) -> tuple[tuple[Value, Value], ...]:
    """Read the array ``[[key, value], …]``; ``value_shape`` returns the shape of the value for a key."""
    entries = []
    for i, entry in enumerate(_read_items(data, kind)):
        with faults_at(i):
            if type(entry) is not list or len(entry) != 2:
                raise Fault("an entry is an array of a key and a value")
            key = _read_part(entry[0], key_shape, depth, 0)
            entries.append((key, _read_part(entry[1], value_shape(key), depth, 1)))
    return tuple(entries)


def _read_items(data: Any, kind: str) -> list[Any]:
    if type(data) is not list:
        raise Fault(f"the value of a wrapped {kind} is an array")
    return data


def _read_part(data: Any, shape: Shape, depth: int, step: str | int) -> Value:
    try:
        return to_value(data, shape, depth + 1)
    except Fault as fault:
        raise fault.inside(step) from None


_JSON_READERS: Final[Mapping[type, Callable[[Any, Shape, int], Value]]] = {
    type(None): _read_null,
    bool: lambda data, _shape, _depth: TRUE if data else FALSE,
    int: _read_integer,
    float: _read_fraction,
    list: _read_array,
    dict: _read_object,
}
_WRAPPED_READERS: Final[Mapping[str, Callable[[Any, Shape, int], Value]]] = {
    **{kind: _wrapped_text(kind) for kind in ("string", "name", "time", "duration", "bytes")},
    "int64": _read_wrapped_int,
    "float64": _read_wrapped_float,
    "list": _read_list,
    "pair": _read_pair,
    "map": _read_map,
    "struct": _read_struct,
}


def to_json(value: Value, shape: Shape = ANYTHING, depth: int = 0) -> JSON:
    """Return the JSON of a value, written by ``shape``; :func:`to_value` converts it to an equal value."""
    type_ = type(value)
    if depth >= MAX_NESTING and type_ in _COMPOUND_TYPES:
        raise Fault(f"a value nested more than {MAX_NESTING} deep cannot be sent")
    if type_ is int:
        return value if shape.number == "number" and -SAFE_INTEGER <= value <= SAFE_INTEGER else _wrap("int64", value)  # type: ignore[return-value, operator]
    if isinstance(value, Float):
        return value.value if _is_plain_float(value.value, shape) else _wrap("float64", value)
    if isinstance(value, List):
        items = [to_json(item, shape.element, depth + 1) for item in value.items]
        return items if shape.array == "list" else {_TYPE: "list", _VALUE: items}
    if isinstance(value, Pair):
        pair = [to_json(value.first, shape.first, depth + 1), to_json(value.second, shape.second, depth + 1)]
        return pair if shape.array == "pair" else {_TYPE: "pair", _VALUE: pair}
    if isinstance(value, Map):
        return _map_to_json(value, shape, depth)
    if isinstance(value, Struct):
        return _struct_to_json(value, shape, depth)
    if value is TRUE or value is FALSE:
        return value is TRUE
    if value is NULL and depth:
        return None
    kind = KIND_NAMES[type_]
    return WRITERS[type_](value) if shape.text == kind else _wrap(kind, value)


def _wrap(kind: str, value: Value) -> JSON:
    return {_TYPE: kind, _VALUE: WRITERS[type(value)](value)}


def _is_plain_float(number: float, shape: Shape) -> bool:
    if not math.isfinite(number) or (number == 0 and math.copysign(1, number) < 0):  # -0.0 would lose its sign
        return False
    return shape.number == "float64" or (shape.allows_fraction and not number.is_integer())


def _map_to_json(value: Map, shape: Shape, depth: int) -> JSON:
    entries = [(to_json(k, shape.key, depth + 1), to_json(v, shape.value, depth + 1)) for k, v in value.entries]
    keys = [key for key, _ in entries if isinstance(key, str)]
    if shape.object == "map" and len(keys) == len(entries) and _RESERVED_KEYS.isdisjoint(keys):
        return dict(entries)  # type: ignore[arg-type]  # all keys are strings
    return {_TYPE: "map", _VALUE: [list(entry) for entry in entries]}


def _struct_to_json(value: Struct, shape: Shape, depth: int) -> JSON:
    fields = [(label, to_json(v, shape.field(label), depth + 1)) for label, v in value.entries]
    labels = [label.text[1:] for label, _ in fields if isinstance(label, Name)]
    if len(labels) < len(fields):
        return {_TYPE: "struct", _VALUE: [[to_json(label, ANYTHING, depth + 1), v] for label, v in fields]}
    plain = dict(zip(labels, (v for _, v in fields), strict=True))
    return plain if shape.object == "struct" and _RESERVED_KEYS.isdisjoint(plain) else {_TYPE: "struct", _VALUE: plain}
