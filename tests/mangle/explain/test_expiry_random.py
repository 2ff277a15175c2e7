"""Random programs: ends of facts against time itself, against proofs, and between the two ways to find them."""

from __future__ import annotations

from random import Random
from typing import Final

import pytest

from manglecp.base.source import Source
from manglecp.mangle.engine import evaluate
from manglecp.mangle.errors import MangleError
from manglecp.mangle.explain import Node, Proof
from manglecp.mangle.explain.expiry import depends_on_now, premise_end
from manglecp.mangle.facts import Fact
from manglecp.mangle.matching import unify
from manglecp.mangle.program import Program
from manglecp.mangle.result import Result
from manglecp.mangle.syntax import Literal
from manglecp.mangle.values import INT_MAX

from .asking import without_compiled_rules
from .programs import FAMILIES, LIMITS, NOW, load, run, write

pytestmark = pytest.mark.no_cover

FEW: Final = 40
MANY: Final = 1_500
SECOND: Final = 1_000_000_000


def _runs(few: int, many: int) -> pytest.MarkDecorator:
    soak = pytest.param(range(few, many), marks=pytest.mark.soak, id=f"{few}-{many}")
    return pytest.mark.parametrize("seeds", [pytest.param(range(few), id=f"0-{few}"), soak])


# --- time itself -----------------------------------------------------------------------------------------------------


def _passing(seed: int) -> tuple[Program, list[Fact]]:
    """A program without negation over facts that have all begun long ago, so that passing time only takes away.

    Then a fact ends exactly when it stops holding.
    """
    random = Random(seed)
    lines = [f"Decl t{i}(X, Y) temporal bound [/number, /number]." for i in range(2)]
    lines.append("Decl copied(X, Y) temporal bound [/number, /number].")
    lines.append("copied(Y, X)@[S, E] :- t0(X, Y)@[S, E].")
    facts = []
    for name in ("t0", "t1"):
        for _ in range(random.randint(1, 8)):
            end = NOW + random.randint(-30, 60) * SECOND
            if random.random() < 0.1:
                end = INT_MAX
            args = (random.randint(0, 2), random.randint(0, 2))
            facts.append(Fact(name, args, (NOW - 10_000 * SECOND, end)))
    facts += [Fact("e", (random.randint(0, 2), random.randint(0, 2))) for _ in range(3)]
    known = ["e"]
    for layer in range(random.randint(1, 3)):
        head = f"d{layer}"
        for _ in range(random.randint(1, 3)):
            body = [_premise(random, [*known, head]) for _ in range(random.randint(1, 3))]
            used = sorted({v for premise in body for v in "XYZ" if v in premise})
            terms = [random.choice([*used, *used, str(random.randint(0, 2))] if used else ["1"]) for _ in range(2)]
            lines.append(f"{head}({', '.join(terms)}) :- {', '.join(body)}.")
        known.append(head)
    lines.append("Decl e(X, Y) bound [/number, /number].")
    return Program.load([Source("random.mg", "\n".join(lines))]), facts


def _premise(random: Random, plain: list[str]) -> str:
    args = ", ".join(random.choice(["X", "Y", "Z", "_", str(random.randint(0, 2))]) for _ in range(2))
    if random.random() < 0.4:
        return f"{random.choice(plain)}({args})"
    atom = f"{random.choice(['t0', 't1', 'copied'])}({args})"
    first, second = sorted(random.sample(range(40), 2))
    kind = random.choice(["now", "now", "<-", "[-", "<+", "[+", "one"])
    if kind == "now":
        return f"{atom}@[now]"
    if kind == "one":
        return f"{random.choice(['<-', '[-', '<+', '[+'])}[{second}s] {atom}"
    return f"{kind}[{first}s, {second}s] {atom}"


@_runs(FEW, MANY)
def test_a_fact_holds_until_its_end_and_no_longer(seeds: range) -> None:
    ending = 0
    for seed in seeds:
        program, facts = _passing(seed)
        base = program.base(facts[::2])
        result = base.evaluate(facts[1::2], now=NOW)
        for key in (key for key in result.relations if key[0].startswith("d")):
            for args, _ in result.relations[key]:
                fact = Fact(key[0], args)
                end = result.expiry(fact)
                if end is None:
                    assert _holds(program, facts, fact, NOW + 1_000_000 * SECOND), (seed, fact)
                else:
                    assert _holds(program, facts, fact, end), (seed, fact)
                    assert not _holds(program, facts, fact, end + 1), (seed, fact)
                    ending += 1
    assert ending > len(seeds)


def _holds(program: Program, facts: list[Fact], fact: Fact, now: int) -> bool:
    found = program.base(facts).evaluate(now=now).relations.get(fact.key, ())
    return any(args == fact.args for args, _ in found)


def _number(end: int | None) -> int:
    return INT_MAX if end is None else end


# --- proofs ----------------------------------------------------------------------------------------------------------


@_runs(FEW, 400)
def test_no_proof_lasts_longer(seeds: range) -> None:
    """And mostly one of those found lasts exactly as long."""
    exact = 0
    for seed in seeds:
        text = write("time", seed)
        result = run(text)
        if result is None:
            continue
        for name in result.facts():
            if "@" in name:
                continue
            sets = result.explainer.alternatives(name, 8)
            if not sets.complete:
                continue
            end = _number(result.expiry(name))
            ends = []
            for leaves in sets.sets:
                proof = result.explainer.explain(name, using=leaves)
                assert proof is not None
                ends.append(_proof_end(proof, result))
            assert max(ends) <= end, (seed, name, text)
            exact += max(ends) == end != INT_MAX
    assert exact


def _proof_end(proof: Proof, result: Result) -> int:
    """The earliest end over the premises that look at now, of every step that is no temporal fact itself."""
    ends = [INT_MAX]
    stack = [proof.root]
    while stack:
        node = stack.pop()
        if node.ground is not None and node.ground.interval is None:
            stack += node.premises
            ends += _step_ends(node, result)
    return min(ends)


def _step_ends(node: Node, result: Result) -> list[int]:
    if node.rule is None:
        return []
    ends = []
    for premise in node.rule.clause.premises:
        if not isinstance(premise, Literal) or not depends_on_now(premise):
            continue
        options = []
        for fact in (other.ground for other in node.premises):
            if fact is None or fact.key != premise.atom.key or fact.interval is None:
                continue
            if unify(list(premise.atom.args), fact.args, dict(node.bindings), result.now) is None:
                continue
            whole = [at for args, at in result.relations[fact.key] if args == fact.args and at is not None]
            start = fact.interval[0]
            options.append(next(e for s, e in whole if s <= start <= e))
        ends.append(max(premise_end(premise, node.bindings, end) for end in options))
    return ends


# --- two ways --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
@_runs(FEW, 400)
def test_compiled_functions_and_instances_agree(family: str, seeds: range) -> None:
    """Compiled functions run backwards, and instances of rules read off the model."""
    compared = ended = 0
    for seed in seeds:
        try:
            program = load(write(family, seed))
            slow = without_compiled_rules(evaluate(program, now=NOW, limits=LIMITS))
        except MangleError:
            continue
        quick = evaluate(program, now=NOW, limits=LIMITS)
        for fact in slow.facts():
            assert quick.expiry(fact) == slow.expiry(fact), (seed, fact)
            compared += 1
            ended += slow.expiry(fact) is not None and "@" not in fact
    assert compared > len(seeds)
    assert ended or family not in ("time", "all")
