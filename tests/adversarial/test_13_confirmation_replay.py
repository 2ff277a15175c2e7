"""Case 13: a consent is for one identity, one tool, one set of arguments, one time, and cannot be made by an agent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from manglecp.intent import Identity
from manglecp.invoke import Secrets
from manglecp.wire import sign_confirmation
from tests.adversarial._invoked import invoked
from tests.intent.packs import NOW
from tests.invoke.chains import chain, effect
from tests.invoke.workshop import ME, SECRETS, Shop, shop, token_for

PAY = effect("pay", 3, ("payments",), params={"n": {"type": "integer"}, "to": {"type": "string"}})
RULES = (
    'macro_step("t", 1, "pay").',
    'macro("u", "Another."). mandatory("u"). macro_step("u", 1, "pay").',
)
ARGS = {"n": 100, "to": "kim"}
KIM = Identity("kim")


async def challenged(s: Shop, identity: Identity = ME) -> dict[str, Any]:
    error = await s.refused("t", ARGS, identity=identity)
    assert error.details is not None
    found: dict[str, Any] = error.details["challenge"]
    return found


async def refused(s: Shop, token: str, tool: str = "t", args: Any = None, identity: Identity = ME) -> None:
    error = await s.refused(tool, args or ARGS, identity=identity, confirmation_token=token)
    assert (error.code, error.details) == ("confirmation_invalid", None)


@pytest.mark.req("INVK-10", "ERR-27", "SEC-22", "SEC-37")
@invoked
async def test_a_token_fits_what_it_was_made_for_and_nothing_else() -> None:
    async with shop(chain(*RULES, actions=(PAY,))) as s:
        token = token_for(await challenged(s))
        for change in ({"n": 101}, {"to": "kin"}, {"to": "kim "}, {"to": "Kim"}):
            await refused(s, token, args={**ARGS, **change})
        await refused(s, token, tool="u")
        await s.tools(identity=KIM)
        await refused(s, token, identity=KIM)
        assert s.bench.ran == []
        await s.invoke("t", dict(reversed(ARGS.items())), confirmation_token=token)  # the same in another order
        await refused(s, token)
        await refused(s, token)
        assert s.bench.ran == [("pay", ARGS)]


CHANGES: list[Callable[[list[str]], Any]] = [
    lambda parts: parts.__setitem__(0, "v2"),
    lambda parts: parts.__setitem__(1, parts[1][:-1] + ("A" if parts[1][-1] != "A" else "B")),
    lambda parts: parts.__setitem__(2, str(int(parts[2]) + 1)),
    lambda parts: parts.__setitem__(2, "0" + parts[2]),
    lambda parts: parts.__setitem__(2, "+" + parts[2]),
    lambda parts: parts.__setitem__(3, parts[3][:-1]),
    lambda parts: parts.__setitem__(3, parts[3] + "="),
    lambda parts: parts.__setitem__(3, parts[3].swapcase()),
    lambda parts: parts.__setitem__(3, "A" * 43),
    lambda parts: parts.append(""),
    lambda parts: parts.pop(),
    lambda parts: parts.__setitem__(3, parts[3] + "\n"),
]


@pytest.mark.parametrize("change", range(len(CHANGES)))
@invoked
async def test_a_token_that_was_touched_is_none(change: int) -> None:
    async with shop(chain(*RULES, actions=(PAY,))) as s:
        parts = token_for(await challenged(s)).split(".")
        CHANGES[change](parts)
        await refused(s, ".".join(parts))
        assert s.bench.ran == []


@pytest.mark.parametrize("secret", [b"", b"guess", b"a secret of this test, 32 bytes."], ids=["none", "guess", "raw"])
@invoked
async def test_an_agent_cannot_make_one(secret: bytes) -> None:
    """With what it knows: the challenge. The secret of the machine is not the one of an identity either."""
    async with shop(chain(*RULES, actions=(PAY,))) as s:
        asked = await challenged(s)
        what = (asked["macro_id"], asked["args_digest"], asked["nonce"], asked["issued_ms"])
        await refused(s, sign_confirmation(secret, ME.name, *what))
        other = SECRETS.of("somebody")
        assert other is not None
        await refused(s, sign_confirmation(other, ME.name, *what))
        assert s.bench.ran == []


@invoked
async def test_late_is_never() -> None:
    clock = [NOW]
    async with shop(chain(*RULES, actions=(PAY,)), clock=lambda: clock[0]) as s:
        token = token_for(await challenged(s))
        clock[0] += 300 * 10**9
        await refused(s, token)
        clock[0] -= 400 * 10**9  # a clock that is set back makes it a token of the future
        await refused(s, token)
        assert s.bench.ran == []


@invoked
async def test_names_cannot_be_arranged_to_look_alike() -> None:
    """What is signed is a list of lines: no name can take over the next line."""
    secret = b"the same for both"
    odd = Identity("me\nm-1")
    assert sign_confirmation(secret, "me", "m-1\nx", "d", "n" * 16, 1) != sign_confirmation(
        secret, "me\nm-1", "x", "d", "n" * 16, 1
    )
    async with shop(chain(*RULES, actions=(PAY,))) as s:
        token = token_for(await challenged(s, odd), odd)
        await refused(s, token)
        await s.invoke("t", ARGS, identity=odd, confirmation_token=token)
    assert Secrets(local=b"x").of("me") != Secrets(local=b"x").of("me\nm-1")
