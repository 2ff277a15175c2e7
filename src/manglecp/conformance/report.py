"""What was found about a server, by requirement.

A check and a watcher make *notes*: this row held, or it did not, and then what was expected and what was seen. A row
has failed if one note says so, and has passed if there are notes and none does. Rows about which nothing could be noted
keep the reason. What the specification only recommends never makes a server fail: it is *advice*.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

__all__ = ["CATEGORIES", "RECOMMENDED", "Found", "Outcome", "Report", "Row"]

Outcome = Literal["passed", "failed", "advice", "not tested"]

RECOMMENDED: Final = frozenset(
    {
        *("TRANS-21", "TRANS-26", "TRANS-37", "DATA-11", "DATA-41", "DATA-51", "MANI-13", "MANI-16", "MANI-35"),
        *("EVAL-26", "EVAL-31", "EVAL-39", "TOOL-02", "TOOL-08", "DELTA-03", "NEXT-02", "OBS-06", "PROOF-10"),
        *("ERR-34", "ERR-39", "ERR-40", "SEC-31", "WIRE-19"),
        *("INVK-12", "COV-10", "EVAL-04", "EVAL-24", "NEXT-03", "TRANS-09"),
    }
)
"""Rows of the level SHOULD."""
CATEGORIES: Final[Mapping[str, tuple[str, ...]]] = {
    "manifest": ("MANI",),
    "fact encoding": ("DATA",),
    "intent evaluation": ("EVAL", "PROOF", "COV"),
    "macro-tools": ("TOOL", "SKILL"),
    "invocation": ("INVK", "PROG", "DELTA", "NEXT", "OBS"),
    "errors": ("ERR",),
    "security": ("SEC",),
    "transport": ("TRANS", "WIRE"),
}
"""The test categories of the specification (CONF-18), by the areas of the rows that belong to each. What the levels ask
for as a whole (CONF) is in none of them."""
_OUTCOMES: Final[tuple[Outcome, ...]] = ("passed", "failed", "advice", "not tested")
_LONGEST: Final = 400
_MOST: Final = 5
"""Failures of one row that are kept."""


def shortened(value: object, longest: int = _LONGEST) -> str:
    """The value as text, cut where it is too long for a report."""
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= longest else text[: longest - 1] + "…"


@dataclass(frozen=True, slots=True)
class Found:
    """What is wrong: what was expected and what was seen, and by which check."""

    expected: str
    seen: str
    check: str


@dataclass(slots=True)
class Row:
    """What was found about one requirement."""

    id: str
    held: int = 0
    found: list[Found] = field(default_factory=list)
    wrong: int = 0
    reasons: list[str] = field(default_factory=list)
    """Why some of it, or all, was not tested."""

    @property
    def outcome(self) -> Outcome:
        """A recommendation that is not followed is ``advice``, and no failure."""
        if self.wrong:
            return "advice" if self.id in RECOMMENDED else "failed"
        return "passed" if self.held else "not tested"


class Report:
    """Everything that was found, to be shown by requirement."""

    def __init__(self, target: str, transport: str, level: int) -> None:
        self.target = target
        self.transport = transport
        self.level = level
        self._rows: dict[str, Row] = {}

    def note(self, id_: str, held: bool, expected: str, seen: object, check: str) -> None:
        """One observation. Of those that do not hold, some are kept to be shown, and all are counted."""
        row = self._row(id_)
        if held:
            row.held += 1
            return
        row.wrong += 1
        found = Found(expected, shortened(seen), check)
        if len(row.found) < _MOST and found not in row.found:
            row.found.append(found)

    def leave(self, ids: Iterable[str], reason: str) -> None:
        """Note why these requirements, or parts of them, were not tested."""
        for id_ in ids:
            reasons = self._row(id_).reasons
            if reason not in reasons:
                reasons.append(reason)

    def _row(self, id_: str) -> Row:
        return self._rows.setdefault(id_, Row(id_))

    def __getitem__(self, id_: str) -> Row:
        return self._rows[id_]

    def __contains__(self, id_: object) -> bool:
        return id_ in self._rows

    @property
    def rows(self) -> list[Row]:
        """By area and number."""
        return sorted(self._rows.values(), key=lambda row: _order(row.id))

    def of(self, outcome: Outcome) -> list[str]:
        """The ids of the requirements that came out like this."""
        return [row.id for row in self.rows if row.outcome == outcome]

    @property
    def conforms(self) -> bool:
        """Did no requirement fail? Those that were not tested do not count."""
        return not self.of("failed")

    def counts(self, category: str | None = None) -> dict[Outcome, int]:
        """How many rows came out how; all of them, or those of a category."""
        areas = None if category is None else CATEGORIES[category]
        rows = [row for row in self._rows.values() if areas is None or _order(row.id)[0] in areas]
        return {outcome: sum(row.outcome == outcome for row in rows) for outcome in _OUTCOMES}

    def document(self) -> dict[str, Any]:
        """For programs."""
        return {
            "target": self.target,
            "transport": self.transport,
            "level": self.level,
            "conforms": self.conforms,
            "counts": self.counts(),
            "categories": {category: self.counts(category) for category in CATEGORIES},
            "requirements": [_member(row) for row in self.rows],
        }

    def lines(self) -> list[str]:
        """For people: what is wrong first, then what is not known, then what holds."""
        lines = [f"{self.target} ({self.transport}), level {self.level}", ""]
        for title, outcome in (("Failed", "failed"), ("Recommended, and not so", "advice")):
            rows = [row for row in self.rows if row.outcome == outcome]
            if rows:
                lines += [f"{title}:", *(line for row in rows for line in _wrong(row)), ""]
        reasons: dict[str, list[str]] = {}
        for row in self.rows:
            if row.outcome == "not tested":
                reasons.setdefault(row.reasons[0] if row.reasons else "nothing showed it", []).append(row.id)
        if reasons:
            lines += ["Not tested:", *(f"  {reason}: {' '.join(ids)}" for reason, ids in reasons.items()), ""]
        if passed := self.of("passed"):
            lines += ["Passed:", f"  {' '.join(passed)}", ""]
        for category in CATEGORIES:
            lines.append(f"{category + ':':19}{_counted(self.counts(category))}")
        lines += ["", _counted(self.counts())]
        return lines


def _counted(counts: Mapping[Outcome, int]) -> str:
    return ", ".join(f"{number} {outcome}" for outcome, number in counts.items())


def _member(row: Row) -> Mapping[str, Any]:
    member: dict[str, Any] = {"id": row.id, "outcome": row.outcome}
    if row.found:
        member["found"] = [{"expected": one.expected, "seen": one.seen, "check": one.check} for one in row.found]
        member["times"] = row.wrong
    if row.reasons and row.outcome == "not tested":
        member["reasons"] = row.reasons
    return member


def _wrong(row: Row) -> list[str]:
    lines: list[str] = []
    for one in row.found:
        lines += [f"  {row.id}  {one.check}", f"    expected: {one.expected}", f"    seen:     {one.seen}"]
    return lines


def _order(id_: str) -> tuple[str, int]:
    area, _, number = id_.rpartition("-")
    return (area, int(number)) if number.isdigit() else (id_, 0)
