"""Where a store is, and what is said when it cannot be opened."""

from __future__ import annotations

import sqlite3
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from manglecp.issues import Add, IssueMemory, audit, open_issues, system_clock
from manglecp.store.approvals import Approval, ApprovalBinding
from manglecp.store.database import Transaction
from manglecp.store.errors import StoreError, Unusable
from manglecp.store.store import Store, open_database, open_store, state_directory

VARIABLES = ("MANGLECP_STATE_DIR", "XDG_STATE_HOME", "HOME")


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES[:2]:
        monkeypatch.delenv(name, raising=False)


def request_approval(store: Store, tx: Transaction) -> Approval:
    call = ApprovalBinding(identity="kim", pack_digest="p", chain_digest="c", args_digest="a", subject_digest="")
    request = store.approvals.request
    return request(tx, call, tool="t", roles=(), four_eyes=False, text="Go on", now_ms=0, lifetime_ms=10)[0]


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
        approval = request_approval(first, tx)
        assert first.approvals.decide(tx, approval.id, "approved", "lee", 1)
    first.close()
    again = open_store(store_where)
    with again.write_transaction() as tx:
        assert again.ledger.verify(tx, expect=head).sound
        assert not again.approvals.decide(tx, approval.id, "denied", "sam", 2)
        assert again.approvals.use(tx, approval.id, "r-1", 2)
    again.close()


def test_one_transaction_changes_everything_or_nothing(store_where: str) -> None:
    store = open_store(store_where)

    def fail() -> None:
        with store.write_transaction() as tx:
            request_approval(store, tx)
            store.ledger.append(tx, "approval", {})
            tx.execute("INSERT INTO approval SELECT * FROM approval")

    with pytest.raises(StoreError, match="does not admit this row"):
        fail()
    with store.write_transaction() as tx:
        assert store.ledger.head(tx).seq == 0
        assert store.approvals.pending(tx, 1) == []
    store.close()


def test_drivers_are_loaded_when_they_are_needed() -> None:
    code = (
        "import sys\nfrom manglecp.store.store import open_store\nopen_store(':memory:').close()\n"
        "print(*(name for name in ('psycopg', 'cryptography') if name in sys.modules))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.split() == []


# --- files of other revisions ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("revision", [1, 4])
def test_a_file_of_an_older_program(tmp_path: Path, revision: int) -> None:
    path = tmp_path / "store.db"
    open_store(path).close()
    connection = sqlite3.connect(path)
    connection.execute("UPDATE store_part SET version = ?", (revision,))
    connection.commit()
    connection.close()
    before = path.read_bytes()
    with pytest.raises(Unusable, match=rf"older manglecp \(store revision {revision}, .* Export what you need .* move"):
        open_store(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("store_where", ["file", "postgresql"], indirect=True)
@pytest.mark.parametrize(("revision", "message"), [(4, "older manglecp"), (99, "use the newer manglecp")])
def test_a_part_of_another_revision(store_where: str, revision: int, message: str) -> None:
    store = open_store(store_where)
    with store.write_transaction() as tx:
        tx.execute("UPDATE store_part SET version = ? WHERE name = 'runs'", (revision,))
    store.close()
    with pytest.raises(Unusable, match=message):
        open_store(store_where)


@pytest.mark.parametrize("store_where", ["file", "postgresql"], indirect=True)
def test_a_store_may_hold_issue_memory_as_well(store_where: str) -> None:
    issues, store = open_issues(store_where), open_store(store_where)
    memory = IssueMemory(issues, clock=system_clock, new_id=lambda: "i-1")
    memory.add("kim", Add(title="go on"))
    with store.write_transaction() as tx:
        assert store.ledger.append(tx, "audit", {}).seq == 1
    assert audit(issues).problems == []
    store.close()
    issues.close()


def test_a_file_of_a_newer_program(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    open_store(path).close()
    connection = sqlite3.connect(path)
    connection.execute("UPDATE store_part SET version = 99")
    connection.commit()
    connection.close()
    with pytest.raises(Unusable, match=r"store revision 99 and this manglecp supports .*; use the newer manglecp"):
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
