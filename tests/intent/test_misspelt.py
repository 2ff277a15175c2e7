"""A word of the kernel that is misspelt does not pass for one of the pack's own."""

from __future__ import annotations

import pytest

from manglecp.intent.domain import Domain
from manglecp.pack import PackError
from tests.intent.packs import action, pack

TOOL = 'macro("see", "See."). macro_step("see", 1, "look"). mandatory("see") :- intent("go").\n'


def doubts(domain: str, policy: str = "") -> list[tuple[str, str | None]]:
    given = pack(TOOL + domain, policy=policy, actions=(action("look"),))
    return [(problem.message, problem.fix) for problem in Domain.load(given).warnings]


@pytest.mark.parametrize(
    ("clause", "word"),
    [
        ('prohibted("see", "no") :- !client_permission("p").', "prohibited"),
        ('needs_confirmaton("see").', "needs_confirmation"),
        ('effect_deny("look", "no").', "effect_denied"),
        ('intent_denid("no") :- intent("go").', "intent_denied"),
    ],
)
def test_a_slip_in_policy_keeps_the_pack_from_loading(clause: str, word: str) -> None:
    with pytest.raises(PackError) as refused:
        doubts("", clause)
    (problem,) = refused.value.diagnostics
    assert problem.message == f"nothing reads {clause.partition('(')[0]}"
    assert problem.fix == f"did you mean {word}? If not, declare it with Decl"


def test_a_slip_elsewhere_is_a_doubt() -> None:
    assert doubts('relevent("see", 3) :- intent("go").') == [
        ("nothing reads relevent", "did you mean relevant? If not, declare it with Decl")
    ]


def test_what_policy_derives_for_nobody_is_a_doubt() -> None:
    assert doubts("", 'weekend("sat").') == [("nothing reads weekend", "read it, or declare it with Decl")]


def test_what_is_read_or_declared_is_meant() -> None:
    assert doubts('relevent("see"). relevant(T, 3) :- relevent(T).') == []
    assert doubts("Decl relevent(T) bound [/string].\n" + 'relevent("see").') == []
    assert doubts("", 'weekend("sat"). prohibited("see", "no") :- weekend("sun").') == []


def test_what_the_domain_derives_for_nobody_is_a_doubt() -> None:
    assert doubts("helper(1).") == [("nothing reads helper", "read it, or declare it with Decl")]
    assert doubts("Decl helper(N). helper(1).") == []
