"""Functions of numbers, strings and names, and conversions between them."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import Final

from manglecp.mangle.builtins.registry import (
    Function,
    argument_fault,
    describe,
    floating,
    name,
    number,
    pure,
    real,
    string,
)
from manglecp.mangle.errors import ValueFault
from manglecp.mangle.printer import float_text
from manglecp.mangle.values import Float, List, Name, Value, wrap_int64


# Numbers are 64-bit integers that wrap around.
def _plus(op: str, *args: Value) -> Value:
    return wrap_int64(sum(number(op, arg) for arg in args))


def _minus(op: str, first: Value, *others: Value) -> Value:
    result = number(op, first)
    return wrap_int64(result - sum(number(op, other) for other in others) if others else -result)


def _mult(op: str, *args: Value) -> Value:
    return reduce(lambda product, arg: wrap_int64(product * number(op, arg)), args, 1)


def _div(op: str, first: Value, *divisors: Value) -> Value:
    result = number(op, first)
    if not divisors:  # the inverse, cut toward zero; for -1 it is 0, as in the Go implementation
        if result == 0:
            raise _zero_divisor_fault(op, first)
        return 1 if result == 1 else 0
    for divisor in divisors:
        denominator = number(op, divisor)
        if denominator == 0:
            raise _zero_divisor_fault(op, divisor)
        quotient = abs(result) // abs(denominator)
        result = wrap_int64(quotient if (result < 0) == (denominator < 0) else -quotient)
        if result == 0:  # further divisors, even zero, would not change the result, so they are not checked
            return 0
    return result


def _mod(op: str, dividend: Value, divisor: Value) -> Value:
    numerator, denominator = number(op, dividend), number(op, divisor)
    if denominator == 0:
        raise _zero_divisor_fault(op, divisor)
    remainder = abs(numerator) % abs(denominator)
    return -remainder if numerator < 0 else remainder


# Floats are not added with ``sum``, whose rounding differs between Python versions.
def _float_plus(op: str, *args: Value) -> Value:
    return Float(reduce(lambda total, arg: total + real(op, arg), args, 0.0))


def _float_mult(op: str, *args: Value) -> Value:
    return Float(reduce(lambda product, arg: product * real(op, arg), args, 1.0))


def _float_div(op: str, first: Value, *divisors: Value) -> Value:
    if not divisors:
        return _float_div(op, 1, first)
    result = real(op, first)
    for divisor in divisors:
        denominator = real(op, divisor)
        if denominator == 0.0:
            raise _zero_divisor_fault(op, divisor)
        result /= denominator
    return Float(result)


def _sqrt(op: str, arg: Value) -> Value:
    value = real(op, arg)
    return Float(math.nan if value < 0.0 else math.sqrt(value))


def _zero_divisor_fault(op: str, divisor: Value) -> ValueFault:
    return ValueFault(f"{op} takes a divisor other than zero, not {describe(divisor)}")


_N: Final = "/number"
_F: Final = "/float64"
_NUMERIC: Final = "fn:Union(/number, /float64)"

NUMBERS: Final[tuple[Function, ...]] = (
    pure("fn:plus", (), _N, _plus, "The sum; 0 without arguments.", rest=_N),
    pure("fn:minus", (_N,), _N, _minus, "The first minus the others; the negation of a single number.", rest=_N),
    pure("fn:mult", (), _N, _mult, "The product; 1 without arguments.", rest=_N),
    pure(
        "fn:div",
        (_N,),
        _N,
        _div,
        "The first divided by the others, cut toward zero. With a single argument: 1 for 1, an error for 0, else 0.",
        rest=_N,
    ),
    pure("fn:mod", (_N, _N), _N, _mod, "The remainder of a division, with the sign of the dividend."),
    pure("fn:float:plus", (), _F, _float_plus, "The sum, from left to right; 0.0 without arguments.", rest=_F),
    pure("fn:float:mult", (), _F, _float_mult, "The product; 1.0 without arguments.", rest=_F),
    pure("fn:float:div", (_F,), _F, _float_div, "The first divided by the others; 1/x of a single x.", rest=_F),
    pure("fn:sqrt", (_NUMERIC,), _F, _sqrt, "The square root; NaN of a negative number."),
)


MAX_LENGTH: Final = 10_000_000  # characters of a string that a function makes


def _concat(op: str, *parts: Value) -> Value:
    texts = [_text_of(op, part) for part in parts]
    _check_length(op, sum(map(len, texts)))
    return "".join(texts)


def _check_length(op: str, length: int) -> None:
    if length > MAX_LENGTH:
        raise ValueFault(f"{op} gives a string of {length} characters, the limit is {MAX_LENGTH}")


def _text_of(op: str, part: Value) -> str:
    match part:
        case str():
            return part
        case int():
            return str(part)
        case Name():
            return part.text
        case Float():
            return float_text(part.value)
    raise argument_fault(op, part, "strings, names, numbers and float64s")


def _replace(op: str, text: Value, old: Value, new: Value, count: Value) -> Value:
    whole, old_text, new_text, max_times = string(op, text), string(op, old), string(op, new), number(op, count)
    times = whole.count(old_text) if max_times < 0 else min(max_times, whole.count(old_text))
    _check_length(op, len(whole) + times * (len(new_text) - len(old_text)))
    return whole.replace(old_text, new_text, times)


def _case_conversion(convert: Callable[[str], str]) -> Callable[[str, Value], Value]:
    def body(op: str, value: Value) -> Value:
        text = convert(string(op, value))  # upper case may be longer: "ß" becomes "SS"
        _check_length(op, len(text))
        return text

    return body


def _split_text(op: str, text: Value, separator: Value) -> Value:
    whole, separator_text = string(op, text), string(op, separator)
    return List(tuple(whole.split(separator_text) if separator_text else whole))


def _float_to_string(op: str, value: Value) -> Value:
    return float_text(floating(op, value))


def _parts(op: str, value: Value) -> list[str]:
    return ["/" + part for part in name(op, value).split("/")[1:]]


def _name_list(op: str, value: Value) -> Value:
    return List(tuple(Name(part) for part in _parts(op, value)))


_S: Final = "/string"
_NAME: Final = "/name"

STRINGS: Final[tuple[Function, ...]] = (
    pure("fn:string:concat", (), _S, _concat, "Strings, names, numbers and floats in one text.", rest="/any"),
    pure(
        "fn:string:replace",
        (_S, _S, _S, "/number"),
        _S,
        _replace,
        "The text with the first n occurrences of old replaced by new; all of them if n is negative.",
    ),
    pure("fn:string:lower", (_S,), _S, _case_conversion(str.lower), "The text in lower case."),
    pure("fn:string:upper", (_S,), _S, _case_conversion(str.upper), "The text in upper case."),
    pure(
        "fn:string:len",
        (_S,),
        "/number",
        lambda op, text: len(string(op, text)),
        "The number of characters of the text.",
    ),
    pure(
        "fn:string:split",
        (_S, _S),
        "fn:List(/string)",
        _split_text,
        "The parts of a text between the separators; its characters if the separator is empty.",
    ),
    pure("fn:number:to_string", ("/number",), _S, lambda op, value: str(number(op, value)), "The number in decimal."),
    pure(
        "fn:float64:to_string",
        ("/float64",),
        _S,
        _float_to_string,
        "The shortest text that is read back as the same float.",
    ),
    pure("fn:name:to_string", (_NAME,), _S, name, "The name as a string, with its slashes."),
    pure(
        "fn:name:root", (_NAME,), _NAME, lambda op, value: Name(_parts(op, value)[0]), "The first part: /a of /a/b/c."
    ),
    pure("fn:name:tip", (_NAME,), _NAME, lambda op, value: Name(_parts(op, value)[-1]), "The last part: /c of /a/b/c."),
    pure("fn:name:list", (_NAME,), "fn:List(/name)", _name_list, "The parts: [/a, /b, /c] of /a/b/c."),
)
