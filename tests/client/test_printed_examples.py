"""The JSON that the draft of the specification prints is read verbatim: requests by servers, answers by clients.

The draft is not part of the repository. Its examples are read from ``../shared/spec/examples``, beside the project's
root; where that folder does not exist, there is nothing to read and no test of them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from manglecp.wire import receive, receive_from_server
from manglecp.wire.messages import CLIENT_TYPES, SERVER_TYPES, UNSET, AuthenticateResponse, IntentResponse

FOLDER: Final = Path(__file__).parents[3] / "shared" / "spec" / "examples"
PRINTED: Final = {
    f"{path.stem} {entry['section']}": entry["json"]
    for path in sorted(FOLDER.glob("*.json"))
    for entry in json.loads(path.read_text("utf-8"))
    if "json" in entry and not any(form in json.dumps(entry["json"]) for form in ("<string", "<request id>"))
}
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
    document = {"type": type_, "id": "r-1", "manglecp": "2026-02-draft", "payload": payload}
    return receive_from_server(json.dumps(document).encode(), LIMIT)


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


@pytest.mark.req("EVAL-29", "COV-02")
@pytest.mark.parametrize(
    "diagnostics",
    [{"facts_evaluated": 3}, {"rule_coverage": {"total_rules": 2}}, {"rules_fired": -1}, "none", {"rule_coverage": 5}],
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


@pytest.mark.req("SEC-15")
@pytest.mark.parametrize("members", [{"trust_level": "automated"}, {"identity": None, "permissions": []}])
def test_an_identity_may_be_left_out(members: dict[str, Any]) -> None:
    assert from_server("authenticate_response", {"status": "authenticated", **members}).payload.identity is None
