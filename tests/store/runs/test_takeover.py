"""Whose a run is, and when it becomes somebody else's."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from manglecp.store.database import Transaction
from manglecp.store.errors import Fenced, Unusable
from manglecp.store.run_model import OwnedRun, Run, RunState, Values
from manglecp.store.run_store import POISONED
from manglecp.store.store import open_database
from tests.store.runs.bench import HOUR, PACK, PARTS, Bench, ending, read, start

ROOT = Path(__file__).resolve().parents[3]


def test_not_before_the_claim_has_lapsed(bench: Bench) -> None:
    bench.accept()
    assert bench.claim() is None
    with bench.database.write_transaction() as tx:
        tx.execute("UPDATE runs SET claim_until_ms = ?", (tx.now_ms() + 60_000,))
    assert bench.claim() is None
    bench.lapse()
    claimed = bench.claim()
    assert claimed is not None
    assert (claimed.run.owner, claimed.run.fence, claimed.run.takeovers) == ("second", 2, 1)
    assert claimed.run.claim_until_ms > claimed.run.touched_ms
    assert bench.claim("third") is None


def test_it_lapses_by_itself(bench: Bench) -> None:
    began = time.monotonic()
    bench.accept(claim_ms=300)
    claimed = None
    while claimed is None:
        claimed = bench.claim()
        assert time.monotonic() < began + 60
        time.sleep(0.01)
    assert time.monotonic() > began + 0.29


def test_everything_that_it_takes_to_go_on(bench: Bench) -> None:
    bench.accept()
    bench.started(start(2), settled=[read(1)], slots=b"slots")
    bench.finished(ending(2))
    bench.started(start(3), start(4, repeatable=True))
    bench.lapse()
    claimed = bench.claim()
    assert claimed is not None
    assert claimed.values == Values(plan=b"the plan", args=b"the arguments", slots=b"slots")
    assert [(step.number, step.state.value, step.output) for step in claimed.steps] == [
        (1, "done", b"reply"),
        (2, "done", b"out"),
        (3, "unknown", None),
        (4, "unknown", None),
    ]
    assert [step.code for step in claimed.steps] == [None, None, "outcome_unknown", "outcome_unknown"]
    assert claimed == bench.loaded()


def test_only_runs_of_packs_that_are_loaded(bench: Bench) -> None:
    bench.accept("a", pack="sha256:a", claim_ms=0)
    bench.accept("b", pack="sha256:b", claim_ms=0)
    assert bench.claim(packs=()) is None
    assert bench.claim(packs=("sha256:c",)) is None
    claimed = bench.claim(packs=("sha256:c", "sha256:b"))
    assert claimed is not None
    assert claimed.run.run_id == "b"
    assert bench.claim(packs=("sha256:c", "sha256:b")) is None


def test_one_that_is_asked_for(bench: Bench) -> None:
    for run_id in ("a", "b", "c"):
        bench.accept(run_id, claim_ms=0)
    bench.accept("d")
    claimed = bench.claim(run_id="b")
    assert claimed is not None
    assert claimed.run.run_id == "b"
    assert bench.claim(run_id="b") is None
    assert bench.claim(run_id="d") is None


def test_the_longest_lapsed_first(bench: Bench) -> None:
    for run_id, until in (("a", 3), ("b", 1), ("c", 2)):
        bench.accept(run_id)
        with bench.database.write_transaction() as tx:
            tx.execute("UPDATE runs SET claim_until_ms = ? WHERE run_id = ?", (until, run_id))
    claims = [bench.claim() for _ in range(4)]
    assert [claim and claim.run.run_id for claim in claims] == ["b", "c", "a", None]


def test_one_that_cannot_be_read_is_in_nobodys_way(bench: Bench) -> None:
    """Somebody with another key can go on with it, and it is not taken to be poison."""
    for run_id, until in (("a", 1), ("b", 2), ("c", 3)):
        bench.accept(run_id)
        with bench.database.write_transaction() as tx:
            tx.execute("UPDATE runs SET claim_until_ms = ? WHERE run_id = ?", (until, run_id))
    with bench.database.write_transaction() as tx:
        (plan,) = tx.execute("SELECT plan FROM run_values WHERE run_id = 'a'").fetchone()
        tx.execute("UPDATE run_values SET plan = ? WHERE run_id = 'a'", (b"\x02",))
    claims = [bench.claim() for _ in range(2)]
    assert [claim and claim.run.run_id for claim in claims] == ["b", "c"]
    for _ in range(10):
        with pytest.raises(Unusable, match="a/plan is damaged"):
            bench.claim()
    with pytest.raises(Unusable, match="a/plan is damaged"):
        bench.claim(run_id="a")
    with bench.database.write_transaction() as tx:
        tx.execute("UPDATE run_values SET plan = ? WHERE run_id = 'a'", (plan,))
    claimed = bench.claim()
    assert claimed is not None
    assert (claimed.run.run_id, claimed.run.fence) == ("a", 2)


def test_a_heartbeat_keeps_all_runs_of_an_owner(bench: Bench) -> None:
    bench.accept("a")
    bench.accept("b")
    bench.accept("c", owner="somebody else", claim_ms=0)
    bench.accept("d", claim_ms=0)
    for run_id in ("a", "b"):
        bench.lapse(run_id)
    assert bench.runs.heartbeat("first", {"a": 1, "b": 1}, HOUR) == set()
    assert {claim.run.run_id for claim in (bench.claim(), bench.claim()) if claim} == {"c", "d"}, "not those renewed"
    assert bench.claim() is None
    assert bench.runs.heartbeat("first", {}, HOUR) == set()


def test_a_heartbeat_says_what_is_lost(bench: Bench) -> None:
    for run_id in ("kept", "taken", "ended", "undecided", "released", "twice"):
        bench.accept(run_id)
    for run_id, owner in (("taken", "second"), ("twice", "first")):
        bench.lapse(run_id)
        assert bench.claim(owner) is not None
    bench.end(run="ended")
    bench.undecided(run="undecided")
    with bench.database.write_transaction() as tx:
        bench.runs.release(tx, "released", 1)
    mine = dict.fromkeys(("kept", "taken", "ended", "undecided", "released", "twice", "never"), 1)
    assert bench.runs.heartbeat("first", mine, HOUR) == set(mine) - {"kept"}
    assert bench.runs.heartbeat("second", {"taken": 2}, HOUR) == set()
    assert bench.runs.heartbeat("first", {"kept": 1, "twice": 2}, HOUR) == set()


def test_what_is_released_is_free_at_once_or_later(bench: Bench) -> None:
    bench.accept("a")
    bench.accept("b")
    with bench.database.write_transaction() as tx:
        bench.runs.release(tx, "a", 1)
        bench.runs.release(tx, "b", 1, after_ms=HOUR)
    claimed = bench.claim()
    assert claimed is not None
    assert (claimed.run.run_id, claimed.run.takeovers) == ("a", 0)
    assert bench.claim() is None
    with pytest.raises(Fenced), bench.database.write_transaction() as tx:
        bench.runs.release(tx, "b", 2)


def test_the_poison_limit(bench: Bench) -> None:
    """What kills everybody who touches it is set aside, and others are still claimed."""
    bench.accept("bad", claim_ms=0)
    bench.accept("good", claim_ms=0)
    with bench.database.write_transaction() as tx:
        tx.execute("UPDATE runs SET claim_until_ms = 0 WHERE run_id = 'bad'")
    bench.started(start(7, repeatable=True), start(8), run="bad")
    for fence in (2, 3):
        claimed = bench.claim(f"w{fence}", most=2, claim_ms=0, run_id="bad")
        assert claimed is not None
        assert (claimed.run.fence, claimed.run.takeovers) == (fence, fence - 1)
    told: list[Run] = []

    def tell(tx: Transaction, run: Run) -> None:
        tx.execute("UPDATE runs SET macro_id = 'told' WHERE run_id = ?", (run.run_id,))
        told.append(run)

    with bench.database.write_transaction() as tx:
        tx.execute("UPDATE runs SET claim_until_ms = 0 WHERE run_id = 'bad'")
    claimed = bench.claim("w4", most=2, on_poisoned=tell)
    assert claimed is not None
    assert claimed.run.run_id == "good"
    assert [run.run_id for run in told] == ["bad"]
    bad = bench.shown("bad").run
    assert (bad.state, bad.code, bad.owner, bad.fence) == (RunState.NEEDS_DECISION, POISONED, None, 4)
    assert (bad.step, bad.kind) == (8, "do"), "the step that must not be repeated"
    assert bad.macro_id == "told", "in the same transaction"
    assert bench.states("bad") == [("do", 7, 1, "unknown"), ("do", 8, 1, "unknown")]
    assert bench.claim(run_id="bad") is None


def test_who_gets_on_is_no_poison(bench: Bench) -> None:
    bench.accept(claim_ms=0)
    for number in range(1, 6):
        claimed = bench.claim(f"w{number}", most=1, claim_ms=0)
        assert claimed is not None
        assert claimed.run.takeovers == 1
        bench.started(start(number), fence=claimed.run.fence)
        bench.finished(ending(number), fence=claimed.run.fence)
    for fence in (7, 8):
        claimed = bench.claim(most=2, claim_ms=0)
        assert claimed is not None
        assert (claimed.run.fence, claimed.run.takeovers) == (fence, fence - 6)


def test_threads_never_get_one_run(bench: Bench) -> None:
    names = {f"r{number}" for number in range(40)}
    for name in sorted(names):
        bench.accept(name, claim_ms=0)
    ready = threading.Barrier(4)
    claims: list[tuple[str, OwnedRun]] = []

    def work(owner: str) -> None:
        ready.wait(60)
        while any_left():
            claimed = bench.claim(owner)
            if claimed is not None:
                claims.append((owner, claimed))

    def any_left() -> bool:
        return len(claims) < len(names)

    threads = [threading.Thread(target=work, args=(f"w{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert Counter(claimed.run.run_id for _, claimed in claims) == Counter(names)
    for owner, claimed in claims:
        assert (claimed.run.owner, claimed.run.fence) == (owner, 2)
        assert bench.shown(claimed.run.run_id).run.owner == owner


def test_processes_never_get_one_run(bench: Bench, where: str) -> None:
    names = {f"r{number}" for number in range(60)}
    for name in sorted(names):
        bench.accept(name, claim_ms=0)
    command = [sys.executable, "-m", "tests.store.runs._claimer", where, PACK]
    claimers = [
        subprocess.Popen(
            [*command, f"w{number}"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(3)
    ]
    for claimer in claimers:
        assert claimer.stdout is not None
        assert claimer.stdout.readline() == "here\n"
    for claimer in claimers:
        assert claimer.stdin is not None
        claimer.stdin.write("\n")
        claimer.stdin.flush()
    claims: list[str] = []
    for claimer in claimers:
        out, err = claimer.communicate(timeout=120)
        assert (claimer.returncode, err) == (0, "")
        claims += out.split()
    assert Counter(claims) == Counter(names)
    assert {bench.shown(name).run.fence for name in names} == {2}


def test_one_that_dies_with_a_run_loses_it_after_its_claim(bench: Bench, where: str) -> None:
    """Closing a database, or dying, ends no claim; time does."""
    other = Bench(open_database(where, parts=PARTS))
    other.accept(owner="dead")
    other.database.close()
    assert bench.claim() is None
    bench.lapse()
    assert bench.claim() is not None
