"""Derives JSON Schemas and converters from shapes (parsed type hints), and encodes Python values as JSON.

A converter turns JSON values into Python values. It accepts exactly what the schema of its shape describes (a property
test compares the two), so ``1.0`` is an integer, ``true`` is not, and a string is never turned into a number. If a
value fits several options of a union, the most specific one counts: an enum before ``Any``, ``int`` before ``float``
for ``1`` and after it for ``1.0``; among equally specific options, the first.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

from manglecp.toolhost.context import describe
from manglecp.toolhost.hints import ArrayOf, Constrained, EnumOf, MapOf, ObjectOf, Scalar, Shape, Union

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_ANNOTATIONS: Final = frozenset({"title", "description", "examples"})  # keywords that restrict no values


def schema(shape: Shape) -> dict[str, Any]:
    """Return the schema that accepts exactly the JSON values that fit the shape."""
    match shape:
        case Scalar("any"):
            return {}
        case Scalar(kind):
            return {"type": kind}
        case EnumOf(values, _):
            return {"const": values[0]} if len(values) == 1 else {"enum": list(values)}
        case ArrayOf(_, fixed, _) if fixed is not None:
            items = {"prefixItems": [schema(item) for item in fixed]} if fixed else {}
            return {"type": "array", **items, "items": False, "minItems": len(fixed)}
        case ArrayOf(item, _, _):
            return {"type": "array", "items": schema(item)} if item is not None else {"type": "array"}
        case MapOf(value):
            return {"type": "object", "additionalProperties": schema(value)}
        case ObjectOf():
            return _record_schema(shape)
        case Union(options):
            return {"anyOf": [schema(option) for option in options]}
        case Constrained(inner, keywords):
            return _conjunction(schema(inner), keywords)


def _conjunction(inner: dict[str, Any], keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema that requires ``inner`` and the keywords; a keyword never replaces a constraint of ``inner``."""
    if inner.keys() & keywords.keys() <= _ANNOTATIONS:
        return {**inner, **keywords}
    return {**keywords, "allOf": [inner, *keywords.get("allOf", ())]}


def _record_schema(record: ObjectOf) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {field.name: schema(field.shape) for field in record.fields},
        "required": [field.name for field in record.fields if field.required],
        "additionalProperties": False,
    }


Converter: TypeAlias = Callable[[Any], Any]
_MAX_QUOTED: Final = 80  # characters of a value in a message
_MAX_ERROR: Final = 400  # characters of the error that a constructor raised


