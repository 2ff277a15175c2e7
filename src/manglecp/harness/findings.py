"""Findings: a class, the row that raised it, and words for people.

The id of a finding depends on its class, its place and the turn, never on its words; so it stays the same when a
message is improved.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from manglecp.harness.canonical_v1 import canonical
from manglecp.harness.classes import FailClass

__all__ = ["Finding", "ordered", "place"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One reason why a turn cannot go on."""

    failure: FailClass
    where: str
    """Where the evidence does not carry: ``toolUse/g1``, ``protocolState``, ``governanceProfile/evalGate``."""
    message: str
    call_id: str = ""
    join_digest: str | None = None

    @property
    def law(self) -> str:
        """The section of the specification that is not met: each state has its own."""
        return f"HARNESS-TYPESTATE-4.{self.failure.blocks + 1}"

    @property
    def id(self) -> str:
        """The same for the same class, law and row of the same turn, whatever the words."""
        key = {
            "schema": 1,
            "class": self.failure.name,
            "lawRef": self.law,
            "tokenPath": self.where,
            "context": {"callId": self.call_id, "joinSetDigest": self.join_digest},
        }
        hashed = base64.b32hexencode(hashlib.sha256(canonical(key)).digest())
        return f"w1_{hashed.decode().rstrip('=').lower()}"

    def as_json(self) -> dict[str, Any]:
        """As it stands in the JSON of a judgement, with the remedy of its class."""
        return {
            "id": self.id,
            "class": self.failure.name,
            "lawRef": self.law,
            "where": self.where,
            "message": self.message,
            "remedy": self.failure.remedy,
            "retry": self.failure.retry.value,
            "blocks": self.failure.blocks.title,
        }


def place(rows: str, name: object) -> str:
    """A pointer to a row: the list and the id of the row in it."""
    step = str(name)
    if "~" in step or "/" in step:
        step = step.replace("~", "~0").replace("/", "~1")
    return f"{rows}/{step}"


def ordered(findings: Iterable[Finding], call_id: str, join_digest: str | None) -> tuple[Finding, ...]:
    """Each class once per place, in an order that does not depend on who found it first."""
    messages: dict[tuple[str, str], dict[str, None]] = {}
    first: dict[tuple[str, str], Finding] = {}
    for finding in findings:
        key = (finding.failure.name, finding.where)
        first.setdefault(key, finding)
        messages.setdefault(key, {})[finding.message] = None
    return tuple(
        replace(first[key], message="; ".join(sorted(messages[key])), call_id=call_id, join_digest=join_digest)
        for key in sorted(first)
    )
