"""No change without a right, no right for another change, no right twice."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import threading
from collections.abc import Callable
from typing import Any, cast

import pytest

from manglecp.harness import CallSpec, ForgedState, JoinClosed, MutationReady, TurnBlocked, redeem, replay_turn
from manglecp.issues import IssueMemory, Status
from manglecp.issues.model import Add, AddDependency, Close, Discover, RemoveDependency, Update
from manglecp.issues.tables import open_issues
from manglecp.store.errors import ChangeRefused
from tests.issues.conftest import Workbench
from tests.issues.test_transitions import refused
from tests.issues.turns import POLICY, ready, ready_for, turn

pytestmark = pytest.mark.req("HARN-81")

Change = Callable[[IssueMemory, MutationReady], object]
CHANGES: dict[str, Change] = {
    "issue.update": lambda memory, right: memory.mutate(right, "kim", "a", Update(title="x")),
    "issue.discover": lambda memory, right: memory.mutate(right, "kim", None, Discover(parent="a", title="x")),
    "issue.close": lambda memory, right: memory.mutate(right, "kim", "a", Close()),
    "dep.add": lambda memory, right: memory.mutate(right, "kim", "a", AddDependency(edge="related", depends_on="b")),
    "dep.remove": lambda memory, right: memory.mutate(
        right, "kim", "a", RemoveDependency(edge="blocks", depends_on="b")
    ),
}
SUBJECTS = {
    "issue.update": "issue://a",
    "issue.discover": "issue://a",
    "issue.close": "issue://a",
    "dep.add": "dependency://a/related/b",
    "dep.remove": "dependency://a/blocks/b",
}
actions = pytest.mark.parametrize("action", CHANGES)


@pytest.fixture
def memory(bench: Workbench) -> IssueMemory:
    """Two issues, a and b; a waits for b."""
    bench.add("a", "b")
    right = ready("dep.add", "dependency://a/blocks/b")
    bench.memory.mutate(right, "kim", "a", AddDependency(edge="blocks", depends_on="b"))
    return bench.memory


def unchanged(bench: Workbench) -> bool:
    return bench.events() == 3


@actions
@pytest.mark.req("HARN-03", "HARN-83")
def test_a_right_is_good_for_its_change(memory: IssueMemory, bench: Workbench, action: str) -> None:
    right = ready(action, SUBJECTS[action])
    witness = right.judgement.witness_id
    CHANGES[action](memory, right)
    with memory.view() as view:
        *_, event = view.history()
    assert event.action == action
    assert event.mutation is not None
    assert event.mutation.witness_id == witness
    assert event.mutation.mutation.instruction_ref == "instructions/tidy-up.json"
    assert event.mutation.mutation.input_refs == (SUBJECTS[action],)
    assert (event.mutation.session_refs, event.mutation.trajectory_refs) == (("session://orchard/12",), ())
    assert (event.mutation.before is None) == (action == "issue.discover")
    assert event.mutation.before != event.mutation.after
    with bench.store.read_transaction() as tables:
        assert tables.is_spent(witness, "another turn")


@actions
@pytest.mark.req("HARN-76")
def test_nothing_but_a_right_will_do(memory: IssueMemory, bench: Workbench, action: str) -> None:
    class Lookalike:
        def __init__(self, right: MutationReady) -> None:
            self.judgement = right.judgement

    right = ready(action, SUBJECTS[action])
    made = object.__new__(MutationReady)
    for forged in (made, Lookalike(right), None, "MutationReady", right.judgement):
        with pytest.raises(ForgedState):
            CHANGES[action](memory, cast(MutationReady, forged))
    assert unchanged(bench)
    CHANGES[action](memory, right)  # the real one is as good as before


@actions
@pytest.mark.req("SLICE-03")
def test_less_than_a_right_will_not_do(memory: IssueMemory, bench: Workbench, action: str) -> None:
    document = turn(action, SUBJECTS[action])
    evidence = document["evidence"]
    state: Any = CallSpec.open(evidence["callSpec"], {"mutationConstraints": document["mutationConstraints"]})
    rest = {name: evidence[name] for name in ("toolRender", "reminderQueue", "stateViews", "sessionRefs")}
    states = [state]
    states.append(states[-1].request(evidence["toolRequests"], rest))
    states.append(states[-1].answer(evidence["toolResults"]))
    states.append(states[-1].use(evidence["toolUse"]))
    states.append(states[-1].close(evidence["protocolState"]))
    assert type(states[-1]) is JoinClosed
    for state in states:
        with pytest.raises(ForgedState):
            CHANGES[action](memory, state)
    assert unchanged(bench)
    CHANGES[action](memory, states[-1].authorize(evidence["mutation"]))


@actions
@pytest.mark.req("SLICE-03")
@pytest.mark.parametrize("lost", ["toolResults", "toolUse"])
def test_a_turn_whose_join_is_open_gives_no_right(action: str, lost: str) -> None:
    document = turn(action, SUBJECTS[action], "issue://read-only")
    document["evidence"][lost].pop()
    with pytest.raises(TurnBlocked) as blocked:
        replay_turn(document)
    assert "tool.join_incomplete" in {finding.failure.name for finding in blocked.value.findings}


@actions
def test_copies_are_not_made(action: str) -> None:
    right = ready(action, SUBJECTS[action])
    duplicates: list[Callable[[Any], object]] = [copy.copy, copy.deepcopy, pickle.dumps, dataclasses.replace]
    for duplicate in duplicates:
        with pytest.raises(TypeError):
            duplicate(right)


@actions
def test_a_right_is_spent_once(memory: IssueMemory, action: str) -> None:
    right = ready(action, SUBJECTS[action])
    CHANGES[action](memory, right)
    with pytest.raises(ForgedState):
        CHANGES[action](memory, right)


def test_a_right_that_was_redeemed_elsewhere(memory: IssueMemory, bench: Workbench) -> None:
    right = ready_for("issue.close", "a")
    redeem(right, "issue", "issue.close")
    with pytest.raises(ForgedState):
        CHANGES["issue.close"](memory, right)
    assert unchanged(bench)


@actions
def test_evidence_mutates_once(memory: IssueMemory, bench: Workbench, action: str) -> None:
    """A new right from the same turn is a right to nothing: in this process, in another, and after a restart."""
    document = turn(action, SUBJECTS[action])
    CHANGES[action](memory, replay_turn(document))
    events = bench.events()
    with refused("mutation_evidence_spent"):
        CHANGES[action](memory, replay_turn(document))
    again = IssueMemory(open_issues(bench.where), clock=bench.clock, new_id=lambda: "i-9")
    with refused("mutation_evidence_spent"):
        CHANGES[action](again, replay_turn(document))
    again._store.close()
    assert bench.events() == events


@actions
def test_a_right_to_another_action(memory: IssueMemory, bench: Workbench, action: str) -> None:
    for other in CHANGES:
        if other != action:
            with refused("mutation_other"):
                CHANGES[action](memory, ready(other, SUBJECTS[action]))
    assert unchanged(bench)


@pytest.mark.parametrize(
    ("action", "ref"),
    [
        ("issue.close", "issue://b"),
        ("issue.close", "issue://A"),
        ("issue.close", "issue://a/"),
        ("issue.close", "issue://a?x"),
        ("issue.close", "dependency://a/blocks/b"),
        ("issue.update", "issue://b"),
        ("issue.discover", "issue://b"),
        ("dep.add", "dependency://b/related/a"),
        ("dep.add", "dependency://a/blocks/b"),
        ("dep.add", "issue://a"),
        ("dep.remove", "dependency://a/related/b"),
    ],
)
def test_a_right_to_another_subject(memory: IssueMemory, bench: Workbench, action: str, ref: str) -> None:
    right = ready(action, ref)
    with refused("mutation_subject_other"):
        CHANGES[action](memory, right)
    assert unchanged(bench)


def test_an_intent_that_is_written_untidily(memory: IssueMemory, bench: Workbench) -> None:
    document = turn("issue.close", " issue://a\n")
    assert memory.mutate(replay_turn(document), "kim", "a", Close()).status is Status.CLOSED
    document = turn("issue.close", "issue://b")
    document["evidence"]["mutation"]["kind"] = " Issue "
    assert memory.mutate(replay_turn(document), "kim", "b", Close()).status is Status.CLOSED
    assert bench.events() == 5


def test_a_right_names_its_subject_alone(memory: IssueMemory, bench: Workbench) -> None:
    for refs in (["note://1"], ["issue://a", "issue://b"], ["issue://a", "dependency://a/blocks/b"]):
        with refused("mutation_subject_unclear"):
            CHANGES["issue.close"](memory, ready("issue.close", *refs))
    assert unchanged(bench)
    CHANGES["issue.close"](memory, ready("issue.close", "note://1", "issue://a"))


def test_a_subject_that_the_turn_did_not_look_at(memory: IssueMemory, bench: Workbench) -> None:
    document = turn("issue.close", "note://1")
    document["evidence"]["mutation"] |= {"inputRefs": ["issue://a"], "joinWitnessRefs": ["issue://a"]}
    with refused("mutation_subject_unread"):
        CHANGES["issue.close"](memory, replay_turn(document))
    assert unchanged(bench)


def test_a_change_cannot_be_carried_in_as_another(memory: IssueMemory, bench: Workbench) -> None:
    """Code that does not care for types: what decides is the change, not the method that it is given to."""
    untyped: Any = memory
    for change in (Close(), Update(title="x"), AddDependency(edge="related", depends_on="b")):
        with refused("mutation_missing"):
            untyped.add("kim", change, "a")
    with refused("mutation_other"):
        untyped.mutate(ready("issue.add", "issue://c"), "kim", "c", Add(title="x"))
    with refused("mutation_other"):
        untyped.mutate(ready_for("issue.update", "a"), "kim", "a", Close())
    assert unchanged(bench)


def test_a_right_to_the_issue_as_it_was(memory: IssueMemory) -> None:
    with memory.view() as view:
        pinned = f"issue://a@{view.show('a').snapshot}"
    late = ready("issue.close", pinned)
    CHANGES["issue.update"](memory, ready("issue.update", pinned))
    with refused("mutation_snapshot_changed"):
        CHANGES["issue.close"](memory, late)


def test_a_refused_right_is_not_spent(memory: IssueMemory, bench: Workbench) -> None:
    lease = bench.memory.claim("w1", "b")
    right = ready_for("issue.close", "b")
    with refused("lease_contention_active"):
        memory.mutate(right, "w1", "b", Close())
    assert memory.mutate(right, "w1", "b", Close(fence=lease.fence)).status is Status.CLOSED


def test_what_an_intent_may_hold_is_limited(memory: IssueMemory, bench: Workbench) -> None:
    right = ready("issue.close", "issue://a", "note://" + "x" * 70_000)
    with refused("mutation_too_large"):
        CHANGES["issue.close"](memory, right)
    assert unchanged(bench)


def test_threads_that_share_a_right(memory: IssueMemory, bench: Workbench) -> None:
    right = ready_for("issue.discover", "a")
    outcomes: list[str] = []

    def use() -> None:
        try:
            CHANGES["issue.discover"](memory, right)
            outcomes.append("done")
        except (ForgedState, ChangeRefused):
            outcomes.append("refused")

    threads = [threading.Thread(target=use) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["done"] + ["refused"] * 7
    assert bench.events() == 4


class TestEvidence:
    """What the gate itself refuses never gets as far as a right."""

    @pytest.mark.req("HARN-76")
    def test_an_input_that_nothing_carries(self) -> None:
        document = turn("issue.close", "issue://a")
        document["evidence"]["mutation"]["inputRefs"] = ["issue://b"]
        with pytest.raises(TurnBlocked, match=r"mutation\.use_evidence_missing"):
            replay_turn(document)

    @pytest.mark.req("HARN-74")
    def test_a_claim_that_is_missing(self) -> None:
        document = turn("issue.close", "issue://a")
        document["evidence"]["mutation"]["capabilityClaims"].pop()
        with pytest.raises(TurnBlocked, match=r"mutation\.capability_claim_missing"):
            replay_turn(document)

    @pytest.mark.req("HARN-74")
    def test_who_judges_knows_the_policy_in_force(self) -> None:
        document = turn("issue.close", "issue://a")
        assert replay_turn(document, POLICY).judgement.mutation_ready
        with pytest.raises(TurnBlocked, match=r"mutation\.policy_digest_mismatch"):
            replay_turn(document, "sha256:" + "0" * 64)

    @pytest.mark.req("HARN-76")
    @pytest.mark.parametrize("rows", ["toolResults", "toolUse"])
    def test_a_row_that_is_missing(self, rows: str) -> None:
        document = turn("issue.close", "issue://a")
        document["evidence"][rows] = []
        with pytest.raises(TurnBlocked, match=r"JoinClosed cannot be reached: .*tool\.join_incomplete"):
            replay_turn(document)

    def test_no_intent(self) -> None:
        document = turn("issue.close", "issue://a")
        del document["evidence"]["mutation"]
        with pytest.raises(TurnBlocked) as caught:
            replay_turn(document)
        assert caught.value.findings == ()
