"""Validation of the facts of a request, which reports all violations of each fact."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from manglecp.base.strict_json import Fault
from manglecp.base.text import quote, truncate
from manglecp.mangle import Fact, Key, Value
from manglecp.wire.clauses import ClauseFact, RefusedClause
from manglecp.wire.errors import Violation, did_you_mean
from manglecp.wire.facts import InvalidFact, argument_path, check_category, check_source, interval, match_arguments
from manglecp.wire.messages import ArgType
from manglecp.wire.predicates import MAX_NAME_LENGTH, RESERVED_PREFIX, PublishedPredicate, is_name
from manglecp.wire.shapes import describe
from manglecp.wire.values import to_value

EntriesByName: TypeAlias = Mapping[str, Mapping[int, PublishedPredicate]]  # by name, then by arity
Accepts: TypeAlias = Callable[[Key, tuple[Value, ...]], bool]  # whether arguments conform to a predicate's bounds

_MAX_SUGGESTIONS: Final = 20  # a fuzzy search is slow, and a request may have many unknown names
_ARG_TYPES: Final[Mapping[type, ArgType]] = {bool: "boolean", int: "number", float: "number", str: "string"}


class FactChecker:
    """Checks the facts of one request; :meth:`check` adds to ``violations``. ``now`` is the evaluation time in ns."""

    def __init__(self, vocabulary: EntriesByName, accepts: Accepts, now: int) -> None:
        self.vocabulary = vocabulary
        self.accepts = accepts
        self.now = now
        self.violations: list[Violation] = []
        self._suggestions: dict[str, str | None] = {}
        self._index = 0
        self._predicate = ""

    def check(self, index: int, data: Any) -> Fact | None:
        """Return the fact at ``index`` of the request, or None if there are violations."""
        self._index, self._predicate = index, ""
        count_before = len(self.violations)
        if isinstance(data, RefusedClause):
            self._predicate = truncate(data.predicate, MAX_NAME_LENGTH)
            message = f"Clause of predicate '{self._predicate}': {data.fault.message}"
            self._report("invalid_clause", message, path=data.fault.path, suggestion=data.fault.fix)
            return None
        if not isinstance(data, dict):
            self._report("invalid_fact", "A fact is an object", suggestion='Write {"pred": "…", "args": […]}')
            return None
        fact = self._read_fact(data)
        self._try("invalid_source", "source", lambda: check_source(data.get("source"), self.now))
        self._try("invalid_category", "category", lambda: check_category(data.get("category")))
        return fact if len(self.violations) == count_before else None

    def _report(self, issue: str, message: str, **members: Any) -> None:
        present = {name: value for name, value in members.items() if value is not None}
        self.violations.append(
            Violation(fact_index=self._index, predicate=self._predicate, issue=issue, message=message, **present)
        )

    def _try(self, issue: str, member: str, check: Callable[[], Any]) -> Any:
        """Return the result of ``check``; report a :class:`Fault` as a violation in ``member``, and return None."""
        try:
            return check()
        except Fault as fault:
            path = fault.inside(member).path
            message = f"'{member}' of predicate '{self._predicate}': {fault.message}"
            self._report(issue, message, path=path, suggestion=fault.fix)
            return None

    def _read_fact(self, data: dict[str, Any]) -> Fact | None:
        name = data.get("pred")
        if type(name) is not str:
            message = "'pred' is missing, or is not a string"
            self._report("invalid_fact", message, path="$.pred", suggestion='Write {"pred": "…", "args": […]}')
            return None
        self._predicate = truncate(name, MAX_NAME_LENGTH)
        by_arity = self._find_assertable(name)
        if by_arity is None:
            return None
        entry, items = self._find_arguments(by_arity, data)
        only_entry = next(iter(by_arity.values())) if len(by_arity) == 1 else None
        validity = None
        if (time_entry := entry or only_entry) is not None:  # the time is checked even if the arguments are wrong
            validity = self._try("invalid_time", "t", lambda: interval(data.get("t"), time_entry.schema, self.now))
        args = None if entry is None else self._read_args(entry, items, data)
        return None if args is None else Fact(name, args, validity)

    def _find_assertable(self, name: str) -> Mapping[int, PublishedPredicate] | None:
        """Return the predicates of this name by arity; report a violation and return None if none is assertable."""
        by_arity = self.vocabulary.get(name)
        if by_arity is not None:
            if any(entry.assertable for entry in by_arity.values()):
                return by_arity
            self._report("direction_violation", f"Predicate '{name}' is derived by the server and cannot be asserted")
        elif name.startswith(RESERVED_PREFIX):  # before the pattern, which no such name matches
            message = f"Predicates starting with '{RESERVED_PREFIX}' are reserved for protocol use"
            self._report("reserved_predicate", message)
        elif not is_name(name):
            message = f"{quote(name)} is not a predicate name: lower-case letters, digits and underscores, at most 128"
            self._report("invalid_predicate_name", message)
        else:
            message = f"Predicate '{name}' is not declared in the server's facts profile"
            self._report("unknown_predicate", message, suggestion=self._suggest(name))
        return None

    def _suggest(self, name: str) -> str | None:
        """Return a suggestion, which names only predicates that clients may assert."""
        if name not in self._suggestions and len(self._suggestions) < _MAX_SUGGESTIONS:
            assertable = (n for n, entries in self.vocabulary.items() if any(e.assertable for e in entries.values()))
            self._suggestions[name] = did_you_mean(name, assertable)
        return self._suggestions.get(name)

    def _find_arguments(
        self, by_arity: Mapping[int, PublishedPredicate], data: dict[str, Any]
    ) -> tuple[PublishedPredicate | None, list[Any]]:
        """Return the predicate and the JSON of its arguments in order; None and an empty list after a violation."""
        by_name = data.get("named_args") is not None
        schemas = {arity: entry.schema for arity, entry in by_arity.items() if entry.assertable or not by_name}
        try:
            schema, items = match_arguments(self._predicate, data, schemas)
        except InvalidFact as fault:
            path = fault.path if fault.steps else None
            self._report(fault.issue, fault.message, path=path, suggestion=fault.fix, **fault.members)
            return None, []
        entry = by_arity[schema.arity]
        if entry.assertable:
            return entry, items
        message = f"Predicate '{self._predicate}' with {len(items)} arguments is derived by the server"
        self._report("direction_violation", message)
        return None, []

    def _read_args(self, entry: PublishedPredicate, items: list[Any], fact: dict[str, Any]) -> tuple[Value, ...] | None:
        values = []
        for position, item in enumerate(items):
            shape = entry.schema.shapes[position]
            try:
                value = to_value(item, shape)
            except Fault as fault:
                self._report_type(entry, position, item, fault, fact)
                continue
            if shape.accepts(value):
                values.append(value)
            else:
                self._report_type(entry, position, item, value, fact)
        if len(values) < len(items):
            return None
        args = tuple(values)
        if entry.has_joint_bounds and not self.accepts((entry.schema.predicate, len(args)), args):
            message = f"The arguments of predicate '{self._predicate}' fit their places, but not together"
            self._report("type_mismatch", message)
            return None
        return args

    def _report_type(
        self, entry: PublishedPredicate, position: int, item: Any, reason: Value | Fault, fact: dict[str, Any]
    ) -> None:
        """Report an invalid argument ``item``. ``reason`` is the fault, or the value if it has the wrong type."""
        expected = entry.arg_types[position]
        actual = _ARG_TYPES.get(type(item), "any")
        expected_text: str = expected
        if expected in ("any", actual):  # the declaration is more precise than the type in the manifest
            expected_text = str(entry.schema.shapes[position])
        names = entry.schema.arg_names
        argument = f"Argument {position + 1}" if names is None else f"Argument {position + 1} ({names[position]})"
        message = f"{argument} of predicate '{self._predicate}' expects {expected_text}"
        if isinstance(reason, Fault):
            message += f": {reason.message}"
        else:
            message += f", got {describe(reason)}"
            reason = Fault(message)
        self._report(
            "type_mismatch",
            message,
            argument_index=position,
            expected_type=expected,
            actual_type=actual,
            path=_path_of(entry, position, reason, fact),
            suggestion=reason.fix,
        )


def _path_of(entry: PublishedPredicate, position: int, fault: Fault, fact: dict[str, Any]) -> str:
    """Return the path to the fault in the JSON that the client sent; in a clause, the path ends at the argument."""
    if isinstance(fact, ClauseFact):
        return Fault("").inside("head", "args", position).path
    return fault.inside(*argument_path(entry.schema, position, fact.get("named_args") is not None)).path
