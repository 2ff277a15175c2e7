"""From derived facts to definitions."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, strategies as st

from manglecp.base.cache import LruCache
from manglecp.intent.composition import MAX_DEFINITIONS
from manglecp.intent.definition import Argument, ChainStep, Definition, Flaw, Undo
from manglecp.intent.domain import Domain
from manglecp.intent.evaluation import evaluate
from manglecp.intent.identity import ANONYMOUS
from manglecp.wire import WireError
from tests.intent.answering import composer, tools
from tests.intent.packs import SCHEMA, Case, action, cases, clock, pack, request

LOOK = action("look")
"""Takes a path and, if it likes, a depth."""
PATCH = action(
    "patch", params={"path": {"type": "string"}, "text": {"type": "string"}}, effects=("filesystem",), tier=1
)
RESTORE = action(
    "restore", params={"path": {"type": "string"}, "copy": {"type": "string"}}, effects=("filesystem",), tier=1
)
OPEN = action("loose", params={}, input_schema={"type": "object", "properties": {"a": {"type": "string"}}})
ACTIONS = (LOOK, PATCH, RESTORE, OPEN)

TOOL = """
mandatory("t").
macro("t", "Does it.").
"""


def evaluated(rules: str, facts: Iterable[Any] = ()) -> Any:
    domain = Domain.load(pack(TOOL + rules, schema=SCHEMA, actions=ACTIONS, skills=("howto", "other")))
    return evaluate(domain, request(facts=facts), ANONYMOUS, clock=clock)


def composed(rules: str, facts: Iterable[Any] = ()) -> Definition:
    return composer(evaluated(rules, facts)).compose("t")


def call(param: str, name: str | None = None) -> Argument:
    return Argument(param, "call", name or param)


# --- steps -----------------------------------------------------------------------------------------------------------


@pytest.mark.req("TOOL-23")
def test_one_action_behind_a_tool() -> None:
    made = composed('macro_step("t", 1, "look").')
    assert made.steps == (ChainStep(1, "look", (call("path"), call("depth"))),)
    assert made.ordered
    assert made.results == ()
    assert made.input_schema["required"] == ["path"]


@pytest.mark.req("TOOL-09", "TOOL-24")
def test_a_chain_runs_in_the_order_of_its_numbers_and_exposes_what_is_left_open() -> None:
    made = composed(
        """
        macro_step("t", 30, "patch"). macro_step("t", 4, "look"). macro_step("t", 2, "look").
        arg_value("t", 2, "depth", 7).
        arg_from("t", 4, "path", "file").
        arg_value("t", 4, "depth", 1).
        arg_step("t", 30, "text", 4, "/lines/0").
        arg_value("t", 30, "path", "out.txt").
        """
    )
    assert made.steps == (
        ChainStep(2, "look", (call("path"), Argument("depth", "value", 7))),
        ChainStep(4, "look", (call("path", "file"), Argument("depth", "value", 1))),
        ChainStep(30, "patch", (Argument("path", "value", "out.txt"), Argument("text", "step", "/lines/0", 4))),
    )
    assert list(made.input_schema["properties"]) == ["path", "file"]


@pytest.mark.req("TOOL-09")
def test_ten_steps_may_expose_two_arguments() -> None:
    steps = "".join(f'macro_step("t", {n}, "look"). arg_from("t", {n}, "depth", "depth").' for n in range(1, 11))
    made = composed(steps + 'arg_value("t", 3, "path", "here").')
    assert len(made.steps) == 10
    assert made.input_schema["properties"].keys() == {"path", "depth"}


@pytest.mark.req("TOOL-09")
def test_a_tool_that_declares_its_arguments_leaves_optional_ones_to_the_actions() -> None:
    declared = composed('macro_step("t", 1, "look"). macro_param("t", "path", {/type : "string"}).')
    assert declared.input_schema["properties"].keys() == {"path"}
    assert declared.steps[0].arguments == (call("path"),)
    other = composed('macro_step("t", 1, "look"). macro_param("t", "note", {/type : "string"}).')
    assert list(other.input_schema["properties"]) == ["path", "note"], "what an action needs is asked for in any case"


def test_maps_and_structs_are_schemas() -> None:
    made = composed(
        """
        macro_step("t", 1, "look").
        macro_param("t", "path", Schema) :- Schema = ["type" : "string", "minLength" : 1].
        macro_param("t", "depth", Schema) :- Schema = {/type : "integer", /default : 2, /enum : [1, 2]}.
        macro_output("t", {/type : "object", /required : ["a"]}).
        optional_param("t", "path").
        """
    )
    assert made.input_schema["properties"] == {
        "path": {"type": "string", "minLength": 1},
        "depth": {"type": "integer", "default": 2, "enum": [1, 2]},
    }
    assert "required" not in made.input_schema
    assert made.output_schema == {"type": "object", "required": ["a"]}


@pytest.mark.parametrize(
    ("rules", "told"),
    [
        ('macro("t", D)', "macro(Tool, …)"),
        ('macro_summary("t", D)', "macro_summary(Tool, …)"),
        ('macro_param("t", "p", D)', "macro_param(Tool, 'p', …)"),
        ('macro_step("t", 1, A)', "macro_step(Tool, 1, …)"),
        ('arg_value("t", 1, "path", D)', "arg_value(Tool, 1, 'path', …)"),
        ('arg_from("t", 1, "path", D)', "arg_from(Tool, 1, 'path', …)"),
        ('on_error("t", 1, D)', "on_error(Tool, 1, …)"),
        ('macro_result("t", "k", 1, D)', "macro_result(Tool, 'k', …)"),
        ('undo_step("t", 1, A)', "undo_step(Tool, 1, …)"),
        ('macro_output("t", D)', "macro_output(Tool, …)"),
    ],
)
def test_a_tool_with_two_values_where_one_counts_is_not_composed(rules: str, told: str) -> None:
    step = 'macro_step("t", 1, "look").\n'
    given = f"{step}{rules} :- intent(_), action(A), seen(D)."
    facts = [("seen", "a"), ("seen", "b")]
    with pytest.raises(Flaw) as refused:
        composed(given, facts)
    assert refused.value.message == f"t: {told} has two values"
    assert refused.value.fix == "let one of them hold only where the other does not"


def test_a_fixed_value_goes_before_an_argument_and_that_before_a_result() -> None:
    step = 'macro_step("t", 1, "look"). macro_step("t", 2, "look").'
    found = 'arg_step("t", 2, "path", 1, "/a").'
    named = 'arg_from("t", 2, "path", "file") :- intent("observe").'
    assert composed(step + found).steps[1].arguments[0] == Argument("path", "step", "/a", 1)
    assert composed(step + found + named).steps[1].arguments[0] == call("path", "file")
    fixed = 'arg_value("t", 2, "path", "x") :- intent(_).'
    assert composed(step + found + named + fixed).steps[1].arguments[0] == Argument("path", "value", "x")


@pytest.mark.req("TOOL-22")
def test_facts_flow_into_the_chain_as_frozen_values() -> None:
    rules = 'macro_step("t", 1, "look"). arg_value("t", 1, "path", Word) :- seen(Word).'
    assert composed(rules, [("seen", "red")]).steps[0].arguments[0] == Argument("path", "value", "red")
    assert composed(rules).steps[0].arguments[0] == call("path")


def test_steps_in_a_partial_order() -> None:
    made = composed(
        """
        macro_step("t", 1, "look"). macro_step("t", 2, "look"). macro_step("t", 3, "look"). macro_step("t", 4, "look").
        step_after("t", 3, 1). step_after("t", 3, 2). step_after("t", 2, N) :- N = 99.
        arg_step("t", 1, "path", 4, "/a").
        """
    )
    assert not made.ordered
    assert [step.after for step in made.steps] == [(4,), (), (1, 2), ()]


def test_undoing_and_results() -> None:
    made = composed(
        """
        macro_step("t", 1, "patch"). on_error("t", 1, "undo").
        undo_step("t", 1, "restore"). undo_in("t", 1, "path", "path"). undo_out("t", 1, "copy", "/copy").
        undo_step("t", 9, "look"). undo_value("t", 9, "path", "nowhere").
        macro_result("t", "where", 1, "/path"). macro_result("t", "all", 1, "").
        """
    )
    undo = Undo("restore", (Argument("copy", "step", "/copy", 1), call("path")))
    assert made.steps == (ChainStep(1, "patch", (call("path"), call("text")), on_error="undo", undo=undo),)
    assert made.results == (("all", 1, ""), ("where", 1, "/path"))


def test_an_action_that_takes_anything_takes_what_it_does_not_name() -> None:
    made = composed('macro_step("t", 1, "loose"). arg_value("t", 1, "b", [1, 2]).')
    assert made.steps[0].arguments == (call("a"), Argument("b", "value", [1, 2]))


def test_what_clients_freeze_into_chains_does_not_pile_up() -> None:
    rules = TOOL + 'macro_step("t", 1, "look"). arg_value("t", 1, "path", Word) :- seen(Word).'
    domain = Domain.load(pack(rules, schema=SCHEMA, actions=ACTIONS))
    tracemalloc.start()
    try:
        for n in range(50):
            text = f"{n} " * 50_000
            evaluation = evaluate(domain, request(facts=[("seen", text)]), ANONYMOUS, clock=clock)
            assert composer(evaluation).compose("t").steps[0].arguments[0].value == text
            del evaluation, text
        gc.collect()
        left, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert left < 1_000_000, "fifty texts of 150 KB were frozen"


# --- flaws -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        (
            'macro_step("t", 1, "look"). macro_step("t", 2, "odd").',
            "look and odd|odd and look",
        ),
        ('macro_step("t", 1, "look"). arg_value("t", 1, Param, 1) :- seen(Param).', "does not take"),
        ('macro_step("t", 1, "look"). arg_step("t", 1, "path", N, "") :- N = 1.', "does not run before"),
        (
            'macro_step("t", 1, "look"). macro_step("t", 2, "look"). arg_step("t", 1, "path", 2, "/a").',
            "does not run before",
        ),
        ('macro_step("t", 1, "look"). arg_step("t", 1, "path", N, "") :- N = 7.', "does not run before"),
        (
            'macro_step("t", 1, "look"). macro_step("t", 2, "look"). step_after("t", 1, 2). step_after("t", 2, 1).',
            "waits for itself",
        ),
        ('macro_step("t", 1, "look"). macro_result("t", "k", N, "") :- N = 3.', "not in the chain"),
        ('macro_step("t", 1, "look"). macro_result("t", "k", 1, Part) :- seen(Part).', "is not a JSON Pointer"),
        ('macro_step("t", 1, "look"). undo_step("t", 1, "look").', "lacks 'path'"),
        ('macro_step("t", 1, "look"). on_error("t", 1, What) :- seen(What).', "on_error of step 1 is 'x'"),
        ('macro_step("t", 1, "look"). macro_param("t", "path", Schema) :- seen(Schema).', "is not an object"),
        ('macro_step("t", 1, "look"). macro_param("t", "path", {/type : Kind}) :- seen(Kind).', "no JSON Schema"),
        ('macro_step("t", 1, "look"). macro_output("t", Schema) :- seen(Schema).', "is not an object"),
        ('macro_step("t", 1, "look"). arg_value("t", 1, "path", [1 : W]) :- seen(W).', "cannot be written as JSON"),
    ],
)
def test_what_makes_no_tool_is_left_out_with_what_needs_it_and_the_rest_stays(rules: str, message: str) -> None:
    odd = action("odd", params={"path": {"type": "integer"}})
    more = """
    on_error("t", 1, "stop") :- intent("some other"). # a request could change it, so loading does not judge it
    mandatory("needy"). macro("needy", "Needs it."). macro_step("needy", 1, "look"). requires("needy", "t").
    mandatory("neediest"). macro("neediest", "Needs that."). macro_step("neediest", 1, "look").
    requires("neediest", "needy").
    mandatory("fine"). macro("fine", "Is fine."). macro_step("fine", 1, "look").
    """
    domain = Domain.load(pack(TOOL + rules + more, schema=SCHEMA, actions=(*ACTIONS, odd)))
    evaluation = evaluate(domain, request(facts=[("seen", "x")]), ANONYMOUS, clock=clock)
    for _ in range(2):  # a flaw is remembered like a chain
        with pytest.raises(Flaw, match=message):
            composer(evaluation).compose("t")
    definitions, flaws = composer(evaluation).compose_all([one.tool for one in evaluation.selected])
    assert list(definitions) == ["fine"]
    assert [(tool, flaw.message[:3]) for tool, flaw in flaws.items()] == [("t", "t: ")]
    assert tools(domain, facts=[("seen", "x")]).keys() == {"fine"}


# --- what comes with it ----------------------------------------------------------------------------------------------


@pytest.mark.req("TOOL-22", "SKILL-13")
def test_context_is_what_rules_prove_in_their_order() -> None:
    made = composed(
        """
        macro_step("t", 1, "look").
        macro("other", "x"). instruction("other", 1, "Not this.").
        instruction("t", 20, "Then this."). instruction("t", 3, "First this.").
        needs_skill("t", "other"). needs_skill("t", "howto").
        needs_resource("t", "low.txt", "Some.", 10).
        needs_resource("t", "https://example.invalid/high", "Much.", P) :- P = fn:mult(3, 100).
        """
    )
    assert made.instructions == "First this.\nThen this."
    assert made.skills == ("howto", "other")
    assert [(one.uri, one.priority) for one in made.resources] == [
        ("https://example.invalid/high", 100),
        ("file://low.txt", 10),
    ]


@pytest.mark.req("SKILL-03", "SKILL-14")
def test_nothing_is_injected_that_no_rule_proves() -> None:
    rules = 'macro_step("t", 1, "look"). needs_skill("t", "howto") :- seen("red"). instruction("t", 1, W) :- seen(W).'
    without = composed(rules)
    assert (without.instructions, without.skills, without.resources) == ("", (), ())
    assert composed(rules, [("seen", "green")]).skills == ()
    assert composed(rules, [("seen", "red")]).skills == ("howto",)


def test_only_tools_of_the_answer_are_required() -> None:
    made = composed(
        """
        macro_step("t", 1, "look"). requires("t", "u").
        macro("u", "Helps."). macro_step("u", 1, "look").
        """
    )
    assert made.requires == ("u",)


@pytest.mark.req("TOOL-25")
def test_the_chain_depends_on_the_facts() -> None:
    rules = """
    macro_step("t", 1, "look").
    macro_step("t", 2, "patch") :- seen("red").
    """
    assert len(composed(rules).steps) == 1
    assert len(composed(rules, [("seen", "red")]).steps) == 2


@given(st.permutations(range(6)))
def test_the_order_in_which_rules_stand_means_nothing(order: list[int]) -> None:
    clauses = (
        'macro_step("t", 1, "look").',
        'macro_step("t", 2, "patch").',
        'arg_step("t", 2, "text", 1, "/x").',
        'arg_value("t", 1, "depth", 2).',
        'instruction("t", 1, "A."). instruction("t", 1, "B.").',
        'needs_resource("t", "a", "w", 1). needs_resource("t", "b", "w", 1).',
    )
    assert composed(" ".join(clauses[i] for i in order)) == composed(" ".join(clauses))


@given(cases(), st.lists(st.sampled_from([("seen", "red"), ("seen", "green")]), max_size=3))
def test_what_is_kept_is_what_would_be_composed(case: Case, more: list[tuple[Any, ...]]) -> None:
    """Against composing everything again; the requests in between fill what is kept."""
    used = Domain.load(case.pack)
    for facts in (case.facts, (), more, case.facts):
        try:
            evaluation = evaluate(used, case.request(facts=facts), ANONYMOUS, clock=clock)
        except WireError:
            continue
        wanted = [one.tool for one in evaluation.selected]
        found, flaws = composer(evaluation).compose_all(wanted)
        fresh = replace(evaluation, domain=replace(used, definitions=LruCache(MAX_DEFINITIONS)))
        again, others = composer(fresh).compose_all(wanted)
        assert found == again
        assert {tool: flaw.message for tool, flaw in flaws.items()} == {t: f.message for t, f in others.items()}
