"""DSState: full and delta, what is refused instead of coerced, digests and drift."""

import hashlib
from typing import Any

import pytest
from hypothesis import given, strategies as st

from manglecp.toolhost import state
from manglecp.toolhost.context import Context, Reports
from manglecp.toolhost.state import Artifact, BaseMismatch, Slots, StateError

ECHO = Artifact("text", "AID.ECHO.v1", '{"a":1}', 7)
ECHO_JSON = {"type": "text", "provenance": "AID.ECHO.v1", "content_json": '{"a":1}', "size_bytes": 7}

texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"))
artifacts = st.builds(Artifact, texts, texts, texts, st.integers(0, 2**63 - 1))
states = st.dictionaries(st.integers(0, 7), artifacts)


@pytest.mark.req("IPC-13", "IPC-22")
def test_the_two_shapes_on_the_wire() -> None:
    assert state.full_state({3: ECHO}) == {"slots": {"3": ECHO_JSON}}
    assert state.state_delta({1: ECHO}, {3: ECHO}) == {"delta": True, "slots": {"3": ECHO_JSON}, "removed_slots": [1]}
    assert state.state_delta({1: ECHO}, {1: ECHO}) == {"delta": True, "slots": {}, "removed_slots": []}


@given(states, states, st.booleans())
def test_applying_a_delta_gives_the_state_it_was_made_of(before: Slots, after: Slots, name_base: bool) -> None:
    assert state.apply_state(state.state_delta(before, after, name_base=name_base), before) == after
    assert state.apply_state(state.full_state(after), before) == after


def test_a_delta_removes_after_it_writes() -> None:
    assert state.apply_state({"delta": True, "slots": {"2": ECHO_JSON}, "removed_slots": [2, 5]}, {}) == {}


@pytest.mark.parametrize("document", [None, [], "x", 3])
def test_what_is_no_object_says_nothing(document: object) -> None:
    assert state.apply_state(document, {1: ECHO}) == {1: ECHO}


def test_members_may_be_missing_or_unknown() -> None:
    assert state.apply_state({"slots": {"0": {"color": "red"}}, "x": 1}, {1: ECHO}) == {0: Artifact()}
    assert state.apply_state({}, {1: ECHO}) == {}
    assert state.apply_state({"delta": True}, {1: ECHO}) == {1: ECHO}


@pytest.mark.parametrize(
    "document",
    [
        {"delta": "false"},
        {"delta": 1},
        {"slots": []},
        {"slots": {"6abc": {}}},
        {"slots": {" 2": {}}},
        {"slots": {"02": {}}},
        {"slots": {"256": {}}},
        {"slots": {"1": "text"}},
        {"slots": {"1": {"size_bytes": -1}}},
        {"slots": {"1": {"size_bytes": True}}},
        {"slots": {"1": {"size_bytes": "7"}}},
        {"slots": {"1": {"content_json": {}}}},
        {"delta": True, "removed_slots": ["abc"]},
        {"delta": True, "removed_slots": ["1"]},
        {"delta": True, "removed_slots": [True]},
        {"delta": True, "removed_slots": [256]},
        {"delta": True, "removed_slots": {}},
    ],
)
def test_nothing_is_coerced(document: dict[str, Any]) -> None:
    with pytest.raises(StateError):
        state.apply_state(document, {0: ECHO})


class Name(str):
    """A string that could do anything when it is read."""


class Size(int):
    """A number that could do anything when it is read."""


class Marked(Artifact):
    """An artifact that could do anything when it is read."""


def echo(**members: Any) -> Artifact:
    return ECHO._replace(**members)


TEXTS = ("type", "provenance", "content_json")
ODD: list[Any] = [
    {256: ECHO},
    {-1: ECHO},
    {True: ECHO},
    {"1": ECHO},
    {Size(1): ECHO},
    {1: ECHO, "1": ECHO},
    {1: tuple(ECHO)},
    {1: ECHO_JSON},
    {1: None},
    {1: Marked(*ECHO)},
    *({1: echo(size_bytes=size)} for size in (-1, 2**63, True, 1.0, Size(1), "1", None)),
    *({1: echo(**{member: Name("a")})} for member in TEXTS),
    *({1: echo(**{member: "a\0"})} for member in TEXTS),
    *({1: echo(**{member: "é\ud800"})} for member in TEXTS),
    {1: echo(content_json=b"{}")},
]


@pytest.mark.parametrize("slots", ODD, ids=str)
def test_nothing_odd_is_emitted(slots: Slots) -> None:
    for emit in (state.full_state, state.own_slots, lambda after: state.state_delta({}, after)):
        with pytest.raises(StateError):
            emit(slots)


def test_what_could_not_be_sent_on_is_not_taken() -> None:
    for member, value in {"size_bytes": 2**63, "type": "\0", "provenance": "\ud800"}.items():
        with pytest.raises(StateError):
            state.apply_state({"slots": {"1": {**ECHO_JSON, member: value}}}, {})
    largest = ECHO._replace(size_bytes=2**63 - 1, content_json="é\U0001f600")
    assert state.apply_state(state.full_state({1: largest}), {}) == {1: largest}


def test_what_is_owned_does_not_change_with_what_was_lent() -> None:
    lent = {1: ECHO}
    owned = state.own_slots(lent)
    lent[2] = ECHO
    del lent[1]
    assert owned == {1: ECHO}


def test_an_action_cannot_replace_its_slots() -> None:
    lent = {1: ECHO}
    context = Context(lent, Reports(None), {})
    with pytest.raises(AttributeError):
        context.slots = {}  # type: ignore[misc]  # that is the point
    context.slots[2] = ECHO
    assert lent == {1: ECHO, 2: ECHO}


def test_digests_are_upstreams() -> None:
    assert state.digest_state({}) == hashlib.sha256(b"").hexdigest()
    assert state.digest_state_fast({}) == "14650fb0739d0383"
    content = hashlib.sha256(b'{"a":1}').hexdigest()
    text = f"0:text:AID.ECHO.v1:7:{content}|3:text:AID.ECHO.v1:7:{content}|".encode()
    assert state.digest_state({3: ECHO, 0: ECHO}) == hashlib.sha256(text).hexdigest()
    assert state.digest_state_fast({3: ECHO, 0: ECHO}) == state.fnv1a64(text)


def test_drift_is_refused() -> None:
    document = state.state_delta({1: ECHO}, {2: ECHO}, name_base=True)
    with pytest.raises(BaseMismatch) as caught:
        state.apply_state(document, {})
    assert (caught.value.expected, caught.value.held) == (state.digest_state({1: ECHO}), state.digest_state({}))
