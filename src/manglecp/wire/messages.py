"""Every message type as a struct, tagged by ``type``.

The docstrings of the structs are the descriptions in the JSON schemas. "Specification" is the MangleCP specification
2026-02-draft; docs/reference/requirements.md explains ids such as WIRE-03.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeAlias, get_args

import msgspec
from msgspec import UNSET as UNSET, Meta, UnsetType as UnsetType

from manglecp.wire.vocabulary import CATEGORIES, MIN_MESSAGE_BYTES, SCHEMES

VERSION: Final = "2026-02-draft"
SUPPORTED_VERSIONS: Final = (VERSION,)

Object: TypeAlias = dict[str, Any]
Time: TypeAlias = str | int
"""RFC 3339 text or milliseconds since 1970; in requests also ``"now"``."""
Count: TypeAlias = Annotated[int, Meta(ge=0)]
Percent: TypeAlias = Annotated[int, Meta(ge=0, le=100)] | Annotated[float, Meta(ge=0, le=100)]
RequestId: TypeAlias = Annotated[str, Meta(min_length=1)]
"""Chosen by the client, repeated in the response (WIRE-03, WIRE-04)."""
Instant: TypeAlias = Annotated[str, Meta(extra={"instant": True})]
"""RFC 3339 text. A client converts milliseconds since 1970, which servers may send instead."""
FactObject: TypeAlias = Annotated[Object, Meta(extra_json_schema={"$ref": "#/$defs/Fact"})]
FactObjects: TypeAlias = Annotated[list[Any], Meta(extra_json_schema={"items": {"$ref": "#/$defs/Fact"}})]
"""The facts of a request, which :class:`manglecp.wire.profile.Profile` checks later."""
Name: TypeAlias = Annotated[str, Meta(min_length=1)]
Level: TypeAlias = Literal["full", "condensed", "minimal"]


def one_of(*names: str) -> Meta:
    """Return the constraint of a string that is one of the names. The lookahead excludes a line feed after it."""
    return Meta(pattern=rf"^(?:{'|'.join(names)})$(?![\s\S])", extra_json_schema={"enum": list(names)})


def one_of_or_custom(*names: str) -> Meta:
    """Return the constraint of a string that is one of the names, or begins with ``x-``."""
    either = [{"enum": list(names)}, {"pattern": r"^x-[\s\S]"}]
    return Meta(pattern=rf"^(?:{'|'.join(names)})$(?![\s\S])|^x-[\s\S]", extra_json_schema={"anyOf": either})


def standard_words(*names: str) -> Meta:
    """Return the annotation of a string that is usually one of the names; a client accepts other words (OPEN-48)."""
    return Meta(extra_json_schema={"enum": list(names)})


def extensions(*names: str) -> dict[str, str]:
    """Return the names on the wire of members that are extensions of the protocol."""
    return {name: f"x-{name}" for name in names}


class Message(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """A message of any type; each type is a subclass with its payload."""

    id: str | None
    manglecp: str = VERSION


class IdentifiedMessage(Message, frozen=True, kw_only=True):
    """A request, or a message about a request, with the request's id."""

    id: RequestId


class Part(msgspec.Struct, frozen=True, kw_only=True, repr_omit_defaults=True):
    """A part of a payload. Unknown members are skipped (OPEN-58); unset members are not written."""


# Macro-tools and skills (specification 06).
SIDE_EFFECTS: Final = (
    "none",
    "filesystem",
    "network",
    "database",
    "browser",
    "process",
    "payments",
    "authentication",
    "destructive",
)
SideEffect: TypeAlias = Annotated[str, one_of_or_custom(*SIDE_EFFECTS)]


class LevelMembers(NamedTuple):
    """The members that a macro-tool of one disclosure level must have, and must not have (specification 06)."""

    required: frozenset[str] = frozenset()
    forbidden: frozenset[str] = frozenset()


_ONLY_FULL: Final = frozenset({"input_schema", "output_schema", "context_injection", "safety", "validity"})
LEVEL_MEMBERS: Final[Mapping[str, LevelMembers]] = {  # by disclosure level
    "full": LevelMembers(required=frozenset({"description", "input_schema", "safety"})),
    "condensed": LevelMembers(forbidden=_ONLY_FULL),
    "minimal": LevelMembers(forbidden=_ONLY_FULL | {"description", "metadata"}),
}


