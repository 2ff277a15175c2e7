"""The exported schemas and the readers accept the same messages: valid ones, with one member changed.

What the two say differently on purpose is listed with the reason, and each entry of the list is shown to be real.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import jsonschema_rs
import pytest
from hypothesis import given, strategies as st

from manglecp.mangle import Program, Source
from manglecp.wire.errors import WireError
from manglecp.wire.json_schemas import TYPES, all_schemas, schema
from manglecp.wire.message_reader import MAX_DEPTH, receive, receive_from_server
from manglecp.wire.messages import CLIENT_TYPES, encode
from manglecp.wire.profile import Profile
from tests.wire.message_strategies import message_of
from tests.wire.test_nulls import EXAMPLES

VALIDATORS: Final = {type_: jsonschema_rs.Draft202012Validator(schema(type_)) for type_ in TYPES}
FACT: Final = jsonschema_rs.Draft202012Validator({"$ref": "#/$defs/Fact", "$defs": all_schemas()["$defs"]})
ABSENT: Final = object()
CHANGES: Final = [
    ABSENT,
    None,
    True,
    0,
    -1,
    3,
    101,
    1 << 24,
    -(1 << 70),
    1 << 70,
    1.5,
    100.5,
    "",
    " ",
    "x",
    "x-",
    "x-own",
    "none\n",
    "full",
    "minimal",
    "rfc3339",
    "epoch_ms",
    "bearer",
    "testing",
    "2026-02-draft",
    [],
    [None],
    ["x"],
    ["x-own"],
    ["epoch_ms"],
    ["bearer"],
    {},
    {"x": 1},
    {"x-own": None},
    {"x": 101},
]
NOT_THE_READER: Final = {
    "facts": "facts are looked at when their predicates are known, all at once",
    "details": "a client has to hear of an error whatever its details are",
    "informational": "no client depends on these parts: it skips what it cannot read in them",
    "words": "a client shows a word that it does not know as it is",
    "levels": "a client takes a tool that has more than its detail level demands",
}
"""Where the schema asks more than the reader, and why: below these members the two are not compared."""
NOT_THE_SCHEMA: Final = {
    "whole numbers": "to JSON Schema 1.0 is a whole number; a reader tells them apart (DATA-18)",
    "keys": "JSON Schema never sees that a key stands twice",
    "depth": "JSON Schema has no words for the depth of a document, nor for its size",
}
"""What JSON Schema cannot say."""
INFORMATIONAL: Final = {"proof_hints", "diagnostics", "metadata", "observability"}
_FACTS: Final = {"facts", "assert", "retract", "continuation_facts", "supporting_facts", "would_unlock"}


def accepted(document: Any) -> bool:
    data = json.dumps(document).encode()
    read = receive if document.get("type") in CLIENT_TYPES else receive_from_server
    try:
        read(data, 1 << 24)
    except WireError:
        return False
    return True


def places(part: Any, way: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The ways to all members and to the first of items, those that are not compared aside."""
    inside = part.items() if isinstance(part, dict) else enumerate(part[:1]) if isinstance(part, list) else ()
    for step, value in inside:
        if step == "details" and way[:1] == ("payload",):
            continue
        yield (*way, step)
        if step not in _FACTS:
            yield from places(value, (*way, step))


def changed(document: Any, way: tuple[str | int, ...], value: Any) -> Any:
    document = json.loads(json.dumps(document))
    part = document
    for step in way[:-1]:
        part = part[step]
    if value is not ABSENT:
        part[way[-1]] = value
    else:
        del part[way[-1]]
    return document


def differ(document: Any, type_: str, way: tuple[str | int, ...] = ()) -> bool:
    """Whether one of the two refuses the document; with a change at an open place, only what the reader refuses."""
    fits = VALIDATORS[type_].is_valid(document)
    is_open = (
        not INFORMATIONAL.isdisjoint(way) or way[-1:] == ("disclosure_level",) or (type_, len(way)) == ("progress", 2)
    )
    return fits and not accepted(document) if is_open else accepted(document) != fits


def comparable(way: tuple[str | int, ...], value: Any) -> bool:
    """Facts are compared with a profile, below; here only whether they are there at all."""
    return way[-1] not in _FACTS or value is ABSENT or not isinstance(value, list) or not value


@pytest.mark.parametrize("type_", TYPES)
def test_every_member_of_every_example_changed_in_every_way(type_: str) -> None:
    document = EXAMPLES[type_]
    assert not differ(document, type_)
    ways = [way for way in places(document) if way != ("type",)]
    assert len(ways) >= 4
    found = [
        (way, value)
        for way in ways
        for value in CHANGES
        if comparable(way, value) and differ(changed(document, way, value), type_, way)
    ]
    assert found == []


_of_types: Final = {type_: message_of(message) for type_, message in TYPES.items()}


@given(st.sampled_from(sorted(TYPES)), st.data())
def test_any_message_with_one_member_changed(type_: str, data: st.DataObject) -> None:
    document = json.loads(encode(data.draw(_of_types[type_])))
    assert not differ(document, type_)
    way = data.draw(st.sampled_from([way for way in places(document) if way != ("type",)]))
    value = data.draw(st.sampled_from(CHANGES))
    if comparable(way, value):
        assert not differ(changed(document, way, value), type_, way), (way, value)


