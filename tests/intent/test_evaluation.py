"""One request: what is checked before it is evaluated, what it may use, and what comes out."""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs
import msgspec
import pytest

from manglecp.intent.domain import Domain
from manglecp.intent.evaluation import IntentEvaluation, Selected, evaluate
from manglecp.intent.identity import ANONYMOUS, Identity
from manglecp.intent.responder import answer_bytes
from manglecp.mangle import External, instant_text
from manglecp.pack import ExternalDescription, IntentSettings
from manglecp.pack.settings import PackLimits
from manglecp.wire import WireError, receive, schema
from manglecp.wire.messages import VERSION, IntentRequest
from tests.intent.packs import NOW, NOW_TEXT, SCHEMA, action, clock, pack, request

ME = Identity("me", frozenset({"write"}), "user")
RULES = """\
macro("see", "See.").
macro_step("see", 1, "look").
relevant("see", 50) :- intent("observe").
relevant("see", 90) :- intent("observe"), seen("red").
macro("mend", "Mend.").
macro_step("mend", 1, "look").
relevant("mend", 50) :- intent("observe").
mandatory("mend") :- intent("repair").
"""


def domain(rules: str = RULES, **parts: Any) -> Domain:
    return Domain.load(pack(rules, schema=parts.pop("schema", SCHEMA), **parts))


def ask(given: Domain | None = None, *args: Any, identity: Identity = ME, **parts: Any) -> IntentEvaluation:
    return evaluate(given or domain(), request(*args, **parts), identity, clock=clock)


def refusal(given: Domain | None = None, *args: Any, identity: Identity = ME, **parts: Any) -> WireError:
    with pytest.raises(WireError) as caught:
        ask(given, *args, identity=identity, **parts)
    return caught.value


# --- what comes out --------------------------------------------------------------------------------------------------


@pytest.mark.req("EVAL-01", "EVAL-13", "EVAL-42", "CONF-04")
def test_the_intent_decides() -> None:
    known = domain()
    assert ask(known).selected == (Selected("mend", 50, "flesh"), Selected("see", 50, "flesh"))
    assert ask(known, "repair").selected == (Selected("mend", 100, "skeleton"),)


@pytest.mark.req("EVAL-31")
def test_a_listed_intent_without_tools_gives_no_tools() -> None:
    assert ask(domain(RULES, intents=["observe", "repair", "dance"]), "dance").selected == ()


@pytest.mark.req("EVAL-31")
def test_an_intent_that_no_rule_can_match_is_an_error_with_the_nearest_listed_name() -> None:
    """Names that only rules have are for clients that may see the rules."""
    known = domain(RULES, intents=["observe", "repair"])
    error = refusal(known, "obsrve")
    assert (error.code, error.row.status, error.row.recoverable) == ("x-unknown_intent", 400, True)
    assert error.details == {"path": "$.payload.intent.name", "suggestion": "Did you mean 'observe'?"}
    assert "'obsrve'" in error.message
    assert refusal(domain(RULES), "obsrve").details == {
        "path": "$.payload.intent.name",
        "suggestion": "The manifest lists the intents of this server.",
    }
    auditor = Identity("auditor", frozenset({"explain_policy"}), "user")
    told = refusal(domain(RULES), "obsrve", identity=auditor).details
    assert told is not None
    assert told["suggestion"] == "Did you mean 'observe'?"


