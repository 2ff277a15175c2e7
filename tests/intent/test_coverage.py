"""Rule coverage: what became of each rule for one request."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings

from manglecp.intent.domain import Domain
from manglecp.intent.manifest_builder import manifest
from manglecp.intent.proof_hints import rule_coverage
from manglecp.wire.messages import RuleCoverage
from tests.intent.answering import asked
from tests.intent.hinting import AUDITOR, USER, coverage, domain, evaluated, text_of, tools
from tests.intent.packs import Case, cases

RULES = (
    tools("fetch", "mend")
    + """
trouble(Word) :- seen(Word), bad(Word).
bad("red").
calm(Name) :- logged(Name)@[_, _], measured(Name, _).
relevant("fetch", 60) :- intent("observe"), trouble(_).
relevant("mend", 60) :- intent("repair"), trouble(_).
"""
)


def details(found: RuleCoverage, *rules: str) -> list[tuple[str, tuple[str, ...], str]]:
    return [(one.rule, one.missing_predicates, one.status) for one in found.dormant_details if one.rule in rules]


def changed(before: RuleCoverage, after: RuleCoverage) -> tuple[int, int, int]:
    """How many rules more fired, lay dormant, did not apply."""
    fired, dormant, inapplicable = (new - old for old, new in zip(counts(before), counts(after), strict=True))
    return fired, dormant, inapplicable


def counts(found: RuleCoverage) -> tuple[int, int, int]:
    numbers = found.rules_fired, found.rules_dormant, found.rules_inapplicable
    fired, dormant, inapplicable = (number for number in numbers if isinstance(number, int))
    return fired, dormant, inapplicable


@pytest.mark.req("COV-03", "COV-10")
def test_it_has_counts_and_details() -> None:
    found = msgspec.to_builtins(coverage(domain(RULES)))
    assert list(found) == ["total_rules", "rules_fired", "rules_dormant", "rules_inapplicable", "dormant_details"]
    assert all(type(found[name]) is int for name in list(found)[:4])


@pytest.mark.req("COV-04", "COV-07", "COV-08")
def test_details_name_the_rule_by_its_head_and_what_is_missing() -> None:
    assert details(coverage(domain(RULES)), "trouble", "calm", "relevant") == [
        ("calm", ("logged", "measured"), "dead"),
        ("relevant", ("trouble",), "partially_alive"),
        ("trouble", ("seen",), "partially_alive"),
    ]


@pytest.mark.req("COV-07")
def test_some_facts_make_a_rule_partially_alive() -> None:
    found = coverage(domain(RULES), facts=[("measured", "x", 1)])
    assert details(found, "calm") == [("calm", ("logged",), "partially_alive")]


@pytest.mark.req("COV-06")
def test_a_rule_that_derives_something_has_fired() -> None:
    """The rule, what it feeds, and the kernel's rules behind them."""
    before, after = coverage(domain(RULES)), coverage(domain(RULES), facts=[("seen", "red")])
    assert details(after, "trouble", "relevant") == []
    fired, dormant, other = changed(before, after)
    assert fired >= 2
    assert (dormant, other) == (-fired, 0)


@pytest.mark.req("COV-09")
def test_a_rule_for_another_intent_is_inapplicable() -> None:
    kernel = 2  # rules about a call, which an evaluation does not have
    assert coverage(domain(RULES)).rules_inapplicable == kernel + 1
    assert coverage(domain(RULES), "repair").rules_inapplicable == kernel + 1
    assert coverage(domain(RULES), "neither").rules_inapplicable == kernel + 2


POLICY = """
prohibited("fetch", "not by moonlight") :- seen("moon"), moonlight().
moonlight() :- measured("moon", 100).
"""


@pytest.mark.req("PROOF-09")
def test_of_policy_there_are_only_counts() -> None:
    rules = RULES + 'relevant("mend", 30) :- moonlight(), seen("x").'
    found = coverage(domain(rules, POLICY), identity=USER)
    assert "moonlight" not in text_of(found)
    assert "prohibited" not in text_of(found)
    assert ("relevant", ("seen",), "dead") in details(found, "relevant")
    told = coverage(domain(rules, POLICY), identity=AUDITOR)
    assert details(told, "moonlight", "prohibited") == [
        ("moonlight", ("measured",), "dead"),
        ("prohibited", ("seen", "moonlight"), "dead"),
    ]
    assert (told.total_rules, told.rules_fired) == (found.total_rules, found.rules_fired)


