"""The kinds of documents in a policy package, and the consistency rules between them.

A document is passed to a turn in one of three ways: *inline* (a field of the call spec holds it), *digested* (the field
holds its digest, and ``policyDocuments`` the document, which is hashed again when the turn is judged) or *derived*
(:mod:`.package` computes fields or constraints from it).

An inconsistent package is rejected when it is read, because it would block every turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from manglecp.base.diagnostic import FileLocation
from manglecp.harness.canonical_v1 import digest_v1 as digest
from manglecp.harness.classes import RETRY_KINDS, RetryKind
from manglecp.harness.policy.schemas import Complete, Problems

Document: TypeAlias = Mapping[str, Any]
Documents: TypeAlias = Mapping[str, Document]  # the documents, by kind
Contradictions: TypeAlias = Iterator[tuple[str, str]]  # (JSON pointer into the document, message)


@dataclass(frozen=True, slots=True)
class DocumentKind:
    name: str  # the name of the file, without its extension
    decides: str  # what the document determines, for the reference page
    inline_field: str | None = None  # the field of the call spec that holds the document
    digest_field: str | None = None  # the field of the call spec that holds the digest of the document
    document_name: str | None = None  # the name of the document in ``policyDocuments``
    required: bool = False
    check: Callable[[Document, Documents], Contradictions] = lambda _document, _documents: iter(())
    """Yields the contradictions within the document, and those with other documents of the package."""
    complete: Complete = lambda *_: None


def _digest_schemas(document: dict[str, Any], place: FileLocation, problems: Problems) -> None:
    """Compute or verify the schema digest of each tool that has a schema."""
    for index, tool in enumerate(document["tools"]):
        if "inputSchema" in tool:
            schema_digest = digest(tool["inputSchema"])
            if tool.setdefault("schemaDigest", schema_digest) != schema_digest:
                where = place / "tools" / index / "schemaDigest"
                problems.add(where, f"the digest of inputSchema is {schema_digest}")
        elif "schemaDigest" not in tool:
            problems.add(place / "tools" / index, "schemaDigest or inputSchema is missing")


def _find_unknown_tools(names: Iterable[str], pointer: str, documents: Documents) -> Contradictions:
    if "tools" in documents:
        catalogue = {tool["toolName"] for tool in documents["tools"]["tools"]}
        for name in sorted(set(names) - catalogue):
            yield pointer, f"the tool {name!r} is not in the catalogue"


def _check_tools(policy: Document, documents: Documents) -> Contradictions:
    yield from _find_unknown_tools(policy.get("tools", ()), "/tools", documents)


def _check_deferral(policy: Document, documents: Documents) -> Contradictions:
    if conflicting_tools := set(policy["eager"]) & set(policy["deferred"]):
        yield "/deferred", f"{', '.join(sorted(conflicting_tools))} cannot be both eager and deferred"
    for member in ("eager", "deferred"):
        yield from _find_unknown_tools(policy[member], f"/{member}", documents)


def _check_observability(policy: Document, _: Documents) -> Contradictions:
    if policy["mode"] not in policy.get("allowedModes", [policy["mode"]]):
        yield "/mode", f"{policy['mode']} is not one of allowedModes"
    if policy.get("zeroDataRetention") and policy["mode"] == "dashboard":
        yield "/mode", "a dashboard retains data, and zeroDataRetention forbids that"
    if policy.get("requireProcessorRef") and "processorRef" not in policy:
        yield "", "processorRef is required and missing"


def _check_eval_gate(policy: Document, _: Documents) -> Contradictions:
    if not policy["thresholds"]:
        yield "/thresholds", "a gate needs at least one threshold"


def _check_risk(policy: Document, _: Documents) -> Contradictions:
    if policy["defaultTier"] not in policy["tiers"]:
        yield "/defaultTier", f"the tier {policy['defaultTier']} is not defined"


def _check_stop(policy: Document, _: Documents) -> Contradictions:
    if "checkpointEveryTurns" in policy and not policy.get("requireCheckpoint"):
        yield "/checkpointEveryTurns", "without requireCheckpoint no checkpoint is ever due"


def _check_protocol(policy: Document, _: Documents) -> Contradictions:
    for reason in sorted(set(policy.get("continuation", ())) - set(policy["handledStopReasons"])):
        yield "/continuation", f"{reason!r} is not one of handledStopReasons"


def _check_parallel(policy: Document, _: Documents) -> Contradictions:
    limit, expected = policy.get("maxBranches"), policy.get("expectedBranches")
    if not policy["allowed"] and (limit is not None or expected is not None):
        yield "/allowed", "branches are counted although none are allowed"
    if limit is not None and expected is not None and expected > limit:
        yield "/expectedBranches", f"{expected} branches are more than maxBranches"


def _check_handoff(policy: Document, _: Documents) -> Contradictions:
    targets = {name for names in policy.get("allowedTargetsByRole", {}).values() for name in names}
    for name in sorted(targets - set(policy["allowedTargets"])):
        yield "/allowedTargetsByRole", f"{name!r} is not one of allowedTargets"


def _check_views(policy: Document, _: Documents) -> Contradictions:
    if "views" in policy:
        for name in sorted(set(policy.get("requiredStateViewIds", ())) - set(policy["views"])):
            yield "/requiredStateViewIds", f"the view {name!r} is not defined"


_CONTROL_DOCUMENTS: Final = {
    "guardrailStages": "guardrail-stages",
    "evalGate": "eval-gate",
    "redTeamGate": "red-team",
    "observabilityMode": "observability",
    "riskTier": "risk-tiers",
}
"""The documents that required controls need, by control."""


def _check_governance(policy: Document, documents: Documents) -> Contradictions:
    for control in policy.get("requiredControls", ()):
        if control in _CONTROL_DOCUMENTS and _CONTROL_DOCUMENTS[control] not in documents:
            yield "/requiredControls", f"{control} needs the document {_CONTROL_DOCUMENTS[control]}"


def _check_retry(policy: Document, _: Documents) -> Contradictions:
    rule_ids: dict[str, str] = {}  # the ids of rules, by failure class
    for rule in policy["rules"]:
        for name in rule["classes"]:
            if name in rule_ids:
                yield "/rules", f"{name} has two rules, {rule_ids[name]} and {rule['ruleId']}"
            rule_ids[name] = rule["ruleId"]
            if RETRY_KINDS[name] is RetryKind.NEVER and rule["maxAttempts"] > 1:
                yield "/rules", f"{rule['ruleId']}: {name} is never retried"


_TABLE: Final = (
    DocumentKind("tools", "the tools, which of them may be called, and the schema of each", complete=_digest_schemas),
    DocumentKind("callers", "the allowed callers of each tool: the model directly, or a program",
        digest_field="allowedCallersDigest", document_name="allowedCallers", check=_check_tools),
    DocumentKind("examples", "the example inputs that are shown with each tool",
        digest_field="toolExampleDigest", document_name="toolExamples", check=_check_tools),
    DocumentKind("deferral", "which tools are loaded at once and which have to be searched for",
        digest_field="deferPolicyDigest", document_name="deferPolicy", check=_check_deferral),
    DocumentKind("filter", "whether results may be filtered before the model sees them",
        inline_field="preContextFilterPolicy", check=_check_tools),
    DocumentKind("parallel", "whether calls may fan out, and how wide",
        inline_field="parallelPolicy", check=_check_parallel),
    DocumentKind("transport", "how calls and outputs travel", inline_field="toolTransportPolicy"),
    DocumentKind("truncation", "how much of a result is kept, and what shows the cut",
        inline_field="toolResponseTruncationPolicy"),
    DocumentKind("render", "the view of a result for the operator and for the model, and where it is injected",
        digest_field="toolRenderProtocolDigest", document_name="toolRenderProtocol", required=True),
    DocumentKind("boundary", "where a shell may work, and how files may be edited",
        inline_field="executionBoundaryPolicy"),
    DocumentKind("sandbox", "the profile that a shell runs in"),
    DocumentKind("compaction", "whether a context may be compacted, and the references that must be carried forward",
        digest_field="compactionPolicyDigest", document_name="compactionPolicy"),
    DocumentKind("queue", "how reminders are queued, batched and de-duplicated",
        digest_field="reminderQueuePolicyDigest", document_name="reminderQueuePolicy", required=True),
    DocumentKind("views", "the views of the state that decisions rest on",
        digest_field="stateViewPolicyDigest", document_name="stateViewPolicy", required=True, check=_check_views),
    DocumentKind("decomposition", "how work may be split, looped and fanned out",
        digest_field="decompositionPolicyDigest", document_name="decompositionPolicy", required=True),
    DocumentKind("governance", "which controls a turn has to show, and whether it claims to be governed",
        required=True, check=_check_governance),
    DocumentKind("guardrail-stages", "the stages that have to be decided in every turn",
        digest_field="guardrailStagePolicyDigest", document_name="guardrailStagePolicy"),
    DocumentKind("eval-gate", "the measurements, and their data set, before a policy changes",
        digest_field="evalGatePolicyDigest", document_name="evalGatePolicy", check=_check_eval_gate),
    DocumentKind("red-team", "how a policy has to be attacked before it changes",
        digest_field="redTeamPolicyDigest", document_name="redTeamPolicy"),
    DocumentKind("observability", "where traces may go", check=_check_observability),
    DocumentKind("risk-tiers", "the control profile of each risk tier, and where a human has to approve",
        check=_check_risk),
    DocumentKind("scope", "what each role may read and write",
        digest_field="contextScopeDigest", document_name="contextScope"),
    DocumentKind("handoff", "the allowed targets of a handoff, and the artifacts that it carries",
        digest_field="handoffContractDigest", document_name="handoffContract", check=_check_handoff),
    DocumentKind("mutation", "whether a turn may mutate, and with which claims",
        digest_field="mutationPolicyDigest", document_name="mutationPolicy", required=True),
    DocumentKind("stop", "the number of turns and iterations, and when a checkpoint is due",
        inline_field="stopPolicy", check=_check_stop),
    DocumentKind("protocol", "which stop reasons are handled, and what each one permits",
        inline_field="protocolStatePolicy", check=_check_protocol),
    DocumentKind("retry", "how often each failure class may be tried again, and what follows", check=_check_retry),
)  # fmt: skip

KINDS: Final = {kind.name: kind for kind in _TABLE}


def check_consistency(documents: Documents, places: Mapping[str, FileLocation], problems: Problems) -> None:
    """Add every contradiction within or between validated documents to ``problems``."""
    for kind, document in documents.items():
        for pointer, message in KINDS[kind].check(document, documents):
            problems.add(FileLocation(places[kind].file, pointer=pointer), message)
