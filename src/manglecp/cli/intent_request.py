"""Facts and values from the command line, as a client would send them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, Final

import click

from manglecp import wire
from manglecp.cli.files import read, read_json, source_name
from manglecp.cli.output import refuse
from manglecp.mangle import MangleError, decode, instant_text

_NS_PER_MS: Final = 1_000_000


def decode_value(text: str) -> Any:
    """Decode JSON; return other text unchanged, so that ``depth=quick`` needs no quotes."""
    try:
        return wire.decode(text.encode())
    except (wire.Fault, UnicodeEncodeError):
        return text


def clock_starting_at(instant: str) -> Callable[[], int]:
    """Return a clock in nanoseconds that starts at this time, for the replay of recorded facts."""
    start_ns, created_ns = wire.read_instant(instant), time.monotonic_ns()
    return lambda: start_ns + time.monotonic_ns() - created_ns


def read_client_facts(facts: Iterable[str], files: Iterable[str], now: str | None) -> tuple[str, list[Any]]:
    """Return the evaluation time, and the facts of ``files`` and ``facts`` as JSON objects.

    The evaluation time is ``now``, else the time of the first recorded request, else the current time. The word ``now``
    in a fact has the same value.
    """
    objects: list[Any] = []
    recorded_time: Any = None
    mangle_files = []  # parsed after the loop, when the evaluation time is known
    for file in files:
        if file.endswith(".mg"):
            mangle_files.append(file)
            continue
        recorded_facts, eval_time = _read_recorded(file)
        objects += recorded_facts
        recorded_time = recorded_time or eval_time
    now_ns = _read_time(now or recorded_time or "now")
    try:
        for file in mangle_files:
            objects += wire.parse_fact_objects(decode(source_name(file), read(file)), now_ns)
        for text in facts:
            objects += wire.parse_fact_argument("--fact", text, now_ns)
    except MangleError as error:
        refuse(error, status=2)
    return instant_text(now_ns), objects


def _read_time(value: Any) -> int:
    """Return the nanoseconds of an RFC 3339 text, of milliseconds since the epoch, or of ``now``."""
    if value == "now":
        return time.time_ns() // _NS_PER_MS * _NS_PER_MS  # requests have whole milliseconds
    try:
        if type(value) is int:
            return wire.instant_of_milliseconds(value)
        return wire.read_instant(str(value).strip().upper())
    except wire.Fault:
        message = f"{value!r} is not a time such as 2026-01-31T12:00:00Z."
        raise click.BadParameter(message, param_hint="'--now'") from None


def _read_recorded(file: str) -> tuple[list[Any], Any]:
    """Return the facts and the evaluation time in an ``intent_request``, or the facts in a JSON array and None."""
    document = read_json(file)
    payload = document.get("payload") if isinstance(document, dict) else None
    facts = payload.get("facts", []) if isinstance(payload, dict) else document
    if not isinstance(facts, list):
        raise click.UsageError(f"{click.format_filename(file)} is neither an array of facts nor an intent_request")
    return facts, payload.get("eval_time") if isinstance(payload, dict) else None
