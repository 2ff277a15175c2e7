"""The neutral log: documents as they are, or rows that make documents.

A record is one of

* a document: an object with ``evidence``, which is passed on as it is;
* rows of a turn: ``turn``, its name, and members of the evidence or constraint objects. Where the evidence has a list,
  one row or a list of them; rows of a turn add up, and need not stand together.

Nothing is derived. CallSpec fields that no row gives are those of the policy, and ``callId`` is the name of the turn.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from manglecp.adapters.fields import entry
from manglecp.adapters.limits import LogLimits
from manglecp.adapters.policies import CONSTRAINTS, UNRECORDED, Binding
from manglecp.base.text import quote
from manglecp.wire import JSON, Fault

__all__ = ["NeutralLog"]

_LISTS: Final = frozenset(
    {
        "toolRequests",
        "toolResults",
        "toolUse",
        "toolRender",
        "reminderQueue",
        "stateViews",
        "guardrailDecisions",
        "artifacts",
        "branchJoins",
        "contextAccess",
        "traceExports",
        "sessionRefs",
        "trajectoryRefs",
    }
)
_OBJECTS: Final = frozenset(
    {"callSpec", "protocolState", "handoff", "decomposition", "compaction", "continuity", "mutation"}
)
_DEFAULTS: Final = {"modelRef": UNRECORDED, "actionMode": "json", "executionPattern": "single"}


class NeutralLog:
    """Reads records in their order and gives documents in the order in which their turns began."""

    def __init__(self, binding: Binding, limits: LogLimits) -> None:
        self._binding = binding
        self._limits = limits
        self._number = 0
        self._open: dict[str, _Turn] = {}
        self._given: set[str] = set()

    def read(self, value: JSON, line: int) -> Iterator[dict[str, Any]]:
        record = entry(value)
        if "evidence" in record:
            self._number += 1
            # A document stands between rows: those in front of it come first.
            yield from self.finish()
            yield {**record, "turn": {"number": self._number, "line": line}}
            return
        name = _name(record)
        turn = self._open.get(name)
        if turn is None:
            if name in self._given:
                raise Fault("the turn is over").inside("turn")
            self._number += 1
            turn = self._open[name] = _Turn(name, self._number, line)
        turn.add(record)
        while len(self._open) > self._limits.horizon:
            yield self._give()

    def finish(self) -> Iterator[dict[str, Any]]:
        while self._open:
            yield self._give()

    def _give(self) -> dict[str, Any]:
        name = next(iter(self._open))
        self._given.add(name)
        return self._open.pop(name).document(self._binding)


class _Turn:
    """The rows of a turn, as far as they have come."""

    def __init__(self, name: str, number: int, line: int) -> None:
        self._name = name
        self._place = {"number": number, "line": line}
        self._evidence: dict[str, Any] = {}
        self._constraints: dict[str, Any] = {}

    def add(self, record: dict[str, Any]) -> None:
        for member, value in record.items():
            if member == "turn":
                continue
            if member in _LISTS:
                self._evidence.setdefault(member, []).extend(value if type(value) is list else [value])
                continue
            if member not in _OBJECTS and member not in CONSTRAINTS:
                raise Fault(f"{quote(member)} is no row of the evidence").inside(member)
            held = self._evidence if member in _OBJECTS else self._constraints
            if held.setdefault(member, entry(value, member)) != value:
                raise Fault("the turn has another one already").inside(member)

    def document(self, binding: Binding) -> dict[str, Any]:
        own = self._evidence.get("callSpec", {})
        self._evidence["callSpec"] = {**_DEFAULTS, "callId": self._name, **binding.fields, **own}
        # Constraints of the policy, above all its documents, speak of its own digests.
        bound = any(own.get(name, value) != value for name, value in binding.fields.items())
        constraints = {**({} if bound else binding.constraints), **self._constraints}
        return {"turn": self._place, "evidence": self._evidence, **constraints}


def _name(record: dict[str, Any]) -> str:
    name = record.get("turn")
    if type(name) is int or (type(name) is str and name.strip()):
        return str(name)
    raise Fault("the turn of a row is a text or a whole number").inside("turn")
