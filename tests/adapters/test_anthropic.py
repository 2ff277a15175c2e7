from __future__ import annotations

import json
from typing import Any

import pytest

from manglecp.adapters import LogError
from manglecp.adapters.anthropic import Stream
from manglecp.adapters.records import MAX_OPEN_TURNS
from manglecp.harness.readers import InvalidEvidence
from manglecp.wire import Fault
from tests.adapters.checking import (
    MODEL,
    classes,
    exchanges,
    lines,
    log,
    message,
    rows,
    text,
    tool_result,
    tool_use,
    turns,
    verdicts,
    without_places,
)

EXCHANGES = log("anthropic-exchanges.jsonl")


class TestExchanges:
    def test_every_turn_is_accepted(self) -> None:
        assert verdicts(EXCHANGES) == [()] * 4

    @pytest.mark.req("HARN-09", "HARN-10", "HARN-44")
    def test_what_is_recorded(self) -> None:
        first, *others = turns(EXCHANGES)
        spec = first["evidence"]["callSpec"]
        assert spec["modelRef"] == MODEL
        assert spec["callId"].startswith("turn1_")
        assert (spec["actionMode"], spec["executionPattern"]) == ("json", "parallel")
        request = rows(first, "toolRequests")["toolu_02DeplPay"]
        assert request["input"] == {"service": "payments-api"}
        assert (request["sourceBlock"], request["callerId"]) == ("tool_use", "direct")
        assert (request["actionIndex"], request["ordinal"], request["branchId"]) == (1, 1, "toolu_02DeplPay")
        assert len({other["evidence"]["callSpec"]["callId"] for other in [first, *others]}) == 4
        assert [turns(EXCHANGES)[i]["turn"] for i in (0, 3)] == [{"number": 1, "line": 1}, {"number": 4, "line": 4}]

    @pytest.mark.req("HARN-48", "HARN-49")
    def test_calls_side_by_side_are_branches_of_one_group(self) -> None:
        first, second, *_ = turns(EXCHANGES)
        assert {row["callGroupId"] for row in first["evidence"]["toolRequests"]} == {"1"}
        assert "branchId" not in second["evidence"]["toolRequests"][0]
        assert classes({**first, "evidence": first["evidence"] | {"callSpec": _forbidding(first)}}) == (
            "tool.parallel_policy_violation",
        )

    def test_what_is_derived_says_so(self) -> None:
        first, *_ = turns(EXCHANGES)
        evidence = first["evidence"]
        for member in ("toolRender", "stateViews", "reminderQueue", "toolUse"):
            assert evidence[member]
            assert all(row["derived"] is True for row in evidence[member])
        assert not any("derived" in row for row in evidence["toolRequests"] + evidence["toolResults"])
        assert {row["injectionPoint"] for row in evidence["toolRender"]} == {"tool_response"}
        assert evidence["stateViews"][0]["viewId"] == "messages"
        assert evidence["reminderQueue"][0]["queueId"] == "system"

    def test_the_view_is_that_of_the_next_request(self) -> None:
        from manglecp.harness.canonical_v1 import digest_v1 as digest

        second = json.loads(EXCHANGES.splitlines()[1])["request"]
        evidence = turns(EXCHANGES)[0]["evidence"]
        assert evidence["stateViews"][0]["viewDigest"] == digest(second["messages"])
        queue = [second["system"], "The change freeze begins at 15:00 UTC."]
        assert evidence["reminderQueue"][0]["reducedDigest"] == digest(queue)

    def test_every_result_counts_as_observed(self) -> None:
        evidence = turns(EXCHANGES)[0]["evidence"]
        digests = {row["toolCallId"]: row["resultDigest"] for row in evidence["toolResults"]}
        assert {row["toolCallId"]: row["resultDigest"] for row in evidence["toolUse"]} == digests
        assert {(row["useDisposition"], row["derived"]) for row in evidence["toolUse"]} == {("observed_only", True)}

    @pytest.mark.req("HARN-53", "HARN-06")
    def test_an_error_with_a_code_has_an_envelope(self) -> None:
        (row,) = turns(EXCHANGES)[1]["evidence"]["toolResults"]
        assert (row["status"], row["errorCode"], row["retryable"]) == ("error", "rate_limit_exceeded", True)
        assert row["derived"] is True

    def test_strict_leaves_out_what_is_derived(self) -> None:
        documents = turns(EXCHANGES, strict=True)
        assert '"derived"' not in json.dumps(documents)
        assert "retryable" not in documents[1]["evidence"]["toolResults"][0]
        assert classes(documents[1]) == (
            "context.injection_point_missing",
            "context.queue_policy_violation",
            "tool.join_incomplete",
            "tool.schema_invalid",
            "tool.use_missing",
        )
        assert classes(documents[3]) == ()

    def test_the_same_log_always_gives_the_same(self) -> None:
        assert turns(EXCHANGES) == turns(EXCHANGES)


