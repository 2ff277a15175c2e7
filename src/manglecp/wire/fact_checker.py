"""Validation of the facts of a request, with all violations of each.

``_read_plain`` is the fast path for valid facts. When it returns None, the fact is checked member by member. That check
is complete: the fast path must never accept what it refuses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, TypeAlias

from manglecp.base.text import quote, truncate
from manglecp.mangle import Fact, Float, Interval, Key, Value
from manglecp.wire.clauses import AsClause, RefusedClause
from manglecp.wire.errors import Violation, did_you_mean
from manglecp.wire.facts import InvalidFact, arguments, check_category, check_source, interval, steps
from manglecp.wire.messages import ArgType
from manglecp.wire.predicates import LONGEST_NAME, RESERVED_PREFIX, PublishedPredicate, Schema, is_name
from manglecp.wire.shapes import Shape, describe
from manglecp.wire.strict_json import Fault
from manglecp.wire.values import SAFE_INTEGER, to_value, usual_instant

Vocabulary: TypeAlias = Mapping[str, Mapping[int, PublishedPredicate]]  # by name and arity
Accepts: TypeAlias = Callable[[Key, tuple[Value, ...]], bool]

_MAX_SUGGESTIONS: Final = 20  # a fuzzy search is slow, and a request may have many unknown names
_ARG_TYPES: Final[Mapping[type, ArgType]] = {bool: "boolean", int: "number", float: "number", str: "string"}
_MAX_CACHED_VALUES: Final = 1_000
_as_fact: Final = partial(tuple.__new__, Fact)  # without the checks of its constructor


class FactChecker:
    """Checks the facts of one request; :meth:`check` adds to ``violations``."""

    def __init__(self, vocabulary: Vocabulary, accepts: Accepts, now: int) -> None:
        self.vocabulary = vocabulary
        self.accepts = accepts
        self.now = now
        self.violations: list[Violation] = []
        self._suggestions: dict[str, str | None] = {}
        self._values: dict[Shape, dict[str | bool, Value]] = {}
        self._index = 0
        self._predicate = ""

    def check(self, index: int, data: Any) -> Fact | None:
        """Return the fact at ``index`` of the request, or None if there are violations."""
        return self._read_plain(data) or self._check_members(index, data)

    def _check_members(self, index: int, data: Any) -> Fact | None:
        self._index, self._predicate = index, ""
        before = len(self.violations)
        if isinstance(data, RefusedClause):
            self._predicate = truncate(data.predicate, LONGEST_NAME)
            message = f"Clause of predicate '{self._predicate}': {data.fault.message}"
            self._report("invalid_clause", message, path=data.fault.path, suggestion=data.fault.fix)
            return None
        if not isinstance(data, dict):
            self._report("invalid_fact", "A fact is an object", suggestion='Write {"pred": "…", "args": […]}')
            return None
        fact = self._fact(data)
        self._try("invalid_source", "source", lambda: check_source(data.get("source"), self.now))
        self._try("invalid_category", "category", lambda: check_category(data.get("category")))
        return fact if len(self.violations) == before else None

    def _report(self, issue: str, message: str, **more: Any) -> None:
        members = {key: value for key, value in more.items() if value is not None}
        self.violations.append(
            Violation(fact_index=self._index, predicate=self._predicate, issue=issue, message=message, **members)
        )

    def _try(self, issue: str, member: str, check: Callable[[], Any]) -> Any:
        try:
            return check()
        except Fault as fault:
            path = fault.inside(member).path
            message = f"'{member}' of predicate '{self._predicate}': {fault.message}"
            self._report(issue, message, path=path, suggestion=fault.fix)
            return None

    def _read_plain(self, data: Any) -> Fact | None:
        if type(data) is not dict:
            return None
        name = data.get("pred")
        by_arity = self.vocabulary.get(name) if type(name) is str else None
        if by_arity is None:
            return None
        args = data.get("args")
        if type(args) is not list and (args := _named_args(data, by_arity)) is None:
            return None
        entry = by_arity.get(len(args))
        if entry is None or not entry.readable:
            return None
        schema = entry.schema
        between: Interval | None = None
        row: list[Value] = []
        try:
            if len(data) > 2:
                if len(data) > 3 or "t" not in data:
                    self._check_rest(data)
                if (when := data.get("t")) is not None:
                    between = self._interval(when, schema)
            if schema.untimed_now and data.get("t") is None:
                between = self.now, self.now
            for arg, shape in zip(args, schema.shapes, strict=True):
                kind = type(arg)
                if (kind is str and shape.plain_text) or (
                    kind is int and shape.plain_number and -SAFE_INTEGER <= arg <= SAFE_INTEGER
                ):
                    row.append(arg)
                elif kind is float and shape.plain_fraction:
                    row.append(Float(arg))
                else:
                    row.append(self._value(arg, kind, shape))
        except Fault:
            return None
        values = tuple(row)
        if entry.jointly and not self.accepts((schema.predicate, len(values)), values):
            return None
        return _as_fact((schema.predicate, values, between))

    def _check_rest(self, data: dict[str, Any]) -> None:
        if data.get("args") is not None and data.get("named_args") is not None:
            raise Fault("both")
        check_source(data.get("source"), self.now)
        check_category(data.get("category"))

    def _interval(self, when: Any, schema: Schema) -> Interval | None:
        if schema.temporal and type(when) is dict and len(when) == 1 and type(text := when.get("at")) is str:
            ns = usual_instant(text)
            if ns is not None:
                return ns, ns
        return interval(when, schema, self.now)

    def _value(self, data: Any, kind: type, shape: Shape) -> Value:
        """Return the value of an argument. Names and booleans, which facts repeat, are cached."""
        if kind is not str and kind is not bool:
            return _accepted(data, shape)
        cache = self._values.setdefault(shape, {})
        value = cache.get(data)
        if value is None:
            value = _accepted(data, shape)
            if len(cache) < _MAX_CACHED_VALUES:
                cache[data] = value
        return value

    def _fact(self, data: dict[str, Any]) -> Fact | None:
        name = data.get("pred")
        if type(name) is not str:
            message = "'pred' is missing, or is not a string"
            self._report("invalid_fact", message, path="$.pred", suggestion='Write {"pred": "…", "args": […]}')
            return None
        self._predicate = truncate(name, LONGEST_NAME)
        by_arity = self._readable(name)
        if by_arity is None:
            return None
        entry, given = self._given(by_arity, data)
        timed = entry or (next(iter(by_arity.values())) if len(by_arity) == 1 else None)
        between = None
        if timed is not None:
            between = self._try("invalid_time", "t", lambda: interval(data.get("t"), timed.schema, self.now))
        args = None if entry is None else self._arguments(entry, given, data)
        return None if args is None else Fact(name, args, between)

    def _readable(self, name: str) -> Mapping[int, PublishedPredicate] | None:
        """Return the predicates of this name by arity, or None if clients may assert none of them."""
        by_arity = self.vocabulary.get(name)
        if by_arity is not None:
            if any(entry.readable for entry in by_arity.values()):
                return by_arity
            self._report("direction_violation", f"Predicate '{name}' is derived by the server and cannot be asserted")
        elif name.startswith(RESERVED_PREFIX):  # before the pattern, which no such name fits (OPEN-06)
            message = f"Predicates starting with '{RESERVED_PREFIX}' are reserved for protocol use"
            self._report("reserved_predicate", message)
        elif not is_name(name):
            message = f"{quote(name)} is not a predicate name: lower-case letters, digits and underscores, at most 128"
            self._report("invalid_predicate_name", message)
        else:
            message = f"Predicate '{name}' is not declared in the server's facts profile"
            self._report("unknown_predicate", message, suggestion=self._similar(name))
        return None

    def _similar(self, name: str) -> str | None:
        """Return a suggestion, only of names that the manifest lists (OPEN-49)."""
        if name not in self._suggestions and len(self._suggestions) < _MAX_SUGGESTIONS:
            readable = (n for n, entries in self.vocabulary.items() if any(e.readable for e in entries.values()))
            self._suggestions[name] = did_you_mean(name, readable)
        return self._suggestions.get(name)

    def _given(
        self, by_arity: Mapping[int, PublishedPredicate], data: dict[str, Any]
    ) -> tuple[PublishedPredicate | None, list[Any]]:
        """Return the predicate and its arguments in order; None if there is a violation."""
        by_name = data.get("named_args") is not None
        schemas = {arity: one.schema for arity, one in by_arity.items() if one.readable or not by_name}
        try:
            schema, given = arguments(self._predicate, data, schemas)
        except InvalidFact as fault:
            path = fault.path if fault.steps else None
            self._report(fault.issue, fault.message, path=path, suggestion=fault.fix, **fault.members)
            return None, []
        entry = by_arity[schema.arity]
        if entry.readable:
            return entry, given
        message = f"Predicate '{self._predicate}' with {len(given)} arguments is derived by the server"
        self._report("direction_violation", message)
        return None, []

    def _arguments(self, entry: PublishedPredicate, given: list[Any], fact: dict[str, Any]) -> tuple[Value, ...] | None:
        values = []
        for position, data in enumerate(given):
            shape = entry.schema.shapes[position]
            try:
                value = to_value(data, shape)
            except Fault as fault:
                self._wrong_type(entry, position, data, fault, fact)
                continue
            if shape.accepts(value):
                values.append(value)
            else:
                self._wrong_type(entry, position, data, value, fact)
        if len(values) < len(given):
            return None
        args = tuple(values)
        if entry.jointly and not self.accepts((entry.schema.predicate, len(args)), args):
            message = f"The arguments of predicate '{self._predicate}' fit their places, but not together"
            self._report("type_mismatch", message)
            return None
        return args

    def _wrong_type(
        self, entry: PublishedPredicate, position: int, data: Any, found: Value | Fault, fact: dict[str, Any]
    ) -> None:
        expected = entry.arg_types[position]
        actual = _ARG_TYPES.get(type(data), "any")
        takes: str = expected
        if expected in ("any", actual):  # the declaration is more precise than the type in the manifest
            takes = str(entry.schema.shapes[position])
        names = entry.schema.arg_names
        place = f"Argument {position + 1}" if names is None else f"Argument {position + 1} ({names[position]})"
        message = f"{place} of predicate '{self._predicate}' expects {takes}"
        if isinstance(found, Fault):
            message += f": {found.message}"
        else:
            message += f", got {describe(found)}"
            found = Fault(message)
        self._report(
            "type_mismatch",
            message,
            argument_index=position,
            expected_type=expected,
            actual_type=actual,
            path=_path(entry, position, found, fact),
            suggestion=found.fix,
        )


def _path(entry: PublishedPredicate, position: int, found: Fault, fact: dict[str, Any]) -> str:
    """Return the path to the fault as the fact was written; of a clause, to the argument."""
    if isinstance(fact, AsClause):
        return Fault("").inside("head", "args", position).path
    return found.inside(*steps(entry.schema, position, fact.get("named_args") is not None)).path


def _named_args(data: dict[str, Any], by_arity: Mapping[int, PublishedPredicate]) -> list[Any] | None:
    named = data.get("named_args")
    names = next(iter(by_arity.values())).schema.arg_names if len(by_arity) == 1 else None
    if data.get("args") is not None or type(named) is not dict or names is None or named.keys() != set(names):
        return None
    return [named[name] for name in names]


def _accepted(data: Any, shape: Shape) -> Value:
    value = to_value(data, shape)
    if not shape.accepts(value):
        raise Fault("not accepted")
    return value
