"""What the turns of a log are bound to: a policy package, or plain CallSpec fields.

A log says which model was asked, which tools it was offered and in which words it stopped. It does not say which
policies were in force; those come from whoever has the log judged. Where nobody names any, the turns only observe
(:mod:`..policy.builtin`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from manglecp.harness.policy import PolicyPackage, observe

__all__ = ["CONSTRAINTS", "UNRECORDED", "Binding", "bind"]

UNRECORDED: Final = "unrecorded"
"""The model, or the stop reason, that a log does not name. No policy handles it unless it says so."""

CONSTRAINTS: Final = frozenset(
    {
        "toolConstraints",
        "protocolConstraints",
        "truncationConstraints",
        "runtimeConstraints",
        "contextConstraints",
        "decompositionConstraints",
        "handoffConstraints",
        "governanceProfile",
        "governanceConstraints",
        "mutationConstraints",
        "policyDocuments",
    }
)
"""What stands beside ``evidence`` in a document."""

_OF_A_TURN: Final = ("callId", "modelRef", "actionMode", "executionPattern", "toolChoice")


@dataclass(frozen=True, slots=True)
class Binding:
    """CallSpec fields and constraints that every turn of a log shares."""

    fields: Mapping[str, Any]
    constraints: Mapping[str, Any]


def bind(policy: PolicyPackage | Mapping[str, Any] | None, pinned: str | None = None) -> Binding:
    """Of a mapping, members that are constraint objects or ``policyDocuments`` are those; the others are fields.

    Fields that a mapping lacks are those of ``observe``, so that a mapping need only say what it changes. A package
    says everything it has to say itself.
    """
    if isinstance(policy, PolicyPackage):
        return _of_package(policy, pinned)
    base = _of_package(observe())
    if policy is None:
        return base
    fields = {name: value for name, value in policy.items() if name not in CONSTRAINTS}
    constraints = {name: value for name, value in policy.items() if name in CONSTRAINTS}
    for name, value in constraints.items():
        if not isinstance(value, Mapping):
            raise TypeError(f"{name} of a policy is no object")
    # Documents of observe would drift from digests that the mapping replaces; without them nothing is compared.
    kept = base.constraints if not fields else {}
    return Binding({**base.fields, **fields}, {**kept, **constraints})


def _of_package(package: PolicyPackage, pinned: str | None = None) -> Binding:
    spec = package.call_spec(session_id="", turn_index=0, model_ref=UNRECORDED, prompt_digest="")
    return Binding(
        {name: value for name, value in spec.items() if name not in _OF_A_TURN}, package.terms(pinned=pinned)
    )
