"""The window in which a macro-tool is valid."""

from __future__ import annotations

from typing import Any

import pytest

from manglecp.intent.composition import SELECTION, validity
from manglecp.intent.definition import Flaw
from manglecp.intent.domain import Domain
from manglecp.intent.evaluation import IntentEvaluation, evaluate
from manglecp.intent.identity import Identity
from manglecp.mangle import Fact
from manglecp.mangle.explain.expiry import Expiry

from .answering import asked, composer
from .packs import NOW, clock, pack, request

pytestmark = [pytest.mark.req("TOOL-17"), pytest.mark.req("TOOL-18")]

MINUTE = 60 * 10**9
SCHEMA = """
    Decl logged(Word) temporal descr [direction("input"), untimed("always")] bound [/string].
    Decl seen(Word) descr [direction("input")] bound [/string].
"""
TOOLS = "".join(f'macro("{name}", "It."). macro_step("{name}", 1, "look").\n' for name in ("a", "b", "c", "d"))


def logged(word: str, minutes_ago: int) -> dict[str, Any]:
    return {"pred": "logged", "args": [word], "t": {"at": f"2026-01-15T11:{60 - minutes_ago:02}:00Z"}}


def evaluated(rules: str, *facts: dict[str, Any] | tuple[str, ...]) -> IntentEvaluation:
    domain = Domain.load(pack(TOOLS + rules, schema=SCHEMA, intents=["observe"]))
    return evaluate(domain, request(facts=facts), Identity(), clock=clock)


def validity_of(evaluation: IntentEvaluation, tool: str) -> tuple[int | None, int | None] | None:
    result = evaluation.result
    return validity(evaluation.domain, result, tool, result.select(tool, SELECTION))


def window(rules: str, tool: str, *facts: dict[str, Any] | tuple[str, ...]) -> float | None:
    """Minutes from now."""
    found = validity_of(evaluated(rules, *facts), tool)
    assert found is not None
    not_before, expires_at = found
    if expires_at is None:
        assert not_before is None
        return None
    assert not_before == NOW
    return (expires_at - NOW) / MINUTE


def test_a_tool_without_time_has_no_window() -> None:
    assert window('mandatory("a") :- intent("observe").', "a") is None
    assert window('relevant("a", 50) :- seen(_). relevant("b", 60) :- <-[5m] logged(_).', "a", ("seen", "x")) is None


@pytest.mark.parametrize(
    ("said", "minutes"),
    [
        ('valid_for("a", fn:duration:from_minutes(7))', 7),
        ('valid_until("a", fn:time:parse_rfc3339("2026-01-15T12:09:00Z"))', 9),
    ],
)
def test_rules_come_first(said: str, minutes: int) -> None:
    rules = f'relevant("a", 50) :- <-[5m] logged(_). {said} :- intent(_).'
    assert window(rules, "a", logged("x", 1)) == minutes


def test_of_several_ends_the_earliest_counts() -> None:
    rules = """
        mandatory("a").
        valid_for("a", fn:duration:from_minutes(20)) :- intent(_).
        valid_for("a", fn:duration:from_minutes(7)) :- intent(_).
        valid_until("a", fn:time:parse_rfc3339("2026-01-15T12:09:00Z")) :- intent(_).
    """
    assert window(rules, "a") == 7


@pytest.mark.parametrize(
    "said",
    [
        'valid_for("a", Span) :- Span = fn:duration:from_minutes(-7), intent(_)',
        'valid_until("a", fn:time:parse_rfc3339("2026-01-15T11:59:59Z"))',
    ],
)
def test_a_tool_whose_time_is_over_is_left_out_with_whoever_needs_it(said: str) -> None:
    rules = f'mandatory("a"). mandatory("b"). mandatory("c"). requires("b", "a"). {said}.'
    evaluation = evaluated(rules)
    with pytest.raises(Flaw, match="no longer valid"):
        composer(evaluation).compose("a")
    definitions, flaws = composer(evaluation).compose_all(["a", "b", "c"])
    assert list(definitions) == ["c"]
    assert [flaw.message for flaw in flaws.values()] == ["a: it is no longer valid"]
    told = asked(evaluation.domain, options={"include_proof_hints": True})
    assert [one["name"] for one in told["macro_tools"]] == ["c"]
    reasons = {one["candidate"]: one["reason"] for one in told["proof_hints"]["excluded"]}
    assert reasons["a"] == "it is no longer valid"


