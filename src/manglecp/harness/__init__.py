"""The harness: one model turn as evidence, closed by a typestate before anything may change.

Three ideas:

* **Evidence, not flags.** A turn is a JSON document of rows: what was requested, what came back, what became of it,
  what the model was shown. Verdicts are computed from rows. A claim about the turn can make the verdict stricter, never
  laxer.
* **One table of failures.** Whatever is wrong has one of 42 classes, and each class names the state that it blocks
  (:mod:`.classes`).
* **States that only their predecessor makes.** ``CallSpec -> ToolRequests -> ToolResults -> ToolUse -> JoinClosed ->
  MutationReady``: whoever holds a ``MutationReady`` holds the proof (:mod:`.states`).

Data meets the modules in this order:

    canonical, classes         bytes and digests; states and classes
    errors, reading            input that cannot be typed, with the path to it; readers
    call_spec, envelope, rows  under what a turn is made; typed errors; rows, normalised
    evidence                   all rows of a turn, each once
    constraints, documents     what is demanded explicitly, and by documents that are the pinned ones
    terms, schemas, turn       what is in force; whether arguments fit; a turn as it is judged
    checks, findings           what is not met, and where
    digests, judging           the digest bundles; the verdict
    builder                    the same of a turn under way, step by step
    states, witness            the typestate; the record that can be verified without the payloads
    policy, sessions           policy packages; the loop of an agent (trajectory: what it leaves behind)

Pure: no clock, no files, no processes, no chance. Time, randomness and storage are passed in.
"""

from manglecp.base.lazy import attach

__getattr__ = attach(__name__, __file__)
