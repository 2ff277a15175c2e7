"""JSON values as the Python values that a function's hints promise. The conversion is the validation.

A converter is made once per hint. It takes a decoded JSON value and gives the value that the function gets, or raises
:class:`ConversionError` with the place of the first thing that does not fit. It takes exactly what the schema of the
hint describes (a property test holds the two against each other), so ``1.0`` is an integer, ``true`` is not, and a
string is never turned into a number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from manglecp.toolhost.shapes import ArrayOf, Choice, Constrained, MapOf, Record, Scalar, Shape, Union

__all__ = ["ConversionError", "Converter", "converter"]

Converter: TypeAlias = Callable[[Any], Any]
_SHOWN: Final = 80


class ConversionError(ValueError):
    """A value that does not fit. The path is built on the way out, so that what fits pays nothing for it."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.path = ""

    def inside(self, step: str | int) -> ConversionError:
        """The same error, seen from one level further out."""
        text = str(step).replace("~", "~0").replace("/", "~1")
        self.path = f"/{text}{self.path}"
        return self

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}" if self.path else self.problem


def converter(shape: Shape) -> Converter:
    """What turns JSON values into Python values of this shape."""
    match shape:
        case Scalar(kind):
            return _SCALARS[kind]
        case Choice(values, results):
            return _choice(values, results)
        case ArrayOf(_, fixed, build) if fixed is not None:
            return _fixed([converter(item) for item in fixed], build)
        case ArrayOf(item, _, build):
            return _array(converter(item) if item is not None else _anything, build)
        case MapOf(value):
            return _map(converter(value))
        case Record():
            return _record(shape)
        case Union(options):
            return _union([converter(option) for option in options])
        case Constrained(inner, keywords):
            return _constrained(converter(inner), keywords)


def _anything(value: Any) -> Any:
    return value


def _null(value: Any) -> None:
    if value is not None:
        raise _expected("null", value)


def _boolean(value: Any) -> bool:
    if value is True or value is False:
        return bool(value)
    raise _expected("a boolean", value)


def _integer(value: Any) -> int:
    if type(value) is int:
        return value
    if type(value) is float and value.is_integer():
        return int(value)
    raise _expected("an integer", value)


def _number(value: Any) -> float:
    if type(value) is float:
        return value
    if type(value) is int:
        try:
            return float(value)
        except OverflowError:
            raise ConversionError("the number is too large") from None
    raise _expected("a number", value)


def _string(value: Any) -> str:
    if type(value) is str:
        return value
    raise _expected("a string", value)


_SCALARS: Final[dict[str, Converter]] = {
    "any": _anything,
    "null": _null,
    "boolean": _boolean,
    "integer": _integer,
    "number": _number,
    "string": _string,
}


def _choice(values: tuple[Any, ...], results: tuple[Any, ...]) -> Converter:
    def convert(value: Any) -> Any:
        for candidate, result in zip(values, results, strict=True):
            # In Python True is 1; in JSON it is not.
            if candidate == value and isinstance(candidate, bool) == isinstance(value, bool):
                return result
        raise _expected("one of " + ", ".join(map(repr, values)), value)

    return convert


def _array(item: Converter, build: Callable[[list[Any]], Any]) -> Converter:
    def convert(value: Any) -> Any:
        if type(value) is not list:
            raise _expected("an array", value)
        return build([_at(index, item, element) for index, element in enumerate(value)])

    return convert


def _fixed(items: list[Converter], build: Callable[[list[Any]], Any]) -> Converter:
    def convert(value: Any) -> Any:
        if type(value) is not list or len(value) != len(items):
            raise _expected(f"an array of {len(items)}", value)
        return build(
            [_at(index, item, element) for index, (item, element) in enumerate(zip(items, value, strict=True))]
        )

    return convert


def _map(member: Converter) -> Converter:
    def convert(value: Any) -> Any:
        if type(value) is not dict:
            raise _expected("an object", value)
        return {name: _at(name, member, element) for name, element in value.items()}

    return convert


