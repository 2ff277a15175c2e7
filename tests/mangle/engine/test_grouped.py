"""Binary relations as sets of second values give the facts that plain ones give."""

from __future__ import annotations

from random import Random
from typing import Final

import pytest

from manglecp.mangle.engine.compiled import CompiledProgram
from manglecp.mangle.model import Limits
from tests.effort import effort
from tests.mangle.engine.changing import NOW, load
from tests.mangle.engine.splitting import Answer, difference, disagreement, fresh, oracle

SHAPES: Final = {
    "right": "path(X, Y) :- edge(X, Y). path(X, Z) :- path(X, Y), edge(Y, Z).",
    "left": "path(X, Y) :- edge(X, Y). path(X, Z) :- edge(X, Y), path(Y, Z).",
    "double": "path(X, Y) :- edge(X, Y). path(X, Z) :- path(X, Y), path(Y, Z).",
    "reversed": "path(Y, X) :- edge(X, Y). path(Z, X) :- path(Y, X), edge(Y, Z).",
    "first": "path(X, Y) :- edge(X, Y). path(Z, Y) :- path(X, Y), edge(X, Z).",
    "symmetric": "path(X, Y) :- edge(X, Y). path(Y, X) :- path(X, Y). path(X, Z) :- path(X, Y), path(Y, Z).",
    "constant": "path(X, Y) :- edge(X, Y). path(1, Z) :- path(2, Y), path(Y, Z). path(X, 3) :- path(X, 2).",
    "same": "path(X, X) :- edge(X, _). path(X, Y) :- edge(A, X), path(A, B), edge(B, Y).",
    "loop": "path(X, Y) :- edge(X, Y). path(X, X) :- path(X, Y), path(Y, X).",
    "repeated": "path(Y, X) :- tri(X, Y, Y). path(X, Y) :- path(X, Z), tri(Y, Z, Z).",
    "third": "path(Y, X) :- tri(X, Y, 2). path(X, Z) :- path(X, Y), tri(Y, _, Z).",
    "all": "path(X, Y) :- edge(X, Y). path(X, Z) :- path(X, _), edge(_, Z).",
    "not": "path(X, Y) :- edge(X, Y). path(X, Z) :- path(X, Y), edge(Y, Z), !cut(Y, Z).",
    "less": "path(X, Y) :- edge(X, Y). path(X, Z) :- path(X, Y), edge(Y, Z), X < Z.",
    "mutual": "path(X, Z) :- edge(X, Z). odd(X, Z) :- path(X, Y), edge(Y, Z). path(X, Z) :- odd(X, Y), edge(Y, Z).",
    "crossed": "path(X, Z) :- edge(X, Z). odd(Z, X) :- path(X, Y), edge(Y, Z). path(X, Z) :- odd(Y, X), odd(Y, Z).",
    "sums": "path(X, N) :- edge(X, Y) |> do fn:group_by(X), let N = fn:count(). path(X, Z) :- path(X, Y), edge(Y, Z).",
}
DECLS: Final = "".join(f"Decl {p}(X, Y) bound [/number, /number].\n" for p in ("edge", "path", "odd", "cut"))
TRIPLES: Final = "Decl tri(X, Y, Z) bound [/number, /number, /number].\n"


def program_text(shape: str, seed: int) -> str:
    random = Random(f"{shape} {seed}")
    nodes = random.choice((3, 6, 10))
    lines = []
    for predicate, count in (("edge", random.randint(1, 2 * nodes)), ("cut", 3), ("path", random.choice((0, 2)))):
        lines += [f"{predicate}({random.randrange(nodes)}, {random.randrange(nodes)})." for _ in range(count)]
    lines += [f"tri({', '.join(str(random.randrange(3)) for _ in range(3))})." for _ in range(9)]
    return "\n".join([DECLS, TRIPLES, *sorted(set(lines)), SHAPES[shape].replace(". ", ".\n")])


@pytest.mark.no_cover
@pytest.mark.parametrize("shape", SHAPES)
def test_both_representations(shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [program_text(shape, seed) for seed in range(effort(30))]
    grouped = []
    for text in texts:
        program = load(text)
        assert any(component.groupable for component in CompiledProgram(program).components)
        assert disagreement(program, NOW, 3, splits=4) is None
        grouped.append(fresh(program, NOW))
    monkeypatch.setattr(CompiledProgram, "_can_group", lambda *_: False)
    for text, want in zip(texts, grouped, strict=True):
        program = load(text)
        assert not any(component.groupable for component in CompiledProgram(program).components)
        assert disagreement(program, NOW, 3, splits=4) is None
        assert difference(fresh(program, NOW), want) is None


@pytest.mark.parametrize("shape", SHAPES)
def test_every_limit(shape: str) -> None:
    """Sets that overlap are not counted twice."""
    program = load(program_text(shape, 99))
    derived = oracle(program, NOW).derived
    base = program.base()
    for limit in range(derived + 2):
        error = None if limit >= derived else f"limit {limit}"
        assert fresh(program, NOW, Limits(derived_facts=limit)).error == error
    assert Answer.of(base.evaluate(now=NOW, limits=Limits(derived_facts=derived))).derived == derived
