"""Checks of disclosure levels and proof hints. The ids name requirements of ``docs/reference/requirements.md``."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from manglecp.conformance.bench import Bench, Untested, check
from manglecp.conformance.connections import get_objects, get_path

_RANK: Final = {"minimal": 0, "condensed": 1, "full": 2}


def _ranks(tools: list[dict[str, Any]]) -> dict[str, int]:
    """Return the rank of the disclosure level of each tool, by macro_id; -1 for an unknown level."""
    return {str(tool.get("macro_id")): _RANK.get(str(tool.get("disclosure_level")), -1) for tool in tools}


@check("EVAL-33", "CONF-04", "TOOL-05")
async def everything_in_full(b: Bench) -> None:
    """With the preference full every tool is shown in full"""
    for tool in await b.nonempty_tools(await b.usable_intent(), options={"disclosure_preference": "full"}):
        level = tool.get("disclosure_level")
        b.note(("EVAL-33", "CONF-04", "TOOL-05"), level == "full", "disclosure_level full", level)


@check("EVAL-33", "CONF-07", "TOOL-06", "TOOL-07", level=2)
async def less_of_everything(b: Bench) -> None:
    """With the preferences condensed and minimal every tool has that level"""
    planned = await b.usable_intent()
    for level, row in (("condensed", "TOOL-06"), ("minimal", "TOOL-07")):
        for tool in await b.nonempty_tools(planned, options={"disclosure_preference": level}):
            seen = tool.get("disclosure_level")
            b.note(("EVAL-33", "CONF-07", row), seen == level, f"disclosure_level {level}", seen)


@check("EVAL-08", level=2)
async def adaptive_by_default(b: Bench) -> None:
    """Without a preference disclosure is adaptive"""
    planned = await b.usable_intent()
    adaptive = _ranks(await b.tools(planned, options={"disclosure_preference": "adaptive"}))
    default = _ranks(await b.tools(planned))
    b.note("EVAL-08", default == adaptive, f"the same as adaptive: {adaptive}", default)


@check("EVAL-35", "SKILL-15", "OPEN-22", level=2)
async def budgets(b: Bench) -> None:
    """A budget of tokens shows less of the tools, never more"""
    planned = await b.usable_intent()
    options = {"disclosure_preference": "full"}
    unlimited = _ranks(await b.nonempty_tools(planned, options=options))
    for budget in (5_000, 200, 60, 20, 5):
        ranks = _ranks(await b.tools(planned, options=options, constraints={"max_tokens_budget": budget}))
        holds = all(id_ in unlimited and rank <= unlimited[id_] for id_, rank in ranks.items())
        b.note(("EVAL-35", "OPEN-22"), holds, f"the same tools or fewer under a budget of {budget}", ranks)
        if budget <= 20:  # too few tokens for the schema of any tool
            has_no_full = _RANK["full"] not in ranks.values()
            b.note(("EVAL-35", "SKILL-15"), has_no_full, f"no tool in full under a budget of {budget} tokens", ranks)


@check("SKILL-03", "SKILL-05", "CONF-09", level=2)
async def skills(b: Bench) -> None:
    """A skill comes with the tools that are proven to need it, and not otherwise"""
    cases = [planned for planned in b.plan.intents if planned.skills or planned.no_skills]
    if not cases:
        raise Untested("the plan names no skills")
    for planned in cases:
        answer = await b.evaluate_successfully(planned, options={"disclosure_preference": "full"})
        ids = {str(skill.get("skill_id")) for skill in answer.payload.get("required_skills") or ()}
        for tool in answer.tools:
            for skill in (tool.get("context_injection") or {}).get("skills") or ():
                ids.add(str(skill.get("skill_id")))
                has_content = not skill.get("inline") or isinstance(skill.get("content"), str)
                b.note("SKILL-05", has_content, "the content of a skill that is inline", skill)
        missing, extra = set(planned.skills) - ids, set(planned.no_skills) & ids
        b.note(("SKILL-03", "CONF-09"), not missing, f"the skills {', '.join(planned.skills)}", sorted(ids))
        b.note("SKILL-03", not extra, f"not the skills {', '.join(planned.no_skills)}", sorted(extra))


@check("EVAL-36", level=3)
async def better_tools_show_more(b: Bench) -> None:
    """Under a budget no tool shows less than one with a lower score"""
    planned = await b.usable_intent()
    options = {"disclosure_preference": "full", "include_proof_hints": True}
    for budget in (1_000, 400, 120, 40):
        answer = await b.evaluate_successfully(planned, options=options, constraints={"max_tokens_budget": budget})
        derivations = get_path(answer.payload, "proof_hints", "derivations") or ()
        scores = {str(derivation.get("macro_id")): float(derivation["score"]) for derivation in derivations}
        pairs = sorted((scores[id_], rank) for id_, rank in _ranks(answer.tools).items() if id_ in scores)
        is_ordered = not any(s1 < s2 and rank1 > rank2 for s1, rank1 in pairs for s2, rank2 in pairs)
        b.note("EVAL-36", is_ordered, f"levels in the order of scores under a budget of {budget}", pairs)


@check("EVAL-38", "EVAL-39", "CONF-11", "OPEN-16", level=3)
async def upgrades(b: Bench) -> None:
    """A tool that is named by disclosure_upgrade is shown in full"""
    for planned in b.plan.intents or (await b.usable_intent(),):
        answer = await b.evaluate(planned)
        not_full = [tool for tool in answer.tools if tool.get("disclosure_level") != "full"]
        for tool in not_full:
            fact = {"pred": "disclosure_upgrade", "args": [tool["macro_id"]]}
            tools = await b.tools(planned, facts=[*planned.facts, fact])
            levels = {upgraded.get("macro_id"): upgraded.get("disclosure_level") for upgraded in tools}
            level = levels.get(tool["macro_id"])
            b.note(("EVAL-38", "EVAL-39", "CONF-11"), level == "full", f"{tool['name']} in full", level)
        if not_full:
            unknown = {"pred": "disclosure_upgrade", "args": ["conformance-none"]}
            answer = await b.evaluate(planned, facts=[*planned.facts, unknown])
            b.note("OPEN-16", answer.type == "intent_response", "an unknown macro_id ignored", answer)
            return
    raise Untested("every tool is shown in full already")


_PREDICATE_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.:]*")
_SERVER_PATH: Final = re.compile(r"\.mg\b|(?:^|[\s\"'(])/(?:home|usr|opt|srv|var|root|etc|app)/")


async def _proof_hints(b: Bench) -> tuple[Any, list[dict[str, Any]], tuple[Any, ...]]:
    """Evaluate an intent. Return its proof hints (any JSON, or None), its tools, and the facts that were sent."""
    planned = await b.usable_intent()
    answer = await b.evaluate_successfully(planned, options={"include_proof_hints": True})
    return answer.payload.get("proof_hints"), answer.tools, planned.facts


@check("EVAL-28", "SEC-31")
async def hints_only_on_request(b: Bench) -> None:
    """There are no proof hints unless they are requested"""
    planned = await b.usable_intent()
    for options in ({}, {"include_proof_hints": False}):
        answer = await b.evaluate_successfully(planned, options=options)
        is_absent = answer.payload.get("proof_hints") is None
        b.note(("EVAL-28", "SEC-31"), is_absent, "no proof_hints", "proof_hints")


@check("PROOF-01", "PROOF-02", "CONF-11", level=3)
async def hints_are_given(b: Bench) -> None:
    """Proof hints have derivations, exclusions and unmatched facts"""
    hints, _, _ = await _proof_hints(b)
    if not b.note(("PROOF-01", "CONF-11"), isinstance(hints, dict), "proof_hints when they are requested", hints):
        return
    for name in ("derivations", "excluded", "unmatched_facts"):
        b.note("PROOF-02", isinstance(hints.get(name), list), f"the list {name}", hints.get(name))


@check("PROOF-03", "PROOF-04", "PROOF-06", "PROOF-10", level=3)
async def each_tool_has_a_derivation(b: Bench) -> None:
    """Each tool has one derivation, of predicates and of the client's facts"""
    hints, tools, facts = await _proof_hints(b)
    derivations = get_objects(hints, "derivations")
    ids, tool_ids = (sorted(str(item.get("macro_id")) for item in items) for items in (derivations, tools))
    b.note("PROOF-06", ids == tool_ids, f"one derivation for each of {tool_ids}", ids)
    sent = [(fact.get("pred"), json.dumps(fact.get("args"))) for fact in facts]
    for derivation in derivations:
        phase = derivation.get("selected_by")
        b.note("PROOF-03", phase in ("skeleton", "flesh", "dependency"), "a phase in selected_by", phase)
        chain = derivation.get("rule_chain")
        has_names = isinstance(chain, list) and all(isinstance(n, str) and _PREDICATE_NAME.fullmatch(n) for n in chain)
        b.note(("PROOF-04", "PROOF-10"), has_names, "names of predicates in rule_chain", chain)
        for fact in derivation.get("supporting_facts") or ():
            # Facts with named arguments are not compared: a server may convert between the two forms.
            is_sent = (fact.get("pred"), json.dumps(fact.get("args"))) in sent or "named_args" in fact
            b.note("PROOF-04", is_sent, "facts of the client in supporting_facts", fact)


