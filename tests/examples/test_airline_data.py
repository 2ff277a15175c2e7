"""The airline pack judges recorded runs of tau-bench, and the actions that tau2-bench expects."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from examples.airline.judge import JudgedWrite, judge
from tests.examples.airline_data import DATA

pytestmark = pytest.mark.no_cover  # whole processes, and the code in them is tested elsewhere


def denied_share(writes: Sequence[JudgedWrite], *, with_conversation: bool) -> float:
    decisions = [judged.by_conversation if with_conversation else judged.by_database for judged in writes]
    return sum(decision.verdict == "deny" for decision in decisions) / len(decisions)


def test_wrong_writes_are_denied_with_reasons_and_expected_ones_are_not() -> None:
    judgement = judge(DATA)

    expected = [judged for task in judgement.tasks for judged in task.writes]
    assert len(expected) >= 10
    assert {judged.by_database.verdict for judged in expected} == {"ask"}, "each needs the yes of the customer"
    assert judgement.tool_errors == []

    failed = [judged for run in judgement.runs if not run.passed for judged in run.writes]
    executed = [judged for judged in failed if judged.write.executed]
    assert denied_share(executed, with_conversation=False) >= 0.38
    assert denied_share(failed, with_conversation=False) >= 0.38
    passed = [judged for run in judgement.runs if run.passed for judged in run.writes if judged.write.executed]
    assert denied_share(passed, with_conversation=True) < denied_share(executed, with_conversation=False)

    for judged in failed:
        for decision in (judged.by_database, judged.by_conversation):
            assert set(decision.reasons) <= set(decision.public_reasons)
            assert bool(decision.reasons) is (decision.verdict == "deny")
