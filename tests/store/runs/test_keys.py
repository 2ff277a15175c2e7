"""A request key leads to one run, however often and from wherever it comes."""

from __future__ import annotations

import threading

import pytest

from manglecp.store.errors import KeyTaken
from manglecp.store.ledger import Ledger
from manglecp.store.run_model import RunState
from manglecp.store.store import open_database
from tests.store.runs.bench import PARTS, Bench, new_run


def test_the_second_is_told_of_the_first(bench: Bench) -> None:
    bench.accept("r1", key="k", digest="sha256:one")
    for digest in ("sha256:one", "sha256:other"):
        with pytest.raises(KeyTaken) as raised:
            bench.accept("r2", key="k", digest=digest)
        assert (raised.value.run_id, raised.value.request_digest) == ("r1", "sha256:one")
    with bench.database.read_transaction() as tx:
        found = bench.runs.by_key(tx, "kim", "k")
        assert bench.runs.show(tx, "r2") is None
    assert found == bench.shown("r1").run


def test_keys_belong_to_identities(bench: Bench) -> None:
    bench.accept("r1", key="k")
    bench.accept("r2", key="k", identity="lee")
    bench.accept("r3", key="K")
    with bench.database.read_transaction() as tx:
        runs = [bench.runs.by_key(tx, *which) for which in (("kim", "k"), ("lee", "k"), ("kim", "K"), ("lee", "K"))]
    assert [run and run.run_id for run in runs] == ["r1", "r2", "r3", None]


def test_without_a_key_every_request_is_a_run(bench: Bench) -> None:
    bench.accept("r1")
    bench.accept("r2")
    assert bench.shown("r2").run.request_key is None


@pytest.mark.parametrize("state", list(RunState))
def test_in_whatever_state_the_run_is(bench: Bench, state: RunState) -> None:
    bench.accept(key="k")
    if state == RunState.NEEDS_DECISION:
        bench.undecided()
    elif state != RunState.RUNNING:
        bench.end(state)
    with pytest.raises(KeyTaken):
        bench.accept("r2", key="k")


def test_at_the_same_time(bench: Bench, where: str) -> None:
    """One run for each key; what the others wrote in their transactions is gone with them."""
    benches = [bench, *(Bench(open_database(where, parts=PARTS, patience=60)) for _ in range(3))]
    ready = threading.Barrier(len(benches))
    accepted: list[tuple[str, str]] = []
    taken: list[tuple[str, str]] = []
    with bench.database.read_transaction() as tx:
        before = Ledger().head(tx).seq

    def work(number: int, mine: Bench) -> None:
        for round_ in range(15):
            run_id, key = f"r{round_}.{number}", f"k{round_}"
            ready.wait(60)
            try:
                with mine.database.write_transaction() as tx:
                    mine.runs.accept(tx, new_run(run_id, key=key))
                    Ledger().append(tx, "admission", {}, run=run_id)
            except KeyTaken as error:
                taken.append((key, error.run_id))
            else:
                accepted.append((key, run_id))

    threads = [threading.Thread(target=work, args=one) for one in enumerate(benches)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    winners = dict(accepted)
    assert len(accepted) == len(winners) == 15
    assert len(taken) == 15 * (len(benches) - 1)
    assert all(winners[key] == run_id for key, run_id in taken)
    with bench.database.read_transaction() as tx:
        assert {run.run_id for run in bench.runs.list(tx)} == set(winners.values())
        assert {entry.run for entry in Ledger().rows(tx, before)} == set(winners.values())
    for other in benches[1:]:
        other.database.close()
