"""Facts and values from the command line, as a client would send them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, Final

import click

from manglecp.cli.files import read, read_json_argument, source_name
from manglecp.cli.output import report
from manglecp.mangle import MangleError, decode, instant_text
from manglecp.wire import (
    Fault,
    decode as decode_json,
    instant_of_milliseconds,
    parse_fact_argument,
    parse_fact_objects,
    read_instant,
)

_MILLISECOND: Final = 1_000_000


def value_of(text: str) -> Any:
    """Decode JSON; return other text unchanged, so that ``depth=quick`` needs no quotes."""
    try:
        return decode_json(text.encode())
    except (Fault, UnicodeEncodeError):
        return text


def clock_from(at: str) -> Callable[[], int]:
    """Return a clock that starts at this time, for the replay of recorded facts."""
    start, started = read_instant(at), time.monotonic_ns()
    return lambda: start + time.monotonic_ns() - started


def given_facts(facts: Iterable[str], files: Iterable[str], now: str | None) -> tuple[str, list[Any]]:
    """Return the evaluation time and the facts. ``now`` in a fact is that time."""
    objects: list[Any] = []
    recorded_at: Any = None
    programs = []
    for file in files:
        if file.endswith(".mg"):
            programs.append(file)
            continue
        recorded, at = _read_recorded(file)
        objects += recorded
        recorded_at = recorded_at or at
    instant = _instant(now or recorded_at or "now")
    try:
        for file in programs:
            objects += parse_fact_objects(decode(source_name(file), read(file)), instant)
        for text in facts:
            objects += parse_fact_argument("--fact", text, instant)
    except MangleError as error:
        report(error.diagnostics)
        raise click.exceptions.Exit(2) from None
    return instant_text(instant), objects


def _instant(at: Any) -> int:
    if at == "now":
        return time.time_ns() // _MILLISECOND * _MILLISECOND
    try:
        return instant_of_milliseconds(at) if type(at) is int else read_instant(str(at).strip().upper())
    except Fault:
        message = f"{at!r} is not a time such as 2026-01-31T12:00:00Z."
        raise click.BadParameter(message, param_hint="'--now'") from None


def _read_recorded(file: str) -> tuple[list[Any], Any]:
    document = read_json_argument(file)
    payload = document.get("payload") if isinstance(document, dict) else None
    facts = payload.get("facts", []) if isinstance(payload, dict) else document
    if not isinstance(facts, list):
        raise click.UsageError(f"{click.format_filename(file)} is neither an array of facts nor an intent_request")
    return facts, payload.get("eval_time") if isinstance(payload, dict) else None
