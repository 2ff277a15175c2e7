"""The examples of the specification, field by field, from packs that were written for them.

Left out are what no two servers share: ``macro_id``, ``eval_duration_ms`` and the counts in ``diagnostics``.
"""

from __future__ import annotations

import json
from operator import itemgetter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from manglecp.intent.domain import Domain
from manglecp.intent.identity import ANONYMOUS
from manglecp.intent.manifest_builder import manifest
from manglecp.intent.responder import answer_bytes
from manglecp.pack import read_pack
from manglecp.wire import encode, read_eval_time, refused_arguments, schema_errors
from manglecp.wire.messages import Auth, Endpoints
from tests.client.test_printed_examples import PRINTED

PACKS = Path(__file__).parent / "seed_packs"


def expected(name: str) -> Any:
    return json.loads((PACKS / "expected" / f"{name}.json").read_text("utf-8"))


def answer(pack: str, request: Any) -> Any:
    """Answer at the time of the request."""
    domain = Domain.load(read_pack(PACKS / pack))

    def clock() -> int:
        return read_eval_time(request["payload"].get("eval_time", 0), lambda: 0)

    return json.loads(answer_bytes(domain, msgspec.json.encode(request), ANONYMOUS, clock))


@pytest.mark.req("ERR-01", "ERR-35", "ERR-38")
def test_the_error_of_seed_004() -> None:
    assert answer("observe", expected("observe-request")) == expected("observe-error")


@pytest.mark.req("EVAL-25", "EVAL-26", "EVAL-27", "EVAL-29", "EVAL-34", "TOOL-05", "TOOL-06", "TOOL-19")
def test_the_intent_of_the_companion() -> None:
    given = answer("release_desk", expected("release_desk-request"))
    wanted = expected("release_desk-response")
    for message in given, wanted:
        assert isinstance(message["payload"].pop("eval_duration_ms"), int)
        counts = message["payload"].pop("diagnostics")
        assert counts["phases_completed"] == 6
        assert all(counts[name] > 0 for name in ("facts_evaluated", "facts_derived", "rules_fired"))
        for tool in message["payload"]["macro_tools"]:
            tool.get("input_schema", {}).pop("additionalProperties", None)  # the draft prints none
        ids = [tool.pop("macro_id") for tool in message["payload"]["macro_tools"]]
        assert len(set(ids)) == 2
        assert all(name.startswith("m-") for name in ids)
    assert given == wanted


@pytest.mark.req("EVAL-31", "TOOL-19")
def test_ten_minutes_after_the_failure_the_tools_of_the_companion_are_gone() -> None:
    request = expected("release_desk-request")
    request["payload"]["eval_time"] = "2026-03-02T09:25:00Z"
    assert answer("release_desk", request)["payload"]["macro_tools"] == []


@pytest.mark.req("TOOL-05", "TOOL-10", "TOOL-12", "TOOL-20", "SKILL-05", "SKILL-09", "SKILL-10", "SKILL-13")
def test_the_tool_of_seed_003() -> None:
    request = {
        "type": "intent_request",
        "id": "r-1",
        "manglecp": "2026-02-draft",
        "payload": {
            "intent": {"name": "implement"},
            "facts": [{"pred": "phase_step", "args": [2, "backend"]}],
            "eval_time": "2026-02-19T14:30:05Z",
            "options": {"include_proof_hints": True},
        },
    }
    (given,) = answer("feature", request)["payload"]["macro_tools"]
    wanted = expected("feature-tool")
    assert given["input_schema"].pop("additionalProperties") is False  # the draft prints none
    for tool in given, wanted:
        assert tool.pop("macro_id")
    assert given == wanted


