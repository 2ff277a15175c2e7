from __future__ import annotations

from typing import Any

import pytest

from manglecp.harness.canonical_v1 import digest_v1 as digest
from tests.harness.checks.cases import JOIN, accepts, raises
from tests.harness.evidence import ABSENT, classes, judged, turn

SCHEMA = "tool.schema_invalid"
DISALLOWED = "tool.unknown_or_disallowed"
MISMATCH = "tool.discovery_mismatch"
UNRESOLVED = "tool.discovery_unresolved"
EXAMPLES = "tool.example_digest_mismatch"
CALLER = "tool.caller_not_allowed"
EDGE = "tool.programmatic_caller_edge_invalid"
PARALLEL = "tool.parallel_policy_violation"
TRUNCATION = "tool.response_truncation_policy_violation"

ERROR = {"toolCallId": "a", "status": "error", "errorCode": "E1", "retryable": True, "errorMessage": "no"}
OBSERVED = {"toolCallId": "a", "disposition": "observed_only"}
PINNED = {"allowedTools": [{"toolName": "grep", "schemaDigest": "sha256:s", "inputSchema": {"required": ["p"]}}]}
CUT = {
    "truncated": True, "strategy": "middle", "marker": "…", "originalBytes": 900, "keptBytes": 400,
    "headBytes": 250, "tailBytes": 150, "omittedBytes": 500,
}  # fmt: skip
CUTTING = {"maxBytes": 500, "marker": "…", "strategy": "middle"}
SEARCH = {"query": "find", "resultTools": ["grep", "sed"], "resolvedToolName": "grep"}
FOUND = digest(["grep", "sed"])
BLOCK = {"stage": "pre_flight", "sequence": 1, "outcome": "block"}
EDGED = {"callerKind": "code_execution", "parentToolCallId": "b"}


