"""What stands in Annotated: taken exactly, together, or not at all."""

import json
from decimal import Decimal
from types import SimpleNamespace
from typing import Annotated, Any, Literal, NewType

import jsonschema_rs
import msgspec
import pytest
from hypothesis import given, strategies as st

from manglecp.toolhost.conversion import ConversionError, converter, schema
from manglecp.toolhost.hints import HintError, Limits, shape


def fits(hint: Any, value: Any) -> bool:
    """What the host says, if the validator says the same."""
    try:
        converter(shape(hint))(value)
        taken = True
    except ConversionError:
        taken = False
    assert taken == jsonschema_rs.Draft202012Validator(schema(shape(hint))).is_valid(value)
    return taken


@pytest.mark.parametrize(
    ("unit", "value", "expected"),
    [
        (0.1, 1, True),
        (0.1, 2, True),
        (0.1, 0.3, True),
        (0.1, 0.25, False),
        (0.01, 19.99, True),
        (0.5, 10**400, True),
        (0.3, 10**400, False),
        (7, 7 * 10**400, True),
        (7, 7 * 10**400 + 1, False),
        (1e-300, 1e308, True),
    ],
)
def test_multiples_are_exact(unit: float, value: float, expected: bool) -> None:
    assert fits(Annotated[float, Limits(multiple_of=unit)], value) is expected


@given(st.sampled_from([0.1, 0.01, 0.3, 2.5, 3, 1e22, 1e-7]), st.integers(-1000, 1000) | st.decimals(-9, 9, places=3))
def test_multiples_are_those_of_the_validator(unit: float, value: int | Decimal) -> None:
    fits(Annotated[float, Limits(multiple_of=unit)], value if isinstance(value, int) else float(value))


Even = NewType("Even", Annotated[int, Limits(multiple_of=2, ge=5)])


@pytest.mark.parametrize(
    ("hint", "described"),
    [
        (Annotated[Annotated[int, Limits(ge=5)], Limits(ge=1)], {"type": "integer", "minimum": 5}),
        (Annotated[int, Limits(lt=5), Limits(lt=9)], {"type": "integer", "exclusiveMaximum": 5}),
        (Annotated[str, Limits(max_length=9), msgspec.Meta(max_length=3)], {"type": "string", "maxLength": 3}),
        (
            Annotated[Even, Limits(ge=1, multiple_of=3)],
            {"type": "integer", "minimum": 5, "multipleOf": 2, "allOf": [{"multipleOf": 3}]},
        ),
        (
            Annotated[str, Limits(pattern="a"), Limits(pattern="b"), Limits(pattern="c")],
            {"type": "string", "pattern": "a", "allOf": [{"pattern": "b"}, {"pattern": "c"}]},
        ),
    ],
)
def test_the_tightest_of_several_counts(hint: Any, described: dict[str, Any]) -> None:
    assert schema(shape(hint)) == described


@pytest.mark.parametrize(
    ("hint", "good", "bad"),
    [
        (Annotated[Even, Limits(multiple_of=3)], 6, 8),
        (Annotated[str, Limits(pattern="a"), Limits(pattern="b")], "ab", "a"),
        (Annotated[tuple[int, int], Limits(min_length=1)], [1, 2], [1]),
        (Annotated[str | None, Limits(max_length=3)], None, "long"),
        (Annotated[str | list[int], Limits(min_length=1)], [1], []),
        (Annotated[str | list[int], Limits(min_length=1)], "a", ""),
        (Annotated[Literal[1, 5, "a"], Limits(ge=3)], 5, 1),
        (Annotated[Any, Limits(ge=3)], "a", 2),
        (float, 10**400, "1"),
        (int, 1e308, 1.5),
        (float, 1e308, float("inf")),
    ],
)
def test_constraints_hold_together(hint: Any, good: Any, bad: Any) -> None:
    assert fits(hint, good)
    assert not fits(hint, bad)


@pytest.mark.parametrize(
    "hint",
    [
        Annotated[int, Limits(multiple_of=0)],
        Annotated[int, Limits(multiple_of=-2)],
        Annotated[int, Limits(ge=Decimal(1))],  # type: ignore[arg-type]
        Annotated[float, Limits(le=float("inf"))],
        Annotated[float, Limits(le=float("nan"))],
        Annotated[float, Limits(le=True)],
        Annotated[int, Limits(min_length=1)],
        Annotated[str, Limits(min_length=-1)],
        Annotated[str, Limits(max_length=1.5)],  # type: ignore[arg-type]
        Annotated[str, Limits(ge=1)],
        Annotated[int, Limits(pattern="a")],
        Annotated[str, Limits(pattern="(")],
        Annotated[str, Limits(pattern=3)],  # type: ignore[arg-type]
        Annotated[str, Limits(description=3)],  # type: ignore[arg-type]
        Annotated[int | None, Limits(max_length=3)],
        Annotated[int, object()],
        Annotated[int, len],
        Annotated[int, msgspec.Meta(extra_json_schema={"minimum": 5})],
        Annotated[int, msgspec.Meta(examples=[object()])],
        Annotated[int, SimpleNamespace(ge=1, step=2)],
        Annotated[str, SimpleNamespace(func=str.islower)],
    ],
)
def test_what_nobody_would_keep_is_refused(hint: Any) -> None:
    with pytest.raises(HintError):
        shape(hint)


def test_objects_with_the_same_attributes_are_taken() -> None:
    like = SimpleNamespace(ge=1, le=None, unit=None, documentation="how many")
    assert schema(shape(Annotated[int, like])) == {"type": "integer", "minimum": 1, "description": "how many"}
    meta = msgspec.Meta(min_length=1, title="t", description="d", examples=["x", ("y",)])
    described = {"type": "string", "minLength": 1, "title": "t", "description": "d", "examples": ["x", ["y"]]}
    assert schema(shape(Annotated[str, meta])) == described
    assert json.loads(json.dumps(described)) == described
    assert shape(Annotated[int, Limits()]) == shape(int)
