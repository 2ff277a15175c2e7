"""No effect without a right to it: whatever is missing, spent or somebody else's, nothing is sent."""

import asyncio
import dataclasses
import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from manglecp.harness import MutationReady, ToolRequests
from manglecp.toolhost.dispatch.breakers import Breakers, BreakerState
from manglecp.toolhost.dispatch.launch import HostCommand
from manglecp.toolhost.dispatch.messages import ActionResult, CallRefused, HostCall
from manglecp.toolhost.dispatch.pool import Pool
from manglecp.toolhost.dispatch.rights import PlanPermit, Right
from tests.toolhost.dispatch.hosts import QUICK, call, command, error, nothing_left
from tests.toolhost.rights import authorised, closed, requested, right_to

REFUSED = ("tool_error", "lease_refused")
PLUGIN = '''
from manglecp.toolhost.actions import action


@action(effects=["filesystem"])
def note(path: str, text: str) -> str:
    """Append to a file."""
    with open(path, "a") as file:
        file.write(text)
    return text


@action(effects=["none"])
def look(text: str) -> str:
    """Change nothing."""
    return text
'''


def noting(folder: Path, text: str = "x") -> HostCall:
    return HostCall(aid="AID.PLUGIN.NOTE.v1", tier=1, input_json=f'{{"path":"{folder / "notes"}","text":"{text}"}}')


def looking(text: str = "x") -> HostCall:
    return HostCall(aid="AID.PLUGIN.LOOK.v1", tier=0, input_json=f'{{"text":"{text}"}}')


def hosting(folder: Path, work: Callable[[Pool], Awaitable[None]], **options: Any) -> list[str]:
    """Do something with a pool of one host of ours; the events that its auditor heard of."""
    (folder / "plugin.py").write_text(PLUGIN)
    heard: list[str] = []

    def audit(event: str, _: Mapping[str, object]) -> None:
        heard.append(event)

    async def main() -> None:
        host = HostCommand.for_plugin(str(folder / "plugin.py"), os.environ, sandbox="none")
        async with Pool(host, size=1, timeout=60, limits=QUICK, audit=audit, **options) as pool:
            await work(pool)

    with nothing_left():
        asyncio.run(main())
    return heard


def notes(folder: Path) -> str:
    file = folder / "notes"
    return file.read_text() if file.exists() else ""


def wrong(mine: HostCall) -> dict[str, Any]:
    """Authorities that are no right to this effect."""
    return {
        "none": None,
        "a request": requested(mine),
        "a plan": PlanPermit({mine.call_id: mine.aid}),
        "other bytes": right_to(replace(mine, input_json=mine.input_json.replace("x", "y"))),
        "another id": right_to(replace(mine, call_id="another")),
        "another action": right_to(replace(mine, aid="AID.PLUGIN.LOOK.v1")),
        "forged": object.__new__(MutationReady),
        "a state before": closed(),
        "nonsense": {"permits": True},
    }


@pytest.mark.parametrize("kind", ["ours", "foreign", "foreign that issues leases"])
@pytest.mark.parametrize("missing", list(wrong(noting(Path()))))
def test_without_the_right_to_it_an_effect_is_not_sent(missing: str, kind: str, tmp_path: Path) -> None:
    mine = noting(tmp_path)
    authority = wrong(mine)[missing]
    breakers = Breakers(lambda: 0.0, threshold=1)

    async def work(pool: Pool) -> None:
        assert error(await pool.call(replace(mine, authority=authority))) == REFUSED
        assert breakers.of(mine.aid).state is BreakerState.CLOSED

    if kind == "ours":
        assert hosting(tmp_path, work, breakers=breakers) == []
    else:

        async def main() -> None:
            host = dataclasses.replace(command(), issues_leases=kind != "foreign")
            async with Pool(host, size=1, timeout=60, limits=QUICK, breakers=breakers) as pool:
                await work(pool)

        asyncio.run(main())
    assert notes(tmp_path) == ""


def test_a_right_is_good_for_one_effect_and_what_was_refused_spends_none(tmp_path: Path) -> None:
    mine = noting(tmp_path)
    right = right_to(mine)

    async def work(pool: Pool) -> None:
        for other in (replace(mine, call_id="c"), replace(noting(tmp_path, "y"), call_id=mine.call_id)):
            assert error(await pool.call(replace(other, authority=right))) == REFUSED
        assert isinstance(await pool.call(replace(mine, authority=right)), ActionResult)
        for _ in range(2):
            assert error(await pool.call(replace(mine, authority=right))) == REFUSED

    assert hosting(tmp_path, work) == ["lease_granted"]
    assert notes(tmp_path) == "x"


def test_a_call_that_found_no_host_has_its_right_still(tmp_path: Path) -> None:
    mine = authorised(noting(tmp_path))

    async def work(pool: Pool) -> None:
        assert error(await pool.call(replace(mine, wait_timeout=0.0))) == ("timeout", None)
        assert isinstance(await pool.call(mine), ActionResult)

    hosting(tmp_path, work)
    assert notes(tmp_path) == "x"