def _forbidding(document: dict[str, Any]) -> dict[str, Any]:
    return {**document["evidence"]["callSpec"], "parallelPolicy": "forbid"}


class TestForms:
    """One conversation, however it was written down."""

    def test_streamed(self) -> None:
        assert without_places(turns(log("anthropic-stream.sse"))) == without_places(turns(EXCHANGES))

    def test_streamed_as_text_or_as_a_list(self) -> None:
        records, stream = [], b""
        for line in log("anthropic-stream.sse").splitlines(keepends=True):
            if line.startswith(b"{"):
                records.append([json.loads(line)["request"], b""])
                stream = b""
            else:
                stream += line
                records[-1][1] = stream
        as_text = [{"request": request, "response": events.decode()} for request, events in records]
        assert without_places(turns(lines(as_text))) == without_places(turns(EXCHANGES))
        as_list = [
            {"request": request, "response": [json.loads(e[5:]) for e in events.splitlines() if e[:5] == b"data:"]}
            for request, events in records
        ]
        assert without_places(turns(lines(as_list))) == without_places(turns(EXCHANGES))

    def test_what_a_stream_may_also_hold(self) -> None:
        citation = {"type": "char_location", "cited_text": "x"}
        whole = message(
            {"type": "thinking", "thinking": "Hm.", "signature": "abc"},
            {"type": "text", "text": "Here.", "citations": [citation]},
            tool_use("toolu_1", "ping") | {"input": {}},
        )
        events: list[dict[str, Any]] = [
            {"type": "message_start", "message": {**whole, "content": [], "stop_reason": None}},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "Hm."}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "abc"}},
            {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
            {"type": "content_block_delta", "index": 1, "delta": {"type": "citations_delta", "citation": citation}},
            {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "Here."}},
            {"type": "content_block_start", "index": 2, "content_block": whole["content"][2]},
            {"type": "message_delta", "delta": {"stop_reason": "tool_use"}},
            {"type": "message_stop"},
        ]
        stream = Stream()
        assert stream.message() is None
        for event in events:
            stream.add(event)
        assert stream.message() == whole

    @pytest.mark.parametrize(
        ("event", "path"),
        [
            ({"type": "message_start", "message": {}}, "$"),
            ({"type": "content_block_start", "index": -1, "content_block": {}}, "$.index"),
            ({"type": "content_block_delta", "index": 7, "delta": {}}, "$.index"),
            ({"type": "content_block_start", "index": 0}, "$.content_block"),
            ({"type": "unheard_of"}, "$.type"),
        ],
    )
    def test_events_that_make_no_sense(self, event: dict[str, Any], path: str) -> None:
        stream = Stream()
        stream.add({"type": "message_start", "message": {}})
        with pytest.raises(Fault) as refused:
            stream.add(event)
        assert refused.value.path == path

    def test_request_and_response_on_lines_of_their_own(self) -> None:
        records = [json.loads(line) for line in EXCHANGES.splitlines()]
        apart = [part for r in records for part in ({"request": r["request"]}, r["response"])]
        assert without_places(turns(lines(apart))) == without_places(turns(EXCHANGES))

    def test_a_transcript_lacks_only_the_stop_reasons(self) -> None:
        documents = turns(log("anthropic-transcript.json"))
        assert [classes(document) for document in documents] == [("protocol.stop_reason_unhandled",)] * 4
        for document, other in zip(documents, turns(EXCHANGES), strict=True):
            assert document["evidence"]["protocolState"]["stopReason"] == "unrecorded"
            for member in ("toolRequests", "toolResults", "toolUse"):
                assert document["evidence"][member] == other["evidence"][member]
            assert document["evidence"].get("stateViews") == other["evidence"].get("stateViews")

    def test_a_transcript_with_a_policy_for_it(self) -> None:
        policy = {"protocolStatePolicy": {"handledStopReasons": ["unrecorded"]}}
        assert verdicts(log("anthropic-transcript.json"), policy=policy) == [()] * 4

    def test_a_message_on_each_line(self) -> None:
        transcript = json.loads(log("anthropic-transcript.json"))
        whole = turns(lines([{"messages": transcript["messages"]}]))
        assert without_places(turns(lines(transcript["messages"]))) == without_places(whole)
        assert without_places(turns(lines([transcript["messages"]]))) == without_places(whole)

    def test_line_ends_of_other_systems(self) -> None:
        assert turns(EXCHANGES.replace(b"\n", b"\r\n")) == turns(EXCHANGES)
        assert turns(b"\xef\xbb\xbf" + EXCHANGES) == turns(EXCHANGES)

    def test_interleaved_conversations_stay_apart(self) -> None:
        one = exchanges(message(tool_use("toolu_1")), [tool_result("toolu_1")], message(text("ok"), stop="end_turn"))
        two = exchanges(
            message(tool_use("toolu_2")), [tool_result("toolu_2")], message(text("ok"), stop="end_turn"), first="Else?"
        )
        mixed = [record for pair in zip(one, two, strict=True) for record in pair]
        assert verdicts(lines(mixed)) == [()] * 4

    def test_a_session_tells_equal_beginnings_apart(self) -> None:
        steps = (message(tool_use("toolu_1")), [tool_result("toolu_1")], message(text("ok"), stop="end_turn"))
        mixed = [record | {"session": s} for record in exchanges(*steps) for s in ("a", "b")]
        assert verdicts(lines(mixed)) == [()] * 4
        assert ("tool.join_incomplete", "tool.result_missing") in verdicts(
            lines([record for record in exchanges(*steps) for _ in range(2)])
        )

    def test_an_error_is_no_reply_and_the_request_is_sent_again(self) -> None:
        records = exchanges(
            message(tool_use("toolu_1")), [tool_result("toolu_1")], message(text("ok"), stop="end_turn")
        )
        overloaded = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
        failed = [part for r in records for part in ({"request": r["request"], "response": overloaded}, r)]
        assert without_places(turns(lines(failed))) == without_places(turns(lines(records)))

    def test_a_request_sent_again_after_an_error_is_the_same_request(self) -> None:
        records = exchanges(message(text("ok"), stop="end_turn"), "And now?", message(text("ok"), stop="end_turn"))
        failed = [records[0], {"request": records[1]["request"], "response": {"error": {}}}, records[1]]
        first, _ = turns(lines(failed))
        assert first["evidence"]["protocolState"]["continuationAllowed"] is False

    def test_replies_to_messages_on_lines_begin_on_their_line(self) -> None:
        transcript = [
            {"role": "user", "content": "Hello?"},
            message(text("Hello.")),
            {"role": "user", "content": "Bye."},
        ]
        assert turns(lines(transcript))[0]["turn"] == {"number": 1, "line": 2}


