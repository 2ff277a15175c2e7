"""How large a message may be, and that a larger one is not taken."""

from __future__ import annotations

from typing import Final

from manglecp.conformance.bench import Bench, Untested, dumped, message
from manglecp.conformance.lines.line import Closed
from manglecp.conformance.registry import check

LEAST: Final = 16_777_216
_MOST: Final = 64 << 20
"""Bytes that are sent at most, to find a limit."""


def _of_size(size: int) -> bytes:
    """A message that is blown up by blanks between its members."""
    data = dumped(message("intent_request", {"intent": {"name": "conformance_size"}}))
    return data[:-1] + b" " * (size - len(data)) + b"}"


@check("WIRE-21", patience=3)
async def large_messages(b: Bench) -> None:
    """A message of 16 MiB is taken"""
    small = await b.ask(_of_size(1_000))
    limit = b.limit("max_message_bytes")
    for size in (LEAST, limit) if LEAST < limit <= _MOST else (LEAST,):
        answer = await b.ask(_of_size(size))
        alike = (answer.type, answer.code) == (small.type, small.code)
        b.that("WIRE-21", alike, f"the same answer as to a small message for {size} bytes: {small}", answer)


@check("WIRE-22", "ERR-07", "MANI-24", "CONF-03", patience=3)
async def too_large_messages(b: Bench) -> None:
    """A message beyond limits.max_message_bytes is refused"""
    limit = b.limit("max_message_bytes")
    if limit >= _MOST:
        raise Untested(f"limits.max_message_bytes is {limit}")
    about = f"{limit + 1} bytes, one more than limits.max_message_bytes"
    try:
        answer = await b.ask(_of_size(limit + 1))
    except Closed as error:  # whoever sends too much may lose the connection
        b.that(("WIRE-22", "MANI-24", "CONF-03"), True, "", error)
        await b.drop()
        return
    b.refused(answer, "message_too_large", "WIRE-22", "MANI-24", "CONF-03", about=about)
    answer = await b.ask(message("intent_request", {"intent": {"name": "conformance_size"}}))
    b.that("WIRE-22", answer.code != "message_too_large", "the next message taken again", answer)
