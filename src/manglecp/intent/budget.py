"""Fit a response into the client's token budget (EVAL-35, SKILL-15 to SKILL-18, OPEN-22).

A response shrinks along one fixed path: inline skills become references, resources are removed one by one, full tools
become condensed, then minimal, and finally tools are removed together with their dependents. Each stage starts with
the lowest score; upgraded tools come last. A binary search finds the first response that fits, so a larger budget never
removes or demotes a tool that a smaller budget would show, and every response is closed under ``requires``.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final, Literal, TypeAlias, cast

import msgspec

from manglecp.intent.definition import Definition
from manglecp.intent.rendering import Skills, ToolView, render, required_skills, skill
from manglecp.intent.tokens import Counter, count
from manglecp.mangle import closure
from manglecp.pack import Disclosure, SkillText
from manglecp.wire.messages import Level, MacroTool, Skill

# ``adaptive`` applies the pack's thresholds (EVAL-34); other preferences are one level for all tools. An upgraded tool,
# whose macro id the client sent, has the level ``full`` whatever its score; an id of a tool that was not proven is
# ignored (OPEN-16). Dependencies of a disclosed tool are disclosed too, at least by name.
Preference: TypeAlias = Literal["full", "condensed", "minimal", "adaptive"]

DEMOTED: Final[Mapping[Level, Level]] = {"full": "condensed", "condensed": "minimal"}


def level_of(score: int, thresholds: Disclosure, preference: Preference = "adaptive") -> Level | None:
    """Return the level of a tool with this score, or None if it is not disclosed."""
    if preference != "adaptive":
        return preference
    if score >= thresholds.full:
        return "full"
    if score >= thresholds.condensed:
        return "condensed"
    return "minimal" if score >= thresholds.minimal else None


def rank(tools: Iterable[Definition]) -> list[Definition]:
    """Return the tools, best first."""
    return sorted(tools, key=lambda tool: (-tool.score, tool.tool))


def levels(
    tools: Iterable[Definition], thresholds: Disclosure, preference: Preference, upgrades: Collection[str] = ()
) -> dict[str, Level]:
    """Return the level of every disclosed tool by name, best first, closed under ``requires``; ``upgrades`` are ids."""
    tools_by_rank = rank(tools)
    level_by_name: dict[str, Level] = {}
    for tool in tools_by_rank:
        level = "full" if tool.macro_id in upgrades else level_of(tool.score, thresholds, preference)
        if level is not None:
            level_by_name[tool.tool] = level
    closed_names = closure(level_by_name, {tool.tool: tool.requires for tool in tools_by_rank})
    return {tool.tool: level_by_name.get(tool.tool, "minimal") for tool in tools_by_rank if tool.tool in closed_names}


def cap_tools(tools: Iterable[Definition], max_tools: int | None, upgrades: Collection[str] = ()) -> list[Definition]:
    """Return at most ``max_tools`` tools, best first, each with its dependencies (OPEN-21). Upgraded ones come first.

    A tool that does not fit with its dependencies is skipped, and one with a lower score may take its place.
    """
    ranked = rank(tools)
    if max_tools is None or len(ranked) <= max_tools:
        return ranked
    requires = {tool.tool: tool.requires for tool in ranked}
    names: set[str] = set()
    for tool in sorted(ranked, key=lambda tool: tool.macro_id not in upgrades):  # stable: within each group best first
        new_names = closure([tool.tool], requires) & (requires.keys() - names)
        if len(names) + len(new_names) <= max_tools:
            names |= new_names
    return [tool for tool in ranked if tool.tool in names]


_encoder: Final = msgspec.json.Encoder(order="deterministic")  # the encoding of responses, so that counts are exact


class FittedResponse(msgspec.Struct, frozen=True):
    """The tools of a response as views and rendered, its rendered skills, and the number of tokens of both."""

    views: tuple[ToolView, ...]
    tools: tuple[MacroTool, ...]
    skills: tuple[Skill, ...]
    tokens: int


def initial_views(
    tools: Iterable[tuple[Definition, Level]], skills: Skills, counter: Counter, max_inline_tokens: int
) -> tuple[ToolView, ...]:
    """Return the views before any fitting. The text of a short skill is in the first full tool that needs it."""
    inlined_skills: set[str] = set()
    views = []
    for definition, level in tools:
        inline: set[str] = set()
        if level == "full":
            new = (skill_id for skill_id in definition.skills if skill_id not in inlined_skills)
            inline = {skill_id for skill_id in new if _tokens(skills[skill_id], counter) <= max_inline_tokens}
            inlined_skills |= inline
        views.append(ToolView(definition, level, frozenset(inline), len(definition.resources)))
    return tuple(views)


def _tokens(text: SkillText, counter: Counter) -> int:
    return _cached_count(text.content, cast(Hashable, counter))


@lru_cache(maxsize=1024)
def _cached_count(content: str, counter: Hashable) -> int:
    return cast(Counter, counter).count(content.encode())


def fit(
    tools: Sequence[ToolView], skills: Skills, counter: Counter, budget: int | None, upgrades: Iterable[str] = ()
) -> FittedResponse:
    """Return the first response on the path within the budget, possibly empty. ``upgrades`` are macro ids."""
    complete = render_all(tools, skills, counter)
    if budget is None or complete.tokens <= budget:
        return complete
    edits = list(_edits(tools, skills, counter, frozenset(upgrades)))

    def render_after(edit_count: int) -> FittedResponse:
        views: dict[str, ToolView | None] = {tool.definition.tool: tool for tool in tools}
        for edit in edits[:edit_count]:
            views |= edit
        return render_all((view for view in views.values() if view is not None), skills, counter)

    return render_after(bisect_left(range(len(edits)), True, key=lambda count: render_after(count).tokens <= budget))


def render_all(tools: Iterable[ToolView], skills: Skills, counter: Counter) -> FittedResponse:
    views = tuple(tools)
    tools_json = tuple(render(view, skills) for view in views)
    required = required_skills(views, skills)
    text = _encoder.encode({"macro_tools": tools_json, "required_skills": required})
    return FittedResponse(views, tools_json, required, count(text, counter))


def _edits(
    tools: Sequence[ToolView], skills: Skills, counter: Counter, upgrades: frozenset[str]
) -> Iterator[dict[str, ToolView | None]]:
    """Yield the edits of the path: the changed views by tool, None for a removed tool. The last edit leaves no tool."""
    views = {tool.definition.tool: tool for tool in tools}
    dependents: dict[str, list[str]] = {}
    for name, view in views.items():
        for dependency in view.definition.requires:
            dependents.setdefault(dependency, []).append(name)
    lowest_first = sorted(views, reverse=True)  # with equal scores, the last name comes first
    lowest_first.sort(key=lambda name: (views[name].definition.macro_id in upgrades, views[name].definition.score))

    def change(name: str, **changes: object) -> dict[str, ToolView | None]:
        views[name] = views[name].changed(**changes)
        return {name: views[name]}

    for name in lowest_first:
        for skill_id in sorted(views[name].inline):
            text = skills[skill_id]  # a skill whose reference would not be shorter stays inline
            if _tokens(text, counter) > counter.count(_encoder.encode(skill(text))):
                yield change(name, inline=views[name].inline - {skill_id})
    for name in lowest_first:
        if views[name].level == "full":
            for remaining in range(views[name].resource_count - 1, -1, -1):
                yield change(name, resource_count=remaining)
    for level, lower in DEMOTED.items():
        for name in lowest_first:
            if views[name].level == level:
                yield change(name, level=lower)
    for name in lowest_first:
        if name in views:
            removed_tools = closure([name], dependents) & views.keys()
            for tool in removed_tools:
                del views[tool]
            yield dict.fromkeys(removed_tools)
