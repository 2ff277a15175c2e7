import math

import pytest
from hypothesis import given, strategies as st

from manglecp.mangle.errors import ValueFault
from manglecp.mangle.values import (
    INT_MAX,
    INT_MIN,
    NEG_INF,
    POS_INF,
    Duration,
    Float,
    Name,
    Pair,
    Time,
    Value,
)

from .helpers import SECOND, call, fault, span, time
from .strategies import DURATIONS, TIMES

NEW_YORK = "America/New_York"
LEAP = time("2024-02-29T23:45:06.789Z")
BOUND = "is infinite"
RANGE = "outside the representable range"


def test_now_is_the_evaluation_time() -> None:
    assert call("fn:time:now", now=17) is Time(17)


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1969-12-31T23:59:59.999999999Z", -1),
        ("2026-01-15T12:00:00Z", 1768478400 * SECOND),
        ("2026-01-15T12:00:00.5+01:00", 1768474800 * SECOND + SECOND // 2),
        ("2026-01-15T12:00:00-00:30", 1768480200 * SECOND),
        ("1677-09-21T00:12:43.145224192Z", INT_MIN),
        ("2262-04-11T23:47:16.854775807Z", INT_MAX),
    ],
)
def test_parse_rfc3339(text: str, ns: int) -> None:
    assert call("fn:time:parse_rfc3339", text) is Time(ns)


@pytest.mark.parametrize(
    ("unit", "text"),
    [
        ("/year", "2024"),
        ("/month", "2024-02"),
        ("/day", "2024-02-29"),
        ("/hour", "2024-02-29T23Z"),
        ("/minute", "2024-02-29T23:45Z"),
        ("/second", "2024-02-29T23:45:06Z"),
        ("/millisecond", "2024-02-29T23:45:06.789Z"),
        ("/microsecond", "2024-02-29T23:45:06.789000Z"),
        ("/nanosecond", "2024-02-29T23:45:06.789Z"),
    ],
)
def test_format(unit: str, text: str) -> None:
    assert call("fn:time:format", LEAP, Name(unit)) == text
    assert call("fn:time:format_civil", LEAP, "UTC", Name(unit)) == text


@pytest.mark.parametrize(
    ("instant", "zone", "unit", "text"),
    [
        ("2026-03-07T17:00:00Z", NEW_YORK, "/second", "2026-03-07T12:00:00-05:00"),
        ("2026-03-08T16:00:00Z", NEW_YORK, "/second", "2026-03-08T12:00:00-04:00"),
        ("2026-01-01T02:00:00Z", NEW_YORK, "/year", "2025"),
        ("2026-01-15T12:00:00Z", "Europe/London", "/hour", "2026-01-15T12Z"),
        ("2026-01-15T12:00:00Z", "Asia/Kathmandu", "/minute", "2026-01-15T17:45+05:45"),
        ("2026-01-15T12:00:00Z", "UTC", "/nanosecond", "2026-01-15T12:00:00Z"),
        ("1880-01-01T00:00:00Z", NEW_YORK, "/minute", "1879-12-31T19:03-04:56"),  # local mean time: -04:56:02
    ],
)
def test_format_civil(instant: str, zone: str, unit: str, text: str) -> None:
    assert call("fn:time:format_civil", time(instant), zone, Name(unit)) == text


def test_fields() -> None:
    parts = ["year", "month", "day", "hour", "minute", "second"]
    assert [call(f"fn:time:{part}", LEAP) for part in parts] == [2024, 2, 29, 23, 45, 6]
    assert [call(f"fn:time:{part}", Time(-1)) for part in parts] == [1969, 12, 31, 23, 59, 59]


@pytest.mark.parametrize(
    ("unit", "text"),
    [
        ("/day", "2026-01-15T00:00:00Z"),
        ("/hour", "2026-01-15T13:00:00Z"),
        ("/minute", "2026-01-15T13:47:00Z"),
        ("/second", "2026-01-15T13:47:59Z"),
        ("/millisecond", "2026-01-15T13:47:59.123Z"),
        ("/microsecond", "2026-01-15T13:47:59.123456Z"),
        ("/nanosecond", "2026-01-15T13:47:59.123456789Z"),
    ],
)
def test_trunc(unit: str, text: str) -> None:
    assert call("fn:time:trunc", time("2026-01-15T13:47:59.123456789Z"), Name(unit)) is time(text)


def test_trunc_goes_back_before_1970_too() -> None:
    assert call("fn:time:trunc", Time(-1), Name("/second")) is Time(-SECOND)


