"""Where a store is, and what is said when it cannot be opened."""

from __future__ import annotations

import sqlite3
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from manglecp.base.hash_chain import Head
from manglecp.store.errors import StoreError, Unusable
from manglecp.store.instants import system_clock
from manglecp.store.issues import IssueMemory
from manglecp.store.issues.audit import audit
from manglecp.store.issues.events import Add
from manglecp.store.opening import open_database, open_store, state_directory

VARIABLES = ("MANGLECP_STATE_DIR", "XDG_STATE_HOME", "HOME")


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES[:2]:
        monkeypatch.delenv(name, raising=False)


def place(store_where: str | Path | None) -> str:
    database = open_database(store_where)
    database.close()
    return database.name


@pytest.mark.parametrize("form", ["path", "text", "url", "encoded url"])
def test_a_file(tmp_path: Path, form: str) -> None:
    path = tmp_path / "my store.db"
    where: dict[str, str | Path] = {
        "path": path,
        "text": str(path),
        "url": f"sqlite:///{path}",
        "encoded url": f"sqlite:///{path}".replace(" ", "%20"),
    }
    assert place(where[form]) == str(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_relative_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert place("sqlite:///store.db") == "store.db"
    assert (tmp_path / "store.db").exists()


def test_memory() -> None:
    first, second = open_store(":memory:"), open_store(":memory:")
    with first.write_transaction() as tx:
        first.ledger.append(tx, "audit", {})
    with first.read_transaction() as tx, second.read_transaction() as other:
        assert (first.ledger.head(tx).seq, second.ledger.head(other).seq) == (1, 0)
    first.close()
    second.close()


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        ("MANGLECP_STATE_DIR", "state", "state"),
        ("XDG_STATE_HOME", "xdg", "xdg/manglecp"),
        ("HOME", "home", "home/.local/state/manglecp"),
    ],
)
def test_the_state_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, expected: str
) -> None:
    monkeypatch.setenv(variable, str(tmp_path / value))
    assert place(None) == str(tmp_path / expected / "store.sqlite3")
    assert stat.S_IMODE((tmp_path / expected).stat().st_mode) == 0o700
    assert state_directory() == tmp_path / expected, "it may be there already"


def test_which_variable_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in reversed(VARIABLES):
        monkeypatch.setenv(name, str(tmp_path / name))
        assert state_directory().is_relative_to(tmp_path / name)


def test_a_state_directory_that_cannot_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MANGLECP_STATE_DIR", str(tmp_path / "file" / "x"))
    with pytest.raises(Unusable, match=r"Set MANGLECP_STATE_DIR to another one\."):
        open_store()


@pytest.mark.parametrize("where", ["mysql://kim:hunter2@db/x", "", "sqlite:///", "http://kim:hunter2@x"])
def test_places_that_are_none(where: str) -> None:
    with pytest.raises(Unusable, match=r"it is a path, sqlite:///PATH, postgresql://… or :memory:") as caught:
        open_store(where)
    assert "hunter2" not in str(caught.value)


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(Unusable, match="No such file or directory"):
        open_store(tmp_path / "no" / "store.db")


@pytest.mark.parametrize("store_where", ["file", "postgresql"], indirect=True)
def test_what_was_kept_is_there_when_it_is_opened_again(store_where: str) -> None:
    first = open_store(store_where, synchronous="full")
    with first.write_transaction() as tx:
        head = first.ledger.append(tx, "audit", {"code": "kept"})
        assert first.nonces.burn(tx, "kim", "n1", 1)
    first.close()
    again = open_store(store_where)
    with again.write_transaction() as tx:
        assert again.ledger.verify(tx, expect=head).sound
        assert not again.nonces.burn(tx, "kim", "n1", 1)
    again.close()