@pytest.mark.req("MANI-13")
@pytest.mark.parametrize(
    ("rule", "accepted"),
    [
        ('relevant("see", 50) :- intent("dance").', True),
        ('relevant("see", 50) :- intent(I), seen(I).', True),
        ('relevant("see", 50) :- intent(_), seen("red").', True),
        ('relevant("see", 50) :- intent(I), I = "sing".', False),
        ('relevant("see", 50) :- !intent("sing"), seen("red").', True),
        ('relevant("see", 50) :- seen("never").', True),
        ('relevant("see", 50).', True),
        ('mandatory("see").', True),
        ('relevant("see", 50) :- wanted(T). wanted("see") :- intent("dance").', True),
        ('relevant("see", 50) :- wanted(T). wanted("see") :- intent("sing").', False),
        ('wanted("see") :- intent("dance").', True),
        ("counted(N) :- intent(_), N = 1.", True),
        ('relevant("see", 50) :- intent("sing"), !intent("dance").', False),
        (
            'relevant("see", 50) :- near("a"). near(X) :- link(X, Y), near(Y). near(X) :- intent(X). link("a", "b").',
            True,
        ),
    ],
)
def test_an_unlisted_intent_is_accepted_if_a_rule_can_match_it(rule: str, accepted: bool) -> None:
    known = domain(RULES + rule)
    if accepted:
        ask(known, "dance")
    else:
        assert refusal(known, "dance").code == "x-unknown_intent"


@pytest.mark.req("EVAL-03")
def test_facts_of_the_client_are_session_facts_whatever_they_claim() -> None:
    claims = {"pred": "seen", "args": ["red"], "category": "server", "source": {"source_type": "server"}}
    found = ask(None, "observe", [claims])
    assert found.selected == (Selected("see", 90, "flesh"), Selected("mend", 50, "flesh"))
    assert [str(fact) for fact in found.session] == ['seen("red")']
    proof = found.result.explainer.explain('seen("red")')
    assert proof is not None
    assert found.result.model.origin(found.session[0]) == "session"


@pytest.mark.req("EVAL-02")
def test_params_of_the_intent_are_facts_for_rules() -> None:
    known = domain(RULES + 'relevant("see", 77) :- intent_param("much", 3), intent_param(_, _).\n')
    found = ask(known, params={"much": 3, "none": None, "where": {"lines": [1, 2]}})
    assert found.selected[0] == Selected("see", 77, "flesh")
    assert found.result.facts("intent_param") == [
        'intent_param("much",3)',
        'intent_param("where",["lines" : [1, 2]])',
    ]
    error = refusal(known, params={"many": [{"a": 2**70}]})
    assert error.code == "malformed_message"
    assert "64 bits" in error.message
    assert error.details is not None
    assert error.details["path"] == "$.payload.intent.params.many[0].a"


@pytest.mark.req("EVAL-02")
def test_params_are_optional_and_their_names_keep_their_case() -> None:
    sent = {"type": "intent_request", "id": "a", "manglecp": VERSION, "payload": {"intent": {"name": "observe"}}}
    message = receive(json.dumps(sent).encode(), 1 << 20)
    assert isinstance(message, IntentRequest)
    assert evaluate(domain(), message, ME, clock=clock).result.facts("intent_param") == []
    found = ask(domain(RULES + 'relevant("see", 77) :- intent_param("Much", 3).\n'), params={"Much": 3, "much": 4})
    assert found.selected[0] == Selected("see", 77, "flesh")
    assert found.result.facts("intent_param") == ['intent_param("Much",3)']


@pytest.mark.req("EVAL-02")
def test_rules_see_every_value_of_a_param_exactly() -> None:
    """A value that a rule could not see would pass policy unseen."""
    known = domain(RULES + 'relevant("see", 77) :- intent_param("deep", V), :match_field(V, /x, _).\n')
    deep = {"a": [1, None, {"b": None}], "big": 2**53 + 1, "low": -(2**63), "time": {"_type": "name", "value": "/x"}}
    (fact,) = ask(known, params={"deep": deep}).result.facts("intent_param")
    assert fact == (
        'intent_param("deep",["a" : [1, /null, ["b" : /null]], "big" : 9007199254740993,'
        ' "low" : -9223372036854775808, "time" : /x])'
    )


@pytest.mark.req("EVAL-02")
def test_a_param_that_no_rule_reads_is_any_json() -> None:
    known = domain(RULES + 'relevant("see", 77) :- intent_param("much", 3).\n')
    found = ask(known, params={"much": 3, "other": [2**80, None, {"_type": "unknown"}]})
    assert found.result.facts("intent_param") == ['intent_param("much",3)']
    assert refusal(known, params={"much": 2**80}).code == "malformed_message"


