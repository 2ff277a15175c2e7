"""Fit a response into the client's token budget (EVAL-35, SKILL-15 to SKILL-18, OPEN-22).

A response shrinks along one fixed path: inline skills become references, resources are removed one by one, full tools
become condensed, then minimal, and finally tools are removed together with their dependents. Each stage starts with
the lowest score; upgraded tools come last. A binary search finds the first response that fits, so a larger budget never
removes or demotes a tool that a smaller one would show, and every response is closed under ``requires``.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final, Literal, Protocol, TypeAlias, TypeVar, cast

import msgspec

from manglecp.intent.definition import Definition
from manglecp.intent.rendering import Skills, ToolView, render, required_skills, skill
from manglecp.intent.tokens import Counter, count
from manglecp.pack import Disclosure
from manglecp.wire.messages import Level, MacroTool, Skill

# ``adaptive`` applies the pack's thresholds (EVAL-34); other preferences are one level for all tools. An upgraded tool
# is shown in full whatever its score; an id that was not proven is ignored (OPEN-16). Dependencies of a shown tool are
# shown at least by name (contract 4).
Preference: TypeAlias = Literal["full", "condensed", "minimal", "adaptive"]

DEMOTED: Final[Mapping[Level, Level]] = {"full": "condensed", "condensed": "minimal"}


class Ranked(Protocol):
    """A selected tool, as far as ranking needs it. :class:`.Definition` is one."""

    @property
    def tool(self) -> str: ...

    @property
    def macro_id(self) -> str: ...

    @property
    def score(self) -> int: ...

    @property
    def requires(self) -> Sequence[str]: ...


T = TypeVar("T", bound=Ranked)


def level_of(score: int, thresholds: Disclosure, preference: Preference = "adaptive") -> Level | None:
    """Return the level of a tool with this score, or None if it is not disclosed."""
    if preference != "adaptive":
        return preference
    if score >= thresholds.full:
        return "full"
    if score >= thresholds.condensed:
        return "condensed"
    return "minimal" if score >= thresholds.minimal else None


def ranking(tools: Iterable[T]) -> list[T]:
    return sorted(tools, key=lambda tool: (-tool.score, tool.tool))


def levels(
    tools: Iterable[T], thresholds: Disclosure, preference: Preference, upgrades: Collection[str] = ()
) -> dict[str, Level]:
    """Return the level of every disclosed tool by name, best first, closed under ``requires``."""
    ranked = ranking(tools)
    shown: dict[str, Level] = {}
    for tool in ranked:
        level = "full" if tool.macro_id in upgrades else level_of(tool.score, thresholds, preference)
        if level is not None:
            shown[tool.tool] = level
    needed = requires_closure(shown, {tool.tool: tool.requires for tool in ranked})
    return {tool.tool: shown.get(tool.tool, "minimal") for tool in ranked if tool.tool in needed}


def requires_closure(names: Iterable[str], requires: Mapping[str, Sequence[str]]) -> set[str]:
    """Return the transitive closure of ``names`` under ``requires``."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += requires.get(name, ())
    return found


def cap_tools(tools: Iterable[T], most: int | None, upgrades: Collection[str] = ()) -> list[T]:
    """Select at most ``most`` tools, best first, each with its dependencies (OPEN-21); upgraded tools have priority.

    A tool that does not fit with its dependencies is skipped, and one with a lower score may take its place.
    """
    ranked = ranking(tools)
    if most is None or len(ranked) <= most:
        return ranked
    requires = {tool.tool: tool.requires for tool in ranked}
    kept: set[str] = set()
    for tool in sorted(ranked, key=lambda one: one.macro_id not in upgrades):  # stable: else the best first
        together = requires_closure([tool.tool], requires) & requires.keys() - kept
        if len(kept) + len(together) <= most:
            kept |= together
    return [tool for tool in ranked if tool.tool in kept]


_encoder: Final = msgspec.json.Encoder(order="deterministic")  # as it is sent


class FittedResponse(msgspec.Struct, frozen=True):
    shown: tuple[ToolView, ...]
    tools: tuple[MacroTool, ...]
    skills: tuple[Skill, ...]
    tokens: int


def initial_views(
    tools: Iterable[tuple[Definition, Level]], skills: Skills, counter: Counter, most_inline: int
) -> tuple[ToolView, ...]:
    """Return the response before any fitting. The first full tool that needs a short skill holds it inline."""
    inlined: set[str] = set()
    first = []
    for definition, level in tools:
        inline: set[str] = set()
        if level == "full":
            new = (one for one in definition.skills if one not in inlined)
            inline = {one for one in new if _cost(skills[one].content, cast(Hashable, counter)) <= most_inline}
            inlined |= inline
        first.append(ToolView(definition, level, frozenset(inline), len(definition.resources)))
    return tuple(first)


@lru_cache(maxsize=1024)
def _cost(content: str, counter: Hashable) -> int:
    return cast(Counter, counter).count(content.encode())


def fit(
    tools: Sequence[ToolView], skills: Skills, counter: Counter, budget: int | None, upgraded: Iterable[str] = ()
) -> FittedResponse:
    """Return the first response on the path within the budget, possibly empty. ``upgraded`` are macro ids."""
    everything = render_all(tools, skills, counter)
    if budget is None or everything.tokens <= budget:
        return everything
    edits = list(_edits(tools, skills, counter, frozenset(upgraded)))

    def after(number: int) -> FittedResponse:
        shown: dict[str, ToolView | None] = {tool.definition.tool: tool for tool in tools}
        for edit in edits[:number]:
            shown |= edit
        return render_all((tool for tool in shown.values() if tool is not None), skills, counter)

    return after(bisect_left(range(len(edits)), True, key=lambda number: after(number).tokens <= budget))


def render_all(tools: Iterable[ToolView], skills: Skills, counter: Counter) -> FittedResponse:
    shown = tuple(tools)
    rendered = tuple(render(tool, skills) for tool in shown)
    required = required_skills(shown, skills)
    text = _encoder.encode({"macro_tools": rendered, "required_skills": required})
    return FittedResponse(shown, rendered, required, count(text, counter))


def _edits(
    tools: Sequence[ToolView], skills: Skills, counter: Counter, upgraded: frozenset[str]
) -> Iterator[dict[str, ToolView | None]]:
    """Yield the steps of the path: changed tools by name, None for removed ones. After the last there is no tool."""
    shown = {tool.definition.tool: tool for tool in tools}
    needing: dict[str, list[str]] = {}
    for name, tool in shown.items():
        for needed in tool.definition.requires:
            needing.setdefault(needed, []).append(name)
    lowest_first = sorted(shown, reverse=True)
    lowest_first.sort(key=lambda name: (shown[name].definition.macro_id in upgraded, shown[name].definition.score))

    def change(name: str, **changes: object) -> dict[str, ToolView | None]:
        shown[name] = shown[name].changed(**changes)
        return {name: shown[name]}

    for name in lowest_first:
        for one in sorted(shown[name].inline):
            text = skills[one]
            if _cost(text.content, cast(Hashable, counter)) > counter.count(_encoder.encode(skill(text))):
                yield change(name, inline=shown[name].inline - {one})
    for name in lowest_first:
        if shown[name].level == "full":
            for left in range(shown[name].resources - 1, -1, -1):
                yield change(name, resources=left)
    for level, lower in DEMOTED.items():
        for name in lowest_first:
            if shown[name].level == level:
                yield change(name, level=lower)
    for name in lowest_first:
        if name in shown:
            gone = requires_closure([name], needing) & shown.keys()
            for one in gone:
                del shown[one]
            yield dict.fromkeys(gone)
