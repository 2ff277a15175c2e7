"""Errors of a client say what to do about them."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import sys
from pathlib import Path

import pytest

from manglecp.client.client import Client
from manglecp.client.connection import RetryPolicy
from manglecp.client.errors import ClientError
from tests.client.scripted import Scripted
from tests.server.certificates import certificate
from tests.server.desk import PATIENCE, Tokens
from tests.server.house import house


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


async def trouble(target: object, **more: object) -> str:
    client = Client(target, **more)  # type: ignore[arg-type]
    try:
        async with asyncio.timeout(PATIENCE), client:
            await client.evaluate("go")
    except ClientError as error:
        return str(error)
    raise AssertionError("nothing was wrong")


@pytest.mark.parametrize("scheme", ["http", "ws"])
async def test_a_server_that_is_not_there(scheme: str) -> None:
    port = free_port()
    told = await trouble(f"{scheme}://127.0.0.1:{port}/")
    assert told == f"127.0.0.1:{port} refuses connections: is the server running, and is that its port?"
    assert await trouble(f"{scheme}s://nobody.invalid/") == "there is no host nobody.invalid"


@pytest.mark.parametrize("scheme", ["https", "wss"])
async def test_a_certificate_that_nobody_knows_and_no_tls_at_all(scheme: str, tmp_path: Path) -> None:
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served.load_cert_chain(*certificate(tmp_path))
    over = asyncio.Event()

    async def nonsense(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"what?\r\n")
        with contextlib.suppress(OSError):
            await reader.read()
            writer.close()
            await writer.wait_closed()
        over.set()

    for context, said in ((served, "the certificate of"), (None, "the TLS handshake with")):
        server = await asyncio.start_server(nonsense, "127.0.0.1", 0, ssl=context)
        port = server.sockets[0].getsockname()[1]
        assert said in await trouble(f"{scheme}://127.0.0.1:{port}/", retry_policy=RetryPolicy(max_retries=0))
        if context is None:
            await asyncio.wait_for(over.wait(), PATIENCE)
        server.close()
        await server.wait_closed()


async def test_another_address_of_a_host() -> None:
    async with house() as h:
        assert "no WebSocket at this path" in await trouble(f"ws://127.0.0.1:{h.port}/socket")
        told = await trouble(f"{h.url}/elsewhere/manifest.json?key=secret")
        assert f"no manifest at 127.0.0.1:{h.port}/elsewhere/manifest.json" in told.replace("http://", "")
        assert "secret" not in told


async def test_a_credential_that_is_missing() -> None:
    async with house(auth=Tokens({})) as h:
        assert "pass token" in await trouble(h.url)


async def test_a_network_without_tls() -> None:
    with pytest.raises(ClientError, match="use https, or insecure=True"):
        Client("http://tools.example")


async def test_a_server_that_ends_before_it_says_anything() -> None:
    script = "import sys; sys.stderr.write('loading\\nerror: the pack is broken\\n'); sys.exit(1)"
    told = await trouble([sys.executable, "-c", script])
    assert told == "the server closed its output; its last line on stderr: error: the pack is broken"
    assert "no-such-server cannot be started" in await trouble(["no-such-server"])


async def test_a_client_that_is_closed_and_a_tool_that_nobody_brought() -> None:
    server = Scripted()
    client = server.client()
    with pytest.raises(ClientError, match="inside its async with block"):
        _ = client.manifest
    async with client:
        with pytest.raises(ClientError, match="'t'; evaluate an intent first"):
            await client.invoke("t")
    with pytest.raises(ClientError, match=r"connect\(\) opens it again"):
        await client.evaluate("go")
