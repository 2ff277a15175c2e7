"""Questions, now and in the past; and the database gives the answers that the fold in memory gives."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from manglecp.issues import Issue, Status
from manglecp.issues.integrity import audit, export_log, replay_log
from manglecp.issues.model import (
    BLOCKING,
    Add,
    AddDependency,
    Close,
    Discover,
    RemoveDependency,
    Update,
    format_instant,
)
from manglecp.issues.tables import IssueTables, scratch_tables
from manglecp.store.errors import ChangeRefused
from tests.effort import examples
from tests.issues.conftest import Workbench
from tests.issues.test_transitions import close, link, refused, update
from tests.issues.turns import ready, ready_for
from tests.store.postgres import empty_database


def test_list(bench: Workbench) -> None:
    bench.memory.add("kim", Add(title="x", labels=("red",)), "a")
    bench.add("b", "c")
    close(bench, "b")
    update(bench, "c", Update(assignee="lou"))
    with bench.memory.view() as view:
        assert [issue.id for issue in view.list()] == ["a", "b", "c"]
        assert [issue.id for issue in view.list(Status.OPEN)] == ["a", "c"]
        assert [issue.id for issue in view.list(label="red")] == ["a"]
        assert [issue.id for issue in view.list(assignee="lou")] == ["c"]


def test_blocked_says_why(bench: Workbench) -> None:
    bench.add("a", "b", "c", "d")
    link(bench, "a", "b")
    link(bench, "a", "c", "waits-for")
    link(bench, "a", "d", "related")
    update(bench, "d", Update(status="blocked"))
    close(bench, "c")
    with bench.memory.view() as view:
        first, second = view.blocked()
    assert first.issue.id == "a"
    assert [(edge.type, end.id, end.status) for edge, end in first.blockers] == [("blocks", "b", Status.OPEN)]
    assert (second.issue.id, second.blockers) == ("d", [])
    close(bench, "a")
    with bench.memory.view() as view:
        assert [one.issue.id for one in view.blocked()] == ["d"]


def test_history(bench: Workbench) -> None:
    bench.add("a", "b")
    bench.memory.claim("w1", "a")
    with bench.memory.view() as view:
        assert [(event.seq, event.action) for event in view.history("a")] == [(1, "issue.add"), (3, "issue.claim")]
        assert [event.issue for event in view.history()] == ["a", "b", "a"]
        with refused("issue_unknown"):
            view.history("c")


def test_the_past(bench: Workbench) -> None:
    bench.add("a", "b")
    link(bench, "a", "b")
    close(bench, "b")
    bench.memory.claim("w1", "a", 30)
    bench.clock.pass_(100)
    expected = {1: ["a"], 2: ["a", "b"], 3: ["b"], 4: ["a"], 5: []}
    for event, names in expected.items():
        with bench.memory.view(as_of=event) as view:
            assert [issue.id for issue in view.ready()] == names
            assert view.head().seq == event
            assert len(list(view.history())) == event
    assert bench.ready() == ["a"]
    for event in (0, 6):
        with refused("event_unknown"), bench.memory.view(as_of=event):
            pass


def test_a_view_does_not_change_while_one_looks(bench: Workbench) -> None:
    bench.add("a")
    other = Workbench(bench.where)
    with bench.memory.view() as view:
        assert [issue.id for issue in view.list()] == ["a"]
        other.add("b")
        assert [issue.id for issue in view.list()] == ["a"]
    other.store.close()


NAMES = ["a", "b", "c", "d", "e"]
names = st.sampled_from(NAMES)
fences = st.sampled_from([None, 1, 2])
edges = st.sampled_from(["blocks", "waits-for", "related"])
STEPS = st.one_of(
    st.tuples(st.just("add"), names, st.integers(0, 4)),
    st.tuples(st.just("claim"), names, st.sampled_from([30, 100])),
    st.tuples(st.just("claim_next"), st.sampled_from(["w1", "w2"]), st.none()),
    st.tuples(st.just("renew"), names, st.integers(1, 2)),
    st.tuples(st.just("release"), names, st.integers(1, 2)),
    st.tuples(st.just("update"), names, st.tuples(st.sampled_from(["open", "blocked"]), fences)),
    st.tuples(st.just("close"), names, fences),
    st.tuples(st.just("discover"), names, names),
    st.tuples(st.just("link"), names, st.tuples(edges, names, fences)),
    st.tuples(st.just("unlink"), names, st.tuples(edges, names, fences)),
    st.tuples(st.just("wait"), st.none(), st.integers(1, 60)),
)


def take(bench: Workbench, step: tuple[str, Any, Any]) -> None:
    memory = bench.memory
    match step:
        case "add", issue, int(priority):
            bench.add(issue, priority=priority)
        case "claim", issue, int(ttl):
            memory.claim("w1", issue, ttl)
        case "claim_next", worker, _:
            memory.claim_next(worker)
        case "renew", issue, int(fence):
            memory.renew("w1", issue, fence, 50)
        case "release", issue, int(fence):
            memory.release("w1", issue, fence)
        case "update", issue, (status, fence):
            change = Update(status=status, note="n", fence=fence)
            memory.mutate(ready_for("issue.update", issue), "kim", issue, change)
        case "close", issue, (int() | None) as fence:
            memory.mutate(ready_for("issue.close", issue), "kim", issue, Close(fence=fence))
        case "discover", issue, str(parent):
            memory.mutate(ready_for("issue.discover", parent), "kim", issue, Discover(parent=parent, title="x"))
        case "link", issue, (str(edge), on, fence):
            right = ready("dep.add", f"dependency://{issue}/{edge}/{on}")
            memory.mutate(right, "kim", issue, AddDependency(edge=edge, depends_on=on, fence=fence))
        case "unlink", issue, (str(edge), on, fence):
            right = ready("dep.remove", f"dependency://{issue}/{edge}/{on}")
            memory.mutate(right, "kim", issue, RemoveDependency(edge=edge, depends_on=on, fence=fence))
        case "wait", _, int(seconds):
            bench.clock.pass_(seconds)
        case _:
            raise AssertionError(step)


@examples(150)
@given(st.lists(STEPS, max_size=40))
def test_the_database_says_what_a_replay_says(steps: list[tuple[str, Any, Any]]) -> None:
    compare(":memory:", steps)


@examples(15)
@given(st.lists(STEPS, max_size=40))
def test_the_server_says_what_a_replay_says(steps: list[tuple[str, Any, Any]]) -> None:
    with empty_database() as url:
        compare(url, steps)


def claimable(tables: IssueTables, now: str) -> list[Issue]:
    """The frontier, computed from one row after the other."""

    def is_free(issue: Issue) -> bool:
        lease = tables.lease(issue.id)
        return issue.status is Status.OPEN if lease is None else not lease.is_live(now)

    def is_blocked(issue: Issue) -> bool:
        ends = (tables.issue(edge.depends_on) for edge in tables.edges_from(issue.id) if edge.type in BLOCKING)
        return any(end is not None and end.status is not Status.CLOSED for end in ends)

    issues = [issue for issue in tables.issues() if is_free(issue) and not is_blocked(issue)]
    return sorted(issues, key=lambda issue: (issue.priority, issue.added_by))


def compare(where: str, steps: list[tuple[str, Any, Any]]) -> None:
    bench = Workbench(where)
    bench.add(*NAMES[:3])
    for step in steps:
        before = list(export_log(bench.store))
        try:
            take(bench, step)
        except ChangeRefused:
            assert list(export_log(bench.store)) == before, "what is refused changes nothing"
    now = format_instant(bench.clock())
    with bench.store.read_transaction() as tables:
        assert list(tables.frontier(now)) == claimable(tables, now)
        with scratch_tables() as replayed:
            assert list(replay_log(tables.log_rows(), replayed)) == []
            for status in (None, *Status):
                assert list(tables.issues(status)) == list(replayed.issues(status))
            for name in NAMES:
                assert tables.edges_from(name) == replayed.edges_from(name)
        for name in NAMES:
            edges = [edge for other in NAMES for edge in tables.edges_from(other) if edge.depends_on == name]
            assert tables.edges_to(name) == sorted(edges)
        for issue in tables.issues():
            assert (issue.status is Status.IN_PROGRESS) == (tables.lease(issue.id) is not None)
    assert audit(bench.store).problems == []
    bench.store.close()


@pytest.mark.parametrize("issue", ["nowhere", "b"])
def test_show_what_is_not_there(bench: Workbench, issue: str) -> None:
    bench.add("a")
    with bench.memory.view() as view, pytest.raises(ChangeRefused, match=f"issue {issue} does not exist"):
        view.show(issue)