@check("PROOF-09", level=3)
async def hints_give_nothing_away(b: Bench) -> None:
    """Proof hints show no rules and no paths"""
    hints, _, _ = await _proof_hints(b)
    if not isinstance(hints, dict):
        raise Untested("there are no proof hints")
    text = json.dumps(hints, ensure_ascii=False)
    b.note("PROOF-09", ":-" not in text and "⟸" not in text, "no text of rules", "a rule")
    match = _SERVER_PATH.search(text)
    seen = match and text[max(0, match.start() - 20) : match.end() + 20]
    b.note("PROOF-09", match is None, "no paths of files", seen)


@check("COV-01", "COV-03", "COV-04", "COV-05", "COV-10", level=3)
async def rule_coverage(b: Bench) -> None:
    """The extension returns the rule coverage on request"""
    if get_path(b.manifest, "extensions", "x-rule_coverage", "enabled") in (None, False):
        raise Untested("the manifest has no extension x-rule_coverage that is enabled")
    planned = await b.usable_intent()
    answer = await b.evaluate_successfully(planned, options={"x-rule_coverage": True})
    coverage = get_path(answer.payload, "diagnostics", "rule_coverage")
    b.note(("COV-01", "COV-10"), isinstance(coverage, dict), "diagnostics.rule_coverage", coverage)


@check("PROOF-08", level=3)
async def facts_without_a_use(b: Bench) -> None:
    """Unmatched facts are facts of the client"""
    hints, _, facts = await _proof_hints(b)
    unmatched = get_path(hints, "unmatched_facts")
    if not isinstance(unmatched, list):
        raise Untested("there are no unmatched_facts")
    sent = {fact.get("pred") for fact in facts}
    for fact in unmatched:
        holds = fact.get("pred") in sent and bool(fact.get("reason"))
        b.note("PROOF-08", holds, "a fact that was sent, with a reason", fact)
    b.note("PROOF-08", True)  # passes also if every fact was used
