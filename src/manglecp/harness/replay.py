"""A turn that is over, walked through its states again from the document that was kept of it.

The walk is that of a live turn: each state is made by the one before it, and the first one that cannot be reached ends
it. There is no shorter way from a document to a ``MutationReady``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from manglecp.harness.errors import InvalidEvidence
from manglecp.harness.judging import judge
from manglecp.harness.states import CallSpec, MutationReady

__all__ = ["ready_from"]


def ready_from(document: Any, active_policy: str | None = None) -> MutationReady:
    """The right to the mutation of a turn.

    ``document`` is what :func:`.judging.judge` takes. ``active_policy`` is the digest of the mutation policy in force,
    from someone who knows it; it replaces what the document says of that. What is no evidence is
    :class:`.InvalidEvidence`, and a turn that may not mutate is :class:`.Blocked`.
    """
    if not isinstance(document, dict):
        raise InvalidEvidence("", "an object is expected")
    judge(document)  # what cannot be read is reported by its place in this document, not in a part of it
    constraints = {name: value for name, value in document.items() if name != "evidence"}
    evidence = {name: value for name, value in document["evidence"].items() if value is not None}
    call_spec, protocol_state = evidence.pop("callSpec"), evidence.pop("protocolState")
    requests, mutation = evidence.pop("toolRequests", ()), evidence.pop("mutation", None)
    in_force: Mapping[str, Any] = {}
    if active_policy is not None:
        stated = constraints.get("mutationConstraints") or {}
        in_force = {"mutationConstraints": {**stated, "activePolicyDigest": active_policy}}
    # The rest is known by now, so what blocks a state shows as early as it can, and who made a call is no question.
    requested = CallSpec.open(call_spec, constraints).request(requests, evidence)
    return requested.answer().use().close(protocol_state).authorize(mutation, in_force)
