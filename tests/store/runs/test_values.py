"""Values are for whoever resumes a run, and for nobody else; when it is over they are gone."""

from __future__ import annotations

from pathlib import Path

import pytest

from manglecp.store.database import Database
from manglecp.store.errors import Unusable
from manglecp.store.run_model import RunState, SettledStep, StepState, Values
from manglecp.store.seals import Seals
from manglecp.store.store import open_database
from tests.store.runs.bench import PARTS, Bench, ending, everything, start
from tests.store.runs.conftest import Opened

KEY = bytes(range(32))
MARKER = b"the-marker-of-a-value"


def fill(bench: Bench) -> None:
    """A run with the marker in every value, and values long enough to have pages of their own."""
    long = MARKER * 2_000
    bench.accept(key="k", values=Values(plan=long + b"plan", args=long + b"args", slots=MARKER + b"slots"))
    read = SettledStep(
        number=1, state=StepState.DONE, action="look", tier=0, input=long, output=MARKER, note=MARKER + b"note"
    )
    bench.started(start(2, value=MARKER), start(3, value=long), settled=[read], slots=long + b"slots")
    bench.finished(ending(2, output=long), ending(3, state=StepState.FAILED, output=MARKER), slots=MARKER)


def holds_marker(database: Database) -> bool:
    with database.read_transaction() as tx:
        return any(MARKER in bytes(value) for row in everything(tx) for value in row if isinstance(value, bytes))


def files(path: Path) -> bytes:
    return b"".join(file.read_bytes() for file in path.parent.iterdir())


@pytest.mark.parametrize("ending_", ["end", "abort"])
def test_gone_from_the_rows(bench: Bench, ending_: str) -> None:
    fill(bench)
    assert holds_marker(bench.database)
    if ending_ == "end":
        bench.end(answer=b"fine")
    else:
        bench.undecided(answer=MARKER)
        bench.decide("abort")
    assert not holds_marker(bench.database)
    loaded = bench.loaded()
    assert loaded.values == Values()
    assert all((step.input, step.output, step.note) == (None, None, None) for step in loaded.steps)
    assert [step.input_digest for step in loaded.steps] == [None, "sha256:in", "sha256:in"]


def test_gone_from_the_file(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite3"
    bench = Bench(open_database(path, parts=PARTS))
    fill(bench)
    bench.database.close()
    assert MARKER in files(path)
    bench = Bench(open_database(path, parts=PARTS))
    bench.end(RunState.FAILED, b"sorry")
    assert bench.answer() == b"sorry"
    bench.database.close()
    assert MARKER not in files(path)


def test_sealed_values_are_in_no_file(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite3"
    bench = Bench(open_database(path, parts=PARTS), Seals(KEY))
    fill(bench)
    bench.undecided(answer=MARKER)
    assert MARKER not in files(path)
    bench.decide("abort", answer=MARKER)
    assert bench.answer() == MARKER
    bench.database.close()
    assert MARKER not in files(path)


def test_sealed_values_are_read_with_their_key_only(opened: Opened) -> None:
    bench = Bench(opened.database, Seals(KEY))
    fill(bench)
    assert not holds_marker(opened.database)
    loaded = bench.loaded()
    assert loaded.values.slots == MARKER
    assert loaded.steps[1].output == MARKER * 2_000
    bench.lapse()
    before = bench.shown()
    for seals in (Seals(), Seals(KEY[::-1])):
        other = Bench(opened.database, seals)
        with pytest.raises(Unusable):
            other.loaded()
        with pytest.raises(Unusable):
            other.claim()
        assert other.shown() == before, "who cannot read it does not get it"
    assert bench.claim() is not None
    bench.end(fence=2, answer=MARKER)
    assert bench.answer() == MARKER
    with pytest.raises(Unusable):
        Bench(opened.database).answer()


SWAPS = {
    "two columns of a run": "UPDATE run_values SET args = plan",
    "two runs": "UPDATE run_values SET args = (SELECT args FROM run_values WHERE run_id = 'r2') WHERE run_id = 'r1'",
    "the slots of two runs": "UPDATE runs SET slots = (SELECT slots FROM runs WHERE run_id = 'r2') WHERE run_id = 'r1'",
    "an input for an output": "UPDATE steps SET output = input WHERE number = 1",
    "two steps": "UPDATE steps SET output = (SELECT output FROM steps WHERE number = 2) WHERE number = 1",
    "two attempts": "UPDATE steps SET attempt = 7 WHERE number = 1",
    "doing and undoing": "UPDATE steps SET kind = 'undo' WHERE number = 1",
}


@pytest.mark.parametrize("swap", sorted(SWAPS))
def test_sealed_values_cannot_be_moved(opened: Opened, swap: str) -> None:
    bench = Bench(opened.database, Seals(KEY))
    bench.accept("r1")
    bench.accept("r2")
    bench.started(start(1), start(2))
    bench.finished(ending(1), ending(2))
    bench.loaded()
    with opened.database.write_transaction() as tx:
        tx.execute(SWAPS[swap])
    with pytest.raises(Unusable):
        bench.loaded()
