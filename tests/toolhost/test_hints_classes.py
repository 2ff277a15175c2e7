"""Classes as hints: what their members are, who has to be there, and what a class says itself."""

import sys
from dataclasses import InitVar, dataclass, field
from enum import Enum, IntEnum
from types import ModuleType
from typing import Annotated, Any, Generic, Literal, NewType, NotRequired, TypedDict, TypeVar

import msgspec
import pytest
import typing_extensions

from manglecp import action
from manglecp.base.coroutines import run_to_end
from manglecp.toolhost.actions import declaration
from manglecp.toolhost.context import Reports
from manglecp.toolhost.conversion import ConversionError, converter, schema
from manglecp.toolhost.hints import HintError, Limits, shape
from manglecp.toolhost.host.execution import ActionExecutor, InvalidInput
from manglecp.toolhost.plugin import PluginAction

T = TypeVar("T")
U = TypeVar("U")
Number = TypeVar("Number", int, float)
Short = TypeVar("Short", bound=Annotated[str, Limits(max_length=2)])
Name = NewType("Name", str)


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1


def described(hint: Any) -> dict[str, Any]:
    return schema(shape(hint))


def convert(hint: Any, value: Any) -> Any:
    return converter(shape(hint))(value)


# ------------------------------------------------------------------------------------------------ TypedDict

POSTPONED = """
from __future__ import annotations
from typing import Annotated, NotRequired, Required, TypedDict
class Base(TypedDict, total=False):
    a: Required[int]
    b: str
class More(Base):
    c: NotRequired[int]
    d: Annotated[NotRequired[int], "maybe"]
    e: float
"""


def test_postponed_annotations_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    required = {}
    for name, code in {
        "postponed": POSTPONED,
        "plain": POSTPONED.replace("from __future__ import annotations", ""),
    }.items():
        module = ModuleType(name)
        monkeypatch.setitem(sys.modules, name, module)
        exec(code, module.__dict__)
        required[name] = sorted(described(module.More)["required"])
    assert required == {"postponed": ["a", "e"], "plain": ["a", "e"]}


class Extended(typing_extensions.TypedDict, total=False):
    a: typing_extensions.Required[typing_extensions.ReadOnly[int]]
    b: typing_extensions.ReadOnly[typing_extensions.Required[str]]
    c: typing_extensions.ReadOnly[int]


def test_the_typed_dict_of_typing_extensions() -> None:
    assert described(Extended)["required"] == ["a", "b"]
    assert convert(Extended, {"a": 1, "b": "x"}) == {"a": 1, "b": "x"}


# ------------------------------------------------------------------------------------------------ generic classes


class Box(TypedDict, Generic[T]):
    v: T


class Boxes(Box[list[U]], Generic[U]):
    w: NotRequired[U]


class Plain(Box[int]):
    w: str


class Further(Plain):
    x: int


@dataclass
class Pair(Generic[T, U]):
    left: T
    right: U | None = None


@dataclass
class Named(Pair[str, T], Generic[T]):
    more: list[T] = field(default_factory=list)


@dataclass
class Again(Pair[int, int], Generic[T]):
    left: T  # type: ignore[assignment]


class Held(msgspec.Struct, Generic[T]):
    v: T


INTEGER, STRING = {"type": "integer"}, {"type": "string"}


@pytest.mark.parametrize(
    ("hint", "members"),
    [
        (Box[int], {"v": INTEGER}),
        (Box, {"v": {}}),
        (Boxes[str], {"v": {"type": "array", "items": STRING}, "w": STRING}),
        (Plain, {"v": INTEGER, "w": STRING}),
        (Pair[int, str], {"left": INTEGER, "right": {"anyOf": [STRING, {"type": "null"}]}}),
        (Pair[Pair[int, int], Any], {"left": described(Pair[int, int]), "right": {"anyOf": [{}, {"type": "null"}]}}),
        (
            Named[int],
            {
                "left": STRING,
                "right": {"anyOf": [INTEGER, {"type": "null"}]},
                "more": {"type": "array", "items": INTEGER},
            },
        ),
        (Again[str], {"left": STRING, "right": {"anyOf": [INTEGER, {"type": "null"}]}}),
        (Held[int], {"v": INTEGER}),
        (Held, {"v": {}}),
    ],
)
def test_generic_classes(hint: Any, members: dict[str, Any]) -> None:
    assert described(hint)["properties"] == members


def test_what_a_variable_may_stand_for() -> None:
    assert described(Number) == {"anyOf": [INTEGER, {"type": "number"}]}
    assert described(Short) == {"type": "string", "maxLength": 2}
    assert convert(Held[int], {"v": 1.0}) == Held(1)
    assert convert(Named[int], {"left": "a", "more": [2.0]}) == Named("a", None, [2])


@dataclass
class Growing(Generic[T]):
    v: "Growing[list[T]] | None" = None


class Node(TypedDict):
    children: list["Node"]


@pytest.mark.parametrize("hint", [Node, Growing[int]])
def test_a_class_cannot_contain_itself(hint: Any) -> None:
    with pytest.raises(HintError, match="contains itself"):
        shape(hint)


def test_a_variable_is_known_or_the_class_is_refused() -> None:
    if "__orig_bases__" in Further.__dict__:  # not every Python remembers the bases of a TypedDict
        assert described(Further)["properties"] == {"v": INTEGER, "w": STRING, "x": INTEGER}
        return
    with pytest.raises(HintError, match="is not bound to a type"):
        shape(Further)


