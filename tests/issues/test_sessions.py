"""A worker whose lease has expired, or was taken over."""

from __future__ import annotations

from pathlib import Path

import pytest

from manglecp.harness.policy import HarnessCall
from manglecp.issues import SessionMemory, Status
from manglecp.issues.integrity import audit
from manglecp.store import ChangeRefused
from tests.issues.conftest import Workbench

DONE = [HarnessCall("harness.work", "exit status 0")]


@pytest.fixture
def sessions(bench: Workbench) -> SessionMemory:
    bench.add("pump")
    return SessionMemory(bench.store, clock=bench.clock, new_id=lambda: "child")


def test_a_lost_lease_closes_nothing_and_is_recorded(bench: Workbench, sessions: SessionMemory) -> None:
    slow = sessions.start("slow", None, 30)
    assert slow is not None
    assert sessions.start("other", None, 30) is None
    bench.clock.pass_(31)
    taken = sessions.start("other", None, 30)
    assert taken is not None
    assert (slow.fence, taken.fence) == (1, 2)
    unanswered = {
        "callSpec": {"modelRef": "atlas@7"},
        "protocolState": {"stopReason": "end_turn"},
        "toolRequests": [{"toolCallId": "c1", "toolName": "repo.grep"}],
    }
    sessions.turn("other", "pump", taken.fence, {"evidence": unanswered}, None)
    with pytest.raises(ChangeRefused) as refused:
        sessions.finish_work("slow", "pump", slow.fence, DONE, None)
    assert refused.value.code == "lease_id_mismatch"
    assert bench.issue("pump").status is Status.IN_PROGRESS
    failed = {step["resultClass"] for step in sessions.trajectory("failed")}
    assert failed == {"tool.join_incomplete", "lease_id_mismatch"}
    (session,) = sessions.sessions("pump")
    assert (session.active, session.failures, session.turns) == (True, 1, 0), "the step is not one of the new holder"
    assert sessions.finish_work("other", "pump", taken.fence, DONE, None)["status"] == "closed"
    assert audit(bench.store).problems == []


def test_an_expired_lease_closes_nothing(bench: Workbench, sessions: SessionMemory) -> None:
    session = sessions.start("slow", "pump", 30)
    assert session is not None
    bench.clock.pass_(31)
    with pytest.raises(ChangeRefused, match="has expired; start again"):
        sessions.finish_work("slow", "pump", session.fence, DONE, None)
    with pytest.raises(ChangeRefused, match="has expired; start again"):
        sessions.turn("slow", "pump", session.fence, {"evidence": {}}, None)
    assert not sessions.stop("slow", "pump", session.fence, {"summary": "too slow"}).active
    assert bench.ready() == ["pump"]


def test_the_store_of_sessions_is_created_beside_existing_issues(tmp_path: Path) -> None:
    """A database without the table of sessions gets it when it is opened."""
    from manglecp.issues import open_issues
    from manglecp.issues.tables import ISSUES
    from manglecp.store.store import open_database

    open_database(tmp_path / "issues.db", parts=[ISSUES]).close()
    store = open_issues(tmp_path / "issues.db")
    assert audit(store).problems == []
    store.close()
