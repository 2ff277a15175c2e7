"""The table of log formats, the format ``jsonl``, and the conversion of a log to one evidence document per turn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias

from manglecp.adapters.anthropic import AnthropicLog
from manglecp.adapters.mcp import McpLog
from manglecp.adapters.openai import OpenAILog
from manglecp.adapters.otel import OtelLog
from manglecp.adapters.policies import CONSTRAINTS, UNRECORDED, Binding, bind
from manglecp.adapters.records import LogError, LogLimits, another_format, read_records, require_object, text_or_number
from manglecp.adapters.turns import TurnAssembler, without_derived
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

    def __init__(self, binding: Binding, limits: LogLimits) -> None:
        self._binding = binding
        self._limits = limits
        self._turn_count = 0
        self._open_turns: dict[str, _OpenTurn] = {}
        self._emitted: set[str] = set()  # names of turns

    def read(self, value: JSON, line: int) -> Iterator[dict[str, Any]]:
        record = require_object(value)
        if "evidence" in record:
            self._turn_count += 1
            yield from self.finish()  # the turns that began before the document
            yield {**record, "turn": {"number": self._turn_count, "line": line}}
            return
        if "turn" not in record:
            raise another_format("neither a document with evidence nor a row of a turn", record)
        name = str(text_or_number(record, "turn"))
        turn = self._open_turns.get(name)
        if turn is None:
            if name in self._emitted:
                raise Fault("the turn was emitted already").inside("turn")
            self._turn_count += 1
            turn = self._open_turns[name] = _OpenTurn(name, self._turn_count, line)
        turn.add(record)
        while len(self._open_turns) > self._limits.horizon:
            yield self._pop_document()

    def finish(self) -> Iterator[dict[str, Any]]:
        while self._open_turns:
            yield self._pop_document()

    def _pop_document(self) -> dict[str, Any]:
        name = next(iter(self._open_turns))
        self._emitted.add(name)
        return self._open_turns.pop(name).document(self._binding)


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

    def document(self, binding: Binding) -> dict[str, Any]:
        recorded_spec = self._evidence.get("callSpec", {})
        self._evidence["callSpec"] = {**_SPEC_DEFAULTS, "callId": self._name, **binding.fields, **recorded_spec}
        # The constraints of the policy apply only to a call spec with the digests of the policy.
        is_other_policy = any(recorded_spec.get(name, value) != value for name, value in binding.fields.items())
        constraints = {**({} if is_other_policy else binding.constraints), **self._constraints}
        return {"turn": self._position, "evidence": self._evidence, **constraints}


Document: TypeAlias = dict[str, Any]

_READERS: Final[Mapping[str, Callable[[Binding, LogLimits], TurnAssembler | NeutralLog]]] = {
    "anthropic": lambda binding, limits: TurnAssembler(AnthropicLog(limits), binding, limits),
    "openai": lambda binding, limits: TurnAssembler(OpenAILog(limits), binding, limits),
    "mcp": lambda binding, limits: TurnAssembler(McpLog(), binding, limits),
    "otel": lambda binding, limits: TurnAssembler(OtelLog(limits), binding, limits),
    "jsonl": NeutralLog,
}
SOURCES: Final = tuple(_READERS)


def ingest(
    log: bytes | str | Iterable[bytes | str],
    source: str,
    policy: PolicyPackage | Mapping[str, Any] | None = None,
    *,
    pinned: str | None = None,
    strict: bool = False,
    limits: LogLimits | None = None,
) -> Iterator[Document]:
    """Yield the documents of the turns of a log, in order; each is an input of :func:`manglecp.harness.judge`.

    ``source`` is the log format, one of :data:`SOURCES`; ``policy`` is a package, or a mapping of CallSpec fields and
    constraint objects; ``pinned`` is the digest at which a package is pinned; ``strict`` omits derived content.
    Raises :class:`LogError` at a damaged record, after the turns before it.
    """
    if source not in _READERS:
        raise ValueError(f"{source!r} is not one of {', '.join(SOURCES)}")
    limits = limits or LogLimits()
    for document in _documents(log, _READERS[source](bind(policy, pinned), limits), limits):
        yield without_derived(document) if strict else document


def _documents(
    log: bytes | str | Iterable[bytes | str], reader: TurnAssembler | NeutralLog, limits: LogLimits
) -> Iterator[Document]:
    damage: LogError | None = None
    line = 1
    try:
        for line, value in read_records(log, limits):
            yield from reader.read(value, line)
    except LogError as error:
        damage = error
    except Fault as fault:
        damage = LogError.at(line, fault)
    try:
        yield from reader.finish()
    except Fault as fault:  # report the first damage
        damage = damage or LogError.at(line, fault)
    if damage is not None:
        raise damage
