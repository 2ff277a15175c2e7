"""A replica dies, or leaves: nothing that was acknowledged is lost, and nothing is done twice."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from dataclasses import dataclass, field

import httpx
import pytest

from manglecp.client import Client, ServerError
from manglecp.store import RunState
from tests.replicas.proxies import PATIENCE
from tests.replicas.site import JSON, TOKENS, Site
from tests.server.desk import encoded, intent

pytestmark = pytest.mark.no_cover


async def test_killed_while_runs_are_under_way(fresh: Site) -> None:
    """Each run has had one effect, and waits; whoever ends it knows that, and does the other one once."""
    cases = [f"c{n}" for n in range(6)]
    async with fresh.client() as client, fresh.client(target=fresh.socket) as session:
        tool = (await client.evaluate("go"))["long"]
        await session.evaluate("go")
        asking = [
            asyncio.create_task(one.invoke(tool, {"case": case, "gate": "gate"}))
            for case, one in zip(cases, (client, client, client, client, session, session), strict=True)
        ]
        victim, other = fresh.replicas
        await fresh.until(lambda: all(map(fresh.waiting, cases)))
        held = fresh.owners()
        assert held[victim.popen.pid] + held[other.popen.pid] == 6
        if held[victim.popen.pid] < held[other.popen.pid]:
            victim, other = other, victim
        assert held[victim.popen.pid] >= 1
        victim.kill()
        fresh.open_gate("gate")
        async with asyncio.timeout(PATIENCE):
            answers = await asyncio.gather(*asking)
        assert sorted(one.result["case"] for one in answers) == cases
        assert {run.state for run in fresh.runs()} == {RunState.SUCCEEDED}
        expected = {f"{case} {label}": 1 for case in cases for label in ("first", "last")}
        assert fresh.effects() == expected
        assert "was taken over" in other.said()


async def test_an_approval_outlives_its_replicas(fresh: Site) -> None:
    """Requested at one that dies, decided at one that dies, used at the one that came back."""
    first, second = fresh.replicas
    async with Client(first.url, token=TOKENS["ann"]) as client:
        tool = (await client.evaluate("go"))["asked"]
        with pytest.raises(ServerError, match="confirmation_required"):
            await client.invoke(tool, {"case": "later"})
    first.kill()
    async with fresh.client("eve", target=second) as approver:
        (waiting,) = await approver.approvals()
        assert "Requested by: ann" in str((await approver.approval(waiting.id)).text)
        await approver.approve(waiting.id)
    second.kill()
    first.start()
    first.listening()
    first.ready()
    async with Client(first.url, token=TOKENS["ann"]) as client:
        tool = (await client.evaluate("go"))["asked"]
        await client.invoke(tool, {"case": "later"}, approval=waiting.id)
        with pytest.raises(ServerError, match="used already"):
            await client.invoke(tool, {"case": "later"}, approval=waiting.id)
    assert fresh.effects()["later agreed"] == 1


@dataclass
class Traffic:
    """What clients were told while they asked one thing after the other."""

    site: Site
    done: list[str] = field(default_factory=list)
    doubtful: list[str] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    ended: bool = False

    async def client(self, name: str, target: str) -> None:
        """Has request keys, and gets every answer, whatever happens to the servers."""
        async with self.site.client(target=target) as client:
            tools = await client.evaluate("go")
            for n in itertools.count():
                for tool in ("often", "once"):
                    if self.ended:
                        return
                    case = f"{name}-{n}-{tool}"
                    try:
                        await client.invoke(tools[tool], {"case": case})
                        self.done.append(case)
                    except ServerError as error:
                        if error.details.get("reason") != "needs_decision":
                            raise
                        self.doubtful.append(case)

    async def slow(self, case: str, target: str) -> None:
        """Asked of one that leaves, and ended by it or by another."""
        async with self.site.client(target=target) as client:
            tools = await client.evaluate("go")
            await client.invoke(tools["long"], {"case": case, "gate": "leaving"})
            self.done.append(case)

    async def plain(self) -> None:
        """Repeats nothing, and is told nothing but that it may."""
        headers = {**JSON, "authorization": f"Bearer {TOKENS['bob']}"}
        async with httpx.AsyncClient(verify=self.site.trusting, timeout=PATIENCE, trust_env=False) as http:
            while not self.ended:
                try:
                    answer = await http.post(f"{self.site.url}/evaluate", content=encoded(intent("i")), headers=headers)
                except httpx.TransportError as lost:
                    self.refusals.append(type(lost).__name__)
                    continue
                if answer.status_code == 200:
                    assert answer.json()["type"] == "intent_response"
                elif answer.headers["content-type"] == "application/json":
                    payload = answer.json()["payload"]
                    assert payload["recoverable"]
                    # A refusal takes so little time that the next requests may exceed the rate of one client.
                    assert payload["code"] in ("server_not_ready", "rate_limited")
                    self.refusals.append(payload["code"])
                else:
                    assert answer.status_code in (502, 503, 504)
                    self.refusals.append(str(answer.status_code))

    async def more(self, count: int = 20) -> None:
        """Until so many more invocations were answered."""
        before = len(self.done)
        await self.site.until(lambda: len(self.done) >= before + count)


async def test_one_leaves_and_comes_back_and_the_other_is_killed(fresh: Site) -> None:
    """Clients with request keys notice nothing, but that an answer takes a little longer.

    Only of a replica that was killed in the midst of an effect that must not be repeated nobody knows whether it
    happened: that is said, and left to a person.
    """
    first, second = fresh.replicas
    traffic = Traffic(fresh)
    async with asyncio.TaskGroup() as tasks:
        for n in range(2):
            tasks.create_task(traffic.client(f"h{n}", fresh.url))
            tasks.create_task(traffic.client(f"w{n}", fresh.socket))
        tasks.create_task(traffic.plain())
        slow = [f"s{n}-long" for n in range(4)]
        for n, case in enumerate(slow):
            tasks.create_task(traffic.slow(case, (fresh.url, fresh.socket)[n % 2]))
        await fresh.until(lambda: all(map(fresh.waiting, slow)))
        await traffic.more()
        held = fresh.owners()
        if held[first.popen.pid] < held[second.popen.pid]:
            first, second = second, first
        first.leave()
        await fresh.until(lambda: first.status() != 200)
        fresh.open_gate("leaving")
        assert await asyncio.to_thread(first.popen.wait, PATIENCE) == 0, first.said()
        assert "drained" in first.said()
        await traffic.more()
        await fresh.until(lambda: set(slow) <= set(traffic.done))
        assert traffic.doubtful == []
        first.start()
        await asyncio.to_thread(first.ready)
        await traffic.more()
        second.kill()
        await traffic.more()
        traffic.ended = True
    effects = fresh.effects()
    for case in traffic.done:
        if case.endswith("often"):
            assert effects[f"{case} kept"] >= 1, case
            continue
        for label in ("first", "last") if case.endswith("long") else ("only",):
            assert effects[f"{case} {label}"] == 1, case
    for case in traffic.doubtful:
        assert case.endswith("once"), "what may be repeated is"
        assert effects[f"{case} only"] <= 1
    states = Counter(run.state for run in fresh.runs())
    assert states == Counter({RunState.SUCCEEDED: len(traffic.done), RunState.NEEDS_DECISION: len(traffic.doubtful)})
    assert {line.split()[0] for line in effects} <= {*traffic.done, *traffic.doubtful}
