"""Requests on one connection: whole or in pieces, one behind the other, and clients that go away."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Mapping
from typing import Any

import pytest

from manglecp.intent import Identity
from manglecp.server.config import Rate, ServerSettings
from manglecp.server.middleware import Guards
from tests.invoke.test_request_keys import Held
from tests.server.desk import PATIENCE, Tokens, encoded, intent, invoke, plain_pack
from tests.server.house import House, house

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TOOK = re.compile(rb'(?<=_ms":)[0-9.]+')
TWO = 'macro("t", "Two."). mandatory("t") :- intent("go"). macro_step("t", 1, "look"). macro_step("t", 2, "write").'


def head_of(path: str, length: int, **headers: str) -> bytes:
    given = {"host": "localhost", "content-type": "application/json", "content-length": str(length), **headers}
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in given.items())
    return f"POST {path} HTTP/1.1\r\n{lines}\r\n".encode()


def request(path: str, message: Mapping[str, Any] | bytes, **headers: str) -> bytes:
    body = message if isinstance(message, bytes) else encoded(message)
    return head_of(path, len(body), **headers) + body


async def answer(reader: asyncio.StreamReader) -> tuple[list[bytes], bytes]:
    """The status line, the headers and the body, but for what is another each time."""
    async with asyncio.timeout(PATIENCE):
        lines = (await reader.readuntil(b"\r\n\r\n")).strip().split(b"\r\n")
        [length] = [int(line.partition(b":")[2]) for line in lines if line.startswith(b"content-length:")]
        body = TOOK.sub(b"0", await reader.readexactly(length))
        kept = [line for line in lines[1:] if not line.startswith((b"date:", b"content-length:"))]
        return [lines[0], *sorted(kept)], body


def connections(h: House) -> set[Any]:
    return set(h.listener._server.server_state.connections)


async def tool(h: House, name: str) -> str:
    told = (await h.http.post("/evaluate", json=intent())).json()
    return str(next(one["macro_id"] for one in told["payload"]["macro_tools"] if one["name"] == name))


CASES: list[tuple[str, Any, dict[str, str], int]] = [
    ("/evaluate", intent("a"), {}, 200),
    ("/evaluate", intent("a"), {"traceparent": TRACE}, 200),
    ("/evaluate", intent("a"), {"origin": "http://localhost"}, 200),
    ("/evaluate", {}, {}, 400),
    ("/evaluate", b"{", {}, 400),
    ("/evaluate", b" " * 100_000 + encoded(intent("long")), {}, 200),
    ("/evaluate", intent("a"), {"authorization": "Bearer bad"}, 401),
    ("/evaluate", intent("a"), {"authorization": ""}, 401),
    ("/evaluate", intent("a"), {"host": "elsewhere"}, 421),
    ("/evaluate", intent("a"), {"origin": "http://elsewhere"}, 403),
    ("/elsewhere", intent("a"), {}, 404),
    ("/health", b"{}", {}, 405),
    ("/evaluate", intent("a"), {"content-type": "text/plain"}, 415),
    ("/evaluate", intent("a"), {"accept": "text/html"}, 406),
    ("/evaluate", intent("a"), {"connection": "close"}, 200),
    ("/invoke", intent("a"), {}, 400),
    ("/invoke", invoke("a", "m-none", {}), {}, 404),
]


async def test_whole_or_in_pieces() -> None:
    auth = Tokens({"good": Identity("ann", frozenset(), "user")})
    async with house(auth=auth) as h, asyncio.timeout(PATIENCE):
        for path, message, headers, status in CASES:
            sent = request(path, message, **{"authorization": "Bearer good", **headers})
            reader, writer = await h.raw(sent)
            whole = await answer(reader)
            writer.close()
            while connections(h):
                await asyncio.sleep(0)
            begun = sent.index(b"\r\n\r\n") + 5
            reader, writer = await h.raw(sent[:begun])
            while not any(one.cycle for one in connections(h)):
                await asyncio.sleep(0)
            if path != "/elsewhere" and status in (200, 400, 401, 404):  # the others are refused before
                writer.write(sent[begun:])
            in_pieces = await answer(reader)
            writer.close()
            while connections(h):
                await asyncio.sleep(0)
            assert in_pieces == whole
            assert whole[0][0].startswith(b"HTTP/1.1 %d " % status)


@pytest.mark.req("TRANS-40")
@pytest.mark.parametrize("key", [None, "k"])
async def test_whoever_goes_cancels_what_nobody_could_ask_for_again(key: str | None) -> None:
    held = Held()
    async with house(plain_pack(TWO), {"look": held}) as h, asyncio.timeout(PATIENCE):
        more = {} if key is None else {"x-request_key": key}
        message = invoke("a", await tool(h, "t"), {"n": 1}, **more)
        _, writer = await h.raw(request("/invoke", message))
        await held.begun.wait()
        writer.transport.abort()
        while any(not one.cycle.response_complete for one in connections(h)):
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.2)  # a disconnect is watched for once a request has taken a moment
        held.go_on.set()
        while len(h.desk.handled) < 2:
            await asyncio.sleep(0.001)
        assert h.desk.handled[-1].code == ("cancelled" if key is None else None)


@pytest.mark.req("TRANS-40")
@pytest.mark.parametrize("way", ["http", "websocket"])
@pytest.mark.parametrize(
    ("first_step", "code", "ran"), [("look", "cancelled", ["look"]), ("write", None, ["write", "look", "write"])]
)
async def test_a_lost_connection_cancels_a_run_before_its_first_effect(
    way: str, first_step: str, code: str | None, ran: list[str]
) -> None:
    """After it, the run finishes, and its result is stored under its run id."""
    held = Held()
    steps = f'macro_step("t", 1, "{first_step}"). macro_step("t", 2, "look"). macro_step("t", 3, "write").'
    rules = f'macro("t", "Three."). mandatory("t") :- intent("go"). {steps}'
    async with house(plain_pack(rules), {"look": held}) as h, asyncio.timeout(PATIENCE):
        message = invoke("a", await tool(h, "t"), {"n": 1})
        if way == "http":
            _, writer = await h.raw(request("/invoke", message))
            await held.begun.wait()
            writer.transport.abort()
        else:
            async with h.websocket() as socket:
                await socket.send(encoded(message).decode())
                await held.begun.wait()
                socket.transport.abort()
        await asyncio.sleep(0.2)  # until the server has noticed
        held.go_on.set()
        while len(h.desk.handled) < 2:
            await asyncio.sleep(0.001)
        assert h.desk.handled[-1].code == code
        assert [name for name, _ in h.desk.shop.bench.ran] == ran
        store = h.desk.shop.store
        with store.read_transaction() as tx:
            runs = store.runs.list(tx, None, 2)
            assert [run.state.value for run in runs] == ["cancelled" if code else "succeeded"]
            assert store.runs.answer(tx, runs[0].run_id) is not None


@pytest.mark.req("MANI-31")
async def test_a_server_that_goes_waits_for_it() -> None:
    held = Held()
    async with house(plain_pack(), {"look": held}) as h, asyncio.timeout(PATIENCE):
        reader, writer = await h.raw(request("/invoke", invoke("a", await tool(h, "t"), {"n": 1})))
        await held.begun.wait()
        ending = asyncio.create_task(h.listener.end(PATIENCE))
        while h.desk.revisions.status != "draining":
            await asyncio.sleep(0)
        for _ in range(100):
            await asyncio.sleep(0)
        assert not ending.done()
        held.go_on.set()
        assert json.loads((await answer(reader))[1])["type"] == "invoke_response"
        assert await ending
        assert await reader.read() == b""
        writer.close()


async def test_the_next_one_waits_for_it() -> None:
    held = Held()
    async with house(plain_pack(), {"look": held}) as h:
        first = request("/invoke", invoke("a", await tool(h, "t"), {"n": 1}))
        reader, writer = await h.raw(first + request("/evaluate", intent("b")) + request("/evaluate", intent("c")))
        async with asyncio.timeout(PATIENCE):
            await held.begun.wait()
        assert len(h.desk.handled) == 1  # the question for the tool
        held.go_on.set()
        assert [json.loads((await answer(reader))[1])["id"] for _ in range(3)] == ["a", "b", "c"]
        writer.close()


class _Slow(Tokens):
    """Says who somebody is when it is told to."""

    def __init__(self) -> None:
        super().__init__({"good": Identity("ann", trust="authenticated")})
        self.held = Held()
        self.held.go_on.set()

    async def identify(self, scheme: str, credential: str) -> Identity | None:
        await self.held({})
        return await super().identify(scheme, credential)


@pytest.mark.req("TRANS-40")
@pytest.mark.parametrize("key", [None, "k"])
async def test_whoever_goes_before_it_is_known_who_that_is(key: str | None) -> None:
    auth, good = _Slow(), {"authorization": "Bearer good"}
    async with house(plain_pack(), auth=auth) as h, asyncio.timeout(PATIENCE):
        h.http.headers.update(good)
        more = {} if key is None else {"x-request_key": key}
        message = invoke("a", await tool(h, "t"), {"n": 1}, **more)
        auth.held.begun.clear()
        auth.held.go_on.clear()
        _, writer = await h.raw(request("/invoke", message, **good))
        await auth.held.begun.wait()
        [ours] = [one for one in connections(h) if not one.cycle.response_complete]
        writer.transport.abort()
        while ours in connections(h):
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.1)  # a disconnect is watched for after a moment
        auth.held.go_on.set()
        while len(h.desk.handled) < 2:
            await asyncio.sleep(0.001)
        assert h.desk.handled[-1].code == ("cancelled" if key is None else None)


async def test_many_that_are_refused_at_once() -> None:
    many = 2_000
    async with house(settings=ServerSettings(worker=False, peer_rate=Rate(1e6, 1_000_000))) as h:
        reader, writer = await h.raw(request("/evaluate", b"[]") * many + request("/evaluate", intent("last")))
        for _ in range(many):
            assert (await answer(reader))[0][0] == b"HTTP/1.1 400 Bad Request"
        assert json.loads((await answer(reader))[1])["id"] == "last"
        writer.close()


async def test_an_error_of_the_server_is_told_and_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def check(*_: Any) -> None:
        raise RuntimeError("a secret of the server")

    async with house() as h:
        with monkeypatch.context() as patch, caplog.at_level(logging.ERROR, "uvicorn.error"):
            patch.setattr(Guards, "check", check)
            reader, writer = await h.raw(request("/evaluate", intent("a")))
            async with asyncio.timeout(PATIENCE):
                told = await reader.read()
            writer.close()
        assert told.startswith(b"HTTP/1.1 500 ")
        assert b"secret" not in told
        assert "a secret of the server" in caplog.text
        reader, writer = await h.raw(request("/evaluate", intent("b")))
        assert json.loads((await answer(reader))[1])["id"] == "b"
        writer.close()
