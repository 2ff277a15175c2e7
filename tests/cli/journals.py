"""Stores with runs in them, made without any host: for verbs that only look at a store, or decide."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

from manglecp.store import open_store
from manglecp.wire import WireError
from tests.intent.packs import action, pack
from tests.invoke.workshop import Fails, shop

_NUMBER = {"n": {"type": "integer"}}
_RULES = """
macro("t", "A tool.").
mandatory("t") :- intent("go").
macro_step("t", 1, "look").
macro_step("t", 2, "write").
macro_step("t", 3, "look").
"""


def journal(path: Path, *outcomes: str, key: bytes | None = None) -> list[str]:
    """A store with a run for each of the outcomes that its effect may have: ``done``, ``failed``,
    ``unknown``. Their ids."""
    return asyncio.run(_journal(path, outcomes, key))


def reads(path: Path, count: int) -> None:
    """A store with as many runs without effects, all alike."""
    asyncio.run(_reads(path, count))


async def _reads(path: Path, count: int) -> None:
    rules = 'macro("t", "A tool."). mandatory("t") :- intent("go"). macro_step("t", 1, "look").'
    store = open_store(path)
    try:
        async with shop(pack(rules, actions=(action("look", params=_NUMBER),), intents=("go",)), store=store) as s:
            for number in range(count):
                await s.invoke("t", {"n": number})
    finally:
        store.close()


async def _journal(path: Path, outcomes: tuple[str, ...], key: bytes | None) -> list[str]:
    write = action("write", params=_NUMBER, effects=("filesystem",), tier=1, mutates=True)
    drawn = pack(_RULES, actions=(action("look", params=_NUMBER), write), intents=("go",))
    coming = iter(outcomes)

    def work(given: dict[str, Any]) -> dict[str, Any]:
        match next(coming):
            case "failed":
                raise Fails()
            case "unknown":
                raise Fails("crash", "outcome_unknown")
        return given

    store = open_store(path, key=key)
    try:
        async with shop(drawn, {"write": work}, store=store) as s:
            for _ in outcomes:
                with suppress(WireError):
                    await s.invoke("t", {"n": 1}, confirm=True)
        with store.read_transaction() as tx:
            return [str(entry.run) for entry in store.ledger.rows(tx, kind="admission")]
    finally:
        store.close()
