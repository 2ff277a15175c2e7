from __future__ import annotations

import copy
import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, strategies as st

from manglecp.runner import PatchRefused, merge_patch
from manglecp.runner.selection import MAX_BLOCKED_KEYS, MAX_INPUTS_BYTES, MAX_PATCH_BYTES, MAX_PATCH_DEPTH

KEYS = st.sampled_from(
    ["a", "b", "_a", "__proto__", "_capabilities", "_queue", " _x", "＿x", "a\0_x", "a_", "x/y", "~"]
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.integers(0, 3) | st.text(max_size=2),
    lambda parts: st.lists(parts, max_size=3) | st.dictionaries(KEYS, parts, max_size=4),
    max_leaves=12,
)
OBJECTS = st.dictionaries(KEYS, VALUES, max_size=5)


def keys(value: Any) -> set[str]:
    """All keys at every depth."""
    if isinstance(value, dict):
        return set(value).union(*map(keys, value.values()))
    return set().union(*map(keys, value)) if isinstance(value, list) else set()


def nested(depth: int) -> str:
    return '{"a":' + "[" * (depth - 1) + "]" * (depth - 1) + "}"


@pytest.mark.req("IPC-06")
def test_a_key_of_the_patch_replaces_that_of_the_inputs_as_a_whole() -> None:
    merged = merge_patch({"a": {"x": 1}, "b": 2}, '{"a":{"y":3},"c":null}')
    assert merged.inputs == {"a": {"y": 3}, "b": 2, "c": None}
    assert merged.blocked == ()


@pytest.mark.req("IPC-06")
@pytest.mark.parametrize(
    ("patch", "inputs", "blocked"),
    [
        ('{"__proto__":{"x":1},"a":1}', {"a": 1}, ("/__proto__",)),
        ('{"_capabilities":{},"_queue":{},"_lease_token":"t"}', {}, ("/_capabilities", "/_lease_token", "/_queue")),
        ('{"a":[{"b":{"_system":1,"c":2}}]}', {"a": [{"b": {"c": 2}}]}, ("/a/0/b/_system",)),
        ('{"\\u005fqueue":1}', {}, ("/_queue",)),
        ('{"\\uff3fqueue":1," _queue":2}', {}, ("/ _queue", "/＿queue")),
        ('{"a\\u0000b":1}', {}, ("/a\0b",)),
        ('{"a_b":1,"a":"_x"}', {"a_b": 1, "a": "_x"}, ()),
    ],
)
def test_blocked_keys_are_left_out_at_every_depth_and_named(patch: str, inputs: dict[str, Any], blocked: Any) -> None:
    merged = merge_patch({}, patch)
    assert merged.inputs == inputs
    assert merged.blocked == blocked


@pytest.mark.req("IPC-06")
@given(OBJECTS, OBJECTS)
def test_merging_keeps_what_steers_and_changes_nothing_it_was_given(
    inputs: dict[str, Any], patch: dict[str, Any]
) -> None:
    before = copy.deepcopy(inputs)
    merged = merge_patch(inputs, json.dumps(patch))
    assert inputs == before
    own = {
        key: value
        for key, value in merged.inputs.items()
        if key not in patch or key not in ("a", "b", "a_", "x/y", "~")
    }
    assert own == {key: before[key] for key in own}
    for key in ("a", "b", "a_", "x/y", "~"):
        if key in patch:
            assert keys(merged.inputs[key]) <= {"a", "b", "a_", "x/y", "~"}
    assert merge_patch(merged.inputs, json.dumps(patch)) == merged


@pytest.mark.req("IPC-06")
def test_the_merged_inputs_share_nothing_with_the_old_ones() -> None:
    inputs: dict[str, Any] = {"a": {"b": [1]}}
    merge_patch(inputs, "{}").inputs["a"]["b"].append(2)
    assert inputs == {"a": {"b": [1]}}


@pytest.mark.req("IPC-06")
@pytest.mark.parametrize(
    "patch",
    ["", "[]", "null", "{", '{"a":1,"a":2}', '{"a":NaN}', "{} x", nested(MAX_PATCH_DEPTH + 1), nested(50_000),
     '{"a":"\ud800"}', '{"a":"' + "x" * MAX_PATCH_BYTES + '"}'],
)  # fmt: skip
def test_what_is_no_small_shallow_object_is_refused(patch: str) -> None:
    with pytest.raises(PatchRefused):
        merge_patch({"a": 1}, patch)


@pytest.mark.req("IPC-06")
def test_the_limits_themselves_are_within() -> None:
    assert merge_patch({}, nested(MAX_PATCH_DEPTH)).blocked == ()
    assert merge_patch({}, '{"a":"' + "x" * (MAX_PATCH_BYTES - 8) + '"}').blocked == ()


@pytest.mark.req("IPC-06")
def test_a_small_patch_makes_no_large_report() -> None:
    def blocking(count: int) -> str:
        return json.dumps({"k" * 30_000: [{"_a": 1}] * count})

    assert len(merge_patch({}, blocking(MAX_BLOCKED_KEYS)).blocked) == MAX_BLOCKED_KEYS
    with pytest.raises(PatchRefused, match="blocked keys"):
        merge_patch({}, blocking(MAX_BLOCKED_KEYS + 1))


@pytest.mark.req("IPC-06")
def test_a_small_patch_takes_no_large_memory() -> None:
    patch = json.dumps({"k" * 30_000: [{}] * 8_000})
    tracemalloc.start()
    try:
        merge_patch({}, patch)
        assert tracemalloc.get_traced_memory()[1] < 20 << 20
    finally:
        tracemalloc.stop()


def test_many_small_patches_are_a_large_one() -> None:
    with pytest.raises(PatchRefused):
        merge_patch({"a": "x" * MAX_INPUTS_BYTES}, '{"b":1}')
