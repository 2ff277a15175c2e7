"""Several servers: who is asked, what each is told, and which of similar tools is kept."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from manglecp.client.errors import RequestRefused, ServerError
from manglecp.client.router import Router
from manglecp.wire import WireError
from manglecp.wire.messages import Metadata, StateDelta
from tests.client.scripted import Scripted, condensed, done, tool, tools


def server(name: str, *answers: Any, categories: tuple[str, ...] = ("testing",), **more: Any) -> Scripted:
    return Scripted(*answers, domain={"id": name, "categories": list(categories)}, **more)


def scored(name: str, score: float) -> Any:
    return tool(name, metadata=Metadata(score=score))


@asynccontextmanager
async def router(*servers: Scripted) -> AsyncIterator[Router]:
    async with AsyncExitStack() as stack:
        yield Router([await stack.enter_async_context(one.client()) for one in servers])


@pytest.mark.req("CLI-11")
async def test_intents_go_to_servers_of_the_category() -> None:
    a, b, c = server("a", tools()), server("b", tools(), categories=("security",)), server("c", tools(), categories=())
    async with router(a, b, c) as routes:
        await routes.evaluate("go", categories=["security", "infrastructure"])
        assert [len(one.intents) for one in (a, b, c)] == [0, 1, 0]
        with pytest.raises(RequestRefused, match="no_server"):
            await routes.evaluate("go", categories=["documentation"])
        await routes.evaluate("go")
        assert [len(one.intents) for one in (a, b, c)] == [1, 2, 1]


@pytest.mark.req("CLI-11", "MANI-13")
async def test_servers_that_list_the_intent_are_asked_first() -> None:
    a, b = server("a", tools()), server("b", tools(), intents=[{"name": "ship", "description": "Ship."}])
    async with router(a, b) as routes:
        assert list(routes.choose("ship")) == ["b"]
        assert list(routes.choose("go")) == ["a"]
        assert list(routes.choose("unheard_of")) == ["a", "b"]


@pytest.mark.req("CLI-12")
async def test_of_similar_tools_the_best_is_kept() -> None:
    a = server("a", tools(scored("x", 40), scored("y", 90), condensed("z")))
    b = server("b", tools(scored("x", 70), scored("y", 90), condensed("z", 30), condensed("only")))
    async with router(a, b) as routes:
        found = await routes.evaluate("go")
        chosen = [(one.name, one.client.manifest.domain.id) for one in found.tools]
    assert chosen == [("y", "a"), ("x", "b"), ("z", "b"), ("only", "b")]
    with pytest.raises(KeyError, match="w is not one of the proven tools: y, x, z, only"):
        _ = found["w"]


@pytest.mark.req("CLI-11")
async def test_each_server_has_its_own_state_and_hears_only_what_it_knows() -> None:
    here = {"predicates": [{"predicate": "p", "arity": 1}]}
    there = {"predicates": [{"predicate": "q", "arity": 1}]}
    delta = StateDelta(asserts=({"pred": "p", "args": [2], "category": "server"},))
    a = server("a", tools(tool("x")), done(state_delta=delta), tools(), facts_profile=here)
    b = server("b", tools(), facts_profile=there)
    facts = [{"pred": "p", "args": [1]}, {"pred": "q", "args": [1]}]
    async with router(a, b) as routes:
        found = await routes.evaluate("go", facts=facts)
        await found["x"].invoke({"n": 1})
        await routes.evaluate("go")
    again = {"pred": "p", "args": [2], "category": "session"}
    assert [one.payload.facts for one in a.intents] == [[facts[0]], [again]]
    assert [one.payload.facts for one in b.intents] == [[facts[1]], []]


async def test_what_is_no_fact_is_refused() -> None:
    wrong: list[Any] = [7]
    async with router(server("a", tools(), facts_profile={"predicates": [{"predicate": "p", "arity": 1}]})) as routes:
        with pytest.raises(RequestRefused, match="invalid_facts"):
            await routes.evaluate("go", facts=wrong)


async def test_one_that_fails_does_not_keep_the_others_from_answering() -> None:
    a, b = server("a", WireError("internal_error", "no")), server("a", tools(tool("x")))
    async with router(a, b) as routes:
        found = await routes.evaluate("go")
        assert [one.name for one in found.tools] == ["x"]
        assert isinstance(found.failures["a"], ServerError)
        assert list(found.evaluations) == ["a#2"]
    async with router(server("a", WireError("internal_error", "no"))) as routes:
        with pytest.raises(ServerError):
            await routes.evaluate("go")
