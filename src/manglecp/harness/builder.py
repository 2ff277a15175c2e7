"""The evidence of a turn under way, as typed values.

Every row is read once, when it comes, and appended to the typed rows of its list. The call spec and what stands beside
the evidence are read when the turn is opened. :func:`.turn.read_turn` of the whole document gives the same turn.

The caller may change later what it passes. So a copy is kept, by way of its JSON, and the copy is read. A value that
differs from its copy (a tuple, a number that JSON lacks) or that cannot be read is read once more as a part of the
whole document: what that refuses is refused, with the path to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from manglecp.harness.constraints import Constraints
from manglecp.harness.errors import InvalidEvidence
from manglecp.harness.evidence import Evidence, RowList
from manglecp.harness.reading import LIMITS, a_text, members_of
from manglecp.harness.turn import Turn, TurnContext, read_turn, schema_verdicts

__all__ = ["TurnBuilder"]

_CALL_SPEC: Final = "callSpec"
_REQUESTS: Final = "toolRequests"
_OF_EVIDENCE: Final = {name: how for name, how in members_of(Evidence).items() if name != _CALL_SPEC}
_OF_CONSTRAINTS: Final = members_of(Constraints)
_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder().decode
_UNREADABLE: Final = (ValueError, TypeError, AttributeError, RecursionError)
"""What reading raises for values of the wrong shape. InvalidEvidence is a ValueError."""


class TurnBuilder:
    """A turn so far. Immutable: every method returns another builder."""

    __slots__ = ("_numbered", "_raw", "_raw_context", "_verdicts", "context", "evidence")

    def __init__(
        self,
        context: TurnContext,
        evidence: Evidence,
        raw_context: Mapping[str, Any],
        raw: Mapping[str, Any],
        numbered: Mapping[str, list[tuple[int, Any]]],
        verdicts: Mapping[str, bool],
    ) -> None:
        """``raw_context`` and ``raw`` are the documents as they came; ``numbered`` the rows in the same order."""
        self.context = context
        self.evidence = evidence
        self._raw_context = raw_context
        self._raw = raw
        self._numbered = numbered
        self._verdicts = verdicts

    @classmethod
    def open(cls, call_spec: Mapping[str, Any], constraints: Mapping[str, Any]) -> TurnBuilder:
        """A turn in which nothing has happened; :class:`.InvalidEvidence` if it cannot be read."""
        whole = {name: value for name, value in constraints.items() if value is not None}
        whole["evidence"] = {_CALL_SPEC: dict(call_spec)}
        try:
            copy = _decode(_encode(whole))
        except _UNREADABLE:
            copy = None
        if copy != whole:
            read_turn(whole, under_way=True)
            copy = _copied(whole)
        turn = read_turn(copy, under_way=True)
        raw = copy.pop("evidence")
        return cls(turn.context, turn.evidence, copy, raw, {}, {})

    def with_call_id(self, call_id: str) -> TurnBuilder:
        """The same turn, in which nothing has happened yet, under another call id."""
        name = a_text(call_id, LIMITS)
        if name is None or len(self._raw) != 1:
            raise InvalidEvidence("/evidence/callSpec/callId", "is blank, or the turn has begun")
        raw = {_CALL_SPEC: {**self._raw[_CALL_SPEC], "callId": call_id}}
        call = msgspec.structs.replace(self.evidence.call_spec, call_id=name)
        return TurnBuilder(self.context, Evidence(call), self._raw_context, raw, {}, {})

    def with_evidence(self, more: Mapping[str, Any]) -> TurnBuilder:
        """With more evidence. Rows come after those of their list; what is no list replaces what was there."""
        more = {name: value for name, value in more.items() if value is not None}
        try:
            copy = _decode(_encode(more))
            if copy == more:
                return self._with(copy)
        except _UNREADABLE:
            pass
        whole = self.document
        for name, value in more.items():
            whole["evidence"][name] = _joined(whole["evidence"].get(name), value)
        read_turn(whole, under_way=True)
        return self._with(_copied(more))

    def with_constraints(self, constraints: Mapping[str, Any]) -> TurnBuilder:
        """With other constraints beside the evidence, in addition or instead. Policy documents stay what they are."""
        raw = {**self._raw_context, **constraints}
        try:
            copy = _decode(_encode(constraints))
            if copy != constraints or None in copy.values() or not copy.keys() <= _OF_CONSTRAINTS.keys():
                raise ValueError
            fields = {_OF_CONSTRAINTS[name][0]: _OF_CONSTRAINTS[name][1](copy[name], LIMITS) for name in copy}
        except _UNREADABLE:
            opened = TurnBuilder.open(self._raw[_CALL_SPEC], raw)
            context, raw = opened.context, dict(opened._raw_context)
        else:
            before, raw = self.context, {**self._raw_context, **copy}
            changed = msgspec.structs.replace(before.constraints, **fields)
            call = self.evidence.call_spec
            context = TurnContext(call, changed, before.documents, compared=before.compared)
        return TurnBuilder(context, self.evidence, raw, self._raw, self._numbered, self._verdicts)

    @property
    def document(self) -> dict[str, Any]:
        """All of it, in the shape that :func:`.judging.judge` takes; a copy."""
        whole: dict[str, Any] = _decode(_encode({**self._raw_context, "evidence": self._raw}))
        return whole

    @property
    def turn(self) -> Turn:
        """As it is judged."""
        return Turn(self.evidence, self.context, self._verdicts)

    def constraint(self, name: str) -> Any:
        """An object beside the evidence, as it came; None if there is none."""
        return self._raw_context.get(name)

    def member(self, name: str) -> Any:
        """A member of the evidence, as it came; None if there is none. To be read only."""
        return self._raw.get(name)

    def _with(self, more: dict[str, Any]) -> TurnBuilder:
        raw, numbered, fields = dict(self._raw), dict(self._numbered), {}
        for name, value in more.items():
            if name == _CALL_SPEC:
                raise InvalidEvidence("/evidence/callSpec", "a turn keeps the one that it was opened with")
            before = raw.get(name)
            raw[name] = _joined(before, value)
            if name not in _OF_EVIDENCE:
                continue
            field, read = _OF_EVIDENCE[name]
            if isinstance(read, RowList):
                known = len(before) if isinstance(before, list) else 0
                numbered[name] = [*numbered.get(name, ()), *read.numbered(raw[name], LIMITS, known)]
                fields[field] = read.arrange(numbered[name])
            elif (found := read(raw[name], LIMITS)) is not None:
                fields[field] = found
        evidence = msgspec.structs.replace(self.evidence, **fields)
        verdicts = self._verdicts
        if any(row is not None and row.get("input") is not None for row in more.get(_REQUESTS, ())):
            verdicts = schema_verdicts(raw, evidence)
        return TurnBuilder(self.context, evidence, self._raw_context, raw, numbered, verdicts)


def _joined(before: Any, value: Any) -> Any:
    """A list goes on; anything else is replaced."""
    if isinstance(before, list) and isinstance(value, Sequence) and not isinstance(value, str):
        return [*before, *value]
    return value


def _copied(value: Any) -> Any:
    try:
        return _decode(_encode(value))
    except UnicodeEncodeError:
        raise InvalidEvidence("", "a surrogate stands alone in a text") from None
