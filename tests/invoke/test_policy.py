"""Two layers: checks of the host that no rule can switch off, and policy that is asked anew at every gate."""

from __future__ import annotations

from typing import Any

import pytest

from manglecp.intent import ANONYMOUS, Identity, manifest
from manglecp.pack.settings import PackLimits
from manglecp.wire import WireError
from tests.intent.packs import request
from tests.invoke.chains import chain, effect, steps
from tests.invoke.workshop import ME, Shop, shop

KIM = Identity("kim", frozenset({"write"}), "user")


async def asked(s: Shop, facts: Any = (), identity: Identity = ME, intent: str = "go") -> WireError | list[str]:
    try:
        answer = await s.invoker.offers.evaluate(request(intent, facts=facts), identity)
    except WireError as error:
        return error
    return [tool.name for tool in answer.payload.macro_tools]


# --- the layers ------------------------------------------------------------------------------------------------------


@pytest.mark.req("SEC-01", "SEC-02", "SEC-03")
@pytest.mark.parametrize(
    ("fact", "code"),
    [
        (("_manglecp_internal", 1), "reserved_predicate"),
        (("permitted", "t"), "unknown_predicate"),
        (("done", "no number"), "type_mismatch"),
        (("done", 1, 2), "arity_mismatch"),
    ],
)
async def test_the_first_layer_refuses_before_policy_is_asked(fact: Any, code: str) -> None:
    """Policy that fails whenever it is asked is not asked."""
    policy = 'permitted("t") :- intent(_), macro_step("t", N, _), Z = fn:minus(N, 1), X = fn:div(1, Z), X = 0.'
    async with shop(chain(steps("look"), policy=policy)) as s:
        failing = await asked(s)
        assert isinstance(failing, WireError)
        assert failing.code == "evaluation_failed"
        error = await asked(s, [fact])
        assert isinstance(error, WireError)
        assert code in (error.code, *(one["issue"] for one in (error.details or {}).get("violations", ())))
        assert s.bench.ran == []


@pytest.mark.req("SEC-02")
async def test_the_limit_on_derivation_holds_whatever_rules_and_requests_say() -> None:
    endless = "inner(0). inner(Y) :- inner(X), X < 100000, Y = fn:plus(X, 1), intent(_)."
    async with shop(chain(steps("look"), endless, limits=PackLimits(max_derived_facts=500))) as s:
        error = await asked(s)
        assert isinstance(error, WireError)
        assert error.code == "derivation_limit_exceeded"


@pytest.mark.req("SEC-01", "SEC-04", "SEC-05", "SEC-19")
async def test_the_second_layer_decides_who_may_do_what() -> None:
    policy = """
        intent_denied("Not for strangers.") :- intent("later"), client_trust("anonymous").
        intent_denied("Not for you.") :- intent("later"), client("kim").
        fact_denied("asked", "Nobody says this.").
    """
    later = 'mandatory("t") :- intent("later").'
    async with shop(chain(steps("look"), later, policy=policy)) as s:
        assert await asked(s, intent="later") == ["t"]
        for identity, code in ((ANONYMOUS, "auth_required"), (KIM, "auth_insufficient")):
            error = await asked(s, intent="later", identity=identity)
            assert isinstance(error, WireError)
            assert error.code == code
        error = await asked(s, [("asked", 1)])
        assert isinstance(error, WireError)
        assert error.details is not None
        assert [one["issue"] for one in error.details["violations"]] == ["policy_violation"]
        assert s.ledger() == []


@pytest.mark.req("SEC-05", "SEC-06", "SEC-28")
async def test_what_is_not_permitted_is_not_there() -> None:
    policy = 'permitted("t") :- client_permission("write"), !dangerous("t"). dangerous("t") :- done(13).'
    async with shop(chain(steps("write"), policy=policy)) as s:
        assert await asked(s) == []
        assert await asked(s, identity=KIM) == ["t"]
        assert await asked(s, [("done", 13)], identity=KIM) == []


