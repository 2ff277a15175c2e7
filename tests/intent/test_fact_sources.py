"""Which tools a stale source denies, and how that is decided."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from manglecp.base.text import age_text
from manglecp.intent import Call, Domain, Freshness, Identity, ProofInputs, SourceVersion, decide
from manglecp.pack import FactSource, PackError
from manglecp.wire.messages import Intent
from tests.intent.packs import action, pack

SECOND = 10**9
RULES = """
Decl alert(S) bound [/string].
Decl quiet(S) bound [/string].
Decl worry(S) bound [/string].
worry(S) :- alert(S).
macro("a", "A."). macro_step("a", 1, "look").
macro("b", "B."). macro_step("b", 1, "write").
macro("c", "C."). macro_step("c", 1, "look").
mandatory(T) :- intent("go"), macro(T, _).
"""
WHO = Identity("ann", frozenset(), "user")


def domain(policy: str, rules: str = "", *, at: int | None = 100, **source: Any) -> Domain:
    declared = FactSource(
        **{"name": "alerts", "push": True, "predicates": ("alert",), "stale_after_ns": 10 * SECOND, **source}
    )
    given = pack(
        RULES + rules, policy=policy, actions=(action("look", params={}), action("write", params={})), intents=("go",)
    )
    given = replace(given, settings=replace(given.settings, fact_sources=(declared,)))
    freshness = Freshness([declared])
    if at is not None:
        freshness.confirm("alerts", 3, at * SECOND)
    versions = {} if at is None else {"alerts": SourceVersion(3, "sha256:0", 0, "bot")}
    return replace(Domain.load(given), freshness=freshness, sources=versions)


def denied(loaded: Domain, at: int) -> dict[str, tuple[str, ...]]:
    """The denied tools with their public reasons."""
    inputs = ProofInputs(Intent(name="go"))
    decisions = {tool: decide(loaded, Call(tool, {}, inputs), WHO, at * SECOND, ()) for tool in "abc"}
    return {tool: decision.public_reasons for tool, decision in decisions.items() if decision.verdict == "deny"}


@pytest.mark.parametrize(
    ("policy", "rules", "tools"),
    [
        ('prohibited("a", "x") :- alert("x").', "", "a"),
        ('prohibited("a", "x") :- worry("x").', "", "a"),
        ('prohibited("a", "x") :- worry("x"). public_reason(T, X) :- prohibited(T, X).', "", "a"),
        ('prohibited("a", "x") :- client("y"), !worry("x").', "", "a"),
        ('needs_approval("a", "approve") :- worry(_).', "", "a"),
        ('effect_denied("write", "x") :- alert("x").', "", "b"),
        ('effect_denied("look", "x") :- alert("x").', "", "ac"),
        ('intent_denied("x") :- alert("x").', "", "abc"),
        ('prohibited(T, "x") :- macro(T, _), alert(T).', "", "abc"),
        ("", 'relevant("c", 5) :- alert("x").', "c"),
        ("", 'macro_summary("c", S) :- alert(S).', "c"),
        ("", 'requires("a", "c") :- alert("x").', "a"),
        ("", 'conflicts("a", "c") :- alert("x").', "abc"),
        ('prohibited("a", "x") :- quiet("x").', "", ""),
        ("", 'asserts("p", [], "x") :- ran("a"), alert("x").', ""),
        ("", "", ""),
    ],
)
def test_what_reads_the_source_is_denied(policy: str, rules: str, tools: str) -> None:
    loaded = domain(policy, rules)
    assert denied(loaded, 110) == {}
    reason = "the facts of alerts are 11s old, and 10s are allowed"
    assert denied(loaded, 111) == dict.fromkeys(tools, (reason,))
    assert denied(domain(policy, rules, on_stale="keep"), 111) == {}
    assert set(denied(domain(policy, rules, at=None, stale_after_ns=None), 0)) == set(tools)


def test_a_newer_version_does_not_refresh_the_facts_of_an_older_domain() -> None:
    loaded = domain('prohibited("a", "x") :- alert("x").')
    assert loaded.freshness is not None
    loaded.freshness.confirm("alerts", 4, 200 * SECOND)
    assert set(denied(loaded, 111)) == {"a"}
    newer = replace(loaded, sources={"alerts": SourceVersion(4, "sha256:1", 0, "bot")})
    loaded.freshness.confirm("alerts", 4, 150 * SECOND)  # a row that was read before
    assert denied(newer, 210) == {}
    loaded.freshness.forget("alerts")
    assert set(denied(newer, 201)) == {"a"}


def test_rules_can_read_that_a_source_is_stale() -> None:
    loaded = domain('prohibited("c", "old") :- stale_source("alerts", _).', on_stale="keep")
    assert set(denied(loaded, 110)) == set()
    assert set(denied(loaded, 111)) == {"c"}


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"predicates": ("alerts",)}, "no rule file declares alerts"),
        ({"predicates": ("macro",)}, "macro is a word of the kernel"),
        ({"push": False, "predicates": ()}, "facts.py has no generator of this name"),
    ],
)
def test_declarations_that_cannot_work(more: dict[str, Any], said: str) -> None:
    with pytest.raises(PackError, match=said):
        domain("", **more)


def test_clients_cannot_state_the_facts_of_a_source() -> None:
    with pytest.raises(PackError, match="clients may state told"):
        domain("", 'Decl told(S) descr [direction("both")] bound [/string].', predicates=("told",))


def test_a_rule_file_cannot_state_pushed_facts() -> None:
    with pytest.raises(PackError, match="the facts of alert are those that are pushed to alerts"):
        domain("", 'alert("x").')


def test_ages() -> None:
    ages = {0: "0s", 59: "59s", 60: "1m", 61: "1m 1s", 3_600: "1h", 3_661: "1h 1m", 90_000: "1d 1h", 86_461: "1d"}
    assert {seconds: age_text(seconds * SECOND) for seconds in ages} == ages
