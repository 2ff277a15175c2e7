"""The actions of a pack behind a dispatcher: those that were described, locked in as whoever runs them says."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from manglecp.pack import Pack, PackError, SandboxPolicy, read_pack
from manglecp.toolhost.action_hosts import serve_actions
from manglecp.toolhost.dispatch.dispatcher import Dispatcher
from manglecp.toolhost.dispatch.messages import ActionResult, DispatchError
from tests.toolhost.dispatch.hosts import error, nothing_left, pids_of
from tests.toolhost.rights import asking
from tests.toolhost.sandbox.confined import require

SOURCE = '''
import subprocess
from pathlib import Path

from manglecp import action


@action(effects=["none"])
def add(a: int, b: int) -> int:
    """The sum."""
    return a + b


@action(effects=["filesystem"], idempotent=True, timeout=30)
def write(path: str, text: str) -> str:
    """Write a file."""
    Path(path).write_text(text)
    return text


@action(effects=["process"], spawn=["true"])
def start() -> int:
    """Start a program."""
    return subprocess.run(["true"]).returncode
'''
ADD, WRITE, START = (f"AID.PACK.{name}.v1" for name in ("ADD", "WRITE", "START"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "pack"
    (folder / "rules").mkdir(parents=True)
    (folder / "rules/a.mg").write_text("p(1).")
    (folder / "actions.py").write_text(SOURCE)
    return folder


def serving(pack: Pack, work: Callable[[Dispatcher], Awaitable[None]], **options: Any) -> None:
    async def main() -> None:
        async with serve_actions(pack, size=1, **options) as dispatcher:
            await work(dispatcher)

    with nothing_left():
        asyncio.run(main())


def value(result: ActionResult | DispatchError) -> Any:
    assert isinstance(result, ActionResult), result
    return json.loads(result.output_json)


def test_actions_are_called_and_write_nowhere_but_in_the_workspace(folder: Path, tmp_path: Path) -> None:
    require("strict")
    workspace, heard = tmp_path / "workspace", []
    workspace.mkdir()

    async def work(dispatcher: Dispatcher) -> None:
        assert set(dispatcher.actions) == {ADD, WRITE, START}
        assert value(await dispatcher.call(ADD, inputs={"a": 1, "b": 2})) == 3
        inside = {"path": str(workspace / "file"), "text": "x"}
        assert error(await dispatcher.call(WRITE, inputs=inside)) == ("tool_error", "lease_refused")
        assert value(await dispatcher.call(WRITE, **asking(WRITE, inputs=inside))) == "x"
        outside = {"path": str(tmp_path / "outside"), "text": "x"}
        assert error(await dispatcher.call(WRITE, **asking(WRITE, inputs=outside))) == ("tool_error", None)
        assert error(await dispatcher.call(START, **asking(START))) == ("tool_error", None)

    serving(read_pack(folder), work, workspace=workspace, audit=lambda event, _: heard.append(event))
    assert (workspace / "file").read_text() == "x"
    assert not (tmp_path / "outside").exists()
    assert heard == ["lease_granted"] * 4


def test_programs_are_started_if_whoever_runs_the_pack_names_them(folder: Path) -> None:
    async def work(dispatcher: Dispatcher) -> None:
        assert value(await dispatcher.call(START, **asking(START))) == 0

    serving(
        read_pack(folder), work, programs=["true"], sandbox=SandboxPolicy(degrade=True)
    )  # root is not limited in processes
    with pytest.raises(PackError, match="names the program 'true', which is not installed"):
        serving(read_pack(folder), work, programs=["true"], environ={"PATH": "/nowhere"})


@pytest.mark.parametrize("allowed", [False, True])
def test_a_pack_opens_its_own_lock_only_where_that_is_allowed(allowed: bool, folder: Path, tmp_path: Path) -> None:
    require("strict")
    (folder / "pack.toml").write_text('[sandbox]\nprofile = "none"\n')
    inputs = {"path": str(tmp_path / "file"), "text": "x"}

    async def work(dispatcher: Dispatcher) -> None:
        result = await dispatcher.call(WRITE, **asking(WRITE, inputs=inputs))
        assert isinstance(result, ActionResult) == allowed

    serving(read_pack(folder), work, sandbox=SandboxPolicy(allow_weaker=allowed))
    assert (tmp_path / "file").exists() == allowed


async def nothing(_: Dispatcher) -> None:
    raise AssertionError("nothing should be served")


def test_another_file_than_was_described_is_not_served(folder: Path) -> None:
    pack = read_pack(folder)
    (folder / "actions.py").write_text(SOURCE + "\n# more\n")
    with pytest.raises(PackError, match="the file has changed"):
        serving(pack, nothing)
    (folder / "actions.py").unlink()
    with pytest.raises(PackError, match="the file has changed"):
        serving(pack, nothing)


def test_nor_is_a_pack_of_which_another_file_has_changed(folder: Path) -> None:
    (folder / "lookup.py").write_text("X = 1\n")
    pack = read_pack(folder)
    (folder / "lookup.py").write_text("X = 2\n")
    with pytest.raises(PackError, match="the pack has changed"):
        serving(pack, nothing)


@pytest.mark.parametrize(
    ("change", "about"),
    [
        ({"tier": 0}, r"AID\.PACK\.WRITE\.v1 lists tier 0, and its effects have tier 1"),
        ({"aid": "AID.BANK.PAY.v1"}, r"AID\.BANK\.PAY\.v1 is listed, and its actions begin with AID\.PACK\."),
    ],
)
def test_nor_are_actions_whose_forged_listing_claims_too_much(change: dict[str, Any], about: str, folder: Path) -> None:
    pack = read_pack(folder)
    actions = {**pack.actions, "write": replace(pack.actions["write"], **change)}
    with pytest.raises(PackError, match=about):
        serving(replace(pack, actions=actions), nothing)


def test_a_host_that_is_started_later_is_held_to_the_file(folder: Path) -> None:
    pack = read_pack(folder)

    async def work(dispatcher: Dispatcher) -> None:
        assert value(await dispatcher.call(ADD, inputs={"a": 1, "b": 2})) == 3
        (folder / "actions.py").write_text(SOURCE.replace("a + b", "a - b"))
        (pool,) = dispatcher._pools
        for pid in pids_of(pool):
            os.kill(pid, signal.SIGKILL)
        result = await dispatcher.call(ADD, inputs={"a": 1, "b": 2}, timeout=30)
        assert isinstance(result, dict), result

    serving(pack, work)


def test_a_pack_without_actions_needs_no_host(tmp_path: Path) -> None:
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules/a.mg").write_text("p(1).")

    async def work(dispatcher: Dispatcher) -> None:
        assert dispatcher.actions == {}
        assert error(await dispatcher.call(ADD)) == ("not_found", None)

    serving(read_pack(tmp_path), work)
