"""The working facts of a client, which the deltas of invocations change.

A delta is applied as one transaction: every fact that a retraction matches is removed, then each new assertion is
appended. Two facts are equal if predicate, arguments and time are equal, whatever their ``source`` and ``category``.
In a retraction, null as an argument matches any value, but null inside an argument matches only null. If a retraction
has a time ``t``, the times must be equal.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import msgspec

from manglecp.client.errors import RequestRefused
from manglecp.mangle import Interval
from manglecp.wire import MAX_DEPTH, Fault, Schema, interval
from manglecp.wire.messages import StateDelta


class NotJson(ValueError):
    """A value that is not JSON."""


def copy_json(value: Any, depth: int = 0) -> Any:
    """Return a copy as plain JSON. Raises :class:`NotJson`, also for NaN, which the encoder would write as null."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise NotJson(f"{value} is not a number in JSON")
        return value
    if depth >= MAX_DEPTH:
        raise NotJson(f"nested more than {MAX_DEPTH} deep")
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise NotJson("the keys of an object must be strings")
        return {key: copy_json(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [copy_json(item, depth + 1) for item in value]
    raise NotJson(f"a Python {type(value).__name__} is not JSON")


FactObject: TypeAlias = dict[str, Any]
FactInput: TypeAlias = Mapping[str, Any] | str
"""A fact as an object of the wire format, or as text: ``'complaint("A-1")'``."""
MAX_FACTS: Final = 100_000  # servers must not fill a client's memory

_ANY_TEMPORAL: Final = Schema("", (), temporal=True)  # used for all temporal predicates
_ALWAYS: Final = "always"  # the time of a fact without ``t``
_Time: TypeAlias = Interval | str | None  # see _read_time; None in a pattern is any time
_Signature: TypeAlias = tuple[str, int | tuple[str, ...]]  # predicate, and arity or argument names


@dataclass(frozen=True, slots=True)
class AppliedDelta:
    """The changes by a delta. ``ignored`` are its invalid entries, such as an assertion with a null argument."""

    retracted: tuple[FactObject, ...] = ()
    asserted: tuple[FactObject, ...] = ()
    ignored: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class _FactKey:
    """The key of a fact; or the pattern of a retraction, in which None as an argument or time matches any value."""

    signature: _Signature
    args: tuple[bytes | None, ...]  # encoded values
    time: _Time

    def matches(self, fact: _FactKey) -> bool:
        return (self.time is None or self.time == fact.time) and all(
            arg is None or arg == fact_arg for arg, fact_arg in zip(self.args, fact.args, strict=True)
        )


class WorkingState:
    """Distinct facts in the order of their assertion. Safe to share between threads."""

    def __init__(self, facts: Iterable[Mapping[str, Any]] = (), *, max_facts: int = MAX_FACTS) -> None:
        self._facts: dict[_FactKey, FactObject] = {}
        self._max_facts = max_facts
        self._lock = threading.Lock()
        self.add(facts)

    @property
    def facts(self) -> tuple[FactObject, ...]:
        return tuple(map(copy_json, self._facts.values()))

    def __len__(self) -> int:
        return len(self._facts)

    def __iter__(self) -> Iterator[FactObject]:
        return iter(self.facts)

    def __contains__(self, fact: object) -> bool:
        key = _fact_key(fact)
        return key is not None and key in self._facts

    def __repr__(self) -> str:
        return f"WorkingState({len(self)} facts)"

    def add(self, facts: Iterable[Mapping[str, Any]]) -> None:
        """Add facts. Raises :class:`RequestRefused` if a fact is invalid; then no fact is added."""
        new_facts = list(facts)
        if any(_fact_key(fact) is None for fact in new_facts):
            raise RequestRefused("invalid_facts", "a fact has a predicate and arguments without null")
        self._apply(new_facts, ())

    def retract(self, patterns: Iterable[Mapping[str, Any]]) -> tuple[FactObject, ...]:
        """Remove the facts that match a pattern, and return them. Null as an argument matches any value."""
        return self._apply((), patterns).retracted

    def clear(self) -> None:
        with self._lock:
            self._facts = {}

    def apply(self, delta: StateDelta | Mapping[str, Any]) -> AppliedDelta:
        """Apply all retractions, then all assertions, as one change."""
        if isinstance(delta, StateDelta):
            return self._apply(delta.asserts, delta.retract)
        return self._apply(delta.get("assert") or (), delta.get("retract") or ())

    def _apply(self, assertions: Iterable[Any], retractions: Iterable[Any]) -> AppliedDelta:
        ignored: list[Any] = []
        patterns: dict[_Signature, list[_FactKey]] = {}
        for entry in retractions:
            pattern = _fact_key(entry, wildcards=True)
            if pattern is None:
                ignored.append(entry)
            else:
                patterns.setdefault(pattern.signature, []).append(pattern)
        with self._lock:
            remaining = dict(self._facts)
            retracted = []
            if patterns:
                for key, fact in self._facts.items():
                    if any(pattern.matches(key) for pattern in patterns.get(key.signature, ())):
                        retracted.append(fact)
                        del remaining[key]
            asserted = []
            for entry in assertions:
                new_key = _fact_key(entry)
                if new_key is None:
                    ignored.append(entry)
                elif new_key not in remaining:
                    remaining[new_key] = copy_json(entry)
                    asserted.append(entry)
            if len(remaining) > self._max_facts and len(remaining) > len(self._facts):
                raise RequestRefused("state_full", f"{len(remaining):,} facts, and the limit is {self._max_facts:,}")
            self._facts = remaining
        return AppliedDelta(tuple(map(copy_json, retracted)), tuple(map(copy_json, asserted)), tuple(ignored))


def _fact_key(entry: Any, *, wildcards: bool = False) -> _FactKey | None:
    """Return the key of a fact, or with ``wildcards`` the pattern of a retraction; None if the entry is invalid."""
    if not isinstance(entry, Mapping):
        return None
    name, args, named_args = entry.get("pred"), entry.get("args"), entry.get("named_args")
    if not isinstance(name, str) or (args is None) == (named_args is None):
        return None
    signature: _Signature
    if isinstance(args, list | tuple):
        signature, values = (name, len(args)), list(args)
    elif isinstance(named_args, Mapping) and all(isinstance(key, str) for key in named_args):
        signature = (name, tuple(sorted(named_args)))
        values = [named_args[key] for key in sorted(named_args)]
    else:
        return None
    if not wildcards and any(value is None for value in values):
        return None
    try:
        encoded_args = tuple(None if value is None else _encode_value(value) for value in values)
        time = _read_time(entry.get("t"))
    except NotJson:
        return None
    return _FactKey(signature, encoded_args, time if time is not None or wildcards else _ALWAYS)


def _read_time(t: Any) -> _Time:
    """Return the interval of ``t``, so that all notations of an interval are equal; None if ``t`` is None.

    Of a time that only an evaluation resolves, such as ``now``, and of an invalid time, return the JSON text.
    """
    if t is None:
        return None
    try:
        return interval(copy_json(t), _ANY_TEMPORAL) or _ALWAYS
    except Fault:
        return msgspec.json.encode(copy_json(t), order="sorted").decode()


def _encode_value(value: Any) -> bytes:
    """Return the same bytes for equal values: members in any order, integers as ``7`` or as an ``int64`` object."""
    return msgspec.json.encode(_unwrap_integers(copy_json(value)), order="sorted")


def _unwrap_integers(value: Any) -> Any:
    if isinstance(value, list):
        return [_unwrap_integers(item) for item in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {"_type", "value"} and value["_type"] == "int64" and isinstance(value["value"], str):
        try:
            return int(value["value"]) if len(value["value"]) <= 40 else value  # valid integers are shorter
        except ValueError:
            return value
    return {key: _unwrap_integers(item) for key, item in value.items()}


def sendable_fact(fact: Mapping[str, Any]) -> dict[str, Any]:
    """Return a working fact as the client sends it: without ``source``, and with ``session`` for any category."""
    members = {name: value for name, value in fact.items() if name not in ("category", "source")}
    return {**members, "category": "session"} if "category" in fact else members
