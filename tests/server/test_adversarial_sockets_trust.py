"""Cases 11 and 24 over real sockets: tokens that were made for others, and pages that come under another's name.

Whatever is refused is refused before anything is evaluated.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

import jwt
import pytest
from websockets.exceptions import InvalidStatus

from manglecp.server.config import ServerSettings
from tests.server.desk import PATIENCE, Tokens, authenticate, encoded, intent, invoke
from tests.server.house import JSON, House, house
from tests.server.slow import slow_evaluations
from tests.server.test_auth import (
    AUDIENCE,
    EC,
    STRANGER,
    _hs256_with_the_public_key,
    checker,
    claims,
    token,
)

SETTINGS = ServerSettings(worker=False, attempt_rate=None)
BAD: dict[str, Callable[[], str]] = {
    "for another audience": lambda: token(aud="https://other.example"),
    "for a longer audience": lambda: token(aud=f"{AUDIENCE}/more"),
    "for no audience": lambda: token(aud=None),
    "of another issuer": lambda: token(iss="https://evil.example"),
    "to refresh": lambda: token(typ="refresh+jwt"),
    "an ID token": lambda: token(typ="id+jwt"),
    "expired": lambda: token(exp=time.time() - 60),
    "never to expire": lambda: token(exp=None),
    "not yet": lambda: token(nbf=time.time() + 600),
    "unsigned": lambda: jwt.encode(claims(), "", "none"),
    "signed with what is public": _hs256_with_the_public_key,
    "by another algorithm": lambda: token(algorithm="PS256"),
    "by the algorithm of another key": lambda: token(EC, "ES256", "a"),
    "signed by a stranger": lambda: token(STRANGER),
    "with a key of its own": lambda: jwt.encode(
        claims(), STRANGER, "RS256", headers={"kid": "a", "jku": "https://evil.example/keys", "typ": "at+jwt"}
    ),
    "with a path for a key": lambda: token(kid="../../dev/null"),
    "changed": lambda: token()[:-6] + "AAAAAA",
    "two of them": lambda: f"{token()} {token()}",
    "nothing": lambda: "null",
}


@pytest.mark.req("SEC-09", "SEC-11", "SEC-15", "TRANS-17")
async def test_tokens_that_are_not_for_this_server_open_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a header, in the handshake of a session, and in a message."""
    with slow_evaluations(monkeypatch) as gate:
        gate.open.set()
        async with house(auth=checker(), settings=SETTINGS) as h:
            for name, bad in BAD.items():
                await _refused(h, bad(), name)
            assert gate.count == 0
            assert h.desk.shop.bench.ran == []
            assert {one.code for one in h.desk.handled} <= {"auth_invalid", "auth_required"}
            # The same questions with a good one are evaluated: it was the token.
            good = {**JSON, "authorization": f"Bearer {token()}"}
            answer = await h.http.post("/evaluate", content=encoded(intent("i", "slow")), headers=good)
            assert answer.status_code in (200, 400)
            assert gate.count == 1


async def _refused(h: House, bad: str, name: str) -> None:
    header = {"authorization": f"Bearer {bad}"}
    for path, message in (("/evaluate", intent("i", "slow")), ("/invoke", invoke("i", "m-1", {}))):
        answer = await h.http.post(path, content=encoded(message), headers={**JSON, **header})
        assert answer.status_code == 401, name
        assert answer.json()["payload"]["code"] in ("auth_invalid", "auth_required"), name
        assert "www-authenticate" in answer.headers
    async with asyncio.timeout(PATIENCE):
        async with h.websocket(additional_headers=header) as socket:
            await socket.recv()
            await socket.send(encoded(intent("a", "slow")).decode())
            assert json.loads(await socket.recv())["payload"]["code"] in ("auth_invalid", "auth_required"), name
        async with h.websocket() as socket:
            await socket.recv()
            for scheme in ("bearer", "oauth2", "api_key"):
                await socket.send(encoded(authenticate("b", bad, scheme)).decode())
                assert json.loads(await socket.recv())["payload"]["code"] in ("auth_invalid", "malformed_message"), name
            await socket.send(encoded(intent("c", "slow")).decode())
            assert json.loads(await socket.recv())["payload"]["code"] in ("auth_invalid", "auth_required"), name


