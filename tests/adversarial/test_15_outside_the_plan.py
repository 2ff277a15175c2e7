"""Case 15, through an invocation: nothing runs that the stored chain does not name, and no right is used twice."""

from __future__ import annotations

from typing import Any

import pytest

from manglecp.base.digest import digest_text
from manglecp.harness import ForgedState
from manglecp.harness.states import WrongMutation, redeem_call
from manglecp.toolhost import CallRefused, HostCall, Right
from tests.adversarial._invoked import invoked
from tests.invoke.chains import chain, steps
from tests.invoke.workshop import Bench, shop


@invoked
async def test_a_right_opens_one_call_once() -> None:
    tried: list[str] = []

    class Greedy(Bench):
        async def call(self, aid: str, *, authority: Any, call_id: str, input_json: str, **more: Any) -> Any:
            answer = await super().call(aid, authority=authority, call_id=call_id, input_json=input_json, **more)
            other = digest_text('{"n":2}')
            for name, change in (
                ("again", {}),
                ("other bytes", {"input_digest": other}),
                ("other action", {"tool_name": "test.erase"}),
                ("other call", {"call_id": call_id.replace("/s", "/s9")}),
            ):
                given = {"call_id": call_id, "tool_name": aid, "input_digest": digest_text(input_json), **change}
                with pytest.raises((ForgedState, WrongMutation)):
                    redeem_call(authority, **given)
                tried.append(name)
            return answer

    async with shop(chain(steps("look", "write"))) as s:
        greedy = Greedy(s.bench.pack, s.bench.work)
        s.invoker._driver._dispatcher = greedy  # type: ignore[assignment]
        await s.invoke("t", {"n": 1})
        assert [name for name, _ in greedy.ran] == ["look", "write"]
        assert len(tried) == 8


@invoked
async def test_the_right_to_one_step_is_not_the_right_to_the_next() -> None:
    rights: list[Any] = []

    class Keeping(Bench):
        async def call(self, aid: str, *, authority: Any, call_id: str, input_json: str, **more: Any) -> Any:
            for old in rights:
                with pytest.raises((ForgedState, WrongMutation)):
                    redeem_call(old, call_id=call_id, tool_name=aid, input_digest=digest_text(input_json))
            rights.append(authority)
            return await super().call(aid, authority=authority, call_id=call_id, input_json=input_json, **more)

    async with shop(chain(steps("write", "write", "erase"))) as s:
        keeping = Keeping(s.bench.pack, s.bench.work)
        s.invoker._driver._dispatcher = keeping  # type: ignore[assignment]
        await s.invoke("t", {"n": 1})
        assert len(keeping.ran) == 3


@invoked
async def test_a_plan_without_effects_leases_its_own_calls_only() -> None:
    tried: list[str] = []

    class Greedy(Bench):
        async def call(self, aid: str, *, authority: Any, call_id: str, input_json: str, **more: Any) -> Any:
            answer = await super().call(aid, authority=authority, call_id=call_id, input_json=input_json, **more)
            run = call_id.partition("/")[0]
            for name, tier, change in (
                ("again", 0, {}),
                ("another step", 0, {"call_id": f"{run}/s9/1"}),
                ("another run", 0, {"call_id": "r-another/s2/1"}),
                ("the action of another step", 0, {"call_id": f"{run}/s2/1", "aid": "test.erase"}),
                ("an effect", 1, {"call_id": f"{run}/s2/1", "aid": "test.erase"}),
                ("a step as an effect", 1, {"call_id": f"{run}/s2/1"}),
            ):
                given: dict[str, Any] = {
                    "aid": aid,
                    "call_id": call_id,
                    "input_json": input_json,
                    "tier": tier,
                } | change
                right = Right(HostCall(**given, authority=authority))
                with pytest.raises(CallRefused):
                    right.check()
                with pytest.raises(CallRefused):
                    right.spend(effect=tier > 0)
                tried.append(name)
            return answer

    async with shop(chain(steps("look", "look"))) as s:
        greedy = Greedy(s.bench.pack, s.bench.work)
        s.invoker._driver._dispatcher = greedy  # type: ignore[assignment]
        await s.invoke("t", {"n": 1})
        assert [name for name, _ in greedy.ran] == ["look", "look"]
        assert len(tried) == 12


@invoked
async def test_a_chain_whose_action_is_gone_does_not_run() -> None:
    async with shop(chain(steps("look", "write"))) as s:
        mine = (await s.tools())["t"]
        s.invoker._admission.pack.actions.pop("write")  # type: ignore[attr-defined]
        assert (await s.refused(mine, {"n": 1}, evaluate=False)).code == "macro_not_found"
        assert s.bench.ran == []