class ConversionError(ValueError):
    """A value that does not fit its shape. Its path is built as the error propagates, at no cost for valid values."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.path = ""  # a JSON pointer

    def inside(self, step: str | int) -> ConversionError:
        """Prepend ``step``, the name or index of the member that contains the value, to the path; return the error."""
        escaped = str(step).replace("~", "~0").replace("/", "~1")
        self.path = f"/{escaped}{self.path}"
        return self

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}" if self.path else self.problem


def converter(shape: Shape) -> Converter:
    """Return a function that converts JSON values to this shape, or raises :class:`ConversionError`."""
    match shape:
        case Scalar(kind):
            return _SCALARS[kind]
        case EnumOf(values, results):
            return _enum(values, results)
        case ArrayOf(_, fixed, build) if fixed is not None:
            return _fixed_array([converter(item) for item in fixed], build)
        case ArrayOf(item, _, build):
            return _array(converter(item) if item is not None else _any_value, build)
        case MapOf(value):
            return _map(converter(value))
        case ObjectOf():
            return _record(shape)
        case Union(options):
            return _union(options)
        case Constrained(inner, keywords):
            return _constrained(converter(inner), keywords)


def _any_value(value: Any) -> Any:
    return value


def _null(value: Any) -> None:
    if value is not None:
        raise _mismatch("null", value)


def _boolean(value: Any) -> bool:
    if value is True or value is False:
        return bool(value)
    raise _mismatch("a boolean", value)


def _integer(value: Any) -> int:
    if type(value) is int:
        return value
    if type(value) is float and value.is_integer():
        return int(value)
    raise _mismatch("an integer", value)


def _number(value: Any) -> float:
    if type(value) is float and value - value == 0:  # finite: JSON such as 1e999 is read as infinity
        return value
    if type(value) is int:
        try:
            return float(value)
        except OverflowError:
            return value  # too large for a float; type checkers accept an int for a float
    raise _mismatch("a number", value)


def _string(value: Any) -> str:
    if type(value) is str:
        return value
    raise _mismatch("a string", value)


_SCALARS: Final[dict[str, Converter]] = {
    "any": _any_value,
    "null": _null,
    "boolean": _boolean,
    "integer": _integer,
    "number": _number,
    "string": _string,
}


def _enum(values: tuple[Any, ...], results: tuple[Any, ...]) -> Converter:
    def convert(value: Any) -> Any:
        for candidate, result in zip(values, results, strict=True):
            # In Python True is 1; in JSON it is not.
            if candidate == value and isinstance(candidate, bool) == isinstance(value, bool):
                return result
        raise _mismatch("one of " + ", ".join(map(repr, values)), value)

    return convert


def _array(item: Converter, build: Callable[[list[Any]], Any]) -> Converter:
    def convert(value: Any) -> Any:
        if type(value) is not list:
            raise _mismatch("an array", value)
        return build([_convert_at(index, item, element) for index, element in enumerate(value)])

    return convert


def _fixed_array(items: list[Converter], build: Callable[[list[Any]], Any]) -> Converter:
    def convert(value: Any) -> Any:
        if type(value) is not list or len(value) != len(items):
            raise _mismatch(f"an array of {len(items)}", value)
        return build(list(map(_convert_at, range(len(items)), items, value)))

    return convert


def _map(member: Converter) -> Converter:
    def convert(value: Any) -> Any:
        if type(value) is not dict:
            raise _mismatch("an object", value)
        return {name: _convert_at(name, member, element) for name, element in value.items()}

    return convert


def _record(record: ObjectOf) -> Converter:
    members = {field.name: (converter(field.shape), field.target) for field in record.fields}  # by JSON name
    required = [field.name for field in record.fields if field.required]
    build = record.build

    def convert(value: Any) -> Any:
        if type(value) is not dict:
            raise _mismatch("an object", value)
        for name in required:
            if name not in value:
                raise ConversionError(f"{name!r} is missing")
        arguments = {}
        for name, element in value.items():
            member = members.get(name)
            if member is None:
                raise ConversionError(f"{name[:_MAX_QUOTED]!r} is not a member of this object")
            convert_member, target = member
            converted = _convert_at(name, convert_member, element)
            if target is not None:
                arguments[target] = converted
        try:
            return build(**arguments)
        except BaseException as error:  # SystemExit too: a class must not end its host
            text = describe(error)
            if isinstance(error, ValueError):
                text = text.removeprefix(f"{type(error).__name__}: ")
            raise ConversionError(text[:_MAX_ERROR]) from error

    return convert


def _union(options: tuple[Shape, ...]) -> Converter:
    pairs = [(option, converter(option)) for option in options]

    def sorted_converters(kind: type[int | float]) -> list[Converter]:
        return [convert for _, convert in sorted(pairs, key=lambda pair: _rank(pair[0], kind))]

    # The order must not depend on how `int | float` is written: `typing` treats both orders as the same hint.
    for_floats, for_others = sorted_converters(float), sorted_converters(int)

    def convert(value: Any) -> Any:
        problems = []
        for convert_option in for_floats if type(value) is float else for_others:
            try:
                return convert_option(value)
            except ConversionError as error:
                problems.append(str(error))
        raise ConversionError("; or ".join(dict.fromkeys(problems)))

    return convert


def _rank(option: Shape, kind: type[int | float]) -> int:
    """Return the rank of an option of a union for values of type ``kind``; the lowest is tried first."""
    match option:
        case Constrained(inner, _):
            return _rank(inner, kind)
        case Union(options):
            return min(_rank(inner, kind) for inner in options)
        case EnumOf():
            return 0
        case Scalar("number"):
            return 1 if kind is float else 2
        case Scalar("integer"):
            return 1 if kind is int else 2
        case Scalar("any"):
            return 3
        case _:
            return 1


def _convert_at(step: str | int, convert: Converter, value: Any) -> Any:
    try:
        return convert(value)
    except ConversionError as error:
        raise error.inside(step) from None


def _constrained(convert_inner: Converter, keywords: Mapping[str, Any]) -> Converter:
    checks = list(_checks(keywords))

    def convert(value: Any) -> Any:
        converted = convert_inner(value)
        for constraint, fits in checks:
            if not fits(value):
                raise ConversionError(f"{_quote(value)} does not fit {constraint}")
        return converted

    return convert


def _checks(keywords: Mapping[str, Any]) -> Iterator[tuple[str, Callable[[Any], bool]]]:
    """Yield for each constraint its text for messages, and a function that returns whether a JSON value fits."""
    for name, limit in keywords.items():
        if name == "allOf":
            for subschema in limit:
                yield from _checks(subschema)
        elif name in _CHECKS:
            yield f"{name} {limit!r}", _CHECKS[name](limit)


_CheckFactory: TypeAlias = Callable[[Any], Callable[[Any], bool]]  # takes the limit of a keyword, and returns the check


def _numeric(fits: Callable[[Any, Any], bool]) -> _CheckFactory:
    """Return a factory of numeric checks, which accept every value that is not a number, as JSON Schema does."""
    return lambda limit: lambda value: type(value) not in (int, float) or fits(value, limit)


def _length(kind: type[Any], fits: Callable[[int, int], bool]) -> _CheckFactory:
    """Return a factory of length checks for values of one type, which accept every value of another type."""
    return lambda limit: lambda value: type(value) is not kind or fits(len(value), limit)


def _multiple_of(unit: float) -> Callable[[Any], bool]:
    """Return a check in decimal arithmetic: in JSON, 0.3 is a multiple of 0.1."""
    from fractions import Fraction  # slow to import, and few plugins use multipleOf

    exact_unit = Fraction(repr(unit))
    return lambda value: type(value) not in (int, float) or Fraction(repr(value)) % exact_unit == 0


def _pattern(pattern: str) -> Callable[[Any], bool]:
    from manglecp.toolhost.patterns import matcher  # already imported when the hint was checked

    search = matcher(pattern)
    return lambda value: type(value) is not str or search(value) is not None


def _unique(_: bool) -> Callable[[Any], bool]:
    # Only sets have this keyword. Items are hashable, and never mix booleans with numbers, where True equals 1.
    return lambda value: type(value) is not list or len(set(value)) == len(value)


_CHECKS: Final[dict[str, _CheckFactory]] = {
    "minimum": _numeric(lambda value, limit: bool(value >= limit)),
    "exclusiveMinimum": _numeric(lambda value, limit: bool(value > limit)),
    "maximum": _numeric(lambda value, limit: bool(value <= limit)),
    "exclusiveMaximum": _numeric(lambda value, limit: bool(value < limit)),
    "multipleOf": _multiple_of,
    "minLength": _length(str, lambda length, limit: length >= limit),
    "maxLength": _length(str, lambda length, limit: length <= limit),
    "minItems": _length(list, lambda length, limit: length >= limit),
    "maxItems": _length(list, lambda length, limit: length <= limit),
    "minProperties": _length(dict, lambda length, limit: length >= limit),
    "maxProperties": _length(dict, lambda length, limit: length <= limit),
    "pattern": _pattern,
    "uniqueItems": _unique,
}


def _mismatch(expected: str, value: Any) -> ConversionError:
    return ConversionError(f"{_quote(value)} is not {expected}")


def _quote(value: Any) -> str:
    if isinstance(value, (dict, list)):
        return "an object" if isinstance(value, dict) else f"an array of {len(value)}"
    text = repr(value[:_MAX_QUOTED] if isinstance(value, str) else value)
    return text if len(text) <= _MAX_QUOTED + 2 else text[:_MAX_QUOTED] + "…"  # 2: the quotes of a string


_CONTAINERS: Final = (dict, list, tuple)


def encode_value(value: Any) -> str:
    """Return the value as JSON text; raises TypeError or ValueError.

    Dataclasses, msgspec Structs, enums and sets are converted. NaN is an error, and so are two names of an object that
    are the same as text, such as ``1`` and ``"1"``.
    """
    text = encode_json(value)
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:  # half of a surrogate pair: valid in JSON, not in UTF-8
            text = _encode_ascii(value)
    if isinstance(value, _CONTAINERS):  # after encoding, which raises for a container that contains itself
        _check_names(value)
    return text


def _plain(value: Any) -> Any:
    """Convert a value that the JSON encoder does not support. The module that defines its class is imported already."""
    if isinstance(value, (set, frozenset)):
        try:
            return sorted(value)
        except TypeError:  # items of several types
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


encode_json: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False, ensure_ascii=False, default=_plain).encode
"""Return the value as JSON text, which may hold lone surrogates; see :func:`encode_value`."""
_encode_ascii: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False, default=_plain).encode


def _check_names(value: Any) -> None:
    """Raise ValueError if an object has two names that are the same as text."""
    pending: list[Any] = [value]
    while pending:
        current = pending.pop()
        if isinstance(current, dict):
            if any(type(name) is not str for name in current):
                texts = {encode_json({name: 0}) for name in current}  # None and "null" are the same name
                if len(texts) < len(current):
                    raise ValueError("the result has two names in an object that are the same as text")
            current = current.values()
        pending += [item for item in current if isinstance(item, _CONTAINERS)]
