"""A session that lasts: pipelining, cancelling, progress, and clients that behave badly."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections import Counter
from typing import Any

import pytest

from manglecp.intent import ANONYMOUS, Identity
from manglecp.server import sessions
from manglecp.server.config import ServerSettings
from manglecp.server.pending import PendingRequest, Reply
from manglecp.wire import receive
from manglecp.wire.messages import FactsResult, InvokeRequest, ProgressPayload
from tests.server.desk import PATIENCE, Tokens, cancel, desk, encoded, facts, intent, invoke, plain_pack
from tests.server.slow import slow_evaluations


def terminal(one: dict[str, Any]) -> bool:
    return one["type"] not in ("manifest", "progress")


# --- pipelining ------------------------------------------------------------------------------------------------------


@pytest.mark.req("TRANS-32", "TRANS-33", "TRANS-34")
async def test_every_pipelined_request_is_answered_once() -> None:
    async with desk() as d, d.client() as client:
        tools = await d.tools(client)
        asked = [intent(f"i-{n}") if n % 2 else invoke(f"i-{n}", tools["t"], {"n": n}) for n in range(40)]
        asked[7] = {**asked[7], "manglecp": "1999-01-final"}
        asked[9] = intent("i-9", facts=[{"pred": "unheard_of", "args": []}])
        await client.say(*asked)
        answers = (await client.until(terminal, 41))[1:]
        assert Counter(one["id"] for one in answers) == Counter(f"i-{n}" for n in range(40))
        by_id = {one["id"]: one for one in answers}
        assert by_id["i-7"]["payload"]["code"] == "unsupported_version"
        assert by_id["i-9"]["payload"]["code"] == "unknown_predicate"
        assert by_id["i-4"]["payload"]["result"] == {"n": 4}


async def test_a_quick_request_overtakes_a_slow_one_and_the_loop_is_never_blocked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with slow_evaluations(monkeypatch) as gate:
        async with desk() as d, d.client() as client:
            await client.say(intent("a", "slow"))
            assert await asyncio.to_thread(gate.entered.acquire, timeout=PATIENCE)
            assert (await client.ask(intent("b")))["type"] == "intent_response"
            assert not any(one["id"] == "a" for one in client.sent)
            gate.open.set()
            assert (await client.answer("a"))["type"] == "intent_response"


@pytest.mark.req("WIRE-06", "WIRE-07")
async def test_the_id_of_an_unanswered_request_is_not_taken_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with slow_evaluations(monkeypatch) as gate:
        # Whatever else could be said about the second: under this id it would be taken for the answer to the first.
        async with desk(settings=ServerSettings(max_pending=1, worker=False)) as d, d.client() as client:
            await client.say(intent("a", "slow"), intent("a"))
            error = await client.answer(None)
            assert error["payload"]["code"] == "malformed_message"
            assert error["payload"]["details"]["path"] == "$.id"
            gate.open.set()
            assert (await client.answer("a"))["type"] == "intent_response"
            assert sum(one["id"] == "a" for one in client.sent) == 1
            assert (await client.ask(intent("b")))["type"] == "intent_response"


async def test_two_requests_with_one_id_at_the_same_moment_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(Tokens):
        async def identify(self, scheme: str, credential: str) -> Identity | None:
            await asyncio.sleep(0.01)
            return await super().identify(scheme, credential)

    async with desk(auth=Slow({"good": ANONYMOUS})) as d:
        session = d.core.session("http")
        session.set_credential("bearer", "good")
        with slow_evaluations(monkeypatch) as gate:
            tasks = [asyncio.create_task(session.handle(encoded(intent("a", "slow")))) for _ in range(2)]
            await asyncio.wait(tasks, timeout=PATIENCE, return_when=asyncio.FIRST_COMPLETED)
            gate.open.set()
            replies = await asyncio.gather(*tasks)
        answers = [json.loads(reply.data) for reply in replies if reply is not None]
        assert sorted((one["type"], one["id"] or "") for one in answers) == [("error", ""), ("intent_response", "a")]


@pytest.mark.req("ERR-30")
async def test_one_session_has_so_many_unanswered_requests_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    with slow_evaluations(monkeypatch) as gate:
        async with (
            desk(settings=ServerSettings(max_pending=3, worker=False)) as d,
            d.client() as client,
            d.client() as other,
        ):
            await client.say(*(intent(f"i-{n}", "slow") for n in range(4)))
            refused = await client.answer("i-3")
            assert refused["payload"]["code"] == "rate_limited"
            assert refused["payload"]["retry_after_ms"] > 0
            await other.say(intent("i-0", "slow"))
            gate.open.set()
            assert (await other.answer("i-0"))["type"] == "intent_response"
            assert (await client.answer("i-2"))["type"] == "intent_response"


# --- cancelling ------------------------------------------------------------------------------------------------------


@pytest.mark.req("TRANS-36", "TRANS-37", "TRANS-38", "ERR-32")
async def test_a_running_evaluation_is_cancelled_and_answered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with slow_evaluations(monkeypatch) as gate:
        async with desk() as d, d.client() as client:
            await client.say(intent("a", "slow"))
            assert await asyncio.to_thread(gate.entered.acquire, timeout=PATIENCE)
            await client.say(cancel("a"))
            answer = await client.answer("a")
            assert answer["payload"]["code"] == "cancelled"
            assert answer["payload"]["recoverable"] is False
            assert d.handled[-1].status == 499
            gate.open.set()
            await client.ask(intent("b"))
            await d.core.drain()
            assert sum(one["id"] == "a" for one in client.sent) == 1


async def test_an_evaluation_that_waits_for_its_turn_is_cancelled_without_having_begun(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with slow_evaluations(monkeypatch) as gate:
        settings = ServerSettings(evaluation_threads=1, max_queue_wait=PATIENCE, worker=False)
        async with desk(settings=settings) as d, d.client() as client:
            await client.say(intent("a", "slow"))
            assert await asyncio.to_thread(gate.entered.acquire, timeout=PATIENCE)
            await client.say(intent("b", "slow"))
            while not d.core.evaluations.queue_length:
                await asyncio.sleep(0)
            await client.say(cancel("b"))
            assert (await client.answer("b"))["payload"]["code"] == "cancelled"
            for _ in range(100):
                await asyncio.sleep(0)
            assert d.core.evaluations.queue_length == 0
            gate.open.set()
            await client.answer("a")
            assert gate.count == 1
            assert (await client.ask(intent("c", "slow")))["type"] == "intent_response"


@pytest.mark.req("TRANS-37", "TRANS-38")
async def test_a_run_is_cancelled_between_its_steps() -> None:
    began, go = asyncio.Event(), asyncio.Event()

    async def look(given: dict[str, Any]) -> dict[str, Any]:
        began.set()
        await go.wait()
        return given

    async with desk(work={"look": look}) as d, d.client() as client:
        tools = await d.tools(client)
        await client.say(invoke("r", tools["t"], {"n": 1}))
        await asyncio.wait_for(began.wait(), PATIENCE)
        await client.say(cancel("r"))
        go.set()
        answer = await client.answer("r")
        assert answer["payload"]["code"] == "cancelled"
        assert len(d.shop.bench.ran) == 1
        assert sum(one["id"] == "r" and terminal(one) for one in client.sent) == 1


@pytest.mark.req("TRANS-39")
async def test_what_is_unknown_answered_or_of_another_session_is_not_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    with slow_evaluations(monkeypatch) as gate:
        async with desk() as d, d.client() as client, d.client() as other:
            await client.ask(intent("done"))
            await client.say(intent("mine", "slow"))
            await other.say(cancel("mine"), cancel("done"), cancel("never"))
            await client.say(cancel("done"), cancel("never"))
            gate.open.set()
            assert (await client.answer("mine"))["type"] == "intent_response"
            assert (await other.ask(intent("x")))["type"] == "intent_response"
            assert [one["type"] for one in other.sent] == ["manifest", "intent_response"]


async def test_a_cancel_without_a_request_is_malformed() -> None:
    async with desk() as d, d.client() as client:
        await client.say({**cancel("x"), "payload": {}})
        assert (await client.answer(None))["payload"]["code"] == "malformed_message"


@pytest.mark.req("TRANS-40")
async def test_on_http_whoever_goes_away_has_cancelled() -> None:
    began, go = asyncio.Event(), asyncio.Event()

    async def look(given: dict[str, Any]) -> dict[str, Any]:
        began.set()
        await go.wait()
        return given

    async with desk(work={"look": look}) as d, d.client() as client:
        tools = await d.tools(client)
        for key, steps in ((None, 1), ("again", 2)):
            began.clear()
            go.clear()
            d.shop.bench.ran.clear()
            # The tool belongs to whom it was issued to, and both are anonymous.
            session = d.core.session("http", peer="192.0.2.2")
            more = {} if key is None else {"x-request_key": key}
            waiting = asyncio.create_task(session.handle(encoded(invoke("r", tools["t"], {"n": 1}, **more))))
            await asyncio.wait_for(began.wait(), PATIENCE)
            session.disconnect()
            go.set()
            reply = await waiting
            assert reply is not None
            assert (reply.code, reply.status) == (("cancelled", 499) if key is None else (None, 200))
            assert len(d.shop.bench.ran) == steps


async def test_a_run_with_a_key_goes_on_when_its_session_is_gone() -> None:
    began, go = asyncio.Event(), asyncio.Event()

    async def look(given: dict[str, Any]) -> dict[str, Any]:
        began.set()
        await go.wait()
        return given

    async with desk(work={"look": look}) as d:
        async with d.client() as client:
            tools = await d.tools(client)
            await client.say(invoke("r", tools["t"], {"n": 1}, **{"x-request_key": "k"}))
            await asyncio.wait_for(began.wait(), PATIENCE)
        go.set()
        assert await d.core.drain(PATIENCE)
        assert [name for name, _ in d.shop.bench.ran] == ["look", "look"]
        assert not any(one["id"] == "r" and terminal(one) for one in client.sent)


# --- progress --------------------------------------------------------------------------------------------------------


@pytest.mark.req("PROG-01", "PROG-02", "PROG-03", "PROG-05", "PROG-06", "PROG-08")
async def test_progress_has_the_id_of_its_request_and_comes_before_its_answer() -> None:
    async with desk() as d, d.client() as client:
        tools = await d.tools(client)
        await client.say(*(invoke(f"r-{n}", tools["t"], {"n": n}) for n in range(8)))
        await client.until(lambda one: one["type"] == "invoke_response", 8)
        await client.ask(intent("last"))
        for n in range(8):
            said = [one for one in client.sent if one["id"] == f"r-{n}"]
            assert [one["type"] for one in said[:-1]] == ["progress"] * (len(said) - 1)
            assert len(said) > 1
            assert said[-1]["type"] == "invoke_response"
            statuses = [one["payload"]["status"] for one in said[:-1]]
            assert statuses[0] == "started"
            assert set(statuses) <= {"started", "running", "finalizing"}
            assert all(0 <= one["payload"]["percent"] <= 100 for one in said[:-1])


@pytest.mark.req("PROG-04")
async def test_there_is_no_progress_on_http() -> None:
    told: list[bytes] = []

    async def send(data: bytes) -> None:
        told.append(data)

    async with desk() as d, d.client() as client:
        tools = await d.tools(client)
        session = d.core.session("http", peer="192.0.2.1", send=send)
        reply = await session.handle(encoded(invoke("r", tools["t"], {"n": 1})))
        assert reply is not None
        assert json.loads(reply.data)["type"] == "invoke_response"
        assert told == []


@pytest.mark.req("TRANS-38", "PROG-08")
async def test_after_the_answer_nothing_more_is_said() -> None:
    message = receive(encoded(invoke("r", "m-1", {})), 1 << 20)
    assert isinstance(message, InvokeRequest)
    pending = PendingRequest(message, ANONYMOUS, 0)
    assert pending.progress(ProgressPayload(status="started")) is not None
    pending.reply.set_result(Reply(b"first"))
    assert pending.progress(ProgressPayload(status="running")) is None


async def test_an_answer_that_is_waited_for_comes_after_its_progress() -> None:
    async with desk() as d, d.client() as client:
        tools = await d.tools(client)
        client.open.clear()
        waiting = asyncio.create_task(client.session.handle(encoded(invoke("r", tools["t"], {"n": 1}))))
        async with asyncio.timeout(PATIENCE):
            while len(d.handled) < 2:
                await asyncio.sleep(0.001)
        for _ in range(100):
            await asyncio.sleep(0)
        assert not waiting.done()
        client.open.set()
        assert await waiting is not None
        assert [one["type"] for one in client.sent if one["id"] == "r"] == ["progress"] * 3


# --- clients that behave badly ---------------------------------------------------------------------------------------


async def test_nothing_more_is_read_from_a_client_that_takes_nothing() -> None:
    settings = ServerSettings(outbox_bytes=20_000, worker=False)
    async with desk(settings=settings) as d, d.client() as client, d.client() as other:
        await client.until(lambda one: one["type"] == "manifest")
        client.open.clear()
        took = 0

        async def flood() -> None:
            nonlocal took
            while True:
                await client.say(intent(f"i-{took}"))
                took += 1

        flooding = asyncio.create_task(flood())
        for n in range(200):
            assert (await other.ask(intent(f"o-{n}")))["type"] == "intent_response"
        stopped = took
        assert (await other.ask(intent("more")))["type"] == "intent_response"
        assert took == stopped < 1_000
        flooding.cancel()
        client.open.set()
        assert {one["id"] for one in await client.until(terminal, stopped)} >= {f"i-{n}" for n in range(stopped)}


async def test_a_client_that_takes_nothing_for_too_long_has_lost_its_session() -> None:
    settings = ServerSettings(outbox_bytes=1, send_timeout=0.05, worker=False)
    async with desk(settings=settings) as d, d.client() as client:
        await client.until(lambda one: one["type"] == "manifest")
        client.open.clear()
        with contextlib.suppress(ConnectionResetError):
            await client.say(intent("a"))
        await asyncio.wait_for(client.session.lost.wait(), PATIENCE)
        assert client.session.lost.is_set()
        with pytest.raises(ConnectionResetError):
            await asyncio.wait_for(client.say(intent("b")), PATIENCE)


async def test_progress_is_left_out_for_a_client_that_is_behind() -> None:
    settings = ServerSettings(outbox_bytes=1, worker=False)
    async with desk(settings=settings) as d, d.client() as client, d.client() as other:
        tools = await d.tools(other)
        await client.until(lambda one: one["type"] == "manifest")
        client.open.clear()
        one, two = (asyncio.create_task(client.say(invoke(f"r-{n}", tools["t"], {"n": 1}))) for n in range(2))
        while d.core.pending or len(d.handled) < 3:
            await other.ask(intent(f"o-{len(other.sent)}"))
        client.open.set()
        await asyncio.gather(one, two)
        await client.until(terminal, 2)
        assert sum(said["type"] == "progress" for said in client.sent) <= 1


@pytest.mark.req("WIRE-21", "WIRE-22", "SEC-02")
async def test_size_is_counted_in_bytes_before_anything_else() -> None:
    most = plain_pack().settings.limits.max_message_bytes
    async with desk() as d:
        message = encoded(intent("a"))
        answer, reply = await d.post(message + b" " * (most - len(message)))
        assert (answer["type"], answer["id"]) == ("intent_response", "a")
        answer, reply = await d.post(b"{" + b" " * most)
        assert (answer["payload"]["code"], answer["id"], reply.status) == ("message_too_large", None, 413)
        assert answer["payload"]["details"] == {"limit": most, "actual": most + 1}


@pytest.mark.req("TRANS-26", "TRANS-27")
async def test_a_client_that_says_nothing_more_still_gets_its_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    with slow_evaluations(monkeypatch) as gate:
        async with desk() as d, d.client("stdio", None) as client:
            await client.say(intent("a", "slow"), intent("b"))
            draining = asyncio.create_task(client.session.drain())
            await client.answer("b")
            assert not draining.done()
            gate.open.set()
            await asyncio.wait_for(draining, PATIENCE)
            assert {one["id"] for one in client.sent if terminal(one)} == {"a", "b"}


async def test_pushes_that_wait_for_another_leave_the_threads_to_other_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    release, running = threading.Event(), []

    def push(_revision: Any, _identity: Identity, source: str, _facts: Any) -> FactsResult:
        running.append(source)
        release.wait(PATIENCE)
        return FactsResult(source=source, version=1, digest="", facts=0, added=0, removed=0, changed=True)

    monkeypatch.setattr(sessions, "push_facts", push)
    async with desk() as d:
        pushes = [asyncio.create_task(d.post(facts(f"f-{n}"))) for n in range(40)]  # more than there are threads
        async with asyncio.timeout(PATIENCE):
            while not running:
                await asyncio.sleep(0.01)
            await asyncio.to_thread(running.append, "other")
        assert len(running) == 2
        release.set()
        assert {answer["type"] for answer, _ in await asyncio.gather(*pushes)} == {"x-facts_response"}
