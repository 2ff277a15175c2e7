"""The side of crash tests that lives on: it starts processes, waits, and looks at what they left behind.

What must hold is asked of the journal, the ledger and the book of effects, never of a process that took part.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, Queue
from typing import Any, TypeVar

from manglecp.store import Run, RunState, RunView, StepState, Store, open_store
from tests.crash.coordinator import CLAIM_MS
from tests.crash.pack import CHAINS, ONCE, UNDONE, write_pack
from tests.deadlines import patience

__all__ = [
    "PATIENCE",
    "Case",
    "Site",
    "check",
    "clean",
    "crash",
    "crash_all",
    "crash_cleanly",
    "crashing",
    "inside",
    "points",
    "show_times",
    "take_over_times",
    "until",
]

PATIENCE = patience(120.0)
"""Seconds. A loaded machine is slow, not wrong."""
AROUND = ("gate", "started", "lease_granted", "answered", "finished")
ROOT = Path(__file__).parents[2]
T = TypeVar("T")


def until(look: Callable[[], T | None], what: str, patience: float = PATIENCE) -> T:
    """What ``look`` finds, as soon as it finds something."""
    deadline = time.monotonic() + patience
    while True:
        if (found := look()) is not None:
            return found
        assert time.monotonic() < deadline, f"waited {patience} s for {what}"
        time.sleep(0.01)


def points(tool: str) -> list[str]:
    """All named points of a chain, in the order in which they are met."""
    effects = CHAINS[tool]
    around = [f"{moment}:{label}" for label in effects for moment in AROUND]
    reads = {"mixed": ["s1", "s3", "s5"], "side": ["s1"], "back": []}[tool]
    gates = len(effects) - (tool == "side")  # two effects share one
    entries = [("admission", 1), ("turn", gates + 1), ("step", len(effects)), ("end", 1)]
    uncommitted = [f"uncommitted:{kind}:{n}" for kind, count in entries for n in range(1, count + 1)]
    return ["accepted", *(f"answered:{label}" for label in reads), *around, *uncommitted, "closing", "ended"]


def inside(tool: str) -> list[str]:
    """Points inside the actions."""
    return [
        f"{when}:{label}" for label in CHAINS[tool] for when in ("before", "after") if label != "s3" or tool != "back"
    ]


@dataclass
class Case:
    """One process that died, and what became of its run."""

    tool: str
    point: str
    who: str = "coordinator"
    how: str = "kill"
    name: str = ""
    killed: bool = False
    died_ms: int | None = None
    run: Run | None = None
    shown: RunView | None = None
    answers: list[dict[str, Any]] = field(default_factory=list)
    effects: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        return f"{self.tool} {self.point} {self.who} ({self.name}): {self.run} {self.effects} {self.answers}"


class Site:
    """One store, the process that forks the others, and the files in which they tell what they did."""

    def __init__(self, folder: Path, store: str) -> None:
        self.book = folder / "book"
        self.book.mkdir()
        write_pack(folder / "pack")
        self.url = store
        self.store: Store = open_store(store, patience=60.0)
        command = [sys.executable, "-m", "tests.crash.coordinator", str(folder / "pack"), store, str(self.book)]
        self._errors = (folder / "errors").open("wb")
        self._source = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, "CRASH_CLAIM_MS": str(CLAIM_MS)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )
        assert self._source.stdout is not None
        assert self._source.stdout.readline(), (folder / "errors").read_text()
        self._lock = threading.Lock()
        self._reviving = threading.Lock()
        self._told: dict[str, Queue[dict[str, Any]]] = {}
        self._inboxes: dict[str, Any] = {}
        self._numbers = iter(range(1_000_000))
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def close(self) -> None:
        assert self._source.stdin is not None
        for name, inbox in self._inboxes.items():
            inbox.close()
            self.status(name)
        self._source.stdin.close()
        self._source.wait(PATIENCE)
        self._listener.join(PATIENCE)
        assert self._source.stdout is not None
        self._source.stdout.close()
        self.store.close()
        self._errors.close()

    def _listen(self) -> None:
        assert self._source.stdout is not None
        for line in self._source.stdout:
            said = json.loads(line)
            self._told[said["id"]].put(said)

    # --- processes ---------------------------------------------------------------------------------------------------

    def start(self, name: str, role: str, /, **given: Any) -> int:
        """The id of the new process."""
        self._told[name] = Queue()
        assert self._source.stdin is not None
        with self._lock:
            self._source.stdin.write(json.dumps({"id": name, "role": role, **given}).encode() + b"\n")
            self._source.stdin.flush()
        return int(self._told[name].get(timeout=PATIENCE)["pid"])

    def status(self, name: str) -> int:
        """How the process ended, when it has."""
        try:
            return int(self._told[name].get(timeout=PATIENCE)["status"])
        except Empty:
            raise AssertionError(f"{name} did not end") from None

    def worker(self, name: str) -> None:
        """Somebody who takes over; ready when this returns."""
        inbox, before = self.book / f"{name}.inbox", len(self.said("answers", name))
        os.mkfifo(inbox)
        self.start(name, "worker", name=name, inbox=str(inbox))
        until(lambda: self.said("answers", name)[before:] or None, f"worker {name}")
        self._inboxes[name] = inbox.open("wb", buffering=0)

    def _revive(self, name: str, inbox: Any) -> None:
        """Start a worker again that was killed. Rarely one is, together with a host; its runs must survive that too."""
        with self._reviving:
            if self._inboxes[name] is inbox:
                status = self.status(name)
                assert os.WIFSIGNALED(status), f"{name} ended with {status}: see errors"
                inbox.close()
                (self.book / f"{name}.inbox").unlink()
                self.worker(name)

    def ask(self, worker: str, case: str, tool: str) -> dict[str, Any]:
        """What this worker answers to the invocation under the key of the case."""
        before = len(self.said("answers", case))

        def found() -> dict[str, Any] | None:
            answers = (one for one in self.said("answers", case)[before:] if one["by"] == worker)
            is_gone = self._inboxes[worker] is not inbox or not self._told[worker].empty()
            return next(answers, {} if is_gone else None)

        while True:
            inbox = self._inboxes[worker]
            with self._lock, contextlib.suppress(BrokenPipeError):
                inbox.write(json.dumps({"case": case, "tool": tool}).encode() + b"\n")
            if answer := until(found, f"the answer to {case}"):
                return answer
            self._revive(worker, inbox)

    def victim(self, case: Case) -> int:
        case.name = f"c{next(self._numbers)}"
        given = {"tool": case.tool, "point": case.point, "who": case.who, "how": case.how}
        return self.start(case.name, "victim", case=case.name, **given)

    # --- what is left ------------------------------------------------------------------------------------------------

    def said(self, file: str, case: str) -> list[dict[str, Any]]:
        return [one for line in self._lines(file) if (one := json.loads(line))["case"] == case]

    def effects(self, case: str) -> Counter[str]:
        return Counter(label for name, label in map(str.split, self._lines("effects")) if name == case)

    def _lines(self, file: str) -> list[str]:
        """Those that are whole: somebody may be writing the last one."""
        place = self.book / file
        return place.read_text().split("\n")[:-1] if place.exists() else []

    def run(self, case: str) -> Run | None:
        with self.store.read_transaction() as tx:
            return self.store.runs.by_key(tx, "me", case)

    def over(self, case: str) -> Run | None:
        """The run if nobody works on it any more."""
        run = self.run(case)
        return None if run is None or run.state == RunState.RUNNING else run

    def look(self, case: Case) -> None:
        """Fill in what became of it."""
        case.run = self.run(case.name)
        if case.run is not None:
            with self.store.read_transaction() as tx:
                case.shown = self.store.runs.show(tx, case.run.run_id)
        case.effects = self.effects(case.name)
        case.answers = self.said("answers", case.name)
        deaths = self.said("deaths", case.name)
        case.died_ms = deaths[0]["at_ms"] if deaths else None

    def verify(self) -> None:
        with self.store.read_transaction() as tx:
            assert not self.store.ledger.verify(tx).findings
            assert not self.store.runs.list(tx, RunState.RUNNING), "a run was left behind"


@contextmanager
def crashing(folder: Path, store: str, *workers: str) -> Iterator[Site]:
    """A site with these workers; when it is left the ledger verifies and nothing is under way."""
    site = Site(folder, store)
    try:
        for worker in workers:
            site.worker(worker)
        yield site
        site.verify()
    finally:
        site.close()


def crash(site: Site, case: Case, workers: tuple[str, ...]) -> Case:
    """Have a process die, and its run taken over; ask for the answer under the same key."""
    site.victim(case)
    status = site.status(case.name)
    case.killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    if case.killed and case.point == "uncommitted:admission:1":
        assert site.run(case.name) is None, "it was never acknowledged"
        assert not site.effects(case.name)
    asked = [site.ask(worker, case.name, case.tool) for worker in workers]
    assert all({**one, "by": ""} == {**asked[0], "by": ""} for one in asked), "one run, one answer"
    until(lambda: site.over(case.name), f"the end of {case}")
    site.look(case)
    return case


def crash_all(site: Site, cases: Iterable[Case], *workers: str, at_once: int = 3) -> list[Case]:
    """Every case, a few at a time, and what always holds of each."""
    with ThreadPoolExecutor(at_once) as threads:
        done = list(threads.map(lambda case: crash(site, case, workers), cases))
    for case in done:
        check(case)
    return done


# --- what must hold --------------------------------------------------------------------------------------------------


def check(case: Case) -> None:
    """What holds of every case, wherever its process died and however slow the machine was."""
    run, shown = case.run, case.shown
    assert run is not None, case
    assert shown is not None, case
    assert run.state in (RunState.SUCCEEDED, RunState.FAILED, RunState.NEEDS_DECISION), case
    for label in ONCE[case.tool]:
        assert case.effects[label] <= 1, f"{label} happened twice: {case}"
    steps = [step for step in shown.steps if step.tier > 0]
    assert not [step for step in steps if step.state == StepState.STARTED], case
    for step in steps:
        if step.state == StepState.DONE:
            assert case.effects[f"{'s' if step.kind == 'do' else 'u'}{step.number}"] >= 1, f"never done: {case}"
    on_record = {f"{'s' if step.kind == 'do' else 'u'}{step.number}" for step in steps}
    assert set(case.effects) <= on_record, f"an effect without a record: {case}"
    _check_answer(case)


def _check_answer(case: Case) -> None:
    run = case.run
    assert run is not None
    answer = case.answers[-1]
    if run.state == RunState.SUCCEEDED:
        assert case.tool not in UNDONE, case
        assert "ok" in answer, case
        assert set(case.effects) == set(CHAINS[case.tool]), case
        return
    assert answer["error"] == "execution_failed", case
    details = answer["details"]
    assert details["run_id"] == run.run_id, case
    assert (details["reason"] == "needs_decision") == (run.state == RunState.NEEDS_DECISION), case
    told = {f"s{effect['step']}": effect["status"] for effect in details["effects"]}
    for label in case.effects:
        if label.startswith("s"):
            assert label in told, f"{label} is not told of: {case}"
    for label, status in told.items():
        if status == "done":
            assert case.effects[label] >= 1, case
        if status == "undone":
            assert case.effects[f"u{label[1:]}"] >= 1, case


def clean(case: Case) -> bool:
    """Did the process die where it was told to, and was its run taken over once? On a machine that is too busy for
    a claim of this length, a run may change hands because somebody was slow."""
    assert case.run is not None
    return case.run.fence == 1 if case.who == "host" else case.killed and case.run.fence <= 2


def crash_cleanly(site: Site, tool: str, point: str, who: str, worker: str) -> Case:
    """One case in which nobody was slow."""
    for _ in range(5):
        case = crash(site, Case(tool, point, who), (worker,))
        check(case)
        if clean(case):
            return case
    raise AssertionError(f"{point} was never reached")


def take_over_times(site: Site, cases: Iterable[Case]) -> list[int]:
    """Milliseconds from the death of a process to the claim of the next, by the clock of the journal."""
    times = []
    for case in cases:
        claims = [one for one in site.said("claims", case.name) if one["fence"] == 2]
        if case.died_ms is not None and claims:
            times.append(claims[0]["at_ms"] - case.died_ms)
    return times


def show_times(what: str, times: list[int]) -> None:
    periods = 2 * CLAIM_MS
    quick = sum(one <= periods for one in times)
    middle = statistics.median(times)
    print(
        f"{what}: {len(times)} take-overs, median {middle:.0f} ms, worst {max(times)} ms, {quick} within {periods} ms"
    )
