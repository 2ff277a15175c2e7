"""What became of each rule for one request: rule coverage, for whoever writes a pack.

All rules count, the kernel's too, so that the numbers are those of the diagnostics: fired, dormant and inapplicable
make the total. Details are told of the pack's own rules: a rule is named by the predicate of its head, and what it
misses by the names of predicates. Of policy there are only the counts, unless whoever asks holds ``explain_policy``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from manglecp.intent.redaction import Sight, trust_of
from manglecp.mangle import Trust
from manglecp.mangle.explain import RuleCoverage as Covered
from manglecp.wire.messages import DormantRule, RuleCoverage

if TYPE_CHECKING:
    from manglecp.intent.evaluation import Evaluation

__all__ = ["rule_coverage"]


def rule_coverage(evaluation: Evaluation) -> RuleCoverage:
    """Counts of all rules, and details of the dormant ones that whoever asks may know about."""
    coverage = evaluation.result.coverage(selector="intent")
    sight = Sight(evaluation.domain, evaluation.identity)
    details = [_dormant(rule, sight) for rule in coverage.rules if _is_told(rule, sight)]
    return RuleCoverage(
        total_rules=len(coverage.rules),
        rules_fired=coverage.count("fired"),
        rules_dormant=coverage.count("partially_alive", "dead"),
        rules_inapplicable=coverage.count("inapplicable"),
        dormant_details=tuple(sorted(details, key=lambda one: (one.rule, one.status, one.missing_predicates))),
    )


def _is_told(covered: Covered, sight: Sight) -> bool:
    clause = covered.rule.clause
    if covered.status not in ("partially_alive", "dead") or trust_of(clause) is Trust.KERNEL:
        return False
    return not sight.hides(clause.head.key, clause)


def _dormant(covered: Covered, sight: Sight) -> DormantRule:
    clause = covered.rule.clause
    arities = {premise.atom.key for premise in clause.premises if hasattr(premise, "atom")}
    shown = [name for name in covered.missing if not any(sight.hides(key) for key in arities if key[0] == name)]
    return DormantRule(
        rule=sight.text(covered.rule.head),
        missing_predicates=tuple(sight.text(name) for name in shown),
        status="dead" if covered.status == "dead" else "partially_alive",
    )
