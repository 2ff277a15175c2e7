"""A plugin in a host of its own, and runs through it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from manglecp.runner import (
    ControlMode,
    ExternalPolicy,
    Menu,
    PluginExecutor,
    PolicyLimits,
    ReplayResult,
    RunHeader,
    RunLog,
    RunRequest,
    RunResult,
    Selector,
    read_actions,
    replay,
    run,
    verify,
)
from manglecp.toolhost.dispatch.breakers import Breakers
from manglecp.toolhost.dispatch.catalogue import read_catalogue
from manglecp.toolhost.dispatch.dispatcher import Dispatcher, ServedPlugin
from manglecp.toolhost.dispatch.launch import HostCommand
from tests.toolhost.dispatch.hosts import QUICK, nothing_left
from tests.toolhost.rights import right_for

PLUGIN = '''
import os

from manglecp import Context, action
from manglecp.toolhost.state import Artifact


@action(effects=["none"])
def count(context: Context, by: int = 1) -> int:
    """Add to the number in slot 0."""
    number = by + (int(context.slots[0].content_json) if 0 in context.slots else 0)
    context.slots[0] = Artifact("number", "count", str(number), 1)
    return number


@action(effects=["filesystem"])
def note(path: str, text: str) -> str:
    """Append to a file."""
    with open(path, "a") as file:
        file.write(text)
    return text


@action(effects=["none"])
def spoil(context: Context) -> None:
    """Write a slot, remove another one, and fail."""
    context.slots[5] = Artifact("spoiled")
    context.slots.pop(0, None)
    raise ValueError("on purpose")


@action(effects=["none"])
def vanish() -> None:
    """Never answer."""
    os._exit(9)
'''
COUNT, NOTE, SPOIL, VANISH = (f"<PICK><SID{number:04}><END>" for number in range(1, 5))
NOOP = "<NOOP><END>"


class Workshop:
    """The plugin in one host, and runs through it. ``count`` and ``vanish`` are said to be deterministic."""

    def __init__(self, dispatcher: Dispatcher, listing: bytes, folder: Path) -> None:
        self.dispatcher = dispatcher
        self.folder = folder
        self.execute = PluginExecutor(dispatcher, "kim", right_for)
        again = ("AID.PLUGIN.COUNT.v1", "AID.PLUGIN.VANISH.v1")
        self.menu = Menu.of(replace(offer, deterministic=offer.aid in again) for offer in read_actions(listing))
        self.log = folder / "run.jsonl"

    async def run(
        self,
        selector: Selector,
        *,
        mode: ControlMode = ControlMode.FALLBACK_ONLY,
        goal: str | None = None,
        **inputs: Any,
    ) -> RunResult:
        self.log.unlink(missing_ok=True)
        with RunLog.create(self.log, RunHeader.new("req-1"), key=b"k" * 32) as log:
            return await run(
                RunRequest("goal.test.v1", inputs, control_mode=mode, request_id="req-1"),
                {},
                log,
                menu=lambda _: self.menu,
                execute=self.execute,
                selector=selector,
                goal_done=lambda slots: goal is not None and 0 in slots and slots[0].content_json == goal,
            )

    async def again(self) -> ReplayResult:
        return await replay(self.log, key=b"k" * 32)

    def told(self, event: str) -> list[Any]:
        return [record.payload for record in verify(self.log).records if record.event == event]

    def policy(self, code: str, *, seconds: float = 60.0) -> ExternalPolicy:
        """One that leaves a mark whenever it is started."""
        marked = f"with open({str(self.folder / 'started')!r}, 'a') as mark: mark.write('x')\n{code}"
        limits = PolicyLimits(seconds=seconds, output_bytes=4096)
        return ExternalPolicy([sys.executable, "-I", "-S", "-c", marked], {sys.executable}, limits=limits)

    @property
    def policy_starts(self) -> int:
        return len((self.folder / "started").read_text())


Audited = list[tuple[str, object]]


def work_in(folder: Path, task: Callable[[Workshop], Awaitable[None]]) -> Audited:
    """Do something in a workshop and leave nothing behind; the audit events of that, and the action of each."""
    plugin = folder / "plugin.py"
    plugin.write_text(PLUGIN)
    argv = [sys.executable, "-I", "-m", "manglecp.toolhost.host", "--list", str(plugin)]
    listing = subprocess.run(argv, capture_output=True, check=True).stdout
    served = ServedPlugin(read_catalogue(listing), HostCommand.for_plugin(str(plugin), os.environ, sandbox="none"))
    audited: Audited = []

    async def main() -> None:
        async with Dispatcher(
            [served],
            size=1,
            timeout=60,
            limits=QUICK,
            breakers=Breakers(asyncio.get_running_loop().time, threshold=1, cooldown=600),
            audit=lambda event, details: audited.append((event, details["aid"])),
        ) as dispatcher:
            await task(Workshop(dispatcher, listing, folder))

    with nothing_left():
        asyncio.run(main())
    return audited
