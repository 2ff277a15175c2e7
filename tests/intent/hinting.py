"""Ask for the hints of a request to a pack in memory."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, Final

import msgspec

from manglecp.intent.definition import Definition, SafetyData
from manglecp.intent.domain import Domain
from manglecp.intent.evaluation import IntentEvaluation, evaluate
from manglecp.intent.identity import ANONYMOUS, Identity
from manglecp.intent.proof_hints import Hints, rule_coverage
from manglecp.pack import Pack
from manglecp.wire.messages import ProofHints, ProofTree, RuleCoverage, WhyNot
from tests.intent.packs import clock, pack, request

USER: Final = Identity("kim", frozenset(), "user")
AUDITOR: Final = Identity("auditor", frozenset({"explain_policy"}), "user")

SCHEMA: Final = """
Decl seen(Word) descr [direction("input")] bound [/string].
Decl logged(Word) temporal descr [direction("input"), untimed("always")] bound [/string].
Decl measured(Name, Count) descr [direction("input")] bound [/string, /number].
Decl verdict(Word) descr [direction("output")] bound [/string].
"""


def tools(*names: str) -> str:
    """Macros of one step each."""
    return "".join(f'macro("{name}", "Does {name}."). macro_step("{name}", 1, "look").\n' for name in names)


@cache
def domain(rules: str, policy: str = "", schema: str = SCHEMA) -> Domain:
    return Domain.load(pack(rules, policy=policy, schema=schema, intents=("observe", "repair", "neither")))


def evaluated(
    source: Domain | Pack,
    intent: str = "observe",
    facts: Iterable[Any] = (),
    identity: Identity = ANONYMOUS,
    why_not: Iterable[str] = (),
    **more: Any,
) -> IntentEvaluation:
    loaded = source if isinstance(source, Domain) else Domain.load(source)
    options = {"include_proof_hints": True, "x-why_not": list(why_not)}
    return evaluate(loaded, request(intent, facts, options=options, **more), identity, clock=clock)


def defined(tool: str) -> Definition:
    safety = SafetyData(requires_user_confirmation=False, side_effects=())
    return Definition(
        tool=tool,
        macro_id=f"m-{tool}",
        chain_digest="",
        description="",
        summary="",
        steps=(),
        input_schema={},
        safety=safety,
    )


def hints_of(evaluation: IntentEvaluation, returned: Iterable[str] | None = None) -> ProofHints:
    """The hints of an answer that returns all selected tools, or only some."""
    names = [one.tool for one in evaluation.selected] if returned is None else returned
    return Hints(evaluation, time.monotonic() + 600).about([defined(name) for name in names])


def hints(*args: Any, **more: Any) -> ProofHints:
    return hints_of(evaluated(*args, **more))


def why_not(source: Domain | Pack, tool: str, *args: Any, **more: Any) -> WhyNot:
    answers = hints(source, *args, why_not=[tool], **more).why_not
    assert isinstance(answers, tuple)
    (answer,) = answers
    assert answer.tool == tool
    return answer


def coverage(*args: Any, **more: Any) -> RuleCoverage:
    return rule_coverage(evaluated(*args, **more))


def nodes(tree: ProofTree) -> Iterator[ProofTree]:
    work = [tree]
    while work:
        node = work.pop()
        yield node
        work += node.children


def text_of(*parts: Any) -> str:
    """Everything that would travel, as text."""
    return json.dumps(msgspec.to_builtins(parts), ensure_ascii=False)
