"""How much of each tool is shown: by score, by what the client prefers, by what it asked to see again.

``adaptive`` goes by the pack's thresholds (EVAL-34); a tool below the lowest is left out. The other preferences show
every tool at that level. ``disclosure_upgrade`` shows the tool of that id in full whatever its score, also one that
would be left out: whoever knows the id has seen it before. An id that was not proven this time is ignored (OPEN-16).

What a shown tool depends on is shown as well, at least by name (contract 4).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, Literal, Protocol, TypeAlias, TypeVar

from manglecp.pack import Disclosure
from manglecp.wire.messages import Level

__all__ = ["DEMOTED", "Preference", "Ranked", "capped", "closed", "level_of", "levels"]

Preference: TypeAlias = Literal["full", "condensed", "minimal", "adaptive"]

DEMOTED: Final[Mapping[Level, Level]] = {"full": "condensed", "condensed": "minimal"}
"""The next lower level."""


class Ranked(Protocol):
    """What is known of a tool that was selected. A definition is one."""

    @property
    def tool(self) -> str:
        """Its name."""

    @property
    def macro_id(self) -> str:
        """What a client asks for to see more of it."""

    @property
    def score(self) -> int:
        """From 0 to 100; it decides the level."""

    @property
    def requires(self) -> Sequence[str]:
        """The names of the tools that have to be shown with it."""


T = TypeVar("T", bound=Ranked)


def level_of(score: int, thresholds: Disclosure, preference: Preference = "adaptive") -> Level | None:
    """The level of a tool of this score; None if it is left out."""
    if preference != "adaptive":
        return preference
    if score >= thresholds.full:
        return "full"
    if score >= thresholds.condensed:
        return "condensed"
    return "minimal" if score >= thresholds.minimal else None


def ranking(tools: Iterable[T]) -> list[T]:
    """Best first; names decide between equals."""
    return sorted(tools, key=lambda tool: (-tool.score, tool.tool))


def levels(
    tools: Iterable[T], thresholds: Disclosure, preference: Preference, upgrades: Collection[str] = ()
) -> dict[str, Level]:
    """The level of every tool that is shown, by its name, best first."""
    ranked = ranking(tools)
    shown: dict[str, Level] = {}
    for tool in ranked:
        level = "full" if tool.macro_id in upgrades else level_of(tool.score, thresholds, preference)
        if level is not None:
            shown[tool.tool] = level
    needed = closed(shown, {tool.tool: tool.requires for tool in ranked})
    return {tool.tool: shown.get(tool.tool, "minimal") for tool in ranked if tool.tool in needed}


def closed(names: Iterable[str], requires: Mapping[str, Sequence[str]]) -> set[str]:
    """The names with everything that they require, directly or not."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += requires.get(name, ())
    return found


def capped(tools: Iterable[T], most: int | None, upgrades: Collection[str] = ()) -> list[T]:
    """At most so many, best first, each together with what it requires; a tool that does not fit with that is left out
    and a lesser one may take its place (OPEN-21). What the client asked to see again goes before everything else.

    More room may therefore bring a tool with its dependencies in place of lesser ones: what is returned for a smaller
    number need not be part of what is returned for a larger one.
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
