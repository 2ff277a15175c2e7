"""Policy documents: is each the one that the call spec names?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from manglecp.harness.documents import DOCUMENTS
from manglecp.harness.findings import Finding, place
from manglecp.harness.turn import Turn

__all__ = ["CHECKS"]


def drift(turn: Turn) -> Iterator[Finding]:
    """A document that differs, or that no digest names, raises the class of its kind."""
    for name in turn.drifted:
        yield Finding(DOCUMENTS[name].drift, place("policyDocuments", name), "is not the document of the call spec")


CHECKS: Final = (drift,)