# ------------------------------------------------------------------------------------------------ dataclass and Struct


@dataclass
class Opened:
    path: str
    mode: InitVar[Literal["r", "w"]] = "r"
    writes: bool = field(init=False)

    def __post_init__(self, mode: str) -> None:
        self.writes = mode == "w"


def test_what_only_the_constructor_takes() -> None:
    assert list(described(Opened)["properties"]) == ["path", "mode"]
    assert described(Opened)["required"] == ["path"]
    assert convert(Opened, {"path": "a", "mode": "w"}).writes is True


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise LookupError


FAILURES: list[tuple[BaseException, str]] = [
    (ValueError("low"), "low"),
    (TypeError("no"), "TypeError: no"),
    (KeyError("x"), "KeyError: 'x'"),
    (AssertionError(), "AssertionError"),
    (SystemExit(3), "SystemExit: 3"),
    (KeyboardInterrupt(), "KeyboardInterrupt"),
    (Unspeakable(), "Unspeakable"),
    (ValueError("x" * 1000), "x" * 400),
]


@pytest.mark.parametrize(("failure", "text"), FAILURES, ids=lambda value: type(value).__name__)
def test_whatever_a_constructor_raises_is_said_of_the_input(failure: BaseException, text: str) -> None:
    @dataclass
    class Moody:
        a: int

        def __post_init__(self) -> None:
            raise failure

    class Struct(msgspec.Struct):
        a: int

        def __post_init__(self) -> None:
            raise failure

    for hint in (Moody, Struct):
        with pytest.raises(ConversionError) as caught:
            convert(dict[str, hint], {"k": {"a": 1}})  # type: ignore[valid-type]
        assert str(caught.value) == f"/k: {text}"


@dataclass
class Keyed:
    key: str

    def __post_init__(self) -> None:
        _ = {"known": 1}[self.key]


@action(effects=[])
def look_up(where: Keyed) -> str:
    return where.key


def test_a_host_survives_a_class_that_fails() -> None:
    said = declaration(look_up)
    assert said is not None
    tool, worker = PluginAction("AID.T.LOOK_UP.v1", look_up, said), ActionExecutor(Reports(None))
    with pytest.raises(InvalidInput, match="invalid input: /where: KeyError: 'other'"):
        run_to_end(worker.call(tool, '{"where":{"key":"other"}}', {}, {}))
    outcome = run_to_end(worker.call(tool, '{"where":{"key":"known"}}', {}, {}))
    assert outcome.output_json == '"known"'


class Maybe(msgspec.Struct):
    a: int | msgspec.UnsetType = msgspec.UNSET
    b: int | str | msgspec.UnsetType = msgspec.UNSET


def test_a_member_that_may_be_unset_may_be_missing() -> None:
    assert described(Maybe)["properties"] == {"a": INTEGER, "b": {"anyOf": [INTEGER, STRING]}}
    assert described(Maybe)["required"] == []
    assert convert(Maybe, {}).a is msgspec.UNSET


class Row(msgspec.Struct, array_like=True):
    a: int


@dataclass(init=False)
class Closed:
    a: int


class Span(Enum):
    SHORT = (1, 2)


class Wide(Enum):
    ALL = float("inf")


class Nothing(Enum):
    pass


REFUSED = [Row, Closed, Span, Wide, Nothing, Literal[b"x"], Literal[Span.SHORT], msgspec.UnsetType]
SETS = [set[list[int]], set[Any], set, set[int | bool], frozenset[Literal[1, True]]]


@pytest.mark.parametrize("hint", [*REFUSED, *SETS, dict[Literal["a"], int], dict[int, int]])
def test_what_has_no_meaning_in_json_is_refused(hint: Any) -> None:
    with pytest.raises(HintError):
        shape(hint)


# ------------------------------------------------------------------------------------------------ choices, sets, unions


@pytest.mark.parametrize(
    ("hint", "value", "expected"),
    [
        (Literal[Color.RED], "red", Color.RED),
        (Literal[Color.RED, "green", Level.LOW], 1, Level.LOW),
        (set[int], [3, 1.0], {1, 3}),
        (frozenset[str], ["a"], frozenset({"a"})),
        (set[Color], ["blue"], {Color.BLUE}),
        (dict[Name, int], {"a": 1}, {"a": 1}),
        (float | int, 1, 1),
        (float | int, 1.0, 1.0),
        (int | float, 1, 1),
        (int | float, 1.0, 1.0),
        (int | float, 1.5, 1.5),
        (Annotated[float, Limits(ge=0)] | Annotated[int, Limits(ge=0)], 1, 1),
        (str | Color, "red", Color.RED),
        (str | Color, "green", "green"),
        (str | Literal[Color.BLUE] | None, "blue", Color.BLUE),
        (Annotated[str | int, "either"] | Level, 1, Level.LOW),
        (Annotated[Any, "more"] | Level, 1, Level.LOW),
        (float | bool, True, True),
    ],
    ids=str,
)
def test_the_exact_kind_counts(hint: Any, value: Any, expected: Any) -> None:
    converted = convert(hint, value)
    assert converted == expected
    assert type(converted) is type(expected)


@pytest.mark.parametrize("value", [[1, 1], [1, 1.0], [True], 3])
def test_no_set(value: Any) -> None:
    with pytest.raises(ConversionError):
        convert(set[int], value)
