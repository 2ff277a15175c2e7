"""External predicates: answered by Python, each question once, with a budget."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from manglecp.mangle import AnalysisError, EvalError, LimitError, Limits, Program, Source
from manglecp.mangle.externals import External
from tests.mangle.naive import evaluate

PROGRAM = """
Decl double(N, M) descr [external(), mode("+", "-")] bound [/number, /number].
n(1). n(2). n(5).
twice(X, Y) :- n(X), double(X, Y).
not_ten(X) :- n(X), !double(X, 10).
"""


def answers(external: External) -> list[str]:
    program = Program.load([Source("external.mg", PROGRAM)])
    result = evaluate(program, now=0, externals={"double": external})
    return [fact for fact in result.facts() if not fact.startswith("n(")]


EXPECTED = ["not_ten(1)", "not_ten(2)", "twice(1,2)", "twice(2,4)", "twice(5,10)"]


def test_one_question_at_a_time() -> None:
    asked: list[Any] = []

    def double(inputs: tuple[int]) -> Iterable[tuple[int]]:
        asked.append(inputs)
        return [(inputs[0] * 2,)]

    assert answers(External(double)) == EXPECTED
    assert sorted(asked) == [(1,), (2,), (5,)]


def test_many_questions_at_once() -> None:
    calls: list[int] = []

    def double(inputs: Sequence[tuple[int]]) -> list[list[tuple[int]]]:
        calls.append(len(inputs))
        return [[(number * 2,)] for (number,) in inputs]

    assert answers(External(double, batch=True)) == EXPECTED
    assert calls == [3]


def late(_: Any) -> list[Any]:
    time.sleep(0.3)
    return []


@pytest.mark.parametrize(
    ("external", "message"),
    [
        (External(lambda inputs: [(1 // (inputs[0] - 2),)]), "double failed: ZeroDivisionError"),
        (External(late, seconds=0.02), "double did not return within 0.02 s"),
        (External(lambda _: [], batch=True), "double returned 0 results for 3 inputs"),
        (External(lambda _: [(1, 2)]), "double returned a value that is not a row"),
        (External(lambda _: [(1.5,)]), "double returned a value that is not a row"),
    ],
)
def test_a_failing_one_is_named(external: External, message: str) -> None:
    with pytest.raises(EvalError, match=message) as caught:
        answers(external)
    assert caught.value.diagnostics[0].span is not None


def very_late(_: Any) -> list[Any]:
    time.sleep(20)
    return []


def leave(_: Any) -> list[Any]:
    raise SystemExit(3)


@pytest.mark.parametrize(
    ("external", "message"),
    [
        (External(lambda _: [1]), "double returned a value that is not a row of its outputs"),
        (External(lambda _: 7), "double failed: TypeError"),  # type: ignore[arg-type,return-value]
        (External(lambda _: [("two",)]), "double returned a row that does not fit its declaration"),
        (External(lambda _: [(2**80,)]), "double returned a row that does not fit its declaration"),
        (External(leave), "double failed: SystemExit"),
        (External(lambda _: [], batch=True), "double returned 0 results for 3 inputs"),
    ],
)
def test_answers_that_are_none(external: External, message: str) -> None:
    with pytest.raises(EvalError, match=message):
        answers(external)


def test_answers_to_what_nobody_can_ask() -> None:
    program = Program.load([Source("external.mg", PROGRAM)])
    with pytest.raises(AnalysisError, match="no external predicate duoble") as caught:
        program.base([], externals={"duoble": External(late)})
    assert caught.value.diagnostics[0].fix == "did you mean double?"


def test_a_predicate_that_nobody_answers() -> None:
    program = Program.load([Source("external.mg", PROGRAM)])
    with pytest.raises(EvalError, match="the external predicate double has no implementation"):
        program.base([]).evaluate([])


def test_a_limit_does_not_wait_for_an_answer() -> None:
    program = Program.load([Source("external.mg", PROGRAM)])
    started = time.monotonic()
    with pytest.raises(LimitError):
        program.base([], externals={"double": External(very_late)}).evaluate([], limits=Limits(seconds=0.1))
    assert time.monotonic() - started < 10