def test_the_kernels_rules_count_and_are_not_told() -> None:
    found = coverage(domain(""))
    assert isinstance(found.total_rules, int)
    assert found.total_rules > 20
    assert found.dormant_details == ()


@pytest.mark.req("COV-05")
@settings(deadline=None)
@given(cases())
def test_the_counts_add_up_and_are_those_of_the_diagnostics(case: Case) -> None:
    evaluation = evaluated(Domain.load(case.pack), case.intent, case.facts, USER)
    found = rule_coverage(evaluation)
    assert sum(counts(found)) == found.total_rules
    assert found.total_rules == len(evaluation.result.program.rules)
    assert found.rules_fired == evaluation.diagnostics().rules_fired


def _ordered(items: Iterable[Any]) -> bool:
    listed = list(items)
    return listed == sorted(listed)


def test_details_are_sorted() -> None:
    rules = "z() :- seen(_). a() :- seen(_). m() :- measured(_, _). m() :- seen(_).\n"
    found = coverage(domain(rules)).dormant_details
    assert len(found) == 4
    assert _ordered((one.rule, one.status, one.missing_predicates) for one in found)


# --- in an answer ----------------------------------------------------------------------------------------------------


@pytest.mark.req("COV-01")
def test_it_is_in_the_diagnostics_if_asked_for_and_only_then() -> None:
    asking = {"x-rule_coverage": True}
    assert "rule_coverage" not in asked(domain(RULES))["diagnostics"]
    found = asked(domain(RULES), options=asking)["diagnostics"]
    assert found["rule_coverage"]["rules_fired"] == found["rules_fired"]


@pytest.mark.req("COV-01", "CONF-12")
def test_without_the_setting_it_is_for_clients_that_may_see_the_rules() -> None:
    loaded = domain(RULES)
    off = replace(loaded, pack=replace(loaded.pack, settings=replace(loaded.pack.settings, rule_coverage=False)))
    asking = {"x-rule_coverage": True}
    assert "rule_coverage" not in asked(off, options=asking)["diagnostics"]
    assert "rule_coverage" not in asked(off, options=asking, identity=USER)["diagnostics"]
    assert "rule_coverage" in asked(off, options=asking, identity=AUDITOR)["diagnostics"]
    for one, enabled in ((off, False), (loaded, True)):
        announced = manifest(one).payload.extensions
        assert isinstance(announced, dict)
        assert (announced["x-rule_coverage"]["enabled"], announced["x-rule_coverage"]["permission"]) == (
            enabled,
            "explain_policy",
        )


@pytest.mark.req("COV-09")
def test_rules_about_runs_are_inapplicable_to_a_request() -> None:
    rules = """
finished(Tool) :- ran(Tool).
suggests("observe", fn:map(), "again") :- finished(_).
summary("done") :- ran(_), seen(_).
both(1) :- seen(_).
both(2) :- ran(_).
summary("both") :- both(_).
"""
    before, after = coverage(domain(RULES)), coverage(domain(RULES + rules))
    assert details(after, "finished", "suggests") == []
    assert details(after, "summary") == [("summary", ("both",), "dead")]
    assert details(after, "both") == [("both", ("seen",), "dead")]
    assert changed(before, after) == (0, 2, 4)


@pytest.mark.req("COV-02")
def test_nothing_else_in_the_answer_depends_on_it() -> None:
    """So that no client can come to depend on it."""
    without, found = (
        asked(domain(RULES), facts=[("seen", "red")], options={"x-rule_coverage": wanted}) for wanted in (False, True)
    )
    del found["diagnostics"]["rule_coverage"]
    assert found.pop("eval_duration_ms") >= 0
    assert without.pop("eval_duration_ms") >= 0
    assert found == without
