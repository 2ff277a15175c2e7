"""Case 35: policy sees every argument and every extracted result as it is, and an approval that it requires at the
moment of an effect is there, or there is no effect."""

from __future__ import annotations

from typing import Any

import pytest

from manglecp.intent import Identity
from manglecp.invoke.approval import APPROVE
from manglecp.mangle import Base
from manglecp.pack import Pack
from manglecp.store import open_store
from tests.adversarial._invoked import invoked
from tests.intent.packs import NOW, action
from tests.invoke.chains import chain, effect, steps
from tests.invoke.test_resuming import begun, gone_on
from tests.invoke.workshop import APPROVER, Shop, shop, waiving

LIMIT = 'effect_denied("pay", "limit") :- run_of("t"), run_arg("amount", N), N > 100.'
TARGET = 'effect_denied("send", "only safe targets") :- run_arg("target", T), T != "safe".'
PAY = effect("pay", params={"amount": {"type": "integer"}})
SEND = effect("send", params={"target": {}})
QUOTE = action("quote", params={})
KIM = Identity("kim", frozenset({APPROVE, "treasurer"}), "user")
SECOND = 10**9

REFUSALS = {"auth_insufficient", "schema_validation_failed", "evaluation_failed"}
WRAPPED = {"_type": "string", "value": "safe"}
DEEP: Any = []
for _ in range(120):
    DEEP = [DEEP]


def paying(policy: str, *rules: str) -> Pack:
    return chain(steps("pay"), *rules, actions=(PAY,), policy=policy)


def quoting(policy: str, *rules: str) -> Pack:
    """Pay what a read-only action quotes."""
    paid = 'arg_step("t", 2, "amount", 1, "/n"). extract("quote", "n", "/n").'
    pay = effect("pay", params={"amount": {}})
    return chain(steps("quote", "pay"), paid, *rules, actions=(QUOTE, pay), policy=policy)


def ran(s: Shop, name: str = "pay") -> list[dict[str, Any]]:
    return [given for action_name, given in s.bench.ran if action_name == name]


# --- arguments -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("amount", [101, 101.0, 1e3, 2**53 + 1, 2**63 - 1, 2**63, 10**26, 1e30])
@invoked
async def test_no_number_is_invisible_to_a_limit(amount: Any) -> None:
    async with shop(paying(LIMIT)) as s:
        assert (await s.refused("t", {"amount": amount})).code in REFUSALS
        assert ran(s) == []
        assert s.ledger() == []


@pytest.mark.parametrize("amount", [100, 100.0, 0, -(2**63)])
@invoked
async def test_a_number_within_the_limit_is_paid(amount: Any) -> None:
    async with shop(paying(LIMIT)) as s:
        await s.invoke("t", {"amount": amount})
        assert ran(s) == [{"amount": int(amount)}]


@pytest.mark.parametrize("target", ["evil", WRAPPED, {"_type": "x"}, {"_var": 1}, None, ["safe"], 2**60, 10**26, DEEP])
@invoked
async def test_no_encoding_of_an_argument_passes_for_another_value(target: Any) -> None:
    async with shop(chain(steps("send"), actions=(SEND,), policy=TARGET)) as s:
        assert (await s.refused("t", {"target": target})).code in REFUSALS
        assert ran(s, "send") == []
        await s.invoke("t", {"target": "safe"})


@invoked
async def test_what_no_fact_can_hold_is_named() -> None:
    async with shop(chain(steps("send"), actions=(SEND,), policy=TARGET)) as s:
        error = await s.refused("t", {"target": [{"a": 10**26}]})
        assert error.code == "schema_validation_failed"
        (schema_error,) = (error.details or {})["schema_errors"]
        assert schema_error["path"] == "/target/0/a"
        assert "64 bits" in schema_error["message"]


@pytest.mark.parametrize("target", [WRAPPED, 10**26, DEEP, None])
@invoked
async def test_what_no_rule_reads_is_not_refused(target: Any) -> None:
    async with shop(chain(steps("send"), actions=(SEND,))) as s:
        await s.invoke("t", {"target": target})
        assert ran(s, "send") == [{"target": target}]


