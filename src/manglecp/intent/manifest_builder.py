"""The manifest of a domain: what it is about and what may be said to it, never which tools it has (MANI-02).

Everything in it is read off the pack, the declarations of its rules and the limits that are enforced, so that it cannot
promise anything else.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from manglecp.intent.domain import Domain
from manglecp.intent.why_not import MOST_NAMES
from manglecp.pack import ExternalDescription, IntentSettings, Pack, outline_manifest
from manglecp.wire.messages import (
    TIME_FORMATS,
    UNSET,
    Auth,
    Capabilities,
    Endpoints,
    ExternalPredicate,
    FactsProfile,
    IntentDescription,
    Manifest,
    ServerLimits,
    Status,
)

__all__ = ["manifest"]

EXTENSIONS: Final = {
    "x-why_not": {
        "option": f'options["x-why_not"]: array of at most {MOST_NAMES} tool names',
        "answer": 'proof_hints["x-why_not"]: what blocks each and which facts would unlock it',
    },
    "x-rule_coverage": {
        "option": 'options["x-rule_coverage"]: true',
        "answer": "diagnostics.rule_coverage: which rules fired, lay dormant or did not apply",
    },
    "x-request_key": {
        "option": 'payload["x-request_key"] of invoke_request: a text of the client, at most 128 characters',
        "answer": "the same key, tool and arguments lead to one run and its answer, however often they are sent",
        "cancel": 'payload["x-request_key"] of cancel, which macro_invoke takes too: the run of that key stops',
    },
}
"""What this implementation has beyond the protocol or as its optional parts (OPEN-50)."""


def manifest(
    domain: Domain,
    status: Status = "ready",
    endpoints: Endpoints | None = None,
    auth: Auth | None = None,
    extensions: dict[str, Any] | None = None,
) -> Manifest:
    """The manifest message. ``endpoints`` are for HTTP; ``extensions`` are added, such as why a server is degraded."""
    pack = domain.pack
    beginning = outline_manifest(pack.settings, status, endpoints, auth or _auth(pack)).payload
    affinities = dict(pack.settings.domain.affinities) or UNSET
    return Manifest(
        payload=replace(
            beginning,
            domain=replace(beginning.domain, affinities=affinities),
            intents=tuple(map(_intent, pack.settings.intents)),
            facts_profile=FactsProfile(time_formats=TIME_FORMATS, predicates=domain.profile.schemas()),
            capabilities=Capabilities(
                temporal=True,
                external_predicates=tuple(_external(pack.externals[name]) for name in sorted(pack.externals)),
            ),
            limits=_limits(pack),
            extensions=_extensions(domain, extensions or {}),
        )
    )


def _intent(intent: IntentSettings) -> IntentDescription:
    return IntentDescription(
        name=intent.name,
        description=intent.description,
        required_facts=intent.required_facts or UNSET,
        optional_facts=intent.optional_facts or UNSET,
    )


def _external(external: ExternalDescription) -> ExternalPredicate:
    return ExternalPredicate(
        predicate=external.predicate,
        arity=external.arity,
        description=external.description or f"Answered by the server: {external.predicate}",
        deterministic=external.deterministic,
        mode=external.mode,
    )


def _limits(pack: Pack) -> ServerLimits:
    limits = pack.settings.limits
    return ServerLimits(
        max_message_bytes=limits.max_message_bytes,
        max_facts_per_request=limits.max_facts_per_request,
        max_derived_facts=limits.max_derived_facts,
        max_intervals_per_atom=limits.max_intervals_per_atom,
        max_compute_ms=limits.max_compute_ms,
    )


def _auth(pack: Pack) -> Auth:
    auth = pack.settings.auth
    return Auth(required=auth.required, schemes=auth.schemes or UNSET, token_url=auth.token_url or UNSET)


def _extensions(domain: Domain, more: dict[str, Any]) -> dict[str, Any]:
    wrong = sorted(key for key in more if not key.startswith("x-"))
    if wrong:
        raise ValueError(f"an extension begins with x-: {', '.join(wrong)}")  # MANI-27
    structured = {"enabled": domain.pack.settings.structured_facts, "rules": False}
    return {**EXTENSIONS, "x-structured_facts": structured, "x-pack_digest": domain.digest, **more}