def without(row: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in names}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        raises("mode is not known", SCHEMA, call__actionMode="yaml"),
        raises("choice is not known", SCHEMA, call__toolChoice="most"),
        raises("choice without a mode", SCHEMA, call__toolChoice={"toolName": "grep"}),
        raises("specific without a name", SCHEMA, call__toolChoice="specific"),
        raises("specific with a blank name", SCHEMA, call__toolChoice={"mode": "specific", "toolName": " "}),
        accepts("choice auto", call__toolChoice="AUTO "),
        accepts("choice any", call__toolChoice={"mode": "any"}),
        accepts("choice of a wrong type is not given", call__toolChoice=5),
        raises("validator said no", SCHEMA, request__schemaValid=False),
        accepts("validator said yes", request__schemaValid=True),
        raises("pin of the policy differs", SCHEMA, call__toolPolicy=PINNED, request__schemaDigest="sha256:t"),
        raises("pin in force differs", SCHEMA, tools__schemaDigests={"grep": "s"}, request__schemaDigest="t"),
        accepts("pins agree", call__toolPolicy=PINNED, request__schemaDigest="sha256:s"),
        accepts("pin of another tool of the policy", request__schemaDigest="t", call__toolPolicy={"allowedTools": [
            {"toolName": "grep"}, {"toolName": "sed", "schemaDigest": "s"}]}),
        accepts("pin of another tool", tools__schemaDigests={"sed": "s"}, request__schemaDigest="t"),
        raises("arguments do not fit", SCHEMA, call__toolPolicy=PINNED, request__input={"q": 1}),
        accepts("arguments fit", call__toolPolicy=PINNED, request__input={"p": 1}),
        accepts("arguments of a tool without a schema", call__toolPolicy={"allowedTools": [
            {"toolName": "grep"}, {"toolName": "sed", "inputSchema": {"required": ["p"]}}]}, request__input={"q": 1}),
        accepts("arguments beside an empty place", call__toolPolicy=PINNED, evidence__toolRequests__1=None),
        accepts("no arguments recorded", call__toolPolicy=PINNED, request__input=None),
        raises("free text", SCHEMA, request__sourceBlock=" Free_Text"),
        *(raises(f"block {word}", SCHEMA, request__sourceBlock=word) for word in ("text", "prose", "banana")),
        *(accepts(f"block {word}", request__sourceBlock=word)
          for word in ("tool_use", "function_call", "code_block", " Adapter ", "")),
        raises("text without adapter", SCHEMA, call__actionMode="text"),
        raises("adapter not registered", SCHEMA, call__actionMode="text", request__parserProfileId="p",
               tools__parserProfiles=["q"]),
        raises("no adapter is registered", SCHEMA, call__actionMode="text", request__parserProfileId="p",
               tools__parserProfiles=[]),
        raises("adapter not of the policy", SCHEMA, call__actionMode="text", request__parserProfileId="p",
               call__toolPolicy={"parserProfileId": "q"}),
        raises("policy without adapter", SCHEMA, call__actionMode="text",
               call__toolPolicy={"allowedTools": [{"toolName": "grep"}]}),
        accepts("adapter where the policy names none", call__actionMode="text", request__parserProfileId="p",
                call__toolPolicy={"allowedTools": [{"toolName": "grep"}]}),
        accepts("adapter named", call__actionMode="text", request__parserProfileId="p"),
        accepts("adapter registered", call__actionMode="text", request__parserProfileId="p",
                tools__parserProfiles=["p"]),
        accepts("adapter of the policy", call__actionMode="text", call__toolPolicy={"parserProfileId": "q"}),
        raises("program without output", SCHEMA, call__actionMode="code", request__toolKind="code_execution"),
        raises("program without stderr", SCHEMA, call__actionMode="code", request__toolKind="code_execution",
               result__observation={"stdoutDigest": "d"}),
        raises("program without stdout", SCHEMA, call__actionMode="code", request__toolKind="code_execution",
               result__observation={"stderrDigest": "d"}),
        accepts("program with both", call__actionMode="code", request__toolKind="code_execution",
                result__observation={"stdoutDigest": "d", "stderrDigest": "e"}),
        accepts("program outside of code mode", request__toolKind="code_execution"),
        raises("token delta wrong", SCHEMA,
               result__tokenUsage={"unfilteredTokens": 9, "filteredTokens": 4, "deltaTokens": 4}),
        raises("token delta of nothing", SCHEMA, result__tokenUsage={"deltaTokens": 4, "filteredTokens": 4}),
        raises("token delta of half", SCHEMA, result__tokenUsage={"deltaTokens": 4, "unfilteredTokens": 4}),
        accepts("token delta right",
                result__tokenUsage={"unfilteredTokens": 9, "filteredTokens": 4, "deltaTokens": 5}),
        accepts("tokens without delta", result__tokenUsage={"unfilteredTokens": 9}),
        raises("provenance absent", SCHEMA, tools__requireResultProvenance=True),
        raises("provenance of no kind", SCHEMA, tools__requireResultProvenance=True,
               result__provenance={"kind": "rumour", "ref": "x"}),
        raises("provenance to nothing", SCHEMA, tools__requireResultProvenance=True,
               result__provenance={"kind": "api", "ref": ""}),
        accepts("provenance there", tools__requireResultProvenance=True,
                result__provenance={"kind": "runtime_route", "ref": "x"}),
        accepts("provenance not owed", result__provenance={"kind": "rumour"}),
        raises("discarded without reason", SCHEMA, use__disposition="discarded_with_reason"),
        accepts("discarded upstream", use__disposition="discarded"),
        accepts("discarded with reason", use__disposition="discarded_with_reason", use__reasonCode="dup"),
        raises("retry of a success", SCHEMA, use__disposition="retry_scheduled"),
    ],
)  # fmt: skip
@pytest.mark.req("HARN-44")
def test_shape(changes: dict[str, Any], expected: set[str]) -> None:
    assert classes(turn(), changes) == expected


