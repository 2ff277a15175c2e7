"""Fitting an answer into a budget."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from manglecp.intent.budget import FittedResponse, fit, initial_views, render_all
from manglecp.intent.definition import ChainStep, Definition, Resource, SafetyData
from manglecp.intent.domain import Domain
from manglecp.intent.rendering import ToolView
from manglecp.intent.tokens import ESTIMATE, Counter, counter
from tests.intent.answering import asked
from tests.intent.packs import cases, pack, skill

NAMES = "abcdef"
SKILLS = {one.skill_id: one for one in (skill("howto", "Read it. " * 99), skill("tips", "Do it. " * 80))}
ORDER = {"full": 3, "condensed": 2, "minimal": 1}
EXACT = counter("o200k_base")


def definition(name: str, score: int = 80, **changes: Any) -> Definition:
    fields: dict[str, Any] = {
        "tool": name,
        "macro_id": f"m-{name * 16}",
        "chain_digest": f"sha256:{name * 16}",
        "description": f"Does {name}. Carefully.",
        "summary": f"Does {name}.",
        "steps": (ChainStep(1, "look"),),
        "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
        "safety": SafetyData(requires_user_confirmation=False, side_effects=("none",)),
        "score": score,
    }
    return Definition(**{**fields, **changes})


resources = st.integers(0, 3).map(lambda n: tuple(Resource(f"file://{i}", "It matters.", 90 - i) for i in range(n)))
levels = st.sampled_from(["full", "full", "condensed", "minimal"])


@st.composite
def answers(draw: st.DrawFn) -> tuple[ToolView, ...]:
    names = draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=6))
    tools: list[tuple[Definition, Any]] = []
    for name in names:
        needed = draw(st.lists(st.sampled_from(names), max_size=1))
        made = definition(
            name,
            draw(st.sampled_from([20, 50, 50, 80, 100])),
            skills=draw(st.sampled_from([(), ("howto",), ("howto", "tips")])),
            resources=draw(resources),
            requires=tuple(one for one in needed if one != name),
        )
        tools.append((made, draw(levels)))
    tools.sort(key=lambda one: (-one[0].score, one[0].tool))
    return initial_views(tools, SKILLS, ESTIMATE, 500)


budgets = st.integers(0, 1500)
counters = st.sampled_from([ESTIMATE, EXACT])


def by_name(fitted: FittedResponse) -> dict[str, ToolView]:
    return {one.definition.tool: one for one in fitted.views}


@pytest.mark.req("EVAL-35", "SKILL-15")
@given(answers(), budgets, counters)
def test_what_is_sent_fits_and_has_its_dependencies(tools: tuple[ToolView, ...], budget: int, by: Counter) -> None:
    fitted = fit(tools, SKILLS, by, budget)
    assert fitted.tokens <= budget or not fitted.views
    sent = msgspec.json.encode({"macro_tools": fitted.tools, "required_skills": fitted.skills}, order="deterministic")
    assert fitted.tokens == by.count(sent)
    names = {one.definition.tool for one in fitted.views}
    assert all(names.issuperset(one.definition.requires) for one in fitted.views)
    assert fit(tools, SKILLS, by, budget) == fitted
    if render_all(tools, SKILLS, by).tokens <= budget:
        assert fitted.views == tools, "nothing shrinks without need"


@pytest.mark.req("EVAL-35")
@given(answers(), counters)
def test_what_an_answer_costs_is_budget_enough_for_it(tools: tuple[ToolView, ...], by: Counter) -> None:
    free = fit(tools, SKILLS, by, None)
    assert fit(tools, SKILLS, by, free.tokens) == free


@pytest.mark.req("EVAL-35")
@given(answers(), budgets, budgets, counters, st.sets(st.sampled_from(NAMES)))
def test_a_larger_budget_never_removes_or_demotes(
    tools: tuple[ToolView, ...], one: int, other: int, by: Counter, upgraded: set[str]
) -> None:
    ids = [f"m-{name * 16}" for name in upgraded]
    less = by_name(fit(tools, SKILLS, by, min(one, other), ids))
    more = by_name(fit(tools, SKILLS, by, max(one, other), ids))
    assert less.keys() <= more.keys()
    for name, shown in less.items():
        assert ORDER[shown.level] <= ORDER[more[name].level]
        assert shown.inline <= more[name].inline
        assert shown.resource_count <= more[name].resource_count


@pytest.mark.req("EVAL-36")
@given(answers(), budgets)
def test_fitting_alone_never_puts_a_better_tool_below_a_lesser_one(tools: tuple[ToolView, ...], budget: int) -> None:
    full = [one.changed(level="full") for one in tools]
    found = fit(full, SKILLS, ESTIMATE, budget).views
    for better in found:
        for lesser in found:
            if better.definition.score > lesser.definition.score:
                assert ORDER[better.level] >= ORDER[lesser.level]


# --- the order of the path -------------------------------------------------------------------------------------------


def path(tools: list[tuple[Definition, Any]], upgraded: tuple[str, ...] = ()) -> list[list[tuple[Any, ...]]]:
    """Every answer that some budget gives, from the largest to the smallest."""
    first = initial_views(tools, SKILLS, ESTIMATE, 500)
    found: list[list[tuple[Any, ...]]] = []
    for budget in range(2000, -1, -1):
        fitted = fit(first, SKILLS, ESTIMATE, budget, [f"m-{name * 16}" for name in upgraded])
        state = [(one.definition.tool, one.level, bool(one.inline), one.resource_count) for one in fitted.views]
        if not found or found[-1] != state:
            found.append(state)
    return found


RICH = (Resource("file://x", "Much of it matters here.", 90), Resource("file://y", "Some of it matters.", 10))


@pytest.mark.req("SKILL-17", "SKILL-18", "EVAL-35")
def test_skills_are_referred_to_first_then_resources_go_then_levels_then_tools() -> None:
    tools: list[tuple[Definition, Any]] = [
        (definition("a", 100, skills=("howto",), resources=RICH), "full"),
        (definition("b", 80, skills=("tips",), resources=RICH[:1]), "full"),
    ]
    found = path(tools)
    steps = [
        [("a", "full", True, 2), ("b", "full", True, 1)],
        [("a", "full", False, 2), ("b", "full", False, 1)],
        [("a", "full", False, 2), ("b", "full", False, 0)],
        [("a", "full", False, 1), ("b", "full", False, 0)],
        [("a", "full", False, 0), ("b", "full", False, 0)],
        [("a", "full", False, 0), ("b", "condensed", False, 0)],
        [("a", "condensed", False, 0), ("b", "condensed", False, 0)],
        [("a", "condensed", False, 0), ("b", "minimal", False, 0)],
        [("a", "minimal", False, 0), ("b", "minimal", False, 0)],
        [("a", "minimal", False, 0)],
        [],
    ]
    assert [state for state in found if state in steps] == steps
    assert len(found) <= len(steps) + 1, "at most the state between two references"


@pytest.mark.req("EVAL-35")
def test_between_equals_the_last_name_goes_first_and_upgraded_tools_go_last() -> None:
    tools: list[tuple[Definition, Any]] = [(definition(name, 50), "condensed") for name in "abc"]
    removed = [{one[0] for one in state} for state in path(tools)[-4:]]
    assert removed == [{"a", "b", "c"}, {"a", "b"}, {"a"}, set()]
    removed = [{one[0] for one in state} for state in path(tools, ("c",))[-4:]]
    assert removed == [{"a", "b", "c"}, {"a", "c"}, {"c"}, set()]


@pytest.mark.req("EVAL-16", "EVAL-35")
def test_what_needs_a_removed_tool_goes_with_it() -> None:
    tools: list[tuple[Definition, Any]] = [
        (definition("a", 100, requires=("b",)), "minimal"),
        (definition("b", 90, requires=("c",)), "minimal"),
        (definition("d", 70), "minimal"),
        (definition("c", 50), "minimal"),
    ]
    assert [{one[0] for one in state} for state in path(tools)] == [{"a", "b", "c", "d"}, {"d"}, set()]


@pytest.mark.req("SKILL-17")
def test_a_skill_that_is_shorter_than_a_reference_to_it_stays() -> None:
    skills = {"tiny": skill("tiny", "Dry run first.")}
    first = initial_views([(definition("a", skills=("tiny",), resources=RICH), "full")], skills, ESTIMATE, 500)
    fitted = fit(first, skills, ESTIMATE, render_all(first, skills, ESTIMATE).tokens - 1)
    (shown,) = fitted.views
    assert (shown.level, shown.inline, shown.resource_count) == ("full", frozenset({"tiny"}), 1)


@pytest.mark.req("SKILL-06", "SKILL-07")
def test_a_skill_that_several_tools_need_is_told_once_and_paid_once() -> None:
    both = [definition("a", 100, skills=("howto",)), definition("b", 80, skills=("howto",))]
    first = initial_views([(one, "full") for one in both], SKILLS, ESTIMATE, 500)
    assert [one.inline for one in first] == [{"howto"}, frozenset()]
    alone = render_all(initial_views([(both[0], "full")], SKILLS, ESTIMATE, 0), SKILLS, ESTIMATE)
    together = render_all(initial_views([(one, "full") for one in both], SKILLS, ESTIMATE, 0), SKILLS, ESTIMATE)
    assert len(alone.skills) == len(together.skills) == 1


def test_an_empty_answer_is_legal() -> None:
    assert fit((), SKILLS, ESTIMATE, 0).tools == ()
    assert fit(initial_views([(definition("a"), "full")], SKILLS, ESTIMATE, 9), SKILLS, ESTIMATE, 0).tools == ()


def test_a_thousand_tools_are_fitted_by_a_binary_search() -> None:
    many: list[tuple[Definition, Any]] = [
        (definition(f"t{n:04}", 100 - n % 50, requires=(f"t{n + 1:04}",) if n < 999 else ()), "full")
        for n in range(1000)
    ]
    counted = Counting()
    first = initial_views(many, SKILLS, counted, 500)
    fit(first, SKILLS, counted, 2000)
    assert counted.calls <= 12 * len(many), "a binary search"


class Steep:
    """To this one a whole is more than the sum of its parts."""

    by = "squares"

    def count(self, text: bytes) -> int:
        return len(text) ** 2 // 1000


@given(answers(), budgets)
def test_the_whole_has_to_fit_whatever_the_parts_come_to(tools: tuple[ToolView, ...], budget: int) -> None:
    fitted = fit(tools, SKILLS, Steep(), budget)
    assert fitted.tokens <= budget or not fitted.views


class Counting:
    by = "calls"

    def __init__(self) -> None:
        self.calls = 0

    def count(self, text: bytes) -> int:
        self.calls += 1
        return ESTIMATE.count(text)


# --- through the whole way -------------------------------------------------------------------------------------------


@pytest.mark.req("EVAL-35", "EVAL-16")
@settings(deadline=None)
@given(cases(), st.integers(0, 600), st.integers(0, 600))
def test_a_request_with_more_room_gets_no_less(case: Any, one: int, other: int) -> None:
    domain = Domain.load(case.pack)

    def found(budget: int) -> dict[str, str]:
        payload = asked(domain, case.intent, case.facts, constraints={"max_tokens_budget": budget})
        assert payload["diagnostics"]["x-tokens"]["count"] <= budget or not payload["macro_tools"]
        return {tool["name"]: tool["disclosure_level"] for tool in payload["macro_tools"]}

    less, more = found(min(one, other)), found(max(one, other))
    assert less.keys() <= more.keys()
    assert all(ORDER[less[name]] <= ORDER[more[name]] for name in less)


@pytest.mark.req("SKILL-15", "SKILL-17")
def test_the_budget_of_a_request_turns_skills_into_references() -> None:
    rules = """
    mandatory("t"). macro("t", "Does it."). macro_step("t", 1, "look").
    needs_skill("t", "howto"). needs_resource("t", "a.txt", "It matters.", 50).
    """
    domain = Domain.load(pack(rules, skills=[SKILLS["howto"]]))
    free = asked(domain)
    assert free["macro_tools"][0]["context_injection"]["skills"][0]["inline"] is True
    assert free["required_skills"] == []
    tight = asked(domain, constraints={"max_tokens_budget": free["diagnostics"]["x-tokens"]["count"] - 20})
    (tool,) = tight["macro_tools"]
    assert tool["disclosure_level"] == "full"
    assert tool["context_injection"]["skills"] == [{"skill_id": "howto", "inline": False}]
    assert tool["context_injection"]["context_resources"] == [
        {"uri": "file://a.txt", "relevance": "It matters.", "priority": 50}
    ]
    assert [one["skill_id"] for one in tight["required_skills"]] == ["howto"]
