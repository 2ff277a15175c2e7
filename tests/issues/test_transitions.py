"""Which change is admissible, and what it does."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from importlib.resources import files

import pytest

from manglecp.harness import MutationReady
from manglecp.issues import Status
from manglecp.issues.model import (
    BLOCKING,
    EDGE_TYPES,
    MAX_EDGES_PER_ISSUE,
    Add,
    AddDependency,
    Close,
    Discover,
    RemoveDependency,
    Update,
)
from manglecp.store.errors import ChangeRefused, Invalid
from tests.issues.conftest import Workbench
from tests.issues.turns import ready, ready_for


def refused(code: str) -> pytest.RaisesExc[ChangeRefused]:
    return pytest.RaisesExc(ChangeRefused, check=lambda error: error.code == code)


def link(bench: Workbench, issue: str, on: str, edge: str = "blocks", fence: int | None = None) -> None:
    right = ready("dep.add", f"dependency://{issue}/{edge}/{on}")
    bench.memory.mutate(right, "kim", issue, AddDependency(edge=edge, depends_on=on, fence=fence))


def close(bench: Workbench, issue: str, fence: int | None = None) -> None:
    bench.memory.mutate(ready_for("issue.close", issue), "kim", issue, Close(fence=fence))


def update(bench: Workbench, issue: str, change: Update) -> None:
    bench.memory.mutate(ready_for("issue.update", issue), "kim", issue, change)


class TestIssues:
    def test_add(self, bench: Workbench) -> None:
        change = Add(title="Fix the pump", description="It drips.", priority=0, labels=("pump", "wet"))
        issue = bench.memory.add("kim", change)
        assert (issue.id, issue.status, issue.title, issue.labels) == (
            "i-1",
            Status.OPEN,
            "Fix the pump",
            ("pump", "wet"),
        )
        assert issue.created_at == issue.updated_at == "2026-01-31T12:00:00.000Z"
        assert bench.issue("i-1") == issue

    def test_an_id_is_given_once(self, bench: Workbench) -> None:
        bench.add("a")
        with refused("issue_exists"):
            bench.add("a")

    def test_a_fresh_id_that_is_taken_is_drawn_again(self, bench: Workbench) -> None:
        bench.add("i-1", "i-2")
        assert bench.memory.add("kim", Add(title="third")).id == "i-3"

    def test_a_source_of_ids_that_is_stuck(self, bench: Workbench) -> None:
        bench.add("a")
        bench.memory._new_id = lambda: "a"
        with refused("issue_exists"):
            bench.memory.add("kim", Add(title="again"))

    def test_update(self, bench: Workbench) -> None:
        bench.add("a")
        bench.clock.pass_(60)
        update(bench, "a", Update(title="other", priority=0, labels=("x",), assignee="lou", note="first"))
        update(bench, "a", Update(note="second"))
        issue = bench.issue("a")
        assert (issue.title, issue.priority, issue.labels, issue.assignee) == ("other", 0, ("x",), "lou")
        assert issue.notes == "first\nsecond"
        assert issue.created_at < issue.updated_at
        update(bench, "a", Update(assignee=None))
        assert bench.issue("a").assignee is None

    def test_an_update_changes_something(self, bench: Workbench) -> None:
        bench.add("a")
        with pytest.raises(Invalid, match="changes nothing"):
            update(bench, "a", Update())

    def test_close_and_reopen(self, bench: Workbench) -> None:
        bench.add("a")
        close(bench, "a")
        assert bench.issue("a").closed_at is not None
        with refused("issue_closed"):
            close(bench, "a")
        update(bench, "a", Update(status="open"))
        assert (bench.issue("a").status, bench.issue("a").closed_at) == (Status.OPEN, None)

    def test_discover(self, bench: Workbench) -> None:
        bench.add("a")
        change = Discover(parent="a", title="found on the way")
        child = bench.memory.mutate(ready_for("issue.discover", "a"), "kim", None, change)
        with bench.memory.view() as view:
            (edge,) = view.show(child.id).depends_on
            assert (edge.type, edge.depends_on) == ("discovered-from", "a")
            assert view.show("a").dependents == [edge]
        assert bench.ready() == ["a", child.id]

    def test_discover_from_nowhere(self, bench: Workbench) -> None:
        with refused("issue_unknown"):
            bench.memory.mutate(ready_for("issue.discover", "a"), "kim", None, Discover(parent="a", title="x"))

    @pytest.mark.parametrize("issue", ["", "-a", "a b", "a/b", "ä", "a" * 65, "a\n", "\udcff"])
    def test_ids(self, bench: Workbench, issue: str) -> None:
        bench.add("a")
        right = ready_for("issue.close", "a")
        operations: list[Callable[[], object]] = [
            lambda: bench.add(issue),
            lambda: bench.memory.claim("w", issue),
            lambda: bench.memory.mutate(right, "kim", issue, Close()),
            lambda: bench.memory.mutate(right, "kim", None, Discover(parent=issue, title="x")),
            lambda: bench.memory.mutate(right, "kim", "a", AddDependency(edge="blocks", depends_on=issue)),
        ]
        for operation in operations:
            with pytest.raises((Invalid, ChangeRefused), match=r"an id is|authorise (issue\.discover|dep\.add)"):
                operation()
        with bench.memory.view() as view, pytest.raises(Invalid, match="an id is"):
            view.show(issue)

    @pytest.mark.parametrize(
        "change",
        [
            Add(title=""),
            Add(title="  "),
            Add(title="x" * 201),
            Add(title="two\nlines"),
            Add(title="\x1b[31mred"),
            Add(title="tag\U000e0041"),
            Add(title="turned\u202e round"),
            Add(title="x", description="x" * 65_537),
            Add(title="x", description="\x00"),
            Add(title="x", priority=5),
            Add(title="x", priority=-1),
            Add(title="x", labels=("b", "a")),
            Add(title="x", labels=("a", "a")),
            Add(title="x", labels=("a b",)),
            Add(title="x", labels=tuple(f"l{number:02}" for number in range(33))),
        ],
    )
    def test_limits(self, bench: Workbench, change: Add) -> None:
        with pytest.raises(Invalid) as caught:
            bench.memory.add("kim", change)
        assert all(len(text) < 4 or text not in str(caught.value) for text in (change.title, change.description))
        assert bench.events() == 0

    def test_notes_have_a_limit_together(self, bench: Workbench) -> None:
        bench.add("a")
        update(bench, "a", Update(note="x" * 65_000))
        with pytest.raises(Invalid, match="notes: it has 66,001 characters"):
            update(bench, "a", Update(note="y" * 1_000))

    @pytest.mark.parametrize("actor", ["", " ", "x" * 129, "a\nb"])
    def test_actors(self, bench: Workbench, actor: str) -> None:
        with pytest.raises(Invalid, match="actor: "):
            bench.memory.add(actor, Add(title="x"))


class TestLeases:
    def test_claim(self, bench: Workbench) -> None:
        bench.add("a")
        lease = bench.memory.claim("w1", "a")
        assert (lease.owner, lease.fence, lease.lease_id) == ("w1", 1, "lease1_a_1")
        assert (lease.acquired_at, lease.expires_at) == ("2026-01-31T12:00:00.000Z", "2026-01-31T13:00:00.000Z")
        assert (bench.issue("a").status, bench.issue("a").assignee) == (Status.IN_PROGRESS, "w1")
        assert bench.ready() == []

    @pytest.mark.parametrize("worker", ["w1", "w2"])
    def test_one_live_lease(self, bench: Workbench, worker: str) -> None:
        bench.add("a")
        bench.memory.claim("w1", "a")
        with refused("lease_contention_active"):
            bench.memory.claim(worker, "a")

    def test_a_stale_lease_is_taken_over(self, bench: Workbench) -> None:
        bench.add("a")
        old = bench.memory.claim("w1", "a", 30)
        bench.clock.pass_(29.999)
        with refused("lease_contention_active"):
            bench.memory.claim("w2", "a")
        bench.clock.pass_(0.001)
        assert bench.ready() == ["a"]
        new = bench.memory.claim_next("w2")
        assert new is not None
        assert (new.issue, new.owner, new.fence) == ("a", "w2", 2)
        with refused("lease_id_mismatch"):
            bench.memory.renew("w1", "a", old.fence)
        with refused("lease_id_mismatch"):
            bench.memory.release("w1", "a", old.fence)
        with refused("lease_id_mismatch"):
            close(bench, "a", old.fence)
        close(bench, "a", new.fence)

    def test_claim_next_takes_the_most_urgent_then_the_eldest(self, bench: Workbench) -> None:
        bench.add("late", priority=3)
        bench.add("first", "second", priority=1)
        taken = [lease and lease.issue for lease in (bench.memory.claim_next("w") for _ in range(4))]
        assert taken == ["first", "second", "late", None]

    def test_renew(self, bench: Workbench) -> None:
        bench.add("a")
        lease = bench.memory.claim("w1", "a", 30)
        bench.clock.pass_(20)
        renewed = bench.memory.renew("w1", "a", lease.fence, 30)
        assert (renewed.fence, renewed.renewed_at) == (1, "2026-01-31T12:00:20.000Z")
        bench.clock.pass_(29)
        assert bench.ready() == []
        bench.clock.pass_(1)
        with refused("lease_stale"):
            bench.memory.renew("w1", "a", lease.fence)

    def test_release(self, bench: Workbench) -> None:
        bench.add("a")
        lease = bench.memory.claim("w1", "a", 30)
        with refused("lease_owner_mismatch"):
            bench.memory.release("w2", "a", lease.fence)
        bench.clock.pass_(1_000)  # nobody has taken it over
        issue = bench.memory.release("w1", "a", lease.fence)
        assert (issue.status, issue.assignee) == (Status.OPEN, None)
        with refused("lease_not_found"):
            bench.memory.release("w1", "a", lease.fence)
        assert bench.memory.claim("w2", "a").fence == 2

    @pytest.mark.parametrize("ttl", [29, 86_401, 0, -1])
    def test_durations(self, bench: Workbench, ttl: int) -> None:
        bench.add("a")
        with pytest.raises(Invalid, match="from 30 to 86,400 seconds"):
            bench.memory.claim("w1", "a", ttl)
        lease = bench.memory.claim("w1", "a", 86_400)
        with pytest.raises(Invalid, match="ttl"):
            bench.memory.renew("w1", "a", lease.fence, ttl)

    def test_what_is_in_progress_is_changed_by_its_holder(self, bench: Workbench) -> None:
        bench.add("a", "b")
        lease = bench.memory.claim("w1", "a", 30)
        with refused("lease_contention_active"):
            close(bench, "a")
        with refused("lease_contention_active"):
            update(bench, "a", Update(title="x"))
        with refused("lease_contention_active"):
            link(bench, "a", "b")
        update(bench, "a", Update(title="x", fence=lease.fence))
        link(bench, "a", "b", fence=lease.fence)
        with refused("lease_contention_active"):
            update(bench, "a", Update(assignee="w2", fence=lease.fence))
        bench.clock.pass_(30)
        with refused("lease_stale"):
            close(bench, "a", lease.fence)

    def test_a_token_without_a_lease(self, bench: Workbench) -> None:
        bench.add("a")
        with refused("lease_not_found"):
            close(bench, "a", 1)

    @pytest.mark.parametrize("status", ["open", "blocked"])
    def test_leaving_progress_drops_the_lease(self, bench: Workbench, status: str) -> None:
        bench.add("a")
        lease = bench.memory.claim("w1", "a")
        update(bench, "a", Update(status=status, fence=lease.fence))  # type: ignore[arg-type]  # one of the two
        with bench.memory.view() as view:
            assert view.show("a").lease is None

    def test_closing_drops_the_lease(self, bench: Workbench) -> None:
        bench.add("a")
        close(bench, "a", bench.memory.claim("w1", "a").fence)
        with bench.memory.view() as view:
            assert view.show("a").lease is None

    def test_what_cannot_be_claimed(self, bench: Workbench) -> None:
        bench.add("closed", "aside", "waits")
        close(bench, "closed")
        update(bench, "aside", Update(status="blocked"))
        link(bench, "waits", "aside")
        for issue, code in (("closed", "issue_closed"), ("aside", "issue_blocked"), ("waits", "issue_waiting")):
            with refused(code):
                bench.memory.claim("w1", issue)
        with refused("issue_unknown"):
            bench.memory.claim("w1", "nowhere")
        assert bench.memory.claim_next("w1") is None


class TestEdges:
    @pytest.mark.parametrize("edge", sorted(EDGE_TYPES))
    def test_which_edges_block(self, bench: Workbench, edge: str) -> None:
        bench.add("a", "b")
        link(bench, "a", "b", edge)
        assert bench.ready() == (["b"] if edge in BLOCKING else ["a", "b"])
        close(bench, "b")
        assert bench.ready() == ["a"]

    def test_remove(self, bench: Workbench) -> None:
        bench.add("a", "b")
        link(bench, "a", "b")
        change = RemoveDependency(edge="blocks", depends_on="b")
        bench.memory.mutate(ready("dep.remove", "dependency://a/blocks/b"), "kim", "a", change)
        assert bench.ready() == ["a", "b"]
        with refused("dependency_unknown"):
            bench.memory.mutate(ready("dep.remove", "dependency://a/blocks/b"), "kim", "a", change)

    def test_cycles(self, bench: Workbench) -> None:
        bench.add("a", "b", "c")
        link(bench, "a", "b")
        link(bench, "b", "c", "waits-for")
        with pytest.raises(ChangeRefused, match="the edge would close a cycle: c -> a -> b -> c"):
            link(bench, "c", "a", "parent-child")
        link(bench, "c", "a", "related")
        with refused("dependency_cycle"):
            link(bench, "a", "a", "related")

    def test_a_long_chain(self, bench: Workbench) -> None:
        names = [f"n{number}" for number in range(300)]
        bench.add(*names)
        for issue, on in itertools.pairwise(names):
            link(bench, issue, on)
        with refused("dependency_cycle"):
            link(bench, names[-1], names[0])

    def test_twice_and_into_nothing(self, bench: Workbench) -> None:
        bench.add("a", "b")
        link(bench, "a", "b")
        with refused("dependency_exists"):
            link(bench, "a", "b")
        with refused("issue_unknown"):
            link(bench, "a", "nowhere")

    def test_so_many_and_no_more(self, bench: Workbench) -> None:
        names = [f"n{number}" for number in range(MAX_EDGES_PER_ISSUE + 1)]
        bench.add("a", *names)
        for name in names[:-1]:
            link(bench, "a", name, "related")
        with refused("dependency_limit"):
            link(bench, "a", names[-1], "related")

    def test_two_ways_to_one_issue(self, bench: Workbench) -> None:
        bench.add("a", "b", "c", "d")
        for issue, on in ("ab", "ac", "bd", "cd"):
            link(bench, issue, on)
        with refused("dependency_cycle"):
            link(bench, "d", "a")

    def test_unknown_types(self, bench: Workbench) -> None:
        bench.add("a", "b")
        with pytest.raises(Invalid, match="edge: it is one of blocks, "):
            link(bench, "a", "b", "hates")


def test_the_type_of_a_right_is_in_the_signature() -> None:
    """A type checker refuses less than a MutationReady; here is the place that says so."""
    from manglecp.issues import IssueMemory

    assert IssueMemory.mutate.__annotations__["ready"] == MutationReady.__name__


def test_the_tables_take_the_words_of_the_model() -> None:
    sql = files("manglecp.issues").joinpath("sql", "issues.sql").read_text("utf-8")
    assert [word for word in (*Status, *EDGE_TYPES) if f"'{word}'" not in sql] == []
