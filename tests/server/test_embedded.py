"""A server inside of another program: for clients in this process, and as an ASGI application."""

from __future__ import annotations

import hashlib
from pathlib import Path

import httpx
import pytest

from manglecp import Client, Server
from manglecp.client import ServerError
from manglecp.pack import PackError
from tests.server.desk import encoded, intent
from tests.server.house import JSON

INCIDENT = Path(__file__).parents[2] / "examples" / "incident"


@pytest.mark.req("TRANS-01", "CLI-01")
async def test_clients_in_this_process_and_an_asgi_application() -> None:
    server = Server(INCIDENT)
    with pytest.raises(RuntimeError, match="inside its async with"):
        server.app()
    async with server:
        async with Client(server) as client:
            found = await client.evaluate("observe")
            outcome = await client.invoke(found["list_failures"])
            assert {one["status"] for one in outcome.result["requests"]} >= {404}
        asgi = httpx.ASGITransport(server.app(hosts=["tools.example"]))
        async with httpx.AsyncClient(transport=asgi, base_url="http://tools.example", headers=JSON) as http:
            answer = await http.post("/evaluate", content=encoded(intent("a", "observe")))
            assert [one["name"] for one in answer.json()["payload"]["macro_tools"]] == ["list_failures"]
            assert (await http.get("/ready", headers={"host": "elsewhere.example"})).status_code == 421
    with pytest.raises(RuntimeError, match="inside its async with"):
        _ = server.core


@pytest.mark.req("SEC-17")
async def test_with_tokens_nobody_is_answered_without_one(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.toml"
    tokens.write_text(f'[[token]]\nsha256 = "{hashlib.sha256(b"good").hexdigest()}"\nidentity = "ann"\n')
    async with Server(INCIDENT, tokens=tokens) as server:
        async with Client(server, token="good") as client:
            assert "list_failures" in await client.evaluate("observe")
        with pytest.raises(ServerError, match="auth_invalid"):
            async with Client(server, token="bad") as client:
                await client.evaluate("observe")


async def test_a_pack_that_cannot_be_loaded_is_told(tmp_path: Path) -> None:
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "a.mg").write_text("broken(X :- y.")
    with pytest.raises(PackError):
        async with Server(tmp_path):
            pass
