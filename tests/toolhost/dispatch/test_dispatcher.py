"""The dispatcher: several plugins behind one door, and every refusal a value that cost no host anything."""

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from manglecp.toolhost.dispatch.breakers import Breakers
from manglecp.toolhost.dispatch.catalogue import Listing, list_plugin, read_catalogue
from manglecp.toolhost.dispatch.dispatcher import Dispatcher, ServedPlugin
from manglecp.toolhost.dispatch.launch import HostCommand
from manglecp.toolhost.dispatch.messages import ActionResult, DispatchError
from manglecp.toolhost.state import Artifact
from tests.toolhost.dispatch.hosts import QUICK, nothing_left
from tests.toolhost.rights import asking

WORDS = '''
import os
import time
from typing import Literal

from manglecp.toolhost.actions import action
from manglecp.toolhost.context import Context
from manglecp.toolhost.state import Artifact


@action(effects=["filesystem"])
def note(path: str, text: Literal["a", "b"]) -> str:
    """Append to a file."""
    with open(path, "a") as file:
        file.write(text)
    return text


@action(effects=["filesystem"])
def vanish(path: str) -> None:
    """Do something and never say so."""
    with open(path, "a") as file:
        file.write("x")
        file.flush()
        os._exit(9)


@action(effects=["none"])
def put(context: Context, text: str) -> int:
    """Write slot 0."""
    context.slots[0] = Artifact("text", "put", text, len(text))
    return os.getpid()


@action(effects=["none"], timeout=0.5)
def sleep(seconds: float) -> None:
    """Wait, but not for long."""
    time.sleep(seconds)


@action(effects=["none"], timeout=60)
def doze(seconds: float) -> None:
    """Wait."""
    time.sleep(seconds)
'''
NUMBERS = '''
import os

from manglecp.toolhost.actions import action
from manglecp.toolhost.context import Context
from manglecp.toolhost.state import Artifact


@action(effects=["none"])
def length(context: Context) -> int:
    """Measure slot 0 and put the result into slot 1."""
    size = len(context.slots[0].content_json) if 0 in context.slots else -1
    context.slots[1] = Artifact("number", "length", str(size), 1)
    return size
'''
NOTE, VANISH, PUT, SLEEP, DOZE = (f"AID.WORDS.{name}.v1" for name in ("NOTE", "VANISH", "PUT", "SLEEP", "DOZE"))
LENGTH = "AID.NUMBERS.LENGTH.v1"


async def served(folder: Path) -> list[ServedPlugin]:
    plugins = []
    for name, text in (("words", WORDS), ("numbers", NUMBERS)):
        plugin = folder / f"{name}.py"
        plugin.write_text(text)
        listing = list_plugin(str(plugin), os.environ, sandbox="none")
        assert isinstance(listing, Listing), listing
        command = listing.command(os.environ, sandbox="none")
        assert isinstance(command, HostCommand)
        plugins.append(ServedPlugin(listing.catalogue, command))
    return plugins


def dispatching(work: Callable[[Dispatcher], Awaitable[None]], folder: Path, **options: Any) -> None:
    async def main() -> None:
        plugins = await served(folder)
        async with Dispatcher(plugins, size=1, timeout=20, limits=QUICK, **options) as dispatcher:
            await work(dispatcher)

    with nothing_left():
        asyncio.run(main())


def refused(result: ActionResult | DispatchError) -> tuple[str, str | None, str | None]:
    """Type, code and status of a structured error."""
    assert isinstance(result, dict), result
    assert result["error"] is True
    assert result["aid"]
    assert result["detail"]
    return result["type"], result.get("code"), result.get("status")


@pytest.mark.req("IPC-18", "IPC-21", "IPC-27", "IPC-33")
def test_what_cannot_be_called_is_refused_by_dispatch_or_by_the_host(tmp_path: Path) -> None:
    file = tmp_path / "notes"
    granted: list[object] = []

    async def work(dispatcher: Dispatcher) -> None:
        invalid = ("tool_error", None, "INVALID_PICK")
        assert refused(await dispatcher.call("AID.WORDS.NONE.v1")) == ("not_found", None, "INVALID_PICK")
        assert refused(await dispatcher.call(NOTE, input_json="[1]")) == invalid
        assert refused(await dispatcher.call(NOTE, input_json="{")) == invalid
        assert refused(await dispatcher.call(NOTE, inputs={}, input_json="{}")) == ("exception", None, None)
        assert not granted
        for misfit in ({"path": str(file), "text": "c"}, {"path": str(file)}):  # the host converts, and refuses
            assert refused(await dispatcher.call(NOTE, **asking(NOTE, inputs=misfit))) == invalid
        answer = await dispatcher.call(NOTE, **asking(NOTE, inputs={"path": str(file), "text": "a"}))
        assert isinstance(answer, ActionResult)
        answer = await dispatcher.call(NOTE, **asking(NOTE, input_json=json.dumps({"path": str(file), "text": "b"})))
        assert isinstance(answer, ActionResult)

    dispatching(work, tmp_path, audit=lambda event, details: granted.append((event, details["aid"])))
    assert file.read_text() == "ab"
    assert granted == [("lease_granted", NOTE)] * 4


