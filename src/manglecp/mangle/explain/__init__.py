"""Why a fact holds, why it does not, and what every rule contributed.

Everything is found after the fact: an evaluation keeps nothing for it, and explanations need only a finished model
(:class:`Model`). Data meets the modules in this order:

    solver, shape              what is known, premises answered by the model; what a rule's head gives away
    instances                  the ways in which a rule yields a fact, and which intervals it needs
    search, proof              the best proof, or a good one; proofs as a graph; all minimal supports
    candidates                 which facts could be added, when they would hold, and sets of them
    abduction, unlock          which of them a conclusion lacks; every answer evaluated, the smallest sets
    assertable                 the same where only some facts may be asserted
    coverage, expiry           which rules fired, which facts no rule used; until when a fact goes on holding
    explainer                  the questions, and where each rule stops
"""

from manglecp.mangle.explain.assertable import ANY_NAME, ANYTHING, Probe
from manglecp.mangle.explain.coverage import Coverage, RuleCoverage, Unused
from manglecp.mangle.explain.explainer import Blocked, Explainer, WhyNot
from manglecp.mangle.explain.proof import Alternatives, Node, NodeOrigin, Proof
from manglecp.mangle.explain.shape import RuleRef, Shape, rule_ref
from manglecp.mangle.explain.solver import Model, read_fact
from manglecp.mangle.explain.unlock import Unlocked

__all__ = [
    "ANYTHING",
    "ANY_NAME",
    "Alternatives",
    "Blocked",
    "Coverage",
    "Explainer",
    "Model",
    "Node",
    "NodeOrigin",
    "Probe",
    "Proof",
    "RuleCoverage",
    "RuleRef",
    "Shape",
    "Unlocked",
    "Unused",
    "WhyNot",
    "read_fact",
    "rule_ref",
]
