"""Arguments that do not go with their actions are told when a pack is checked, at the place where they are written."""

from __future__ import annotations

from pathlib import Path

import pytest

from manglecp.intent.domain import Domain
from manglecp.intent.manifest_builder import survey
from manglecp.mangle import Fact
from manglecp.pack import ActionDescription, ExternalDescription, PackError
from tests.intent.answering import tools
from tests.intent.packs import action, pack
from tests.intent.test_domain import complaints, problems, warnings

TOOL = 'macro("see", "See.").\nmacro_step("see", 1, "look").\n'
UNDO = 'undo_step("see", 1, "look").\n'


# --- bound twice -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rules", "told"),
    [
        ('arg_value("see", 1, "path", "x").\narg_from("see", 1, "path", "p").', "4:20 'path' of step 1 is bound twice"),
        ('arg_from("see", 1, "path", "p").\narg_value("see", 1, "path", "x").', "3:20 'path' of step 1 is bound twice"),
        (
            'macro_step("see", 2, "look").\narg_value("see", 2, "path", "x").\narg_step("see", 2, "path", 1, "/a").',
            "5:20 'path' of step 2 is bound twice: arg_value overrides arg_step, which has no effect",
        ),
        (
            'macro_step("see", 2, "look").\narg_from("see", 2, "path", "x").\narg_step("see", 2, "path", 1, "/a").',
            "5:20 'path' of step 2 is bound twice: arg_from overrides arg_step, which has no effect",
        ),
        (
            'arg_value("see", 1, "path", "x").\narg_from("see", 1, "path", "p") :- intent("observe").',
            "4:20 'path' of step 1 is bound twice",
        ),
        (
            'arg_from("see", 1, "path", "p") :- intent("a"), client("b").\n'
            'arg_value("see", 1, "path", "x") :- intent("a").',
            "3:20 'path' of step 1 is bound twice",
        ),
        (
            'arg_value(T, 1, "path", "x") :- macro(T, _).\narg_from(T, 1, "path", "p") :- macro(T, _).',
            "4:16 'path' of step 1 is bound twice",
        ),
        (
            UNDO + 'undo_value("see", 1, "path", "x").\nundo_in("see", 1, "path", "path").',
            "5:19 'path' of step 1 is bound twice: undo_value overrides undo_in",
        ),
    ],
)
def test_a_clause_that_never_counts_is_told(rules: str, told: str) -> None:
    (found,) = complaints(TOOL + rules)
    assert found.startswith(f"rules/domain/domain.mg:{told}")


@pytest.mark.parametrize(
    "rules",
    [
        'arg_value("see", 1, "path", "x") :- intent("a").\narg_from("see", 1, "path", "p").',  # where nothing is known
        'arg_value("see", 1, "path", "x") :- intent("a").\narg_from("see", 1, "path", "p") :- intent("b").',
        'arg_value("see", 1, "path", "x").\narg_from("see", 1, "depth", "p").',
        'macro_step("see", 2, "look").\narg_value("see", 1, "path", "x").\narg_step("see", 2, "path", 1, "/a").',
    ],
)
def test_a_clause_that_stands_in_for_another_is_fine(rules: str) -> None:
    assert Domain.load(pack(TOOL + rules)).warnings == ()


def test_what_is_bound_twice_says_where_the_other_is() -> None:
    (found,) = problems(TOOL + 'arg_value("see", 1, "path", "x").\narg_from("see", 1, "path", "p").')
    assert found.fix == "remove one of them; the other is in rules/domain/domain.mg:3"


def test_a_fact_file_binds_too(tmp_path: Path) -> None:
    file = tmp_path / "facts.mg"
    file.write_text('arg_value("see", 1, "path", "x").')
    (found,) = complaints(TOOL + 'arg_from("see", 1, "path", "p").', fact_files=[str(file)])
    assert found.startswith("rules/domain/domain.mg:3:20 'path' of step 1 is bound twice")


# --- values ----------------------------------------------------------------------------------------------------------

LEVEL = {"$defs": {"level": {"enum": ["low", "high"]}}}


def chooser() -> ActionDescription:
    plain = action("choose", params={"level": {"$ref": "#/$defs/level"}, "sizes": {"items": {"type": "integer"}}})
    return action("choose", input_schema={**plain.input_schema, **LEVEL})


