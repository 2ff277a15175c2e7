"""`manglecp worker`: what it takes up, what it leaves, and how it ends."""

from __future__ import annotations

import json
import signal
import sqlite3
from pathlib import Path

import pytest

from manglecp.store import RunState, open_store
from tests.cli.conftest import Run
from tests.cli.letters import PATIENCE, manglecp, wait_for, write_pack
from tests.store.postgres import postgres_url

__all__ = ["postgres_url"]


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "store.db"
    monkeypatch.setenv("MANGLECP_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("MANGLECP_STORE", str(path))
    return path


@pytest.fixture
def pack(tmp_path: Path) -> str:
    return str(write_pack(tmp_path / "letters"))


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.fixture
def left(run: Run, pack: str, work: Path) -> str:
    """A run that can be resumed and has no owner."""
    sent = ("--intent", "send", "--arg", "text=a", "--workspace", str(work), "--confirm")
    assert run("call", pack, "send_letter", *sent).exit_code == 1
    (doubted,) = json.loads(run("runs", "list", "--json").stdout)
    assert run("runs", "decide", doubted["run_id"], "--step", "2", "--did-not").exit_code == 0
    return str(doubted["run_id"])


def state_of(store: Path, run_id: str) -> RunState:
    opened = open_store(store)
    try:
        with opened.read_transaction() as tx:
            shown = opened.runs.show(tx, run_id)
        assert shown is not None
        return shown.run.state
    finally:
        opened.close()


def test_once_carries_out_what_is_there(run: Run, store: Path, pack: str, work: Path, left: str) -> None:
    shown = run("worker", pack, "--workspace", str(work), "--once")
    assert shown.exit_code == 0
    assert shown.stderr.endswith("1 run resumed\n")
    assert state_of(store, left) == RunState.SUCCEEDED
    assert (work / "stamped.txt").read_text() == "n1\n"
    assert run("worker", pack, "--once").stderr.endswith("0 runs resumed\n")


def test_once_says_what_is_left_to_a_decision(run: Run, store: Path, pack: str, work: Path, left: str) -> None:
    """The process ends once more in the same step: the operator is notified and has to decide again."""
    (work / "box.txt").unlink()
    shown = run("worker", pack, "--workspace", str(work), "--once")
    assert shown.exit_code == 0
    assert shown.stderr.endswith(f"0 runs resumed\n1 run in needs_decision: {left}\n"), shown.stderr
    assert "WARNING post failed (run " in shown.stderr
    assert state_of(store, left) == RunState.NEEDS_DECISION


def test_once_says_what_still_belongs_to_somebody(run: Run, store: Path, pack: str, work: Path, left: str) -> None:
    """A worker started right after a crash reports the runs that are still owned, not that there are none."""
    with sqlite3.connect(store) as database:
        far = 4_000_000_000_000
        database.execute("UPDATE runs SET owner = 'elsewhere', claim_until_ms = ? WHERE run_id = ?", (far, left))
    database.close()
    shown = run("worker", pack, "--workspace", str(work), "--once")
    assert shown.stderr.endswith("0 runs resumed\n1 run still owned, until 15 s without a heartbeat\n")


def test_runs_of_other_editions_are_left_alone(run: Run, store: Path, pack: str, work: Path, left: str) -> None:
    shown = run("worker", pack, "--workspace", str(work), "--once", "--set", "carrier=dove")
    assert shown.stderr.endswith("0 runs resumed\n")
    assert state_of(store, left) == RunState.RUNNING


def test_a_worker_that_is_told_to_stop_ends_what_it_began(store: Path, pack: str, work: Path, left: str) -> None:
    (work / "wait").touch()
    worker = manglecp("worker", pack, "--workspace", str(work))
    wait_for(work / "reached", worker)
    worker.send_signal(signal.SIGTERM)
    assert worker.stderr is not None
    while "stopping after the current runs" not in (line := worker.stderr.readline()):
        assert line, "it ended"
    assert state_of(store, left) == RunState.RUNNING
    (work / "go").touch()
    worker.communicate(timeout=PATIENCE)
    assert worker.returncode == 0
    assert state_of(store, left) == RunState.SUCCEEDED


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_worker_goes_on_where_a_killed_call_stopped(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, run: Run, pack: str, work: Path, kind: str
) -> None:
    """The first effect is not repeated. The second one is: it was under way, and its action is idempotent."""
    where = request.getfixturevalue("postgres_url") if kind == "postgresql" else str(work.parent / "other.db")
    monkeypatch.setenv("MANGLECP_STORE", where)
    (work / "wait").touch()
    (work / "box.txt").touch()  # no letter is the first one
    sent = ("--intent", "seal", "--arg", "letter=a", "--workspace", str(work), "--confirm")
    killed = manglecp("call", pack, "seal_letter", *sent, "--request-key", "k")
    wait_for(work / "reached", killed)
    killed.kill()
    killed.communicate(timeout=PATIENCE)
    opened = open_store(where)
    with opened.write_transaction() as tx:  # nobody wants to wait until the claim has lapsed
        tx.execute("UPDATE runs SET claim_until_ms = 0")
    opened.close()
    (work / "go").touch()
    assert run("worker", pack, "--workspace", str(work), "--once").stderr.endswith("1 run resumed\n")
    assert (work / "box.txt").read_text() == "a\n"
    assert (work / "sealed.txt").read_text() == "wax"
    (done,) = json.loads(run("runs", "list", "--json").stdout)
    assert done["state"] == "succeeded"
    assert run("ledger", "verify").exit_code == 0
    assert '"sealed":"wax"' in run("call", pack, "seal_letter", *sent, "--request-key", "k", "--json").stdout


def test_wrong_command_lines(run: Run, tmp_path: Path, pack: str) -> None:
    assert run("worker").exit_code == 2
    (tmp_path / "none").mkdir()
    assert run("worker", str(tmp_path / "none")).exit_code == 1
    assert run("worker", pack, "--store", "ftp://x").stderr.startswith("error[store]: ")
