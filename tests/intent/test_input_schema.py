"""The arguments of a macro-tool."""

from __future__ import annotations

from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, strategies as st

from manglecp.intent.definition import Flaw
from manglecp.intent.input_schema import ExposedParameter, input_schema, result_schema

TEXT = {"type": "string"}


def exposed(
    name: str,
    schema: Any = TEXT,
    *,
    action: str = "look",
    required: bool = True,
    defs: Any = None,
    under: str = "$defs",
) -> ExposedParameter:
    whole = {"type": "object", "properties": {name: schema}, "required": [name] if required else [], under: defs or {}}
    return ExposedParameter(name, name, action, whole)


@pytest.mark.req("TOOL-08")
def test_an_exposed_parameter_keeps_the_schema_of_its_action() -> None:
    schema = {"type": "string", "minLength": 1, "description": "Where it is."}
    assert input_schema([exposed("path", schema)], {}) == {
        "type": "object",
        "properties": {"path": schema},
        "required": ["path"],
        "additionalProperties": False,
    }


def test_nothing_exposed_is_an_object_without_arguments() -> None:
    assert input_schema([], {}) == {"type": "object", "properties": {}, "additionalProperties": False}


def test_what_the_action_can_do_without_is_not_required() -> None:
    made = input_schema([exposed("a", required=False), exposed("b", {"type": "integer", "default": 3})], {})
    assert list(made["properties"]) == ["a", "b"]
    assert "required" not in made


def test_a_declared_argument_is_required_unless_it_has_a_default_or_is_optional() -> None:
    declared = {"a": TEXT, "b": {"type": "string", "default": "x"}, "c": TEXT}
    assert input_schema([], declared, {"c"})["required"] == ["a"]


def test_a_declared_schema_goes_before_that_of_the_action() -> None:
    made = input_schema([exposed("path"), exposed("depth", {"type": "integer"})], {"path": {"enum": ["a", "b"]}})
    assert made["properties"] == {"path": {"enum": ["a", "b"]}, "depth": {"type": "integer"}}
    assert list(made["properties"]) == ["path", "depth"]


def test_a_parameter_may_be_asked_for_under_another_name() -> None:
    one = ExposedParameter("file", "path", "look", {"properties": {"path": TEXT}, "required": ["path"]})
    made = input_schema([one], {})
    assert made["properties"] == {"file": TEXT}
    assert made["required"] == ["file"]


def test_two_steps_may_share_a_name_if_their_schemas_are_equal() -> None:
    first = exposed("path", {"type": "string", "description": "To read."}, required=False)
    second = exposed("path", {"type": "string", "description": "To write."}, action="patch")
    made = input_schema([first, second], {})
    assert made["properties"]["path"]["description"] == "To read."
    assert made["required"] == ["path"], "one of them needs it"
    assert input_schema([second, first], {})["required"] == ["path"], "whichever comes first"


def test_two_steps_with_different_schemas_under_one_name_are_a_flaw_unless_it_is_declared() -> None:
    both = [exposed("path"), exposed("path", {"type": "integer"}, action="patch")]
    with pytest.raises(Flaw, match="patch and look take 'path' with different schemas") as caught:
        input_schema(both, {})
    assert caught.value.fix is not None
    assert "macro_param" in caught.value.fix
    assert input_schema(both, {"path": TEXT})["properties"] == {"path": TEXT}


# --- references ------------------------------------------------------------------------------------------------------


def tree(under: str = "$defs") -> dict[str, Any]:
    """A schema that refers to itself."""
    return {"type": "object", "properties": {"below": {"type": "array", "items": {"$ref": f"#/{under}/Tree"}}}}


def test_definitions_come_along_as_far_as_they_are_needed() -> None:
    pair = {"type": "array", "prefixItems": [{"$ref": "#/$defs/Leaf"}]}
    defs = {"Tree": tree(), "Leaf": TEXT, "Pair": pair, "UnusedFact": {}}
    root = {"anyOf": [{"$ref": "#/$defs/Tree"}, {"$ref": "#/$defs/Pair"}]}
    made = input_schema([exposed("root", root, defs=defs)], {})
    assert list(made["$defs"]) == ["Leaf", "Pair", "Tree"]
    assert jsonschema_rs.is_valid(made, {"root": {"below": [{"below": []}]}})
    assert not jsonschema_rs.is_valid(made, {"root": {"below": [1]}})