@pytest.mark.parametrize(
    ("zone", "unit", "text"),
    [
        ("UTC", "/year", "2026-01-01T00:00:00Z"),
        ("UTC", "/month", "2026-03-01T00:00:00Z"),
        ("UTC", "/week", "2026-03-02T00:00:00Z"),
        ("UTC", "/day", "2026-03-08T00:00:00Z"),
        (NEW_YORK, "/year", "2026-01-01T05:00:00Z"),
        (NEW_YORK, "/month", "2026-03-01T05:00:00Z"),
        (NEW_YORK, "/week", "2026-03-02T05:00:00Z"),
        (NEW_YORK, "/day", "2026-03-08T05:00:00Z"),
    ],
)
def test_trunc_civil(zone: str, unit: str, text: str) -> None:
    assert call("fn:time:trunc_civil", time("2026-03-08T16:00:00Z"), zone, Name(unit)) is time(text)


@pytest.mark.parametrize(
    ("name", "args", "result"),
    [
        ("fn:time:add", (Time(5), Duration(-6)), Time(-1)),
        ("fn:time:sub", (Time(5), Time(8)), Duration(-3)),
        ("fn:time:from_unix_nanos", (7,), Time(7)),
        ("fn:time:from_unix_nanos", (INT_MIN,), NEG_INF),
        ("fn:time:to_unix_nanos", (Time(7),), 7),
        ("fn:time:to_unix_nanos", (POS_INF,), INT_MAX),
        ("fn:duration:from_nanos", (7,), Duration(7)),
        ("fn:duration:from_seconds", (5,), Duration(5 * SECOND)),
        ("fn:duration:from_seconds", (9_000_000_001,), Duration(9_000_000_001 * SECOND)),
        ("fn:duration:from_seconds", (Float(0.29),), Duration(290_000_000)),
        ("fn:duration:from_seconds", (Float(1e-10),), Duration(0)),
        ("fn:duration:from_seconds", (Float(-1.5e-9),), Duration(-1)),
        ("fn:duration:from_minutes", (Float(1.5),), Duration(90 * SECOND)),
        ("fn:duration:from_hours", (-1,), Duration(-3600 * SECOND)),
        ("fn:duration:nanos", (Duration(7),), 7),
        ("fn:duration:seconds", (span("1.1s"),), Float(1.1)),
        ("fn:duration:minutes", (span("-90s"),), Float(-1.5)),
        ("fn:duration:hours", (span("30m"),), Float(0.5)),
        ("fn:duration:hours", (Duration(0),), Float(0.0)),
        ("fn:duration:add", (Duration(5), Duration(-6)), Duration(-1)),
        ("fn:duration:mult", (Duration(5), -2), Duration(-10)),
        ("fn:interval:start", (Pair(1, "a"),), 1),
        ("fn:interval:end", (Pair(1, POS_INF),), POS_INF),
        ("fn:interval:duration", (Pair(Time(5), Time(8)),), Duration(3)),
    ],
)
def test_conversions_and_arithmetic(name: str, args: tuple[Value, ...], result: Value) -> None:
    assert call(name, *args) == result


@given(start=TIMES, by=DURATIONS)
def test_adding_what_was_subtracted(start: Time, by: Duration) -> None:
    if not INT_MIN < start.ns + by.ns < INT_MAX or start in (NEG_INF, POS_INF):
        assert fault("fn:time:add", start, by).endswith((RANGE, BOUND))
        return
    end = call("fn:time:add", start, by)
    assert call("fn:time:sub", end, start) is by
    assert call("fn:interval:duration", Pair(start, end)) is by


_UNITS = [Name("/day"), Name("/year")]
_OF_ONE_TIME: list[tuple[str, tuple[Value, ...]]] = [
    ("fn:time:format", (Name("/day"),)),
    ("fn:time:format_civil", ("UTC", Name("/day"))),
    ("fn:time:trunc", (Name("/day"),)),
    ("fn:time:trunc_civil", ("UTC", Name("/day"))),
    ("fn:time:add", (Duration(0),)),
    ("fn:time:sub", (Time(0),)),
    *[(f"fn:time:{part}", ()) for part in ("year", "month", "day", "hour", "minute", "second")],
]


@pytest.mark.parametrize("infinite", [NEG_INF, POS_INF])
@pytest.mark.parametrize(("name", "others"), _OF_ONE_TIME)
def test_infinite_instants_have_no_place_in_the_calendar(name: str, others: tuple[Value, ...], infinite: Time) -> None:
    assert fault(name, infinite, *others).endswith(BOUND)