def test_a_tool_whose_time_ends_now_is_still_there() -> None:
    rules = 'mandatory("a"). valid_until("a", fn:time:parse_rfc3339("2026-01-15T12:00:00Z")) :- intent(_).'
    assert composer(evaluated(rules)).compose("a").expires_at == NOW


def test_a_point_ten_minutes_deep_in_a_window_of_ten_minutes_expires_now() -> None:
    rules = 'relevant("a", 50) :- <-[10m] logged(_).'
    assert window(rules, "a", logged("x", 10)) == 0
    assert window(rules, "a", logged("x", 10), logged("y", 4)) == 6


def test_the_last_of_what_speaks_for_a_tool_counts_whatever_its_score() -> None:
    rules = 'relevant("a", 90) :- <-[5m] logged(_). relevant("a", 30) :- <-[30m] logged(_).'
    assert window(rules, "a", logged("x", 1)) == 29
    assert window(rules + 'mandatory("a") :- seen(_).', "a", logged("x", 1), ("seen", "x")) is None
    assert window(rules + 'mandatory("a") :- seen(_).', "a", logged("x", 1)) == 29


def test_what_is_no_candidate_does_not_count() -> None:
    rules = 'relevant("a", 90) :- <-[5m] logged(_). relevant("a", S) :- seen(_), S = fn:minus(0, 1).'
    assert window(rules, "a", logged("x", 1), ("seen", "x")) == 4


def test_a_dependency_lasts_as_long_as_the_last_tool_that_needs_it() -> None:
    rules = """
        relevant("a", 90) :- <-[5m] logged(_).
        relevant("b", 90) :- <-[30m] logged(_).
        requires("a", "c"). requires("b", "d"). requires("d", "c").
    """
    assert window(rules, "c", logged("x", 1)) == 29
    assert window(rules, "d", logged("x", 1)) == 29
    assert window(rules, "a", logged("x", 1)) == 4
    assert window(rules, "c", logged("x", 20)) == 10
    assert window(rules + 'mandatory("b").', "c", logged("x", 1)) is None


def test_a_candidate_that_is_needed_too_lasts_as_long_as_either() -> None:
    rules = """
        relevant("a", 90) :- <-[30m] logged(_). requires("a", "c").
        relevant("c", 50) :- <-[5m] logged(_).
    """
    assert window(rules, "c", logged("x", 1)) == 29
    assert window(rules + 'relevant("c", 40) :- seen(_).', "c", logged("x", 1), ("seen", "x")) is None


def test_a_requirement_that_ends_is_part_of_it() -> None:
    rules = 'mandatory("a"). requires("a", "c") :- <-[5m] logged(_).'
    assert window(rules, "c", logged("x", 1)) == 4
    assert window(rules, "a", logged("x", 1)) is None


def test_negation_does_not_end_anything() -> None:
    rules = 'relevant("a", 50) :- seen(_), !<-[5m] logged(_). prohibited_by(X) :- <-[5m] logged(X).'
    assert window(rules, "a", ("seen", "x"), logged("x", 20)) is None


def test_tools_that_cannot_expire_are_not_looked_into(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rule graph tells, tool by tool."""
    rules = 'relevant("a", 50) :- seen(_). relevant("b", 50) :- <-[5m] logged(_).'
    evaluation = evaluated(rules, ("seen", "x"), logged("x", 1))
    asked = []
    original = Expiry.of

    def of(self: Expiry, fact: str | Fact) -> int | None:
        asked.append(fact)
        return original(self, fact)

    monkeypatch.setattr(Expiry, "of", of)
    assert validity_of(evaluation, "a") == (None, None)
    assert not asked
    assert validity_of(evaluation, "b") == (NOW, NOW + 4 * MINUTE)
    assert asked
