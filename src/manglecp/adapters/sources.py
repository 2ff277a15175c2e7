"""The table of log formats, the format ``jsonl``, and the conversion of a log to one evidence document per turn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias

from manglecp.adapters import records
from manglecp.adapters.anthropic import AnthropicLog
from manglecp.adapters.mcp import McpLog
from manglecp.adapters.openai import OpenAILog
from manglecp.adapters.otel import OtelLog
from manglecp.adapters.policies import CONSTRAINTS, UNRECORDED, TurnPolicy, turn_policy_of
from manglecp.adapters.records import LogError, read_records, require_object, text_or_number, unexpected_value
from manglecp.adapters.turns import LogReader, TurnAssembler, without_derived
from manglecp.base.text import quote
from manglecp.harness import Evidence
from manglecp.harness.policy import PolicyPackage
from manglecp.wire import JSON, Fault

_OBJECT_MEMBERS: Final = frozenset(  # members of the evidence that are objects; the other members are lists of rows
    {"callSpec", "protocolState", "handoff", "decomposition", "compaction", "continuity", "mutation"}
)
_LIST_MEMBERS: Final = frozenset(Evidence.__struct_encode_fields__) - _OBJECT_MEMBERS
_SPEC_DEFAULTS: Final = {"modelRef": UNRECORDED, "actionMode": "json", "executionPattern": "single"}


class NeutralLog:
    """Reads the format ``jsonl``: a record is a whole document, or rows of evidence of the turn that it names.

    Documents are emitted in the order in which their turns began.
    """

    def __init__(self, turn_policy: TurnPolicy) -> None:
        self._turn_policy = turn_policy
        self._turn_count = 0
        self._open_turns: dict[str, _OpenTurn] = {}
        self._emitted_names: set[str] = set()  # the names of emitted turns

    def read(self, value: JSON, line: int) -> Iterator[dict[str, Any]]:
        record = require_object(value)
        if "evidence" in record:
            self._turn_count += 1
            yield from self.finish()  # emit the turns that began before the document
            yield {**record, "turn": {"number": self._turn_count, "line": line}}
            return
        if "turn" not in record:
            raise unexpected_value("neither a document with evidence nor a row of a turn", record)
        name = str(text_or_number(record, "turn"))
        turn = self._open_turns.get(name)
        if turn is None:
            if name in self._emitted_names:
                raise Fault("the turn was emitted already").inside("turn")
            self._turn_count += 1
            turn = self._open_turns[name] = _OpenTurn(name, self._turn_count, line)
        turn.add(record)
        while len(self._open_turns) > records.MAX_OPEN_TURNS:
            yield self._pop_document()

    def finish(self) -> Iterator[dict[str, Any]]:
        while self._open_turns:
            yield self._pop_document()

    def _pop_document(self) -> dict[str, Any]:
        name = next(iter(self._open_turns))
        self._emitted_names.add(name)
        return self._open_turns.pop(name).document(self._turn_policy)


class _OpenTurn:
    def __init__(self, name: str, number: int, line: int) -> None:
        self._name = name
        self._position = {"number": number, "line": line}
        self._evidence: dict[str, Any] = {}
        self._constraints: dict[str, Any] = {}

    def add(self, record: dict[str, Any]) -> None:
        for member, value in record.items():
            if member == "turn":
                continue
            if member in _LIST_MEMBERS:
                self._evidence.setdefault(member, []).extend(value if type(value) is list else [value])
                continue
            if member not in _OBJECT_MEMBERS and member not in CONSTRAINTS:
                raise Fault(f"{quote(member)} is not a member of the evidence").inside(member)
            objects = self._evidence if member in _OBJECT_MEMBERS else self._constraints
            if objects.setdefault(member, require_object(value, member)) != value:
                raise Fault("differs from an earlier row of the turn").inside(member)

    def document(self, turn_policy: TurnPolicy) -> dict[str, Any]:
        recorded_spec = self._evidence.get("callSpec", {})
        self._evidence["callSpec"] = {**_SPEC_DEFAULTS, "callId": self._name, **turn_policy.fields, **recorded_spec}
        # The constraints of the policy apply only to a call spec with the digests of the policy.
        is_other_policy = any(recorded_spec.get(name, value) != value for name, value in turn_policy.fields.items())
        constraints = {**({} if is_other_policy else turn_policy.constraints), **self._constraints}
        return {"turn": self._position, "evidence": self._evidence, **constraints}


Document: TypeAlias = dict[str, Any]

_PROVIDER_LOGS: Final[Mapping[str, Callable[[], LogReader]]] = {
    "anthropic": AnthropicLog,
    "openai": OpenAILog,
    "mcp": McpLog,
    "otel": OtelLog,
}
_NEUTRAL: Final = "jsonl"
SOURCES: Final = (*_PROVIDER_LOGS, _NEUTRAL)


def ingest(
    log: bytes | str | Iterable[bytes | str],
    source: str,
    policy: PolicyPackage | Mapping[str, Any] | None = None,
    *,
    pinned: str | None = None,
    strict: bool = False,
) -> Iterator[Document]:
    """Yield the documents of the turns of a log, in order; each is an input of :func:`manglecp.harness.judge`.

    ``source`` is the log format, one of :data:`SOURCES`; ``policy`` is a package, or a mapping of CallSpec fields and
    constraint objects; ``pinned`` is the digest of the pinned package; ``strict`` omits derived content.
    Raises :class:`LogError` at a damaged record, after the turns before it.
    """
    if source not in SOURCES:
        raise ValueError(f"{source!r} is not one of {', '.join(SOURCES)}")
    turn_policy = turn_policy_of(policy, pinned)
    is_neutral = source == _NEUTRAL
    reader = NeutralLog(turn_policy) if is_neutral else TurnAssembler(_PROVIDER_LOGS[source](), turn_policy)
    for document in _documents(log, reader):
        yield without_derived(document) if strict else document


def _documents(log: bytes | str | Iterable[bytes | str], reader: TurnAssembler | NeutralLog) -> Iterator[Document]:
    damage: LogError | None = None
    line = 1
    try:
        for line, value in read_records(log):
            yield from reader.read(value, line)
    except LogError as error:
        damage = error
    except Fault as fault:
        damage = LogError.at(line, fault)
    try:
        yield from reader.finish()
    except Fault as fault:  # raised only if there was no earlier damage
        damage = damage or LogError.at(line, fault)
    if damage is not None:
        raise damage