@pytest.mark.parametrize(
    ("rules", "place"),
    [
        ('arg_value("see", 1, "depth", "deep").', "3:30"),
        ('arg_value("see", 1, "path", 7).', "3:29"),
        ('arg_value("see", 1, "path", ["a"]) :- intent("observe").', "3:29"),
        (UNDO + 'undo_value("see", 1, "path", 7).', "4:30"),
        ('macro_step("see", 2, "choose").\narg_value("see", 2, "level", "middling").', "4:30"),
        ('macro_step("see", 2, "choose").\narg_value("see", 2, "sizes", [1, "2"]).', "4:30"),
        ('arg_value("see", 1, "path", fn:map(1, 2)).', "3:29"),
    ],
)
def test_a_value_that_the_action_does_not_take_is_told(rules: str, place: str) -> None:
    (found,) = complaints(TOOL + rules, actions=["look", chooser()])
    assert found.startswith(f"rules/domain/domain.mg:{place} ")
    assert "does not take this value as" in found


@pytest.mark.parametrize(
    "rules",
    [
        'arg_value("see", 1, "depth", 3).',
        'arg_value("see", 1, "path", /a/b).',
        'macro_step("see", 2, "choose").\narg_value("see", 2, "level", "low").\narg_value("see", 2, "sizes", [1, 2]).',
        'arg_value("see", 1, "depth", D) :- intent(D).',
        # the step is one or the other, and one of them takes it
        'macro_step("odd", 1, "look") :- intent("a").\nmacro_step("odd", 1, "spell") :- intent("b").\n'
        'macro("odd", "Odd.").\narg_value("odd", 1, "depth", "low").',
    ],
)
def test_values_that_fit_or_are_not_known_yet(rules: str) -> None:
    spell = action("spell", params={"path": {"type": "string"}, "depth": {"type": "string"}})
    assert Domain.load(pack(TOOL + rules, actions=["look", chooser(), spell])).warnings == ()


@pytest.mark.parametrize(
    "facts", [[Fact("depth_of", ("see", "deep"))], [Fact("depth_of", ("see", 1)), Fact("depth_of", ("see", "deep"))]]
)
def test_a_value_that_settles_in_the_base_is_told_at_its_rule(facts: list[Fact]) -> None:
    schema = "Decl depth_of(Tool, D) bound [/string, /any].\n"
    given = pack(TOOL + 'arg_value(T, 1, "depth", D) :- depth_of(T, D).', schema=schema)
    with pytest.raises(PackError, match="look does not take this value as 'depth'") as caught:
        Domain.load(given, facts=facts)
    assert "rules/domain/domain.mg:3:26" in str(caught.value)
    Domain.load(given, facts=[Fact("depth_of", ("see", 1))])
    Domain.load(given, facts=[Fact("depth_of", ("another", "deep"))])


def test_a_value_that_a_request_may_still_change_is_only_doubtful() -> None:
    rules = TOOL + 'arg_value("see", 1, "depth", D) :- !intent("a"), given(D).\ngiven("deep").'
    (told,) = Domain.load(pack(rules)).warnings
    assert (told.severity, told.line) == ("warning", 3)
    assert "does not take this value" in told.message


def test_a_secret_setting_is_not_shown_in_the_complaint() -> None:
    rules = TOOL + 'arg_value("see", 1, "depth", D) :- setting("api_token", D).'
    (told,) = problems(rules, params={"api_token": "hunter2-hunter2"})
    assert "does not take this value" in told.message
    assert "hunter2" not in told.render()


# --- approvable ------------------------------------------------------------------------------------------------------

_NAMED = ' needs_confirmation("see").'
_FROM = 'macro_step("see", 2, "{}"). macro_step("see", 3, "pay"). arg_step("see", 3, "path", {}, "/path").'
_UNDO = ' undo_step("see", 2, "pay"). undo_out("see", 2, "path", "{}").'


