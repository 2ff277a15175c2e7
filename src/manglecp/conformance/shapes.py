"""Which requirement a member of a message belongs to, so that a misfit with the schema is found at its row.

The schemas are those of this project's messages. A path leaves out the positions in lists; the longest one that fits
counts. Members that a server may leave out are only looked at where they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final, NamedTuple

import jsonschema_rs

from manglecp.wire import schema

__all__ = ["ROWS", "Misfit", "misfits", "present"]

Path = tuple[str, ...]


def _paths(rows: Mapping[str, tuple[str, ...]]) -> dict[Path, tuple[str, ...]]:
    return {tuple(path.split(".")) if path else (): ids for path, ids in rows.items()}


_ENVELOPE: Final = {
    "": ("WIRE-01",),
    "type": ("WIRE-02",),
    "manglecp": ("WIRE-09", "WIRE-10"),
    "payload": ("WIRE-12",),
}
_TOOL: Final = "payload.macro_tools"
ROWS: Final[Mapping[str, Mapping[Path, tuple[str, ...]]]] = {
    "manifest": _paths(
        {
            **_ENVELOPE,
            "id": ("MANI-01",),
            "payload.server_name": ("MANI-03",),
            "payload.server_version": ("MANI-03",),
            "payload.protocol": ("MANI-04",),
            "payload.protocol.conformance_level": ("MANI-05", "CONF-01"),
            "payload.status": ("MANI-06",),
            "payload.domain": ("MANI-07",),
            "payload.domain.categories": ("MANI-08", "MANI-09"),
            "payload.domain.affinities": ("MANI-10",),
            "payload.endpoints": ("MANI-11",),
            "payload.intents": ("MANI-12",),
            "payload.facts_profile": ("MANI-15",),
            "payload.facts_profile.time_formats": ("MANI-15", "DATA-30"),
            "payload.facts_profile.predicates": ("DATA-50",),
            "payload.facts_profile.predicates.arg_types": ("DATA-51",),
            "payload.facts_profile.predicates.arg_names": ("DATA-52",),
            "payload.facts_profile.predicates.direction": ("DATA-52",),
            "payload.facts_profile.schema_uri": ("MANI-17",),
            "payload.capabilities": ("MANI-18",),
            "payload.capabilities.external_predicates": ("MANI-20",),
            "payload.limits": ("MANI-23",),
            "payload.limits.max_message_bytes": ("WIRE-23", "MANI-23"),
            "payload.auth": ("MANI-25",),
            "payload.auth.schemes": ("MANI-26",),
            "payload.auth.token_url": ("MANI-26",),
            "payload.extensions": ("MANI-27",),
        }
    ),
    "intent_response": _paths(
        {
            **_ENVELOPE,
            "id": ("WIRE-04",),
            "payload.eval_time_used": ("EVAL-25",),
            "payload.eval_duration_ms": ("EVAL-26",),
            "payload.macro_tools": ("EVAL-27",),
            f"{_TOOL}.macro_id": ("TOOL-01",),
            f"{_TOOL}.name": ("TOOL-03",),
            f"{_TOOL}.disclosure_level": ("TOOL-04",),
            f"{_TOOL}.input_schema": ("TOOL-08",),
            f"{_TOOL}.output_schema": ("TOOL-10",),
            f"{_TOOL}.context_injection": ("SKILL-09",),
            f"{_TOOL}.context_injection.skills": ("SKILL-05",),
            f"{_TOOL}.context_injection.context_resources": ("SKILL-10",),
            f"{_TOOL}.safety": ("TOOL-11",),
            f"{_TOOL}.safety.side_effects": ("TOOL-11", "TOOL-13", "TOOL-16"),
            f"{_TOOL}.safety.reversible": ("TOOL-12",),
            f"{_TOOL}.safety.idempotent": ("TOOL-12",),
            f"{_TOOL}.validity": ("TOOL-17", "TOOL-18"),
            f"{_TOOL}.metadata": ("TOOL-20",),
            "payload.proof_hints": ("PROOF-02",),
            "payload.proof_hints.derivations": ("PROOF-03",),
            "payload.proof_hints.derivations.tree": ("PROOF-05",),
            "payload.proof_hints.excluded": ("PROOF-07",),
            "payload.proof_hints.unmatched_facts": ("PROOF-08",),
            "payload.required_skills": ("SKILL-01",),
            "payload.diagnostics": ("EVAL-29",),
            "payload.diagnostics.rule_coverage": ("COV-03",),
            "payload.diagnostics.rule_coverage.dormant_details": ("COV-04",),
        }
    ),
    "invoke_response": _paths(
        {
            **_ENVELOPE,
            "id": ("WIRE-04",),
            "payload.result": ("INVK-14",),
            "payload.state_delta": ("DELTA-01",),
            "payload.observability": ("OBS-01",),
            "payload.observability.events": ("OBS-02",),
            "payload.observability.events.duration_ms": ("OBS-03",),
            "payload.observability.events.detail": ("OBS-03",),
            "payload.next": ("INVK-16",),
            "payload.next.suggested_intents": ("NEXT-01",),
            "payload.next.suggested_intents.description": ("NEXT-02",),
            "payload.next.continuation_facts": ("NEXT-04",),
        }
    ),
    "progress": _paths(
        {
            **_ENVELOPE,
            "id": ("PROG-05",),
            "payload.status": ("PROG-02",),
            "payload.detail": ("PROG-03",),
            "payload.percent": ("PROG-03",),
        }
    ),
    "error": _paths(
        {
            **_ENVELOPE,
            "id": ("ERR-04",),
            "payload.code": ("ERR-02",),
            "payload.message": ("ERR-02",),
            "payload.recoverable": ("ERR-02",),
            "payload.details": ("ERR-03",),
            "payload.details.violations": ("ERR-35", "ERR-36"),
            "payload.details.schema_errors": ("ERR-39",),
            "payload.details.budget": ("ERR-40", "CONF-17"),
            "payload.details.requested_version": ("ERR-41", "WIRE-11"),
            "payload.details.supported_versions": ("ERR-41", "WIRE-11"),
            "payload.retry_after_ms": ("ERR-03",),
        }
    ),
    "authenticate_response": _paths({**_ENVELOPE, "id": ("WIRE-04",), "payload": ("SEC-15",)}),
}
_PRESENCE: Final = {"full": "TOOL-05", "condensed": "TOOL-06", "minimal": "TOOL-07"}


class Misfit(NamedTuple):
    """Where a message does not fit its schema, and the requirements that say so."""

    rows: tuple[str, ...]
    where: str
    what: str


def misfits(type_: str, message: dict[str, Any]) -> Iterator[Misfit]:
    """All misfits of one message."""
    for error in _validator(type_).iter_errors(message):
        yield from _found(type_, message, error)


def present(type_: str, message: dict[str, Any]) -> Iterator[str]:
    """The rows of members that are there."""
    for path, ids in ROWS[type_].items():
        if _there(message, path):
            yield from ids


@cache
def _validator(type_: str) -> Any:
    return jsonschema_rs.validator_for(schema(type_))


def _found(type_: str, message: dict[str, Any], error: Any) -> Iterator[Misfit]:
    context = getattr(error.kind, "context", None)
    if context:
        branches = [branch for branch in context if not _only_null(branch)]
        if len(branches) == 1:
            for inner in branches[0]:
                yield from _found(type_, message, inner)
            return
    steps = list(error.instance_path)
    missing = getattr(error.kind, "property", None)
    if isinstance(missing, str):
        steps.append(missing.strip('"'))
    where = ".".join(str(step) for step in steps) or "the message"
    if type_ == "intent_response" and "allOf" in list(error.schema_path) and steps[:2] == ["payload", "macro_tools"]:
        tool = message["payload"]["macro_tools"][steps[2]]
        yield Misfit((_PRESENCE.get(tool.get("disclosure_level"), "TOOL-04"),), where, error.message)
        return
    path = tuple(step for step in steps if isinstance(step, str))
    known = ROWS[type_]
    while path not in known:
        path = path[:-1]
    yield Misfit(known[path], where, error.message)


def _only_null(branch: list[Any]) -> bool:
    return len(branch) == 1 and "null" in str(branch[0].message) and type(branch[0].kind).__name__.endswith("Type")


def _there(node: Any, path: Path) -> bool:
    if isinstance(node, list):
        return any(_there(item, path) for item in node)
    if not path:
        return node is not None or not path
    return isinstance(node, dict) and path[0] in node and _there(node[path[0]], path[1:])
