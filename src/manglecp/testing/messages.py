"""Facts, times and messages of tests, decoded and checked as a server does."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final, TypeAlias

from manglecp.mangle import decode
from manglecp.wire import decode as decode_json, parse_fact_argument, parse_fact_objects, read_instant

Fact: TypeAlias = str | Mapping[str, Any]
"""Mangle text, such as ``'p("a", 1)@[now]'``, or a JSON object: ``{"pred": "p", "args": ["a", 1]}``."""
Now: TypeAlias = str | datetime | None
"""RFC 3339, a datetime with a time zone, or None for the clock."""
_MILLISECOND: Final = 1_000_000


def instant(now: Now) -> int:
    """Return nanoseconds since 1970. Raises ``ValueError``."""
    if now is None:
        return time.time_ns() // _MILLISECOND * _MILLISECOND
    if isinstance(now, datetime):
        if now.tzinfo is None:
            raise ValueError("a time of a test has a zone: datetime(…, tzinfo=UTC)")
        now = now.isoformat()
    return read_instant(now)


def as_facts(facts: Iterable[Fact], now: int) -> list[Any]:
    """Return facts as JSON objects. ``now`` in a fact is the time of the intent."""
    objects: list[Any] = []
    for fact in facts:
        objects += parse_fact_argument("facts", fact, now) if isinstance(fact, str) else [dict(fact)]
    return objects


def facts_of_file(file: Path, now: int) -> list[dict[str, Any]]:
    """Read facts from ``.mg``, a JSON array of facts, or a recorded request."""
    if file.suffix == ".mg":
        return parse_fact_objects(decode(file.name, file.read_bytes()), now)
    document: Any = decode_json(file.read_bytes())
    facts = document["payload"].get("facts", []) if isinstance(document, dict) else document
    return [dict(fact) for fact in facts]
