"""Case 28, through invocations: runs, answers and records of one identity are nothing to another."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from manglecp.intent import Identity
from tests.adversarial._invoked import invoked
from tests.deadlines import patience
from tests.invoke.chains import chain, steps
from tests.invoke.workshop import shop

PEOPLE = [Identity(f"p{n}", frozenset({f"right{n}"}), "user") for n in range(6)]
RULES = (
    steps("look", "write"),
    'extract("look", "who", "/who").',
    'asserts("text_of", [N, V], "server") :- run_arg("n", N), step_value(1, "who", V).',
    'continues_with("text_of", [N, C]) :- run_arg("n", N), client(C).',
    'summary(T) :- ran("t"), client(C), T = fn:string:concat("For ", C, ".").',
)


@pytest.mark.req("SEC-28", "SEC-37")
@invoked
async def test_runs_at_the_same_time_do_not_mix() -> None:
    meeting = asyncio.Barrier(len(PEOPLE))

    async def look(given: dict[str, Any]) -> dict[str, Any]:
        async with asyncio.timeout(patience(60)):
            await meeting.wait()
        return {"who": f"secret of p{given['n']}"}

    async with shop(chain(*RULES), {"look": look}) as s:
        asked = (s.invoke("t", {"n": n}, identity=who, request_key="same") for n, who in enumerate(PEOPLE))
        answers = await asyncio.gather(*asked)
        for n, answer in enumerate(answers):
            told = str(answer)
            assert answer.observability.summary == f"For p{n}."
            assert f"secret of p{n}" in told
            assert not [m for m in range(len(PEOPLE)) if m != n and f"p{m}" in told]
        runs = {body["identity"] for kind, body in s.ledger() if kind == "admission"}
        assert runs == {who.name for who in PEOPLE}


@invoked
async def test_the_state_of_one_run_is_not_in_another() -> None:
    async with shop(chain(*RULES), {"look": lambda _: {"who": "x"}}) as s:
        for who in PEOPLE[:2]:
            await s.invoke("t", {"n": 1}, identity=who)
        assert [call["slots"] for call in s.bench.calls] == [{}] * 4
        assert [call["identity"] for call in s.bench.calls] == ["p0", "p0", "p1", "p1"]
        assert len({call["call_id"] for call in s.bench.calls}) == 4
        keys = [call["idempotency_key"] for call in s.bench.calls if call["idempotency_key"] is not None]
        assert len(set(keys)) == len(keys) == 2, "one for each effect"
