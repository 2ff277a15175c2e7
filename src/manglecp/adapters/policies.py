"""The policies that bind the turns of a log: a policy package, plain CallSpec fields, or the tools of the request.

A log records the model, the offered tools and the stop reason, but not the policies in force; the caller passes them.
The default is the package ``observe``. If no policy lists the tools, the tool definitions of the request become the
catalogue, defer policy, allowed callers and examples of the turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from manglecp.adapters.conversation import CODE_EXECUTION, Caller, OfferedTools
from manglecp.adapters.records import as_canonical, digest_of, required_text
from manglecp.harness import HANDLED_STOP_REASONS, Constraints, digest_v1 as digest
from manglecp.harness.policy import PolicyPackage, observe_package
from manglecp.wire import JSON

DIGEST_FIELDS: Final = {
    "toolCatalog": "toolCatalogDigest",
    "deferPolicy": "deferPolicyDigest",
    "toolExamples": "toolExampleDigest",
    "allowedCallers": "allowedCallersDigest",
}
"""The CallSpec field with the digest of each policy document."""


@dataclass(frozen=True, slots=True)
class ToolDefinition:
    name: str
    schema: JSON
    kind: str = "function"
    is_deferred: bool = False  # whether the model sees the tool only after a tool search
    callers: tuple[str, ...] | None = None  # the permitted callers ("direct" is the model); None if not restricted
    examples: tuple[JSON, ...] = ()
    aliases: tuple[str, ...] = ()  # other names under which the tool is called


def offer_tools(definitions: Iterable[ToolDefinition | None], *, is_complete: bool = True) -> OfferedTools:
    """Return the offer. A definition that is None stands for tools that the log does not name.

    ``is_complete`` is False if the request names MCP servers, which may add tools that the log does not list. The offer
    has a catalogue, which makes calls of other tools invalid, only if ``is_complete`` and the log names all tools.
    """
    all_definitions = list(definitions)
    tools = [tool for tool in all_definitions if tool is not None]
    schemas = {name: digest_of(tool.schema) for tool in tools for name in (tool.name, *tool.aliases)}
    documents: dict[str, Any] = {}
    if is_complete and tools == all_definitions:
        rows = [{"toolName": name, "schemaDigest": schemas[name]} for name in sorted(schemas)]
        documents["toolCatalog"] = {"catalogId": "offered", "tools": rows}
    if any(tool.is_deferred for tool in tools):
        documents["deferPolicy"] = {
            "eager": sorted(tool.name for tool in tools if not tool.is_deferred),
            "deferred": sorted(tool.name for tool in tools if tool.is_deferred),
        }
    if callers := {tool.name: sorted(tool.callers) for tool in tools if tool.callers}:
        documents["allowedCallers"] = {"tools": callers}
    if examples := {tool.name: [as_canonical(value) for value in tool.examples] for tool in tools if tool.examples}:
        documents["toolExamples"] = {"tools": examples}
    kinds = {name: tool.kind for tool in tools for name in (tool.name, *tool.aliases) if tool.kind != "function"}
    return OfferedTools(documents, {name: digest(document) for name, document in documents.items()}, schemas, kinds)


def read_caller(call: dict[str, Any]) -> Caller | None:
    """Return the program that made a call; None if the model made it."""
    caller = call.get("caller")
    parent = None
    if type(caller) is dict:
        id_names = ("tool_id", "caller_id", "call_id", "id")  # of the call that runs the program; logs differ
        parent = next((caller[name] for name in id_names if type(caller.get(name)) is str), None)
        caller = required_text(caller, "type")
    kind = normalize_caller(caller) if type(caller) is str else "direct"
    return None if kind == "direct" else Caller(kind, parent)


def normalize_caller(caller: str) -> str:
    """Return ``code_execution`` for ``code_execution_20250825`` and ``programmatic``; other callers as they are."""
    return CODE_EXECUTION if caller.startswith(CODE_EXECUTION) or caller == "programmatic" else caller


UNRECORDED: Final = "unrecorded"
"""The model or stop reason if the log has none; a policy accepts it only by naming this word."""

TRANSCRIPT_POLICY: Final = {"protocolStatePolicy": {"handledStopReasons": [*HANDLED_STOP_REASONS, UNRECORDED]}}
"""The policy for transcripts, which have no stop reasons."""

CONSTRAINTS: Final = frozenset({*Constraints.__struct_encode_fields__, "policyDocuments"})
"""The members of a policy mapping that constrain what a turn may record; all others are CallSpec fields."""

_PER_TURN_FIELDS: Final = ("callId", "modelRef", "actionMode", "executionPattern", "toolChoice")


@dataclass(frozen=True, slots=True)
class TurnPolicy:
    """CallSpec fields and constraints that every turn of a log shares."""

    fields: Mapping[str, Any]
    constraints: Mapping[str, Any]


def turn_policy_of(policy: PolicyPackage | Mapping[str, Any] | None, pinned: str | None = None) -> TurnPolicy:
    """Return the turn policy of a package (``pinned``: its pinned digest) or of a mapping; None stands for ``observe``.

    Members of a mapping that are in :data:`CONSTRAINTS` become constraints, the others CallSpec fields. Fields that a
    mapping lacks are those of ``observe``; the fields of a package are complete.
    """
    if isinstance(policy, PolicyPackage):
        return _policy_of_package(policy, pinned)
    base = _policy_of_package(observe_package())
    if policy is None:
        return base
    fields = {name: value for name, value in policy.items() if name not in CONSTRAINTS}
    constraints = {name: value for name, value in policy.items() if name in CONSTRAINTS}
    for name, value in constraints.items():
        if not isinstance(value, Mapping):
            raise TypeError(f"{name} of a policy is not an object")
    # The fields may replace digests of ``observe``; the documents of ``observe`` would then not fit their digests.
    base_constraints = {} if fields else base.constraints
    return TurnPolicy({**base.fields, **fields}, {**base_constraints, **constraints})


def _policy_of_package(package: PolicyPackage, pinned: str | None = None) -> TurnPolicy:
    spec = package.call_spec(session_id="", turn_index=0, model_ref=UNRECORDED, prompt_digest="")
    fields = {name: value for name, value in spec.items() if name not in _PER_TURN_FIELDS}
    return TurnPolicy(fields, package.terms(pinned=pinned))