class TestProgramsAndSearches:
    DOCUMENTS = turns(log("anthropic-programmatic.jsonl"))

    def test_accepted(self) -> None:
        assert [classes(document) for document in self.DOCUMENTS] == [(), ()]

    @pytest.mark.req("HARN-54", "HARN-78", "SLICE-06")
    def test_what_a_program_calls_has_an_edge_to_it(self) -> None:
        first = self.DOCUMENTS[0]
        assert first["evidence"]["callSpec"]["actionMode"] == "code"
        assert rows(first, "toolRequests")["toolu_11Emea"]["callerId"] == "code_execution"
        edge = rows(first, "toolResults")["toolu_11Emea"]["callerEdge"]
        assert edge["parentToolCallId"] == "srvtoolu_01Code"
        observed = rows(first, "toolResults")["srvtoolu_01Code"]["observation"]
        assert observed.keys() == {"stdoutDigest", "stderrDigest"}

    def test_the_turn_goes_on_while_the_program_runs(self) -> None:
        state = self.DOCUMENTS[0]["evidence"]["protocolState"]
        assert (state["iteration"], state["stopReason"], state["continuationAllowed"]) == (2, "tool_use", True)

    def test_a_paused_turn_goes_on(self) -> None:
        state = self.DOCUMENTS[1]["evidence"]["protocolState"]
        assert (state["iteration"], state["stopReason"]) == (2, "end_turn")

    @pytest.mark.req("SLICE-05", "HARN-07", "HARN-48")
    def test_a_deferred_tool_was_searched_for(self) -> None:
        first = self.DOCUMENTS[0]
        row = rows(first, "toolRequests")["toolu_13Geo1"]
        assert row["searchRef"]["query"] == "geo.*"
        assert row["searchRef"]["resultTools"] == ["geo_lookup"]
        assert row["searchRef"]["catalogDigest"] == first["evidence"]["callSpec"]["toolCatalogDigest"]
        assert first["policyDocuments"]["deferPolicy"]["deferred"] == ["geo_lookup"]
        assert first["policyDocuments"]["toolExamples"] == {"tools": {"geo_lookup": [{"region": "EMEA"}]}}
        blind = [row for row in first["evidence"]["toolRequests"] if row["toolCallId"] != "toolu_13Geo1"]
        blind.append({key: value for key, value in row.items() if not key.startswith("searchRef")})
        assert classes({**first, "evidence": first["evidence"] | {"toolRequests": blind}}) == (
            "tool.discovery_unresolved",
        )

    @pytest.mark.req("SLICE-06")
    def test_a_program_only_tool_called_by_the_model(self) -> None:
        record = json.loads(log("anthropic-programmatic.jsonl").splitlines()[0])
        record["response"]["content"] = [tool_use("toolu_1", "query_sales")]
        assert "tool.caller_not_allowed" in verdicts(lines([record]))[0]

    def test_a_pause_that_nothing_follows(self) -> None:
        records = [json.loads(line) for line in log("anthropic-programmatic.jsonl").splitlines()[:3]]
        last = turns(lines(records))[-1]
        assert last["evidence"]["protocolState"]["stopReason"] == "pause_turn"
        assert classes(last) == ("tool.join_incomplete", "tool.result_missing")

    def test_a_pause_in_a_transcript(self) -> None:
        served = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}}
        found = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
        pause, rest = message(served, stop="pause_turn"), message(found, text("There."), stop="end_turn")
        assert verdicts(lines([{"role": "user", "content": "Search."}, pause, rest])) == [()]

    def test_unusual_numbers_and_keys_are_kept(self) -> None:
        record = exchanges(message({**tool_use("toolu_1"), "input": {"eps": 1e-7, "größe": 1}}))
        (document,) = turns(lines(record))
        assert document["evidence"]["toolRequests"][0]["input"] == {"eps": 1e-7, "größe": 1}
        assert classes(document) == ("tool.join_incomplete", "tool.result_missing")


