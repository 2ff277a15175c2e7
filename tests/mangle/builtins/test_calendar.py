"""The calendar by itself: zones, and the days on which clocks change."""

from datetime import UTC, datetime

import pytest
from hypothesis import example, given, strategies as st

from manglecp.mangle.builtins import calendar
from manglecp.mangle.printer import duration_text, instant_text
from manglecp.mangle.values import INT_MAX, INT_MIN

from .strategies import INT64

SECOND = 1_000_000_000
ZONES = st.sampled_from(sorted(calendar.zone_names()))


def utc(year: int, month: int, day: int, hour: int = 0, minute: int = 0, second: int = 0) -> int:
    return int(datetime(year, month, day, hour, minute, second, tzinfo=UTC).timestamp()) * SECOND


@pytest.mark.parametrize("name", ["", "UTC", "Europe/Berlin", "America/Argentina/Buenos_Aires", "Etc/GMT+5"])
def test_known_zones(name: str) -> None:
    assert calendar.zone(name) is calendar.zone(name) is not None


@pytest.mark.parametrize(
    "name",
    [
        *["Local", "local", "localtime", "europe/berlin", "Europe", "Europe/", "/Europe/Berlin", "Europe//Berlin"],
        *["../x", "Europe/../UTC", "/etc/localtime", "UTC\0", "UTC\n", " UTC", "zones", "tzdata.zi", "é", "\ud800"],
    ],
)
def test_unknown_zones(name: str) -> None:
    assert calendar.zone(name) is None


@given(ns=INT64)
def test_every_instant_reads_back_from_its_text(ns: int) -> None:
    assert calendar.parse_rfc3339(instant_text(ns)) == ns


@given(ns=INT64)
def test_every_duration_reads_back_from_its_text(ns: int) -> None:
    assert calendar.parse_duration(duration_text(ns)) == ns


