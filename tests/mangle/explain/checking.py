"""A proof checker that shares nothing with the prover but the evaluator.

Each step is replayed alone: a program that consists of the rule, of the premises of the step as facts, and of whatever
the model knows about the negated predicates must derive the fact of the step. Premises get names of their own, so
nothing can be derived from anything but them.
"""

from __future__ import annotations

from dataclasses import replace

from manglecp.base.source import Source
from manglecp.mangle import printer
from manglecp.mangle.explain import Node, Proof
from manglecp.mangle.facts import TimedArgs, coalesce
from manglecp.mangle.model import Relation
from manglecp.mangle.printer import fact_text
from manglecp.mangle.program import Program, Rule
from manglecp.mangle.result import Result
from manglecp.mangle.syntax import Atom, Clause, Equality, Literal, Premise, Variable
from tests.mangle.naive import evaluate

from .oracles import given_facts


def check(proof: Proof, result: Result) -> None:
    """Every step follows, every leaf was given, and nothing rests on itself."""
    given = given_facts(result.program, result.now)
    finished: set[Node] = set()
    for node in proof.nodes():
        assert all(premise in finished for premise in node.premises), "premises come before what they prove"
        _check_node(node, result, given)
        finished.add(node)
    facts = [node.fact for node in finished if node.origin != "absent"]
    assert len(facts) == len(set(facts)), "one fact, one node"


def _check_node(node: Node, result: Result, given: set[str]) -> None:
    if node.origin == "given":
        assert node.fact in given
        assert node.rule is None
        assert not node.premises
    elif node.origin == "absent":
        assert node.fact.startswith("!")
        assert not node.premises
    else:
        assert node.fact not in given, "what is given needs no proof"
        assert node.ground is not None
        if node.rule is None:
            _check_joined(node, result)
        else:
            _check_step(node, result)


def _check_joined(node: Node, result: Result) -> None:
    """Without a rule: values that were merged, or intervals that were joined."""
    assert node.ground is not None
    key = node.ground.key
    parts = [premise.ground for premise in node.premises]
    assert parts
    merge = result.program.predicates[key].merge
    for part in parts:
        assert part is not None
        assert part.key == key
        if merge is not None:
            assert all(part.args[i] == node.ground.args[i] for i in range(key[1]) if i != merge.column)
        else:
            assert part.args == node.ground.args
    if merge is None:
        asked = node.ground.interval
        joined = coalesce(part.interval for part in parts if part is not None and part.interval is not None)
        assert asked is not None
        assert any(start <= asked[0] and asked[1] <= end for start, end in joined)


def _check_step(node: Node, result: Result) -> None:
    assert node.rule is not None
    rule = next(rule for rule in result.program.rules if rule.clause is node.rule.clause)
    lines: list[str] = []
    premises: list[Premise] = []
    for number, premise in enumerate(rule.premises):
        if isinstance(premise, Literal) and not premise.atom.predicate.startswith(":"):
            name = f"premise{number}"
            if premise.negated:
                facts = list(_facts(result, premise))
            else:
                facts = [
                    p.ground.timed_args
                    for p in node.premises
                    if p.ground is not None and p.ground.key == premise.atom.key
                ]
                assert facts, f"{node.fact} names nothing for {printer.premise(premise)}"
            temporal = result.program.predicates[premise.atom.key].temporal
            lines.append(_decl(name, len(premise.atom.args), temporal))
            lines += [f"{fact_text(name, args, at)}." for args, at in facts]
            premise = replace(premise, atom=Atom(name, premise.atom.args))
        premises.append(premise)
    premises = _inputs(rule, node, result) + premises
    head = Atom("conclusion", rule.head.args)
    clause = Clause(head, rule.clause.annotation, tuple(premises), rule.clause.transforms)
    assert node.ground is not None
    lines.append(_decl("conclusion", node.ground.key[1], result.program.predicates[node.ground.key].temporal))
    lines.append(printer.clause(clause))
    program = Program.load([Source("step", "\n".join(lines) + "\n")], bounds="off")
    derived = evaluate(program, now=result.now).relations.get(head.key)
    assert isinstance(derived, Relation), f"{node.fact} does not follow:\n" + "\n".join(lines)
    assert node.ground.interval in derived.facts.get(node.ground.args, ()), (
        f"{node.fact} does not follow:\n" + "\n".join(lines)
    )


def _inputs(rule: Rule, node: Node, result: Result) -> list[Premise]:
    """A deferred rule is given its inputs."""
    predicate = result.program.predicates[rule.head.key]
    if not predicate.deferred:
        return []
    names = [arg.name for i in predicate.inputs() if isinstance(arg := rule.head.args[i], Variable)]
    assert node.ground is not None
    values = dict(zip(predicate.inputs(), (node.ground.args[i] for i in predicate.inputs()), strict=True))
    by_name = {arg.name: values[i] for i in values if isinstance(arg := rule.head.args[i], Variable)}
    return [Equality(Variable(name), by_name[name]) for name in names]  # type: ignore[arg-type]


def _facts(result: Result, premise: Literal) -> list[TimedArgs]:
    """What the model knows of a negated predicate; of a deferred one only that nothing matched."""
    return list(result.relations.get(premise.atom.key, ()))


def _decl(name: str, arity: int, temporal: bool) -> str:
    args = ", ".join(f"A{i}" for i in range(arity))
    return f"Decl {name}({args}){' temporal' if temporal else ''}."
