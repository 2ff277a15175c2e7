"""The page about the store says what is true."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from manglecp.issues import open_issues
from manglecp.store import approvals, errors
from manglecp.store.ledger import KINDS
from manglecp.store.registry import CHECK_MS, MAX_ENTRIES, RETENTION_MS
from manglecp.store.store import Store, open_store

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "store.md").read_text(encoding="utf-8")


@pytest.fixture
def store() -> Iterator[Store]:
    store = open_store(":memory:")
    yield store
    store.close()


def test_every_table_is_there(store: Store) -> None:
    with store.read_transaction() as tx:
        tables = {row[0] for row in tx.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    memory = open_issues(":memory:")
    with memory.read_transaction() as issues:
        tables |= {row[0] for row in issues._execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    memory.close()
    section = PAGE[PAGE.index("## What it holds") : PAGE.index("### Macro-tools")]
    said = set(re.findall(r"`([a-z_]+)`", section))
    assert said == tables


def test_every_kind_of_entry_is_there() -> None:
    (sentence,) = re.findall(r"Kinds: (.*)\.$", PAGE, re.MULTILINE)
    assert set(re.findall(r"`([a-z_]+)`", sentence)) == KINDS


def test_every_error_is_there() -> None:
    assert {name for name in vars(errors) if name[0].isupper() and f"`{name}`" not in PAGE} == {"StoreError"}


def test_the_numbers() -> None:
    assert f"the retention time ({RETENTION_MS // 1000} s)" in PAGE
    assert f"within {CHECK_MS // 60_000} minutes" in PAGE
    assert f"than there may be ({MAX_ENTRIES:,})" in PAGE
    assert f"{approvals.RETENTION_MS // 86_400_000} days after it has expired" in PAGE
    assert f"at most {approvals.MAX_PENDING} pending requests" in PAGE


def test_the_example_runs() -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    exec(code, {})
