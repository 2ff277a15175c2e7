"""Arithmetic. Numbers are 64 bits wide and wrap around; floats are IEEE doubles.

Floats are added one by one from 0.0, never with ``sum``, whose rounding differs between Python versions.
"""

from __future__ import annotations

import math
from typing import Final

from manglecp.mangle.errors import ValueFault
from manglecp.mangle.values import Float, Value, wrap_int64

from .expect import number, real, shown
from .registry import Function, pure


def _plus(who: str, *args: Value) -> Value:
    total = 0
    for arg in args:
        total += number(who, arg)
    return wrap_int64(total)


def _minus(who: str, first: Value, *others: Value) -> Value:
    result = number(who, first)
    if not others:
        return wrap_int64(-result)
    for other in others:
        result -= number(who, other)
    return wrap_int64(result)


def _mult(who: str, *args: Value) -> Value:
    product = 1
    for arg in args:
        product = wrap_int64(product * number(who, arg))
    return product


def _div(who: str, first: Value, *divisors: Value) -> Value:
    result = number(who, first)
    if not divisors:  # 1/first, which the reference takes to be 0 for -1 too
        if result == 0:
            raise _by_zero(who, first)
        return 1 if result == 1 else 0
    for divisor in divisors:
        by = number(who, divisor)
        if by == 0:
            raise _by_zero(who, divisor)
        quotient = abs(result) // abs(by)
        result = wrap_int64(quotient if (result < 0) == (by < 0) else -quotient)
        if result == 0:  # what follows is not looked at
            return 0
    return result


def _mod(who: str, dividend: Value, divisor: Value) -> Value:
    a, b = number(who, dividend), number(who, divisor)
    if b == 0:
        raise _by_zero(who, divisor)
    rest = abs(a) % abs(b)
    return -rest if a < 0 else rest


def _float_plus(who: str, *args: Value) -> Value:
    total = 0.0
    for arg in args:
        total += real(who, arg)
    return Float(total)


def _float_mult(who: str, *args: Value) -> Value:
    product = 1.0
    for arg in args:
        product *= real(who, arg)
    return Float(product)


def _float_div(who: str, first: Value, *divisors: Value) -> Value:
    if not divisors:
        return _float_div(who, 1, first)
    result = real(who, first)
    for divisor in divisors:
        by = real(who, divisor)
        if by == 0.0:
            raise _by_zero(who, divisor)
        result /= by
    return Float(result)


def _sqrt(who: str, arg: Value) -> Value:
    value = real(who, arg)
    return Float(math.nan if value < 0.0 else math.sqrt(value))


def _by_zero(who: str, divisor: Value) -> ValueFault:
    return ValueFault(f"{who} takes a divisor other than zero, not {shown(divisor)}")


_N: Final = "/number"
_F: Final = "/float64"
_NUMERIC: Final = "fn:Union(/number, /float64)"

NUMBERS: Final[tuple[Function, ...]] = (
    pure("fn:plus", (), _N, _plus, "The sum; 0 of nothing.", rest=_N),
    pure("fn:minus", (_N,), _N, _minus, "The first less the others; of one number, its negation.", rest=_N),
    pure("fn:mult", (), _N, _mult, "The product; 1 of nothing.", rest=_N),
    pure("fn:div", (_N,), _N, _div, "The first divided by the others, cut toward zero; 0 or 1 of one.", rest=_N),
    pure("fn:mod", (_N, _N), _N, _mod, "The remainder of a division, with the sign of the dividend."),
    pure("fn:float:plus", (), _F, _float_plus, "The sum, added one by one; 0.0 of nothing.", rest=_F),
    pure("fn:float:mult", (), _F, _float_mult, "The product; 1.0 of nothing.", rest=_F),
    pure("fn:float:div", (_F,), _F, _float_div, "The first divided by the others; of one, 1/x.", rest=_F),
    pure("fn:sqrt", (_NUMERIC,), _F, _sqrt, "The square root; NaN of a negative number."),
)
