"""Hints as schemas and as conversions: the two must agree on every value."""

from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated, Any, Generic, Literal, NewType, NotRequired, TypedDict, TypeVar

import jsonschema_rs
import msgspec
import pytest
from hypothesis import given, strategies as st

from manglecp.toolhost.conversion import ConversionError, converter, schema
from manglecp.toolhost.hints import HintError, Limits, shape


class Options(TypedDict):
    depth: int
    mode: NotRequired[Literal["fast", "slow"]]


@dataclass
class Point:
    x: float
    y: float = 0.0
    names: list[str] = field(default_factory=list)


class Move(msgspec.Struct, tag="move", rename="camel"):
    step_count: Annotated[int, msgspec.Meta(ge=0, lt=10)]
    note: str | None = None


class Color(Enum):
    RED = "red"
    BLUE = 2


T = TypeVar("T")
Name = NewType("Name", str)


@dataclass
class Held(Generic[T]):
    x: T
    y: T | None = None


class Boxed(TypedDict, Generic[T]):
    depth: T
    mode: NotRequired[set[T]]


class Sent(msgspec.Struct, Generic[T]):
    x: T
    note: str | msgspec.UnsetType = msgspec.UNSET


HINTS: list[Any] = [
    Any,
    None,
    bool,
    int,
    float,
    str,
    int | None,
    str | int | list[bool],
    Literal["a", 1, True],
    Literal["a"],
    list[int],
    list[list[float]],
    tuple[int, str],
    tuple[int, ...],
    dict[str, int],
    dict[str, list[int | None]],
    Options,
    Point,
    Move,
    list[Options | Point],
    Color,
    Annotated[int, Limits(ge=0, le=5)],
    Annotated[int, Limits(multiple_of=3)],
    Annotated[float, Limits(gt=0, lt=2)],
    Annotated[str, Limits(min_length=1, max_length=2)],
    Annotated[str, Limits(pattern="^a+$")],
    Annotated[list[int], Limits(min_length=1, max_length=2)],
    Annotated[dict[str, int], Limits(min_length=1, max_length=1)],
    Annotated[int | str, Limits(ge=1, pattern="a")] | None,
    Annotated[float, Limits(multiple_of=0.1)],
    Annotated[float, Limits(multiple_of=0.01, ge=0.25)],
    Annotated[int | None, Limits(multiple_of=2), Limits(multiple_of=3, ge=0), Limits(ge=-5)],
    Annotated[str, Limits(pattern=r"^\S*$")],
    Annotated[str, Limits(pattern=r"^[a-z$]+\s?$"), Limits(pattern="a")],
    Annotated[str | list[int] | None, Limits(max_length=2)],
    Annotated[tuple[int, int], Limits(min_length=1)],
    Annotated[Color, Limits(max_length=2)],
    Literal[Color.RED, 3],
    str | Color,
    float | int | Color | None,
    set[int],
    frozenset[str | None],
    dict[Name, bool],
    Held[int],
    Held[Held[float]],
    Boxed[str],
    Boxed[Annotated[float, Limits(multiple_of=0.1)]],
    Sent[int] | Sent[list[str]],
]
numbers = st.integers(-3, 12) | st.sampled_from([0.0, 1.0, 1.5, 3.0, -2.0, 2**60, 0.3, 0.7, 0.25, 4.35, 10**400, 1e308])
texts = st.sampled_from(
    ["", "a", "aa", "aaa", "a\n", "b", "red", "fast", "move", "é", "\U0001f600", "a$", "a\u00a0", "a\u2028", "\x85"]
)
names = st.sampled_from(["depth", "mode", "x", "y", "names", "type", "stepCount", "note", "other"])
values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=6,
)
objects = st.one_of(
    st.fixed_dictionaries({"depth": values}, optional={"mode": values}),
    st.fixed_dictionaries({"x": numbers}, optional={"y": numbers, "names": st.lists(texts, max_size=2) | values}),
    st.fixed_dictionaries(
        {"x": st.lists(texts, max_size=2) | st.fixed_dictionaries({"x": numbers})}, optional={"note": texts}
    ),
    st.fixed_dictionaries({"type": texts, "stepCount": numbers}, optional={"note": values}),
)


@pytest.mark.parametrize("hint", HINTS, ids=str)
def test_conversion_takes_what_the_schema_describes(hint: Any) -> None:
    described = schema(shape(hint))
    jsonschema_rs.meta.validate({"$schema": "https://json-schema.org/draft/2020-12/schema", **described})
    validator = jsonschema_rs.Draft202012Validator(described)
    convert = converter(shape(hint))

    @given(values | objects | st.lists(objects, max_size=2))
    def agree(value: Any) -> None:
        try:
            convert(value)
            converted = True
        except ConversionError:
            converted = False
        assert converted == validator.is_valid(value)

    agree()


@pytest.mark.parametrize(
    ("hint", "value", "expected"),
    [
        (int, 3.0, 3),
        (float, 3, 3.0),
        (Point, {"x": 1, "names": ["a"]}, Point(1.0, 0.0, ["a"])),
        (Move, {"type": "move", "stepCount": 2}, Move(2)),
        (Options, {"depth": 1.0}, {"depth": 1}),
        (tuple[int, str], [1, "a"], (1, "a")),
        (list[Color], ["red", 2], [Color.RED, Color.BLUE]),
        (Point | None, None, None),
    ],
)
def test_the_function_gets_what_its_hints_promise(hint: Any, value: Any, expected: Any) -> None:
    converted = converter(shape(hint))(value)
    assert converted == expected
    assert type(converted) is type(expected)


@pytest.mark.parametrize(
    ("hint", "value", "text"),
    [
        (int, "3", "'3' is not an integer"),
        (list[Options], [{"depth": 1}, {"depth": True}], "/1/depth: True is not an integer"),
        (Options, {}, "'depth' is missing"),
        (Options, {"depth": 1, "more": 2}, "'more' is not a member of this object"),
        (dict[str, int], {"a/b~": "x"}, "/a~1b~0: 'x' is not an integer"),
        (int | str, [], "an array of 0 is not an integer; or an array of 0 is not a string"),
    ],
)
def test_an_error_says_what_and_where(hint: Any, value: Any, text: str) -> None:
    with pytest.raises(ConversionError) as caught:
        converter(shape(hint))(value)
    assert str(caught.value) == text


def test_a_class_may_refuse_its_members() -> None:
    @dataclass
    class Range:
        low: int
        high: int

        def __post_init__(self) -> None:
            if self.low > self.high:
                raise ValueError("low is above high")

    # A local class: its hints are classes already, since this module has no postponed annotations.
    with pytest.raises(ConversionError, match="low is above high"):
        converter(shape(Range))({"low": 2, "high": 1})


class Node(TypedDict):
    children: list["Node"]


@pytest.mark.parametrize("hint", [bytes, dict[int, str], Node, Annotated[int, msgspec.Meta(min_length=1)]])
def test_a_hint_without_meaning_in_json_is_refused(hint: Any) -> None:
    with pytest.raises(HintError):
        shape(hint)


def test_descriptions_reach_the_schema() -> None:
    assert schema(shape(Annotated[str, "where to write"])) == {"type": "string", "description": "where to write"}
