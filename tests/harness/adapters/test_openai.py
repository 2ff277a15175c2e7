from __future__ import annotations

import json
from typing import Any

import pytest

from manglecp.harness.adapters import LogError
from tests.harness.adapters.checking import classes, lines, log, rows, turns, verdicts, without_places

CHAT = log("openai-chat.jsonl")
RESPONSES = log("openai-responses.jsonl")


def read(data: bytes, **options: Any) -> list[dict[str, Any]]:
    return turns(data, "openai", **options)


class TestChat:
    def test_accepted(self) -> None:
        assert verdicts(CHAT, "openai") == [(), ()]

    def test_what_is_recorded(self) -> None:
        first, second = read(CHAT)
        assert first["evidence"]["callSpec"]["modelRef"] == "gpt-5-2025-08-07"
        assert first["evidence"]["protocolState"]["stopReason"] == "tool_use"
        assert second["evidence"]["protocolState"]["stopReason"] == "end_turn"
        assert rows(first, "toolRequests")["call_depl02"]["sourceBlock"] == "function_call"
        assert rows(first, "toolResults")["call_depl02"]["errorCode"] == "not_found"
        assert rows(first, "toolUse")["call_logs01"]["useDisposition"] == "consumed"

    def test_streamed(self) -> None:
        assert without_places(read(log("openai-chat-stream.sse"))) == without_places(read(CHAT))

    @pytest.mark.parametrize(
        ("reason", "stop"),
        [("stop", "end_turn"), ("length", "max_tokens"), ("content_filter", "content_filter"), (None, "unrecorded")],
    )
    def test_finish_reasons(self, reason: str | None, stop: str) -> None:
        record = json.loads(CHAT.splitlines()[1])
        record["response"]["choices"][0]["finish_reason"] = reason
        (document,) = read(lines([record]))
        assert document["evidence"]["protocolState"]["stopReason"] == stop
        assert ("protocol.stop_reason_unhandled" in classes(document)) == (stop not in ("end_turn", "max_tokens"))

    def test_arguments_that_are_no_json(self) -> None:
        record = json.loads(CHAT.splitlines()[0])
        record["response"]["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"] = '{"service": "pay'
        (document,) = read(lines([record]))
        assert "tool.schema_invalid" in classes(document)

    def test_parallel_calls_where_the_request_forbade_them(self) -> None:
        records = [json.loads(line) for line in CHAT.splitlines()]
        records[0]["request"]["parallel_tool_calls"] = False
        assert verdicts(lines(records), "openai")[0] == ("protocol.parallel_transport_order_invalid",)

    def test_a_transcript(self) -> None:
        messages = json.loads(CHAT.splitlines()[1])["request"]["messages"]
        for form in ([{"messages": messages}], [messages], messages):
            (document,) = read(lines(form))
            assert classes(document) == ("protocol.stop_reason_unhandled",)
            assert len(document["evidence"]["toolResults"]) == 2

    def test_tool_choice(self) -> None:
        record = json.loads(CHAT.splitlines()[1])
        for choice, expected in [
            ("required", "any"),
            ({"type": "function", "function": {"name": "f"}}, {"mode": "specific", "toolName": "f"}),
        ]:
            record["request"]["tool_choice"] = choice
            (document,) = read(lines([record]))
            assert document["evidence"]["callSpec"]["toolChoice"] == expected
        record["request"]["tool_choice"] = "none"
        assert "toolChoice" not in read(lines([record]))[0]["evidence"]["callSpec"]


