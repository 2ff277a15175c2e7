"""Entries whose bodies are alike: stored apart, read as they were written, and damaged if anything of them is."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given, strategies as st

from manglecp.base.hash_chain import GENESIS, Head
from manglecp.base.json import canonical
from manglecp.harness import Filled
from manglecp.harness.patterns import write_pattern
from manglecp.harness.shapes import Template
from manglecp.store.database import Rows, Transaction
from manglecp.store.errors import Invalid, StoreError, Unusable
from manglecp.store.ledger import Body, Note, verify_export
from manglecp.store.store import Store, open_store

DAMAGED = "entry 2 is damaged: it is no entry any more"
PADDING = "the same in all of them … " * 200


@pytest.fixture
def store(store_where: str) -> Iterator[Store]:
    store = open_store(store_where)
    yield store
    store.close()


def name(text: object) -> str:
    return sha256(str(text).encode()).hexdigest()


def witness(number: int, kind: str = "k", run: str = "") -> dict[str, Any]:
    """What many have in common, with two names of its own, one of them twice."""
    run = run or name(number)[:32]
    return {"id": f"jw1_{name(-number)}", "kind": kind, "padding": PADDING, "refs": [f"run://{run}/1", f"r-{run}"]}


def template(kind: str = "k") -> Template:
    first = witness(0, kind)
    return Template(canonical(first), {name(0)[:32].encode(): 0, name(0).encode(): 1})


TEMPLATES = {kind: template(kind) for kind in "kmn"}


def filled(number: int, kind: str = "k") -> Filled:
    """The same by its pattern."""
    return Filled(TEMPLATES[kind], [name(number)[:32].encode(), name(-number).encode()])


def append(store: Store, *bodies: Body) -> Head:
    with store.write_transaction() as tx:
        return store.ledger.append_all(tx, [Note("run", body, f"r-{n}", "kim") for n, body in enumerate(bodies)])


def bodies(store: Store) -> list[dict[str, Any]]:
    """After all ways to read them have said the same."""
    with store.read_transaction() as tx:
        head = store.ledger.head(tx)
        assert store.ledger.verify(tx, expect=head) == (head, head.seq, [])
        entries = store.ledger.rows(tx, limit=10_000)
        assert [store.ledger.entry(tx, entry.seq) for entry in entries] == entries
        lines = list(store.ledger.export(tx))
    assert verify_export(lines, expect=head) == (head, head.seq, [])
    assert [json.loads(line)["body"] for line in lines] == [entry.body for entry in entries]
    return [entry.body for entry in entries]


def column(store: Store, sql: str) -> list[Any]:
    with store.read_transaction() as tx:
        return [row[0] for row in tx.execute(sql).fetchall()]


def patterns(store: Store) -> int:
    return int(column(store, "SELECT count(*) FROM ledger_pattern")[0])


# --- what is written is read ------------------------------------------------------------------------------------------


def test_bodies_come_back_and_what_they_have_in_common_is_there_once(store: Store) -> None:
    append(store, *[{"a": [n], "state": "é", "witness": filled(n), "z": None} for n in range(6)])
    append(store, filled(6), {"witness": filled(7)}, {"plain": True})
    assert bodies(store) == [
        *[{"a": [n], "state": "é", "witness": witness(n), "z": None} for n in range(6)],
        *[witness(6), {"witness": witness(7)}, {"plain": True}],
    ]
    assert patterns(store) == 1
    sizes = column(store, "SELECT length(body) + coalesce(length(names), 0) FROM ledger ORDER BY seq")
    assert max(sizes) < 120
    assert len(canonical(witness(0))) > 5_000


def test_the_hash_is_that_of_the_whole_body(store: Store) -> None:
    """Nobody can tell from the chain how an entry is stored."""
    append(store, {"witness": filled(1)})
    with store.read_transaction() as tx:
        entry = store.ledger.entry(tx, 1)
    assert entry is not None
    about = {"seq": 1, "at_ms": entry.at_ms, "kind": "run", "run": "r-0", "identity": "kim", "prev_hash": GENESIS}
    row = about | {"body": {"witness": witness(1)}}
    assert entry.row_hash == "sha256:" + sha256(canonical(row)).hexdigest()


def test_several_patterns_at_once(store: Store) -> None:
    given = [(n, "kmn"[n % 3]) for n in range(9)]
    append(store, filled(100))
    append(store, *[filled(n, kind) for n, kind in given])
    assert bodies(store) == [witness(100), *[witness(n, kind) for n, kind in given]]
    assert patterns(store) == 3


def test_what_does_not_follow_the_pattern_is_kept_whole(store: Store) -> None:
    """Names of other lengths, in capitals, or no digits at all, may be filled in too."""
    odd = [b"x", b'\\"', name(1).upper().encode(), name(1)[:31].encode(), "…".encode(), b"\\u001a", b"[0,32]"]
    append(store, filled(0))
    append(store, *[{"witness": Filled(TEMPLATES["k"], [run, name(0).encode()])} for run in odd])
    found = bodies(store)[1:]
    assert [body["witness"]["refs"][1] for body in found] == [json.loads(b'"r-%b"' % run) for run in odd]
    assert column(store, "SELECT count(pattern) + count(names) FROM ledger") == [2]


def test_more_entries_than_one_statement_takes(store: Store) -> None:
    append(store, *[filled(n, "kmn"[n % 3]) for n in range(1_200)])
    assert [body["id"] for body in bodies(store)] == [witness(n)["id"] for n in range(1_200)]


strange = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.sampled_from(
    [
        "\x1a",
        '"',
        "\\",
        "\\u001a",
        "%b",
        "%%",
        "\0",
        "\n",
        "…",
        name(0),
        name(0)[:32],
        f'","{name(0)}',
        '",[0,64],"',
        "é",
    ]
)


@given(
    st.dictionaries(strange, strange | st.lists(strange), max_size=4),
    strange,
    st.lists(strange, max_size=4),
    st.lists(st.integers(0, 3), max_size=6),
)
def test_any_text_around_it_and_in_it(around: dict[str, Any], member: str, inside: list[str], uses: list[int]) -> None:
    names = [name(number) for number in range(4)]
    value = {"inside": inside, "uses": [f"{text}{names[use]}" for text, use in zip([*inside, ""], uses, strict=False)]}
    places = {one.encode(): number for number, one in enumerate(names)}
    others = [name(-number - 1).encode() for number in range(4)]
    made = Filled(Template(canonical(value), places), others)
    store = open_store(":memory:")
    append(store, {**around, member: made}, made)
    whole = json.loads(made.text)
    assert canonical(bodies(store)[0]) == canonical({**around, member: whole})
    assert canonical(bodies(store)[1]) == made.text
    store.close()


@pytest.mark.parametrize("body", [{"a": 1}, {"witness": 0, "x": "\x1a"}])
def test_one_member_at_most_follows_a_pattern(body: dict[str, Any]) -> None:
    store = open_store(":memory:")
    append(store, {**body, "witness": filled(1)})
    with pytest.raises(Invalid):
        append(store, {**body, "witness": filled(1), "another": filled(2)})
    with pytest.raises(Invalid):
        append(store, {**body, "witness": {"deeper": filled(1)}})
    assert bodies(store) == [{**body, "witness": witness(1)}]
    store.close()


def test_what_is_too_long_when_it_is_whole(store: Store) -> None:
    long = Template(canonical({"a": name(0), "b": "x" * 4_194_304}), {name(0).encode(): 0})
    with pytest.raises(Invalid) as caught:
        append(store, {"witness": Filled(long, [name(1).encode()])})
    assert caught.value.field == "body"
    assert bodies(store) == []
    assert patterns(store) == 0


def test_a_transaction_that_fails_leaves_no_pattern_and_none_is_missed_later(store: Store) -> None:
    def fail() -> None:
        with store.write_transaction() as tx:
            store.ledger.append(tx, "turn", filled(1))
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert patterns(store) == 0
    append(store, filled(2))
    assert bodies(store) == [witness(2)]


# --- what it costs ----------------------------------------------------------------------------------------------------


class Counted:
    """A transaction that counts statements."""

    def __init__(self, tx: Transaction) -> None:
        self.tx = tx
        self.dialect = tx.dialect
        self.now_ms = tx.now_ms
        self.said: list[str] = []

    def execute(self, sql: str, params: Sequence[Any] = (), /) -> Rows:
        self.said.append(sql)
        return self.tx.execute(sql, params)

    def executemany(self, *_: object) -> None:
        raise AssertionError("nobody asks for this")

    def locked(self, sql: str, params: Sequence[Any] = (), *, wait: bool = False) -> Rows:
        self.said.append(sql)
        return self.tx.locked(sql, params, wait=wait)


def test_a_pattern_is_read_once_for_many_entries(store: Store) -> None:
    append(store, *[filled(n, "km"[n % 2]) for n in range(100)])
    with store.read_transaction() as tx:
        counted = Counted(tx)
        assert len(store.ledger.rows(counted)) == 100
        assert len(counted.said) == 3
        counted.said.clear()
        assert store.ledger.verify(counted).sound
        assert sum("ledger_pattern" in sql for sql in counted.said) == 2
        counted.said.clear()
        assert len(list(store.ledger.export(counted))) == 100
        assert sum("ledger_pattern" in sql for sql in counted.said) == 2


def test_a_pattern_that_is_there_costs_no_statement(store: Store) -> None:
    with store.write_transaction() as tx:
        store.ledger.append(tx, "run", filled(1))
        counted = Counted(tx)
        store.ledger.append_all(counted, [Note("run", filled(n)) for n in range(5)])
    assert len(counted.said) == (2 if tx.dialect == "postgresql" else 3)
    with store.write_transaction() as tx:
        counted = Counted(tx)
        store.ledger.append_all(counted, [Note("run", filled(1)), Note("run", filled(2, "m"))])
    assert len(counted.said) == (2 if tx.dialect == "postgresql" else 4)


# --- what is done to it -----------------------------------------------------------------------------------------------


def forged(store: Store, statement: str, *params: object) -> None:
    """What somebody does who owns the database."""
    with store.write_transaction() as tx:
        for table in ("ledger", "ledger_pattern"):
            if tx.dialect == "postgresql":
                tx.execute(f"ALTER TABLE {table} DISABLE TRIGGER {table}_stays")
            else:
                tx.execute(f"DROP TRIGGER IF EXISTS {table}_stays")
                tx.execute(f"DROP TRIGGER IF EXISTS {table}_is_kept")
        assert tx.execute(statement, params).rowcount == 1


def findings(store: Store) -> list[str]:
    with store.read_transaction() as tx:
        found = store.ledger.verify(tx).findings
        if any("damaged" in finding for finding in found):
            with pytest.raises(Unusable, match="is damaged"):
                store.ledger.rows(tx)
            with pytest.raises(Unusable, match="is damaged"):
                list(store.ledger.export(tx))
        return found


@pytest.fixture
def three(store: Store) -> Store:
    """A plain entry, one with a pattern, and another."""
    append(store, {"plain": 1}, {"witness": filled(1)}, {"witness": filled(2, "m")})
    return store


@pytest.mark.parametrize("statement", ["UPDATE ledger_pattern SET pattern = '[]'", "DELETE FROM ledger_pattern"])
def test_patterns_stay(three: Store, statement: str) -> None:
    with pytest.raises(StoreError, match="patterns of entries are not"), three.write_transaction() as tx:
        tx.execute(statement)
    assert findings(three) == []


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM ledger_pattern WHERE digest = (SELECT pattern FROM ledger WHERE seq = 2)",
        "UPDATE ledger_pattern SET pattern = replace(pattern, 'same', 'very same')"
        " WHERE digest = (SELECT pattern FROM ledger WHERE seq = 2)",
        "UPDATE ledger_pattern SET pattern = '' WHERE digest = (SELECT pattern FROM ledger WHERE seq = 2)",
        "UPDATE ledger SET pattern = NULL WHERE seq = 2",
        "UPDATE ledger SET names = NULL WHERE seq = 2",
        "UPDATE ledger SET names = substr(names, 1, 20) WHERE seq = 2",
        "UPDATE ledger SET pattern = NULL, names = NULL WHERE seq = 2",
        """UPDATE ledger SET body = '{"witness":0}' WHERE seq = 2""",
        """UPDATE ledger SET body = body || body WHERE seq = 2""",
        """UPDATE ledger SET body = replace(body, 'witness', 'wit"ness') WHERE seq = 2""",
    ],
)
def test_what_cannot_be_made_whole_any_more(three: Store, statement: str) -> None:
    forged(three, statement)
    assert findings(three) == [DAMAGED]


@pytest.mark.parametrize("store_where", ["file"], indirect=True)
def test_a_pattern_that_is_no_text_any_more(three: Store) -> None:
    which = "digest = (SELECT pattern FROM ledger WHERE seq = 2)"
    forged(three, f"UPDATE ledger_pattern SET pattern = CAST(x'5bff5d' AS TEXT) WHERE {which}")
    assert findings(three) == [DAMAGED]


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE ledger SET names = (SELECT names FROM ledger WHERE seq = 3) WHERE seq = 2",
        "UPDATE ledger SET pattern = (SELECT pattern FROM ledger WHERE seq = 3) WHERE seq = 2",
        "UPDATE ledger SET body = replace(body, 'witness', 'Witness') WHERE seq = 2",
    ],
)
def test_what_is_whole_and_another(three: Store, statement: str) -> None:
    forged(three, statement)
    assert findings(three) == ["entry 2: its content is not what was hashed"]


@pytest.mark.parametrize("setting", ["names = (SELECT names FROM ledger WHERE seq = 3)", "pattern = names_of.pattern"])
def test_a_plain_entry_has_no_names(three: Store, setting: str) -> None:
    value = "(SELECT pattern FROM ledger WHERE seq = 3)"
    forged(three, f"UPDATE ledger SET {setting.replace('names_of.pattern', value)} WHERE seq = 1")
    assert findings(three) == ["entry 1 is damaged: it is no entry any more"]


def test_a_pattern_that_makes_very_much_of_a_few_names(three: Store) -> None:
    """Its digest is right, so nothing but its length is wrong."""
    written = write_pattern(['"', *[""] * 70_000, '"'], [(0, 96)] * 70_001)
    digest = sha256(written).digest()
    with three.write_transaction() as tx:
        tx.execute("INSERT INTO ledger_pattern (digest, pattern) VALUES (?, ?)", (digest, written.decode()))
    forged(three, "UPDATE ledger SET pattern = ? WHERE seq = 2", digest)
    assert findings(three) == [DAMAGED]


# --- stores from before -----------------------------------------------------------------------------------------------
