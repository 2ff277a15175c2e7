"""Every message type as a struct, tagged by ``type`` (companion, section 2.2).

envelope     what all of them have
tools        macro-tools and skills
intent       intent_request, intent_response
invocation   invoke_request, invoke_response, progress
manifest     manifest
session      error, cancel, authenticate, authenticate_response
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

from manglecp.wire.messages.envelope import SUPPORTED_VERSIONS, UNSET, VERSION, Level, Message, Time, UnsetType
from manglecp.wire.messages.intent import (
    Constraints,
    Derivation,
    Diagnostics,
    DormantRule,
    Exclusion,
    Intent,
    IntentPayload,
    IntentRequest,
    IntentResponse,
    IntentResult,
    Options,
    ProofHints,
    ProofTree,
    RuleCoverage,
    UnmatchedFact,
    WhyNot,
)
from manglecp.wire.messages.invocation import (
    Event,
    InvokePayload,
    InvokeRequest,
    InvokeResponse,
    InvokeResult,
    Next,
    Observability,
    Progress,
    ProgressPayload,
    StateDelta,
    SuggestedIntent,
)
from manglecp.wire.messages.manifest import (
    TIME_FORMATS,
    ArgType,
    Auth,
    Capabilities,
    Domain,
    Endpoints,
    ExternalPredicate,
    FactsProfile,
    IntentDescription,
    Manifest,
    ManifestPayload,
    PredicateSchema,
    Protocol,
    ServerLimits,
    Status,
)
from manglecp.wire.messages.session import (
    Authenticate,
    Authenticated,
    AuthenticatePayload,
    AuthenticateResponse,
    Cancel,
    CancelPayload,
    ErrorMessage,
    ErrorPayload,
)
from manglecp.wire.messages.tools import (
    SIDE_EFFECTS,
    ContextInjection,
    ContextResource,
    MacroTool,
    Metadata,
    Safety,
    Skill,
    SkillReference,
    SkillResource,
    Validity,
)

ClientMessage: TypeAlias = IntentRequest | InvokeRequest | Cancel | Authenticate
"""What a client sends."""
ServerMessage: TypeAlias = Manifest | IntentResponse | InvokeResponse | Progress | ErrorMessage | AuthenticateResponse
"""What a server sends."""

CLIENT_TYPES: Final[Mapping[str, type[ClientMessage]]] = {
    "intent_request": IntentRequest,
    "invoke_request": InvokeRequest,
    "cancel": Cancel,
    "authenticate": Authenticate,
}
SERVER_TYPES: Final[Mapping[str, type[ServerMessage]]] = {
    "manifest": Manifest,
    "intent_response": IntentResponse,
    "invoke_response": InvokeResponse,
    "progress": Progress,
    "error": ErrorMessage,
    "authenticate_response": AuthenticateResponse,
}
"""The registry: seven types of the base table and three that other sections define (OPEN-01)."""

__all__ = [
    "CLIENT_TYPES",
    "SERVER_TYPES",
    "SIDE_EFFECTS",
    "SUPPORTED_VERSIONS",
    "TIME_FORMATS",
    "UNSET",
    "VERSION",
    "ArgType",
    "Auth",
    "Authenticate",
    "AuthenticatePayload",
    "AuthenticateResponse",
    "Authenticated",
    "Cancel",
    "CancelPayload",
    "Capabilities",
    "ClientMessage",
    "Constraints",
    "ContextInjection",
    "ContextResource",
    "Derivation",
    "Diagnostics",
    "Domain",
    "DormantRule",
    "Endpoints",
    "ErrorMessage",
    "ErrorPayload",
    "Event",
    "Exclusion",
    "ExternalPredicate",
    "FactsProfile",
    "Intent",
    "IntentDescription",
    "IntentPayload",
    "IntentRequest",
    "IntentResponse",
    "IntentResult",
    "InvokePayload",
    "InvokeRequest",
    "InvokeResponse",
    "InvokeResult",
    "Level",
    "MacroTool",
    "Manifest",
    "ManifestPayload",
    "Message",
    "Metadata",
    "Next",
    "Observability",
    "Options",
    "PredicateSchema",
    "Progress",
    "ProgressPayload",
    "ProofHints",
    "ProofTree",
    "Protocol",
    "RuleCoverage",
    "Safety",
    "ServerLimits",
    "ServerMessage",
    "Skill",
    "SkillReference",
    "SkillResource",
    "StateDelta",
    "Status",
    "SuggestedIntent",
    "Time",
    "UnmatchedFact",
    "UnsetType",
    "Validity",
    "WhyNot",
]
