"""Structured clauses, which write a fact as JSON: the extension ``x-structured_facts``.

    {"head": {"predicate": "service_owner", "args": [{"type": "string", "value": "payments"}, {"type": "number", …}]}}

The format also describes rules, with variables and a body. A client may send only clauses without a body, which are
facts; rules are never accepted. A ``value`` that plain JSON cannot express (a name, bytes, a large number) is wrapped
as in :mod:`manglecp.wire.values`.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from manglecp.base.strict_json import JSON, Fault, faults_at
from manglecp.base.text import truncate
from manglecp.mangle import Bytes, Float, List, Map, Name, RepeatedKey, Value, ValueFault
from manglecp.wire.messages import Part
from manglecp.wire.validation import convert, split_error
from manglecp.wire.values import MAX_NESTING, to_json, to_value

_PREDICATE: Final = re.compile(r"[a-z][a-z0-9_]{0,127}", re.ASCII)
_FACT_MEMBERS: Final = ("t", "source", "category")  # the members that a fact object may have besides ``head``


class _Term(Part, frozen=True, kw_only=True, tag_field="type"):
    pass


class StringTerm(_Term, frozen=True, kw_only=True, tag="string"):
    """A string, or a wrapped name, or wrapped bytes."""

    value: str | dict[str, Any]


class NumberTerm(_Term, frozen=True, kw_only=True, tag="number"):
    value: int | float | dict[str, Any]


class VariableTerm(_Term, frozen=True, kw_only=True, tag="variable"):
    name: str


class WildcardTerm(_Term, frozen=True, kw_only=True, tag="wildcard"):
    pass


class ListTerm(_Term, frozen=True, kw_only=True, tag="list"):
    elements: tuple[AnyTerm, ...]


class MapTerm(_Term, frozen=True, kw_only=True, tag="map"):
    entries: dict[str, AnyTerm]


AnyTerm: TypeAlias = StringTerm | NumberTerm | VariableTerm | WildcardTerm | ListTerm | MapTerm


class StructuredAtom(Part, frozen=True, kw_only=True):
    predicate: str
    args: tuple[AnyTerm, ...]


class StructuredClause(Part, frozen=True, kw_only=True):
    """A rule, or a fact if the body is empty."""

    head: StructuredAtom
    body: tuple[StructuredAtom, ...] = ()


class ClauseFact(dict[str, Any]):
    """A fact object that was converted from a structured clause."""


class RefusedClause(NamedTuple):
    """A clause that is not a fact. It stays in the list of facts, so that all violations are reported together."""

    predicate: str
    fault: Fault


def fact_object(data: JSON) -> ClauseFact:
    """Return the fact object of a clause without a body, with its ``_FACT_MEMBERS``. Raises :class:`Fault`."""
    clause = _read_clause(data)
    members = data if type(data) is dict else {}
    for name in ("pred", "args", "named_args"):
        if members.get(name) is not None:
            raise Fault(f"a fact has either head or {name}", "leave one of them out").inside(name)
    if clause.body:
        raise Fault("rules are not accepted from clients", "leave the body out").inside("body")
    fact = ClauseFact(pred=clause.head.predicate, args=[])
    if _PREDICATE.fullmatch(clause.head.predicate) is None:  # the fact checker reports the predicate
        return fact
    for position, arg in enumerate(clause.head.args):
        with faults_at("head", "args", position):
            fact["args"].append(to_json(_read_term(arg)))
    fact.update((name, members[name]) for name in _FACT_MEMBERS if name in members)
    return fact


def ordinary_facts(facts: list[Any]) -> list[Any]:
    """Return the facts of an intent request; clauses become fact objects, or :class:`RefusedClause` if invalid."""
    return [_convert_fact(fact) if type(fact) is dict and fact.get("head") is not None else fact for fact in facts]


def _convert_fact(fact: dict[str, Any]) -> ClauseFact | RefusedClause:
    try:
        return fact_object(fact)
    except Fault as fault:
        head = fact["head"]
        name = head.get("predicate") if type(head) is dict else None
        return RefusedClause(name if type(name) is str else "", fault)


def _read_clause(data: JSON) -> StructuredClause:
    try:
        return convert(data, StructuredClause)
    except RecursionError:
        raise _too_deep() from None
    except msgspec.ValidationError as error:
        what, steps = split_error(error)
        raise Fault(f"not a structured clause: {truncate(what[:1].lower() + what[1:], 200)}").inside(*steps) from None


def _read_term(term: AnyTerm, depth: int = 0) -> Value:
    """Return the value of a term. Raises :class:`Fault`."""
    if depth >= MAX_NESTING and isinstance(term, ListTerm | MapTerm):
        raise _too_deep()
    try:
        match term:
            case StringTerm(value=value):
                return _read_constant(value, (str, Name, Bytes), "a string, a name or bytes")
            case NumberTerm(value=number):
                return _read_constant(number, (int, Float), "a number")
            case ListTerm(elements=elements):
                return List(tuple(_read_part(part, depth, "elements", i) for i, part in enumerate(elements)))
            case MapTerm(entries=entries):
                return Map(tuple((key, _read_part(part, depth, "entries", key)) for key, part in entries.items()))
            case VariableTerm() | WildcardTerm():
                raise Fault("a fact states particular values, not variables", "give the value")
    except (ValueFault, RepeatedKey) as fault:
        raise Fault(str(fault)) from None


def _read_part(term: AnyTerm, depth: int, *steps: str | int) -> Value:
    with faults_at(*steps):
        return _read_term(term, depth + 1)


def _read_constant(data: JSON, types: tuple[type, ...], expected: str) -> Value:
    with faults_at("value"):
        value = to_value(data)
        if type(value) not in types:
            raise Fault(f"the value is not {expected}")
    return value


def _too_deep() -> Fault:
    return Fault(f"nested more than {MAX_NESTING} deep")
