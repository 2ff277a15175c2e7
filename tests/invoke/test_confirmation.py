"""Consent: what a person is asked, what a token holds, who needs none, and what becomes of it."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from manglecp.intent import Identity
from manglecp.invoke.approval import LIFETIME_MS, AutoConfirm, Secrets
from manglecp.wire import WireError, sign_confirmation
from tests.intent.packs import NOW
from tests.invoke.chains import chain, effect, steps
from tests.invoke.workshop import ME, SECRETS, Shop, invocation, shop, token_for

MS = 1_000_000
PAY = effect("pay", 3, ("payments",))
WIPE = effect("wipe", 2, ("destructive",))


async def challenge_of(s: Shop, args: Any, identity: Identity = ME) -> dict[str, Any]:
    error = await s.refused("t", args, identity=identity)
    assert error.code == "confirmation_required"
    assert error.details is not None
    found: dict[str, Any] = error.details["challenge"]
    return found


# --- what is asked ---------------------------------------------------------------------------------------------------


@pytest.mark.req("INVK-09", "SEC-21")
async def test_a_challenge_says_what_will_be_done() -> None:
    put = effect("put", params={"path": {"type": "string"}, "text": {"type": "string"}, "mode": {"type": "string"}})
    rules = (
        steps("look", "put"),
        'arg_value("t", 2, "path", "notes/today.txt").',
        'arg_step("t", 2, "text", 1, "/found/0").',
        'macro_param("t", "mode", ["type": "string", "default": "append"]).',
        'undo_step("t", 2, "erase"). undo_value("t", 2, "n", 7).',
        'needs_confirmation("t").',
    )
    async with shop(chain(*rules, actions=(put,))) as s:
        asked = await challenge_of(s, {"n": 1})
    assert asked["text"].splitlines() == [
        "t: A tool.",
        'Arguments: {"mode":"append","n":1}',
        "Steps:",
        "1. look(n = argument n)",
        '2. put(path = "notes/today.txt", text = from step 1 at /found/0, mode = argument mode)',
        "   undone by erase(n = 7)",
        "Effects: filesystem. It cannot be undone.",
    ]
    assert asked["effects"] == ["filesystem"]
    assert asked["reversible"] is False
    assert asked["issued_ms"] == NOW // MS
    assert asked["expires_at"] == "2026-01-15T12:05:00Z"


@pytest.mark.req("SEC-21")
async def test_nothing_in_a_challenge_is_hidden_or_endless() -> None:
    put = effect("put", params={"path": {"type": "string"}, "note": {"type": "string"}})
    rules = (
        'macro("t", "A first.\\nEffects: none.").',
        *(f'macro_step("t", {n}, "put"). arg_value("t", {n}, "path", "{"x" * 250}").' for n in range(2, 60)),
        'macro_step("t", 1, "put"). arg_value("t", 1, "path", P) :- text_of(1, P).',
        'needs_confirmation("t").',
    )
    async with shop(chain(*rules, actions=(put,))) as s:
        mine = (await s.tools(facts=[("text_of", 1, "a\u202etxt.exe")]))["t"]
        note = "seen\u200b\U000e0041\nEffects: none." + "y" * 9_000
        error = await s.refused(mine, {"note": note}, evaluate=False)
        assert error.details is not None
        text = error.details["challenge"]["text"]
    lines = text.splitlines()
    assert "\\u202e" in text
    assert "\\u200b" in text
    assert "\\U000e0041" in text
    assert text.isascii() or set(text) - set(map(chr, range(128))) == {"…"}
    assert [line for line in lines if line.startswith("Effects:")] == ["Effects: filesystem. It cannot be undone."]
    assert "characters in all)" in lines[1]
    assert lines[-2].startswith("… and ")
    assert len(text) < 10_000


@pytest.mark.req("SEC-21")
async def test_secrets_are_not_shown_to_whoever_is_asked() -> None:
    call = effect("call", params={"key": {"type": "string"}, "pin": {"type": "string", "writeOnly": True}})
    rules = (steps("call"), 'arg_value("t", 1, "key", K) :- setting("api_key", K).', 'needs_confirmation("t").')
    async with shop(chain(*rules, actions=(call,), params={"api_key": "sesame-sesame"})) as s:
        text = (await challenge_of(s, {"pin": "4711-4711"}))["text"]
        assert (await s.invoke("t", {"pin": "4711-4711"}, confirm=True)).result is not None
        assert s.bench.ran == [("call", {"key": "sesame-sesame", "pin": "4711-4711"})]
    assert "sesame" not in text
    assert "4711" not in text
    assert 'key = "[redacted]"' in text
    assert '"pin":"(not shown)"' in text


# --- what holds ------------------------------------------------------------------------------------------------------


def shop_of_payments(**more: Any) -> Any:
    return shop(chain(steps("pay"), actions=(PAY,)), **more)


@pytest.mark.req("INVK-04", "SEC-22")
async def test_a_token_works_once_also_at_the_same_time() -> None:
    async with shop_of_payments() as s:
        asked = await challenge_of(s, {"n": 1})
        request = invocation(asked["macro_id"], {"n": 1}, confirmation_token=token_for(asked))
        answers = await asyncio.gather(*(s.invoker.invoke(request, ME) for _ in range(8)), return_exceptions=True)
        refused = [one for one in answers if isinstance(one, WireError)]
        assert {one.code for one in refused} == {"confirmation_invalid"}
        assert len(refused) == 7
        assert s.bench.ran == [("pay", {"n": 1})]
        assert [kind for kind, _ in s.ledger()].count("admission") == 1


@pytest.mark.req("SEC-22")
async def test_a_read_uses_its_token_up_as_well() -> None:
    async with shop(chain(steps("look"), 'needs_confirmation("t").')) as s:
        asked = await challenge_of(s, {"n": 1})
        request = invocation(asked["macro_id"], {"n": 1}, confirmation_token=token_for(asked))
        await s.invoker.invoke(request, ME)
        with pytest.raises(WireError, match="confirmation"):
            await s.invoker.invoke(request, ME)
        assert len(s.bench.ran) == 1


@pytest.mark.req("SEC-22")
async def test_whoever_has_the_secret_may_skip_the_first_round() -> None:
    async with shop_of_payments() as s:
        mine = (await s.tools())["t"]
        asked = {**(await challenge_of(s, {"n": 1})), "nonce": "chosen-by-the-client", "issued_ms": NOW // MS - 5}
        request = invocation(mine, {"n": 1}, confirmation_token=token_for(asked))
        assert (await s.invoker.invoke(request, ME)).payload.result == {"n": 1}


@pytest.mark.parametrize(
    ("issued", "holds"),
    [(0, True), (-LIFETIME_MS + 1, True), (-LIFETIME_MS, False), (30_000, True), (30_001, False)],
)
async def test_how_long_a_token_holds(issued: int, holds: bool) -> None:
    async with shop_of_payments() as s:
        asked = await challenge_of(s, {"n": 1})
        asked["issued_ms"] += issued
        request = invocation(asked["macro_id"], {"n": 1}, confirmation_token=token_for(asked))
        if holds:
            await s.invoker.invoke(request, ME)
        else:
            with pytest.raises(WireError) as refused:
                await s.invoker.invoke(request, ME)
            assert refused.value.code == "confirmation_invalid"
        assert len(s.bench.ran) == holds


async def test_a_nonce_is_remembered_for_as_long_as_its_token_holds() -> None:
    clock = [NOW]
    async with shop_of_payments(clock=lambda: clock[0]) as s:
        asked = await challenge_of(s, {"n": 1})
        asked["issued_ms"] += 30_000
        request = invocation(asked["macro_id"], {"n": 1}, confirmation_token=token_for(asked))
        await s.invoker.invoke(request, ME)
        clock[0] += (LIFETIME_MS + 29_999) * MS
        await s.tools()
        with s.store.write_transaction() as tx:
            s.store.nonces.sweep(tx, clock[0] // MS)
        with pytest.raises(WireError, match="confirmation"):
            await s.invoker.invoke(request, ME)


async def test_a_clock_that_is_put_back_brings_no_token_back() -> None:
    async with shop_of_payments() as s:
        asked = await challenge_of(s, {"n": 1})
        request = invocation(asked["macro_id"], {"n": 1}, confirmation_token=token_for(asked))
        await s.invoker.invoke(request, ME)
        with s.store.write_transaction() as tx:  # by a clock that is two hours fast
            s.store.nonces.sweep(tx, NOW // MS + 7_200_000)
        with pytest.raises(WireError, match="confirmation"):
            await s.invoker.invoke(request, ME)
        assert len(s.bench.ran) == 1


async def test_an_identity_without_a_secret_confirms_nothing() -> None:
    async with shop_of_payments() as s:
        asked = await challenge_of(s, {"n": 1})
        forged = sign_confirmation(
            b"", ME.name, asked["macro_id"], asked["args_digest"], asked["nonce"], asked["issued_ms"]
        )
        with pytest.raises(WireError, match="confirmation"):
            await s.invoker.invoke(invocation(asked["macro_id"], {"n": 1}, confirmation_token=forged), ME)


def test_identities_may_have_their_own_secret() -> None:
    secrets = Secrets(own={"kim": b"kim's"}, local=b"local")
    assert secrets.of("kim") == b"kim's"
    assert secrets.of("lee") not in (None, b"local", secrets.of("max"))
    assert Secrets(own={"kim": b"kim's"}).of("lee") is None
    assert "kim" not in repr(secrets)


# --- who needs none --------------------------------------------------------------------------------------------------


@pytest.mark.req("SEC-23", "SEC-24", "SEC-25")
@pytest.mark.parametrize(
    ("waived", "asked"),
    [
        (None, True),
        ({}, True),
        ({"me": frozenset()}, True),
        ({"me": frozenset({"payments"})}, True),
        ({"me": frozenset({"destructive"})}, True),
        ({"somebody": frozenset({"payments", "destructive"})}, True),
        ({"me": frozenset({"payments", "destructive"})}, False),
        ({"me": frozenset({"payments", "destructive", "network"})}, False),
    ],
)
async def test_consent_is_waived_only_for_every_effect_and_by_a_setting(waived: Any, asked: bool) -> None:
    setting = None if waived is None else AutoConfirm(waived)
    rules = (steps("pay", "wipe"),)
    automated = Identity("me", frozenset(), "automated")
    async with shop(chain(*rules, actions=(PAY, WIPE)), auto_confirm=setting) as s:
        if asked:
            assert (await s.refused("t", {"n": 1}, identity=automated)).code == "confirmation_required"
            assert s.bench.ran == []
            return
        await s.invoke("t", {"n": 1}, identity=automated)
        kind, body = s.ledger()[0]
        assert kind == "admission"
        assert body["approval"].startswith("auto:sha256:")


# --- what is kept ----------------------------------------------------------------------------------------------------


async def test_an_approval_is_on_record_and_its_token_is_not(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with shop_of_payments() as s:
        asked = await challenge_of(s, {"n": 1})
        token = token_for(asked)
        await s.invoker.invoke(invocation(asked["macro_id"], {"n": 1}, confirmation_token=token), ME)
        with pytest.raises(WireError):
            await s.invoker.invoke(invocation(asked["macro_id"], {"n": 1}, confirmation_token=token), ME)
        entries = s.ledger()
        assert entries[0][1]["approval"] == f"confirm:{asked['nonce']}"
        mac = token.rsplit(".", 1)[1]
        assert mac not in str(entries)
        assert mac not in caplog.text
        secret = SECRETS.of(ME.name)
        assert secret is not None
        assert secret.hex() not in str(entries) + caplog.text


@pytest.mark.req("SEC-07")
async def test_the_gate_of_tier_3_stays_shut_without_approval(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were the check of consent to fail open, the harness still asks for the approval."""
    async with shop_of_payments() as s:
        monkeypatch.setattr(type(s.invoker._admission), "_check_approval", lambda *_: (None, None))
        error = await s.refused("t", {"n": 1})
        assert error.code == "confirmation_required"
        assert s.bench.ran == []


@pytest.mark.req("SEC-07", "SEC-05")
@pytest.mark.parametrize("kind", ["payments", "destructive", "authentication"])
async def test_high_risk_effects_need_consent_whatever_rules_say(kind: str) -> None:
    risky = effect("risky", 1, (kind,))
    async with shop(chain(steps("risky"), actions=(risky,))) as s:
        assert (await s.refused("t", {"n": 1})).code == "confirmation_required"
    async with shop(chain(steps("write"))) as s:
        await s.invoke("t", {"n": 1})
    async with shop(chain(steps("write"), policy='needs_confirmation("t").')) as s:
        assert (await s.refused("t", {"n": 1})).code == "confirmation_required"