@pytest.mark.req("SEC-20")
@pytest.mark.parametrize(
    ("names", "effects"),
    [
        (("look",), ["none"]),
        (("look", "write"), ["filesystem"]),
        (("write", "send", "look"), ["filesystem", "network"]),
    ],
)
async def test_side_effects_are_those_of_the_actions(names: tuple[str, ...], effects: list[str]) -> None:
    send = effect("send", 1, ("network",))
    async with shop(chain(steps(*names), actions=(send,))) as s:
        answer = await s.invoker.offers.evaluate(request("go"), ME)
        (tool,) = answer.payload.macro_tools
        assert tool.safety
        assert sorted(tool.safety.side_effects) == effects


@pytest.mark.req("SEC-26", "SEC-27")
async def test_nothing_lists_all_tools() -> None:
    more = [
        f'macro("u{n}", "Tool {n}."). macro_step("u{n}", 1, "look"). mandatory("u{n}") :- intent("later"), done({n}).'
        for n in range(5)
    ]
    async with shop(chain(steps("look"), *more)) as s:
        assert await asked(s) == ["t"]
        assert await asked(s, intent="later") == []
        assert await asked(s, [("done", 3)], intent="later") == ["u3"]
        told = str(manifest(s.domain).payload)
        assert "u3" not in told
        assert "Tool 3" not in told


# --- at the gate -----------------------------------------------------------------------------------------------------


@pytest.mark.req("SEC-04")
async def test_an_effect_that_policy_denies_at_the_gate_does_not_happen() -> None:
    """The tool was proven; what a step found bars the effect."""
    policy = 'effect_denied("write", "Not on such a day.") :- step_value(1, "day", "holiday").'
    rules = (steps("look", "write"), 'extract("look", "day", "/day").')
    async with shop(chain(*rules, policy=policy), {"look": lambda _: {"day": "holiday"}}) as s:
        error = await s.refused("t", {"n": 1})
        assert error.code == "auth_insufficient"
        assert [name for name, _ in s.bench.ran] == ["look"]
        assert s.ledger()[-1][1]["state"] == "failed"
        s.bench.work["look"] = lambda _: {"day": "monday"}
        await s.invoke("t", {"n": 1})
        assert [name for name, _ in s.bench.ran] == ["look", "look", "write"]


async def test_policy_is_asked_at_every_gate() -> None:
    """The first effect is permitted, the second is not any more: from then on a person has to look at it."""
    policy = 'effect_denied("erase", "Once is enough.") :- step_status(1, "write", "success").'
    async with shop(chain(steps("write", "erase"), policy=policy)) as s:
        error = await s.refused("t", {"n": 1})
        assert [name for name, _ in s.bench.ran] == ["write"]
    assert error.code == "execution_failed"
    assert error.details is not None
    assert (error.details["reason"], error.details["code"]) == ("needs_decision", "gate_refused")
    assert error.details["effects"] == [{"step": 1, "action": "write", "status": "done"}]


async def test_what_a_client_lost_since_counts_at_the_gate() -> None:
    policy = """
        effect_denied("write", "Not you.") :- client(C), !may(C).
        may(C) :- client(C), client_permission("write").
    """
    async with shop(chain(steps("write"), policy=policy)) as s:
        mine = (await s.tools(identity=KIM))["t"]
        error = await s.refused(mine, {"n": 1}, evaluate=False, identity=Identity("kim", frozenset(), "user"))
        assert (error.code, s.bench.ran) == ("auth_insufficient", [])
        await s.invoke(mine, {"n": 1}, evaluate=False, identity=KIM)


@pytest.mark.req("SEC-31")
async def test_proof_hints_are_told_only_to_who_asks() -> None:
    async with shop(chain(steps("look"))) as s:
        quiet = await s.invoker.offers.evaluate(request("go"), ME)
        assert "proof" not in str(quiet.payload.proof_hints or "")
        loud = await s.invoker.offers.evaluate(request("go", options={"include_proof_hints": True}), ME)
        assert loud.payload.proof_hints
