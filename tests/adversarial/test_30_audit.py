"""Case 30: the record is edited, cut off, or interrupted by a crash between an effect and its entry."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from manglecp.store import RunState, open_store
from tests.crash.kit import crash_cleanly, crashing
from tests.invoke.test_chains import chain, steps
from tests.invoke.workshop import shop


def made(place: Path) -> str:
    """A ledger with one run in it; its head."""

    async def run() -> None:
        store = open_store(place)
        async with shop(chain(steps("look", "write", "look", "write")), store=store) as s:
            await s.invoke("t", {"n": 1}, confirm=True)
        store.close()

    asyncio.run(run())
    return str(verified(place)["head"])


def verified(place: Path, *more: str) -> dict[str, object]:
    """What ``manglecp ledger verify`` says of it."""
    command = [sys.executable, "-m", "manglecp", "ledger", "verify", "--json", "--store", str(place), *more]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    said: dict[str, object] = json.loads(done.stdout)
    assert done.returncode == (0 if said["ok"] else 1), done.stderr
    return said


def tampered(place: Path, *statements: str) -> None:
    """What somebody does who owns the file."""
    with sqlite3.connect(place) as connection:
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            connection.execute(f"DROP TRIGGER {name}")
        for statement in statements:
            assert connection.execute(statement).rowcount > 0, statement
    connection.close()


@pytest.mark.parametrize(
    "edit",
    [
        'body = replace(body, \'"id":"jw1_\', \'"id":"jw1_0\')',
        "body = replace(body, 'sha256:', 'sha256:0')",
        "run = 'r-another'",
        "identity = 'somebody else'",
    ],
)
def test_an_edited_witness_is_found(tmp_path: Path, edit: str) -> None:
    place = tmp_path / "store"
    head = made(place)
    assert verified(place, "--expect", head)["ok"]
    tampered(place, f"UPDATE ledger SET {edit} WHERE seq = (SELECT min(seq) FROM ledger WHERE kind = 'turn')")
    said = verified(place)
    assert not said["ok"]
    assert "entry 3" in str(said["findings"])


def test_a_ledger_that_was_cut_off_is_found_by_who_knows_its_head(tmp_path: Path) -> None:
    place = tmp_path / "store"
    head = made(place)
    tampered(
        place,
        "DELETE FROM decision WHERE entry > 3",
        "DELETE FROM ledger WHERE seq > 3",
        "UPDATE ledger_head SET seq = 3, row_hash = (SELECT row_hash FROM ledger WHERE seq = 3)",
    )
    assert verified(place)["ok"], "a shorter chain is a chain"
    said = verified(place, "--expect", head)
    assert not said["ok"]
    assert "the entry that was expected" in str(said["findings"])


def test_an_entry_that_is_missing_in_the_middle_is_found(tmp_path: Path) -> None:
    place = tmp_path / "store"
    made(place)
    tampered(place, "DELETE FROM ledger WHERE seq = 3")
    assert not verified(place)["ok"]


@pytest.mark.no_cover
@pytest.mark.parametrize("point", ["after:s2", "answered:s2", "uncommitted:step:1"])
def test_an_effect_is_on_record_although_its_entry_was_never_written(tmp_path: Path, point: str) -> None:
    """What was about to be done is written before it is done: so it can be missed, and is."""
    with crashing(tmp_path, str(tmp_path / "store"), "w") as site:
        who = "both" if point.startswith("after") else "coordinator"
        case = crash_cleanly(site, "mixed", point, who, "w")
        assert case.effects == {"s2": 1}
        assert case.run is not None
        assert case.shown is not None
        assert case.run.state == RunState.NEEDS_DECISION
        with site.store.read_transaction() as tx:
            entries = site.store.ledger.rows(tx, run=case.run.run_id)
        kinds = [entry.kind for entry in entries]
        assert kinds[:2] == ["admission", "turn"], "the right to it was on record before it happened"
        assert "step" not in kinds, "and what came of it never was"
        (step,) = [step for step in case.shown.steps if step.number == 2]
        assert step.witness == entries[1].body["id"]
        assert (entries[-1].kind, entries[-1].body["code"], entries[-1].body["step"]) == ("end", "outcome_unknown", 2)
        assert verified(tmp_path / "store")["ok"]
