"""How much of each tool is shown."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from manglecp.intent.budget import cap_tools, level_of, levels
from manglecp.intent.definition import Definition, SafetyData
from manglecp.intent.domain import Domain
from manglecp.mangle import closure
from manglecp.pack import Disclosure
from tests.intent.answering import asked, tools
from tests.intent.packs import pack


def tool(name: str, score: int, requires: tuple[str, ...] = ()) -> Definition:
    return Definition(
        tool=name,
        macro_id=f"m-{name}",
        chain_digest="",
        description="",
        summary="",
        steps=(),
        input_schema={},
        safety=SafetyData(requires_user_confirmation=False, side_effects=()),
        score=score,
        requires=requires,
    )


DEFAULT = Disclosure()


@pytest.mark.req("EVAL-34")
@pytest.mark.parametrize(
    ("score", "level"),
    [
        (100, "full"),
        (70, "full"),
        (69, "condensed"),
        (40, "condensed"),
        (39, "minimal"),
        (20, "minimal"),
        (19, None),
        (0, None),
    ],
)
def test_levels_go_by_score(score: int, level: str | None) -> None:
    assert level_of(score, DEFAULT) == level
    for preference in ("full", "condensed", "minimal"):
        assert level_of(score, DEFAULT, preference) == preference


NAMES = "abcdef"
graphs = st.lists(
    st.builds(
        tool, st.sampled_from(NAMES), st.integers(0, 100), st.lists(st.sampled_from(NAMES), max_size=2).map(tuple)
    ),
    unique_by=lambda tool: tool.tool,
).map(lambda found: _known(found))


def _known(found: list[Definition]) -> list[Definition]:
    """An answer of the rules is closed: what a tool requires is in it."""
    names = {tool.tool for tool in found}
    return [tool(t.tool, t.score, tuple(sorted({n for n in t.requires if n in names} - {t.tool}))) for t in found]


def assert_closed(tools: list[Definition]) -> None:
    names = {tool.tool for tool in tools}
    assert all(names.issuperset(tool.requires) for tool in tools)


@pytest.mark.req("EVAL-30")
@given(graphs, st.integers(0, 7))
def test_the_cap_keeps_the_best_with_what_they_need(tools: list[Definition], most: int) -> None:
    kept = cap_tools(tools, most)
    assert len(kept) <= most or not kept
    assert_closed(kept)
    assert kept == sorted(kept, key=lambda tool: (-tool.score, tool.tool))
    assert kept == cap_tools(tools[::-1], most)
    requires = {tool.tool: tool.requires for tool in tools}
    names = {tool.tool for tool in kept}
    for tool in tools:  # whatever was left out had no room
        assert tool.tool in names or len(names | closure([tool.tool], requires)) > most
    if len(tools) <= most:
        assert len(kept) == len(tools)


def test_a_tool_that_does_not_fit_with_its_dependencies_makes_room_for_a_lesser_one() -> None:
    tools = [tool("a", 100), tool("b", 90, ("c", "d")), tool("c", 80), tool("d", 80), tool("e", 50)]
    assert [one.tool for one in cap_tools(tools, 3)] == ["a", "c", "d"]
    assert [one.tool for one in cap_tools(tools, 1)] == ["a"]
    assert [one.tool for one in cap_tools(tools, 4)] == ["a", "b", "c", "d"]
    assert cap_tools(tools, 0) == []
    assert len(cap_tools(tools, None)) == 5
    assert [one.tool for one in cap_tools(tools, 1, {"m-e"})] == ["e"]
    assert [one.tool for one in cap_tools(tools, 2, {"m-e"})] == ["a", "e"]


def test_more_room_may_bring_a_better_tool_in_place_of_a_lesser_one() -> None:
    """The cap is not monotone, as decisions.md says."""
    tools = [tool("better", 90, ("base",)), tool("base", 10), tool("lesser", 50)]
    assert [one.tool for one in cap_tools(tools, 1)] == ["lesser"]
    assert [one.tool for one in cap_tools(tools, 2)] == ["better", "base"]


def test_a_tool_that_was_asked_for_again_is_not_what_the_cap_drops() -> None:
    rules = "".join(
        f'macro("{name}", "It."). macro_step("{name}", 1, "look"). relevant("{name}", {score}).\n'
        for name, score in (("best", 90), ("other", 80), ("last", 10))
    )
    domain = Domain.load(pack(rules))
    last = tools(domain, options={"disclosure_preference": "full"})["last"]["macro_id"]
    again = [("disclosure_upgrade", last)]
    assert tools(domain, constraints={"max_tools_returned": 1}).keys() == {"best"}
    assert tools(domain, facts=again, constraints={"max_tools_returned": 1}).keys() == {"last"}
    assert tools(domain, facts=again, constraints={"max_tools_returned": 2}).keys() == {"best", "last"}


@given(graphs, st.sampled_from(["adaptive", "full", "condensed", "minimal"]), st.sets(st.sampled_from(NAMES)))
def test_what_is_shown_has_its_dependencies(tools: list[Definition], preference: Any, upgraded: set[str]) -> None:
    found = levels(tools, DEFAULT, preference, {f"m-{name}" for name in upgraded})
    assert_closed([tool for tool in tools if tool.tool in found])
    for tool in tools:
        if tool.tool in upgraded:
            assert found[tool.tool] == "full"
        else:
            usual = level_of(tool.score, DEFAULT, preference)
            assert found.get(tool.tool) == usual or (usual is None and found[tool.tool] == "minimal")


# --- through the whole way -------------------------------------------------------------------------------------------

SCORES = {"s100": 100, "s70": 70, "s69": 69, "s40": 40, "s39": 39, "s20": 20, "s19": 19}
RULES = "".join(
    f'relevant("{name}", {score}). macro("{name}", "Does {name}. And more."). macro_step("{name}", 1, "look").\n'
    for name, score in SCORES.items()
)


def shown(payload: dict[str, Any]) -> dict[str, str]:
    return {tool["name"]: tool["disclosure_level"] for tool in payload["macro_tools"]}


@pytest.mark.req("EVAL-34", "TOOL-04")
def test_adaptive_disclosure_by_the_default_thresholds() -> None:
    assert shown(asked(pack(RULES))) == {
        "s100": "full",
        "s70": "full",
        "s69": "condensed",
        "s40": "condensed",
        "s39": "minimal",
        "s20": "minimal",
    }


@pytest.mark.req("EVAL-37")
def test_thresholds_are_settings() -> None:
    settings = Disclosure(full=90, condensed=70, minimal=19)
    assert shown(asked(pack(RULES, disclosure=settings))) == {
        "s100": "full",
        "s70": "condensed",
        "s69": "minimal",
        "s40": "minimal",
        "s39": "minimal",
        "s20": "minimal",
        "s19": "minimal",
    }


@pytest.mark.req("EVAL-33")
@pytest.mark.parametrize("level", ["full", "condensed", "minimal"])
def test_a_preference_shows_every_tool_at_that_level(level: str) -> None:
    assert shown(asked(pack(RULES), options={"disclosure_preference": level})) == dict.fromkeys(SCORES, level)


@pytest.mark.req("EVAL-38", "EVAL-39")
@pytest.mark.parametrize("preference", ["adaptive", "minimal"])
def test_an_upgrade_shows_the_tool_in_full_and_no_other(preference: str) -> None:
    domain = Domain.load(pack(RULES))
    options = {"disclosure_preference": preference}
    before = asked(domain, options=options)
    ids = {tool["name"]: tool["macro_id"] for tool in before["macro_tools"]}
    after = asked(domain, facts=[("disclosure_upgrade", ids["s39"])], options=options)
    assert shown(after) == {**shown(before), "s39": "full"}


@pytest.mark.req("EVAL-39")
def test_an_upgrade_reaches_a_tool_that_its_score_leaves_out() -> None:
    domain = Domain.load(pack(RULES))
    known = tools(domain, options={"disclosure_preference": "minimal"})["s19"]["macro_id"]
    assert "s19" not in tools(domain)
    assert tools(domain, facts=[("disclosure_upgrade", known)])["s19"]["disclosure_level"] == "full"


@pytest.mark.req("EVAL-38")
def test_an_upgrade_of_what_is_not_selected_is_ignored() -> None:
    domain = Domain.load(pack(RULES))
    assert shown(asked(domain, facts=[("disclosure_upgrade", "m-0000000000000000")])) == shown(asked(domain))


@pytest.mark.req("EVAL-16", "EVAL-30")
def test_a_dependency_is_shown_even_below_the_lowest_threshold() -> None:
    rules = RULES + 'requires("s100", "aid"). macro("aid", "Aids."). macro_step("aid", 1, "look").'
    settings = Disclosure(full=99, condensed=95, minimal=90)
    assert shown(asked(pack(rules, disclosure=settings))) == {"s100": "full", "aid": "minimal"}
    assert shown(asked(pack(rules), constraints={"max_tools_returned": 2})) == {"s100": "full", "aid": "full"}
    assert shown(asked(pack(rules), constraints={"max_tools_returned": 1})) == {"aid": "full"}
    assert shown(asked(pack(rules), constraints={"max_tools_returned": 0})) == {}
