"""What the documents of a package say of one another, and of themselves, beyond their shape.

A package that contradicts itself would show it in the middle of a turn, as a class that no turn can avoid. It is better
refused when it is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from manglecp.base.diagnostic import FileLocation
from manglecp.harness.classes import CLASSES, Retry
from manglecp.harness.policy.problems import Problems

__all__ = ["check"]

Documents = Mapping[str, Any]


def check(documents: Documents, places: Mapping[str, FileLocation], problems: Problems) -> None:
    """Report every contradiction. The documents have their shapes."""
    for rule in _RULES:
        for kind, pointer, message in rule(documents):
            problems.add(FileLocation(places[kind].file, pointer=pointer), message)


Contradictions = Iterator[tuple[str, str, str]]


def _tools(documents: Documents) -> Contradictions:
    """Who speaks of tools speaks of tools that there are."""
    if "tools" not in documents:
        return
    known = {tool["toolName"] for tool in documents["tools"]["tools"]}
    spoken: list[tuple[str, str, Iterable[str]]] = [
        (kind, "/tools", documents[kind]["tools"]) for kind in ("callers", "examples") if kind in documents
    ]
    if "deferral" in documents:
        spoken += [("deferral", f"/{part}", documents["deferral"][part]) for part in ("eager", "deferred")]
        both = set(documents["deferral"]["eager"]) & set(documents["deferral"]["deferred"])
        if both:
            yield "deferral", "/deferred", f"{_listed(both)} cannot be both eager and deferred"
    if "filter" in documents:
        spoken.append(("filter", "/tools", documents["filter"].get("tools", ())))
    for kind, pointer, names in spoken:
        for name in sorted(set(names) - known):
            yield kind, pointer, f"the tool {name!r} is not in the catalogue"


def _observability(documents: Documents) -> Contradictions:
    policy = documents.get("observability")
    if policy is None:
        return
    if policy["mode"] not in policy.get("allowedModes", [policy["mode"]]):
        yield "observability", "/mode", f"{policy['mode']} is not one of allowedModes"
    if policy.get("zeroDataRetention") and policy["mode"] == "dashboard":
        yield "observability", "/mode", "a dashboard retains data, and zeroDataRetention forbids that"
    if policy.get("requireProcessorRef") and "processorRef" not in policy:
        yield "observability", "", "processorRef is required and missing"


def _eval_gate(documents: Documents) -> Contradictions:
    if "eval-gate" in documents and not documents["eval-gate"]["thresholds"]:
        yield "eval-gate", "/thresholds", "a gate without a threshold lets everything through"


def _risk(documents: Documents) -> Contradictions:
    policy = documents.get("risk-tiers")
    if policy is not None and policy["defaultTier"] not in policy["tiers"]:
        yield "risk-tiers", "/defaultTier", f"there is no tier {policy['defaultTier']}"


def _stop(documents: Documents) -> Contradictions:
    policy = documents.get("stop", {})
    if "checkpointEveryTurns" in policy and not policy.get("requireCheckpoint"):
        yield "stop", "/checkpointEveryTurns", "without requireCheckpoint no checkpoint is ever due"


def _protocol(documents: Documents) -> Contradictions:
    policy = documents.get("protocol")
    if policy is not None:
        for reason in sorted(set(policy.get("continuation", ())) - set(policy["handledStopReasons"])):
            yield "protocol", "/continuation", f"{reason!r} is not one of handledStopReasons"


def _parallel(documents: Documents) -> Contradictions:
    policy = documents.get("parallel", {})
    most, expected = policy.get("maxBranches"), policy.get("expectedBranches")
    if policy and not policy["allowed"] and (most is not None or expected is not None):
        yield "parallel", "/allowed", "branches are counted although none are allowed"
    if most is not None and expected is not None and expected > most:
        yield "parallel", "/expectedBranches", f"{expected} branches are more than maxBranches"


def _handoff(documents: Documents) -> Contradictions:
    policy = documents.get("handoff")
    if policy is not None:
        named = {name for names in policy.get("allowedTargetsByRole", {}).values() for name in names}
        for name in sorted(named - set(policy["allowedTargets"])):
            yield "handoff", "/allowedTargetsByRole", f"{name!r} is not one of allowedTargets"


def _views(documents: Documents) -> Contradictions:
    policy = documents.get("views", {})
    if "views" in policy:
        for name in sorted(set(policy.get("requiredStateViewIds", ())) - set(policy["views"])):
            yield "views", "/requiredStateViewIds", f"the view {name!r} is not defined"


def _controls(documents: Documents) -> Contradictions:
    """A control that is required needs the document that says what it is."""
    needs = {
        "guardrailStages": "guardrail-stages",
        "evalGate": "eval-gate",
        "redTeamGate": "red-team",
        "observabilityMode": "observability",
        "riskTier": "risk-tiers",
    }
    for control in documents.get("governance", {}).get("requiredControls", ()):
        if control in needs and needs[control] not in documents:
            yield "governance", "/requiredControls", f"{control} needs the document {needs[control]}"


def _retry(documents: Documents) -> Contradictions:
    seen: dict[str, str] = {}
    for rule in documents.get("retry", {}).get("rules", ()):
        for name in rule["classes"]:
            if name in seen:
                yield "retry", "/rules", f"{name} has two rules, {seen[name]} and {rule['ruleId']}"
            seen[name] = rule["ruleId"]
            if CLASSES[name].retry is Retry.NEVER and rule["maxAttempts"] > 1:
                yield "retry", "/rules", f"{rule['ruleId']}: {name} is never retried"


_RULES = (
    _tools,
    _observability,
    _eval_gate,
    _risk,
    _stop,
    _protocol,
    _parallel,
    _handoff,
    _views,
    _controls,
    _retry,
)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))
