"""Servers to test: the incident pack behind real cores, right or with one flaw, on an event loop of their own.

The cores live as long as the tests, for it takes a while to open one; each test has an address of its own.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal

import uvicorn

from manglecp.conformance import Report, read_plan, run
from manglecp.conformance.plan import Plan
from manglecp.intent import Identity
from manglecp.invoke import PackOptions
from manglecp.server import AuthConfig, Core, open_core
from manglecp.server.app import App
from manglecp.store import open_store
from tests.conformance_tool.spoiling import Flaw, Spoiled
from tests.server.desk import PATIENCE, Tokens

HERE = Path(__file__).parent
PACK = HERE.parents[1] / "examples" / "incident"
SECONDS = 30.0
WHO = Tokens(
    {
        "s3cret": Identity("ada", frozenset({"fix", "explain_policy"}), "user"),
        "little": Identity("bob", frozenset(), "user"),
        "grown-up": Identity("eve", frozenset({"approve"}), "user"),
    }
)
Way = Literal["http", "websocket"]


class Workshop:
    def __init__(self, loop: asyncio.AbstractEventLoop, folder: Path, anonymous: Core, known: Core) -> None:
        self._loop = loop
        self._folder = folder
        self._cores = {False: anonymous, True: known}
        self._runs = 0

    def plan(self, more: str) -> Plan:
        self._runs += 1
        text = (HERE / "incident.toml").read_text() + (HERE / f"{more}.toml").read_text()
        text = text.replace("ROUTE", f"route-{self._runs}")
        path = self._folder / "plan.toml"
        path.write_text(text)
        return read_plan(path)

    def test(self, way: Way = "http", flaw: Flaw | None = None, *, known: bool = False, **more: Any) -> Report:
        """Test a server that has this flaw."""
        plan = more.pop("plan", None) or self.plan("known" if known else "anonymous")
        made = self._test(way, flaw, self._cores[known], {"plan": plan, "seconds": SECONDS, **more})
        return asyncio.run_coroutine_threadsafe(made, self._loop).result(PATIENCE * 10)

    async def _test(self, way: Way, flaw: Flaw | None, core: Core, more: dict[str, Any]) -> Report:
        async with listening(Spoiled(App(core), flaw)) as port:
            address = f"http://127.0.0.1:{port}" if way == "http" else f"ws://127.0.0.1:{port}/ws"
            return await run(address, **more)


@asynccontextmanager
async def listening(app: Spoiled) -> AsyncIterator[int]:
    # The event loop switches off delays only for sockets that say that they are TCP.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as bound:
        bound.bind(("127.0.0.1", 0))
        config = uvicorn.Config(app, lifespan="off", log_config=None, ws_max_size=1 << 30, timeout_graceful_shutdown=5)
        server = uvicorn.Server(config)
        server.capture_signals = _no_signals  # type: ignore[method-assign]
        task = asyncio.create_task(server.serve(sockets=[bound]))
        while not server.started:
            assert not task.done()
            await asyncio.sleep(0.001)
        try:
            yield bound.getsockname()[1]
        finally:
            server.should_exit = True
            await task


@contextmanager
def _no_signals() -> Iterator[None]:
    yield


@contextmanager
def workshop(folder: Path) -> Iterator[Workshop]:
    (folder / "app").mkdir()
    (folder / "app" / "routes.toml").write_text((PACK / "recorded" / "app" / "routes.toml").read_text())
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    stack = AsyncExitStack()

    async def opened() -> tuple[Core, Core]:
        cores = []
        for auth in (None, WHO):
            options = PackOptions(PACK, workspace=[folder])
            core = await stack.enter_async_context(
                open_core(options, partial(open_store, ":memory:"), AuthConfig(auth))
            )
            await core.revisions.wait_until_loaded()
            cores.append(core)
        return cores[0], cores[1]

    try:
        cores = asyncio.run_coroutine_threadsafe(opened(), loop).result(PATIENCE)
        yield Workshop(loop, folder, *cores)
    finally:
        asyncio.run_coroutine_threadsafe(stack.aclose(), loop).result(PATIENCE)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(PATIENCE)
        loop.close()
