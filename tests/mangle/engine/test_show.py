"""What was compiled, for people: why a component is evaluated as it is, and source that is Python."""

from __future__ import annotations

import ast

import pytest

from manglecp.mangle.engine import CompiledProgram, evaluate, show_plan
from manglecp.mangle.facts import Fact
from tests.mangle.engine.changing import NOW, load

DECLS = """
Decl e(X, Y) bound [/number, /number].
Decl up(X) temporal bound [/number].
Decl d(X, Y) descr [deferred(), mode("+", "-")] bound [/number, /number].
Decl x(X, Y) descr [external(), mode("+", "-")] bound [/number, /number].
Decl m(X, Y) descr [fundep([X], [Y]), merge([Y], "most")] bound [/number, /number].
Decl most(A, B, C) descr [deferred(), mode("+", "+", "-")] bound [/number, /number, /number].
d(X, Y) :- Y = fn:plus(X, 1).
most(A, B, A) :- A >= B.
most(A, B, B) :- A < B.
e(1, 2).
"""


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        ("p(X) :- e(X, _).", "# p/1: not recursive"),
        ("p(X, Y) :- e(X, Y). p(X, Z) :- p(X, Y), e(Y, Z).", "kept as one set of second values per first value"),
        ("p(X, Y) :- e(X, Y). p(X, Z) :- p(X, Y), e(Y, Z).", "because it is recursive"),
        ("p(fn:plus(X, 1)) :- e(X, _).", "because a head is computed"),
        (
            "p(N) :- e(X, _) |> do fn:group_by(), let N = fn:count().",
            "because its groups cannot be told from its facts",
        ),
        ("p(X) :- e(X, _), !up(X).", "because a negation looks at time or computes"),
        ("Decl p(X) temporal. p(X)@[S, E] :- up(X)@[S, E].", "because its facts hold for intervals"),
        ("p(X) :- e(X, _), up(X)@[now].", "evaluated for each request, because it looks at the clock or outside"),
        ("p(Y) :- e(X, _), d(X, Y).", "interpreted, because d is deferred"),
        ("p(Y) :- e(X, _), x(X, Y).", "interpreted, because x is external"),
        ("m(X, Y) :- e(X, Y).", "interpreted, because m is merged"),
    ],
)
def test_reasons(rule: str, says: str) -> None:
    shown = show_plan(CompiledProgram(load(DECLS + rule, "off")))
    assert says in shown
    assert all(line.startswith("#") for line in shown.splitlines() if line)  # nothing was needed yet


def test_functions_are_shown_once_they_were_needed() -> None:
    program = load(DECLS + "p(X, Y) :- e(X, Y), X < Y, !e(Y, X).")
    compiled = CompiledProgram(program)
    evaluate(program, now=NOW, compiled=compiled)
    shown = show_plan(compiled)
    (function,) = ast.parse(shown).body
    assert isinstance(function, ast.FunctionDef)
    assert "p(X, Y) :- e(X, Y), X < Y, !e(Y, X)." in shown
    base = program.base()
    base.evaluate([Fact("e", (2, 3))], now=NOW)
    base.evaluate([Fact("e", (2, 1))], now=NOW)
    assert len(ast.parse(show_plan(base.compiled)).body) >= 1


def test_more_loops_than_python_nests() -> None:
    """Python refuses more than twenty nested blocks; such a rule is interpreted, with the same answer."""
    premises = ", ".join(f"e(X{i}, X{i + 1})" for i in range(30))
    program = load(f"{DECLS}e(2, 1). p(X0, X30) :- {premises}.")
    compiled = CompiledProgram(program)
    result = evaluate(program, now=NOW, compiled=compiled)
    assert result.facts("p") == ["p(1,1)", "p(2,2)"]
    assert "nested loops" in show_plan(compiled)
    base = program.base()
    assert base.evaluate([Fact("e", (3, 3))], now=NOW).facts("p") == ["p(1,1)", "p(2,2)", "p(3,3)"]


def test_more_loops_than_python_nests_in_a_recursive_rule() -> None:
    """Its function is needed in the second round only; what the first one derived is not the result."""
    premises = ", ".join(f"e(X{i}, X{i + 1})" for i in range(30))
    program = load(f"{DECLS}e(2, 1). p(1, 1) :- e(1, _). p(Y, Y) :- p(X, _), e(X, Y), {premises}.")
    compiled = CompiledProgram(program)
    for _ in range(2):
        assert evaluate(program, now=NOW, compiled=compiled).facts("p") == ["p(1,1)", "p(2,2)"]
    assert "nested loops" in show_plan(compiled)
    base = program.base()
    assert base.evaluate([Fact("e", (1, 3))], now=NOW).facts("p") == ["p(1,1)", "p(2,2)", "p(3,3)"]
