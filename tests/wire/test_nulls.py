"""Null counts as absent wherever a member may be left out, in both directions and inside facts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from manglecp.mangle import Program, Source
from manglecp.wire.errors import WireError
from manglecp.wire.message_reader import receive, receive_from_server
from manglecp.wire.messages import SERVER_TYPES, Manifest
from manglecp.wire.profile import Profile

NOW: Final = 1_772_442_840 * 10**9
T: Final = "2026-03-02T09:14:00Z"
LIMIT: Final = 1 << 20
PROFILE: Final = Profile.of(
    Program.load(
        [Source("s.mg", 'Decl build(Service, Number) temporal descr [direction("input")] bound [/string, /number].')]
    ).predicates
)
FACT: Final = {"pred": "build", "args": ["api", 7]}
TIMED: Final = {**FACT, "t": {"at": T}}
EXAMPLES: Final = {
    document["type"]: document
    for path in sorted(Path(__file__).with_name("examples").glob("*.json"))
    if (document := json.loads(path.read_text("utf-8"))).get("type") is not None
}


def from_server(document: dict[str, Any]) -> Any:
    return receive_from_server(json.dumps(document).encode(), LIMIT)


# --- facts -----------------------------------------------------------------------------------------------------------


@pytest.mark.req("DATA-06", "DATA-24")
@pytest.mark.parametrize(
    ("fact", "same"),
    [
        ({**FACT, "named_args": None}, FACT),
        ({"pred": "build", "args": None, "named_args": {"service": "api", "number": 7}}, FACT),
        ({**FACT, "t": None, "source": None, "category": None}, FACT),
        ({**FACT, "t": {"at": T, "start": None, "end": None}}, TIMED),
        ({**FACT, "t": {"start": T, "end": T, "at": None}}, TIMED),
        ({**FACT, "t": {"at": T, "x-precision": "ms", "zone": None}}, TIMED),
        ({**TIMED, "source": {"source_type": "scan", "source_id": None, "asserted_at": None}}, TIMED),
    ],
)
@pytest.mark.parametrize("others", [0, 20])
def test_null_and_unknown_members_of_a_fact_say_nothing(fact: Any, same: Any, others: int) -> None:
    assert PROFILE.read([fact, *[same] * others], NOW) == PROFILE.read([same], NOW)


@pytest.mark.parametrize(
    ("fact", "path"),
    [
        ({"pred": "build", "args": [None, 7]}, "$.args[0]"),
        ({"pred": "build", "named_args": {"service": "api", "number": None}}, "$.named_args.number"),
        ({"pred": "build", "named_args": {"service": "api", "number": "7"}}, "$.named_args.number"),
        ({"pred": "build", "args": ["api", {"_type": "int64", "value": 7}]}, "$.args[1].value"),
        ({"pred": "build", "named_args": {"service": "api", "number": {"_type": "int64", "value": 7}}}, None),
        ({**FACT, "t": {"start": T, "end": None}}, "$.t.end"),
        ({**FACT, "source": {"source_type": None}}, "$.source.source_type"),
        ({"pred": None, "args": []}, "$.pred"),
    ],
)
def test_null_where_something_has_to_be_is_wrong_there(fact: Any, path: str | None) -> None:
    with pytest.raises(WireError) as error:
        PROFILE.read([fact], NOW)
    assert error.value.details is not None
    (violation,) = error.value.details["violations"]
    assert violation["path"] == (path or "$.named_args.number.value")


# --- messages --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("type_", "steps", "members"),
    [
        ("error", (), ["details", "retry_after_ms"]),
        ("progress", (), ["detail", "percent"]),
        ("invoke_response", (), ["state_delta", "observability", "next"]),
        ("intent_response", (), ["proof_hints", "required_skills", "diagnostics", "eval_duration_ms"]),
        ("intent_response", ("macro_tools", 0), ["output_schema", "context_injection", "validity", "metadata"]),
        ("authenticate_response", (), ["trust_level", "auto_confirm_effects"]),
        ("x-approval_response", ("approvals", 0), ["text", "approver", "run"]),
        ("x-skill_response", ("skills", 0), ["content_type", "resources"]),
        ("manifest", (), ["endpoints", "extensions"]),
        ("manifest", ("domain",), ["categories", "affinities"]),
        ("manifest", ("intents", 0), ["required_facts", "optional_facts"]),
        ("manifest", ("facts_profile",), ["predicates", "schema_uri"]),
        ("manifest", ("facts_profile", "predicates", 0), ["arg_types", "temporal", "description", "direction"]),
        ("manifest", ("capabilities",), ["aggregation", "named_args", "external_predicates", "subscriptions"]),
        ("manifest", ("limits",), ["max_intervals_per_atom", "max_compute_ms"]),
        ("manifest", ("auth",), ["token_url"]),
    ],
)
def test_null_from_a_server_is_read_like_nothing(type_: str, steps: tuple[str | int, ...], members: list[str]) -> None:
    for member in members:
        absent, null = (json.loads(json.dumps(EXAMPLES[type_])) for _ in range(2))
        for document in (absent, null):
            part: Any = document["payload"]
            for step in steps:
                part = part[step]
            part.pop(member, None)
            if document is null:
                part[member] = None
        said, silent = from_server(null), from_server(absent)
        if member != "token_url":  # null says that there is none
            assert said == silent, member


def test_a_manifest_with_nulls_is_taken_for_little() -> None:
    document = json.loads(json.dumps(EXAMPLES["manifest"]))
    document["payload"]["protocol"]["conformance_level"] = None
    document["payload"]["capabilities"]["named_args"] = None
    message = from_server(document)
    assert isinstance(message, Manifest)
    assert message.payload.protocol.conformance_level == 1
    assert message.payload.capabilities.named_args is False


@pytest.mark.parametrize(
    ("type_", "changes", "path"),
    [
        ("error", {"code": None, "details": None}, "$.payload.code"),
        ("progress", {"status": None}, "$.payload.status"),
        ("intent_response", {"macro_tools": None}, "$.payload.macro_tools"),
        ("intent_response", {"macro_tools": [None]}, "$.payload.macro_tools[0]"),
        ("manifest", {"limits": {"max_message_bytes": None}}, "$.payload.limits.max_message_bytes"),
    ],
)
def test_null_in_place_of_what_a_server_has_to_say(type_: str, changes: dict[str, Any], path: str) -> None:
    document = json.loads(json.dumps(EXAMPLES[type_]))
    document["payload"].update(changes)
    with pytest.raises(WireError) as error:
        from_server(document)
    assert error.value.details is not None
    assert error.value.details["path"] == path


def test_every_type_of_a_server_has_an_example() -> None:
    assert EXAMPLES.keys() >= SERVER_TYPES.keys()


@pytest.mark.parametrize("structured_facts", [False, True])
def test_null_in_a_request_is_read_like_nothing(structured_facts: bool) -> None:
    document = json.loads(json.dumps(EXAMPLES["intent_request"]))
    document["payload"] = {"intent": {"name": "a"}, "options": {"x-why_not": ["t"]}}
    plain = receive(json.dumps(document).encode(), LIMIT)
    document["payload"]["options"].update({"include_proof_hints": None, "x-rule_coverage": None, "unknown": None})
    document["payload"].update(facts=None, constraints=None, eval_time=None)
    assert receive(json.dumps(document).encode(), LIMIT, structured_facts=structured_facts) == plain
