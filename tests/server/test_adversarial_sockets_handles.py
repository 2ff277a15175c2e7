"""Cases 12 and 13 over real sockets: the id of a tool and an approval are good for whom and what they were given."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest

from manglecp.intent import Identity
from tests.intent.packs import NOW
from tests.invoke.chains import chain, effect
from tests.server.desk import Tokens, approvals, invoke
from tests.server.house import House, house
from tests.server.lines import WAYS, Line, Way, line

ANN, BOB = Identity("ann", frozenset(), "user"), Identity("bob", frozenset({"admin"}), "user")
EVE = Identity("eve", frozenset({"approve"}), "user")
KNOWN = {"a": ANN, "b": BOB, "e": EVE}
PAY = effect("pay", 3, ("payments",), params={"n": {"type": "integer"}, "to": {"type": "string"}})
PACK = chain(
    'macro_step("t", 1, "pay").',
    'macro("u", "Another."). mandatory("u") :- intent("go"). macro_step("u", 1, "pay").',
    'macro("r", "Reads."). mandatory("r") :- intent("go"). macro_step("r", 1, "look").',
    'valid_for("r", D) :- D = fn:duration:parse("10s").',
    actions=(PAY,),
)
ARGS = {"n": 100, "to": "kim"}
UNKNOWN = "m-ffffffffffffffffffffffffffffffff"

pytestmark = pytest.mark.parametrize("way", WAYS)


@dataclass
class Meeting:
    """A server, two clients of it, and an approver."""

    house: House
    ann: Line
    bob: Line
    eve: Line
    clock: list[int]

    @property
    def ran(self) -> list[tuple[str, dict[str, Any]]]:
        return [one for shop in self.house.desk.shops for one in shop.bench.ran]


@asynccontextmanager
async def meeting(way: Way) -> AsyncIterator[Meeting]:
    clock = [NOW]
    async with (
        house(PACK, auth=Tokens(dict(KNOWN)), now=lambda: clock[0]) as h,
        line(h.url, way, "a") as ann,
        line(h.url, way, "b") as bob,
        line(h.url, way, "e") as eve,
    ):
        yield Meeting(h, ann, bob, eve, clock)


async def told(asking: Line, macro_id: str, args: dict[str, Any] | None = None, **more: Any) -> str:
    """The whole answer, in which nothing may differ."""
    return json.dumps(await asking.ask(invoke("x", macro_id, {"n": 1} if args is None else args, **more)))


@pytest.mark.req("SEC-29", "SEC-37", "INVK-06")
async def test_a_tool_of_others_is_as_unknown_as_one_that_never_was(way: Way) -> None:
    async with meeting(way) as m:
        mine = await m.ann.tools()
        unknown = await told(m.bob, UNKNOWN)
        assert json.loads(unknown)["payload"]["code"] == "macro_not_found"
        for tool in mine.values():
            for args in ({"n": 1}, ARGS, {}, {"n": "?"}):
                for more in ({}, {"confirmation_token": "v1.x.1.y"}, {"x-request_key": "k"}):
                    assert await told(m.bob, tool, args, **more) == unknown
        for macro_id in (mine["r"].upper(), mine["r"][:-1], mine["r"] + "0", f" {mine['r']}", "m-*", "r", "%", "\0"):
            assert await told(m.ann, macro_id) == unknown
        assert m.ran == []
        assert (await m.ann.ask(invoke("x", mine["r"], {"n": 1})))["type"] == "invoke_response"


async def test_a_tool_ends_with_its_window_for_its_owner_and_tells_others_nothing(way: Way) -> None:
    async with meeting(way) as m:
        mine = (await m.ann.tools())["r"]
        unknown = await told(m.bob, UNKNOWN)
        for seconds in (11, 10_000):
            m.clock[0] = NOW + seconds * 10**9
            late = await m.ann.ask(invoke("x", mine, {"n": 1}))
            assert late["payload"]["code"] in ("macro_expired", "macro_not_found")
            assert await told(m.bob, mine) == unknown
        assert m.ran == []


async def test_a_tool_of_other_rules_is_gone(way: Way) -> None:
    """Also on a session that is open all the time; and it is back with the rules that proved it."""
    async with meeting(way) as m:
        mine = (await m.ann.tools())["r"]
        desk = m.house.desk
        desk.packs.append(
            replace(
                chain('macro_step("t", 1, "look").', policy='prohibited("t", "No more.").'), digest="sha256:" + "0" * 64
            )
        )
        assert await desk.revisions.reload() == "swapped"
        assert json.loads(await told(m.ann, mine))["payload"]["code"] == "macro_expired"
        assert await told(m.bob, mine) == await told(m.bob, UNKNOWN)
        assert m.ran == []
        desk.packs.append(PACK)
        assert await desk.revisions.reload() == "swapped"
        assert (await m.ann.ask(invoke("x", mine, {"n": 1})))["type"] == "invoke_response"


# --- approval --------------------------------------------------------------------------------------------------------


async def requested(m: Meeting, tool: str, args: dict[str, Any] | None = None) -> str:
    answer = await m.ann.ask(invoke("x", tool, ARGS if args is None else args))
    assert answer["payload"]["code"] == "confirmation_required"
    found: dict[str, Any] = answer["payload"]["details"]["challenge"]
    assert set(found) == {"approval", "expires_at", "roles", "four_eyes"}, "the text is for approvers only"
    return str(found["approval"])


async def approved(m: Meeting, tool: str) -> str:
    approval = await requested(m, tool)
    answer = await m.eve.ask(approvals("y", "approve", approval))
    assert answer["payload"]["approvals"][0]["state"] == "approved"
    return approval


async def refused(asking: Line, tool: str, token: str, reason: str, args: dict[str, Any] | None = None) -> None:
    answer = await asking.ask(invoke("x", tool, ARGS if args is None else args, confirmation_token=token))
    assert answer["payload"]["code"] == "confirmation_invalid"
    assert answer["payload"]["details"]["reason"] == reason


@pytest.mark.req("INVK-10", "ERR-27", "SEC-22", "SEC-37")
async def test_an_approval_fits_what_it_was_made_for_once(way: Way) -> None:
    async with meeting(way) as m:
        mine, others = await m.ann.tools(), await m.bob.tools()
        token = await approved(m, mine["t"])
        for change in ({"n": 101}, {"to": "kin"}, {"to": "kim "}, {"to": "Kim"}):
            await refused(m.ann, mine["t"], token, "other_call", {**ARGS, **change})
        await refused(m.ann, mine["u"], token, "other_call")
        await refused(m.bob, others["t"], token, "other_call")
        assert m.ran == []
        answer = await m.ann.ask(invoke("x", mine["t"], ARGS, confirmation_token=token))
        assert answer["type"] == "invoke_response"
        for _ in range(2):
            await refused(m.ann, mine["t"], token, "used")
        assert m.ran == [("pay", ARGS)]


async def test_an_approval_ends(way: Way) -> None:
    async with meeting(way) as m:
        token = await approved(m, (await m.ann.tools())["t"])
        m.clock[0] = NOW + 3_600 * 10**9
        await refused(m.ann, (await m.ann.tools())["t"], token, "expired")
        late = await m.eve.ask(approvals("y", "approve", token))
        assert late["payload"]["code"] == "x-approval_decided"
        assert m.ran == []


async def test_an_agent_cannot_make_an_approval(way: Way) -> None:
    """Not with what it is told, not by a decision of its own, and not with one that was denied."""
    async with meeting(way) as m:
        tool = (await m.ann.tools())["t"]
        approval = await requested(m, tool)
        for asking in (m.ann, m.bob):
            for operation in ("list", "show", "approve", "deny"):
                answer = await asking.ask(approvals("y", operation, approval))
                assert answer["payload"]["code"] == "auth_insufficient"
                assert "kim" not in json.dumps(answer)
        early = await m.ann.ask(invoke("x", tool, ARGS, confirmation_token=approval))
        assert early["payload"]["code"] == "confirmation_required"
        for changed in (
            approval[:-1],
            approval + "a",
            approval.upper(),
            f" {approval}",
            "%",
            "ap-",
            "v1.a.1.b",
            ".",
            "\0",
        ):
            await refused(m.ann, tool, changed, "other_call")
        await refused(m.ann, tool, "x" * 10_000, "other_call")
        assert (await m.eve.ask(approvals("y", "deny", approval)))["type"] == "x-approval_response"
        await refused(m.ann, tool, approval, "denied")
        assert m.ran == []