@pytest.mark.parametrize(
    ("missing", "raw", "ok"),
    [
        ((), None, True),
        (("errorCode",), None, False),
        (("retryable",), None, False),
        (("errorMessage",), None, False),
        (("errorCode", "retryable", "errorMessage"), "it broke", False),
        (("errorCode", "retryable", "errorMessage"), {"code": "E", "retryable": False, "message": "m"}, True),
        (("errorCode",), {"errorCode": " ", "code": "E"}, True),
        (("errorMessage",), {"errorMessage": "m"}, True),
        (("retryable",), {"retryable": "yes"}, False),
    ],
)
@pytest.mark.req("FAIL-02", "HARN-06", "HARN-53", "HARN-75")
def test_an_error_is_typed_or_it_is_none(missing: tuple[str, ...], raw: object, ok: bool) -> None:
    row = {**without(ERROR, *missing), "rawError": raw}
    document = turn(toolResults=[row], toolUse=[OBSERVED])
    assert classes(document) == (set() if ok else {SCHEMA})


@pytest.mark.req("HARN-61", "FAIL-02")
@pytest.mark.parametrize(("retryable", "expected"), [(True, set()), (False, {SCHEMA})])
def test_only_retryable_errors_are_tried_again(retryable: bool, expected: set[str]) -> None:
    row = {**ERROR, "retryable": retryable}
    assert classes(turn(toolResults=[row], toolUse=[{**OBSERVED, "disposition": "retry_scheduled"}])) == expected


@pytest.mark.req("FAIL-02", "HARN-79", "SLICE-04")
@pytest.mark.parametrize(("mode", "expected"), [("json", {SCHEMA}), ("text", {SCHEMA}), ("code", set())])
def test_one_call_per_action_unless_it_is_code(mode: str, expected: set[str]) -> None:
    changes = {
        "evidence.callSpec.actionMode": mode,
        "evidence.toolRequests.0.actionIndex": 1,
        "evidence.toolRequests.1.actionIndex": 1,
        "evidence.callSpec.toolPolicy": {"parserProfileId": "p"},
    }
    assert classes(turn("a", "b"), changes) == expected
    assert classes(turn("a", "b"), {**changes, "evidence.toolRequests.1.actionIndex": 2}) == set()
    assert classes(turn("a", "b"), {**changes, "evidence.toolRequests.1.actionIndex": None}) == set()


def test_schemas_without_calls() -> None:
    assert (
        classes(turn(toolRequests=None, toolResults=[], toolUse=[]), {"evidence.callSpec.toolPolicy": PINNED}) == set()
    )


