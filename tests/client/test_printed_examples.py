"""The JSON that the draft of the specification prints is read verbatim: requests by servers, answers by clients.

The draft is not part of the repository. Its examples are read from ``../shared/spec/examples``, beside the project's
root; where that folder does not exist, there is nothing to read and no test of them.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from manglecp.client.working_state import WorkingState
from manglecp.wire import receive, receive_from_server
from manglecp.wire.messages import CLIENT_TYPES, SERVER_TYPES, UNSET, AuthenticateResponse, IntentResponse

FOLDER: Final = Path(__file__).parents[3] / "shared" / "spec" / "examples"


def values_of(text: str) -> Iterator[Any]:
    """Yield the JSON values of a block that prints several, with comments between them; none of a block with gaps."""
    rest = re.sub(r"^//.*$", "", text, flags=re.MULTILINE).strip()
    while rest:
        try:
            value, end = json.JSONDecoder().raw_decode(rest)
        except ValueError:
            return
        yield value
        rest = rest[end:].strip()


def printed_examples() -> Iterator[tuple[str, Any]]:
    """Yield the printed examples but forms to fill in; of several under one heading, the second is ``… #2``."""
    counts: Counter[str] = Counter()
    for path in sorted(FOLDER.glob("*.json")):
        for entry in json.loads(path.read_text("utf-8")):
            for value in [entry["json"]] if "json" in entry else values_of(entry["text"]):
                if any(form in json.dumps(value) for form in ("<string", "<request id>")):
                    continue
                name = f"{path.stem} {entry['section']}"
                counts[name] += 1
                yield (name if counts[name] == 1 else f"{name} #{counts[name]}"), value


PRINTED: Final = dict(printed_examples())
LIMIT: Final = 1 << 24
TOOL: Final = {
    "macro_id": "m-1",
    "name": "look",
    "description": "Look.",
    "disclosure_level": "full",
    "input_schema": {"type": "object"},
    "safety": {"requires_user_confirmation": False, "side_effects": []},
}


def from_server(type_: str, payload: dict[str, Any]) -> Any:
    id_ = None if type_ == "manifest" else "r-1"
    document = {"type": type_, "id": id_, "manglecp": "2026-02-draft", "payload": payload}
    return receive_from_server(json.dumps(document).encode(), LIMIT)


def as_json(part: Any) -> Any:
    return json.loads(msgspec.json.encode(part))


def read(**changes: Any) -> Any:
    """The payload of an answer with these members."""
    message = from_server("intent_response", {"eval_time_used": "2026-02-19T14:30:05Z", "macro_tools": []} | changes)
    assert isinstance(message, IntentResponse)
    return message.payload


if PRINTED:

    @pytest.mark.parametrize("name", [name for name, printed in PRINTED.items() if "type" in printed])
    def test_a_printed_message_is_read_verbatim(name: str) -> None:
        data, type_ = json.dumps(PRINTED[name]).encode(), PRINTED[name]["type"]
        message = receive(data, LIMIT) if type_ in CLIENT_TYPES else receive_from_server(data, LIMIT)
        assert isinstance(message, {**CLIENT_TYPES, **SERVER_TYPES}[type_])

    def test_the_printed_parts_of_answers_are_read_verbatim() -> None:
        assert len(read(proof_hints=PRINTED["S05 4.3"]).proof_hints.derivations) == 1
        assert len(read(**PRINTED["S09 6.2"]).diagnostics.rule_coverage.dormant_details) == 2
        assert read(macro_tools=[PRINTED["S06 6"]]).macro_tools[0].name == "implement_api_endpoints"
        assert isinstance(from_server("authenticate_response", PRINTED["S08 4.3"]), AuthenticateResponse)
        manifest = json.loads(json.dumps(PRINTED["S04 7"]["payload"])) | PRINTED["S10 3.1"]
        externals = [PRINTED[f"S04 External Predicate Declaration{nth}"] for nth in ("", " #2")]
        manifest["capabilities"]["external_predicates"] = externals
        message = from_server("manifest", manifest)
        assert message.payload.protocol.conformance_level == 2
        assert [external.predicate for external in message.payload.capabilities.external_predicates] == [
            external["predicate"] for external in externals
        ]

    def test_the_printed_parts_of_a_tool_are_kept() -> None:
        resource = PRINTED["S06 Context Resource Object"]
        injection = {"instructions": "Look.", "skills": [], "context_resources": [resource]}
        (tool,) = read(macro_tools=[{**TOOL, "context_injection": injection}]).macro_tools
        assert as_json(tool.context_injection)["context_resources"] == [resource]

    def test_the_printed_parts_of_a_result_are_kept() -> None:
        parts = {"state_delta": PRINTED["S07 4.2"], "observability": PRINTED["S07 5.1"], "next": PRINTED["S07 6.3"]}
        kept = as_json(from_server("invoke_response", {"result": {}, **parts}).payload)
        for name, part in parts.items():
            assert {member: kept[name][member] for member in part} == part, name

    @pytest.mark.parametrize("name", [f"S09 4.{number}" for number in (1, 2, 3, 4)] if PRINTED else [])
    def test_the_printed_details_of_errors_are_kept(name: str) -> None:
        payload = {"code": "invalid_facts", "message": "m", "details": PRINTED[name], "recoverable": True}
        assert from_server("error", payload).payload.details == PRINTED[name]

    def test_the_printed_retractions_remove_what_they_say() -> None:
        rows = [("spec-001", 2, "in_progress"), ("spec-001", 2, "done"), ("spec-001", 3, "done"), ("other", 2, "done")]
        facts = [{"pred": "phase_status", "args": list(row)} for row in rows]
        left = []
        for nth in ("", " #2", " #3"):
            state = WorkingState(facts)
            state.apply({"retract": [PRINTED[f"S07 4.4{nth}"]]})
            left.append(len(state.facts))
        assert left == [3, 2, 1]


