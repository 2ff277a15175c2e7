"""Which reports are no evidence for a promotion, and why.

A report may be excellent and beside the point: about another package, on other data, for another promotion, or used up.
It is then not shown to the judge, who so finds that there is none; the words for people are kept here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from manglecp.harness.policy.package import PolicyPackage
from manglecp.harness.policy.pins import Pin, differences
from manglecp.harness.policy.reports import Reports

__all__ = ["doubts"]

_LOADING: Final = ("deferral", "filter")
"""Documents that decide how much of tools and results the model is shown."""


def doubts(pin: Pin, candidate: PolicyPackage, reports: Reports) -> dict[str, str]:
    """What is not shown to the judge, and why."""
    found = {
        "evaluation": _doubt_evaluation(pin.package, candidate, reports.evaluation),
        "redTeam": _doubt_red_team(pin.package, candidate, reports.red_team),
        "instruction": _doubt_instruction(pin, candidate, reports),
        "approval": _doubt_approval(pin, candidate, reports),
    }
    return {name: doubt for name, doubt in found.items() if doubt is not None}


def _doubt_evaluation(active: PolicyPackage, candidate: PolicyPackage, report: Mapping[str, Any]) -> str | None:
    gate = active.contents.get("eval-gate") or candidate.contents.get("eval-gate")
    if gate is None:
        return "neither package has an eval gate, so nothing says what a good evaluation is"
    if report["packageDigest"] != candidate.digest:
        return f"the evaluation is about another package than {candidate.ref} {candidate.digest}"
    if report["dataset"] != gate["dataset"]:
        return f"the evaluation was made on {report['dataset']}, not on {gate['dataset']}"
    if "profileRef" in gate and "profileRef" not in report:
        return f"the evaluation does not say that its benchmark is {gate['profileRef']}"
    changed = {difference.document for difference in differences(active, candidate)}
    if changed.intersection(_LOADING) and "loading" not in report:
        return "tools are loaded or filtered otherwise, and the evaluation has no measurement of that"
    return None


def _doubt_red_team(active: PolicyPackage, candidate: PolicyPackage, report: Mapping[str, Any]) -> str | None:
    if "red-team" not in active.contents and "red-team" not in candidate.contents:
        return "neither package has a red-team policy, so nothing says what a thorough attack is"
    if report["packageDigest"] != candidate.digest:
        return f"the red-team report is about another package than {candidate.ref} {candidate.digest}"
    return None


def _doubt_instruction(pin: Pin, candidate: PolicyPackage, reports: Reports) -> str | None:
    if reports.instruction is None:
        return None
    if (reports.instruction["pinnedDigest"], reports.instruction["packageDigest"]) != (pin.digest, candidate.digest):
        return f"the instruction asks for another promotion than {pin.digest} to {candidate.digest}"
    if any(row.get("instructionRef") == reports.instruction_ref for row in pin.history):
        return "the instruction was carried out before; a promotion that is repeated is asked for again"
    return None


def _doubt_approval(pin: Pin, candidate: PolicyPackage, reports: Reports) -> str | None:
    tier = pin.package.highest_tier()
    if reports.approval is None or tier is None or not pin.package.needs_approval(tier):
        return None  # none is owed, so none can be the wrong one
    if reports.approval["packageDigest"] != candidate.digest:
        return f"the approval is about another package than {candidate.ref} {candidate.digest}"
    if reports.approval["tier"] != tier:
        return f"the approval is for tier {reports.approval['tier']}, not {tier}"
    if any(reports.approval_ref in row.get("inputRefs", ()) for row in pin.history):
        return "the approval was used before; a promotion that is repeated is approved again"
    return None