async def test_a_token_is_passed_on_to_nobody(caplog: pytest.LogCaptureFixture) -> None:
    """Neither to actions nor to what is written down; and nobody is told of it."""
    caplog.set_level("DEBUG")
    good = token()
    secret = good.split(".")[2]
    async with house(auth=checker(), settings=SETTINGS) as h:
        headers = {**JSON, "authorization": f"Bearer {good}"}
        tools = (await h.http.post("/evaluate", content=encoded(intent("i")), headers=headers)).json()
        heard = [json.dumps(tools)]
        for tool in tools["payload"]["macro_tools"]:
            message = invoke("x", tool["macro_id"], {"n": 1})
            heard.append((await h.http.post("/invoke", content=encoded(message), headers=headers)).text)
        shop = h.desk.shop
        assert len(shop.bench.calls) == 3
        kept = [str(shop.bench.calls), str(shop.ledger()), str(h.desk.handled), caplog.text]
        assert not [one for one in (*heard, *kept) if secret in one]


# --- names and origins -----------------------------------------------------------------------------------------------

HOSTS = (
    "evil.example",
    "evil.example:80",
    "127.0.0.1.evil.example",
    "localhost.evil.example",
    "0.0.0.0",
    "[::]",
    "a b",
)
ORIGINS = (
    "https://evil.example",
    "http://localhost:1",
    "http://127.0.0.1:1",
    "http://127.0.0.1.evil.example",
    "null",
    "file://",
    "chrome-extension://abc",
)


@pytest.mark.parametrize("known", [False, True], ids=["open", "with credentials"])
async def test_pages_of_others_are_turned_away_before_anything(known: bool) -> None:
    """Also with a good credential, which a browser may add by itself."""
    auth: Any = checker() if known else Tokens({}, required=False)
    header = {"authorization": f"Bearer {token()}"} if known else {}
    async with house(auth=auth, settings=SETTINGS) as h:
        attempts = [({"host": host}, 421) for host in HOSTS] + [({"origin": origin}, 403) for origin in ORIGINS]
        for pretended, status in attempts:
            for path in ("/evaluate", "/invoke"):
                content = encoded(intent("i") if path == "/evaluate" else invoke("i", "m-1", {}))
                answer = await h.http.post(path, content=content, headers={**JSON, **header, **pretended})
                assert answer.status_code == status, pretended
            for path in ("/.well-known/manglecp/manifest.json", "/health", "/ready", "/metrics", "/skills/x"):
                answer = await h.http.get(path, headers={**header, **pretended})
                assert answer.status_code == status, pretended
                assert "access-control-allow-origin" not in answer.headers
            asked = {**pretended, "access-control-request-method": "POST"}
            assert (await h.http.options("/evaluate", headers=asked)).status_code == status
            assert await _handshake(h, {**header, **pretended}) == status, pretended
        assert h.desk.handled == []
        assert not h.desk.core.sessions


async def _handshake(h: House, headers: dict[str, str]) -> int:
    """What a handshake with exactly these headers is answered with."""
    lines = [f"{name}: {value}" for name, value in {"host": f"127.0.0.1:{h.port}", **headers}.items()]
    upgrade = (
        *("upgrade: websocket", "connection: upgrade", "sec-websocket-version: 13"),
        "sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==",
    )
    reader, writer = await h.raw("\r\n".join(("GET /ws HTTP/1.1", *lines, *upgrade, "", "")).encode())
    async with asyncio.timeout(PATIENCE):
        status = int((await reader.readline()).split()[1])
    writer.close()
    return status


async def test_a_handshake_with_two_names_is_none() -> None:
    async with house(settings=SETTINGS) as h:
        assert await _handshake(h, {}) == 101
        with pytest.raises(InvalidStatus) as refused:
            await h.websocket(additional_headers={"host": "evil.example"})
        assert refused.value.response.status_code == 400
        for first, second in (("127.0.0.1", "evil.example"), ("evil.example", "127.0.0.1")):
            request = f"GET /health HTTP/1.1\r\nhost: {first}\r\nhost: {second}\r\n\r\n"
            reader, writer = await h.raw(request.encode())
            async with asyncio.timeout(PATIENCE):
                assert int((await reader.readline()).split()[1]) in (400, 421)
            writer.close()
