"""Intents, tools, invocations and suggestions, as a caller sees them and as a server sees them."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from manglecp.client.client import Client
from manglecp.client.errors import InvalidResponse, RequestRefused, ResponseTimeout, ServerError
from manglecp.client.results import Tool
from manglecp.client.transports import MemoryTransport
from manglecp.client.working_state import WorkingState
from manglecp.wire import WireError, encode
from manglecp.wire.messages import (
    UNSET,
    Cancel,
    Constraints,
    IntentRequest,
    InvokeRequest,
    InvokeResponse,
    Next,
    Options,
    ProgressMessage,
    ProgressPayload,
    StateDelta,
    SuggestedIntent,
)
from tests.client.scripted import NOTHING, PATIENCE, Scripted, condensed, done, tool, tools, wrapped, writes


def fact(name: str, *args: Any, **more: Any) -> dict[str, Any]:
    return {"pred": name, "args": list(args), **more}


# --- intents ---------------------------------------------------------------------------------------------------------


@pytest.mark.req("CLI-01", "WIRE-10")
async def test_from_the_manifest_to_a_suggestion() -> None:
    delta = StateDelta(asserts=(fact("found", 1, category="derived"),), retract=(fact("open", None),))
    further = Next(
        suggested_intents=(SuggestedIntent(name="fix", params={"fast": True}),),
        continuation_facts=(fact("cause", "disk"),),
    )
    server = Scripted(tools(tool()), done(state_delta=delta, next=further), tools())
    async with server.client(state=WorkingState([fact("open", 5)])) as client:
        assert client.manifest.server_name == "Release Desk"
        found = await client.evaluate("go", {"depth": 1}, [fact("seen", 1)])
        outcome = await client.invoke(found["t"], {"n": 1})
        assert outcome.result == {"ok": True}
        assert client.state.facts == (fact("found", 1, category="derived"),)
        assert outcome.applied.retracted == (fact("open", 5),)
        await client.follow(outcome, facts=[fact("mine", 1)])
    first, second = server.intents
    assert first.payload.intent.params == {"depth": 1}
    assert first.payload.facts == [fact("open", 5), fact("seen", 1)]
    assert server.invocations[0].payload.macro_id == "m-t"
    assert second.payload.intent.name == "fix"
    assert second.payload.intent.params == {"fast": True}
    assert {one.manglecp for one in server.received} == {"2026-02-draft"}


@pytest.mark.req("NEXT-03", "NEXT-05", "CLI-10", "CLI-13")
async def test_a_suggestion_takes_continuation_facts_working_facts_and_the_callers() -> None:
    further = Next(
        suggested_intents=(SuggestedIntent(name="a"), SuggestedIntent(name="b")),
        continuation_facts=(fact("cause", "disk"),),
    )
    server = Scripted(tools(tool()), done(next=further), tools())
    async with server.client(state=WorkingState([fact("kept", 1)])) as client:
        outcome = await client.invoke((await client.evaluate("go"))["t"])
        await client.follow(outcome, "b", facts=[fact("mine", 1), fact("kept", 1)])
        assert server.intents[1].payload.intent.name == "b"
        assert server.intents[1].payload.facts == [fact("kept", 1), fact("cause", "disk"), fact("mine", 1)]
        with pytest.raises(RequestRefused, match="no_suggestion"):
            await client.follow(outcome, "c")


@pytest.mark.req("CLI-02", "CLI-10", "SEC-30")
async def test_only_what_the_server_takes_and_needs_goes_along() -> None:
    server = Scripted(
        tools(),
        facts_profile={
            "predicates": [
                {"predicate": "in", "arity": 1},
                {"predicate": "also", "arity": 1},
                {"predicate": "out", "arity": 1, "direction": "output"},
            ]
        },
        intents=[{"name": "go", "description": "Go.", "required_facts": ["in"], "optional_facts": []}],
    )
    state = WorkingState([fact("in", 1), fact("also", 1), fact("out", 1), fact("foreign", 1), fact("in", 1, 2)])
    async with server.client(state=state) as client:
        await client.evaluate("go")
        assert server.intents[-1].payload.facts == [fact("in", 1)]
        await client.evaluate("go", from_state="all")
        assert server.intents[-1].payload.facts == [fact("in", 1), fact("also", 1)]
        found = await client.evaluate("go", facts=[fact("in", 2), fact("strange")], from_state="none")
        assert server.intents[-1].payload.facts == [fact("in", 2), fact("strange")]
        assert [one.issue for one in found.warnings] == ["unknown_predicate"]
        with pytest.raises(RequestRefused) as refused:
            await client.evaluate("go", facts=[fact("out", 1)])
        assert refused.value.details["violations"][0]["issue"] == "direction_violation"
    assert len(server.intents) == 3


async def test_constraints_options_and_time_go_along() -> None:
    server = Scripted(tools())
    async with server.client() as client:
        await client.evaluate(
            "go",
            eval_time="2026-03-02T09:20:00Z",
            constraints=Constraints(max_tools_returned=2),
            options=Options(include_proof_hints=True),
        )
    sent = server.intents[0].payload
    assert (sent.eval_time, sent.constraints.max_tools_returned) == ("2026-03-02T09:20:00Z", 2)
    assert sent.options.include_proof_hints


@pytest.mark.req("WIRE-07", "TRANS-32", "TRANS-33")
async def test_many_at_once_find_their_answers() -> None:
    """Answered in the wrong order."""
    held: list[Any] = []

    def hold(message: Any) -> Any:
        held.append(message)
        return NOTHING

    server = Scripted(hold)
    async with server.client() as client:
        asking = [asyncio.create_task(client.evaluate("go", {"n": n})) for n in range(10)]
        await server.until(IntentRequest, 10)
        for message in reversed(held):
            name = f"t{message.payload.intent.params['n']}"
            await server.sessions[0].send(encode(wrapped(message, tools(tool(name)))))
        found = await asyncio.gather(*asking)
    assert [[one.name for one in answer] for answer in found] == [[f"t{n}"] for n in range(10)]
    assert len({message.id for message in held}) == 10


# --- tools -----------------------------------------------------------------------------------------------------------


async def test_a_condensed_tool_is_upgraded_before_it_is_invoked() -> None:
    server = Scripted(tools(condensed(), condensed("u")), tools(tool(), condensed("u")), done())
    async with server.client() as client:
        found = await client.evaluate("go", {"p": 1}, [fact("seen", 1)], constraints=Constraints(max_tokens_budget=9))
        assert found["t"].effects is None
        with pytest.raises(RequestRefused, match="schema_validation_failed"):
            await client.invoke(found["t"], {"n": "one"})
        await client.invoke(found["t"], {"n": 1})
    again = server.intents[1].payload
    assert again.facts == [fact("seen", 1), fact("disclosure_upgrade", "m-t")]
    assert (again.intent.params, again.constraints.max_tokens_budget) == ({"p": 1}, None)
    assert len(server.invocations) == 1


async def test_a_tool_that_stays_hidden_is_not_invoked() -> None:
    server = Scripted(tools(condensed()))
    async with server.client() as client:
        found = await client.evaluate("go")
        with pytest.raises(RequestRefused, match="macro_not_found"):
            await client.invoke(found["t"])
    assert server.invocations == []


@pytest.mark.req("CLI-04")
async def test_arguments_are_checked_first() -> None:
    server = Scripted(tools(tool()), done())
    async with server.client() as client:
        await client.evaluate("go")
        with pytest.raises(RequestRefused, match="schema_validation_failed"):
            await client.invoke("t", {"m": 1})
        assert server.invocations == []
        await client.invoke("m-t", {"n": 1})
        with pytest.raises(RequestRefused, match="macro_not_found"):
            await client.invoke("unheard of")


async def test_every_invocation_has_a_key_of_its_own() -> None:
    server = Scripted(tools(tool()), done())
    async with server.client() as client:
        await client.evaluate("go")
        for _ in range(3):
            await client.invoke("t")
        await client.invoke("t", request_key="mine")
    keys = [one.payload.request_key for one in server.invocations]
    assert len(set(keys)) == 4
    assert keys[3] == "mine"
    assert all(key and 16 <= len(key) <= 128 for key in keys[:3])


@pytest.mark.req("DELTA-12")
async def test_a_delta_need_not_be_applied() -> None:
    server = Scripted(tools(tool()), done(state_delta=StateDelta(asserts=(fact("p", category="server"),))))
    async with server.client() as client:
        await client.evaluate("go")
        outcome = await client.invoke("t", apply=False)
        assert len(client.state) == 0
        client.state.apply(outcome.response.state_delta)
        assert fact("p") in client.state


@pytest.mark.req("ERR-45")
@pytest.mark.parametrize("code", ["macro_not_found", "macro_expired"])
async def test_a_tool_that_is_gone_is_asked_for_again(code: str) -> None:
    server = Scripted(tools(tool()), WireError(code, "gone"), tools(tool()), done())
    async with server.client() as client:
        await client.evaluate("go", facts=[fact("seen", 1)])
        client.state.add([fact("new")])
        assert (await client.invoke("t")).result == {"ok": True}
    assert server.intents[1].payload == server.intents[0].payload
    first, second = server.invocations
    assert first.payload == second.payload
    assert first.id != second.id


@pytest.mark.req("ERR-45")
async def test_a_tool_that_stays_gone_is_asked_for_once() -> None:
    gone = WireError("macro_expired", "gone")
    server = Scripted(tools(tool()), gone, tools(tool()), gone, tools(tool()), done())
    async with server.client() as client:
        await client.evaluate("go")
        with pytest.raises(ServerError, match="macro_expired"):
            await client.invoke("t")
    assert (len(server.intents), len(server.invocations)) == (2, 2)


@pytest.mark.req("ERR-45")
async def test_another_tool_is_not_invoked_in_its_place() -> None:
    other = tool("t", macro_id="m-other")
    server = Scripted(tools(tool()), WireError("macro_expired", "gone"), tools(other))
    async with server.client() as client:
        await client.evaluate("go")
        with pytest.raises(ServerError, match="macro_expired"):
            await client.invoke("t")
    assert len(server.invocations) == 1


@pytest.mark.req("ERR-48")
async def test_an_error_has_all_that_the_server_said() -> None:
    server = Scripted(tools(tool()), WireError("execution_failed", "Step 1 \x1b[31mfailed", {"run_id": "r-1"}))
    async with server.client() as client:
        await client.evaluate("go")
        with pytest.raises(ServerError) as raised:
            await client.invoke("t")
    error = raised.value
    assert (error.code, error.recoverable, error.retry_after_ms) == ("execution_failed", False, None)
    assert error.details == {"run_id": "r-1"}
    assert "\x1b" not in str(error)
    assert len(server.invocations) == 1


@pytest.mark.req("ERR-43", "ERR-48")
@pytest.mark.parametrize(
    ("details", "told"),
    [
        (
            {"violations": [{"fact_index": 1, "predicate": "p", "issue": "policy_violation", "message": "not yours"}]},
            " (fact 1, p: not yours)",
        ),
        (
            {
                "violations": [
                    {"fact_index": 0, "predicate": "bild", "message": "No 'bild' here", "suggestion": "Say 'build'"},
                    *({"fact_index": n, "predicate": "p", "message": "\x1b[31mred"} for n in (4, 5)),
                ],
                "missing_facts": ["seen"],
            },
            " (fact 0: No 'bild' here (Say 'build'); fact 4, p: \\x1b[31mred; fact 5, p: \\x1b[31mred; and 1 more)",
        ),
        ({"missing_facts": ["seen"]}, " (Predicate 'seen' is needed)"),
        ({"schema_errors": [{"path": "/n", "message": "too large"}, {"path": ""}]}, " (/n: too large; /: )"),
        ({"violations": [{"issue": "odd"}]}, " (fact ?: odd)"),
        ({"violations": 7, "schema_errors": {"a": 1}, "missing_facts": None}, ""),
        ({"violations": [7, None, "x"], "schema_errors": [[]]}, ""),
    ],
)
async def test_an_error_names_the_facts_that_are_wrong(details: dict[str, Any], told: str) -> None:
    server = Scripted(WireError("invalid_facts", "wrong", details))
    async with server.client() as client:
        with pytest.raises(ServerError) as raised:
            await client.evaluate("go")
    assert str(raised.value) == f"invalid_facts: wrong{told}"


@pytest.mark.req("ERR-43", "ERR-44", "ERR-46")
async def test_what_the_server_says_is_wrong_can_be_put_right() -> None:
    """Whoever asked hears what to change, changes it, and is answered."""
    violations = [{"fact_index": 1, "predicate": "p", "issue": "policy_violation", "message": "not yours"}]
    schema_errors = [{"path": "/n", "message": "too large", "keyword": "maximum"}]
    server = Scripted(
        WireError("invalid_facts", "1 fact validation error", {"violations": violations}),
        WireError("too_many_facts", "1 too many", {"limit": 1, "actual": 2}),
        WireError("evaluation_timeout", "too slow", {"budget": {"limit": 5, "consumed": 5, "unit": "ms"}}),
        tools(tool()),
        WireError("schema_validation_failed", "1 schema validation error", {"schema_errors": schema_errors}),
        done(),
    )
    facts = [fact("o", 1), fact("p", 1), fact("q", 1)]
    constraints = Constraints(max_compute_ms=5)

    async def go() -> None:
        await client.evaluate("go", facts=facts, constraints=constraints)

    async with server.client() as client:
        with pytest.raises(ServerError) as wrong:
            await go()
        facts = [
            one for n, one in enumerate(facts) if n not in {v["fact_index"] for v in wrong.value.details["violations"]}
        ]
        with pytest.raises(ServerError) as many:
            await go()
        facts = facts[: many.value.details["limit"]]
        with pytest.raises(ServerError) as slow:
            await go()
        constraints = Constraints(max_compute_ms=2 * slow.value.details["budget"]["limit"])
        await go()
        with pytest.raises(ServerError) as unfit:
            await client.invoke("t", {"n": 10**9})
        assert unfit.value.details["schema_errors"] == schema_errors
        await client.invoke("t", {"n": 1})
    assert [len(one.payload.facts) for one in server.intents] == [3, 2, 1, 1]
    assert [one.payload.constraints.max_compute_ms for one in server.intents] == [5, 5, 5, 10]
    first, second = server.invocations
    assert first.payload.request_key != second.payload.request_key


@pytest.mark.req("TRANS-35")
async def test_who_waits_for_an_answer_has_asked_nothing_more() -> None:
    server = Scripted(NOTHING)
    async with server.client() as client:

        async def one_after_the_other() -> None:
            await client.evaluate("go", {"n": 1})
            await client.evaluate("go", {"n": 2})

        asking = asyncio.create_task(one_after_the_other())
        first = await server.until(IntentRequest)
        for _ in range(50):
            await asyncio.sleep(0)
        assert len(server.received) == 1
        await server.sessions[0].send(encode(wrapped(first, tools())))
        await server.until(IntentRequest, 2)
        asking.cancel()


# --- progress and cancellation ---------------------------------------------------------------------------------------


@pytest.mark.req("PROG-01", "PROG-07")
async def test_progress_goes_to_whoever_invoked() -> None:
    begun, half = ProgressPayload(status="started"), ProgressPayload(status="running", percent=50)
    server = Scripted(tools(tool()), [begun, half, done()], done())
    told: list[ProgressPayload] = []

    def listen(progress: ProgressPayload) -> None:
        told.append(progress)
        raise RuntimeError("a callback that fails changes nothing")

    async with server.client() as client:
        await client.evaluate("go")
        assert (await client.invoke("t", on_progress=listen)).result == {"ok": True}
        await client.invoke("t", on_progress=listen)
    assert told == [begun, half]


@pytest.mark.req("PROG-07")
async def test_what_belongs_to_no_request_is_skipped() -> None:
    server = Scripted(tools(tool()), done())
    async with server.client(on_progress=lambda _: pytest.fail("nobody asked")) as client:
        await server.sessions[0].send(encode(ProgressMessage(id="x", payload=ProgressPayload(status="running"))))
        await server.sessions[0].send(encode(InvokeResponse(id="x", payload=done())))
        await server.sessions[0].send(encode(WireError("internal_error", "oops").to_message(None)))
        assert len(await client.evaluate("go")) == 1


@pytest.mark.req("TRANS-36", "TRANS-39")
async def test_who_cancels_the_task_cancels_the_request() -> None:
    server = Scripted(tools(tool()), NOTHING, tools())
    async with server.client() as client:
        await client.evaluate("go")
        waiting = asyncio.create_task(client.invoke("t"))
        asked = await server.until(InvokeRequest)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        cancel = await server.until(Cancel)
        assert isinstance(cancel, Cancel)
        assert (cancel.id, cancel.payload.request_id) == (None, asked.id)
        assert asked.id is not None
        await server.sessions[0].send(encode(InvokeResponse(id=asked.id, payload=done())))  # too late, and no harm
        assert len(await client.evaluate("go")) == 0


@pytest.mark.req("TRANS-36")
async def test_who_gives_up_and_leaves_still_says_so() -> None:
    """A run belongs to no connection, and would go on."""
    server = Scripted(tools(tool()), NOTHING)

    async def leave() -> None:
        async with server.client() as client:
            await client.evaluate("go")
            giving_up = asyncio.create_task(client.invoke("t"))
            await server.until(InvokeRequest)
            server.slow = 0.1
            giving_up.cancel()
            await giving_up

    with pytest.raises(asyncio.CancelledError):
        await leave()
    assert isinstance(server.received[-1], Cancel)


@pytest.mark.req("CLI-03")
async def test_a_message_that_is_too_long_is_not_sent() -> None:
    server = Scripted(tools())
    async with server.client() as client:
        with pytest.raises(RequestRefused, match="message_too_large"):
            await client.evaluate("go", {"text": "x" * (1 << 24)})
        assert server.received == []
        await client.evaluate("go", {"text": "x" * ((1 << 24) - 1_000)})


async def test_an_answer_may_take_only_so_long() -> None:
    server = Scripted(NOTHING)
    async with server.client(response_seconds=0.05) as client:
        with pytest.raises(ResponseTimeout):
            await client.evaluate("go")
        await server.until(Cancel)
    assert len(server.intents) == 1, "a server that is slow is not asked twice"


# --- servers that misbehave ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "said",
    [
        b"not json",
        b'{"type": "intent_response", "id": "x"}',
        b'{"type": "error", "id": null, "manglecp": "1999-01-final", "payload": {}}',
    ],
)
async def test_a_message_that_cannot_be_read_ends_the_connection(said: bytes) -> None:
    server = Scripted(said, tools())
    async with server.client() as client:
        with pytest.raises(InvalidResponse):
            await asyncio.wait_for(client.evaluate("go"), PATIENCE)
        assert len(await client.evaluate("go")) == 0
    assert len(server.sessions) == 2


async def test_an_answer_of_another_kind_is_none() -> None:
    server = Scripted(lambda message: InvokeResponse(id=message.id, payload=done()))
    async with server.client() as client:
        with pytest.raises(InvalidResponse):
            await client.evaluate("go")


async def test_an_answer_that_is_too_long_is_not_read() -> None:
    server = Scripted(tools(*(tool(f"t{n}") for n in range(300))))
    server.transport = MemoryTransport(server, max_response_bytes=20_000)
    async with Client(server.transport) as client:
        with pytest.raises(InvalidResponse, match="20,000"):
            await client.evaluate("go")


def test_only_newest_tools_are_kept() -> None:
    async def many() -> None:
        server = Scripted(lambda message: tools(tool(f"t{message.payload.intent.params['n']}")))
        async with server.client() as client:
            for n in range(1_001):
                await client.evaluate("go", {"n": n})
            with pytest.raises(RequestRefused):
                await client.invoke("t0")
            assert isinstance(await client.upgrade("t1"), Tool)

    asyncio.run(many())


async def test_effects_that_may_not_happen_twice() -> None:
    server = Scripted(tools(tool(), writes("w"), writes("i", idempotent=True)))
    async with server.client() as client:
        found = await client.evaluate("go")
        assert [(one.name, one.is_repeatable) for one in found] == [("t", True), ("w", False), ("i", True)]


# --- what clients may not lean on ------------------------------------------------------------------------------------


@pytest.mark.req("DATA-46")
async def test_what_was_derived_is_said_again_by_the_client() -> None:
    server = Scripted(tools())
    derived = fact("found", 1, category="derived", source={"source_type": "derived"})
    async with server.client(state=WorkingState([derived])) as client:
        await client.evaluate("go", from_state="all")
    assert server.intents[0].payload.facts == [fact("found", 1, category="session")]


@pytest.mark.req("TOOL-21")
async def test_nothing_rests_on_metadata() -> None:
    bare = msgspec.structs.replace(tool(), metadata=UNSET)
    server = Scripted(tools(bare), done())
    async with server.client() as client:
        found = await client.evaluate("go")
        assert found["t"].score is None
        assert (await client.invoke("t", {"n": 1})).result == {"ok": True}


@pytest.mark.req("WIRE-08")
async def test_request_ids_count_up_and_differ_between_clients() -> None:
    ids = []
    for _ in range(2):
        server = Scripted(tools(), tools(), tools())
        async with server.client() as client:
            for _ in range(3):
                await client.evaluate("go")
        ids.append([str(one.id).rpartition("-") for one in server.intents])
    first, second = ids
    assert [int(number) for _, _, number in first] == sorted({int(number) for _, _, number in first})
    assert not set(first) & set(second)
