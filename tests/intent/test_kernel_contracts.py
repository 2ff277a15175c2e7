"""Random packs and requests: the contracts hold, and nothing depends on what it should not depend on."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from manglecp.intent.domain import Domain
from manglecp.intent.evaluation import IntentEvaluation, evaluate
from manglecp.intent.identity import Identity
from manglecp.wire import WireError
from tests.effort import examples
from tests.intent.contracts import PackClaims, verify
from tests.intent.packs import Case, Rules, cases, clock, prohibitions

pytestmark = pytest.mark.no_cover

SLOW = settings(deadline=None)


def ask(case: Case, domain: Domain | None = None, **changes: Any) -> IntentEvaluation:
    identity = Identity("me", case.permissions, "user")
    return evaluate(domain or Domain.load(case.pack), case.request(**changes), identity, clock=clock)


def tools(evaluation: IntentEvaluation) -> set[str]:
    return {selected.tool for selected in evaluation.selected}


@pytest.mark.req("EVAL-12", "EVAL-13", "EVAL-14", "EVAL-15", "EVAL-16", "EVAL-47", "CONF-07")
@given(cases())
@SLOW
def test_contracts_1_to_4(case: Case) -> None:
    verify(ask(case))


def test_random_packs_are_worth_asking() -> None:
    """Enough of them offer something, exclude something, resolve a conflict and bring a dependency."""
    seen: Counter[str] = Counter()

    @given(cases())
    @settings(deadline=None, max_examples=60, database=None, derandomize=True)
    def count(case: Case) -> None:
        evaluation = ask(case)
        seen["all"] += 1
        seen.update({f"selected by {selected.phase}" for selected in evaluation.selected})
        seen.update({f"excluded by {row[1]}" for row in evaluation.result.rows(("excluded", 3))})

    count()
    often = ("selected by flesh", "selected by dependency", "excluded by exclusion", "excluded by conflict")
    assert min(seen[what] for what in often) >= seen["all"] / 3, seen
    assert min(seen[what] for what in ("selected by skeleton", "excluded by dependency")) >= seen["all"] / 5, seen


@pytest.mark.req("EVAL-41", "EVAL-43")
@given(cases(with_conflicts=False), prohibitions)
@SLOW
def test_a_prohibition_never_adds_a_tool_where_there_are_no_conflicts(case: Case, more: str) -> None:
    if any("permitted" in rule for rule in case.rules.prohibitions):
        return
    stricter = replace(case, rules=replace(case.rules, prohibitions=(*case.rules.prohibitions, more)))
    assert tools(ask(stricter)) <= tools(ask(case))


@pytest.mark.req("EVAL-45", "EVAL-46")
@given(cases(), prohibitions)
@SLOW
def test_with_conflicts_a_tool_that_a_prohibition_adds_had_lost_one_or_is_needed_by_one_that_had(
    case: Case, more: str
) -> None:
    before = ask(case)
    stricter = replace(case, rules=replace(case.rules, prohibitions=(*case.rules.prohibitions, more)))
    after = ask(stricter)
    added = tools(after) - tools(before)
    lost = {str(row[0]) for row in before.result.rows(("kernel.gone", 1))}
    said = PackClaims.of(after)
    for tool in added:
        assert tool in lost or any(tool in said.closure([loser]) for loser in lost & tools(after))


@pytest.mark.req("EVAL-18", "EVAL-19")
@given(cases(), st.randoms(use_true_random=False))
@SLOW
def test_the_order_of_facts_and_of_rules_does_not_matter(case: Case, random: Any) -> None:
    facts = [*case.facts, *case.facts[:1]]
    random.shuffle(facts)
    domain, conflicts = list(case.rules.domain), list(case.rules.conflicts)
    random.shuffle(domain)
    random.shuffle(conflicts)
    loaded = Domain.load(case.pack)
    first, shuffled = ask(case, loaded), ask(case, loaded, facts=facts)
    again = ask(replace(case, rules=Rules(tuple(domain), case.rules.prohibitions, tuple(conflicts))))
    assert first.selected == again.selected == shuffled.selected
    assert first.diagnostics() == again.diagnostics() == shuffled.diagnostics()


@pytest.mark.req("EVAL-17", "EVAL-20", "EVAL-24")
@given(cases())
@SLOW
def test_the_limit_on_derived_facts_is_exact(case: Case) -> None:
    domain = Domain.load(case.pack)
    needed = ask(case, domain).diagnostics().facts_derived
    free = ask(case, domain)
    assert ask(case, domain, constraints={"max_facts_created": needed}).selected == free.selected
    if needed:
        with pytest.raises(WireError) as caught:
            ask(case, domain, constraints={"max_facts_created": needed - 1})
        assert caught.value.code == "derivation_limit_exceeded"
        assert caught.value.details is not None
        assert caught.value.details["budget"] == {
            "limit": needed - 1,
            "consumed": needed - 1,
            "unit": "derived_facts",
        }


@pytest.mark.req("EVAL-10", "EVAL-11", "CONF-14")
@given(st.lists(cases(), min_size=1, max_size=1), cases())
@examples(20)
def test_nothing_of_a_request_survives_it(one: list[Case], other: Case) -> None:
    (case,) = one
    domain = Domain.load(case.pack)
    first = ask(case, domain)
    for between in range(3):
        ask(replace(other, rules=case.rules), domain)
        again = ask(case, domain)
        assert again.selected == first.selected, between
        assert again.diagnostics() == first.diagnostics()
        assert again.result.facts() == first.result.facts()
