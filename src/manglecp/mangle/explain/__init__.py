"""Why a fact holds, why it does not, and what every rule contributed.

Everything is found after the fact: an evaluation keeps nothing for it, and explanations need only a finished model
(:class:`Model`). Data meets the modules in this order:

    solver, shape              what is known, premises answered by the model; what a rule's head gives away
    instances                  the ways in which a rule yields a fact, and which intervals it needs
    search, proof              the best proof, or a good one; proofs as a graph; all minimal supports
    candidates                 which facts could be added, when they would hold, and sets of them
    abduction, unlock          which of them a conclusion lacks; every answer evaluated, the smallest sets
    coverage, expiry           which rules fired, which facts no rule used; until when a fact goes on holding
    explainer                  the questions, and where each rule stops
"""

from manglecp.mangle.explain.candidates import Assumed, Candidates, Dependence, Effort, Exhausted
from manglecp.mangle.explain.coverage import Coverage, RuleCoverage, Unused
from manglecp.mangle.explain.expiry import may_expire
from manglecp.mangle.explain.explainer import Blocked, Explainer, WhyNot, furthest, satisfying
from manglecp.mangle.explain.proof import Alternatives, Node, NodeOrigin, Proof, Prover
from manglecp.mangle.explain.shape import RuleRef, Shape, rule_ref
from manglecp.mangle.explain.solver import Finished, Model, read_fact
from manglecp.mangle.explain.unlock import Unlock, Unlocked

__all__ = [
    "Alternatives",
    "Assumed",
    "Blocked",
    "Candidates",
    "Coverage",
    "Dependence",
    "Effort",
    "Exhausted",
    "Explainer",
    "Finished",
    "Model",
    "Node",
    "NodeOrigin",
    "Proof",
    "Prover",
    "RuleCoverage",
    "RuleRef",
    "Shape",
    "Unlock",
    "Unlocked",
    "Unused",
    "WhyNot",
    "furthest",
    "may_expire",
    "read_fact",
    "rule_ref",
    "satisfying",
]
