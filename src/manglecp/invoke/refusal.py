"""A gate that stays shut, as the one exception that whoever runs a chain has to know."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

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


@contextmanager
def refusing(state: State) -> Iterator[None]:
    """Whatever the harness refuses on the way to a state."""
    try:
        yield
    except Blocked as blocked:
        classes = sorted({finding.failure.name for finding in blocked.findings})
        raise GateRefused(blocked.state, classes, blocked.findings) from None
    except InvalidEvidence as bad:
        raise GateRefused(state, (), (), str(bad)) from bad
