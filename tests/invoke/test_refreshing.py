"""What a pack finds out is brought up to date beside its invocations. The host is the test."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import Future
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, cast

import pytest

from manglecp.intent import Domain
from manglecp.invoke import fact_refresh
from manglecp.invoke.fact_refresh import refresh_facts
from manglecp.pack import GeneratorDescription, Pack
from manglecp.toolhost import ActionResult, failure
from manglecp.toolhost.passes import FactGenerators
from tests.deadlines import patience
from tests.intent.packs import action, pack
from tests.invoke.workshop import ME, Shop, shop, waiving

PATIENCE = patience(60.0)
RULES = """
macro("t", "A tool."). mandatory("t") :- intent("go"). macro_step("t", 1, "write").
macro("twice", "Writes twice."). mandatory("twice") :- intent("go").
macro_step("twice", 1, "write"). macro_step("twice", 2, "write").
macro("u", "Another."). mandatory("u") :- intent("go"), file("b"). macro_step("u", 1, "write").
"""
WRITE = action("write", params={}, effects=("filesystem",), tier=1, mutates=True)


class World:
    """Plays the host: a pass gives the files that there are, when the test lets it."""

    def __init__(self) -> None:
        self.files = {"a"}
        self.held = False
        self.waiting: asyncio.Queue[tuple[Future[Any], set[str]]] = asyncio.Queue()
        self.passes = 0
        self.broken: str | Exception | None = None
        self._loop = asyncio.get_running_loop()

    def call(self, aid: str, inputs: Mapping[str, Any], seconds: float) -> Future[Any]:
        assert (aid, inputs["settings"], seconds > 0) == ("AID.FACTS.SCAN.v1", {}, True)
        self.passes += 1
        answer: Future[Any] = Future()
        if isinstance(self.broken, Exception):
            raise self.broken
        if self.held:
            self._loop.call_soon_threadsafe(self.waiting.put_nowait, (answer, set(self.files)))
        else:
            self.give(answer, self.files)
        return answer

    def give(self, answer: Future[Any], files: set[str]) -> None:
        if self.broken is not None:
            answer.set_result(failure("AID.FACTS.SCAN.v1", "tool_error", str(self.broken)))
            return
        rows = [["file", name] for name in sorted(files)]
        piece = {"process": "1", "first": True, "over": True, "parts": [["", True, rows]]}
        answer.set_result(ActionResult("AID.FACTS.SCAN.v1", json.dumps(piece), {}))

    def end(self) -> None:
        """It remembers nothing anyway."""

    def close(self) -> None:
        self.held = False
        while not self.waiting.empty():
            self.give(*self.waiting.get_nowait())


def finding(every: float = 0.05, policy: str = "") -> Pack:
    plain = pack(RULES, policy=policy, schema="Decl file(Name) bound [/string].", actions=[WRITE], intents=("go",))
    scan = GeneratorDescription(name="scan", aid="AID.FACTS.SCAN.v1", predicates=("file",), every=every)
    return replace(plain, generators={"scan": scan})


@asynccontextmanager
async def served(
    world: World, every: float = 0.05, policy: str = "", **more: Any
) -> AsyncIterator[tuple[Shop, list[Any]]]:
    """A shop whose facts are kept up to date, and what troubles it had."""
    found = finding(every, policy)
    generated = FactGenerators(found, cast(Any, world), None)
    troubles: list[Any] = []
    async with (
        asyncio.timeout(PATIENCE),
        shop(found, refresh_identity=waiving("filesystem", of=ME.name), **more) as one,
    ):
        one.invoker.offers.renew(Domain.load(found, generated=generated))
        async with refresh_facts(one.invoker, generated, lambda name, why: troubles.append((name, why))):
            yield one, troubles


async def until(one: Shop, tools: set[str]) -> None:
    while set(await one.tools()) != tools:
        await asyncio.sleep(0.01)


async def test_a_change_is_answered_by_and_named_in_the_proof() -> None:
    world = World()
    async with served(world) as (one, troubles):
        await one.invoke("t")
        await one.invoke("t")
        world.files = {"a", "b"}
        await until(one, {"t", "twice", "u"})
        await one.invoke("t")
        proofs = [body["proof_digest"] for kind, body in one.ledger() if kind == "admission"]
    assert len(proofs) == 3
    assert proofs[0] == proofs[1] != proofs[2]
    assert troubles == []


async def test_an_answer_about_effects_waits_for_a_look_that_begins_after_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fact_refresh, "SETTLE_SECONDS", 10 * PATIENCE)
    world = World()

    def write(_: Any) -> dict[str, Any]:
        world.files = {"a", "b"}
        return {}

    async with served(world, work={"write": write}) as (one, _):
        tool = (await one.tools())["t"]
        world.held = True
        early = await world.waiting.get()  # a pass is under way, and has seen nothing of it
        asked = asyncio.create_task(one.invoke(tool, evaluate=False))
        while world.files == {"a"}:
            await asyncio.sleep(0.01)
        world.give(*early)
        late = await world.waiting.get()
        assert not asked.done()
        assert set(await one.tools()) == {"t", "twice"}
        world.held = False
        world.give(*late)
        await asked
        assert set(await one.tools()) == {"t", "twice", "u"}


async def test_each_gate_asks_policy_by_the_newest_facts() -> None:
    world = World()
    shops: list[Shop] = []

    async def write(_: Any) -> dict[str, Any]:
        version = shops[0].invoker.domain.facts_version
        world.files = {"a", "locked"}
        while shops[0].invoker.domain.facts_version == version:
            await asyncio.sleep(0.01)
        return {}

    policy = 'effect_denied("write", "it is locked") :- file("locked").'
    async with served(world, policy=policy, work={"write": write}) as (one, _):
        shops.append(one)
        error = await one.refused("twice")
        assert (error.code, (error.details or {})["reason"]) == ("execution_failed", "needs_decision")
        assert [name for name, _ in one.bench.ran] == ["write"]


async def test_an_answer_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fact_refresh, "SETTLE_SECONDS", 0.05)
    world = World()
    async with served(world) as (one, _):
        tool = (await one.tools())["t"]
        world.held = True
        await one.invoke(tool, evaluate=False)


async def test_effects_are_looked_at_before_it_is_time() -> None:
    world = World()
    async with served(world, every=3_000) as (one, _):
        assert world.passes == 1
        await one.invoke("t")
        assert world.passes == 2


@pytest.mark.parametrize("broken", ["no disk", KeyError("a mistake of ours")])
async def test_trouble_is_told_once_and_when_it_is_over(broken: str | Exception) -> None:
    world = World()
    async with served(world) as (one, troubles):
        world.broken = broken
        world.files = {"a", "b"}
        before = world.passes
        while world.passes < before + (2 if isinstance(broken, str) else 1):
            await asyncio.sleep(0.01)
        assert set(await one.tools()) == {"t", "twice"}
        await one.invoke("t")  # nothing to wait for
        world.broken = None
        await until(one, {"t", "twice", "u"})
        while len(troubles) < 2:
            await asyncio.sleep(0.01)
    why = broken if isinstance(broken, str) else "the server failed"
    assert troubles == [("scan", why), ("scan", None)]


async def test_trouble_is_over_with_the_edition_that_had_it() -> None:
    world = World()
    async with served(world) as (_, troubles):
        world.broken = "no disk"
        while not troubles:
            await asyncio.sleep(0.01)
    assert troubles == [("scan", "no disk"), ("scan", None)]


async def test_another_edition_has_an_invoker_of_its_own() -> None:
    async with shop(finding()) as one:
        other = replace(finding(), digest="another")
        with pytest.raises(ValueError, match="another pack revision"):
            one.invoker.offers.renew(Domain.load(other))