@pytest.mark.parametrize(
    ("rules", "tier", "source"),
    [
        (_FROM.format("put", 2) + _NAMED, 1, 2),
        (_FROM.format("put", 2) + ' needs_approval("see", "boss") :- intent("a").', 1, 2),
        (_FROM.format("put", 2) + ' four_eyes("see").', 1, 2),
        (_FROM.format("put", 2), 3, 2),
        ('macro_step("see", 4, "look"). ' + _FROM.format("put", 4).replace(' 3, "', ' 5, "') + _NAMED, 1, 4),
        (_FROM.format("put", 2) + _NAMED + _UNDO.format("/other"), 1, 2),
        (_FROM.format("put", 2), 1, None),  # needs no approval
        (_FROM.format("put", 1) + _NAMED, 1, None),  # from a read before the first effect
        (_FROM.format("look", 2) + _NAMED, 1, None),
        (_FROM.format("put", 2) + _NAMED + _UNDO.format("/path"), 1, None),  # as the undo
    ],
)
def test_an_effect_with_an_unknown_argument_that_needs_approval_is_told(
    rules: str, tier: int, source: int | None
) -> None:
    pay, put = action("pay", tier=tier, effects=("x-pay",)), action("put", tier=1, effects=("filesystem",))
    told = [one for one in warnings(pack(TOOL + rules, actions=(action("look"), put, pay))) if "approved" in one]
    assert len(told) == (source is not None)
    assert all(one.endswith(f"from step {source}, whose result is not known before the first effect") for one in told)


# --- reversible ------------------------------------------------------------------------------------------------------


PATCH = action("patch", tier=1, effects=("filesystem",))
UNSAID = "see is declared reversible, and no clause undoes its step 2, patch"


@pytest.mark.parametrize(
    "rule", ['reversible("see").', 'reversible("see") :- intent("x").', "reversible(T) :- macro(T, _)."]
)
def test_a_chain_that_is_called_reversible_and_is_not(rule: str) -> None:
    rules = TOOL + 'macro_step("see", 2, "patch").\n' + rule
    (told,) = Domain.load(pack(rules, actions=["look", PATCH])).warnings
    assert (told.message, told.severity, told.line) == (UNSAID, "warning", 4)


def test_chains_that_can_be_taken_back() -> None:
    rules = TOOL + 'macro_step("see", 2, "patch").\nreversible("see").\n'
    undo = 'undo_step("see", 2, "look").\nundo_in("see", 2, "path", "path").'
    assert warnings(pack(rules + undo, actions=["look", PATCH])) == []
    assert warnings(pack(rules, actions=["look", action("patch", tier=2, reversible=True)])) == []
    assert warnings(pack(rules + 'nothing_to_undo("see", 2).', actions=["look", PATCH])) == []
    assert warnings(pack(TOOL + 'reversible("see").')) == []


# --- fact files do not silence the checks ----------------------------------------------------------------------------


def other_facts(folder: Path) -> list[str]:
    file = folder / "known.mg"
    file.write_text('known("x").\n')
    return [str(file)]


def test_names_are_checked_in_a_pack_that_has_fact_files(tmp_path: Path) -> None:
    schema = "Decl known(X) bound [/string]."
    given = pack(TOOL + 'relevant("sea", 50).', schema=schema, fact_files=other_facts(tmp_path))
    with pytest.raises(PackError, match="no clause of macro defines the tool 'sea'"):
        Domain.load(given)
    for rule, told in (
        ('on_error("see", 7, "stop").', "3:17 see has no step 7"),
        ('on_error("see", 1, "undo").', "3:20 see has no step that can be undone"),
    ):
        (found,) = complaints(TOOL + rule, schema=schema, fact_files=other_facts(tmp_path))
        assert found == f"rules/domain/domain.mg:{told}"


def test_what_fact_files_say_counts(tmp_path: Path) -> None:
    file = tmp_path / "tools.mg"
    file.write_text('macro("sea", "Sea."). macro_step("sea", 1, "look"). undo_step("sea", 1, "look").\n')
    rules = 'relevant("sea", 50).\narg_value("sea", 1, "depth", 1).\non_error("sea", 1, "undo").\n'
    rules += 'undo_value("sea", 1, "path", "x").\n'
    assert warnings(pack(rules, fact_files=[str(file)])) == []
    (found,) = complaints(rules + 'arg_value("sea", 2, "depth", 1).', fact_files=[str(file)])
    assert found == "rules/domain/domain.mg:5:18 sea has no step 2"