def test_the_identity_is_facts_for_rules() -> None:
    found = ask().result
    assert found.facts("client") == ['client("me")']
    assert found.facts("client_permission") == ['client_permission("write")']
    assert found.facts("client_trust") == ['client_trust("user")']
    assert ask(identity=ANONYMOUS).result.facts("client_trust") == ['client_trust("anonymous")']


@pytest.mark.req("EVAL-38")
def test_an_upgrade_is_a_wish_and_no_fact() -> None:
    found = ask(None, "observe", [("disclosure_upgrade", "m-1"), ("seen", "red")])
    assert found.upgrades == {"m-1"}
    assert [fact.predicate for fact in found.session] == ["seen"]


@pytest.mark.req("EVAL-29")
def test_the_counts() -> None:
    known = domain()
    quiet, more = ask(known, identity=ANONYMOUS), ask(known, "observe", [("seen", "green")], identity=ANONYMOUS)
    numbers = quiet.diagnostics()
    assert numbers.facts_evaluated == quiet.result.statistics.given
    assert more.diagnostics().facts_evaluated == numbers.facts_evaluated + 1
    assert numbers.phases_completed == 6
    assert numbers.rules_fired == quiet.result.explainer.coverage().count("fired")
    assert numbers.facts_derived == quiet.result.statistics.derived - known.base.derived > 0


# --- phases ----------------------------------------------------------------------------------------------------------


@pytest.mark.req("EVAL-43", "EVAL-14")
@pytest.mark.parametrize(
    ("policy", "domain_rules"),
    [
        ('prohibited("mend", "no").', ""),
        ('permitted("see").', ""),
        ('effect_denied("patch", "no").', 'macro_step("mend", 2, "patch").'),
        ("", 'macro_step("mend", 2, A) :- intent(_), A = fn:string:concat("go", "ne").'),
        ('effect_denied("patch", "no").', 'undo_step("mend", 1, "patch"). undo_in("mend", 1, "path", "path").'),
        ("", 'undo_step("mend", 1, A) :- intent(_), A = fn:string:concat("go", "ne").'),
    ],
)
def test_whatever_bars_a_tool_beats_what_selects_it(policy: str, domain_rules: str) -> None:
    known = domain(RULES + domain_rules, policy=policy, actions=["look", "patch"])
    assert [selected.tool for selected in ask(known).selected] == ["see"]
    assert ask(known, "repair").selected == ()
    phases = {str(row[1]) for row in ask(known, "repair").result.rows(("excluded", 3))}
    assert phases == {"exclusion"}


@pytest.mark.req("EVAL-45", "EVAL-15")
def test_of_rivals_the_better_stays_and_names_decide_between_equals() -> None:
    known = domain(RULES + 'conflicts("see", "mend").')
    assert [selected.tool for selected in ask(known).selected] == ["mend"]
    assert [selected.tool for selected in ask(known, "observe", [("seen", "red")]).selected] == ["see"]
    assert ask(known).result.rows(("excluded", 3)) == [("see", "conflict", "yields to mend")]


_THREE = (("low", 30), ("mid", 50), ("top", 70))


@pytest.mark.req("EVAL-45", "EVAL-15")
def test_a_beaten_tool_stays_out_and_its_reason_names_no_tool_that_is_absent() -> None:
    tools = "".join(f'macro("{n}", "It."). macro_step("{n}", 1, "look"). relevant("{n}", {s}).\n' for n, s in _THREE)
    known = ask(domain(tools + 'conflicts("low", "mid"). conflicts("mid", "top").'))
    assert [selected.tool for selected in known.selected] == ["top"]
    assert known.result.rows(("excluded", 3)) == [
        ("low", "conflict", "yields to a better one"),
        ("mid", "conflict", "yields to top"),
    ]


