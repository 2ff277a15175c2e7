"""One fact object to a fact and back (companion, section 4).

    {"pred": "build_result", "args": ["payments-api", 4812], "t": {"at": "2026-03-02T09:14:00Z"}}

``named_args`` may stand in place of ``args`` where the declaration names every argument. Members that are not known are
skipped, in ``t`` too (OPEN-58), and null counts as absent; ``source`` and ``category`` say nothing about what the fact
states.
"""

from __future__ import annotations

from typing import Any, Final

from manglecp.base.text import quote
from manglecp.mangle import INT_MAX, INT_MIN, Fact, Interval, Name, Value, holds_somewhere, instant_text
from manglecp.wire.decoding import JSON
from manglecp.wire.faults import Fault
from manglecp.wire.schemas import Schema, Schemas
from manglecp.wire.texts import instant_of_milliseconds, read_instant
from manglecp.wire.values import to_json, to_value

WILDCARD: Final = Name("/_")
"""What null is, where any value may be meant."""
UNBOUNDED: Final = "_"
NOW: Final = "now"
_ENDS: Final = ("at", "start", "end")


def read_fact(
    data: JSON, schemas: Schemas, *, now: int | None = None, wildcards: bool = False, check: bool = True
) -> Fact:
    """The fact that ``data`` states, checked against the declared bounds unless ``check`` says no.

    ``now`` is what that word means, if it may be used. ``wildcards`` lets null stand for any value of an argument.
    """
    if type(data) is not dict:
        raise Fault("a fact is an object", 'write {"pred": "…", "args": […]}')
    name = data.get("pred")
    if type(name) is not str:
        raise Fault("pred is missing, or is not a string", 'write {"pred": "…", "args": […]}').inside("pred")
    by_name = data.get("named_args") is not None
    if (data.get("args") is not None) == by_name:
        raise Fault("a fact has either args or named_args", "give one of the two")
    schema, given = _named(name, data, schemas) if by_name else _positional(name, data, schemas)
    args: list[Value] = []
    try:
        for shape, item in zip(schema.shapes, given, strict=True):
            if item is None and wildcards:
                args.append(WILDCARD)
                continue
            value = to_value(item, shape)
            args.append(schema.check(len(args), value) if check else value)
    except Fault as fault:
        raise fault.inside(*steps(schema, len(args), by_name)) from None
    try:
        return Fact(name, tuple(args), interval(data.get("t"), schema, now))
    except Fault as fault:
        raise fault.inside("t") from None


def write_fact(fact: Fact, schemas: Schemas, *, wildcards: bool = False) -> dict[str, Any]:
    """What :func:`read_fact` reads back as the same fact."""
    schema = schemas.find(fact.predicate, len(fact.args))
    args = [
        None if wildcards and arg is WILDCARD else to_json(arg, shape)
        for arg, shape in zip(fact.args, schema.shapes, strict=True)
    ]
    written: dict[str, Any] = {"pred": fact.predicate, "args": args}
    if fact.interval is not None and fact.interval != (INT_MIN, INT_MAX):
        written["t"] = _written(fact.interval)
    return written


# --- arguments -------------------------------------------------------------------------------------------------------


def _positional(name: str, fact: dict[str, Any], schemas: Schemas) -> tuple[Schema, list[Any]]:
    data = fact["args"]
    if type(data) is not list:
        raise Fault("args is an array").inside("args")
    try:
        return schemas.find(name, len(data)), data
    except Fault as fault:
        raise fault.inside("pred") from None


def _named(name: str, fact: dict[str, Any], schemas: Schemas) -> tuple[Schema, list[Any]]:
    """The arguments in their order."""
    data = fact["named_args"]
    if type(data) is not dict:
        raise Fault("named_args is an object").inside("named_args")
    try:
        by_arity = schemas.named(name)
    except Fault as fault:
        raise fault.inside("pred") from None
    schema = by_arity.get(len(data)) or next(iter(by_arity.values()))
    if schema.arg_names is None:
        raise Fault(f"the arguments of {name} have no names", "use args").inside("named_args")
    if data.keys() != set(schema.arg_names):
        missing = [n for n in schema.arg_names if n not in data]
        wrong = [quote(key) for key in data if key not in schema.arg_names]
        parts = [f"{some(missing)} is missing"] * bool(missing) + [f"{some(wrong)} is unknown"] * bool(wrong)
        fix = f"{name} takes {', '.join(schema.arg_names)}"
        raise Fault(" and ".join(parts), fix).inside("named_args")
    return schema, [data[key] for key in schema.arg_names]


def steps(schema: Schema, position: int, by_name: bool) -> tuple[str, str | int]:
    """The way to an argument of a fact, as the fact was written."""
    if not by_name or schema.arg_names is None:
        return "args", position
    return "named_args", schema.arg_names[position]


def some(texts: list[str], most: int = 5) -> str:
    """The first of them, and how many more there are."""
    return ", ".join(texts[:most]) + (f" and {len(texts) - most} more" if len(texts) > most else "")


# --- time ------------------------------------------------------------------------------------------------------------


def interval(data: Any, schema: Schema, now: int | None = None) -> Interval | None:
    """The interval that ``t`` says; None for a fact that holds always (OPEN-12)."""
    if data is None:
        return None
    ends = {name: said for name in _ENDS if (said := data.get(name)) is not None} if type(data) is dict else {}
    if not ends or ("at" in ends and len(ends) > 1):
        raise Fault("t is not a time", 'write {"at": T} or {"start": T, "end": T}')
    if "at" in ends:
        start = end = _instant(ends["at"], now, "at")
    elif len(ends) < 2:
        missing = "end" if "start" in ends else "start"
        raise Fault(f"{missing} is missing", f'write "{UNBOUNDED}" if there is none').inside(missing)
    else:
        start = INT_MIN if ends["start"] == UNBOUNDED else _instant(ends["start"], now, "start")
        end = INT_MAX if ends["end"] == UNBOUNDED else _instant(ends["end"], now, "end")
    if (start, end) == (INT_MIN, INT_MAX):
        return None
    return checked_interval(start, end, schema)


def checked_interval(start: int, end: int, schema: Schema) -> Interval:
    """The two ends, if facts of the predicate have a time and this is one."""
    if not schema.temporal:
        raise Fault(f"{schema.predicate} is not temporal", "leave the time out, or add temporal to its Decl")
    if not holds_somewhere(start, end):
        raise Fault("the interval ends before it starts")
    return start, end


def _instant(data: Any, now: int | None, step: str) -> int:
    try:
        return instant(data, now)
    except Fault as fault:
        raise fault.inside(step) from None


def instant(data: Any, now: int | None = None) -> int:
    """A particular instant: text, milliseconds, or ``now`` where that is known."""
    if data == NOW:
        if now is not None:
            return now
        raise Fault("now is known only when a request is evaluated", "give the instant")
    if type(data) is str:
        return read_instant(data)
    if type(data) is int:
        return instant_of_milliseconds(data)
    raise Fault("a time is RFC 3339 text or milliseconds since 1970", "write it as '2026-01-31T12:00:00Z'")


def _written(between: Interval) -> dict[str, str]:
    start, end = between
    if start == end:
        return {"at": instant_text(start)}
    return {
        "start": UNBOUNDED if start == INT_MIN else instant_text(start),
        "end": UNBOUNDED if end == INT_MAX else instant_text(end),
    }
