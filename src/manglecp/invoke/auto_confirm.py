"""Waivers of approvals. They belong to the tokens of a server, which are read before the engine is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from manglecp.base.digest import digest

if TYPE_CHECKING:
    from manglecp.intent import SafetyData


@dataclass(frozen=True, slots=True)
class AutoConfirm:
    """The effects that need no approver, by identity: an explicit setting of the operator (SEC-24)."""

    effects: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def approval(self, identity: str, safety: SafetyData) -> str | None:
        """Return the reference to the setting, if it covers every effect (OPEN-39) and no rule names approvers."""
        covered = self.effects.get(identity)
        if not covered or not covered.issuperset(safety.side_effects) or safety.approver_roles or safety.four_eyes:
            return None
        return "auto:" + digest({"identity": identity, "effects": sorted(covered)})
