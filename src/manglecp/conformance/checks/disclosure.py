"""Checks of detail levels and proof hints. The ids (*rows*) are defined in ``docs/reference/requirements.md``."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from manglecp.conformance.connections import get_objects, get_path
from manglecp.conformance.server_test import ServerTest, Untested, check, require

_RANK: Final = {"minimal": 0, "condensed": 1, "full": 2}


def _ranks(tools: list[dict[str, Any]]) -> dict[str, int]:
    """Return the rank of the detail level of each tool, by macro_id; -1 for an unknown level."""
    return {str(tool.get("macro_id")): _RANK.get(str(tool.get("disclosure_level")), -1) for tool in tools}


@check("EVAL-35", "SKILL-15", "OPEN-22", level=2)
async def budgets(test: ServerTest) -> None:
    """A budget of tokens shows less of the tools, never more"""
    intent = await test.usable_intent()
    options = {"disclosure_preference": "full"}
    unlimited_ranks = _ranks(require(await test.tools(intent, options=options), "the intent returns no tools"))
    for budget in (5_000, 200, 60, 20, 5):
        ranks = _ranks(await test.tools(intent, options=options, constraints={"max_tokens_budget": budget}))
        holds = all(id_ in unlimited_ranks and rank <= unlimited_ranks[id_] for id_, rank in ranks.items())
        test.note(("EVAL-35", "OPEN-22"), holds, f"the same tools or fewer under a budget of {budget}", ranks)
        if budget <= 20:  # too few tokens for the schema of any tool
            has_no_full = _RANK["full"] not in ranks.values()
            test.note(("EVAL-35", "SKILL-15"), has_no_full, f"no tool in full under a budget of {budget} tokens", ranks)


@check("SKILL-03", "SKILL-05", "CONF-09", level=2)
async def skills(test: ServerTest) -> None:
    """A skill comes with the tools that are proven to need it, and not otherwise"""
    cases = [intent for intent in test.plan.intents if intent.skills or intent.no_skills]
    for intent in require(cases, "the plan names no skills"):
        answer = await test.evaluate_successfully(intent, options={"disclosure_preference": "full"})
        ids = {str(skill.get("skill_id")) for skill in answer.payload.get("required_skills") or ()}
        for tool in answer.tools:
            for skill in (tool.get("context_injection") or {}).get("skills") or ():
                ids.add(str(skill.get("skill_id")))
                has_content = not skill.get("inline") or isinstance(skill.get("content"), str)
                test.note("SKILL-05", has_content, "the content of a skill that is inline", skill)
        missing_ids, extra_ids = set(intent.skills) - ids, set(intent.no_skills) & ids
        test.note(("SKILL-03", "CONF-09"), not missing_ids, f"the skills {', '.join(intent.skills)}", sorted(ids))
        test.note("SKILL-03", not extra_ids, f"not the skills {', '.join(intent.no_skills)}", sorted(extra_ids))


@check("EVAL-36", level=3)
async def better_tools_show_more(test: ServerTest) -> None:
    """Under a budget no tool shows less than one with a lower score"""
    intent = await test.usable_intent()
    options = {"disclosure_preference": "full", "include_proof_hints": True}
    for budget in (1_000, 400, 120, 40):
        answer = await test.evaluate_successfully(intent, options=options, constraints={"max_tokens_budget": budget})
        derivations = get_path(answer.payload, "proof_hints", "derivations") or ()
        scores = {str(derivation.get("macro_id")): float(derivation["score"]) for derivation in derivations}
        pairs = sorted((scores[id_], rank) for id_, rank in _ranks(answer.tools).items() if id_ in scores)
        is_ordered = not any(s1 < s2 and rank1 > rank2 for s1, rank1 in pairs for s2, rank2 in pairs)
        test.note("EVAL-36", is_ordered, f"levels in the order of scores under a budget of {budget}", pairs)


@check("EVAL-38", "EVAL-39", "CONF-11", "OPEN-16", level=3)
async def upgrades(test: ServerTest) -> None:
    """A tool that is named by disclosure_upgrade is shown in full"""
    for intent in test.plan.intents or (await test.usable_intent(),):
        answer = await test.evaluate(intent)
        shortened_tools = [tool for tool in answer.tools if tool.get("disclosure_level") != "full"]
        for tool in shortened_tools:
            fact = {"pred": "disclosure_upgrade", "args": [tool["macro_id"]]}
            tools = await test.tools(intent, facts=[*intent.facts, fact])
            levels = {upgraded_tool.get("macro_id"): upgraded_tool.get("disclosure_level") for upgraded_tool in tools}
            level = levels.get(tool["macro_id"])
            test.note(("EVAL-38", "EVAL-39", "CONF-11"), level == "full", f"{tool['name']} in full", level)
        if shortened_tools:
            unknown_upgrade = {"pred": "disclosure_upgrade", "args": ["conformance-none"]}
            answer = await test.evaluate(intent, facts=[*intent.facts, unknown_upgrade])
            test.note("OPEN-16", answer.type == "intent_response", "an unknown macro_id ignored", answer)
            return
    raise Untested("every tool is shown in full already")


_PREDICATE_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.:]*")
_SERVER_PATH: Final = re.compile(r"\.mg\b|(?:^|[\s\"'(])/(?:home|usr|opt|srv|var|root|etc|app)/")


@check(
    *("PROOF-01", "PROOF-02", "PROOF-03", "PROOF-04", "PROOF-06", "PROOF-08", "PROOF-09", "PROOF-10", "CONF-11"),
    level=3,
)
async def proof_hints(test: ServerTest) -> None:
    """Proof hints have a derivation of each tool, exclusions and unmatched facts, and show no rules and no paths"""
    intent = await test.usable_intent()
    answer = await test.evaluate_successfully(intent, options={"include_proof_hints": True})
    hints: Any = answer.payload.get("proof_hints")
    derivations = get_objects(hints, "derivations")
    ids, tool_ids = (sorted(str(item.get("macro_id")) for item in items) for items in (derivations, answer.tools))
    test.note("PROOF-06", ids == tool_ids, f"one derivation for each of {tool_ids}", ids)
    if not test.note(("PROOF-01", "CONF-11"), isinstance(hints, dict), "proof_hints when they are requested", hints):
        return
    for name in ("derivations", "excluded", "unmatched_facts"):
        test.note("PROOF-02", isinstance(hints.get(name), list), f"the list {name}", hints.get(name))
    sent_facts = [(fact.get("pred"), json.dumps(fact.get("args"))) for fact in intent.facts]
    for derivation in derivations:
        phase = derivation.get("selected_by")
        test.note("PROOF-03", phase in ("skeleton", "flesh", "dependency"), "a phase in selected_by", phase)
        chain = derivation.get("rule_chain")
        has_names = isinstance(chain, list) and all(isinstance(n, str) and _PREDICATE_NAME.fullmatch(n) for n in chain)
        test.note(("PROOF-04", "PROOF-10"), has_names, "names of predicates in rule_chain", chain)
        for fact in derivation.get("supporting_facts") or ():
            # Facts with named arguments are not compared: a server may convert between the two forms.
            is_sent = (fact.get("pred"), json.dumps(fact.get("args"))) in sent_facts or "named_args" in fact
            test.note("PROOF-04", is_sent, "facts of the client in supporting_facts", fact)
    test.note("PROOF-08", True)  # holds for an empty list: every fact was used
    for fact in get_objects(hints, "unmatched_facts"):
        holds = fact.get("pred") in {name for name, _ in sent_facts} and bool(fact.get("reason"))
        test.note("PROOF-08", holds, "a fact that was sent, with a reason", fact)
    text = json.dumps(hints, ensure_ascii=False)
    test.note("PROOF-09", ":-" not in text and "⟸" not in text, "no text of rules", "a rule")
    match = _SERVER_PATH.search(text)
    seen_text = match and text[max(0, match.start() - 20) : match.end() + 20]
    test.note("PROOF-09", match is None, "no paths of files", seen_text)
