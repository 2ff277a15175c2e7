from __future__ import annotations

import json
from typing import Any

import pytest

from manglecp.adapters import LogError
from manglecp.harness.readers import InvalidEvidence
from tests.adapters.checking import lines, log, turns, verdicts

MCP = log("mcp.jsonl")


def call(number: object, name: str = "read") -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {"name": name, "arguments": {"a": 1}}}


def answer(number: object, text: str = "fine") -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "result": {"content": [{"type": "text", "text": text}]}}


def cancelled(number: object, **more: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number, **more}}


def read(*messages: object) -> list[tuple[str, ...]]:
    return verdicts(lines(messages), "mcp")


def test_the_log() -> None:
    assert verdicts(MCP, "mcp") == [
        (),
        (),
        (),
        ("tool.schema_invalid",),
        ("tool.join_incomplete", "tool.result_orphan"),
        ("tool.join_incomplete", "tool.result_missing", "tool.unknown_or_disallowed"),
    ]


@pytest.mark.req("HARN-15")
def test_the_catalogue_is_what_was_listed() -> None:
    first = turns(MCP, "mcp")[0]
    assert [tool["toolName"] for tool in first["policyDocuments"]["toolCatalog"]["tools"]] == ["read_page", "search"]
    assert first["evidence"]["callSpec"]["toolCatalogDigest"].startswith("sha256:")
    assert first["evidence"]["callSpec"]["executionPattern"] == "parallel"


@pytest.mark.req("HARN-53", "HARN-75")
def test_errors_of_the_wire_have_an_envelope() -> None:
    documents = turns(MCP, "mcp")
    (error,) = documents[1]["evidence"]["toolResults"]
    assert (error["errorCode"], error["retryable"], error["derived"]) == ("-32602", False, True)
    (stopped,) = documents[2]["evidence"]["toolResults"]
    assert (stopped["status"], stopped["errorCode"]) == ("cancelled", "cancelled")


def test_nothing_is_derived_of_what_the_model_saw() -> None:
    for document in turns(MCP, "mcp"):
        assert not {"toolRender", "stateViews", "reminderQueue"} & document["evidence"].keys()


class TestOrder:
    """Adversarial cases 18 and 22."""

    def test_interleaved(self) -> None:
        assert read(call(1), call(2), answer(2), call("1"), answer("1"), answer(1)) == [()]

    def test_one_id_open_on_both_sides(self) -> None:
        sampling = {"jsonrpc": "2.0", "id": 1, "method": "sampling/createMessage", "params": {}}
        assert read(call(1), sampling, {"jsonrpc": "2.0", "id": 1, "result": {"role": "user"}}, answer(1)) == [()]

    def test_nobody_asked(self) -> None:
        assert read(answer(1)) == [("tool.join_incomplete", "tool.result_orphan")]

    def test_two_responses(self) -> None:
        assert read(call(1), call(2), answer(1), answer(1), answer(2)) == [()]
        with pytest.raises(InvalidEvidence):
            read(call(1), call(2), answer(1), answer(1, "other"), answer(2))
        assert read(call(1), answer(1), answer(1, "other")) == [(), ("tool.join_incomplete", "tool.result_orphan")]

    def test_one_branch_fails_and_one_is_cancelled(self) -> None:
        failed = {"jsonrpc": "2.0", "id": 2, "error": {"code": -32001, "message": "timed out"}}
        assert read(call(1), call(2), call(3), failed, cancelled(3, reason="enough"), answer(1), answer(3)) == [()]
        assert read(call(1), cancelled(1)) == [("tool.schema_invalid",)]  # without a reason there is no message

    def test_never_answered(self) -> None:
        assert read(call(1), call(2), answer(1)) == [("tool.join_incomplete", "tool.result_missing")]

    def test_batches_and_wrapped_messages(self) -> None:
        assert read([call(1), call(2)], [answer(2), answer(1)]) == [()]
        assert read({"at": 1, "message": call(1)}, {"at": 2, "message": answer(1)}) == [()]


@pytest.mark.parametrize(
    ("record", "path"),
    [
        ({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {}}, "$.params.name"),
        ({"jsonrpc": "2.0", "id": None, "result": {}}, "$.id"),
        ({"jsonrpc": "2.0", "id": 1.5, "method": "ping"}, "$.id"),
        ([{"jsonrpc": "2.0"}], "$[0]"),
        ({"message": {"jsonrpc": "2.0"}}, "$.message"),
    ],
)
def test_what_cannot_be_read_says_where(record: object, path: str) -> None:
    with pytest.raises(LogError) as refused:
        turns(json.dumps(record).encode(), "mcp")
    assert refused.value.path == path
