"""A process that only slept must not act when it wakes up: what it was about to do may have been done by another."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest
from msgspec.structs import replace

from manglecp.store import Busy, Decision, RunState
from manglecp.toolhost import ActionResult
from tests.adversarial._hosted import Hosted, effects, hosting
from tests.crash.kit import Case, Site, crashing, until
from tests.deadlines import patience
from tests.toolhost.dispatch.hosts import error

pytestmark = pytest.mark.no_cover


def stopped(site: Site, point: str) -> tuple[Case, int]:
    """A process that sleeps at this point, while its run is taken over and ends in doubt."""
    for _ in range(5):
        case = Case("mixed", point, how="stop")
        pid = site.victim(case)
        if _sleeps(site, case) and _left(site, case):
            return case, pid
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
    raise AssertionError(f"{point} was never reached")


def _sleeps(site: Site, case: Case) -> bool:
    """On a machine that is too busy, the run may change hands before its process gets there."""
    until(lambda: site.said("deaths", case.name) or site.said("answers", case.name) or None, f"{case} to sleep")
    return bool(site.said("deaths", case.name))


def _left(site: Site, case: Case) -> bool:
    """Who falls asleep in the middle of a heartbeat keeps a file of SQLite locked: then nobody can take over."""
    try:
        until(lambda: site.over(case.name), "somebody else to take over", patience=patience(15.0))
    except (AssertionError, Busy):
        return False
    return True


# Between the record and the lease, and between the lease and the pipe.
@pytest.mark.parametrize("point", [pytest.param("started:s2", marks=pytest.mark.soak), "lease_granted:s2"])
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_paused_coordinator_does_not_act_late(
    tmp_path: Path, point: str, kind: str, request: pytest.FixtureRequest
) -> None:
    store = str(tmp_path / "store") if kind == "sqlite" else request.getfixturevalue("postgres_url")
    with crashing(tmp_path, store, "w") as site:
        case, pid = stopped(site, point)
        site.look(case)
        assert case.run is not None
        assert (case.run.state, case.run.step, case.run.code) == (RunState.NEEDS_DECISION, 2, "outcome_unknown")
        assert not case.effects
        # A person looks, and sees that it did not happen. So it is done: once.
        with site.store.write_transaction() as tx:
            site.store.runs.decide(tx, case.run.run_id, Decision(verdict="did_not", step=2), "operator")
        answer = site.ask("w", case.name, case.tool)
        os.kill(pid, signal.SIGCONT)
        assert site.status(case.name) == 0
        site.look(case)
        assert case.effects == {"s2": 1, "s4": 1, "s6": 1}
        assert case.run.state == RunState.SUCCEEDED
        (late,) = [one for one in case.answers if one["by"] == "victim"]
        assert late["ok"] == answer["ok"], "it gives the answer of whoever went on"


def test_a_call_that_may_not_begin_any_more_is_not_sent(tmp_path: Path) -> None:
    file = tmp_path / "effects"

    async def work(hosted: Hosted) -> None:
        now = asyncio.get_running_loop().time
        late = replace(hosted.prepare("note", path=str(file), text="late"), not_after=now)
        assert error(await hosted.pool.call(late)) == ("timeout", None)
        assert effects(file) == []
        again = await hosted.pool.call(replace(late, not_after=lambda: now() + 30))
        assert isinstance(again, ActionResult), "the right to it was not spent"

    hosting(work, tmp_path)
    assert effects(file) == ["late"]
