"""Evaluate every conformance program and print everything; run by the tests of case 29 as a process of its own.

The argument is a number that decides the order in which facts, rules and declarations arrive.
"""

from __future__ import annotations

import sys
from random import Random

from manglecp.mangle import MangleError, Program, Result, evaluate
from tests.mangle.engine.splitting import split
from tests.mangle.test_conformance import CASES, DEEP, Case


def shuffled(program: Program, order: Random, *, rules: bool) -> Program:
    facts = order.sample(program.facts, len(program.facts))
    if not rules:
        return Program(program.predicates, program.rules, facts, program.components, program.warnings)
    predicates = dict(order.sample(sorted(program.predicates.items()), len(program.predicates)))
    return Program(predicates, order.sample(program.rules, len(program.rules)), facts, program.components, ())


def show(result: Result) -> None:
    print("\n".join(result.facts()))
    counts = result.statistics
    print(counts.given, counts.derived)


def main(case: Case, order: Random) -> None:
    print(case.name)
    try:
        program = case.load()
    except MangleError as error:
        print(error)
        return
    try:
        result = evaluate(shuffled(program, order, rules=False), now=case.now, limits=case.limits)
        show(result)
        print(result.statistics)
    except MangleError as error:
        print(error)
    other = shuffled(program, order, rules=True)
    try:
        show(evaluate(other, now=case.now, limits=case.limits))
        chosen = split(other, order)
        *_, base = chosen.bases(check=True)
        show(base.evaluate(order.sample(chosen.request, len(chosen.request)), now=case.now, limits=case.limits))
    except MangleError as error:  # of two rules that fail the first one is named
        print(error.stage)


if __name__ == "__main__":
    for each in CASES:
        if each.name not in DEEP:
            main(each, Random(f"{sys.argv[1]} {each.name}"))
