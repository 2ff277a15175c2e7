"""Validation of facts, limits and arguments before a request is sent (companion, section 11).

The manifest is less specific about a predicate than its declaration: ``string`` covers texts, names, times and others.
Each type name becomes a shape that accepts all of them, and the server's own fact checker validates the facts, so that
a client rejects nothing that the server would accept. A predicate that the manifest does not list is a warning
(CLI-02); every other violation is an error, with the server's codes.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from manglecp.client.errors import InvalidResponse, RequestRefused
from manglecp.client.working_state import FactObject, NotJson, copy_json
from manglecp.mangle import FALSE, TRUE
from manglecp.mangle.types import BYTES, DURATION, FLOAT, NAME, NUMBER, STRING, TIME, Singleton, union
from manglecp.wire import (
    ANYTHING,
    MOST_VIOLATIONS,
    UPGRADE,
    FactChecker,
    PublishedPredicate,
    Schema,
    Shape,
    Violation,
    refused_arguments,
    refused_facts,
    schema_errors,
    too_large,
    too_many_facts,
)
from manglecp.wire.messages import UNSET, ArgType, IntentDescription, ManifestPayload, PredicateSchema

_SHAPES: Final[Mapping[ArgType, Shape]] = {
    "string": Shape(union((STRING, NAME, TIME, DURATION, BYTES))),
    "number": Shape(union((NUMBER, FLOAT))),
    "boolean": Shape(union((Singleton(TRUE), Singleton(FALSE)))),
    "any": ANYTHING,
}
_MAX_ARITY: Final = 1_024  # a larger arity counts as unknown: the server must not exhaust memory
_UPGRADE: Final = PublishedPredicate(Schema(UPGRADE, (Shape(STRING),), None), "input", ("string",))


@dataclass(frozen=True, slots=True)
class FactCheckResult:
    """Facts that can be sent, with positional arguments where possible, and the violations of the others."""

    facts: tuple[FactObject, ...]
    violations: tuple[Violation, ...] = ()
    warnings: tuple[Violation, ...] = ()


class FactChecks:
    """The checks of one manifest."""

    def __init__(self, manifest: ManifestPayload) -> None:
        self._manifest = manifest
        self._vocabulary: dict[str, dict[int, PublishedPredicate]] = {UPGRADE: {1: _UPGRADE}}
        for described in manifest.facts_profile.predicates:
            if described.arity > _MAX_ARITY:
                continue
            entry = _published(described, temporal=manifest.capabilities.temporal)
            self._vocabulary.setdefault(described.predicate, {})[described.arity] = entry
        self._milliseconds = "epoch_ms" in manifest.facts_profile.time_formats

    def intent(self, name: str) -> IntentDescription | None:
        return next((intent for intent in self._manifest.intents if intent.name == name), None)

    def is_listed(self, fact: Mapping[str, Any]) -> bool:
        """Return whether the manifest lists the predicate, or lists none at all (OPEN-15)."""
        return fact.get("pred") in self._vocabulary or not self._manifest.facts_profile.predicates

    def is_used_by(self, fact: Mapping[str, Any], intent: str) -> bool:
        """Return whether the intent lists the predicate (SEC-30). An intent without a list may use all facts."""
        described = self.intent(intent)
        if described is None or described.optional_facts is UNSET:
            return True
        required = () if described.required_facts is UNSET else described.required_facts
        return fact.get("pred") in {*required, *described.optional_facts, UPGRADE}

    def check(self, facts: Iterable[Mapping[str, Any]]) -> FactCheckResult:
        """Validate each fact on its own."""
        checker = FactChecker(self._vocabulary, lambda _key, _args: True, time.time_ns())
        valid: list[FactObject] = []
        errors: list[Violation] = []
        warnings: list[Violation] = []
        for index, unchecked in enumerate(facts):
            if len(errors) >= MOST_VIOLATIONS:
                break
            checker.violations.clear()
            try:
                fact = self._positional(copy_json(unchecked))
                checker.check(index, fact)
            except NotJson as error:
                errors.append(_violation(index, unchecked, "invalid_fact", str(error)))
                continue
            fact_errors = [violation for violation in checker.violations if violation.issue != "unknown_predicate"]
            if not self._milliseconds and _in_milliseconds(fact):
                fact_errors.append(_violation(index, fact, "invalid_time", "The server rejects times in milliseconds"))
            errors += fact_errors
            if not fact_errors:
                valid.append(fact)
                warnings += checker.violations
        return FactCheckResult(
            tuple(valid), tuple(errors), tuple(warnings) if self._manifest.facts_profile.predicates else ()
        )

    def require(self, facts: Sequence[Mapping[str, Any]], intent: str, checked: FactCheckResult | None = None) -> None:
        """Raise :class:`RequestRefused` for invalid, missing or too many facts of a request."""
        described = self.intent(intent)
        required = () if described is None or described.required_facts is UNSET else described.required_facts
        present = {fact.get("pred") for fact in facts}
        missing = [name for name in dict.fromkeys(required) if name not in present]
        violations = () if checked is None else checked.violations
        if violations or missing:
            raise RequestRefused.of(refused_facts(violations, missing))
        limit = self._manifest.limits.max_facts_per_request
        if len(facts) > limit:
            raise RequestRefused.of(too_many_facts(len(facts), limit))

    def _positional(self, fact: Any) -> Any:
        """Convert named arguments to positional ones where the manifest names them (OPEN-10)."""
        named = fact.get("named_args") if type(fact) is dict else None
        if type(named) is not dict or fact.get("args") is not None:
            return fact
        entry = self._vocabulary.get(str(fact.get("pred")), {}).get(len(named))
        names = None if entry is None else entry.schema.arg_names
        if names is None or set(names) != named.keys():
            return fact
        ordered = {key: value for key, value in fact.items() if key not in ("args", "named_args")}
        return {**ordered, "args": [named[name] for name in names]}


def check_arguments(args: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of the arguments. Raises :class:`RequestRefused` if they do not fit the schema (CLI-04)."""
    try:
        copied: dict[str, Any] = copy_json(args)
    except NotJson as error:
        raise RequestRefused("schema_validation_failed", str(error)) from None
    try:
        errors = schema_errors(copied, schema)
    except ValueError:  # a server may send anything for a schema
        raise InvalidResponse("the input schema of the tool is not valid") from None
    if errors:
        raise RequestRefused.of(refused_arguments(errors))
    return copied


