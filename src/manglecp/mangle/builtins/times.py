"""Instants, durations and intervals as values.

Times and durations do not wrap around: a result out of range is a fault. Infinite instants can be compared and
converted, but not formatted, truncated, added or subtracted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from datetime import datetime
from typing import Final
from zoneinfo import ZoneInfo

from manglecp.base.suggestions import closest_match
from manglecp.mangle.builtins import calendar
from manglecp.mangle.builtins.calendar import HOUR, MINUTE, SECOND
from manglecp.mangle.builtins.registry import (
    Function,
    argument_fault,
    checked_duration,
    checked_instant,
    describe,
    duration,
    finite_instant,
    instant,
    interval,
    name,
    number,
    pair,
    pure,
    real,
    string,
)
from manglecp.mangle.errors import ValueFault
from manglecp.mangle.values import INT_MAX, INT_MIN, Duration, Float, Time, Value

_UTC: Final = ""  # the name of the zone UTC, see calendar.zone


def _now(_args: tuple[Value, ...], now: int) -> Value:
    return Time(now)


def _parse_rfc3339(op: str, text: Value) -> Value:
    return _checked_time(op, text, calendar.parse_rfc3339(string(op, text)), "2026-01-15T12:00:00Z")


def _parse_civil(op: str, text: Value, zone_name: Value) -> Value:
    date_time = string(op, text)
    return _checked_time(op, text, calendar.parse_civil(date_time, _zone(op, zone_name)), "2026-01-15T12:00:00")


def _checked_time(op: str, text: Value, ns: int | None, example: str) -> Value:
    if ns is None:
        raise argument_fault(op, text, f"a date and time such as {example}")
    if not INT_MIN <= ns <= INT_MAX:  # both ends are infinities, whose text must parse too
        raise ValueFault(f"{op} reads {describe(text)} as a time outside the representable range")
    return Time(ns)


def _format(op: str, time: Value, unit: Value) -> Value:
    return _format_civil(op, time, _UTC, unit)


def _format_civil(op: str, time: Value, zone_name: Value, unit: Value) -> Value:
    ns, tz = finite_instant(op, time), _zone(op, zone_name)
    return calendar.format_instant(ns, tz, _unit(op, unit, calendar.FORMAT_LENGTHS))


def _trunc(op: str, time: Value, unit: Value) -> Value:
    ns = finite_instant(op, time)
    start = ns - ns % calendar.FIXED_UNITS[_unit(op, unit, calendar.FIXED_UNITS)]
    return checked_instant(op, start, time, unit)


def _trunc_civil(op: str, time: Value, zone_name: Value, unit: Value) -> Value:
    ns, tz = finite_instant(op, time), _zone(op, zone_name)
    start = calendar.civil_start(ns, tz, _unit(op, unit, calendar.CIVIL_UNITS))
    return checked_instant(op, start, time, unit)


def _zone(op: str, value: Value) -> ZoneInfo:
    text = string(op, value)
    zone = calendar.zone(text)
    if zone is None:
        # closest_match is slow on long texts, and a text that long is not a misspelt zone.
        similar = closest_match(text, calendar.zone_names()) if len(text) <= 40 else None
        hint = f" (did you mean {similar}?)" if similar else ""
        raise argument_fault(op, value, f"the name of a time zone such as Europe/Berlin{hint}")
    return zone


def _unit(op: str, value: Value, units: Collection[str]) -> str:
    unit = name(op, value)
    if unit not in units:
        raise argument_fault(op, value, f"a unit out of {', '.join(units)}")
    return unit


def _fields(op: str, time: Value) -> datetime:
    return calendar.utc_datetime(finite_instant(op, time))


def _time_add(op: str, time: Value, span: Value) -> Value:
    return checked_instant(op, finite_instant(op, time) + duration(op, span), time, span)


def _time_sub(op: str, end: Value, start: Value) -> Value:
    return checked_duration(op, finite_instant(op, end) - finite_instant(op, start), end, start)


def _from_unix_nanos(op: str, count: Value) -> Value:
    return Time(number(op, count))


def _duration_parse(op: str, text: Value) -> Value:
    ns = calendar.parse_duration(string(op, text))
    if ns is None:
        raise argument_fault(op, text, "a duration such as 1h30m or 2.5s, in units out of h, m, s, ms, us, ns")
    return checked_duration(op, ns, text)


def _make_duration(unit_ns: int) -> Callable[..., Value]:
    def body(op: str, count: Value) -> Value:
        if type(count) is int:  # stays an integer, because a float would round a large number
            return checked_duration(op, count * unit_ns, count)
        amount = real(op, count)
        if not math.isfinite(amount):
            raise argument_fault(op, count, "a finite number or float64")
        span = amount * unit_ns
        return checked_duration(op, int(span) if math.isfinite(span) else INT_MAX + 1, count)  # out of range

    return body


def _count_units(unit_ns: int) -> Callable[..., Value]:
    def body(op: str, span: Value) -> Value:
        ns = duration(op, span)
        whole, rest = divmod(abs(ns), unit_ns)  # converted apart, because a float holds each exactly
        return Float(math.copysign(whole + rest / unit_ns, ns))

    return body


def _duration_add(op: str, left: Value, right: Value) -> Value:
    return checked_duration(op, duration(op, left) + duration(op, right), left, right)


def _duration_mult(op: str, span: Value, factor: Value) -> Value:
    return checked_duration(op, duration(op, span) * number(op, factor), span, factor)


def _interval_duration(op: str, value: Value) -> Value:
    start, end = interval(op, value)
    return checked_duration(op, finite_instant(op, end) - finite_instant(op, start), value)


_T: Final = "/time"
_D: Final = "/duration"
_N: Final = "/number"
_S: Final = "/string"
_U: Final = "/name"  # the name of a unit
_AMOUNT: Final = "fn:Union(/number, /float64)"
_PAIR: Final = "fn:Pair(X, Y)"

TIMES: Final[tuple[Function, ...]] = (
    Function("fn:time:now", (), _T, _now, "The evaluation time, the same throughout one evaluation."),
    pure("fn:time:parse_rfc3339", (_S,), _T, _parse_rfc3339, "The instant that an RFC 3339 text names."),
    pure("fn:time:parse_civil", (_S, _S), _T, _parse_civil, "The instant of a date and time in a zone."),
    pure("fn:time:format", (_T, _U), _S, _format, "The instant in UTC as text, down to a unit."),
    pure("fn:time:format_civil", (_T, _S, _U), _S, _format_civil, "The instant in a zone as text."),
    pure("fn:time:year", (_T,), _N, lambda op, time: _fields(op, time).year, "The year in UTC."),
    pure("fn:time:month", (_T,), _N, lambda op, time: _fields(op, time).month, "The month in UTC, from 1."),
    pure("fn:time:day", (_T,), _N, lambda op, time: _fields(op, time).day, "The day of the month in UTC, from 1."),
    pure("fn:time:hour", (_T,), _N, lambda op, time: _fields(op, time).hour, "The hour in UTC."),
    pure("fn:time:minute", (_T,), _N, lambda op, time: _fields(op, time).minute, "The minute in UTC."),
    pure("fn:time:second", (_T,), _N, lambda op, time: _fields(op, time).second, "The second in UTC."),
    pure("fn:time:add", (_T, _D), _T, _time_add, "The instant that is a duration later."),
    pure("fn:time:sub", (_T, _T), _D, _time_sub, "The duration from the second instant to the first."),
    pure("fn:time:from_unix_nanos", (_N,), _T, _from_unix_nanos, "The instant so many ns after 1970."),
    pure("fn:time:to_unix_nanos", (_T,), _N, instant, "Nanoseconds since 1970."),
    pure("fn:time:trunc", (_T, _U), _T, _trunc, "The start of the UTC day, hour, … /nanosecond."),
    pure("fn:time:trunc_civil", (_T, _S, _U), _T, _trunc_civil, "The start of a local year, month, week, day."),
    pure("fn:duration:parse", (_S,), _D, _duration_parse, "The duration that a text such as 1h30m names."),
    pure("fn:duration:from_nanos", (_N,), _D, lambda op, count: Duration(number(op, count)), "So many nanoseconds."),
    pure("fn:duration:from_seconds", (_AMOUNT,), _D, _make_duration(SECOND), "So many seconds, cut to whole ns."),
    pure("fn:duration:from_minutes", (_AMOUNT,), _D, _make_duration(MINUTE), "So many minutes, cut to whole ns."),
    pure("fn:duration:from_hours", (_AMOUNT,), _D, _make_duration(HOUR), "So many hours, cut to whole ns."),
    pure("fn:duration:nanos", (_D,), _N, duration, "The duration in nanoseconds."),
    pure("fn:duration:seconds", (_D,), "/float64", _count_units(SECOND), "The duration in seconds."),
    pure("fn:duration:minutes", (_D,), "/float64", _count_units(MINUTE), "The duration in minutes."),
    pure("fn:duration:hours", (_D,), "/float64", _count_units(HOUR), "The duration in hours."),
    pure("fn:duration:add", (_D, _D), _D, _duration_add, "Both durations together."),
    pure("fn:duration:mult", (_D, _N), _D, _duration_mult, "The duration so many times."),
    pure("fn:interval:start", (_PAIR,), "X", lambda op, value: pair(op, value).first, "The first part of a pair."),
    pure("fn:interval:end", (_PAIR,), "Y", lambda op, value: pair(op, value).second, "The second part of a pair."),
    pure("fn:interval:duration", ("fn:Pair(/time, /time)",), _D, _interval_duration, "End less start."),
)
