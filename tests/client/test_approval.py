"""Approval as a client sees it: requests that the server stores, and tokens of servers that store none."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

import pytest

from manglecp.client.approval import ApprovalRequest
from manglecp.client.client import Client
from manglecp.client.errors import ConnectionLost, RequestRefused, ServerError
from manglecp.wire import WireError
from manglecp.wire.messages import ApprovalMessage, ApprovalResult, ApprovalView, Authenticated
from tests.client.scripted import LOSE, Scripted, done, tools, writes

REQUIRED = WireError("confirmation_required", "A person has to agree first", {"challenge": {"nonce": "n" * 32}})
RISKY = tools(writes(confirm=True, reversible=False))
AUTH = {"required": True, "schemes": ["bearer"]}
OURS: dict[str, Any] = {"extensions": {"x-approvals": {}, "x-request_key": {}}}


def pending(approval: str = "ap-1") -> WireError:
    challenge = {"approval": approval, "expires_at": "2026-03-02T10:20:00Z", "roles": [], "four_eyes": False}
    return WireError(
        "confirmation_required", f"An approver has to approve this call: {approval}", {"challenge": challenge}
    )


def invalid(reason: str) -> WireError:
    return WireError("confirmation_invalid", f"it is {reason}", {"reason": reason})


def known(*effects: str, trust: str = "automated") -> Authenticated:
    return Authenticated(
        status="authenticated", identity="ada", permissions=(), trust_level=trust, auto_confirm_effects=effects
    )


def tokens(server: Scripted) -> list[str | None]:
    return [one.payload.confirmation_token for one in server.invocations]


# --- a server that stores approval requests --------------------------------------------------------------------------


@pytest.mark.req("CLI-05", "ERR-46")
async def test_the_callback_gets_the_id_that_the_server_gave() -> None:
    server = Scripted(RISKY, pending(), done(), **OURS)
    requests: list[ApprovalRequest] = []

    async def approve(request: ApprovalRequest) -> bool:
        assert len(server.invocations) == 1
        requests.append(request)
        return True

    async with server.client(on_confirm=approve) as client:
        await client.evaluate("go")
        await client.invoke("t", {"n": 1})
    (request,) = requests
    assert (request.approval, request.args, request.refusal) == ("ap-1", {"n": 1}, None)
    assert (request.tool.name, request.effects, request.reversible) == ("t", ("filesystem",), False)
    assert tokens(server) == [None, "ap-1"]
    assert len({one.payload.request_key for one in server.invocations}) == 1


@pytest.mark.req("CLI-05")
@pytest.mark.parametrize("answer", [None, False, ""])
async def test_what_was_declined_is_not_sent_again(answer: Any) -> None:
    server = Scripted(RISKY, pending(), done(), **OURS)
    async with server.client(on_confirm=lambda _: answer) as client:
        await client.evaluate("go")
        with pytest.raises(RequestRefused, match="confirmation_declined"):
            await client.invoke("t", {"n": 1})
    assert tokens(server) == [None]


async def test_without_a_callback_the_error_has_the_id() -> None:
    server = Scripted(RISKY, pending("ap-7"), **OURS)
    async with server.client() as client:
        await client.evaluate("go")
        with pytest.raises(ServerError, match="confirmation_required") as refused:
            await client.invoke("t", {"n": 1})
    assert refused.value.approval == "ap-7"
    assert tokens(server) == [None]


async def test_an_approved_request_is_used_at_once() -> None:
    server = Scripted(RISKY, done(), **OURS)
    async with server.client(on_confirm=lambda _: pytest.fail("asked")) as client:
        await client.evaluate("go")
        await client.invoke("t", {"n": 1}, approval="ap-9")
    assert tokens(server) == ["ap-9"]


@pytest.mark.parametrize("asks", [True, False])
async def test_the_decision_is_awaited(asks: bool) -> None:
    """Both after a callback that only notified an approver, and without one."""
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    server = Scripted(RISKY, pending(), pending(), pending(), done(), **OURS)
    async with server.client(on_confirm=(lambda _: True) if asks else None, sleep=sleep) as client:
        await client.evaluate("go")
        await client.invoke("t", {"n": 1}, wait_for_approval=60.0)
    assert tokens(server) == [None, "ap-1", "ap-1", "ap-1"]
    assert slept == [2.0, 2.0]


async def test_the_wait_for_a_decision_ends() -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        await asyncio.sleep(seconds)

    server = Scripted(RISKY, pending(), **OURS)
    async with server.client(sleep=sleep) as client:
        await client.evaluate("go")
        with pytest.raises(ServerError, match="confirmation_required") as refused:
            await client.invoke("t", {"n": 1}, wait_for_approval=0.05)
    assert slept
    assert max(slept) <= 0.05, "a poll does not outlast the wait"
    assert refused.value.approval == "ap-1"
    assert set(tokens(server)[1:]) == {"ap-1"}


def test_the_text_of_an_error_names_the_permission_of_the_approver() -> None:
    details = {"challenge": {"approval": "ap-1", "roles": ["lead", "treasurer"], "four_eyes": False}}
    error = ServerError("confirmation_required", "Approve it", details)
    assert "the approver needs the permission lead; the approver needs the permission treasurer" in str(error)
    for challenge in ("lead", {}, {"roles": "lead"}):
        malformed = ServerError("confirmation_required", "Approve it", {"challenge": challenge})
        assert str(malformed) == "confirmation_required: Approve it"
        assert malformed.approval is None
    assert RequestRefused("not_connected", "closed").approval is None


async def test_a_callback_that_only_notifies_leaves_the_request_pending() -> None:
    server = Scripted(RISKY, pending(), pending(), **OURS)
    async with server.client(on_confirm=lambda _: True) as client:
        await client.evaluate("go")
        with pytest.raises(ServerError, match="confirmation_required") as refused:
            await client.invoke("t", {"n": 1})
    assert (refused.value.approval, tokens(server)) == ("ap-1", [None, "ap-1"])


@pytest.mark.parametrize("reason", ["denied", "expired", "used", "subject", "revision"])
async def test_an_approval_that_does_not_hold_ends_the_wait(reason: str) -> None:
    server = Scripted(RISKY, pending(), pending(), invalid(reason), **OURS)
    async with server.client() as client:
        await client.evaluate("go")
        with pytest.raises(ServerError, match=f"confirmation_invalid: it is {reason}") as refused:
            await client.invoke("t", {"n": 1}, wait_for_approval=60.0)
    assert refused.value.approval is None
    assert refused.value.details["reason"] == reason


async def test_after_an_approval_that_does_not_hold_another_is_requested() -> None:
    seen: list[tuple[str | None, str | None]] = []

    def approve(request: ApprovalRequest) -> bool:
        seen.append((request.approval, None if request.refusal is None else request.refusal.message))
        return True

    server = Scripted(RISKY, pending("ap-1"), invalid("subject"), pending("ap-2"), done(), **OURS)
    async with server.client(on_confirm=approve) as client:
        await client.evaluate("go")
        await client.invoke("t", {"n": 1})
    assert seen == [("ap-1", None), ("ap-2", "it is subject")]
    assert tokens(server) == [None, "ap-1", None, "ap-2"]


async def test_what_an_approver_denied_is_not_requested_again() -> None:
    server = Scripted(RISKY, pending("ap-1"), invalid("denied"), pending("ap-2"), done(), **OURS)
    calls: list[ApprovalRequest] = []

    def approve(request: ApprovalRequest) -> bool:
        calls.append(request)
        return True

    async with server.client(on_confirm=approve) as client:
        await client.evaluate("go")
        with pytest.raises(ServerError, match="confirmation_invalid: it is denied"):
            await client.invoke("t", {"n": 1})
    assert (len(calls), tokens(server)) == (1, [None, "ap-1"])


async def test_requests_do_not_follow_each_other_for_ever() -> None:
    numbers = itertools.count(1)

    def answer(message: Any) -> Any:
        return pending(f"ap-{next(numbers)}") if message.payload.confirmation_token is None else invalid("subject")

    server = Scripted(RISKY, answer, **OURS)
    async with server.client(on_confirm=lambda _: True) as client:
        await client.evaluate("go")
        with pytest.raises(ServerError, match="confirmation_required") as ended:
            await client.invoke("t", {"n": 1})
    assert tokens(server) == [None, "ap-1", None, "ap-2", None]
    assert str(ended.value.__cause__) == "confirmation_invalid: it is subject"


def view(state: str = "pending", **more: Any) -> ApprovalResult:
    one = ApprovalView(
        id="ap-1",
        requester="ada",
        tool="t",
        roles=(),
        four_eyes=False,
        state=state,  # type: ignore[arg-type]
        created_at="2026-03-02T09:20:00Z",
        expires_at="2026-03-02T10:20:00Z",
        **more,
    )
    return ApprovalResult(approvals=(one,))


DECISIONS: list[tuple[str, Callable[[Client], Any]]] = [
    ("approve", lambda client: client.approve("ap-1")),
    ("deny", lambda client: client.deny("ap-1")),
]


async def test_an_approver_lists_and_reads_requests() -> None:
    server = Scripted(view(), view(text="t: all of it"), **OURS)
    async with server.client() as client:
        (listed,) = await client.approvals()
        assert (await client.approval(listed.id)).text == "t: all of it"
    sent = [
        (one.payload.operation, one.payload.approval) for one in server.received if isinstance(one, ApprovalMessage)
    ]
    assert sent == [("list", None), ("show", "ap-1")]


@pytest.mark.parametrize(("operation", "decide"), DECISIONS)
async def test_an_approver_decides(operation: str, decide: Callable[[Client], Any]) -> None:
    server = Scripted(view("approved", approver="eve"), **OURS)
    async with server.client() as client:
        assert (await decide(client)).approver == "eve"
    (sent,) = [one for one in server.received if isinstance(one, ApprovalMessage)]
    assert (sent.payload.operation, sent.payload.approval) == (operation, "ap-1")


@pytest.mark.parametrize(("_operation", "decide"), DECISIONS)
async def test_a_decision_is_not_sent_twice(_operation: str, decide: Callable[[Client], Any]) -> None:
    """A lost response is reported: the second request could be refused as decided already."""
    server = Scripted(LOSE, view("approved"), **OURS)
    async with server.client() as client:
        with pytest.raises(ConnectionLost):
            await decide(client)
    assert len([one for one in server.received if isinstance(one, ApprovalMessage)]) == 1


async def test_a_list_survives_a_lost_connection() -> None:
    server = Scripted(LOSE, view(), **OURS)
    async with server.client() as client:
        assert len(await client.approvals()) == 1


# --- a server that stores none, and takes a token of its own format --------------------------------------------------


@pytest.mark.req("CLI-05", "SEC-21")
async def test_another_server_gets_nothing_before_the_callback_approved() -> None:
    server = Scripted(RISKY, done())
    requests: list[ApprovalRequest] = []

    async def approve(request: ApprovalRequest) -> str:
        assert server.invocations == []
        requests.append(request)
        return "token"

    async with server.client(on_confirm=approve) as client:
        await client.evaluate("go")
        await client.invoke("t", {"n": 1})
    (request,) = requests
    assert (request.tool.definition.description, request.effects, request.reversible) == (
        "Does t.",
        ("filesystem",),
        False,
    )
    assert (request.args, request.approval) == ({"n": 1}, None)
    assert tokens(server) == ["token"]


@pytest.mark.req("CLI-05", "SEC-21")
@pytest.mark.parametrize("answer", [None, False, ""])
async def test_another_server_gets_nothing_that_was_declined(answer: Any) -> None:
    server = Scripted(RISKY, done())
    async with server.client(on_confirm=lambda _: answer) as client:
        await client.evaluate("go")
        with pytest.raises(RequestRefused, match="confirmation_declined"):
            await client.invoke("t", {"n": 1})
    assert server.invocations == []


@pytest.mark.req("CLI-05")
async def test_another_server_gets_nothing_without_a_callback() -> None:
    server = Scripted(RISKY, done())
    async with server.client() as client:
        await client.evaluate("go")
        with pytest.raises(RequestRefused, match="confirmation_required"):
            await client.invoke("t", {"n": 1})
    assert server.invocations == []


@pytest.mark.req("ERR-46", "CLI-05")
async def test_an_approval_without_a_token_leads_to_the_challenge_of_another_server() -> None:
    server = Scripted(RISKY, REQUIRED, done())
    answers: list[str | bool] = [True, "signed"]
    async with server.client() as client:
        await client.evaluate("go")
        await client.invoke("t", {"n": 1}, on_confirm=lambda _: answers.pop(0))
    assert (tokens(server), answers) == ([None, "signed"], [])
    assert len({one.payload.request_key for one in server.invocations}) == 1


@pytest.mark.req("ERR-46")
async def test_a_server_may_require_what_the_tool_did_not_announce() -> None:
    server = Scripted(tools(writes()), REQUIRED, done())
    async with server.client(on_confirm=lambda _: "token") as client:
        await client.evaluate("go")
        await client.invoke("t")
    assert tokens(server) == [None, "token"]
    server = Scripted(tools(writes()), REQUIRED)
    async with server.client() as client:
        await client.evaluate("go")
        with pytest.raises(ServerError, match="confirmation_required") as refused:
            await client.invoke("t")
    assert refused.value.approval is None


async def test_the_callback_is_not_called_for_ever() -> None:
    server = Scripted(RISKY, WireError("confirmation_invalid", "no"))
    numbers = itertools.count(1)
    async with server.client(on_confirm=lambda _: f"token {next(numbers)}") as client:
        await client.evaluate("go")
        with pytest.raises(ServerError, match="confirmation_invalid"):
            await client.invoke("t")
    assert tokens(server) == ["token 1", "token 2", "token 3"]


async def test_why_the_first_approval_did_not_hold_is_never_hidden() -> None:
    answers: list[str | bool] = ["old token", True, True]
    seen: list[str | None] = []

    def approve(request: ApprovalRequest) -> str | bool:
        seen.append(None if request.refusal is None else request.refusal.message)
        return answers[len(seen) - 1]

    server = Scripted(RISKY, WireError("confirmation_invalid", "it is too old"), REQUIRED, REQUIRED)
    async with server.client(on_confirm=approve) as client:
        await client.evaluate("go")
        with pytest.raises(ServerError, match="confirmation_required") as ended:
            await client.invoke("t")
    assert seen == [None, "it is too old", "it is too old"]
    assert str(ended.value.__cause__) == "confirmation_invalid: it is too old"
    seen.clear()
    answers[1] = False
    server = Scripted(RISKY, WireError("confirmation_invalid", "it is too old"))
    async with server.client(on_confirm=approve) as client:
        await client.evaluate("go")
        with pytest.raises(
            RequestRefused, match=r"confirmation_declined: .* rejected the first approval: .*it is too old"
        ) as declined:
            await client.invoke("t")
    assert isinstance(declined.value.__cause__, ServerError)


@pytest.mark.req("SEC-23")
async def test_nobody_is_asked_where_the_server_said_that_it_does_not() -> None:
    server = Scripted(known("network", "filesystem"), RISKY, done(), auth=AUTH)
    async with server.client(token="x", on_confirm=lambda _: pytest.fail("asked")) as client:
        await client.evaluate("go")
        await client.invoke("t")
    assert tokens(server) == [None]


@pytest.mark.req("SEC-23")
@pytest.mark.parametrize("who", [known("network"), known(), known("filesystem", trust="user")])
async def test_all_effects_have_to_be_waived(who: Authenticated) -> None:
    server = Scripted(who, RISKY, done(), auth=AUTH)
    async with server.client(token="x") as client:
        await client.evaluate("go")
        with pytest.raises(RequestRefused, match="confirmation_required"):
            await client.invoke("t")
