"""What a person should know before a tool runs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from manglecp.intent.chain import safety, side_effects
from manglecp.pack import PackError
from manglecp.wire.messages import SIDE_EFFECTS
from tests.intent.answering import tools
from tests.intent.packs import action, pack

TOOL = """
mandatory("t").
macro("t", "Does it.").
macro_step("t", 1, "one").
"""


def safety_of(rules: str, **actions: dict[str, Any]) -> dict[str, Any]:
    described = [action(name, **changes) for name, changes in actions.items()]
    found: dict[str, Any] = tools(pack(TOOL + rules, actions=described))["t"]["safety"]
    return found


@pytest.mark.req("TOOL-13", "TOOL-15", "TOOL-16")
@given(st.lists(st.sampled_from([*SIDE_EFFECTS, "x-own", "gpu_probe"])))
def test_effects_are_standard_or_begin_with_x_and_none_stands_alone(effects: list[str]) -> None:
    found = side_effects(effects)
    assert list(found) == sorted(set(found))
    assert all(effect in SIDE_EFFECTS or effect.startswith("x-") for effect in found)
    assert ("none" in found) == (found == ("none",)) == (set(effects) <= {"none"})
    assert {effect.removeprefix("x-") for effect in found} == {e.removeprefix("x-") for e in effects} - {"none"} or (
        found == ("none",)
    )


@pytest.mark.req("TOOL-11", "TOOL-14")
def test_a_tool_that_only_looks_has_the_effect_none() -> None:
    assert safety_of("", one={}) == {"requires_user_confirmation": False, "side_effects": ["none"]}


@pytest.mark.req("TOOL-14", "TOOL-15")
def test_effects_come_from_every_action_of_the_chain_sorted() -> None:
    found = safety_of(
        'macro_step("t", 2, "two"). macro_step("t", 3, "three").',
        one={"effects": ("network", "filesystem")},
        two={"effects": ("none",)},
        three={"effects": ("database", "x-fax")},
    )
    assert found["side_effects"] == ["database", "filesystem", "network", "x-fax"]


@pytest.mark.req("TOOL-16")
def test_effects_that_the_specification_does_not_know_have_a_prefix() -> None:
    assert safety_of("", one={"effects": ("x-gpu_probe", "none")})["side_effects"] == ["x-gpu_probe"]
    with pytest.raises(PackError, match="there is no effect 'gpu_probe'") as refused:
        safety_of("", one={"effects": ("gpu_probe", "none")})
    assert refused.value.diagnostics[0].fix == "write x-gpu_probe for an effect of your own"


@pytest.mark.req("TOOL-11")
@pytest.mark.parametrize("effect", ["payments", "destructive", "authentication"])
def test_dangerous_effects_need_a_person(effect: str) -> None:
    assert safety_of("", one={"effects": (effect,), "tier": 3})["requires_user_confirmation"] is True


@pytest.mark.req("TOOL-11")
def test_tier_three_needs_a_person_whatever_the_effect_is_called() -> None:
    assert safety_of("", one={"effects": ("x-odd",), "tier": 3})["requires_user_confirmation"] is True


@pytest.mark.req("TOOL-11")
def test_rules_may_ask_for_a_person() -> None:
    assert safety_of('needs_confirmation("t").', one={})["requires_user_confirmation"] is True
    other = 'macro("other", "x"). needs_confirmation("other").'
    assert safety_of(other, one={})["requires_user_confirmation"] is False


@pytest.mark.req("TOOL-12")
def test_reversible_and_idempotent_are_false_when_absent() -> None:
    assert "reversible" not in safety_of("", one={})
    assert "idempotent" not in safety_of("", one={})


@pytest.mark.req("TOOL-12")
def test_rules_or_actions_say_what_can_be_undone_and_repeated() -> None:
    assert safety_of('reversible("t").', one={})["reversible"] is True
    assert safety_of('idempotent("t").', one={})["idempotent"] is True
    found = safety_of("", one={"reversible": True, "idempotent": True})
    assert (found["reversible"], found["idempotent"]) == (True, True)


@pytest.mark.req("TOOL-12")
def test_a_chain_is_reversible_if_all_of_it_is_and_idempotent_only_if_rules_say_so() -> None:
    yes = action("a", reversible=True, idempotent=True)
    no = action("b")
    both = safety([], [yes, yes], needs_confirmation=False)
    assert (both.reversible, both.idempotent) == (True, False)
    mixed = safety([], [yes, no], needs_confirmation=False)
    assert (mixed.reversible, mixed.idempotent) == (False, False)
    assert safety([], [yes, no], needs_confirmation=False, idempotent=True).idempotent
    assert not safety([], [], needs_confirmation=False).reversible
