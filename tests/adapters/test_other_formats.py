"""Records of another format, results that ask for input, our own error codes, and the paths of errors."""

from __future__ import annotations

import json
from typing import Any

import pytest

from manglecp.adapters import LogError, ingest
from manglecp.harness import judge
from manglecp.wire import CODES

COMPLETION = {"choices": [{"message": {"role": "assistant", "tool_calls": []}}]}
INSPECT_CALL = {"role": "assistant", "content": "", "tool_calls": [{"id": "c", "function": "f", "arguments": {}}]}
USER = {"role": "user", "content": "go"}


def error_of(record: Any, source: str) -> LogError:
    with pytest.raises(LogError) as raised:
        list(ingest(json.dumps(record), source))
    return raised.value


@pytest.mark.parametrize("source", ["openai", "anthropic"])
@pytest.mark.parametrize(
    ("record", "name"),
    [
        ([{"task_id": 1, "traj": [USER]}], "tau-bench"),
        ([{"kind": "request", "parts": []}], "Pydantic AI"),
        ([{"type": "human", "data": {"content": "go"}}], "LangChain"),
        ([{"type": "ai", "content": "", "tool_calls": [], "response_metadata": {}}], "LangChain"),
        ([{"kind": "request"}], ""),
        ([{"type": "human", "content": "go", "additional_kwargs": {}}], "LangChain"),
        ([USER, {"role": "assistant", "parts": [{"functionCall": {"name": "f", "args": {}}}]}], "Gemini"),
        ([USER, {"role": "assistant", "content": [{"type": "tool-call", "toolCallId": "c"}]}], "AI SDK"),
        ([USER, {"role": "assistant", "content": [{"type": "x"}]}], "type"),
        ({"eval": {}, "samples": []}, "Inspect"),
        ({"resourceSpans": []}, "--from otel"),
        ({"jsonrpc": "2.0", "id": 1}, "--from mcp"),
    ],
)
def test_another_format_is_refused_by_name(source: str, record: Any, name: str) -> None:
    assert name in error_of(record, source).message


@pytest.mark.parametrize("source", ["mcp", "otel", "jsonl"])
@pytest.mark.parametrize(
    ("record", "name"),
    [
        ([{"task_id": 1, "traj": [USER]}], "tau-bench"),
        ([{"kind": "request", "parts": []}], "Pydantic AI"),
        ([{"type": "human", "data": {"content": "go"}}], "LangChain"),
        ({"eval": {}, "samples": []}, "Inspect"),
        (COMPLETION, "--from openai"),
    ],
)
def test_no_format_is_read_as_another(source: str, record: Any, name: str) -> None:
    assert name in error_of(record, source).message


def test_a_response_of_another_provider_is_no_empty_reply() -> None:
    error = error_of({"request": {"messages": [USER]}, "response": COMPLETION}, "anthropic")
    assert (error.path, "--from openai" in error.message) == ("$.response", True)
    assert "--from openai" in error_of([USER, INSPECT_CALL], "anthropic").message


def test_calls_of_another_provider_are_not_passed_over() -> None:
    reply = {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {}}]}
    error = error_of([USER, reply], "openai")
    assert (error.path, "--from anthropic" in error.message) == ("$[1].content[0]", True)


def test_a_call_without_an_id_is_an_error() -> None:
    reply = {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}}
    assert error_of([USER, reply], "openai").path == "$[1].function_call"


def test_the_path_of_an_error_names_the_message() -> None:
    assert error_of([USER, INSPECT_CALL, USER], "openai").path == "$[1].tool_calls[0].function"
    assert error_of({"messages": [USER, INSPECT_CALL]}, "openai").path == "$.messages[1].tool_calls[0].function"
    with pytest.raises(LogError, match=r"line 2: \$\.tool_calls\[0\]\.function"):
        list(ingest("\n".join(map(json.dumps, [USER, INSPECT_CALL, USER])), "openai"))
    completion = {"object": "chat.completion", "choices": [{"message": INSPECT_CALL}]}
    assert error_of(completion, "openai").path == "$.choices[0].message.tool_calls[0].function"


@pytest.mark.parametrize("wrap", [lambda error: {"error": error}, lambda error: {"type": "error", "payload": error}])
@pytest.mark.parametrize("code", sorted(CODES))
def test_our_own_errors_are_typed(code: str, wrap: Any) -> None:
    error = {"code": code, "message": "m"}
    log = [
        {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "t"}},
        {"jsonrpc": "2.0", "id": 1, "result": {"isError": True, "structuredContent": wrap(error)}},
    ]
    (document,) = ingest(json.dumps(log), "mcp")
    assert judge(document).result == "accepted"


def test_recoverable_is_read_as_retryable() -> None:
    error = {"code": "x-own", "message": "m", "recoverable": True}
    log = [
        {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "t"}},
        {"jsonrpc": "2.0", "id": 1, "result": {"isError": True, "structuredContent": {"error": error}}},
    ]
    (document,) = ingest(json.dumps(log), "mcp")
    assert document["evidence"]["toolResults"][0]["retryable"] is True


def asked(*, answered: bool, state: str | None, kind: str = "input_required") -> list[dict[str, Any]]:
    held = {} if state is None else {"requestState": state}
    call = {"name": "t", "arguments": {"a": 1}}
    log = [
        {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call},
        {"jsonrpc": "2.0", "id": 1, "result": {"resultType": kind, "inputRequests": {}, **held}},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {**call, "inputResponses": {}, **held}},
        {"jsonrpc": "2.0", "id": 2, "result": {"content": [{"type": "text", "text": "done"}]}},
    ]
    return log if answered else log[:2]


@pytest.mark.parametrize(("state", "kind"), [("s", "input_required"), (None, "input_required"), (None, "task")])
def test_a_request_for_input_is_not_a_result(state: str | None, kind: str) -> None:
    (document,) = ingest(json.dumps(asked(answered=True, state=state, kind=kind)), "mcp")
    assert [row["toolCallId"] for row in document["evidence"]["toolRequests"]] == ["1"]
    assert judge(document).result == "accepted"
    (document,) = ingest(json.dumps(asked(answered=False, state=state, kind=kind)), "mcp")
    assert judge(document).failure_classes == ("tool.join_incomplete", "tool.result_missing")