class SkillReference(Part, frozen=True, kw_only=True):
    """A skill inside a tool: with its content, or only named."""

    skill_id: str
    inline: bool
    content: str | UnsetType = UNSET


class ContextResource(Part, frozen=True, kw_only=True):
    """A resource to read before the tool is used."""

    uri: str
    relevance: str | UnsetType = UNSET
    priority: Percent | UnsetType = UNSET


class ContextInjection(Part, frozen=True, kw_only=True):
    """Text and references that are added to the context of a model together with the tool."""

    instructions: str | UnsetType = UNSET
    skills: tuple[SkillReference, ...] | UnsetType = UNSET
    context_resources: tuple[ContextResource, ...] | UnsetType = UNSET


class Safety(Part, frozen=True, kw_only=True):
    """The effects of the tool, and whether a user has to confirm its invocation."""

    requires_user_confirmation: bool
    side_effects: tuple[SideEffect, ...]
    reversible: bool | UnsetType = UNSET
    idempotent: bool | UnsetType = UNSET


class Validity(Part, frozen=True, kw_only=True):
    """The period in which the tool can be invoked. An absent bound is open."""

    not_before: Instant | UnsetType = UNSET
    expires_at: Instant | UnsetType = UNSET


class Metadata(Part, frozen=True, kw_only=True):
    """How the tool was selected."""

    selection_phase: str | UnsetType = UNSET
    score: int | float | UnsetType = UNSET
    source_rules: tuple[str, ...] | UnsetType = UNSET


class MacroTool(Part, frozen=True, kw_only=True):
    """A macro-tool. Its disclosure level determines which members are set."""

    macro_id: str
    name: str
    description: str | UnsetType = UNSET
    disclosure_level: Level
    input_schema: Object | UnsetType = UNSET
    output_schema: Object | UnsetType = UNSET
    context_injection: ContextInjection | UnsetType = UNSET
    safety: Safety | UnsetType = UNSET
    validity: Validity | UnsetType = UNSET
    metadata: Metadata | UnsetType = UNSET


class SkillResource(Part, frozen=True, kw_only=True):
    """A resource that a skill refers to."""

    uri: str
    type: str | UnsetType = UNSET
    description: str | UnsetType = UNSET


class Skill(Part, frozen=True, kw_only=True):
    """A text for the model about the use of tools."""

    skill_id: str
    name: str
    description: str
    content: str
    content_type: str | UnsetType = UNSET
    resources: tuple[SkillResource, ...] | UnsetType = UNSET


# Intents (specification 05; specification 09, sections 5 and 6).
class Intent(Part, frozen=True, kw_only=True):
    """The goal of the client. `params` describe the goal; they are not arguments of a tool."""

    # The pattern demands a character that no implementation counts as white space.
    name: Annotated[Name, Meta(pattern=r"[^\s\x1c-\x1f\x85\ufeff]")]
    params: Object | None = None


class Constraints(Part, frozen=True, kw_only=True):
    """Limits of this request; the stricter of these and the server's apply. Null counts as absent."""

    max_facts_created: Count | None = None
    max_intervals_per_atom: Count | None = None
    max_compute_ms: Count | None = None
    max_tools_returned: Count | None = None
    max_tokens_budget: Count | None = None


class Options(Part, frozen=True, kw_only=True, rename=extensions("why_not", "rule_coverage")):
    """The parts of the response besides the tools, and the disclosure level of the tools."""

    include_proof_hints: bool = False
    disclosure_preference: Literal["full", "condensed", "minimal", "adaptive"] = "adaptive"
    why_not: tuple[str, ...] = ()
    rule_coverage: bool = False


class IntentPayload(Part, frozen=True, kw_only=True):
    """Only `intent` is required. Null counts as absent."""

    intent: Intent
    facts: FactObjects = []  # msgspec copies the default
    eval_time: Time | None = None
    constraints: Constraints = Constraints()
    options: Options = Options()


class IntentRequest(IdentifiedMessage, frozen=True, kw_only=True, tag="intent_request"):
    """A request for the tools that fit an intent, given these facts."""

    payload: IntentPayload


