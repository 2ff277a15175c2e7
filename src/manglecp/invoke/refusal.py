"""A gate that stays shut, as the one exception that whoever runs a chain has to know."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from manglecp.harness import Blocked, Finding, InvalidEvidence, State

__all__ = ["REFUSED", "GateRefused", "refusal"]

REFUSED: Final = (Blocked, InvalidEvidence)
"""What the harness raises on the way to a state."""


class GateRefused(Exception):
    """The evidence does not carry the run on: which state it cannot reach, and the classes that keep it from it.

    Rows that contradict one another have no class: nothing follows from them, so ``classes`` is empty.
    """

    def __init__(self, state: State, classes: Sequence[str], findings: Sequence[Finding] = (), why: str = "") -> None:
        super().__init__(f"{state.title} cannot be reached: {', '.join(classes) or why}")
        self.state = state
        self.classes = tuple(classes)
        """Names of the harness, sorted, each once."""
        self.findings = tuple(findings)


def refusal(error: Blocked | InvalidEvidence, state: State) -> GateRefused:
    """Whatever the harness refused on the way to a state."""
    if isinstance(error, Blocked):
        classes = sorted({finding.failure.name for finding in error.findings})
        return GateRefused(error.state, classes, error.findings)
    return GateRefused(state, (), (), str(error))
