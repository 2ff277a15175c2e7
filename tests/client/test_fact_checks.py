"""What a client does not send: facts, arguments and sizes that the manifest rules out."""

from __future__ import annotations

from typing import Any

import pytest

from manglecp.client.errors import InvalidResponse, RequestRefused
from manglecp.client.fact_checks import FactChecks, check_arguments, check_size
from tests.client.manifests import payload

T = "2026-03-02T09:14:00Z"
CHECKS = FactChecks(
    payload(
        facts_profile={
            "predicates": [
                {
                    "predicate": "build",
                    "arity": 2,
                    "arg_types": ["string", "number"],
                    "arg_names": ["service", "number"],
                    "temporal": True,
                    "direction": "input",
                },
                {"predicate": "flag", "arity": 1, "arg_types": ["boolean"]},
                {"predicate": "any", "arity": 1, "arg_types": ["any"], "direction": "both"},
                {"predicate": "loose", "arity": 2},
                {"predicate": "verdict", "arity": 1, "arg_types": ["string"], "direction": "output"},
            ]
        },
        intents=[
            {"name": "look", "description": "Look.", "required_facts": ["build"], "optional_facts": ["flag"]},
            {"name": "free", "description": "Whatever."},
        ],
        limits={"max_facts_per_request": 3},
    )
)


def fact(name: str, *args: Any, **more: Any) -> dict[str, Any]:
    return {"pred": name, "args": list(args), **more}


@pytest.mark.req("CLI-02")
@pytest.mark.parametrize(
    "right",
    [
        fact("build", "pay", 7),
        fact("build", "pay", 7.5),
        fact("build", "pay", {"_type": "int64", "value": str(2**60)}),
        fact("build", {"_type": "name", "value": "/pay"}, 7, t={"at": T}),
        fact("build", "pay", 7, t={"at": 1772442840000}),
        fact("build", "pay", 7, source={"source_type": "scan"}, category="server"),
        fact("flag", True),
        fact("any", {"a": [1, "x"]}),
        fact("loose", 1, "x"),
        fact("disclosure_upgrade", "m-1"),
    ],
)
def test_what_fits_is_sent_as_it_is(right: dict[str, Any]) -> None:
    checked = CHECKS.check([right])
    assert (checked.facts, checked.violations, checked.warnings) == ((right,), (), ())


@pytest.mark.req("CLI-02")
@pytest.mark.parametrize(
    ("wrong", "issue"),
    [
        (fact("verdict", "bad"), "direction_violation"),
        (fact("build", "pay"), "arity_mismatch"),
        (fact("build", "pay", 7, 8), "arity_mismatch"),
        (fact("build", 5, 7), "type_mismatch"),
        (fact("build", "pay", "7"), "type_mismatch"),
        (fact("build", "pay", True), "type_mismatch"),
        (fact("build", "pay", 2**60), "type_mismatch"),
        (fact("flag", "true"), "type_mismatch"),
        (fact("any", None), "type_mismatch"),
        (fact("flag", True, t={"at": T}), "invalid_time"),
        (fact("build", "pay", 7, t={"at": "yesterday"}), "invalid_time"),
        (fact("build", "pay", 7, t={"start": T, "end": "2020-01-01T00:00:00Z"}), "invalid_time"),
        (fact("build", "pay", 7, source={"source_type": "rumour"}), "invalid_source"),
        (fact("_manglecp_x"), "reserved_predicate"),
        (fact("Build", "pay", 7), "invalid_predicate_name"),
        (fact("any", float("nan")), "invalid_fact"),
        (fact("any", {1, 2}), "invalid_fact"),
        (fact("any", {1: 2}), "invalid_fact"),
        ({"pred": "build"}, "invalid_fact"),
        ("build(pay)", "invalid_fact"),
        ({"pred": "build", "named_args": {"service": "pay", "nomber": 7}}, "invalid_named_args"),
    ],
)
def test_what_does_not_fit_is_not_sent(wrong: Any, issue: str) -> None:
    checked = CHECKS.check([fact("flag", False), wrong])
    assert checked.facts == (fact("flag", False),)
    assert [(one.fact_index, one.issue) for one in checked.violations] == [(1, issue)]


@pytest.mark.req("CLI-02")
def test_an_unknown_predicate_is_a_warning_and_sent() -> None:
    checked = CHECKS.check([fact("biuld", "pay", 7)])
    assert checked.facts == (fact("biuld", "pay", 7),)
    assert checked.violations == ()
    assert [one.suggestion for one in checked.warnings] == ["Did you mean 'build'?"]


@pytest.mark.req("CLI-02")
def test_without_a_list_of_predicates_everything_is_sent() -> None:
    free = FactChecks(payload(facts_profile={"predicates": []}))
    many = [fact(f"p{n}", n) for n in range(2_500)]
    checked = free.check(many)
    assert checked.facts == tuple(many)
    assert checked.warnings == ()