class ProofTree(Part, frozen=True, kw_only=True):
    """A fact, and the facts that it follows from."""

    fact: str
    type: Annotated[str, standard_words("server", "session", "derived")]
    children: tuple[ProofTree, ...] = ()


class Derivation(Part, frozen=True, kw_only=True):
    """The proof that a tool was selected."""

    macro_id: str
    selected_by: Annotated[str, standard_words("skeleton", "flesh", "dependency")]
    score: int | float
    supporting_facts: tuple[FactObject, ...]
    rule_chain: tuple[str, ...]
    tree: ProofTree | UnsetType = UNSET

    def __str__(self) -> str:
        from manglecp.wire.response_text import derivation_lines

        return "\n".join(derivation_lines(self.macro_id, self))


class Exclusion(Part, frozen=True, kw_only=True):
    """A candidate tool that is not in the response, and the reason."""

    candidate: str
    excluded_by: str
    reason: str


class UnmatchedFact(Part, frozen=True, kw_only=True):
    """A fact of the request that no rule could use."""

    pred: str
    reason: str


class WhyNot(Part, frozen=True, kw_only=True):
    """The rules that block a tool, and the facts that would unlock it."""

    tool: str
    known: bool
    """False if no tool of this name could serve the intent, as far as the client may know."""
    blocked_by: tuple[str, ...] = ()
    would_unlock: tuple[tuple[FactObject, ...], ...] = ()
    complete: bool = True
    """False if other sets of facts, too, may unlock the tool."""

    def __str__(self) -> str:
        from manglecp.wire.response_text import why_not_lines

        return "\n".join(why_not_lines(self))


class ProofHints(Part, frozen=True, kw_only=True, rename=extensions("why_not")):
    """Explanations of the response, without facts that the client may not see."""

    derivations: tuple[Derivation, ...] = ()
    excluded: tuple[Exclusion, ...] = ()
    unmatched_facts: tuple[UnmatchedFact, ...] = ()
    why_not: tuple[WhyNot, ...] | UnsetType = UNSET


class DormantRule(Part, frozen=True, kw_only=True):
    """A rule that did not fire for this request, and the predicates without matching facts."""

    rule: str
    missing_predicates: tuple[str, ...] = ()
    status: Annotated[str, standard_words("partially_alive", "dead", "inapplicable")]


class RuleCoverage(Part, frozen=True, kw_only=True):
    """The number of rules that fired, for pack authors."""

    total_rules: Count | UnsetType = UNSET
    rules_fired: Count | UnsetType = UNSET
    rules_dormant: Count | UnsetType = UNSET
    rules_inapplicable: Count | UnsetType = UNSET
    dormant_details: tuple[DormantRule, ...] = ()


class Diagnostics(Part, frozen=True, kw_only=True, rename=extensions("tokens", "tools_proven", "facts_version")):
    """Statistics of the evaluation. Clients must not depend on them."""

    facts_evaluated: Count | UnsetType = UNSET
    facts_derived: Count | UnsetType = UNSET
    rules_fired: Count | UnsetType = UNSET
    phases_completed: Count | None = None
    rule_coverage: RuleCoverage | UnsetType = UNSET
    tokens: Object | UnsetType = UNSET
    """Cost of the tools and skills: ``{"count": N, "by": "estimate" | "o200k_base"}``."""
    tools_proven: Count | UnsetType = UNSET  # set if not all proven tools are sent
    facts_version: str | UnsetType = UNSET  # of the facts that fact generators supplied


class IntentResult(Part, frozen=True, kw_only=True, rename=extensions("hypothetical")):
    """The tools that were proven for the intent, as of `eval_time_used`.

    With `x-hypothetical`, `eval_time_used` is not the time of the server's clock. A tool can be invoked only if the
    rules prove it by the server's clock.
    """

    eval_time_used: Instant
    hypothetical: bool | UnsetType = UNSET
    eval_duration_ms: Count = 0
    macro_tools: tuple[MacroTool, ...]
    proof_hints: ProofHints | UnsetType = UNSET
    required_skills: tuple[Skill, ...] | UnsetType = UNSET
    diagnostics: Diagnostics | UnsetType = UNSET


class IntentResponse(IdentifiedMessage, frozen=True, kw_only=True, tag="intent_response"):
    """The response to an `intent_request`."""

    payload: IntentResult


