"""Explanations of a finished model: proofs, abduction, rule coverage and expiry.

An evaluation records nothing for them; they need only a finished :class:`~manglecp.mangle.engine.model.EvaluatedModel`.
"""

from manglecp.mangle.explain.candidates import ANY_NAME, ANYTHING
from manglecp.mangle.explain.coverage import Coverage, RuleStatus, UnusedFact
from manglecp.mangle.explain.explainer import BlockedRule, Explainer, WhyNot
from manglecp.mangle.explain.proof import Alternatives, Node, NodeOrigin, Proof
from manglecp.mangle.explain.shape import RuleRef, Shape, rule_ref
from manglecp.mangle.explain.solver import DeadlineExceeded, read_fact
from manglecp.mangle.explain.unlock import Unlocked

__all__ = [
    "ANYTHING",
    "ANY_NAME",
    "Alternatives",
    "BlockedRule",
    "Coverage",
    "DeadlineExceeded",
    "Explainer",
    "Node",
    "NodeOrigin",
    "Proof",
    "RuleRef",
    "RuleStatus",
    "Shape",
    "Unlocked",
    "UnusedFact",
    "WhyNot",
    "read_fact",
    "rule_ref",
]
