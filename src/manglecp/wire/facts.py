"""Conversion of fact objects to facts and back, checks of provenance, and facts written in Mangle.

    {"pred": "build_result", "args": ["payments-api", 4812], "t": {"at": "2026-03-02T09:14:00Z"}}

``named_args`` may replace ``args`` if the declaration names every argument. Unknown members are skipped, also in ``t``,
and null counts as absent. Instants, including ``now``, are in nanoseconds since 1970.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, TypeAlias

from manglecp import mangle
from manglecp.base.diagnostic import Diagnostic
from manglecp.base.source import Source, Span
from manglecp.base.strict_json import JSON, Fault, faults_at
from manglecp.base.text import quote
from manglecp.mangle.syntax import Clause, Term, term_variables
from manglecp.wire.errors import malformed
from manglecp.wire.predicates import Schema, Schemas
from manglecp.wire.values import instant_of_milliseconds, read_instant, to_json, to_value

WILDCARD: Final = mangle.Name("/_")  # in a retraction, matches any value; written as null in JSON
UNBOUNDED: Final = "_"  # the start or end of an unbounded interval
NOW: Final = "now"
_TIME_MEMBERS: Final = ("at", "start", "end")


def read_fact(data: JSON, schemas: Schemas, *, now: int | None = None, check: bool = True) -> mangle.Fact:
    """Return the fact, checked against the declared bounds if ``check``. Raises :class:`Fault`.

    ``now`` is the evaluation time; without it, the time ``"now"`` is not allowed.
    """
    if type(data) is not dict:
        raise Fault("a fact is an object", 'write {"pred": "…", "args": […]}')
    name = data.get("pred")
    if type(name) is not str:
        raise Fault("pred is missing, or is not a string", 'write {"pred": "…", "args": […]}').inside("pred")
    with faults_at("pred"):
        by_arity = schemas.named(name)
    schema, items = match_arguments(name, data, by_arity)
    by_name = data.get("named_args") is not None
    args: list[mangle.Value] = []
    try:
        for shape, item in zip(schema.shapes, items, strict=True):
            value = to_value(item, shape)
            if check and type(value) not in shape.whole_kinds:  # the shape may refuse a value of this kind
                schema.check(len(args), value)
            args.append(value)
    except Fault as fault:
        raise fault.inside(*argument_path(schema, len(args), by_name)) from None
    with faults_at("t"):
        return mangle.Fact(name, tuple(args), interval(data.get("t"), schema, now))


def write_fact(fact: mangle.Fact, schemas: Schemas, *, wildcards: bool = False) -> dict[str, Any]:
    """Return the fact object, which :func:`read_fact` converts to an equal fact.

    With ``wildcards``, the name ``WILDCARD`` is written as null.
    """
    schema = schemas.find(fact.predicate, len(fact.args))
    args = [
        None if wildcards and arg is WILDCARD else to_json(arg, shape)
        for arg, shape in zip(fact.args, schema.shapes, strict=True)
    ]
    fact_object: dict[str, Any] = {"pred": fact.predicate, "args": args}
    validity = fact.interval or (mangle.INT_MIN, mangle.INT_MAX)
    # Without ``t``, a fact of an ``untimed_now`` predicate would hold at ``now`` only; a retraction matches any time.
    if validity != (mangle.INT_MIN, mangle.INT_MAX) or (schema.untimed_now and not wildcards):
        fact_object["t"] = _write_interval(validity)
    return fact_object


class InvalidFact(Fault):
    """A fact whose arguments do not fit a predicate; ``issue`` and ``members`` go into its :class:`.Violation`."""

    def __init__(self, issue: str, message: str, fix: str | None = None, **members: int | None) -> None:
        super().__init__(message, fix)
        self.issue = issue
        self.members = members


def match_arguments(name: str, fact: dict[str, Any], by_arity: Mapping[int, Schema]) -> tuple[Schema, list[Any]]:
    """Return the schema for a fact object, and the JSON of its arguments in order. Raises :class:`InvalidFact`."""
    subject, args, named_args = f"Predicate '{name}'", fact.get("args"), fact.get("named_args")
    single = next(iter(by_arity.values())) if len(by_arity) == 1 else None
    if (args is None) == (named_args is None):
        raise InvalidFact("invalid_fact", f"{subject}: a fact has either 'args' or 'named_args'", "Give one of the two")
    if named_args is None:
        if type(args) is not list:
            raise InvalidFact("invalid_fact", f"{subject}: 'args' is an array").inside("args")
        if len(args) not in by_arity:
            expected = " or ".join(map(str, sorted(by_arity)))
            names = f" ({', '.join(single.arg_names)})" if single is not None and single.arg_names else ""
            message = f"{subject} expects {expected} argument{'' if expected == '1' else 's'}{names}, got {len(args)}"
            expected_arity = None if single is None else single.arity
            raise InvalidFact("arity_mismatch", message, expected_arity=expected_arity, actual_arity=len(args))
        return by_arity[len(args)], args
    with faults_at("named_args"):
        if type(named_args) is not dict:
            raise InvalidFact("invalid_named_args", f"{subject}: 'named_args' is an object")
        schema = by_arity.get(len(named_args)) or next(iter(by_arity.values()))
        if schema.arg_names is None:
            raise InvalidFact("invalid_named_args", f"{subject} does not name its arguments", "Use 'args'")
        missing = [f"'{name}'" for name in schema.arg_names if name not in named_args]
        unknown = [quote(key) for key in named_args if key not in schema.arg_names]
        if missing or unknown:
            parts = [f"{_shorten(keys)} {what}" for keys, what in ((missing, "missing"), (unknown, "unknown")) if keys]
            message = f"{subject} takes the arguments ({', '.join(schema.arg_names)}): {'; '.join(parts)}"
            raise InvalidFact("invalid_named_args", message)
    return schema, [named_args[name] for name in schema.arg_names]


def argument_path(schema: Schema, position: int, by_name: bool) -> tuple[str, str | int]:
    """Return the path of an argument in a fact object; ``by_name`` is whether the object has ``named_args``."""
    if not by_name or schema.arg_names is None:
        return "args", position
    return "named_args", schema.arg_names[position]


def _shorten(texts: list[str]) -> str:
    return ", ".join(texts[:5]) + (f" and {len(texts) - 5} more" if len(texts) > 5 else "")


def interval(t: Any, schema: Schema, now: int | None = None) -> mangle.Interval | None:
    """Return the interval of the member ``t``; None for a fact that always holds. Raises :class:`Fault`.

    If the schema is ``untimed_now``, a fact without ``t`` holds at ``now`` only, and a fact that holds already ends at
    ``now`` at the latest, because clients do not know the future.
    """
    if t is None:
        return (now, now) if schema.untimed_now and now is not None else None
    times = {name: time for name in _TIME_MEMBERS if (time := t.get(name)) is not None} if type(t) is dict else {}
    if not times or ("at" in times and len(times) > 1):
        raise Fault("t is not a time", 'write {"at": T} or {"start": T, "end": T}')
    if "at" in times:
        with faults_at("at"):
            start = end = instant(times["at"], now)
    elif len(times) < 2:
        missing = "end" if "start" in times else "start"
        raise Fault(f"{missing} is missing", f'write "{UNBOUNDED}" if there is none').inside(missing)
    else:
        with faults_at("start"):
            start = mangle.INT_MIN if times["start"] == UNBOUNDED else instant(times["start"], now)
        with faults_at("end"):
            end = mangle.INT_MAX if times["end"] == UNBOUNDED else instant(times["end"], now)
    if schema.untimed_now and now is not None and start <= now:
        end = min(end, now)
        start = end if start == mangle.INT_MIN else start  # an unbounded start states nothing about the past
    if (start, end) == (mangle.INT_MIN, mangle.INT_MAX):
        return None
    return checked_interval(start, end, schema)


def checked_interval(start: int, end: int, schema: Schema) -> mangle.Interval:
    """Return the interval. Raises :class:`Fault` if it is empty or the predicate is not temporal."""
    if not schema.temporal:
        raise Fault(f"{schema.predicate} is not temporal", "leave the time out")
    if not mangle.is_nonempty_interval(start, end):
        raise Fault("the interval ends before it starts")
    return start, end


def instant(data: Any, now: int | None = None) -> int:
    """Return the instant of RFC 3339 text, of milliseconds since 1970, or of ``"now"`` if ``now`` is given."""
    if data == NOW:
        if now is not None:
            return now
        raise Fault("now is known only when a request is evaluated", "give the instant")
    if type(data) is str:
        return read_instant(data)
    if type(data) is int:
        return instant_of_milliseconds(data)
    raise Fault("a time is RFC 3339 text or milliseconds since 1970", "write it as '2026-01-31T12:00:00Z'")


def read_eval_time(eval_time: Any, clock: Callable[[], int]) -> int:
    """Return the evaluation time of a request; the clock's time without one. Raises a ``WireError``."""
    if eval_time is None or eval_time == NOW:
        return clock()
    try:
        now = instant(eval_time)
    except Fault as fault:
        raise malformed(f"eval_time: {fault.message}", "$.payload.eval_time", fault.fix) from None
    if not mangle.INT_MIN < now < mangle.INT_MAX:
        raise malformed("eval_time is out of range", "$.payload.eval_time")
    return now


