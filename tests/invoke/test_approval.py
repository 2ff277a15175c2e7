"""Approvals: what an approver is shown, what an approval is bound to, who may decide, and what is on record."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from manglecp.intent import Identity
from manglecp.invoke.approval import APPROVE, LIFETIME_MS, MAX_TEXT, OPERATOR
from manglecp.store import Approval
from manglecp.store.approvals import MAX_PENDING
from manglecp.wire import WireError
from manglecp.wire.messages import Safety
from tests.intent.packs import NOW, request
from tests.invoke.chains import chain, effect, steps
from tests.invoke.workshop import APPROVER, ME, Shop, invocation, shop, waiving

MS = 1_000_000
PAY = effect("pay", 3, ("payments",))
WIPE = effect("wipe", 2, ("destructive",))


async def requested(s: Shop, args: Any, identity: Identity = ME, **more: Any) -> Approval:
    """Invoke without an approval, and return the request as an approver reads it."""
    error = await s.refused("t", args, identity=identity, **more)
    assert error.code == "confirmation_required"
    assert error.details is not None
    with s.store.read_transaction() as tx:
        found = s.store.approvals.find(tx, error.details["challenge"]["approval"])
    assert found is not None
    return found


def decide(s: Shop, approval: Approval, approver: Identity = APPROVER, verdict: Any = "approved") -> Approval:
    return s.invoker.approvals.decide(approver, approval.id, verdict)


async def use(s: Shop, approval: Approval, args: Any, identity: Identity = ME) -> WireError | None:
    """Invoke with the approval, and return the error."""
    macro_id = (await s.tools(identity=identity))["t"]
    try:
        await s.invoker.invoke(invocation(macro_id, args, confirmation_token=approval.id), identity)
    except WireError as error:
        return error
    return None


def reason(error: WireError | None) -> str:
    assert error is not None
    assert error.code == "confirmation_invalid"
    assert error.details is not None
    found: str = error.details["reason"]
    return found


# --- text ------------------------------------------------------------------------------------------------------------


@pytest.mark.req("INVK-09", "SEC-21")
async def test_a_request_shows_every_step_with_every_argument() -> None:
    put = effect("put", params={"path": {"type": "string"}, "text": {"type": "string"}, "mode": {"type": "string"}})
    rules = (
        steps("look", "put"),
        'arg_value("t", 2, "path", "notes/today.txt").',
        'arg_step("t", 2, "text", 1, "/found/0").',
        'macro_param("t", "mode", ["type": "string", "default": "append"]).',
        'undo_step("t", 2, "erase"). undo_value("t", 2, "n", 7).',
        'needs_confirmation("t").',
    )
    async with shop(chain(*rules, actions=(put,)), {"look": lambda _: {"found": ["a\nb"]}}) as s:
        request = await requested(s, {"n": 1})
    assert request.text.splitlines() == [
        "t: A tool.",
        "Requested by: me",
        'Arguments: {"mode":"append","n":1}',
        "Steps:",
        "1. look(n = 1)",
        '2. put(path = "notes/today.txt", text = from step 1 at /found/0, mode = "append")',
        "   undone by erase(n = 7)",
        "Effects: filesystem. It cannot be undone.",
        "Values of step 2:",
        "  text:",
        "  | a",
        "  | b",
    ]
    assert request.expires_ms == NOW // MS + LIFETIME_MS


@pytest.mark.req("SEC-21")
async def test_the_requester_gets_the_id_and_no_text() -> None:
    async with shop_of_payments() as s:
        error = await s.refused("t", {"n": 1})
    assert error.details is not None
    assert error.details["challenge"] == {
        "approval": error.details["challenge"]["approval"],
        "expires_at": "2026-01-15T13:00:00Z",
        "roles": [],
        "four_eyes": False,
    }


@pytest.mark.req("SEC-21")
async def test_no_part_of_a_request_is_hidden_or_left_out() -> None:
    put = effect("put", params={"path": {"type": "string"}, "note": {"type": "string"}})
    rules = (
        *(f'macro_step("t", {n}, "put"). arg_value("t", {n}, "path", "{n}{"x" * 250}").' for n in range(2, 60)),
        'macro_step("t", 1, "put"). arg_value("t", 1, "path", P) :- text_of(1, P).',
        'needs_confirmation("t").',
    )
    async with shop(chain(*rules, actions=(put,))) as s:
        mine = (await s.tools(facts=[("text_of", 1, "a\u202etxt.exe")]))["t"]
        note = "seen\u200b\U000e0041\nEffects: none." + "y" * 9_000 + "the end"
        error = await s.refused(mine, {"note": note}, evaluate=False)
        text = s.invoker.approvals.show(APPROVER, (error.details or {})["challenge"]["approval"]).text
    lines = text.splitlines()
    assert "a\\u202etxt.exe" in text
    assert "seen\\u200b\\U000e0041" in text
    assert text.isascii()
    assert [line for line in lines if line.startswith("Effects:")] == ["Effects: filesystem. It cannot be undone."]
    assert "y" * 9_000 + "the end" in lines[2]
    assert all(any(line.startswith(f'{n}. put(path = "{n}{"x" * 250}"') for line in lines) for n in range(2, 60))


@pytest.mark.req("SEC-21")
async def test_a_request_that_cannot_be_shown_whole_is_refused() -> None:
    put = effect("put", params={"note": {"type": "string"}})
    async with shop(chain(steps("put"), 'needs_confirmation("t").', actions=(put,))) as s:
        error = await s.refused("t", {"note": "y" * MAX_TEXT})
        assert error.code == "x-approval_too_large"
        assert s.invoker.approvals.pending(APPROVER) == []


@pytest.mark.req("SEC-21")
async def test_secrets_are_not_shown_to_approvers() -> None:
    call = effect("call", params={"key": {"type": "string"}, "pin": {"type": "string", "writeOnly": True}})
    rules = (steps("call"), 'arg_value("t", 1, "key", K) :- setting("api_key", K).', 'needs_confirmation("t").')
    async with shop(chain(*rules, actions=(call,), params={"api_key": "sesame-sesame"})) as s:
        text = (await requested(s, {"pin": "4711-4711"})).text
        assert (await s.invoke("t", {"pin": "4711-4711"}, confirm=True)).result is not None
        assert s.bench.ran == [("call", {"key": "sesame-sesame", "pin": "4711-4711"})]
    assert "sesame" not in text
    assert "4711-4711" not in text
    assert 'key = "[redacted]"' in text
    assert '"pin":"(not shown)"' in text


# --- binding ---------------------------------------------------------------------------------------------------------


def shop_of_payments(*rules: str, **more: Any) -> Any:
    return shop(chain(steps("pay"), *rules, actions=(PAY,)), **more)


@pytest.mark.req("INVK-04", "SEC-22")
async def test_an_approval_works_once_also_at_the_same_time() -> None:
    async with shop_of_payments() as s:
        approval = decide(s, await requested(s, {"n": 1}))
        answers = await asyncio.gather(*(use(s, approval, {"n": 1}) for _ in range(8)))
        refused = [one for one in answers if one is not None]
        assert {reason(one) for one in refused} == {"used"}
        assert len(refused) == 7
        assert s.bench.ran == [("pay", {"n": 1})]
        assert [kind for kind, _ in s.ledger()].count("admission") == 1


@pytest.mark.req("SEC-22")
async def test_a_read_uses_its_approval_up_as_well() -> None:
    async with shop(chain(steps("look"), 'needs_confirmation("t").')) as s:
        approval = decide(s, await requested(s, {"n": 1}))
        assert await use(s, approval, {"n": 1}) is None
        assert reason(await use(s, approval, {"n": 1})) == "used"
        assert len(s.bench.ran) == 1


@pytest.mark.req("INVK-10", "SEC-22")
async def test_an_approval_is_for_one_call_of_one_requester() -> None:
    async with shop_of_payments() as s:
        approval = decide(s, await requested(s, {"n": 1}))
        assert reason(await use(s, approval, {"n": 2})) == "other_call"
        assert reason(await use(s, approval, {"n": 1}, Identity("kim", ME.permissions, "user"))) == "other_call"
        assert reason(await use(s, Approval(**{**_members(approval), "id": "ap-invented"}), {"n": 1})) == "other_call"
        assert s.bench.ran == []
        assert await use(s, approval, {"n": 1}) is None


def _members(approval: Approval) -> dict[str, Any]:
    return {name: getattr(approval, name) for name in Approval.__struct_fields__}


async def test_client_signed_tokens_of_version_1_are_refused() -> None:
    async with shop_of_payments() as s:
        request = await requested(s, {"n": 1})
        forged = Approval(**{**_members(request), "id": f"v1.{'n' * 24}.{NOW // MS}.{'A' * 43}"})
        assert reason(await use(s, forged, {"n": 1})) == "other_call"
        assert s.bench.ran == []


async def test_a_pending_request_stays_the_same_one() -> None:
    async with shop_of_payments() as s:
        first, second = await requested(s, {"n": 1}), await requested(s, {"n": 1})
        assert first.id == second.id
        assert (await requested(s, {"n": 2})).id != first.id
        error = await use(s, first, {"n": 1})
        assert error is not None
        assert error.code == "confirmation_required"
        assert (error.details or {})["challenge"]["approval"] == first.id


@pytest.mark.parametrize(("after_ms", "holds"), [(0, True), (LIFETIME_MS - 1, True), (LIFETIME_MS, False)])
async def test_an_approval_expires(after_ms: int, holds: bool) -> None:
    clock = [NOW]
    async with shop_of_payments(clock=lambda: clock[0]) as s:
        approval = decide(s, await requested(s, {"n": 1}))
        clock[0] += after_ms * MS
        error = await use(s, approval, {"n": 1})
        assert (error is None) == holds
        if not holds:
            assert reason(error) == "expired"
        assert len(s.bench.ran) == holds


async def test_an_expired_request_cannot_be_approved() -> None:
    clock = [NOW]
    async with shop_of_payments(clock=lambda: clock[0]) as s:
        request = await requested(s, {"n": 1})
        clock[0] += LIFETIME_MS * MS
        with pytest.raises(WireError, match="is expired"):
            decide(s, request)
        assert s.invoker.approvals.pending(APPROVER) == []


async def test_a_denied_request_stays_denied() -> None:
    async with shop_of_payments() as s:
        denied = decide(s, await requested(s, {"n": 1}), verdict="denied")
        assert reason(await use(s, denied, {"n": 1})) == "denied"
        with pytest.raises(WireError, match="is denied"):
            decide(s, denied)
        assert (await requested(s, {"n": 1})).id != denied.id


async def test_rules_that_name_another_approver_after_the_approval_count() -> None:
    rule = 'needs_approval("t", "finance") :- text_of(1, "late").'
    async with shop_of_payments(rule) as s:
        approval = decide(s, await requested(s, {"n": 1}))
        macro_id = (await s.tools(facts=[("text_of", 1, "late")]))["t"]
        with pytest.raises(WireError) as refused:
            await s.invoker.invoke(invocation(macro_id, {"n": 1}, confirmation_token=approval.id), ME)
        assert reason(refused.value) == "approver"


async def test_pending_requests_of_an_identity_are_limited() -> None:
    async with shop_of_payments() as s:
        for n in range(MAX_PENDING):
            await requested(s, {"n": n})
        error = await s.refused("t", {"n": MAX_PENDING})
        assert error.code == "rate_limited"
        kim = Identity("kim", ME.permissions, "user")
        assert (await requested(s, {"n": 0}, kim)).state == "pending"


# --- approvers -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("permissions", [frozenset(), frozenset({"finance"}), frozenset({"explain_policy"})])
async def test_a_credential_without_the_permission_decides_nothing(permissions: frozenset[str]) -> None:
    async with shop_of_payments() as s:
        request = await requested(s, {"n": 1})
        agent = Identity("me", permissions, "user")
        for attempt in (
            lambda: decide(s, request, agent),
            lambda: s.invoker.approvals.show(agent, request.id),
            lambda: s.invoker.approvals.pending(agent),
        ):
            with pytest.raises(WireError) as refused:
                attempt()
            assert refused.value.code == "auth_insufficient"


async def test_roles_and_four_eyes() -> None:
    rules = 'needs_approval("t", "finance").', 'four_eyes("t").'
    lead = Identity("lea", frozenset({APPROVE, "finance"}), "user")
    self_approver = Identity("me", frozenset({APPROVE, "finance"}), "user")
    async with shop(chain(steps("write"), *rules)) as s:
        request = await requested(s, {"n": 1})
        assert (request.roles, request.four_eyes) == (("finance",), True)
        for other in (APPROVER, self_approver):
            with pytest.raises(WireError, match="other approvers"):
                decide(s, request, other)
            assert s.invoker.approvals.pending(other) == []
        assert [one.id for one in s.invoker.approvals.pending(lead)] == [request.id]
        assert await use(s, decide(s, request, lead), {"n": 1}) is None


async def test_the_requesters_own_person_may_confirm() -> None:
    async with shop(chain(steps("write"), 'needs_confirmation("t").')) as s:
        approval = decide(s, await requested(s, {"n": 1}), Identity("me", frozenset({APPROVE}), "user"))
        assert await use(s, approval, {"n": 1}) is None


async def test_the_operator_decides_in_every_role_but_not_for_itself() -> None:
    local = Identity("local", frozenset(), "local")
    async with shop(chain(steps("write"), 'needs_approval("t", "finance"). four_eyes("t").')) as s:
        assert decide(s, await requested(s, {"n": 1}), OPERATOR).state == "approved"
        with pytest.raises(WireError, match="other approvers"):
            decide(s, await requested(s, {"n": 1}, local), OPERATOR)


async def test_of_two_approvers_one_decides() -> None:
    async with shop_of_payments() as s:
        request = await requested(s, {"n": 1})
        ben = Identity("ben", frozenset({APPROVE}), "user")
        answers = await asyncio.gather(
            asyncio.to_thread(decide, s, request),
            asyncio.to_thread(decide, s, request, ben, "denied"),
            return_exceptions=True,
        )
        won = [one for one in answers if isinstance(one, Approval)]
        assert len(won) == 1
        error = await use(s, request, {"n": 1})
        assert (error is None) == (won[0].state == "approved")


# --- waivers ---------------------------------------------------------------------------------------------------------


@pytest.mark.req("SEC-23", "SEC-24", "SEC-25")
@pytest.mark.parametrize(
    ("waived", "asked"),
    [
        ((), True),
        (("payments",), True),
        (("destructive",), True),
        (("payments", "destructive"), False),
        (("payments", "destructive", "network"), False),
    ],
)
async def test_approval_is_waived_only_for_every_effect_and_by_a_setting(waived: tuple[str, ...], asked: bool) -> None:
    automated = Identity("me", frozenset(), "automated", auto_confirm_effects=waived)
    async with shop(chain(steps("pay", "wipe"), actions=(PAY, WIPE))) as s:
        (tool,) = (await s.invoker.offers.evaluate(request("go"), automated)).payload.macro_tools
        assert isinstance(tool.safety, Safety)
        assert tool.safety.requires_user_confirmation is asked, "the client is told"
        if asked:
            assert (await s.refused("t", {"n": 1}, identity=automated)).code == "confirmation_required"
            assert s.bench.ran == []
            return
        await s.invoke("t", {"n": 1}, identity=automated)
        kind, body = s.ledger()[0]
        assert kind == "admission"
        assert body["approval"].startswith("auto:sha256:")


@pytest.mark.parametrize("rule", ['four_eyes("t").', 'needs_approval("t", "finance").'])
async def test_a_waiver_does_not_replace_a_named_approver(rule: str) -> None:
    async with shop_of_payments(rule, refresh_identity=waiving("payments")) as s:
        assert (await s.refused("t", {"n": 1})).code == "confirmation_required"


# --- record ----------------------------------------------------------------------------------------------------------


async def test_request_decision_and_use_are_on_record() -> None:
    async with shop_of_payments() as s:
        approval = decide(s, await requested(s, {"n": 1}))
        assert await use(s, approval, {"n": 1}) is None
        entries = s.ledger()
        events = [body["event"] for kind, body in entries if kind == "approval"]
        assert events == ["requested", "approved"]
        assert next(body for kind, body in entries if kind == "admission")["approval"] == f"approval:{approval.id}"
        with s.store.read_transaction() as tx:
            used = s.store.approvals.find(tx, approval.id)
        assert used is not None
        assert (used.state, used.approver) == ("used", "ann")
        assert used.run == next(body for kind, body in entries if kind == "admission")["run"]


@pytest.mark.req("SEC-07")
async def test_the_gate_of_tier_3_stays_shut_without_approval(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the check of approvals failed open, the harness would still require one."""

    async def unchecked(_: Any, checked: Any, *__: Any) -> Any:
        return checked

    async with shop_of_payments() as s:
        monkeypatch.setattr(type(s.invoker._admission), "_check_approval", unchecked)
        error = await s.refused("t", {"n": 1})
        assert error.code == "confirmation_required"
        assert s.bench.ran == []


