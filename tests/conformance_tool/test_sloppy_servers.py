"""Servers that are wrong about nearly everything of one kind: every check of that kind notices."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from tests.conformance_tool.spoiling import Flaw, Message
from tests.conformance_tool.workshop import Way, Workshop


def yes(request: Message | None, answer: Message) -> Message:
    """Whatever is wrong is right."""
    if answer["type"] != "error":
        return answer
    payload: dict[str, Any] = {"eval_time_used": "2026-01-01T00:00:00Z", "eval_duration_ms": 0, "macro_tools": []}
    kind = "intent_response"
    if request is not None and request.get("type") == "invoke_request":
        kind, payload = "invoke_response", {"result": {}}
    if request is not None and request.get("type") == "authenticate":
        kind, payload = "authenticate_response", {"status": "authenticated", "identity": None, "permissions": []}
    return {**answer, "type": kind, "payload": payload}


def bare(_: Message | None, answer: Message) -> Message:
    """As little as possible of everything."""
    payload = answer["payload"]
    if answer["type"] == "intent_response":
        for tool in payload["macro_tools"]:
            for name in set(tool) - {"macro_id", "name", "disclosure_level", "description"}:
                del tool[name]
            tool.setdefault("description", "A tool.")
            tool["disclosure_level"] = "condensed"
        payload.pop("proof_hints", None)
        payload.pop("diagnostics", None)
    elif answer["type"] == "invoke_response":
        answer["payload"] = {"result": payload["result"]}
    elif answer["type"] == "manifest":
        payload["capabilities"]["temporal"] = False
        payload["facts_profile"]["predicates"] = []
        payload["intents"] = []
        payload["extensions"] = {}
    return answer


def vague(_: Message | None, answer: Message) -> Message:
    """Errors without details, all of one kind."""
    if answer["type"] == "error":
        answer["payload"] = {"code": "internal_error", "message": "Something is wrong", "recoverable": False}
    return answer


def generous(_: Message | None, answer: Message) -> Message:
    """Return more than was requested."""
    if answer["type"] == "intent_response":
        names = {tool["name"] for tool in answer["payload"]["macro_tools"]}
        for name in sorted({"full_stack_diagnosis", "apply_fix", "propose_fix", "list_failures"} - names):
            tool = {
                "macro_id": f"m-{name}",
                "name": name,
                "description": "A tool.",
                "disclosure_level": "full",
                "input_schema": {"type": "object"},
                "safety": {"requires_user_confirmation": False, "side_effects": ["none"]},
                "validity": {"expires_at": "2099-01-01T00:00:00Z"},
            }
            answer["payload"]["macro_tools"].append(tool)
    return answer


FACTS = "ERR-13 ERR-14 ERR-15 ERR-16 ERR-12 DATA-01 DATA-02 DATA-04 DATA-05 DATA-06 DATA-37 DATA-39 DATA-43 SEC-02"
FACTS += " ERR-17 MANI-14 OPEN-14 OPEN-18 ERR-35 ERR-38 DATA-10 DATA-21 DATA-27 OPEN-12 EVAL-09 CONF-10"
ENVELOPES = "WIRE-01 WIRE-02 WIRE-03 WIRE-11 WIRE-12 WIRE-15 WIRE-16 WIRE-18 WIRE-24 ERR-05 ERR-06 ERR-08"
ENVELOPES += " EVAL-01 OPEN-58 INVK-01 INVK-02 INVK-06 ERR-23 WIRE-22 ERR-07 CONF-03 MANI-24"
SLOPPY: list[tuple[str, Way, Flaw, str]] = [
    ("yes to all facts", "http", Flaw(said=yes), FACTS),
    ("yes to all messages", "http", Flaw(said=yes), f"{ENVELOPES} TRANS-13 SEC-16 OPEN-40 SEC-04"),
    ("yes to all messages", "websocket", Flaw(said=yes), f"{ENVELOPES} OPEN-59"),
    ("yes to all tools", "http", Flaw(said=yes), "INVK-07 INVK-08 CONF-16 EVAL-20 EVAL-21 ERR-19 ERR-20 ERR-24 ERR-25"),
    ("bare tools", "http", Flaw(said=bare), "EVAL-33 CONF-04 CONF-07 TOOL-07 PROOF-01 CONF-11 SKILL-03 TOOL-18"),
    ("bare manifests", "http", Flaw(said=bare), "MANI-18 CONF-07 CONF-12"),
    ("bare outcomes", "http", Flaw(said=bare), "INVK-16 OPEN-33 OBS-01 NEXT-01 CONF-08"),
    ("vague errors", "http", Flaw(said=vague), f"{FACTS} ERR-05 ERR-06 ERR-08 ERR-19 ERR-23 WIRE-11 CONF-17"),
    ("generous", "http", Flaw(said=generous), "EVAL-13 EVAL-14 EVAL-30 EVAL-35 DATA-31 PROOF-06 CONF-07"),
]
NAMES = [f"{name}, {way}" for name, way, _, _ in SLOPPY]


@pytest.mark.parametrize(("name", "way", "flaw", "found"), SLOPPY, ids=NAMES)
def test_a_sloppy_server_is_found_out(servers: Workshop, name: str, way: Way, flaw: Flaw, found: str) -> None:
    report = servers.test(way, flaw, rows=set(found.split()))
    assert sorted(set(found.split()) - set(report.of("failed"))) == [], name


def test_answers_without_a_type_are_failures(servers: Workshop) -> None:
    def untyped(_: Message | None, answer: Message) -> Message:
        return answer if answer["type"] == "manifest" else {n: v for n, v in answer.items() if n != "type"}

    report = servers.test("http", Flaw(said=untyped), rows={"DATA-47", "WIRE-01"})
    assert {"DATA-47", "WIRE-01"} <= set(report.of("failed"))


@pytest.mark.parametrize("way", ["http", "websocket"])
def test_one_that_lets_everybody_in(servers: Workshop, way: Way) -> None:
    found = {"SEC-17", "ERR-09", "ERR-10"} | ({"SEC-13"} if way == "websocket" else {"TRANS-17"})
    report = servers.test(way, Flaw(said=yes), known=True, rows=found)
    assert found <= set(report.of("failed"))


def test_an_expiry_in_another_time_zone_is_compared_as_a_time(servers: Workshop) -> None:
    def shifted(_: Message | None, answer: Message) -> Message:
        for tool in answer["payload"].get("macro_tools", ()):
            if "validity" in tool:
                expires_at = datetime.fromisoformat(tool["validity"]["expires_at"])
                tool["validity"]["expires_at"] = expires_at.astimezone(timezone(timedelta(hours=14))).isoformat()
        return answer

    report = servers.test("http", Flaw(said=shifted), rows={"TOOL-19"})
    assert report["TOOL-19"].outcome == "passed", report["TOOL-19"].failures
