"""Case 28 over real sockets: two tenants of one server at the same time, and nothing of the one reaches the other.

Neither through caches, proofs, reasons, events, errors, request keys, skills, figures nor logs; by HTTP and in
sessions; in one process and in two that share a store.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.server.lines import WAYS
from tests.server.tenants import ANN, BOB, Tenant, write_pack, write_tokens
from tests.server.test_serve import process

pytestmark = pytest.mark.no_cover

ROUNDS = 3
LINES = 2
"""Of each tenant, in each way."""


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.req("SEC-28", "SEC-37", "PROOF-09")
def test_nothing_of_one_tenant_reaches_the_other(tmp_path: Path, workers: int) -> None:
    tenants = Tenant(*ANN), Tenant(*BOB)
    write_pack(tmp_path / "pack")
    write_tokens(tmp_path / "tokens.toml", *tenants)
    args = ("--http", "127.0.0.1:0", "--workers", str(workers), "--store", str(tmp_path / "store.db"), "--degrade")
    with process(tmp_path, "serve", str(tmp_path / "pack"), "--tokens", str(tmp_path / "tokens.toml"), *args) as p:
        url = p.url()
        p.until(lambda: p.said().count("serving at") == workers)

        async def visits() -> None:
            macro_ids: dict[str, str] = {}
            async with asyncio.TaskGroup() as tasks:
                for tenant in tenants:
                    for way in WAYS:
                        for _ in range(LINES):
                            tasks.create_task(tenant.visit(url, way, macro_ids, ROUNDS))
                    tasks.create_task(tenant.look_around(url))
            assert set(macro_ids) == {"amber", "birch"}

        asyncio.run(visits())
        assert p.end() == 0
        logged = p.said()
    for tenant in tenants:
        told = b"\n".join(tenant.heard).decode()
        assert told.count(f"fact-{tenant.mark}") > 10, "it was told of its own"
        assert tenant.other not in told
        assert tenant.token not in told
        assert tenant.token not in logged
    assert "ann-amber" in logged
    for payload in ("fact-", "arg-", "told-", "token-", "extra_", "right-", "only for"):
        assert payload not in logged, payload