def _write_interval(validity: mangle.Interval) -> dict[str, str]:
    start, end = validity
    if start == end:
        return {"at": mangle.instant_text(start)}
    return {
        "start": UNBOUNDED if start == mangle.INT_MIN else mangle.instant_text(start),
        "end": UNBOUNDED if end == mangle.INT_MAX else mangle.instant_text(end),
    }


Category: TypeAlias = Literal["server", "session", "derived"]

PROVENANCE_CATEGORIES: Final = ("server", "session", "derived")
SOURCE_TYPES: Final = ("server", "scan", "external", "client", "derived")  # the most trusted first


def check_source(data: Any, now: int) -> None:
    """Raise :class:`Fault` if ``data`` is neither a source nor null. The server only checks sources."""
    if data is None:
        return
    if type(data) is not dict:
        raise Fault("source is an object", 'write {"source_type": "client"}')
    kind = data.get("source_type")
    if type(kind) is not str:
        raise Fault("source_type is missing, or is not a string", 'write "client"').inside("source_type")
    if kind not in SOURCE_TYPES and not (kind.startswith("x-") and len(kind) > 2):
        fix = f"one of {', '.join(SOURCE_TYPES)}, or a type of your own that begins with x-"
        raise Fault(f"{quote(kind)} is not a source type", fix).inside("source_type")
    if type(data.get("source_id")) not in (str, type(None)):
        raise Fault("source_id is a string or null").inside("source_id")
    if data.get("asserted_at") is not None:
        with faults_at("asserted_at"):
            instant(data["asserted_at"], now)


