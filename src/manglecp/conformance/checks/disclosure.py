"""Disclosure levels of tools, proofs and why-not answers."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from manglecp.conformance.bench import Bench, Untested, check, tools_of
from manglecp.conformance.connections import member

_RANK: Final = {"minimal": 0, "condensed": 1, "full": 2}


def _levels(tools: list[dict[str, Any]]) -> dict[str, int]:
    return {str(tool.get("macro_id")): _RANK.get(str(tool.get("disclosure_level")), -1) for tool in tools}


@check("EVAL-33", "CONF-04", "TOOL-05")
async def everything_in_full(b: Bench) -> None:
    """With the preference full every tool is shown in full"""
    for tool in await b.some_tools(await b.intent(), options={"disclosure_preference": "full"}):
        fits = tool.get("disclosure_level") == "full"
        b.note(("EVAL-33", "CONF-04", "TOOL-05"), fits, "disclosure_level full", tool.get("disclosure_level"))


@check("EVAL-33", "CONF-07", "TOOL-06", "TOOL-07", level=2)
async def less_of_everything(b: Bench) -> None:
    """With the preferences condensed and minimal every tool is shown so"""
    planned = await b.intent()
    for level, row in (("condensed", "TOOL-06"), ("minimal", "TOOL-07")):
        for tool in await b.some_tools(planned, options={"disclosure_preference": level}):
            seen = tool.get("disclosure_level")
            b.note(("EVAL-33", "CONF-07", row), seen == level, f"disclosure_level {level}", seen)


@check("EVAL-08", level=2)
async def adaptive_by_default(b: Bench) -> None:
    """Without a preference it is adaptive, and without proof hints"""
    planned = await b.intent()
    plain = await b.response(planned)
    adaptive = await b.tools(planned, options={"disclosure_preference": "adaptive"})
    levels = _levels(plain.payload.get("macro_tools") or [])
    b.note("EVAL-08", levels == _levels(adaptive), f"the same as adaptive: {_levels(adaptive)}", levels)


@check("EVAL-35", "SKILL-15", "OPEN-22", level=2)
async def budgets(b: Bench) -> None:
    """A budget of tokens shows less of the tools, never more"""
    planned = await b.intent()
    options = {"disclosure_preference": "full"}
    every = _levels(await b.some_tools(planned, options=options))
    for budget in (5_000, 200, 60, 20, 5):
        levels = _levels(await b.tools(planned, options=options, constraints={"max_tokens_budget": budget}))
        fits = all(name in every and rank <= every[name] for name, rank in levels.items())
        b.note(("EVAL-35", "OPEN-22"), fits, f"the same tools or fewer under a budget of {budget}", levels)
        if budget <= 20:
            small = _RANK["full"] not in levels.values()
            b.note(("EVAL-35", "SKILL-15"), small, f"no tool in full under a budget of {budget} tokens", levels)


@check("SKILL-03", "SKILL-05", "CONF-09", level=2)
async def skills(b: Bench) -> None:
    """A skill comes with the tools that are proven to need it, and not otherwise"""
    cases = [one for one in b.plan.intents if one.skills or one.no_skills]
    if not cases:
        raise Untested("the plan names no skills")
    for planned in cases:
        answer = await b.response(planned, options={"disclosure_preference": "full"})
        skills_by_id: dict[str, Any] = {
            str(one.get("skill_id")): one for one in answer.payload.get("required_skills") or ()
        }
        for tool in tools_of(answer):
            for one in (tool.get("context_injection") or {}).get("skills") or ():
                skills_by_id[str(one.get("skill_id"))] = one
                whole = not one.get("inline") or isinstance(one.get("content"), str)
                b.note("SKILL-05", whole, "the content of a skill that is inline", one)
        missing, extra = set(planned.skills) - set(skills_by_id), set(planned.no_skills) & set(skills_by_id)
        b.note(("SKILL-03", "CONF-09"), not missing, f"the skills {', '.join(planned.skills)}", sorted(skills_by_id))
        b.note("SKILL-03", not extra, f"not the skills {', '.join(planned.no_skills)}", sorted(extra))


@check("EVAL-36", level=3)
async def better_tools_show_more(b: Bench) -> None:
    """Under a budget no tool shows less than one with a lower score"""
    planned = await b.intent()
    for budget in (1_000, 400, 120, 40):
        answer = await b.response(
            planned,
            options={"disclosure_preference": "full", "include_proof_hints": True},
            constraints={"max_tokens_budget": budget},
        )
        levels = _levels(answer.payload.get("macro_tools") or [])
        derivations = member(answer.payload, "proof_hints", "derivations")
        scores = {str(one.get("macro_id")): float(one["score"]) for one in derivations or ()}
        ranked = sorted((scores[name], level) for name, level in levels.items() if name in scores)
        wrong = [(low, high) for low in ranked for high in ranked if low[0] < high[0] and low[1] > high[1]]
        b.note("EVAL-36", not wrong, f"levels in the order of scores under a budget of {budget}", ranked)


@check("EVAL-38", "EVAL-39", "CONF-11", "OPEN-16", level=3)
async def upgrades(b: Bench) -> None:
    """A tool that is asked for by disclosure_upgrade comes in full"""
    for planned in b.plan.intents or (await b.intent(),):
        answer = await b.evaluate(planned)
        less = [tool for tool in answer.payload.get("macro_tools") or () if tool.get("disclosure_level") != "full"]
        for tool in less:
            fact = {"pred": "disclosure_upgrade", "args": [tool["macro_id"]]}
            tools = await b.tools(planned, facts=[*planned.facts, fact])
            level = next(
                (one.get("disclosure_level") for one in tools if one.get("macro_id") == tool["macro_id"]), None
            )
            b.note(("EVAL-38", "EVAL-39", "CONF-11"), level == "full", f"{tool['name']} in full", level)
        if less:
            unknown = {"pred": "disclosure_upgrade", "args": ["conformance-none"]}
            other = await b.evaluate(planned, facts=[*planned.facts, unknown])
            b.note("OPEN-16", other.type == "intent_response", "an unknown macro_id passed over", other)
            return
    raise Untested("every tool is shown in full already")


_PREDICATE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.:]*")
_PATH: Final = re.compile(r"\.mg\b|(?:^|[\s\"'(])/(?:home|usr|opt|srv|var|root|etc|app)/")


async def _hints(b: Bench) -> tuple[Any, list[dict[str, Any]], tuple[Any, ...]]:
    planned = await b.intent()
    answer = await b.response(planned, options={"include_proof_hints": True})
    return answer.payload.get("proof_hints"), tools_of(answer), planned.facts


@check("EVAL-28", "SEC-31")
async def hints_only_on_request(b: Bench) -> None:
    """There are no proof hints unless they are asked for"""
    planned = await b.intent()
    for options in ({}, {"include_proof_hints": False}):
        answer = await b.response(planned, options=options)
        absent = answer.payload.get("proof_hints") is None
        b.note(("EVAL-28", "SEC-31"), absent, "no proof_hints", "proof_hints")


@check("PROOF-01", "PROOF-02", "CONF-11", level=3)
async def hints_are_given(b: Bench) -> None:
    """Proof hints have derivations, exclusions and facts without a use"""
    hints, _, _ = await _hints(b)
    if not b.note(("PROOF-01", "CONF-11"), isinstance(hints, dict), "proof_hints when they are asked for", hints):
        return
    for name in ("derivations", "excluded", "unmatched_facts"):
        b.note("PROOF-02", isinstance(hints.get(name), list), f"the list {name}", hints.get(name))


@check("PROOF-03", "PROOF-04", "PROOF-06", "PROOF-10", level=3)
async def each_tool_has_a_derivation(b: Bench) -> None:
    """Each tool has one derivation, of predicates and of the client's facts"""
    hints, tools, facts = await _hints(b)
    listed = member(hints, "derivations")
    derivations = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    ids, wanted = sorted(str(one.get("macro_id")) for one in derivations), sorted(str(t["macro_id"]) for t in tools)
    b.note("PROOF-06", ids == wanted, f"one derivation for each of {wanted}", ids)
    sent = [(fact.get("pred"), json.dumps(fact.get("args"))) for fact in facts]
    for one in derivations:
        phase = one.get("selected_by")
        b.note("PROOF-03", phase in ("skeleton", "flesh", "dependency"), "a phase in selected_by", phase)
        chain = one.get("rule_chain")
        names = isinstance(chain, list) and all(isinstance(n, str) and _PREDICATE.fullmatch(n) for n in chain)
        b.note(("PROOF-04", "PROOF-10"), names, "names of predicates in rule_chain", chain)
        for fact in one.get("supporting_facts") or ():
            is_sent = (fact.get("pred"), json.dumps(fact.get("args"))) in sent or "named_args" in fact
            b.note("PROOF-04", is_sent, "facts of the client in supporting_facts", fact)


