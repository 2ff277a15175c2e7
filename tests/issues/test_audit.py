"""Whatever is edited behind the back of the rules is found, and named."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import msgspec
import psycopg
import pytest

from manglecp.base.hash_chain import GENESIS, Head
from manglecp.issues.integrity import audit
from manglecp.issues.model import Close, IssueEvent, decode_event, encode_event
from manglecp.store.errors import StoreError
from tests.issues.conftest import Workbench, in_a_file
from tests.issues.test_transitions import close, link
from tests.issues.turns import ready_for


@pytest.fixture
def work(bench: Workbench) -> Workbench:
    """Five events: two issues, an edge, a close, a claim."""
    bench.add("a", "b")
    link(bench, "a", "b")
    close(bench, "b")
    bench.memory.claim("w1", "a")
    return bench


def edit(work: Workbench, *statements: str) -> None:
    """Write as an owner of the database who bypasses its triggers and references."""
    if work.database.dialect == "postgresql":
        with psycopg.connect(work.where) as server:
            server.execute("SET search_path = manglecp")
            server.execute("SET session_replication_role = replica")
            for statement in statements:
                server.execute(statement)
        return
    file = sqlite3.connect(work.where)
    file.execute("DROP TRIGGER issue_event_stays")
    file.execute("DROP TRIGGER issue_event_is_kept")
    for statement in statements:
        file.execute(statement)
    file.commit()
    file.close()


def findings(work: Workbench, expected: Head | None = None) -> list[str]:
    return audit(work.store, expected).problems


def test_a_sound_memory(work: Workbench) -> None:
    result = audit(work.store)
    assert (result.head.seq, result.issue_count, result.problems) == (5, 2, [])
    assert findings(work, result.head) == []


def test_an_empty_memory(bench: Workbench) -> None:
    assert audit(bench.store) == (Head(0, GENESIS), 0, [])


@pytest.mark.parametrize("statement", ["UPDATE issue_event SET row = ''", "DELETE FROM issue_event"])
def test_the_log_is_only_added_to(work: Workbench, statement: str) -> None:
    with pytest.raises(StoreError, match="events are not"), work.database.write_transaction() as tx:
        tx.execute(statement)
    assert findings(work) == []


@pytest.mark.parametrize(
    ("statement", "finding"),
    [
        (
            "UPDATE issue SET title = 'hi' WHERE id = 'a'",
            "issue a: title is stored as 'hi' and is 'do a' by the events",
        ),
        ("UPDATE issue SET priority = 0 WHERE id = 'a'", "issue a: priority is stored as '0' and is '2' by the events"),
        ("UPDATE issue SET fence = 7 WHERE id = 'a'", "issue a: fence is stored as '7' and is '1' by the events"),
        ("UPDATE lease SET owner = 'w2'", "lease on a: owner is stored as 'w2' and is 'w1' by the events"),
        ("DELETE FROM lease", "lease on a: follows from the events, but is not stored"),
        ("DELETE FROM dependency", "edge a blocks b: follows from the events, but is not stored"),
        (
            "INSERT INTO dependency VALUES ('b', 'related', 'a')",
            "edge b related a: is stored, but does not follow from the events",
        ),
        ("DELETE FROM mutation WHERE seq = 4", "mutation of event 4: follows from the events, but is not stored"),
        (
            "UPDATE mutation SET seq = 5 WHERE seq = 4",
            "mutation of event 5: is stored, but does not follow from the events",
        ),
        (
            "UPDATE mutation SET after = 'x' WHERE seq = 4",
            "mutation of event 4: after is stored as 'x' and is ",
        ),
        (
            "UPDATE issue SET status = 'open', closed_at = NULL WHERE id = 'b'",
            "issue b: status is stored as 'open' and is 'closed' by the events",
        ),
        ("UPDATE issue SET labels = '{}' WHERE id = 'a'", "issue a: labels is stored as '{}'"),
        ("UPDATE mutation SET mutation = '[]' WHERE seq = 4", "mutation of event 4: mutation is stored as '[]'"),
        (
            "UPDATE issue_event SET issue_id = 'b' WHERE seq = 1",
            "event 1: the column issue_id differs",
        ),
        (
            "UPDATE issue_event SET row_hash = 'x' WHERE seq = 2",
            "event 2: the column row_hash differs",
        ),
        (
            "UPDATE issue_event SET row = replace(row, 'do a', 'do z') WHERE seq = 1",
            "event 1: row_hash is not",
        ),
        ("UPDATE issue_event SET row = replace(row, ',', ', ') WHERE seq = 1", "event 1: not in canonical form"),
        ("UPDATE issue_event SET row = '{' WHERE seq = 1", "event 1: not JSON"),
        ("UPDATE issue_event SET row = '{}' WHERE seq = 1", "event 1: not an event: "),
    ],
)
def test_what_was_edited_is_named(work: Workbench, statement: str, finding: str) -> None:
    edit(work, statement)
    found = findings(work)
    assert any(text.startswith(finding) for text in found), found


def test_an_event_that_was_cut_out(work: Workbench) -> None:
    edit(work, "DELETE FROM issue_event WHERE seq = 3")
    found = findings(work)
    assert "event 4: prev_hash does not follow from the events before it" in found
    assert "edge a blocks b: is stored, but does not follow from the events" in found


def test_events_that_were_cut_off(work: Workbench) -> None:
    """The events and all their rows are removed: only an earlier head reveals it."""
    head = audit(work.store).head
    with work.memory.view() as view:
        at = next(event.at for event in view.history() if event.seq == 3)
    edit(
        work,
        "DELETE FROM lease",
        f"UPDATE issue SET status = 'open', assignee = NULL, fence = 0, updated_at = '{at}' WHERE id = 'a'",
        "DELETE FROM issue_event WHERE seq = 5",
    )
    assert findings(work) == []
    assert findings(work, head) == ["event 5: the log does not contain the expected event"]


def rewritten(work: Workbench, seq: int, **changes: object) -> IssueEvent:
    """An event that was changed and given the right hash again."""
    with work.store.read_transaction() as tables:
        (line,) = [line for line in tables.log_rows() if line.seq == seq]
    event = msgspec.structs.replace(decode_event(line.event_json), **changes)
    event = msgspec.structs.replace(event, row_hash=event.compute_hash())
    row = encode_event(event).decode()
    edit(work, f"UPDATE issue_event SET row_hash = '{event.row_hash}', row = '{row}' WHERE seq = {seq}")
    return event


def test_a_hash_that_was_made_to_fit(work: Workbench) -> None:
    rewritten(work, 2, actor="somebody else")
    assert findings(work) == ["event 3: prev_hash does not follow from the events before it"]


def test_the_last_event_rewritten(work: Workbench) -> None:
    head = audit(work.store).head
    rewritten(work, 5, actor="w2")
    assert "lease on a: owner is stored as 'w1' and is 'w2' by the events" in findings(work)
    assert "event 5: the log does not contain the expected event" in findings(work, head)


def test_a_change_without_evidence(work: Workbench) -> None:
    work.memory.mutate(ready_for("issue.close", "a"), "w1", "a", Close(fence=1))
    rewritten(work, 6, mutation=None)
    assert "event 6: issue.close needs a mutation and has none" in findings(work)


def test_an_answer_about_a_damaged_past_is_refused(work: Workbench) -> None:
    edit(work, "UPDATE issue_event SET row = '{' WHERE seq = 1")
    with pytest.raises(StoreError, match="event 1 is damaged; run `manglecp"), work.memory.view(as_of=3):
        pass


def test_a_past_that_does_not_follow_is_refused(work: Workbench) -> None:
    rewritten(work, 2, actor="somebody else")
    with pytest.raises(StoreError, match="event 3 cannot be replayed: prev_hash"), work.memory.view(as_of=3):
        pass


@in_a_file
def test_pages_that_were_overwritten(work: Workbench) -> None:
    work.store.close()
    path = Path(work.where)
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(size // 2)
        file.write(b"\xa5" * (size - size // 2))
    try:
        again = Workbench(path)
        found = findings(again)
        again.store.close()
    except StoreError as error:
        found = [str(error)]
    assert found
