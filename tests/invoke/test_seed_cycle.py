"""The invocation cycle of the specification (seed 000, section 9), field by field, on real hosts.

Left out are what no two servers share: ``macro_id``, and how long things took.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from manglecp.intent import ANONYMOUS, Domain, OfferService
from manglecp.invoke.invoker import Invoker
from manglecp.pack import SandboxPolicy, read_pack
from manglecp.store import open_store
from manglecp.toolhost import Dispatcher
from manglecp.toolhost.dispatch.catalogue import Listing, list_plugin
from manglecp.toolhost.dispatch.dispatcher import ServedPlugin
from manglecp.toolhost.dispatch.launch import HostCommand
from manglecp.wire import receive
from manglecp.wire.messages import IntentRequest, InvokeRequest

FOLDER = Path(__file__).parent / "seed_pack"


def expected(name: str) -> Any:
    return json.loads((FOLDER / "expected" / f"{name}.json").read_text("utf-8"))


def without_durations(message: Any) -> Any:
    observed = message["payload"]["observability"]
    for part in (observed, *observed["events"]):
        assert isinstance(part.pop("duration_ms"), int)
    return message


@pytest.mark.req("INVK-14", "INVK-16", "DELTA-02", "OBS-01", "NEXT-01", "NEXT-04", "NEXT-05", "CONF-08", "DATA-45")
async def test_the_invocation_cycle_of_seed_000() -> None:
    domain = Domain.load(read_pack(FOLDER / "diagnose", {}, sandbox=SandboxPolicy(degrade=True)))
    listing = list_plugin(f"{domain.pack.folder}/actions.py", os.environ, policy=SandboxPolicy(degrade=True))
    assert isinstance(listing, Listing)
    command = listing.command(os.environ, sandbox="strict", policy=SandboxPolicy(degrade=True))
    assert isinstance(command, HostCommand)
    store = open_store(":memory:")
    try:
        async with (
            Dispatcher([ServedPlugin(listing.catalogue, command)]) as hosts,
            Invoker(OfferService(domain, store), store, hosts) as invoker,
        ):
            request = expected("invoke-request")
            payload = request["payload"]
            facts = [{"pred": "undiagnosed_error", "args": [payload["args"]["error_id"]]}]
            intent = {"intent": {"name": "diagnose_error"}, "facts": facts, "eval_time": payload["eval_time"]}
            asked = {"type": "intent_request", "id": "int-001", "manglecp": request["manglecp"], "payload": intent}
            proven = await invoker.offers.evaluate(msgspec.convert(asked, IntentRequest), ANONYMOUS)
            (tool,) = proven.payload.macro_tools
            payload["macro_id"] = tool.macro_id
            message = receive(json.dumps(request).encode(), 1 << 20)
            assert isinstance(message, InvokeRequest)
            answer = await invoker.invoke(message, ANONYMOUS)
            # What is suggested can be asked as it stands.
            after = [*answer.payload.next.continuation_facts]
            suggested = answer.payload.next.suggested_intents[0]
            intent = {"intent": {"name": suggested.name, "params": suggested.params}, "facts": after}
            asked = {"type": "intent_request", "id": "int-002", "manglecp": request["manglecp"], "payload": intent}
            following = await invoker.offers.evaluate(msgspec.convert(asked, IntentRequest), ANONYMOUS)
            assert [tool.name for tool in following.payload.macro_tools] == ["see_again"]
    finally:
        store.close()
    given = without_durations(json.loads(msgspec.json.encode(answer)))
    wanted = without_durations(expected("invoke-response"))
    assert given == wanted
    # The order of members as well, wherever it is ours: what actions return is put together by the action.
    assert json.dumps(given["payload"]["state_delta"]) == json.dumps(wanted["payload"]["state_delta"])
    assert json.dumps(given["payload"]["next"]) == json.dumps(wanted["payload"]["next"])
    assert list(given) == list(wanted)
    assert list(given["payload"]) == list(wanted["payload"])
    assert list(given["payload"]["observability"]) == list(wanted["payload"]["observability"])