class TestFailures:
    """Adversarial cases 18 and 22: what is missing, stray, late, doubled or cut off."""

    def test_the_log_of_failures(self) -> None:
        assert verdicts(log("anthropic-failures.jsonl")) == [
            ("tool.join_incomplete", "tool.result_missing", "tool.result_orphan"),
            ("tool.schema_invalid",),
            ("tool.join_incomplete", "tool.result_missing"),
        ]

    def test_a_late_result_is_an_orphan_where_it_comes(self) -> None:
        late = exchanges(
            message(tool_use("toolu_1"), tool_use("toolu_2")),
            [tool_result("toolu_1")],
            message(tool_use("toolu_3")),
            [tool_result("toolu_3"), tool_result("toolu_2")],
            message(text("done"), stop="end_turn"),
        )
        assert verdicts(lines(late)) == [
            ("tool.join_incomplete", "tool.result_missing"),
            ("tool.join_incomplete", "tool.result_orphan"),
            (),
        ]

    def test_the_same_answer_twice_is_one(self) -> None:
        twice = exchanges(message(tool_use("toolu_1")), [tool_result("toolu_1"), tool_result("toolu_1")])
        assert verdicts(lines(twice)) == [()]

    def test_two_answers_are_invalid_evidence(self) -> None:
        clash = exchanges(message(tool_use("toolu_1")), [tool_result("toolu_1"), tool_result("toolu_1", "other")])
        with pytest.raises(InvalidEvidence) as refused:
            verdicts(lines(clash))
        assert refused.value.path.startswith("/evidence/toolResults")

    @pytest.mark.req("HARN-69", "SLICE-10")
    def test_results_in_another_order_than_calls(self) -> None:
        swapped = exchanges(
            message(tool_use("toolu_1"), tool_use("toolu_2")), [tool_result("toolu_2"), tool_result("toolu_1")]
        )
        strict = {"toolTransportPolicy": {"ordering": "strict"}}
        assert verdicts(lines(swapped)) == [()]
        assert verdicts(lines(swapped), policy=strict) == [("protocol.parallel_transport_order_invalid",)]

    def test_two_calls_where_the_request_forbade_them(self) -> None:
        both = exchanges(
            message(tool_use("toolu_1"), tool_use("toolu_2")),
            [tool_result("toolu_1"), tool_result("toolu_2")],
            tool_choice={"type": "auto", "disable_parallel_tool_use": True},
        )
        assert verdicts(lines(both)) == [("protocol.parallel_transport_order_invalid",)]

    def test_a_tool_that_was_not_offered(self) -> None:
        offered = [{"name": "read", "input_schema": {"type": "object"}}]
        other = exchanges(message(tool_use("toolu_1", "write")), [tool_result("toolu_1")], tools=offered)
        assert verdicts(lines(other)) == [("tool.unknown_or_disallowed",)]

    def test_a_tool_that_was_demanded_and_another_called(self) -> None:
        other = exchanges(
            message(tool_use("toolu_1", "write")),
            [tool_result("toolu_1")],
            tool_choice={"type": "tool", "name": "read"},
        )
        assert verdicts(lines(other)) == [("tool.unknown_or_disallowed",)]

    def test_arguments_that_were_cut_off(self) -> None:
        events: list[dict[str, Any]] = [
            {"type": "message_start", "message": message(stop=None)},
            {"type": "content_block_start", "index": 0, "content_block": {**tool_use("toolu_1"), "input": {}}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": '{"a'}},
            {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
        ]
        (document,) = turns(lines(events))
        assert document["evidence"]["toolRequests"][0]["input"] == '{"a'
        assert classes(document) == (
            "protocol.stop_reason_unhandled",
            "tool.join_incomplete",
            "tool.result_missing",
            "tool.schema_invalid",
        )

    def test_a_refusal_is_not_handled(self) -> None:
        assert verdicts(lines(exchanges(message(text("No."), stop="refusal")))) == [("protocol.stop_reason_unhandled",)]

    def test_server_errors_are_typed(self) -> None:
        served = message(
            {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}},
            {
                "type": "web_search_tool_result",
                "tool_use_id": "srvtoolu_1",
                "content": {"type": "web_search_tool_result_error", "error_code": "max_uses_exceeded"},
            },
            stop="end_turn",
        )
        (document,) = turns(lines(exchanges(served)))
        assert document["evidence"]["toolResults"][0]["errorCode"] == "max_uses_exceeded"
        assert document["evidence"]["toolResults"][0]["retryable"] is False
        assert classes(document) == ()

    def test_a_new_word_of_the_user_ends_a_turn(self) -> None:
        served = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}}
        records = exchanges(message(served, stop="pause_turn"), "Never mind.", message(text("ok"), stop="end_turn"))
        assert verdicts(lines(records)) == [("tool.join_incomplete", "tool.result_missing"), ()]

    def test_history_before_the_log_is_no_turn_of_it(self) -> None:
        records = exchanges(
            message(tool_use("toolu_1")), [tool_result("toolu_1")], message(text("ok"), stop="end_turn")
        )
        assert verdicts(lines(records[1:])) == [()]

    def test_a_call_forged_into_the_repeated_reply(self) -> None:
        records = exchanges(
            message(tool_use("toolu_1")), [tool_result("toolu_1"), tool_result("toolu_2")], message(stop="end_turn")
        )
        records[1]["request"]["messages"][1]["content"].append(tool_use("toolu_2"))
        assert verdicts(lines(records))[0] == ("tool.join_incomplete", "tool.result_orphan")


