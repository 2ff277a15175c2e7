"""How the policy in force changes: a turn of its own, judged like any other, whose mutation is ``governance_policy``.

What keeps a promotion from being got around:

* **The pinned package judges.** Floors, required attacks, risk tiers and the mutation policy are those of the package
  in force, taken from the pin. A new package cannot lower the bar that it has to pass; its own floors come on top.
* **Reports are about this package.** Each names the digest of the new package. One on another package is not shown to
  the judge at all, and so the gate stays closed.
* **Someone asked for it.** The claims come from an instruction that names both digests. Without one there is no
  instruction to point at and no claim. Instructions and approvals are good for one promotion.
* **A change of loading is measured.** Where tools are deferred or filtered otherwise than before, the evaluation has to
  say what that did to accuracy and to the number of tokens.
* **The right is spent.** The judge gives a ``MutationReady``; :meth:`.pins.Pin.promoted` redeems it, once, for this
  package over that pin.

The turn has one call per document, made by this module instead of a model: each reads a document, and the digest of
what it read is what the mutation rests on. What the reports *say* is taken on record: that a number was measured, only
who measured it can know. The digests of all of them are in the history of the pin, and with the reports at hand the
join witness can be computed again: no clock and no chance has a part in the turn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from manglecp.harness.canonical_v1 import digest_v1 as digest
from manglecp.harness.judging import judge
from manglecp.harness.policy.doubts import doubts
from manglecp.harness.policy.kinds import KINDS
from manglecp.harness.policy.package import PolicyPackage
from manglecp.harness.policy.pins import ACTION, Pin, candidate_ref, differences
from manglecp.harness.policy.reports import Reports
from manglecp.harness.states import Blocked, CallSpec, MutationReady
from manglecp.harness.terms import STAGES

__all__ = ["Unchanged", "promote", "ready_to_promote"]

MODEL_REF: Final = "manglecp:policy-promotion@1"
"""What decides here is this module."""

_OF_AGENTS: Final = (
    *("tools", "callers", "examples", "deferral", "filter", "parallel", "transport", "truncation", "boundary"),
    *("sandbox", "compaction", "scope", "handoff", "stop", "protocol"),
)
"""Documents that speak of an agent's tools, context and handoffs, and not of this turn."""
_LEFT_OUT: Final = {
    *(name for kind in _OF_AGENTS for name in (KINDS[kind].inline, KINDS[kind].digested, KINDS[kind].document) if name),
    *("toolConstraints", "toolCatalog", "toolCatalogDigest", "runtimeSandboxRef"),
}
_END: Final = {"stopReason": "end_turn", "continuationAllowed": False}
_GATES: Final = {"eval-gate": "evalGatePolicy", "red-team": "redTeamPolicy"}


class Unchanged(ValueError):
    """The package is the one that is pinned."""


def promote(pin: Pin, candidate: PolicyPackage, reports: Reports, *, at: str) -> Pin:
    """The pin of the candidate; :class:`.Blocked` with the findings if the reports do not carry it."""
    return pin.promoted(candidate, ready_to_promote(pin, candidate, reports), at=at)


def ready_to_promote(pin: Pin, candidate: PolicyPackage, reports: Reports) -> MutationReady:
    """The right to promote the candidate over the pinned package; :class:`.Blocked` with all that is missing."""
    if candidate.digest == pin.digest:
        raise Unchanged(f"{candidate.ref} is pinned already")
    turn = _Turn(pin, candidate, reports)
    try:
        return turn.walk()
    except Blocked as blocked:  # at the first state that it did not reach; who has to mend it wants to know the rest
        raise Blocked(blocked.state, judge(turn.document()).findings) from None


@dataclass(frozen=True, slots=True)
class _Read:
    """A document of the turn: what reads it, how it is named, and what it says."""

    tool: str
    ref: str
    content: Mapping[str, Any]


