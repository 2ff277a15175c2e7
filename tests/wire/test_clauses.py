"""Structured clauses: facts as clauses, and never a rule from a client."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given

from manglecp.base.strict_json import Fault
from manglecp.mangle import Program, Source
from manglecp.wire.clauses import fact_object
from manglecp.wire.errors import WireError
from manglecp.wire.json_schemas import all_schemas
from manglecp.wire.message_reader import receive
from manglecp.wire.messages import VERSION, IntentRequest
from manglecp.wire.profile import Profile
from tests.wire.message_strategies import json_values

EXAMPLE = json.loads(Path(__file__).with_name("examples").joinpath("companion-4.7.StructuredClause.json").read_text())


def term(data: Any) -> dict[str, Any]:
    return {"head": {"predicate": "p", "args": [data]}, "body": []}


# --- reading ---------------------------------------------------------------------------------------------------------


@pytest.mark.req("DATA-48")
def test_the_example_of_the_specification_is_a_rule_which_no_client_may_state() -> None:
    assert VALIDATOR.is_valid(EXAMPLE)
    with pytest.raises(Fault, match="rules are not accepted") as fault:
        fact_object(EXAMPLE)
    assert fault.value.path == "$.body"


@pytest.mark.req("DATA-49")
@pytest.mark.parametrize(
    ("data", "arg"),
    [
        ({"type": "string", "value": "a"}, "a"),
        ({"type": "number", "value": 1}, 1),
        ({"type": "number", "value": 1.5}, 1.5),
        ({"type": "list", "elements": [{"type": "number", "value": 1}, {"type": "string", "value": "a"}]}, [1, "a"]),
        ({"type": "map", "entries": {"k": {"type": "number", "value": 1}}}, {"k": 1}),
        ({"type": "list", "elements": []}, []),
        ({"type": "map", "entries": {}}, {}),
        ({"type": "string", "value": {"_type": "name", "value": "/a/b"}}, {"_type": "name", "value": "/a/b"}),
        (
            {"type": "number", "value": {"_type": "int64", "value": "9007199254740993"}},
            {"_type": "int64", "value": "9007199254740993"},
        ),
    ],
)
def test_each_kind_of_argument(data: dict[str, Any], arg: Any) -> None:
    assert fact_object(term(data)) == {"pred": "p", "args": [arg]}
    assert VALIDATOR.is_valid(term(data))


VALIDATOR = jsonschema_rs.Draft202012Validator({"$ref": "#/$defs/StructuredClause", "$defs": all_schemas()["$defs"]})


@given(json_values)
def test_anything_else_is_a_fault(data: Any) -> None:
    for document in (data, {"head": data}, term(data), {**term({"type": "wildcard"}), "body": data}):
        with suppress(Fault):
            fact_object(document)


@pytest.mark.parametrize(
    ("data", "path"),
    [
        ([], "$"),
        ({}, "$"),
        (term({"type": "name", "value": "/a"}), "$.head.args[0].type"),
        (term({"type": "string"}), "$.head.args[0]"),
        (term({"type": "string", "value": 1}), "$.head.args[0].value"),
        (term({"type": "string", "value": {"_type": "int64", "value": "1"}}), "$.head.args[0].value"),
        (term({"type": "string", "value": {"_type": "name", "value": "no"}}), "$.head.args[0].value.value"),
        (term({"type": "number", "value": True}), "$.head.args[0].value"),
        (term({"type": "number", "value": 2**53}), "$.head.args[0].value"),
        (term({"type": "list", "elements": [{"type": "variable", "name": "x"}]}), "$.head.args[0].elements[0]"),
        (term({"type": "map", "entries": {"k": {"type": "wildcard"}}}), "$.head.args[0].entries.k"),
        ({"head": EXAMPLE["head"], "body": [EXAMPLE["head"]]}, "$.body"),
    ],
)
def test_what_is_wrong_is_said_with_its_path(data: Any, path: str) -> None:
    with pytest.raises(Fault) as fault:
        fact_object(data)
    assert fault.value.path == path


@pytest.mark.parametrize("name", ["P", "_manglecp_x", "p" * 129, "fn:plus", "p(X) :- q"])
def test_a_wrong_predicate_is_left_to_the_check_of_facts(name: str) -> None:
    assert fact_object({"head": {"predicate": name, "args": []}}) == {"pred": name, "args": []}


def test_a_path_does_not_repeat_long_keys() -> None:
    with pytest.raises(Fault) as fault:
        fact_object(term({"type": "map", "entries": {"k" * 10_000: {"type": "variable", "name": ""}}}))
    assert len(fault.value.path) < 100


@pytest.mark.parametrize("depth", [101, 300, 5000])
def test_depth_is_bounded(depth: int) -> None:
    data: dict[str, Any] = {"type": "number", "value": 1}
    for _ in range(depth):
        data = {"type": "list", "elements": [data]}
    with pytest.raises(Fault, match="nested more than 100 deep"):
        fact_object(term(data))


# --- from clients ----------------------------------------------------------------------------------------------------


def request(*facts: Any, **more: Any) -> bytes:
    payload = {"intent": {"name": "observe"}, "facts": list(facts), **more}
    return json.dumps({"type": "intent_request", "id": "c-1", "manglecp": VERSION, "payload": payload}).encode()


def facts_of(data: bytes, *, structured_facts: bool) -> list[Any]:
    message = receive(data, 1 << 20, structured_facts=structured_facts)
    assert isinstance(message, IntentRequest)
    return message.payload.facts


GOOD = {"head": {"predicate": "service", "args": [{"type": "string", "value": "a"}, {"type": "number", "value": 1}]}}
PLAIN = {"pred": "service", "args": ["a", 1]}


SERVICES = Profile.of(
    Program.load(
        [Source("s.mg", 'Decl service(Name, Port) descr [direction("input")] bound [/string, /number].')]
    ).predicates
)


def violations(*facts: Any) -> list[dict[str, Any]]:
    with pytest.raises(WireError) as error:
        SERVICES.read(facts_of(request(*facts), structured_facts=True), 0)
    assert error.value.details is not None
    return list(error.value.details["violations"])


def test_a_structured_fact_is_the_ordinary_one_where_the_extension_is_on() -> None:
    assert facts_of(request(GOOD, PLAIN, {**GOOD, "body": []}), structured_facts=True) == [PLAIN] * 3


def test_the_extension_is_off_by_default() -> None:
    message = receive(request(GOOD), 1 << 20)
    assert isinstance(message, IntentRequest)
    assert message.payload.facts == [GOOD]  # and whoever reads facts finds no predicate in it


def test_rules_are_never_accepted() -> None:
    first, second = violations(PLAIN, EXAMPLE, GOOD, {**GOOD, "body": 1})
    assert first == {
        "fact_index": 1,
        "predicate": "may_restart",
        "issue": "invalid_clause",
        "message": "Clause of predicate 'may_restart': rules are not accepted from clients",
        "suggestion": "leave the body out",
        "path": "$.body",
    }
    assert (second["fact_index"], second["path"]) == (3, "$.body")


def test_what_is_wrong_with_clauses_is_told_like_the_rest_and_with_it() -> None:
    """Clauses and ordinary facts in one answer, with the same issues, words, suggestions and kind of path."""
    reserved = {"predicate": "_manglecp_internal", "args": [{"type": "variable", "name": "X"}]}
    unbound = {"predicate": "service", "args": [{"type": "variable", "name": "X"}, {"type": "number", "value": 1}]}
    mistyped = {"predicate": "service", "args": [{"type": "number", "value": 1}, {"type": "list", "elements": []}]}
    found = violations(
        {"head": reserved},
        {"pred": "_manglecp_internal", "args": []},
        {"head": {"predicate": "Bad name", "args": []}},
        {"pred": "Bad name", "args": []},
        {"head": {"predicate": "servce", "args": []}},
        {"pred": "servce", "args": []},
        {"head": unbound},
        {"head": mistyped},
        {**GOOD, "t": {"at": "soon"}},
        {**PLAIN, "t": {"at": "soon"}},
    )
    for clause, ordinary in ((0, 1), (2, 3), (4, 5), (9, 10)):
        assert found[clause].pop("fact_index") == found[ordinary].pop("fact_index") - 1
        assert found[clause] == found[ordinary]
    assert [v["issue"] for v in found[:5:2]] == ["reserved_predicate", "invalid_predicate_name", "unknown_predicate"]
    assert found[4]["suggestion"] == "Did you mean 'service'?"
    assert (found[6]["fact_index"], found[6]["path"], found[6]["suggestion"]) == (6, "$.head.args[0]", "give the value")
    assert [(v["fact_index"], v["path"]) for v in found[7:9]] == [(7, "$.head.args[0]"), (7, "$.head.args[1]")]


def test_a_request_of_reserved_clauses_only_has_that_code() -> None:
    message = receive(request({"head": {"predicate": "_manglecp_a", "args": []}}), 1 << 20, structured_facts=True)
    with pytest.raises(WireError) as error:
        SERVICES.read(message.payload.facts, 0)  # type: ignore[union-attr]
    assert (error.value.code, error.value.payload().recoverable) == ("reserved_predicate", False)


def test_a_wrong_clause_is_no_missing_fact() -> None:
    """A fact that is there and wrong is not missing, in whichever form (OPEN-18)."""
    message = receive(request({**GOOD, "body": [GOOD["head"]]}), 1 << 20, structured_facts=True)
    with pytest.raises(WireError) as error:
        SERVICES.read(message.payload.facts, 0, required=["service"])  # type: ignore[union-attr]
    assert error.value.details is not None
    assert "missing_facts" not in error.value.details


@pytest.mark.parametrize("member", ["rules", "clauses", "x-structured_facts"])
@pytest.mark.parametrize("structured_facts", [False, True])
def test_rules_elsewhere_in_a_request_are_skipped(member: str, structured_facts: bool) -> None:
    message = receive(request(PLAIN, **{member: [EXAMPLE]}), 1 << 20, structured_facts=structured_facts)
    assert message == receive(request(PLAIN), 1 << 20)


@pytest.mark.parametrize("arg", [{"type": "variable", "name": "X"}, {"type": "wildcard"}])
def test_a_fact_states_particular_values(arg: dict[str, Any]) -> None:
    with pytest.raises(Fault, match="particular values") as fault:
        fact_object(term(arg))
    assert fault.value.path == "$.head.args[0]"


def test_values_of_a_structured_fact_mean_what_they_say() -> None:
    args = [
        {"type": "map", "entries": {"_type": {"type": "string", "value": "int64"}}},
        {"type": "list", "elements": [{"type": "string", "value": {"_type": "name", "value": "/true"}}]},
    ]
    fact = fact_object({"head": {"predicate": "p", "args": args}})
    assert fact == {"pred": "p", "args": [{"_type": "map", "value": [["_type", "int64"]]}, [True]]}


def test_a_structured_fact_keeps_its_time_and_source() -> None:
    head = {"predicate": "p", "args": []}
    beside = {"t": {"at": "2026-01-01T00:00:00Z"}, "source": {"source_type": "scan"}, "category": "session"}
    assert fact_object({"head": head, **beside}) == {"pred": "p", "args": [], **beside}


@pytest.mark.parametrize("member", ["pred", "args", "named_args"])
def test_a_fact_is_written_in_one_way(member: str) -> None:
    with pytest.raises(Fault, match=f"either head or {member}") as wrong:
        fact_object({"head": {"predicate": "p", "args": []}, member: {"pred": "q", "args": []}.get(member, {})})
    assert wrong.value.path == f"$.{member}"
