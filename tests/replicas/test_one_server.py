"""Two replicas on one PostgreSQL behind a proxy are one server."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import connect

from tests.replicas.proxies import PATIENCE, has_nginx
from tests.replicas.site import JSON, TOKENS, Replica, Site
from tests.server.desk import approvals, encoded, intent, invoke

pytestmark = pytest.mark.no_cover


async def post(replica: Replica, message: dict[str, Any], who: str = "ann") -> dict[str, Any]:
    """What one replica says, past the proxy and any client."""
    path = {"intent_request": "evaluate", "invoke_request": "invoke"}.get(message["type"], "approvals")
    async with httpx.AsyncClient(base_url=replica.url, timeout=PATIENCE, trust_env=False) as http:
        headers = {**JSON, "authorization": f"Bearer {TOKENS[who]}"}
        told: dict[str, Any] = (await http.post(f"/{path}", content=encoded(message), headers=headers)).json()
        return told


async def tools(replica: Replica, who: str = "ann") -> dict[str, str]:
    answer = await post(replica, intent("i"), who)
    return {tool["name"]: tool["macro_id"] for tool in answer["payload"]["macro_tools"]}


def code(answer: dict[str, Any]) -> str | None:
    found: str | None = answer["payload"].get("code") if answer["type"] == "error" else None
    return found


async def test_a_tool_of_one_is_invoked_on_the_other(site: Site) -> None:
    a, b = site.replicas
    first = (await tools(a))["once"]
    answer = await post(b, invoke("x", first, {"case": "shared"}))
    assert answer["type"] == "invoke_response", answer
    assert site.effects()["shared only"] == 1
    foreign = await post(b, invoke("x", first, {"case": "shared"}), "bob")
    assert code(foreign) == "macro_not_found"
    assert site.effects()["shared only"] == 1


async def requested(replica: Replica, tool: str, args: dict[str, Any]) -> str:
    refused = await post(replica, invoke("x", tool, args))
    assert code(refused) == "confirmation_required", refused
    return str(refused["payload"]["details"]["challenge"]["approval"])


@pytest.mark.req("INVK-10")
async def test_an_approval_is_requested_on_one_decided_on_the_other_and_used_once(site: Site) -> None:
    a, b = site.replicas
    tool, args = (await tools(a))["asked"], {"case": "approval"}
    approval = await requested(a, tool, args)
    assert await requested(b, tool, args) == approval, "an equal request is the same one"
    (listed,) = (await post(b, approvals("l", "list"), "eve"))["payload"]["approvals"]
    assert (listed["id"], listed["requester"]) == (approval, "ann")
    for who in ("ann", "bob"):
        for operation in ("list", "show", "approve"):
            assert code(await post(b, approvals("y", operation, approval), who)) == "auth_insufficient"
    assert code(await post(a, invoke("x", tool, args, confirmation_token=approval))) == "confirmation_required"
    decided = await post(b, approvals("y", "approve", approval), "eve")
    assert decided["payload"]["approvals"][0]["approver"] == "eve"
    other = await post(b, invoke("x", tool, {"case": "other"}, confirmation_token=approval))
    assert code(other) == "confirmation_invalid"
    both = [post(one, invoke("x", tool, args, confirmation_token=approval)) for one in (a, b) * 3]
    answers = await asyncio.gather(*both)
    assert sorted(str(code(one)) for one in answers) == ["None", *["confirmation_invalid"] * 5]
    used = await post(a, invoke("x", tool, args, confirmation_token=approval))
    assert used["payload"]["details"]["reason"] == "used"
    assert site.effects()["approval agreed"] == 1


async def test_of_two_approvers_at_two_replicas_one_decides(site: Site) -> None:
    a, b = site.replicas
    tool = (await tools(a))["asked"]
    for n in range(5):
        args = {"case": f"race-{n}"}
        approval = await requested(a, tool, args)
        racing = [
            post(a, approvals("y", "approve", approval), "eve"),
            post(b, approvals("n", "deny", approval), "kim"),
        ]
        answers = await asyncio.gather(*(racing if n % 2 else reversed(racing)))
        won = [one for one in answers if one["type"] == "x-approval_response"]
        assert [code(one) for one in answers if one not in won] == ["x-approval_decided"]
        (view,) = won[0]["payload"]["approvals"]
        used = [await post(one, invoke("x", tool, args, confirmation_token=approval)) for one in (b, a)]
        reasons = [one["payload"].get("details", {}).get("reason") for one in used]
        assert reasons == ([None, "used"] if view["state"] == "approved" else ["denied"] * 2)
        assert site.effects()[f"race-{n} agreed"] == (view["state"] == "approved")
        with site.store.read_transaction() as tx:
            entries = [one.body for one in site.store.ledger.rows(tx) if one.kind == "approval"]
        decided = [one["event"] for one in entries if one.get("approval") == approval and one["event"] != "requested"]
        assert decided == [view["state"]]


async def test_a_request_key_stands_for_one_run_on_both(site: Site) -> None:
    a, b = site.replicas
    tool = (await tools(a))["long"]
    message = invoke("x", tool, {"case": "keyed", "gate": "keyed"}, **{"x-request_key": "key-1"})
    asking = [asyncio.create_task(post(one, message)) for one in (a, b) * 3]
    await site.until(lambda: site.waiting("keyed"))
    site.open_gate("keyed")
    answers = await asyncio.gather(*asking, post(b, message))
    assert [one["type"] for one in answers] == ["invoke_response"] * 7, answers
    assert all(one["payload"] == answers[0]["payload"] for one in answers)
    assert (site.effects()["keyed first"], site.effects()["keyed last"]) == (1, 1)
    other = invoke("y", tool, {"case": "another", "gate": "keyed"}, **{"x-request_key": "key-1"})
    assert code(await post(b, other)) == code(await post(a, other)) is not None
    assert not [line for line in site.effects() if line.startswith("another")]


async def test_a_client_of_the_proxy_knows_nothing_of_replicas(site: Site) -> None:
    for target in (site.url, site.socket):
        async with site.client("bob", target) as client:
            found = await client.evaluate("go")
            for n in range(4):
                case = f"{target[:3]}-{n}"
                await client.invoke(found["once"], {"case": case})
                assert site.effects()[f"{case} only"] == 1
            await client.invoke(found["asked"], {"case": target[:3]})
            assert site.effects()[f"{target[:3]} agreed"] == 1


async def test_sessions_go_through_the_proxy_in_both_directions(site: Site) -> None:
    told: list[Any] = []
    async with site.client("ann", site.socket, on_progress=told.append) as client:
        found = await client.evaluate("go")
        running = asyncio.create_task(client.invoke(found["long"], {"case": "session", "gate": "session"}))
        await site.until(lambda: site.waiting("session") and bool(told))
        assert not running.done()
        further = await client.evaluate("go")  # answered before what was asked earlier
        assert further["long"].macro_id == found["long"].macro_id
        site.open_gate("session")
        await running
    async with connect(site.socket, ssl=site.trusting, proxy=None) as raw:
        await raw.recv()
        async with asyncio.timeout(PATIENCE):
            await (await raw.ping())


async def test_both_have_one_manifest_and_answer_about_themselves_only_there(site: Site) -> None:
    async with httpx.AsyncClient(base_url=site.url, timeout=PATIENCE, trust_env=False, verify=site.trusting) as http:
        manifest = await http.get("/.well-known/manglecp/manifest.json")
        assert manifest.status_code == 200
        known = {"if-none-match": manifest.headers["etag"]}
        for _ in site.replicas:
            assert (await http.get("/.well-known/manglecp/manifest.json", headers=known)).status_code == 304
        assert [replica.status() for replica in site.replicas] == [200, 200]
        if has_nginx():  # what takes its place knows no HTTP
            for path in ("/health", "/ready", "/metrics"):
                assert (await http.get(path)).status_code == 404


@pytest.mark.skipif(not has_nginx(), reason="what takes its place knows no headers")
async def test_a_client_cannot_say_that_it_is_somewhere_else(site: Site) -> None:
    """The proxy is believed, and it does not pass on what a client has written."""
    pretended = {**JSON, "authorization": f"Bearer {TOKENS['ann']}", "x-forwarded-for": "203.0.113.9"}
    async with httpx.AsyncClient(base_url=site.url, timeout=PATIENCE, trust_env=False, verify=site.trusting) as http:
        answer = await http.post("/evaluate", content=encoded(intent("from-elsewhere")), headers=pretended)
        assert answer.status_code == 200
    logged = [line for replica in site.replicas for line in replica.said().splitlines() if "from-elsewhere" in line]
    assert [json.loads(line)["peer"] for line in logged] == ["127.0.0.1"]
