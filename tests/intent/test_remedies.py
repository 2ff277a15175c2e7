"""What would unlock a denied call: the nearest arguments, facts to state, and what must not be disclosed."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from manglecp.intent import Decision, Domain, Identity
from manglecp.intent.remedies import MAX_EVALUATIONS, _Search, find_remedies
from manglecp.invoke import decide_call
from manglecp.wire.messages import DecidePayload, Intent, Remedy
from tests.intent.packs import action, pack

ANN = Identity("ann", frozenset(), "user")
AUDITOR = Identity("eve", frozenset({"explain_policy"}), "user")
OWNER = Identity("local", frozenset({"explain_policy"}), "local")
RULES = 'macro("t", "Pays."). macro_step("t", 1, "pay"). mandatory("t") :- intent("go").\n'
PUBLIC = "public_reason(T, Reason) :- prohibited(T, Reason).\n"
VERIFIED = 'Decl verified(X) descr [direction("input")] bound [/string].'
PARAMS = {"amount": {"type": "number"}, "nights": {"type": "integer"}, "country": {"type": "string"}}
GIVEN = {"amount": 700, "nights": 9, "country": "FX"}


def domain(policy: str, rules: str = RULES, schema: str = "") -> Domain:
    pay = action("pay", params=PARAMS, required=(), effects=("filesystem",), mutates=True, tier=1)
    return Domain.load(pack(rules, policy=policy, schema=schema, actions=[pay], intents=["go"]))


def denies(*premises: str, reason: str = "no", more: str = PUBLIC) -> str:
    """Policy with one denial for each set of premises, all with the same reason."""
    rules = (f'prohibited("t", "{reason}") :- call("t"), {premise}.\n' for premise in premises)
    return more + "".join(rules)


def decided(d: Domain, args: dict[str, Any], identity: Identity = ANN, intent: str | None = None) -> Decision:
    named = None if intent is None else Intent(name=intent)
    return decide_call(d, DecidePayload(tool="t", args=args, intent=named), identity, 0)


def found(decision: Decision) -> tuple[Remedy, ...]:
    return find_remedies(decision, 60.0)


def remedies(policy: str, identity: Identity = ANN, **args: Any) -> list[dict[str, Any]]:
    """The arguments of the remedies; each is not denied when it is tried."""
    d = domain(policy)
    decision = decided(d, {**GIVEN, **args}, identity)
    assert decision.verdict == "deny"
    for remedy in found(decision):
        assert decided(d, {**GIVEN, **args, **remedy.args}, identity).verdict == remedy.verdict
    return [remedy.args for remedy in found(decision)]


AMOUNT = 'call_arg("amount", N)'
LIMIT = 'limit("clerk", 119).\n'


@pytest.mark.parametrize("intent", [None, "go"])
@pytest.mark.parametrize(
    ("premises", "amount", "text"),
    [
        (f"{AMOUNT}, N > 100", 100, "amount of at most 100: 100 would be allowed, 101 would be denied"),
        (f"{AMOUNT}, N >= 100", 99, "amount of at most 99: 99 would be allowed, 100 would be denied"),
        (f"{AMOUNT}, N < 1000", 1000, "amount of at least 1000: 1000 would be allowed, 999 would be denied"),
        (f"{AMOUNT}, 1000 >= N", 1001, "amount of at least 1001: 1001 would be allowed, 1000 would be denied"),
        (
            f'{AMOUNT}, limit("clerk", L), N > L',
            119,
            "amount of at most 119: 119 would be allowed, 120 would be denied",
        ),
        ('call_value("/amount", N), N > 100', 100, "amount of at most 100: 100 would be allowed, 101 would be denied"),
        (f"{AMOUNT}, spent(S), :is_number(N), X = fn:plus(S, N), X > 100", 40, None),
        (f"{AMOUNT}, spent(S), fn:plus(S, N) > 700", 640, None),  # the amount equals the bound
        (f"{AMOUNT}, spent(S), fn:mult(S, N) > 700", 11, None),
        ("over(_)", 100, "amount of at most 100: 100 would be allowed, 101 would be denied"),
        ("!fine()", 119, "amount of at most 119: 119 would be allowed, 120 would be denied"),
    ],
)
def test_the_nearest_amount(intent: str | None, premises: str, amount: int, text: str | None) -> None:
    fine = (
        f'over(N) :- call(_), {AMOUNT}, N > 100. spent(60). fine() :- call("t"), {AMOUNT}, limit("clerk", L), N <= L.\n'
    )
    decision = decided(domain(PUBLIC + LIMIT + fine + denies(premises, more="")), GIVEN, intent=intent)
    (remedy,) = found(decision)
    assert (remedy.args, remedy.verdict) == ({"amount": amount}, "allow")
    assert remedy.text == text or text is None


def test_an_amount_that_needs_an_approval() -> None:
    (remedy,) = found(decided(domain(denies(f"{AMOUNT}, N > 100") + 'needs_confirmation("t").'), GIVEN))
    text = "amount of at most 100: 100 would need an approval, 101 would be denied"
    assert remedy == Remedy(args={"amount": 100}, verdict="ask", text=text)


def test_all_arguments_together_if_none_alone_suffices() -> None:
    both = denies(f"{AMOUNT}, N > 100", 'call_arg("nights", K), K >= 3')
    assert remedies(both) == [{"amount": 100, "nights": 2}]
    assert remedies(both, nights=1) == [{"amount": 100}]


NOT_HERE = 'call_arg("country", C), C != "DE", C != "FR"'
NOT_LISTED = 'call_arg("country", C), !land(C)'
LANDS = 'land("AA"). land("DE"). land("FR").\n'


NO_MEMBER = 'call_arg("country", C), !:list:member(C, ["AA", "DE", "FR"])'


@pytest.mark.parametrize("premises", [NOT_HERE, NOT_LISTED, NO_MEMBER, "!fine()", "!good()"])
def test_values_that_the_reason_names(premises: str) -> None:
    fine = f'fine() :- call("t"), {AMOUNT}, N > 0, call_arg("country", C), land(C).\n'
    good = f'good() :- call("t"), land(C), call_arg("country", C), {AMOUNT}, N > 0.\n'
    policy = LANDS + PUBLIC + fine + good
    assert remedies(policy + denies(premises, reason="only DE or FR", more="")) == [{"country": "DE"}]
    assert remedies(policy + denies(premises, reason="not there", more="")) == []
    (owned,) = remedies(policy + denies(premises, reason="not there", more=""), OWNER)
    assert owned["country"] in ("AA", "DE", "FR")


def test_a_caller_that_may_see_policy_gets_its_constants_and_not_the_facts() -> None:
    assert remedies(denies(NOT_HERE), AUDITOR) == [{"country": "DE"}]
    assert remedies(denies(NOT_LISTED) + LANDS, AUDITOR) == []
    assert remedies(denies(f"{AMOUNT}, N > 100", more=""), AUDITOR) == [{"amount": 100}]


def test_a_number_that_is_not_whole() -> None:
    policy = denies(f"{AMOUNT}, :is_float64(N), N > 99.5", reason="at most 99.5")
    assert remedies(policy, amount=110.25) == [{"amount": 99.5}]


# --- attacks: what a caller without explain_policy must not learn ---------------------------------------------------


@pytest.mark.parametrize(
    "policy",
    [
        denies(f"{AMOUNT}, N > 100", more=""),  # the reason is internal
        denies('call_arg("country", C), C != "sesame"'),  # a password in a rule
        denies('call_arg("country", C), !word(C)') + 'word("sesame").',
        denies('call_arg("country", C), !:list:member(C, ["sesame"])'),
        denies(f"{AMOUNT}, pin(P), N != P") + "pin(4711).",
        denies(f"{AMOUNT}, pin(P), N < P", f"{AMOUNT}, pin(P), N > P") + "pin(4711).",  # one number, as a range
        denies(f"{AMOUNT}, N < 4711", f"{AMOUNT}, N > 4720"),  # a range without a power of two
        # The public reason is about approval, and the internal one denies.
        'public_reason("t", "ask first above 1000") :- call("t"), call_arg("amount", N), N > 10.\n'
        + denies(f"{AMOUNT}, N > 5", more=""),
    ],
)
def test_a_secret_is_not_disclosed(policy: str) -> None:
    assert remedies(policy, amount=9000) == []


def test_a_secret_beside_a_range_is_not_disclosed() -> None:
    fine = f'fine() :- call("t"), {AMOUNT}, N <= 5000. fine() :- call("t"), {AMOUNT}, N >= 7777, N <= 7777.\n'
    assert remedies(fine + denies("!fine()"), amount=9000) == [{"amount": 5000}]


def fine(d: Domain, amount: int) -> bool:
    return decided(d, {**GIVEN, "amount": amount}).verdict != "deny"


def probed(d: Domain, given: int) -> set[int]:
    """The amounts that a caller finds by calls alone: powers of two, and bisection between neighbours that differ."""
    powers = sorted({given, 0, *(sign << k for k in range(15) for sign in (1, -1))})
    admits = {n: fine(d, n) for n in powers}
    found = {n for n in powers if admits[n]}
    for low, high in pairwise(powers):
        if admits[low] != admits[high]:
            good, bad = (low, high) if admits[low] else (high, low)
            while abs(good - bad) > 1:
                middle = (good + bad) // 2
                good, bad = (middle, bad) if fine(d, middle) else (good, middle)
            found.add(good)
    return found


@given(st.lists(st.tuples(st.integers(-200, 200), st.integers(0, 60)), min_size=1, max_size=3), st.integers(-250, 250))
@settings(max_examples=12, deadline=None)
def test_probing_a_secret_gives_no_more_than_trying_calls(ranges: list[tuple[int, int]], amount: int) -> None:
    facts = "".join(f"span({low}, {low + width}). " for low, width in ranges)
    fine = f'fine() :- call("t"), {AMOUNT}, span(A, B), A <= N, N <= B.\n'
    d = domain(facts + fine + denies("!fine()"))
    decision = decided(d, {**GIVEN, "amount": amount})
    for remedy in found(decision):
        assert decided(d, {**GIVEN, **remedy.args}).verdict == "allow"
        assert remedy.args["amount"] in probed(d, amount)


# --- facts -----------------------------------------------------------------------------------------------------------


def test_facts_that_the_client_could_state() -> None:
    rules = RULES.replace('intent("go")', 'intent("go"), verified("id")')
    (remedy,) = found(decided(domain("", rules, VERIFIED), GIVEN, intent="go"))
    assert remedy.facts == ({"pred": "verified", "args": ["id"]},)
    assert (remedy.verdict, remedy.text) == ("allow", 'with verified("id") it would be allowed')


def test_facts_that_policy_requires_are_for_callers_that_may_see_policy() -> None:
    d = domain(PUBLIC + 'prohibited("t", "unverified") :- call("t"), !verified("id").', schema=VERIFIED)
    assert found(decided(d, GIVEN, intent="go")) == ()
    assert [remedy.facts for remedy in found(decided(d, GIVEN, AUDITOR, intent="go"))] == [
        ({"pred": "verified", "args": ["id"]},)
    ]


# --- bounds ----------------------------------------------------------------------------------------------------------


def test_the_search_is_bounded_and_only_for_denials() -> None:
    many = "".join(f"pin({n}). " for n in range(1, 999, 2)) + denies(f"{AMOUNT}, pin(P), N > P, N != 123456")
    decision = decided(domain(many), {**GIVEN, "amount": 10**17})
    search = _Search(decision, 60.0)
    list(search.arguments())
    assert 0 < len(search.verdicts) <= MAX_EVALUATIONS
    assert find_remedies(decision, 0.0) == ()
    assert decided(domain(many), {**GIVEN, "amount": 0}).would_unlock == ()