@pytest.mark.req("EVAL-46", "EVAL-16")
def test_dependencies_are_added_with_80_and_without_them_the_dependent_goes() -> None:
    rules = RULES + 'macro("base", "Base.").\nmacro_step("base", 1, "look").\nrequires("see", "base").\n'
    assert ask(domain(rules)).selected == (
        Selected("base", 80, "dependency"),
        Selected("mend", 50, "flesh"),
        Selected("see", 50, "flesh"),
    )
    without = ask(domain(rules, policy='prohibited("base", "no").'))
    assert [selected.tool for selected in without.selected] == ["mend"]
    assert ("see", "dependency", "needs base, which is excluded") in without.result.rows(("excluded", 3))


@pytest.mark.req("EVAL-44")
def test_scores_may_come_from_externals() -> None:
    rules = (
        RULES
        + 'relevant("see", N) :- intent(I), similar(I, N), N > 30.'
        + 'relevant("mixed", N) :- intent(I), similar(I, S), N = fn:div(fn:plus(fn:mult(70, 50), fn:mult(30, S)), 100).'
        + 'macro("mixed", "Both."). macro_step("mixed", 1, "look").'
    )
    external = ExternalDescription(predicate="similar", mode="+-", deterministic=False)
    known = Domain.load(
        pack(rules, schema=SCHEMA + _SIMILAR, externals=[external]),
        externals={"similar": External(lambda inputs: [(88 if inputs == ("observe",) else 20,)])},
    )
    assert Selected("see", 88, "flesh") in ask(known).selected
    assert Selected("mixed", 61, "flesh") in ask(known).selected
    assert [one.tool for one in ask(known, "repair").selected] == ["mend", "mixed"]  # 20 is not above 30
    assert ask(known).diagnostics().rules_fired == ask(known).result.explainer.coverage().count("fired")


_SIMILAR = 'Decl similar(Text, Score) descr [external(), mode("+", "-")] bound [/string, /number].\n'


# --- the evaluation time ---------------------------------------------------------------------------------------------


