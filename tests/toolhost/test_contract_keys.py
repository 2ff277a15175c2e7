"""What a pool remembers under an idempotency key, without a process around it."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from msgspec.structs import replace

from manglecp.toolhost import idempotency as module
from manglecp.toolhost.dispatch.idempotency import IdempotencyTable
from manglecp.toolhost.dispatch.messages import ActionResult, DispatchError, HostCall, failure
from manglecp.toolhost.state import Artifact

CALL = HostCall(aid="A", tier=1, idempotency_key="k", input_json='{"n":1}')
GOOD = ActionResult("A", "7", {})
UNKNOWN = failure("A", "crash", "gone", code="outcome_unknown")


class Counting:
    """Runs calls, and counts them."""

    def __init__(self) -> None:
        self.now = 0.0
        self.runs = 0
        self.keys = IdempotencyTable(lambda: self.now)

    async def call(
        self,
        call: HostCall = CALL,
        result: ActionResult | DispatchError = GOOD,
        *,
        before: Callable[[], Awaitable[object]] | None = None,
        seconds: float = 60.0,
        sent: bool = True,
    ) -> ActionResult | DispatchError:
        async def run() -> ActionResult | DispatchError:
            self.runs += 1
            if before is not None:
                await before()
            return result

        deadline = asyncio.get_running_loop().time() + seconds
        return await self.keys.once(call, run, deadline=deadline, outcome_unknown=lambda: sent)


def hit(result: ActionResult | DispatchError) -> bool:
    return isinstance(result, ActionResult) and result.idempotent_hit


@pytest.mark.req("IPC-14", "IPC-23")
def test_a_success_is_answered_again_for_a_minute() -> None:
    async def work() -> None:
        pool = Counting()
        assert not hit(await pool.call())
        pool.now = 59.9
        again = await pool.call()
        assert isinstance(again, ActionResult)
        assert (again.output_json, again.idempotent_hit, pool.runs) == ("7", True, 1)
        pool.now = 60.0
        assert not hit(await pool.call())
        assert pool.runs == 2

    asyncio.run(work())


def test_a_key_belongs_to_an_identity_and_an_action_and_an_input() -> None:
    async def work() -> None:
        pool = Counting()
        await pool.call()
        for other in (replace(CALL, aid="B"), replace(CALL, identity="b"), replace(CALL, idempotency_key="l")):
            assert not hit(await pool.call(other))
        assert pool.runs == 4
        assert hit(await pool.call(replace(CALL, input_json='{ "n" : 1 }')))
        for other_input in ('{"n":2}', '{"n":1.0}', '{"n":2,"n":1}', "no JSON"):
            conflict = await pool.call(replace(CALL, input_json=other_input))
            assert conflict == failure("A", "tool_error", "idempotency_conflict", status="TOOL_ERROR")
        assert pool.runs == 4

    asyncio.run(work())


def test_a_hit_changes_no_state() -> None:
    async def work() -> None:
        pool = Counting()
        one, two, made = Artifact("one"), Artifact("two"), Artifact("made")
        await pool.call(replace(CALL, slots={1: one}), ActionResult("A", "7", {0: made}))
        again = await pool.call(replace(CALL, slots={1: one, 2: two}))
        assert isinstance(again, ActionResult)
        assert again.slots == {1: one, 2: two}

    asyncio.run(work())


@pytest.mark.parametrize(
    "result",
    [
        failure("A", "tool_error", "no", status="TOOL_ERROR"),
        failure("A", "timeout", "nothing was sent"),
        failure("A", "exception", "too large to send", code="oversize"),
        failure("A", "exception", "full", code="queue_full"),
    ],
)
def test_what_failed_may_be_tried_again(result: DispatchError) -> None:
    async def work() -> None:
        pool = Counting()
        assert await pool.call(result=result) == result
        assert not hit(await pool.call())
        assert pool.runs == 2

    asyncio.run(work())


@pytest.mark.parametrize("result", [UNKNOWN, failure("A", "parse_error", "too long", code="oversize")])
def test_what_may_have_happened_is_not_tried_again_however_late(result: DispatchError) -> None:
    async def work() -> None:
        pool = Counting()
        assert await pool.call(result=result) == result
        pool.now = 1e9
        again = await pool.call()
        assert isinstance(again, dict)
        assert (again["type"], again.get("code"), pool.runs) == ("crash", "outcome_unknown", 1)

    asyncio.run(work())


def test_an_action_that_may_be_repeated_is_after_an_answer_that_was_too_long() -> None:
    async def work() -> None:
        pool = Counting()
        often = replace(CALL, idempotent=True)
        await pool.call(often, failure("A", "parse_error", "too long", code="oversize"))
        assert await pool.call(often) == GOOD

    asyncio.run(work())


def test_who_comes_while_the_first_one_runs_waits_for_it() -> None:
    async def work(first: ActionResult | DispatchError, runs: int) -> None:
        pool = Counting()
        gate = asyncio.Event()
        tasks = [asyncio.create_task(pool.call(result=first, before=gate.wait)) for _ in range(5)]
        await asyncio.sleep(0)
        assert pool.runs == 1
        late = await pool.call(seconds=0.05)
        assert isinstance(late, dict)
        assert (late["type"], pool.runs) == ("timeout", 1)
        other = await pool.call(replace(CALL, input_json="{}"))
        assert isinstance(other, dict)
        assert other["detail"] == "idempotency_conflict"
        gate.set()
        results = await asyncio.gather(*tasks)
        assert pool.runs == runs
        assert [hit(result) for result in results].count(True) == (4 if isinstance(first, ActionResult) else 0)

    asyncio.run(work(GOOD, 1))
    asyncio.run(work(UNKNOWN, 1))
    asyncio.run(work(failure("A", "tool_error", "no"), 5))


@pytest.mark.parametrize(("sent", "runs"), [(True, 1), (False, 2)])
def test_a_call_that_was_given_up_holds_its_key_only_if_it_was_sent(sent: bool, runs: int) -> None:
    async def work() -> None:
        pool = Counting()
        first = asyncio.create_task(pool.call(before=asyncio.Event().wait, sent=sent))
        await asyncio.sleep(0)
        second = asyncio.create_task(pool.call())
        await asyncio.sleep(0)
        first.cancel()
        result = await second
        assert pool.runs == runs
        assert (isinstance(result, dict) and result.get("code") == "outcome_unknown") is sent

    asyncio.run(work())


@pytest.mark.req("IPC-39")
def test_memory_has_an_end_in_number_and_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fill(pool: Counting, count: int, result: ActionResult | DispatchError) -> None:
        for number in range(count):
            await pool.call(replace(CALL, idempotency_key=f"k{number}"), result)
        pool.runs = 0

    async def runs_again(pool: Counting, key: str) -> bool:
        pool.runs = 0
        await pool.call(replace(CALL, idempotency_key=key), failure("A", "tool_error", "no"))
        return pool.runs == 1

    async def work() -> None:
        for result in (GOOD, UNKNOWN):
            pool = Counting()
            await fill(pool, 1025, result)
            assert (await runs_again(pool, "k0"), await runs_again(pool, "k1")) == (True, False)
        monkeypatch.setattr(module, "MAX_BYTES", 100)
        pool = Counting()
        await fill(pool, 5, ActionResult("A", "x" * 40, {}))
        assert [await runs_again(pool, f"k{number}") for number in range(5)] == [True, True, True, False, False]
        await pool.call(replace(CALL, idempotency_key="big"), ActionResult("A", "x" * 400, {}))
        assert not await runs_again(pool, "big"), "the newest stays, whatever its size"

    asyncio.run(work())