def test_any_needs_a_call() -> None:
    document = turn(toolRequests=[], toolResults=[], toolUse=[], toolRender=[])
    assert classes(document, {"evidence.callSpec.toolChoice": "any"}) == {SCHEMA}
    assert classes(document, {"evidence.callSpec.toolChoice": "auto"}) == set()
    assert classes(document) == set()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        raises("not on the list of the call", DISALLOWED, call__toolPolicy={"allowedTools": [{"toolName": "sed"}]}),
        raises("not on the list in force", DISALLOWED, tools__allowedTools=["sed"]),
        raises("lists intersect", DISALLOWED, call__toolPolicy={"allowedTools": [{"toolName": "grep"}]},
               tools__allowedTools=["sed"]),
        raises("an empty list allows nothing", DISALLOWED, tools__allowedTools=[]),
        raises("an empty list of the call allows nothing", DISALLOWED, call__toolPolicy={"allowedTools": []}),
        raises("an entry without a name allows nothing", DISALLOWED, call__toolPolicy={"allowedTools": [{}]}),
        raises("not in the catalogue", DISALLOWED, tools__catalogTools=["sed"]),
        raises("not the demanded one", DISALLOWED, call__toolChoice={"mode": "specific", "toolName": "sed"}),
        accepts("on every list", call__toolPolicy={"allowedTools": [{"toolName": "grep"}]},
                tools__allowedTools=["grep"], tools__catalogTools=["grep"]),
        accepts("the demanded one", call__toolChoice={"mode": "specific", "toolName": "grep"}),
        accepts("auto demands none", call__toolChoice={"mode": "auto", "toolName": "sed"}),
        raises("blocked and ok", DISALLOWED, evidence__guardrailDecisions=[{**BLOCK, "toolCallId": "a"}]),
        raises("all blocked and ok", DISALLOWED, evidence__guardrailDecisions=[BLOCK]),
        accepts("another call blocked", evidence__guardrailDecisions=[{**BLOCK, "toolCallId": "z"}]),
        accepts("blocked afterwards", evidence__guardrailDecisions=[{**BLOCK, "stage": "output"}]),
        accepts("warned", evidence__guardrailDecisions=[{**BLOCK, "outcome": "warn"}]),
        accepts("blocked and failed", evidence__guardrailDecisions=[BLOCK],
                evidence__toolResults=[{**ERROR, "status": "denied"}], evidence__toolUse=[OBSERVED]),
        raises("catalogue expected is another", MISMATCH, tools__expectedToolCatalogDigest="c"),
        raises("loading policy expected is another", MISMATCH, tools__expectedDeferPolicyDigest="c"),
        accepts("both expected", call__toolCatalogDigest="c", call__deferPolicyDigest="d",
                tools__expectedToolCatalogDigest="c", tools__expectedDeferPolicyDigest="d"),
        raises("search over another catalogue", MISMATCH, call__toolCatalogDigest="c",
               request__searchRef={**SEARCH, "catalogDigest": "d"}),
        raises("search over a catalogue the call does not name", MISMATCH,
               request__searchRef={**SEARCH, "catalogDigest": "d"}),
        accepts("search over the catalogue", call__toolCatalogDigest="c",
                request__searchRef={**SEARCH, "catalogDigest": "c"}),
        accepts("search that names no catalogue", call__toolCatalogDigest="c", request__searchRef=SEARCH),
        raises("result set forged", MISMATCH, request__searchRef={**SEARCH, "resultSetDigest": "x"}),
        accepts("result set true", request__searchRef={**SEARCH, "resultSetDigest": FOUND}),
        accepts("result set of an unsorted list with repetitions",
                request__searchRef={**SEARCH, "resultTools": ["sed", "grep", "sed"], "resultSetDigest": FOUND}),
        accepts("result set without a list", request__searchRef={"resultSetDigest": "x"}),
        raises("search digest forged", MISMATCH, request__searchRef=SEARCH, request__searchRefDigest="x"),
        accepts("search digest true", request__searchRef={**SEARCH, "extra": 1},
                request__searchRefDigest=digest({**SEARCH, "extra": 1})),
        raises("deferred and not searched", UNRESOLVED, tools__deferredTools=["grep"]),
        accepts("deferred and searched", tools__deferredTools=["grep"], request__searchRef=SEARCH),
        accepts("deferred with a digest", tools__deferredTools=["grep"], request__searchRefDigest="x"),
        accepts("another deferred", tools__deferredTools=["sed"]),
        raises("not found", UNRESOLVED, request__searchRef={"resultTools": ["sed"]}),
        raises("nothing found", UNRESOLVED, request__searchRef={"resultTools": []}),
        raises("resolved to another", UNRESOLVED, request__searchRef={"resolvedToolName": "sed"}),
        raises("examples expected are others", EXAMPLES, tools__expectedToolExampleDigest="e"),
        accepts("examples expected", call__toolExampleDigest="e", tools__expectedToolExampleDigest="e"),
        raises("examples of the tool are others", EXAMPLES, tools__exampleDigests={"grep": "e"},
               request__exampleDigest="f"),
        raises("examples of the tool are not recorded", EXAMPLES, tools__exampleDigests={"grep": "e"}),
        accepts("examples of the tool", tools__exampleDigests={"grep": "e"}, request__exampleDigest="e"),
        accepts("examples without a pin", request__exampleDigest="f"),
        raises("callers expected are others", CALLER, tools__expectedAllowedCallersDigest="c"),
        accepts("callers expected", call__allowedCallersDigest="c", tools__expectedAllowedCallersDigest="c"),
        raises("direct call not allowed", CALLER, tools__allowedCallers={"grep": ["code_execution"]}),
        raises("nobody may call", CALLER, tools__allowedCallers={"grep": []}),
        raises("caller by id not allowed", CALLER, tools__allowedCallers={"grep": ["direct"]},
               request__callerId="agent-7"),
        accepts("caller by id allowed", tools__allowedCallers={"grep": ["agent-7"]}, request__callerId="agent-7"),
        accepts("a tool without a list", tools__allowedCallers={"sed": []}),
    ],
)  # fmt: skip
def test_permission(changes: dict[str, Any], expected: set[str]) -> None:
    assert classes(turn(), changes) == expected