def test_older_schemas_keep_theirs_under_another_word() -> None:
    made = input_schema(
        [exposed("x", {"$ref": "#/definitions/T"}, defs={"T": {"type": "integer"}}, under="definitions")], {}
    )
    assert made["$defs"] == {"T": {"type": "integer"}}
    assert jsonschema_rs.is_valid(made, {"x": 1})


def test_definitions_of_two_actions_do_not_meet() -> None:
    one = exposed("x", {"$ref": "#/$defs/T"}, defs={"T": {"type": "integer"}})
    two = exposed("y", {"$ref": "#/$defs/T"}, action="patch", defs={"T": TEXT})
    made = input_schema([one, two], {})
    assert jsonschema_rs.is_valid(made, {"x": 1, "y": "a"})
    assert not jsonschema_rs.is_valid(made, {"x": "a", "y": 1})


def test_a_reference_in_data_is_data() -> None:
    schema = {"const": {"$ref": "https://example.invalid/x"}}
    assert input_schema([exposed("x", schema)], {})["properties"]["x"] == schema


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "https://example.invalid/schema.json"},
        {"$ref": "file:///etc/passwd"},
        {"$ref": "#/properties/x"},
        {"$ref": "#/$defs/Missing"},
        {"items": {"$ref": "other.json#/a"}},
        {"$id": "https://example.invalid/", "type": "string"},
        {"$dynamicRef": "#x"},
        {"type": "strin"},
        {"minimum": "low"},
        {"pattern": "(a"},
        {"pattern": "(a)\\1"},
        {"pattern": "(?:a{1000}){1000}"},
    ],
)
def test_schemas_that_are_none_or_refer_elsewhere_are_flaws(schema: dict[str, Any]) -> None:
    with pytest.raises(Flaw):
        input_schema([exposed("x", schema)], {})
    with pytest.raises(Flaw):
        input_schema([], {"x": schema})
    with pytest.raises(Flaw):
        result_schema({"type": "object", "properties": {"y": schema}})


@pytest.mark.parametrize("schema", [True, [], "string", 3, None])
def test_a_declared_schema_is_an_object(schema: Any) -> None:
    with pytest.raises(Flaw, match="is not an object"):
        input_schema([], {"x": schema})


def test_a_schema_that_is_nested_very_deep_is_a_flaw() -> None:
    schema: dict[str, Any] = {}
    for _ in range(2000):
        schema = {"not": schema}
    with pytest.raises(Flaw, match="nested"):
        input_schema([exposed("x", schema)], {})


@pytest.mark.req("TOOL-10")
def test_the_schema_of_a_result_may_refer_to_itself_only() -> None:
    made = result_schema({"$ref": "#/definitions/Tree", "definitions": {"Tree": tree("definitions"), "UnusedFact": {}}})
    assert made["$defs"].keys() == {"Tree"}
    assert jsonschema_rs.is_valid(made, {"below": [{"below": []}]})
    assert not jsonschema_rs.is_valid(made, {"below": [1]})
    wrong: list[Any] = [3, [], "text", {"$ref": "#/$defs/Missing"}]
    for one in wrong:
        with pytest.raises(Flaw):
            result_schema(one)


@pytest.mark.req("TOOL-08")
def test_a_declared_argument_may_refer_to_what_it_defines_itself() -> None:
    made = input_schema([], {"root": {"$ref": "#/$defs/Tree", "$defs": {"Tree": tree(), "UnusedFact": {}}}})
    assert made["properties"] == {"root": {"$ref": "#/$defs/Tree"}}
    assert made["$defs"].keys() == {"Tree"}
    assert jsonschema_rs.is_valid(made, {"root": {"below": [{"below": []}]}})
    assert not jsonschema_rs.is_valid(made, {"root": {"below": [1]}})


