"""A definition at a level of detail: which members there are, and which there are not."""

from __future__ import annotations

from typing import Any

import jsonschema_rs
import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from manglecp.intent.definition import ChainStep, Definition, Resource, SafetyData
from manglecp.intent.domain import Domain
from manglecp.intent.identity import Identity
from manglecp.intent.rendering import ToolView, render, required_skills, skill as rendered_skill
from manglecp.wire.messages import UNSET
from tests.intent.answering import asked, tools
from tests.intent.packs import SCHEMA, action, cases, pack, skill

SKILLS = {"howto": skill("howto", "# How to\n\nRead it.\n\nThen more.\n"), "tips": skill("tips")}

DIALECT = "https://json-schema.org/draft/2020-12/schema"
ALWAYS = {
    "full": {"macro_id", "name", "description", "disclosure_level", "input_schema", "safety"},
    "condensed": {"macro_id", "name", "description", "disclosure_level"},
    "minimal": {"macro_id", "name", "disclosure_level"},
}
SOMETIMES = {
    "full": {"output_schema", "context_injection", "validity", "metadata"},
    "condensed": {"metadata"},
    "minimal": set(),
}

definitions = st.builds(
    Definition,
    tool=st.text(min_size=1, max_size=10),
    macro_id=st.just("m-0123456789abcdef"),
    description=st.text(max_size=20),
    summary=st.sampled_from(["Does it.", ""]),
    steps=st.just((ChainStep(1, "look"),)),
    input_schema=st.just({"type": "object", "properties": {}, "additionalProperties": False}),
    output_schema=st.sampled_from([None, {"type": "object"}]),
    safety=st.builds(
        SafetyData,
        requires_user_confirmation=st.booleans(),
        side_effects=st.sampled_from([("none",), ("filesystem", "network")]),
        reversible=st.booleans(),
        idempotent=st.booleans(),
    ),
    not_before=st.sampled_from([None, 0]),
    expires_at=st.sampled_from([None, 10**18]),
    instructions=st.sampled_from(["", "Mind it."]),
    skills=st.sampled_from([(), ("howto",), ("howto", "tips")]),
    resources=st.sampled_from([(), (Resource("file://a", "", 3),), (Resource("file://a", "Why.", 3),)]),
    source_rules=st.sampled_from([(), ("mandatory",)]),
    phase=st.sampled_from(["skeleton", "flesh", "dependency"]),
)


@pytest.mark.req("TOOL-03", "TOOL-04", "TOOL-05", "TOOL-06", "TOOL-07", "TOOL-11", "SKILL-05", "SKILL-09", "SKILL-10")
@given(definitions, st.sampled_from(["full", "condensed", "minimal"]), st.sets(st.sampled_from(sorted(SKILLS))))
def test_the_presence_table(definition: Definition, level: Any, inline: set[str]) -> None:
    shown = ToolView(definition, level, frozenset(inline), len(definition.resources))
    tool = msgspec.to_builtins(render(shown, SKILLS))
    assert ALWAYS[level] <= tool.keys() <= ALWAYS[level] | SOMETIMES[level]
    assert tool["disclosure_level"] == level
    if level != "full":
        return
    assert ("output_schema" in tool) == (definition.output_schema is not None)
    assert type(tool["safety"]["requires_user_confirmation"]) is bool
    assert all(type(effect) is str for effect in tool["safety"]["side_effects"])
    assert tool["safety"].get("reversible", False) == definition.safety.reversible
    assert tool["safety"].get("idempotent", False) == definition.safety.idempotent
    assert ("validity" in tool) == (definition.not_before is not None or definition.expires_at is not None)
    context = tool.get("context_injection", {})
    assert context.keys() <= {"instructions", "skills", "context_resources"}
    assert all(context.values()), "what is empty is not there"
    for one in context.get("skills", ()):
        assert one.keys() == ({"skill_id", "inline", "content"} if one["inline"] else {"skill_id", "inline"})
        assert one["inline"] == (one["skill_id"] in inline)
    for one in context.get("context_resources", ()):
        assert {"uri"} <= one.keys() <= {"uri", "relevance", "priority"}
    assert {one.skill_id for one in required_skills([shown], SKILLS)} == set(definition.skills) - inline


@pytest.mark.req("SKILL-01", "SKILL-02", "SKILL-07", "SKILL-08")
def test_a_skill_that_is_referred_to_has_all_members_and_a_summary_as_its_content() -> None:
    long = skill("a", "# A\n\nThe gist.\n\n" + "The rest. " * 900)
    sources = ({"uri": "file://x", "type": "text/csv", "description": "X."},)
    rich = skill("b", "word " * 900, content_type="text/plain", resources=sources)
    rules = """
    mandatory("t"). macro("t", "Does it."). macro_step("t", 1, "look"). needs_skill("t", "a"). needs_skill("t", "b").
    mandatory("u"). macro("u", "Does it."). macro_step("u", 1, "look"). needs_skill("u", "a").
    """
    one, other = asked(pack(rules, skills=[long, rich]))["required_skills"]
    assert one == {"skill_id": "a", "name": "A", "description": "About a.", "content": "The gist."}
    assert other.pop("content").startswith("word word")
    assert other == {
        "skill_id": "b",
        "name": "B",
        "description": "About b.",
        "content_type": "text/plain",
        "resources": list(sources),
    }


# --- through the whole way -------------------------------------------------------------------------------------------

FULL = """
mandatory("t") :- intent("observe").
macro("t", "Does it.\\nIn two lines. And more.").
macro_step("t", 1, "look").
macro_output("t", {/type : "object"}).
instruction("t", 1, "Mind it.").
needs_skill("t", "howto").
needs_resource("t", "a.txt", "Because.", 7).
needs_resource("t", "b.txt", "", 5).
valid_for("t", Span) :- Span = fn:duration:parse("1h").
"""