@pytest.mark.req("FAIL-03", "HARN-50")
def test_a_blocked_call_and_its_block_are_both_pointed_at() -> None:
    """Otherwise the turn would be accepted without the blocking decision, which had no finding."""
    found = judged(turn(), {"evidence.guardrailDecisions": [BLOCK]}).findings
    assert [finding.where for finding in found] == ["guardrailDecisions/1", "toolResults/a"]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        accepts("child of a program", result__callerEdge=EDGED),
        accepts("edge that names its child", result__callerEdge={**EDGED, "childToolCallId": "a"}),
        accepts("edge without a kind", result__callerEdge={"parentToolCallId": "b"}, request__callerId="agent7",
                tools__allowedCallers={"grep": ["agent7"]}),
        raises("edge without a kind, by nobody", CALLER, result__callerEdge={"parentToolCallId": "b"},
               tools__allowedCallers={"grep": ["code_execution"]}),
        raises("parent unknown", EDGE, result__callerEdge={**EDGED, "parentToolCallId": "z"}),
        raises("no parent", EDGE, result__callerEdge={"callerKind": "code_execution"}),
        raises("parent is itself", EDGE, result__callerEdge={**EDGED, "parentToolCallId": "a"},
               request__toolKind="code_execution", result__observation={"stdoutDigest": "d", "stderrDigest": "e"}),
        raises("parent is no program", EDGE, result__callerEdge=EDGED,
               evidence__toolRequests__1__toolKind="function"),
        raises("another child", EDGE, result__callerEdge={**EDGED, "childToolCallId": "z"}),
        raises("program without an edge", EDGE, request__callerId="Code_Execution"),
        accepts("kind of the edge may call", result__callerEdge={**EDGED, "callerKind": "Agent"},
                tools__allowedCallers={"grep": ["agent"]}),
        raises("kind of the edge may not call", CALLER, result__callerEdge=EDGED,
               request__callerId="direct", tools__allowedCallers={"grep": ["direct"]}),
    ],
)  # fmt: skip
@pytest.mark.req("HARN-54", "SLICE-06")
def test_caller_edges(changes: dict[str, Any], expected: set[str]) -> None:
    document = turn("a", "b")
    document["evidence"]["callSpec"]["actionMode"] = "code"
    document["evidence"]["toolRequests"][1] |= {"toolKind": "code_execution", "toolName": "python"}
    document["evidence"]["toolResults"][1]["observation"] = {"stdoutDigest": "d", "stderrDigest": "e"}
    assert classes(document, changes) == expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        raises("forbidden by a word", PARALLEL, call__parallelPolicy="forbid"),
        raises("a word that is not known", PARALLEL, call__parallelPolicy="maybe"),
        raises("forbidden by a flag", PARALLEL, call__parallelPolicy={"allowed": False}),
        accepts("allowed by a word", call__parallelPolicy="allow"),
        accepts("a cap without a flag", call__parallelPolicy={"maxBranches": 2}),
        raises("over the cap", PARALLEL, call__parallelPolicy={"allowed": True, "maxBranches": 1}),
        raises("under the expected", PARALLEL, call__parallelPolicy={"allowed": True, "expectedBranches": 3}),
        accepts("as expected", call__parallelPolicy={"allowed": True, "expectedBranches": 2, "maxBranches": 2}),
        accepts("in two groups", call__parallelPolicy="forbid", request__callGroupId="g"),
        accepts("in one branch", call__parallelPolicy="forbid", request__branchId="b"),
        raises("in two branches", PARALLEL, call__parallelPolicy="forbid", request__branchId="b",
               request__callGroupId="g", evidence__toolRequests__1__branchId="c"),
        accepts("one is the child of a program", call__parallelPolicy="forbid", request__callerId="code_execution",
                request__toolKind="code_execution", evidence__toolResults__0__callerEdge={
                    "callerKind": "code_execution", "parentToolCallId": "b"},
                evidence__toolRequests__1__toolKind="code_execution"),
    ],
)  # fmt: skip
@pytest.mark.req("HARN-66")
def test_width(changes: dict[str, Any], expected: set[str]) -> None:
    assert classes(turn("a", "b"), changes) == expected


