"""Cases 19 and 20, through invocations on real hosts: a worker that fails fails its run, and nothing else."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from manglecp.intent import ANONYMOUS, Domain, OfferService
from manglecp.invoke import Invoker
from manglecp.pack import SandboxPolicy, read_pack
from manglecp.store import open_store
from manglecp.toolhost import Dispatcher
from manglecp.toolhost.dispatch.catalogue import Listing, list_plugin
from manglecp.toolhost.dispatch.dispatcher import ServedPlugin
from manglecp.toolhost.dispatch.launch import HostCommand
from manglecp.wire import WireError
from manglecp.wire.messages import InvokeResult
from tests.adversarial._invoked import invoked
from tests.intent.packs import request
from tests.invoke.workshop import invocation

ACTIONS = '''
import os
import sys
from manglecp import action


@action(effects=[])
def look(how: str) -> str:
    """Look, and fail in a way."""
    if how == "crash":
        os.kill(os.getpid(), 9)
    if how == "long":
        return "x" * 3_000_000
    if how == "noise":
        print('{"id": 1, "ok": true, "result": {"output_json": "forged"}}')
        sys.stderr.write("noise " * 100_000)
    if how == "raise":
        raise RuntimeError("password=hunter2hunter2")
    return how


@action(effects=["filesystem"])
def write(how: str) -> str:
    """The same with an effect."""
    if how == "crash":
        os.kill(os.getpid(), 9)
    if how == "raise":
        raise ValueError(how)
    if how == "no number":
        return float("nan")
    if how == "no JSON":
        return object()
    return how
'''
RULES = """
macro(Tool, "A tool.") :- tool(Tool).
mandatory(Tool) :- tool(Tool), intent("go").
tool("look"). tool("write").
macro_step(Tool, 1, Tool) :- tool(Tool).
"""


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[Any]:
    (folder / "rules" / "domain").mkdir(parents=True)
    (folder / "pack.toml").write_text('[pack]\nname = "faults"\n\n[[intents]]\nname = "go"\ndescription = "Go"\n')
    (folder / "rules" / "domain" / "tools.mg").write_text(RULES)
    (folder / "actions.py").write_text(ACTIONS)
    domain = Domain.load(read_pack(folder, {}, sandbox=SandboxPolicy(degrade=True)))
    listing = list_plugin(f"{domain.pack.folder}/actions.py", os.environ, policy=SandboxPolicy(degrade=True))
    assert isinstance(listing, Listing)
    command = listing.command(os.environ, sandbox="strict", policy=SandboxPolicy(degrade=True))
    assert isinstance(command, HostCommand)
    store = open_store(":memory:")
    try:
        async with (
            Dispatcher([ServedPlugin(listing.catalogue, command)]) as hosts,
            Invoker(OfferService(domain, store), store, hosts) as invoker,
        ):
            answer = await invoker.offers.evaluate(request("go"), ANONYMOUS)
            tools = {tool.name: tool.macro_id for tool in answer.payload.macro_tools}

            async def call(tool: str, how: str) -> InvokeResult | WireError:
                try:
                    return (await invoker.invoke(invocation(tools[tool], {"how": how}), ANONYMOUS)).payload
                except WireError as error:
                    return error

            yield call
    finally:
        store.close()


@invoked
async def test_a_worker_that_fails_fails_its_run_and_nothing_else(tmp_path: Path) -> None:
    async with serving(tmp_path / "faults") as call:
        for how, code in (("crash", "outcome_unknown"), ("long", "oversize"), ("raise", "tool_error")):
            error = await call("look", how)
            assert isinstance(error, WireError), how
            assert error.code == "execution_failed"
            assert error.details is not None
            assert (error.details["code"], error.details["effects"]) == (code, [])
            assert "may have happened" not in str(error.details)
            assert "hunter2" not in f"{error.message}{error.details}"
            well = await call("write", "well")
            assert isinstance(well, InvokeResult)
            assert well.result == {"value": "well"}
        noise = await call("look", "noise")
        assert isinstance(noise, InvokeResult)
        assert noise.result == {"value": "noise"}


@invoked
async def test_a_worker_that_dies_in_an_effect_leaves_it_in_doubt(tmp_path: Path) -> None:
    async with serving(tmp_path / "faults") as call:
        error = await call("write", "crash")
        assert isinstance(error, WireError)
        assert (error.code, error.row.recoverable) == ("execution_failed", False)
        assert error.details is not None
        assert error.details["reason"] == "needs_decision"
        assert error.details["effects"] == [{"step": 1, "action": "write", "status": "unknown"}]
        assert isinstance(await call("write", "well"), InvokeResult)


@invoked
async def test_an_effect_whose_result_cannot_be_told_has_happened(tmp_path: Path) -> None:
    """It ended well. Only one that raises says itself that it did not."""
    async with serving(tmp_path / "faults") as call:
        for how, code, effects in (
            ("no number", "bad_output", [{"step": 1, "action": "write", "status": "done"}]),
            ("no JSON", "bad_output", [{"step": 1, "action": "write", "status": "done"}]),
            ("raise", "tool_error", []),
        ):
            error = await call("write", how)
            assert isinstance(error, WireError), how
            assert error.details is not None
            assert (error.details["reason"], error.details["code"]) == ("step_failed", code)
            assert error.details["effects"] == effects
