from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from manglecp.runner.execution import apply_state_patch, check_state, diff_state
from manglecp.runner.log import RunnerError
from manglecp.toolhost.state import Artifact, Slots

TEXTS = st.sampled_from(["", "t", "{}", "é"])
STATES = st.dictionaries(st.integers(0, 7), st.builds(Artifact, TEXTS, TEXTS, TEXTS, st.integers(0, 2)))


@given(STATES, STATES)
def test_the_difference_leads_from_one_state_to_the_other(before: Slots, after: Slots) -> None:
    kept = dict(before)
    operations = diff_state(before, after)
    assert apply_state_patch(before, operations) == after
    assert before == kept
    assert [one["path"] for one in operations] == sorted(one["path"] for one in operations)
    assert (operations == []) == (before == after)


@pytest.mark.parametrize(
    "bad",
    [
        None,
        {},
        {"op": "add", "path": "/slots/0", "value": {}},
        {"op": "add", "path": "/slots/8", "value": {}},
        {"op": "add", "path": "/slots/1", "value": 1},
        {"op": "replace", "path": "/slots/1", "value": {}},
        {"op": "remove", "path": "/slots/1"},
        {"op": "move", "path": "/slots/0"},
        {"op": [], "path": "/slots/0"},
    ],
)
def test_a_bad_operation_leaves_nothing_of_those_before_it(bad: Any) -> None:
    before = {0: Artifact("t")}
    with pytest.raises(RunnerError):
        apply_state_patch(before, [{"op": "replace", "path": "/slots/0", "value": {"type": "u"}}, bad])
    assert before == {0: Artifact("t")}


@pytest.mark.parametrize(
    "state", [None, {9: Artifact()}, {"0": Artifact()}, {0: {}}, {0: Artifact(content_json="\ud800")}]
)
def test_what_an_action_leaves_has_to_be_a_state(state: object) -> None:
    with pytest.raises(RunnerError):
        check_state(state)
