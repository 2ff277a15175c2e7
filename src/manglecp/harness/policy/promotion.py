"""The pin of the policy package in force, and its change: a promotion, which is a turn with a mutation.

A pin holds the documents of a package with all digests, and a hash-chained history; a reader recomputes all hashes.
* The rules of the *pinned* package apply to the promotion: its thresholds, required attacks, risk tiers and mutation
  policy. The thresholds of the candidate apply in addition.
* Reports, instruction and approval name the candidate by digest; instruction and approval are valid once. A report that
  does not apply (see :func:`inapplicable_reports`) is withheld from the checks, which then refuse the promotion.
* If the candidate defers or filters tools differently, the evaluation must compare accuracy and token counts.
* The turn has one call for each document that it reads. It depends neither on a clock nor on randomness, so its witness
  can be recomputed from the reports.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from manglecp.base.diagnostic import FileLocation
from manglecp.harness.canonical_v1 import canonical, digest_v1 as digest
from manglecp.harness.constraints import STAGES
from manglecp.harness.judgement import judge
from manglecp.harness.policy.kinds import KINDS
from manglecp.harness.policy.package import HarnessCall, PolicyPackage, package_of, pick, read_json
from manglecp.harness.policy.schemas import PolicyError, Problems, read_document
from manglecp.harness.states import MutationReady, TurnBlocked, WrongMutation, redeem, replay_turn

ACTION: Final = "policy.promote"
_GOVERNING_DOCUMENTS: Final = ("mutation", "eval-gate", "red-team")
"""The documents that govern a promotion."""
_PIN_KIND: Final = "manglecp.policy.pin.v1"


def candidate_ref(package: PolicyPackage) -> str:
    """Return the reference by which a mutation names the package to promote."""
    return f"policy-package://{package.digest}"


@dataclass(frozen=True, slots=True)
class ValueChange:
    """One changed value of a document; None stands for an absent value."""

    pointer: str
    before: Any
    after: Any


@dataclass(frozen=True, slots=True)
class DocumentDifference:
    """One changed document, or ``package`` for a changed name or version."""

    document: str
    before: str | None  # the digest of the document, or the ref of the package; None if the document is new
    after: str | None  # the digest of the document, or the ref of the package; None if the document was removed
    changes: tuple[ValueChange, ...]


def compare_packages(before: PolicyPackage, after: PolicyPackage) -> tuple[DocumentDifference, ...]:
    """Return all differences; empty if and only if the digests are equal."""
    differences = []
    if before.ref != after.ref:
        names = [pick(package.inventory, "name", "version") for package in (before, after)]
        differences.append(DocumentDifference("package", before.ref, after.ref, tuple(_find_changes("", *names))))
    for kind in sorted({*before.contents, *after.contents}):
        old, new = before.digests.get(kind), after.digests.get(kind)
        if old != new:
            changes = tuple(_find_changes("", before.contents.get(kind), after.contents.get(kind)))
            differences.append(DocumentDifference(kind, old, new, changes))
    return tuple(differences)


def _find_changes(pointer: str, before: Any, after: Any) -> Iterator[ValueChange]:
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for name in sorted({*before, *after}):
            yield from _find_changes(f"{pointer}/{name}", before.get(name), after.get(name))
    elif canonical(before) != canonical(after):  # compared as JSON, because in Python 1 == True
        yield ValueChange(pointer, before, after)


@dataclass(frozen=True, slots=True)
class Pin:
    """A pinned package. Created by :meth:`first` and :meth:`promoted`, or read by :func:`read_pin`."""

    package: PolicyPackage
    history: tuple[Mapping[str, Any], ...]

    def __post_init__(self) -> None:
        if self.history[-1]["packageDigest"] != self.package.digest:
            raise ValueError("the last row of the history of a pin must have the digest of its package")

    @staticmethod
    def first(package: PolicyPackage, *, at: str) -> Pin:
        """Return the first pin of a package. ``at`` is the time, RFC 3339."""
        return Pin(package, (_history_row(0, None, {"act": "pin", "at": at, **_identity(package)}),))

    @property
    def digest(self) -> str:
        return self.package.digest

    @property
    def head(self) -> str:
        """The hash of the last row of the history; a copy of it elsewhere reveals a rewritten history."""
        return str(self.history[-1]["rowHash"])

    def verify(self, package: PolicyPackage) -> tuple[DocumentDifference, ...]:
        """Return the differences from the pinned package."""
        return compare_packages(self.package, package)

    def promoted(self, package: PolicyPackage, ready: MutationReady, *, at: str) -> Pin:
        """Spend ``ready``, the right of a promotion turn under this pin, and return the pin of another package.

        Raises :class:`.WrongMutation` if the turn was made under another pin, or is for another package.
        """
        turn = msgspec.to_builtins(ready.judgement.turn.evidence)
        call_spec, mutation = turn["callSpec"], turn["mutation"]
        if call_spec["governancePolicyDigest"] != self.digest:
            raise WrongMutation("the promotion was made under another package than the one that is pinned")
        for kind in _GOVERNING_DOCUMENTS:
            if kind in self.package.digests and call_spec.get(KINDS[kind].digest_field) != self.package.digests[kind]:
                raise WrongMutation(f"the promotion was made under another {kind} document than the pinned one")
        if candidate_ref(package) not in mutation["inputRefs"]:
            raise WrongMutation(f"the promotion is for another package than {package.ref} {package.digest}")
        judgement = redeem(ready, "governance_policy", ACTION)
        row = {
            "act": "promote",
            "at": at,
            **_identity(package),
            "instructionRef": mutation["instructionRef"],
            "inputRefs": sorted(mutation["inputRefs"]),
            "joinWitnessRef": judgement.witness_id,
        }
        return Pin(package, (*self.history, _history_row(len(self.history), self.head, row)))

    def as_json(self) -> dict[str, Any]:
        """Return the JSON that :func:`read_pin` reads."""
        contents, digests = self.package.contents, self.package.digests
        documents = {kind: {"digest": digests[kind], "content": contents[kind]} for kind in digests}
        history = [dict(row) for row in self.history]
        return {"pinKind": _PIN_KIND, **_identity(self.package), "documents": documents, "history": history}


def _identity(package: PolicyPackage) -> dict[str, str]:
    return {"name": package.name, "version": package.version, "packageDigest": package.digest}


def _history_row(number: int, previous_hash: str | None, members: Mapping[str, Any]) -> dict[str, Any]:
    row = {"number": number, "previousHash": previous_hash, **members}
    return {**row, "rowHash": digest(row)}


def read_pin(data: bytes, file: str = "pin") -> Pin:
    """Return the pin of a JSON file; ``file`` is its name in messages. Raises :class:`.PolicyError`."""
    problems = Problems()
    place = FileLocation(file)
    decoded = read_json(data, place, problems)
    problems.raise_if_any()
    pin = read_document("pin", decoded, place, problems)
    problems.raise_if_any()
    if not pin["history"]:
        problems.add(place / "history", "the history is empty")
        problems.raise_if_any()
    package = _read_pinned_package(pin, place, problems)
    # The hash covers the row as it was written, before it was normalised.
    for index, (row, written_row) in enumerate(zip(pin["history"], decoded["history"], strict=True)):
        previous_hash = pin["history"][index - 1]["rowHash"] if index else None
        hashed_members = {name: value for name, value in written_row.items() if name != "rowHash"}
        if (row["number"], row["previousHash"]) != (index, previous_hash):
            problems.add(place / "history" / index, "number or previousHash does not follow the row before it")
        if row["rowHash"] != digest(hashed_members):
            problems.add(place / "history" / index / "rowHash", "the row was changed after it was written")
        if (row["act"] == "promote") != bool(index):
            problems.add(place / "history" / index / "act", "the first act must be pin, the others promote")
        elif index and not row.keys() >= {"instructionRef", "inputRefs", "joinWitnessRef"}:
            problems.add(place / "history" / index, "instructionRef, inputRefs or joinWitnessRef is missing")
    if pin["history"][-1]["packageDigest"] != pin["packageDigest"]:
        problems.add(place / "packageDigest", "the last row of the history is about another package")
    problems.raise_if_any()
    return Pin(package, tuple(pin["history"]))


def _read_pinned_package(pin: Mapping[str, Any], place: FileLocation, problems: Problems) -> PolicyPackage:
    contents = {kind: entry["content"] for kind, entry in pin["documents"].items()}
    try:
        package = package_of({"name": pin["name"], "version": pin["version"]}, contents)
    except PolicyError as error:
        for problem in error.diagnostics:
            pointer = f"/documents/{problem.file}{problem.pointer}"
            problems.add(FileLocation(place.file, pointer=pointer), problem.message)
        problems.raise_if_any()
        raise  # never reached: a PolicyError has a diagnostic
    for kind, entry in pin["documents"].items():
        if entry["digest"] != package.digests[kind]:
            problems.add(place / "documents" / kind / "digest", f"the digest of the content is {package.digests[kind]}")
    if pin["packageDigest"] != package.digest:
        problems.add(place / "packageDigest", f"the digest of the documents is {package.digest}")
    return package


@dataclass(frozen=True, slots=True)
class Reports:
    """Validated documents for a promotion. :func:`promote` judges their content."""

    evaluation: Mapping[str, Any]
    red_team: Mapping[str, Any]
    instruction: Mapping[str, Any] | None = None
    approval: Mapping[str, Any] | None = None

    @property
    def instruction_ref(self) -> str | None:
        """The reference to the instruction in the evidence: its hash."""
        if self.instruction is None:
            return None
        return "instr1_" + hashlib.sha256(canonical(self.instruction)).hexdigest()

    @property
    def approval_ref(self) -> str | None:
        """The reference to the approval in the evidence: its digest."""
        return None if self.approval is None else f"approval://{digest(self.approval)}"


def read_reports(
    evaluation: tuple[str, bytes], red_team: tuple[str, bytes], evidence: Sequence[tuple[str, bytes]] = ()
) -> Reports:
    """Return the reports from files, each given as name and content; ``evidence`` are instruction and approval.

    Raises :class:`.PolicyError`.
    """
    problems = Problems()
    documents: dict[str, Any] = {}
    # An evidence file names its kind itself.
    files = [("evaluation", evaluation), ("redTeam", red_team), *((None, file) for file in evidence)]
    for report_kind, (name, data) in files:
        place = FileLocation(name)
        document = read_json(data, place, problems)
        if document is None:
            continue
        kind = report_kind or str(document.get("evidenceKind") if isinstance(document, dict) else None)
        if kind not in (report_kind, "instruction", "approval"):
            problems.add_unknown(place / "evidenceKind", "the kind of evidence", kind, ("instruction", "approval"))
        elif kind in documents:
            problems.add(place, f"a second {kind}")
        else:
            documents[kind] = read_document(f"{kind}-report", document, place, problems)
    problems.raise_if_any()
    instruction, approval = documents.get("instruction"), documents.get("approval")
    return Reports(documents["evaluation"], documents["redTeam"], instruction, approval)


_LOADING_DOCUMENTS: Final = ("deferral", "filter")  # documents that control which tools and results the model sees


def inapplicable_reports(pin: Pin, candidate: PolicyPackage, reports: Reports) -> dict[str, str]:
    """Return the reports that do not apply to this promotion, each with the reason."""
    pinned_package, reasons = pin.package, dict[str, str]()
    evaluation, instruction, approval = reports.evaluation, reports.instruction, reports.approval
    another_package = f"another package than {candidate.ref} {candidate.digest}"
    gate = pinned_package.contents.get("eval-gate") or candidate.contents.get("eval-gate")
    changed_documents = {difference.document for difference in compare_packages(pinned_package, candidate)}
    if gate is None:
        reasons["evaluation"] = "neither package has an eval gate, so the evaluation has no criterion"
    elif evaluation["packageDigest"] != candidate.digest:
        reasons["evaluation"] = f"the evaluation is about {another_package}"
    elif evaluation["dataset"] != gate["dataset"]:
        reasons["evaluation"] = f"the evaluation was made on {evaluation['dataset']}, not on {gate['dataset']}"
    elif "profileRef" in gate and "profileRef" not in evaluation:
        reasons["evaluation"] = f"the evaluation has no profileRef; the gate requires {gate['profileRef']}"
    elif changed_documents.intersection(_LOADING_DOCUMENTS) and "loading" not in evaluation:
        reasons["evaluation"] = "the loading or filtering of tools changes, and the evaluation has no member loading"
    if "red-team" not in pinned_package.contents and "red-team" not in candidate.contents:
        reasons["redTeam"] = "neither package has a red-team policy, so the report has no criterion"
    elif reports.red_team["packageDigest"] != candidate.digest:
        reasons["redTeam"] = f"the red-team report is about {another_package}"
    if instruction is not None:
        if (instruction["pinnedDigest"], instruction["packageDigest"]) != (pin.digest, candidate.digest):
            reasons["instruction"] = f"the instruction is for another promotion than {pin.digest} to {candidate.digest}"
        elif any(row.get("instructionRef") == reports.instruction_ref for row in pin.history):
            reasons["instruction"] = "the instruction was used before; a repeated promotion needs a new instruction"
    tier = pinned_package.highest_tier()
    if approval is not None and tier is not None and pinned_package.needs_approval(tier):
        if approval["packageDigest"] != candidate.digest:
            reasons["approval"] = f"the approval is about {another_package}"
        elif approval["tier"] != tier:
            reasons["approval"] = f"the approval is for tier {approval['tier']}, not {tier}"
        elif any(reports.approval_ref in row.get("inputRefs", ()) for row in pin.history):
            reasons["approval"] = "the approval was used before; a repeated promotion needs a new approval"
    return reasons


MODEL_REF: Final = "manglecp:policy-promotion@1"
"""The ``modelRef`` of a promotion turn: this module makes its calls, not a model."""

_AGENT_DOCUMENTS: Final = (
    *("tools", "callers", "examples", "deferral", "filter", "parallel", "transport", "truncation", "boundary"),
    *("sandbox", "compaction", "scope", "handoff", "stop", "protocol"),
)
"""Documents about the tools, context and handoffs of agents, which do not apply to a promotion turn."""
_OMITTED_MEMBERS: Final = {  # members of the call spec and the constraints that come from these documents
    *(
        name
        for kind in _AGENT_DOCUMENTS
        for name in (KINDS[kind].inline_field, KINDS[kind].digest_field, KINDS[kind].document_name)
        if name
    ),
    *("toolConstraints", "toolCatalog", "toolCatalogDigest", "runtimeSandboxRef"),
}
_GATE_DOCUMENTS: Final = {"eval-gate": "evalGatePolicy", "red-team": "redTeamPolicy"}
"""The documents that judge the reports, and their names in ``policyDocuments``."""


class PackageUnchanged(ValueError):
    """The package is already pinned."""


def promote(pin: Pin, candidate: PolicyPackage, reports: Reports, *, at: str) -> Pin:
    """Return the pin of the candidate. Raises :class:`.TurnBlocked` if the reports do not suffice."""
    return pin.promoted(candidate, ready_to_promote(pin, candidate, reports), at=at)


def ready_to_promote(pin: Pin, candidate: PolicyPackage, reports: Reports) -> MutationReady:
    """Return the authorisation to promote the candidate. Raises :class:`.TurnBlocked` with all findings."""
    if candidate.digest == pin.digest:
        raise PackageUnchanged(f"{candidate.ref} is pinned already")
    document = _PromotionTurn(pin, candidate, reports).document()
    try:
        return replay_turn(document)
    except TurnBlocked as blocked:  # has the findings of the first blocked state only
        raise TurnBlocked(blocked.state, judge(document).findings) from None


class _PromotionTurn:
    """Builds the document of a turn that reads the candidate and the reports, and intends the promotion."""

    def __init__(self, pin: Pin, candidate: PolicyPackage, reports: Reports) -> None:
        self.pin = pin
        self.pinned_package = pin.package
        self.candidate = candidate
        self.reports = reports
        self.withheld_reports = inapplicable_reports(pin, candidate, reports)
        self.read_calls = [
            HarnessCall("policy.read_package", candidate.inventory, candidate_ref(candidate)),
            HarnessCall("policy.read_evaluation", reports.evaluation, f"evaluation://{digest(reports.evaluation)}"),
            HarnessCall("policy.read_red_team", reports.red_team, f"red-team://{digest(reports.red_team)}"),
        ]
        if reports.approval_ref is not None and reports.approval is not None:
            self.read_calls.append(HarnessCall("policy.read_approval", reports.approval, reports.approval_ref))

    def document(self) -> dict[str, Any]:
        view = {"pinned": self.pin.digest, "candidate": self.candidate.digest}
        evidence = {
            "callSpec": self.call_spec(),
            **self.pinned_package.rows_of_calls(self.read_calls, "promotion", view),
            "trajectoryRefs": [f"trajectory://policy/{self.pinned_package.name}/{len(self.pin.history)}"],
            "guardrailDecisions": self.decisions(),
            "protocolState": {"stopReason": "end_turn", "continuationAllowed": False},
            "mutation": self.mutation(),
        }
        return {**self.terms(), "evidence": evidence}  # an input of judge()

    def call_spec(self) -> dict[str, Any]:
        allowed = self.pinned_package.contents["decomposition"]["allowedPatterns"]
        fields = self.pinned_package.call_spec(
            session_id=f"policy://{self.pinned_package.name}",
            turn_index=len(self.pin.history),
            model_ref=MODEL_REF,
            prompt_digest=digest([call.ref for call in self.read_calls]),
            execution_pattern=next((name for name in ("single", "chain", "route") if name in allowed), "single"),
            risk_tier=self.pinned_package.highest_tier(),
        )
        fields = {name: value for name, value in fields.items() if name not in _OMITTED_MEMBERS}
        fields["toolPolicy"] = {"allowedTools": [{"toolName": call.tool} for call in self.read_calls]}
        for kind, name in _GATE_DOCUMENTS.items():
            if (gate := self._gate(kind)) is not None:
                fields[f"{name}Digest"] = digest(gate)
                if "profileRef" in gate:
                    fields["evalProfileRef"] = gate["profileRef"]
        return fields

    def terms(self) -> dict[str, Any]:
        """Return the constraints and policy documents of the turn."""
        pinned_terms = self.pinned_package.terms(pinned=self.pin.digest)
        terms = {name: value for name, value in pinned_terms.items() if name not in _OMITTED_MEMBERS}
        terms.get("contextConstraints", {}).pop("expectedScopeDigest", None)
        documents = {
            name: value for name, value in pinned_terms["policyDocuments"].items() if name not in _OMITTED_MEMBERS
        }
        for kind, name in _GATE_DOCUMENTS.items():
            if (gate := self._gate(kind)) is not None:
                documents[name] = dict(gate)
        return {**terms, "policyDocuments": documents, "governanceProfile": self._profile()}

    def mutation(self) -> dict[str, Any]:
        instruction = {} if "instruction" in self.withheld_reports else self.reports.instruction or {}
        mutation = {
            "kind": "governance_policy",
            "action": ACTION,
            "inputRefs": [call.ref for call in self.read_calls],
            "capabilityClaims": instruction.get("capabilityClaims", []),
            "policyDigest": self.pinned_package.digests["mutation"],
            "automated": instruction.get("automated", False),
        }
        if instruction:
            mutation["instructionRef"] = self.reports.instruction_ref
        return mutation

    def _profile(self) -> dict[str, Any]:
        approval = None if "approval" in self.withheld_reports else self.reports.approval_ref
        profile = self.pinned_package.governance_profile(self.pin.digest, self.pinned_package.highest_tier(), approval)
        if "evaluation" not in self.withheld_reports:
            evaluation = self.reports.evaluation
            thresholds = self.candidate.contents.get("eval-gate", {}).get("thresholds", {})
            profile["evalGate"] = {**pick(evaluation, "passed", "metrics"), "thresholds": thresholds}
            refs = ["datasetLineageRef", "graderConfigLineageRef", "metricThresholdsRef"]
            if "profileRef" in (self._gate("eval-gate") or {}):
                refs.append("profileRef")  # without a profileRef of the gate, no benchmark is required
            profile["evalEvidence"] = pick(evaluation, *refs)
        if "redTeam" not in self.withheld_reports:
            red_team = self.reports.red_team
            profile["redTeamGate"] = {name: red_team[name] for name in red_team if name != "packageDigest"}
        if self.reports.instruction is not None and "selfEvolution" in self.reports.instruction:
            profile["selfEvolution"] = self.reports.instruction["selfEvolution"]
        return profile

    def _gate(self, kind: str) -> Mapping[str, Any] | None:
        """Return the document of the pinned package, or, if it has none, the document of the candidate."""
        return self.pinned_package.contents.get(kind) or self.candidate.contents.get(kind)

    def decisions(self) -> list[dict[str, Any]]:
        """Return the guardrail decisions, in the order of their stages."""
        triggers = {
            "pre_flight": self.candidate.digest == self.pin.digest,
            "input": bool(self.withheld_reports),
            "output": not compare_packages(self.pinned_package, self.candidate),
        }
        return [
            {
                "stage": stage,
                "guardrailId": f"policy.promotion.{stage}",
                "triggered": triggers[stage],
                "outcome": "block" if triggers[stage] else "pass",
                "sequence": sequence,
            }
            for sequence, stage in enumerate(STAGES)
        ]
