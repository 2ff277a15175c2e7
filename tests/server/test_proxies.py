"""Behind a proxy: its word for where a request came from is taken, and nobody else's."""

from __future__ import annotations

import ipaddress
from typing import Any

import pytest
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from manglecp.server.app import proxy_addresses
from manglecp.server.config import Rate, ServerSettings, parse_network
from tests.server.desk import encoded, intent
from tests.server.house import JSON, house

NETWORKS = tuple(parse_network(one) for one in ("10.0.0.0/8", "192.0.2.7", "fd00::/8"))


async def seen(
    client: str | None, *forwarded: str, proto: str | None = None, scheme: str = "http"
) -> tuple[str | None, str]:
    headers = [(b"x-forwarded-for", one.encode("latin-1")) for one in forwarded]
    if proto is not None:
        headers.append((b"x-forwarded-proto", proto.encode()))
    scope: dict[str, Any] = {"type": "http", "headers": headers, "scheme": scheme}
    scope["client"] = None if client is None else (client, 40_000)

    async def app(*_: Any) -> None:
        """Does nothing: the middleware has changed the scope."""

    middleware: Any = ProxyHeadersMiddleware(app, proxy_addresses(NETWORKS))
    await middleware(scope, None, None)
    return (scope["client"][0] if scope["client"] else None), scope["scheme"]


@pytest.mark.parametrize(
    ("client", "forwarded", "who"),
    [
        # Nobody who is not named is believed, whatever they write.
        ("203.0.113.5", ["198.51.100.1"], "203.0.113.5"),
        ("203.0.113.5", ["10.0.0.1"], "203.0.113.5"),
        ("::1", ["198.51.100.1"], "::1"),
        (None, ["198.51.100.1"], None),
        # One proxy, and several.
        ("10.1.2.3", ["198.51.100.1"], "198.51.100.1"),
        ("10.1.2.3", ["198.51.100.1, 192.0.2.7"], "198.51.100.1"),
        ("10.1.2.3", ["198.51.100.1", "192.0.2.7"], "198.51.100.1"),
        # What the client made up stands left of what it is.
        ("10.1.2.3", ["10.9.9.9, 127.0.0.1, 198.51.100.1"], "198.51.100.1"),
        ("10.1.2.3", ["127.0.0.1", "198.51.100.1, 10.0.0.2"], "198.51.100.1"),
        # A neighbour of a proxy is no proxy.
        ("10.1.2.3", ["198.51.100.1, 192.0.2.8"], "192.0.2.8"),
        # Nothing: then it is the proxy. What is no address is taken as it stands, for the proxy wrote it.
        ("10.1.2.3", [], "10.1.2.3"),
        ("10.1.2.3", [""], "10.1.2.3"),
        ("10.1.2.3", ["198.51.100.1, unknown"], "unknown"),
        ("10.1.2.3", ["198.51.100.1, what, 10.0.0.9"], "what"),
        # Only proxies: the first of them asked.
        ("10.1.2.3", ["10.0.0.8, 10.0.0.9"], "10.0.0.8"),
        # Forms of addresses.
        ("::ffff:10.1.2.3", ["::ffff:198.51.100.1"], "::ffff:198.51.100.1"),
        ("fd00::1", ["[2001:db8::5]:4711"], "2001:db8::5"),
        ("10.1.2.3", ["198.51.100.1:4711"], "198.51.100.1"),
    ],
)
async def test_the_client_is_the_rightmost_that_is_no_proxy(client: str | None, forwarded: list[str], who: str) -> None:
    assert (await seen(client, *forwarded))[0] == who


async def test_the_scheme_is_what_the_proxy_says() -> None:
    assert (await seen("10.0.0.1", proto="https"))[1] == "https"
    assert (await seen("10.0.0.1", proto="http", scheme="https"))[1] == "http"
    assert (await seen("10.0.0.1", proto="gopher"))[1] == "http"
    assert (await seen("10.0.0.1"))[1] == "http"
    assert (await seen("203.0.113.5", proto="https"))[1] == "http"


@pytest.mark.parametrize("text", ["", "proxy.example", "10.0.0.1/8", "0.0.0.0/0", "::/0", "10.0.0.0/33"])
def test_what_names_no_proxy(text: str) -> None:
    with pytest.raises(ValueError, match="address"):
        parse_network(text)


LOOPBACK = (ipaddress.ip_network("127.0.0.0/8"),)
FEW = Rate(0.001, 2)


async def statuses(settings: ServerSettings, sources: list[str]) -> tuple[list[int], list[str | None]]:
    async with house(settings=settings) as h:
        found = []
        for number, source in enumerate(sources):
            headers = {**JSON, "x-forwarded-for": source, "x-real-ip": source, "forwarded": f"for={source}"}
            answer = await h.http.post("/evaluate", content=encoded(intent(f"r-{number}")), headers=headers)
            found.append(answer.status_code)
        return found, [one.peer for one in h.desk.handled]


async def test_rates_are_of_the_client_behind_the_proxy() -> None:
    sources = ["198.51.100.1", "198.51.100.1", "198.51.100.1", "198.51.100.2"]
    trusting = ServerSettings(worker=False, peer_rate=FEW, trusted_proxies=LOOPBACK)
    assert await statuses(trusting, sources) == ([200, 200, 429, 200], sources)


async def test_nobody_gets_around_a_rate_with_a_header() -> None:
    sources = [f"198.51.100.{number}" for number in range(4)]
    alone = ServerSettings(worker=False, peer_rate=FEW)
    assert await statuses(alone, sources) == ([200, 200, 429, 429], ["127.0.0.1"] * 4)
    # Through a proxy that adds what it saw, what the client wrote before it does not count either.
    trusting = ServerSettings(worker=False, peer_rate=FEW, trusted_proxies=LOOPBACK)
    found, _ = await statuses(trusting, [f"{one}, 203.0.113.9" for one in sources])
    assert found == [200, 200, 429, 429]


async def test_a_session_belongs_to_the_client_behind_the_proxy() -> None:
    settings = ServerSettings(worker=False, peer_rate=FEW, trusted_proxies=LOOPBACK)
    async with house(settings=settings) as h:
        async with h.websocket(additional_headers={"x-forwarded-for": "198.51.100.1"}) as one:
            await one.recv()
            for number in range(2):
                await one.send(encoded(intent(f"r-{number}")).decode())
                await one.recv()
        assert [event.peer for event in h.desk.handled] == ["198.51.100.1"] * 2


async def test_a_page_without_tls_is_another_origin_than_its_server_with_it() -> None:
    settings = ServerSettings(worker=False, trusted_proxies=LOOPBACK)
    async with house(settings=settings) as h:
        own = h.url.removeprefix("http://")
        for proto, origin, status in (
            ("https", f"https://{own}", 200),
            ("https", f"http://{own}", 403),
            ("http", f"http://{own}", 200),
        ):
            headers = {**JSON, "x-forwarded-proto": proto, "origin": origin}
            answer = await h.http.post("/evaluate", content=encoded(intent()), headers=headers)
            assert answer.status_code == status
