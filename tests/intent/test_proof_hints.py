"""Proof hints: why these tools, why not others, and which facts nobody used."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings

from manglecp.intent.domain import Domain
from manglecp.intent.identity import Identity
from manglecp.intent.proof_hints import MAX_DEPTH, MAX_NODES, hints_wanted
from manglecp.wire import derivation_lines
from manglecp.wire.messages import Derivation, Options, ProofTree
from tests.intent.answering import asked
from tests.intent.hinting import AUDITOR, USER, domain, evaluated, hints, hints_of, nodes, text_of, tools
from tests.intent.packs import Case, cases, pack

RULES = f"""
{tools("fetch", "report", "audit", "spare")}
trouble(Word) :- seen(Word), bad(Word).
bad("red").
mandatory("fetch") :- intent("observe").
relevant("report", 60) :- intent("observe"), trouble(_), measured(_, N), N > 3.
requires("report", "audit").
"""
FACTS = [("seen", "red"), ("seen", "green"), ("measured", "cpu", 7)]


def about(tool: str, *args: Any, **more: Any) -> Derivation:
    return next(one for one in hints(*args, **more).derivations if one.macro_id == f"m-{tool}")


def tree_of(tool: str, *args: Any, **more: Any) -> ProofTree:
    tree = about(tool, *args, **more).tree
    assert isinstance(tree, ProofTree)
    return tree


# --- derivations -----------------------------------------------------------------------------------------------------


@pytest.mark.req("PROOF-03", "PROOF-06")
def test_each_returned_tool_has_one_derivation_with_phase_and_score() -> None:
    found = hints(domain(RULES), facts=FACTS).derivations
    assert [(one.macro_id, one.selected_by, one.score) for one in found] == [
        ("m-fetch", "skeleton", 100),
        ("m-audit", "dependency", 80),
        ("m-report", "flesh", 60),
    ]


@pytest.mark.req("PROOF-06")
def test_a_tool_that_is_not_returned_has_none() -> None:
    evaluation = evaluated(domain(RULES), facts=FACTS)
    assert [one.macro_id for one in hints_of(evaluation, ["fetch"]).derivations] == ["m-fetch"]


@pytest.mark.req("PROOF-04")
def test_supporting_facts_are_the_clients_in_wire_form_and_only_those_that_contributed() -> None:
    assert about("report", domain(RULES), facts=FACTS).supporting_facts == (
        {"pred": "measured", "args": ["cpu", 7]},
        {"pred": "seen", "args": ["red"]},
    )
    assert about("fetch", domain(RULES), facts=FACTS).supporting_facts == ()
    of_server = domain(RULES + 'measured("cpu", 7).')
    assert about("report", of_server, facts=[("seen", "red")]).supporting_facts == ({"pred": "seen", "args": ["red"]},)


@pytest.mark.req("PROOF-04")
def test_a_supporting_fact_keeps_its_time() -> None:
    rules = tools("fetch") + 'relevant("fetch", 50) :- <-[10m] logged(_).'
    fact = {"pred": "logged", "args": ["x"], "t": {"at": "2026-01-15T11:58:00Z"}}
    assert about("fetch", domain(rules), facts=[fact]).supporting_facts == (fact,)


@pytest.mark.req("PROOF-04", "PROOF-10")
def test_the_chain_names_predicates_from_the_selection_down_each_once() -> None:
    assert about("report", domain(RULES), facts=FACTS).rule_chain == (
        *("final_selected", "chosen", "candidate", "relevant", "trouble"),
    )


@pytest.mark.req("PROOF-05")
def test_the_tree_tells_what_rests_on_what_and_where_it_comes_from() -> None:
    assert msgspec.to_builtins(tree_of("report", domain(RULES), facts=FACTS)) == node(
        'final_selected("report",60,"flesh")',
        node(
            'chosen("report",60,"flesh")',
            node(
                'candidate("report",60,"flesh")',
                node(
                    'relevant("report",60)',
                    node('intent("observe")', kind="session"),
                    node(
                        "trouble",
                        node('seen("red")', kind="session"),
                        node("bad", kind="server"),
                    ),
                    node('measured("cpu",7)', kind="session"),
                ),
            ),
        ),
    )


def node(fact: str, *children: Any, kind: str = "derived") -> dict[str, Any]:
    return {"fact": fact, "type": kind, "children": children}


@pytest.mark.req("PROOF-05")
def test_a_dependency_rests_on_the_tool_that_needs_it() -> None:
    (chosen, needs) = tree_of("audit", domain(RULES), facts=FACTS).children
    assert (chosen.fact, needs.fact) == ('chosen("report",60,"flesh")', 'requires("report","audit")')
    assert needs.type == "server"


def test_what_makes_a_tool_mandatory_stands_once() -> None:
    facts = [one.fact for one in nodes(tree_of("fetch", domain(RULES)))]
    assert facts.count('mandatory("fetch")') == 1


@pytest.mark.req("PROOF-09")
def test_what_rests_on_policy_is_left_out_of_chain_tree_and_facts() -> None:
    rules = tools("fetch") + 'relevant("fetch", 50) :- cleared(_), measured(_, _).'
    source = domain(rules, "cleared(W) :- moonlit(W). moonlit(W) :- seen(W).")
    facts = [("seen", "x"), ("measured", "cpu", 1)]
    told = about("fetch", source, facts=facts, identity=USER)
    assert told.supporting_facts == ({"pred": "measured", "args": ["cpu", 1]},)
    assert told.rule_chain == ("final_selected", "chosen", "candidate", "relevant")
    for word in ("cleared", "moonlit", "seen"):
        assert word not in text_of(told)
    shown = about("fetch", source, facts=facts, identity=AUDITOR)
    assert shown.rule_chain[-2:] == ("cleared", "moonlit")
    assert len(shown.supporting_facts) == 2


def test_what_the_server_says_of_the_client_is_the_servers() -> None:
    rules = tools("fetch") + 'relevant("fetch", 50) :- client_permission("x"), client("kim").'
    who = Identity("kim", frozenset({"x"}), "user")
    leaves = {one.fact: one.type for one in nodes(tree_of("fetch", domain(rules), identity=who)) if not one.children}
    assert leaves == {"client_permission": "server", "client": "server"}


def test_absences_are_left_out() -> None:
    rules = tools("fetch") + 'relevant("fetch", 50) :- intent("observe"), !seen("red").'
    assert "seen" not in text_of(hints(domain(rules)))


def test_a_large_tree_is_cut_from_below_and_says_so() -> None:
    rules = tools("fetch") + "all(N) :- seen(W) |> do fn:group_by(), let N = fn:count().\n"
    rules += 'relevant("fetch", 50) :- all(N), N > 0, measured(_, _).'
    facts = [("measured", "cpu", 1), *(("seen", f"word {i}") for i in range(3 * MAX_NODES))]
    tree = tree_of("fetch", domain(rules), facts=facts)
    found = [one.fact for one in nodes(tree)]
    assert len(found) <= 2 * MAX_NODES
    assert found.count("…") == 1
    assert 'measured("cpu",1)' in found


def test_a_deep_tree_is_cut_too() -> None:
    rules = tools("fetch") + "reach(0).\nreach(M) :- reach(N), measured(_, N), M = fn:plus(N, 1).\n"
    rules += 'relevant("fetch", 50) :- reach(60).'
    tree = tree_of("fetch", domain(rules), facts=[("measured", "hop", i) for i in range(60)])

    def depth(one: ProofTree) -> int:
        return 1 + max(map(depth, one.children), default=0)

    assert depth(tree) == MAX_DEPTH + 1
    assert len(about("fetch", domain(rules), facts=[("measured", "hop", i) for i in range(60)]).supporting_facts) == 60


def test_facts_of_predicates_that_are_not_published_read_the_same_and_stand_once() -> None:
    rules = tools("fetch") + 'inner(1). inner(2). inner(3). relevant("fetch", 50) :- inner(1), inner(2), inner(3).'
    assert [one.fact for one in nodes(tree_of("fetch", domain(rules)))].count("inner") == 1


@pytest.mark.req("PROOF-10")
def test_a_derived_fact_that_is_published_is_shown_with_its_arguments() -> None:
    rules = tools("fetch") + 'verdict(W) :- seen(W). relevant("fetch", 50) :- verdict(_).'
    assert 'verdict("red")' in [one.fact for one in nodes(tree_of("fetch", domain(rules), facts=[("seen", "red")]))]


# --- exclusions ------------------------------------------------------------------------------------------------------

RIVALS = f"""
{tools("strong", "weak", "needy", "leaning")}
relevant("strong", 90). relevant("weak", 50). relevant("needy", 60). relevant("ghost", 70). relevant("leaning", 40).
relevant("handless", 30). macro("handless", "Has no hands."). macro_step("handless", 1, Name) :- seen(Name).
conflicts("weak", "strong"). requires("leaning", "weak"). requires("needy", "ghost").
macro("ghost", "Never.") :- seen("never").
"""


@pytest.mark.req("PROOF-07")
def test_exclusions_have_a_phase_and_a_reason_and_are_sorted() -> None:
    found = hints(domain(RIVALS), facts=[("seen", "waving")]).excluded
    assert [(one.candidate, one.excluded_by, one.reason) for one in found] == [
        ("ghost", "exclusion", "it has no macro"),
        ("handless", "exclusion", "an action that it needs does not exist"),
        ("leaning", "dependency", "needs weak, which lost to another tool"),
        ("needy", "dependency", "needs ghost, which is excluded"),
        ("weak", "conflict", "yields to strong"),
    ]


@pytest.mark.req("PROOF-07")
def test_what_was_selected_and_left_out_says_why() -> None:
    rules = tools("a", "b", "c") + 'relevant("a", 90). relevant("b", 80). relevant("c", 5).'
    evaluation = evaluated(domain(rules), constraints={"max_tools_returned": 1})
    assert [(one.candidate, one.excluded_by, one.reason) for one in hints_of(evaluation, ["a"]).excluded] == [
        ("b", "output", "there is no room for it within max_tools_returned and max_tokens_budget"),
        ("c", "output", "its score is below what is disclosed"),
    ]
    assert hints_of(evaluated(domain(rules)), ["a", "c"]).excluded[0].reason == "it could not be composed"


def test_only_what_speaks_to_the_intent_is_listed() -> None:
    rules = RULES + 'relevant("spare", 50) :- intent("repair").'
    assert hints(domain(rules), facts=FACTS).excluded == ()


POLICY = """
prohibited("strong", "the moon is full").
effect_denied("look", "not for guests") :- client_trust("anonymous"), seen("stop").
"""


@pytest.mark.req("PROOF-09")
def test_what_policy_excludes_is_not_mentioned() -> None:
    found = hints(domain(RIVALS + 'requires("weak", "strong").', POLICY), identity=USER).excluded
    assert [(one.candidate, one.reason) for one in found] == [
        ("ghost", "it has no macro"),
        ("handless", "it has no step"),
        ("leaning", "needs weak, which is excluded"),
        ("needy", "needs ghost, which is excluded"),
        ("weak", "needs a tool that is not available"),
    ]


def test_the_policy_that_permitted_a_tool_is_shown_to_whoever_may_know() -> None:
    source = domain(tools("fetch") + 'mandatory("fetch").', 'permitted("fetch") :- client_permission("read").')
    for name, shown in (("auditor", True), ("user", False)):
        permissions = {"read", *(AUDITOR.permissions if shown else ())}
        caller = Identity(name, frozenset(permissions), "user")
        derivation = about("fetch", source, identity=caller)
        texts = list(derivation_lines("fetch", derivation))
        assert ('  permitted("fetch")' in texts, '    client_permission("read")' in texts) == (shown, shown), texts
        assert ("permitted" in derivation.rule_chain) is shown


def test_policy_is_explained_to_whoever_may_know() -> None:
    found = hints(domain(RIVALS, POLICY), identity=AUDITOR).excluded
    assert ("strong", "exclusion", "the moon is full") in [
        (one.candidate, one.excluded_by, one.reason) for one in found
    ]


@pytest.mark.parametrize(
    "policy",
    [
        'prohibited("fetch", "because of the moon").',
        'permitted("report").',
        'effect_denied("look", "because of the moon").',
    ],
)
def test_no_way_of_policy_shows(policy: str) -> None:
    source = domain(tools("fetch", "report") + 'relevant("fetch", 50).', policy)
    told = hints(source, why_not=["fetch"])
    assert told == msgspec.structs.replace(
        hints(domain(tools("fetch")), why_not=["fetch"]), derivations=(), excluded=(), unmatched_facts=()
    )
    assert "fetch" in text_of(hints(source, identity=AUDITOR).excluded)


def test_what_policy_says_about_undoing_does_not_show() -> None:
    rules = (
        tools("fetch") + 'relevant("fetch", 50). undo_step("fetch", 1, "unlook"). undo_in("fetch", 1, "path", "path").'
    )
    given = pack(rules, policy='effect_denied("unlook", "because of the moon").', actions=["look", "unlook"])
    told = hints(Domain.load(given), why_not=["fetch"])
    assert not told.excluded
    assert "moon" not in text_of(told)
    assert "moon" in text_of(hints(Domain.load(given), identity=AUDITOR).excluded)


# --- facts that nobody used ------------------------------------------------------------------------------------------


@pytest.mark.req("PROOF-08")
def test_unmatched_facts_are_listed_by_predicate_with_a_reason() -> None:
    facts = [*FACTS, {"pred": "logged", "args": ["x"]}, {"pred": "logged", "args": ["y"]}]
    assert [(one.pred, one.reason) for one in hints(domain(RULES), facts=facts).unmatched_facts] == [
        ("logged", "No rules reference this predicate (2 facts)"),
        ("seen", "Rules reference this predicate, but none of them could use the fact"),
    ]


@pytest.mark.req("PROOF-08")
def test_a_fact_that_was_used_is_not_listed() -> None:
    assert hints(domain(RULES), facts=[("seen", "red"), ("measured", "cpu", 7)]).unmatched_facts == ()


@pytest.mark.req("PROOF-08", "PROOF-09")
def test_which_facts_policy_used_is_not_found_out() -> None:
    rules = RULES + 'relevant("fetch", 10) :- seen("odd").'
    given = domain(rules, policy='prohibited("spare", "no") :- seen("guarded"), !measured("cpu", 9).')
    facts = [[("seen", word), ("measured", "cpu", count)] for word in ("guarded", "open") for count in (8, 9)]
    assert [hints(given, facts=one).unmatched_facts for one in facts] == [(), (), (), ()]
    told = [hints(given, facts=one, identity=AUDITOR).unmatched_facts for one in facts]
    assert ["seen" in [fact.pred for fact in one] for one in told] == [False, True, True, True]


# --- all of them -----------------------------------------------------------------------------------------------------


@pytest.mark.req("PROOF-02")
def test_the_three_arrays_are_always_there() -> None:
    assert msgspec.to_builtins(hints(domain(tools("fetch")))) == {
        "derivations": (),
        "excluded": (),
        "unmatched_facts": (),
    }


@pytest.mark.req("PROOF-01")
def test_hints_are_wanted_only_if_asked_for() -> None:
    assert not hints_wanted(Options())
    assert hints_wanted(Options(include_proof_hints=True))
    assert hints_wanted(Options(why_not=("fetch",)))


@settings(deadline=None)
@given(cases())
def test_random_packs(case: Case) -> None:
    """Hints agree with what was selected and excluded, and rest on what the client said."""
    source = Domain.load(case.pack)
    who = Identity("kim", case.permissions, "user")
    evaluation = evaluated(source, case.intent, case.facts, who)
    told = hints_of(evaluation)
    assert len(told.derivations) == len(evaluation.selected)
    said = [source.profile.write(fact) for fact in evaluation.session]
    for one in told.derivations:
        assert one.rule_chain[0] == "final_selected"
        assert all(fact in said for fact in one.supporting_facts)
    barred = {str(row[0]) for row in evaluation.result.rows(("kernel.barred_by", 3)) if row[1] == "policy"}
    excluded = {str(row[0]) for row in evaluation.result.rows(("excluded", 3))}
    assert {one.candidate for one in told.excluded} == excluded - barred
    for one in told.derivations:  # what was left out is not needed for anything to speak for the tool
        again = evaluated(source, case.intent, one.supporting_facts, who)
        assert again.result.find(("kernel.named", 1), one.macro_id.removeprefix("m-"))


# --- in an answer ----------------------------------------------------------------------------------------------------


@pytest.mark.req("PROOF-01", "EVAL-28")
def test_an_answer_has_hints_only_if_they_were_asked_for() -> None:
    assert "proof_hints" not in asked(domain(RULES), facts=FACTS)
    assert "proof_hints" in asked(domain(RULES), facts=FACTS, options={"include_proof_hints": True})


def test_nothing_is_explained_that_was_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request without hints pays nothing for them."""
    monkeypatch.setattr("manglecp.mangle.result.Result.explainer", property(lambda _: pytest.fail("it was explained")))
    assert asked(domain(RULES), facts=FACTS)["macro_tools"]


@pytest.mark.req("PROOF-02", "PROOF-03", "PROOF-06")
@pytest.mark.parametrize("most", [1, 2, 3])
def test_derivations_are_those_of_the_tools_in_the_answer(most: int) -> None:
    options = {"include_proof_hints": True}
    found = asked(domain(RULES), facts=FACTS, options=options, constraints={"max_tools_returned": most})
    told = found["proof_hints"]
    assert [one["macro_id"] for one in told["derivations"]] == [one["macro_id"] for one in found["macro_tools"]]
    assert {"macro_id", "selected_by", "score", "supporting_facts", "rule_chain"} <= told["derivations"][0].keys()
    left_out = {one["candidate"] for one in told["excluded"] if one["excluded_by"] == "output"}
    assert left_out == {"fetch", "audit", "report"} - {one["name"] for one in found["macro_tools"]}
