"""Nonces: used once, by whom they were made for."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from manglecp.store.store import Store, open_store

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def store(store_where: str) -> Iterator[Store]:
    store = open_store(store_where)
    yield store
    store.close()


def burn(store: Store, nonce: str, identity: str = "kim", expires_ms: int = 1000) -> bool:
    with store.write_transaction() as tx:
        return store.nonces.burn(tx, identity, nonce, expires_ms)


def test_once(store: Store) -> None:
    assert burn(store, "n1")
    assert not burn(store, "n1")
    assert not burn(store, "n1", expires_ms=5000)
    assert burn(store, "n2")
    assert burn(store, "n1", identity="lee"), "somebody else's nonce is another one"


def test_what_failed_was_no_use(store: Store) -> None:
    def fail() -> None:
        with store.write_transaction() as tx:
            assert store.nonces.burn(tx, "kim", "n1", 1000)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert burn(store, "n1")


def test_forgotten_after_it_has_expired(store: Store) -> None:
    burn(store, "n1", expires_ms=1000)
    burn(store, "n2", expires_ms=2000)
    with store.write_transaction() as tx:
        assert store.nonces.sweep(tx, 999) == 0
        assert store.nonces.sweep(tx, 1000) == 1
    assert burn(store, "n1", expires_ms=3000)
    assert not burn(store, "n2")


def test_threads_at_the_same_time(store: Store) -> None:
    begin = threading.Barrier(6)
    won: list[str] = []

    def work() -> None:
        begin.wait()
        won.extend(nonce for number in range(20) if burn(store, nonce := f"n{number}"))

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(won) == sorted(f"n{number}" for number in range(20))


@pytest.mark.parametrize("store_where", ["file", "postgresql"], indirect=True)
def test_processes_at_the_same_time(store_where: str) -> None:
    open_store(store_where).close()
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.store._burner", store_where, "40"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "here\n"
    won: list[str] = []
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    for process in processes:
        out, err = process.communicate(timeout=120)
        assert (process.returncode, err) == (0, "")
        won += out.split()
    assert sorted(won) == sorted(f"n{number}" for number in range(40))