def check_size(data: bytes, manifest: ManifestPayload) -> bytes:
    """Return the message. Raises :class:`RequestRefused` if it exceeds the server's limit (CLI-03)."""
    limit = manifest.limits.max_message_bytes
    if len(data) > limit:
        raise RequestRefused.of(too_large(len(data), limit))
    return data


def _published(described: PredicateSchema, *, temporal: bool) -> PublishedPredicate:
    types: Sequence[ArgType] = described.arg_types
    if len(types) != described.arity:  # unknown types
        types = ["any"] * described.arity
    names = None if described.arg_names is UNSET or len(described.arg_names) != described.arity else described.arg_names
    shapes = tuple(_SHAPES[type_] for type_ in types)
    schema = Schema(described.predicate, shapes, names, temporal=temporal and described.temporal)
    return PublishedPredicate(schema, described.direction, tuple(types))


def _violation(index: int, fact: Any, issue: str, message: str) -> Violation:
    name = fact.get("pred") if isinstance(fact, Mapping) else None
    return Violation(fact_index=index, predicate=str(name or "")[:128], issue=issue, message=message)


def _in_milliseconds(fact: Any) -> bool:
    time = fact.get("t") if isinstance(fact, dict) else None
    return isinstance(time, dict) and any(type(time.get(end)) is int for end in ("at", "start", "end"))
