"""Validation of facts, limits and arguments before a request is sent.

The types in a manifest are coarser than those of the server's declarations: ``string`` covers strings, names, times and
others. Each type becomes a shape (a set of values) that accepts all values of the type. The fact checker that servers
use validates the facts, so that a client rejects no fact that the server would accept. A predicate that the manifest
does not list is a warning; every other violation is an error, with the server's codes.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from manglecp.client.errors import InvalidResponse, RequestRefused
from manglecp.client.working_state import FactInput, FactObject, NotJson, copy_json
from manglecp.mangle import FALSE, TRUE, MangleError
from manglecp.mangle.types import BYTES, DURATION, FLOAT, NAME, NUMBER, STRING, TIME, Singleton, union
from manglecp.wire import (
    ANYTHING,
    MAX_VIOLATIONS,
    UPGRADE,
    FactChecker,
    PublishedPredicate,
    Schema,
    Shape,
    Violation,
    parse_fact_argument,
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
_INTEGER: Final = Shape(NUMBER)
_MAX_ARITY: Final = 1_024  # predicates of larger arity count as unlisted: a manifest must not exhaust memory
# The fact with which a client requests the full definition of a tool; a manifest need not list its predicate.
_UPGRADE: Final = PublishedPredicate(Schema(UPGRADE, (Shape(STRING),)), "input", ("string",))


@dataclass(frozen=True, slots=True)
class FactCheckResult:
    """The valid facts, the violations of the invalid ones, and warnings about valid facts of unlisted predicates."""

    facts: tuple[FactObject, ...]
    violations: tuple[Violation, ...] = ()
    warnings: tuple[Violation, ...] = ()


class FactChecks:
    """Checks of facts against one manifest."""

    def __init__(self, manifest: ManifestPayload) -> None:
        self._manifest = manifest
        self._vocabulary: dict[str, dict[int, PublishedPredicate]] = {UPGRADE: {1: _UPGRADE}}  # by name and arity
        for schema in manifest.facts_profile.predicates:
            if schema.arity <= _MAX_ARITY:
                predicate = _published_predicate(schema, temporal=manifest.capabilities.temporal)
                self._vocabulary.setdefault(schema.predicate, {})[schema.arity] = predicate
        self._accepts_milliseconds = "epoch_ms" in manifest.facts_profile.time_formats

    def _find_intent(self, name: str) -> IntentDescription | None:
        return next((intent for intent in self._manifest.intents if intent.name == name), None)

    def is_listed(self, fact: Mapping[str, Any]) -> bool:
        """Return whether the manifest lists the predicate, or lists no predicates."""
        return fact.get("pred") in self._vocabulary or not self._manifest.facts_profile.predicates

    def is_used_by(self, fact: Mapping[str, Any], intent: str) -> bool:
        """Return whether the intent lists the predicate. An intent without a list may use all facts."""
        description = self._find_intent(intent)
        if description is None or description.optional_facts is UNSET:
            return True
        return fact.get("pred") in {*(description.required_facts or ()), *description.optional_facts, UPGRADE}

    def check(self, facts: Iterable[Mapping[str, Any]]) -> FactCheckResult:
        """Validate each fact on its own, up to ``MAX_VIOLATIONS`` violations."""
        # The bounds of predicates, which ``accepts`` would check, are not in the manifest.
        checker = FactChecker(self._vocabulary, accepts=lambda _key, _args: True, now=time.time_ns())
        valid_facts: list[FactObject] = []
        errors: list[Violation] = []
        warnings: list[Violation] = []
        for index, raw_fact in enumerate(facts):
            if len(errors) >= MAX_VIOLATIONS:
                break
            checker.violations.clear()
            try:
                fact = self._with_positional_args(copy_json(raw_fact))
                checker.check(index, fact)
            except NotJson as error:
                errors.append(_violation(index, raw_fact, "invalid_fact", str(error)))
                continue
            fact_errors = [violation for violation in checker.violations if violation.issue != "unknown_predicate"]
            if not self._accepts_milliseconds and _has_milliseconds(fact):
                fact_errors.append(_violation(index, fact, "invalid_time", "The server rejects times in milliseconds"))
            errors += fact_errors
            if not fact_errors:
                valid_facts.append(fact)
                warnings += checker.violations  # the other violations are unknown predicates
        return FactCheckResult(
            tuple(valid_facts), tuple(errors), tuple(warnings) if self._manifest.facts_profile.predicates else ()
        )

    def ensure_sendable(
        self, facts: Sequence[Mapping[str, Any]], intent: str, violations: Sequence[Violation] = ()
    ) -> None:
        """Raise :class:`RequestRefused` for violations, missing facts that the intent requires, or too many facts."""
        description = self._find_intent(intent)
        required = () if description is None else description.required_facts or ()
        predicates = {fact.get("pred") for fact in facts}
        missing_predicates = [name for name in dict.fromkeys(required) if name not in predicates]
        if violations or missing_predicates:
            raise RequestRefused.from_wire_error(refused_facts(violations, missing_predicates))
        limit = self._manifest.limits.max_facts_per_request
        if len(facts) > limit:
            raise RequestRefused.from_wire_error(too_many_facts(len(facts), limit))

    def _with_positional_args(self, fact: Any) -> Any:
        """Return the fact with its named arguments as positional ones, if the manifest has their order."""
        named_args = fact.get("named_args") if type(fact) is dict else None
        if type(named_args) is not dict or fact.get("args") is not None:
            return fact
        entry = self._vocabulary.get(str(fact.get("pred")), {}).get(len(named_args))
        arg_names = None if entry is None else entry.schema.arg_names
        if arg_names is None or set(arg_names) != named_args.keys():
            return fact
        without_args = {key: value for key, value in fact.items() if key not in ("args", "named_args")}
        return {**without_args, "args": [named_args[name] for name in arg_names]}


def fact_objects(facts: Iterable[FactInput]) -> list[Any]:
    """Return the facts with those that are text as objects. Raises :class:`RequestRefused` for invalid text."""
    objects: list[Any] = []
    for fact in [facts] if isinstance(facts, str) else facts:
        if isinstance(fact, str):
            try:
                objects += parse_fact_argument("facts", fact, time.time_ns())
            except MangleError as error:
                raise RequestRefused("malformed_message", error.render()) from None
        else:
            objects.append(fact)
    return objects


def check_arguments(args: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of the arguments. Raises :class:`RequestRefused` if they do not conform to the schema."""
    try:
        valid_args: dict[str, Any] = copy_json(args)
    except NotJson as error:
        raise RequestRefused("schema_validation_failed", str(error)) from None
    try:
        errors = schema_errors(valid_args, schema)
        if errors:  # models write null for an optional argument
            required = schema.get("required", ())
            present_args = {name: value for name, value in valid_args.items() if value is not None or name in required}
            if not schema_errors(present_args, schema):
                return present_args
    except ValueError:  # the schema comes from the server, which is not trusted
        raise InvalidResponse("the input schema of the tool is not valid") from None
    if errors:
        raise RequestRefused.from_wire_error(refused_arguments(errors))
    return valid_args


