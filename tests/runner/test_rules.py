"""A Mangle program as selector."""

from __future__ import annotations

import pytest

from manglecp.mangle import MangleError, Source
from manglecp.runner import ControlMode, RulesSelector, Selection, SelectionKind, Situation
from manglecp.toolhost.state import Artifact
from tests.runner.playing import MENU

SITUATION = Situation(
    "goal.X.v1|digest|FLAGS:",
    "s",
    ControlMode.POLICY_ONLY,
    {"n": 2, "deep": {"a": [1, None]}},
    MENU,
    slots={0: Artifact("number", "count", "7")},
)


def select(rules: str) -> Selection:
    return RulesSelector([Source("p.mg", rules)])(SITUATION)


@pytest.mark.parametrize(
    ("rules", "raw"),
    [
        ('pick(Sid) :- menu(Sid, _, "Roll").', "<PICK><SID0003><END>"),
        ("pick(Sid) :- menu(Sid, _, _).", "<PICK><SID0001><END>"),
        ('pick(Sid) :- menu(Sid, _, _). pick(Sid, 1) :- menu(Sid, _, "Fail").', "<PICK><SID0002><END>"),
        ('pick(Sid) :- menu(Sid, _, "Roll"). pick(Sid, -1) :- menu(Sid, _, "Fail").', "<PICK><SID0003><END>"),
        (
            'pick(Sid) :- menu(Sid, _, "Roll"), goal("goal.X.v1").'
            'input_value(Sid, "to", V) :- menu(Sid, _, _), slot(0, _, _, V).',
            '<PICK><SID0003><INP>{"to": "7"}</INP><END>',
        ),
        ('pick(Sid) :- menu(Sid, _, "Roll"), input("n", N), N > 2.', "<NOOP><END>"),
        ('ask_supervisor("why") :- input("n", 2).', "<ASK_SUP><END>"),
    ],
)
def test_a_program_selects(rules: str, raw: str) -> None:
    selection = select(rules)
    assert selection.raw == raw
    assert selection.why


@pytest.mark.parametrize(
    ("rules", "why"),
    [
        ('pick("SID0001"). input_value("SID0001", "a", 1). input_value("SID0001", "a", 2).', "two values"),
        ('pick("SID0099").', ""),
        ('pick("junk").', "not a selection"),
        ("pick(Sid, Rank) :- menu(Sid, _, _), slot(N, _, _, _), Rank = fn:div(1, N).", "the rules failed"),
    ],
)
def test_a_program_that_derives_no_selection_is_invalid(rules: str, why: str) -> None:
    selection = select(rules).restricted_to(MENU)
    assert selection.kind is SelectionKind.INVALID
    assert why in selection.why


def test_a_wrong_program_is_refused_before_the_run() -> None:
    with pytest.raises(MangleError):
        select("pick(Sid) :- menu(Sid).")
