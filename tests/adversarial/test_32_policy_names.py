"""Case 32: a slip in a policy's names, times or values does not disarm it: the pack is refused, or the tool is gone."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from manglecp.intent import Domain, Identity
from manglecp.intent.responder import respond
from manglecp.pack import PackError
from tests.adversarial._invoked import invoked
from tests.intent.packs import NOW, clock, pack, request
from tests.invoke.chains import chain, steps
from tests.invoke.workshop import shop

SECOND = 10**9
OPS = """
macro("rollback", "Rolls back."). macro_step("rollback", 1, "undo"). relevant("rollback", 50) :- intent("deploy").
macro("drain_node", "Drains."). macro_step("drain_node", 1, "drain"). relevant("drain_node", 50) :- intent("deploy").
"""


def load(policy: str, domain: str = "", **parts: Any) -> Domain:
    parts = {"actions": ("undo", "drain"), "intents": ("deploy",), "permissions": ("sre",), "trust_levels": (), **parts}
    return Domain.load(pack(OPS + domain, policy=policy, **parts))


def offered(domain: Domain, facts: Any = (), identity: Identity | None = None, **options: Any) -> list[str]:
    asked = request("deploy", facts, options=options)
    answer = respond(domain, asked, identity or Identity("lee", frozenset(), "user"), clock)
    return sorted(tool.name for tool in answer.response.payload.macro_tools)


# --- names -----------------------------------------------------------------------------------------------------------

CONFIRM = "needs_confirmation(T) :- dangerous(T). "
SLIPS = {
    "its own data": CONFIRM + 'dangerous("rolback").',
    "in two steps": CONFIRM + 'dangerous(T) :- critical(T, "high"). critical("rolback", "high").',
    "an exception": 'prohibited(T, "x") :- macro(T, _), !harmless(T). harmless("rolback").',
    "an exception by comparison": 'permitted(T) :- macro(T, _), T != "rolback".',
    "a tool": 'prohibited("drain_nod", "never").',
    "an action": 'effect_denied("drian", "never").',
    "an action in data": 'effect_denied(A, "never") :- risky(A). risky("drian").',
    "an action of its tools": 'prohibited(T, "never") :- risky(A), macro_step(T, _, A). risky("drian").',
    "a permission": 'prohibited("rollback", "x") :- !client_permission("ser").',
    "a permission that lets through": 'permitted("rollback") :- client_permission("ser").',
    "a permission in data": 'prohibited(T, "x") :- role(T, R), !client_permission(R). role("rollback", "ser").',
    "an approver": 'needs_approval("rollback", "ser").',
    "an effect": 'prohibited(T, "x") :- macro_effect(T, "filesytem").',
    "an effect of actions": 'effect_denied(A, "x") :- action_effect(A, "netwrok").',
    "an intent": 'intent_denied("x") :- intent("depoly").',
    "an intent in data": 'intent_denied("x") :- intent(I), frozen(I). frozen("depoly").',
    "a fact that is refused": 'fact_denied("alrt", "x") :- intent("deploy").',
    "a list in data": 'prohibited(T, "x") :- names(L), :list:member(T, L). names(["rolback"]).',
    "a list in data, in two steps": 'prohibited(T, "x") :- intent("deploy"), bad(T). bad(T) :- names(L), '
    ':list:member(T, L). names(["rollback", "rolback"]).',
    "a list in the rule": 'prohibited(T, "x") :- L = ["rolback"], intent("deploy"), :list:member(T, L).',
    "a pair": 'prohibited(T, "x") :- entry(P), :match_pair(P, T, _). entry(fn:pair("rolback", 1)).',
    "a struct": 'prohibited(T, "x") :- entry(S), :match_field(S, /tool, T). entry({/tool: "rolback"}).',
    "a name that is put together": 'prohibited(T, "x") :- base(B) |> let T = fn:string:concat(B, "k"). base("rolbac").',
    "an argument": 'effect_denied("undo", "x") :- run_arg("pth", _).',
    "an argument in data": 'effect_denied("undo", "x") :- limit(N, M), run_arg(N, V), V > M. limit("pth", 9).',
    "a parameter": 'prohibited("rollback", "x") :- action_param("undo", "pth", _).',
    "an extracted value": 'effect_denied("drain", "x") :- step_value(1, "kee", _).',
    "a status": 'effect_denied("drain", "x") :- step_status(1, _, "sucess").',
    "a setting": 'prohibited("rollback", "x") :- setting("frezee", "1").',
    "a trust level": 'prohibited("rollback", "x") :- client_trust("autmated").',
    "a word of the kernel": 'prohibted("rollback", "x").',
    "a word of the specification": 'requires_confirmation("rollback").',
}


@pytest.mark.parametrize("slip", SLIPS)
def test_a_slip_in_policy_keeps_the_pack_from_loading(slip: str) -> None:
    with pytest.raises(PackError) as refused:
        load(SLIPS[slip])
    errors = [one for one in refused.value.diagnostics if one.severity == "error"]
    assert len(errors) == 1
    assert errors[0].fix


UNFOLLOWED = {
    "a list for an intent": 'prohibited(T, "x") :- intent("deploy"), names(L), :list:member(T, L). names(["rolbck"]).',
    "a list to compare with": 'prohibited(T, "x") :- macro(T, _), names(L), :list:member(T, L). names(["rolback"]).',
    "beside a comparison": 'prohibited(T, "x") :- intent("deploy"), names(L), :list:member(T, L), T != "drain_node". '
    'names(["rolback"]).',
    "a computed exception": 'permitted(T) :- macro(T, _), names(N), T != fn:string:concat(N, "k"). names("rolbac").',
    "a permission": 'permitted(T) :- macro(T, _), names(N), client_permission(P), P = fn:string:concat(N, "r"). '
    'names("se").',
}


@pytest.mark.parametrize("slip", UNFOLLOWED)
def test_names_that_cannot_be_followed_are_not_called_correct(slip: str) -> None:
    (warning,) = load(UNFOLLOWED[slip]).warnings
    assert warning.message in (
        "tool names computed here are not checked",
        "permission names computed here are not checked",
    )
    assert "declare names with open(…)" in str(warning.fix)
    bound = "fn:List(/string)" if "[" in UNFOLLOWED[slip] else "/string"
    assert load(f'{UNFOLLOWED[slip]} Decl names(N) descr [open("from the register")] bound [{bound}].').warnings == ()


def test_a_parameter_of_an_intent_that_nothing_else_reads_is_doubtful() -> None:
    policy = 'prohibited("rollback", "x") :- intent_param("servce", _).'
    (warning,) = load(policy, 'arg_value("rollback", 1, "path", S) :- intent_param("service", S).').warnings
    assert warning.message == "no rule of the domain reads the intent parameter 'servce'"
    assert "did you mean service?" in str(warning.fix)


@pytest.mark.parametrize("name", ["rolback", "Rollback", "rollback ", "rollbаck"])  # the last has a Cyrillic letter
def test_a_name_in_a_fact_file_is_checked_by_its_characters(tmp_path: Path, name: str) -> None:
    file = tmp_path / "dangerous.csv"
    file.write_text(f"tool\n{name}\n", encoding="utf-8")
    schema = "Decl dangerous(Tool) bound [/string]."
    with pytest.raises(PackError, match="no clause of macro defines the tool"):
        load(CONFIRM, schema=schema, fact_files=[str(file)])
    file.write_text("tool\nrollback\n")
    load(CONFIRM, schema=schema, fact_files=[str(file)])


def test_a_client_that_supplies_names_does_not_silence_the_check_of_others() -> None:
    """The open predicate is one of clients; the closed one next to it stays checked."""
    schema = 'Decl wish(Tool) descr [direction("input"), open("the client names it")] bound [/string].'
    policy = 'prohibited(T, "x") :- wish(T). ' + CONFIRM
    load(policy + 'dangerous("rollback").', schema=schema)
    with pytest.raises(PackError, match="rolback"):
        load(policy + 'dangerous("rolback").', schema=schema)


def test_the_domain_cannot_open_the_names_of_policy() -> None:
    with pytest.raises(PackError, match="a domain Decl may not have open"):
        load(CONFIRM + 'dangerous("rolback").', 'Decl dangerous(T) descr [open("x")] bound [/string].')


# --- times -----------------------------------------------------------------------------------------------------------


def alert(untimed: str) -> str:
    return f'Decl alert(Word) temporal descr [direction("input"){untimed}] bound [/string].\n'


FRESH = 'Decl fresh(). fresh() :- <-[0s, 2m] alert("disk"). permitted("t") :- fresh().'
UNTIMED = {"pred": "alert", "args": ["disk"]}


@pytest.mark.parametrize("window", ["<-[0s, 2m]", "[-[0s, 2m]", "<+[0s, 2m]", "[+[0s, 2m]"])
def test_a_window_that_untimed_facts_pass_keeps_the_pack_from_loading(window: str) -> None:
    given = chain(steps("write"), policy=alert("") + FRESH.replace("<-[0s, 2m]", window))
    with pytest.raises(PackError, match="a client can state alert without a time"):
        Domain.load(given)


@pytest.mark.req("DATA-24")
@pytest.mark.parametrize(
    "fact",
    [
        UNTIMED,
        {**UNTIMED, "t": None},
        {**UNTIMED, "source": {"source_type": "client"}},
        {**UNTIMED, "t": {"start": "_", "end": "_"}},
        {**UNTIMED, "t": {"start": "2026-01-01T00:00:00Z", "end": "_"}},
        {**UNTIMED, "t": {"start": "now", "end": "_"}},
        {**UNTIMED, "t": {"start": "_", "end": "2030-01-01T00:00:00Z"}},
        {**UNTIMED, "t": {"start": "2026-01-01T00:00:00Z", "end": "2030-01-01T00:00:00Z"}},
        {"pred": "alert", "named_args": {"word": "disk"}, "t": {"start": "_", "end": "_"}},
    ],
)
@invoked
async def test_an_untimed_fact_is_of_its_evaluation_and_ages(fact: dict[str, Any]) -> None:
    now = [NOW]
    rules = alert(', untimed("now")') + FRESH
    async with shop(chain(steps("write"), policy=rules), clock=lambda: now[0]) as s:
        macro_id = (await s.tools(facts=[fact]))["t"]
        await s.invoke(macro_id, {"n": 1}, evaluate=False)
        now[0] += 120 * SECOND + 1  # the proof at the admission does not make it a fact of now
        assert (await s.refused(macro_id, {"n": 1}, evaluate=False)).code == "macro_expired"
        assert len(s.bench.ran) == 1


@invoked
async def test_a_fact_that_always_holds_is_declared_so() -> None:
    now = [NOW]
    rules = alert(', untimed("always")') + FRESH
    async with shop(chain(steps("write"), policy=rules), clock=lambda: now[0]) as s:
        await s.tools(facts=[UNTIMED])
        now[0] += 3600 * SECOND
        assert "t" in await s.tools(facts=[UNTIMED])


# --- two values ------------------------------------------------------------------------------------------------------

TWO_ALERTS = """
Decl failing(Service) descr [direction("input")] bound [/string].
arg_value("rollback", 1, "path", S) :- failing(S).
"""
WEB, DB = ("failing", "web"), ("failing", "db")


def test_of_two_values_none_is_picked(caplog: pytest.LogCaptureFixture) -> None:
    domain = load("", TWO_ALERTS)
    assert offered(domain, [WEB]) == offered(domain, [DB]) == ["drain_node", "rollback"]
    with caplog.at_level(logging.WARNING):
        for facts in ([WEB, DB], [DB, WEB], [WEB, DB]):
            assert offered(domain, facts) == ["drain_node"]
    told = [record.getMessage() for record in caplog.records]
    assert told == ["a selected tool is left out: rollback: arg_value(Tool, 1, 'path', …) has two values"]


def test_the_client_is_told_which() -> None:
    options = {"include_proof_hints": True, "x-why_not": ["rollback"]}
    asked = request("deploy", [WEB, DB], options=options, constraints={"max_tools_returned": 1})
    answer = respond(load("", TWO_ALERTS), asked, Identity("lee", frozenset(), "user"), clock)
    (why,) = answer.response.payload.proof_hints.why_not  # type: ignore[union-attr,misc]
    assert why.blocked_by == ("rollback: arg_value(Tool, 1, 'path', …) has two values",)


@invoked
async def test_a_second_value_ends_an_offer() -> None:
    """The proof at the admission finds two values: the run of the first is not what the rules prove."""
    now = [NOW]
    rules = """
    Decl due(N) temporal bound [/number]. due(1)@[2026-01-01T00:00:00Z, _]. due(2)@[2026-01-15T12:01:00Z, _].
    arg_value("t", 1, "n", N) :- due(N)@[now].
    """
    async with shop(chain(steps("write"), rules), clock=lambda: now[0]) as s:
        macro_id = (await s.tools())["t"]
        await s.invoke(macro_id, {}, evaluate=False)
        now[0] += 61 * SECOND
        assert (await s.refused(macro_id, {}, evaluate=False)).code == "macro_expired"
        assert len(s.bench.ran) == 1


@pytest.mark.parametrize("rules", ['macro("rollback", "Or this.").', 'macro_step("rollback", 1, "drain").'])
def test_two_values_without_any_request_keep_the_pack_from_loading(rules: str) -> None:
    with pytest.raises(PackError, match="has two values, so that the tool is never offered"):
        load("", rules)


@pytest.mark.parametrize(
    "rules",
    [
        'keep("undo", "k", "/a"). keep("undo", "k", "/b").',
        'keep(A, "k", P) :- at(A, P). at("undo", "/a"). at("undo", "/b").',
    ],
)
def test_two_places_for_one_value_to_keep_keep_the_pack_from_loading(rules: str) -> None:
    with pytest.raises(PackError, match=r"keep\('undo', 'k', …\) has two values"):
        load("", rules)


# --- words of the specification ------------------------------------------------------------------------------------


def test_a_pack_from_the_rules_of_the_specification_is_not_silently_empty() -> None:
    schema = """
    Decl intent_type(Id, Intent) descr [direction("input")] bound [/string, /string].
    Decl has_console_errors() descr [direction("input")].
    """
    rules = 'macro_tool("observe_console", "full") :- intent_type(_, "diagnose_error"), has_console_errors().'
    (warning,) = Domain.load(pack(rules, schema=schema)).warnings
    assert warning.message == "nothing reads macro_tool"
    assert "macro(Tool, Description)" in str(warning.fix)
    with pytest.raises(PackError, match="no clause of macro defines the tool 'diagnose_error'"):
        Domain.load(pack(OPS + 'needs_skill("diagnose_error", "care").', skills=["care"], actions=("undo", "drain")))