# Invocations (specification 07).
class InvokePayload(Part, frozen=True, kw_only=True, rename=extensions("request_key", "prepare")):
    """A tool of an earlier response, with arguments. A repeated `x-request_key` returns the same run."""

    macro_id: str
    args: Object
    eval_time: Time | None = None
    confirmation_token: str | None = None
    request_key: str | None = None
    prepare: bool = False
    """Whether to stop before the run: the response is `confirmation_required`, or `x-approval_not_needed`."""


class InvokeRequest(IdentifiedMessage, frozen=True, kw_only=True, tag="invoke_request"):
    """A request to run a tool."""

    payload: InvokePayload


class StateDelta(Part, frozen=True, kw_only=True, rename={"asserts": "assert"}):
    """Facts that hold from now on, and facts that no longer hold."""

    asserts: tuple[FactObject, ...] = ()
    retract: tuple[FactObject, ...] = ()


class Event(Part, frozen=True, kw_only=True):
    """The outcome of one step."""

    action: str
    status: Annotated[str, standard_words("success", "failure", "skipped")]
    duration_ms: Count | UnsetType = UNSET
    detail: str | UnsetType = UNSET


class Observability(Part, frozen=True, kw_only=True, rename=extensions("events_omitted")):
    """A summary of the run, for operators and logs."""

    summary: str = ""
    events: tuple[Event, ...] = ()
    events_omitted: Count | UnsetType = UNSET
    """Number of steps without an event, because there are too many."""
    duration_ms: Count = 0


class SuggestedIntent(Part, frozen=True, kw_only=True):
    """An intent that may come next. The server does nothing until the client requests it."""

    name: str
    params: Object | UnsetType = UNSET
    description: str | UnsetType = UNSET


class Next(Part, frozen=True, kw_only=True):
    """Suggestions for the next request."""

    suggested_intents: tuple[SuggestedIntent, ...] = ()
    continuation_facts: tuple[FactObject, ...] = ()


class InvokeResult(Part, frozen=True, kw_only=True):
    """Servers send all four members; clients read an absent one as empty (OPEN-33)."""

    result: Object
    state_delta: StateDelta = StateDelta()
    observability: Observability = Observability()
    next: Next = Next()


class InvokeResponse(IdentifiedMessage, frozen=True, kw_only=True, tag="invoke_response"):
    """The response to an `invoke_request` whose run succeeded."""

    payload: InvokeResult


class ProgressPayload(Part, frozen=True, kw_only=True):
    """The progress of a run."""

    status: Annotated[str, standard_words("started", "running", "finalizing")]
    detail: str | None = None
    percent: Percent | None = None


class ProgressMessage(IdentifiedMessage, frozen=True, kw_only=True, tag="progress"):
    """Sent any number of times before the response, and never after it."""

    payload: ProgressPayload


# The manifest (specification 04).
Direction = Literal["input", "output", "both"]
ArgType = Literal["string", "number", "boolean", "any"]
TIME_FORMATS: Final = ("rfc3339", "epoch_ms")  # those that the server of this project accepts
Category: TypeAlias = Annotated[str, one_of_or_custom(*CATEGORIES)]
Scheme: TypeAlias = Annotated[str, one_of(*SCHEMES)]
Affinity: TypeAlias = Annotated[int, Meta(ge=0, le=100)]
TimeFormat: TypeAlias = Annotated[str, one_of("rfc3339", "epoch_ms", "epoch_ns")]
TimeFormats: TypeAlias = Annotated[tuple[TimeFormat, ...], Meta(extra_json_schema={"contains": {"const": "rfc3339"}})]
Extensions: TypeAlias = dict[Annotated[str, Meta(pattern=r"^x-[\s\S]")], Any]
Address: TypeAlias = Annotated[str, Meta(min_length=1)]
"""An absolute URI, or one that is relative to that of the manifest."""
Status = Literal["ready", "booting", "degraded", "draining"]


class Protocol(Part, frozen=True, kw_only=True):
    """The supported versions and the conformance level of the server."""

    manglecp: str = VERSION
    conformance_level: Literal[1, 2, 3] = 3
    supported_versions: tuple[str, ...] = SUPPORTED_VERSIONS


