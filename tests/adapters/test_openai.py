from __future__ import annotations

import json
from typing import Any

import pytest

from manglecp.adapters import LogError
from tests.adapters.checking import classes, lines, log, rows, turns, verdicts, without_places

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

    def test_streamed(self) -> None:
        assert without_places(read(log("openai-chat-stream.sse"))) == without_places(read(CHAT))

    def test_streamed_as_a_list_or_as_text(self) -> None:
        requests = [json.loads(line)["request"] for line in CHAT.splitlines()]
        streams: list[bytes] = []
        for line in log("openai-chat-stream.sse").splitlines(keepends=True):
            if line.startswith(b"{"):
                streams.append(b"")
            else:
                streams[-1] += line
        as_text = [{"request": r, "response": s.decode()} for r, s in zip(requests, streams, strict=True)]
        as_list = [
            {"request": r, "response": [json.loads(e[6:]) for e in s.splitlines() if e.startswith(b"data: {")]}
            for r, s in zip(requests, streams, strict=True)
        ]
        for form in (as_text, as_list):
            assert without_places(read(lines(form))) == without_places(read(CHAT))

    def test_request_and_completion_on_lines_of_their_own(self) -> None:
        records = [json.loads(line) for line in CHAT.splitlines()]
        apart = [part for r in records for part in ({"request": {"body": r["request"]}}, r["response"])]
        assert without_places(read(lines(apart))) == without_places(read(CHAT))

    def test_chunks_of_another_completion(self) -> None:
        chunk = {"object": "chat.completion.chunk", "id": "a", "choices": [{"delta": {}, "finish_reason": "stop"}]}
        other = {"index": 1, "delta": {"content": 1}}  # another choice is not looked at
        assert verdicts(lines([chunk, {**chunk, "id": "b", "choices": [*chunk["choices"], other]}]), "openai") == [
            (),
            (),
        ]

    def test_custom_tools(self) -> None:
        record = json.loads(CHAT.splitlines()[0])
        custom = {"id": "call_1", "type": "custom", "custom": {"name": "run_sql", "input": "select 1"}}
        record["response"]["choices"][0]["message"]["tool_calls"] = [custom]
        record["request"]["tools"].append({"type": "custom", "custom": {"name": "run_sql"}})
        (document,) = read(lines([record]))
        assert rows(document, "toolRequests")["call_1"]["input"] == "select 1"
        assert classes(document) == ("tool.join_incomplete", "tool.result_missing")

    def test_custom_tools_in_a_stream(self) -> None:
        request = json.loads(CHAT.splitlines()[0])["request"]
        request["tools"].append({"type": "custom", "custom": {"name": "run_sql"}})
        pieces = [
            {"index": 0, "id": "call_1", "type": "custom", "custom": {"name": "run_sql", "input": "select "}},
            {"index": 0, "custom": {"input": "1"}},
        ]
        chunks = [
            {"object": "chat.completion.chunk", "id": "a", "choices": [{"index": 0, "delta": {"tool_calls": [piece]}}]}
            for piece in pieces
        ]
        (document,) = read(lines([{"request": request, "response": chunks}]))
        assert rows(document, "toolRequests")["call_1"]["input"] == "select 1"

    def test_a_call_in_another_choice_is_not_lost(self) -> None:
        record = json.loads(CHAT.splitlines()[0])
        choice = record["response"]["choices"][0]
        silent = {"index": 1, "message": {"role": "assistant", "content": "x"}, "finish_reason": "stop"}
        record["response"]["choices"] = [choice, silent]
        assert len(read(lines([record]))) == 1
        record["response"]["choices"] = [silent, {**choice, "index": 1}]
        with pytest.raises(LogError, match="other than the first") as refused:
            read(lines([record]))
        assert refused.value.path == "$.response.choices[1]"

    def test_an_error_is_no_reply(self) -> None:
        record = json.loads(CHAT.splitlines()[0])
        failed = {"request": record["request"], "response": {"error": {"code": "rate_limit_exceeded"}}}
        assert without_places(read(lines([failed, record]))) == without_places(read(lines([record])))

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

    def test_a_stream_that_was_cut_off(self) -> None:
        events = log("openai-responses-stream.sse").splitlines(keepends=True)
        cut = b"".join(events[: events.index(b"event: response.completed\n")])
        (document,) = read(cut)
        assert document["evidence"]["protocolState"]["stopReason"] == "unrecorded"
        assert len(document["evidence"]["toolRequests"]) == 2

    def test_a_conversation_that_the_provider_keeps(self) -> None:
        records = [json.loads(line) for line in RESPONSES.splitlines()]
        for record in records:
            record["request"].pop("previous_response_id", None)
            record["request"]["conversation"] = {"id": "conv_1"}
        assert without_places(read(lines(records))) == without_places(read(RESPONSES))

    def test_a_shell_owes_its_boundary(self) -> None:
        record = json.loads(RESPONSES.splitlines()[0])
        shell = {"type": "local_shell_call", "id": "ls_1", "call_id": "call_1", "action": {"command": ["ls"]}}
        record["response"]["output"] = [shell]
        output = {"type": "local_shell_call_output", "call_id": "call_1", "output": "a.py"}
        following = {"request": {"input": [output], "previous_response_id": "resp_001"}}
        assert verdicts(lines([record, following]), "openai") == [("runtime.shell_boundary_violation",)]

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
        ({"response": {"choices": [{"message": 1}]}}, "$.response.choices[0].message"),
        ({"response": {"output": [{"type": "function_call"}]}}, "$.response.output[0].name"),
        ({"response": {}}, "$.response"),
        ({"response": {"body": {"choices": [1]}}}, "$.response.body.choices[0]"),
        ({"request": {"body": {"messages": 1}}}, "$.request.body.messages"),
        ({"response": [1]}, "$.response[0]"),
        ([{"role": "tool"}], "$[0].tool_call_id"),
        ({"object": "chat.completion.chunk", "choices": [{"delta": {"content": 1}}]}, "$.choices[0].delta.content"),
        ({"a": 1}, "$"),
    ],
)
def test_what_cannot_be_read_says_where(record: object, path: str) -> None:
    with pytest.raises(LogError) as refused:
        read(lines([record]))
    assert (refused.value.line, refused.value.path) == (1, path)
