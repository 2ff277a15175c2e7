from __future__ import annotations

from typing import Any

import pytest

from manglecp.harness.judgement import judge
from tests.harness.checks.cases import accepts, raises
from tests.harness.evidence import ABSENT, classes, turn

STOP = "protocol.stop_reason_unhandled"
ORDER = "protocol.parallel_transport_order_invalid"
STRICT = {"ordering": "strict"}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        raises("not handled by default", STOP, state__stopReason="refusal"),
        accepts("another case", state__stopReason=" End_Turn "),
        accepts("handled by the policy", state__stopReason="refusal",
                call__protocolStatePolicy={"handledStopReasons": ["Refusal"]}),
        raises("not handled by the policy", STOP, call__protocolStatePolicy={"handledStopReasons": ["refusal"]}),
        raises("the policy handles nothing", STOP, call__protocolStatePolicy={"handledStopReasons": []}),
        raises("goes on after a stop", STOP, call__protocolStatePolicy={"continuation": {"TOOL_USE": "Stop"}}),
        accepts("goes on after a pause", call__protocolStatePolicy={"continuation": {"tool_use": "resume"}}),
        accepts("stops where it has to", call__protocolStatePolicy={"continuation": {"tool_use": "stop"}},
                state__continuationAllowed=False),
        raises("past the last turn", STOP, call__stopPolicy={"maxTurns": 4}, state__turnIndex=5,
               state__continuationAllowed=False),
        raises("on from the last turn", STOP, call__stopPolicy={"maxTurns": 4}, state__turnIndex=4),
        raises("no turns at all", STOP, call__stopPolicy={"maxTurns": 0}, state__turnIndex=0),
        accepts("the last turn", call__stopPolicy={"maxTurns": 4}, state__turnIndex=4,
                state__continuationAllowed=False),
        accepts("before the last turn", call__stopPolicy={"maxTurns": 4}, state__turnIndex=3),
        accepts("a turn that is not counted", call__stopPolicy={"maxTurns": 4}),
        accepts("iterations that are not limited", call__stopPolicy={"maxTurns": 4}, state__iteration=9),
        accepts("iterations that are not counted", call__stopPolicy={"maxIterations": 3}),
        raises("past the last iteration", STOP, call__stopPolicy={"maxIterations": 3}, state__iteration=4),
        accepts("the last iteration", call__stopPolicy={"maxIterations": 3}, state__iteration=3),
        raises("checkpoint due", STOP, call__stopPolicy={"requireCheckpoint": True}),
        raises("checkpoint due every fifth turn", STOP, state__turnIndex=10,
               call__stopPolicy={"requireCheckpoint": True, "checkpointEveryTurns": 5}),
        raises("a period of nothing", STOP, state__turnIndex=1,
               call__stopPolicy={"requireCheckpoint": True, "checkpointEveryTurns": 0}),
        accepts("checkpoint of a turn that is not counted",
                call__stopPolicy={"requireCheckpoint": True, "checkpointEveryTurns": 1}),
        accepts("checkpoint not due yet", state__turnIndex=9,
                call__stopPolicy={"requireCheckpoint": True, "checkpointEveryTurns": 5}),
        accepts("checkpoint there", call__stopPolicy={"requireCheckpoint": True}, state__checkpointRef="c"),
        accepts("checkpoint not owed at the end", call__stopPolicy={"requireCheckpoint": True},
                state__continuationAllowed=False),
        accepts("checkpoint not required", call__stopPolicy={"checkpointEveryTurns": 1}, state__turnIndex=1),
    ],
)  # fmt: skip
@pytest.mark.req("HARN-42", "HARN-43", "HARN-68", "SLICE-07")
def test_stop(changes: dict[str, Any], expected: set[str]) -> None:
    assert classes(turn(), changes) == expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        raises("the runtime says so", ORDER, protocolConstraints={"parallelTransportOrderValid": False}),
        accepts("the runtime is content", protocolConstraints={"parallelTransportOrderValid": True}),
        raises("two at once", ORDER, call__toolTransportPolicy={"parallelToolCalls": False}),
        accepts("two at once allowed", call__toolTransportPolicy={"parallelToolCalls": True}),
        accepts("one after the other", call__toolTransportPolicy={"parallelToolCalls": False},
                request__callGroupId="g"),
        accepts("in order", call__toolTransportPolicy=STRICT),
        raises("a word that is not known is strict", ORDER, call__toolTransportPolicy={"ordering": "loose"},
               result__sequence=9),
        raises("swapped", ORDER, call__toolTransportPolicy=STRICT, result__sequence=9),
        raises("swapped although attested", ORDER, call__toolTransportPolicy=STRICT, result__sequence=9,
               protocolConstraints={"parallelTransportOrderValid": True}),
        accepts("swapped where any order will do", call__toolTransportPolicy={"ordering": "any"}, result__sequence=9),
        accepts("swapped between groups", call__toolTransportPolicy=STRICT, result__sequence=9,
                request__callGroupId="g"),
        raises("two in one position", ORDER, call__toolTransportPolicy=STRICT, request__ordinal=2),
        raises("two outputs in one position", ORDER, call__toolTransportPolicy=STRICT, result__sequence=2),
        raises("call without position", ORDER, call__toolTransportPolicy=STRICT, request__ordinal=ABSENT),
        raises("output without position", ORDER, call__toolTransportPolicy=STRICT, result__sequence=ABSENT),
        raises("one call without position", ORDER, call__toolTransportPolicy=STRICT, result__sequence=ABSENT,
               request__callGroupId="g"),
        raises("an unanswered call is missing and nothing else", "tool.result_missing", "tool.join_incomplete",
               call__toolTransportPolicy=STRICT, evidence__toolResults__0=ABSENT, evidence__toolUse__0=ABSENT),
    ],
)  # fmt: skip
@pytest.mark.req("HARN-22", "HARN-49", "HARN-69", "SLICE-10")
def test_transport(changes: dict[str, Any], expected: set[str]) -> None:
    document = turn("a", "b")
    for index in (0, 1):
        document["evidence"]["toolRequests"][index]["ordinal"] = index + 1
        document["evidence"]["toolResults"][index]["sequence"] = index + 1
    assert classes(document, changes) == expected


@pytest.mark.req("FAIL-18")
def test_an_output_without_position_is_named_at_its_result() -> None:
    document = turn()
    document["evidence"]["callSpec"]["toolTransportPolicy"] = STRICT
    document["evidence"]["toolRequests"][0]["ordinal"] = 1
    assert [(finding.failure.name, finding.where) for finding in judge(document).findings] == [(ORDER, "toolResults/a")]


@pytest.mark.req("FAIL-18")
def test_what_a_program_calls_is_not_called_at_once() -> None:
    document = turn("a", "b")
    document["evidence"]["toolRequests"][0]["toolKind"] = "code_execution"
    document["evidence"]["toolResults"][1]["callerEdge"] = {"callerKind": "code_execution", "parentToolCallId": "a"}
    assert classes(document, {"evidence.callSpec.toolTransportPolicy": {"parallelToolCalls": False}}) == set()
