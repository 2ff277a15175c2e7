"""The lease tier of an action: the highest of its effects, whatever their order."""

from itertools import permutations

import pytest

from manglecp.toolhost.actions import lease_tier


@pytest.mark.parametrize(
    ("effect", "tier"),
    [
        ("none", 0),
        ("filesystem", 1),
        ("database", 1),
        ("browser", 1),
        ("network", 2),
        ("process", 2),
        ("payments", 3),
        ("authentication", 3),
        ("destructive", 3),
        ("x-own", 3),
        ("x-own_read", 3),
        ("never heard of", 3),
        ("", 3),
        ("filesystem_read", 0),
        ("gpu_probe", 0),
        ("process_introspection", 0),
        ("filesystem_write", 1),
        ("filesystem_delete", 1),
        ("network_io", 2),
        ("proc_exec", 2),
        ("process_spawn", 2),
        ("dynamic_library_load", 3),
    ],
)
def test_each_word_has_its_tier(effect: str, tier: int) -> None:
    assert lease_tier([effect]) == tier


def test_no_effect_is_safe() -> None:
    assert lease_tier([]) == 0


def test_order_does_not_matter() -> None:
    effects = ["filesystem_write", "proc_exec", "none", "filesystem_read"]
    assert {lease_tier(order) for order in permutations(effects)} == {2}


def test_reading_lowers_what_can_be_read() -> None:
    assert lease_tier(["filesystem", "database", "browser", "network", "gpu_probe"], mutates=False) == 0


@pytest.mark.parametrize("effect", ["process", "proc_exec", "process_spawn"])
def test_programs_can_read_unless_they_reach_other_machines(effect: str) -> None:
    assert lease_tier([effect, "filesystem", "database"], mutates=False) == 0
    for remote in ("network", "browser"):
        for effects in ([effect, remote], [remote, effect]):
            with pytest.raises(ValueError, match=f"the effect '{effect}' cannot be declared with mutates=False"):
                lease_tier(effects, mutates=False)


@pytest.mark.parametrize("effect", ["payments", "authentication", "destructive", "x-own", "filesystem_write"])
def test_reading_is_refused_where_something_always_changes(effect: str) -> None:
    with pytest.raises(ValueError, match="mutates=False"):
        lease_tier(["none", effect], mutates=False)
