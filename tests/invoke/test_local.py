"""What a shell or a server opens: packs that share a store."""

from __future__ import annotations

import sqlite3
from functools import partial
from pathlib import Path

import pytest

from manglecp.intent import Identity
from manglecp.invoke import PackOptions, open_packs
from manglecp.pack import PackError
from manglecp.store import open_store
from tests.intent.packs import request

EXAMPLES = Path(__file__).parents[2] / "examples"


async def test_packs_share_a_store_and_are_closed_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANGLECP_STATE_DIR", str(tmp_path / "state"))
    me = Identity("local", frozenset(), "local")
    packs = [PackOptions(EXAMPLES / "incident")] * 2
    async with open_packs(packs, partial(open_store, tmp_path / "store.db")) as opened:
        first, second = opened.invokers
        answer = await first.offers.evaluate(request("observe"), me)
        assert [tool.name for tool in answer.payload.macro_tools] == ["list_failures"]
        assert second.domain.digest == first.domain.digest
        store = opened.store
    with pytest.raises(sqlite3.ProgrammingError), store.read_transaction():
        pass


async def test_what_is_wrong_with_a_pack_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANGLECP_STATE_DIR", str(tmp_path / "state"))
    with pytest.raises(PackError):
        async with open_packs([PackOptions(tmp_path)], partial(open_store, ":memory:")):
            raise AssertionError("there is no pack")
