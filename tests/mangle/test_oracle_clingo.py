"""Random programs against clingo, which shares no code with us and computes the same model."""

from __future__ import annotations

from random import Random

import clingo
import pytest

from manglecp.base.source import Source
from manglecp.mangle.program import Program
from tests.mangle import generate
from tests.mangle.generate import Generated
from tests.mangle.naive import evaluate

pytestmark = pytest.mark.no_cover

CHUNK = 50
CHUNKS = 6
SOAK_CHUNKS = 400


def own_model(program: Generated, *, declared: bool) -> set[str]:
    source = Source("generated.mg", program.mangle(declared=declared))
    return set(evaluate(Program.load([source], bounds="error" if declared else "off"), now=0).facts())


def clingo_model(program: Generated) -> set[str]:
    """The facts of the only answer set, in our spelling."""
    names = {generate.asp_term(name): name for name in generate.NAMES}

    def silent(_code: clingo.MessageCode, _message: str) -> None:
        """Predicates without clauses are worth a remark to clingo, not to us."""

    control = clingo.Control(["--models=0", "--warn=none"], logger=silent)
    control.add("base", [], program.asp())
    control.ground([("base", [])])
    models: list[set[str]] = []
    with control.solve(yield_=True) as handle:
        for model in handle:
            found = set()
            for symbol in model.symbols(atoms=True):
                args = [
                    str(a.number) if a.type == clingo.SymbolType.Number else names[a.name] for a in symbol.arguments
                ]
                found.add(f"{symbol.name}({','.join(args)})")
            models.append(found)
    assert len(models) == 1  # a stratified program has one
    return models[0]


def compare(seed: int) -> None:
    program = generate.program(seed)
    wanted = clingo_model(program)
    found = own_model(program, declared=seed % 2 == 0)
    assert found == wanted, f"seed {seed}\n{program.mangle()}\nmissing {wanted - found}\ntoo much {found - wanted}"
    again = own_model(program.shuffled(Random(seed)), declared=seed % 2 == 1)
    assert again == wanted, f"seed {seed}, shuffled"


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_the_model_is_clingos(chunk: int) -> None:
    for seed in range(chunk * CHUNK, (chunk + 1) * CHUNK):
        compare(seed)


@pytest.mark.soak
@pytest.mark.parametrize("chunk", range(SOAK_CHUNKS))
def test_many_more_models_are_clingos(chunk: int) -> None:
    first = 1_000_000 + chunk * CHUNK
    for seed in range(first, first + CHUNK):
        compare(seed)


def test_the_programs_are_worth_comparing() -> None:
    """They derive something, negate, recurse; and a seed always means the same program."""
    programs = [generate.program(seed) for seed in range(CHUNK * CHUNKS)]
    assert programs[:20] == [generate.program(seed) for seed in range(20)]
    assert programs[0] != programs[0].shuffled(Random(0))
    derived = [sum(not fact.startswith("e") for fact in own_model(p, declared=False)) for p in programs]
    assert sum(count > 5 for count in derived) > len(programs) / 2
    texts = [p.mangle(declared=False) for p in programs]
    for part in ("!p", "!e", "_", " = ", " != ", " < ", " >= ", "/d/e", "-1", "() :-"):
        assert sum(part in text for text in texts) > 20, part
    recursive = sum(
        any(
            isinstance(b, generate.Atom) and b.predicate.stratum == r.head.predicate.stratum
            for r in p.rules
            for b in r.body
        )
        for p in programs
    )
    assert recursive > len(programs) / 2
