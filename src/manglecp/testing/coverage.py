"""Rule coverage: which rules of a pack fired during a test session, and which never did.

A copy of the domain replaces the domain; the base of the copy (the compiled program) records every evaluation. Facts
and the rules of the kernel are not recorded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from manglecp.intent import Domain
from manglecp.mangle import Base, Result, Trust
from manglecp.mangle.explain import rule_ref


@dataclass(slots=True)
class RuleRecord:
    """Whether a rule ever fired. ``missing`` are the unmatched premises of the evaluation with the fewest of them."""

    place: str  # file and line
    text: str
    fired: bool = False
    missing: tuple[str, ...] | None = None

    def record(self, *, fired: bool, missing: tuple[str, ...] | None) -> None:
        self.fired = self.fired or fired
        if missing is not None and (self.missing is None or len(missing) < len(self.missing)):
            self.missing = missing


@dataclass(slots=True)
class PackCoverage:
    """The rules of one pack by place and text, in the order of the program. ``pack`` is the name in the report."""

    pack: str
    rules: dict[tuple[str, str], RuleRecord] = field(default_factory=dict)

    @property
    def fired_count(self) -> int:
        return sum(rule.fired for rule in self.rules.values())

    @property
    def percent(self) -> int:
        """The percentage of rules that fired, rounded down."""
        return 100 * self.fired_count // len(self.rules) if self.rules else 100

    def never_fired(self) -> Iterator[RuleRecord]:
        return (rule for rule in self.rules.values() if not rule.fired)

    def record(self, result: Result) -> None:
        """Record which rules of the pack fired in an evaluation, and what the other rules lacked."""
        for entry in result.explainer.coverage().rules:
            if entry.rule.clause.trust is not Trust.KERNEL:
                key = (entry.rule.place, entry.rule.text)
                self.rules[key].record(fired=entry.status == "fired", missing=entry.missing)

    def as_json(self) -> list[dict[str, Any]]:
        """Return the records, for :meth:`merge` in another process."""
        return [asdict(rule) for rule in self.rules.values()]

    def merge(self, rules: list[Mapping[str, Any]]) -> None:
        """Add the records that :meth:`as_json` returned in another process."""
        for rule in rules:
            missing = None if rule["missing"] is None else tuple(rule["missing"])
            key = (str(rule["place"]), str(rule["text"]))
            self.rules.setdefault(key, RuleRecord(*key)).record(fired=bool(rule["fired"]), missing=missing)

    def lines(self) -> Iterator[str]:
        """Yield the report: how many rules fired, and each rule that did not, with the predicates that it lacked."""
        yield f"{self.pack}: {self.fired_count} of {len(self.rules)} rules fired ({self.percent} %)"
        for rule in self.never_fired():
            yield f"  never fired: {rule.place}"
            yield from (f"    {line}" for line in rule.text.splitlines())
            if rule.missing:
                yield f"    without {', '.join(rule.missing)}"


def with_coverage(domain: Domain, coverage: PackCoverage) -> Domain:
    """Return a copy of the domain that records every evaluation in ``coverage``."""
    for rule in domain.program.rules:
        if rule.clause.trust is not Trust.KERNEL:
            ref = rule_ref(rule.clause)
            coverage.rules.setdefault((ref.place, ref.text), RuleRecord(ref.place, ref.text))
    return replace(domain, base=_RecordingBase(domain.base, coverage))


class _RecordingBase(Base):
    def __init__(self, base: Base, coverage: PackCoverage) -> None:
        super().__init__(base.compiled, base.layer, base.externals)
        self._coverage = coverage

    def evaluate(self, *args: Any, **options: Any) -> Result:
        result = super().evaluate(*args, **options)
        self._coverage.record(result)
        return result

    def with_facts(self, *args: Any, **options: Any) -> Base:
        return _RecordingBase(super().with_facts(*args, **options), self._coverage)
