"""What has to hold between the members of a message from a server, which no struct can say.

:mod:`manglecp.wire.json_schemas` says the same in its own words, and a test compares the two.
"""

from __future__ import annotations

from collections.abc import Iterator

from manglecp.wire.messages import IntentResponse, Manifest, ServerMessage
from manglecp.wire.messages.envelope import UNSET
from manglecp.wire.messages.tools import PRESENCE, MacroTool

__all__ = ["broken"]


def broken(message: ServerMessage) -> Iterator[tuple[str, str]]:
    """What does not hold: where, and what would."""
    if isinstance(message, Manifest):
        yield from _of_manifest(message)
    elif isinstance(message, IntentResponse):
        for place, tool in enumerate(message.payload.macro_tools):
            yield from _of_tool(tool, f"$.payload.macro_tools[{place}]")


def _of_manifest(message: Manifest) -> Iterator[tuple[str, str]]:
    payload = message.payload
    if "rfc3339" not in payload.facts_profile.time_formats:  # MANI-15
        yield "$.payload.facts_profile.time_formats", "rfc3339 is missing, which every server takes"
    if payload.auth.required and (payload.auth.schemes is UNSET or not payload.auth.schemes):  # MANI-26
        yield "$.payload.auth.schemes", "where authentication is required, its schemes are needed too"


def _of_tool(tool: MacroTool, path: str) -> Iterator[tuple[str, str]]:
    needed, banned = PRESENCE[tool.disclosure_level]
    for member in sorted(needed):
        if getattr(tool, member) is UNSET:
            yield f"{path}.{member}", f"{member} is missing, which a {tool.disclosure_level} tool has"
    for member in sorted(banned):
        if getattr(tool, member) is not UNSET:
            yield f"{path}.{member}", f"{member} is there, which a {tool.disclosure_level} tool does not have"