@pytest.mark.req("FAIL-14")
def test_a_parallel_pattern_is_forbidden_with_the_rest() -> None:
    changes = {"evidence.callSpec.parallelPolicy": "forbid", "evidence.callSpec.executionPattern": "parallel"}
    assert classes(turn(), changes) == {PARALLEL}
    assert classes(turn(), {"evidence.callSpec.executionPattern": "parallel"}) == set()
    assert classes(turn(), changes | {"evidence.callSpec.parallelPolicy": "allow"}) == set()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        raises("no result", "tool.result_missing", JOIN, "tool.use_without_result",
               evidence__toolResults=[]),
        raises("no result and no use", "tool.result_missing", JOIN, evidence__toolResults=[], evidence__toolUse=[]),
        raises("still running", "tool.result_missing", JOIN, "tool.use_unknown_result", result__status="running"),
        raises("orphan", "tool.result_orphan", JOIN, evidence__toolRequests=[]),
        raises("no use", "tool.use_missing", JOIN, evidence__toolUse=[]),
        raises("retry of what never ended is a matter of the join", "tool.result_missing", JOIN,
               "tool.use_unknown_result", result__status="running", use__disposition="retry_scheduled"),
        raises("retry of what never came is a matter of the join", "tool.result_missing", JOIN,
               "tool.use_without_result", evidence__toolResults=[], use__disposition="retry_scheduled"),
        raises("another digest", "tool.use_unknown_result", JOIN, use__resultDigest="x"),
        raises("a digest where there is none", "tool.use_unknown_result", JOIN, result__resultDigest=ABSENT),
        accepts("no digest cited", use__resultDigest=ABSENT),
        raises("ghost", "tool.use_without_result", JOIN,
               evidence__toolUse__1={"toolCallId": "z", "disposition": "observed"}),
        raises("open branch", JOIN, evidence__branchJoins=[{"branchId": "b", "joinClosed": False}]),
        raises("branch that does not say", JOIN, evidence__branchJoins=[{"branchId": "b"}]),
        raises("branch without a name", JOIN, evidence__branchJoins=[{"joinClosed": None}]),
        accepts("closed branch", evidence__branchJoins=[{"branchId": "b", "joinClosed": True}]),
        accepts("running row beside the result",
                evidence__toolResults__1={"toolCallId": "a", "status": "running"}),
    ],
)  # fmt: skip
@pytest.mark.req("HARN-65")
def test_join(changes: dict[str, Any], expected: set[str]) -> None:
    assert classes(turn(), changes) == expected