class Domain(Part, frozen=True, kw_only=True):
    """The purpose of the server. `affinities` are weights from 0 to 100, for clients that choose among servers."""

    id: str
    description: str
    categories: tuple[Category, ...] | UnsetType = UNSET
    affinities: dict[str, Affinity] | UnsetType = UNSET


class Endpoints(Part, frozen=True, kw_only=True, rename=extensions("approvals", "decide", "skills", "facts")):
    """Required on HTTP, optional on session transports (MANI-11)."""

    intent_eval: Address
    macro_invoke: Address
    approvals: Address | UnsetType = UNSET
    decide: Address | UnsetType = UNSET
    skills: Address | UnsetType = UNSET
    facts: Address | UnsetType = UNSET


class IntentDescription(Part, frozen=True, kw_only=True):
    """An intent of the server, and the facts that it reads."""

    name: str
    description: str
    required_facts: tuple[str, ...] | UnsetType = UNSET
    optional_facts: tuple[str, ...] | UnsetType = UNSET


class PredicateSchema(Part, frozen=True, kw_only=True, rename=extensions("integers")):
    """A predicate of the facts in requests or responses."""

    predicate: str
    arity: Count
    arg_types: tuple[ArgType, ...] = ()
    arg_names: tuple[str, ...] | UnsetType = UNSET
    temporal: bool = False
    description: str | UnsetType = UNSET
    direction: Direction = "both"
    integers: tuple[Count, ...] | UnsetType = UNSET
    """The positions, from 0, of numbers that are integers: a fraction or an exponent is refused there."""


class FactsProfile(Part, frozen=True, kw_only=True):
    """The facts that the server accepts, and the formats of their times."""

    time_formats: TimeFormats
    predicates: tuple[PredicateSchema, ...] = ()
    schema_uri: str | None = None


class ExternalPredicate(Part, frozen=True, kw_only=True, rename={"mode": "x-mangle-mode"}):
    """A predicate that a function of the server computes during an evaluation."""

    predicate: str
    arity: Count
    description: str
    deterministic: bool = True
    mode: str | UnsetType = UNSET


class Capabilities(Part, frozen=True, kw_only=True):
    """The optional parts of the protocol that the server supports."""

    temporal: bool
    aggregation: bool = True
    named_args: bool = True
    external_predicates: tuple[ExternalPredicate, ...] = ()
    rule_submission: bool = False
    subscriptions: bool = False


class ServerLimits(Part, frozen=True, kw_only=True):
    """Limits of every request."""

    max_message_bytes: Annotated[int, Meta(ge=MIN_MESSAGE_BYTES)]
    max_facts_per_request: Count
    max_derived_facts: Count
    max_intervals_per_atom: Count | UnsetType = UNSET
    max_compute_ms: Count | UnsetType = UNSET


class Auth(Part, frozen=True, kw_only=True):
    """Whether authentication is required, and the accepted `schemes`."""

    required: bool
    schemes: tuple[Scheme, ...] | UnsetType = UNSET
    token_url: str | UnsetType | None = UNSET


class ManifestPayload(Part, frozen=True, kw_only=True):
    """The description of a server, for clients."""

    server_name: str
    server_version: str
    protocol: Protocol
    status: Status
    domain: Domain
    endpoints: Endpoints | UnsetType = UNSET
    intents: tuple[IntentDescription, ...]
    facts_profile: FactsProfile
    capabilities: Capabilities
    limits: ServerLimits
    auth: Auth
    extensions: Extensions | UnsetType = UNSET


class Manifest(Message, frozen=True, kw_only=True, tag="manifest"):
    """Sent by the server first and whenever it changes; its id is null."""

    id: None = None
    payload: ManifestPayload


# Errors, cancellation, authentication, approval (specifications 09, 02 and 08).
class ErrorPayload(Part, frozen=True, kw_only=True):
    """An error. Only a `recoverable` one can disappear when the request is repeated."""

    code: str
    message: str
    details: Object | UnsetType = UNSET
    recoverable: bool
    retry_after_ms: Count | None = None


class ErrorMessage(Message, frozen=True, kw_only=True, tag="error"):
    """The response to a request that failed; the id is null if it could not be read."""

    id: RequestId | None
    payload: ErrorPayload


class CancelPayload(Part, frozen=True, kw_only=True, rename=extensions("request_key")):
    """Which request is to be cancelled."""

    request_id: RequestId
    request_key: str | None = None
    """Key of the invocation, which may run in another replica."""