@invoked
async def test_a_default_is_an_argument() -> None:
    pay = effect("pay", params={"amount": {"type": "integer", "default": 500}}, required=())
    async with shop(chain(steps("pay"), actions=(pay,), policy=LIMIT)) as s:
        assert (await s.refused("t")).code == "auth_insufficient"
        assert s.ledger() == []  # it was not admitted
        await s.invoke("t", {"amount": 5})
        assert ran(s) == [{"amount": 5}]


# --- results ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (101, "auth_insufficient"),
        (2**60, "auth_insufficient"),
        (10**26, "execution_failed"),
        (DEEP, "execution_failed"),
        (WRAPPED, "auth_insufficient"),
        ({"_var": 1}, "auth_insufficient"),
        (None, "auth_insufficient"),
    ],
)
@invoked
async def test_no_result_is_invisible_to_policy(value: Any, code: str) -> None:
    policy = 'effect_denied("pay", "only five") :- step_value(_, "n", N), N != 5.'
    quotes = [value, 5]
    async with shop(quoting(policy), {"quote": lambda _: {"n": quotes.pop(0)}}) as s:
        error = await s.refused("t")
        assert error.code == code
        assert ran(s) == []
        await s.invoke("t")
        assert ran(s) == [{"amount": 5}]


@invoked
async def test_an_effect_whose_result_rules_cannot_read_has_happened() -> None:
    policy = 'effect_denied("pay", "none") :- step_value(1, "n", N), N != 5. extract("write", "n", "/n").'
    quoted = chain(steps("write", "pay"), actions=(PAY,), policy=policy)
    async with shop(quoted, {"write": lambda _: {"n": 10**26}}) as s:
        error = await s.refused("t", {"n": 1, "amount": 5})
        assert (error.details or {})["effects"] == [{"step": 1, "action": "write", "status": "done"}]
        assert ran(s) == []


@pytest.mark.parametrize("output", [{}, []])  # its schema is that of an object
@invoked
async def test_an_unusable_result_is_no_value(output: Any) -> None:
    rules = 'extract("write", "all", ""). asserts("told", [1], "derived") :- step_value(1, "all", _).'
    async with shop(chain(steps("write"), rules), {"write": lambda _: output}) as s:
        if output == {}:
            assert (await s.invoke("t", {"n": 1})).state_delta.asserts
        else:
            assert ((await s.refused("t", {"n": 1})).details or {})["state_delta"]["assert"] == []


# --- approvals -------------------------------------------------------------------------------------------------------

NEEDS = {
    "needs_confirmation": 'needs_confirmation("t") :- run_arg("amount", N), N > 100.',
    "needs_approval": 'needs_approval("t", "treasurer") :- run_arg("amount", N), N > 100.',
    "four_eyes": 'four_eyes("t") :- run_arg("amount", N), N > 100.',
}


@pytest.mark.parametrize("need", NEEDS)
@invoked
async def test_an_argument_can_require_an_approval(need: str) -> None:
    async with shop(paying("", NEEDS[need])) as s:
        await s.invoke("t", {"amount": 100})
        error = await s.refused("t", {"amount": 5000})
        assert error.code == "confirmation_required"
        assert ran(s) == [{"amount": 100}]
        token = await s.approve(error, KIM)
        await s.invoke("t", {"amount": 5000}, confirmation_token=token)
        assert ran(s) == [{"amount": 100}, {"amount": 5000}]


@invoked
async def test_no_approver_is_asked_for_what_policy_denies() -> None:
    async with shop(paying(LIMIT, 'needs_confirmation("t").')) as s:
        assert (await s.refused("t", {"amount": 500})).code == "auth_insufficient"
        assert s.invoker.approvals.pending(APPROVER) == []
        assert (await s.refused("t", {"amount": 50})).code == "confirmation_required"


BY_VALUE = {
    "needs_confirmation": 'needs_confirmation("t") :- step_value(_, "n", N), N > 100.',
    "needs_approval": 'needs_approval("t", "treasurer") :- step_value(_, "n", N), N > 100.',
    "four_eyes": 'four_eyes("t") :- step_value(_, "n", N), N > 100.',
}


