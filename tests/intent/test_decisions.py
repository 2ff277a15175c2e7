"""Decisions about calls: verdicts, public reasons, and what rules may read of a call."""

from __future__ import annotations

from typing import Any

import pytest

from manglecp.intent import Decision, Domain, Identity
from manglecp.invoke import decide_call
from manglecp.pack import PackError
from manglecp.wire import WireError
from manglecp.wire.messages import DecidePayload, Intent
from tests.intent.packs import action, pack

ANN = Identity("ann", frozenset(), "user")
BOSS = Identity("boss", frozenset({"large"}), "user")
TOOL = """
macro("refund", "Refunds an order."). macro_step("refund", 1, "pay").
mandatory("refund") :- intent("help").
"""
POLICY = """
permitted("refund").
prohibited("refund", "limit of clerks") :- call("refund"), call_arg("amount", N), N > 100, !client_permission("large").
public_reason("refund", "refunds above 100 need the permission large") :-
  call("refund"), call_arg("amount", N), N > 100, !client_permission("large").
needs_approval("refund", "treasurer") :- call("refund"), call_arg("amount", N), N > 500.
public_reason("refund", "a treasurer approves refunds above 500") :- call("refund"), call_arg("amount", N), N > 500.
prohibited("refund", "blocked account") :- call("refund"), call_value("/to/account", "X-1").
"""
PARAMS = {
    "amount": {"type": "integer", "default": 1},
    "to": {"type": "object", "default": {}},
}


def desk(policy: str = POLICY, rules: str = TOOL) -> Domain:
    pay = action("pay", params=PARAMS, required=(), effects=("filesystem",), mutates=True, tier=1)
    permissions = ("large", "treasurer")
    return Domain.load(pack(rules, policy=policy, actions=[pay], intents=["help", "other"], permissions=permissions))


def decided(
    args: dict[str, Any], identity: Identity = ANN, *, intent: str | None = "help", domain: Domain | None = None
) -> Decision:
    named = None if intent is None else Intent(name=intent)
    payload = DecidePayload(tool="refund", args=args, intent=named)
    return decide_call(domain or desk(), payload, identity, 0)


@pytest.mark.parametrize("intent", ["help", None])
def test_a_verdict_depends_on_the_arguments_and_the_permissions(intent: str | None) -> None:
    assert decided({"amount": 100}, intent=intent).verdict == "allow"
    denied = decided({"amount": 101}, intent=intent)
    assert (denied.verdict, denied.reasons) == ("deny", ("limit of clerks",))
    assert denied.public_reasons == ("refunds above 100 need the permission large",)
    assert decided({"amount": 101}, BOSS, intent=intent).verdict == "allow"
    asked = decided({"amount": 501}, BOSS, intent=intent)
    assert (asked.verdict, asked.reasons) == ("ask", ())
    assert asked.public_reasons == ("a treasurer approves refunds above 500",)
    assert decided({"to": {"account": "X-1"}}, BOSS, intent=intent).reasons == ("blocked account",)


@pytest.mark.parametrize("intent", ["help", "other", None])
def test_defaults_count(intent: str | None) -> None:
    assert decided({}, intent=intent, domain=desk(POLICY.replace("N > 100", "N = 1"))).verdict == "deny"
    stepless = 'macro("refund", "Refunds."). macro_param("refund", "amount", {"type": "integer", "default": 700}).'
    assert decided({}, intent=None, domain=desk(rules=stepless)).reasons == ("limit of clerks",)
    assert decided({"amount": 7}, intent=None, domain=desk(rules=stepless)).verdict == "allow"


def test_arguments_fit_the_schema() -> None:
    with pytest.raises(WireError) as refused:
        decided({"amount": "much"})
    assert refused.value.code == "schema_validation_failed"


def test_the_rules_that_decided_are_named() -> None:
    denied = decided({"amount": 101})
    assert len(denied.rules) == 1
    assert denied.rules[0].endswith(":3")
    assert decided({"amount": 1}).rules[0].endswith(":2")  # permitted


def test_a_tool_that_no_intent_offers_is_denied() -> None:
    assert decided({}, domain=desk(rules=TOOL.replace('"help"', '"other"'))).verdict == "deny"
    unknown = decide_call(desk(), DecidePayload(tool="refnd"), ANN, 0)
    assert unknown.verdict == "deny"


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ('prohibited("refund", "x") :- call_arg("amount", 3).', "a rule that reads call_arg is about a call"),
        ('prohibited("refund", "x") :- intent(_), !call_value("/amount", _).', "a rule that reads call_value"),
        ('permitted("refund") :- call("refund").', "permitted depends on call"),
        ('may() :- run_arg("amount", 3). permitted("refund") :- may().', "permitted depends on call"),
        ('permitted("refund") :- step_status(1, _, "success").', "permitted depends on step_status"),
        ('prohibited("refund", "x") :- macro(_, _), !call("refund").', "a rule that negates call also holds"),
        ('prohibited("refund", "x") :- macro(_, _), !run_arg("amount", 3).', "a rule that negates run_arg"),
        ('c() :- call(_). prohibited("refund", "x") :- macro(_, _), !c().', "a rule that negates c also holds"),
        ('c(3). c(4) :- call(_). d() :- c(_), !c(4). needs_confirmation("refund") :- d().', "a rule that negates c"),
        (
            'n(9). n(N) :- call(_), call_arg("amount", N), :is_number(N). '
            "m(M) :- n(N) |> do fn:group_by(), let M = fn:min(N). "
            'effect_denied("pay", "x") :- m(M), M > 5.',
            "a rule that aggregates n also holds",
        ),
    ],
)
def test_rules_about_calls_are_silent_when_tools_are_offered(policy: str, message: str) -> None:
    with pytest.raises(PackError, match=message):
        desk(policy)


@pytest.mark.parametrize(
    "policy",
    [
        'large() :- call(_), call_arg("amount", N), N > 9. prohibited("refund", "x") :- call("refund"), !large().',
        'about(T) :- call(T). prohibited(T, "x") :- about(T), !run_arg("amount", 3).',
        'skip_step(1, "x") :- !run_arg("amount", 3).',
        'n(N) :- call(_), call_arg("amount", N). c(C) :- n(_) |> do fn:group_by(), let C = fn:count().',
    ],
)
def test_rules_that_are_silent_without_a_call_may_negate_what_depends_on_it(policy: str) -> None:
    assert decided({}, domain=desk(policy)).verdict in ("allow", "deny")


@pytest.mark.parametrize("place", ["amount", "/amuont", "/ammount/0", "to/account"])
def test_a_place_that_no_argument_has_is_an_error(place: str) -> None:
    with pytest.raises(PackError, match="no tool or action of the pack has an argument at"):
        desk(f'prohibited("refund", "x") :- call("refund"), call_value("{place}", "X-1").')


@pytest.mark.parametrize(("seconds", "verdict"), [(0, "deny"), (1, "allow")])
def test_a_tool_that_is_no_longer_valid_is_denied(seconds: int, verdict: str) -> None:
    ends = f'valid_for("refund", Span) :- intent(_), Span = fn:duration:parse("{seconds}s").'
    assert decided({}, domain=desk(rules=TOOL + ends)).verdict == verdict
