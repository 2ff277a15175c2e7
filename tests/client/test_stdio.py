"""Standard streams: a real subprocess, its manifest line, its stderr, its end."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from manglecp.client.client import Client
from manglecp.client.connection import RetryPolicy
from manglecp.client.errors import ConnectionLost, InvalidResponse, RequestRefused
from manglecp.client.transports.stdio import StdioTransport
from manglecp.wire.messages import ProgressPayload
from tests.client.scripted import PATIENCE

SERVER = Path(__file__).with_name("stdio_server.py")


def command(what: str) -> list[str]:
    return [sys.executable, "-I", str(SERVER), what]


def gone(pid: str) -> bool:
    return not Path(f"/proc/{pid}").exists()


@pytest.mark.req("TRANS-23", "TRANS-25", "TRANS-31", "SEC-36")
async def test_the_whole_way() -> None:
    told: list[ProgressPayload] = []
    async with Client([Path(sys.executable), *command("serve")[1:]], env={"MARK": "here"}) as client:
        pid = client.manifest.server_version
        found = await asyncio.gather(*(client.evaluate("go", {"n": n}) for n in range(20)))
        assert len(found) == 20
        outcome = await client.invoke("t", {"text": "one\ntwo"}, on_progress=told.append)
        assert outcome.result == {"env": "here"}
        assert not gone(pid)
    assert [one.status for one in told] == ["started"]
    assert gone(pid)


@pytest.mark.req("TRANS-24")
async def test_stderr_is_kept_apart_and_bounded() -> None:
    heard: list[bytes] = []
    transport = StdioTransport(command("serve"), on_stderr=heard.append)
    async with Client(transport) as client:
        await client.evaluate("go")
    assert transport.stderr.endswith("the end\n")
    assert len(transport.stderr) == 65_536
    assert sum(map(len, heard)) == 500_008


@pytest.mark.req("TRANS-26")
async def test_the_server_ends_by_itself_when_its_input_does(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    async with Client(command("last words"), env={"MARK": str(mark)}):
        assert not mark.exists()
    assert mark.read_text() == "ended by itself"


@pytest.mark.parametrize("what", ["stubborn", "talkative"])
async def test_a_server_that_does_not_end_is_ended(what: str) -> None:
    seconds = 0.5 if what == "stubborn" else PATIENCE
    async with Client(command(what), close_seconds=seconds) as client:
        pid = client.manifest.server_version
    assert gone(pid)


async def test_a_server_is_asked_to_go_before_it_is_killed(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    async with Client(command("asked to go"), env={"MARK": str(mark)}, close_seconds=3.0):
        pass
    assert mark.read_text() == "went"


async def test_a_server_that_fails_to_start_says_why() -> None:
    transport = StdioTransport(command("die"))
    with pytest.raises(ConnectionLost):
        await asyncio.wait_for(Client(transport).connect(), PATIENCE)
    assert transport.stderr == "no such pack\n"
    with pytest.raises(RequestRefused, match="cannot be started"):
        await Client(["/no/such/program"]).connect()
    with pytest.raises(RequestRefused, match="the command is empty"):
        Client([])


@pytest.mark.req("TRANS-24")
@pytest.mark.parametrize("what", ["noise", "long"])
async def test_what_is_no_message_ends_it(what: str) -> None:
    with pytest.raises(InvalidResponse):
        await asyncio.wait_for(Client(command(what), max_response_bytes=100_000).connect(), PATIENCE)


@pytest.mark.req("TRANS-07", "TRANS-08")
async def test_a_server_that_died_is_started_anew() -> None:
    retry_policy = RetryPolicy(max_retries=1, first_delay_ms=1)
    async with Client(command("crash"), retry_policy=retry_policy) as client:
        first = client.manifest.server_version
        await client.evaluate("go")
        with pytest.raises(ConnectionLost):
            await client.invoke("t")
        second = client.manifest.server_version
        await client.evaluate("go")
    assert first != second
    assert gone(second)


async def test_a_task_that_is_cancelled_while_it_connects_leaves_no_process() -> None:
    ids: list[int] = []
    transport: Any = StdioTransport([sys.executable, "-c", "import time; time.sleep(600)"], close_seconds=0.2)
    connecting = asyncio.create_task(Client(transport).connect())
    async with asyncio.timeout(PATIENCE):
        while transport.process is None:
            await asyncio.sleep(0.01)
    ids.append(transport.process.pid)
    connecting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await connecting
    assert gone(str(ids[0]))
