"""The name by which a macro-tool is invoked: a digest of what it is (TOOL-02, OPEN-32).

What it is: the tool's name, the chain with its frozen values, order, compensation and result, the input schema as it is
shown, and the side effects. Not what varies without changing any of these: score, validity, descriptions, context. So
the same proof gives the same id in every process, and another composition can never be run under an old id. An id is
no secret and proves nothing about who holds it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from manglecp.base.json import canonical
from manglecp.intent.definition import Argument, Step, Undo

__all__ = ["macro_id"]


def macro_id(
    tool: str,
    steps: Sequence[Step],
    *,
    ordered: bool,
    results: Sequence[tuple[str, int, str]],
    input_schema: Mapping[str, Any],
    side_effects: Sequence[str],
) -> str:
    """``m-`` and the first 16 hexadecimal digits of SHA-256 over canonical JSON."""
    content = {
        "tool": tool,
        "steps": [_step(step) for step in steps],
        "ordered": ordered,
        "results": [list(result) for result in results],
        "input_schema": input_schema,
        "side_effects": sorted(side_effects),
    }
    return "m-" + hashlib.sha256(canonical(content)).hexdigest()[:16]


def _step(step: Step) -> dict[str, Any]:
    return {
        "number": step.number,
        "action": step.action,
        "arguments": _arguments(step.arguments),
        "after": sorted(step.after),
        "on_error": step.on_error,
        "undo": _undo(step.undo),
        **({} if step.lasting else {"lasting": False}),
    }


def _undo(undo: Undo | None) -> dict[str, Any] | None:
    return None if undo is None else {"action": undo.action, "arguments": _arguments(undo.arguments)}


def _arguments(arguments: Sequence[Argument]) -> dict[str, Any]:
    """By parameter: the order in which they were found means nothing."""
    return {one.param: [one.source, one.value, one.step] for one in arguments}
