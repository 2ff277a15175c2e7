"""Several processes on one memory, and processes that are killed."""

from __future__ import annotations

import itertools
import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from manglecp.issues import Status
from manglecp.issues.integrity import audit, export_log, import_log
from tests.issues.conftest import Workbench

pytestmark = pytest.mark.no_cover  # whole processes, and the code in them is tested elsewhere

ROOT = Path(__file__).resolve().parents[2]


def start(module: str, *args: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", f"tests.issues.{module}", *args],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process: subprocess.Popen[str], *, status: int = 0) -> list[list[str]]:
    """Return the complete lines that the process has printed and the test has not read."""
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    limit = threading.Timer(120, process.kill)
    limit.start()
    with suppress(BrokenPipeError):
        process.stdin.close()
    # Not communicate(): what readline() has fetched beyond its line would be missing from it.
    out, err = process.stdout.read(), process.stderr.read()
    process.wait()
    limit.cancel()
    process.stdout.close()
    process.stderr.close()
    assert (process.returncode, err) == (status, "")
    return [line.split() for line in out.splitlines(keepends=True) if line.endswith("\n")]


@pytest.mark.parametrize("stale", [False, True])
def test_claimers_race(bench: Workbench, stale: bool) -> None:
    """Each issue is claimed once, without a lease before or with an expired one."""
    names = {f"i{number}" for number in range(60)}
    bench.clock.pass_(-10 * 365 * 86_400)  # long ago
    bench.add(*sorted(names))
    if stale:
        for name in names:
            bench.memory.claim("gone", name, 30)
    claimers = [start("_claimer", bench.where, f"w{number}") for number in range(4)]
    for claimer in claimers:
        assert claimer.stdout is not None
        assert claimer.stdout.readline() == "here\n"
    for claimer in claimers:
        assert claimer.stdin is not None
        claimer.stdin.write("\n")
        claimer.stdin.flush()
    claims = [claim for claimer in claimers for claim in ended(claimer)]
    assert len(claims) == 60
    assert {issue for issue, _ in claims} == names
    assert {fence for _, fence in claims} == {"2" if stale else "1"}
    assert audit(bench.store).problems == []


def test_writers_at_the_same_time(bench: Workbench) -> None:
    writers = [start("_writer", bench.where, name, "12") for name in ("p", "q", "r")]
    said = [line for writer in writers for line in ended(writer)]
    assert len(said) == 3 * 3 * 12
    result = audit(bench.store)
    assert (result.problems, result.head.seq, result.issue_count) == ([], 3 * 12 * 4, 3 * 12 * 2)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 4))])
def test_a_killed_writer(bench: Workbench, seed: int) -> None:
    """Everything that it said is there; the rest is there as a whole or not at all; others go on at once."""
    chance = random.Random(seed)
    writers = [start("_writer", bench.where, name, "1000000") for name in ("p", "q")]
    said: list[list[str]] = []
    for writer in writers:
        assert writer.stdout is not None
        said.append(writer.stdout.readline().split())  # it is at work
    time.sleep(chance.uniform(0.05, 0.4))
    for writer in writers:
        writer.kill()
    for writer in writers:
        said += ended(writer, status=-signal.SIGKILL)
    result = audit(bench.store)
    assert result.problems == []
    with bench.memory.view() as view:
        known = {issue.id: issue for issue in view.list()}
    for what, issue in said:
        assert issue in known, (what, issue)
        assert what != "closed" or known[issue].status is Status.CLOSED
    bench.add("afterwards")
    other = Workbench(":memory:")
    import_log(other.store, export_log(bench.store))
    assert audit(other.store).head == audit(bench.store).head
    other.store.close()


@pytest.mark.no_cover
def test_killed_in_front_of_every_statement(bench: Workbench) -> None:
    """Right, event, state and record of the evidence are there together or not at all."""
    bench.add("a")
    for statement in itertools.count(1):
        process = start("_crasher", bench.where, "a", str(statement))
        process.wait(60)
        if process.returncode == 0:
            break
        assert ended(process, status=-signal.SIGKILL) == []
        assert bench.events() == 1
        assert bench.issue("a").status is Status.OPEN
        assert audit(bench.store).problems == []
    assert statement > 8, "there were statements to die in front of"
    assert ended(process) == [["closed"]]
    assert bench.issue("a").status is Status.CLOSED
    assert bench.events() == 2
    assert audit(bench.store).problems == []
