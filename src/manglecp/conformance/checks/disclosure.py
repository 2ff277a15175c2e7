"""How much of each tool is shown: preferences, budgets, and asking for more."""

from __future__ import annotations

from typing import Any, Final

from manglecp.conformance.bench import Bench, Untested, tools_of
from manglecp.conformance.registry import check

_RANK: Final = {"minimal": 0, "condensed": 1, "full": 2}


def _levels(tools: list[dict[str, Any]]) -> dict[str, int]:
    return {str(tool.get("macro_id")): _RANK.get(str(tool.get("disclosure_level")), -1) for tool in tools}


@check("EVAL-33", "CONF-04", "TOOL-05")
async def everything_in_full(b: Bench) -> None:
    """With the preference full every tool is shown in full"""
    tools = await b.tools(await b.intent(), options={"disclosure_preference": "full"})
    if not tools:
        raise Untested("the intent brings no tools")
    for tool in tools:
        fits = tool.get("disclosure_level") == "full"
        b.that(("EVAL-33", "CONF-04", "TOOL-05"), fits, "disclosure_level full", tool.get("disclosure_level"))


@check("EVAL-33", "CONF-07", "TOOL-06", "TOOL-07", level=2)
async def less_of_everything(b: Bench) -> None:
    """With the preferences condensed and minimal every tool is shown so"""
    stated = await b.intent()
    for level, row in (("condensed", "TOOL-06"), ("minimal", "TOOL-07")):
        tools = await b.tools(stated, options={"disclosure_preference": level})
        if not tools:
            raise Untested("the intent brings no tools")
        for tool in tools:
            seen = tool.get("disclosure_level")
            b.that(("EVAL-33", "CONF-07", row), seen == level, f"disclosure_level {level}", seen)


@check("EVAL-08", level=2)
async def adaptive_by_default(b: Bench) -> None:
    """Without a preference it is adaptive, and without proof hints"""
    stated = await b.intent()
    plain = await b.answered(stated)
    adaptive = await b.tools(stated, options={"disclosure_preference": "adaptive"})
    levels = _levels(plain.payload.get("macro_tools") or [])
    b.that("EVAL-08", levels == _levels(adaptive), f"the same as adaptive: {_levels(adaptive)}", levels)


@check("EVAL-35", "SKILL-15", "OPEN-22", level=2)
async def budgets(b: Bench) -> None:
    """A budget of tokens shows less of the tools, never more"""
    stated = await b.intent()
    options = {"disclosure_preference": "full"}
    every = _levels(await b.tools(stated, options=options))
    if not every:
        raise Untested("the intent brings no tools")
    for budget in (5_000, 200, 60, 20, 5):
        found = _levels(await b.tools(stated, options=options, constraints={"max_tokens_budget": budget}))
        fits = all(name in every and level <= every[name] for name, level in found.items())
        b.that(("EVAL-35", "OPEN-22"), fits, f"the same tools or fewer under a budget of {budget}", found)
        if budget <= 20:
            small = _RANK["full"] not in found.values()
            b.that(("EVAL-35", "SKILL-15"), small, f"no tool in full under a budget of {budget} tokens", found)


@check("SKILL-03", "SKILL-05", "CONF-09", level=2)
async def skills(b: Bench) -> None:
    """A skill comes with the tools that are proven to need it, and not otherwise"""
    told = [one for one in b.plan.intents if one.skills or one.no_skills]
    if not told:
        raise Untested("the plan names no skills")
    for stated in told:
        answer = await b.answered(stated, options={"disclosure_preference": "full"})
        given: dict[str, Any] = {str(one.get("skill_id")): one for one in answer.payload.get("required_skills") or ()}
        for tool in tools_of(answer):
            for one in (tool.get("context_injection") or {}).get("skills") or ():
                given[str(one.get("skill_id"))] = one
                whole = not one.get("inline") or isinstance(one.get("content"), str)
                b.that("SKILL-05", whole, "the content of a skill that is inline", one)
        missing, extra = set(stated.skills) - set(given), set(stated.no_skills) & set(given)
        b.that(("SKILL-03", "CONF-09"), not missing, f"the skills {', '.join(stated.skills)}", sorted(given))
        b.that("SKILL-03", not extra, f"not the skills {', '.join(stated.no_skills)}", sorted(extra))


@check("EVAL-36", level=3)
async def better_tools_show_more(b: Bench) -> None:
    """Under a budget no tool shows less than one with a lower score"""
    stated = await b.intent()
    for budget in (1_000, 400, 120, 40):
        answer = await b.answered(
            stated,
            options={"disclosure_preference": "full", "include_proof_hints": True},
            constraints={"max_tokens_budget": budget},
        )
        levels = _levels(answer.payload.get("macro_tools") or [])
        hints = answer.payload.get("proof_hints")
        found = hints.get("derivations") if isinstance(hints, dict) else None
        scores = {str(one.get("macro_id")): float(one["score"]) for one in found or ()}
        ranked = sorted((scores[name], level) for name, level in levels.items() if name in scores)
        wrong = [(low, high) for low in ranked for high in ranked if low[0] < high[0] and low[1] > high[1]]
        b.that("EVAL-36", not wrong, f"levels in the order of scores under a budget of {budget}", ranked)


@check("EVAL-38", "EVAL-39", "CONF-11", "OPEN-16", level=3)
async def upgrades(b: Bench) -> None:
    """A tool that is asked for by disclosure_upgrade comes in full"""
    for stated in b.plan.intents or (await b.intent(),):
        answer = await b.state(stated)
        less = [tool for tool in answer.payload.get("macro_tools") or () if tool.get("disclosure_level") != "full"]
        for tool in less:
            fact = {"pred": "disclosure_upgrade", "args": [tool["macro_id"]]}
            tools = await b.tools(stated, facts=[*stated.facts, fact])
            level = next(
                (one.get("disclosure_level") for one in tools if one.get("macro_id") == tool["macro_id"]), None
            )
            b.that(("EVAL-38", "EVAL-39", "CONF-11"), level == "full", f"{tool['name']} in full", level)
        if less:
            nobody = {"pred": "disclosure_upgrade", "args": ["conformance-none"]}
            other = await b.state(stated, facts=[*stated.facts, nobody])
            b.that("OPEN-16", other.type == "intent_response", "an unknown macro_id passed over", other)
            return
    raise Untested("every tool is shown in full already")
