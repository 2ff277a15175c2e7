"""The decision log in the store: the ledger covers every row, and retention deletes a prefix only."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator

import msgspec
import pytest

from manglecp.store import ChangeRefused, DecisionRecord, Store, Unusable, open_store
from manglecp.store.database import Transaction


@pytest.fixture
def store(store_where: str) -> Iterator[Store]:
    store = open_store(store_where)
    yield store
    store.close()


def record(number: int, **members: str) -> DecisionRecord:
    return msgspec.structs.replace(
        DecisionRecord(
            id=f"d-{number}",
            at_ms=number * 1_000,
            operation="decide",
            principal="ann",
            tool="refund",
            verdict="deny",
            revision="sha256:00",
            args_digest="sha256:01",
            content=b'{"n":%d}' % number,
        ),
        **members,
    )


def append(store: Store, *numbers: int) -> None:
    with store.write_transaction() as tx:
        store.decisions.append_all(tx, [record(number) for number in numbers])


def findings(store: Store) -> list[str]:
    with store.read_transaction() as tx:
        return store.decisions.verify(tx)


def change(store: Store, *statements: str) -> None:
    with store.write_transaction() as tx:
        for statement in statements:
            tx.execute(statement)


def prune(store: Store, before_ms: int) -> int:
    with store.write_transaction() as tx:
        return store.decisions.prune(tx, before_ms)


def ids(store: Store, **filters: str) -> list[str]:
    with store.read_transaction() as tx:
        return [decision.id for decision in store.decisions.newest(tx, 100, **filters)]


def test_decisions_are_found_and_filtered(store: Store) -> None:
    append(store, 1, 2)
    with store.write_transaction() as tx:
        store.decisions.append_all(tx, [record(3, run="r-1", verdict="allow")])
    assert ids(store) == ["d-3", "d-2", "d-1"]
    assert (ids(store, run="r-1"), ids(store, verdict="deny")) == (["d-3"], ["d-2", "d-1"])
    with store.read_transaction() as tx:
        stored = store.decisions.find(tx, "d-2")
        assert (stored.entry, stored.position, store.decisions.content(stored)) == (1, 1, b'{"n":2}')
        assert store.ledger.entry(tx, 1) is not None
        with pytest.raises(ChangeRefused, match="no decision d-9"):
            store.decisions.find(tx, "d-9")
    assert findings(store) == []


@pytest.mark.parametrize(
    ("statements", "finding"),
    [
        (["UPDATE decision SET verdict = 'allow' WHERE id = 'd-3'"], "entry 2: its decisions were altered"),
        (["UPDATE decision SET content = (SELECT content FROM decision WHERE id = 'd-4') WHERE id = 'd-3'"], "entry 2"),
        (["DELETE FROM decision WHERE id = 'd-3'"], "entry 2: its decisions were altered, deleted or reordered"),
        (["DELETE FROM decision WHERE entry = 2"], "entry 2: its decisions are missing"),
        (["DELETE FROM decision WHERE entry = 1"], "entry 1: its decisions are missing"),
        (["DELETE FROM decision WHERE entry = 3"], "entry 3: its decisions are missing"),
        (
            [f"UPDATE decision SET position = {to} WHERE entry = 2 AND position = {at}" for at, to in
             ((0, 9), (1, 0), (9, 1))],
            "entry 2: its decisions were altered",
        ),
        (["UPDATE decision SET entry = 9 WHERE entry = 3"], "entry 9: decisions are stored for it"),
    ],
)  # fmt: skip
def test_tampering_is_found(store: Store, statements: list[str], finding: str) -> None:
    for numbers in ((1, 2), (3, 4), (5, 6)):
        append(store, *numbers)
    change(store, *statements)
    assert any(found.startswith(finding) for found in findings(store)), findings(store)


def test_tampering_by_another_process_is_found(store_where: str) -> None:
    if store_where == ":memory:":
        return
    with_store: Callable[[], Store] = lambda: open_store(store_where)  # noqa: E731
    store = with_store()
    append(store, 1, 2)
    code = (
        f"from manglecp.store import open_store; store = open_store({store_where!r})\n"
        "with store.write_transaction() as tx: tx.execute(\"UPDATE decision SET principal = 'eve'\")"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert findings(store) == ["entry 1: its decisions were altered, deleted or reordered"]
    store.close()


def test_retention_deletes_whole_batches_and_verify_accepts_only_that(store: Store) -> None:
    for numbers in ((1, 2), (3, 4), (5, 6), (7, 8)):
        append(store, *numbers)
    assert prune(store, 3_500) == 2  # decision 4 is younger, so its batch stays
    assert ids(store) == ["d-8", "d-7", "d-6", "d-5", "d-4", "d-3"]
    assert findings(store) == []
    assert prune(store, 3_500) == 0
    change(store, "DELETE FROM decision WHERE entry = 3")
    assert findings(store) == ["entry 3: its decisions are missing"]


def test_all_decisions_can_be_pruned(store: Store) -> None:
    append(store, 1, 2)
    assert (prune(store, 9_000), prune(store, 9_000), findings(store)) == (2, 0, [])
    append(store, 10)
    assert (ids(store), findings(store)) == (["d-10"], [])


def test_a_batch_that_is_rolled_back_leaves_nothing(store: Store) -> None:
    def fail(tx: Transaction) -> None:
        store.decisions.append_all(tx, [record(1)])
        raise KeyError

    with pytest.raises(KeyError), store.write_transaction() as tx:
        fail(tx)
    assert (ids(store), findings(store)) == ([], [])


def test_contents_are_sealed_and_verified_without_the_key(tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("sealed") / "store.sqlite3"
    sealed = open_store(path, key=b"k" * 32)
    append(sealed, 1)
    sealed.close()
    assert b'{"n":1}' not in path.read_bytes()
    store = open_store(path)
    assert findings(store) == []
    with store.read_transaction() as tx:
        stored = store.decisions.find(tx, "d-1")
    with pytest.raises(Unusable, match="sealed"):
        store.decisions.content(stored)
    store.close()