def check_size(data: bytes, manifest: ManifestPayload) -> bytes:
    """Return the encoded message. Raises :class:`RequestRefused` if it exceeds the server's limit."""
    limit = manifest.limits.max_message_bytes
    if len(data) > limit:
        raise RequestRefused.from_wire_error(too_large(len(data), limit))
    return data


def _published_predicate(schema: PredicateSchema, *, temporal: bool) -> PublishedPredicate:
    """Return a predicate of the manifest; ``temporal`` is whether the server supports temporal facts at all."""
    types: Sequence[ArgType] = schema.arg_types
    if len(types) != schema.arity:  # a manifest without types, or an inconsistent one
        types = ["any"] * schema.arity
    names = None if schema.arg_names is UNSET or len(schema.arg_names) != schema.arity else schema.arg_names
    integers = schema.integers or ()
    shapes = tuple(_INTEGER if i in integers else _SHAPES[type_] for i, type_ in enumerate(types))
    checked_schema = Schema(schema.predicate, shapes, names, temporal=temporal and schema.temporal)
    return PublishedPredicate(checked_schema, schema.direction, tuple(types))


def _violation(index: int, fact: Any, issue: str, message: str) -> Violation:
    name = fact.get("pred") if isinstance(fact, Mapping) else None
    return Violation(fact_index=index, predicate=str(name or "")[:128], issue=issue, message=message)


def _has_milliseconds(fact: Any) -> bool:
    t = fact.get("t") if isinstance(fact, dict) else None
    return isinstance(t, dict) and any(type(t.get(member)) is int for member in ("at", "start", "end"))
