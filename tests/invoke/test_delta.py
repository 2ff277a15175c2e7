"""What changed, and what comes next: facts that rules derive from a run, as clients can use them."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from manglecp.intent import AFTER_RUN_ARITIES, Domain, manifest
from manglecp.invoke.delta import next_of, state_delta
from manglecp.mangle import TRUE, Fact, Float, List, Time
from manglecp.wire.messages import InvokeResult, StateDelta
from tests.effort import examples
from tests.intent.packs import NOW
from tests.invoke.chains import chain, steps
from tests.invoke.workshop import shop

LOOK = steps("look")
MANY = 'extract("look", "all", "/all").'
EACH = 'asserts("done", [X], "derived") :- step_value(_, "all", L), :list:member(X, L).'
TAKE = 'retracts("done", [X]) :- step_value(_, "all", L), :list:member(X, L).'


async def run(*rules: str, found: Any = None, **more: Any) -> InvokeResult:
    async with shop(chain(LOOK, *rules, **more), {"look": lambda given: found or given}) as s:
        return await s.invoke("t", {"n": 1})


def facts(delta: StateDelta) -> tuple[Any, Any]:
    return [(one["pred"], one["args"]) for one in delta.asserts], [(one["pred"], one["args"]) for one in delta.retract]


# --- asserting and retracting ----------------------------------------------------------------------------------------


@pytest.mark.req("DELTA-01", "INVK-16")
async def test_a_pack_without_such_rules_says_nothing() -> None:
    answer = await run()
    assert answer.state_delta == StateDelta()
    told = msgspec.json.decode(msgspec.json.encode(answer))
    assert list(told) == ["result", "state_delta", "observability", "next"]
    assert told["state_delta"] == {"assert": [], "retract": []}
    assert told["next"] == {"suggested_intents": [], "continuation_facts": []}


@pytest.mark.req("DELTA-01")
def test_an_absent_array_is_no_operation() -> None:
    assert msgspec.convert({"assert": [{"pred": "p"}]}, StateDelta).retract == ()
    assert msgspec.convert({}, StateDelta) == StateDelta()


@pytest.mark.req("DELTA-02", "DELTA-03", "DELTA-04", "DELTA-05", "DATA-41", "DATA-45")
async def test_facts_carry_category_source_and_time() -> None:
    answer = await run(
        'asserts("done", [N], "server") :- ran("t"), run_arg("n", N).',
        'asserts("told", [2], "derived") :- step_status(1, "look", "success").',
        'asserts("held", [3, "open"], "no such category") :- ran("t").',
        'asserts_during("lasted", [4], "server", S, E) :- ran("t"), S = fn:time:from_unix_nanos(0), E = fn:time:now().',
        'retracts("held", [1, "shut"]) :- ran("t").',
    )
    by_name = {one["pred"]: one for one in answer.state_delta.asserts}
    server, derived = {"source_type": "server"}, {"source_type": "derived"}
    assert by_name["done"] == {"pred": "done", "args": [1], "category": "server", "source": server}
    assert by_name["told"] == {"pred": "told", "args": [2], "category": "derived", "source": derived}
    assert by_name["held"]["category"] == "server"
    assert by_name["lasted"]["t"] == {"start": "1970-01-01T00:00:00Z", "end": "2026-01-15T12:00:00Z"}
    assert answer.state_delta.retract == ({"pred": "held", "args": [1, "shut"]},)


@pytest.mark.req("DELTA-06")
async def test_wildcards_are_null() -> None:
    answer = await run('retracts("held", [1, /_]) :- ran("t").', 'retracts("held", [/_, /_]) :- ran("t").')
    assert [one["args"] for one in answer.state_delta.retract] == [[None, None], [1, None]]


@pytest.mark.req("DELTA-06", "DELTA-14")
async def test_a_pattern_fits_as_far_as_it_says(caplog: pytest.LogCaptureFixture) -> None:
    answer = await run(
        'retracts("held", [/_, "shut"]) :- ran("t").',
        'retracts("held", [/_, 7]) :- ran("t").',
        'retracts("held", ["a hidden word", /_]) :- ran("t").',
    )
    assert [one["args"] for one in answer.state_delta.retract] == [[None, "shut"]]
    assert "does not fit" in caplog.text
    assert "hidden" not in caplog.text


async def test_a_time_that_is_none_is_left_out() -> None:
    backwards = (
        'asserts_during("lasted", [4], "server", E, S) :- ran("t"), S = fn:time:from_unix_nanos(0), E = fn:time:now().'
    )
    assert (await run(backwards)).state_delta == StateDelta()


@pytest.mark.req("DELTA-14")
async def test_only_published_facts_that_fit_are_told(caplog: pytest.LogCaptureFixture) -> None:
    answer = await run(
        'asserts("inner", [1], "server") :- ran("t").',
        'asserts("nobody_knows", [1], "server") :- ran("t").',
        'asserts("done", ["a hidden word"], "server") :- ran("t").',
        'asserts("done", [1, 2], "server") :- ran("t").',
        'asserts_during("done", [3], "server", T, T) :- ran("t"), T = fn:time:now().',
        'retracts("inner", [1]) :- ran("t").',
        'asserts("done", [5], "server") :- ran("t").',
    )
    assert facts(answer.state_delta) == ([("done", [5])], [])
    assert "inner" in caplog.text
    assert "a hidden word" not in caplog.text


@pytest.mark.req("DELTA-11", "DELTA-12", "DELTA-13", "NEXT-06")
async def test_a_delta_changes_nothing_on_the_server() -> None:
    later = 'macro("u", "Later."). macro_step("u", 1, "look"). mandatory("u") :- intent("later"), done(1).'
    rule = 'asserts("done", [1], "server") :- ran("t"). continues_with("done", [1]) :- ran("t").'
    async with shop(chain(LOOK, later, rule)) as s:
        answer = await s.invoke("t", {"n": 1})
        assert await s.tools("later") == {}
        assert list(await s.tools("later", facts=answer.state_delta.asserts)) == ["u"]
        assert list(await s.tools("later", facts=answer.next.continuation_facts)) == ["u"]
        assert await s.tools("later") == {}


# --- the cap ---------------------------------------------------------------------------------------------------------


@pytest.mark.req("OBS-04", "OBS-05", "OBS-06")
async def test_a_thousand_facts_become_one() -> None:
    answer = await run(MANY, EACH, TAKE, found={"all": list(range(1_000))})
    assert facts(answer.state_delta) == ([("bulk_asserted", ["done", 1_000])], [("bulk_retracted", ["done", 1_000])])
    (one,) = answer.state_delta.asserts
    assert (one["category"], one["source"]) == ("derived", {"source_type": "derived"})


@pytest.mark.req("OBS-06")
@pytest.mark.parametrize(("count", "listed"), [(50, 50), (51, 1)])
async def test_the_cap_is_fifty(count: int, listed: int) -> None:
    answer = await run(MANY, EACH, found={"all": list(range(count))})
    assert len(answer.state_delta.asserts) == listed


@pytest.mark.req("OBS-06")
async def test_the_cap_is_a_setting_and_the_largest_go_first() -> None:
    rules = (MANY, EACH, 'asserts("told", [7], "server") :- ran("t").', 'asserts("told", [8], "server") :- ran("t").')
    answer = await run(*rules, found={"all": [1, 2, 3, 4]}, invocation={"max_delta_facts": 3})
    assert facts(answer.state_delta)[0] == [("told", [7]), ("told", [8]), ("bulk_asserted", ["done", 4])]
    answer = await run(*rules, found={"all": [1, 2, 3, 4]}, invocation={"max_delta_facts": 2})
    assert facts(answer.state_delta)[0] == [("bulk_asserted", ["done", 4]), ("bulk_asserted", ["told", 2])]


@pytest.mark.req("OBS-05")
async def test_a_roll_up_of_the_pack_wins() -> None:
    own = 'asserts("bulk_asserted", ["done", 12345], "server") :- ran("t").'
    answer = await run(MANY, EACH, own, found={"all": list(range(100))})
    assert facts(answer.state_delta)[0] == [("bulk_asserted", ["done", 12345])]
    answer = await run(MANY, EACH, own, found={"all": [1, 2]})
    assert len(answer.state_delta.asserts) == 3


async def test_own_roll_ups_do_not_stop_the_others() -> None:
    own = [f'asserts("bulk_asserted", ["told", {n}], "server") :- ran("t").' for n in range(4)]
    answer = await run(MANY, EACH, *own, found={"all": [1, 2, 3]}, invocation={"max_delta_facts": 5})
    assert ("bulk_asserted", ["done", 3]) in facts(answer.state_delta)[0]
    assert len(answer.state_delta.asserts) == 5


@pytest.mark.req("OBS-05")
@pytest.mark.parametrize("schema", ["", "Decl p(X) bound [/number]."])
def test_roll_ups_are_in_every_manifest(schema: str) -> None:
    domain = Domain.load(chain(LOOK, schema=schema))
    published = {each.predicate: each.direction for each in manifest(domain).payload.facts_profile.predicates}
    assert published["bulk_asserted"] == published["bulk_retracted"] == "both"


# --- next ------------------------------------------------------------------------------------------------------------


@pytest.mark.req("NEXT-01", "NEXT-02", "NEXT-04", "NEXT-07")
async def test_suggestions_and_facts_to_go_on_with() -> None:
    answer = await run(
        'suggests("later", ["n": N], "Because of it.") :- ran("t"), run_arg("n", N).',
        'suggests("go", {}, "") :- ran("t").',
        'suggests(I, {}, "Why not.") :- ran("t"), I = fn:string:concat("no_such_", "intent").',
        'continues_with("done", [1]) :- ran("t").',
        'continues_with("told", [1]) :- ran("t").',
        'continues_with("inner", [1]) :- ran("t").',
    )
    assert msgspec.json.decode(msgspec.json.encode(answer.next)) == {
        "suggested_intents": [
            {"name": "go", "params": {}},
            {"name": "later", "params": {"n": 1}, "description": "Because of it."},
        ],
        "continuation_facts": [{"pred": "done", "args": [1]}],
    }


async def test_suggestions_and_continuations_have_a_cap() -> None:
    rules = (
        *(f'suggests("later", ["n": {n}], "Why.") :- ran("t").' for n in range(30)),
        MANY,
        'continues_with("done", [X]) :- step_value(_, "all", L), :list:member(X, L).',
    )
    answer = await run(*rules, found={"all": list(range(200))})
    assert len(answer.next.suggested_intents) == 10
    assert len(answer.next.continuation_facts) == 50


@pytest.mark.req("NEXT-03", "NEXT-05")
async def test_a_chain_of_intents() -> None:
    """What a run suggests is asked next, with the facts it says to bring and one of one's own."""
    rules = (
        'suggests("later", ["word": "x"], "Go on.") :- ran("t").',
        'continues_with("done", [N]) :- run_arg("n", N).',
        'macro("u", "Later."). macro_step("u", 1, "look").',
        'mandatory("u") :- intent("later"), intent_param("word", "x"), done(5), asked(6).',
    )
    async with shop(chain(LOOK, *rules)) as s:
        answer = await s.invoke("t", {"n": 5})
        (next_intent,) = answer.next.suggested_intents
        bring = [*answer.next.continuation_facts, ("asked", 6)]
        assert list(await s.tools(next_intent.name, params=next_intent.params, facts=bring)) == ["u"]
        assert await s.tools(next_intent.name, params=next_intent.params, facts=bring[1:]) == {}
        assert await s.tools(next_intent.name, params=next_intent.params, facts=bring[:1]) == {}


