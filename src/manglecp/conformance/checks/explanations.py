"""Why a tool is there: proof hints, for whoever asks, and nothing that is not theirs to know."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from manglecp.conformance.bench import Bench, Untested, tools_of
from manglecp.conformance.registry import check

_PREDICATE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.:]*")
_PATH: Final = re.compile(r"\.mg\b|(?:^|[\s\"'(])/(?:home|usr|opt|srv|var|root|etc|app)/")


async def _hints(b: Bench) -> tuple[Any, list[dict[str, Any]], tuple[Any, ...]]:
    stated = await b.intent()
    answer = await b.answered(stated, options={"include_proof_hints": True})
    return answer.payload.get("proof_hints"), tools_of(answer), stated.facts


@check("EVAL-28", "SEC-31")
async def hints_only_on_request(b: Bench) -> None:
    """There are no proof hints unless they are asked for"""
    stated = await b.intent()
    for options in ({}, {"include_proof_hints": False}):
        answer = await b.answered(stated, options=options)
        absent = answer.payload.get("proof_hints") is None
        b.that(("EVAL-28", "SEC-31"), absent, "no proof_hints", "proof_hints")


@check("PROOF-01", "PROOF-02", "CONF-11", level=3)
async def hints_are_given(b: Bench) -> None:
    """Proof hints have derivations, exclusions and facts without a use"""
    hints, _, _ = await _hints(b)
    if not b.that(("PROOF-01", "CONF-11"), isinstance(hints, dict), "proof_hints when they are asked for", hints):
        return
    for name in ("derivations", "excluded", "unmatched_facts"):
        b.that("PROOF-02", isinstance(hints.get(name), list), f"the list {name}", hints.get(name))


@check("PROOF-03", "PROOF-04", "PROOF-06", "PROOF-10", level=3)
async def each_tool_has_a_derivation(b: Bench) -> None:
    """Each tool has one derivation, of predicates and of the client's facts"""
    hints, tools, facts = await _hints(b)
    found = hints.get("derivations") if isinstance(hints, dict) else None
    derivations = [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
    ids, wanted = sorted(str(one.get("macro_id")) for one in derivations), sorted(str(t["macro_id"]) for t in tools)
    b.that("PROOF-06", ids == wanted, f"one derivation for each of {wanted}", ids)
    sent = [(fact.get("pred"), json.dumps(fact.get("args"))) for fact in facts]
    for one in derivations:
        phase = one.get("selected_by")
        b.that("PROOF-03", phase in ("skeleton", "flesh", "dependency"), "a phase in selected_by", phase)
        chain = one.get("rule_chain")
        names = isinstance(chain, list) and all(isinstance(n, str) and _PREDICATE.fullmatch(n) for n in chain)
        b.that(("PROOF-04", "PROOF-10"), names, "names of predicates in rule_chain", chain)
        for fact in one.get("supporting_facts") or ():
            known = (fact.get("pred"), json.dumps(fact.get("args"))) in sent or "named_args" in fact
            b.that("PROOF-04", known, "facts of the client in supporting_facts", fact)


@check("PROOF-09", level=3)
async def hints_give_nothing_away(b: Bench) -> None:
    """Proof hints show no rules and no paths"""
    hints, _, _ = await _hints(b)
    if not isinstance(hints, dict):
        raise Untested("there are no proof hints")
    text = json.dumps(hints, ensure_ascii=False)
    b.that("PROOF-09", ":-" not in text and "⟸" not in text, "no text of rules", "a rule")
    path = _PATH.search(text)
    b.that("PROOF-09", path is None, "no paths of files", path and text[max(0, path.start() - 20) : path.end() + 20])


@check("COV-01", "COV-03", "COV-04", "COV-05", "COV-10", level=3)
async def rule_coverage(b: Bench) -> None:
    """Whoever asks for it by the extension is told what became of the rules"""
    extensions = b.manifest.get("extensions")
    if not isinstance(extensions, dict) or "x-rule_coverage" not in extensions:
        raise Untested("the manifest has no extension x-rule_coverage")
    stated = await b.intent()
    diagnostics = (await b.answered(stated, options={"x-rule_coverage": True})).payload.get("diagnostics")
    coverage: Any = diagnostics.get("rule_coverage") if isinstance(diagnostics, dict) else None
    if not b.that(("COV-01", "COV-10"), isinstance(coverage, dict), "diagnostics.rule_coverage", coverage):
        return
    counts = [coverage.get(name) for name in ("rules_fired", "rules_dormant", "rules_inapplicable", "total_rules")]
    whole = all(isinstance(count, int) for count in counts)
    if b.that("COV-03", whole, "four counts", coverage):
        b.that("COV-05", sum(counts[:3]) == counts[3], "counts that add up to the total", coverage)
    for one in coverage.get("dormant_details") or ():
        b.that("COV-04", {"rule", "missing_predicates", "status"} <= set(one), "rule, what is missing, status", one)


@check("PROOF-08", level=3)
async def facts_without_a_use(b: Bench) -> None:
    """Facts without a use are facts of the client"""
    hints, _, facts = await _hints(b)
    found = hints.get("unmatched_facts") if isinstance(hints, dict) else None
    if not isinstance(found, list):
        raise Untested("there are no unmatched_facts")
    sent = {fact.get("pred") for fact in facts}
    for one in found:
        b.that("PROOF-08", one.get("pred") in sent and bool(one.get("reason")), "a fact that was sent, and why", one)
    b.that("PROOF-08", True, "", "")
