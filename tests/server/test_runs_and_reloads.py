"""A reload while a run is under way: policy and proofs are those of the current pack revision."""

from __future__ import annotations

from typing import Any

import pytest

from manglecp.pack import Pack
from tests.invoke.chains import chain, steps
from tests.server.desk import Desk, desk, invoke

BEFORE = steps("look", "write", "look", "erase")
FACTS = 'Decl ticket(Id) descr [direction("{}")] bound [/string].'


async def run(*new: Pack, at: int = 1, old: Pack | None = None, **payload: Any) -> tuple[dict[str, Any], list[str]]:
    """Reload each new pack at the first or second look; return the answer and the effects of the run."""
    desks: list[Desk] = []
    looks: list[int] = []

    async def look(given: dict[str, Any]) -> dict[str, Any]:
        looks.append(1)
        for pack in new if len(looks) == at else ():
            desks[0].packs.append(pack)
            assert await desks[0].revisions.reload() == "swapped"
        return given

    async with desk(old or chain(BEFORE), {"look": look}) as d, d.client() as client:
        desks.append(d)
        asked = {"type": "intent_request", "id": "e", "manglecp": "2026-02-draft"}
        offered = await client.ask({**asked, "payload": {"intent": {"name": "go"}, **payload}})
        (tool,) = offered["payload"]["macro_tools"]
        answer = await client.ask(invoke("i", tool["macro_id"], {"n": 7}))
        ran = [name for shop in d.shops for name, _ in shop.bench.ran if name != "look"]
        return answer, ran


@pytest.mark.req("SEC-28")
@pytest.mark.parametrize(
    ("policy", "code"),
    [
        ('prohibited("t", "No more.").', "macro_expired"),
        ('permitted("other"). macro("other", "Another."). macro_step("other", 1, "look").', "macro_expired"),
        ('effect_denied("write", "No more.").', "auth_insufficient"),
        ('effect_denied("write", "Too much.") :- run_arg("n", 7).', "auth_insufficient"),
        ('intent_denied("No more.").', "auth_required"),
        ('needs_confirmation("t").', "confirmation_required"),
        ('four_eyes("t") :- run_arg("n", 7).', "confirmation_required"),
    ],
)
async def test_new_policy_stops_the_first_effect(policy: str, code: str) -> None:
    answer, effects = await run(chain(BEFORE, policy=policy))
    assert (answer["payload"].get("code"), effects) == (code, [])


async def test_another_chain_stops_the_first_effect() -> None:
    answer, effects = await run(chain(BEFORE, 'arg_value("t", 2, "n", 8).'))
    assert (answer["payload"].get("code"), effects) == ("macro_expired", [])


@pytest.mark.parametrize(
    "policy",
    [
        'prohibited("t", "No more.").',
        'effect_denied("erase", "Too much.") :- run_arg("n", 7).',
        'needs_confirmation("t").',
        'needs_approval("t", "auditor") :- step_status(2, _, "success").',
    ],
)
async def test_new_policy_stops_the_next_effect(policy: str) -> None:
    answer, effects = await run(chain(BEFORE, policy=policy), at=2)
    assert (answer["payload"].get("code"), effects) == ("execution_failed", ["write"])
    assert answer["payload"]["details"]["effects"][0]["status"] == "done"


@pytest.mark.parametrize("at", [1, 2])
async def test_facts_that_do_not_fit_the_new_revision_prove_nothing(at: int) -> None:
    old, new = (chain(BEFORE, FACTS.format(way), policy='permitted("t") :- ticket(_).') for way in ("input", "output"))
    answer, effects = await run(new, at=at, old=old, facts=[{"pred": "ticket", "args": ["T-1"]}])
    assert (answer["payload"].get("code"), effects) == (
        ("macro_expired", []) if at == 1 else ("execution_failed", ["write"])
    )


@pytest.mark.parametrize("at", [1, 2])
async def test_a_run_goes_on_under_a_revision_that_proves_it(at: int) -> None:
    answer, effects = await run(chain(BEFORE, "# a comment"), at=at)
    assert (answer["type"], effects) == ("invoke_response", ["write", "erase"])


@pytest.mark.req("SEC-28")
@pytest.mark.parametrize("at", [1, 2])
async def test_the_last_of_several_revisions_judges_the_effects(at: int) -> None:
    denying, permitting = chain(BEFORE, policy='prohibited("t", "No more.").'), chain(BEFORE, "# a comment")
    done = ["write"] if at == 2 else []
    answer, effects = await run(permitting, denying, at=at)
    assert (answer["type"], effects) == ("error", done)
    answer, effects = await run(denying, permitting, at=at)
    assert (answer["type"], effects) == ("invoke_response", ["write", "erase"])
