"""The working facts of a client, changed by the deltas of invocations (seed 000, section 4).

A delta is applied as one transaction: every fact that a retraction matches is removed, then each new assertion is
appended. Two facts are equal if predicate, arguments and time are; provenance and lifetime do not matter (DATA-42). In
a retraction, null as an argument matches any value, null inside a value does not; ``t``, if given, has to be
equal (OPEN-46).
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
    """Copy a value as plain JSON. The encoder would write NaN as null, which matches any value."""
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
        return {key: copy_json(part, depth + 1) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [copy_json(part, depth + 1) for part in value]
    raise NotJson(f"a Python {type(value).__name__} is not JSON")


FactObject: TypeAlias = dict[str, Any]
MAX_FACTS: Final = 100_000  # servers must not fill a client's memory

_TIMED: Final = Schema("", (), None, temporal=True)
_ALWAYS: Final = "always"
_Time: TypeAlias = Interval | str | None
_Signature: TypeAlias = tuple[str, int | tuple[str, ...]]  # predicate, and arity or argument names


@dataclass(frozen=True, slots=True)
class AppliedDelta:
    """What a delta changed. ``ignored`` are invalid entries, such as an assertion with a null argument."""

    retracted: tuple[FactObject, ...] = ()
    asserted: tuple[FactObject, ...] = ()
    ignored: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class _FactKey:
    """The key of a fact, or of a retraction, where None matches anything."""

    signature: _Signature
    args: tuple[bytes | None, ...]
    time: _Time

    def matches(self, other: _FactKey) -> bool:
        return (self.time is None or self.time == other.time) and all(
            mine is None or mine == theirs for mine, theirs in zip(self.args, other.args, strict=True)
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
        """Add facts. Raises :class:`RequestRefused`, and adds none, if one is invalid."""
        new = list(facts)
        if any(_fact_key(fact) is None for fact in new):
            raise RequestRefused("invalid_facts", "a fact has a predicate and arguments without null")
        self._apply(new, ())

    def retract(self, patterns: Iterable[Mapping[str, Any]]) -> tuple[FactObject, ...]:
        """Remove the facts that match, and return them."""
        return self._apply((), patterns).retracted

    def clear(self) -> None:
        with self._lock:
            self._facts = {}

    def apply(self, delta: StateDelta | Mapping[str, Any]) -> AppliedDelta:
        """Apply all retractions, then all assertions, as one change."""
        if isinstance(delta, StateDelta):
            return self._apply(delta.asserts, delta.retract)
        return self._apply(delta.get("assert") or (), delta.get("retract") or ())

    def _apply(self, asserts: Iterable[Any], retract: Iterable[Any]) -> AppliedDelta:
        ignored: list[Any] = []
        patterns: dict[_Signature, list[_FactKey]] = {}
        for entry in retract:
            pattern = _fact_key(entry, wildcards=True)
            if pattern is None:
                ignored.append(entry)
            else:
                patterns.setdefault(pattern.signature, []).append(pattern)
        with self._lock:
            left = dict(self._facts)
            gone = []
            if patterns:
                for key, fact in self._facts.items():
                    if any(pattern.matches(key) for pattern in patterns.get(key.signature, ())):
                        gone.append(fact)
                        del left[key]
            new = []
            for entry in asserts:
                asserted = _fact_key(entry)
                if asserted is None:
                    ignored.append(entry)
                elif asserted not in left:
                    left[asserted] = copy_json(entry)
                    new.append(entry)
            if len(left) > self._max_facts and len(left) > len(self._facts):
                raise RequestRefused("state_full", f"{len(left):,} facts, and the limit is {self._max_facts:,}")
            self._facts = left
        return AppliedDelta(tuple(map(copy_json, gone)), tuple(map(copy_json, new)), tuple(ignored))


def _fact_key(entry: Any, *, wildcards: bool = False) -> _FactKey | None:
    if not isinstance(entry, Mapping):
        return None
    name, args, named = entry.get("pred"), entry.get("args"), entry.get("named_args")
    if not isinstance(name, str) or (args is None) == (named is None):
        return None
    signature: _Signature
    if isinstance(args, list | tuple):
        signature, values = (name, len(args)), list(args)
    elif isinstance(named, Mapping) and all(isinstance(key, str) for key in named):
        signature = (name, tuple(sorted(named)))
        values = [named[key] for key in sorted(named)]
    else:
        return None
    if not wildcards and any(value is None for value in values):
        return None
    try:
        key = tuple(None if value is None else _key(value) for value in values)
        time = _time(entry.get("t"))
    except NotJson:
        return None
    return _FactKey(signature, key, time if time is not None or wildcards else _ALWAYS)


def _time(value: Any) -> _Time:
    """Return the interval, so that two notations of one are equal; None without a time.

    Times that only an evaluation resolves, such as ``now``, are compared as text.
    """
    if value is None:
        return None
    try:
        return interval(copy_json(value), _TIMED) or _ALWAYS
    except Fault:
        return msgspec.json.encode(copy_json(value), order="sorted").decode()


def _key(value: Any) -> bytes:
    """Encode equal values equally: the order of members does not count, and whole numbers may be wrapped (DATA-19)."""
    return msgspec.json.encode(_unwrap(copy_json(value)), order="sorted")


def _unwrap(value: Any) -> Any:
    if isinstance(value, list):
        return [_unwrap(part) for part in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {"_type", "value"} and value["_type"] == "int64" and isinstance(value["value"], str):
        try:
            return int(value["value"]) if len(value["value"]) <= 40 else value
        except ValueError:
            return value
    return {key: _unwrap(part) for key, part in value.items()}


def without_origin(fact: Mapping[str, Any]) -> dict[str, Any]:
    """Return a working fact as the client sends it, without its origin (DATA-46)."""
    kept = {name: value for name, value in fact.items() if name not in ("category", "source")}
    return {**kept, "category": "session"} if "category" in fact else kept
