from __future__ import annotations

from typing import Any

import pytest

from tests.harness.checks.cases import accepts, raises
from tests.harness.evidence import classes, turn

QUEUE = "context.queue_policy_violation"
INJECTION = "context.injection_point_missing"
SCOPE = "context.scope_violation"

ENTRIES = [{"reminderDigest": "r1"}, {"reminderDigest": "r2", "batchId": "b"}]
METERED = {"unfilteredTokens": 9, "filteredTokens": 4, "filterApplied": True}
NOTHING: dict[str, Any] = {"evidence__toolRender": [], "evidence__reminderQueue": [], "evidence__stateViews": []}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        raises("never rendered", INJECTION, evidence__toolRender=[]),
        raises("no view", INJECTION, evidence__stateViews=[]),
        raises("no queue", QUEUE, evidence__reminderQueue=[]),
        raises("owed because it goes on", INJECTION, QUEUE, use__disposition="observed", **NOTHING),
        raises("owed because it was consumed", INJECTION, QUEUE, state__continuationAllowed=False, **NOTHING),
        accepts("not owed", use__disposition="observed", state__continuationAllowed=False, **NOTHING),
        raises("render under another policy", QUEUE, evidence__toolRender__0__policyDigest="x"),
        raises("queue under another policy", QUEUE, evidence__reminderQueue__0__policyDigest="x"),
        raises("view under another policy", QUEUE, evidence__stateViews__0__policyDigest="x"),
        accepts("another policy where nothing is owed", use__disposition="observed",
                state__continuationAllowed=False, evidence__stateViews__0__policyDigest="x"),
        raises("required queue absent", QUEUE, contextConstraints={"requiredQueueIds": ["q", "r"]}),
        accepts("required queue there", contextConstraints={"requiredQueueIds": ["q"]}),
        raises("required view absent", INJECTION, contextConstraints={"requiredStateViewIds": ["v", "w"]}),
        accepts("required view there", contextConstraints={"requiredStateViewIds": ["v"]}),
        raises("reminded twice", QUEUE, contextConstraints={"dedup": True},
               evidence__reminderQueue__0__entries=[*ENTRIES, {"reminderDigest": "r2"}]),
        accepts("reminded twice without dedup",
                evidence__reminderQueue__0__entries=[*ENTRIES, {"reminderDigest": "r2"}]),
        accepts("reminded once", contextConstraints={"dedup": True}, evidence__reminderQueue__0__entries=ENTRIES),
        accepts("entries without digest are no repetitions", contextConstraints={"dedup": True},
                evidence__reminderQueue__0__entries=[{}, {}]),
        raises("batch too large", QUEUE, contextConstraints={"maxBatchSize": 1},
               evidence__reminderQueue__0__entries=ENTRIES),
        raises("equal entries count", QUEUE, contextConstraints={"maxBatchSize": 1},
               evidence__reminderQueue__0__entries=[ENTRIES[0], ENTRIES[0]]),
        accepts("batch of the right size", contextConstraints={"maxBatchSize": 2},
                evidence__reminderQueue__0__entries=ENTRIES),
        raises("injection point not allowed", INJECTION, contextConstraints={"allowedInjectionPoints": ["system"]}),
        accepts("injection point allowed", contextConstraints={"allowedInjectionPoints": ["Tool_Response"]}),
    ],
)  # fmt: skip
@pytest.mark.req("HARN-05", "HARN-24", "HARN-28", "HARN-29", "HARN-70", "HARN-85")
def test_what_the_model_is_shown(changes: dict[str, Any], expected: set[str]) -> None:
    assert classes(turn(), changes) == expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        raises("forbidden and applied", QUEUE, call__preContextFilterPolicy={"mode": "Forbidden"},
               result__tokenUsage=METERED),
        raises("a mode that is not known forbids", QUEUE, call__preContextFilterPolicy={"mode": "never"},
               result__tokenUsage=METERED),
        accepts("forbidden and not applied", call__preContextFilterPolicy={"mode": "forbidden"}),
        accepts("forbidden for another tool", call__preContextFilterPolicy={"mode": "forbidden", "tools": ["sed"]},
                result__tokenUsage=METERED),
        raises("forbidden for this tool", QUEUE, result__tokenUsage=METERED,
               call__preContextFilterPolicy={"mode": "forbidden", "tools": ["grep"]}),
        raises("required and unmetered", QUEUE, call__preContextFilterPolicy={"mode": "required"}),
        raises("required and half metered", QUEUE, call__preContextFilterPolicy={"mode": "required"},
               result__tokenUsage={"filteredTokens": 4}),
        raises("required and half metered otherwise", QUEUE, call__preContextFilterPolicy={"mode": "required"},
               result__tokenUsage={"unfilteredTokens": 4}),
        accepts("required and metered, and nothing left out", call__preContextFilterPolicy={"mode": "required"},
                result__tokenUsage={**METERED, "filterApplied": False}),
        accepts("required and metered", call__preContextFilterPolicy={"mode": "required"},
                result__tokenUsage=METERED),
        raises("required of a tool that nobody called", "tool.result_orphan", "tool.join_incomplete",
               call__preContextFilterPolicy={"mode": "required", "tools": ["grep"]}, evidence__toolRequests=[]),
        accepts("required of another tool", call__preContextFilterPolicy={"mode": "required", "tools": ["sed"]}),
        accepts("allowed", call__preContextFilterPolicy={"mode": "allowed"}, result__tokenUsage=METERED),
        accepts("no mode", call__preContextFilterPolicy={"tools": ["grep"]}, result__tokenUsage=METERED),
    ],
)  # fmt: skip
@pytest.mark.req("HARN-19", "HARN-55")
def test_filter(changes: dict[str, Any], expected: set[str]) -> None:
    assert classes(turn(), changes) == expected


