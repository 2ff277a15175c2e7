"""Dispatch and our own host, together: both sides of the contract are meant for each other."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from manglecp.toolhost.dispatch.catalogue import Catalogue, read_catalogue
from manglecp.toolhost.dispatch.dispatcher import prepare_call
from manglecp.toolhost.dispatch.launch import HostCommand
from manglecp.toolhost.dispatch.messages import ActionResult, DispatchError, HostCall
from manglecp.toolhost.dispatch.pool import Pool
from tests.toolhost.dispatch.hosts import QUICK, error, nothing_left
from tests.toolhost.rights import authorised

PLUGIN = '''
import os

from manglecp.toolhost.actions import action


@action(effects=["none"])
def add(a: int, b: int) -> int:
    """Add two numbers."""
    print("tools may print")
    return a + b


@action(effects=["filesystem"])
def note(path: str, text: str, *, fail: bool = False) -> str:
    """Append to a file."""
    with open(path, "a") as file:
        file.write(text)
    if fail:
        raise ValueError("on purpose")
    return text


@action(effects=["filesystem"])
def vanish(path: str) -> None:
    """Do something and never say so."""
    with open(path, "a") as file:
        file.write("x")
        file.flush()
        os._exit(9)
'''


class Plugin:
    """The plugin in a pool, called through its own listing."""

    def __init__(self, pool: Pool, catalogue: Catalogue) -> None:
        self.pool = pool
        self.catalogue = catalogue

    async def call(self, name: str, **inputs: Any) -> ActionResult | DispatchError:
        prepared = prepare_call(self.catalogue, f"AID.PLUGIN.{name.upper()}.v1", inputs=inputs)
        return await self.pool.call(authorised(prepared)) if isinstance(prepared, HostCall) else prepared


def serve(
    work: Callable[[Plugin], Awaitable[None]], folder: Path, audit: Callable[[str, Mapping[str, object]], None]
) -> None:
    plugin = folder / "plugin.py"
    plugin.write_text(PLUGIN)
    argv = [sys.executable, "-I", "-m", "manglecp.toolhost.host", "--list", str(plugin)]
    catalogue = read_catalogue(subprocess.run(argv, capture_output=True, check=True).stdout)

    async def main() -> None:
        command = HostCommand.for_plugin(str(plugin), os.environ, sandbox="none")
        async with Pool(command, size=1, timeout=20, limits=QUICK, audit=audit) as pool:
            await work(Plugin(pool, catalogue))

    with nothing_left():
        asyncio.run(main())


def test_actions_are_called_under_leases_that_the_host_accepts(tmp_path: Path) -> None:
    audited: list[tuple[str, object]] = []
    file = tmp_path / "notes"

    async def work(plugin: Plugin) -> None:
        answer = await plugin.call("add", a=1, b=2)
        assert isinstance(answer, ActionResult)
        assert json.loads(answer.output_json) == 3
        for text in "abc":
            assert isinstance(await plugin.call("note", path=str(file), text=text), ActionResult)

    serve(work, tmp_path, lambda event, details: audited.append((event, details["tier"])))
    assert file.read_text() == "abc"
    assert audited == [("lease_granted", 0), *[("lease_granted", 1)] * 3]


def test_no_call_without_an_auditor_who_has_heard_of_it(tmp_path: Path) -> None:
    file = tmp_path / "notes"

    def audit(_event: str, _details: Mapping[str, object]) -> None:
        raise OSError("the disk is full")

    async def work(plugin: Plugin) -> None:
        result = await plugin.call("note", path=str(file), text="x")
        assert error(result) == ("exception", None)
        assert "the disk is full" in str(result)

    serve(work, tmp_path, audit)
    assert not file.exists()


@pytest.mark.req("IPC-24", "IPC-33")
def test_failures_of_every_kind_come_back_as_values(tmp_path: Path) -> None:
    file = tmp_path / "notes"

    async def work(plugin: Plugin) -> None:
        assert error(await plugin.call("add", a=1)) == ("tool_error", None)
        assert error(await plugin.call("missing")) == ("not_found", None)
        assert error(await plugin.pool.call(HostCall(aid="AID.PLUGIN.MISSING.v1", tier=0))) == ("not_found", None)
        failed = await plugin.call("note", path=str(file), text="x", fail=True)
        assert error(failed) == ("tool_error", None)
        assert isinstance(failed, dict)
        assert "on purpose" in failed["detail"]
        # Whoever claims a lower tier than the action has gets a lease that is not enough.
        sneaky = HostCall(aid="AID.PLUGIN.NOTE.v1", input_json=json.dumps({"path": str(file), "text": "y"}), tier=0)
        refused = await plugin.pool.call(sneaky)
        assert isinstance(refused, dict)
        assert refused["detail"] == "lease_rejected: tier_insufficient"
        assert error(await plugin.call("vanish", path=str(file))) == ("crash", "outcome_unknown")
        assert isinstance(await plugin.call("add", a=1, b=2), ActionResult)

    serve(work, tmp_path, lambda *_: None)
    assert file.read_text() == "xx"