if PRINTED:

    def test_the_printed_invalid_facts_get_the_printed_error() -> None:
        assert answer("browser", PRINTED["S09 Request with invalid facts"]) == PRINTED["S09 Error Response"]

    def test_the_printed_intent_request_gets_the_members_of_the_printed_response() -> None:
        given = answer("browser", PRINTED["S05 Request"])
        wanted = json.loads(json.dumps(PRINTED["S05 Response"]))
        assert {name: given[name] for name in wanted if name != "payload"} == {
            name: wanted[name] for name in wanted if name != "payload"
        }
        given, wanted = given["payload"], wanted["payload"]
        assert wanted.keys() <= given.keys()
        assert given["eval_time_used"] == wanted["eval_time_used"]
        assert given["required_skills"] == wanted["required_skills"]
        assert wanted["diagnostics"].keys() <= given["diagnostics"].keys()
        [tool], [printed] = given["macro_tools"], wanted["macro_tools"]
        [derivation], [printed_derivation] = given["proof_hints"]["derivations"], wanted["proof_hints"]["derivations"]
        assert derivation["macro_id"] == tool["macro_id"]
        assert (derivation["selected_by"], derivation["score"]) == ("skeleton", printed_derivation["score"])
        assert set(printed_derivation["rule_chain"]) <= set(derivation["rule_chain"])
        supporting = [(fact["pred"], fact["args"]) for fact in derivation["supporting_facts"]]
        assert all((fact["pred"], fact["args"]) in supporting for fact in printed_derivation["supporting_facts"])
        tool["input_schema"].pop("additionalProperties")
        tool["context_injection"].setdefault("skills", [])  # an absent list is an empty one
        assert tool["safety"].pop("side_effects") == ["none"]  # an empty list means the same
        printed["safety"].pop("side_effects")
        for name in printed.keys() - {"macro_id"}:
            assert tool[name] == printed[name], name

    def test_the_printed_manifest_is_that_of_its_pack() -> None:
        domain = Domain.load(read_pack(PACKS / "browser"))
        endpoints = Endpoints(intent_eval="/manglecp/evaluate", macro_invoke="/manglecp/invoke")
        auth = Auth(required=True, schemes=("bearer",))
        given = json.loads(encode(manifest(domain, endpoints=endpoints, auth=auth)))["payload"]
        wanted = json.loads(json.dumps(PRINTED["S04 7"]["payload"]))
        listed = {entry["predicate"]: entry for entry in given.pop("facts_profile")["predicates"]}
        for entry in wanted.pop("facts_profile")["predicates"]:
            assert entry.items() <= listed[entry["predicate"]].items()
        intents = {entry["name"]: entry for entry in given.pop("intents")}
        assert all(intents[entry["name"]] == entry for entry in wanted.pop("intents"))
        assert wanted["auth"].pop("token_url") is None  # an absent address is a null one
        assert wanted.pop("extensions") == {}
        assert wanted["limits"].pop("max_compute_ms") >= given["limits"].pop("max_compute_ms")
        for name, part in wanted.items():
            sent = {member: given[name][member] for member in part} if isinstance(part, dict) else given[name]
            assert sent == part, name

    def test_the_printed_facts_by_name_and_by_position_are_one() -> None:
        profile = Domain.load(read_pack(PACKS / "browser")).profile
        assert len(profile.read([PRINTED["S03 2.4"], PRINTED["S03 2.4 #2"]], now=0)) == 1  # without duplicates

    def test_the_printed_details_of_a_version_and_of_arguments_are_those_that_are_sent() -> None:
        request = {**PRINTED["S05 Request"], "manglecp": PRINTED["S09 4.4"]["requested_version"]}
        assert answer("browser", request)["payload"]["details"] == PRINTED["S09 4.4"]
        schema = {
            "type": "object",
            "properties": {"phase_id": {"type": "string"}, "dry_run": {"type": "boolean"}},
            "required": ["phase_id"],
        }
        details = refused_arguments(schema_errors({"dry_run": "yes"}, schema)).details
        assert details is not None
        assert details.keys() == PRINTED["S09 4.2"].keys()
        by_path = sorted(PRINTED["S09 4.2"]["schema_errors"], key=itemgetter("path"))  # the draft prints another order
        assert details["schema_errors"] == by_path

    def test_the_details_of_a_budget_have_the_printed_members() -> None:
        request = json.loads(json.dumps(PRINTED["S05 Request"]))
        request["payload"]["constraints"] = {"max_facts_created": 1}
        details, wanted = answer("browser", request)["payload"]["details"], PRINTED["S09 4.3"]
        assert details.keys() == wanted.keys()
        assert details["budget"].keys() == wanted["budget"].keys()
        assert details["budget"]["unit"] == wanted["budget"]["unit"]
        assert details["partial_results_available"] is wanted["partial_results_available"]