@check("PROOF-09", level=3)
async def hints_give_nothing_away(b: Bench) -> None:
    """Proof hints show no rules and no paths"""
    hints, _, _ = await _hints(b)
    if not isinstance(hints, dict):
        raise Untested("there are no proof hints")
    text = json.dumps(hints, ensure_ascii=False)
    b.note("PROOF-09", ":-" not in text and "⟸" not in text, "no text of rules", "a rule")
    path = _PATH.search(text)
    b.note("PROOF-09", path is None, "no paths of files", path and text[max(0, path.start() - 20) : path.end() + 20])


@check("COV-01", "COV-03", "COV-04", "COV-05", "COV-10", level=3)
async def rule_coverage(b: Bench) -> None:
    """The extension returns the rule coverage on request"""
    extensions = b.manifest.get("extensions")
    if not isinstance(extensions, dict) or "x-rule_coverage" not in extensions:
        raise Untested("the manifest has no extension x-rule_coverage")
    planned = await b.intent()
    answer = await b.response(planned, options={"x-rule_coverage": True})
    coverage = member(answer.payload, "diagnostics", "rule_coverage")
    b.note(("COV-01", "COV-10"), isinstance(coverage, dict), "diagnostics.rule_coverage", coverage)


@check("PROOF-08", level=3)
async def facts_without_a_use(b: Bench) -> None:
    """Facts without a use are facts of the client"""
    hints, _, facts = await _hints(b)
    unmatched = member(hints, "unmatched_facts")
    if not isinstance(unmatched, list):
        raise Untested("there are no unmatched_facts")
    sent = {fact.get("pred") for fact in facts}
    for one in unmatched:
        b.note("PROOF-08", one.get("pred") in sent and bool(one.get("reason")), "a fact that was sent, and why", one)
    b.note("PROOF-08", True, "", "")