@given(ns=INT64, name=ZONES)
def test_what_is_shown_to_the_nanosecond_is_the_instant(ns: int, name: str) -> None:
    zone = calendar.zone(name)
    assert zone is not None
    shown = calendar.format_instant(ns, zone, "/nanosecond")
    offset = datetime(1970, 1, 1, tzinfo=UTC).fromtimestamp(ns // SECOND, zone).utcoffset()
    assert offset is not None
    if offset.seconds % 60 == 0:  # RFC 3339 has no seconds in its offsets
        assert calendar.parse_rfc3339(shown) == ns


@given(ns=INT64, name=ZONES, unit=st.sampled_from(calendar.CIVIL_UNITS))
@example(utc(1919, 3, 31, 4, 45), "America/Toronto", "/day")  # 23:30 became 00:30
@example(utc(2011, 12, 30, 12), "Pacific/Apia", "/week")  # the 30th was left out
@example(utc(1867, 10, 18, 20), "America/Sitka", "/day")  # the 18th came twice
def test_a_local_unit_starts_at_or_before_each_of_its_instants(ns: int, name: str, unit: str) -> None:
    zone = calendar.zone(name)
    assert zone is not None
    start = calendar.civil_start(ns, zone, unit)
    assert start <= ns
    assert calendar.civil_start(start, zone, unit) == start


@pytest.mark.parametrize(
    ("name", "instant", "start"),
    [
        ("America/Sao_Paulo", utc(2018, 11, 4, 12), utc(2018, 11, 4, 3)),  # 00:00 became 01:00
        ("America/Toronto", utc(1919, 3, 31, 12), utc(1919, 3, 31, 4, 30)),  # 23:30 became 00:30
        ("America/Havana", utc(2026, 11, 1, 12), utc(2026, 11, 1, 4)),  # 01:00 became 00:00: midnight came twice
        ("Europe/Berlin", utc(2026, 3, 29, 12), utc(2026, 3, 28, 23)),
        ("Europe/Berlin", utc(2026, 10, 25, 23, 30), utc(2026, 10, 25, 23)),
    ],
)
def test_days_on_which_clocks_change(name: str, instant: int, start: int) -> None:
    zone = calendar.zone(name)
    assert zone is not None
    assert calendar.civil_start(instant, zone, "/day") == start


@pytest.mark.parametrize(
    ("text", "name", "instant"),
    [
        ("2026-03-08T12:00:00", "America/New_York", utc(2026, 3, 8, 16)),
        ("2026-03-07T12:00:00", "America/New_York", utc(2026, 3, 7, 17)),
        ("2026-03-08T02:30:00", "America/New_York", utc(2026, 3, 8, 7, 30)),  # never: read as 03:30
        ("2026-11-01T01:30:00", "America/New_York", utc(2026, 11, 1, 5, 30)),  # twice: the first
        ("2026-03-29T02:30:00", "Europe/Berlin", utc(2026, 3, 29, 1, 30)),
        ("2026-10-25T02:30:00", "Europe/Berlin", utc(2026, 10, 25, 0, 30)),
        ("1890-01-01T00:00:00", "Europe/Amsterdam", utc(1889, 12, 31, 23, 42, 30)),  # local mean time
        ("2026-03-08T10:00:00.123456789", "UTC", utc(2026, 3, 8, 10) + 123456789),
        ("2026-03-08T10:00:00.1234567899", "UTC", utc(2026, 3, 8, 10) + 123456789),
    ],
)
def test_civil_times(text: str, name: str, instant: int) -> None:
    zone = calendar.zone(name)
    assert zone is not None
    assert calendar.parse_civil(text, zone) == instant


@given(year=st.sampled_from([1, 1676, 1677, 2262, 2263, 9999]), name=ZONES)
def test_civil_times_beyond_64_bits_are_numbers_too(year: int, name: str) -> None:
    zone = calendar.zone(name)
    assert zone is not None
    for text in (f"{year:04d}-01-01T00:00:00", f"{year:04d}-12-31T23:59:59"):
        assert calendar.parse_civil(text, zone) is not None


@pytest.mark.parametrize(
    "text",
    [
        *["", "2026-01-15", "2026-01-15 12:00", "2026-01-15T12:00Z", "2026-01-15T12:00:00", "2026-01-15t12:00:00z"],
        *["2026-1-15T12:00:00Z", "2026-02-30T12:00:00Z", "2026-13-01T12:00:00Z", "0000-01-01T00:00:00Z"],
        *["2026-01-15T24:00:00Z", "2026-01-15T12:60:00Z", "2026-01-15T12:00:60Z", "2026-01-15T12:00:00.Z"],
        *["2026-01-15T12:00:00+1:00", "2026-01-15T12:00:00+0100", "2026-01-15T12:00:00+24:00", "+2026-01-15T12:00:00Z"],
        *["2026-01-15T12:00:00Z\n", " 2026-01-15T12:00:00Z", "２０２６-01-15T12:00:00Z", "2026-01-15T12:00:00,5Z"],
    ],
)
def test_texts_that_are_no_instant(text: str) -> None:
    assert calendar.parse_rfc3339(text) is None


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("0", 0),
        ("-0", 0),
        ("+0", 0),
        ("0s", 0),
        ("5s", 5 * SECOND),
        ("+5s", 5 * SECOND),
        ("-30s", -30 * SECOND),
        ("1478s", 1478 * SECOND),
        ("5.0s", 5 * SECOND),
        ("5.6s", 5_600_000_000),
        ("5.s", 5 * SECOND),
        (".5s", SECOND // 2),
        ("1.0040s", 1_004_000_000),
        ("100.00100s", 100_001_000_000),
        ("10ns", 10),
        ("11us", 11_000),
        ("12\N{MICRO SIGN}s", 12_000),
        ("12\N{GREEK SMALL LETTER MU}s", 12_000),
        ("13ms", 13_000_000),
        ("15m", 900 * SECOND),
        ("16h", 57_600 * SECOND),
        ("3h30m", 12_600 * SECOND),
        ("10.5s4m", 250_500_000_000),
        ("-2m3.4s", -123_400_000_000),
        ("1h2m3s4ms5us6ns", 3_723_004_005_006),
        ("39h9m14.425s", 140_954_425_000_000),
        ("52763797000ns", 52_763_797_000),
        ("0.3333333333333333333h", 1_199_999_999_999),
        ("0.9ns", 0),
        ("-9223372036854775808ns", INT_MIN),
        ("9223372036854775807ns", INT_MAX),
        ("9223372036854775808ns", INT_MAX + 1),
        ("0.100000000000000000000h", 360 * SECOND),
        ("0" * 5000 + "1s", SECOND),
    ],
)
def test_durations(text: str, ns: int) -> None:
    assert calendar.parse_duration(text) == ns


@pytest.mark.parametrize(
    "text",
    [
        "",
        "3",
        "-",
        "s",
        ".",
        "-.",
        ".s",
        "+.s",
        "7d",
        "1x",
        "1 s",
        "1s ",
        " 1s",
        "--1s",
        "1s-1s",
        "1S",
        "1e3s",
        "٣s",
        "00",
    ],
)
def test_texts_that_are_no_duration(text: str) -> None:
    assert calendar.parse_duration(text) is None


def test_a_duration_of_thousands_of_digits_is_merely_too_long() -> None:
    ns = calendar.parse_duration("9" * 5000 + "h")
    assert ns is not None
    assert ns > INT_MAX
