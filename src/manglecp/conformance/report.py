"""The report about a server, by requirement.

Checks and the watcher record observations. A row fails if one observation does not hold, and passes if there are
observations and all hold; otherwise it keeps the reason why it was not tested. A violated recommendation is *advice*.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal

Outcome = Literal["passed", "failed", "advice", "not tested"]

RECOMMENDED: Final = frozenset(  # requirements of the level SHOULD
    {
        *("TRANS-21", "TRANS-26", "TRANS-37", "DATA-11", "DATA-41", "DATA-51", "MANI-13", "MANI-16", "MANI-35"),
        *("EVAL-26", "EVAL-31", "EVAL-39", "TOOL-02", "TOOL-08", "DELTA-03", "NEXT-02", "OBS-06", "PROOF-10"),
        *("ERR-34", "ERR-39", "ERR-40", "SEC-31", "WIRE-19"),
        *("INVK-12", "COV-10", "EVAL-04", "EVAL-24", "NEXT-03", "TRANS-09"),
    }
)
# The test categories of the specification (CONF-18), by area; the area CONF is in none of them.
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
_OUTCOMES: Final[tuple[Outcome, ...]] = ("passed", "failed", "advice", "not tested")
_MAX_CHARS: Final = 400
_MAX_FAILURES: Final = 5


@dataclass(frozen=True, slots=True)
class Failure:
    """An observation that does not hold, and the check that made it."""

    expected: str
    seen: str
    check: str


@dataclass(slots=True)
class Row:
    """The observations of one requirement. ``reasons`` are why all or part of it was not tested."""

    id: str
    passed: int = 0
    failed: int = 0
    failures: list[Failure] = field(default_factory=list)
    """The first different ones of those that failed."""
    reasons: list[str] = field(default_factory=list)

    @property
    def outcome(self) -> Outcome:
        if self.failed:
            return "advice" if self.id in RECOMMENDED else "failed"
        return "passed" if self.passed else "not tested"


class Report:
    """The outcome of each requirement for one server."""

    def __init__(self, target: str, transport: str, level: int) -> None:
        self.target = target
        self.transport = transport
        self.level = level
        self._rows: dict[str, Row] = {}

    def note(self, id_: str, held: bool, expected: str, seen: object, check: str) -> None:
        """Record one observation. All failures are counted, and the first few different ones are kept."""
        row = self._row(id_)
        if held:
            row.passed += 1
            return
        row.failed += 1
        text = seen if isinstance(seen, str) else repr(seen)
        failure = Failure(expected, text if len(text) <= _MAX_CHARS else text[: _MAX_CHARS - 1] + "…", check)
        if len(row.failures) < _MAX_FAILURES and failure not in row.failures:
            row.failures.append(failure)

    def leave(self, ids: Iterable[str], reason: str) -> None:
        """Record why these requirements, or parts of them, were not tested."""
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
        return sorted(self._rows.values(), key=lambda row: _order(row.id))

    def of(self, outcome: Outcome) -> list[str]:
        """Return the ids of the requirements with this outcome."""
        return [row.id for row in self.rows if row.outcome == outcome]

    @property
    def conforms(self) -> bool:
        """Whether no requirement failed; untested ones do not count."""
        return not self.of("failed")

    def counts(self, category: str | None = None) -> dict[Outcome, int]:
        areas = None if category is None else CATEGORIES[category]
        rows = [row for row in self._rows.values() if areas is None or _order(row.id)[0] in areas]
        return {outcome: sum(row.outcome == outcome for row in rows) for outcome in _OUTCOMES}

    def document(self) -> dict[str, Any]:
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
        """Return the report as text: failures, then what was not tested, then what passed."""
        lines = [f"{self.target} ({self.transport}), level {self.level}", ""]
        for title, outcome in (("Failed", "failed"), ("Recommended, and not so", "advice")):
            rows = [row for row in self.rows if row.outcome == outcome]
            if rows:
                lines += [f"{title}:", *(line for row in rows for line in _failure_lines(row)), ""]
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
    if row.failures:
        member["found"] = [asdict(failure) for failure in row.failures]
        member["times"] = row.failed
    if row.reasons and row.outcome == "not tested":
        member["reasons"] = row.reasons
    return member


def _failure_lines(row: Row) -> list[str]:
    lines: list[str] = []
    for one in row.failures:
        lines += [f"  {row.id}  {one.check}", f"    expected: {one.expected}", f"    seen:     {one.seen}"]
    return lines


def _order(id_: str) -> tuple[str, int]:
    area, _, number = id_.rpartition("-")
    return (area, int(number)) if number.isdigit() else (id_, 0)
