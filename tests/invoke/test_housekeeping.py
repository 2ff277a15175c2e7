"""What is old is dropped, what is not stays."""

from __future__ import annotations

import asyncio
import logging

import pytest

from manglecp.invoke.runtime import run_retention, sweep_store
from manglecp.store import ApprovalBinding, Store, StoredOffer, open_store
from tests.deadlines import patience

DAY_MS = 86_400_000


def kept(store: Store, count: int, now_ms: int, expires_at_ms: int | None = None) -> None:
    tools = [
        StoredOffer(f"m-{number}", "chain", b"{}", "inputs of me", b"[]", None, expires_at_ms)
        for number in range(count)
    ]
    with store.write_transaction() as tx:
        store.registry.register(tx, "me", tools, now_ms=now_ms, retention_ms=1_000)


@pytest.mark.req("INVK-13")
def test_old_tools_and_approvals_go() -> None:
    store = open_store(":memory:")
    kept(store, 3, now_ms=0)
    call = ApprovalBinding(identity="me", pack_digest="p", chain_digest="c", args_digest="a", subject_digest="")
    with store.write_transaction() as tx:
        store.approvals.request(
            tx, call, tool="t", roles=(), four_eyes=False, text="Go on", now_ms=0, lifetime_ms=DAY_MS
        )
    assert sweep_store(store, 400) == (0, 0, 0, 0, 0)
    assert sweep_store(store, DAY_MS) == (3, 0, 0, 0, 0)
    assert sweep_store(store, 8 * DAY_MS - 1) == (0, 0, 0, 0, 0), "late uses get the reason for seven days"
    assert sweep_store(store, 8 * DAY_MS) == (0, 1, 0, 0, 0)
    assert sweep_store(store, 8 * DAY_MS) == (0, 0, 0, 0, 0)


@pytest.mark.req("INVK-13")
def test_too_many_tools_inside_their_window_are_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    store = open_store(":memory:")
    kept(store, 5, now_ms=0, expires_at_ms=DAY_MS)
    with caplog.at_level(logging.WARNING):
        assert sweep_store(store, 10, max_offers=3).offers == 2
    assert "2 were dropped before their validity ended" in caplog.text


async def test_rounds_go_on_in_the_background() -> None:
    store = open_store(":memory:")
    kept(store, 1, now_ms=0)
    sweeping = asyncio.create_task(run_retention(store, clock=lambda: DAY_MS * 1_000_000, pause=0.01))
    async with asyncio.timeout(patience(30)):
        while True:
            with store.read_transaction() as tx:
                if store.registry.find(tx, "me", "m-0", 0) is None:
                    break
            await asyncio.sleep(0.01)
    sweeping.cancel()
