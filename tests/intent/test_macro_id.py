"""The id of a macro-tool."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, strategies as st

from manglecp.intent.chain import digest_chain, macro_id
from manglecp.intent.definition import Argument, ChainStep, Undo
from tests.intent.answering import tools
from tests.intent.packs import ACTIONS, SCHEMA, pack

SCHEMA_A: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "string"}}}

numbers = st.integers(-5, 5) | st.floats(allow_nan=False, allow_infinity=False)
json = st.recursive(
    st.none() | st.booleans() | numbers | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=4,
)
arguments = st.one_of(
    st.builds(Argument, st.sampled_from("pq"), st.just("value"), json),
    st.builds(Argument, st.sampled_from("pq"), st.just("call"), st.sampled_from("xy")),
    st.builds(Argument, st.sampled_from("pq"), st.just("step"), st.sampled_from(["", "/a"]), st.just(1)),
)
bound = st.lists(arguments, max_size=2, unique_by=lambda one: one.param).map(
    lambda found: tuple(sorted(found, key=lambda one: one.param))
)
undoing = st.none() | st.builds(Undo, st.sampled_from(["undo", "redo"]), bound)
steps = st.lists(
    st.builds(
        ChainStep,
        st.integers(1, 3),
        st.sampled_from(["look", "patch"]),
        bound,
        st.sampled_from([(), (1,)]),
        st.sampled_from(["stop", "continue", "undo"]),
        undoing,
    ),
    min_size=1,
    max_size=2,
    unique_by=lambda step: step.number,
).map(lambda found: tuple(sorted(found, key=lambda step: step.number)))
contents = st.fixed_dictionaries(
    {
        "tool": st.sampled_from(["a", "b"]),
        "steps": steps,
        "ordered": st.booleans(),
        "results": st.sampled_from([(), (("k", 1, ""),), (("k", 1, "/a"),)]),
        "input_schema": st.sampled_from([{}, SCHEMA_A, {"type": "object"}]),
        "side_effects": st.sampled_from([("none",), ("filesystem",), ("filesystem", "network")]),
    }
)


def exact(value: Any) -> Any:
    """Equality that keeps 1, 1.0 and true apart, as JSON does where it can."""
    if isinstance(value, dict):
        return {key: exact(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [exact(part) for part in value]
    if isinstance(value, Argument):
        return (value.param, value.source, exact(value.value), value.step)
    if isinstance(value, Undo):
        return (value.action, exact(value.arguments))
    if isinstance(value, ChainStep):
        return (value.number, value.action, exact(value.arguments), value.after, value.on_error, exact(value.undo))
    return (type(value).__name__, repr(value))


@pytest.mark.req("TOOL-01", "TOOL-02")
@given(contents, contents)
def test_ids_are_equal_exactly_if_the_contents_are(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert digest_chain(**one) == digest_chain(**dict(one))
    assert (digest_chain(**one) == digest_chain(**other)) == (exact(one) == exact(other))


def test_an_id_is_the_beginning_of_the_chain_digest() -> None:
    chain = digest_chain("t", [ChainStep(1, "look")], ordered=True, results=(), input_schema={}, side_effects=["none"])
    made = macro_id(chain)
    assert made.startswith("m-")
    assert len(made) == 34
    assert chain.startswith("sha256:" + made[2:])
    assert len(chain) == 71


def test_the_order_in_which_arguments_were_found_means_nothing() -> None:
    two = (Argument("a", "value", 1), Argument("b", "call", "x"))
    step = ChainStep(1, "look", two)
    rest: dict[str, Any] = {"ordered": True, "results": (), "input_schema": {}, "side_effects": ["none"]}
    assert digest_chain("t", [step], **rest) == digest_chain("t", [replace(step, arguments=two[::-1])], **rest)


# --- through the whole way -------------------------------------------------------------------------------------------

TOOL = """
mandatory("t") :- intent("observe").
macro("t", "Does it.").
macro_step("t", 1, "look").
"""


def id_of(rules: str, facts: Any = (), **changes: Any) -> str:
    found: str = tools(pack(rules, schema=SCHEMA, actions=ACTIONS), facts=facts, **changes)["t"]["macro_id"]
    return found


@pytest.mark.req("TOOL-02")
@pytest.mark.parametrize(
    "more",
    [
        'arg_value("t", 1, "path", "x").',
        'arg_from("t", 1, "path", "file").',
        'macro_step("t", 2, "look"). arg_step("t", 2, "path", 1, "/a").',
        'macro_step("t", 2, "patch").',
        'macro_param("t", "path", {/type : "string", /minLength : 1}).',
        'optional_param("t", "path").',
        'on_error("t", 1, "continue").',
        'undo_step("t", 1, "look"). undo_value("t", 1, "path", "x").',
        'macro_result("t", "out", 1, "/a").',
        'arg_value("t", 1, "path", Word) :- seen(Word).',
    ],
)
def test_another_composition_schema_or_effect_is_another_id(more: str) -> None:
    seen = [("seen", "red")]
    assert id_of(TOOL + more, seen) != id_of(TOOL, seen)


@pytest.mark.req("TOOL-02")
@pytest.mark.parametrize(
    "more",
    [
        'macro_summary("t", "Short.").',
        'instruction("t", 1, "Mind it.").',
        'needs_resource("t", "a.txt", "Because.", 5).',
        'valid_for("t", Span) :- Span = fn:duration:parse("1h").',
        'relevant("t", 30).',
        'needs_confirmation("t").',
    ],
)
def test_text_context_validity_and_score_leave_the_id_alone(more: str) -> None:
    assert id_of(TOOL + more) == id_of(TOOL)


@pytest.mark.req("TOOL-02")
def test_a_frozen_fact_is_part_of_the_id_and_the_time_is_not() -> None:
    rules = TOOL + 'arg_value("t", 1, "path", Word) :- seen(Word).'
    red, green = id_of(rules, [("seen", "red")]), id_of(rules, [("seen", "green")])
    assert red != green
    assert id_of(rules, [("seen", "red")], eval_time="2031-01-01T00:00:00Z") == red


@pytest.mark.req("TOOL-01")
def test_two_tools_with_one_composition_have_two_ids() -> None:
    twin = TOOL.replace('"t"', '"u"')
    found = tools(pack(TOOL + twin))
    assert found["t"]["macro_id"] != found["u"]["macro_id"]


@pytest.mark.req("TOOL-02")
def test_every_process_gives_the_same_id() -> None:
    program = (
        "from manglecp.intent.chain import digest_chain; from manglecp.intent.definition import *;"
        "print(digest_chain('t', [ChainStep(1, 'look', (Argument('a', 'value', {'x': 1, 'b': [True]}),))],"
        " ordered=True, results=(), input_schema={'type': 'object'}, side_effects={'network', 'filesystem'}))"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", program], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("0", "1", "2")
    }
    assert len(found) == 1