class Cancel(Message, frozen=True, kw_only=True, tag="cancel"):
    """A notification: its id is null, and only the cancelled request gets a response."""

    id: str | None = None
    payload: CancelPayload


class AuthenticatePayload(Part, frozen=True, kw_only=True):
    """A credential and its scheme."""

    scheme: Literal["bearer", "oauth2", "api_key"]
    token: str

    def __repr__(self) -> str:
        """Return a text without the token, which must not get into logs."""
        return f"AuthenticatePayload(scheme={self.scheme!r}, token=…)"


class Authenticate(IdentifiedMessage, frozen=True, kw_only=True, tag="authenticate"):
    """The credential of the client for the rest of this session."""

    payload: AuthenticatePayload


class Authenticated(Part, frozen=True, kw_only=True):
    """The identity and the permissions of the client."""

    status: Literal["authenticated"]
    identity: str | None = None
    permissions: tuple[str, ...] = ()
    trust_level: str | UnsetType = UNSET
    auto_confirm_effects: tuple[str, ...] | UnsetType = UNSET


class AuthenticateResponse(IdentifiedMessage, frozen=True, kw_only=True, tag="authenticate_response"):
    """The response to an `authenticate` with a valid credential."""

    payload: Authenticated


class ApprovalPayload(Part, frozen=True, kw_only=True):
    """What an approver does: list the pending requests, or show, approve or deny one."""

    operation: Literal["list", "show", "approve", "deny"]
    approval: str | None = None
    """The id of the approval request; not for `list`."""


class ApprovalMessage(IdentifiedMessage, frozen=True, kw_only=True, tag="x-approval_request"):
    """A message of an approver, whose credential has the permission `approve`."""

    payload: ApprovalPayload


class ApprovalView(Part, frozen=True, kw_only=True):
    """An approval request, as its approver sees it. `text` shows the whole call; answers to `list` leave it out."""

    id: str
    requester: str
    tool: str
    roles: tuple[str, ...]
    four_eyes: bool
    state: Literal["pending", "approved", "denied", "used", "expired"]
    created_at: str
    expires_at: str
    text: str | UnsetType = UNSET
    approver: str | UnsetType = UNSET
    run: str | UnsetType = UNSET
    """The id of the run or permit that used the approval."""


class ApprovalResult(Part, frozen=True, kw_only=True):
    """The listed requests, or the one that was shown or decided."""

    approvals: tuple[ApprovalView, ...]


class ApprovalResponse(IdentifiedMessage, frozen=True, kw_only=True, tag="x-approval_response"):
    """The response to an `x-approval_request`."""

    payload: ApprovalResult


class PermitReport(Part, frozen=True, kw_only=True):
    """The outcome of a call with a permit. The members `tool` and `args` of the request are those of the permit."""

    permit: Name
    outcome: Literal["success", "failure"]
    error: str | UnsetType = UNSET
    """The class of the error with which the call failed."""
    result: Any = UNSET


class DecidePayload(Part, frozen=True, kw_only=True):
    """A call to decide about. Without an intent, policy alone decides; with one, the tool must be proven for it."""

    tool: Name
    args: Object = {}
    intent: Intent | None = None
    facts: FactObjects = []
    permit: bool = False
    """Whether the client wants to execute the call itself: the response has a permit, or is an error."""
    approval: str | None = None
    """The id of an approved approval request, which allows the permit."""
    report: PermitReport | None = None
    """The outcome of the call, instead of a question."""


class DecideRequest(IdentifiedMessage, frozen=True, kw_only=True, tag="x-decide_request"):
    """The question whether the client may call a tool with these arguments now, or the outcome of a permitted call."""

    payload: DecidePayload


class Remedy(Part, frozen=True, kw_only=True):
    """A change of a denied call, tried at the time of the decision: other arguments, or facts to state in addition."""

    args: Object = {}
    facts: tuple[FactObject, ...] = ()
    """A null argument of a fact stands for any value."""
    verdict: Literal["allow", "ask"]
    text: str
    """The change in words, for a model."""


class Permit(Part, frozen=True, kw_only=True):
    """The permission to execute one call once, until `expires_at`; then the client reports the outcome."""

    id: str
    expires_at: str