# --- what goes out can come back in ----------------------------------------------------------------------------------

WORDS = st.text(st.characters(codec="utf-8"), max_size=12)
NUMBERS = st.integers(-(2**63), 2**63 - 1)
TIMES = st.integers(0, 2**62).map(lambda ns: ns // 1_000_000 * 1_000_000)
SHAPES = """
Decl a(N, T, F, B) descr [doc("All."), direction("both")] bound [/number, /string, /float64, /any].
Decl b(L, M, D) temporal descr [doc("More."), direction("both")] bound [.List</any>, /any, /time].
"""


@cache
def shapes() -> Domain:
    return Domain.load(chain(LOOK, schema=SHAPES))


@pytest.mark.req("NEXT-03", "DELTA-04")
@examples(60)
@given(
    n=NUMBERS,
    text=WORDS,
    fraction=st.floats(allow_nan=False, allow_infinity=False),
    items=st.lists(NUMBERS | WORDS, max_size=5),
    span=st.tuples(TIMES, TIMES),
)
def test_facts_survive_the_way_out_and_in(
    n: int, text: str, fraction: float, items: list[Any], span: tuple[int, int]
) -> None:
    values = List(tuple(items))
    said: dict[str, list[tuple[Any, ...]]] = {name: [] for name in AFTER_RUN_ARITIES}
    said["continues_with"] = [("a", List((n, text, Float(fraction), TRUE))), ("b", List((values, n, Time(span[0]))))]
    said["asserts_during"] = [("b", List((values, text, Time(NOW))), "server", Time(min(span)), Time(max(span)))]
    written = [*next_of(said, shapes()).continuation_facts, *state_delta(said, shapes()).asserts]
    sent = msgspec.json.decode(msgspec.json.encode(written))
    assert shapes().profile.read(sent, NOW) == [
        Fact("a", (n, text, Float(fraction), TRUE)),
        Fact("b", (values, n, Time(span[0]))),
        Fact("b", (values, text, Time(NOW)), (min(span), max(span))),
    ]