@pytest.mark.req("EVAL-04", "EVAL-25", "CONF-07", "CONF-11")
@pytest.mark.parametrize(
    ("said", "used"),
    [
        (NOW_TEXT, NOW_TEXT),
        ("2026-01-15T13:00:00+01:00", NOW_TEXT),
        (NOW // 10**6, NOW_TEXT),
        ("2026-01-15T12:00:00.250Z", "2026-01-15T12:00:00.25Z"),
        (None, NOW_TEXT),
        ("now", NOW_TEXT),
    ],
)
def test_the_evaluation_time(said: str | int | None, used: str) -> None:
    assert instant_text(ask(eval_time=said).now) == used


@pytest.mark.req("EVAL-04", "EVAL-19", "CONF-07", "CONF-11")
def test_windows_are_seen_from_the_evaluation_time() -> None:
    known = domain(
        RULES + 'relevant("see", 70) :- <-[0s, 5m] logged("red").\nrelevant("see", 71) :- <+[0s, 5m] logged("red").'
    )
    at = {"pred": "logged", "args": ["red"], "t": {"at": "2026-01-15T12:00:00Z"}}

    def score(eval_time: str) -> int:
        return next(one.score for one in ask(known, "observe", [at], eval_time=eval_time).selected if one.tool == "see")

    assert score("2026-01-15T12:05:00Z") == 70
    assert score("2026-01-15T12:05:00.001Z") == 50
    assert score("2026-01-15T11:55:00Z") == 71
    assert score("2026-01-15T11:54:59Z") == 50


@pytest.mark.parametrize("said", ["yesterday", "2026-01-15", "", "9999-01-01T00:00:00Z", 10**18, -(10**18)])
def test_no_time(said: str | int) -> None:
    error = refusal(eval_time=said)
    assert error.code == "malformed_message"
    assert error.details is not None
    assert error.details["path"] == "$.payload.eval_time"


# --- limits ----------------------------------------------------------------------------------------------------------

CHAIN = """\
macro("see", "See.").
macro_step("see", 1, "look").
relevant("see", 50) :- intent("observe").
next(1, 2). next(2, 3). next(3, 4). next(4, 5). next(5, 6). next(6, 7). next(7, 8). next(8, 9). next(9, 10).
next(10, 11). next(11, 12).
reached(1) :- seen("go").
reached(Y) :- reached(X), next(X, Y).
"""
ENDLESS = CHAIN + "Decl count(N) bound [/number].\ncount(0) :- seen(_).\ncount(M) :- count(N), M = fn:plus(N, 1).\n"


@pytest.mark.req("EVAL-05", "EVAL-17", "EVAL-20", "EVAL-24", "CONF-04", "CONF-16", "CONF-17", "MANI-24")
def test_the_derivation_limit() -> None:
    error = refusal(domain(CHAIN), "observe", [("seen", "go")], constraints={"max_facts_created": 10})
    assert error.code == "derivation_limit_exceeded"
    assert error.details is not None
    assert error.details["budget"] == {"limit": 10, "consumed": 10, "unit": "derived_facts"}
    assert error.details["partial_results_available"] is False
    assert "max_facts_created" in error.details["suggestion"]
    assert error.row.recoverable
    assert ask(domain(CHAIN), "observe", [("seen", "go")]).selected


@pytest.mark.req("EVAL-05", "EVAL-06", "MANI-24")
def test_the_stricter_limit_applies() -> None:
    strict = domain(CHAIN, limits=PackLimits(max_derived_facts=10))
    for constraints in ({}, {"max_facts_created": None}, {"max_facts_created": 10**9}):
        error = refusal(strict, "observe", [("seen", "go")], constraints=constraints)
        assert error.details is not None
        assert error.details["budget"]["limit"] == 10
    error = refusal(strict, "observe", [("seen", "go")], constraints={"max_facts_created": 4})
    assert error.details is not None
    assert error.details["budget"]["limit"] == 4
    free = ask(domain(CHAIN), "observe", [("seen", "go")])
    assert tuple(free.domain.limits) == (100_000, 1_000, 10_000)
    assert free.result.model.limits.derived_facts == 100_000 + free.domain.base.derived
    assert (free.result.model.limits.intervals, free.result.model.limits.seconds) == (1_000, 10.0)
    for asked, seconds in ((60_000, 10.0), (6_000, 6.0)):
        limited = ask(domain(CHAIN), constraints={"max_compute_ms": asked}).result.model.limits
        assert limited.seconds == seconds


def test_what_the_base_derived_is_not_counted_against_a_request() -> None:
    many = "".join(f"part({n}, {n + 1}).\n" for n in range(200))
    closure = "whole(X, Y) :- part(X, Y).\nwhole(X, Z) :- whole(X, Y), part(Y, Z).\n"
    known = domain(RULES + many + closure, limits=PackLimits(max_derived_facts=60))
    assert known.base.derived > 20_000
    derived = ask(known).diagnostics().facts_derived
    assert isinstance(derived, int)
    assert derived <= 60


def timed(count: int) -> list[dict[str, Any]]:
    return [{"pred": "logged", "args": ["red"], "t": {"at": f"2026-01-15T11:{n:02d}:00Z"}} for n in range(count)]


@pytest.mark.req("EVAL-05", "EVAL-17", "EVAL-21", "EVAL-23", "MANI-24")
def test_the_interval_limit_is_exact_and_counts_what_is_left_after_joining() -> None:
    known = domain()
    assert ask(known, "observe", timed(3), constraints={"max_intervals_per_atom": 3}).selected
    error = refusal(known, "observe", timed(4), constraints={"max_intervals_per_atom": 3})
    assert error.code == "interval_limit_exceeded"
    assert error.details is not None
    assert error.details["budget"] == {"limit": 3, "consumed": 3, "unit": "intervals_per_atom"}
    touching = [
        {
            "pred": "logged",
            "args": ["red"],
            "t": {"start": f"2026-01-15T11:{n:02d}:00Z", "end": f"2026-01-15T11:{n + 1}:00Z"},
        }
        for n in range(10, 20)
    ]
    assert ask(known, "observe", touching, constraints={"max_intervals_per_atom": 1}).selected
    assert refusal(domain(limits=PackLimits(max_intervals_per_atom=2)), "observe", timed(3)).code == error.code


@pytest.mark.req("EVAL-23")
def test_a_rule_that_goes_on_in_time_is_halted() -> None:
    # Every fact calls for one a second later; the language warns, and the limit stops it.
    rules = RULES + (
        "Decl tick(X) temporal bound [/string].\n"
        "tick(X)@[T, T] :- logged(X)@[T, T].\n"
        'tick(X)@[U, U] :- tick(X)@[T, T], U = fn:time:add(T, fn:duration:parse("1s")).\n'
    )
    known = domain(rules, limits=PackLimits(max_intervals_per_atom=100, max_compute_ms=300_000))
    error = refusal(known, "observe", timed(1))
    assert error.code == "interval_limit_exceeded"
    error = refusal(known, "observe", timed(1), constraints={"max_intervals_per_atom": 10})
    assert error.details is not None
    assert error.details["budget"] == {"limit": 10, "consumed": 10, "unit": "intervals_per_atom"}


@pytest.mark.req("EVAL-17", "EVAL-22", "MANI-24")
def test_the_time_limit() -> None:
    known = domain(ENDLESS, limits=PackLimits(max_derived_facts=10**12))
    error = refusal(known, "observe", [("seen", "go")], constraints={"max_compute_ms": 50})
    assert error.code == "evaluation_timeout"
    assert error.details is not None
    assert error.details["budget"] == {"limit": 50, "consumed": 50, "unit": "ms"}
    assert refusal(known, constraints={"max_compute_ms": 0}).code == "evaluation_timeout"


@pytest.mark.req("EVAL-17")
def test_values_that_grow_are_stopped_too() -> None:
    grow = RULES + 'grown("x") :- seen(_).\ngrown(T) :- grown(S) |> let T = fn:string:concat(S, S).\n'
    assert refusal(domain(grow), "observe", [("seen", "go")]).code in (
        "derivation_limit_exceeded",
        "evaluation_timeout",
        "evaluation_failed",
    )


@pytest.mark.req("MANI-24")
def test_too_many_facts() -> None:
    few = domain(limits=PackLimits(max_facts_per_request=2))
    assert ask(few, "observe", [("seen", "a"), ("seen", "b")]).selected
    error = refusal(few, "observe", [("seen", "a"), ("seen", "b"), ("wrong",)])
    assert error.code == "too_many_facts"
    assert error.details == {"limit": 2, "actual": 3}


# --- checks that come first ------------------------------------------------------------------------------------------


@pytest.mark.req("EVAL-09")
def test_a_request_that_fails_a_check_is_never_evaluated() -> None:
    asked: list[object] = []

    def answer(inputs: object) -> list[tuple[int]]:
        asked.append(inputs)
        return [(1,)]

    external = ExternalDescription(predicate="similar", mode="+-")
    rules = RULES + 'relevant("see", N) :- intent(I), similar(I, N).'
    given = pack(
        rules,
        schema=SCHEMA + _SIMILAR,
        externals=[external],
        intents=["observe", IntentSettings(name="repair", description="x", required_facts=("seen",))],
        limits=PackLimits(max_facts_per_request=2),
    )
    known = Domain.load(given, externals={"similar": External(answer)})
    refusal(known, "observe", [("unheard_of", 1)])
    refusal(known, "observe", [("seen", 1)])
    refusal(known, "observe", [("seen", "a")] * 3)
    refusal(known, "repair")
    refusal(known, eval_time="soon")
    refusal(known, constraints={"max_compute_ms": 0})
    assert asked == []
    ask(known)
    assert asked == [("observe",)]


@pytest.mark.req("MANI-14")
def test_required_facts() -> None:
    needs = IntentSettings(name="observe", description="x", required_facts=("seen", "logged"))
    known = domain(intents=[needs, "repair"])
    error = refusal(known, "observe", [("seen", "red")])
    assert error.code == "invalid_facts"
    assert error.details == {"violations": [], "missing_facts": ["logged"]}
    both = refusal(known, "observe", [("seen", 1)])
    assert both.details is not None
    assert both.details["missing_facts"] == ["logged"]
    assert len(both.details["violations"]) == 1
    assert ask(known, "observe", [("seen", "red"), ("logged", "red")]).selected
    assert ask(known, "repair").selected


@pytest.mark.req("EVAL-41")
@pytest.mark.parametrize(
    "fact",
    [
        ("permitted", "mend"),
        ("mandatory", "mend"),
        ("relevant", "mend", 100),
        ("client_permission", "admin"),
        ("client_trust", "local"),
        ("intent", "repair"),
        ("action", "gone"),
        ("final_selected", "mend", 100, "skeleton"),
        ("chosen", "mend", 100, "skeleton"),
        ("permitted_only",),
        ("setting", "a", "b"),
    ],
)
def test_no_client_speaks_for_anyone_else(fact: tuple[Any, ...]) -> None:
    error = refusal(domain(policy='prohibited("mend", "no").'), "observe", [fact])
    assert error.code == "unknown_predicate"


# --- what policy says about a request --------------------------------------------------------------------------------


PUBLIC_INTENT = "public_reason(Tool, Text) :- intent_denied(Text), macro(Tool, _)."


def test_policy_refuses_requests() -> None:
    denial = 'intent_denied("Sign in to repair.") :- intent("repair"), !client_permission("admin").\n'
    known = domain(policy=denial + PUBLIC_INTENT)
    error = refusal(known, "repair")
    assert (error.code, error.message) == ("auth_insufficient", "Sign in to repair.")
    assert refusal(domain(policy=denial), "repair").message == "Policy does not permit this intent"
    auditor = Identity("eve", frozenset({"explain_policy"}), "user")
    assert refusal(domain(policy=denial), "repair", identity=auditor).message == "Sign in to repair."
    assert refusal(known, "repair", identity=ANONYMOUS).code == "auth_required"
    assert ask(known, "repair", identity=Identity("root", frozenset({"admin"}), "user")).selected
    assert ask(known).selected


def test_policy_refuses_facts() -> None:
    denial = 'fact_denied("seen", "Internal.") :- client_trust("anonymous").\n'
    internal = refusal(domain(policy=denial), "observe", [("seen", "red")], identity=ANONYMOUS)
    assert "policy does not permit such a fact" in str(internal.details)
    assert "Internal." not in f"{internal.message} {internal.details}"
    policy = 'fact_denied("seen", "Not yours to say.") :- client_trust("anonymous").\n'
    known = domain(policy=denial + policy + 'public_reason(T, "Not yours to say.") :- macro(T, _).')
    facts = [("logged", "red"), ("seen", "red"), ("seen", "green")]
    error = refusal(known, "observe", facts, identity=ANONYMOUS)
    assert error.code == "invalid_facts"
    assert error.details is not None
    assert [(v["fact_index"], v["issue"], v["message"]) for v in error.details["violations"]] == [
        (1, "policy_violation", "Not yours to say."),
        (2, "policy_violation", "Not yours to say."),
    ]
    assert ask(known, "observe", facts).selected
    assert ask(known, identity=ANONYMOUS).selected  # nothing of the kind was said


@pytest.mark.parametrize("name", ["", " ", "\t\u00a0\u2003", "\x1c", "\x85", "\ufeff"])
def test_an_intent_has_a_name(name: str) -> None:
    written = msgspec.to_builtins(request("observe"))
    assert jsonschema_rs.is_valid(schema("intent_request"), written)
    written["payload"]["intent"]["name"] = name
    assert not jsonschema_rs.is_valid(schema("intent_request"), written)
    answer = msgspec.json.decode(answer_bytes(domain(RULES), msgspec.json.encode(written), ANONYMOUS, clock))
    assert answer["payload"]["code"] == "malformed_message"
    assert answer["payload"]["details"]["path"] == "$.payload.intent.name"
    assert not name or answer["payload"]["message"] == "payload.intent.name is blank"


# --- failures --------------------------------------------------------------------------------------------------------


def test_rules_that_fail_say_nothing_about_themselves() -> None:
    known = domain(RULES + "secret_ratio(N) :- seen(_), M = 0, N = fn:div(1, M).\n")
    error = refusal(known, "observe", [("seen", "red")])
    assert error.code == "evaluation_failed"
    text = f"{error.message} {error.details}"
    assert not any(word in text for word in ("secret", "fn:", "domain.mg", "rules/"))


def test_an_external_that_fails_says_nothing_either() -> None:
    def answer(_: object) -> list[tuple[int]]:
        raise RuntimeError("password=hunter2")

    external = ExternalDescription(predicate="similar", mode="+-")
    rules = RULES + 'relevant("see", N) :- intent(I), similar(I, N).'
    given = pack(rules, schema=SCHEMA + _SIMILAR, externals=[external])
    error = refusal(Domain.load(given, externals={"similar": External(answer)}))
    assert error.code == "evaluation_failed"
    assert "hunter2" not in f"{error.message} {error.details}"


def test_who_runs_the_server_is_told_which_rule_failed_and_no_value(caplog: pytest.LogCaptureFixture) -> None:
    known = domain(RULES + "secret_time(N) :- seen(W), N = fn:time:parse_rfc3339(W).\n")
    with caplog.at_level("ERROR", logger="manglecp.intent.evaluation"):
        error = refusal(known, "observe", [("seen", "hunter2")])
    (record,) = caplog.records
    text = record.getMessage()
    line = RULES.count("\n") + 1
    assert f"rules/domain/domain.mg:{line}: fn:time:parse_rfc3339 takes a date and time" in text
    assert "secret_time(N) :- seen(W)" in text
    assert "hunter2" not in text
    assert "hunter2" in str(error.__cause__)  # for whoever may see everything


# --- again and again -------------------------------------------------------------------------------------------------


@pytest.mark.req("EVAL-10", "EVAL-11", "EVAL-18", "CONF-14", "CONF-15")
def test_a_hundred_times_the_same() -> None:
    known = domain(CHAIN + RULES.replace('macro("see", "See.").\nmacro_step("see", 1, "look").\n', ""))
    first = ask(known, "observe", [("seen", "go"), *timed(3)])
    for _ in range(99):
        again = ask(known, "observe", [("seen", "go"), *timed(3)])
        assert again.selected == first.selected
        assert again.diagnostics() == first.diagnostics()
        assert again.now == first.now
    assert ask(known).result.facts("seen") == []


@pytest.mark.req("EVAL-50")
def test_what_is_said_twice_counts_once() -> None:
    once, twice = ask(None, "observe", [("seen", "a")]), ask(None, "observe", [("seen", "a"), ("seen", "a")])
    assert once.diagnostics() == twice.diagnostics()


def test_rows_are_found_by_tool() -> None:
    found = ask(domain(actions=[action("look", effects=("network",))])).result
    assert found.find(("macro_step", 3), "see") == [("see", 1, "look")]
    assert found.find(("relevant", 2), "see") == [("see", 50)]
    assert found.find(("macro", 2), "mend") == [("mend", "Mend.")]
    assert found.find(("macro", 2), "none") == []
    assert found.find(("no_such_predicate", 2), "see") == []
    assert found.find(("macro_effect", 2), "see") == [("see", "network")]
    assert found.rows(("final_selected", 3)) == [("mend", 50, "flesh"), ("see", 50, "flesh")]
    about, whole = [("macro", 2), ("relevant", 2), ("conflicts", 2)], [("final_selected", 3), ("prohibited", 2)]
    assert found.select("see", about, whole) == {
        "macro": found.find(("macro", 2), "see"),
        "relevant": [("see", 50)],
        "final_selected": [("mend", 50, "flesh"), ("see", 50, "flesh")],
    }