@pytest.mark.req("TOOL-05", "TOOL-10", "TOOL-17", "TOOL-18", "TOOL-20", "SKILL-09", "SKILL-10", "SKILL-12", "SKILL-19")
def test_everything_about_a_tool() -> None:
    tool = tools(pack(FULL, skills=[SKILLS["howto"]]))["t"]
    assert tool.pop("macro_id").startswith("m-")
    assert tool == {
        "name": "t",
        "description": "Does it.\nIn two lines. And more.",
        "disclosure_level": "full",
        "input_schema": {
            "type": "object",
            "properties": {"path": {"type": "string"}, "depth": {"type": "integer"}},
            "required": ["path"],
            "additionalProperties": False,
        },
        "output_schema": {"type": "object"},
        "context_injection": {
            "instructions": "Mind it.",
            "skills": [{"skill_id": "howto", "inline": True, "content": "# How to\n\nRead it.\n\nThen more."}],
            "context_resources": [
                {"uri": "file://a.txt", "relevance": "Because.", "priority": 7},
                {"uri": "file://b.txt", "priority": 5},
            ],
        },
        "safety": {"requires_user_confirmation": False, "side_effects": ["none"]},
        "validity": {"not_before": "2026-01-15T12:00:00Z", "expires_at": "2026-01-15T13:00:00Z"},
        "metadata": {"selection_phase": "skeleton", "score": 100},
    }


@pytest.mark.req("TOOL-06", "TOOL-07")
def test_one_line_and_nothing_but_the_name() -> None:
    domain = Domain.load(pack(FULL, skills=[SKILLS["howto"]]))
    condensed = tools(domain, options={"disclosure_preference": "condensed"})["t"]
    assert condensed == {
        "macro_id": condensed["macro_id"],
        "name": "t",
        "description": "Does it.",
        "disclosure_level": "condensed",
    }
    minimal = tools(domain, options={"disclosure_preference": "minimal"})["t"]
    assert minimal == {"macro_id": condensed["macro_id"], "name": "t", "disclosure_level": "minimal"}
    summarised = FULL + 'macro_summary("t", "In short:\\n it does.").'
    found = tools(pack(summarised, skills=[SKILLS["howto"]]), options={"disclosure_preference": "condensed"})["t"]
    assert found["description"] == "In short: it does."


@pytest.mark.req("TOOL-20")
def test_whoever_asks_why_is_told_the_predicates_and_no_rule_text() -> None:
    rules = """
    mandatory("t") :- wanted("t", Word), Word != "secret phrase".
    wanted("t", Word) :- seen(Word), noted(Word).
    noted(Word) :- seen(Word).
    macro("t", "Does it."). macro_step("t", 1, "look").
    relevant("u", 90) :- seen(_). macro("u", "Does u."). macro_step("u", 1, "look").
    """
    found = tools(pack(rules, schema=SCHEMA), facts=[("seen", "red")], options={"include_proof_hints": True})
    assert found["t"]["metadata"]["source_rules"] == ["wanted", "noted"]
    assert found["u"]["metadata"]["source_rules"] == ["relevant"]
    assert "secret phrase" not in str(found)
    without = tools(pack(rules, schema=SCHEMA), facts=[("seen", "red")])
    assert without["t"]["metadata"] == {"selection_phase": "skeleton", "score": 100}


@pytest.mark.req("TOOL-01", "TOOL-05", "TOOL-06", "TOOL-07", "TOOL-08", "TOOL-11", "TOOL-13")
@settings(deadline=None)
@given(cases(), st.sampled_from(["full", "condensed", "minimal", "adaptive"]))
def test_every_tool_of_every_answer(case: Any, preference: str) -> None:
    found = asked(
        case.pack,
        case.intent,
        case.facts,
        identity=Identity("someone", case.permissions, "user"),
        options={"disclosure_preference": preference},
    )["macro_tools"]
    assert len({tool["macro_id"] for tool in found}) == len(found)
    for tool in found:
        level = tool["disclosure_level"]
        assert ALWAYS[level] <= tool.keys() <= ALWAYS[level] | SOMETIMES[level]
        assert preference in ("adaptive", level)
        if level == "full":
            jsonschema_rs.meta.validate({"$schema": DIALECT, **tool["input_schema"]})
            assert tool["safety"]["side_effects"]


@pytest.mark.req("SKILL-03", "SKILL-04")
def test_a_skill_is_there_with_its_predicate_and_not_without() -> None:
    rules = """
    mandatory("t"). macro("t", "Does it."). macro_step("t", 1, "look").
    uses_react() :- seen("react").
    needs_skill("t", "howto") :- uses_react().
    macro("unselected", "Not now."). needs_skill("unselected", "tips").
    """
    domain = Domain.load(pack(rules, schema=SCHEMA, skills=SKILLS.values(), actions=[action("look")]))
    assert "context_injection" not in tools(domain)["t"]
    assert asked(domain)["required_skills"] == []
    found = tools(domain, facts=[("seen", "react")])["t"]["context_injection"]
    assert [one["skill_id"] for one in found["skills"]] == ["howto"]


def test_resources_of_a_skill_are_addresses_like_those_of_a_tool() -> None:
    addresses = ("javascript:alert(1)", "https://me:secret@example.invalid/a", "guide.md", " ")
    rich = skill("b", "word", resources=tuple({"uri": address} for address in addresses))
    told = rendered_skill(rich).resources
    assert isinstance(told, tuple)
    assert [one.uri for one in told] == ["https://example.invalid/a", "file://guide.md"]
    assert rendered_skill(skill("b", "word", resources=({"uri": "javascript:x"},))).resources is UNSET
