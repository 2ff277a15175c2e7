"""Large values are hashed, checked and converted in threads; small ones at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from manglecp.intent import offers, run_facts
from manglecp.invoke import executor, invoker
from manglecp.pack import Pack
from tests.intent.packs import action, pack
from tests.invoke.workshop import shop

LIST = {"v": {"type": "array", "items": {"type": "integer"}}}
RULES = """
macro("t", "A tool."). mandatory("t") :- intent("go"). macro_step("t", 1, "look").
skip_step(9, "never") :- run_arg("v", "nothing").
"""


def one_step() -> Pack:
    return pack(RULES, actions=[action("look", params=LIST)], intents=["go"])


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, bool]:
    """By what was done: was it done on the event loop?"""
    found: dict[str, bool] = {}

    def watch(owner: Any, name: str) -> None:
        work: Callable[..., Any] = getattr(owner, name)

        def noted(*given: Any, **more: Any) -> Any:
            found[name] = threading.current_thread() is threading.main_thread()
            return work(*given, **more)

        monkeypatch.setattr(owner, name, noted)

    watch(invoker, "args_digest")
    watch(offers, "schema_errors")
    watch(executor, "build_call")
    watch(run_facts, "plain_value")
    watch(executor, "outcome_of_result")
    return found


@pytest.mark.parametrize(("count", "at_once"), [(3, True), (100_000, False)])
async def test_who_is_kept_waiting(asked: dict[str, bool], count: int, at_once: bool) -> None:
    async with shop(one_step()) as s:
        macro_id = (await s.tools())["t"]
        for _ in range(2):  # the first proof of an offer is made in a thread
            answer = await s.invoke(macro_id, {"v": list(range(count))}, evaluate=False)
    assert answer.result == {"v": list(range(count))}
    assert asked == dict.fromkeys(
        ("args_digest", "schema_errors", "build_call", "plain_value", "outcome_of_result"), at_once
    )


async def test_what_is_wrong_with_something_large_is_told() -> None:
    async with shop(one_step()) as s:
        error = await s.refused("t", {"v": [*range(100_000), "x"]})
    assert error.code == "schema_validation_failed"
    assert error.details is not None
    assert error.details["schema_errors"][0]["path"] == "/v/100000"


@pytest.fixture
def proven_inline(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each decision: was it computed on the event loop? An offer with facts takes long."""
    inline: list[bool] = []
    decide: Callable[..., Any] = getattr(offers, "decide")  # noqa: B009  # it is imported there

    def noted(*given: Any, **offered: Any) -> Any:
        inline.append(threading.current_thread() is threading.main_thread())
        started = time.thread_time()
        while given[1].inputs.facts and time.thread_time() - started < 0.05:
            pass  # the service counts CPU time
        return decide(*given, **offered)

    monkeypatch.setattr(offers, "decide", noted)
    monkeypatch.setattr(offers, "_FRESH_SECONDS", 60.0)
    monkeypatch.setattr(offers, "_SLOW_SECONDS", 0.03)
    return inline


async def test_only_an_offer_whose_proof_was_fast_is_proven_on_the_event_loop(proven_inline: list[bool]) -> None:
    schema = 'Decl ticket(N) descr [direction("input")] bound [/number].'
    many = pack(RULES, schema=schema, actions=[action("look", params=LIST)], intents=["go"])
    async with shop(many) as s:
        for facts, args in (([], [1]), ([], [1]), ([], list(range(100))), ([("ticket", 1)], [1]), (None, [1])):
            if facts is not None:
                macro_id = (await s.tools(facts=facts))["t"]
            await s.invoke(macro_id, {"v": args}, evaluate=False)
    assert proven_inline == [False, True, False, False, False]
