"""``@lifespan``: what a host opens before its first call and closes after its last one."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from manglecp import Context, action, lifespan
from manglecp.toolhost import ActionResult, DispatchError, HostCall
from manglecp.toolhost.dispatch import process
from manglecp.toolhost.dispatch.launch import HostCommand
from manglecp.toolhost.dispatch.pool import Pool
from manglecp.toolhost.plugin import PluginError, load
from tests.deadlines import patience
from tests.toolhost.dispatch.hosts import QUICK, error, nothing_left

HEAD = """
import asyncio
import os
import time

from manglecp import Context, action, lifespan

LOG = {log!r}


def log(text):
    with open(LOG, "a") as file:
        file.write(text + "\\n")

"""
ACTIONS = """
@action(effects=["none"])
def plain(context: Context[dict]) -> int:
    context.state["calls"] += 1
    return context.state["calls"]


@action(effects=["none"])
async def waits(context: Context[dict], seconds: float = 0) -> int:
    await asyncio.sleep(seconds)
    context.state["calls"] += 1
    return context.state["calls"]
"""
HURRY = "from manglecp.toolhost.host import lifespan as hosted\nhosted.START_SECONDS = 0.3\n\n"  # in place of 10
LIFESPANS = {
    "async": """
@lifespan
async def opened(context: Context):
    log("opened " + context.settings.get("name", ""))
    task = asyncio.current_task()
    yield {"calls": 0}
    assert asyncio.current_task() is task
    log("closed")
""",
    "plain": """
@lifespan
def opened(context: Context):
    log("opened " + context.settings.get("name", ""))
    yield {"calls": 0}
    log("closed")
""",
}


class Served:
    def __init__(self, pool: Pool) -> None:
        self.pool = pool

    async def call(self, action: str, /, **inputs: Any) -> ActionResult | DispatchError:
        call = HostCall(aid=f"AID.PLUGIN.{action.upper()}.v1", input_json=json.dumps(inputs), tier=0, idempotent=True)
        return await self.pool.call(call)

    async def detail(self, action: str, /) -> str:
        """Return the detail of a call that fails without a host."""
        result = await self.call(action)
        assert error(result) == ("crash", "no_host")
        assert isinstance(result, dict)
        return result["detail"]

    async def output(self, action: str, /, **inputs: Any) -> Any:
        result = await self.call(action, **inputs)
        assert isinstance(result, ActionResult), result
        return json.loads(result.output_json)


def serve(folder: Path, source: str, work: Callable[[Served], Awaitable[None]], **options: Any) -> str:
    """Run ``work`` with one host of the plugin; return what its lifespan has logged."""
    (folder / "plugin").mkdir(exist_ok=True)
    plugin, log = folder / "plugin" / "plugin.py", folder / "log"
    plugin.write_text(HEAD.format(log=str(log)) + source)

    async def main() -> None:
        command = HostCommand.for_plugin(str(plugin), os.environ, **{"sandbox": "none", **options})
        async with Pool(command, size=1, timeout=patience(20), limits=QUICK) as pool:
            await work(Served(pool))

    with nothing_left():
        asyncio.run(main())
    return log.read_text() if log.exists() else ""


@pytest.mark.parametrize("concurrency", [1, 4])
@pytest.mark.parametrize("kind", LIFESPANS)
def test_the_state_lives_as_long_as_the_host(tmp_path: Path, kind: str, concurrency: int) -> None:
    async def work(served: Served) -> None:
        assert [await served.output("plain"), await served.output("waits"), await served.output("plain")] == [1, 2, 3]

    options = {"settings": {"name": "ann"}, "concurrency": concurrency}
    assert serve(tmp_path, LIFESPANS[kind] + ACTIONS, work, **options) == "opened ann\nclosed\n"


def test_the_lifespan_is_sandboxed(tmp_path: Path) -> None:
    source = """
@lifespan
async def opened():
    found = {"calls": 0}
    try:
        log("outside")
    except OSError as problem:
        found["calls"] = 41
    yield found
"""

    async def work(served: Served) -> None:
        assert await served.output("waits") == 42

    assert serve(tmp_path, source + ACTIONS, work, sandbox="strict") == ""


def test_a_lifespan_that_cannot_start_is_the_error_of_a_call_until_it_can(tmp_path: Path) -> None:
    source = """
@lifespan
async def opened():
    if not os.path.exists(LOG + ".ready"):
        raise ConnectionRefusedError("no database")
    yield {"calls": 0}