def test_of_two_pools_one_has_the_effect(tmp_path: Path) -> None:
    mine = authorised(noting(tmp_path))
    (tmp_path / "plugin.py").write_text(PLUGIN)
    host = HostCommand.for_plugin(str(tmp_path / "plugin.py"), os.environ, sandbox="none")

    async def main() -> None:
        async with Pool(host, size=1, timeout=60) as one, Pool(host, size=1, timeout=60) as other:
            for pool in (one, other):
                assert isinstance(await pool.call(looking()), ActionResult)
            results = await asyncio.gather(*(pool.call(mine) for pool in (one, other)))
        assert sorted(isinstance(result, ActionResult) for result in results) == [False, True]
        assert [error(result) for result in results if isinstance(result, dict)] == [REFUSED]

    with nothing_left():
        asyncio.run(main())
    assert notes(tmp_path) == "x"


def test_what_has_no_effect_is_held_to_the_requests_that_it_names(tmp_path: Path) -> None:
    mine, other = looking(), looking("y")
    forged: Any = object.__new__(ToolRequests)

    async def work(pool: Pool) -> None:
        requests = requested(mine)
        assert error(await pool.call(replace(other, authority=requests))) == REFUSED
        assert error(await pool.call(replace(other, authority=forged))) == REFUSED
        assert isinstance(await pool.call(replace(mine, authority=requests)), ActionResult)
        assert error(await pool.call(replace(mine, authority=requests))) == REFUSED
        assert isinstance(await pool.call(replace(other, authority=right_to(other))), ActionResult)
        assert isinstance(await pool.call(mine), ActionResult), "without an authority nothing is asked"

    assert hosting(tmp_path, work) == ["lease_granted"] * 3


def test_a_plan_permits_each_of_its_calls_once_and_no_other(tmp_path: Path) -> None:
    mine = replace(looking(), call_id="run-1/s1/1")
    attempts = {
        "another run": replace(mine, call_id="run-2/s1/1"),
        "another step": replace(mine, call_id="run-1/s2/1"),
        "another attempt": replace(mine, call_id="run-1/s1/2"),
        "another action": replace(noting(tmp_path), call_id=mine.call_id, tier=0),
    }

    async def work(pool: Pool) -> None:
        plan = PlanPermit({mine.call_id: mine.aid})
        for name, other in attempts.items():
            assert error(await pool.call(replace(other, authority=plan))) == REFUSED, name
        assert isinstance(await pool.call(replace(mine, authority=plan)), ActionResult)
        assert error(await pool.call(replace(mine, authority=plan))) == REFUSED
        both = PlanPermit({mine.call_id: mine.aid})
        rights = [Right(replace(mine, authority=both)) for _ in range(2)]
        for right in rights:
            right.check()
        rights[0].spend(effect=False)
        with pytest.raises(CallRefused, match="made already"):
            rights[1].spend(effect=False)

    assert hosting(tmp_path, work) == ["lease_granted"]
    assert notes(tmp_path) == ""


def test_a_key_gives_an_earlier_answer_and_spends_no_right(tmp_path: Path) -> None:
    first, second = (authorised(replace(noting(tmp_path), idempotency_key="k")) for _ in range(2))

    async def work(pool: Pool) -> None:
        assert isinstance(await pool.call(first), ActionResult)
        again = await pool.call(second)
        assert isinstance(again, ActionResult)
        assert again.idempotent_hit
        without = replace(noting(tmp_path), idempotency_key="k")
        assert error(await pool.call(without)) == REFUSED
        assert isinstance(await pool.call(replace(second, idempotency_key=None)), ActionResult)

    hosting(tmp_path, work)
    assert notes(tmp_path) == "xx"


def test_a_call_without_effects_that_its_host_lost_needs_no_second_right(tmp_path: Path) -> None:
    asked = call("AID.X.v1", idempotent=True, fault="crash", effect=str(tmp_path / "sent"))

    async def main() -> None:
        async with Pool(command(), size=1, timeout=60, limits=QUICK) as pool:
            assert error(await pool.call(replace(asked, authority=requested(asked)))) == ("crash", None)

    with nothing_left():
        asyncio.run(main())
    assert (tmp_path / "sent").read_text().split() == [asked.call_id] * QUICK.attempts


def test_a_right_that_was_spent_on_a_call_that_was_not_sent_is_still_the_right_to_it(tmp_path: Path) -> None:
    mine = authorised(noting(tmp_path))
    right, other = Right(mine), Right(mine)
    right.check()
    other.check()
    right.spend(effect=True)
    right.spend(effect=True)
    with pytest.raises(CallRefused, match="redeemed already"):
        other.spend(effect=True)
    with pytest.raises(CallRefused, match="or was spent"):
        other.check()
