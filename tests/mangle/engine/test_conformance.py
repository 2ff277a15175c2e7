"""The conformance programs, through the engine: fresh, and with their facts in every place a fact can come from."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random

import pytest

from manglecp.mangle.engine import evaluate
from manglecp.mangle.errors import MangleError
from manglecp.mangle.model import Limits
from tests.mangle.engine.splitting import Answer, difference, fresh, oracle, split
from tests.mangle.test_conformance import CASES, DEEP, Case, name_of

SPLITS = 4
RUN = [case for case in CASES if case.stage in (None, "eval") and case.name not in DEEP]
"""What gets as far as being evaluated."""


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_conformance(case: Case) -> None:
    if case.stage is None:
        assert evaluate(case.load(), now=case.now, limits=case.limits).facts() == case.want
        return
    with pytest.raises(MangleError) as raised:
        evaluate(case.load(), now=case.now, limits=case.limits)
    assert raised.value.stage == case.stage
    assert raised.value.diagnostics


@pytest.mark.no_cover
@pytest.mark.parametrize("case", RUN, ids=name_of)
def test_facts_come_from_everywhere(case: Case) -> None:
    """The answer over a base is that of a fresh evaluation, with the same counts and the same limit."""
    program = case.load()
    want = oracle(program, case.now, case.limits)
    random = Random(case.name)
    for _ in range(SPLITS):
        got = split(program, random).answer(case.now, case.limits)
        assert got is not None or want.error is not None
        if got is not None:
            assert difference(got, want) is None


@pytest.mark.no_cover
@pytest.mark.parametrize("case", [case for case in RUN if case.stage is None], ids=name_of)
def test_limits_are_exact(case: Case) -> None:
    program = case.load()
    want = oracle(program, case.now)
    random = Random(case.name)
    enough, short = Limits(derived_facts=want.derived), Limits(derived_facts=want.derived - 1)
    ways: list[Callable[[Limits], Answer | None]] = [partial(fresh, program, case.now)]
    ways += [partial(split(program, random).answer, case.now) for _ in range(2)]
    for answer in ways:
        assert answer(enough) == want
        if want.derived:
            assert answer(short) == Answer(error=f"limit {want.derived - 1}")
