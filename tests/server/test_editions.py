"""Packs in folders, with real hosts: editions, reloading, and runs that somebody left behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, cast

import pytest

from manglecp.intent.tokens import counter
from manglecp.invoke import InvokeSettings, PackOptions, PackRuntime
from manglecp.pack import FolderWatcher, PackError, SandboxPolicy
from manglecp.server.config import ServerSettings
from manglecp.server.core import Core
from manglecp.server.revisions import ReloadResult, RevisionManager
from manglecp.server.runtime import open_core, reload_on_change
from manglecp.store import RunState, open_store
from tests.invoke.test_resuming import begun, the_run
from tests.invoke.workshop import shop
from tests.server.desk import PATIENCE, Client, intent, invoke, plain_pack

ACTIONS = '''
from manglecp import action

@action(effects=[])
def double(n: int) -> dict:
    """Twice as much."""
    return {"twice": 2 * n}
'''
RULES = """
macro("twice", "Doubles a number."). mandatory("twice") :- intent("calculate"). macro_step("twice", 1, "double").
"""


def pack_folder(folder: Path) -> Path:
    (folder / "rules").mkdir()
    (folder / "rules" / "tools.mg").write_text(RULES)
    (folder / "actions.py").write_text(ACTIONS)
    return folder


async def _tools(client: Client, request: str) -> dict[str, str]:
    answer = await client.ask(intent(request, "calculate"))
    return {tool["name"]: tool["macro_id"] for tool in answer["payload"]["macro_tools"]}


@asynccontextmanager
async def served(folder: Path) -> AsyncIterator[Core]:
    """A pack that is being loaded, as it is in its folder at each moment."""
    store = open_store(":memory:")
    opening = partial(PackRuntime.open, PackOptions(folder, sandbox=SandboxPolicy(degrade=True)), store)
    async with opening() as outline:
        settings = outline.domain.pack.settings
    serving = RevisionManager(opening, settings, ServerSettings(worker=False))
    core = Core(serving)
    serving.begin()
    try:
        yield core
    finally:
        async with asyncio.timeout(PATIENCE):
            await core.close()
        store.close()


async def test_a_pack_in_a_folder_is_served_and_edits_are_followed(tmp_path: Path) -> None:
    folder = pack_folder(tmp_path)
    async with served(folder) as core:
        serving = core.revisions
        reloads: asyncio.Queue[ReloadResult] = asyncio.Queue()
        watching = asyncio.create_task(reload_on_change(serving, folder, pause=0.01, on_reload=reloads.put_nowait))
        try:
            await asyncio.wait_for(serving.wait_until_loaded(), PATIENCE)
            async with Client(core, "websocket", None) as client, asyncio.timeout(PATIENCE):
                tools = await _tools(client, "a")
                answer = await client.ask(invoke("b", tools["twice"], {"n": 21}))
                assert answer["payload"]["result"] == {"twice": 42}
                (folder / "rules" / "tools.mg").write_text(RULES + "this is no rule")
                assert await reloads.get() == "broken"
                assert core.manifest().status == "degraded"
                assert set(await _tools(client, "c")) == {"twice"}
                (folder / "rules" / "tools.mg").write_text(RULES.replace('"twice"', '"again"'))
                assert await reloads.get() == "swapped"
                assert core.manifest().status == "ready"
                assert set(await _tools(client, "d")) == {"again"}
                old = await client.ask(invoke("e", tools["twice"], {"n": 1}))
                assert old["payload"]["code"] == "macro_expired"
                serving.drain()
                await watching  # it ends by itself
        finally:
            watching.cancel()


async def test_a_pack_is_warmed_up_before_it_is_served(tmp_path: Path) -> None:
    """The vocabulary of the token counter is the most that a first request would pay for."""
    counter.cache_clear()
    options = PackOptions(pack_folder(tmp_path), sandbox=SandboxPolicy(degrade=True))
    async with open_core(options, partial(open_store, ":memory:")) as core:
        await asyncio.wait_for(core.revisions.wait_until_loaded(), PATIENCE)
        assert counter.cache_info().currsize == 1


async def test_a_server_without_pid_namespaces_is_degraded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("manglecp.server.runtime.containment_problem", lambda profile: f"none for {profile}")
    options = PackOptions(pack_folder(tmp_path), sandbox=SandboxPolicy(degrade=True))
    async with open_core(options, partial(open_store, ":memory:")) as core:
        await asyncio.wait_for(core.revisions.wait_until_loaded(), PATIENCE)
        assert core.manifest().status == "degraded"
        assert core.revisions.failures["sandbox"].endswith("by a supervisor, not by the kernel: none for strict")


async def test_a_file_that_an_editor_puts_away_for_a_moment_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tmp_path / "pack.toml"
    settings.write_text("first")

    class Editing(FolderWatcher):
        """Somebody saves: the file is away at two looks."""

        looks = 0

        def poll(self) -> bool:
            self.looks += 1
            if self.looks == 2:
                settings.unlink()
            if self.looks == 4:
                settings.write_text("second")
            return super().poll()

    class Told:
        status = "ready"
        loaded: ClassVar[list[str]] = []

        async def wait_until_loaded(self) -> None:
            pass

        async def reload(self) -> ReloadResult:
            self.loaded.append(settings.read_text() if settings.exists() else "")
            self.status = "draining"
            return "swapped"

    monkeypatch.setattr("manglecp.server.runtime.FolderWatcher", Editing)
    async with asyncio.timeout(PATIENCE):
        await reload_on_change(cast(RevisionManager, Told()), tmp_path, pause=0.001)
    assert Told.loaded == ["second"]


async def test_a_pack_that_was_never_sound_is_served_once_it_is_repaired(tmp_path: Path) -> None:
    folder = pack_folder(tmp_path)
    (folder / "rules" / "tools.mg").write_text("nonsense")
    store = open_store(":memory:")
    options = PackOptions(folder, sandbox=SandboxPolicy(degrade=True))
    serving = RevisionManager(partial(PackRuntime.open, options, store), plain_pack().settings)
    serving.begin()
    with pytest.raises(PackError):
        await asyncio.wait_for(serving.wait_until_loaded(), PATIENCE)
    assert await serving.reload() == "broken"
    assert (serving.status, dict(serving.failures)) == ("booting", {})
    watching = asyncio.create_task(reload_on_change(serving, folder, pause=0.01))
    async with asyncio.timeout(PATIENCE):
        edits = 0
        while serving.current is None:  # an edit that is made before the first look is none
            edits += 1
            (folder / "rules" / "tools.mg").write_text(RULES + "#" * edits)
            await asyncio.sleep(0.2 * edits)
        await serving.end()
        await watching
    store.close()


async def test_a_run_that_somebody_left_behind_is_carried_out() -> None:
    rules = (
        'macro("t", "A tool."). mandatory("t") :- intent("go").',
        'macro_step("t", 1, "look"). macro_step("t", 2, "write"). macro_step("t", 3, "write").',
    )
    left = plain_pack("\n".join(rules))
    store = open_store(":memory:")
    await begun(left, store, "finished:s2")
    ran: list[str] = []

    def write(given: dict[str, Any]) -> dict[str, Any]:
        ran.append("write")
        return given

    @asynccontextmanager
    async def opening() -> AsyncIterator[PackRuntime]:
        async with shop(left, {"write": write}, store=store, settings=InvokeSettings(claim_ms=30)) as one:
            yield PackRuntime(one.domain, one.invoker.offers, one.invoker)

    serving = RevisionManager(opening, left.settings, ServerSettings(worker_pause=0.01))
    serving.begin()
    async with asyncio.timeout(PATIENCE):
        while the_run(store).state != RunState.SUCCEEDED:
            await asyncio.sleep(0.01)
        await serving.end()
    assert ran == ["write"]
    store.close()


async def test_doubts_about_a_pack_are_logged_with_every_edition(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever only serves a pack hears of a rule that nothing reads, too."""
    folder = pack_folder(tmp_path)
    async with served(folder) as core:
        async with asyncio.timeout(PATIENCE):
            await core.revisions.wait_until_loaded()
            assert _doubts(caplog) == []
            (folder / "rules" / "who.mg").write_text('requires_confirmation("twice").\n')
            assert await core.revisions.reload() == "swapped"
        (told,) = _doubts(caplog)
        assert "requires_confirmation" in told
        assert "needs_confirmation" in told


def _doubts(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if "but warning" in record.message]
