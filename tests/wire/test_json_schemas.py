"""The schemas that `manglecp schema` prints, against the examples of the specification and what we write ourselves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import msgspec
import pytest
from hypothesis import given

from manglecp.pack import Problems
from manglecp.pack.settings import read_settings
from manglecp.wire.facts import PROVENANCE_CATEGORIES, SOURCE_TYPES
from manglecp.wire.json_schemas import DIALECT, TYPES, all_schemas, schema
from manglecp.wire.message_reader import receive, receive_from_server
from manglecp.wire.messages import CLIENT_TYPES, LEVEL_MEMBERS, MacroTool, Message, encode
from tests.cli.conftest import Run, folder, run
from tests.wire.message_strategies import messages

__all__ = ["folder", "run"]

EXAMPLES = sorted(Path(__file__).with_name("examples").glob("*.json"))
NAMES = {type_: message.__name__ for type_, message in TYPES.items()}


def validator(part: str) -> jsonschema_rs.Draft202012Validator:
    return jsonschema_rs.Draft202012Validator({"$ref": f"#/$defs/{part}", "$defs": all_schemas()["$defs"]})


def example(name: str) -> Any:
    return json.loads(next(path for path in EXAMPLES if path.name.startswith(name)).read_text("utf-8"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_examples_of_the_specification_fit(path: Path) -> None:
    document = json.loads(path.read_text("utf-8"))
    part = path.name.split(".")[-2]
    errors = [error.message for error in validator(part).iter_errors(document)]
    assert errors == []
    if part in NAMES.values():
        assert jsonschema_rs.Draft202012Validator(schema(document["type"])).is_valid(document)
        assert jsonschema_rs.Draft202012Validator(all_schemas()).is_valid(document)


def test_there_is_an_example_of_every_type() -> None:
    assert {path.name.split(".")[-2] for path in EXAMPLES} >= set(NAMES.values())


@pytest.mark.parametrize("path", [p for p in EXAMPLES if p.name.split(".")[-2] in NAMES.values()], ids=lambda p: p.name)
def test_examples_are_read_and_written_again_with_all_they_say(path: Path) -> None:
    data = path.read_bytes()
    document = json.loads(data)
    read = receive if document["type"] in CLIENT_TYPES else receive_from_server
    written = json.loads(encode(read(data, 1 << 24)))
    assert _without(document, written) == []


def _without(said: Any, written: Any, path: str = "$") -> list[str]:
    """What was said and is not written. Defaults may be added."""
    if isinstance(said, dict) and isinstance(written, dict):
        return [w for key in said for w in _without(said[key], written.get(key, "absent"), f"{path}.{key}")]
    if isinstance(said, list) and isinstance(written, list) and len(said) == len(written):
        return [w for i, (s, v) in enumerate(zip(said, written, strict=True)) for w in _without(s, v, f"{path}[{i}]")]
    return [] if said == written else [path]


@pytest.mark.parametrize("type_", TYPES)
def test_every_schema_is_one_and_names_its_draft(type_: str) -> None:
    document = schema(type_)
    jsonschema_rs.meta.validate(document)
    assert document["$schema"] == DIALECT == "https://json-schema.org/draft/2020-12/schema"
    assert document["$id"] == f"urn:manglecp:2026-02-draft:{type_}"
    assert document["properties"]["type"] == {"enum": [type_]}
    assert document["required"] == ["type", "id", "manglecp", "payload"]


def test_the_schema_of_all_is_one() -> None:
    jsonschema_rs.meta.validate(all_schemas())
    assert len(all_schemas()["oneOf"]) == 18
    assert "discriminator" not in json.dumps(all_schemas())  # a word of another standard


@pytest.mark.req("WIRE-09")
@pytest.mark.parametrize("type_", TYPES)
def test_only_this_version_fits(type_: str) -> None:
    document = next(d for path in EXAMPLES if (d := json.loads(path.read_text("utf-8"))).get("type") == type_)
    assert jsonschema_rs.Draft202012Validator(schema(type_)).is_valid(document)
    document["manglecp"] = "2026-03-draft"
    assert not jsonschema_rs.Draft202012Validator(schema(type_)).is_valid(document)


@given(messages)
def test_whatever_is_written_fits(message: Message) -> None:
    document = json.loads(encode(message))
    errors = [error.message for error in validator(type(message).__name__).iter_errors(document)]
    assert errors == []


@pytest.mark.parametrize("type_", TYPES)
@pytest.mark.parametrize("member", ["type", "id", "manglecp", "payload"])
@pytest.mark.req("WIRE-01")
def test_no_message_fits_without_one_of_the_four_members(type_: str, member: str) -> None:
    document = next(d for path in EXAMPLES if (d := json.loads(path.read_text("utf-8"))).get("type") == type_)
    del document[member]
    assert not jsonschema_rs.Draft202012Validator(all_schemas()).is_valid(document)


@pytest.mark.parametrize(
    ("part", "wrong"),
    [
        ("IntentPayload", {}),
        ("IntentPayload", {"intent": {}}),
        ("IntentPayload", {"intent": {"name": "a"}, "facts": {}}),
        ("IntentPayload", {"intent": {"name": "a"}, "facts": [{"args": []}]}),
        ("IntentPayload", {"intent": {"name": "a"}, "facts": [{"pred": "p", "args": [], "named_args": {}}]}),
        ("IntentPayload", {"intent": {"name": "a"}, "constraints": {"max_compute_ms": -1}}),
        ("Options", {"disclosure_preference": "all"}),
        ("CancelPayload", {"request_id": ""}),
        ("InvokePayload", {"macro_id": "m-1"}),
        ("ErrorPayload", {"code": "unsupported_version", "message": "no", "recoverable": True}),
        ("ErrorPayload", {"code": "invalid_facts", "message": "no", "recoverable": "yes"}),
        ("ErrorDetails", {"violations": [{"fact_index": 0}]}),
        ("MacroTool", {"macro_id": "m", "name": "n", "disclosure_level": "some"}),
        ("ManifestPayload", {}),
        ("Protocol", {"conformance_level": 4}),
        ("Domain", {"id": "d", "description": "d", "affinities": {"a": 101}}),
        ("FactsProfile", {"time_formats": ["epoch_ms"]}),
        ("FactsProfile", {"time_formats": ["rfc3339", "iso"]}),
        ("ProgressPayload", {"status": "running", "percent": 101}),
        ("ContextResource", {"uri": "u", "priority": -1}),
        ("Safety", {"requires_user_confirmation": False, "side_effects": ["own"]}),
        ("StructuredClause", {"head": {"predicate": "p", "args": [{"type": "name"}]}}),
    ],
)
def test_what_is_wrong_does_not_fit(part: str, wrong: dict[str, Any]) -> None:
    assert not validator(part).is_valid(wrong)


@pytest.mark.parametrize(
    "payload",
    [
        {"intent": {"name": "a"}},
        {"intent": {"name": "a", "params": None}, "facts": None, "constraints": None, "options": None},
        {"intent": {"name": "a"}, "options": {"include_proof_hints": None, "x-why_not": ["t"]}},
        {"intent": {"name": "a", "unknown": 1}, "unknown": 1},
    ],
)
def test_null_and_unknown_members_fit_as_they_are_read(payload: dict[str, Any]) -> None:
    assert validator("IntentPayload").is_valid(payload)


@pytest.mark.req("WIRE-23")
@pytest.mark.parametrize(("limit", "fits"), [(16777216, True), (1 << 30, True), (16777215, False), (0, False)])
def test_a_manifest_publishes_no_less_than_every_server_accepts(limit: int, fits: bool) -> None:
    limits = {"max_message_bytes": limit, "max_facts_per_request": 1, "max_derived_facts": 1}
    assert validator("ServerLimits").is_valid(limits) == fits


@pytest.mark.req("WIRE-23")
@pytest.mark.parametrize(("limit", "accepted"), [(16777216, True), (16777215, False)])
def test_a_pack_cannot_be_told_to_accept_less(limit: int, accepted: bool) -> None:
    problems = Problems()
    settings = read_settings(f"[limits]\nmax_message_bytes = {limit}\n", "p", problems)
    assert settings.limits.max_message_bytes >= 16777216
    assert problems.any_error != accepted


_FULL = {
    "macro_id": "m-1",
    "name": "n",
    "description": "d",
    "disclosure_level": "full",
    "input_schema": {},
    "output_schema": {},
    "context_injection": {},
    "safety": {"requires_user_confirmation": False, "side_effects": ["none"]},
    "validity": {},
    "metadata": {},
}


def test_the_presence_table_speaks_of_members_that_exist() -> None:
    known = {field.encode_name for field in msgspec.structs.fields(MacroTool)}
    assert all(needed | banned <= known for needed, banned in LEVEL_MEMBERS.values())


@pytest.mark.parametrize("member", sorted(_FULL.keys() - {"macro_id", "name", "disclosure_level"}))
@pytest.mark.parametrize(
    ("level", "needed", "allowed"),
    [
        ("full", {"description", "input_schema", "safety"}, set(_FULL)),
        ("condensed", set(), {"description", "metadata"}),
        ("minimal", set(), set()),
    ],
)
def test_a_tool_has_what_its_level_says(level: str, needed: set[str], allowed: set[str], member: str) -> None:
    always = {"macro_id", "name"}
    least = {k: v for k, v in _FULL.items() if k in always | needed} | {"disclosure_level": level}
    tools = validator("MacroTool")
    assert tools.is_valid(least)
    without = {k: v for k, v in least.items() if k != member}
    assert tools.is_valid(without) == (member not in needed)
    assert tools.is_valid({**least, member: _FULL[member]}) == (member in allowed)


# --- manglecp schema -------------------------------------------------------------------------------------------------


def test_the_shell_lists_types_and_senders(run: Run) -> None:
    lines = run("schema").stdout.splitlines()
    assert len(lines) == 18
    assert lines[0].split() == ["intent_request", "client"]
    assert [line.split()[0] for line in lines if line.endswith("client")] == list(CLIENT_TYPES)


@pytest.mark.parametrize("type_", TYPES)
def test_the_shell_prints_one_schema(run: Run, type_: str) -> None:
    result = run("schema", type_)
    assert json.loads(result.stdout) == schema(type_)
    assert run("schema", type_).stdout == result.stdout


def test_the_shell_prints_all(run: Run) -> None:
    assert json.loads(run("schema", "--all").stdout) == all_schemas()


def test_the_shell_refuses_what_is_no_type(run: Run) -> None:
    result = run("schema", "intent_reqest")
    assert result.exit_code == 2
    assert "Did you mean 'intent_request'?" in result.stderr
    assert run("schema", "intent_request", "--all").exit_code == 2


def test_the_words_of_facts_are_those_that_are_checked() -> None:
    members = all_schemas()["$defs"]["Fact"]["properties"]
    assert members["category"]["enum"] == [*PROVENANCE_CATEGORIES, None]
    assert members["source"]["properties"]["source_type"]["anyOf"][0]["enum"] == list(SOURCE_TYPES)