# --- facts -----------------------------------------------------------------------------------------------------------

PROFILE: Final = Profile.of(
    Program.load([Source("s.mg", 'Decl p(A, B) temporal descr [direction("both")] bound [/any, /any].')]).predicates
)
T: Final = "2026-03-02T09:14:00Z"
_FACT: Final = {
    "pred": "p",
    "args": ["a", 1],
    "t": {"start": "_", "end": T},
    "source": {"source_type": "scan", "source_id": "s", "asserted_at": T},
    "category": "session",
    "x-other": {},
}
FORMS: Final = [
    _FACT,
    {**_FACT, "t": {"at": T}},
    {**_FACT, "t": {"at": 5, "start": None, "end": None}},
    {**_FACT, "args": None, "named_args": {"a": 1, "b": 2}},
]
TIMES: Final = ("at", "start", "end", "asserted_at")


@pytest.mark.parametrize("fact", FORMS, ids=str)
def test_facts_changed_in_every_way(fact: dict[str, Any]) -> None:
    """Of texts in place of a time only ``_`` is compared: which texts are times, no schema says. Nor which predicates
    and how many arguments there are, and that a fact states particular values."""

    def read(candidate: Any) -> bool:
        return not PROFILE.check([candidate], 1)[1]

    ways = [way for way in places({"f": fact}) if way[1:2] and way[1] != "pred" and way[-1] not in ("a", "b", 0, 1)]
    ways += [("f", name) for name in ("args", "named_args", "t", "source", "category") if name not in fact]
    values = [*CHANGES, "_", "now", {"at": T}, {"start": T}, {"start": "_", "end": "_"}, {"at": T, "end": T}]
    for way in ways:
        for value in values:
            present = way[-1] in fact or len(way) > 2
            text = isinstance(value, str) and value not in ("_", "now")
            known = way[1] not in ("args", "named_args") or value is ABSENT or not isinstance(value, list | dict)
            if known and (present or value is not ABSENT) and not (way[-1] in TIMES and text):
                candidate = changed({"f": fact}, way, value)["f"]
                assert read(candidate) == FACT.is_valid(candidate), (way, value)


# --- what differs on purpose -----------------------------------------------------------------------------------------


def test_facts_are_not_looked_at_when_a_message_is_read() -> None:
    document = changed(EXAMPLES["intent_request"], ("payload", "facts"), [{"no": "fact"}])
    assert accepted(document), NOT_THE_READER["facts"]
    assert not VALIDATORS["intent_request"].is_valid(document)


def test_an_error_is_heard_whatever_its_details_are() -> None:
    document = changed(EXAMPLES["error"], ("payload", "details"), {"violations": 5})
    assert accepted(document), NOT_THE_READER["details"]
    assert not VALIDATORS["error"].is_valid(document)


@pytest.mark.req("COV-02", "EVAL-29")
@pytest.mark.parametrize("name", ["proof_hints", "diagnostics"])
@pytest.mark.parametrize("value", ["text", 5, [], {"rules_fired": "many", "derivations": 5, "rule_coverage": [1]}])
def test_an_answer_is_read_whatever_its_informational_parts_are(name: str, value: Any) -> None:
    document = changed(EXAMPLES["intent_response"], ("payload", name), value)
    assert accepted(document), NOT_THE_READER["informational"]
    assert not VALIDATORS["intent_response"].is_valid(document)


def test_a_word_of_progress_that_is_not_known_is_read_as_it_is() -> None:
    document = changed(EXAMPLES["progress"], ("payload", "status"), "waiting")
    message = receive_from_server(json.dumps(document).encode(), 1 << 24)
    assert message.payload.status == "waiting", NOT_THE_READER["words"]  # type: ignore[union-attr]  # it is a progress
    assert not VALIDATORS["progress"].is_valid(document)


def test_a_tool_with_more_than_its_level_demands_is_read() -> None:
    document = changed(EXAMPLES["intent_response"], ("payload", "macro_tools", 0, "disclosure_level"), "minimal")
    assert accepted(document), NOT_THE_READER["levels"]
    assert not VALIDATORS["intent_response"].is_valid(document)


def test_a_whole_number_is_written_without_a_point() -> None:
    document = changed(EXAMPLES["intent_request"], ("payload", "constraints"), {"max_compute_ms": 1.0})
    assert not accepted(document), NOT_THE_SCHEMA["whole numbers"]
    assert VALIDATORS["intent_request"].is_valid(document)


def test_a_key_that_stands_twice_is_seen_by_the_reader_only() -> None:
    data = json.dumps(EXAMPLES["intent_request"]).replace('"intent":', '"intent": {"name": "other"}, "intent":', 1)
    assert VALIDATORS["intent_request"].is_valid(json.loads(data)), NOT_THE_SCHEMA["keys"]
    with pytest.raises(WireError, match="twice"):
        receive(data.encode(), 1 << 24)


def test_depth_is_seen_by_the_reader_only() -> None:
    deep: Any = {}
    for _ in range(MAX_DEPTH):
        deep = {"k": deep}
    document = changed(EXAMPLES["intent_request"], ("payload", "intent", "params"), deep)
    assert VALIDATORS["intent_request"].is_valid(document), NOT_THE_SCHEMA["depth"]
    assert not accepted(document)