@pytest.mark.req("IPC-21")
def test_an_open_breaker_bars_one_action_of_one_plugin_and_no_host_is_called(tmp_path: Path) -> None:
    file = tmp_path / "effects"

    async def work(dispatcher: Dispatcher) -> None:
        inputs = {"path": str(file)}
        for _ in range(2):
            lost = await dispatcher.call(VANISH, **asking(VANISH, inputs=inputs))
            assert refused(lost) == ("crash", "outcome_unknown", None)
        barred = ("tool_error", "breaker_open", "BREAKER_TRIP")
        assert refused(await dispatcher.call(VANISH, **asking(VANISH, inputs=inputs))) == barred
        assert isinstance(await dispatcher.call(LENGTH), ActionResult)
        assert isinstance(await dispatcher.call(PUT, inputs={"text": "a"}), ActionResult)

    dispatching(work, tmp_path, breakers=Breakers(lambda: 0.0, threshold=2))
    assert file.read_text() == "xx"


@pytest.mark.req("IPC-13")
def test_a_call_has_the_slots_that_it_brings_and_no_others(tmp_path: Path) -> None:
    async def work(dispatcher: Dispatcher) -> None:
        put = await dispatcher.call(PUT, identity="ann", inputs={"text": "four"})
        assert isinstance(put, ActionResult)
        length = await dispatcher.call(LENGTH, identity="ann", slots=put.slots)
        assert isinstance(length, ActionResult)
        assert length.output_json == "4"
        assert {slot: each.content_json for slot, each in length.slots.items()} == {0: "four", 1: "4"}
        nothing = await dispatcher.call(LENGTH)
        assert isinstance(nothing, ActionResult)
        assert nothing.output_json == "-1"
        given = await dispatcher.call(LENGTH, slots={0: Artifact("t", "p", "ab", 2)})
        assert isinstance(given, ActionResult)
        assert given.output_json == "2"

    dispatching(work, tmp_path)


@pytest.mark.req("IPC-14", "IPC-23")
def test_a_key_is_good_within_one_identity(tmp_path: Path) -> None:
    file = tmp_path / "notes"

    async def work(dispatcher: Dispatcher) -> None:
        hits = []
        for identity in ("ann", "ann", "bob", "bob", ""):
            asked = asking(NOTE, inputs={"path": str(file), "text": "a"}, idempotency_key="k")
            answer = await dispatcher.call(NOTE, identity=identity, **asked)
            assert isinstance(answer, ActionResult)
            hits.append(answer.idempotent_hit)
        assert hits == [False, True, False, True, False]

    dispatching(work, tmp_path)
    assert file.read_text() == "aaa"


@pytest.mark.req("IPC-28")
def test_a_caller_may_shorten_the_time_of_an_action_and_give_a_call_up(tmp_path: Path) -> None:
    async def work(dispatcher: Dispatcher) -> None:
        for aid, timeout in ((SLEEP, 60), (DOZE, 0.5)):
            assert isinstance(await dispatcher.call(PUT, inputs={"text": "a host is up"}), ActionResult)
            result = await dispatcher.call(aid, inputs={"seconds": 15}, timeout=timeout)
            assert refused(result) == ("timeout", "outcome_unknown", None)
        task = asyncio.create_task(dispatcher.call(PUT, inputs={"text": "a"}, call_id="mine"))
        await asyncio.sleep(0)
        assert dispatcher.cancel("mine")
        assert refused(await task)[1] in ("cancelled", "outcome_unknown")
        assert not dispatcher.cancel("mine")

    dispatching(work, tmp_path)


def test_two_plugins_with_one_action_are_refused() -> None:
    listing = json.dumps({"ok": True, "tools": [{"aid": "AID.X.v1"}]}).encode()
    plugin = ServedPlugin(read_catalogue(listing), HostCommand(argv=("host",), environ={}))
    with pytest.raises(ValueError, match=r"AID\.X\.v1 is offered by two plugins"):
        Dispatcher([plugin, plugin])
    assert list(Dispatcher([plugin]).actions) == ["AID.X.v1"]


def test_before_and_after_there_are_no_calls(tmp_path: Path) -> None:
    async def work() -> None:
        dispatcher = Dispatcher(await served(tmp_path), size=1, limits=QUICK)
        assert refused(await dispatcher.call(LENGTH)) == ("exception", None, None)
        async with dispatcher:
            assert isinstance(await dispatcher.call(LENGTH), ActionResult)
        assert refused(await dispatcher.call(LENGTH)) == ("exception", None, None)

    with nothing_left():
        asyncio.run(work())
