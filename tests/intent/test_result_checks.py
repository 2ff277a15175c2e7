"""Parts that no result has are told when a pack is checked, at the place where they are taken."""

from __future__ import annotations

import pytest

from tests.intent.packs import action, pack
from tests.intent.test_domain import complaints, problems, warnings

FOUND = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "size": {"type": "integer"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "owner": {"anyOf": [{"$ref": "#/$defs/Person"}, {"type": "null"}]},
        "more": {"type": "object"},
        "either": {"type": ["string", "integer"]},
    },
    "additionalProperties": False,
    "$defs": {"Person": {"type": "object", "properties": {"mail": {"type": "string"}}, "additionalProperties": False}},
}
FIND = action("find", output_schema=FOUND)
PARTS = 'macro("see", "See.").\nmacro_step("see", 1, "find").\nmacro_step("see", 2, "find").\n'


@pytest.mark.parametrize(
    ("pointer", "told"),
    [
        ("/nmae", "nothing that find returns has '/nmae'"),
        ("/name/first", "nothing that find returns has '/name/first'"),
        ("/tags/first", "nothing that find returns has '/tags/first'"),
        ("/owner/mial", "nothing that find returns has '/owner/mial'"),
        ("/size", "'/size' of what find returns is of type integer, and 'path' takes string"),
        ("/owner", "'/owner' of what find returns is of type null or object, and 'path' takes string"),
        ("", "what find returns is of type object, and 'path' takes string"),
    ],
)
def test_a_part_that_no_result_has_is_told(pointer: str, told: str) -> None:
    (found,) = complaints(PARTS + f'arg_step("see", 2, "path", 1, "{pointer}").', actions=[FIND])
    assert found == f"rules/domain/domain.mg:4:31 {told}"


def test_what_was_meant_is_told() -> None:
    for pointer, meant in (("/nmae", "name"), ("/owner/mial", "mail")):
        (found,) = problems(PARTS + f'arg_step("see", 2, "path", 1, "{pointer}").', actions=[FIND])
        assert found.fix == f"did you mean {meant}?"


@pytest.mark.parametrize("pointer", ["/name", "/tags/0", "/owner/mail", "/more/of/it", "/either", "/more"])
def test_a_part_that_may_be_there_is_not_told(pointer: str) -> None:
    rules = f'arg_step("see", 2, "path", 1, "{pointer}").'
    wide = action("find", output_schema=FOUND, params={"path": {}, "depth": {"type": "integer"}})
    assert warnings(pack(PARTS + rules, actions=[FIND if pointer != "/more" else wide])) == []


def test_parts_of_undone_steps_are_looked_at_too() -> None:
    rules = 'undo_step("see", 1, "find").\nundo_out("see", 1, "path", "/nmae").'
    (found,) = complaints(PARTS + rules, actions=[FIND])
    assert found.startswith("rules/domain/domain.mg:5:28 nothing that find returns has '/nmae'")


@pytest.mark.parametrize(
    "rules",
    [
        'macro_result("see", "k", 1, "/nmae").',
        'extract("find", "k", "/nmae").',
        'keep("find", "k", "/nmae").',
    ],
)
def test_what_is_never_found_is_a_warning(rules: str) -> None:
    assert "nothing that find returns has '/nmae'" in warnings(pack(PARTS + rules, actions=[FIND]))


def test_an_action_that_constants_do_not_tell_is_not_looked_at() -> None:
    rules = 'macro_step("see", 3, A) :- intent(A).\narg_step("see", 2, "path", 3, "/nmae").'
    assert not any("nmae" in one for one in warnings(pack(PARTS + rules, actions=[FIND])))
