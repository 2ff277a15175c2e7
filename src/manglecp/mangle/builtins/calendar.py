"""Calendar arithmetic on instants in whole nanoseconds, independent of Mangle values.

Whole seconds use ``datetime``, which is exact; nanoseconds are separate integers, never a float. Zones come from the
``tzdata`` distribution, not from the machine, so that programs are portable. An ambiguous local time means the first of
its two instants. A local time in a gap uses the offset before the change: 02:30 in a gap from 02:00 to 03:00 is 03:30.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import cache
from importlib.resources import files
from typing import Final
from zoneinfo import ZoneInfo

SECOND: Final = 1_000_000_000
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE

# Nanoseconds per unit of `fn:time:trunc`. A `/day` is in UTC and has 24 hours; in CIVIL_UNITS it is in local time.
FIXED_UNITS: Final = {
    "/day": 24 * HOUR,
    "/hour": HOUR,
    "/minute": MINUTE,
    "/second": SECOND,
    "/millisecond": 1_000_000,
    "/microsecond": 1_000,
    "/nanosecond": 1,
}
# By unit: how many characters of 2024-02-29T23:45:06.789000000 a formatted instant has.
FORMAT_LENGTHS: Final = {
    "/year": 4,
    "/month": 7,
    "/day": 10,
    "/hour": 13,
    "/minute": 16,
    "/second": 19,
    "/millisecond": 23,
    "/microsecond": 26,
    "/nanosecond": 29,
}
CIVIL_UNITS: Final = ("/year", "/month", "/week", "/day")  # units of `fn:time:trunc_civil`, in a local calendar

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_ONE_SECOND: Final = timedelta(seconds=1)
_DATE_TIME: Final = r"([0-9]{4}-[0-9]{2}-[0-9]{2}T(?:[01][0-9]|2[0-3])(?::[0-5][0-9]){2})(?:\.([0-9]+))?"
_CIVIL: Final = re.compile(_DATE_TIME)
_RFC3339: Final = re.compile(_DATE_TIME + r"(?:Z|([+-])([01][0-9]|2[0-3]):([0-5][0-9]))")
_DURATION_PART: Final = re.compile(r"([0-9]*)(?:\.([0-9]*))?([^0-9.]+)")
_DURATION_UNITS: Final = {
    "ns": 1,
    "us": 1_000,
    "\N{MICRO SIGN}s": 1_000,
    "\N{GREEK SMALL LETTER MU}s": 1_000,
    "ms": 1_000_000,
    "s": SECOND,
    "m": MINUTE,
    "h": HOUR,
}


def zone(name: str) -> ZoneInfo | None:
    """Return the zone called ``name`` (``""`` is UTC), or None if the name is unknown."""
    name = name or "UTC"
    return _load_zone(name) if name in zone_names() else None


@cache
def zone_names() -> frozenset[str]:
    """Return all zone names, the same on every machine."""
    return frozenset(files("tzdata").joinpath("zones").read_text("utf-8").split())


@cache
def _load_zone(name: str) -> ZoneInfo:
    with files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as data:
        return ZoneInfo.from_file(data, key=name)


def _local_time(seconds: int, tz: ZoneInfo) -> datetime:
    return (_EPOCH + timedelta(seconds=seconds)).astimezone(tz)


def _offset_seconds(moment: datetime) -> int:
    offset = moment.utcoffset()
    assert offset is not None  # every datetime here has a zone
    return offset // _ONE_SECOND


def _unix_seconds(moment: datetime) -> int:
    """Return seconds since 1970, without overflow at the ends of the calendar."""
    return (moment.replace(tzinfo=UTC, fold=0) - _EPOCH) // _ONE_SECOND - _offset_seconds(moment)


def parse_rfc3339(text: str) -> int | None:
    """Parse ``2026-01-15T12:00:00.5+01:00``; None if it is malformed. The result may exceed 64 bits."""
    match = _RFC3339.fullmatch(text)
    if match is None:
        return None
    date_time, fraction, sign, hours, minutes = match.groups()
    ns = _instant_at(date_time, fraction, UTC)
    if ns is None or sign is None:
        return ns
    offset_ns = int(hours) * HOUR + int(minutes) * MINUTE
    return ns - offset_ns if sign == "+" else ns + offset_ns


def parse_civil(text: str, tz: ZoneInfo) -> int | None:
    """Parse ``2026-01-15T12:00:00.5`` in a zone; None if it is malformed. The result may exceed 64 bits."""
    match = _CIVIL.fullmatch(text)
    return None if match is None else _instant_at(match[1], match[2], tz)


def _instant_at(date_time: str, fraction: str | None, tz: tzinfo) -> int | None:
    try:
        moment = datetime.fromisoformat(date_time)
    except ValueError:  # a day that does not exist, such as 30 February
        return None
    return _unix_seconds(moment.replace(tzinfo=tz)) * SECOND + _fraction_ns(fraction or "", SECOND)


def parse_duration(text: str) -> int | None:
    """Parse ``-1h30m0.5s`` like Go; None if it is malformed. The result may exceed 64 bits."""
    has_sign = text[:1] in ("-", "+")
    position = 1 if has_sign else 0
    if text[position:] == "0":
        return 0
    if position == len(text):
        return None
    total = 0
    while position < len(text):
        part = _DURATION_PART.match(text, position)
        if part is None:
            return None
        whole, fraction, unit = part.groups()
        unit_ns = _DURATION_UNITS.get(unit)
        if unit_ns is None or not (whole or fraction):
            return None
        total += _whole(whole) * unit_ns + _fraction_ns(fraction or "", unit_ns)
        position = part.end()
    return -total if text[0] == "-" else total


def _whole(digits: str) -> int:
    # 30 significant digits exceed 64 bits in every unit, so further digits do not matter; int() refuses long texts.
    return int(digits.lstrip("0")[:30] or "0")


def _fraction_ns(digits: str, unit_ns: int) -> int:
    """Return the decimal fraction ``digits`` of a unit (in ns), rounded down; digits past the 18th are ignored."""
    return int(digits[:18].ljust(18, "0")) * unit_ns // 10**18


def utc_datetime(ns: int) -> datetime:
    """Return the instant in UTC, without the fraction of its second."""
    return _EPOCH + timedelta(seconds=ns // SECOND)


def format_instant(ns: int, tz: ZoneInfo, unit: str) -> str:
    """Format the instant in a zone, down to ``unit`` of FORMAT_LENGTHS; a text with a time of day has the offset."""
    seconds, below_second = divmod(ns, SECOND)
    moment = _local_time(seconds, tz)
    text = f"{moment.replace(tzinfo=None).isoformat()}.{below_second:09d}"[: FORMAT_LENGTHS[unit]]
    if unit == "/nanosecond":
        text = text.rstrip("0").removesuffix(".")
    return text + _offset_text(_offset_seconds(moment)) if FORMAT_LENGTHS[unit] > FORMAT_LENGTHS["/day"] else text


def _offset_text(seconds: int) -> str:
    if seconds == 0:
        return "Z"
    minutes = abs(seconds) // 60  # offsets before 1900 may have seconds, which RFC 3339 cannot express
    sign = "-" if seconds < 0 and minutes else "+"
    return f"{sign}{minutes // 60:02d}:{minutes % 60:02d}"


def civil_start(ns: int, tz: ZoneInfo, unit: str) -> int:
    """Return the start of the local year, month, week (Monday) or day around the instant."""
    day = _local_time(ns // SECOND, tz).date()
    if unit == "/year":
        day = day.replace(month=1, day=1)
    elif unit == "/month":
        day = day.replace(day=1)
    elif unit == "/week":
        day -= timedelta(days=day.weekday())
    return _day_start(day, tz) * SECOND


def _day_start(day: date, tz: ZoneInfo) -> int:
    midnight = datetime(day.year, day.month, day.day, tzinfo=tz)
    start = _unix_seconds(midnight)
    if _local_time(start, tz).replace(tzinfo=None) == midnight.replace(tzinfo=None):
        return start
    # The clocks skipped midnight. In such a gap, fold=1 gives an instant before the change, fold=0 an instant after it.
    before, after = _unix_seconds(midnight.replace(fold=1)), start
    while after - before > 1:
        middle = (before + after) // 2
        if _local_time(middle, tz).date() < day:
            before = middle
        else:
            after = middle
    return after