class TestResponses:
    def test_accepted(self) -> None:
        assert verdicts(RESPONSES, "openai") == [()] * 4

    def test_streamed(self) -> None:
        assert without_places(read(log("openai-responses-stream.sse"))) == without_places(read(RESPONSES))

    def test_what_is_recorded(self) -> None:
        first, second, third, fourth = read(RESPONSES)
        stops = [one["evidence"]["protocolState"]["stopReason"] for one in (first, second, third, fourth)]
        assert stops == ["tool_use", "tool_use", "max_tokens", "end_turn"]
        assert rows(first, "toolRequests")["call_sql01"]["input"] == "select count(*) from refunds"
        served = rows(second, "toolRequests")
        assert (served["mcp_01aa"]["toolKind"], served["ci_01aa"]["toolKind"]) == ("mcp", "code_execution")
        assert "observation" in rows(second, "toolResults")["ci_01aa"]
        assert "toolCatalogDigest" not in first["evidence"]["callSpec"]  # a server names further tools
        continues = [one["evidence"]["protocolState"]["continuationAllowed"] for one in (first, second, third)]
        assert continues == [True, True, False]

    def test_requests_that_repeat_the_conversation(self) -> None:
        records = [json.loads(line) for line in RESPONSES.splitlines()]
        items: list[Any] = []
        for record in records:
            new = record["request"].pop("input")
            record["request"].pop("previous_response_id", None)
            items = [*items, *([{"role": "user", "content": new}] if isinstance(new, str) else new)]
            record["request"]["input"] = items
            items = [*items, *record["response"]["output"]]
        documents = read(lines(records))
        assert [classes(document) for document in documents] == [()] * 4
        for one, other in zip(documents, read(RESPONSES), strict=True):
            assert one["evidence"]["toolResults"] == other["evidence"]["toolResults"]

    def test_a_transcript_of_items(self) -> None:
        records = [json.loads(line) for line in RESPONSES.splitlines()]
        items = [{"type": "message", "role": "user", "content": "Hello?"}]
        for record in records:
            items += record["request"]["input"] if isinstance(record["request"]["input"], list) else []
            items += record["response"]["output"]
        assert verdicts(lines([items]), "openai") == verdicts(lines(items), "openai")
        assert set(verdicts(lines(items), "openai")) == {("protocol.stop_reason_unhandled",)}

    def test_a_failed_call_of_a_server(self) -> None:
        record = json.loads(RESPONSES.splitlines()[1])
        record["response"]["output"] = [record["response"]["output"][0] | {"output": None, "error": "no such page"}]
        (document,) = read(lines([record]))
        assert classes(document) == ("tool.schema_invalid",)

    def test_a_program_that_has_not_ended(self) -> None:
        record = json.loads(RESPONSES.splitlines()[1])
        record["response"]["output"] = [record["response"]["output"][1] | {"status": "interpreting"}]
        (document,) = read(lines([record]))
        assert classes(document) == ("tool.join_incomplete", "tool.result_missing")

    def test_a_programmatic_call(self) -> None:
        record = json.loads(RESPONSES.splitlines()[1])
        program, call = record["response"]["output"][1:]
        record["response"]["output"] = [program, call | {"caller": {"type": "programmatic", "tool_id": program["id"]}}]
        following = json.loads(RESPONSES.splitlines()[2])
        document = read(lines([record, following]))[0]
        assert rows(document, "toolResults")["call_depl02"]["callerEdge"]["parentToolCallId"] == "ci_01aa"
        assert classes(document) == ()


@pytest.mark.parametrize(
    ("record", "path"),
    [
        ({"request": {"messages": [{"role": "tool", "content": "x"}]}}, "$.request.messages[0].tool_call_id"),
        ({"response": {"choices": [{"message": 1}]}}, "$.response.message"),
        ({"response": {"output": [{"type": "function_call"}]}}, "$.response.output[0].name"),
        ({"response": {}}, "$.response"),
        ({"object": "chat.completion.chunk", "choices": [{"delta": {"content": 1}}]}, "$.choices[0].content"),
        ({"a": 1}, "$"),
    ],
)
def test_what_cannot_be_read_says_where(record: object, path: str) -> None:
    with pytest.raises(LogError) as refused:
        read(lines([record]))
    assert (refused.value.line, refused.value.path) == (1, path)
