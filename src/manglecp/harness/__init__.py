"""The harness: one model turn as evidence, closed by a typestate before a mutation is authorised.

readers, canonical_v1, call_spec, evidence   untrusted JSON to typed, normalised rows
constraints                                  constraints, policy documents, terms in force
classes, checks, judgement                   42 failure classes; checks that raise them; digests and verdict
turn, states, witness                        turns and their builder; the typestate; verifiable records
sessions, policy                             the turns of an agent loop; policy packages

Verdicts are computed from rows; a claim about the turn can make a verdict stricter, never laxer. Pure: no clock, files,
processes or randomness.
"""

from manglecp.base.lazy import attach

__getattr__, __dir__ = attach(__name__, __file__)
