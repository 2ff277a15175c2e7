"""Case 31: no client chooses the time of policy, and rights, rules and facts count when a tool is used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from manglecp.intent import Domain, Identity
from manglecp.mangle import Fact
from manglecp.store import open_store
from tests.adversarial._invoked import invoked
from tests.intent.packs import NOW
from tests.invoke.chains import chain, effect, steps
from tests.invoke.workshop import ME, Shop, shop

BEFORE = "2026-01-10T00:00:00Z"
AFTER = "2026-02-01T00:00:00Z"
FREEZE = """
Decl frozen() temporal.
frozen()@[2026-01-15T00:00:00Z, 2026-01-20T00:00:00Z].
"""
SECOND = 10**9

DENIALS = {
    "prohibited": 'prohibited("t", "freeze") :- frozen()@[now].',
    "permitted": 'permitted("t") :- !is_frozen(). Decl is_frozen(). is_frozen() :- frozen()@[now].',
    "effect": 'effect_denied("write", "freeze") :- frozen()@[now].',
    "intent": 'intent_denied("freeze") :- frozen()@[now].',
}


async def back_dated(s: Shop, when: str, **more: Any) -> str:
    return (await s.tools(eval_time=when, **more))["t"]


@pytest.mark.req("INVK-03")
@pytest.mark.parametrize("when", [BEFORE, AFTER])
@pytest.mark.parametrize("denial", DENIALS)
@invoked
async def test_a_date_of_the_client_does_not_pass_policy(denial: str, when: str) -> None:
    async with shop(chain(steps("write"), policy=FREEZE + DENIALS[denial])) as s:
        macro_id = await back_dated(s, when)  # an evaluation is hypothetical
        for time in (None, when, BEFORE, AFTER):
            payload = {} if time is None else {"eval_time": time}
            error = await s.refused(macro_id, {"n": 1}, evaluate=False, **payload)
            expected = {"effect": "auth_insufficient", "intent": "auth_insufficient"}.get(denial, "macro_expired")
            if when == AFTER and error.code == "x-macro_not_yet_valid":
                continue
            assert error.code == expected
        assert s.bench.ran == []
        assert s.ledger() == []


@invoked
async def test_an_expired_grant_is_not_renewed_by_a_date() -> None:
    rules = """
    Decl on_call(Who) temporal bound [/string].
    on_call("bob")@[2026-01-01T00:00:00Z, 2026-01-08T00:00:00Z].
    permitted("t") :- client(Who), on_call(Who)@[now].
    """
    bob = Identity("bob", frozenset(), "user")
    async with shop(chain(steps("write"), policy=rules)) as s:
        macro_id = await back_dated(s, "2026-01-03T00:00:00Z", identity=bob)
        for time in ({}, {"eval_time": "2026-01-03T00:00:00Z"}):
            assert (await s.refused(macro_id, {"n": 1}, evaluate=False, identity=bob, **time)).code == "macro_expired"
        assert s.bench.ran == []


@invoked
async def test_a_date_does_not_waive_an_approval() -> None:
    """The id is the same with and without the approval, and the last evaluation is the back-dated one."""
    rule = FREEZE + 'needs_confirmation("t") :- frozen()@[now].'
    async with shop(chain(steps("write"), policy=rule)) as s:
        now = (await s.tools())["t"]
        assert await back_dated(s, BEFORE) == now
        assert (await s.refused(now, {"n": 1}, evaluate=False)).code == "confirmation_required"
        error = await s.refused(now, {"n": 1}, evaluate=False, eval_time=BEFORE)
        assert error.code == "confirmation_required"
        assert s.bench.ran == []


@invoked
async def test_now_of_a_fact_is_the_time_of_its_evaluation() -> None:
    """A fact of ten minutes ago does not become fresh because the tool is proven again."""
    rules = """
    Decl alert(Word) temporal descr [direction("input"), untimed("now")] bound [/string].
    Decl fresh(). fresh() :- <-[0s, 2m] alert("disk").
    permitted("t") :- fresh().
    """
    clock = [NOW]
    async with shop(chain(steps("write"), policy=rules), clock=lambda: clock[0]) as s:
        fact = {"pred": "alert", "args": ["disk"], "t": {"at": "now"}}
        macro_id = (await s.tools(facts=[fact]))["t"]
        await s.invoke(macro_id, {"n": 1}, evaluate=False)
        clock[0] += 121 * SECOND
        assert (await s.refused(macro_id, {"n": 1}, evaluate=False)).code == "macro_expired"
        assert len(s.bench.ran) == 1


@pytest.mark.req("EVAL-25", "DATA-32")
@pytest.mark.parametrize(("offset", "hypothetical"), [(0, False), (60, False), (-60, False), (61, True), (-3600, True)])
@invoked
async def test_an_evaluation_at_another_time_is_marked(offset: int, hypothetical: bool) -> None:
    from tests.intent.packs import request

    async with shop(chain(steps("look"))) as s:
        asked = request("go", eval_time=(NOW + offset * SECOND) // 1_000_000)
        answer = await s.invoker.offers.evaluate(asked, ME)
        assert (answer.payload.hypothetical is True) == hypothetical


# --- rights ----------------------------------------------------------------------------------------------------------

REFUND = 'permitted("t") :- client_permission("refund").'
WIDE, NARROW = Identity("ann", frozenset({"refund"}), "user"), Identity("ann", frozenset(), "user")


@pytest.mark.req("SEC-28")
@invoked
async def test_a_narrower_credential_of_the_same_identity_does_not_use_a_wider_offer() -> None:
    async with shop(chain(steps("write"), policy=REFUND)) as s:
        macro_id = (await s.tools(identity=WIDE))["t"]
        assert await s.tools(identity=NARROW) == {}
        assert (await s.refused(macro_id, {"n": 1}, evaluate=False, identity=NARROW)).code == "macro_expired"
        assert s.bench.ran == []
        await s.invoke(macro_id, {"n": 1}, evaluate=False, identity=WIDE)


@invoked
async def test_a_permission_that_is_withdrawn_after_admission_stops_the_first_effect() -> None:
    held = [WIDE.permissions]

    def current(identity: Identity) -> Identity:
        return identity._replace(permissions=identity.permissions & held[0])

    def look(given: dict[str, Any]) -> dict[str, Any]:
        held[0] = frozenset()
        return given

    async with shop(chain(steps("look", "write"), policy=REFUND), {"look": look}, refresh_identity=current) as s:
        error = await s.refused("t", {"n": 1}, identity=WIDE)
        assert error.code == "macro_expired"
        assert [name for name, _ in s.bench.ran] == ["look"]


@pytest.mark.parametrize("policy", [REFUND, 'prohibited("t", "gone") :- !client_permission("refund").'])
@invoked
async def test_a_permission_that_is_withdrawn_between_effects_stops_the_next_one(policy: str) -> None:
    held = [WIDE.permissions]

    def write(given: dict[str, Any]) -> dict[str, Any]:
        held[0] = frozenset()
        return given

    def current(identity: Identity) -> Identity:
        return identity._replace(permissions=identity.permissions & held[0])

    async with shop(chain(steps("write", "write"), policy=policy), {"write": write}, refresh_identity=current) as s:
        error = await s.refused("t", {"n": 1}, identity=WIDE)
        assert error.code == "execution_failed"
        assert len(s.bench.ran) == 1


# --- rules and facts -------------------------------------------------------------------------------------------------


@invoked
async def test_server_facts_that_change_after_the_offer_count() -> None:
    policy = 'Decl blocked(Who) bound [/string]. prohibited("t", "blocked") :- client(Who), blocked(Who).'
    async with shop(chain(steps("write"), policy=policy)) as s:
        macro_id = (await s.tools())["t"]
        s.invoker.offers.renew(changed(s.invoker.domain, Fact("blocked", ("me",))))
        assert (await s.refused(macro_id, {"n": 1}, evaluate=False)).code == "macro_expired"
        assert s.bench.ran == []


def changed(domain: Domain, fact: Fact) -> Domain:
    return domain.with_facts([fact], [], "another version")


@pytest.mark.parametrize(
    "change",
    [
        lambda rules: (*rules, 'arg_value("t", 1, "n", 7).'),  # another chain
        lambda _: ('macro_step("t", 1, "erase").',),  # another action under the same name
    ],
)
@invoked
async def test_another_chain_under_the_same_name_is_not_run(change: Callable[[Any], Any]) -> None:
    store = open_store(":memory:")
    rules = (steps("write"),)
    try:
        async with shop(chain(*rules), store=store) as s:
            macro_id = (await s.tools())["t"]
        async with shop(chain(*change(rules)), store=store) as s:
            assert (await s.refused(macro_id, {"n": 1}, evaluate=False)).code == "macro_expired"
            assert s.bench.ran == []
    finally:
        store.close()


@pytest.mark.req("INVK-11")
@invoked
async def test_an_offer_survives_a_new_revision_that_proves_it() -> None:
    store = open_store(":memory:")
    try:
        async with shop(chain(steps("write")), store=store) as s:
            macro_id = (await s.tools())["t"]
        async with shop(chain(steps("write"), "# a comment"), store=store) as s:
            await s.invoke(macro_id, {"n": 1}, evaluate=False)
            assert s.bench.ran == [("write", {"n": 1})]
    finally:
        store.close()


@invoked
async def test_a_fact_that_clients_may_not_state_any_more_proves_nothing() -> None:
    store = open_store(":memory:")
    schema = 'Decl ticket(Id) descr [direction("{}")] bound [/string].'
    rule = 'permitted("t") :- ticket(_).'
    put = effect("put")
    try:
        async with shop(chain(steps("put"), schema.format("input"), actions=(put,), policy=rule), store=store) as s:
            macro_id = (await s.tools(facts=[("ticket", "T-1")]))["t"]
        async with shop(chain(steps("put"), schema.format("output"), actions=(put,), policy=rule), store=store) as s:
            assert (await s.refused(macro_id, {"n": 1}, evaluate=False)).code == "macro_expired"
            assert s.bench.ran == []
    finally:
        store.close()


@invoked
async def test_session_facts_are_read_by_no_other_evaluation() -> None:
    rule = 'Decl ticket(Id) descr [direction("input")] bound [/string]. permitted("t") :- ticket(_).'
    async with shop(chain(steps("write"), policy=rule)) as s:
        await s.tools(facts=[("ticket", "T-1")])
        assert await s.tools() == {}
        assert await s.tools(identity=Identity("kim")) == {}