class TestHorizon:
    def test_turns_are_given_before_the_log_ends(self) -> None:
        from manglecp.adapters import ingest

        read = 0

        def endless() -> Any:
            nonlocal read
            while True:
                read += 1
                yield lines(exchanges(message(text("ok"), stop="end_turn"), first=f"Question {read}"))

        assert next(ingest(endless(), "anthropic"))["turn"]["number"] == 1
        assert read == MAX_OPEN_TURNS + 1


@pytest.mark.parametrize(
    ("record", "path", "message"),
    [
        ({"request": {"messages": [{"role": "user", "content": 3}]}}, "$.request.messages[0].content", "a list"),
        (
            {"request": {"messages": [{"role": "user", "content": [{"type": "tool_result"}]}]}},
            "$.request.messages[0].content[0].tool_use_id",
            "tool_use_id is missing",
        ),
        ({"response": {"content": [{"type": "tool_use", "id": "a"}]}}, "$.response.content[0].name", "name is missing"),
        ({"messages": [{"role": "assistant", "content": [1]}]}, "$.messages[0].content[0]", "an object"),
        ([{"role": "assistant", "content": [1]}], "$[0].content[0]", "an object"),
        ({"request": {"body": {"messages": 3}}}, "$.request.body.messages", "a list"),
        ({"response": [{"type": "ping"}, {"type": "x"}]}, "$.response[1]", "a part of a message"),
        ({"hello": 1}, "$", "neither an exchange"),
        ("hello", "$", "an object"),
        ({"type": "content_block_stop", "index": 0}, "$", "a part of a message that has not started"),
    ],
)
def test_what_cannot_be_read_says_where(record: object, path: str, message: str) -> None:
    with pytest.raises(LogError) as refused:
        turns(lines([{"messages": []}, record]))
    assert (refused.value.line, refused.value.path) == (2, path)
    assert refused.value.message.startswith(message)
