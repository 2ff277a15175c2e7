"""What blocks a tool, what would bring it, and what must not be found out by asking."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings

from manglecp.intent.domain import Domain
from manglecp.intent.evaluation import MAX_WHY_NOT_NAMES
from manglecp.intent.identity import Identity
from manglecp.mangle import Fact
from manglecp.server.auth import LOCAL
from manglecp.wire import WireError, why_not_lines
from manglecp.wire.messages import UNSET, WhyNot
from tests.intent.hinting import AUDITOR, SCHEMA, USER, domain, evaluated, hints, hints_of, text_of, tools, why_not
from tests.intent.packs import NOW_TEXT, TOOLS, Case, cases, pack

RULES = f"""
{tools("fetch", "mend", "count", "other", "helper", "calm")}
trouble(Word) :- seen(Word), bad(Word).
bad("red").
mandatory("fetch") :- intent("observe"), trouble(_).
relevant("mend", 60) :- intent("observe"), seen(W), logged_lately(W).
logged_lately(W) :- <-[10m] logged(W).
relevant("count", Score) :- intent("observe"), measured("score", Score), Score >= 0.
relevant("calm", 50) :- intent("observe"), !seen("alarm").
relevant("other", 90) :- for_repair(), seen(_).
for_repair() :- intent("repair").
requires("mend", "helper").
"""


def fact(pred: str, *args: Any, at: str | None = None) -> dict[str, Any]:
    return {"pred": pred, "args": list(args)} | ({} if at is None else {"t": {"at": at}})


def unknown(tool: str) -> WhyNot:
    return WhyNot(tool=tool, known=False)


# --- what blocks it --------------------------------------------------------------------------------------------------


def test_what_blocks_is_told_in_predicates_down_to_what_a_client_can_say() -> None:
    assert why_not(domain(RULES), "fetch").blocked_by == (
        "mandatory needs trouble, and there is no such fact",
        "trouble needs seen, and there is no such fact",
    )


def test_a_fact_that_does_not_fit_is_told_apart_from_none() -> None:
    assert why_not(domain(RULES), "fetch", facts=[("seen", "green")]).blocked_by == (
        "mandatory needs trouble, and there is no such fact",
        "trouble needs bad, and no such fact fits",
    )


def test_what_holds_a_rule_back_is_named() -> None:
    answer = why_not(domain(RULES), "calm", facts=[("seen", "alarm")])
    assert answer.blocked_by == ("relevant is held back by seen",)
    assert answer.would_unlock == ()


def test_a_comparison_that_fails_is_told_without_values() -> None:
    answer = why_not(domain(RULES), "count", facts=[("measured", "score", -5)])
    assert answer.blocked_by == ("relevant asks for other values",)


def test_the_order_of_rules_does_not_matter() -> None:
    clauses = [
        'relevant("a", 50) :- seen("x").',
        'relevant("a", 40) :- measured(_, 1).',
        'relevant("a", 60) :- verdict(_).',
    ]
    answers = [why_not(domain(tools("a") + " ".join(order)), "a") for order in (clauses, clauses[::-1])]
    assert answers[0] == answers[1]
    assert len(answers[0].blocked_by) == 3


def test_a_tool_that_lost_says_so() -> None:
    rules = tools("a", "b") + 'relevant("a", 50). relevant("b", 60). conflicts("a", "b").'
    assert why_not(domain(rules), "a").blocked_by == ("conflict: yields to b",)


def test_a_tool_that_is_returned_needs_nothing() -> None:
    answer = why_not(domain(RULES), "fetch", facts=[("seen", "red")])
    assert (answer.known, answer.blocked_by, answer.would_unlock, answer.complete) == (True, (), ((),), True)


def test_a_tool_that_found_no_room_says_so() -> None:
    rules = tools("a", "b") + 'relevant("a", 50). relevant("b", 60).'
    evaluation = evaluated(domain(rules), why_not=["a"], constraints={"max_tools_returned": 1})
    answers = hints_of(evaluation, ["b"]).why_not
    assert isinstance(answers, tuple)
    assert answers[0].blocked_by == ("there is no room for it within max_tools_returned and max_tokens_budget",)


def test_a_tool_that_only_others_need_says_that_they_are_not_there() -> None:
    rules = tools("b") + 'relevant("a", 50). requires("a", "b"). macro("a", "x") :- seen("never").'
    assert why_not(domain(rules), "b").blocked_by == ("nothing that needs it is offered",)


# --- what would bring it ---------------------------------------------------------------------------------------------


def test_the_facts_that_would_bring_it_are_in_wire_form() -> None:
    answer = why_not(domain(RULES), "mend", facts=[("seen", "x")])
    assert answer.would_unlock == ((fact("logged", "x", at=NOW_TEXT),),)


def test_where_any_value_will_do_null_stands() -> None:
    answer = why_not(domain(RULES), "mend")
    assert answer.would_unlock == ((fact("logged", None, at=NOW_TEXT), fact("seen", None)),)


def test_a_number_that_passes_the_test_is_found() -> None:
    rules = tools("a") + 'relevant("a", 50) :- measured("load", N), N > 7.'
    assert why_not(domain(rules), "a").would_unlock == ((fact("measured", "load", 8),),)


def test_every_way_is_told() -> None:
    rules = tools("a") + 'relevant("a", 50) :- seen("x"). relevant("a", 60) :- measured("y", 1).'
    answer = why_not(domain(rules), "a")
    assert answer.would_unlock == ((fact("measured", "y", 1),), (fact("seen", "x"),))
    assert answer.complete


def test_a_tool_that_is_needed_comes_with_what_needs_it() -> None:
    answer = why_not(domain(RULES), "helper", facts=[("seen", "x")])
    assert answer.known
    assert answer.would_unlock == ((fact("logged", "x", at=NOW_TEXT),),)


def test_facts_that_bring_a_tool_only_to_lose_are_not_told() -> None:
    rules = tools("a", "b") + 'relevant("a", 50) :- seen("x"). relevant("b", 60). conflicts("a", "b").'
    assert why_not(domain(rules), "a").would_unlock == ()


def test_only_what_clients_may_say_is_told() -> None:
    rules = tools("a") + 'Decl inner(X) bound [/string]. relevant("a", 60) :- inner("i").\n'
    rules += 'relevant("a", 50) :- seen("x"), measured("y", 1). relevant("a", 70) :- verdict("v").'
    assert why_not(domain(rules), "a").would_unlock == ((fact("measured", "y", 1), fact("seen", "x")),)


def test_values_of_the_servers_own_facts_are_not_told() -> None:
    """Only who knows the word already is told that it would help."""
    rules = tools("a") + 'password_of("kim", "xyzzy-1"). relevant("a", 50) :- seen(W), password_of(_, W).'
    answer = why_not(domain(rules), "a")
    assert answer.would_unlock == ()
    assert not answer.complete
    assert "xyzzy" not in text_of(hints(domain(rules), why_not=["a"]))


CONFIGURED = tools("a") + 'limit("load", 41). word("plugh"). word("xyzzy").\n'


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ('relevant("a", 50) :- measured("load", N), limit("load", L), N > L.', [[("measured", "load", 42)]]),
        (
            'relevant("a", 50) :- measured("load", N), limit("load", L), N = fn:plus(L, 5).',
            [[("measured", "load", 46)]],
        ),
        ('relevant("a", 50) :- seen(W), !measured(W, 1), word(W).', [[("seen", "plugh")], [("seen", "xyzzy")]]),
        (
            'relevant("a", 50) :- seen(A), seen(B), A != B, word(A), word(B).',
            [[("seen", "plugh"), ("seen", "xyzzy")]],
        ),
        (
            'Decl odd(). odd() :- seen(W), !word(W). relevant("a", 50) :- seen(_), !odd().',
            [[("seen", "plugh")], [("seen", "xyzzy")]],
        ),
        ('relevant("a", 50) :- measured("load", N), M = fn:mult(N, 2), M > 100.', []),
        ('relevant("a", 50) :- measured(A, N), measured(B, N), A != B.', []),
    ],
)
def test_nothing_is_ruled_out_that_was_not_tried(rule: str, told: list[Any]) -> None:
    """Some value would do that nobody tried. Whoever sits at the server is told those of its own facts."""
    answer = why_not(domain(CONFIGURED + rule), "a", identity=AUDITOR)
    assert (answer.would_unlock, answer.complete) == ((), False)
    assert "no fact that a client may state" not in "\n".join(why_not_lines(answer))
    local = why_not(domain(CONFIGURED + rule), "a", identity=LOCAL)
    assert [[(one["pred"], *one["args"]) for one in facts] for facts in local.would_unlock] == told
    assert not local.complete


@pytest.mark.parametrize(
    "rule",
    [
        'relevant("a", 50) :- seen(W), never(W).',
        'relevant("a", 50) :- seen(W), word(W), W = "nope".',
        'relevant("a", 50) :- seen(_), never(_).',
    ],
)
def test_what_nothing_can_bring_is_told_as_such(rule: str) -> None:
    for identity in (USER, LOCAL):
        answer = why_not(domain(CONFIGURED + "Decl never(W) bound [/string].\n" + rule), "a", identity=identity)
        assert (answer.would_unlock, answer.complete) == ((), True)


def test_one_value_of_many_is_not_all_there_is() -> None:
    rule = 'relevant("a", 50) :- measured("load", N), N > 7.'
    assert not why_not(domain(tools("a") + rule), "a").complete
    for rule in ('relevant("a", 50) :- measured(_, 8).', 'relevant("a", 50) :- seen(W), measured(W, 8).'):
        assert why_not(domain(tools("a") + rule), "a").complete


LARGE = SCHEMA + "Decl owner(File, Person) bound [/string, /string]."


def large(rule: str) -> Domain:
    """A pack whose rule joins what clients say with thousands of the server's facts."""
    owners = [Fact("owner", (f"file-{n}", f"person-{n % 50}")) for n in range(4_000)]
    return Domain.load(pack(tools("a") + rule, schema=LARGE), facts=owners)