@pytest.mark.parametrize("need", BY_VALUE)
@invoked
async def test_a_result_can_require_an_approval_of_the_first_effect(need: str) -> None:
    async with shop(quoting("", BY_VALUE[need]), {"quote": lambda _: {"n": 500}}) as s:
        error = await s.refused("t")
        assert error.code == "confirmation_required"
        assert ran(s) == []
        token = await s.approve(error, KIM)
        await s.invoke("t", confirmation_token=token)
        assert ran(s) == [{"amount": 500}]


NIGHT = """
Decl night() temporal. night()@[2026-01-17T00:00:00Z, _].
Decl is_night(). is_night() :- night()@[now].
needs_confirmation("t") :- is_night().
"""
LATER = 30 * 86_400 * SECOND


@pytest.mark.parametrize("effects", [0, 1])
@invoked
async def test_an_approval_that_is_needed_since_the_admission_stops_the_next_effect(effects: int) -> None:
    clock = [NOW]

    def look(given: dict[str, Any]) -> dict[str, Any]:
        clock[0] = NOW + LATER
        return given

    names = ("look", "write") if effects == 0 else ("write", "look", "erase")
    async with shop(chain(steps(*names), policy=NIGHT), {"look": look}, clock=lambda: clock[0]) as s:
        error = await s.refused("t", {"n": 1})
        done = [name for name, _ in s.bench.ran if name != "look"]
        assert (error.code, done) == (
            ("confirmation_required", []) if effects == 0 else ("execution_failed", ["write"])
        )


@pytest.mark.parametrize("need", ['needs_approval("t", "treasurer")', 'four_eyes("t")'])
@invoked
async def test_an_approval_by_less_than_is_needed_now_does_not_count(need: str) -> None:
    clock = [NOW]

    def look(given: dict[str, Any]) -> dict[str, Any]:
        clock[0] = NOW + LATER
        return given

    policy = f'{NIGHT} needs_confirmation("t"). {need} :- is_night().'
    async with shop(chain(steps("look", "write"), policy=policy), {"look": look}, clock=lambda: clock[0]) as s:
        token = await s.approve(await s.refused("t", {"n": 1}))
        error = await s.refused("t", {"n": 1}, confirmation_token=token)
        assert error.code == "confirmation_required"
        challenge = (error.details or {})["challenge"]
        assert challenge["roles"] == ["treasurer"] or challenge["four_eyes"]
        assert [name for name, _ in s.bench.ran] == ["look"]


@invoked
async def test_a_waiver_counts_for_an_approval_that_is_needed_since_the_admission() -> None:
    clock = [NOW]

    def look(given: dict[str, Any]) -> dict[str, Any]:
        clock[0] = NOW + LATER
        return given

    async with shop(
        chain(steps("look", "write"), policy=NIGHT),
        {"look": look},
        clock=lambda: clock[0],
        refresh_identity=waiving("filesystem"),
    ) as s:
        await s.invoke("t", {"n": 1})
        assert [name for name, _ in s.bench.ran] == ["look", "write"]


@invoked
async def test_a_resumed_run_has_its_approval() -> None:
    pack, store = chain(steps("write", "erase"), 'needs_approval("t", "treasurer").'), open_store(":memory:")
    try:
        async with shop(pack, store=store) as s:
            token = await s.approve(await s.refused("t", {"n": 1}), KIM)
        await begun(pack, store, "accepted", confirmation_token=token)
        async with gone_on(pack, store) as s:
            assert [name for name, _ in s.bench.ran] == ["write", "erase"]
    finally:
        store.close()


# --- one evaluation --------------------------------------------------------------------------------------------------


@invoked
async def test_the_rules_run_once_at_admission_and_once_at_each_effect() -> None:
    count = 0
    evaluate = Base.evaluate

    def counted(*args: Any, **more: Any) -> Any:
        nonlocal count
        count += 1
        return evaluate(*args, **more)

    async with shop(chain(steps("write", "erase"), policy='prohibited("t", "no") :- run_arg("n", 7).')) as s:
        macro_id = (await s.tools())["t"]
        _ = s.domain.run_rules
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Base, "evaluate", counted)
            await s.invoke(macro_id, {"n": 1}, evaluate=False)
        assert count == 3
