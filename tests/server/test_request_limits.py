"""How often and how many: what is too much is refused at once, and told when to come back."""

from __future__ import annotations

import asyncio

import pytest

from manglecp.intent import ANONYMOUS, Identity
from manglecp.server.auth import LOCAL
from manglecp.server.config import Rate, ServerSettings
from manglecp.server.request_limits import Buckets, RequestLimits
from manglecp.wire import WireError
from tests.server.desk import PATIENCE, Tokens, desk, intent, invoke
from tests.server.slow import slow_evaluations

ANN, BOB = Identity("ann", frozenset(), "user"), Identity("bob", frozenset(), "user")


def test_a_bucket_holds_a_burst_and_fills_again() -> None:
    now = [0.0]
    buckets = Buckets(Rate(2, 3), lambda: now[0])
    assert [buckets.take("a") for _ in range(3)] == [0.0] * 3
    assert buckets.take("a") == pytest.approx(0.5)
    assert buckets.take("b") == 0.0
    now[0] = 0.5
    assert buckets.take("a") == 0.0
    assert buckets.take("a") > 0.0
    now[0] = 1_000.0
    assert [buckets.take("a") for _ in range(4)][:3] == [0.0] * 3
    assert buckets.take("a") > 0.0


def test_a_wait_that_was_kept_is_enough() -> None:
    now = [12345.678]
    buckets = Buckets(Rate(3, 1), lambda: now[0])
    for _ in range(1_000):
        wait = buckets.take("a")
        if wait:
            now[0] += wait
            assert buckets.take("a") == 0.0


def test_keys_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Buckets, "MAX_KEYS", 10)
    buckets = Buckets(Rate(0.001, 1), lambda: 0.0)
    for n in range(100):
        buckets.take(str(n))
    assert buckets.take("99") > 0.0  # remembered
    assert buckets.take("0") == 0.0  # forgotten


def test_no_rate_is_no_limit() -> None:
    assert {Buckets(None).take("a") for _ in range(1_000)} == {0.0}


def test_identities_have_limits_of_their_own_and_the_local_user_has_none() -> None:
    limits = RequestLimits(ServerSettings(identity_rate=Rate(1, 1)), lambda: 0.0)
    limits.charge(ANN)
    with pytest.raises(WireError) as refused:
        limits.charge(ANN)
    assert (refused.value.code, refused.value.retry_after_ms) == ("rate_limited", 1_000)
    limits.charge(BOB)
    for identity in (LOCAL, ANONYMOUS) * 5:
        limits.charge(identity)


@pytest.mark.req("ERR-30", "TRANS-20")
async def test_an_identity_that_asks_too_often_is_told_when_to_come_back() -> None:
    now = [0.0]
    settings = ServerSettings(identity_rate=Rate(1, 2), worker=False)
    auth = Tokens({"a": ANN, "b": BOB})
    async with desk(auth=auth, settings=settings, clock=lambda: now[0]) as d:
        for request in ("1", "2"):
            assert (await d.post(intent(request), "a"))[1].status == 200
        answer, reply = await d.post(intent("3"), "a", peer="192.0.2.77")
        assert (answer["id"], reply.code, reply.status) == ("3", "rate_limited", 429)
        assert answer["payload"]["recoverable"] is True
        assert (await d.post(intent("4"), "b"))[1].status == 200
        now[0] += answer["payload"]["retry_after_ms"] / 1_000
        assert (await d.post(intent("5"), "a"))[1].status == 200


async def test_an_address_has_a_limit_that_nonsense_counts_for() -> None:
    settings = ServerSettings(peer_rate=Rate(0.001, 3), worker=False)
    async with desk(settings=settings) as d:
        codes = [(await d.post(b"nonsense"))[1].code for _ in range(3)]
        assert codes == ["malformed_message"] * 3
        assert (await d.post(b"nonsense"))[1].code == "rate_limited"
        answer, reply = await d.post(intent("a"))
        assert (answer["id"], reply.code) == ("a", "rate_limited")
        assert (await d.post(intent("a"), peer="192.0.2.2"))[1].status == 200


@pytest.mark.req("ERR-30")
async def test_what_cannot_wait_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = ServerSettings(
        evaluation_threads=2, max_queued_evaluations=3, max_pending=100, max_queue_wait=PATIENCE, worker=False
    )
    with slow_evaluations(monkeypatch) as gate:
        async with desk(settings=settings) as d, d.client() as client:
            await client.say(*(intent(f"i-{n}", "slow") for n in range(10)))
            refused = await client.until(lambda one: one["type"] == "error", 5)
            assert {one["payload"]["code"] for one in refused} == {"rate_limited"}
            assert all(one["payload"]["retry_after_ms"] >= 50 for one in refused)
            async with asyncio.timeout(PATIENCE):
                while d.core.evaluations.running_count < 2:  # the second thread begins when the first one lasts
                    await asyncio.sleep(0.001)
            assert (d.core.evaluations.running_count, d.core.evaluations.queue_length) == (2, 3)
            gate.open.set()
            await client.until(lambda one: one["type"] == "intent_response", 5)
            assert gate.count == 5
            assert (await client.ask(intent("last")))["type"] == "intent_response"


async def test_what_has_waited_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = ServerSettings(evaluation_threads=1, max_queue_wait=0.02, worker=False)
    with slow_evaluations(monkeypatch) as gate:
        async with desk(settings=settings) as d, d.client() as client:
            await client.say(intent("a", "slow"), intent("b", "slow"))
            assert (await client.answer("b"))["payload"]["code"] == "rate_limited"
            assert d.core.evaluations.queue_length == 0
            gate.open.set()
            assert (await client.answer("a"))["type"] == "intent_response"
            assert gate.count == 1


async def test_so_many_runs_at_once_and_no_more() -> None:
    go = asyncio.Event()

    async def look(given: dict[str, int]) -> dict[str, int]:
        await go.wait()
        return given

    async with (
        desk(work={"look": look}, settings=ServerSettings(max_invocations=2, worker=False)) as d,
        d.client() as client,
    ):
        tools = await d.tools(client)
        await client.say(*(invoke(f"r-{n}", tools["t"], {"n": n}) for n in range(3)))
        assert (await client.answer("r-2"))["payload"]["code"] == "rate_limited"
        go.set()
        await client.answer("r-0")
        await client.answer("r-1")
        assert (await client.ask(invoke("r-4", tools["t"], {"n": 4})))["type"] == "invoke_response"


def test_whoever_has_a_network_of_addresses_is_one_client() -> None:
    limits = RequestLimits(ServerSettings(peer_rate=Rate(0.001, 2), attempt_rate=Rate(0.001, 1)))

    def taken(peer: str) -> bool:
        try:
            limits.charge_peer(peer)
        except WireError:
            return False
        return True

    assert [taken(f"2001:db8:0:1::{number}") for number in range(4)] == [True, True, False, False]
    assert taken("2001:db8:0:2::1")
    assert [taken(one) for one in ("192.0.2.1", "::ffff:192.0.2.1", "192.0.2.1")] == [True, True, False]
    assert taken("192.0.2.2")
    assert [taken("fe80::1%eth0") for _ in range(3)] == [True, True, False]
    limits.charge_failed_attempt("2001:db8::1")
    with pytest.raises(WireError, match="Too many invalid credentials"):
        limits.charge_failed_attempt("2001:db8::2")