def _record(record: Record) -> Converter:
    members = {field.name: (converter(field.shape), field.target) for field in record.fields}
    required = [field.name for field in record.fields if field.required]
    build = record.build

    def convert(value: Any) -> Any:
        if type(value) is not dict:
            raise _expected("an object", value)
        for name in required:
            if name not in value:
                raise ConversionError(f"{name!r} is missing")
        arguments = {}
        for name, element in value.items():
            known = members.get(name)
            if known is None:
                raise ConversionError(f"{name[:_SHOWN]!r} is not known here")
            converted = _at(name, known[0], element)
            if known[1] is not None:
                arguments[known[1]] = converted
        try:
            return build(**arguments)
        except (TypeError, ValueError) as error:  # a class may have more to say about its members than their hints
            raise ConversionError(str(error)) from error

    return convert


def _union(options: list[Converter]) -> Converter:
    def convert(value: Any) -> Any:
        problems = []
        for option in options:
            try:
                return option(value)
            except ConversionError as error:
                problems.append(str(error))
        raise ConversionError("; or ".join(dict.fromkeys(problems)))

    return convert


def _at(step: str | int, convert: Converter, value: Any) -> Any:
    try:
        return convert(value)
    except ConversionError as error:
        raise error.inside(step) from None


def _constrained(convert_inner: Converter, keywords: Mapping[str, Any]) -> Converter:
    checks = [(f"{name} {limit!r}", _CHECKS[name](limit)) for name, limit in keywords.items() if name in _CHECKS]

    def convert(value: Any) -> Any:
        converted = convert_inner(value)
        for said, fits in checks:
            if not fits(value):
                raise ConversionError(f"{_shown(value)} does not fit {said}")
        return converted

    return convert


def _numeric(fits: Callable[[Any, Any], bool]) -> Callable[[Any], Callable[[Any], bool]]:
    """A keyword restricts numbers only: as in JSON Schema, it says nothing about other values."""
    return lambda limit: lambda value: type(value) not in (int, float) or fits(value, limit)


def _length(kind: type[Any], fits: Callable[[int, int], bool]) -> Callable[[Any], Callable[[Any], bool]]:
    return lambda limit: lambda value: type(value) is not kind or fits(len(value), limit)


def _pattern(pattern: str) -> Callable[[Any], bool]:
    import re

    # JSON Schema has the regular expressions of ECMAScript: there "$" is the very end, and digits are ASCII.
    at_end = re.sub(r"((?:^|[^\\])(?:\\\\)*)\$", r"\1\\Z", pattern)
    search = re.compile(at_end, re.ASCII).search
    return lambda value: type(value) is not str or search(value) is not None


_CHECKS: Final[dict[str, Callable[[Any], Callable[[Any], bool]]]] = {
    "minimum": _numeric(lambda value, limit: bool(value >= limit)),
    "exclusiveMinimum": _numeric(lambda value, limit: bool(value > limit)),
    "maximum": _numeric(lambda value, limit: bool(value <= limit)),
    "exclusiveMaximum": _numeric(lambda value, limit: bool(value < limit)),
    "multipleOf": _numeric(lambda value, limit: bool(value % limit == 0)),
    "minLength": _length(str, lambda length, limit: length >= limit),
    "maxLength": _length(str, lambda length, limit: length <= limit),
    "minItems": _length(list, lambda length, limit: length >= limit),
    "maxItems": _length(list, lambda length, limit: length <= limit),
    "minProperties": _length(dict, lambda length, limit: length >= limit),
    "maxProperties": _length(dict, lambda length, limit: length <= limit),
    "pattern": _pattern,
}


def _expected(what: str, value: Any) -> ConversionError:
    return ConversionError(f"{_shown(value)} is not {what}")


def _shown(value: Any) -> str:
    """Enough of the value to find it. Containers are only named: they may hold anything."""
    if isinstance(value, (dict, list)):
        return "an object" if isinstance(value, dict) else f"an array of {len(value)}"
    text = repr(value) if not isinstance(value, str) else repr(value[:_SHOWN])
    return text if len(text) <= _SHOWN + 2 else text[:_SHOWN] + "…"