def test_mistakes_in_fact_files_are_told_with_the_file(tmp_path: Path) -> None:
    file = tmp_path / "tools.mg"
    file.write_text('macro_step("see", 2, "loook"). relevant("see", 400). arg_value("see", 1, "depth", "deep").\n')
    found = complaints(TOOL, fact_files=[str(file)])
    assert [text.partition(" ")[0] for text in found] == ["tools.mg"] * 3
    assert "the pack has no action 'loook'" in "".join(found)
    assert "look does not take this value as 'depth'" in "".join(found)


def test_a_fact_file_that_cannot_be_read_may_say_anything() -> None:
    (found,) = complaints('arg_value("see", 1, "depth", 1).\non_error("see", 1, "undo").', fact_files=["/nowhere.mg"])
    assert "cannot be read" in found


def test_a_fact_file_with_one_mistake_on_every_line_is_told_of_briefly(tmp_path: Path) -> None:
    file = tmp_path / "tools.mg"
    file.write_text("".join(f'macro_step("see", {n}, "no_{n}").\n' for n in range(1, 5_000)))
    assert len(problems(TOOL, fact_files=[str(file)])) == 20


# --- external predicates ---------------------------------------------------------------------------------------------


SIMILAR = ExternalDescription(predicate="similar", mode="+-", arguments=("Text", "Id"))


def test_nobody_writes_clauses_for_an_external_predicate(tmp_path: Path) -> None:
    asks = "found(Id) :- intent(Name), similar(Name, Id).\n"
    (told,) = complaints(asks + 'similar("a", "b").', externals=[SIMILAR])
    assert told.startswith("rules/domain/domain.mg:2:1 similar is external")
    (told,) = complaints(asks + "similar(X, Y) :- skill(X), skill(Y).", externals=[SIMILAR])
    assert told.startswith("rules/domain/domain.mg:2:1 similar is external")
    file = tmp_path / "similar.jsonl"
    file.write_text('{"pred": "similar", "args": ["a", "b"]}\n')
    found = complaints(asks, externals=[SIMILAR], fact_files=[str(file)])
    assert any(text.startswith("similar.jsonl") and "external" in text for text in found)


def test_a_pack_whose_externals_are_broken_is_not_blamed_for_its_facts(tmp_path: Path) -> None:
    (tmp_path / "rules" / "domain").mkdir(parents=True)
    (tmp_path / "rules" / "domain" / "d.mg").write_text("Decl known(X) bound [/string].\n")
    (tmp_path / "facts").mkdir()
    (tmp_path / "facts" / "known.mg").write_text('known("x").\n')
    (tmp_path / "externals.py").write_text("this is no Python\n")
    _, found = survey(tmp_path)
    assert {problem.file for problem in found} == {"externals.py"}


def test_a_declared_argument_with_definitions_of_its_own_is_a_tool() -> None:
    schema = '{"items": {"$ref": "#/$defs/size"}, "type": "array", "$defs": {"size": {"type": "integer"}}}'
    rules = (
        TOOL + f'macro_param("see", "path", {schema}).\nmacro_param("see", "depth", {schema}).\nrelevant("see", 90).'
    )
    found = tools(pack(rules))["see"]["input_schema"]
    references = [found["properties"][name]["items"]["$ref"] for name in ("path", "depth")]
    assert sorted(references) == ["#/$defs/size", "#/$defs/size_2"]
    assert found["$defs"] == {"size": {"type": "integer"}, "size_2": {"type": "integer"}}


# --- two values ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rules", "count"),
    [
        ('arg_value("see", 1, "path", "a"). arg_value("see", 1, "path", W) :- intent(W).', 1),
        ('arg_from("see", 1, "path", "a") :- intent("x"). arg_from("see", 1, "path", "b") :- intent("x").', 1),
        ('arg_value("see", 1, "path", "a") :- intent("x"). arg_value("see", 1, "path", "b") :- intent("y").', 0),
        ('arg_value("see", 1, "path", "a") :- intent("x"). arg_value("see", 1, "path", "a") :- intent("x").', 0),
    ],
)
def test_two_clauses_that_always_give_two_values(rules: str, count: int) -> None:
    told = [one for one in warnings(pack(TOOL + rules, actions=["look"])) if "two values" in one]
    assert len(told) == count
    assert all("arg_" in one and "the tool is not offered then" in one for one in told)
