"""OpenTelemetry traces: spans out of order, content on attributes and events, tool spans, missing content."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from manglecp.adapters import LogError, ingest
from manglecp.harness import judge

LOG = (Path(__file__).parent / "logs" / "otel.jsonl").read_bytes()


def trace(*spans: tuple[str, dict[str, Any]], **more: Any) -> bytes:
    """Return a file with a span for each operation and its attributes, in order."""
    rows = []
    for start, (operation, attributes) in enumerate(spans, 1):
        values = {"gen_ai.operation.name": operation, **attributes}
        rows.append(
            {
                "spanId": f"{start:016x}",
                "startTimeUnixNano": str(start),
                "attributes": [
                    {"key": key, "value": {"stringValue": value if isinstance(value, str) else json.dumps(value)}}
                    for key, value in values.items()
                ],
                **more,
            }
        )
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": rows}]}]}).encode()


def reply(*parts: dict[str, Any], reason: str = "stop") -> dict[str, Any]:
    return {
        "gen_ai.input.messages": [{"role": "user", "parts": [{"type": "text", "content": "go"}]}],
        "gen_ai.output.messages": [{"role": "assistant", "parts": list(parts), "finish_reason": reason}],
    }


CALL = {"type": "tool_call", "id": "c1", "name": "deploy", "arguments": {}}


def test_spans_in_any_order_make_the_turns_of_the_conversation() -> None:
    first, second = ingest(LOG, "otel")
    assert (judge(first).result, judge(second).result) == ("accepted", "accepted")
    assert first["turn"] == {"number": 1, "line": 2}
    assert first["evidence"]["toolRequests"][0]["input"] == {"path": "a"}
    assert first["evidence"]["toolUse"][0]["useDisposition"] == "observed_only"
    assert second["evidence"]["protocolState"]["stopReason"] == "end_turn"


def test_a_call_without_result_is_rejected() -> None:
    (document,) = ingest(trace(("chat", reply(CALL, reason="tool_call"))), "otel")
    assert judge(document).failure_classes == ("tool.join_incomplete", "tool.result_missing")


def test_a_tool_span_supplies_the_result_and_its_error() -> None:
    tool = {"gen_ai.tool.call.id": "c1", "gen_ai.tool.call.result": "late", "error.type": "timeout"}
    (document,) = ingest(trace(("chat", reply(CALL, reason="tool_call")), ("execute_tool", tool)), "otel")
    (row,) = document["evidence"]["toolResults"]
    assert (row["status"], row["errorCode"], row["retryable"]) == ("error", "timeout", True)
    assert judge(document).result == "accepted"


def test_content_in_log_records_counts() -> None:
    details = [{"key": key, "value": {"stringValue": json.dumps(value)}} for key, value in reply(CALL).items()]
    logs = {"resourceLogs": [{"scopeLogs": [{"logRecords": [{"spanId": f"{1:016x}", "attributes": details}]}]}]}
    (document,) = ingest(trace(("chat", {})) + b"\n" + json.dumps(logs).encode(), "otel")
    assert document["evidence"]["toolRequests"][0]["toolName"] == "deploy"


@pytest.mark.parametrize(
    ("log", "path", "message"),
    [
        (trace(("chat", {})), "$.resourceSpans[0].scopeSpans[0].spans[0]", "gen_ai.output.messages is missing"),
        (b'{"messages": []}', "$", "neither resourceSpans nor resourceLogs"),
        (trace(("chat", reply({"type": "tool_call", "name": "x"}))),
         "$.resourceSpans[0].scopeSpans[0].spans[0].parts[0].id", "id is missing"),
        (trace(("chat", reply({"type": "function_call", "id": "c", "name": "f"}))),
         "$.resourceSpans[0].scopeSpans[0].spans[0].parts[0]", "the type of the part is unknown"),
        (trace(("chat", {"gen_ai.output.messages": [{"role": "assistant", "content": "", "tool_calls": []}]})),
         "$.resourceSpans[0].scopeSpans[0].spans[0]", "the message has no parts"),
    ],
)  # fmt: skip
def test_what_would_hide_a_call_is_an_error(log: bytes, path: str, message: str) -> None:
    with pytest.raises(LogError) as raised:
        list(ingest(log, "otel"))
    assert (raised.value.path, raised.value.message.startswith(message)) == (path, True), raised.value


def test_a_failed_request_is_no_reply() -> None:
    assert list(ingest(trace(("chat", {"error.type": "429"})), "otel")) == []