@pytest.mark.parametrize(
    ("rule", "facts", "unlocking"),
    [
        ('relevant("a", 50) :- owner(F, P), seen(F).', [("verdict_on", "file-77")], [("seen", "file-77")]),
        (
            'relevant("a", 50) :- owner(F, P), seen(P), measured(F, N), N > 3.',
            [("verdict_on", "file-77"), ("verdict_on", "person-27")],
            [("measured", "file-77", 4), ("seen", "person-27")],
        ),
        (
            'relevant("a", 50) :- owner(F, P), <-[10m] logged(F).',
            [("verdict_on", "file-77")],
            [("logged", "file-77")],
        ),
    ],
)
def test_joins_with_large_relations_are_tried_with_what_the_client_said(
    rule: str, facts: list[Any], unlocking: list[Any]
) -> None:
    """The search was cut, and says so."""
    said = 'Decl verdict_on(X) descr [direction("input")] bound [/string]. noted(X) :- verdict_on(X).\n'
    answer = why_not(large(said + rule), "a", facts=facts)
    (found,) = answer.would_unlock
    assert [(one["pred"], *one["args"]) for one in found] == unlocking
    assert not answer.complete


def test_joins_with_large_relations_give_nothing_of_the_server_away() -> None:
    answer = why_not(large('relevant("a", 50) :- owner(F, P), seen(F), measured(P, N).'), "a", facts=[("seen", "x")])
    assert (answer.would_unlock, answer.complete) == ((), False)
    assert "file-" not in text_of(answer)


