"""The checker of the contracts finds every kind of wrong answer, and is asked about every answer of these tests."""

from __future__ import annotations

import dataclasses

import pytest

from manglecp.intent.domain import Domain
from manglecp.intent.evaluation import Selected, evaluate
from manglecp.intent.identity import ANONYMOUS
from tests.intent import contracts
from tests.intent.contracts import ContractBroken, PackClaims, broken_contracts, verify
from tests.intent.packs import clock, pack, request

SAID = PackClaims(
    mandatory=frozenset({"core"}),
    relevant={"extra": 60, "rival": 50, "banned": 90, "hungry": 40},
    forbidden=frozenset({"banned"}),
    conflicts=frozenset({("extra", "rival")}),
    requires={"hungry": frozenset({"food"})},
)
RIGHT = {"core": 100, "extra": 60, "hungry": 40, "food": 80}


def broken(**offered: int | None) -> list[str]:
    """What is wrong with the right answer, changed like this."""
    changed = {**RIGHT, **offered}
    return broken_contracts(SAID, {tool: score for tool, score in changed.items() if score is not None})


@pytest.mark.req("EVAL-13", "EVAL-14", "EVAL-15", "EVAL-16")
def test_wrong_answers() -> None:
    assert broken() == []
    assert broken(stranger=50) == ["1: nothing speaks for stranger"]
    assert broken(extra=61) == ["1: extra has the score 61 and not 60"]
    assert broken(food=40) == ["1: food has the score 40 and not 80"]
    assert broken(banned=90) == ["2: banned is forbidden"]
    assert broken(rival=50) == ["3: extra and rival are rivals", "3: rival lost to extra"]
    assert broken(rival=50, extra=None) == ["3: rival lost to extra", "extra is kept back for no reason"]
    assert broken(food=None) == ["4: hungry needs food"]
    assert broken(hungry=None) == ["1: nothing speaks for food", "hungry is kept back for no reason"]
    assert broken(core=None) == ["core is kept back for no reason"]
    assert broken(extra=None) == ["extra is kept back for no reason"]


@pytest.mark.req("EVAL-15")
@pytest.mark.parametrize(
    ("said", "right"),
    [
        (PackClaims(relevant={"a": 50, "b": 50}, conflicts=frozenset({("b", "a")})), {"a": 50}),
        (PackClaims(relevant={"a": 50, "b": 51}, conflicts=frozenset({("a", "b")})), {"b": 51}),
        (PackClaims(frozenset({"b"}), {"a": 99, "b": 1}, conflicts=frozenset({("a", "b")})), {"b": 100}),
        # what is needed counts 80, and whoever needs a loser goes with it
        (
            PackClaims(
                relevant={"a": 81, "b": 90}, requires={"b": frozenset({"c"})}, conflicts=frozenset({("a", "c")})
            ),
            {"a": 81},
        ),
        (
            PackClaims(
                relevant={"a": 79, "b": 90}, requires={"b": frozenset({"c"})}, conflicts=frozenset({("a", "c")})
            ),
            {"b": 90, "c": 80},
        ),
        # a forbidden tool is nobody's rival
        (
            PackClaims(relevant={"a": 10, "b": 50}, forbidden=frozenset({"b"}), conflicts=frozenset({("a", "b")})),
            {"a": 10},
        ),
    ],
)
def test_which_rival_stays(said: PackClaims, right: dict[str, int]) -> None:
    assert broken_contracts(said, right) == []
    assert broken_contracts(said, {}) != []
    others = {tool: score for tool, score in said.relevant.items() if tool not in right}
    assert broken_contracts(said, others) != []
    assert broken_contracts(said, right | others) != []


RULES = """\
macro("a", "A."). macro_step("a", 1, "look"). relevant("a", 50).
macro("b", "B."). macro_step("b", 1, "look"). mandatory("b"). requires("b", "c").
macro("c", "C."). macro_step("c", 1, "look").
macro("d", "D."). macro_step("d", 1, "look"). relevant("d", 120).
macro("e", "E."). macro_step("e", 1, "look"). relevant("e", 90).
"""


def test_what_a_pack_says_is_read_off_its_own_facts() -> None:
    rules = RULES.replace('relevant("d", 120).', 'relevant("d", N) :- intent(_), N = 120.')
    given = pack(rules, policy='prohibited("e", "no").')
    found = evaluate(Domain.load(given), request(), ANONYMOUS, clock=clock)
    said = PackClaims.of(found)
    assert said.mandatory == {"b"}
    assert said.relevant == {"a": 50, "d": 100, "e": 90}
    assert said.forbidden == {"e"}
    assert said.requires == {"b": {"c"}}
    verify(found)
    for wrong in (
        (*found.selected, Selected("e", 90, "flesh")),
        tuple(selected for selected in found.selected if selected.tool != "c"),
        (*found.selected, found.selected[0]),
    ):
        with pytest.raises(ContractBroken):
            verify(dataclasses.replace(found, selected=wrong))


def test_every_answer_of_these_tests_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    given = pack(RULES.replace("120", "100"))
    monkeypatch.setattr(contracts, "broken_contracts", lambda *_: ["2: something"])
    with pytest.raises(ContractBroken, match="2: something"):
        evaluate(Domain.load(given), request(), ANONYMOUS, clock=clock)


@pytest.mark.req("EVAL-15", "EVAL-16")
def test_what_is_needed_at_second_hand_is_a_rival_too() -> None:
    """``d`` stays, and with ``c`` go ``b``, which needs it, and ``a``, which needs that."""
    tools = "".join(f'macro("{tool}", "Does it."). macro_step("{tool}", 1, "look").\n' for tool in "abcd")
    rules = """
    relevant("a", 50). requires("a", "b"). requires("b", "c").
    relevant("d", 90). conflicts("c", "d").
    """
    found = evaluate(Domain.load(pack(tools + rules)), request(), ANONYMOUS, clock=clock)
    assert found.selected == (Selected("d", 90, "flesh"),)
