"""Random programs: the naive evaluator, the engine, and the engine over a base say the same."""

from __future__ import annotations

import pytest

from manglecp.mangle.engine import compiled
from tests.effort import effort
from tests.mangle import generate
from tests.mangle.engine.programs import NOW, Made, made, shrunk
from tests.mangle.engine.splitting import disagreement, oracle

pytestmark = pytest.mark.no_cover

BATCH = effort(100)
BATCHES = 8


def problem(program: Made, seed: int) -> str | None:
    loaded = program.loaded()
    return None if loaded is None else disagreement(loaded, NOW, seed)


def check(program: Made, seed: int) -> None:
    found = problem(program, seed)
    if found is not None:
        smallest = shrunk(program, lambda smaller: problem(smaller, seed) is not None)
        pytest.fail(f"seed {seed}, bounds={program.bounds}: {problem(smallest, seed)}\n{smallest.text}")


def plain(seed: int) -> Made:
    """A program without functions, time and transforms, but with deeper joins and recursion."""
    program = generate.program(seed)
    declared = seed % 2 == 0
    return Made(tuple(program.mangle(declared=declared).splitlines()), "error" if declared else "off")


def test_most_programs_are_accepted_and_derive_something() -> None:
    programs = [made(seed) for seed in range(200)]
    loaded = [program.loaded() for program in programs]
    assert sum(program is not None for program in loaded) > 180
    assert {program.bounds for program in programs} == {"error", "off"}
    answers = [(made, oracle(program, NOW)) for made, program in zip(programs, loaded, strict=True) if program]
    for feature in ("deferred()", "external()", "merge(", "fundep", "inclusion", "temporal", "|> do", "!", "fn:div"):
        derive = [answer for made, answer in answers if feature in made.text and answer.derived]
        assert len(derive) >= 3, feature
    assert sum(answer.error == "eval" for _, answer in answers) > 20


@pytest.mark.parametrize("batch", range(BATCHES))
def test_programs(batch: int) -> None:
    for seed in range(batch * BATCH, (batch + 1) * BATCH):
        check(made(seed), seed)


@pytest.mark.parametrize("batch", range(4))
def test_plain_programs(batch: int) -> None:
    for seed in range(batch * BATCH, (batch + 1) * BATCH):
        check(plain(seed), seed)


@pytest.mark.parametrize("batch", range(4))
def test_programs_whose_rules_are_selected_by_constants(batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "FEW_RULES", 0)
    monkeypatch.setattr(compiled, "FEW_FACTS", 1_000)
    for seed in range(50_000 + batch * BATCH, 50_000 + (batch + 1) * BATCH):
        check(made(seed), seed)
        check(plain(seed), seed)


@pytest.mark.soak
@pytest.mark.parametrize("batch", range(20))
def test_many_programs(batch: int) -> None:
    for seed in range(100_000 + batch * 1_000, 100_000 + (batch + 1) * 1_000):
        check(made(seed), seed)


@pytest.mark.soak
@pytest.mark.parametrize("batch", range(10))
def test_many_programs_whose_rules_are_selected_by_constants(batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "FEW_RULES", 0)
    monkeypatch.setattr(compiled, "FEW_FACTS", 1_000)
    for seed in range(200_000 + batch * 1_000, 200_000 + (batch + 1) * 1_000):
        check(made(seed), seed)


@pytest.mark.soak
@pytest.mark.parametrize("batch", range(10))
def test_many_plain_programs(batch: int) -> None:
    for seed in range(100_000 + batch * 1_000, 100_000 + (batch + 1) * 1_000):
        check(plain(seed), seed)


# --- the shrinker --------------------------------------------------------------------------------------------------


def test_shrinking_leaves_what_matters() -> None:
    program = Made(("a.", "b.", "p(X) :- q(X) , r(X) , X < 3 .", "c."), "off")
    smallest = shrunk(program, lambda smaller: "r(X)" in smaller.text and "b." in smaller.text)
    assert smallest.statements == ("b.", "p(X) :- r(X) .")
