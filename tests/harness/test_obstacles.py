"""What is said before a turn is what the judge says after it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hypothesis import given, strategies as st

from manglecp.harness.judgement import judge
from manglecp.harness.obstacles import (
    PATTERNS,
    Obstacle,
    artifact_rows,
    obstacles_to_compact,
    obstacles_to_continue,
    obstacles_to_decompose,
    obstacles_to_hand_over,
    obstacles_to_resume,
    obstacles_to_start,
    packet,
    protocol_state,
)
from manglecp.harness.policy import package_of
from manglecp.harness.policy.package import PolicyPackage
from tests.harness.policy.packages import careful
from tests.harness.policy.turns import turn

BARE = ("render", "queue", "views", "decomposition", "mutation", "transport")


def under(**documents: dict[str, Any]) -> PolicyPackage:
    """A package that demands little beside the given documents."""
    contents = {kind: careful().contents[kind] for kind in BARE}
    return package_of({"name": "bare", "version": "1"}, {**contents, "governance": {"claimed": False}, **documents})


def judged(package: PolicyPackage, **evidence: Any) -> set[str]:
    choices = {name: evidence.pop(name) for name in ("role", "execution_pattern") if name in evidence}
    document = turn(package, pinned=None, **choices)
    document["evidence"].update(evidence)
    return set(judge(document).failure_classes)


def foretold(obstacles: Iterable[Obstacle]) -> set[str]:
    return {one.failure.name for one in obstacles}


some = st.none() | st.integers(1, 4)


def given_members(**members: Any) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}


@given(
    stop=st.builds(
        given_members, maxTurns=some, maxIterations=some, requireCheckpoint=st.just(True), checkpointEveryTurns=some
    )
    | st.builds(given_members, maxTurns=some, maxIterations=some),
    continuation=st.dictionaries(st.sampled_from(["tool_use", "end_turn"]), st.sampled_from(["continue", "stop"])),
    state=st.fixed_dictionaries(
        {
            "stop_reason": st.sampled_from(["tool_use", "End_Turn", "refusal"]),
            "turn_index": st.integers(1, 5),
            "iteration": some,
            "checkpoint_ref": st.sampled_from([None, "checkpoint://1"]),
        }
    ),
)
def test_stopping(stop: dict[str, Any], continuation: dict[str, str], state: dict[str, Any]) -> None:
    protocol = {"handledStopReasons": ["tool_use", "end_turn"], "continuation": continuation}
    package = under(stop=stop, protocol=protocol)
    row = protocol_state(stop, protocol, **state)
    barred = foretold(obstacles_to_continue(stop, protocol, **state))
    assert row["continuationAllowed"] is not bool(barred)
    assert judged(package, protocolState={**row, "continuationAllowed": True}) == barred
    if not obstacles_to_start(stop, turn_index=state["turn_index"], iteration=state["iteration"]):
        unhandled = {"protocol.stop_reason_unhandled"} if state["stop_reason"] == "refusal" else set()
        assert judged(package, protocolState=row) == unhandled


@given(
    role=st.sampled_from(["orchestrator", "specialist"]),
    target=st.sampled_from(["specialist.code", "orchestrator.main", "stranger"]),
    carried=st.sets(st.sampled_from(["artifact://brief", "artifact://other"])),
    there=st.sets(st.sampled_from(["artifact://brief", "artifact://other"])),
    way_back=st.sampled_from([None, "return://main"]),
    intent=st.sampled_from([None, "work"]),
)
def test_handing_over(
    role: str, target: str, carried: set[str], there: set[str], way_back: str | None, intent: str | None
) -> None:
    contract = careful().contents["handoff"]
    store = dict.fromkeys(there, "sha256:11")
    row = packet(target, artifact_refs=carried, return_path_ref=way_back, intent=intent, constraints=["small"])
    said = foretold(obstacles_to_hand_over(row, contract, role=role, lookup=store.get))
    found = judged(under(handoff=dict(contract)), handoff=row, artifacts=artifact_rows(row, store.get), role=role)
    assert found == said


@given(
    carried=st.sets(st.sampled_from(["goal", "open-issues", "more"])),
    enabled=st.booleans(),
    same_policy=st.booleans(),
    summary=st.sampled_from([None, "sha256:33"]),
    dropped=st.sets(st.sampled_from(["c1", "c9"])),
    invoked=st.booleans(),
    mode=st.sampled_from(["fresh", "compaction"]),
)
def test_compacting(
    carried: set[str],
    enabled: bool,
    same_policy: bool,
    summary: str | None,
    dropped: set[str],
    invoked: bool,
    mode: str,
) -> None:
    policy = {**careful().contents["compaction"], "enabled": enabled}
    package = under(compaction=policy)
    compaction = {
        "invoked": invoked,
        "policyDigest": package.digests["compaction"] if same_policy else "sha256:0",
        "continuityRef": "continuity://1",
        "carryForwardRefs": sorted(carried),
        "droppedToolCallIds": sorted(dropped),
        **given_members(summaryDigest=summary),
    }
    continuity = {"mode": mode}
    said = foretold(
        [
            *obstacles_to_compact(compaction, policy, policy_digest=package.digests["compaction"], requested=["c1"]),
            *obstacles_to_resume(continuity, compaction, lookup=lambda _: None),
        ]
    )
    assert judged(package, compaction=compaction, continuity=continuity) == said


@given(
    ref=st.sampled_from([None, "handoff://1"]),
    wanted=st.sets(st.sampled_from(["artifact://a", "artifact://b"])),
    there=st.sets(st.sampled_from(["artifact://a", "artifact://b"])),
)
def test_descending(ref: str | None, wanted: set[str], there: set[str]) -> None:
    continuity = {"mode": "descent", "artifactRefs": sorted(wanted), **given_members(handoffRef=ref)}
    store = dict.fromkeys(there, "sha256:11")
    said = foretold(obstacles_to_resume(continuity, None, lookup=store.get))
    rows = [{"ref": name, "digest": digest} for name, digest in sorted(store.items())]
    assert judged(under(), continuity=continuity, artifacts=rows) == said


@given(
    allowed=st.sets(st.sampled_from(PATTERNS), min_size=1),
    pattern=st.sampled_from(PATTERNS),
    mode=st.sampled_from(["loop", "split"]),
    fan_out=st.integers(1, 4),
    most=some,
    triggered=st.booleans(),
    trigger=st.sampled_from([None, "measure://backlog"]),
)
def test_decomposing(
    allowed: set[str],
    pattern: str,
    mode: str,
    fan_out: int,
    most: int | None,
    triggered: bool,
    trigger: str | None,
) -> None:
    policy = {
        "allowedPatterns": sorted(allowed),
        "requireEscalationTrigger": triggered,
        **given_members(maxFanOut=most),
    }
    said = foretold(
        obstacles_to_decompose(policy, pattern=pattern, mode=mode, fan_out=fan_out, escalation_trigger_ref=trigger)
    )
    decomposition = {"mode": mode, "fanOut": fan_out, **given_members(escalationTriggerRef=trigger)}
    assert judged(under(decomposition=policy), decomposition=decomposition, execution_pattern=pattern) == said
