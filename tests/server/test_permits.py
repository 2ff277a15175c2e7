"""Permits over each transport: decided, recorded before the answer, reported once, for no other principal or call."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from manglecp.client import BlockingClient, Client, ServerError, StdioTransport
from manglecp.client.transports import MemoryTransport
from manglecp.intent import Identity
from manglecp.invoke import DecisionDetails
from manglecp.pack import Pack
from manglecp.store import Store, StoredDecision, open_store
from tests.client.test_real_server import WAYS, target
from tests.intent.packs import NOW
from tests.invoke.chains import chain, steps
from tests.server.desk import Desk, Tokens, desk
from tests.server.house import house

ANN = Identity("ann", frozenset(), "user")
EVE = Identity("eve", frozenset(), "user")
KIM = Identity("kim", frozenset({"approve"}), "user")
AUTH = {"ann": ANN, "eve": EVE, "kim": KIM}
POLICY = """
prohibited("t", "at most 100") :- call("t"), call_arg("n", N), N > 100.
needs_confirmation("t") :- call("t"), call_arg("n", N), N > 50.
public_reason("t", Reason) :- prohibited("t", Reason).
"""


def bank(policy: str = POLICY) -> Pack:
    return chain(steps("write"), policy=policy)


def records(store: Store, **filters: str) -> list[StoredDecision]:
    with store.read_transaction() as tx:
        return store.decisions.newest(tx, 100, **filters)


def unreported(store: Store) -> list[str | None]:
    with store.read_transaction() as tx:
        return [permit.run for permit in store.decisions.unreported(tx, 100)]


def outcome(store: Store, permit: str) -> dict[str, Any]:
    (stored,) = records(store, operation="outcome", run=permit)
    details = msgspec.json.decode(store.decisions.content(stored), type=DecisionDetails)
    assert details.outcome is not None
    assert details.outcome["outcome"] == stored.verdict
    return details.outcome


@pytest.mark.parametrize("way", WAYS)
async def test_a_permitted_call_and_its_outcome(way: str) -> None:
    async with house(bank(), auth=Tokens(dict(AUTH))) as h, Client(target(way, h), token="ann") as ann:
        store, given = h.desk.shop.store, {"n": 7}
        async with ann.permit("t", given) as permit:
            given["n"] = 8
            assert permit.args == {"n": 7}
            assert unreported(store) == [permit.id], "it is recorded before the answer"
            permit.record({"paid": 7})
        assert unreported(store) == []
        assert outcome(store, permit.id) == {
            "permit": permit.id,
            "outcome": "success",
            "result": {"paid": 7},
            "late": False,
        }
        with pytest.raises(ZeroDivisionError):
            async with ann.permit((await ann.evaluate("go"))["t"], {"n": 7}) as permit:
                1 / 0  # noqa: B018
        assert outcome(store, permit.id)["error"] == "ZeroDivisionError"
        assert h.desk.shop.bench.ran == [], "the server executes nothing"
        with store.read_transaction() as tx:
            assert store.ledger.verify(tx).findings + store.decisions.verify(tx) == []


@pytest.mark.parametrize("way", WAYS)
async def test_a_denied_call_gets_no_permit(way: str) -> None:
    async with house(bank(), auth=Tokens(dict(AUTH))) as h, Client(target(way, h), token="ann") as ann:
        text = "n of at most 100: 100 would need an approval, 101 would be denied"
        with pytest.raises(ServerError, match=f"at most 100; {text}") as refused:
            async with ann.permit("t", {"n": 700}):
                pytest.fail("it is not permitted")
        assert refused.value.details["reasons"] == ["at most 100"]
        assert refused.value.details["would_unlock"] == [
            {"args": {"n": 100}, "facts": [], "verdict": "ask", "text": text}
        ]
        tool = (await ann.evaluate("go"))["t"]
        with pytest.raises(ServerError, match=text) as refused:
            await ann.invoke(tool, {"n": 700})
        assert refused.value.details["would_unlock"][0]["args"] == {"n": 100}
        (remedy,) = (await ann.decide("t", {"n": 700})).would_unlock
        assert remedy.args == {"n": 100}
        assert (await ann.decide("t", {"n": 7})).would_unlock == ()
        assert unreported(h.desk.shop.store) == []


async def approved(client: Client, approver: Client, args: dict[str, Any]) -> str:
    with pytest.raises(ServerError) as refused:
        async with client.permit("t", args):
            pytest.fail("it needs an approval")
    assert refused.value.code == "confirmation_required"
    approval = refused.value.approval
    assert approval is not None
    request = await approver.approve(approval)
    assert isinstance(request.text, str)
    assert "whose application executes the call itself" in request.text
    assert f'Arguments: {{"n":{args["n"]}}}' in request.text
    return approval


@pytest.mark.parametrize("way", WAYS)
async def test_an_approval_permits_one_call_once(way: str) -> None:
    async with (
        house(bank(), auth=Tokens(dict(AUTH))) as h,
        Client(target(way, h), token="ann") as ann,
        Client(target(way, h), token="kim") as kim,
        Client(target(way, h), token="eve") as eve,
    ):
        approval = await approved(ann, kim, {"n": 60})
        attempts = ((eve, 60, "other_call"), (ann, 61, "other_call"))
        for client, n, reason in attempts:
            with pytest.raises(ServerError) as refused:
                async with client.permit("t", {"n": n}, approval=approval):
                    pytest.fail("the approval is for another call")
            assert refused.value.details["reason"] == reason
            assert refused.value.details["x-decision"].startswith("d-")
        tool = (await ann.evaluate("go"))["t"]
        with pytest.raises(ServerError, match="not for this call"):
            await ann.invoke(tool, {"n": 60}, approval=approval)
        async with ann.permit("t", {"n": 60}, approval=approval) as permit:
            pass
        assert (await kim.approval(approval)).run == permit.id
        with pytest.raises(ServerError, match="used already"):
            async with ann.permit("t", {"n": 60}, approval=approval):
                pytest.fail("the approval was used")
        with pytest.raises(ServerError) as refused:
            await ann.invoke(tool, {"n": 60})
        invocation = refused.value.approval
        assert invocation is not None
        await kim.approve(invocation)
        for named in ("t", tool):
            with pytest.raises(ServerError, match="not for this call"):
                async with ann.permit(named, {"n": 60}, approval=invocation):
                    pytest.fail("the approval is for an invocation")


async def test_two_permits_with_one_approval_at_once() -> None:
    async with desk(bank(), auth=Tokens(dict(AUTH))) as d:
        ann, kim = (Client(MemoryTransport(d.core, like="websocket"), token=name) for name in ("ann", "kim"))
        async with ann, kim:
            approval = await approved(ann, kim, {"n": 60})

            async def use() -> bool:
                with suppress(ServerError):
                    async with ann.permit("t", {"n": 60}, approval=approval):
                        return True
                return False

            assert sorted(await asyncio.gather(*(use() for _ in range(5)))) == [False] * 4 + [True]


# --- attacks on reports, as messages ---------------------------------------------------------------------------------


async def decide(d: Desk, token: str = "ann", **payload: Any) -> dict[str, Any]:
    content = {"tool": "t", "args": {"n": 7}, **payload}
    message = {"type": "x-decide_request", "id": "1", "manglecp": "2026-02-draft", "payload": content}
    answer: dict[str, Any] = (await d.post(message, token))[0]["payload"]
    return answer


def report(permit: str, result: str = "success", **more: Any) -> dict[str, Any]:
    return {"permit": permit, "outcome": result, **more}


async def test_a_report_counts_once_and_only_from_the_principal_of_the_permit() -> None:
    async with desk(bank(), auth=Tokens(dict(AUTH))) as d:
        store = d.shop.store
        permit = (await decide(d, permit=True))["permit"]["id"]
        refusals: list[tuple[dict[str, Any], str, str | None]] = [
            ({"token": "eve", "report": report(permit)}, "x-permit_not_found", None),
            ({"report": report("p-made-up")}, "x-permit_not_found", None),
            ({"report": report(permit), "args": {"n": 8}}, "x-permit_conflict", "other_call"),
            ({"report": report(permit), "tool": "u"}, "x-permit_conflict", "other_call"),
        ]
        for changed, code, reason in refusals:
            error = await decide(d, **changed)
            assert (error["code"], error.get("details", {}).get("reason")) == (code, reason)
        assert unreported(store) == [permit]
        first = await decide(d, report=report(permit))
        assert first["permit"]["id"] == permit
        assert (await decide(d, report=report(permit)))["x-decision"] == first["x-decision"]
        for other in (report(permit, "failure"), {**report(permit), "result": 1}):
            error = await decide(d, report=other)
            assert (error["code"], error["details"]["reason"]) == ("x-permit_conflict", "reported")
        assert len(records(store, operation="outcome")) == 1
        assert outcome(store, permit)["outcome"] == "success"


async def test_different_reports_at_once_leave_one_outcome() -> None:
    async with desk(bank(), auth=Tokens(dict(AUTH))) as d:
        permit = (await decide(d, permit=True))["permit"]["id"]
        reports = [report(permit, "success" if n % 2 else "failure", error=str(n)) for n in range(6)]
        answers = await asyncio.gather(*(decide(d, report=one) for one in reports))
        assert sum("permit" in answer for answer in answers) == 1
        assert len(records(d.shop.store, run=permit, operation="outcome")) == 1


async def test_a_late_outcome_is_recorded_as_late() -> None:
    now = [NOW]
    async with desk(bank(), auth=Tokens(dict(AUTH)), now=lambda: now[0]) as d:
        answer = await decide(d, permit=True)
        permit = answer["permit"]["id"]
        now[0] += 601 * 10**9
        await decide(d, report=report(permit))
        assert outcome(d.shop.store, permit)["late"] is True


async def test_a_changed_argument_is_noticed() -> None:
    async with desk(bank(), auth=Tokens(dict(AUTH))) as d:
        ann = Client(MemoryTransport(d.core, like="websocket"), token="ann")
        with pytest.raises(ServerError, match="for another call"):
            async with ann, ann.permit("t", {"n": 7}) as permit:
                permit.args["n"] = 70
        assert unreported(d.shop.store) == [permit.id]


# --- a server process, restarted between the permit and the report ---------------------------------------------------

FILES = {
    "pack.toml": '[pack]\nname = "bank"\nversion = "1"\n',
    "actions.py": 'from manglecp import action\n\n\n@action(effects=["filesystem"])\n'
    'def wire(n: int) -> str:\n    """Wire an amount."""\n    return "wired"\n',
    "rules/bank.mg": 'macro("wire", "Wires money."). macro_step("wire", 1, "wire").\n',
    "rules/policy/limits.mg": 'prohibited("wire", "at most 100") :- call("wire"), call_arg("n", N), N > 100.\n'
    "public_reason(Tool, Reason) :- prohibited(Tool, Reason).\n",
}


def test_a_permit_outlives_the_server_process(tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    store = tmp_path / "store.db"
    command = [sys.executable, "-m", "manglecp", "serve", str(tmp_path), "--stdio", "--store", str(store), "--degrade"]
    transport = StdioTransport(command)
    with BlockingClient(transport) as client:
        with pytest.raises(ServerError, match="n of at most 100"), client.permit("wire", {"n": 700}):
            pytest.fail("it is not permitted")
        with client.permit("wire", {"n": 7}) as permit:
            first = transport.process
            assert first is not None
            os.kill(first.pid, signal.SIGKILL)
            permit.record({"id": 1})  # the report starts another server process
        assert transport.process is not first
        with pytest.raises(KeyError), client.permit("wire", {"n": 8}) as failed:
            raise KeyError
    with closing(open_store(store)) as opened:
        assert outcome(opened, permit.id)["result"] == {"id": 1}
        assert outcome(opened, failed.id)["error"] == "KeyError"
        assert unreported(opened) == []
