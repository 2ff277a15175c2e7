"""Cases 9, 10 and 25 over real sockets: messages and schemas that are made to keep a server busy, and clients that go
in the middle of anything. Whatever comes, it is answered with a typed error, and everybody else is answered meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed

from manglecp.pack import Pack
from manglecp.pack.settings import PackLimits
from manglecp.server.config import ServerSettings
from tests.adversarial.reaching_out import asked
from tests.adversarial.test_09_parser_bombs import BOMBS, around
from tests.intent.packs import action, pack
from tests.server.desk import PATIENCE, encoded, intent, invoke, plain_pack
from tests.server.house import JSON, ClientConnection, House, house
from tests.server.lines import WAYS, Way, line

pytestmark = pytest.mark.no_cover

__all__ = ["asked"]  # a fixture

SETTINGS = ServerSettings(worker=False, peer_rate=None)
HEAD = b"POST /evaluate HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"


async def fine(h: House) -> None:
    answer = await h.http.post("/evaluate", content=encoded(intent("z")), headers=JSON)
    assert (answer.status_code, answer.json()["id"]) == (200, "z")


@asynccontextmanager
async def watched(h: House) -> AsyncIterator[None]:
    """Somebody else, who is answered all the time: the event loop never stands still for long."""
    longest = 0.0
    ended = False

    async def look() -> None:
        nonlocal longest
        loop = asyncio.get_running_loop()
        while not ended:
            began = loop.time()
            assert (await h.http.get("/health")).status_code == 200
            longest = max(longest, loop.time() - began)
            await asyncio.sleep(0.01)

    looking = asyncio.create_task(look())
    try:
        yield
    finally:
        ended = True
        await looking
    assert longest < PATIENCE / 4


async def frame(socket: ClientConnection) -> dict[str, Any]:
    async with asyncio.timeout(PATIENCE):
        told: dict[str, Any] = json.loads(await socket.recv())
        return told


# --- 9: messages -----------------------------------------------------------------------------------------------------


@pytest.mark.req("WIRE-10")
async def test_bombs_for_the_parser_one_after_the_other() -> None:
    """All of them on one connection, which lives."""
    async with house(settings=SETTINGS) as h, h.websocket() as socket, watched(h):
        await frame(socket)
        for name, bomb in BOMBS.items():
            answer = await h.http.post("/evaluate", content=bomb, headers=JSON)
            told = answer.json()
            assert (answer.status_code, told["payload"]["code"]) == (400, "malformed_message"), name
            assert len(answer.content) < 600
            with contextlib.suppress(UnicodeDecodeError):
                await socket.send(bomb.decode())
                assert (await frame(socket))["payload"]["code"] == "malformed_message", name
        await fine(h)


async def test_what_is_too_long_is_told_so_and_much_longer_is_cut_off() -> None:
    small = plain_pack()
    small = replace(small, settings=replace(small.settings, limits=PackLimits(max_message_bytes=65_536)))
    async with house(small, settings=SETTINGS) as h, h.websocket() as socket:
        await frame(socket)
        for length in (65_537, 200_000):
            answer = await h.http.post("/evaluate", content=b"[" * length, headers=JSON)
            assert (answer.status_code, answer.json()["payload"]["code"]) == (413, "message_too_large")
        chunk = b"4000\r\n" + b"[" * 16_384 + b"\r\n"
        for sent in (
            b"content-length: 10000000\r\n\r\n",  # not waited for
            b"transfer-encoding: chunked\r\n\r\n" + chunk * 17,  # nor is its end
        ):
            reader, writer = await h.raw(HEAD + sent)
            async with asyncio.timeout(PATIENCE):
                head, _, body = (await reader.read()).partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 413 ")
            assert json.loads(body)["payload"]["code"] == "message_too_large"
            writer.close()
        await socket.send("[" * 65_537)
        assert (await frame(socket))["payload"]["code"] == "message_too_large"
        async with asyncio.timeout(PATIENCE):
            with contextlib.suppress(ConnectionClosed):  # perhaps before all of it was sent
                await socket.send("[" * 10_000_000)
            await socket.wait_closed()
        assert socket.close_code == 1009
        await fine(h)


@pytest.mark.parametrize("way", WAYS)
async def test_numbers_beyond_what_others_keep_exact_come_back_as_they_were(way: Way) -> None:
    async with house(settings=SETTINGS) as h, line(h.url, way) as asking:
        tool = (await asking.tools())["t"]
        for number in (2**53 + 1, -(2**53) - 1, 2**63 - 1, 10**30):
            answer = await asking.ask(invoke("x", tool, {"n": number}))
            assert f'"n":{number}'.encode() in b"".join(asking.heard) or answer["type"] == "error"
            ran = [given["n"] for _, given in h.desk.shop.bench.ran]
            assert (number in ran) == (answer["type"] == "invoke_response")
            assert not [n for n in ran if n not in (2**53 + 1, -(2**53) - 1, 2**63 - 1, 10**30)], "never rounded"


# --- 10: schemas -----------------------------------------------------------------------------------------------------

TOOL = 'macro("t", "A tool."). mandatory("t") :- intent("go"). macro_step("t", 1, "look").'


def taking(schema: Any, **whole: Any) -> Pack:
    """A pack with a tool for whose argument the action, as somebody else describes it, has this schema."""
    look = action("look", params={"v": schema})
    look = replace(look, input_schema={**look.input_schema, **whole})
    return pack(TOOL, actions=(look,), intents=("go",))


async def test_an_edition_with_schemas_that_lead_elsewhere_is_never_served(asked: tuple[str, list[str]]) -> None:
    """Nothing is fetched, no file is read, and what was served before is served on."""
    address, notes = asked
    deep: Any = {"type": "string"}
    for _ in range(150):
        deep = {"items": deep}
    levels = {f"l{n}": {"oneOf": [{"$ref": f"#/$defs/l{n + 1}"}] * 2} for n in range(30)}
    bad = [
        taking({"$ref": f"{address}/schema.json"}),
        taking({"$ref": "file:///etc/hostname"}),
        taking({"$ref": "../../secret.json"}),
        taking({"$dynamicRef": f"{address}/schema.json"}),
        taking({"$id": f"{address}/schema.json", "$ref": "other.json"}),
        taking({"$ref": "#/$defs/a"}, **{"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}),
        taking({"$ref": "#/$defs/l0"}, **{"$defs": {**levels, "l30": {}}}),
        taking({"pattern": "(a{1000}){1000}"}),
        taking({"pattern": "("}),
        taking(deep),
    ]
    async with house(settings=SETTINGS) as h, watched(h):
        for one in bad:
            h.desk.packs.append(one)
            async with asyncio.timeout(PATIENCE):
                assert await h.desk.revisions.reload() == "broken", one.actions["look"].input_schema
            assert h.desk.revisions.status == "degraded"
            await fine(h)
        assert notes == []


MANY = {"type": "array", "items": {"anyOf": [{"type": "string", "pattern": f"^x{n}(a+)+$"} for n in range(40)]}}
KINDS = {"oneOf": [{"type": "object", "properties": {"k": {"const": n}}, "required": ["k"]} for n in range(40)]}
NESTED: Any = {"type": "string", "minLength": 1}
for _ in range(3):
    NESTED = {"oneOf": [{"type": "array", "items": NESTED} for _ in range(12)]}
EVIL = "a" * 50_000 + "!"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("schema", "value", "fits"),
    [
        pytest.param({"type": "string", "pattern": "^(a+)+$"}, EVIL, False, id="a pattern that backtracks"),
        pytest.param({"type": "string", "pattern": "^(a|a)*$"}, EVIL, False, id="another"),
        pytest.param({"type": "string", "pattern": "^(a+)+$"}, EVIL[:-1], True, id="what fits it"),
        pytest.param(MANY, ["aaa"] * 2_000, False, id="many that fit no alternative"),
        pytest.param(MANY, ["x39" + "a" * 30] * 100_000, False, id="too many to be looked at"),
        pytest.param({"type": "array", "items": KINDS}, [{"k": 99}] * 20_000, False, id="many of no kind"),
        pytest.param(NESTED, [[["a"] * 10] * 10] * 10, False, id="alternatives of alternatives"),
        pytest.param(
            {"type": "array", "items": {"type": "integer"}}, ["a"] * 300_000, False, id="many of a wrong type"
        ),
        pytest.param({"type": "array", "uniqueItems": True}, [[n] for n in range(20_000)], True, id="many different"),
    ],
)
async def test_what_a_schema_is_asked_about_is_answered_in_bounded_time(
    way: Way, schema: Any, value: Any, fits: bool
) -> None:
    async with house(taking(schema), settings=SETTINGS) as h, line(h.url, way) as asking, watched(h):
        tool = (await asking.tools())["t"]
        async with asyncio.timeout(PATIENCE / 4):
            answer = await asking.ask(invoke("x", tool, {"v": value}))
        if fits:
            assert answer["type"] == "invoke_response", answer
            return
        assert answer["payload"]["code"] == "schema_validation_failed"
        errors = answer["payload"]["details"]["schema_errors"]
        assert 1 <= len(errors) <= 50
        assert all(one["path"].startswith("/v") or not one["path"] for one in errors)
        assert len(json.dumps(answer)) < 20_000
        assert h.desk.shop.bench.ran == []


# --- 25: clients that go ---------------------------------------------------------------------------------------------


async def test_clients_that_go_in_the_middle_of_anything_take_nobody_along() -> None:
    """Fifty at once, each at another moment; a session that was there before is answered throughout."""
    begun, let_go = asyncio.Event(), asyncio.Event()

    async def look(given: dict[str, Any]) -> dict[str, Any]:
        begun.set()
        await let_go.wait()
        return given

    body = around(b"1")
    request = HEAD + b"content-length: %d\r\n\r\n" % len(body) + body
    upgrade = (
        b"GET /ws HTTP/1.1\r\nhost: localhost\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
        b"sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    )
    async with house(plain_pack(), {"look": look}, settings=SETTINGS) as h, line(h.url, "websocket") as other:
        tool = (await other.tools())["t"]
        called = encoded(invoke("x", tool, {"n": 1}))
        running = (
            request.replace(b"/evaluate", b"/invoke")
            .replace(body, called)
            .replace(b"%d" % len(body), b"%d" % len(called))
        )

        async def go(sent: bytes, at: int) -> None:
            _, writer = await h.raw(sent[: len(sent) * at // 10])
            if at == 10 and sent is running:
                async with asyncio.timeout(PATIENCE):
                    await begun.wait()
            writer.transport.abort()

        moments = [(sent, at) for sent in (request, upgrade, running) for at in range(11)]
        await asyncio.gather(*(go(*moment) for moment in moments), *(fine(h) for _ in range(10)))
        let_go.set()
        for n in range(5):
            answer = await other.ask(intent(f"i-{n}"))
            assert answer["type"] == "intent_response"
        async with asyncio.timeout(PATIENCE):
            while len(h.desk.core.sessions) > 1 or h.desk.core.pending:
                await asyncio.sleep(0.01)
        assert not [one for one in h.desk.handled if one.code == "internal_error"]


@pytest.mark.parametrize("way", WAYS)
async def test_whatever_a_message_holds_no_answer_is_an_accident(way: Way) -> None:
    """Each member of a good request, replaced by each of some odd values."""
    odd: list[Any] = [None, True, 0, -1, 2**70, 1.5, "", "\0", "a" * 5_000, [], [[]], {}, {"": {}}, ["x", {"y": []}]]
    good = [
        intent("g", facts=[{"pred": "p", "args": ["a"]}], options={"include_proof_hints": True}, eval_time="now"),
        invoke("g", "m-1", {"n": 1}, confirmation_token="v1.a.1.b"),
    ]

    def replaced(value: Any, new: Any) -> Iterator[Any]:
        yield new
        for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
            for other in replaced(value[key], new):
                copy = dict(value) if isinstance(value, dict) else list(value)
                copy[key] = other
                yield copy

    async with house(settings=SETTINGS) as h, line(h.url, way) as asking, h.websocket() as socket:
        await frame(socket)
        codes = set()
        for message in good:
            path = "/evaluate" if message["type"] == "intent_request" else "/invoke"
            for new in odd:
                for one in replaced(message["payload"], new):
                    content = encoded({**message, "payload": one})
                    if way == "http":
                        told = (await h.http.post(path, content=content, headers=JSON)).json()
                    else:
                        await socket.send(content.decode())
                        told = await frame(socket)
                    codes.add(told["payload"].get("code"))
        assert "internal_error" not in codes
        assert {"malformed_message", "macro_not_found"} <= codes
        assert await asking.tools()
        assert not [one for one in h.desk.handled if one.code == "internal_error"]
