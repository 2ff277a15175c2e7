"""The tools that a request offers, as the documents of the specification.

Where no policy says which tools there are, which of them are deferred, who may call them and with which examples they
are shown, the request itself does: its tool definitions become the documents, and the turn is held to them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from manglecp.adapters.conversation import CODE_EXECUTION, Offer
from manglecp.adapters.digests import carried, digest_of
from manglecp.harness import digest_v1 as digest
from manglecp.wire import JSON

__all__ = ["DIGEST_FIELDS", "Tool", "caller_kind", "offer"]

DIGEST_FIELDS: Final = {
    "toolCatalog": "toolCatalogDigest",
    "deferPolicy": "deferPolicyDigest",
    "toolExamples": "toolExampleDigest",
    "allowedCallers": "allowedCallersDigest",
}
"""The CallSpec field of each document."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool definition, whoever's it is."""

    name: str
    schema: JSON
    kind: str = "function"
    deferred: bool = False
    callers: tuple[str, ...] | None = None
    examples: tuple[JSON, ...] = ()
    aliases: tuple[str, ...] = field(default=())
    """Other names that calls of the same tool have."""


def offer(tools: Iterable[Tool], *, closed: bool = True) -> Offer:
    """``closed`` says that these are all: otherwise a call of another tool is no call of an unknown one."""
    known = list(tools)
    schemas = {name: digest_of(tool.schema) for tool in known for name in (tool.name, *tool.aliases)}
    documents: dict[str, Any] = {}
    if closed:
        rows = [{"toolName": name, "schemaDigest": schemas[name]} for name in sorted(schemas)]
        documents["toolCatalog"] = {"catalogId": "offered", "tools": rows}
    if any(tool.deferred for tool in known):
        documents["deferPolicy"] = {
            "eager": sorted(tool.name for tool in known if not tool.deferred),
            "deferred": sorted(tool.name for tool in known if tool.deferred),
        }
    if callers := {tool.name: sorted(tool.callers) for tool in known if tool.callers}:
        documents["allowedCallers"] = {"tools": callers}
    if examples := {tool.name: [carried(one) for one in tool.examples] for tool in known if tool.examples}:
        documents["toolExamples"] = {"tools": examples}
    kinds = {name: tool.kind for tool in known for name in (tool.name, *tool.aliases) if tool.kind != "function"}
    return Offer(documents, {name: digest(one) for name, one in documents.items()}, schemas, kinds)


def caller_kind(word: str) -> str:
    """Who calls, without the version: ``code_execution_20250825`` and ``programmatic`` are ``code_execution``."""
    return CODE_EXECUTION if word.startswith(CODE_EXECUTION) or word == "programmatic" else word