def test_one_transaction_changes_everything_or_nothing(store_where: str) -> None:
    store = open_store(store_where)

    def fail() -> None:
        with store.write_transaction() as tx:
            store.nonces.burn(tx, "kim", "n1", 1)
            store.ledger.append(tx, "confirmation", {})
            tx.execute("INSERT INTO nonce VALUES ('kim', 'n1', 1)")

    with pytest.raises(StoreError, match="does not admit this row"):
        fail()
    with store.write_transaction() as tx:
        assert store.ledger.head(tx).seq == 0
        assert store.nonces.burn(tx, "kim", "n1", 1)
    store.close()


def test_drivers_are_loaded_when_they_are_needed() -> None:
    code = (
        "import sys\nfrom manglecp.store.opening import open_store\nopen_store(':memory:').close()\n"
        "print(*(name for name in ('psycopg', 'cryptography') if name in sys.modules))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.split() == []


# --- files of older programs ----------------------------------------------------------------------------------------

OLD = Path(__file__).with_name("issues-v1.sql")
OLD_HEAD = Head(5, "sha256:bb9318ebe4b5d8dd07d1a4fde0d3c0e3819a9c24435ba10556084bed1d09fed0")


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A file of issue memory from before there was a store."""
    path = tmp_path / "issues.db"
    connection = sqlite3.connect(path)
    connection.executescript(OLD.read_text(encoding="utf-8"))
    connection.close()
    return path


def test_an_old_file_of_issue_memory_becomes_a_store(old: Path) -> None:
    store = open_store(old)
    result = audit(store.issues)
    assert (result.head, result.issues, result.findings) == (OLD_HEAD, 2, [])
    memory = IssueMemory(store.issues, clock=system_clock, new_id=lambda: "i-9")
    memory.add("kim", Add(title="go on"))
    assert audit(store.issues, OLD_HEAD).findings == []
    with pytest.raises(StoreError, match="events are not deleted"), store.write_transaction() as tx:
        tx.execute("DELETE FROM issue_event")
    with store.write_transaction() as tx:
        assert store.ledger.append(tx, "audit", {}).seq == 1
    store.close()
    again = open_store(old)
    assert audit(again.issues).head.seq == 6
    again.close()


def test_the_schema_of_an_old_file_is_that_of_a_new_one(old: Path, tmp_path: Path) -> None:
    """Migrations lead to the same tables, whatever they began with."""

    def schema(path: Path) -> set[tuple[str, str]]:
        open_store(path).close()
        connection = sqlite3.connect(path)
        rows = connection.execute("SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL").fetchall()
        connection.close()
        return {(name, " ".join(sql.split())) for name, sql in rows}

    assert schema(old) == schema(tmp_path / "new.db")


def test_the_older_program_sees_a_newer_file(old: Path) -> None:
    """It compares ``application_id`` first and ``user_version`` then, and says that the file is newer."""

    def marks() -> list[int]:
        connection = sqlite3.connect(old)
        found = [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")]
        connection.close()
        return found

    application, version = marks()
    open_store(old).close()
    assert (version, marks()) == (1, [application, 2])


def test_a_file_of_a_newer_program(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    open_store(path).close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 3")
    connection.close()
    with pytest.raises(Unusable, match="store format 3 and this manglecp knows 2; use the newer manglecp"):
        open_store(path)


def test_commands_say_what_survives_a_loss_of_power_by_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pragma(**how: Any) -> Any:
        store = open_store(tmp_path / "store.db", **how)
        with store.read_transaction() as tx:
            found = tx.execute("PRAGMA synchronous").fetchone()
        store.close()
        assert found is not None
        return found[0]

    monkeypatch.delenv("MANGLECP_STORE_SYNCHRONOUS", raising=False)
    assert pragma() == 1
    monkeypatch.setenv("MANGLECP_STORE_SYNCHRONOUS", "full")
    assert pragma() == 2
    assert pragma(synchronous="normal") == 1
    monkeypatch.setenv("MANGLECP_STORE_SYNCHRONOUS", "always")
    with pytest.raises(Unusable, match="normal or full"):
        open_store(tmp_path / "store.db")
