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
    growing                    the same of a turn under way, step by step
    shapes, forms, learning,   turns that differ in names only: what they have in common,
    recognising                and how they are known by it
    states, witness            the typestate; the record that can be verified without the payloads
    policy, sessions           policy packages; the loop of an agent (trajectory: what it leaves behind)
    adapters                   evidence from logs that people have

Pure: no clock, no files, no processes, no chance. Time, randomness and storage are passed in.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from manglecp.harness.adapters import ingest
    from manglecp.harness.errors import InvalidEvidence
    from manglecp.harness.judging import Judgement, judge
    from manglecp.harness.sessions import Refused, Session, Turn, session
    from manglecp.harness.states import (
        Blocked,
        CallSpec,
        Forged,
        JoinClosed,
        MutationReady,
        ToolRequests,
        ToolResults,
        ToolUse,
        WrongMutation,
        redeem,
        redeem_call,
    )
    from manglecp.harness.witness import verify, witness_of

__all__ = [
    "Blocked",
    "CallSpec",
    "Forged",
    "InvalidEvidence",
    "JoinClosed",
    "Judgement",
    "MutationReady",
    "Refused",
    "Session",
    "ToolRequests",
    "ToolResults",
    "ToolUse",
    "Turn",
    "WrongMutation",
    "ingest",
    "judge",
    "redeem",
    "redeem_call",
    "session",
    "verify",
    "witness_of",
]

_HOMES: Final = {
    "adapters": ("ingest",),
    "errors": ("InvalidEvidence",),
    "judging": ("Judgement", "judge"),
    "sessions": ("Refused", "Session", "Turn", "session"),
    "states": (
        "Blocked",
        "CallSpec",
        "Forged",
        "JoinClosed",
        "MutationReady",
        "ToolRequests",
        "ToolResults",
        "ToolUse",
        "WrongMutation",
        "redeem",
        "redeem_call",
    ),
    "witness": ("verify", "witness_of"),
}
"""Where each name lives. Whoever wants one of them does not pay for the others."""


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
