"""Standard streams: one message a line, nothing else, and an end that answers what is pending."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop

from manglecp.server.stdio import serve_stdio
from manglecp.server.streams import Streams
from tests.deadlines import patience
from tests.invoke.test_request_keys import Held
from tests.server.desk import PATIENCE, Desk, desk, encoded, intent, invoke, plain_pack
from tests.server.slow import slow_evaluations


class Ends:
    """What whoever started the server has in their hands."""

    def __init__(self, d: Desk, stdin: int, reader: asyncio.StreamReader, task: asyncio.Task[None]) -> None:
        self.desk = d
        self.stdin = stdin
        self.reader = reader
        self.task = task

    async def say(self, *messages: dict[str, Any] | bytes) -> None:
        lines = [one if isinstance(one, bytes) else encoded(one) + b"\n" for one in messages]
        await asyncio.to_thread(_write, self.stdin, b"".join(lines))

    async def hear(self) -> dict[str, Any]:
        async with asyncio.timeout(PATIENCE):
            line = await self.reader.readline()
        assert line.endswith(b"\n")
        told: dict[str, Any] = json.loads(line)
        return told

    def close(self) -> None:
        if self.stdin >= 0:
            os.close(self.stdin)
            self.stdin = -1

    async def rest(self) -> list[dict[str, Any]]:
        """Everything up to the end."""
        async with asyncio.timeout(PATIENCE):
            await self.task
            return [json.loads(line) for line in (await self.reader.read()).splitlines()]


def _write(descriptor: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]


@asynccontextmanager
async def ends(*, said: bytes | None = None, stop: asyncio.Event | None = None, **more: Any) -> AsyncIterator[Ends]:
    async with desk(**more) as d:
        source, stdin = os.pipe()
        stdout, sink = os.pipe()
        reader = asyncio.StreamReader(limit=1 << 26)
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(stdout, "rb")
        )

        async def serve() -> None:
            try:
                await serve_stdio(d.core, Streams(source, sink), sent_manifest=said, stop=stop)
            finally:
                os.close(sink)

        them = Ends(d, stdin, reader, asyncio.create_task(serve()))
        try:
            yield them
        finally:
            them.close()
            if "hold" in more:
                more["hold"].set()
            async with asyncio.timeout(PATIENCE):
                await asyncio.gather(them.task, return_exceptions=True)
            transport.close()


@pytest.mark.req("TRANS-23", "TRANS-25", "TRANS-31", "MANI-01")
async def test_the_manifest_is_the_first_line_before_anything_is_said() -> None:
    async with ends() as e:
        manifest = await e.hear()
        assert (manifest["type"], manifest["payload"]["status"]) == ("manifest", "ready")
        await e.say(intent("a"))
        told = await e.hear()
        assert (told["type"], told["id"]) == ("intent_response", "a")
        tools = {one["name"]: one["macro_id"] for one in told["payload"]["macro_tools"]}
        await e.say(invoke("b", tools["t"], {"n": 2}))
        while (told := await e.hear())["type"] == "progress":
            assert told["id"] == "b"
        assert told["payload"]["result"] == {"n": 2}


@pytest.mark.req("TRANS-28", "SEC-36", "SEC-18")
async def test_whoever_started_it_is_the_user_of_this_machine() -> None:
    async with ends() as e:
        await e.hear()
        await e.say(intent("a"))
        await e.hear()
        assert e.desk.handled[0].identity == "local"


async def test_a_manifest_that_was_written_already_is_not_written_again() -> None:
    hold = asyncio.Event()
    async with desk(boot=False, hold=hold) as d:
        said = d.core.manifest().data
        hold.set()
    hold = asyncio.Event()
    async with ends(said=said, boot=False, hold=hold) as e:
        await e.say(intent("a"))
        assert (await e.hear())["payload"]["code"] == "server_not_ready"
        hold.set()
        assert (await e.hear())["payload"]["status"] == "ready"
        await e.say(intent("b"))
        assert (await e.hear())["id"] == "b"


@pytest.mark.req("TRANS-26", "TRANS-27")
async def test_at_the_end_of_the_input_only_what_is_pending_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    with slow_evaluations(monkeypatch) as gate:
        async with ends() as e:
            await e.hear()
            await e.say(intent("a", "slow"), encoded(intent("b")))  # the last line has no end
            assert await asyncio.to_thread(gate.entered.acquire, timeout=PATIENCE)
            e.close()
            assert (await e.hear())["id"] == "b"
            e.desk.revisions.degrade("disk", "It is full")
            gate.open.set()
            assert [(one["type"], one["id"]) for one in await e.rest()] == [("intent_response", "a")]


@pytest.mark.req("TRANS-27")
async def test_whoever_goes_while_the_pack_is_loaded_is_told_nothing_more() -> None:
    hold = asyncio.Event()
    async with ends(boot=False, hold=hold) as e:
        assert (await e.hear())["payload"]["status"] == "booting"
        e.close()
        assert await e.rest() == [], "and nobody waits for the pack"
        hold.set()


@pytest.mark.req("TRANS-27", "MANI-29")
async def test_requests_are_refused_while_the_pack_is_loaded() -> None:
    hold = asyncio.Event()
    async with ends(boot=False, hold=hold) as e, asyncio.timeout(patience(10.0)):
        assert (await e.hear())["payload"]["status"] == "booting"
        await e.say(intent("a"), invoke("b", "m-1", {}))
        e.close()
        refused = [(one["id"], one["payload"]["code"], one["payload"]["retry_after_ms"]) for one in await e.rest()]
        assert refused == [("a", "server_not_ready", 1_000), ("b", "server_not_ready", 1_000)]
        hold.set()


@pytest.mark.req("TRANS-40")
@pytest.mark.parametrize("first_step", ["look", "write"])
async def test_a_client_that_closes_both_streams_cancels_a_run_without_effects(first_step: str) -> None:
    held = Held()
    pack = plain_pack(
        'macro("t", "Three."). mandatory("t") :- intent("go"). macro_step("t", 3, "write").'
        f'macro_step("t", 1, "{first_step}"). macro_step("t", 2, "look").'
    )
    looks = 0

    async def look(given: dict[str, Any]) -> dict[str, Any]:
        nonlocal looks
        looks += 1
        return await held(given) if first_step == "write" or looks == 2 else given

    async with ends(first=pack, work={"look": look}) as e, asyncio.timeout(PATIENCE):
        await e.hear()
        await e.say(intent("a"))
        [tool] = (await e.hear())["payload"]["macro_tools"]
        await e.say(invoke("b", tool["macro_id"], {"n": 1}))
        await held.begun.wait()
        e.reader._transport.close()  # type: ignore[attr-defined]  # the reader's end of the server's output
        e.close()
        await asyncio.sleep(0.3)  # the server polls the output
        held.go_on.set()
        while len(e.desk.handled) < 2:
            await asyncio.sleep(0.01)
        ran = [name for name, _ in e.desk.shop.bench.ran]
        if first_step == "look":
            assert (e.desk.handled[-1].code, ran) == ("cancelled", ["look", "look"])
        else:
            assert (e.desk.handled[-1].code, ran) == (None, ["write", "look", "write"])


@pytest.mark.req("MANI-31")
async def test_a_signal_drains_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    stop = asyncio.Event()
    with slow_evaluations(monkeypatch) as gate:
        async with ends(stop=stop) as e:
            await e.hear()
            await e.say(intent("a", "slow"))
            assert await asyncio.to_thread(gate.entered.acquire, timeout=PATIENCE)
            stop.set()
            assert (await e.hear())["payload"]["status"] == "draining"
            gate.open.set()
            assert [one["id"] for one in await e.rest()] == ["a"]


@pytest.mark.req("TRANS-23", "TRANS-33")
async def test_lines_in_any_pieces_and_nonsense_in_between() -> None:
    async with ends() as e:
        await e.hear()
        data = b"\n \r\n" + b"".join(encoded(intent(f"i-{n}")) + b"\r\n" for n in range(3)) + b"{]\n\xff\xfe\n[1]\n"
        for at in range(0, len(data), 7):
            await e.say(data[at : at + 7])
        told = [await e.hear() for _ in range(6)]
        assert {one["id"] for one in told if one["type"] == "intent_response"} == {"i-0", "i-1", "i-2"}
        assert [one["payload"]["code"] for one in told if one["type"] == "error"] == ["malformed_message"] * 3


async def test_a_line_that_is_too_long_is_refused_and_not_kept() -> None:
    async with ends() as e:
        await e.hear()
        limit = e.desk.core.pack_settings.limits.max_message_bytes
        for length, told in ((limit + 1, limit + 1), (6 * limit, 4 * limit)):
            await e.say(b"x" * length + b"\n")
            assert (await e.hear())["payload"]["details"] == {"limit": limit, "actual": told}
        await e.say(intent("a"))
        assert (await e.hear())["id"] == "a"


async def test_what_comes_faster_than_it_is_taken_waits() -> None:
    async with ends() as e:
        await e.hear()
        for name in ("a", "b"):
            await e.say(b"\n" * 4_000_000, intent(name))  # far more than is read ahead
            assert (await e.hear())["id"] == name


async def test_a_file_is_read_to_its_end(tmp_path: Path) -> None:
    said = tmp_path / "said"
    said.write_bytes(b"".join(encoded(intent(f"i-{n}")) + b"\n" for n in range(3)))
    with said.open("rb") as source, (tmp_path / "told").open("wb") as sink:
        async with desk() as d, asyncio.timeout(PATIENCE):
            await serve_stdio(d.core, Streams(source.fileno(), sink.fileno()))
    told = [json.loads(line) for line in (tmp_path / "told").read_bytes().splitlines()]
    assert [one["type"] for one in told] == ["manifest", *["intent_response"] * 3]
    assert {one.get("id") for one in told[1:]} == {"i-0", "i-1", "i-2"}


@pytest.mark.parametrize("kind", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_stream_is_left_as_it_is(kind: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """A terminal is input and output in one, and that of others as well: what is set for reading holds for all."""

    async def talk() -> None:
        ours, theirs = socket.socketpair()
        async with desk() as d:
            with ours, theirs, ours.makefile("rb") as said:
                serving = asyncio.create_task(serve_stdio(d.core, Streams(theirs.fileno(), theirs.fileno())))
                await asyncio.to_thread(ours.sendall, encoded(intent("a")) + b"\n")
                async with asyncio.timeout(PATIENCE):
                    while json.loads(await asyncio.to_thread(said.readline)).get("id") != "a":
                        continue
                    assert os.get_blocking(theirs.fileno())
                    ours.shutdown(socket.SHUT_WR)
                    await serving

    with asyncio.Runner(loop_factory=kind) as runner:
        runner.run(talk())


async def test_a_stream_that_others_set_never_to_block() -> None:
    source, stdin = os.pipe()
    stdout, sink = os.pipe()

    async def serve(d: Desk) -> None:
        try:
            await serve_stdio(d.core, Streams(source, sink))
        finally:
            os.close(sink)

    try:
        for one in (source, sink):
            os.set_blocking(one, False)
        async with desk() as d, asyncio.timeout(PATIENCE):
            serving = asyncio.create_task(serve(d))
            for number in range(200):
                await asyncio.to_thread(_write, stdin, encoded(intent(f"r{number}")) + b"\n")
            with open(stdout, "rb", closefd=False) as said:
                heard: set[str] = set()
                while len(heard) < 200:
                    heard |= {json.loads(await asyncio.to_thread(said.readline)).get("id")} - {None}
            os.close(stdin)
            await serving
        assert heard == {f"r{number}" for number in range(200)}
    finally:
        for one in (source, stdout):
            os.close(one)


async def test_a_client_that_reads_late_gets_everything() -> None:
    async with ends() as e:
        asked = [intent(f"i-{n}") for n in range(200)]
        writing = asyncio.create_task(e.say(*asked))
        await e.hear()
        assert {(await e.hear())["id"] for _ in range(200)} == {one["id"] for one in asked}
        await writing


async def test_a_client_that_is_gone_ends_it() -> None:
    async with ends() as e:
        await e.hear()
        e.reader._transport.close()  # type: ignore[attr-defined]
        await e.say(intent("a"))
        async with asyncio.timeout(PATIENCE):
            await e.task


@pytest.mark.req("TRANS-24")
def test_what_anything_else_prints_is_no_part_of_the_protocol() -> None:
    code = (
        "import os, sys; from manglecp.server.streams import Streams; streams = Streams.claim(); print('stray')\n"
        "os.system('echo child'); assert sys.stdin.read() == ''; streams.write(b'{}')"
    )
    done = subprocess.run([sys.executable, "-c", code], input=b"for the protocol", capture_output=True, check=True)
    assert done.stdout == b"{}\n"
    assert b"stray" in done.stderr
    assert b"child" in done.stderr