@pytest.mark.parametrize("ends", [(Time(0), POS_INF), (NEG_INF, Time(0)), (POS_INF, Time(0)), (POS_INF, POS_INF)])
def test_infinite_intervals_have_no_duration(ends: tuple[Time, Time]) -> None:
    assert fault("fn:interval:duration", Pair(*ends)).endswith(BOUND)
    assert fault("fn:time:sub", *ends).endswith(BOUND)


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("fn:time:add", (Time(1), Duration(INT_MAX))),
        ("fn:time:add", (Time(1), Duration(INT_MAX - 1))),  # a finite sum must not become infinite
        ("fn:time:sub", (Time(INT_MAX - 1), Time(-2))),
        ("fn:time:trunc", (Time(INT_MIN + 1), Name("/second"))),
        ("fn:time:trunc_civil", (Time(INT_MIN + 1), "UTC", Name("/day"))),
        ("fn:time:parse_rfc3339", ("2262-04-11T23:47:16.854775808Z",)),
        ("fn:time:parse_rfc3339", ("0001-01-01T00:00:00+23:59",)),
        ("fn:time:parse_civil", ("9999-12-31T23:59:59", NEW_YORK)),
        ("fn:duration:parse", ("9223372036854775808ns",)),
        ("fn:duration:parse", ("9" * 5000 + "h",)),
        ("fn:duration:from_seconds", (INT_MAX,)),
        ("fn:duration:from_hours", (Float(1e300),)),
        ("fn:duration:add", (Duration(INT_MAX), Duration(1))),
        ("fn:duration:mult", (Duration(INT_MIN), -1)),
        ("fn:interval:duration", (Pair(Time(-2), Time(INT_MAX - 1)),)),
    ],
)
def test_results_out_of_range_are_faults(name: str, args: tuple[Value, ...]) -> None:
    assert fault(name, *args).endswith(RANGE)


@pytest.mark.parametrize("count", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("unit", ["seconds", "minutes", "hours"])
def test_durations_are_finite(count: float, unit: str) -> None:
    name = f"fn:duration:from_{unit}"
    assert fault(name, Float(count)).startswith(f"{name} takes a finite number or float64, not the float64 fn:")


@given(zone=st.text(max_size=60), unit=st.sampled_from(_UNITS))
def test_no_text_is_a_dangerous_zone(zone: str, unit: Name) -> None:
    try:
        call("fn:time:parse_civil", "2026-01-15T12:00:00", zone)
    except ValueFault:
        assert " takes the name of a time zone such as Europe/Berlin" in fault(
            "fn:time:trunc_civil", Time(0), zone, unit
        )


@pytest.mark.parametrize(
    ("name", "args", "message"),
    [
        (
            "fn:time:parse_rfc3339",
            ("2026-01-15 12:00",),
            "fn:time:parse_rfc3339 takes a date and time such as 2026-01-15T12:00:00Z, "
            'not the string "2026-01-15 12:00"',
        ),
        ("fn:time:parse_rfc3339", (1,), "fn:time:parse_rfc3339 takes a string, not the number 1"),
        (
            "fn:time:parse_civil",
            ("2026-02-30T12:00:00", "UTC"),
            "fn:time:parse_civil takes a date and time such as 2026-01-15T12:00:00, "
            'not the string "2026-02-30T12:00:00"',
        ),
        (
            "fn:time:parse_civil",
            ("2026-01-15T12:00:00", "Europe/Berln"),
            "fn:time:parse_civil takes the name of a time zone such as Europe/Berlin "
            '(did you mean Europe/Berlin?), not the string "Europe/Berln"',
        ),
        (
            "fn:time:format_civil",
            (Time(0), "Local", Name("/day")),
            'fn:time:format_civil takes the name of a time zone such as Europe/Berlin, not the string "Local"',
        ),
        (
            "fn:time:trunc",
            (Time(0), Name("/week")),
            "fn:time:trunc takes a unit out of /day, /hour, /minute, /second, /millisecond, /microsecond, "
            "/nanosecond, not the name /week",
        ),
        (
            "fn:time:trunc_civil",
            (Time(0), "", Name("/hour")),
            "fn:time:trunc_civil takes a unit out of /year, /month, /week, /day, not the name /hour",
        ),
        ("fn:time:format", (Time(0), "/day"), 'fn:time:format takes a name, not the string "/day"'),
        (
            "fn:time:year",
            (POS_INF,),
            "fn:time:year takes a finite time, but the time "
            'fn:time:parse_rfc3339("2262-04-11T23:47:16.854775807Z") is infinite',
        ),
        (
            "fn:duration:parse",
            ("7d",),
            "fn:duration:parse takes a duration such as 1h30m or 2.5s, in units out of h, m, s, ms, us, ns, "
            'not the string "7d"',
        ),
        ("fn:duration:mult", (Duration(1), Float(2.0)), "fn:duration:mult takes a number, not the float64 2.0"),
        ("fn:duration:from_nanos", (Float(2.0),), "fn:duration:from_nanos takes a number, not the float64 2.0"),
        (
            "fn:duration:add",
            (Duration(INT_MAX), Duration(1)),
            'fn:duration:add of the duration fn:duration:parse("2562047h47m16.854775807s") and '
            'the duration fn:duration:parse("1ns") gives a duration outside the representable range',
        ),
        ("fn:interval:start", (1,), "fn:interval:start takes a pair, not the number 1"),
        (
            "fn:interval:duration",
            (Pair(1, Time(2)),),
            "fn:interval:duration takes a pair of times, not the pair "
            'fn:pair(1, fn:time:parse_rfc3339("1970-01-01T00:00:00.000000002Z"))',
        ),
    ],
)
def test_faults(name: str, args: tuple[Value, ...], message: str) -> None:
    assert fault(name, *args) == message
