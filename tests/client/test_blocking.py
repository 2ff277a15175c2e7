"""The client for those without an event loop."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from manglecp.client.blocking import BlockingClient
from manglecp.client.errors import RequestRefused, ServerError
from manglecp.wire import WireError
from manglecp.wire.messages import Next, ProgressPayload, StateDelta, SuggestedIntent
from tests.client.scripted import Scripted, condensed, done, tool, tools


def blocking(server: Scripted, **options: Any) -> BlockingClient:
    return BlockingClient(server.transport, **options)


def test_the_whole_way() -> None:
    delta = StateDelta(asserts=({"pred": "p", "args": [1], "category": "server"},))
    further = Next(suggested_intents=(SuggestedIntent(name="more"),))
    told: list[str] = []
    server = Scripted(
        tools(condensed()),
        tools(tool()),
        [ProgressPayload(status="started"), done(state_delta=delta, next=further)],
        tools(),
    )
    with blocking(server, on_progress=lambda _: told.append(threading.current_thread().name)) as client:
        assert client.manifest.status == "ready"
        assert client.identity is None
        assert client.ready() == client.manifest
        assert client.refresh() == client.manifest
        found = client.evaluate("go")
        assert client.upgrade(found["t"]).level == "full"
        outcome = client.invoke("t", {"n": 1})
        assert len(client.state) == 1
        assert len(client.follow(outcome)) == 0
    assert told == ["manglecp-client"]
    assert not any(thread.name == "manglecp-client" for thread in threading.enumerate())


def test_errors_come_through() -> None:
    with blocking(Scripted(WireError("internal_error", "no"))) as client, pytest.raises(ServerError):
        client.evaluate("go")
    with pytest.raises(RequestRefused, match="with block"):
        client.evaluate("go")


def test_a_connection_that_fails_leaves_no_thread() -> None:
    server = Scripted(WireError("auth_invalid", "no"), auth={"required": True, "schemes": ["bearer"]})
    with pytest.raises(ServerError), blocking(server, token="x"):
        pytest.fail("it was not taken")
    assert not any(thread.name == "manglecp-client" for thread in threading.enumerate())


def test_several_threads_may_ask_at_once() -> None:
    server = Scripted(lambda message: tools(tool(f"t{message.payload.intent.params['n']}")))
    found: dict[int, str] = {}
    with blocking(server) as client:

        def ask(n: int) -> None:
            found[n] = client.evaluate("go", {"n": n}).tools[0].name

        threads = [threading.Thread(target=ask, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == {n: f"t{n}" for n in range(8)}
