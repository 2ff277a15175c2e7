"""The actions of a pack, as the host of ``actions.py`` lists them."""

from __future__ import annotations

from typing import Any, Final

from manglecp.pack.diagnostics import Problems
from manglecp.pack.listed import Listed, tools_of
from manglecp.pack.model import ActionDescription

__all__ = ["read_actions"]

_DANGEROUS: Final = 3
_LONGEST_TIMEOUT: Final = 86_400.0


def read_actions(document: dict[str, Any], file: str, problems: Problems) -> dict[str, ActionDescription]:
    """By name, in the order of their ids."""
    actions = {}
    for tool in tools_of(document, file, problems):
        if tool.member("external") is not None:
            tool.complain("an external predicate belongs in externals.py", "move it there")
        if tool.member("generator") is not None:
            tool.complain("a generator of facts belongs in facts.py", "move it there")
        description = _action(tool)
        if tool.sound:
            actions[tool.name] = description
    return actions


def _action(tool: Listed) -> ActionDescription:
    inputs = tool.schema("inputs_schema")
    if inputs and not (inputs.get("type") == "object" and isinstance(inputs.get("properties", {}), dict)):
        tool.complain("its inputs_schema describes no object")
    capabilities = tool.member("capabilities")
    return ActionDescription(
        name=tool.name,
        aid=tool.aid,
        description=tool.description(),
        input_schema=inputs,
        output_schema=tool.schema("outputs_schema"),
        effects=tool.texts(tool.member("side_effects"), "effects") or ("none",),
        tier=_tier(tool.member("tier")),
        mutates=tool.flag("mutates", True),
        reversible=tool.flag("reversible", False),
        idempotent=tool.flag("idempotent", False),
        timeout=_timeout(tool.member("timeout")),
        spawn=tool.texts(capabilities.get("spawn", []) if isinstance(capabilities, dict) else [], "programs"),
    )


def _tier(value: object) -> int:
    return value if type(value) is int and 0 <= value <= _DANGEROUS else _DANGEROUS


def _timeout(value: Any) -> float | None:
    return float(value) if type(value) in (int, float) and 0 < value <= _LONGEST_TIMEOUT else None
