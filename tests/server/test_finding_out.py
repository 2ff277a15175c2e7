"""What a pack finds out is kept up to date while it is served: real hosts, real files."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from manglecp.intent import Identity
from manglecp.invoke import PackOptions
from manglecp.pack import SandboxPolicy
from manglecp.server.auth_config import AuthConfig
from manglecp.server.core import Core
from manglecp.server.runtime import open_core
from manglecp.store import open_store
from tests.pack.folders import write
from tests.server.desk import PATIENCE, Client, intent, invoke

FACTS = """
import os
from pathlib import Path
from manglecp import Part, facts

seen = {}

@facts("file", every=0.05, changes=True)
def scan(root: Path):
    found = {path.name: path.read_text() for path in root.iterdir() if not path.name.startswith(".")}
    for name in found.keys() | seen.keys():
        if found.get(name) == seen.get(name):
            continue
        if found.get(name) == "broken":
            raise ValueError("a secret")
        yield Part(name, [("file", name, found[name])] if name in found else [])
    seen.clear()
    seen.update(found)
"""
ACTIONS = '''
from pathlib import Path
from manglecp import action

@action(effects=["filesystem"], idempotent=True)
def put(folder: str, name: str, text: str) -> str:
    """Write a file."""
    Path(folder, name).write_text(text)
    return name
'''
RULES = """
Decl file(Name, Text) bound [/string, /string].
Decl locked(Name) bound [/string].
locked(N) :- file(N, "lock").
macro(Tool, "Change it.") :- file(N, _), Tool = fn:string:concat("put_", N).
macro_step(Tool, 1, "put") :- file(N, _), Tool = fn:string:concat("put_", N).
arg_value(Tool, 1, "folder", F) :- file(N, _), Tool = fn:string:concat("put_", N), setting("root", F).
arg_value(Tool, 1, "name", "new") :- file(N, _), Tool = fn:string:concat("put_", N).
arg_value(Tool, 1, "text", "x") :- file(N, _), Tool = fn:string:concat("put_", N).
mandatory(Tool) :- intent("work"), file(N, _), Tool = fn:string:concat("put_", N).
"""
POLICY = 'effect_denied("put", "it is locked") :- locked(_).\n'
SETTINGS = '[params.root]\nkind = "folder"\nwritable = true\n'


class WaivingAuth(AuthConfig):
    """Nobody has a credential, and nobody needs an approval."""

    def current(self, identity: Identity) -> Identity:
        return identity._replace(auto_confirm_effects=("filesystem",))


@asynccontextmanager
async def core(folder: Path, more: str = "") -> AsyncIterator[Core]:
    files = {"pack.toml": SETTINGS + more, "rules/a.mg": RULES, "rules/policy/p.mg": POLICY, "actions.py": ACTIONS}
    write(folder / "pack", {**files, "facts.py": FACTS})
    write(folder / "root", {"a": "1"})
    options = PackOptions(
        folder / "pack",
        params={"root": str(folder / "root")},
        workspace=[folder / "root"],
        sandbox=SandboxPolicy(degrade=True),
        cache=False,
    )
    async with (
        asyncio.timeout(PATIENCE),
        open_core(
            options,
            partial(open_store, ":memory:"),
            WaivingAuth(),
        ) as opened,
    ):
        await opened.revisions.wait_until_loaded()
        yield opened


async def tools(client: Client) -> dict[str, str]:
    answer = await client.ask(intent("i", "work"))
    client.sent.clear()
    return {tool["name"]: tool["macro_id"] for tool in answer["payload"]["macro_tools"]}


async def version(client: Client) -> str:
    answer = await client.ask(intent("i", "work"))
    client.sent.clear()
    found = answer["payload"]["diagnostics"]["x-facts_version"]
    assert isinstance(found, str)
    return found


async def until(client: Client, wanted: set[str]) -> None:
    while set(await tools(client)) != wanted:
        await asyncio.sleep(0.02)


async def test_what_is_found_out_later_is_answered_by(tmp_path: Path) -> None:
    async with core(tmp_path) as opened, Client(opened, "websocket", None) as client:
        manifest = opened.manifest().data
        assert set(await tools(client)) == {"put_a"}
        first = await version(client)
        (tmp_path / "root/b").write_text("2")
        await until(client, {"put_a", "put_b"})
        assert await version(client) != first
        (tmp_path / "root/a").unlink()
        await until(client, {"put_b"})
        (tmp_path / "root/b").unlink()
        (tmp_path / "root/a").write_text("1")
        await until(client, {"put_a"})
        assert await version(client) == first
        assert opened.manifest().data == manifest


async def test_a_tool_outlives_the_facts_it_was_proven_by(tmp_path: Path) -> None:
    async with core(tmp_path) as opened, Client(opened, "websocket", None) as client:
        proven = (await tools(client))["put_a"]
        (tmp_path / "root/b").write_text("2")
        await until(client, {"put_a", "put_b"})
        answer = await client.ask(invoke("r", proven, {}))
        assert answer["type"] == "invoke_response", answer
        assert (tmp_path / "root/new").read_text() == "x"


async def test_policy_looks_at_the_newest_facts(tmp_path: Path) -> None:
    async with core(tmp_path) as opened, Client(opened, "websocket", None) as client:
        proven = (await tools(client))["put_a"]
        (tmp_path / "root/b").write_text("lock")
        await until(client, set())
        answer = await client.ask(invoke("r", proven, {}))
        assert answer["payload"]["code"] == "auth_insufficient"
        assert not (tmp_path / "root/new").exists()


async def test_whoever_changes_something_is_answered_by_it_next(tmp_path: Path) -> None:
    async with core(tmp_path) as opened, Client(opened, "websocket", None) as client:
        answer = await client.ask(invoke("r", (await tools(client))["put_a"], {}))
        assert answer["type"] == "invoke_response", answer
        assert set(await tools(client)) == {"put_a", "put_new"}


async def test_a_pass_that_fails_keeps_what_was_known_and_is_told(tmp_path: Path) -> None:
    async with core(tmp_path) as opened, Client(opened, "websocket", None) as client:
        (tmp_path / "root/b").write_text("broken")
        await stands(opened, "degraded")
        (how,) = opened.revisions.failures.values()
        assert how == "The facts of scan are not up to date; older facts are used"
        assert set(await tools(client)) == {"put_a"}
        (tmp_path / "root/b").write_text("repaired")
        await until(client, {"put_a", "put_b"})
        await stands(opened, "ready")


async def stands(opened: Core, status: str) -> None:
    while opened.revisions.status != status:
        await asyncio.sleep(0.02)


async def test_facts_that_the_rules_cannot_bear_are_left_out(tmp_path: Path) -> None:
    write(tmp_path / "pack", {"rules/more.mg": "pair(A, B) :- file(A, _), file(B, _).\n"})
    async with core(tmp_path, "[limits]\nmax_base_facts = 50\n") as opened, Client(opened, "websocket", None) as client:
        write(tmp_path / "root", {f"n{number}": "" for number in range(10)})
        while opened.revisions.status != "degraded":
            await asyncio.sleep(0.02)
        assert "put_a" in await tools(client)
        assert len(await tools(client)) < 11
        for number in range(9):
            (tmp_path / f"root/n{number}").unlink()
        await until(client, {"put_a", "put_n9"})
