"""The ledger: one chain, and whatever was done to it is found."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from manglecp.base.hash_chain import EMPTY, GENESIS, Head
from manglecp.store.database import Transaction
from manglecp.store.errors import Invalid, StoreError, Unusable
from manglecp.store.ledger import COLUMNS, KINDS, LedgerEntry, NewEntry, verify_export
from manglecp.store.store import Store, open_store

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def store(store_where: str) -> Iterator[Store]:
    store = open_store(store_where)
    yield store
    store.close()


def filled(store: Store, count: int) -> Head:
    with store.write_transaction() as tx:
        return store.ledger.append_all(
            tx, [NewEntry("step", {"code": f"c{number}", "n": number}, run=f"r{number % 2}") for number in range(count)]
        )


def findings(store: Store, expect: Head | None = None) -> list[str]:
    with store.read_transaction() as tx:
        return store.ledger.verify(tx, expect=expect).findings


def forge(tx: Transaction) -> None:
    """What somebody who owns the database does first."""
    if tx.dialect == "postgresql":
        tx.execute("ALTER TABLE ledger DISABLE TRIGGER ledger_stays")
    else:
        tx.execute("DROP TRIGGER ledger_stays")
        tx.execute("DROP TRIGGER ledger_is_kept")


# --- what it keeps ----------------------------------------------------------------------------------------------------


def test_what_was_appended_comes_back(store: Store) -> None:
    with store.write_transaction() as tx:
        before = tx.now_ms()
        first = store.ledger.append(
            tx, "admission", {"pack": "sha256:ab", "ü": [1, None, True]}, run="r1", identity="kim"
        )
        second = store.ledger.append(tx, "audit", {})
        after = tx.now_ms()
    with store.read_transaction() as tx:
        one, two = store.ledger.rows(tx)
        assert store.ledger.entry(tx, 2) == two
        assert store.ledger.entry(tx, 3) is None
        assert store.ledger.head(tx) == second
        assert store.ledger.verify(tx) == (second, 2, [])
    assert (one.head, two.head) == (first, second)
    assert (one.prev_hash, two.prev_hash) == (GENESIS, first.row_hash)
    assert (one.kind, one.run, one.identity, one.body) == (
        "admission",
        "r1",
        "kim",
        {"pack": "sha256:ab", "ü": [1, None, True]},
    )
    assert (two.kind, two.run, two.identity, two.body) == ("audit", None, None, {})
    assert before - 1 <= one.at_ms <= two.at_ms <= after + 1


def test_an_empty_ledger(store: Store) -> None:
    with store.read_transaction() as tx:
        assert store.ledger.verify(tx, expect=EMPTY) == (EMPTY, 0, [])
        assert list(store.ledger.export(tx)) == []
    with store.write_transaction() as tx:
        assert store.ledger.append_all(tx, []) == EMPTY


def test_questions(store: Store) -> None:
    filled(store, 6)
    with store.write_transaction() as tx:
        store.ledger.append(tx, "end", {}, run="r1", identity="kim")
    with store.read_transaction() as tx:

        def numbers(**asked: Any) -> list[int]:
            return [entry.seq for entry in store.ledger.rows(tx, **asked)]

        assert numbers() == [1, 2, 3, 4, 5, 6, 7]
        assert numbers(after_seq=5) == [6, 7]
        assert numbers(after_seq=2, limit=2) == [3, 4]
        assert numbers(run="r1") == [2, 4, 6, 7]
        assert numbers(kind="end") == [7]
        assert numbers(kind="step", run="r1", after_seq=2, limit=1) == [4]
        assert numbers(identity="kim") == [7]
        assert numbers(run="unknown") == []


def test_a_transaction_that_fails_leaves_no_entry(store: Store) -> None:
    filled(store, 1)

    def fail() -> None:
        with store.write_transaction() as tx:
            store.ledger.append(tx, "audit", {})
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert filled(store, 1).seq == 2
    assert findings(store) == []


@pytest.mark.parametrize(
    ("note", "field"),
    [
        (NewEntry("gossip", {}), "kind"),  # type: ignore[arg-type]
        (NewEntry("audit", {"a": "x" * 4_200_000}), "body"),
        (NewEntry("audit", {"a": float("nan")}), "body"),
        (NewEntry("audit", {"a": b"bytes"}), "body"),
        (NewEntry("audit", {"a": "\ud800"}), "body"),
    ],
)
def test_what_it_does_not_take(store: Store, note: NewEntry, field: str) -> None:
    with pytest.raises(Invalid) as caught, store.write_transaction() as tx:
        store.ledger.append_all(tx, [note])
    assert caught.value.field == field
    assert findings(store, EMPTY) == []


def test_every_kind_is_taken(store: Store) -> None:
    with store.write_transaction() as tx:
        for kind in sorted(KINDS):
            store.ledger.append(tx, kind, {})  # type: ignore[arg-type]  # it is one of them
    assert findings(store) == []


@pytest.mark.parametrize("statement", ["UPDATE ledger SET at_ms = 0", "DELETE FROM ledger"])
def test_entries_stay(store: Store, statement: str) -> None:
    head = filled(store, 3)
    with pytest.raises(StoreError, match="entries are not"), store.write_transaction() as tx:
        tx.execute(statement)
    assert findings(store, head) == []


def test_several_pages(store: Store) -> None:
    head = filled(store, 2500)
    with store.read_transaction() as tx:
        assert store.ledger.verify(tx, expect=head) == (head, 2500, [])
        assert sum(1 for _ in store.ledger.export(tx)) == 2500


# --- what is found ----------------------------------------------------------------------------------------------------


def changed(tx: Transaction, statement: str, *params: object) -> None:
    forge(tx)
    assert tx.execute(statement, params).rowcount > 0


@pytest.mark.parametrize(
    ("column", "value"),
    [
        *[("at_ms", 5), ("kind", "audit"), ("run", "r9"), ("run", None), ("identity", "eve")],
        *[("body", '{"code":"c7"}'), ("prev_hash", GENESIS), ("row_hash", GENESIS)],
    ],
)
def test_an_edit(store: Store, column: str, value: object) -> None:
    filled(store, 5)
    with store.write_transaction() as tx:
        changed(tx, f"UPDATE ledger SET {column} = ? WHERE seq = 3", value)
    assert any(finding.startswith("entry 3: ") for finding in findings(store))


@pytest.mark.parametrize("body", ["{", "[]", '{"code": "c2","n":2}', '{"n":2,"code":"c2"}', "", "null"])
def test_a_body_that_is_none(store: Store, body: str) -> None:
    filled(store, 5)
    with store.write_transaction() as tx:
        changed(tx, "UPDATE ledger SET body = ? WHERE seq = 3", body)
    assert findings(store) == ["entry 3 is damaged: it is not a valid entry"]
    with store.read_transaction() as tx:
        with pytest.raises(Unusable, match="entry 3 is damaged"):
            store.ledger.entry(tx, 3)
        with pytest.raises(Unusable, match="entry 3 is damaged"):
            list(store.ledger.export(tx))


def test_entries_cut_off_at_the_end(store: Store) -> None:
    head = filled(store, 5)
    with store.write_transaction() as tx:
        changed(tx, "DELETE FROM ledger WHERE seq > 3")
    assert findings(store) == ["entry 5: the head of the ledger is not its last entry, number 3"]
    with store.write_transaction() as tx:  # and the head made to fit
        third = store.ledger.entry(tx, 3)
        assert third is not None
        tx.execute("UPDATE ledger_head SET seq = ?, row_hash = ?", third.head)
    assert findings(store) == []
    assert findings(store, third.head) == []
    assert findings(store, head) == ["entry 5: the ledger does not have the entry that was expected here"]


def test_a_new_chain_is_found_by_who_knows_a_head(store: Store) -> None:
    head = filled(store, 3)
    with store.write_transaction() as tx:
        changed(tx, "DELETE FROM ledger")
        tx.execute("UPDATE ledger_head SET seq = ?, row_hash = ?", EMPTY)
    with store.write_transaction() as tx:
        store.ledger.append(tx, "audit", {"another": "past"})
    again = filled(store, 4)
    assert findings(store, again) == []
    assert findings(store, head) == ["entry 3: the ledger does not have the entry that was expected here"]


def test_findings_end_somewhere(store: Store) -> None:
    filled(store, 150)
    with store.write_transaction() as tx:
        changed(tx, "UPDATE ledger SET at_ms = 1")
    found = findings(store, Head(9, GENESIS))
    assert len(found) == 102
    assert found[-2:] == ["and more", "entry 9: the ledger does not have the entry that was expected here"]


# --- as a file --------------------------------------------------------------------------------------------------------


def test_an_export_is_verified_without_the_store(store: Store) -> None:
    head = filled(store, 5)
    with store.read_transaction() as tx:
        lines = list(store.ledger.export(tx))
    assert verify_export(lines, expect=head) == (head, 5, [])
    first = json.loads(lines[0])
    assert lines[0] == json.dumps(first, separators=(",", ":"), ensure_ascii=False, sort_keys=True).encode() + b"\n"
    assert first["body"] == {"code": "c0", "n": 0}
    assert verify_export(lines[:3], expect=head).findings != []
    assert verify_export([*lines[:2], b"nonsense\n", *lines[2:]]).findings[0] == "line 3: not an entry of a ledger"
    spaced = lines[1].replace(b",", b", ", 1)
    assert verify_export([lines[0], spaced, *lines[2:]]).findings[0].startswith("line 2: not in canonical form")


def test_numbers_that_skip() -> None:
    """The hashes are right, and nobody knows the head: the number alone is wrong."""
    last = json.loads(LINES[-1])
    forged = _line(_rehashed(last | {"seq": 11}))
    assert verify_export([*LINES[:-1], forged]).findings == ["entry 11: it follows entry 7"]


# --- any change at all ------------------------------------------------------------------------------------------------


def _example() -> tuple[list[bytes], Head]:
    store = open_store(":memory:")
    head = filled(store, 8)
    with store.read_transaction() as tx:
        lines = list(store.ledger.export(tx))
    store.close()
    return lines, head


LINES, HEAD = _example()
places = st.integers(0, len(LINES) - 1)
members = {
    "at_ms": st.integers(0, 2**50),
    "kind": st.sampled_from(sorted(KINDS)),
    "run": st.none() | st.text(max_size=3),
    "identity": st.none() | st.text(max_size=3),
    "seq": st.integers(-2, 12),
    "prev_hash": st.sampled_from([json.loads(line)["row_hash"] for line in LINES]),
    "row_hash": st.sampled_from([json.loads(line)["row_hash"] for line in LINES]),
    "body": st.dictionaries(st.text(max_size=3), st.integers(0, 9), max_size=2),
}


def _line(row: dict[str, Any]) -> bytes:
    return json.dumps(row, separators=(",", ":"), ensure_ascii=False, sort_keys=True).encode() + b"\n"


def _rehashed(row: dict[str, Any]) -> dict[str, Any]:
    return row | {"row_hash": LedgerEntry(**row).computed_hash()}


@st.composite
def damaged(draw: st.DrawFn) -> list[bytes]:
    lines = list(LINES)
    for _ in range(draw(st.integers(1, 3))):
        if not lines:
            break
        place = draw(st.integers(0, len(lines) - 1))
        row = json.loads(lines[place])
        match draw(st.sampled_from(["edit", "edit and hash", "remove", "swap", "insert", "cut off", "double"])):
            case "edit":
                name = draw(st.sampled_from(sorted(members)))
                lines[place] = _line(row | {name: draw(members[name])})
            case "edit and hash":
                name = draw(st.sampled_from(sorted(members.keys() - {"row_hash"})))
                lines[place] = _line(_rehashed(row | {name: draw(members[name])}))
            case "remove":
                del lines[place]
            case "swap":
                other = draw(st.integers(0, len(lines) - 1))
                lines[place], lines[other] = lines[other], lines[place]
            case "insert":
                before = row["prev_hash"]
                new = row | {"seq": row["seq"], "prev_hash": before, "body": {"inserted": True}}
                lines.insert(place, _line(_rehashed(new)))
            case "cut off":
                del lines[place:]
            case "double":
                lines.insert(place, lines[place])
    return lines


@given(damaged())
def test_any_change_is_found(lines: list[bytes]) -> None:
    """An edit, a removal, another order, an insertion, a truncation: by whoever knows the head."""
    verified = verify_export(lines, expect=HEAD)
    assert verified.sound == (lines == LINES)


@given(damaged())
def test_any_change_in_the_database_is_found(lines: list[bytes]) -> None:
    """The same where rows are, which have no order but their numbers."""
    store = open_store(":memory:")
    rows = [json.loads(line) for line in lines]
    unique = {row["seq"]: row for row in rows if row["seq"] > 0}
    with store.write_transaction() as tx:
        for row in unique.values():
            values = [row[name] if name != "body" else _line(row["body"]).decode().strip() for name in COLUMNS]
            tx.execute(f"INSERT INTO ledger ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))})", values)
        tx.execute("UPDATE ledger_head SET seq = ?, row_hash = ?", HEAD)
    original = [json.loads(line) for line in LINES]
    same = [unique[seq] for seq in sorted(unique)] == original
    with store.read_transaction() as tx:
        assert store.ledger.verify(tx, expect=HEAD).sound == same
        assert store.ledger.verify(tx).sound == same, "the head alone gives it away"
    store.close()


# --- several processes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("store_where", ["file", "postgresql"], indirect=True)
def test_processes_make_one_chain(store_where: str) -> None:
    store = open_store(store_where)
    command = [sys.executable, "-m", "tests.store._appender", store_where]
    processes = [
        subprocess.Popen([*command, name, "60"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for name in ("p", "q", "r")
    ]
    said: list[Head] = []
    for process in processes:
        out, err = process.communicate(timeout=120)
        assert (process.returncode, err) == (0, "")
        for line in out.splitlines():
            seq, own_hash = line.split()
            said.append(Head(int(seq), own_hash))
    with store.read_transaction() as tx:
        verified = store.ledger.verify(tx)
        entries = store.ledger.rows(tx, limit=1000)
    assert verified.findings == []
    assert sorted(said) == [entry.head for entry in entries]
    assert {name: sum(entry.run == name for entry in entries) for name in "pqr"} == {"p": 60, "q": 60, "r": 60}
    orders = [[entry.body["n"] for entry in entries if entry.run == name] for name in "pqr"]
    assert orders == [list(range(60))] * 3
    store.close()