@pytest.mark.req("EVAL-29", "COV-02")
@pytest.mark.parametrize(
    "diagnostics",
    [
        *({"facts_evaluated": 3}, {"rules_fired": -1}, "none"),
        *({"rule_coverage": {"total_rules": 2}}, {"rule_coverage": 5}),
        {"rule_coverage": {"dormant_details": [{"missing_predicates": []}]}},
    ],
)
def test_an_answer_does_not_depend_on_diagnostics(diagnostics: Any) -> None:
    assert [tool.name for tool in read(macro_tools=[TOOL], diagnostics=diagnostics).macro_tools] == ["look"]


@pytest.mark.req("EVAL-29")
def test_readable_parts_of_diagnostics_are_kept() -> None:
    diagnostics = read(diagnostics={"facts_evaluated": 3, "rules_fired": "many"}).diagnostics
    assert (diagnostics.facts_evaluated, diagnostics.rules_fired) == (3, UNSET)


def test_what_is_not_informational_is_still_refused() -> None:
    with pytest.raises(Exception, match="side_effects"):
        read(macro_tools=[{**TOOL, "safety": {"requires_user_confirmation": False}}], diagnostics="none")


def test_unknown_words_are_kept_as_they_are() -> None:
    tree = {"fact": "f(1)", "type": "edb", "children": []}
    derivation = {"macro_id": "m", "selected_by": "luck", "score": 1, "supporting_facts": [], "rule_chain": []}
    dormant = [{"rule": "r", "missing_predicates": [], "status": "asleep"}]
    answer = read(
        proof_hints={"derivations": [{**derivation, "tree": tree}]},
        diagnostics={"rule_coverage": {"dormant_details": dormant}},
    )
    assert answer.proof_hints.derivations[0].selected_by == "luck"
    assert answer.proof_hints.derivations[0].tree.type == "edb"
    assert answer.diagnostics.rule_coverage.dormant_details[0].status == "asleep"


@pytest.mark.req("EVAL-25", "TOOL-18")
def test_times_in_milliseconds_are_read_as_text() -> None:
    validity = {"not_before": 1771511405000, "expires_at": 1771511705000}
    answer = read(eval_time_used=1771511405000, macro_tools=[{**TOOL, "validity": validity}])
    assert answer.eval_time_used == "2026-02-19T14:30:05Z"
    assert answer.macro_tools[0].validity.expires_at == "2026-02-19T14:35:05Z"


def test_times_of_all_years_are_read() -> None:
    validity = {"not_before": -62_135_596_800_000, "expires_at": 253_402_300_799_999}
    (tool,) = read(macro_tools=[{**TOOL, "validity": validity}]).macro_tools
    assert as_json(tool.validity) == {"not_before": "0001-01-01T00:00:00Z", "expires_at": "9999-12-31T23:59:59.999Z"}


@pytest.mark.parametrize("level", ["condensed", "minimal"])
def test_a_tool_may_have_more_than_its_level_demands(level: str) -> None:
    (tool,) = read(macro_tools=[{**TOOL, "disclosure_level": level}]).macro_tools
    assert (tool.disclosure_level, tool.description) == (level, "Look.")


@pytest.mark.req("SEC-15")
@pytest.mark.parametrize("members", [{"trust_level": "automated"}, {"identity": None, "permissions": []}])
def test_an_identity_may_be_left_out(members: dict[str, Any]) -> None:
    assert from_server("authenticate_response", {"status": "authenticated", **members}).payload.identity is None
