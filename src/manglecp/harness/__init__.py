"""The harness judges the evidence of a model turn, by a typestate, before it authorises a mutation.

readers, canonical_v1, call_spec, evidence   convert untrusted JSON to typed, normalised rows
constraints                                  constraints, policy documents, and the terms that result from both
classes, checks, judgement                   42 failure classes; the checks that raise them; digests and verdict
turn, states, witness                        turns and their builder; the typestate; verifiable records
policy                                       policy packages

Verdicts are computed from rows; a claim of the runtime can only make a verdict stricter. The package uses
no clock, files, processes or randomness. In its modules, *upstream* is the reference implementation.
"""

from manglecp.base.lazy import attach

__getattr__, __dir__ = attach(__name__, __file__)
