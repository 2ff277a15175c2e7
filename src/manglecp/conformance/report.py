"""The report about a server, by requirement. Requirements have ids of an area and a number, for example ``WIRE-01``.

Checks and the watcher of messages record observations. A requirement without observations is not tested. With
observations it fails if one violates the requirement, and passes otherwise. A violated recommendation is *advice*, not
a failure. ``requirements.toml`` has the recommendations and the categories.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, get_args

Outcome = Literal["passed", "failed", "advice", "not tested"]

REQUIREMENTS: Final = tomllib.loads(Path(__file__).with_name("requirements.toml").read_text("utf-8"))
RECOMMENDED: Final = frozenset(REQUIREMENTS["recommended"])
CATEGORIES: Final[Mapping[str, list[str]]] = REQUIREMENTS["categories"]
_MAX_SEEN_CHARS: Final = 400
_MAX_FAILURES: Final = 5  # failures that are listed for one requirement


@dataclass(frozen=True, slots=True)
class Failure:
    """An observation that violates a requirement, with the name of the check."""

    expected: str
    seen: str
    check: str


@dataclass(slots=True)
class Row:
    """The observations of one requirement."""

    id: str
    passed_count: int = 0  # the number of observations that satisfy the requirement
    failed_count: int = 0  # the number of observations that violate the requirement
    failures: list[Failure] = field(default_factory=list)  # the first failures, without duplicates
    reasons: list[str] = field(default_factory=list)  # why the requirement was not tested, or not in full

    @property
    def outcome(self) -> Outcome:
        if self.failed_count:
            return "advice" if self.id in RECOMMENDED else "failed"
        return "passed" if self.passed_count else "not tested"


class Report:
    """The outcome of each requirement for one server."""

    def __init__(self, target: str, transport: str, level: int) -> None:
        self.target = target
        self.transport = transport
        self.level = level
        self.check = ""  # the name of the current check
        self._rows: dict[str, Row] = {}

    def note(self, id_: str, holds: bool, expected: str = "", seen: object = "") -> None:
        """Record one observation of a requirement, with ``expected`` and ``seen`` if the requirement does not hold."""
        row = self._row(id_)
        if holds:
            row.passed_count += 1
            return
        row.failed_count += 1
        text = seen if isinstance(seen, str) else repr(seen)
        if len(text) > _MAX_SEEN_CHARS:
            text = text[: _MAX_SEEN_CHARS - 1] + "…"
        failure = Failure(expected, text, self.check)
        if len(row.failures) < _MAX_FAILURES and failure not in row.failures:
            row.failures.append(failure)

    def skip(self, ids: Iterable[str], reason: str) -> None:
        """Record the reason why these requirements, or parts of them, were not tested."""
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
        """The requirements in the order of their ids."""
        return sorted(self._rows.values(), key=lambda row: _sort_key(row.id))

    def of(self, outcome: Outcome) -> list[str]:
        """Return the ids of the requirements with this outcome."""
        return [row.id for row in self.rows if row.outcome == outcome]

    @property
    def conforms(self) -> bool:
        """Whether no requirement failed. Advice and untested requirements do not count."""
        return not self.of("failed")

    def counts(self, category: str | None = None) -> dict[Outcome, int]:
        """Return the number of requirements with each outcome, of one category or of all areas."""
        areas = None if category is None else CATEGORIES[category]
        rows = [row for row in self._rows.values() if areas is None or _sort_key(row.id)[0] in areas]
        return {outcome: sum(row.outcome == outcome for row in rows) for outcome in get_args(Outcome)}

    def document(self) -> dict[str, Any]:
        """Return the report as a JSON document."""
        return {
            "target": self.target,
            "transport": self.transport,
            "level": self.level,
            "conforms": self.conforms,
            "counts": self.counts(),
            "categories": {category: self.counts(category) for category in CATEGORIES},
            "requirements": [_row_document(row) for row in self.rows],
        }

    def lines(self) -> list[str]:
        """Return the report as text: failures, advice, untested and passed requirements, and the counts."""
        lines = [f"{self.target} ({self.transport}), level {self.level}", ""]
        for title, outcome in (("Failed", "failed"), ("Recommendations not followed", "advice")):
            rows = [row for row in self.rows if row.outcome == outcome]
            if rows:
                lines += [f"{title}:", *(line for row in rows for line in _failure_lines(row)), ""]
        ids_by_reason: dict[str, list[str]] = {}  # ids by the first reason
        for row in self.rows:
            if row.outcome == "not tested":
                ids_by_reason.setdefault(row.reasons[0] if row.reasons else "nothing showed it", []).append(row.id)
        if ids_by_reason:
            lines += ["Not tested:", *(f"  {reason}: {' '.join(ids)}" for reason, ids in ids_by_reason.items()), ""]
        if passed := self.of("passed"):
            lines += ["Passed:", f"  {' '.join(passed)}", ""]
        for category in CATEGORIES:
            lines.append(f"{category + ':':19}{_counts_text(self.counts(category))}")
        lines += ["", _counts_text(self.counts())]
        return lines


def _counts_text(counts: Mapping[Outcome, int]) -> str:
    return ", ".join(f"{count} {outcome}" for outcome, count in counts.items())


def _row_document(row: Row) -> dict[str, Any]:
    document: dict[str, Any] = {"id": row.id, "outcome": row.outcome}
    if row.failures:
        document["found"] = [asdict(failure) for failure in row.failures]
        document["times"] = row.failed_count
    if row.reasons and row.outcome == "not tested":
        document["reasons"] = row.reasons
    return document


def _failure_lines(row: Row) -> Iterator[str]:
    for failure in row.failures:
        yield f"  {row.id}  {failure.check}"
        yield f"    expected: {failure.expected}"
        yield f"    seen:     {failure.seen}"


def _sort_key(id_: str) -> tuple[str, int]:
    """Return area and number of an id."""
    area, _, number = id_.rpartition("-")
    return (area, int(number)) if number.isdigit() else (id_, 0)
