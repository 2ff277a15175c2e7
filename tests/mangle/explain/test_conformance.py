"""The conformance cases: why a fact holds, and why one does not."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

from manglecp.mangle.engine import evaluate
from manglecp.mangle.explain.shape import unifies
from manglecp.mangle.parser import decode
from manglecp.mangle.program import Program
from manglecp.mangle.result import Result

from .asking import instant
from .checking import check

FOLDER: Final = Path(__file__).parents[2] / "conformance" / "explain"
CASES: Final = sorted(path.stem for path in FOLDER.glob("*.json"))
_NOW: Final = re.compile(r"^# now: (.+)$", re.MULTILINE)


@cache
def expected(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
    return found


def load(name: str) -> Result:
    path = FOLDER / f"{name}.mg"
    now = _NOW.search(path.read_text())
    program = Program.load([decode(path.name, path.read_bytes())])
    return evaluate(program, now=instant(now[1] if now else "1970-01-01T00:00:00Z"))


WHY: Final = [name for name in CASES if "why" in expected(name)]
WHY_NOT: Final = [name for name in CASES if "why_not" in expected(name)]


def test_there_are_cases() -> None:
    assert len(WHY) >= 11
    assert len(WHY_NOT) >= 6


@pytest.mark.parametrize("name", WHY)
def test_why(name: str) -> None:
    case = expected(name)
    result = load(name)
    proof = result.explainer.explain(case["fact"])
    assert proof is not None
    check(proof, result)
    wanted = [set(leaves) for leaves in case["why"]["leaf_facts"]]
    leaves = set(proof.leaves())
    assert any(one <= leaves for one in wanted)
    if leaves == wanted[0]:
        assert {rule.head for rule in proof.rules()} == set(case["why"]["rule_heads"])


@pytest.mark.parametrize("name", WHY)
def test_alternatives(name: str) -> None:
    case = expected(name)
    found = load(name).explainer.alternatives(case["fact"])
    assert found.complete
    assert {frozenset(fact.text for fact in facts) for facts in found.sets} == set(
        map(frozenset, case["why"]["leaf_facts"])
    )


@pytest.mark.parametrize("name", WHY_NOT)
def test_why_not(name: str) -> None:
    case = expected(name)
    result = load(name)
    assert result.explainer.explain(case["fact"]) is None
    answer = result.explainer.why_not(case["fact"]).as_json()
    goal = result.explainer.read(case["fact"])
    rules = [rule for rule in result.program.rules if rule.head.key == goal.key and unifies(rule.head, goal.args)]
    assert len(answer["blocked"]) == len(rules)
    assert {blocked["premise"] for blocked in answer["blocked"]} <= set(case["why_not"]["blocked_by"])
    assert answer["would_unlock"] == sorted(map(sorted, case["why_not"]["would_unlock"]))
    assert answer["complete"] is case["why_not"].get("complete", True)