@pytest.mark.req("FAIL-10")
def test_an_open_branch_is_pointed_at() -> None:
    rows = [{"branchId": "b/1", "joinClosed": False}, {"joinClosed": False}]
    found = judged(turn(), {"evidence.branchJoins": rows}).findings
    assert [finding.where for finding in found] == ["branchJoins/", "branchJoins/b~11"]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        raises("required and not attested", TRUNCATION, truncationConstraints={"required": True}),
        raises("required and invalid", TRUNCATION, truncationConstraints={"required": True, "valid": False}),
        raises("invalid in spite of limits", TRUNCATION,
               truncationConstraints={"required": True, "valid": False, "maxBytes": 9}),
        accepts("required and valid", truncationConstraints={"required": True, "valid": True}),
        accepts("required and computed", truncationConstraints={"required": True, "maxBytes": 9}),
        accepts("invalid and not required", truncationConstraints={"valid": False}),
        raises("valid but over budget", TRUNCATION, result__payloadBytes=10,
               truncationConstraints={"required": True, "valid": True, "maxBytes": 9}),
        raises("over the budget of the call", TRUNCATION, call__toolResponseTruncationPolicy={"maxBytes": 9},
               result__payloadBytes=10),
        accepts("at the budget", call__toolResponseTruncationPolicy={"maxBytes": 9}, result__payloadBytes=9),
        raises("the lower budget counts", TRUNCATION, call__toolResponseTruncationPolicy={"maxBytes": 90},
               truncationConstraints={"maxBytes": 9}, result__payloadBytes=10),
        raises("said to be uncut", TRUNCATION, call__toolResponseTruncationPolicy={"maxBytes": 9},
               result__payloadBytes=10, result__truncation={"truncated": False}),
        raises("the payload itself is over", TRUNCATION, call__toolResponseTruncationPolicy={"maxBytes": 9},
               result__payload="ten bytes!", result__payloadBytes=1),
        raises("the payload is JSON", TRUNCATION, call__toolResponseTruncationPolicy={"maxBytes": 9},
               result__payload={"k": [1, 2, 3]}),
        accepts("said to be uncut, and small", result__truncation={"truncated": False}, result__payloadBytes=10),
        accepts("large without a budget", call__toolResponseTruncationPolicy={"marker": "…"}, result__payloadBytes=10),
        accepts("cut to the budget", call__toolResponseTruncationPolicy={**CUTTING, "maxBytes": 400},
                result__truncation=CUT),
        accepts("cut as the policy says", call__toolResponseTruncationPolicy=CUTTING, result__truncation=CUT),
        accepts("large and cut", call__toolResponseTruncationPolicy=CUTTING, result__truncation=CUT,
                result__payloadBytes=900),
        raises("cut without policy", TRUNCATION, result__truncation=CUT),
        raises("cut without saying so", TRUNCATION, result__truncation=without(CUT, "truncated")),
        raises("original unknown", TRUNCATION, call__toolResponseTruncationPolicy=CUTTING,
               result__truncation=without(CUT, "originalBytes")),
        raises("kept unknown", TRUNCATION, call__toolResponseTruncationPolicy=CUTTING,
               result__truncation={**CUT, "keptBytes": "400"}),
        raises("kept all", TRUNCATION, call__toolResponseTruncationPolicy=CUTTING,
               result__truncation={**without(CUT, "omittedBytes"), "originalBytes": 400}),
        raises("kept less than nothing", TRUNCATION, call__toolResponseTruncationPolicy={"strategy": "head"},
               result__truncation={"strategy": "head", "originalBytes": 4, "keptBytes": -1}),
        raises("kept too much", TRUNCATION, call__toolResponseTruncationPolicy={**CUTTING, "maxBytes": 399},
               result__truncation=CUT),
        raises("other marker", TRUNCATION, call__toolResponseTruncationPolicy={**CUTTING, "marker": "~"},
               result__truncation=CUT),
        raises("other strategy", TRUNCATION, call__toolResponseTruncationPolicy={**CUTTING, "strategy": "tail"},
               result__truncation=CUT),
        raises("other marker than the constraint", TRUNCATION, call__toolResponseTruncationPolicy=CUTTING,
               truncationConstraints={"marker": "~"}, result__truncation=CUT),
        raises("no head", TRUNCATION, call__toolResponseTruncationPolicy=CUTTING,
               result__truncation={**CUT, "headBytes": 0, "tailBytes": 400}),
        raises("no head recorded", TRUNCATION, call__toolResponseTruncationPolicy=CUTTING,
               result__truncation=without(CUT, "headBytes")),
        raises("no tail", TRUNCATION, call__toolResponseTruncationPolicy=CUTTING,
               result__truncation={**without(CUT, "tailBytes"), "headBytes": 400}),
        raises("head and tail do not sum", TRUNCATION, call__toolResponseTruncationPolicy=CUTTING,
               result__truncation={**CUT, "headBytes": 1}),
        raises("omitted wrong", TRUNCATION, call__toolResponseTruncationPolicy=CUTTING,
               result__truncation={**CUT, "omittedBytes": 1}),
        accepts("a head needs no tail", call__toolResponseTruncationPolicy={"strategy": "head"},
                result__truncation={"strategy": "head", "originalBytes": 9, "keptBytes": 4}),
    ],
)  # fmt: skip
@pytest.mark.req("HARN-56", "SLICE-10")
def test_truncation(changes: dict[str, Any], expected: set[str]) -> None:
    assert classes(turn(), changes) == expected
