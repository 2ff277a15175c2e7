"""Explanations of a finished model: proofs, abduction, rule coverage and expiry.

They need only a finished :class:`~manglecp.mangle.engine.model.EvaluatedModel`; an evaluation records nothing for them.
"""

from manglecp.mangle.explain.candidates import ANY_NAME as ANY_NAME, ANYTHING as ANYTHING
from manglecp.mangle.explain.coverage import Coverage as Coverage, RuleStatus as RuleStatus, UnusedFact as UnusedFact
from manglecp.mangle.explain.explainer import BlockedRule as BlockedRule, Explainer as Explainer, WhyNot as WhyNot
from manglecp.mangle.explain.proof import Alternatives as Alternatives, Node as Node, Proof as Proof
from manglecp.mangle.explain.shape import RuleRef as RuleRef, Shape as Shape, rule_ref as rule_ref
from manglecp.mangle.explain.solver import DeadlineExceeded as DeadlineExceeded, read_fact as read_fact
from manglecp.mangle.explain.unlock import UnlockResult as UnlockResult
