"""A log in, one document per turn out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Protocol, TypeAlias

from manglecp.adapters.anthropic import AnthropicLog
from manglecp.adapters.conversation import Event
from manglecp.adapters.evidence import underived
from manglecp.adapters.jsonl import NeutralLog
from manglecp.adapters.limits import LogLimits
from manglecp.adapters.mcp import McpLog
from manglecp.adapters.openai import OpenAILog
from manglecp.adapters.policies import Binding, bind
from manglecp.adapters.records import LogError, records
from manglecp.adapters.turns import Turns
from manglecp.harness.policy import PolicyPackage
from manglecp.wire import JSON, Fault

__all__ = ["SOURCES", "ingest"]

Document: TypeAlias = dict[str, Any]


class _Adapter(Protocol):
    """Makes events of the records of a provider."""

    def read(self, value: JSON, line: int) -> Iterator[Event]:
        """The events of a record, or a :class:`Fault` with the way to what is wrong with it."""

    def finish(self) -> Iterator[Event]:
        """The events that were waiting for more."""


class _Reader(Protocol):
    """Makes documents of records."""

    def read(self, value: JSON, line: int) -> Iterator[Document]: ...

    def finish(self) -> Iterator[Document]: ...


class _Conversations:
    """Records to events to turns."""

    def __init__(self, adapter: _Adapter, binding: Binding, limits: LogLimits) -> None:
        self._adapter = adapter
        self._turns = Turns(binding, limits)

    def read(self, value: JSON, line: int) -> Iterator[Document]:
        for event in self._adapter.read(value, line):
            yield from self._turns.take(event)

    def finish(self) -> Iterator[Document]:
        for event in self._adapter.finish():
            yield from self._turns.take(event)
        yield from self._turns.finish()


_READERS: Final[Mapping[str, Callable[[Binding, LogLimits], _Reader]]] = {
    "anthropic": lambda binding, limits: _Conversations(AnthropicLog(limits), binding, limits),
    "openai": lambda binding, limits: _Conversations(OpenAILog(limits), binding, limits),
    "mcp": lambda binding, limits: _Conversations(McpLog(), binding, limits),
    "jsonl": NeutralLog,
}
SOURCES: Final = tuple(_READERS)
"""Where a log may come from."""


def ingest(
    log: bytes | str | Iterable[bytes | str],
    source: str,
    policy: PolicyPackage | Mapping[str, Any] | None = None,
    *,
    pinned: str | None = None,
    strict: bool = False,
    limits: LogLimits | None = None,
) -> Iterator[Document]:
    """The documents of the turns of a log, in their order; each is what :func:`.judging.judge` takes.

    ``source`` is one of :data:`SOURCES`; ``policy`` is a package, or a mapping of CallSpec fields and constraint
    objects; ``pinned`` is the digest that a package is pinned at; ``strict`` leaves out everything that is derived. A
    damaged log gives the turns in front of the damage, and then a :class:`LogError`.
    """
    if source not in _READERS:
        raise ValueError(f"{source!r} is none of {', '.join(SOURCES)}")
    limits = limits or LogLimits()
    for document in _documents(log, _READERS[source](bind(policy, pinned), limits), limits):
        yield underived(document) if strict else document


def _documents(log: bytes | str | Iterable[bytes | str], reader: _Reader, limits: LogLimits) -> Iterator[Document]:
    damage: LogError | None = None
    line = 1
    try:
        for line, value in records(log, limits):
            yield from reader.read(value, line)
    except LogError as error:
        damage = error
    except Fault as fault:
        damage = LogError.at(line, fault)
    try:
        yield from reader.finish()
    except Fault as fault:  # what was waiting for more is damaged as well; what came first is reported
        damage = damage or LogError.at(line, fault)
    if damage is not None:
        raise damage
