"""Fit a response into the client's token budget (EVAL-35, SKILL-15 to SKILL-18, OPEN-22).

A response shrinks along one fixed path: inline skills become references, resources are removed one by one, full tools
become condensed, then minimal, and finally tools are removed together with their dependents. Each stage starts with
the lowest score; upgraded tools come last. The first response on the path that fits is sent, so a larger budget never
removes or demotes a tool that a smaller one would show, and every response is closed under ``requires``.

The running cost is the sum of the parts, which is an upper bound: a tokenizer may merge tokens across parts.
"""

from __future__ import annotations

from collections import Counter as Multiset
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final, Literal, Protocol, TypeAlias, TypeVar, cast

import msgspec

from manglecp.intent.definition import Definition
from manglecp.intent.rendering import Shown, Skills, render, required_skills, skill
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
    needed = closed(shown, {tool.tool: tool.requires for tool in ranked})
    return {tool.tool: shown.get(tool.tool, "minimal") for tool in ranked if tool.tool in needed}


def closed(names: Iterable[str], requires: Mapping[str, Sequence[str]]) -> set[str]:
    """Return the transitive closure of ``names`` under ``requires``."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += requires.get(name, ())
    return found


def capped(tools: Iterable[T], most: int | None, upgrades: Collection[str] = ()) -> list[T]:
    """Select at most ``most`` tools, best first, each with its dependencies (OPEN-21); upgraded tools have priority.

    A tool that does not fit with its dependencies is skipped, and one with a lower score may take its place.
    """
    ranked = ranking(tools)
    if most is None or len(ranked) <= most:
        return ranked
    requires = {tool.tool: tool.requires for tool in ranked}
    kept: set[str] = set()
    for tool in sorted(ranked, key=lambda one: one.macro_id not in upgrades):  # stable: else the best first
        together = closed([tool.tool], requires) & requires.keys() - kept
        if len(kept) + len(together) <= most:
            kept |= together
    return [tool for tool in ranked if tool.tool in kept]


_encoder: Final = msgspec.json.Encoder(order="deterministic")  # as it is sent


class Fitted(msgspec.Struct, frozen=True):
    shown: tuple[Shown, ...]
    tools: tuple[MacroTool, ...]
    skills: tuple[Skill, ...]
    tokens: int


def at_first(
    tools: Iterable[tuple[Definition, Level]], skills: Skills, counter: Counter, most_inline: int
) -> tuple[Shown, ...]:
    """Return the response before any fitting. The first full tool that needs a short skill holds it inline."""
    told: set[str] = set()
    first = []
    for definition, level in tools:
        inline: set[str] = set()
        if level == "full":
            new = (one for one in definition.skills if one not in told)
            inline = {one for one in new if _cost(skills[one].content, cast(Hashable, counter)) <= most_inline}
            told |= inline
        first.append(Shown(definition, level, frozenset(inline), len(definition.resources)))
    return tuple(first)


@lru_cache(maxsize=1024)
def _cost(content: str, counter: Hashable) -> int:
    return cast(Counter, counter).count(content.encode())


def fit(
    tools: Sequence[Shown], skills: Skills, counter: Counter, budget: int | None, upgraded: Iterable[str] = ()
) -> Fitted:
    """Return the first response on the path within the budget, possibly empty. ``upgraded`` are macro ids."""
    everything = whole(tools, skills, counter)
    if budget is None or everything.tokens <= budget:
        return everything
    path = _Path(tools, skills, counter, frozenset(upgraded))
    for _ in path.states():
        if path.total <= budget:
            fitted = whole(path.tools.values(), skills, counter)
            if fitted.tokens <= budget:
                return fitted
    return whole((), skills, counter)


def whole(tools: Iterable[Shown], skills: Skills, counter: Counter) -> Fitted:
    shown = tuple(tools)
    rendered = tuple(render(tool, skills) for tool in shown)
    required = required_skills(shown, skills)
    text = _encoder.encode({"macro_tools": rendered, "required_skills": required})
    return Fitted(shown, rendered, required, count(text, counter))


class _Path:
    """A response that shrinks step by step, and its running cost."""

    def __init__(self, tools: Sequence[Shown], skills: Skills, counter: Counter, upgraded: frozenset[str]) -> None:
        self.tools = {tool.definition.tool: tool for tool in tools}
        self._skills = skills
        self._counter = counter
        lowest_first = sorted(tools, key=lambda one: one.definition.tool, reverse=True)
        lowest_first.sort(key=lambda one: (one.definition.macro_id in upgraded, one.definition.score))
        self._order = [one.definition.tool for one in lowest_first]
        self._needing: dict[str, list[str]] = {}
        for name, tool in self.tools.items():
            for needed in tool.definition.requires:
                self._needing.setdefault(needed, []).append(name)
        self._costs = {name: self._cost(tool) for name, tool in self.tools.items()}
        self._references = Multiset(one for tool in tools for one in tool.referenced)
        self._skill_costs: dict[str, int] = {}
        frame = whole((), skills, counter).tokens
        self.total = frame + sum(self._costs.values()) + sum(map(self._skill_cost, self._references))

    def states(self) -> Iterator[None]:
        yield
        for name in self._order:
            for one in sorted(self.tools[name].inline):
                if self._refer(name, one):
                    yield
        for name in self._order:
            if self.tools[name].level == "full":
                for left in range(self.tools[name].resources - 1, -1, -1):
                    self._put(name, self.tools[name].changed(resources=left))
                    yield
        levels: tuple[Level, ...] = ("full", "condensed")
        for level in levels:
            for name in self._order:
                if self.tools[name].level == level:
                    self._put(name, self.tools[name].changed(level=DEMOTED[level]))
                    yield
        for name in self._order:
            if name in self.tools:
                for gone in self._dependents(name):
                    self._put(gone, None)
                yield

    def _refer(self, name: str, skill_id: str) -> bool:
        tool, before = self.tools[name], self.total
        self._put(name, tool.changed(inline=tool.inline - {skill_id}))
        if self.total < before:
            return True
        self._put(name, tool)
        return False

    def _put(self, name: str, tool: Shown | None) -> None:
        before = self.tools[name]
        cost = 0 if tool is None else self._cost(tool)
        self.total += cost - self._costs[name]
        self._costs[name] = cost
        if tool is None:
            del self.tools[name]
        else:
            self.tools[name] = tool
        after = () if tool is None else tool.referenced
        for one in before.referenced:
            self._references[one] -= 1
        for one in after:
            self._references[one] += 1
        for one in {*before.referenced, *after}:
            self._settle(one, one in before.referenced, one in after)

    def _settle(self, skill_id: str, before: bool, after: bool) -> None:
        now = self._references[skill_id]
        if before and not after and now == 0:
            self.total -= self._skill_cost(skill_id)
        elif after and not before and now == 1:
            self.total += self._skill_cost(skill_id)

    def _dependents(self, name: str) -> list[str]:
        found = {name: None}
        for one in (waiting := [name]):  # it grows
            more = [other for other in self._needing.get(one, ()) if other in self.tools and other not in found]
            found |= dict.fromkeys(more)
            waiting += more
        return list(found)

    def _cost(self, tool: Shown) -> int:
        return self._counter.count(_encoder.encode(render(tool, self._skills)) + b",")

    def _skill_cost(self, skill_id: str) -> int:
        known = self._skill_costs.get(skill_id)
        if known is None:
            text = _encoder.encode(skill(self._skills[skill_id])) + b","
            known = self._skill_costs[skill_id] = self._counter.count(text)
        return known
