"""Whoever asks without waiting is told once, whatever comes of it."""

from __future__ import annotations

import asyncio
import logging
from contextvars import ContextVar
from typing import Any

import pytest

from manglecp.invoke.invocations import Outcome
from manglecp.wire import WireError
from manglecp.wire.messages import InvokeResponse
from tests.invoke.chains import chain, steps
from tests.invoke.test_request_keys import Held
from tests.invoke.workshop import ME, Shop, invocation, shop

where: ContextVar[str] = ContextVar("where", default="nowhere")


class Told:
    """Hears what came of it, and in which context."""

    def __init__(self) -> None:
        self.outcomes: list[Outcome] = []
        self.where = ""
        self.heard = asyncio.Event()

    def __call__(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)
        self.where = where.get()
        self.heard.set()

    async def outcome(self) -> Outcome:
        await asyncio.wait_for(self.heard.wait(), 60)
        [outcome] = self.outcomes
        return outcome


async def asked(s: Shop, answered: Any, key: str | None = None, macro_id: str | None = None) -> None:
    tool = macro_id or (await s.tools())["t"]
    s.invoker.ask(invocation(tool, {"n": 1}, request_key=key), ME, answered)


async def test_an_answer_is_told_in_the_context_of_the_question() -> None:
    async with shop(chain(steps("look"))) as s:
        told, refused = Told(), Told()
        token = where.set("here")
        await asked(s, told)
        await asked(s, refused, macro_id="m-none")
        where.reset(token)
        assert isinstance(await told.outcome(), InvokeResponse)
        assert told.where == "here"
        error = await refused.outcome()
        assert isinstance(error, WireError)
        assert error.code == "macro_not_found"


async def test_who_cannot_be_told_keeps_nobody_else_from_hearing(caplog: pytest.LogCaptureFixture) -> None:
    def deaf(_: Outcome) -> None:
        raise RuntimeError("nobody is there")

    held = Held()
    async with shop(chain(steps("look")), {"look": held}) as s:
        told = Told()
        with caplog.at_level(logging.ERROR, "manglecp"):
            await asked(s, deaf, key="k")
            await asked(s, told, key="k")
            await asyncio.wait_for(held.begun.wait(), 60)
            held.go_on.set()
            assert isinstance(await told.outcome(), InvokeResponse)
        assert "nobody is there" in caplog.text
        assert len(s.bench.calls) == 1


async def test_an_invoker_ends_after_what_it_was_asked() -> None:
    held, told = Held(), Told()
    async with asyncio.timeout(60):
        async with shop(chain(steps("look")), {"look": held}) as s:
            await asked(s, told)
            await held.begun.wait()
            asyncio.get_running_loop().call_soon(held.go_on.set)
        [outcome] = told.outcomes
        assert isinstance(outcome, InvokeResponse)


async def test_one_whose_task_is_ended_is_told_too() -> None:
    held, told = Held(), Told()
    async with shop(chain(steps("look")), {"look": held}) as s:
        before = asyncio.all_tasks()
        await asked(s, told)
        await asyncio.wait_for(held.begun.wait(), 60)
        for task in asyncio.all_tasks() - before:
            task.cancel()
        assert isinstance(await told.outcome(), asyncio.CancelledError)
