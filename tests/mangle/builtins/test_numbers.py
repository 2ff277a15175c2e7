import math

import pytest
from hypothesis import given

from manglecp.mangle.values import INT_MAX, INT_MIN, Float, Name, Value, wrap_int64

from .helpers import call, fault
from .strategies import INT64


@pytest.mark.parametrize(
    ("name", "args", "result"),
    [
        ("fn:plus", (), 0),
        ("fn:plus", (1, 2, 3), 6),
        ("fn:plus", (INT_MAX, 1), INT_MIN),
        ("fn:minus", (4,), -4),
        ("fn:minus", (10, 3, 2), 5),
        ("fn:minus", (INT_MIN,), INT_MIN),
        ("fn:minus", (INT_MIN, 1), INT_MAX),
        ("fn:mult", (), 1),
        ("fn:mult", (2, 3, 4), 24),
        ("fn:mult", (INT_MAX, 2), -2),
        ("fn:div", (1,), 1),
        ("fn:div", (-1,), 0),
        ("fn:div", (9,), 0),
        ("fn:div", (17, 5), 3),
        ("fn:div", (-7, 2), -3),
        ("fn:div", (7, -2), -3),
        ("fn:div", (-7, -2), 3),
        ("fn:div", (100, 7, 2), 7),
        ("fn:div", (INT_MIN, -1), INT_MIN),
        ("fn:mod", (17, 5), 2),
        ("fn:mod", (-7, 2), -1),
        ("fn:mod", (7, -2), 1),
        ("fn:mod", (INT_MIN, -1), 0),
    ],
)
def test_numbers(name: str, args: tuple[int, ...], result: int) -> None:
    assert call(name, *args) == result


@pytest.mark.parametrize("rest", [0, "not even a number"])
def test_nothing_is_looked_at_once_a_quotient_is_zero(rest: Value) -> None:
    assert call("fn:div", 1, 2, rest) == 0


@given(a=INT64, b=INT64)
def test_quotient_and_remainder_make_up_the_dividend(a: int, b: int) -> None:
    if b == 0:
        return
    quotient, rest = call("fn:div", a, b), call("fn:mod", a, b)
    assert isinstance(quotient, int)
    assert isinstance(rest, int)
    assert wrap_int64(quotient * b + rest) == a
    assert abs(rest) < abs(b)
    assert rest == 0 or (rest < 0) == (a < 0)


@given(a=INT64, b=INT64, c=INT64)
def test_arithmetic_is_that_of_64_bits(a: int, b: int, c: int) -> None:
    assert call("fn:plus", a, b, c) == wrap_int64(a + b + c)
    assert call("fn:minus", a, b, c) == wrap_int64(a - b - c)
    assert call("fn:mult", a, b, c) == wrap_int64(a * b * c)


@pytest.mark.parametrize(
    ("name", "args", "result"),
    [
        ("fn:float:plus", (), 0.0),
        ("fn:float:plus", (1, 2.5), 3.5),
        ("fn:float:plus", (0.1, 0.2, 0.3), 0.6000000000000001),
        ("fn:float:plus", (-0.0,), 0.0),
        ("fn:float:plus", (1e308, 1e308), math.inf),
        ("fn:float:plus", (math.inf, -math.inf), math.nan),
        ("fn:float:mult", (), 1.0),
        ("fn:float:mult", (2, 2.5), 5.0),
        ("fn:float:mult", (1e308, 10.0), math.inf),
        ("fn:float:mult", (-1e308, 10.0), -math.inf),
        ("fn:float:mult", (0.0, math.inf), math.nan),
        ("fn:float:div", (4.0,), 0.25),
        ("fn:float:div", (5e-324,), math.inf),
        ("fn:float:div", (1.0, 8.0), 0.125),
        ("fn:float:div", (1, 2, 2), 0.25),
        ("fn:float:div", (math.inf, math.inf), math.nan),
        ("fn:sqrt", (2,), 1.4142135623730951),
        ("fn:sqrt", (9.0,), 3.0),
        ("fn:sqrt", (-1,), math.nan),
        ("fn:sqrt", (-0.0,), -0.0),
        ("fn:sqrt", (math.inf,), math.inf),
        ("fn:sqrt", (math.nan,), math.nan),
    ],
)
def test_floats(name: str, args: tuple[float, ...], result: float) -> None:
    values: list[Value] = [arg if isinstance(arg, int) else Float(arg) for arg in args]
    assert call(name, *values) is Float(result)


@pytest.mark.parametrize(
    ("name", "args", "message"),
    [
        ("fn:plus", (1, "x"), 'fn:plus takes a number, not the string "x"'),
        ("fn:plus", (Float(1.0),), "fn:plus takes a number, not the float64 1.0"),
        ("fn:mod", (1, Name("/a")), "fn:mod takes a number, not the name /a"),
        ("fn:div", (0,), "fn:div takes a divisor other than zero, not the number 0"),
        ("fn:div", (0, 0), "fn:div takes a divisor other than zero, not the number 0"),
        ("fn:div", (4, 2, 0), "fn:div takes a divisor other than zero, not the number 0"),
        ("fn:mod", (4, 0), "fn:mod takes a divisor other than zero, not the number 0"),
        ("fn:float:div", (0,), "fn:float:div takes a divisor other than zero, not the number 0"),
        ("fn:float:div", (1, Float(-0.0)), "fn:float:div takes a divisor other than zero, not the float64 -0.0"),
        ("fn:float:plus", ("1",), 'fn:float:plus takes a number or a float64, not the string "1"'),
        ("fn:sqrt", ("x" * 99,), f'fn:sqrt takes a number or a float64, not the string "{"x" * 78}…'),
    ],
)
def test_faults(name: str, args: tuple[Value, ...], message: str) -> None:
    assert fault(name, *args) == message
