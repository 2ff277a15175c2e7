"""Parts of responses as text for a terminal: facts, derivations, why-not, rule coverage, errors."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from manglecp.wire.messages import UNSET, Derivation, RuleCoverage, WhyNot


class Heading(str):
    """A line that the terminal shows in bold."""

    __slots__ = ()


def fact_text(fact: Mapping[str, Any]) -> str:
    """Return a fact as the option ``--fact`` accepts it; null is ``_``."""
    args, named_args = fact.get("args"), fact.get("named_args")
    if isinstance(args, list | tuple):
        arguments = ", ".join(map(_argument_text, args))
    else:  # a server may send named arguments
        arguments = ", ".join(f"{name}: {_argument_text(arg)}" for name, arg in (named_args or {}).items())
    return f"{fact.get('pred', '?')}({arguments}){_time_text(fact.get('t'))}"


def _argument_text(arg: Any) -> str:
    if arg is None:
        return "_"
    if isinstance(arg, dict):
        if "_var" in arg:
            return str(arg["_var"])
        if set(arg) == {"_type", "value"}:
            return str(arg["value"])
    return json.dumps(arg, ensure_ascii=False)


def _time_text(t: Any) -> str:
    if not isinstance(t, dict):
        return ""
    return f"@[{t['at']}]" if "at" in t else f"@[{t.get('start')}, {t.get('end')}]"


def derivation_lines(name: str, derivation: Derivation) -> Iterator[str]:
    """Yield the rules and facts that selected a tool."""
    yield Heading(f"why {name}: {derivation.selected_by}, {derivation.score}")
    yield f"  by {', '.join(derivation.rule_chain)}"
    yield from (f"  {fact_text(fact)}" for fact in derivation.supporting_facts)
    # If policy permitted the tool, the tree shows the permission to callers that may see policy.
    children = derivation.tree.children if derivation.tree else ()
    pending = [(node, 1) for node in children if node.fact.startswith("permitted")]
    while pending:
        node, depth = pending.pop()
        yield f"{'  ' * depth}{node.fact}"
        pending += [(child, depth + 1) for child in reversed(node.children)]


def why_not_lines(why_not: WhyNot) -> Iterator[str]:
    """Yield the rules that block a tool, and the facts that would unlock the tool."""
    yield Heading(f"why not {why_not.tool}")
    if not why_not.known:
        yield "  no tool of this name could serve this intent"
        return
    if why_not.would_unlock == ((),):  # no further facts are needed
        yield "  it is offered"
        return
    yield from (f"  {reason}" for reason in why_not.blocked_by)
    if why_not.would_unlock:
        yield "  it would be offered with"
        for facts in why_not.would_unlock:
            yield "    " + "\n      and ".join(fact_text(fact) for fact in facts)
        if not why_not.complete:
            yield "  other facts may unlock it too"
    elif why_not.complete:
        yield "  no fact that a client may assert would unlock it"
    else:
        yield "  no facts were found that would unlock it and may be disclosed"


def coverage_lines(coverage: RuleCoverage) -> Iterator[str]:
    """Yield the number of rules that fired, then each dormant rule that the response lists."""
    total = "" if coverage.total_rules is UNSET else f" of {coverage.total_rules}"
    counts = {
        f"{total} fired": coverage.rules_fired,
        " dormant": coverage.rules_dormant,
        " for other intents": coverage.rules_inapplicable,
    }
    yield Heading(f"rules: {', '.join(f'{n}{text}' for text, n in counts.items() if n is not UNSET) or 'not counted'}")
    for rule in coverage.dormant_details:
        missing = f", without {', '.join(rule.missing_predicates)}" if rule.missing_predicates else ""
        yield f"  {rule.rule}: {rule.status.replace('_', ' ')}{missing}"


def error_lines(code: str, message: str, details: Mapping[str, Any] | None) -> Iterator[str]:
    """Yield a protocol error with its violations and suggestions."""
    yield f"error[{code}]: {message}"
    details = details or {}
    for violation in details.get("violations", ()):
        position, name = violation.get("fact_index", "?"), violation.get("predicate", "?")
        yield f"  fact {position}, {name}: {violation.get('message', violation.get('issue', ''))}"
        if "suggestion" in violation:
            yield f"    {violation['suggestion']}"
    for name in details.get("missing_facts", ()):
        yield f"  missing: {name}"
    if "suggestion" in details:
        yield f"  {details['suggestion']}"
