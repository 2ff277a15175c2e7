"""Random policies and calls: an explanation equals the decision, and offers, decisions and the gate agree."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from random import Random
from typing import Any

import msgspec

from manglecp.intent import Decision, Identity
from manglecp.intent.evaluation import PolicyRefusal, evaluate
from manglecp.invoke import DecisionDetails, decide_call, explain_decision, repeat_decision
from manglecp.invoke.approval import APPROVE
from manglecp.mangle import Trust
from manglecp.pack import Pack
from manglecp.store import StoredDecision
from manglecp.wire import WireError
from manglecp.wire.messages import DecidePayload, Intent
from tests.intent.packs import NOW, request
from tests.invoke.chains import chain, steps
from tests.invoke.workshop import Fails, Shop, shop

LEAD = Identity("leo", frozenset({APPROVE, "lead"}), "user")
HEADS = (
    *('prohibited("t", "no")', 'prohibited("t", "never")', 'effect_denied("write", "closed")'),
    *('prohibited("t", "no")', 'prohibited("t", "never")', 'permitted("t")', 'effect_denied("write", "closed")'),
    *(
        'intent_denied("not now")',
        'intent_denied("never")',
        'fact_denied("asked", "not that")',
        'needs_confirmation("t")',
    ),
    *('needs_approval("t", "lead")', 'four_eyes("t")', 'public_reason("t", "ask the lead")'),
    *('public_reason("t", "less is fine")', 'prohibited("v", "other tool")'),
)
OFFERED = (
    *('client_permission("a")', '!client_permission("a")', "asked(1)", "!asked(2)", "inner(1)", "!inner(1)"),
    *('!client("eve")', "lasted(1)@[now]"),
)
CALLED = ("N > 1", "N <= 2", "N = 3", "!large()", "least(M), M < 3", "digits(1), !least(2)", 'run_arg("n", N)')
HELPERS = """
large() :- call("t"), call_arg("n", N), N > 2.
value(N) :- call(_), call_value("/n", N), :is_number(N).
value(2).
least(M) :- call(_), value(N) |> do fn:group_by(), let M = fn:min(N).
digits(C) :- value(_), call("t") |> do fn:group_by(), let C = fn:count().
"""


def drawn_pack(random: Random) -> Pack:
    rules = ['effect_denied("erase", "keep it") :- client("eve"), asked(2).']
    if random.random() < 0.4:
        rules.append(f'permitted("t") :- {random.choice(OFFERED)}.')
    for _ in range(random.randint(1, 5)):
        head = random.choice(HEADS)
        body = random.sample(OFFERED, random.randint(1, 2))
        if random.random() < 0.5 and not head.startswith("permitted"):
            body += ['call("t")', 'call_arg("n", N)', random.choice(CALLED)]
        if random.random() < 0.1:
            body.append('intent("go")')
        rules.append(f"{head} :- {', '.join(body)}.")
    facts = random.choice(("", "inner(1)."))
    when = random.choice(('mandatory("t") :- intent("go").', 'relevant("t", 50) :- intent("go"), !asked(3).'))
    other = 'macro("v", "Looks."). macro_step("v", 1, "look").'
    undo = 'undo_step("t", 2, "erase"). undo_in("t", 2, "n", "n"). nothing_to_undo("t", 4). on_error("t", 4, "undo").'
    chained = steps("look", "write", "look", "write")
    return chain(chained, undo, other, facts, when=when, policy="\n".join(rules) + HELPERS, permissions=("a", "lead"))


def records(s: Shop) -> list[tuple[StoredDecision, DecisionDetails]]:
    with s.store.read_transaction() as tx:
        found = s.store.decisions.newest(tx, 10_000)
        assert not s.store.decisions.verify(tx)
        return [
            (stored, msgspec.json.decode(s.store.decisions.content(stored), type=DecisionDetails)) for stored in found
        ]


def meaning(decision: Decision) -> tuple[Any, ...]:
    return decision.verdict, decision.reasons, decision.public_reasons, decision.rules, decision.digest


def check_record(s: Shop, stored: StoredDecision, details: DecisionDetails, seen: Counter[str]) -> None:
    repeated = repeat_decision(stored, details, s.domain)
    recorded = (stored.verdict, details.reasons, details.public_reasons, details.rules, details.inputs_digest)
    assert meaning(repeated) == recorded
    explanation = explain_decision(stored, details, s.domain)
    assert explanation.differences == ()
    proven = {proof.fact.partition("(")[0] for proof in explanation.proofs}
    seen[f"{stored.operation} {stored.verdict}"] += 1
    if stored.verdict == "deny":
        denials = {fact.text for fact in repeated.judgement.denials}
        assert denials <= {proof.fact for proof in explanation.proofs}
        seen["denied by policy"] += bool(denials)
    elif details.scope == "proof":
        assert ("permitted" in proven) == ("permitted_only" in repeated.judgement.rows)
        assert stored.verdict != "ask" or proven & {"needs_approval", "needs_confirmation", "four_eyes"}
        assert details.intent is None or "final_selected" in proven


async def check_pack(random: Random, seen: Counter[str]) -> None:
    caller = Identity(random.choice(("ann", "eve")), frozenset(random.sample(("a",), random.randint(0, 1))), "user")
    facts = [(random.choice(("asked", "lasted")), random.randint(1, 3)) for _ in range(random.randint(0, 2))]
    wire: list[Any] = [
        {"pred": name, "args": [value], **({"t": {"at": "2026-01-15T12:00:00Z"}} if name == "lasted" else {})}
        for name, value in facts
    ]
    calls: list[int] = []

    def write(given: dict[str, Any]) -> dict[str, Any]:
        calls.append(given["n"])
        if len(calls) % 4 == 2:
            raise Fails
        return given

    async with shop(drawn_pack(random), {"write": write}) as s:
        excluded = await policy_excludes(s, caller, wire)
        (policy,) = [source.text for source in s.domain.pack.sources if source.trust is Trust.POLICY]
        intents = {"go"} if "intent(" in policy else {"go", "later", ""}  # for which it excludes the tool
        for number in range(1, 4):
            for intent in (None, Intent(name="go"), Intent(name="later")):
                payload = DecidePayload(tool="t", args={"n": number}, intent=intent, facts=wire)
                with suppress(WireError):
                    decision = decide_call(s.domain, payload, caller, NOW)
                    await s.invoker.decision_log.record(decision, "decide")
                    if excluded and (intent.name if intent else "") in intents:
                        assert decision.verdict == "deny"
                        seen["excluded"] += 1
            await check_gate(s, caller, number, wire, seen)
        await s.invoker.decision_log.drain()
        for stored, details in records(s):
            check_record(s, stored, details, seen)


async def policy_excludes(s: Shop, caller: Identity, facts: list[Any]) -> bool:
    """Return whether policy excludes ``t`` from the offer for the intent ``go``; a refusal is recorded."""
    try:
        evaluation = evaluate(s.domain, request("go", facts=facts), caller)
    except PolicyRefusal as refusal:
        await s.invoker.decision_log.record_refusal(refusal)
        return True
    return any(kind == "policy" for _, kind, _ in evaluation.result.find(("kernel.barred_by", 3), "t"))


async def check_gate(s: Shop, caller: Identity, number: int, facts: list[Any], seen: Counter[str]) -> None:
    """Invoke the tool, and compare every decision about the run with a requested one of equal inputs and instant."""
    s.bench.ran.clear()
    await s.invoker.decision_log.drain()
    before = {stored.id for stored, _ in records(s)}
    with suppress(WireError):
        tools = await s.tools(identity=caller, facts=facts)
        try:
            await s.invoke(tools["t"], {"n": number}, identity=caller, evaluate=False)
        except KeyError:
            return
        except WireError as error:
            if error.code != "confirmation_required":
                raise
            token = await s.approve(error, LEAD)
            arguments: Any = {"confirmation_token": token}
            await s.invoke(tools["t"], {"n": number}, identity=caller, evaluate=False, **arguments)
    await s.invoker.decision_log.drain()
    new = [(stored, details) for stored, details in records(s) if stored.id not in before]
    for stored, details in new:
        if details.scope != "proof" or stored.operation == "evaluate":
            continue
        assert details.inputs is not None
        proof = details.inputs.proof
        payload = DecidePayload(tool="t", args=details.inputs.args, intent=proof.intent, facts=list(proof.facts))
        decision = decide_call(s.domain, payload, caller, details.at_ns)
        assert (decision.verdict, decision.public_reasons) == (stored.verdict, details.public_reasons)
        seen[f"the gate and decide: {stored.operation} {stored.verdict}"] += 1
    has_written = any(action == "write" for action, _ in s.bench.ran)
    assert not (has_written and any(stored.verdict == "deny" for stored, _ in new))
    seen["effects"] += has_written


async def test_explanations_offers_decisions_and_the_gate_agree() -> None:
    seen: Counter[str] = Counter()
    for seed in range(48):
        await check_pack(Random(seed), seen)
    expected = {
        "effect allow",
        "undo allow",
        "evaluate deny",
        "excluded",
        "effects",
        "denied by policy",
        "decide allow",
        "decide ask",
        "decide deny",
    }
    gate = {
        f"the gate and decide: {name}"
        for name in ("admission allow", "admission ask", "admission deny", "effect allow")
    }
    assert {name for name in expected | gate if not seen[name]} == set(), seen
