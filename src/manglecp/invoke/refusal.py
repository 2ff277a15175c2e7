"""A gate that stays shut, as the one exception that whoever runs a chain has to know."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType

from manglecp.harness.classes import State
from manglecp.harness.errors import InvalidEvidence
from manglecp.harness.findings import Finding
from manglecp.harness.states import Blocked

__all__ = ["GateRefused", "refusing"]


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


class refusing:
    """Whatever the harness refuses on the way to a state. Every turn goes through several of these."""

    __slots__ = ("_state",)

    def __init__(self, state: State) -> None:
        self._state = state

    def __enter__(self) -> None:
        """Nothing is refused yet."""

    def __exit__(self, _: object, error: BaseException | None, __: TracebackType | None) -> None:
        if isinstance(error, Blocked):
            classes = sorted({finding.failure.name for finding in error.findings})
            raise GateRefused(error.state, classes, error.findings) from None
        if isinstance(error, InvalidEvidence):
            raise GateRefused(self._state, (), (), str(error)) from error
