"""From what a caller names to a transport."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from manglecp.client.errors import RequestRefused
from manglecp.client.transports import MemoryTransport, transport_to
from manglecp.client.transports.http import HttpTransport
from manglecp.client.transports.stdio import StdioTransport
from manglecp.client.transports.websocket import WebSocketTransport
from tests.client.scripted import Scripted


def test_each_kind_of_target() -> None:
    server = Scripted()
    assert isinstance(transport_to("HTTPS://desk.example"), HttpTransport)
    assert isinstance(transport_to("wss://desk.example/ws", connect_seconds=5), WebSocketTransport)
    assert isinstance(transport_to(["manglecp", "serve"]), StdioTransport)
    assert isinstance(transport_to(server), MemoryTransport)
    assert transport_to(server.transport) is server.transport


@pytest.mark.parametrize("target", [object(), 5, None])
def test_what_leads_nowhere(target: Any) -> None:
    with pytest.raises(TypeError):
        transport_to(target)


def test_a_transport_has_its_options_already() -> None:
    with pytest.raises(TypeError):
        transport_to(Scripted().transport, connect_seconds=1)


@pytest.mark.parametrize(("url", "library"), [("http://localhost", "httpx"), ("ws://localhost", "websockets")])
def test_without_the_extra_it_says_what_is_missing(url: str, library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("http", "websocket"):
        monkeypatch.delitem(sys.modules, f"manglecp.client.transports.{module}", raising=False)
    monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.setitem(sys.modules, "websockets.asyncio.client", None)
    with pytest.raises(RequestRefused, match=r"not_installed: .*CHECKOUT\[client\]"):
        transport_to(url)


def test_nobody_pays_for_a_network_that_is_not_used() -> None:
    code = "import sys, manglecp; manglecp.Client; print({'httpx', 'websockets'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
