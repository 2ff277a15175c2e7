"""Strings, names, and the way from other kinds to strings."""

from __future__ import annotations

from typing import Final

from manglecp.mangle.errors import ValueFault
from manglecp.mangle.text import float_text
from manglecp.mangle.values import Float, List, Name, Value

from .expect import floating, name, number, refused, string
from .registry import Function, pure

MAX_LENGTH: Final = 10_000_000


def _concat(who: str, *parts: Value) -> Value:
    texts = [_written(who, part) for part in parts]
    _limited(who, sum(map(len, texts)))
    return "".join(texts)


def _limited(who: str, length: int) -> None:
    """Doubling a string thirty times must not take the machine down."""
    if length > MAX_LENGTH:
        raise ValueFault(f"{who} gives a string of {length} characters, the limit is {MAX_LENGTH}")


def _written(who: str, part: Value) -> str:
    match part:
        case str():
            return part
        case int():
            return str(part)
        case Name():
            return part.text
        case Float():
            return float_text(part.value)
    raise refused(who, part, "strings, names, numbers and float64s")


def _replace(who: str, text: Value, old: Value, new: Value, count: Value) -> Value:
    source, wanted, instead, most = string(who, text), string(who, old), string(who, new), number(who, count)
    times = source.count(wanted) if most < 0 else min(most, source.count(wanted))
    _limited(who, len(source) + times * (len(instead) - len(wanted)))
    return source.replace(wanted, instead, times)


def _number_to_string(who: str, value: Value) -> Value:
    return str(number(who, value))


def _float_to_string(who: str, value: Value) -> Value:
    return float_text(floating(who, value))


def _name_to_string(who: str, value: Value) -> Value:
    return name(who, value)


def _parts(who: str, value: Value) -> list[str]:
    return ["/" + part for part in name(who, value).split("/")[1:]]


def _root(who: str, value: Value) -> Value:
    return Name(_parts(who, value)[0])


def _tip(who: str, value: Value) -> Value:
    return Name(_parts(who, value)[-1])


def _name_list(who: str, value: Value) -> Value:
    return List(tuple(Name(part) for part in _parts(who, value)))


_S: Final = "/string"
_N: Final = "/name"

STRINGS: Final[tuple[Function, ...]] = (
    pure("fn:string:concat", (), _S, _concat, "Strings, names, numbers and floats in one text.", rest="/any"),
    pure(
        "fn:string:replace",
        (_S, _S, _S, "/number"),
        _S,
        _replace,
        "The text with the first n occurrences of old replaced by new; all of them if n is negative.",
    ),
    pure("fn:number:to_string", ("/number",), _S, _number_to_string, "The number in decimal."),
    pure("fn:float64:to_string", ("/float64",), _S, _float_to_string, "The shortest text that reads back."),
    pure("fn:name:to_string", (_N,), _S, _name_to_string, "The name as a string, with its slashes."),
    pure("fn:name:root", (_N,), _N, _root, "The first part: /a of /a/b/c."),
    pure("fn:name:tip", (_N,), _N, _tip, "The last part: /c of /a/b/c."),
    pure("fn:name:list", (_N,), "fn:List(/name)", _name_list, "The parts: [/a, /b, /c] of /a/b/c."),
)
