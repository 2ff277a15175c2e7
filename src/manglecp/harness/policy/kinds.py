"""The documents of a package: one table, one row for each kind.

A document reaches a turn in one of three ways. It is *inline*: the CallSpec field holds it. It is *digested*: the field
holds its digest, and the document itself comes along under ``policyDocuments``, where whoever judges the turn hashes it
again. Or it is *read*: something that it says becomes a field or a constraint (:mod:`.package` says what).

Names of members are those of the specification.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from manglecp.base.diagnostic import FileLocation
from manglecp.base.json import Uncanonical
from manglecp.base.text import normalize_word
from manglecp.harness.canonical_v1 import digest_v1 as digest
from manglecp.harness.classes import CLASSES
from manglecp.harness.descent import PATTERNS
from manglecp.harness.policy.problems import Problems
from manglecp.harness.policy.shapes import (
    Shape,
    anything,
    flag,
    integer,
    items,
    number,
    one_of,
    records,
    sequence,
    table,
    table_of,
    text,
    words,
)
from manglecp.harness.retry import ACTIONS, BACKOFFS
from manglecp.harness.terms import STAGES

__all__ = ["KINDS", "MANIFEST", "METRICS", "TIERS", "Kind"]

ROLES: Final = ("orchestrator", "specialist")
MODES: Final = ("dashboard", "internal_processor", "disabled")
TIERS: Final = ("low", "moderate", "high")
METRICS: Final = ("precision", "recall", "f1")
CONTROLS: Final = (
    "policyProvenance",
    "guardrailStages",
    "evalGate",
    "evalEvidence",
    "redTeamGate",
    "observabilityMode",
    "riskTier",
    "selfEvolution",
)


@dataclass(frozen=True, slots=True)
class Kind:
    """One row of the table."""

    name: str
    """What the file is called, without its ending."""
    decides: str
    shape: Shape
    inline: str | None = None
    """The CallSpec field that holds the document."""
    digested: str | None = None
    """The CallSpec field that holds its digest."""
    document: str | None = None
    """Its name under ``policyDocuments``."""
    required: bool = False


def _tool(value: Any, place: FileLocation, problems: Problems) -> Any:
    """A tool of the catalogue; its schema digest is that of its schema, where the schema is there."""
    found = _TOOL(value, place, problems)
    if not isinstance(found, dict):
        return found
    if "inputSchema" not in found:
        if "schemaDigest" not in found:
            problems.add(place, "schemaDigest or inputSchema is missing")
        return found
    try:
        computed = digest(found["inputSchema"])
    except Uncanonical as error:
        problems.add(FileLocation(place.file, pointer=f"{place.pointer}/inputSchema{error.path}"), error.reason)
    else:
        if found.setdefault("schemaDigest", computed) != computed:
            problems.add(place / "schemaDigest", f"the digest of inputSchema is {computed}")
    return found


def _stages(value: Any, place: FileLocation, problems: Problems) -> Any:
    """Stages have an order of their own, so the list is one that follows it."""
    found = words(STAGES, least=1)(value, place, problems)
    return [stage for stage in STAGES if stage in found]


def _reason(value: Any, place: FileLocation, problems: Problems) -> Any:
    """A stop reason: any word, since providers invent new ones."""
    found = text(value, place, problems)
    return normalize_word(found) if isinstance(found, str) else found


_PACKET_FIELDS: Final = ("target", "requiredArtifactRefs", "returnPathRef", "intent", "constraints", "packetDigest")

_TOOL: Final = table(
    {
        "toolName": text,
        "schemaDigest": text,
        "inputSchema": lambda value, _place, _problems: value,
        "allowed": flag,
        "description": text,
    },
    required=("toolName",),
)

MANIFEST: Final = table(
    {"name": text, "version": text, "description": text},
    required=("name", "version"),
)
"""The file ``package``: what the package is called."""

_TABLE: Final = (
    Kind(
        "tools", "which tools there are, which may be called, and the schema of each",
        table(
            {
                "catalogId": text,
                "tools": records(_tool, "toolName"),
                "parserProfileId": text,
                "parserProfiles": items(),
                "requireResultProvenance": flag,
            },
            required=("catalogId", "tools"),
        ),
    ),
    Kind(
        "callers", "who may call each tool: the model directly, or a program",
        table({"tools": table_of(items(least=1))}, required=("tools",)),
        digested="allowedCallersDigest", document="allowedCallers",
    ),
    Kind(
        "examples", "the example inputs that are shown with each tool",
        table({"tools": table_of(sequence(anything))}, required=("tools",)),
        digested="toolExampleDigest", document="toolExamples",
    ),
    Kind(
        "deferral", "which tools are loaded at once and which have to be searched for",
        table({"eager": items(), "deferred": items()}, required=("eager", "deferred")),
        digested="deferPolicyDigest", document="deferPolicy",
    ),
    Kind(
        "filter", "whether results may be filtered before the model sees them",
        table({"mode": one_of(("allowed", "required", "forbidden")), "tools": items()}, required=("mode",)),
        inline="preContextFilterPolicy",
    ),
    Kind(
        "parallel", "whether calls may fan out, and how wide",
        table(
            {"allowed": flag, "maxBranches": integer(1), "expectedBranches": integer(1)},
            required=("allowed",),
        ),
        inline="parallelPolicy",
    ),
    Kind(
        "transport", "how calls and outputs travel",
        table({"parallelToolCalls": flag, "ordering": one_of(("strict", "any"))}),
        inline="toolTransportPolicy",
    ),
    Kind(
        "truncation", "how much of a result is kept, and what shows the cut",
        table(
            {"maxBytes": integer(1), "marker": text, "strategy": one_of(("middle", "head", "tail"))},
            required=("strategy",),
        ),
        inline="toolResponseTruncationPolicy",
    ),
    Kind(
        "render", "what the operator and the model are shown of a result, and where it is put",
        table(
            {"operatorView": text, "reminderView": text, "injectionPoints": items(_reason, least=1)},
            required=("operatorView", "reminderView"),
        ),
        digested="toolRenderProtocolDigest", document="toolRenderProtocol", required=True,
    ),
    Kind(
        "boundary", "where a shell may work, and how files may be edited",
        table({"allowedEditSurfaces": items(), "shellEditsForbidden": flag, "workdirRoots": items()}),
        inline="executionBoundaryPolicy",
    ),
    Kind(
        "sandbox", "the profile that a shell runs in",
        table(
            {"profile": text, "network": one_of(("none", "restricted", "open")), "writableRoots": items()},
            required=("profile",),
        ),
    ),
    Kind(
        "compaction", "whether a context may be compacted, and what has to survive it",
        table({"enabled": flag, "requiredCarryForwardRefs": items()}, required=("enabled",)),
        digested="compactionPolicyDigest", document="compactionPolicy",
    ),
    Kind(
        "queue", "how reminders are queued, batched and de-duplicated",
        table({"requiredQueueIds": items(), "dedup": flag, "maxBatchSize": integer(1)}),
        digested="reminderQueuePolicyDigest", document="reminderQueuePolicy", required=True,
    ),
    Kind(
        "views", "the views of the state that decisions rest on",
        table(
            {
                "views": table_of(table({"sourceRefs": items(least=1), "description": text}, required=("sourceRefs",))),
                "requiredStateViewIds": items(),
            }
        ),
        digested="stateViewPolicyDigest", document="stateViewPolicy", required=True,
    ),
    Kind(
        "decomposition", "how work may be split, looped and fanned out",
        table(
            {"allowedPatterns": words(PATTERNS, least=1), "maxFanOut": integer(1), "requireEscalationTrigger": flag},
            required=("allowedPatterns",),
        ),
        digested="decompositionPolicyDigest", document="decompositionPolicy", required=True,
    ),
    Kind(
        "governance", "which controls a turn has to show, and whether it claims to be governed",
        table({"claimed": flag, "requiredControls": words(CONTROLS)}, required=("claimed",)),
        required=True,
    ),
    Kind(
        "guardrail-stages", "the stages that have to be decided in every turn",
        table({"requiredStages": _stages}, required=("requiredStages",)),
        digested="guardrailStagePolicyDigest", document="guardrailStagePolicy",
    ),
    Kind(
        "eval-gate", "what has to be measured, on what, before a policy changes",
        table(
            {"dataset": text, "thresholds": table_of(number(0, 1), names=METRICS), "profileRef": text},
            required=("dataset", "thresholds"),
        ),
        digested="evalGatePolicyDigest", document="evalGatePolicy",
    ),
    Kind(
        "red-team", "how a policy has to be attacked before it changes",
        table(
            {
                "requiredPlugins": items(),
                "requiredStrategies": items(),
                "minProbes": integer(1),
                "maxFailures": integer(0),
            },
            required=("requiredPlugins", "requiredStrategies", "minProbes", "maxFailures"),
        ),
        digested="redTeamPolicyDigest", document="redTeamPolicy",
    ),
    Kind(
        "observability", "where traces may go",
        table(
            {
                "mode": one_of(MODES),
                "allowedModes": words(MODES, least=1),
                "zeroDataRetention": flag,
                "processorRef": text,
                "requireProcessorRef": flag,
            },
            required=("mode",),
        ),
    ),
    Kind(
        "risk-tiers", "the control profile of each risk tier, and where a human has to approve",
        table(
            {
                "defaultTier": one_of(TIERS),
                "tiers": table_of(
                    table({"controlProfileRef": text, "humanCheckpoint": flag}, required=("controlProfileRef",)),
                    names=TIERS,
                ),
            },
            required=("defaultTier", "tiers"),
        ),
    ),
    Kind(
        "scope", "what each role may read and write",
        table(
            {"roles": table_of(table({"read": items(), "write": items()}), names=ROLES)},
            required=("roles",),
        ),
        digested="contextScopeDigest", document="contextScope",
    ),
    Kind(
        "handoff", "to whom work may be handed, and what has to come with it",
        table(
            {
                "allowedTargets": items(),
                "allowedTargetsByRole": table_of(items(), names=ROLES),
                "requiredArtifactRefs": items(),
                "requireArtifactExistence": flag,
                "requiredPacketFields": words(_PACKET_FIELDS),
                "requireReturnPath": flag,
            },
            required=("allowedTargets", "requiredArtifactRefs", "requireReturnPath"),
        ),
        digested="handoffContractDigest", document="handoffContract",
    ),
    Kind(
        "mutation", "whether a turn may mutate, and with which claims",
        table(
            {
                "mode": one_of(("instruction_linked", "observe_only")),
                "requiredCapabilityClaims": items(least=1),
            },
            required=("mode",),
        ),
        digested="mutationPolicyDigest", document="mutationPolicy", required=True,
    ),
    Kind(
        "stop", "how many turns and iterations there are, and when a checkpoint is due",
        table(
            {
                "maxTurns": integer(0),
                "maxIterations": integer(0),
                "requireCheckpoint": flag,
                "checkpointEveryTurns": integer(1),
            }
        ),
        inline="stopPolicy",
    ),
    Kind(
        "protocol", "which stop reasons are handled, and what each one permits",
        table(
            {
                "handledStopReasons": items(_reason, least=1),
                "continuation": table_of(one_of(("continue", "resume", "extend", "stop"))),
            },
            required=("handledStopReasons",),
        ),
        inline="protocolStatePolicy",
    ),
    Kind(
        "retry", "how often each failure class may be tried again, and what follows",
        table(
            {
                "rules": records(
                    table(
                        {
                            "ruleId": text,
                            "classes": words(tuple(CLASSES), least=1),
                            "maxAttempts": integer(1),
                            "backoffClass": one_of(BACKOFFS),
                            "escalationAction": one_of(ACTIONS),
                        },
                        required=("ruleId", "classes", "maxAttempts", "escalationAction"),
                    ),
                    "ruleId",
                )
            },
            required=("rules",),
        ),
    ),
)  # fmt: skip

KINDS: Final = {kind.name: kind for kind in _TABLE}
"""Every kind of document by its name."""
