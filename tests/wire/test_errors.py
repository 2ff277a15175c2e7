"""The error registry, row by row, and the errors that are built in one place."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from manglecp.wire.errors import (
    CODES,
    CodeRow,
    SchemaError,
    Violation,
    WireError,
    budget_exceeded,
    did_you_mean,
    refused_arguments,
    refused_facts,
    too_large,
    too_many_facts,
    unsupported_version,
)
from manglecp.wire.json_schemas import schema
from manglecp.wire.messages import encode
from tests.requirements.register import load

EXAMPLES = Path(__file__).with_name("examples")
_ROW = re.compile(r"`(?P<code>[a-z_]+)`: HTTP (?P<status>[0-9]+), (?P<no>not )?recoverable\.")
ROWS = [(row.id, found) for row in load().by_id.values() if (found := _ROW.match(row.statement))]
VALIDATOR = jsonschema_rs.Draft202012Validator(schema("error"))
FACT_CODES = ("unknown_predicate", "arity_mismatch", "type_mismatch", "reserved_predicate")


def message(error: WireError, id_: str | None = "c-1") -> dict[str, Any]:
    document: dict[str, Any] = json.loads(encode(error.to_message(id_)))
    assert [found.message for found in VALIDATOR.iter_errors(document)] == []
    return document


def violation(index: int, issue: str, **more: Any) -> Violation:
    return Violation(fact_index=index, predicate="p", issue=issue, message=f"fact {index} is wrong", **more)


# --- the registry ----------------------------------------------------------------------------------------------------


def test_there_are_28_standard_codes_in_the_order_of_the_register() -> None:
    assert [found["code"] for _, found in ROWS] == [code for code in CODES if not code.startswith("x-")]
    assert len(ROWS) == 28


@pytest.mark.parametrize(
    ("code", "status", "recoverable"),
    [pytest.param(found["code"], int(found["status"]), not found["no"], id=found["code"]) for _, found in ROWS],
)
def test_a_code_has_the_status_and_the_flag_of_the_register(code: str, status: int, recoverable: bool) -> None:
    details = {"requested_version": "1", "supported_versions": ["2"]}  # what the strictest code needs
    error = WireError(code, "why", details)
    assert error.row.status == status
    document = message(error)
    assert document["payload"] == {
        "code": code,
        "message": "why",
        "details": details,
        "recoverable": recoverable,
        "retry_after_ms": None,
    }


@pytest.mark.req("ERR-01", "ERR-02")
@pytest.mark.parametrize("code", [*CODES, "x-database_unavailable"])
def test_an_error_is_a_normal_message(code: str) -> None:
    document = json.loads(encode(WireError(code, "why", {}).to_message("c-1")))
    assert list(document) == ["type", "id", "manglecp", "payload"]
    assert (document["type"], document["id"], document["manglecp"]) == ("error", "c-1", "2026-02-draft")
    assert set(document["payload"]) == {"code", "message", "details", "recoverable", "retry_after_ms"}
    assert isinstance(document["payload"]["recoverable"], bool)


@pytest.mark.req("ERR-03")
def test_details_and_waiting_are_optional() -> None:
    assert "details" not in message(WireError("internal_error", "why"))["payload"]
    assert message(WireError("rate_limited", "why"))["payload"]["retry_after_ms"] is None
    assert message(WireError("rate_limited", "why", retry_after_ms=250))["payload"]["retry_after_ms"] == 250


@pytest.mark.req("ERR-03")
@pytest.mark.parametrize("code", [code for code, row in CODES.items() if not row.recoverable])
def test_waiting_is_never_advised_where_it_does_not_help(code: str) -> None:
    assert message(WireError(code, "why", retry_after_ms=250))["payload"]["retry_after_ms"] is None


@pytest.mark.req("ERR-04")
@pytest.mark.parametrize("id_", [None, "c-1", "\N{GRINNING FACE}"])
def test_an_error_has_the_id_of_what_it_answers(id_: str | None) -> None:
    assert message(WireError("internal_error", "why"), id_)["id"] == id_


@pytest.mark.req("ERR-33")
def test_codes_of_ones_own() -> None:
    plain = message(WireError("x-database_unavailable", "The database is away"))["payload"]
    assert (plain["code"], plain["recoverable"]) == ("x-database_unavailable", False)
    error = WireError(
        "x-database_unavailable", "away", retry_after_ms=9, row=CodeRow(503, True, "the database is away")
    )
    assert error.row.status == 503
    assert message(error)["payload"]["recoverable"] is True
    assert message(error)["payload"]["retry_after_ms"] == 9


@pytest.mark.req("ERR-33")
@pytest.mark.parametrize(
    ("code", "text"), [("database_unavailable", "away"), ("x-", "away"), ("", "a"), ("x-own", " ")]
)
def test_other_codes_begin_with_x_and_say_what_they_mean(code: str, text: str) -> None:
    with pytest.raises(ValueError, match=r"begin with x-|needs a message"):
        WireError(code, text)


def test_our_own_codes_begin_with_x() -> None:
    assert {code for code in CODES if code.startswith("x-")} == {
        *("x-approval_decided", "x-approval_not_found", "x-approval_not_needed", "x-approval_too_large"),
        *("x-permit_conflict", "x-permit_not_found"),
        *("x-macro_not_yet_valid", "x-request_key_conflict", "x-skill_not_found", "x-unknown_intent"),
        *("x-facts_refused", "x-source_not_found"),
    }
    assert CODES["x-macro_not_yet_valid"][:2] == (403, True)


# --- facts -----------------------------------------------------------------------------------------------------------


@pytest.mark.req("ERR-34", "ERR-35")
@pytest.mark.parametrize("issue", FACT_CODES)
def test_violations_of_one_kind_have_that_code(issue: str) -> None:
    payload = message(refused_facts([violation(0, issue), violation(7, issue)]))["payload"]
    assert payload["code"] == issue
    assert payload["recoverable"] == (issue != "reserved_predicate")
    assert payload["details"]["violations"] == [
        {"fact_index": 0, "predicate": "p", "issue": issue, "message": "fact 0 is wrong"},
        {"fact_index": 7, "predicate": "p", "issue": issue, "message": "fact 7 is wrong"},
    ]


@pytest.mark.req("ERR-34")
@pytest.mark.parametrize(
    ("issues", "missing"),
    [
        (["arity_mismatch", "reserved_predicate"], []),
        (["reserved_predicate"], ["needed"]),
        (["policy_violation"], []),
        (["internal_error"], []),
        ([], ["needed"]),
    ],
)
def test_other_violations_are_invalid_facts(issues: list[str], missing: list[str]) -> None:
    error = refused_facts([violation(i, issue) for i, issue in enumerate(issues)], missing)
    payload = message(error)["payload"]
    assert (payload["code"], payload["recoverable"]) == ("invalid_facts", True)
    assert [v["issue"] for v in payload["details"]["violations"]] == issues
    assert payload["details"].get("missing_facts", []) == missing
    wrong = len(issues) + len(missing)
    assert payload["message"] == f"{wrong} fact validation error{'s' if wrong > 1 else ''}"


@pytest.mark.req("ERR-36")
def test_a_violation_may_say_what_was_expected() -> None:
    more = {
        "expected_arity": 4,
        "actual_arity": 3,
        "expected_type": "number",
        "actual_type": "string",
        "argument_index": 2,
        "suggestion": "Did you mean 'q'?",
        "path": "$.payload.facts[0].args[2]",
    }
    payload = message(refused_facts([violation(0, "type_mismatch", **more)]))["payload"]
    assert payload["details"]["violations"][0].items() >= more.items()


@pytest.mark.req("ERR-38")
def test_the_worked_case_of_the_specification() -> None:
    expected = json.loads((EXAMPLES / "seed004-8.ErrorMessage.json").read_text("utf-8"))
    arity, reserved = expected["payload"]["details"]["violations"]
    assert message(refused_facts([Violation(**arity), Violation(**reserved)]), "req-bad") == expected


@pytest.mark.req("ERR-37")
def test_a_suggestion_names_what_was_probably_meant() -> None:
    known = ["console_event", "current_url", "user_intent"]
    assert did_you_mean("console_evnt", known) == "Did you mean 'console_event'?"
    assert did_you_mean("zzz", known) is None
    assert did_you_mean("console_evnt", []) is None


def test_nothing_is_compared_with_an_endless_word() -> None:
    long = "a" * 1_000_000
    assert did_you_mean(long, [long[:-1]]) is None


@pytest.mark.req("ERR-17")
def test_too_many_facts() -> None:
    payload = message(too_many_facts(10_001, 10_000))["payload"]
    assert payload["code"] == "too_many_facts"
    assert payload["details"] == {"limit": 10_000, "actual": 10_001}
    assert payload["message"] == "The request has 10,001 facts, and the limit is 10,000"


# --- the others ------------------------------------------------------------------------------------------------------


@pytest.mark.req("ERR-39")
def test_arguments_that_do_not_fit() -> None:
    errors = [
        SchemaError(path="/phase_id", message="Required property 'phase_id' is missing", keyword="required"),
        SchemaError(path="/dry_run", message="Expected boolean, got string", keyword="type"),
    ]
    payload = message(refused_arguments(errors))["payload"]
    assert payload["code"] == "schema_validation_failed"
    assert payload["details"] == json.loads((EXAMPLES / "seed004-4.2.ErrorDetails.json").read_text("utf-8"))


@pytest.mark.req("ERR-40")
@pytest.mark.parametrize("code", ["derivation_limit_exceeded", "interval_limit_exceeded", "evaluation_timeout"])
def test_a_budget(code: str) -> None:
    expected = json.loads((EXAMPLES / "seed004-4.3.ErrorDetails.json").read_text("utf-8"))
    payload = message(budget_exceeded(code, 100_000, 100_000, "derived_facts", expected["suggestion"]))["payload"]
    assert (payload["code"], payload["recoverable"]) == (code, True)
    assert payload["details"] == expected
    assert payload["message"].endswith("100,000 of 100,000 derived facts")


@pytest.mark.req("ERR-41", "WIRE-11")
def test_a_version() -> None:
    expected = json.loads((EXAMPLES / "companion-2.3.ErrorMessage.json").read_text("utf-8"))
    assert message(unsupported_version("2025-11-draft"), "c-17") == expected


def test_size() -> None:
    assert message(too_large(17, 16))["payload"]["message"] == "The message has 17 bytes, and the limit is 16"


@pytest.mark.parametrize(
    "error",
    [
        refused_facts([violation(0, "type_mismatch")], ["needed"]),
        refused_arguments([]),
        budget_exceeded("evaluation_timeout", 1, 2, "ms", "s"),
        unsupported_version("1"),
        too_large(2, 1),
        too_many_facts(2, 1),
    ],
    ids=lambda error: error.code,
)
def test_details_are_those_of_the_registry(error: WireError) -> None:
    assert set(error.details or ()) <= set(error.row.details)
    assert error.details


def test_the_reference_page_has_the_registry() -> None:
    page = Path(__file__).parents[2].joinpath("docs", "reference", "messages.md").read_text("utf-8")
    rows = re.findall(r"^\| `([a-z_-]+)` \| ([0-9]{3}) \| (yes|no) \| (.*?) \| (.*?) ?\|$", page, re.MULTILINE)
    assert {code: (int(status), flag == "yes", text) for code, status, flag, text, _ in rows} == {
        code: row[:3] for code, row in CODES.items()
    }
    assert {code: tuple(re.findall("`(.*?)`", details)) for code, *_, details in rows} == {
        code: row.details for code, row in CODES.items()
    }


def test_the_reference_page_shows_what_happens(capsys: pytest.CaptureFixture[str]) -> None:
    page = Path(__file__).parents[2].joinpath("docs", "reference", "messages.md").read_text("utf-8")
    (code,) = re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    known: dict[str, Any] = {}
    exec(code, known)  # our own page
    assert capsys.readouterr().out.strip() == code.strip().splitlines()[-1].partition("# ")[2]
    shown = next(
        body for body in re.findall(r"^```json\n(.*?)^```$", page, re.DOTALL | re.MULTILINE) if "error" in body
    )
    assert json.loads(known["answer"]) == json.loads(shown)