@pytest.mark.parametrize(
    ("rule", "facts", "first"),
    [
        ('relevant("a", 50) :- seen(F), owner(F, "person-3").', [], [("seen", "file-1003")]),
        (
            'relevant("a", 50) :- owner(F, P), seen(F), measured(P, N).',
            [],
            [("measured", "person-0", 0), ("seen", "file-0")],
        ),
        (
            'relevant("a", 50) :- owner(F, P), seen(F), measured(P, N).',
            [("seen", "file-77")],
            [("measured", "person-27", 0)],
        ),
    ],
)
def test_whoever_sits_at_the_server_is_told_values_of_large_relations(
    rule: str, facts: list[Any], first: list[Any]
) -> None:
    answer = why_not(large(rule), "a", facts=facts, identity=LOCAL)
    assert [(one["pred"], *one["args"]) for one in answer.would_unlock[0]] == first
    assert not answer.complete


# --- what must not be found out --------------------------------------------------------------------------------------


def test_unknown_names_and_tools_of_other_intents_answer_alike() -> None:
    for name in ("nonsense", "other", "macro", ""):
        assert why_not(domain(RULES), name) == unknown(name)
    assert why_not(domain(RULES), "other", "repair").known


@pytest.mark.parametrize(
    "policy",
    [
        'prohibited("fetch", "the moon is full").',
        'prohibited("fetch", "the moon is full") :- client_trust("anonymous").',
        'permitted("mend").',
        'effect_denied("look", "the moon is full").',
    ],
)
@pytest.mark.parametrize("facts", [[], [("seen", "red")]])
def test_what_policy_excludes_answers_as_an_unknown_name(policy: str, facts: list[Any]) -> None:
    assert why_not(domain(RULES, policy), "fetch", facts=facts) == unknown("fetch")


def test_the_public_reasons_of_an_excluded_tool_are_given_for_its_intent() -> None:
    policy = 'prohibited("fetch", "the moon is full"). public_reason("fetch", "come back tomorrow").'
    answer = why_not(domain(RULES, policy), "fetch", facts=[("seen", "red")])
    assert (answer.known, answer.blocked_by, answer.would_unlock) == (True, ("come back tomorrow",), ())
    assert why_not(domain(RULES, policy), "fetch", "repair", facts=[("seen", "red")]) == unknown("fetch")


def test_whoever_may_know_is_told_what_policy_does() -> None:
    policy = 'prohibited("fetch", "the moon is full").'
    for facts in ([], [("seen", "red")]):
        answer = why_not(domain(RULES, policy), "fetch", facts=facts, identity=AUDITOR)
        assert answer.known
        assert "exclusion: the moon is full" in answer.blocked_by


