"""Calendar arithmetic on instants in whole nanoseconds, independent of Mangle values.

Seconds use ``datetime``, which is exact; nanoseconds are kept beside it, never in a float. Zones come from the
``tzdata`` distribution, not from the machine, so that programs are portable. An ambiguous local time is the first of
the two; a local time in a gap uses the offset before the change: 02:30 in a gap from 02:00 to 03:00 is 03:30.
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

# Units of `fn:time:trunc`; none of these depends on a zone.
FIXED_UNITS: Final = {
    "/day": 24 * HOUR,
    "/hour": HOUR,
    "/minute": MINUTE,
    "/second": SECOND,
    "/millisecond": 1_000_000,
    "/microsecond": 1_000,
    "/nanosecond": 1,
}
# How much of 2024-02-29T23:45:06.789000000 each unit shows.
SHOWN_UNITS: Final = {
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
CIVIL_UNITS: Final = ("/year", "/month", "/week", "/day")

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_ONE_SECOND: Final = timedelta(seconds=1)
_CLOCK: Final = r"([0-9]{4}-[0-9]{2}-[0-9]{2}T(?:[01][0-9]|2[0-3])(?::[0-5][0-9]){2})(?:\.([0-9]+))?"
_CIVIL: Final = re.compile(_CLOCK)
_RFC3339: Final = re.compile(_CLOCK + r"(?:Z|([+-])([01][0-9]|2[0-3]):([0-5][0-9]))")
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
    """Return the zone of that name; ``""`` is UTC."""
    name = name or "UTC"
    return _load(name) if name in zone_names() else None


@cache
def zone_names() -> frozenset[str]:
    """Return all zone names, the same on every machine."""
    return frozenset(files("tzdata").joinpath("zones").read_text("utf-8").split())


@cache
def _load(name: str) -> ZoneInfo:
    with files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as data:
        return ZoneInfo.from_file(data, key=name)


def _local(seconds: int, where: ZoneInfo) -> datetime:
    return (_EPOCH + timedelta(seconds=seconds)).astimezone(where)


def _offset(moment: datetime) -> int:
    offset = moment.utcoffset()
    assert offset is not None  # every datetime here has a zone
    return offset // _ONE_SECOND


def _seconds(moment: datetime) -> int:
    """Return seconds since 1970, without overflow at the ends of the calendar."""
    return (moment.replace(tzinfo=UTC, fold=0) - _EPOCH) // _ONE_SECOND - _offset(moment)


def parse_rfc3339(text: str) -> int | None:
    """Parse ``2026-01-15T12:00:00.5+01:00``; the result may exceed 64 bits."""
    match = _RFC3339.fullmatch(text)
    if match is None:
        return None
    clock, fraction, sign, hours, minutes = match.groups()
    ns = _at(clock, fraction, UTC)
    if ns is None or sign is None:
        return ns
    ahead = int(hours) * HOUR + int(minutes) * MINUTE
    return ns - ahead if sign == "+" else ns + ahead


def parse_civil(text: str, where: ZoneInfo) -> int | None:
    """Parse ``2026-01-15T12:00:00.5`` in a zone; the result may exceed 64 bits."""
    match = _CIVIL.fullmatch(text)
    return None if match is None else _at(match[1], match[2], where)


def _at(clock: str, fraction: str | None, where: tzinfo) -> int | None:
    try:
        moment = datetime.fromisoformat(clock)
    except ValueError:  # no such day
        return None
    return _seconds(moment.replace(tzinfo=where)) * SECOND + _fraction(fraction or "", SECOND)


def parse_duration(text: str) -> int | None:
    """Parse ``-1h30m0.5s`` like Go; the result may exceed 64 bits."""
    signed = text[:1] in ("-", "+")
    at = 1 if signed else 0
    if text[at:] == "0":
        return 0
    if at == len(text):
        return None
    total = 0
    while at < len(text):
        part = _DURATION_PART.match(text, at)
        if part is None:
            return None
        whole, fraction, unit = part.groups()
        size = _DURATION_UNITS.get(unit)
        if size is None or not (whole or fraction):
            return None
        total += _whole(whole) * size + _fraction(fraction or "", size)
        at = part.end()
    return -total if text[0] == "-" else total


def _whole(digits: str) -> int:
    # More digits than these are out of every range, and Python refuses to read thousands of them.
    return int(digits.lstrip("0")[:30] or "0")


def _fraction(digits: str, unit: int) -> int:
    """Return a fraction in whole nanoseconds; digits past the 18th are ignored."""
    return int(digits[:18].ljust(18, "0")) * unit // 10**18


def fields(ns: int) -> datetime:
    """Return year, month, day, hour, minute and second in UTC."""
    return _EPOCH + timedelta(seconds=ns // SECOND)


def format_instant(ns: int, where: ZoneInfo, unit: str) -> str:
    """Format the instant in a zone, down to one of SHOWN_UNITS; times of day include the offset."""
    seconds, below = divmod(ns, SECOND)
    moment = _local(seconds, where)
    text = f"{moment.replace(tzinfo=None).isoformat()}.{below:09d}"[: SHOWN_UNITS[unit]]
    if unit == "/nanosecond":
        text = text.rstrip("0").removesuffix(".")
    return text + _offset_text(_offset(moment)) if SHOWN_UNITS[unit] > SHOWN_UNITS["/day"] else text


def _offset_text(seconds: int) -> str:
    if seconds == 0:
        return "Z"
    minutes = abs(seconds) // 60  # local mean times before 1900 had odd seconds, which RFC 3339 cannot express
    sign = "-" if seconds < 0 and minutes else "+"
    return f"{sign}{minutes // 60:02d}:{minutes % 60:02d}"


def civil_start(ns: int, where: ZoneInfo, unit: str) -> int:
    """Return the start of the local year, month, week (Monday) or day around the instant."""
    day = _local(ns // SECOND, where).date()
    if unit == "/year":
        day = day.replace(month=1, day=1)
    elif unit == "/month":
        day = day.replace(day=1)
    elif unit == "/week":
        day -= timedelta(days=day.weekday())
    return _day_start(day, where) * SECOND


def _day_start(day: date, where: ZoneInfo) -> int:
    midnight = datetime(day.year, day.month, day.day, tzinfo=where)
    start = _seconds(midnight)
    if _local(start, where).replace(tzinfo=None) == midnight.replace(tzinfo=None):
        return start
    # The clocks went forward over midnight. The day starts at the change between both readings of it.
    before, after = _seconds(midnight.replace(fold=1)), start
    while after - before > 1:
        middle = (before + after) // 2
        if _local(middle, where).date() < day:
            before = middle
        else:
            after = middle
    return after
