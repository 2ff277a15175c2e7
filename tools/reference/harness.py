"""The states of a turn, and the fail-closed classes that block each of them."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Final

from manglecp.harness import TurnState
from manglecp.harness.classes import CLASSES, RetryKind
from tools.reference.tables import table

__all__ = ["blocks"]

_RETRIES: Final = {RetryKind.EVIDENCE: "evidence", RetryKind.TURN: "turn", RetryKind.NEVER: "never"}

_TRIGGERS: Final = tomllib.loads(Path(__file__).with_name("failure_triggers.toml").read_text("utf-8"))
"""What raises each class."""


def blocks() -> dict[str, Callable[[], str]]:
    return {"states of a turn": lambda: f"```\n{_diagram()}```", "classes of a turn": _classes}


def _diagram() -> str:
    lines = []
    for state in TurnState:
        names = [one.name for one in CLASSES.values() if one.blocks is state]
        lines.append(state.title)
        lines += [f"  ✗ {name}" for name in names]
        if state is not TurnState.MUTATION_READY:
            lines.append("  ↓")
    return "\n".join(lines) + "\n"


def _classes() -> str:
    parts = []
    for state in TurnState:
        rows = [
            (f"`{one.name}`", _TRIGGERS[one.name], one.remedy, _RETRIES[one.retry])
            for one in CLASSES.values()
            if one.blocks is state
        ]
        if rows:
            parts += [f"## {state.title}\n", table(("class", "when", "what helps", "again"), rows)]
    return "\n".join(parts)