def test_what_policy_derives_is_not_named() -> None:
    rules = tools("a") + 'relevant("a", 50) :- intent("observe"), cleared(), seen("x").'
    policy = 'cleared() :- client_permission("moonlight").'
    answer = why_not(domain(rules, policy), "a", identity=USER)
    assert answer.blocked_by == ("relevant needs something that is not shown",)
    assert "cleared" in text_of(why_not(domain(rules, policy), "a", identity=AUDITOR))


def test_facts_that_only_policy_reads_are_not_told() -> None:
    rules = tools("a") + 'relevant("a", 50) :- cleared().'
    policy = 'cleared() :- seen("open sesame").'
    answer = why_not(domain(rules, policy), "a", identity=USER)
    assert answer.would_unlock == ()
    assert "sesame" not in text_of(answer)
    assert why_not(domain(rules, policy), "a", identity=AUDITOR).would_unlock == ((fact("seen", "open sesame"),),)


def test_a_tool_for_which_only_policy_speaks_is_unknown() -> None:
    source = domain(tools("a"), 'mandatory("a") :- client_permission("moonlight").')
    assert why_not(source, "a", identity=USER) == unknown("a")
    assert why_not(source, "a", identity=AUDITOR).known


def test_a_rule_for_many_tools_means_those_that_it_can_mean() -> None:
    rules = tools("a", "b") + 'helps("a"). relevant(Tool, 50) :- helps(Tool), seen(_).'
    assert why_not(domain(rules), "a").known
    assert why_not(domain(rules), "b") == unknown("b")
    assert why_not(domain(rules), "c") == unknown("c")


def test_an_intent_may_be_asked_for_by_a_variable() -> None:
    rules = tools("a") + 'relevant("a", 50) :- intent(I), I = "repair", seen(_).'
    assert why_not(domain(rules), "a") == unknown("a")
    assert why_not(domain(rules), "a", "repair").known


# --- how much --------------------------------------------------------------------------------------------------------


def test_without_a_question_there_is_no_answer() -> None:
    assert hints(domain(RULES)).why_not is UNSET


def test_names_are_answered_in_order_each_once() -> None:
    names = [f"n{i}" for i in range(MAX_WHY_NOT_NAMES)]
    answers = hints(domain(RULES), why_not=["n0", *names]).why_not
    assert isinstance(answers, tuple)
    assert [one.tool for one in answers] == names


def test_more_names_than_are_answered_are_refused() -> None:
    with pytest.raises(WireError) as caught:
        evaluated(domain(RULES), why_not=[f"n{i}" for i in range(MAX_WHY_NOT_NAMES + 1)])
    error = caught.value
    assert error.code == "malformed_message"
    assert f"names {MAX_WHY_NOT_NAMES + 1} tools, and at most {MAX_WHY_NOT_NAMES} are answered" in error.message
    assert "$.payload.options.x-why_not" in text_of(error.to_message("r").payload)


def test_when_the_time_is_up_the_answer_says_that_it_is_not_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("manglecp.intent.why_not.monotonic", lambda: float("inf"))
    answer = why_not(domain(RULES), "fetch")
    assert (answer.blocked_by, answer.complete) == (("there was no time left to look",), False)
    assert why_not(domain(RULES), "nonsense") == unknown("nonsense")


def test_the_deadline_holds_inside_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("manglecp.mangle.explain.solver.monotonic", lambda: float("inf"))
    answer = why_not(domain(RULES), "fetch")
    assert (answer.blocked_by, answer.complete) == (("there was no time left to look",), False)
    assert why_not(domain(RULES), "nonsense") == unknown("nonsense")


def test_a_search_that_takes_too_long_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("manglecp.intent.why_not.monotonic", lambda: float("inf"))
    answer = why_not(domain(RULES), "fetch")
    assert answer.blocked_by
    assert (answer.would_unlock, answer.complete) == ((), False)


@settings(deadline=None)
@given(cases())
def test_random_packs(case: Case) -> None:
    """What is told really brings the tool, and policy stays silent."""
    source = Domain.load(case.pack)
    who = Identity("kim", case.permissions, "user")
    evaluation = evaluated(source, case.intent, case.facts, who, why_not=TOOLS)
    answers = hints_of(evaluation).why_not
    assert isinstance(answers, tuple)
    barred = {str(row[0]) for row in evaluation.result.rows(("kernel.barred_by", 3)) if row[1] == "policy"}
    for answer in answers:
        assert answer.tool not in barred or answer == unknown(answer.tool)
        if any(one.tool == answer.tool for one in evaluation.selected):
            assert answer.would_unlock == ((),)
        for facts in answer.would_unlock:
            more = [{**one, "args": ["any" if arg is None else arg for arg in one["args"]]} for one in facts]
            again = evaluated(source, case.intent, [*case.facts, *more], who)
            assert answer.tool in [one.tool for one in again.selected]