class DecideResult(Part, frozen=True, kw_only=True, rename=extensions("decision")):
    """The verdict: `ask` if an approver has to approve the call."""

    verdict: Literal["allow", "ask", "deny"]
    reasons: tuple[str, ...] = ()
    """Why it is `ask` or `deny`, as far as policy makes reasons public."""
    would_unlock: tuple[Remedy, ...] = ()
    """Changes with which a denied call would not be denied, as far as the client may know them."""
    decided_at: str
    decision: str | UnsetType = UNSET
    """The id of the decision, or of the outcome, in the decision log of the server."""
    permit: Permit | UnsetType = UNSET


class DecideResponse(IdentifiedMessage, frozen=True, kw_only=True, tag="x-decide_response"):
    """The response to an `x-decide_request`."""

    payload: DecideResult


class SkillPayload(Part, frozen=True, kw_only=True):
    """The skill to read; without `skill_id`, all that the client may read."""

    skill_id: str | None = None


class SkillMessage(IdentifiedMessage, frozen=True, kw_only=True, tag="x-skill_request"):
    """A request for the skills of the tools that are offered to the client now."""

    payload: SkillPayload


class SkillResult(Part, frozen=True, kw_only=True):
    """One skill with its complete text, or all of them with summaries."""

    skills: tuple[Skill, ...]


class SkillResponse(IdentifiedMessage, frozen=True, kw_only=True, tag="x-skill_response"):
    """The response to an `x-skill_request`."""

    payload: SkillResult


class FactsPayload(Part, frozen=True, kw_only=True):
    """The facts that replace those of a source, as fact objects in `facts` or as Mangle text in `text`."""

    source: Name
    facts: FactObjects = []
    text: str | None = None


class FactsMessage(IdentifiedMessage, frozen=True, kw_only=True, tag="x-facts_request"):
    """A push: it replaces all facts of a source. It needs the permission `push_facts` or `push_facts:SOURCE`."""

    payload: FactsPayload


class FactsResult(Part, frozen=True, kw_only=True):
    """The version of a source that the server has stored."""

    source: str
    version: int
    digest: str
    """The digest of the facts, whatever their order."""
    facts: int
    added: int
    removed: int
    changed: bool
    """False if the facts were the same, so that only their age is new."""


class FactsResponse(IdentifiedMessage, frozen=True, kw_only=True, tag="x-facts_response"):
    """The response to an `x-facts_request`."""

    payload: FactsResult


ClientMessage: TypeAlias = (
    IntentRequest
    | InvokeRequest
    | Cancel
    | Authenticate
    | ApprovalMessage
    | DecideRequest
    | SkillMessage
    | FactsMessage
)
ServerMessage: TypeAlias = (
    Manifest
    | IntentResponse
    | InvokeResponse
    | ProgressMessage
    | ErrorMessage
    | AuthenticateResponse
    | ApprovalResponse
    | DecideResponse
    | SkillResponse
    | FactsResponse
)

INFORMATIONAL: Final = frozenset({ProofHints, Diagnostics, Metadata, Observability, ProgressPayload})
"""Parts of messages on which no client depends (COV-02, EVAL-29): a client skips what it cannot read in them."""

# The message types of both directions: seven of specification 02, three of others (OPEN-01), and x- types.
CLIENT_TYPES: Final[Mapping[str, type[ClientMessage]]] = {m.__struct_config__.tag: m for m in get_args(ClientMessage)}
SERVER_TYPES: Final[Mapping[str, type[ServerMessage]]] = {m.__struct_config__.tag: m for m in get_args(ServerMessage)}

_encoder: Final = msgspec.json.Encoder(order="deterministic")


def encode(message: Message) -> bytes:
    """Return the bytes of a message, the same for equal messages. A lone surrogate becomes U+FFFD."""
    try:
        return _encoder.encode(message)
    except UnicodeEncodeError:
        return _encoder.encode(_without_surrogates(msgspec.to_builtins(message)))


def _without_surrogates(data: Any) -> Any:
    if isinstance(data, str):
        # Decoding UTF-16 joins the surrogates of a pair, and replaces the others.
        return data.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if isinstance(data, dict):
        return {_without_surrogates(key): _without_surrogates(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_without_surrogates(item) for item in data]
    return data
