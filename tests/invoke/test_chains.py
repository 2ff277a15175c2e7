"""What becomes of a chain: order, arguments, results, failures, undoing, cancelling."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from manglecp.base.digest import digest_text
from manglecp.harness import verify
from manglecp.pack import ActionDescription, Pack, default_governance
from tests.deadlines import patience
from tests.intent.packs import action, pack
from tests.invoke.turns import changed
from tests.invoke.workshop import Fails, Stop, shop

NUMBER = {"n": {"type": "integer"}}


def effect(name: str, **changes: Any) -> ActionDescription:
    return action(name, params=NUMBER, effects=("filesystem",), tier=1, mutates=True, **changes)


def chain(*rules: str, actions: tuple[ActionDescription, ...] = (), **more: Any) -> Pack:
    text = "\n".join(('macro("t", "A tool.").', 'mandatory("t") :- intent("go").', *rules))
    known = (action("look", params=NUMBER), effect("write"), effect("erase"), *actions)
    return pack(text, actions=known, intents=("go", "later"), **more)


def steps(*names: str) -> str:
    return " ".join(f'macro_step("t", {n}, "{name}").' for n, name in enumerate(names, 1))


@pytest.mark.req("INVK-14", "INVK-16")
async def test_steps_run_in_order_and_hand_on_results() -> None:
    rules = (steps("look", "look", "look"), *(f'arg_step("t", {n}, "n", {n - 1}, "/m").' for n in (2, 3)))
    async with shop(chain(*rules), {"look": lambda given: {"m": given["n"] + 1}}) as s:
        answer = await s.invoke("t", {"n": 1})
    assert answer.result == {"m": 4}
    assert s.bench.ran == [("look", {"n": 1}), ("look", {"n": 2}), ("look", {"n": 3})]
    assert [event.status for event in answer.observability.events] == ["success"] * 3


async def test_a_read_only_chain_is_one_entry_without_a_turn() -> None:
    async with shop(chain(steps("look", "look"), 'skip_step(2, "Enough.") :- step_status(1, "look", "success").')) as s:
        await s.invoke("t", {"n": 1})
        ((kind, body),) = s.ledger()
        (call,) = s.bench.calls
    assert kind == "run"
    assert body.keys() == {"admission", "state", "answer_digest", "steps"}
    assert body["state"] == "succeeded"
    first, second = body["steps"]
    assert first == {
        "step": 1,
        "action": "look",
        "call": call["call_id"],
        "input_digest": digest_text(call["input_json"]),
        "status": "done",
        "output_digest": digest_text('{"n": 1}'),
    }
    assert second == {"step": 2, "action": "look", "status": "skipped"}
    assert len(msgspec.json.encode(body)) < 1_500


async def test_a_read_that_fails_is_in_the_entry_by_its_code() -> None:
    async with shop(chain(steps("look"))) as s:
        s.bench.work["look"] = _fail
        await s.refused("t", {"n": 1})
        ((_, body),) = s.ledger()
    assert body["state"] == "failed"
    assert [(one["status"], one["code"]) for one in body["steps"]] == [("failed", "tool_error")]


def governed(made: Pack, **documents: Any) -> Pack:
    """The pack with a package of its own, which it pins."""
    package = changed(default_governance(), **documents)
    return replace(made, governance=package, settings=replace(made.settings, governance_digest=package.digest))


async def test_a_read_only_chain_under_governance_of_the_pack_is_judged_at_its_end() -> None:
    async with shop(governed(chain(steps("look", "look")))) as s:
        await s.invoke("t", {"n": 1})
        ((kind, body),) = s.ledger()
    verified = verify(body["witness"])
    assert kind == "run"
    assert verified.holds
    assert len(verified.judgement.turn.requests) == 3  # the admission is one
    assert len(body["steps"]) == 2


async def test_governance_of_the_pack_refuses_a_read_only_chain_at_its_end() -> None:
    listed = {"catalogId": "desk", "tools": [{"toolName": "test.erase", "schemaDigest": digest_text("{}")}]}
    async with shop(governed(chain(steps("look")), tools=listed)) as s:
        error = await s.refused("t", {"n": 1})
        ((_, body),) = s.ledger()
    assert error.code == "execution_failed"
    assert error.details is not None
    assert error.details["failure_classes"] == ["tool.unknown_or_disallowed"]
    assert (body["state"], len(body["steps"])) == ("failed", 1)
    assert "witness" not in body


async def test_governance_of_the_pack_refuses_a_read_only_chain_before_it_begins() -> None:
    tiers = {tier: {"controlProfileRef": "c://x", "humanCheckpoint": True} for tier in ("low", "moderate", "high")}
    async with shop(governed(chain(steps("look")), risk_tiers={"tiers": tiers})) as s:
        error = await s.refused("t", {"n": 1})
        assert (error.code, s.bench.ran) == ("confirmation_required", [])


async def test_an_approval_of_a_read_only_chain_is_in_its_entry() -> None:
    async with shop(chain(steps("look"), 'needs_confirmation("t").')) as s:
        await s.invoke("t", {"n": 1}, confirm=True)
        (_, body) = s.ledger()[-1]
    assert body["admission"]["approval"].startswith("approval:ap-")


async def test_a_long_chain_is_one_turn_up_to_its_gate() -> None:
    """Its witness has a row for everything that happened, and goes into the ledger whole."""
    async with shop(chain(steps(*["look"] * 100, "write"))) as s:
        assert (await s.invoke("t", {"n": 1}, confirm=True)).result == {"n": 1}
        kinds = [kind for kind, _ in s.ledger()]
        (first, last) = [verify(body) for kind, body in s.ledger() if kind == "turn"]
    assert kinds == ["admission", "turn", "step", "turn", "end"]
    assert first.holds
    assert last.holds
    assert len(first.judgement.turn.requests) == 101  # the admission is one


async def test_an_effect_is_on_record_before_it_is_sent() -> None:
    async with shop(chain(steps("look", "write", "look"))) as s:
        seen: list[str] = []

        def write(given: dict[str, Any]) -> dict[str, Any]:
            seen.extend(kind for kind, _ in s.ledger())
            return given

        s.bench.work["write"] = write
        answer = await s.invoke("t", {"n": 1}, confirm=True)
        assert seen == ["admission", "turn"]
        assert [kind for kind, _ in s.ledger()] == ["admission", "turn", "step", "turn", "end"]
    assert answer.result == {"n": 1}


async def test_what_failed_is_undone_last_first() -> None:
    undoing = [f'undo_step("t", {n}, "erase"). undo_in("t", {n}, "n", "n").' for n in (1, 2)]
    rules = (steps("write", "write", "look"), *undoing, 'reversible("t").', 'arg_value("t", 2, "n", 7).')
    async with shop(chain(*rules)) as s:
        s.bench.work["look"] = _fail
        error = await s.refused("t", {"n": 1}, confirm=True)
        assert [name for name, _ in s.bench.ran] == ["write", "write", "look", "erase", "erase"]
        assert [given["n"] for name, given in s.bench.ran if name == "erase"] == [7, 1]
        s.ledger()
    assert error.code == "execution_failed"
    assert error.details is not None
    assert [effect["status"] for effect in error.details["effects"]] == ["undone", "undone"]
    assert (error.details["reason"], error.details["step"], error.details["code"]) == ("step_failed", 3, "tool_error")


async def test_undoing_passes_over_what_leaves_nothing() -> None:
    undoing = 'undo_step("t", 1, "erase"). undo_in("t", 1, "n", "n"). nothing_to_undo("t", 2). reversible("t").'
    async with shop(chain(steps("write", "write", "look"), undoing)) as s:
        s.bench.work["look"] = _fail
        error = await s.refused("t", {"n": 1}, confirm=True)
        assert [name for name, _ in s.bench.ran] == ["write", "write", "look", "erase"]
    assert error.details is not None
    assert [effect["status"] for effect in error.details["effects"]] == ["undone", "done"]
    assert error.message == "Step 3 (look) failed; what it had done was undone"


@pytest.mark.parametrize(
    ("rules", "told"),
    [
        ('nothing_to_undo("t", 1). nothing_to_undo("t", 2).', "what it had done leaves nothing behind"),
        ('nothing_to_undo("t", 2).', "1 effect happened and stands"),
    ],
)
async def test_an_effect_that_leaves_nothing_does_not_stand(rules: str, told: str) -> None:
    async with shop(chain(steps("write", "write", "look"), rules)) as s:
        s.bench.work["look"] = _fail
        error = await s.refused("t", {"n": 1}, confirm=True)
    assert error.message == f"Step 3 (look) failed; {told}"


def _fail(_: dict[str, Any]) -> Any:
    raise Fails


async def test_an_unknown_outcome_waits_for_a_person() -> None:
    def lost(_: dict[str, Any]) -> Any:
        raise Fails("crash", "outcome_unknown")

    async with shop(chain(steps("write", "look")), {"write": lost}) as s:
        error = await s.refused("t", {"n": 1}, confirm=True)
        assert [name for name, _ in s.bench.ran] == ["write"]
        assert [kind for kind, _ in s.ledger()][-1] == "end"
    assert error.details is not None
    assert error.details["reason"] == "needs_decision"
    assert error.details["effects"] == [{"step": 1, "action": "write", "status": "unknown"}]


async def test_independent_steps_run_side_by_side() -> None:
    meeting = asyncio.Barrier(2)

    async def meet(given: dict[str, Any]) -> dict[str, Any]:
        async with asyncio.timeout(patience(30)):
            await meeting.wait()
        return given

    rules = (steps("look", "look", "look"), 'step_after("t", 3, 1). step_after("t", 3, 2).')
    async with shop(chain(*rules)) as s:
        s.bench.work["look"] = lambda given: meet(given) if len(s.bench.ran) < 3 else given
        answer = await s.invoke("t", {"n": 1})
    assert answer.result == {"n": 1}


async def test_cancelling_acts_between_steps() -> None:
    cancel = Stop()
    rules = (steps("write", "write"), 'undo_step("t", 1, "erase"). undo_in("t", 1, "n", "n"). reversible("t").')

    def write(given: dict[str, Any]) -> dict[str, Any]:
        cancel.set()
        return given

    async with shop(chain(*rules), {"write": write}) as s:
        error = await s.refused("t", {"n": 1}, confirm=True, cancel=cancel)
        assert [name for name, _ in s.bench.ran] == ["write", "erase"]
    assert error.code == "cancelled"
    assert error.details is not None
    assert error.details["effects"] == [{"step": 1, "action": "write", "status": "undone"}]
