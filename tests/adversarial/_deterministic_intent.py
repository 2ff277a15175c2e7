"""Answer intent requests and print every byte; run by the tests of case 29 as a process of its own.

The argument is a number that decides the order in which facts, clauses, actions and skills arrive.
"""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from random import Random
from typing import Any

import msgspec

from manglecp.intent import ANONYMOUS, Domain, Identity
from manglecp.intent.responder import answer_bytes
from manglecp.mangle import Source
from manglecp.pack import Pack
from tests.intent.packs import clock, pack, request

SCHEMA = """
Decl seen(Word) descr [direction("input")] bound [/string].
Decl logged(Word) temporal descr [direction("input"), untimed("always")] bound [/string].
Decl measured(Name, Count) descr [direction("both")] bound [/string, /number].
"""
TOOLS = ("fetch", "mend", "count", "audit", "rival", "lost", "barred", "idle", "spare")
RULES = """
trouble(W) :- seen(W), bad(W).
bad("red").
bad("amber").
lately(W) :- <-[10m] logged(W).
total(N) :- seen(_) |> do fn:group_by(), let N = fn:count().
mandatory("fetch") :- intent("observe"), trouble(_).
relevant("mend", 60) :- intent("observe"), trouble(W), lately(W).
relevant("count", 50) :- intent("observe"), total(N), N > 2.
relevant("rival", 70) :- intent("observe"), seen("red").
relevant("lost", 70) :- intent("observe"), seen("red").
relevant("barred", 90) :- intent("observe").
relevant("idle", 55) :- intent("observe"), measured(_, N), N > 100.
relevant("idle", 56) :- intent("observe"), seen("blue").
relevant("spare", 45) :- intent("repair"), seen(_).
relevant("ghost", 30) :- intent("observe").
macro("ghost", "Never.") :- seen("never").
conflicts("lost", "rival").
requires("mend", "audit").
needs_skill("mend", "patience").
needs_skill("mend", "care").
instruction("fetch", 1, W) :- trouble(W).
"""
POLICY = """
prohibited("barred", "not now").
prohibited("barred", "nor later").
needs_confirmation("mend").
"""
FACTS: list[Any] = [
    *(("seen", word) for word in ("red", "amber", "green", "grey")),
    *(
        {"pred": "logged", "args": [word], "t": {"at": f"2026-01-15T11:5{n}:00Z"}}
        for n, word in enumerate(("red", "amber"))
    ),
    *(("measured", name, n) for n, name in enumerate(("cpu", "disk", "net"))),
]


def shuffled(order: Random) -> Pack:
    macros = [f'macro("{tool}", "Does {tool}."). macro_step("{tool}", 1, "look").' for tool in TOOLS]
    lines = [*macros, *RULES.strip().splitlines()]
    skills = ["patience", "care"]
    made = pack(
        "\n".join(order.sample(lines, len(lines))),
        policy="\n".join(order.sample(POLICY.strip().splitlines(), 3)),
        schema="\n".join(order.sample(SCHEMA.strip().splitlines(), 3)),
        actions=order.sample(["look", "leap"], 2),
        skills=order.sample(skills, 2),
        intents=["observe", "repair"],
    )
    sources: list[Source] = order.sample(made.sources, len(made.sources))
    return replace(made, sources=tuple(sources))


NAMES = ("fetch", "lost", "barred", "idle", "spare", "ghost", "nothing")


def ask(
    domain: Domain,
    intent: str,
    facts: list[Any],
    identity: Identity,
    names: tuple[str, ...] = NAMES,
    budget: Any = None,
) -> bytes:
    options = {"include_proof_hints": True, "x-why_not": names, "x-rule_coverage": True} if names else {}
    data = msgspec.json.encode(request(intent, facts, options=options, constraints=budget))
    answer = answer_bytes(domain, data, identity, clock)
    return re.sub(rb'"eval_duration_ms":\d+', b'"eval_duration_ms":0', answer)


def main() -> None:
    order = Random(int(sys.argv[1]))
    domain = Domain.load(shuffled(order))
    for identity in (ANONYMOUS, Identity("auditor", frozenset({"explain_policy"}), "user")):
        for intent, facts in (("observe", FACTS), ("observe", FACTS[2:]), ("repair", FACTS)):
            for budget in ({}, {"max_tools_returned": 2, "max_tokens_budget": 300}):
                sent = order.sample(facts, len(facts))
                print(ask(domain, intent, sent, identity, budget=budget).decode())
    times = 100 if sys.argv[1] == "0" else 2
    plain = {ask(domain, "observe", FACTS, ANONYMOUS, ()) for _ in range(times)}
    explained = {ask(domain, "observe", FACTS, ANONYMOUS, ("ghost",)) for _ in range(2)}
    print(len(plain), "and", len(explained), "answer to many requests")


if __name__ == "__main__":
    main()
