"""`manglecp ledger`: entries, and whether they are what was written."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.cli.journals import journal, reads


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "store.db"
    monkeypatch.setenv("MANGLECP_STORE", str(path))
    return path


def head(run: Run) -> str:
    return str(json.loads(run("ledger", "verify", "--json").stdout)["head"])


def test_entries_are_listed_in_their_order(run: Run, store: Path) -> None:
    done, failed = journal(store, "done", "failed")
    lines = run("ledger", "list").stdout.splitlines()
    assert [int(line.split()[0]) for line in lines] == list(range(1, len(lines) + 1))
    assert lines[0].split()[2:] == ["admission", done, "me", "t"]
    assert {line.index(line.split()[2]) for line in lines} == {33}, "times of any length leave the columns in place"
    assert [int(line.split()[0]) for line in run("ledger", "list", "--limit", "2").stdout.splitlines()] == [
        len(lines) - 1,
        len(lines),
    ]
    assert run("ledger", "list", "--since", "1", "--limit", "1").stdout.splitlines() == lines[1:2]
    assert run("ledger", "list", "--run", failed, "--limit", "1").stdout.splitlines() == lines[-1:]
    steps = json.loads(run("ledger", "list", "--kind", "step", "--json").stdout)
    assert [(entry["run"], entry["body"]["status"]) for entry in steps] == [(done, "done"), (failed, "failed")]
    assert run("ledger", "list", "--identity", "nobody").stdout == ""
    assert run("ledger", "list", "--kind", "sermon").exit_code == 2


def test_an_entry_is_shown_whole(run: Run, store: Path) -> None:
    journal(store, "done")
    entry = json.loads(run("ledger", "show", "1", "--json").stdout)
    shown = run("ledger", "show", "1").stdout
    assert entry["row_hash"] in shown
    assert f'"macro_id": "{entry["body"]["macro_id"]}"' in shown
    missing = run("ledger", "show", "999")
    assert (missing.exit_code, "there is no entry 999; the last one is 7" in missing.stderr) == (1, True)


def test_a_ledger_that_is_sound(run: Run, store: Path) -> None:
    journal(store, "done")
    shown = run("ledger", "verify")
    assert shown.exit_code == 0
    assert shown.stdout == f"7 entries, head {head(run)}: ok\n"
    assert run("ledger", "verify", "--expect", head(run)).exit_code == 0
    other = run("ledger", "verify", "--expect", "7:sha256:00")
    assert (other.exit_code, other.stdout.startswith("entry 7: the ledger does not have")) == (1, True)
    assert run("ledger", "verify", "--expect", "five").exit_code == 2


@pytest.mark.parametrize(
    ("change", "first"),
    [
        ("UPDATE ledger SET identity = 'you' WHERE seq = 3", "entry 3: its content does not match its hash"),
        ("DELETE FROM ledger WHERE seq = 2", "entry 3: it follows entry 1"),
        ("DELETE FROM ledger WHERE seq = 7", "entry 7: the head of the ledger is not its last entry, number 6"),
    ],
)
def test_whatever_was_done_to_it_is_named(run: Run, store: Path, change: str, first: str) -> None:
    journal(store, "done")
    database = sqlite3.connect(store)
    for trigger in ("ledger_stays", "ledger_is_kept"):
        database.execute(f"DROP TRIGGER {trigger}")
    database.execute(change)
    database.commit()
    database.close()
    shown = run("ledger", "verify")
    assert shown.exit_code == 1
    assert shown.stdout.startswith(first)
    found = json.loads(run("ledger", "verify", "--json").stdout)
    assert (found["ok"], found["findings"][0].startswith(first)) == (False, True)


def test_an_export_can_be_verified_anywhere(run: Run, store: Path) -> None:
    journal(store, "done", "unknown")
    noted = head(run)
    assert run("ledger", "export", "ledger.jsonl").exit_code == 0
    lines = Path("ledger.jsonl").read_text()
    assert run("ledger", "export").stdout == lines
    store.unlink()
    assert run("ledger", "verify", "ledger.jsonl", "--expect", noted).exit_code == 0
    assert run("ledger", "verify", "-", stdin=lines).exit_code == 0
    short = run("ledger", "verify", "-", "--expect", noted, stdin="".join(lines.splitlines(keepends=True)[:-1]))
    assert short.exit_code == 1
    forged = run("ledger", "verify", "-", stdin=lines.replace('"done"', '"gone"'))
    assert (forged.exit_code, "its content does not match its hash" in forged.stdout) == (1, True)


def test_runs_without_effects_are_stored_in_little(run: Run, store: Path) -> None:
    reads(store, 3)
    entries = json.loads(run("ledger", "list", "--json").stdout)
    assert [entry["kind"] for entry in entries] == ["run", "decision_log"] * 3
    assert max(len(json.dumps(entry["body"])) for entry in entries) < 1_500
    assert run("ledger", "verify").exit_code == 0


def test_an_empty_ledger(run: Run, store: Path) -> None:
    journal(store)
    assert run("ledger", "list").stdout == ""
    assert run("ledger", "verify").stdout.startswith("0 entries, head 0:")
