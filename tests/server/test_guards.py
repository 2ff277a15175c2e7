"""Web pages of others: their names and origins are turned away before anything is looked at."""

from __future__ import annotations

import pytest
from websockets.exceptions import InvalidStatus

from manglecp.server.binding import is_loopback
from manglecp.server.middleware import Guards
from manglecp.wire import WireError
from tests.server.desk import Tokens, encoded, intent
from tests.server.house import JSON, house

MANIFEST = "/.well-known/manglecp/manifest.json"


async def test_a_name_that_was_pointed_here_is_misdirected() -> None:
    async with house() as h:
        for host in (
            "evil.example",
            f"evil.example:{h.port}",
            "127.0.0.1.evil.example",
            "localhost@evil.example",
            "::1",
            "",
        ):
            for path in (MANIFEST, "/health", "/nowhere"):
                answer = await h.http.get(path, headers={"host": host})
                assert (answer.status_code, answer.headers["content-type"]) == (421, "application/json")
            answer = await h.http.post("/evaluate", content=encoded(intent()), headers={**JSON, "host": host})
            assert (answer.status_code, answer.json()["payload"]["code"]) == (421, "x-misdirected_request")
        for host in ("localhost", f"LOCALHOST:{h.port}", "127.0.0.1:1", "[::1]:80"):
            assert (await h.http.get(MANIFEST, headers={"host": host})).status_code == 200
        assert not h.desk.handled


async def test_a_page_of_another_origin_may_not_ask() -> None:
    async with house() as h:
        for origin in (
            "https://evil.example",
            "null",
            "http://localhost:1",
            "http://127.0.0.1:1",
            f"http://127.0.0.1.evil.example:{h.port}",
            "",
        ):
            answer = await h.http.post("/evaluate", content=encoded(intent()), headers={**JSON, "origin": origin})
            assert (answer.status_code, answer.json()["payload"]["code"]) == (403, "x-origin_refused")
            assert "access-control-allow-origin" not in answer.headers
        own = {"origin": h.url}
        assert (await h.http.get(MANIFEST, headers=own)).status_code == 200
        assert not h.desk.handled


async def test_the_same_holds_for_websockets() -> None:
    async with house() as h:
        with pytest.raises(InvalidStatus) as refused:
            await h.websocket(origin="https://evil.example")
        assert refused.value.response.status_code == 403
        with pytest.raises(InvalidStatus) as refused:
            await h.websocket(additional_headers={"host": "evil.example"})
        # The HTTP parser refuses a second Host.
        assert refused.value.response.status_code == 400
        with pytest.raises(InvalidStatus) as refused:
            await h.websocket("/elsewhere")
        assert refused.value.response.status_code == 404


@pytest.mark.req("TRANS-21")
async def test_pages_of_an_origin_that_is_named_may_ask() -> None:
    page = "https://console.example"
    async with house(guards=Guards(origins=[page], auth_required=True), auth=Tokens({})) as h:
        asked = {
            "origin": page,
            "access-control-request-method": "POST",
            "access-control-request-headers": "authorization",
        }
        answer = await h.http.options("/evaluate", headers=asked)
        assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, page)
        assert "POST" in answer.headers["access-control-allow-methods"]
        assert "authorization" in answer.headers["access-control-allow-headers"].lower()
        refused = await h.http.post("/evaluate", content=encoded(intent()), headers={**JSON, "origin": page})
        assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (401, page)
        assert refused.headers["vary"] == "Origin"
        assert "access-control-allow-origin" not in (await h.http.get(MANIFEST)).headers


@pytest.mark.req("TRANS-22")
async def test_everybody_may_ask_only_where_nobody_needs_a_credential() -> None:
    async with house(guards=Guards(origins=["*"])) as h:
        answer = await h.http.get(MANIFEST, headers={"origin": "https://any.example"})
        assert answer.headers["access-control-allow-origin"] == "*"
    with pytest.raises(ValueError, match="named origins only"):
        Guards(origins=["*"], auth_required=True)


@pytest.mark.parametrize(
    ("bound", "hosts", "good", "bad"),
    [
        ("0.0.0.0", (), ["192.0.2.7:80", "localhost", "[2001:db8::1]"], ["tools.example", "evil.example:80"]),
        ("0.0.0.0", ("tools.example",), ["tools.example:443", "TOOLS.example"], ["evil.example", "xtools.example"]),
        ("192.0.2.7", (), ["192.0.2.7"], ["192.0.2.8", "localhost"]),
        ("::", ("*",), ["anything.example"], []),
        ("127.0.0.1", (), ["127.0.0.1"], ["192.0.2.7", "a b", "localhost:x", "localhost/x", "localhost, evil.example"]),
    ],
)
def test_names_a_server_answers_for(bound: str, hosts: tuple[str, ...], good: list[str], bad: list[str]) -> None:
    guards = Guards(bound, hosts=hosts)
    for host in good:
        guards.check(host.encode(), None)
    for host in bad:
        with pytest.raises(WireError) as refused:
            guards.check(host.encode(), None)
        assert refused.value.row.status == 421


def test_addresses_that_only_this_machine_reaches() -> None:
    assert all(map(is_loopback, ("localhost", "127.0.0.1", "127.9.9.9", "::1")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "192.0.2.1", "example.org", "")))
