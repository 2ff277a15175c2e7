"""Waivers of approvals. They are part of a server's tokens file, which is read before the engine is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from manglecp.base.digest import digest

if TYPE_CHECKING:
    from manglecp.intent import SafetyData


@dataclass(frozen=True, slots=True)
class AutoConfirm:
    """The effects that need no approver: an explicit setting of the operator (requirement SEC-24)."""

    effects: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """By the name of the requester."""

    def approval(self, identity: str, safety: SafetyData) -> str | None:
        """Return the reference to the setting, if it waives the approval: for all effects of the tool (OPEN-39).

        An approval by an approver that rules name is not waived.
        """
        waived = self.effects.get(identity)
        if not waived or not waived.issuperset(safety.side_effects) or safety.approver_roles or safety.four_eyes:
            return None
        return "auto:" + digest({"identity": identity, "effects": sorted(waived)})
