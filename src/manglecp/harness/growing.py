"""The evidence of a turn under way: every row is read once, when it comes.

A turn is judged at each of its steps, over everything so far. To read everything so far again each time is plain, and
:func:`.turn.read_turn` does it. Here a step reads its own rows and keeps them typed beside those that were read before.
What stands beside the evidence is the same for many turns: call spec, constraints and policy documents are recognised
by their bytes, and what was read and digested of such bytes is read and digested. Both ways lead to the same turn.

What is given belongs to somebody else, who may change it later. So a copy is kept, by way of its JSON, and the copy is
what is read. Where the copy is not equal to what was given (a tuple, a number that JSON does not have), the plain way
is gone first: what it refuses is refused. It also is the one to say what is wrong with what cannot be read.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from functools import lru_cache
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import msgspec

from manglecp.harness.call_spec import CallSpec
from manglecp.harness.canonical_v1 import digest_v1 as digest
from manglecp.harness.constraints import Constraints
from manglecp.harness.documents import DOCUMENTS, Documents, read_document, supplied
from manglecp.harness.errors import InvalidEvidence
from manglecp.harness.evidence import Evidence, RowList
from manglecp.harness.reading import LIMITS, Record, a_text, members_of, reader_of
from manglecp.harness.rows import ToolRequest
from manglecp.harness.terms import Terms
from manglecp.harness.turn import Beside, Turn, read_turn, schema_verdicts

if TYPE_CHECKING:
    from functools import _lru_cache_wrapper

__all__ = ["Growing"]

_CALL_SPEC: Final = "callSpec"
_CALL_ID: Final = "callId"
_REQUESTS: Final = "toolRequests"
_DOCUMENTS: Final = "policyDocuments"
_DECISIONS: Final = "guardrailDecisions"
_OF_EVIDENCE: Final = {name: how for name, how in members_of(Evidence).items() if name != _CALL_SPEC}
_OTHERS: Final = tuple(name for name in Evidence.__struct_fields__ if name not in ("tool_requests", "decomposition"))
"""What a check of a request by itself may look at, beside the request: not how work is divided."""
_OF_CONSTRAINTS: Final = members_of(Constraints)
_UNCONSTRAINED: Final = Constraints()
_read_call: Final = reader_of(CallSpec)
_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder().decode
_LARGEST: Final = 65_536
"""Bytes of what is recognised. Who sends more pays for the reading, and not with our memory."""
_KEPT: Final = 512
_KEPT_BESIDES: Final = 64
R = TypeVar("R", bound=Record)


class Growing:
    """A turn so far. It does not change: :meth:`grown` and :meth:`under` make another one."""

    __slots__ = ("_beside", "_numbered", "_raw", "_verdicts", "evidence")

    def __init__(
        self,
        beside: _Beside,
        raw: Mapping[str, Any],
        numbered: Mapping[str, list[tuple[int, Any]]],
        evidence: Evidence,
        verdicts: Mapping[str, bool],
    ) -> None:
        self._beside = beside
        self._raw = raw
        """The members of the evidence as they came, copied."""
        self._numbered = numbered
        """The rows that were read of each list, in the order that they came in."""
        self._verdicts = verdicts
        self.evidence = evidence

    @classmethod
    def opened(cls, call_spec: Mapping[str, Any], constraints: Mapping[str, Any]) -> Growing:
        """A turn of which nothing has happened yet; :class:`.InvalidEvidence` if it cannot be read."""
        try:
            return cls._opened(call_spec, constraints)
        except _UNCLEAR:
            whole = {**constraints, "evidence": {"callSpec": dict(call_spec)}}
            read_turn(whole, under_way=True)
            copy = _copied(whole)
            return cls._opened(copy.pop("evidence")["callSpec"], copy)

    @classmethod
    def _opened(cls, call_spec: Mapping[str, Any], constraints: Mapping[str, Any]) -> Growing:
        spec, call = _call_of(dict(call_spec))
        return cls(_Beside.of(call, constraints), {"callSpec": spec}, {}, Evidence(call), {})

    def called(self, call_id: str) -> Growing:
        """The same turn, of which nothing has happened yet, under another id of its call."""
        name = a_text(call_id, LIMITS)
        if name is None or len(self._raw) != 1:
            raise InvalidEvidence("/evidence/callSpec/callId", "is blank, or the turn has begun")
        raw = {"callSpec": {**self._raw["callSpec"], _CALL_ID: name}}
        evidence = Evidence(_changed(self.evidence.call_spec, {"call_id": name}))
        return Growing(self._beside, raw, {}, evidence, {})

    @property
    def document(self) -> dict[str, Any]:
        """All of it, in the shape that :func:`.judging.judge` takes; a copy."""
        whole: dict[str, Any] = _decode(_encode({**self._beside.raw, "evidence": self._raw}))
        return whole

    @property
    def written(self) -> list[bytes]:
        """All that there is for texts to be compared with, as it came and as it was read."""
        given, read = self._beside.raw, self._beside.read
        return [_encode(one) for one in (given, read.constraints, read.documents, self._raw, self.evidence)]

    def beside(self, name: str) -> Any:
        """An object beside the evidence, as it came; None if there is none."""
        return self._beside.raw.get(name)

    @property
    def turn(self) -> Turn:
        """As it is judged."""
        return self._turn(None)

    def since(self, before: Growing) -> Turn:
        """As it is judged by who found nothing in ``before``, of which this was grown, up to the state of requests.

        Where nothing but requests came in addition, what is asked of each request by itself need not be asked again.
        """
        old, new = before.evidence, self.evidence
        if self._beside is not before._beside or any(getattr(old, name) is not getattr(new, name) for name in _OTHERS):
            return self.turn
        known = len(before._numbered.get(_REQUESTS, ()))
        return self._turn(tuple(row for _, row in self._numbered.get(_REQUESTS, ())[known:]))

    def _turn(self, fresh_requests: tuple[ToolRequest, ...] | None) -> Turn:
        beside = self._beside
        return Turn(
            self.evidence,
            beside.read.constraints,
            beside.read.documents,
            self._verdicts,
            LIMITS,
            beside.compared,
            beside.terms,
            fresh_requests,
            beside.read,
        )

    def grown(self, more: Mapping[str, Any]) -> Growing:
        """With more evidence. Rows come after those of their list; what is no list replaces what was there."""
        more = {name: value for name, value in more.items() if value is not None}
        try:
            copy = _decode(_encode(more))
            if copy != more:
                raise _Odd
            return self._grown(copy)
        except _UNCLEAR:
            read_turn(self._whole(more), under_way=True)
            return self._grown(_copied(more))

    def under(self, constraints: Mapping[str, Any]) -> Growing:
        """With other objects beside the evidence, in addition or instead."""
        raw = {**self._beside.raw, **constraints}
        try:
            beside = _Beside.of(self.evidence.call_spec, raw)
        except _UNCLEAR:
            whole = {**raw, "evidence": self.document["evidence"]}
            read_turn(whole, under_way=True)
            beside = _Beside.of(self.evidence.call_spec, _copied(raw))
        return Growing(beside, self._raw, self._numbered, self.evidence, self._verdicts)

    def _whole(self, more: Mapping[str, Any]) -> dict[str, Any]:
        document = self.document
        known = document["evidence"]
        for name, value in more.items():
            known[name] = _joined(known.get(name), value)
        return document

    def _grown(self, more: dict[str, Any]) -> Growing:
        raw, numbered, fields = dict(self._raw), dict(self._numbered), {}
        for name, value in more.items():
            if name == _CALL_SPEC:
                raise InvalidEvidence("/evidence/callSpec", "a turn keeps the one that it was opened with")
            before = raw.get(name)
            raw[name] = _joined(before, value)
            if name not in _OF_EVIDENCE:
                continue
            field, read = _OF_EVIDENCE[name]
            if name == _DECISIONS and before is None:
                raw[name], (numbered[name], fields[field]) = _recognised(_decisions, name, value)
            elif isinstance(read, RowList):
                known = len(before) if isinstance(before, list) else 0
                numbered[name] = [*numbered.get(name, ()), *read.numbered(raw[name], LIMITS, known)]
                fields[field] = read.arrange(numbered[name])
            elif (found := read(raw[name], LIMITS)) is not None:
                fields[field] = found
        evidence = _changed(self.evidence, fields)
        verdicts = self._verdicts
        if any(row is not None and row.get("input") is not None for row in more.get(_REQUESTS, ())):
            verdicts = schema_verdicts(raw, evidence)
        return Growing(self._beside, raw, numbered, evidence, verdicts)


class _Beside(NamedTuple):
    """What stands beside the evidence: as it came, copied, and as it was read."""

    raw: dict[str, Any]
    read: Beside
    compared: Documents
    terms: dict[bool, Terms]
    """What follows from the constraints and the documents, by whether the turn hands over."""

    @classmethod
    def of(cls, call: CallSpec, given: Mapping[str, Any]) -> _Beside:
        """The same as read before, if it is the same: turns under the same terms have it in common."""
        there = {name: value for name, value in given.items() if value is not None}
        key = _encode([_changed(call, {"call_id": _CALL_ID}), there])
        known = _besides.get(key)
        if known is None:
            known = cls.of_new(call, there)
            if len(key) <= _LARGEST:
                _besides.put(key, known)
        elif known.raw != there:
            raise _Odd
        return known

    @classmethod
    def of_new(cls, call: CallSpec, given: Mapping[str, Any]) -> _Beside:
        raw: dict[str, Any] = {}
        fields: dict[str, Any] = {}
        documents: dict[str, _Known] = {}
        for name, value in given.items():
            if name == _DOCUMENTS:
                documents = {
                    kind: _recognised(_document, kind, found) for kind, found in value.items() if found is not None
                }
                raw[name] = {kind: known.raw for kind, known in documents.items()}
            elif name in _OF_CONSTRAINTS:
                raw[name], fields[_OF_CONSTRAINTS[name][0]] = _recognised(_constraint, name, value)
            else:
                raw[name] = _copied(value)
        digests = {kind: known.read for kind, known in documents.items()}
        compared = Documents(digests, call, lambda kind: _recognised(_supplied, kind, documents[kind].raw).read)
        return cls(raw, Beside(_changed(_UNCONSTRAINED, fields), raw.get(_DOCUMENTS, {})), compared, {})


class _Newest:
    """Some of what was read, by the bytes that it was read of: what came last stays. Any thread may ask."""

    __slots__ = ("_known", "_lock")

    def __init__(self) -> None:
        self._known: OrderedDict[bytes, _Beside] = OrderedDict()
        self._lock = Lock()

    def get(self, key: bytes) -> _Beside | None:
        with self._lock:
            found = self._known.get(key)
            if found is not None:
                self._known.move_to_end(key)
            return found

    def put(self, key: bytes, beside: _Beside) -> None:
        with self._lock:
            self._known[key] = beside
            if len(self._known) > _KEPT_BESIDES:
                self._known.popitem(last=False)


_besides: Final = _Newest()


class _Odd(ValueError):
    """What was given is not what its JSON says."""


_UNCLEAR: Final = (ValueError, TypeError, AttributeError, RecursionError)
"""Of what cannot be read, the plain way knows best what is wrong: InvalidEvidence is among these, too."""


# --- what is recognised by its bytes -----------------------------------------------------------------------------


class _Known(NamedTuple):
    """Of some bytes: the value that they stand for, and what was read of it. Neither is ever changed."""

    raw: Any
    read: Any


def _recognised(read: _lru_cache_wrapper[_Known], name: str, value: Any) -> _Known:
    """What is read of a value, which may have been read before."""
    encoded = _encode(value)
    known: _Known = (read if len(encoded) <= _LARGEST else read.__wrapped__)(name, encoded)
    if known.raw != value:
        raise _Odd
    return known


@lru_cache(_KEPT)
def _constraint(name: str, encoded: bytes) -> _Known:
    raw = _decode(encoded)
    return _Known(raw, _OF_CONSTRAINTS[name][1](raw, LIMITS))


@lru_cache(_KEPT)
def _document(name: str, encoded: bytes) -> _Known:
    """A policy document and its digest."""
    if name not in DOCUMENTS:
        raise _Odd
    raw = _decode(encoded)
    return _Known(raw, digest(read_document(name, raw, LIMITS)))


@lru_cache(_KEPT)
def _supplied(name: str, encoded: bytes) -> _Known:
    """A policy document that is the one of its turn, and what it supplies."""
    raw = _decode(encoded)
    return _Known(raw, supplied(name, raw, LIMITS))


@lru_cache(_KEPT)
def _decisions(name: str, encoded: bytes) -> _Known:
    """Decisions of guardrails: those of turns where nothing is wrong are the same. As they came, and in order."""
    raw, read = _decode(encoded), _OF_EVIDENCE[name][1]
    assert isinstance(read, RowList)
    numbered = read.numbered(raw, LIMITS)
    return _Known(raw, (numbered, read.arrange(numbered)))


@lru_cache(_KEPT)
def _call(_: str, encoded: bytes) -> _Known:
    """A call spec without the id of its call: turns under the same terms differ in nothing else."""
    raw = _decode(encoded)
    return _Known(raw, _read_call({**raw, _CALL_ID: _CALL_ID}, LIMITS))


def _call_of(call_spec: dict[str, Any]) -> tuple[dict[str, Any], CallSpec]:
    """The call spec, as it came and as it was read."""
    name = a_text(call_spec.pop(_CALL_ID, None), LIMITS)
    if name is None:
        raise _Odd
    known = _recognised(_call, _CALL_ID, call_spec)
    return {_CALL_ID: name, **known.raw}, _changed(known.read, {"call_id": name})


def _changed(record: R, fields: dict[str, Any]) -> R:
    return msgspec.structs.replace(record, **fields) if fields else record


def _joined(before: Any, value: Any) -> Any:
    """A list goes on; anything else is replaced."""
    return (
        [*before, *value]
        if isinstance(before, list) and isinstance(value, Sequence) and not isinstance(value, str)
        else value
    )


def _copied(value: Any) -> Any:
    try:
        return _decode(_encode(value))
    except UnicodeEncodeError:
        raise InvalidEvidence("", "a surrogate stands alone in a text") from None
