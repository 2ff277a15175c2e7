"""The cost of journal records: wall time on a shared machine, the median of many steps.

``undisturbed`` is the least median of twenty steps in a row, which is close to the time on an idle machine.

A step is two transactions: before it is sent (with the witness of its turn in the ledger), and its outcome. Values are
encrypted, as in production. ``accept`` is the transaction that admits a run (with its ledger entry), ``end`` deletes
its values, ``heartbeat`` renews the ownership of 100 runs, and ``claim`` takes over a run of 20 steps.

A figure outside of its budget is marked; a slow machine does not fail the benchmark.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from _postgres import postgres
from _table import print_table

from manglecp.store import Store, open_store
from manglecp.store.database import Synchronous
from manglecp.store.run_model import NewRun, RunState, StepEnd, StepStart, StepState, Values

STEPS: Final = 20
RUNS: Final = 40
HOUR: Final = 3_600_000
PACK: Final = "sha256:" + "a" * 64
INPUT: Final = b"i" * 300
OUTPUT: Final = b"o" * 700
SLOTS: Final = b"s" * 500
WITNESS: Final = {
    "witness": "jw1_" + "b" * 64,
    "turn": 2,
    "mutation": "sha256:" + "c" * 64,
    "evidence": "sha256:" + "d" * 64,
    "calls": [{"call": "run/s1/1", "action": "AID.PLUGIN.CHARGE.v1", "input": "sha256:" + "e" * 64}],
}


def new_run(run_id: str) -> NewRun:
    return NewRun(
        run_id=run_id,
        identity="bench",
        macro_id="macro_0123456789abcdef",
        pack_digest=PACK,
        request_digest="sha256:" + "f" * 64,
        request_key=run_id,
        admission=b"{" + b"a" * 600 + b"}",
        values=Values(plan=b"p" * 3_000, args=b"a" * 600, slots=SLOTS),
        owner="bench",
        claim_ms=HOUR,
    )


class Journal:
    """The measured transactions."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def accept(self, run_id: str) -> None:
        with self.store.write_transaction() as tx:
            self.store.runs.accept(tx, new_run(run_id))
            self.store.ledger.append(tx, "admission", WITNESS, run=run_id, identity="bench")

    def step(self, run_id: str, number: int) -> None:
        start = StepStart(
            number=number,
            call_id=f"{run_id}/s{number}/1",
            action="charge",
            tier=2,
            repeatable=False,
            input=INPUT,
            input_digest=PACK,
            witness="jw1_" + "b" * 64,
        )
        with self.store.write_transaction() as tx:
            self.store.runs.record_starts(tx, run_id, 1, [start], slots=SLOTS)
            self.store.ledger.append(tx, "turn", WITNESS, run=run_id, identity="bench")
        end = StepEnd(number=number, state=StepState.DONE, output=OUTPUT, output_digest=PACK)
        with self.store.write_transaction() as tx:
            self.store.runs.record_ends(tx, run_id, 1, [end], slots=SLOTS)

    def end(self, run_id: str) -> None:
        with self.store.write_transaction() as tx:
            self.store.runs.end(tx, run_id, 1, RunState.SUCCEEDED, OUTPUT)
            self.store.ledger.append(tx, "end", WITNESS, run=run_id, identity="bench")


def milliseconds(do: Callable[..., object], *args: object) -> float:
    start = time.perf_counter()
    do(*args)
    return (time.perf_counter() - start) * 1_000


def measure(where: str | Path, synchronous: Synchronous, runs: int) -> dict[str, float]:
    """Return the medians in milliseconds."""
    store = open_store(where, synchronous=synchronous, key=os.urandom(32))
    journal = Journal(store)
    took: dict[str, list[float]] = {name: [] for name in ("accept", "step", "heartbeat", "end", "claim")}
    names = [f"{synchronous}-{number}" for number in range(runs)]
    for name in names:
        took["accept"].append(milliseconds(journal.accept, name))
        for number in range(1, STEPS + 1):
            took["step"].append(milliseconds(journal.step, name, number))
    others = [f"{synchronous}-other-{number}" for number in range(100 - runs)]
    for name in others:
        journal.accept(name)
    beating = dict.fromkeys([*names, *others], 1)
    for _ in range(20):
        took["heartbeat"].append(milliseconds(store.runs.heartbeat, "bench", beating, HOUR))
    half = runs // 2
    for name in names[:half]:
        took["end"].append(milliseconds(journal.end, name))
    store.runs.heartbeat("bench", dict.fromkeys(names[half:], 1), 0)
    for _ in names[half:]:
        took["claim"].append(milliseconds(store.runs.take_over, "other", HOUR, [PACK], 3))
    store.close()
    rounds = [took["step"][at : at + STEPS] for at in range(0, len(took["step"]), STEPS)]
    medians = {name: statistics.median(times) for name, times in took.items()}
    return medians | {"undisturbed": min(map(statistics.median, rounds))}


def main() -> None:
    figures: list[tuple[str, dict[str, float] | None, float | None]] = []
    with tempfile.TemporaryDirectory() as folder, postgres() as url:
        for name, where, allowed in (("SQLite", None, 0.6), ("PostgreSQL", url, 1.0)):
            for synchronous, most, runs in (("normal", allowed, RUNS), ("full", None, RUNS // 4)):
                place = where or Path(folder) / f"{synchronous}.sqlite3"
                missing = name == "PostgreSQL" and url is None
                measured = None if missing else measure(place, synchronous, runs)  # type: ignore[arg-type]
                figures.append((f"{name}, {synchronous}", measured, most))
    rows = []
    for name, measured, most in figures:
        if measured is None:
            rows.append((name, *["not installed"] * 8))
            continue
        verdict = "" if most is None or measured["step"] <= most else "MISSED"
        cells = [f"{measured[what]:.3f}" for what in ("step", "undisturbed", "accept", "end", "heartbeat", "claim")]
        rows.append((name, cells[0], "" if most is None else f"{most:.1f}", verdict, *cells[1:]))
    print_table(("ms (median)", "step", "budget", "", "undisturbed", "accept", "end", "heartbeat", "claim"), rows)


if __name__ == "__main__":
    main()