@pytest.mark.req("SEC-07", "SEC-05")
@pytest.mark.parametrize("kind", ["payments", "destructive", "authentication"])
async def test_high_risk_effects_need_approval_whatever_rules_state(kind: str) -> None:
    risky = effect("risky", 1, (kind,))
    async with shop(chain(steps("risky"), actions=(risky,))) as s:
        assert (await s.refused("t", {"n": 1})).code == "confirmation_required"
    async with shop(chain(steps("write"))) as s:
        await s.invoke("t", {"n": 1})
    async with shop(chain(steps("write"), policy='needs_confirmation("t").')) as s:
        assert (await s.refused("t", {"n": 1})).code == "confirmation_required"


async def test_no_approver_is_asked_for_what_policy_denies() -> None:
    clock = [NOW]
    policy = """
    Decl closed() temporal.
    closed()@[2026-01-15T12:04:00Z, _].
    effect_denied("pay", "closed") :- closed()@[now].
    """
    async with shop(chain(steps("pay"), actions=(PAY,), policy=policy), clock=lambda: clock[0]) as s:
        macro_id = (await s.tools())["t"]
        clock[0] += 240_000 * MS
        error = await s.refused(macro_id, {"n": 1}, evaluate=False)
        assert error.code == "auth_insufficient"
        assert s.invoker.approvals.pending(APPROVER) == []
