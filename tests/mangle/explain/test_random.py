"""Random programs: every proof is checked step by step, every answer compared with its definition, run literally."""

from __future__ import annotations

import itertools
from random import Random
from typing import Final

import pytest

from manglecp.mangle.explain import search
from manglecp.mangle.model import program_facts
from manglecp.mangle.printer import fact_text
from manglecp.mangle.values import Name, Value
from tests.mangle.engine.splitting import from_outside, steady, with_facts

from . import oracles
from .checking import check
from .programs import FAMILIES, LIMITS, NAMES, NOW, run, write

pytestmark = pytest.mark.no_cover

FEW: Final = 4
MANY: Final = 250

families = pytest.mark.parametrize("family", FAMILIES)


def _runs(few: int = FEW, many: int = MANY) -> pytest.MarkDecorator:
    """A few seeds always, many on request."""
    soak = pytest.param(range(few, many), marks=pytest.mark.soak, id=f"{few}-{many}")
    return pytest.mark.parametrize("seeds", [pytest.param(range(few), id=f"0-{few}"), soak])


@families
@_runs()
@pytest.mark.parametrize("few", [None, 1, 2], ids=["best", "one", "two"])
def test_proofs_follow(family: str, seeds: range, few: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The best proof, and one where only a few instances are looked at first."""
    if few is not None:
        monkeypatch.setattr(search, "WORK", few)
    checked = 0
    for seed in seeds:
        result = run(write(family, seed))
        if result is None:
            continue
        explainer = result.explainer
        for fact in result.facts():
            found = explainer.explain(fact)
            assert found is not None, (seed, fact)
            check(found, result)
            checked += 1
    assert checked > len(seeds)


@families
@_runs()
def test_alternatives_are_the_minimal_supports(family: str, seeds: range) -> None:
    for seed in seeds:
        text = write(family, seed)
        result = run(text)
        # What is aggregated or merged rests on more than it would take, and so do the ends of joined intervals.
        if result is None or "group_by" in text or "merge(" in text or "@[S, E]" in text:
            continue
        explainer = result.explainer
        facts = result.facts()
        for fact in Random(seed).sample(facts, min(3, len(facts))):
            expected = oracles.supporting(text, fact)
            if expected is None:
                continue
            found = explainer.alternatives(fact, 1000)
            assert found.complete, (seed, fact)
            assert sorted(sorted(f.text for f in facts) for facts in found.sets) == expected, (seed, fact)
            best = explainer.explain(fact)
            assert best is not None
            assert any(set(one) <= set(best.leaves()) for one in expected), (seed, fact)


def missing_facts(text: str, family: str, seed: int) -> list[str]:
    """A few facts of derived predicates that do not hold."""
    result = run(text)
    if result is None:
        return []
    random = Random(f"{family}/{seed}")
    goals: list[str] = []
    for key in sorted({rule.head.key for rule in result.program.rules}):
        if key[0] == "better":
            continue
        names: list[Value] = [Name(name) for name in NAMES]
        columns = [names if i == 0 else [*names, 1, 2, 3] for i in range(key[1])]
        at = random.choice(("@[2026-01-15T12:00:00Z]", "@[2026-01-14, 2026-01-16]"))
        suffix = at if result.program.predicates[key].temporal else ""
        possible = [fact_text(key[0], args) + suffix for args in itertools.product(*columns)]
        absent = [fact for fact in random.sample(possible, min(8, len(possible))) if oracles.holds(text, fact) is False]
        goals += absent[:2]
    return goals[-4:]


def same(found: list[list[str]], expected: list[list[str]]) -> bool:
    """Equal; but a fact may also help with an interval that only together with another one satisfies its premise."""
    if found == expected:
        return True
    timeless = [{tuple(fact.partition("@")[0] for fact in facts) for facts in sets} for sets in (found, expected)]
    return all(facts in expected for facts in found) and timeless[0] == timeless[1] and "@" in str(expected)


@families
@_runs(1, MANY)
def test_what_would_unlock(family: str, seeds: range) -> None:
    compared = 0
    for seed in seeds:
        text = write(family, seed)
        goals = missing_facts(text, family, seed)
        result = run(text)
        if result is None:
            continue
        explainer = result.explainer
        for goal in goals:
            expected = oracles.unlocking(text, goal, tries=200 if seeds.start == 0 else 1500)
            if expected is None:
                continue
            answer = explainer.why_not(goal)
            found = sorted(sorted(fact.text for fact in facts) for facts in answer.would_unlock)
            if not expected:  # values that occur nowhere may help
                assert all(oracles.holds(text + "".join(f"{fact}.\n" for fact in facts), goal) for facts in found)
                assert not (found and answer.complete)
                compared += 1
                continue
            assert same(found, expected), f"{family} {seed}: {goal}\n{text}\nfound {found}\nexpected {expected}"
            assert answer.complete
            assert len(answer.blocked) <= len(result.program.rules)
            compared += 1
    assert compared >= len(seeds)


@families
@_runs(2, MANY)
def test_complete_means_that_nothing_else_helps(family: str, seeds: range) -> None:
    """Where the search says that no set helps, none of any size does."""
    for seed in seeds:
        text = write(family, seed)
        result = run(text)
        if result is None:
            continue
        explainer = result.explainer
        for goal in missing_facts(text, family, seed):
            answer = explainer.why_not(goal)
            if answer.would_unlock or not answer.complete:
                continue
            facts = list(oracles.candidates(text, goal))
            random = Random(seed)
            for _ in range(30):
                some = random.sample(facts, random.randint(1, len(facts))) if facts else []
                assert oracles.holds(text + "".join(f"{fact}.\n" for fact in some), goal) is not True, (
                    seed,
                    goal,
                    some,
                )


@families
@_runs()
def test_it_does_not_matter_where_facts_came_from(family: str, seeds: range) -> None:
    """Given in the program, to the base or with the request: the same proof, with the origin of each leaf."""
    for seed in seeds:
        result = run(write(family, seed))
        if result is None:
            continue
        program, random = result.program, Random(seed)
        places = {fact: random.randrange(3) for fact in steady(program)}
        stays = [fact for fact in program.facts if places.get(fact, 0) == 0]
        server, session = ([from_outside(program, f) for f, place in places.items() if place == n] for n in (1, 2))
        elsewhere = with_facts(program, stays).base(server).evaluate(session, now=NOW, limits=LIMITS)
        assert elsewhere.facts() == result.facts()
        stated = {fact.text for fact in program_facts(elsewhere.program, NOW)}
        for fact in result.facts():
            one, other = result.explainer.explain(fact), elsewhere.explainer.explain(fact)
            assert one is not None
            assert other is not None
            assert [node.fact for node in one.nodes()] == [node.fact for node in other.nodes()], (seed, fact)
            for node in other.nodes():
                if node.ground is not None and node.origin != "derived":
                    served = node.ground in server
                    wanted = "given" if node.fact in stated else "server" if served else "session"
                    assert node.origin == wanted, (seed, fact)


def test_now_is_the_same_everywhere() -> None:
    assert NOW == 1768478400 * 10**9
