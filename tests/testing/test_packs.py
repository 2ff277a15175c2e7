"""What authors of packs write in their tests, and what they read when one fails."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from shutil import copy
from typing import Any

import pytest

from manglecp.intent import Domain
from manglecp.invoke import PackOptions
from manglecp.mangle import ParseError
from manglecp.testing import Pack, Refused, load_pack
from manglecp.testing.coverage import PackCoverage, with_coverage
from tests.intent.packs import action
from tests.invoke.chains import NUMBER, chain, effect, steps

INCIDENT = Path(__file__).parents[2] / "examples" / "incident"
NOW = "2026-02-19T14:30:05Z"
ERROR = "TypeError: Cannot read properties of null (reading 'map')"
FIX = ('diagnosed_error("e", "missing_route")', 'fix_candidate("app/routes.toml", "add_route /api/users")')


@pytest.fixture(scope="module")
def loaded() -> Iterator[Pack]:
    with load_pack(INCIDENT) as pack:
        yield pack


@pytest.fixture
def incident(loaded: Pack) -> Iterator[Pack]:
    with loaded.fresh() as pack:
        yield pack


@pytest.fixture
def facts(incident: Pack) -> list[dict[str, Any]]:
    return incident.facts("recorded/diagnose_error.json")


def small(*rules: str, **more: Any) -> Pack:
    """One tool ``t`` over actions ``look``, ``write`` and ``erase`` that take a number, and no hosts for them."""
    domain = Domain.load(chain(*rules, **more))
    return Pack(domain, PackOptions(domain.pack.folder))


# --- tools -----------------------------------------------------------------------------------------------------------


def test_tools_are_there_with_what_the_rules_say_of_them(incident: Pack, facts: list[dict[str, Any]]) -> None:
    answer = incident.intent("diagnose_error", facts=facts, now=NOW)
    assert answer.names == ["full_stack_diagnosis", "list_failures", "read_errors"]
    (tool,) = answer.offers("full_stack_diagnosis")
    assert (tool.score, tool.level, tool.phase, tool.effects) == (95, "full", "flesh", ("filesystem",))
    assert tool.args.keys() == {"url_contains", "lines"}
    assert tool.required == ()
    assert tool.steps == ("failed_requests", "correlate", "read_log", "name_cause")
    assert tool.expires_at == "2026-02-19T14:39:59Z"
    assert not tool.needs_confirmation
    assert not tool.reversible
    assert tool.description.startswith("Traces console errors through failed requests")
    assert tool.instructions.splitlines()[0] == "A recent request failed with status 404."
    assert repr(tool) == "<tool full_stack_diagnosis, full, 95>"
    assert [one.name for one in answer] == answer.names
    assert len(answer) == 3
    assert answer.tool("read_errors").level == "minimal"
    assert "frontend_diagnosis" not in answer
    answer.offers_only("read_errors", "list_failures", "full_stack_diagnosis")


def test_a_tool_that_is_missing_is_a_failure_that_says_what_blocks_it(incident: Pack, facts: list[Any]) -> None:
    known = [fact for fact in facts if fact["pred"] != "backend_log"]
    answer = incident.intent("diagnose_error", facts=known, now=NOW)
    with pytest.raises(AssertionError) as failed:
        answer.offers("list_failures", "full_stack_diagnosis")
    text = str(failed.value)
    assert "does not offer full_stack_diagnosis, but frontend_diagnosis, list_failures" in text
    assert "needs has_backend_log, and there is no such fact" in text
    assert "failing_service needs backend_log, and there is no such fact" in text


def test_a_tool_that_should_be_missing_is_a_failure_with_its_proof(incident: Pack, facts: list[Any]) -> None:
    answer = incident.intent("diagnose_error", facts=facts, now=NOW)
    with pytest.raises(
        AssertionError, match=r"(?s)offers full_stack_diagnosis\nwhy full_stack_diagnosis.*has_backend_log"
    ):
        answer.lacks("full_stack_diagnosis")
    with pytest.raises(AssertionError, match="also offers list_failures, read_errors"):
        answer.offers_only("full_stack_diagnosis")


def test_a_tool_is_missing_for_a_reason(incident: Pack, facts: list[Any]) -> None:
    answer = incident.intent("diagnose_error", facts=facts, now=NOW)
    blocked = answer.lacks("frontend_diagnosis", because="yields to full_stack_diagnosis")
    assert blocked.known
    with pytest.raises(AssertionError, match=r"(?s)not because of 'the moon'.*yields to"):
        answer.lacks("frontend_diagnosis", because="the moon")


def test_a_name_that_no_rule_knows_is_a_slip_and_not_missing(incident: Pack, facts: list[Any]) -> None:
    answer = incident.intent("diagnose_error", facts=facts, now=NOW)
    with pytest.raises(AssertionError, match="did you mean frontend_diagnosis"):
        answer.lacks("frontend_diagnosys")


def test_reasons_of_policy_are_told_to_whoever_tests(incident: Pack) -> None:
    answer = incident.as_caller("lee").intent("fix_error", facts=FIX, now=NOW)
    answer.offers_only("propose_fix")
    answer.lacks("apply_fix", because="the permission fix is missing")
    incident.as_caller("kim", "fix").intent("fix_error", facts=FIX, now=NOW).offers("apply_fix")


def test_what_a_proof_rests_on(incident: Pack, facts: list[Any]) -> None:
    proof = incident.intent("diagnose_error", facts=facts, now=NOW).proof("full_stack_diagnosis")
    assert proof.uses("has_backend_log")
    assert proof.uses("network_request")
    assert proof.tree is not None
    assert proof.tree.children
    assert 'network_request("r3", "GET", "/api/users", 404)@[2026-02-19T14:29:59Z]' in proof.facts
    assert str(proof).startswith("why full_stack_diagnosis: flesh, 95\n  by final_selected")
    with pytest.raises(AssertionError, match=r"(?s)does not use current_url.*failed_request"):
        proof.uses("current_url")


def test_an_intent_that_is_refused(incident: Pack) -> None:
    with pytest.raises(Refused, match="anonymous clients cannot fix errors") as refused:
        incident.as_caller("anonymous").intent("fix_error", facts=FIX, now=NOW)
    assert refused.value.code == "auth_required"
    with pytest.raises(Refused, match="missing: console_event"):
        incident.intent("diagnose_error", now=NOW)
    with pytest.raises(ValueError, match="no permissions"):
        incident.as_caller("anonymous", "fix")


def test_facts_are_written_in_mangle_or_as_they_travel() -> None:
    pack = small(steps("look"), when='mandatory("t") :- intent("go"), lasted(N)@[T], held(N, "on"), T = fn:time:now().')
    travelling = {"pred": "held", "args": [1, "on"]}
    pack.intent("go", facts=["lasted(1)@[now]", travelling], now="2026-01-15T12:00:00Z").offers("t")
    pack.intent(
        "go", facts=["lasted(1)@[2026-01-15T12:00:00Z]", travelling], now=datetime(2026, 1, 15, 12, tzinfo=UTC)
    ).offers("t")
    pack.intent("go", facts=["lasted(1)@[now]", travelling]).offers("t")
    pack.intent("go", facts=["lasted(1)@[2026-01-15T11:59:59Z]", travelling], now="2026-01-15T12:00:00Z").lacks("t")
    with pytest.raises(ParseError, match="clients state facts"):
        pack.intent("go", facts=["lasted(1) :- held(1, 2)"])
    with pytest.raises(ValueError, match="zone"):
        pack.intent("go", now=datetime(2026, 1, 15, 12))


# --- runs ------------------------------------------------------------------------------------------------------------


def test_a_run_in_real_hosts_and_the_intent_after_it(incident: Pack, facts: list[Any], tmp_path: Path) -> None:
    run = incident.intent("diagnose_error", facts=facts, now=NOW).invoke("full_stack_diagnosis", {"lines": 5})
    assert run.result["cause"] == "missing_route"
    assert {call.action: dict(call.input) for call in run.calls}["read_log"] == {"file": "api.log", "lines": 5}
    run.delta.asserts("diagnosed_error", ERROR, "missing_route")
    run.delta.asserts("fix_candidate", "app/routes.toml", ...)
    run.delta.retracts("undiagnosed_error")
    assert run.suggests("fix_error", file="app/routes.toml").description == "The cause has a straightforward fix."
    assert "missing_route" in run.summary
    assert {event.status for event in run.events} == {"success"}
    assert str(run.delta).splitlines()[1] == '  + fix_candidate("app/routes.toml", "add_route /api/users")'

    (tmp_path / "app").mkdir()
    copy(INCIDENT / "recorded" / "app" / "routes.toml", tmp_path / "app")
    kim = incident.as_caller("kim", "fix").with_workspace(tmp_path)
    fixed = kim.intent("fix_error", facts=run.continuation_facts, now=NOW).invoke("apply_fix", confirm=True)
    assert "/api/users" in fixed.result["routes"]
    assert "/api/users" in (tmp_path / "app" / "routes.toml").read_text("utf-8")
    fixed.delta.retracts("fix_candidate", "app/routes.toml", None)
    run.follow("fix_error").offers("propose_fix")


def test_wrong_guesses_about_a_run_show_what_there_is(incident: Pack, facts: list[Any]) -> None:
    run = incident.intent("diagnose_error", facts=facts, now=NOW).invoke("full_stack_diagnosis")
    with pytest.raises(AssertionError, match=r'(?s)asserts no diagnosed_error\(…, \'other\'\).*\+ fix_candidate\("app'):
        run.delta.asserts("diagnosed_error", ..., "other")
    with pytest.raises(AssertionError, match=r"retracts no fix_candidate\(…\)"):
        run.delta.retracts("fix_candidate")
    with pytest.raises(AssertionError, match=r"(?s)asserts no diagnosed_error\(…\)"):
        run.delta.asserts("diagnosed_error", ...)
    with pytest.raises(AssertionError, match="has a delta"):
        run.delta.is_empty()
    with pytest.raises(AssertionError, match=r"(?s)suggests no observe.*fix_error"):
        run.suggests("observe")
    with pytest.raises(AssertionError, match="suggests no fix_error with"):
        run.suggests("fix_error", file="elsewhere")


def test_functions_stand_for_actions(incident: Pack, facts: list[Any]) -> None:
    logged = [{"at": "2026-02-19T14:29:59Z", "level": "ERROR", "message": "GET /api/users: nobody home"}]
    asked: list[tuple[str, int]] = []

    def read_log(file: str, lines: int = 20) -> dict[str, Any]:
        asked.append((file, lines))
        assert threading.current_thread() is not threading.main_thread()
        return {"lines": logged}

    faked = incident.with_actions(read_log=read_log)
    run = faked.intent("diagnose_error", facts=facts, now=NOW).invoke("full_stack_diagnosis", {"lines": 3})
    assert asked == [("api.log", 3)]
    assert "GET /api/users: nobody home" in run.result["causal_chain"], "the other actions are the pack's own"


def test_a_function_has_to_take_what_the_action_takes(incident: Pack) -> None:
    with pytest.raises(TypeError, match="read_log takes file, lines; the function: got an unexpected keyword"):
        incident.with_actions(read_log=lambda file: file)
    with pytest.raises(TypeError, match="missing a required argument"):
        incident.with_actions(read_log=lambda file, lines: [file, lines])
    with pytest.raises(ValueError, match="no action read_logs; did you mean read_log"):
        incident.with_actions(read_logs=lambda file, lines=1: [file, lines])


def test_approval_is_requested_with_functions_too() -> None:
    ran: list[int] = []

    def write(n: int) -> dict[str, int]:
        ran.append(n)
        return {"n": n}

    with small(steps("write"), 'needs_confirmation("t").').with_actions(write=write) as pack:
        answer = pack.intent("go")
        assert answer.tool("t").needs_confirmation
        with pytest.raises(Refused, match=r"(?s)confirmation_required.*write") as refused:
            answer.invoke("t", {"n": 1})
        assert (refused.value.code, ran) == ("confirmation_required", [])
        assert answer.invoke("t", {"n": 1}, confirm=True).result == {"n": 1}
        assert ran == [1]


@pytest.mark.parametrize("rule", ['needs_approval("t", "treasurer").', 'four_eyes("t").'])
def test_confirm_approves_in_every_role_and_as_another_person(rule: str) -> None:
    with small(steps("write"), rule).with_actions(write=lambda n: {"n": n}) as pack:
        answer = pack.intent("go")
        with pytest.raises(Refused, match=r"(?s)confirmation_required.*Requested by: local.*write\(n = 1\)"):
            answer.invoke("t", {"n": 1})
        assert answer.invoke("t", {"n": 1}, confirm=True).result == {"n": 1}


def test_functions_have_the_rights_of_the_action_and_no_more() -> None:
    pack = small(steps("write"), policy='effect_denied("write", "not today") :- run_of("t").')
    ran: list[int] = []

    def write(n: int) -> dict[str, int]:
        ran.append(n)
        return {}

    with pack.with_actions(write=write) as faked, pytest.raises(Refused, match="Policy does not permit this call"):
        faked.intent("go").invoke("t", {"n": 1})
    assert ran == []


async def _of_another_call(pack: Pack) -> str:
    """Return the result of a call with an effect and without an authorisation."""
    from manglecp.testing.sync_invoker import FunctionDispatcher

    async def none() -> Any:
        raise AssertionError("no hosts")

    actions = FunctionDispatcher(pack.domain.pack, {"write": lambda n: {"n": n}}, none)
    aid = pack.domain.pack.actions["write"].aid
    answer = await actions.call(aid, input_json='{"n":1}', call_id="c", slots={}, identity="x", authority=None)
    assert isinstance(answer, dict)
    return f"{answer['code']}: {answer['detail']}"


def test_an_effect_without_a_right_is_not_called() -> None:
    assert "lease_refused" in asyncio.run(_of_another_call(small(steps("write"))))


def test_a_function_that_fails_or_returns_what_it_may_not() -> None:
    def broken(n: int) -> dict[str, int]:
        raise OSError(f"disk {n} is full")

    with small(steps("look")) as pack:
        with pytest.raises(Refused, match=r"(?s)execution_failed.*look: OSError: disk 7 is full"):
            pack.with_actions(look=broken).intent("go").invoke("t", {"n": 7})
        with pytest.raises(Refused, match="execution_failed"):
            pack.with_actions(look=lambda n: [n]).intent("go").invoke("t", {"n": 7})
        with pytest.raises(Refused, match=r"schema_validation_failed(?s:.*)/n: "):
            pack.with_actions(look=lambda n: {"n": n}).intent("go").invoke("t", {"n": "seven"})


def test_a_function_is_not_called_with_what_the_action_would_not_take() -> None:
    ran: list[Any] = []

    def write(n: Any) -> dict[str, Any]:
        ran.append(n)
        return {}

    rules = (steps("look", "write"), 'arg_step("t", 2, "n", 1, "/found").')
    with small(*rules) as pack:
        pack.with_actions(look=lambda n: {"found": n + 1}, write=write).intent("go").invoke("t", {"n": 1})
        with pytest.raises(Refused, match=r"Step 2 \(write\) failed; nothing was changed"):
            pack.with_actions(look=lambda n: {"found": str(n)}, write=write).intent("go").invoke("t", {"n": 1})
    assert ran == [2]


def test_a_function_has_the_time_of_the_action() -> None:
    async def never(n: int) -> dict[str, int]:
        await asyncio.sleep(600)
        return {"n": n}

    known = (action("nap", params=NUMBER, timeout=0.1), effect("doze", timeout=0.1))
    with small(steps("nap"), actions=known) as pack, pytest.raises(Refused, match="nap: the function did not return"):
        pack.with_actions(nap=never).intent("go").invoke("t", {"n": 1})
    with small(steps("doze"), actions=known) as pack, pytest.raises(Refused) as refused:
        pack.with_actions(doze=never).intent("go").invoke("t", {"n": 1})
    assert refused.value.details["effects"] == [{"step": 1, "action": "doze", "status": "unknown"}]


def test_functions_may_be_coroutines_and_ask_the_pack_themselves() -> None:
    pack = small(steps("look"))

    async def look(n: int) -> dict[str, Any]:
        return {"n": n, "tools": pack.intent("go").names}

    with pack.with_actions(look=look) as faked:
        assert faked.intent("go").invoke("t", {"n": 1}).result == {"n": 1, "tools": ["t"]}


def test_a_tool_can_be_invoked_too_late(incident: Pack, facts: list[Any]) -> None:
    faked = incident.with_actions(failed_requests=lambda **_: {"requests": []})
    answer = faked.intent("diagnose_error", facts=facts, now=NOW)
    answer.invoke("list_failures")
    with pytest.raises(Refused, match="macro_expired"):
        answer.invoke("full_stack_diagnosis", now="2026-02-19T14:40:00Z")


def test_a_request_key_is_kept_within_a_pack_and_not_beyond() -> None:
    ran: list[int] = []

    def write(n: int) -> dict[str, int]:
        ran.append(n)
        return {"n": len(ran)}

    with small(steps("write")).with_actions(write=write) as pack:
        answer = pack.intent("go")
        first = answer.invoke("t", {"n": 1}, request_key="k")
        assert answer.invoke("t", {"n": 1}, request_key="k").result == first.result
        assert len(ran) == 1
        with pack.fresh() as other:
            other.intent("go").invoke("t", {"n": 1}, request_key="k")
        assert len(ran) == 2


def test_nothing_is_left_when_a_pack_is_closed() -> None:
    before = threading.active_count()
    with small(steps("look")).with_actions(look=lambda n: {"n": n}) as pack:
        pack.intent("go").invoke("t", {"n": 1})
        assert any(thread.name == "manglecp-testing" for thread in threading.enumerate())
    assert not any(thread.name == "manglecp-testing" for thread in threading.enumerate())
    assert threading.active_count() <= before


# --- rules that never fired ------------------------------------------------------------------------------------------


def test_rules_about_intents_and_runs_count_once_they_fired() -> None:
    coverage = PackCoverage("small")
    rules = (
        steps("look"),
        'asserts("done", [N], "server") :- ran("t"), run_arg("n", N).',
        'relevant("t", 30) :- intent("later"), held(1, "on").',
    )
    domain = with_coverage(Domain.load(chain(*rules)), coverage)
    with Pack(domain, PackOptions(domain.pack.folder)) as pack:
        assert (coverage.fired_count, coverage.percent) == (0, 0)
        answer = pack.with_actions(look=lambda n: {"n": n}).intent("go")
        assert [rule.text.partition("(")[0] for rule in coverage.never_fired()] == ["asserts", "relevant"]
        answer.invoke("t", {"n": 1}).delta.asserts("done", 1)
        (never,) = coverage.never_fired()
        assert never.missing == ("intent", "held")
        assert coverage.percent == 66
        pack.intent("later")
        pack.intent("go", facts=['held(1, "on")'])
        assert never.missing is not None
        assert len(never.missing) == 1, "the closest that it came"
        assert any("relevant" in line for line in coverage.lines())
        pack.intent("later", facts=['held(1, "on")'])
        assert list(coverage.never_fired()) == []
        assert list(coverage.lines()) == ["small: 3 of 3 rules fired (100 %)"]
