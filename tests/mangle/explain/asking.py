"""Short ways to ask."""

from __future__ import annotations

from manglecp.base.source import Source
from manglecp.mangle.builtins.calendar import parse_rfc3339
from manglecp.mangle.engine import evaluate
from manglecp.mangle.explain import Explainer, Proof
from manglecp.mangle.model import Limits
from manglecp.mangle.program import Program
from manglecp.mangle.result import Result


def instant(text: str) -> int:
    ns = parse_rfc3339(text)
    assert ns is not None
    return ns


def evaluated(text: str, now: str = "2026-01-15T12:00:00Z", limits: Limits | None = None) -> Result:
    program = Program.load([Source("rules.mg", text)])
    return evaluate(program, now=instant(now), limits=limits)


def about(text: str, now: str = "2026-01-15T12:00:00Z") -> Explainer:
    return evaluated(text, now).explainer


def proof(text: str, fact: str) -> Proof:
    found = about(text).explain(fact)
    assert found is not None, f"{fact} does not hold"
    return found


def unlocking(text: str, fact: str) -> list[list[str]]:
    answer: list[list[str]] = about(text).why_not(fact).as_json()["would_unlock"]
    return answer


def without_compiled_rules(result: Result) -> Result:
    """The result, whose expiry reads instances of rules instead of running compiled functions backwards."""
    result._expiry.rules = dict.fromkeys(result._expiry.rules)
    return result
