"""Why a fact holds, why it does not, and what every rule contributed.

Everything is found after the fact: an evaluation keeps nothing for it, and explanations need only a finished model
(:class:`Model`). Data meets the modules in this order:

    facts, model               what is asked about, and what is known
    solver, shape, wording     premises answered by the model; what a rule's head gives away; premises as text
    instances, covers          the ways in which a rule yields a fact, and which intervals it needs
    search, quick (rounds)     the best proof; a good one where that would take too long
    replay                     values of merged predicates, from the way they came about
    prover, proof              proofs as a graph, written as a tree
    alternatives               all minimal sets of given facts behind a fact
    blocked                    where each rule stops
    candidates, fitting        which facts could be added, and whether their types fit
    timing                     when they would have to hold
    abduction, repairs         which of them a conclusion lacks (hypotheses: sets of them)
    trial, unlock, whynot      every answer evaluated; the smallest sets
    coverage                   which rules fired, which facts nobody used
    lasting, backward, expiry  until when a fact goes on holding
    explainer                  the questions
"""

from manglecp.mangle.explain.alternatives import Alternatives
from manglecp.mangle.explain.blocked import Blocked
from manglecp.mangle.explain.candidates import Candidates
from manglecp.mangle.explain.coverage import Coverage, RuleCoverage, Unused
from manglecp.mangle.explain.dependence import Dependence
from manglecp.mangle.explain.expiry import may_expire
from manglecp.mangle.explain.explainer import Explainer
from manglecp.mangle.explain.hypotheses import Assumed, Effort, Exhausted
from manglecp.mangle.explain.model import Model
from manglecp.mangle.explain.proof import Node, NodeOrigin, Proof
from manglecp.mangle.explain.prover import Prover
from manglecp.mangle.explain.question import read_fact
from manglecp.mangle.explain.reach import furthest, satisfying
from manglecp.mangle.explain.shape import RuleRef, Shape, rule_ref
from manglecp.mangle.explain.solver import Finished
from manglecp.mangle.explain.unlock import Unlock, Unlocked
from manglecp.mangle.explain.whynot import WhyNot

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