def check_category(data: Any) -> None:
    """Raise :class:`Fault` if ``data`` is neither a category nor null. The server only checks categories."""
    if data is not None and (type(data) is not str or data not in PROVENANCE_CATEGORIES):
        quoted = quote(data) if type(data) is str else "the value"
        raise Fault(f"{quoted} is not a category", f"one of {', '.join(PROVENANCE_CATEGORIES)}")


def parse_fact_objects(source: Source, now: int) -> list[dict[str, Any]]:
    """Return the facts of a Mangle text as fact objects. Raises :class:`manglecp.mangle.ParseError`.

    ``now`` is the evaluation time. The facts are not checked against a profile.
    """
    unit = mangle.parse(source)
    if (declaration := next(iter(unit.decls), None)) is not None:
        raise _parse_error("facts have no declarations", declaration.span)
    return [_clause_to_json(clause, now) for clause in unit.clauses]


def parse_fact_argument(name: str, text: str, now: int) -> list[dict[str, Any]]:
    """Return the facts of a text whose final full stop may be missing; error messages call the text ``name``."""
    return parse_fact_objects(Source(name, text.strip().removesuffix(".") + " ."), now)


def _clause_to_json(clause: Clause, now: int) -> dict[str, Any]:
    if not clause.is_fact:
        raise _parse_error("this is a rule, and clients state facts", clause.span)
    try:
        args = [_term_to_json(arg, now) for arg in clause.head.args]
        fact: dict[str, Any] = {"pred": clause.head.predicate, "args": args}
        if clause.annotation is not None:
            fact["t"] = _write_interval(mangle.head_interval(clause.annotation, {}, now))
    except mangle.ValueFault as fault:
        raise _parse_error(str(fault), clause.span) from None
    return fact


def _term_to_json(term: Term, now: int) -> Any:
    if (variable := next(iter(term_variables(term)), None)) is not None:
        raise mangle.ValueFault(f"a fact has no variables, found {variable.name}")
    return to_json(mangle.evaluate_term(term, {}, now))


def _parse_error(message: str, span: Span | None) -> mangle.ParseError:
    return mangle.ParseError([Diagnostic("parse", message, span)])