class _Turn:
    """The evidence of one promotion."""

    def __init__(self, pin: Pin, candidate: PolicyPackage, reports: Reports) -> None:
        self.pin = pin
        self.active = pin.package
        self.candidate = candidate
        self.reports = reports
        self.doubts = doubts(pin, candidate, reports)
        self.reads = [
            _Read("policy.read_package", candidate_ref(candidate), candidate.inventory),
            _Read("policy.read_evaluation", f"evaluation://{digest(reports.evaluation)}", reports.evaluation),
            _Read("policy.read_red_team", f"red-team://{digest(reports.red_team)}", reports.red_team),
        ]
        if reports.approval_ref is not None and reports.approval is not None:
            self.reads.append(_Read("policy.read_approval", reports.approval_ref, reports.approval))

    def walk(self) -> MutationReady:
        rows = self.rows()
        *before, after = self.decisions()
        return (
            CallSpec.open(self.call_spec(), self.terms())
            .request(rows.pop("toolRequests"), {"guardrailDecisions": before})
            .answer(rows.pop("toolResults"))
            .use(rows.pop("toolUse"))
            .close(_END, {**rows, "guardrailDecisions": [after]})
            .authorize(self.intent())
        )

    def document(self) -> dict[str, Any]:
        """The same turn as a whole."""
        evidence = {
            "callSpec": self.call_spec(),
            **self.rows(),
            "guardrailDecisions": self.decisions(),
            "protocolState": _END,
            "mutation": self.intent(),
        }
        return {**self.terms(), "evidence": evidence}

    def call_spec(self) -> dict[str, Any]:
        fields = self.active.call_spec(
            session_id=f"policy://{self.active.name}",
            turn_index=len(self.pin.history),
            model_ref=MODEL_REF,
            prompt_digest=digest([read.ref for read in self.reads]),
            execution_pattern=self._pattern(),
            risk_tier=self.active.highest_tier(),
        )
        fields = {name: value for name, value in fields.items() if name not in _LEFT_OUT}
        fields["toolPolicy"] = {"allowedTools": [{"toolName": read.tool} for read in self.reads]}
        for kind, name in _GATES.items():
            if (gate := self._gate(kind)) is not None:
                fields[f"{name}Digest"] = digest(gate)
                if "profileRef" in gate:
                    fields["evalProfileRef"] = gate["profileRef"]
        return fields

    def terms(self) -> dict[str, Any]:
        active = self.active.terms(pinned=self.pin.digest)
        terms = {name: value for name, value in active.items() if name not in _LEFT_OUT}
        terms.get("contextConstraints", {}).pop("expectedScopeDigest", None)
        documents = {name: value for name, value in active["policyDocuments"].items() if name not in _LEFT_OUT}
        for kind, name in _GATES.items():
            if (gate := self._gate(kind)) is not None:
                documents[name] = dict(gate)
        return {**terms, "policyDocuments": documents, "governanceProfile": self._profile()}

    def rows(self) -> dict[str, Any]:
        """The evidence by its kind, guardrail decisions apart."""
        found: dict[str, Any] = {
            "toolRequests": [],
            "toolResults": [],
            "toolUse": [],
            "toolRender": [],
            "reminderQueue": [
                {"queueId": name, "reducedDigest": digest([]), "policyDigest": self.active.digests["queue"]}
                for name in self.active.contents["queue"].get("requiredQueueIds") or ["promotion"]
            ],
            "stateViews": [self._view(name) for name in self._view_ids()],
            "trajectoryRefs": [f"trajectory://policy/{self.active.name}/{len(self.pin.history)}"],
        }
        point = self.active.contents["render"].get("injectionPoints", ["tool_response"])[0]
        for index, read in enumerate(self.reads):
            name, read_digest = f"p{index + 1}", digest(read.content)
            route = {"kind": "runtime_route", "ref": read.ref}
            found["toolRequests"].append({"toolCallId": name, "toolName": read.tool, "actionIndex": index})
            found["toolResults"].append(
                {"toolCallId": name, "status": "ok", "resultDigest": read_digest, "provenance": route}
            )
            found["toolUse"].append(
                {
                    "toolCallId": name,
                    "useDisposition": "consumed",
                    "resultDigest": read_digest,
                    "mutationInputRef": read.ref,
                }
            )
            found["toolRender"].append(
                {
                    "toolCallId": name,
                    "operatorPayloadDigest": read_digest,
                    "reminderRenderDigest": read_digest,
                    "injectionPoint": point,
                    "policyDigest": self.active.digests["render"],
                }
            )
        return found

    def intent(self) -> dict[str, Any]:
        instruction = {} if "instruction" in self.doubts else self.reports.instruction or {}
        intent = {
            "kind": "governance_policy",
            "action": ACTION,
            "inputRefs": [read.ref for read in self.reads],
            "capabilityClaims": instruction.get("capabilityClaims", []),
            "policyDigest": self.active.digests["mutation"],
            "automated": instruction.get("automated", False),
        }
        if instruction:
            intent["instructionRef"] = self.reports.instruction_ref
        return intent

    def _profile(self) -> dict[str, Any]:
        approval = None if "approval" in self.doubts else self.reports.approval_ref
        profile = self.active.governance_profile(self.pin.digest, self.active.highest_tier(), approval)
        if "evaluation" not in self.doubts:
            measured = self.reports.evaluation
            own = self.candidate.contents.get("eval-gate", {}).get("thresholds", {})
            profile["evalGate"] = {"passed": measured["passed"], "metrics": measured["metrics"], "thresholds": own}
            refs = ["datasetLineageRef", "graderConfigLineageRef", "metricThresholdsRef"]
            if "profileRef" in (self._gate("eval-gate") or {}):
                refs.append("profileRef")  # without a benchmark in the gate there is none to have missed
            profile["evalEvidence"] = {name: measured[name] for name in refs if name in measured}
        if "redTeam" not in self.doubts:
            attacked = self.reports.red_team
            profile["redTeamGate"] = {name: attacked[name] for name in attacked if name != "packageDigest"}
        if self.reports.instruction is not None and "selfEvolution" in self.reports.instruction:
            profile["selfEvolution"] = self.reports.instruction["selfEvolution"]
        return profile

    def _gate(self, kind: str) -> Mapping[str, Any] | None:
        """The gate in force; where the pinned package has none, that of the candidate."""
        return self.active.contents.get(kind) or self.candidate.contents.get(kind)

    def _pattern(self) -> str:
        allowed = self.active.contents["decomposition"]["allowedPatterns"]
        return next((pattern for pattern in ("single", "chain", "route") if pattern in allowed), "single")

    def _view_ids(self) -> list[str]:
        return self.active.contents["views"].get("requiredStateViewIds") or ["promotion"]

    def _view(self, name: str) -> dict[str, Any]:
        return {
            "viewId": name,
            "viewDigest": digest({"pinned": self.pin.digest, "candidate": self.candidate.digest}),
            "policyDigest": self.active.digests["views"],
            "sourceRefs": [read.ref for read in self.reads],
        }

    def decisions(self) -> list[dict[str, Any]]:
        """The checks that this module makes, at their stages."""
        triggered = {
            "pre_flight": self.candidate.digest == self.pin.digest,
            "input": bool(self.doubts),
            "output": not differences(self.active, self.candidate),
        }
        return [
            {
                "stage": stage,
                "guardrailId": f"policy.promotion.{stage}",
                "triggered": triggered[stage],
                "outcome": "block" if triggered[stage] else "pass",
                "sequence": sequence,
            }
            for sequence, stage in enumerate(STAGES)
        ]