"""

    async def work(served: Served) -> None:
        expected = "the lifespan opened cannot start: ConnectionRefusedError: no database (line 19)"
        assert expected in await served.detail("waits")
        (tmp_path / "log.ready").touch()
        async with asyncio.timeout(patience(10)):
            while isinstance(await served.call("waits"), dict):
                await asyncio.sleep(0.05)

    serve(tmp_path, source + ACTIONS, work)


@pytest.mark.parametrize(
    "body",
    [
        "await asyncio.sleep(60)",
        "time.sleep(60)",
        "while True:\n        try: time.sleep(1)\n        except Exception: pass",
    ],
)
def test_a_start_that_takes_too_long_is_named(tmp_path: Path, body: str) -> None:
    source = f"{HURRY}@lifespan\nasync def opened():\n    {body}\n    yield 1\n"

    async def work(served: Served) -> None:
        assert "the lifespan opened did not start within 0.3 s" in await served.detail("waits")

    serve(tmp_path, source + ACTIONS, work)


@pytest.mark.parametrize("body", ["raise ValueError('late')", "await asyncio.sleep(60)", "time.sleep(60)", "yield 2"])
def test_an_end_that_fails_or_hangs_keeps_nothing_open(
    tmp_path: Path, body: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "LIFESPAN_GRACE", 0.5)
    source = f"@lifespan\nasync def opened():\n    yield {{'calls': 0}}\n    log('closing')\n    {body}\n"

    async def work(served: Served) -> None:
        assert await served.output("waits") == 1

    assert serve(tmp_path, source + ACTIONS, work) == "closing\n"


@pytest.mark.parametrize("concurrency", [1, 4])
def test_its_background_tasks_outlive_calls(tmp_path: Path, concurrency: int) -> None:
    source = """
@lifespan
async def opened():
    state = {"calls": 0}

    async def count():
        while True:
            await asyncio.sleep(0.01)
            state["calls"] += 100

    async with asyncio.TaskGroup() as group:
        task = group.create_task(count())
        yield state
        task.cancel()
"""

    async def work(served: Served) -> None:
        first = await served.output("waits", seconds=0.2)
        assert first > 100
        assert await served.output("waits", seconds=0.2) > first + 100

    serve(tmp_path, source + ACTIONS, work, concurrency=concurrency)


def test_every_host_has_a_lifespan_of_its_own_and_closes_it_when_it_is_replaced(tmp_path: Path) -> None:
    async def work(served: Served) -> None:
        await served.output("waits")
        served.pool._queue.slots[0].request_successor()
        async with asyncio.timeout(patience(10)):
            while "closed" not in (tmp_path / "log").read_text():
                await served.output("waits")
                await asyncio.sleep(0.02)

    assert serve(tmp_path, LIFESPANS["async"] + ACTIONS, work).split("\n").count("closed") == 2


def test_run_mode_has_the_lifespan_and_listing_has_not(tmp_path: Path) -> None:
    plugin, log = tmp_path / "plugin.py", tmp_path / "log"
    plugin.write_text(HEAD.format(log=str(log)) + LIFESPANS["async"] + ACTIONS)
    host = [sys.executable, "-I", "-m", "manglecp.toolhost.host"]
    listing = json.loads(subprocess.run([*host, "--list", str(plugin)], stdout=subprocess.PIPE, check=True).stdout)
    assert len(listing["tools"]) == 2
    assert not log.exists()
    run = subprocess.run(
        [*host, "--run", str(plugin), "AID.PLUGIN.WAITS.v1"], input=b"{}", stdout=subprocess.PIPE, check=True
    )
    assert json.loads(run.stdout)["output_json"] == "1"
    assert log.read_text() == "opened \nclosed\n"


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (
            "@lifespan\nasync def opened():\n    return 1\n",
            "TypeError: lifespan: the decorated function has to be a gen",
        ),
        ("@lifespan\ndef a():\n    yield\n@lifespan\ndef b():\n    yield\n", "a plugin has one @lifespan, not 2: a, b"),
        (
            "@lifespan\ndef a(path, name):\n    yield\n",
            "the lifespan a has the parameters path, name; it gets at most a Context, and secrets",
        ),
        (
            "from typing import Annotated\nfrom manglecp import Secret\n"
            '@lifespan\ndef a(dsn: Annotated[int, Secret("D")]):\n    yield\n',
            "a secret is one text",
        ),
        ("@lifespan\ndef a(path: Missing):\n    yield\n", "NameError: name 'Missing' is not defined"),
    ],
)
def test_a_wrong_declaration_is_an_error_of_the_plugin(tmp_path: Path, source: str, reason: str) -> None:
    (tmp_path / "plugin.py").write_text(f"from manglecp import lifespan\n{source}")
    with pytest.raises(PluginError) as raised:
        load(str(tmp_path / "plugin.py"))
    assert reason in str(raised.value)


def test_without_a_lifespan_there_is_no_state(tmp_path: Path) -> None:
    async def work(served: Served) -> None:
        result = await served.call("waits")
        assert isinstance(result, dict)
        assert result["type"] == "tool_error"
        assert "declare a function that yields it with @lifespan" in result["detail"]

    serve(tmp_path, ACTIONS, work)


def test_concurrency_is_for_async_actions_without_programs() -> None:
    async def wait() -> None: ...

    with pytest.raises(TypeError, match="concurrency=2: <lambda> has to be an async def function"):
        action(effects=[], concurrency=2)(lambda: None)
    with pytest.raises(ValueError, match="from 1 to 256"):
        action(effects=[], concurrency=257)
    with pytest.raises(ValueError, match="an action that starts programs has a host of its own"):
        action(effects=["process"], concurrency=2)
    assert action(effects=[], concurrency=2)(wait) is wait


@lifespan
def typed(context: Context) -> Iterator[int]:
    yield len(context.settings)


@action(effects=[])
def uses(context: Context[int]) -> int:
    return context.state + 1  # mypy knows its type
