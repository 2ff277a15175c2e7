"""A person is asked before anything is sent, and no token is sent without consent."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from manglecp.base.digest import digest
from manglecp.client.consent import ApprovalRequest, Signer
from manglecp.client.errors import RequestRefused, ServerError
from manglecp.invoke.approval import verify
from manglecp.wire import WireError
from manglecp.wire.messages import Authenticated
from tests.client.scripted import Scripted, done, tools, writes

CHALLENGE = {
    "nonce": "n" * 32,
    "issued_ms": 1_000,
    "expires_at": "1970-01-01T00:05:01Z",
    "text": "Write 1 to the disk",
    "args_digest": "sha256:of something else",
}
ASKED = WireError("confirmation_required", "A person has to agree first", {"challenge": CHALLENGE})
RISKY = tools(writes(confirm=True, reversible=False))
AUTH = {"required": True, "schemes": ["bearer"]}


def known(*effects: str, trust: str = "automated") -> Authenticated:
    return Authenticated(
        status="authenticated", identity="ada", permissions=(), trust_level=trust, auto_confirm_effects=effects
    )


@pytest.mark.req("CLI-05", "SEC-21")
async def test_a_person_is_asked_before_anything_is_sent() -> None:
    server = Scripted(RISKY, done())
    questions: list[ApprovalRequest] = []

    async def ask(question: ApprovalRequest) -> str:
        assert server.invocations == []
        questions.append(question)
        return "token"

    async with server.client(on_confirm=ask) as client:
        await client.evaluate("go")
        await client.invoke("t", {"n": 1})
    (question,) = questions
    assert (question.text, question.effects, question.reversible) == ("Does t.", ("filesystem",), False)
    assert (question.args, question.challenge) == ({"n": 1}, None)
    assert [one.payload.confirmation_token for one in server.invocations] == ["token"]


@pytest.mark.req("CLI-05", "SEC-21")
@pytest.mark.parametrize("answer", [None, False, ""])
async def test_without_consent_nothing_is_sent(answer: Any) -> None:
    server = Scripted(RISKY, done())
    async with server.client(on_confirm=lambda _: answer) as client:
        await client.evaluate("go")
        with pytest.raises(RequestRefused, match="confirmation_declined"):
            await client.invoke("t", {"n": 1})
    assert server.invocations == []


@pytest.mark.req("CLI-05")
async def test_with_nobody_to_ask_nothing_is_sent() -> None:
    server = Scripted(RISKY, done())
    async with server.client() as client:
        await client.evaluate("go")
        with pytest.raises(RequestRefused, match="confirmation_required"):
            await client.invoke("t", {"n": 1})
    assert server.invocations == []


@pytest.mark.req("ERR-46", "CLI-05")
async def test_who_agrees_without_a_token_sees_the_servers_challenge() -> None:
    server = Scripted(RISKY, ASKED, done())
    questions: list[ApprovalRequest] = []

    def ask(question: ApprovalRequest) -> str | bool:
        questions.append(question)
        return "signed" if question.challenge else True

    async with server.client() as client:
        await client.evaluate("go")
        await client.invoke("t", {"n": 1}, on_confirm=ask)
    assert [one.text for one in questions] == ["Does t.", "Write 1 to the disk"]
    first, second = server.invocations
    assert (first.payload.confirmation_token, second.payload.confirmation_token) == (None, "signed")
    assert first.payload.request_key == second.payload.request_key


@pytest.mark.req("ERR-46")
async def test_a_server_may_ask_although_the_tool_did_not_say_so() -> None:
    server = Scripted(tools(writes()), ASKED, done())
    async with server.client(on_confirm=lambda _: "token") as client:
        await client.evaluate("go")
        await client.invoke("t")
    assert [one.payload.confirmation_token for one in server.invocations] == [None, "token"]
    server = Scripted(tools(writes()), ASKED)
    async with server.client() as client:
        await client.evaluate("go")
        with pytest.raises(ServerError, match="confirmation_required"):
            await client.invoke("t")


async def test_nobody_is_asked_for_ever() -> None:
    server = Scripted(RISKY, WireError("confirmation_invalid", "no"))
    numbers = itertools.count(1)
    async with server.client(on_confirm=lambda _: f"token {next(numbers)}") as client:
        await client.evaluate("go")
        with pytest.raises(ServerError, match="confirmation_invalid"):
            await client.invoke("t")
    assert [one.payload.confirmation_token for one in server.invocations] == ["token 1", "token 2", "token 3"]


async def test_why_the_first_consent_did_not_hold_is_never_hidden() -> None:
    """Whatever comes after it, and whoever is asked again knows."""
    answers: list[str | bool] = ["old token", True, True]
    asked: list[str | None] = []

    def ask(question: ApprovalRequest) -> str | bool:
        asked.append(None if question.refusal is None else question.refusal.message)
        return answers[len(asked) - 1]

    server = Scripted(RISKY, WireError("confirmation_invalid", "it is too old"), ASKED, ASKED)
    async with server.client(on_confirm=ask) as client:
        await client.evaluate("go")
        with pytest.raises(ServerError, match="confirmation_required") as ended:
            await client.invoke("t")
    assert asked == [None, "it is too old", "it is too old"]
    assert str(ended.value.__cause__) == "confirmation_invalid: it is too old"
    asked.clear()
    answers[1] = False
    server = Scripted(RISKY, WireError("confirmation_invalid", "it is too old"))
    async with server.client(on_confirm=ask) as client:
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
    assert server.invocations[0].payload.confirmation_token is None


@pytest.mark.req("SEC-23")
@pytest.mark.parametrize("who", [known("network"), known(), known("filesystem", trust="user")])
async def test_all_effects_have_to_be_waived(who: Authenticated) -> None:
    server = Scripted(who, RISKY, done(), auth=AUTH)
    async with server.client(token="x") as client:
        await client.evaluate("go")
        with pytest.raises(RequestRefused, match="confirmation_required"):
            await client.invoke("t")


# --- signing ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("challenged", [False, True])
async def test_a_signature_holds_for_what_was_shown(challenged: bool) -> None:
    secret, now = b"0" * 32, 1_000
    signer = Signer(secret, "ada", approve=lambda _: True, clock_ms=lambda: now)
    first = (RISKY, ASKED) if challenged else (RISKY,)
    server = Scripted(*first, done())
    asked = 0

    async def ask(question: ApprovalRequest) -> str | bool | None:
        nonlocal asked
        asked += 1
        return True if challenged and asked == 1 else await signer(question)

    async with server.client(on_confirm=ask) as client:
        await client.evaluate("go")
        await client.invoke("t", {"n": 1})
    token = server.invocations[-1].payload.confirmation_token
    assert token is not None
    consent = verify(token, secret, "ada", "m-t", digest({"n": 1}), now)
    assert consent is not None
    assert (consent.nonce == CHALLENGE["nonce"]) is challenged
    assert verify(token, secret, "ada", "m-t", digest({"n": 2}), now) is None
    assert verify(token, secret, "eve", "m-t", digest({"n": 1}), now) is None


async def test_who_says_no_signs_nothing() -> None:
    async def no(_: ApprovalRequest) -> bool:
        return False

    server = Scripted(RISKY, done())
    async with server.client(on_confirm=Signer(b"s", "ada", approve=no)) as client:
        await client.evaluate("go")
        with pytest.raises(RequestRefused, match="confirmation_declined"):
            await client.invoke("t")
    assert server.invocations == []


async def test_the_identity_is_that_of_the_session() -> None:
    secret = b"0" * 32
    server = Scripted(known(trust="user"), RISKY, done(), auth=AUTH)
    signer = Signer(secret, approve=lambda _: True, clock_ms=lambda: 5)
    async with server.client(token="x", on_confirm=signer) as client:
        await client.evaluate("go")
        await client.invoke("t")
    token = server.invocations[0].payload.confirmation_token
    assert token is not None
    assert verify(token, secret, "ada", "m-t", digest({}), 5) is not None