def test_named_arguments_go_in_their_order() -> None:
    named = {"pred": "build", "named_args": {"number": 7, "service": "pay"}, "t": {"at": T}}
    assert CHECKS.check([named]).facts == (fact("build", "pay", 7, t={"at": T}),)


def test_milliseconds_only_where_the_server_takes_them() -> None:
    strict = FactChecks(payload(facts_profile={"time_formats": ["rfc3339"]}))
    given = fact("build_result", "pay", 7, "red", t={"at": 1772442840000})
    assert [one.issue for one in strict.check([given]).violations] == ["invalid_time"]


@pytest.mark.req("CLI-02")
def test_all_that_is_wrong_is_told_at_once() -> None:
    wrong = [fact("build", 5, "x"), fact("verdict", "bad"), fact("flag", True)]
    checked = CHECKS.check(wrong)
    with pytest.raises(RequestRefused) as refused:
        CHECKS.ensure_sendable(checked.facts, "look", checked.violations)
    assert refused.value.code == "invalid_facts"
    assert [one["fact_index"] for one in refused.value.details["violations"]] == [0, 0, 1]
    assert refused.value.details["missing_facts"] == ["build"]
    told = str(refused.value)
    assert told.startswith("invalid_facts: 4 fact validation errors (fact 0: ")
    assert told.endswith("; and 1 more)")
    for one in refused.value.details["violations"]:
        assert f"fact {one['fact_index']}: {one['message']}" in told


def test_facts_that_an_intent_needs_must_be_there() -> None:
    CHECKS.ensure_sendable([fact("build", "pay", 7)], "look")
    CHECKS.ensure_sendable([], "free")
    CHECKS.ensure_sendable([], "unlisted")
    with pytest.raises(RequestRefused, match="invalid_facts"):
        CHECKS.ensure_sendable([fact("flag", True)], "look")


@pytest.mark.req("CLI-03")
def test_no_more_facts_than_the_server_takes() -> None:
    three = [fact("build", "pay", n) for n in range(3)]
    CHECKS.ensure_sendable(three, "look")
    with pytest.raises(RequestRefused) as refused:
        CHECKS.ensure_sendable([*three, fact("flag", True)], "look")
    assert refused.value.code == "too_many_facts"
    assert refused.value.details == {"limit": 3, "actual": 4}


@pytest.mark.req("CLI-03")
def test_no_longer_message_than_the_server_takes() -> None:
    told = payload(limits={"max_message_bytes": 1 << 24})
    check_size(b"x" * (1 << 24), told)
    with pytest.raises(RequestRefused) as refused:
        check_size(b"x" * ((1 << 24) + 1), told)
    assert refused.value.code == "message_too_large"


@pytest.mark.req("SEC-30")
def test_only_facts_that_the_intent_needs_are_useful() -> None:
    assert CHECKS.is_used_by(fact("build", "pay", 7), "look")
    assert CHECKS.is_used_by(fact("flag", True), "look")
    assert not CHECKS.is_used_by(fact("any", 1), "look")
    assert CHECKS.is_used_by(fact("any", 1), "free"), "it does not say what it needs"


@pytest.mark.req("CLI-04")
def test_arguments_that_do_not_fit_are_not_sent() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    assert check_arguments({"n": 1}, schema) == {"n": 1}
    for wrong, path in (({}, "/n"), ({"n": "1"}, "/n")):
        with pytest.raises(RequestRefused) as refused:
            check_arguments(wrong, schema)
        assert refused.value.code == "schema_validation_failed"
        assert [one["path"] for one in refused.value.details["schema_errors"]] == [path]
    with pytest.raises(RequestRefused, match="not JSON"):
        check_arguments({"n": {1}}, schema)


@pytest.mark.parametrize("schema", [{"type": 5}, {"pattern": "("}, {"x": 1e999}])
def test_what_is_no_schema_is_not_used(schema: dict[str, Any]) -> None:
    with pytest.raises(InvalidResponse):
        check_arguments({"n": 1}, schema)


def test_nothing_is_fetched_for_a_schema() -> None:
    with pytest.raises(RequestRefused, match="schema_validation_failed"):
        check_arguments({"n": 1}, {"$ref": "https://evil.example/s"})


def test_a_schema_that_would_take_for_ever_fits_nothing() -> None:
    twice = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(60)}
    schema = {"$defs": {**twice, "d60": {"type": "object"}}, "$ref": "#/$defs/d0"}
    with pytest.raises(RequestRefused) as refused:
        check_arguments({"n": 1}, schema)
    assert refused.value.details["schema_errors"][0]["message"] == "The value is too complex to be checked"


def test_a_predicate_of_a_thousand_million_arguments_is_as_good_as_unknown() -> None:
    huge = FactChecks(payload(facts_profile={"predicates": [{"predicate": "p", "arity": 10**9}]}))
    assert [one.issue for one in huge.check([fact("p", 1)]).warnings] == ["unknown_predicate"]
