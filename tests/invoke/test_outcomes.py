"""How chains end: results and their schemas, failures and what they leave, deadlines, cancelling, rules that fail."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.deadlines import patience
from tests.intent.packs import action
from tests.invoke.chains import NUMBER, chain, effect, steps
from tests.invoke.workshop import Fails, Stop, shop

RESULT = 'macro_result("t", "first", 1, "/m"). macro_result("t", "all", 2, "").'
PROMISE = 'macro_output("t", ["type": "object", "required": ["first"], "properties": ["first": ["type": "integer"]]]).'
UNDO = 'undo_step("t", 1, "erase"). undo_in("t", 1, "n", "n").'
STANDS = 'asserts("done", [N], "server") :- step_status(N, "write", "success").'


def fail(_: dict[str, Any]) -> Any:
    raise Fails


# --- results ---------------------------------------------------------------------------------------------------------


@pytest.mark.req("INVK-14", "INVK-15")
async def test_a_result_is_what_the_tool_says_it_is() -> None:
    async with shop(chain(steps("look", "look"), RESULT, PROMISE), {"look": lambda _: {"m": 4}}) as s:
        assert (await s.invoke("t", {"n": 1})).result == {"first": 4, "all": {"m": 4}}


@pytest.mark.req("INVK-14")
@pytest.mark.parametrize(("output", "result"), [([1, 2], {"value": [1, 2]}), ("x", {"value": "x"}), ({}, {})])
async def test_a_result_is_an_object(output: Any, result: Any) -> None:
    anything = action("any", params=NUMBER, output_schema={})
    async with shop(chain(steps("any"), actions=(anything,)), {"any": lambda _: output}) as s:
        assert (await s.invoke("t", {"n": 1})).result == result


@pytest.mark.req("INVK-15")
@pytest.mark.parametrize("found", [{"m": "a hidden word"}, {}])
async def test_a_result_that_breaks_its_promise_is_not_sent(found: Any) -> None:
    """OPEN-34. What happened on the way is said."""
    async with shop(chain(steps("look", "write"), RESULT, PROMISE, STANDS), {"look": lambda _: found}) as s:
        error = await s.refused("t", {"n": 1})
        assert len(s.bench.ran) == 2
        assert s.ledger()[-1][1]["state"] == "failed"
    assert error.code == "execution_failed"
    assert error.details is not None
    assert error.details["reason"] == "bad_result"
    (wrong,) = error.details["schema_errors"]
    assert (wrong["path"], wrong["keyword"]) == ("/first", "type" if found else "required")
    assert error.details["effects"] == [{"step": 2, "action": "write", "status": "done"}]
    assert [one["args"] for one in error.details["state_delta"]["assert"]] == [[2]]
    assert "1 effect happened and stands" in error.message
    assert "hidden" not in str(error.details)


@pytest.mark.parametrize("name", ["look", "write"])
async def test_an_output_that_breaks_its_schema_fails_the_step(name: str) -> None:
    strict = {"type": "object", "required": ["m"]}
    kind = action if name == "look" else effect
    one = kind("strict", params=NUMBER, output_schema=strict)
    stands = 'asserts("done", [N], "server") :- step_status(N, "strict", "success").'
    async with shop(chain(steps("strict", "look"), stands, actions=(one,))) as s:
        error = await s.refused("t", {"n": 1})
        assert [each for each, _ in s.bench.ran] == ["strict"]
    assert error.details is not None
    assert [each["args"] for each in error.details["state_delta"]["assert"]] == ([] if name == "look" else [[1]])
    assert error.details["code"] == "bad_output"
    assert [each["status"] for each in error.details["effects"]] == ([] if name == "look" else ["done"])


# --- arguments -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "code"), [({}, "argument_missing"), ({"m": None}, "invalid_input"), ({"m": "x"}, "invalid_input")]
)
async def test_a_step_whose_argument_is_not_there_is_not_called(found: Any, code: str) -> None:
    async with shop(chain(steps("look", "write"), 'arg_step("t", 2, "n", 1, "/m").'), {"look": lambda _: found}) as s:
        error = await s.refused("t", {"n": 1})
        assert [name for name, _ in s.bench.ran] == ["look"]
    assert error.details is not None
    assert (error.details["step"], error.details["code"], error.details["effects"]) == (2, code, [])


# --- failures --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("on_error", "reversible", "ran", "status"),
    [
        ("stop", False, ["write", "look"], "done"),
        ("stop", True, ["write", "look", "erase"], "undone"),
        ("undo", False, ["write", "look", "erase"], "undone"),
        ("continue", True, ["write", "look", "write"], None),
    ],
)
async def test_a_failure_is_dealt_with_as_the_chain_says(
    on_error: str, reversible: bool, ran: list[str], status: str | None
) -> None:
    rules = [steps("write", "look", "write"), UNDO, f'on_error("t", 2, "{on_error}").', STANDS]
    async with shop(chain(*rules, *['reversible("t").'] * reversible), {"look": fail}) as s:
        if status is None:
            answer = await s.invoke("t", {"n": 1})
            assert [one["args"] for one in answer.state_delta.asserts] == [[1], [3]]
        else:
            error = await s.refused("t", {"n": 1})
            assert error.details is not None
            assert error.details["effects"] == [{"step": 1, "action": "write", "status": status}]
            stands = [one["args"] for one in error.details["state_delta"]["assert"]]
            assert stands == ([[1]] if status == "done" else [])
        assert [name for name, _ in s.bench.ran] == ran


async def test_where_undoing_fails_what_came_before_is_left() -> None:
    undoing = [f'undo_step("t", {n}, "erase"). undo_value("t", {n}, "n", {n}).' for n in (1, 2, 3)]

    def erase(given: dict[str, Any]) -> dict[str, Any]:
        if given["n"] == 2:
            raise Fails
        return given

    rules = (steps("write", "write", "write", "look"), *undoing, 'reversible("t").', STANDS)
    async with shop(chain(*rules), {"look": fail, "erase": erase}) as s:
        error = await s.refused("t", {"n": 1})
    assert error.details is not None
    assert [one["status"] for one in error.details["effects"]] == ["done", "done", "undone"]
    assert [one["args"] for one in error.details["state_delta"]["assert"]] == [[1], [2]]
    assert "2 effects happened and stand" in error.message


async def test_what_rests_on_the_call_alone_is_not_claimed_by_a_failure() -> None:
    claims = ('asserts("told", [1], "server") :- ran("t").', STANDS, 'summary("All is well.") :- ran("t").')
    async with shop(chain(steps("write", "look"), *claims), {"look": fail}) as s:
        error = await s.refused("t", {"n": 1})
    assert error.details is not None
    assert [one["pred"] for one in error.details["state_delta"]["assert"]] == ["done"]
    assert "All is well" not in f"{error.message}{error.details}"


@pytest.mark.parametrize(
    ("kind", "code", "answer"),
    [
        ("tool_error", None, "execution_failed"),
        ("breaker_open", "breaker_open", "rate_limited"),
        ("breaker_open", "queue_full", "rate_limited"),
        ("tool_error", "lease_refused", "auth_insufficient"),
        ("not_found", "not_found", "macro_not_found"),
        ("exception", "no_host", "internal_error"),
    ],
)
async def test_errors_before_and_after_the_first_effect(kind: str, code: str | None, answer: str) -> None:
    """OPEN-70."""

    def broken(_: dict[str, Any]) -> Any:
        raise Fails(kind, code)

    async with shop(chain(steps("look")), {"look": broken}) as s:
        error = await s.refused("t", {"n": 1})
        assert error.code == answer
        assert (error.retry_after_ms is not None) == (answer == "rate_limited")
    async with shop(chain(steps("write", "look")), {"look": broken}) as s:
        error = await s.refused("t", {"n": 1})
        assert (error.code, error.row.recoverable) == ("execution_failed", False)


async def test_what_was_never_sent_did_not_happen() -> None:
    """A request that is too long for a host is no answer that is."""

    def too_long(_: dict[str, Any]) -> Any:
        raise Fails("exception", code="oversize")

    async with shop(chain(steps("write")), {"write": too_long}) as s:
        error = await s.refused("t", {"n": 1})
    assert error.details is not None
    assert (error.details["reason"], error.details["effects"]) == ("step_failed", [])


# --- time and cancelling ---------------------------------------------------------------------------------------------


async def test_a_run_has_a_deadline() -> None:
    """OPEN-71: every step is given what is left of it, and none begins after it."""
    async with shop(chain(steps("write", "write"), STANDS, invocation={"max_execution_ms": 300})) as s:

        async def slow(given: dict[str, Any]) -> dict[str, Any]:
            await asyncio.sleep(s.bench.calls[-1]["timeout"] + 0.05)
            return given

        s.bench.work["write"] = slow
        error = await s.refused("t", {"n": 1})
        assert 0 < s.bench.calls[0]["timeout"] <= 0.3
        assert len(s.bench.ran) == 1
    assert error.code == "execution_failed"
    assert error.details is not None
    assert error.details["reason"] == "timeout"
    assert error.details["effects"] == [{"step": 1, "action": "write", "status": "done"}]
    assert error.message.startswith("The run took too long")


async def test_a_read_that_is_cancelled_is_given_up() -> None:
    cancel, reading = Stop(), asyncio.Event()

    async def wait(_: dict[str, Any]) -> Any:
        reading.set()
        await asyncio.Event().wait()

    async with shop(chain(steps("look", "write")), {"look": wait}) as s:
        asked = asyncio.create_task(s.refused("t", {"n": 1}, cancel=cancel))
        async with asyncio.timeout(patience(60)):
            await reading.wait()
            cancel.set()
            error = await asked
        assert len(s.bench.given_up) == 1
        assert [name for name, _ in s.bench.ran] == ["look"]
    assert error.details is not None
    assert error.details["effects"] == []
    assert error.code == "cancelled"


async def test_an_effect_that_was_sent_is_awaited() -> None:
    cancel, writing, go = Stop(), asyncio.Event(), asyncio.Event()

    async def write(given: dict[str, Any]) -> Any:
        writing.set()
        await go.wait()
        return given

    async with shop(chain(steps("write", "look"), STANDS), {"write": write}) as s:
        asked = asyncio.create_task(s.refused("t", {"n": 1}, cancel=cancel))
        async with asyncio.timeout(patience(60)):
            await writing.wait()
            cancel.set()
            await asyncio.sleep(0)
            go.set()
            error = await asked
        assert s.bench.given_up == []
        assert [name for name, _ in s.bench.ran] == ["write"]
        assert s.ledger()[-1][1]["state"] == "cancelled"
    assert (error.code, error.row.recoverable) == ("cancelled", False)
    assert error.details is not None
    assert error.details["effects"] == [{"step": 1, "action": "write", "status": "done"}]
    assert [one["args"] for one in error.details["state_delta"]["assert"]] == [[1]]


# --- rules that fail -------------------------------------------------------------------------------------------------

BREAKS = 'shaky(X) :- step_status(N, _, "success"), Z = fn:minus(N, 1), X = fn:div(1, Z).'
AFTER = 'asserts("done", [X], "server") :- ran("t"), shaky(X).'
DURING = 'skip_step(9, "never") :- shaky(9).'


@pytest.mark.parametrize("name", ["look", "write"])
async def test_rules_that_fail_after_a_run_make_nothing_up(name: str) -> None:
    async with shop(chain(steps(name), BREAKS, AFTER)) as s:
        error = await s.refused("t", {"n": 1})
        assert s.ledger()[-1][1]["state"] == "failed"
    assert error.code == "execution_failed"
    assert error.details is not None
    assert error.details["reason"] == "after_run_rules"
    assert error.details["effects"] == ([{"step": 1, "action": name, "status": "done"}] if name == "write" else [])
    assert error.details["state_delta"] == {"assert": [], "retract": []}
    assert "rules" in error.message


async def test_rules_that_fail_before_an_effect_end_the_run() -> None:
    async with shop(chain(steps("look", "write"), BREAKS, DURING)) as s:
        assert (await s.refused("t", {"n": 1})).code == "evaluation_failed"
        assert [name for name, _ in s.bench.ran] == ["look"]


async def test_rules_that_fail_after_an_effect_leave_the_run_to_a_person() -> None:
    async with shop(chain(steps("write", "look"), BREAKS, DURING)) as s:
        error = await s.refused("t", {"n": 1})
        assert [name for name, _ in s.bench.ran] == ["write"]
    assert error.code == "execution_failed"
    assert error.details is not None
    assert error.details["reason"] == "needs_decision"
    assert error.details["effects"] == [{"step": 1, "action": "write", "status": "done"}]


async def test_taking_a_step_back_is_no_step_to_rules() -> None:
    undoing = [f'undo_step("t", {n}, "erase"). undo_in("t", {n}, "n", "n").' for n in (1, 2)]
    policy = 'effect_denied("erase", "Once is enough.") :- step_status(_, "erase", _).'
    rules = (steps("write", "write", "look"), *undoing, 'reversible("t").')
    async with shop(chain(*rules, policy=policy), {"look": fail}) as s:
        error = await s.refused("t", {"n": 1})
    assert error.details is not None
    assert [one["status"] for one in error.details["effects"]] == ["undone", "undone"]
