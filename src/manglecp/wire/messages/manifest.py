"""The manifest: what a server is about, never what tools it has (companion, section 5)."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, TypeAlias

from msgspec import Meta

from manglecp.wire.messages.envelope import (
    SUPPORTED_VERSIONS,
    UNSET,
    VERSION,
    Count,
    Message,
    Part,
    UnsetType,
    one_of,
    one_of_or_own,
)
from manglecp.wire.vocabulary import CATEGORIES, MIN_MESSAGE_BYTES, SCHEMES

Direction = Literal["input", "output", "both"]
ArgType = Literal["string", "number", "boolean", "any"]
TIME_FORMATS: Final = ("rfc3339", "epoch_ms")
"""What a time may be written as (DATA-30)."""
Category: TypeAlias = Annotated[str, one_of_or_own(*CATEGORIES)]
Scheme: TypeAlias = Annotated[str, one_of(*SCHEMES)]
Affinity: TypeAlias = Annotated[int, Meta(ge=0, le=100)]
TimeFormat: TypeAlias = Annotated[str, one_of("rfc3339", "epoch_ms", "epoch_ns")]
TimeFormats: TypeAlias = Annotated[tuple[TimeFormat, ...], Meta(extra_json_schema={"contains": {"const": "rfc3339"}})]
Extensions: TypeAlias = dict[Annotated[str, Meta(pattern=r"^x-[\s\S]")], Any]
Address: TypeAlias = Annotated[str, Meta(min_length=1)]
"""An absolute URI, or one that is relative to that of the manifest."""
Status = Literal["ready", "booting", "degraded", "draining"]


class Protocol(Part, frozen=True, kw_only=True):
    """Which versions the server speaks, and how much of the protocol."""

    manglecp: str = VERSION
    conformance_level: Literal[1, 2, 3] = 3
    supported_versions: tuple[str, ...] = SUPPORTED_VERSIONS


class Domain(Part, frozen=True, kw_only=True):
    """What the server is for. `affinities` are weights from 0 to 100, for clients that choose among servers."""

    id: str
    description: str
    categories: tuple[Category, ...] | UnsetType = UNSET
    affinities: dict[str, Affinity] | UnsetType = UNSET


class Endpoints(Part, frozen=True, kw_only=True):
    """On session transports they may be absent, on HTTP both are there (MANI-11)."""

    intent_eval: Address
    macro_invoke: Address


class IntentDescription(Part, frozen=True, kw_only=True):
    """An intent that can be asked for, and the facts that it wants to be told."""

    name: str
    description: str
    required_facts: tuple[str, ...] | UnsetType = UNSET
    optional_facts: tuple[str, ...] | UnsetType = UNSET


class PredicateSchema(Part, frozen=True, kw_only=True):
    """A predicate that facts of requests or answers may have."""

    predicate: str
    arity: Count
    arg_types: tuple[ArgType, ...] = ()
    arg_names: tuple[str, ...] | UnsetType = UNSET
    temporal: bool = False
    description: str | UnsetType = UNSET
    direction: Direction = "both"


class FactsProfile(Part, frozen=True, kw_only=True):
    """Which facts the server takes, and how times are written in them."""

    time_formats: TimeFormats
    predicates: tuple[PredicateSchema, ...] = ()
    schema_uri: str | None = None


class ExternalPredicate(Part, frozen=True, kw_only=True, rename={"mode": "x-mangle-mode"}):
    """A predicate that is answered by a function of the server, while rules are evaluated."""

    predicate: str
    arity: Count
    description: str
    deterministic: bool = True
    mode: str | UnsetType = UNSET


class Capabilities(Part, frozen=True, kw_only=True):
    """Which optional parts of the protocol the server has."""

    temporal: bool
    aggregation: bool = True
    named_args: bool = True
    external_predicates: tuple[ExternalPredicate, ...] = ()
    rule_submission: bool = False
    subscriptions: bool = False


class ServerLimits(Part, frozen=True, kw_only=True):
    """What the server refuses to go beyond, in any request."""

    max_message_bytes: Annotated[int, Meta(ge=MIN_MESSAGE_BYTES)]
    max_facts_per_request: Count
    max_derived_facts: Count
    max_intervals_per_atom: Count | UnsetType = UNSET
    max_compute_ms: Count | UnsetType = UNSET


class Auth(Part, frozen=True, kw_only=True):
    """Where authentication is required, `schemes` says which are taken."""

    required: bool
    schemes: tuple[Scheme, ...] | UnsetType = UNSET
    token_url: str | UnsetType | None = UNSET


class ManifestPayload(Part, frozen=True, kw_only=True):
    """What a client has to know before it asks."""

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


__all__ = [
    "TIME_FORMATS",
    "ArgType",
    "Auth",
    "Capabilities",
    "Direction",
    "Domain",
    "Endpoints",
    "ExternalPredicate",
    "FactsProfile",
    "IntentDescription",
    "Manifest",
    "ManifestPayload",
    "PredicateSchema",
    "Protocol",
    "ServerLimits",
    "Status",
]