def reads(ref: str, **more: str) -> dict[str, Any]:
    return {"evidence__contextAccess": [{"ref": ref, **more}]}


def holds(**artifact: Any) -> dict[str, Any]:
    return {"evidence__artifacts": [{"ref": "art", **artifact}]}


SCOPES = {"roleScopes": {"Specialist": {"read": ["beds/"], "write": ["beds/own/"]}}}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        accepts("another case of the role", call__orchestrationRole=" Specialist"),
        raises("role not known", SCOPE, call__orchestrationRole="boss"),
        raises("other scope expected", SCOPE, contextConstraints={"expectedScopeDigest": "s"}),
        accepts("scope expected", call__contextScopeDigest="s", contextConstraints={"expectedScopeDigest": "s"}),
        accepts("reads inside", contextConstraints=SCOPES, **reads("beds/1")),
        raises("reads outside", SCOPE, contextConstraints=SCOPES, **reads("plan/1")),
        raises("reads what it may only write", SCOPE, contextConstraints={
            "roleScopes": {"Specialist": {"read": ["beds/"], "write": ["notes/"]}}}, **reads("notes/1")),
        accepts("writes inside", contextConstraints=SCOPES, **reads("beds/own/1", access="write")),
        raises("writes outside", SCOPE, contextConstraints=SCOPES, **reads("beds/1", access="write")),
        raises("appends outside", SCOPE, contextConstraints=SCOPES, **reads("beds/1", access="append")),
        raises("role without scope", SCOPE, contextConstraints={"roleScopes": {}}, **reads("beds/1")),
        raises("no role", SCOPE, call__orchestrationRole=None, contextConstraints=SCOPES, **reads("beds/1")),
        accepts("no role of the call", call__orchestrationRole=None, contextConstraints=SCOPES,
                **reads("beds/1", role="specialist")),
        accepts("no scopes", **reads("anything")),
        raises("upwards", SCOPE, **reads("beds/../plan")),
        raises("upwards without a role", SCOPE, call__orchestrationRole=None, **reads("beds/../plan")),
        raises("read by another role", SCOPE, **reads("x", role="orchestrator")),
        accepts("read by some role", call__orchestrationRole=None, **reads("x", role="orchestrator")),
        raises("artifact upwards", SCOPE, evidence__artifacts=[{"ref": "a/../b"}]),
        raises("artifact by another role", SCOPE, **holds(role="orchestrator")),
        raises("artifact of another role written", SCOPE, **holds(written=True, ownerRole="orchestrator")),
        accepts("artifact of another role read", **holds(written=False, ownerRole="orchestrator")),
        accepts("own artifact written", **holds(written=True, ownerRole="specialist", role="specialist")),
        accepts("nobody's artifact written", **holds(written=True)),
        accepts("no acting role", call__orchestrationRole=None,
                **holds(written=True, ownerRole="orchestrator", role="specialist")),
    ],
)  # fmt: skip
@pytest.mark.req("HARN-37", "HARN-38", "HARN-60", "SLICE-18")
def test_scope(changes: dict[str, Any], expected: set[str]) -> None:
    document = turn()
    document["evidence"]["callSpec"]["orchestrationRole"] = "specialist"
    assert classes(document, changes) == expected