@pytest.mark.req("TOOL-08")
def test_equal_names_of_definitions_do_not_meet() -> None:
    """Neither between declared arguments nor with what an action defines, whatever it is called."""
    number, text, flag = {"type": "integer"}, {"type": "string"}, {"type": "boolean"}
    wanted = {"$ref": "#/$defs/T"}
    taken = exposed("x", wanted, action="y", defs={"T": flag})
    declared = {
        "y": {**wanted, "$defs": {"T": number}},
        "z": {"type": "array", "items": wanted, "$defs": {"T": text, "T_2": number}},
        "w": {"anyOf": [{"$ref": "#/$defs/T_2"}, wanted], "$defs": {"T_2": {"type": "null"}, "T": {"const": 7}}},
    }
    made = input_schema([taken], declared)
    good = {"x": True, "y": 1, "z": ["a"], "w": None}
    assert jsonschema_rs.is_valid(made, good)
    assert jsonschema_rs.is_valid(made, {**good, "w": 7})
    for wrong in ({"x": 1}, {"y": "a"}, {"y": True}, {"z": [1]}, {"w": 8}, {"w": "a"}):
        assert not jsonschema_rs.is_valid(made, {**good, **wrong})


def test_a_declared_argument_refers_to_nothing_else() -> None:
    for reference in ("#/$defs/Missing", "#", "#/properties/x", "other.json#/$defs/T"):
        with pytest.raises(Flaw, match="does not come with it"):
            input_schema([], {"p": {"$ref": reference, "$defs": {"T": {}}}})


@pytest.mark.parametrize(
    "definitions",
    [
        {"T": {"$ref": "#/$defs/T"}},
        {"T": {"$ref": "#/$defs/U"}, "U": {"allOf": [{"title": "x"}, {"$ref": "#/$defs/T"}]}},
        {"T": {"not": {"if": {"$ref": "#/$defs/U"}}}, "U": {"dependentSchemas": {"a": {"$ref": "#/$defs/T"}}}},
    ],
)
def test_a_definition_that_is_only_itself_is_refused(definitions: dict[str, Any]) -> None:
    wanted = {"$ref": "#/$defs/T"}
    with pytest.raises(Flaw, match="refers to itself without end"):
        input_schema([], {"p": {**wanted, "$defs": definitions}})
    with pytest.raises(Flaw, match="refers to itself without end"):
        input_schema([exposed("x", wanted, defs=definitions)], {})


def test_a_definition_that_is_no_schema_is_refused() -> None:
    with pytest.raises(Flaw, match="no JSON Schema"):
        input_schema([], {"p": {"$ref": "#/$defs/T", "$defs": {"T": {"allOf": 7}}}})


# --- generated -------------------------------------------------------------------------------------------------------

NAMES = st.sampled_from(["path", "depth", "patch", "dry_run"])
SCHEMAS = st.sampled_from(
    [{"type": "string"}, {"type": "integer", "default": 1}, {"enum": ["a", "b"]}, {"type": "boolean"}]
)


@pytest.mark.req("TOOL-08")
@given(
    st.lists(st.builds(exposed, NAMES, SCHEMAS, required=st.booleans()), max_size=6),
    st.dictionaries(NAMES, SCHEMAS, max_size=3),
    st.sets(NAMES),
)
def test_what_is_made_is_a_schema_of_exactly_the_exposed_arguments(
    steps: list[ExposedParameter], declared: dict[str, Any], optional: set[str]
) -> None:
    try:
        made = input_schema(steps, declared, optional)
    except Flaw:
        schemas = {(one.name, str(one.schema["properties"][one.name])) for one in steps if one.name not in declared}
        assert len(schemas) > len({name for name, _ in schemas}), "only disagreement is a reason"
        return
    jsonschema_rs.meta.validate({"$schema": "https://json-schema.org/draft/2020-12/schema", **made})
    assert made["properties"].keys() == {one.name for one in steps} | declared.keys()
    assert optional.isdisjoint(made.get("required", ()))
    assert not jsonschema_rs.is_valid(made, {**dict.fromkeys(made["properties"], "a"), "other": 1})
    assert input_schema(steps, declared, optional) == made
