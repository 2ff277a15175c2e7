"""Steps are the same steps, whoever does them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from manglecp.server.pending import Pending
from manglecp.server.replies import Reply
from manglecp.server.steps import Steps, go, run
from manglecp.wire import receive
from manglecp.wire.messages import InvokeRequest
from tests.server.desk import encoded, invoke


async def came(value: Any) -> Any:
    await asyncio.sleep(0)
    if isinstance(value, Exception):
        raise value
    return value


def pending() -> Pending:
    message = receive(encoded(invoke("r", "m-1", {})), 1 << 20)
    assert isinstance(message, InvokeRequest)
    return Pending(message, lambda *_: None, 0)


def several(seen: list[Any], *values: Any) -> Steps[None]:
    for value in values:
        try:
            seen.append((yield value))
        except ValueError as error:
            seen.append(str(error))


class Tasks:
    """What has to be awaited."""

    def __init__(self) -> None:
        self.given: list[asyncio.Task[None]] = []

    def __call__(self, rest: Coroutine[Any, Any, None]) -> None:
        self.given.append(asyncio.create_task(rest))


async def test_in_a_task() -> None:
    seen: list[Any] = []
    one = pending()
    asyncio.get_running_loop().call_soon(one.finish, Reply(b"x"))
    await run(several(seen, came(1), came(ValueError("wrong")), one, came(2)))
    assert seen == [1, "wrong", Reply(b"x"), 2]


async def test_a_request_is_waited_for_without_a_task() -> None:
    seen: list[Any] = []
    in_task, one, other = Tasks(), pending(), pending()
    other.finish(Reply(b"y"))
    go(several(seen, one, other), in_task)
    assert seen == []
    one.finish(Reply(b"x"))
    assert seen == [Reply(b"x"), Reply(b"y")]
    assert in_task.given == []


async def test_what_is_to_be_awaited_goes_on_in_one_task() -> None:
    seen: list[Any] = []
    in_task, one = Tasks(), pending()
    go(several(seen, one, came(1), came(ValueError("wrong")), came(2)), in_task)
    one.finish(Reply(b"x"))
    [task] = in_task.given
    await task
    assert seen == [Reply(b"x"), 1, "wrong", 2]


@pytest.mark.parametrize("first", [True, False])
async def test_an_error_is_for_a_task(first: bool) -> None:
    def failing(one: Pending) -> Steps[None]:
        if not first:
            yield one
        raise KeyError("wrong")

    in_task, one = Tasks(), pending()
    go(failing(one), in_task)
    one.finish(Reply(b"x"))
    [task] = in_task.given
    with pytest.raises(KeyError, match="wrong"):
        await task


async def test_who_gives_up_waiting_is_heard() -> None:
    heard: list[str] = []

    def patient(one: Pending) -> Steps[None]:
        try:
            yield one
        except asyncio.CancelledError:
            heard.append("cancelled")
            raise

    one = pending()
    waiting = asyncio.create_task(run(patient(one)))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert heard == ["cancelled"]
    one.finish(Reply(b"x"))
    assert await one == Reply(b"x")
