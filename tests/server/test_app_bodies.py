"""Bodies of requests: nothing is kept of what is too long, and nothing is read for ever."""

from __future__ import annotations

import asyncio
import tracemalloc
from typing import Any

import pytest

from manglecp.server.app import Disconnected, read_body
from manglecp.wire import WireError

MOST = 1 << 20
PART = 1 << 16


class Sender:
    """Sends so many parts of zeros, each a copy of its own."""

    def __init__(self, parts: int, size: int = PART, *, ends: bool = True) -> None:
        self.parts = parts
        self.size = size
        self.ends = ends
        self.asked = 0

    async def __call__(self) -> dict[str, Any]:
        self.asked += 1
        if self.asked > self.parts:
            await asyncio.Event().wait()
        more = not self.ends or self.asked < self.parts
        return {"type": "http.request", "body": bytes(self.size), "more_body": more}


async def refused(sender: Any, seconds: float = 60.0, **headers: bytes) -> WireError:
    given = {name.replace("_", "-").encode(): value for name, value in headers.items()}
    with pytest.raises(WireError) as error:
        await read_body(sender, given, MOST, seconds)
    return error.value


async def test_a_body_of_exactly_the_limit_is_whole() -> None:
    assert await read_body(Sender(16), {}, MOST, 60.0) == bytes(MOST)
    assert await read_body(Sender(1, MOST), {}, MOST, 60.0) == bytes(MOST)
    assert await read_body(Sender(3, 0), {}, MOST, 60.0) == b""


@pytest.mark.req("ERR-06")
@pytest.mark.parametrize("parts", [17, 63])
async def test_a_little_too_much_is_read_to_its_end_and_kept_nowhere(parts: int) -> None:
    sender = Sender(parts)
    tracemalloc.start()
    try:
        error = await refused(sender)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (error.code, error.details) == ("message_too_large", {"limit": MOST, "actual": parts * PART})
    assert sender.asked == parts
    assert peak < 2 * MOST  # a body of the limit, and what a growing one needs besides; never all of it


async def test_what_is_kept_is_given_back_as_soon_as_it_is_too_much() -> None:
    held: list[int] = []

    async def sender() -> dict[str, Any]:
        held.append(tracemalloc.get_traced_memory()[0])
        return {"type": "http.request", "body": bytes(PART), "more_body": len(held) < 40}

    tracemalloc.start()
    try:
        await refused(sender)
    finally:
        tracemalloc.stop()
    assert max(held[:17]) > MOST // 2
    assert max(held[20:]) < MOST // 2


async def test_far_too_much_is_not_read_to_its_end() -> None:
    sender = Sender(10_000, ends=False)
    error = await refused(sender)
    assert error.code == "message_too_large"
    assert sender.asked == 65  # one part more than four times the limit
    exact = Sender(64)
    assert (await refused(exact)).details == {"limit": MOST, "actual": 4 * MOST}


async def test_what_is_announced_as_far_too_much_is_not_read_at_all() -> None:
    sender = Sender(1)
    assert (await refused(sender, content_length=b"%d" % (4 * MOST + 1))).code == "message_too_large"
    assert sender.asked == 0
    assert (await refused(Sender(20), content_length=b"%d" % (4 * MOST))).code == "message_too_large"
    assert await read_body(Sender(1), {b"content-length": b"much"}, MOST, 60.0) == bytes(PART)


async def test_a_body_that_does_not_come_is_not_waited_for() -> None:
    for parts in (0, 3):
        error = await refused(Sender(parts, ends=False), 0.05)
        assert error.code == "malformed_message"
        assert "within 0.05 seconds" in error.message


async def test_whoever_goes_before_the_end_has_said_nothing() -> None:
    for first in (0, 2):
        events = [{"type": "http.request", "body": b"x", "more_body": True}] * first + [{"type": "http.disconnect"}]
        left = iter(events)

        async def receive(left: Any = left) -> dict[str, Any]:
            return dict(next(left))

        with pytest.raises(Disconnected):
            await read_body(receive, {}, MOST, 60.0)
