"""What is wrong with a pack is told all at once, each with its place; what is doubtful is a warning."""

from __future__ import annotations

import re
import textwrap
import time
from pathlib import Path

import pytest

from manglecp.base.diagnostic import Diagnostic
from manglecp.intent.domain import Domain
from manglecp.intent.kernel import (
    ASSERTED,
    DERIVED,
    NOT_ASSERTABLE,
    OWNERS,
    POLICY,
    PREDICATES,
    SINGLE_VALUED,
    kernel_sources,
)
from manglecp.mangle import Fact, Program, Trust
from manglecp.pack import ExternalDescription, IntentSettings, Pack, PackError
from manglecp.pack.settings import PackLimits
from tests.intent.packs import SCHEMA, action, pack

TOOL = 'macro("see", "See.").\nmacro_step("see", 1, "look").\n'


def problems(*args: str, **parts: object) -> list[Diagnostic]:
    with pytest.raises(PackError) as caught:
        Domain.load(pack(*args, **parts))  # type: ignore[arg-type]
    return list(caught.value.diagnostics)


def complaints(*args: str, **parts: object) -> list[str]:
    """``file:line:column message``"""
    errors = [problem for problem in problems(*args, **parts) if problem.severity == "error"]
    return [f"{problem.place} {problem.message}" for problem in errors]


def warnings(given: Pack) -> list[str]:
    return [problem.message for problem in Domain.load(given).warnings]


# --- the kernel ------------------------------------------------------------------------------------------------------


@pytest.mark.req("EVAL-48", "EVAL-49")
def test_the_kernel_is_rules_one_file_per_phase() -> None:
    names = [source.name for source in kernel_sources()]
    phases = ["1_skeleton", "2_exclusion", "3_flesh", "4_conflict", "5_dependency", "6_output"]
    assert [name for name in names if name[7] in "123456"] == [f"kernel/{phase}.mg" for phase in phases]
    program = Program.load(kernel_sources(), owners=OWNERS)
    assert not program.warnings
    assert all(program.predicates[key].decl is not None for key in program.predicates)  # every word is explained
    assert all(predicate.doc for predicate in program.predicates.values())


def test_every_name_has_an_owner() -> None:
    assert set(OWNERS) == PREDICATES
    assert ASSERTED | DERIVED | POLICY | set(SINGLE_VALUED) <= PREDICATES
    assert {name for name, owner in OWNERS.items() if owner is Trust.POLICY} == POLICY
    assert all(OWNERS[name] is Trust.KERNEL for name in (*ASSERTED, *DERIVED, "kernel.barred", "kernel.able"))
    assert OWNERS["macro"] is OWNERS["needs_confirmation"] is Trust.DOMAIN


# --- who may say what ------------------------------------------------------------------------------------------------


@pytest.mark.req("EVAL-40", "EVAL-41")
@pytest.mark.parametrize("name", sorted(POLICY))
def test_a_domain_rule_cannot_speak_for_policy(name: str) -> None:
    first = {"fact_denied": "seen", "effect_denied": "look"}.get(name, "see")
    clause = f'{name}("{first}").' if (name, 1) in _arities() else f'{name}("{first}", "why").'
    (told,) = complaints(TOOL + clause, schema=SCHEMA)
    assert told.startswith(f"rules/domain/domain.mg:3:1 {name} belongs to policy")
    Domain.load(pack(TOOL, policy=clause, schema=SCHEMA))


@pytest.mark.no_cover
@pytest.mark.req("EVAL-40", "EVAL-41")
@pytest.mark.parametrize("name", sorted(NOT_ASSERTABLE - POLICY))
def test_nobody_speaks_for_the_kernel(name: str) -> None:
    if OWNERS[name] is not Trust.KERNEL:
        return
    arity = next(a for n, a in _arities() if n == name)
    variables = ", ".join(f"X{i}" for i in range(arity))
    body = ", ".join(f"any(X{i})" for i in range(arity)) or "any(_)"
    head = f"{name}({variables})"
    for level in ("policy", "schema", "domain"):
        found = problems(**{level: f"Decl any(X) bound [/any].\n{head} :- {body}.\n"})
        assert any(f"{name} belongs to kernel" in problem.message and problem.line == 2 for problem in found)
    # nor can it be declared again, as something that clients may say
    found = problems(f'Decl {head} descr [direction("input")].\n')
    assert any(f"{name}/{arity} is declared twice" in problem.message for problem in found)


@pytest.mark.req("EVAL-40")
@pytest.mark.parametrize("name", sorted(name for name in PREDICATES if name.startswith("kernel.")))
def test_a_pack_may_use_the_short_names_of_intermediate_results(name: str) -> None:
    arity = next(a for n, a in _arities() if n == name)
    head = f"{name.removeprefix('kernel.')}({', '.join(['X'] * arity)})"
    Domain.load(pack(f'{TOOL}{head} :- intent(X).\nrelevant("see", 7) :- {head}.\n', schema=SCHEMA))


def _arities() -> set[tuple[str, int]]:
    return set(Program.load(kernel_sources()).predicates)


@pytest.mark.req("EVAL-41")
@pytest.mark.parametrize("fact", ['prohibited("see", "x").', 'final_selected("see", 1, "x").', 'action("rm").'])
def test_a_fact_file_speaks_for_the_domain_only(tmp_path: Path, fact: str) -> None:
    file = tmp_path / "facts.mg"
    file.write_text(fact)
    (told,) = complaints(TOOL, fact_files=[str(file)])
    assert "a fact file may not add to it" in told
    with pytest.raises(PackError):
        Domain.load(pack(TOOL), facts=[Fact("skill", ("x",))])


PROTECTED = {
    "a declaration": {"schema": 'Decl guarded(P) descr [owner("policy")] bound [/string].'},
    "a rule": {"policy": 'guarded(P) :- client(P).\nprohibited("see", "guarded") :- guarded("x").'},
    "a fact": {"policy": 'guarded("etc").'},
    "a fact of the schema": {"schema": 'guarded("etc").'},
}


@pytest.mark.req("EVAL-41")
@pytest.mark.parametrize("parts", PROTECTED.values(), ids=PROTECTED)
def test_facts_do_not_add_to_what_policy_owns(tmp_path: Path, parts: dict[str, str]) -> None:
    file = tmp_path / "facts.mg"
    file.write_text('guarded("x").')
    (told,) = complaints(TOOL, fact_files=[str(file)], **parts)
    assert re.search("guarded belongs to (policy|schema), a fact file may not add to it", told)
    with pytest.raises(PackError, match="guarded belongs to"):
        Domain.load(pack(TOOL, **parts), facts=[Fact("guarded", ("x",))])  # type: ignore[arg-type]


def test_facts_add_to_what_the_domain_owns(tmp_path: Path) -> None:
    file = tmp_path / "facts.mg"
    file.write_text('known("q").')
    policy = 'prohibited("see", "known") :- known("q").'
    loaded = Domain.load(pack(TOOL + 'known("z").', policy=policy, fact_files=[str(file)]))
    assert loaded.base.derived > Domain.load(pack(TOOL + 'known("z").', policy=policy)).base.derived


@pytest.mark.req("EVAL-41")
@pytest.mark.parametrize("direction", ["input", "both"])
def test_clients_do_not_state_what_policy_owns(direction: str) -> None:
    declared = f'Decl guarded(P) descr [direction("{direction}"), owner("policy")] bound [/string].'
    (told,) = complaints(TOOL, schema=declared)
    assert told.startswith("rules/schema/schema.mg:1:24 guarded belongs to policy, so that no client may state it")
    declared = f'Decl guarded(P) descr [direction("{direction}")] bound [/string].'
    (told,) = complaints(TOOL, schema=declared, policy='guarded("etc").')
    assert "guarded belongs to policy, so that no client may state it" in told
    Domain.load(pack(TOOL, schema=declared.replace(direction, "output"), policy='guarded("etc").'))
    Domain.load(pack(TOOL, schema=declared, policy='prohibited("see", "guarded") :- guarded("etc").'))


# --- names that have to exist ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rules", "told"),
    [
        ('macro_step("see", 2, "loook").', "3:22 the pack has no action 'loook'"),
        ('undo_step("see", 1, "unlook").', "3:21 the pack has no action 'unlook'"),
        ('extract("loook", "k", "/v").', "3:9 the pack has no action 'loook'"),
        ('needs_skill("see", "seeing").', "3:20 the pack has no skill 'seeing'"),
        ('relevant("see", 101).', "3:17 a score is a number from 0 to 100, not 101"),
        ('relevant("see", -1).', "3:17 a score is a number from 0 to 100, not -1"),
        ('needs_resource("see", "u", "w", 101).', "3:33 a priority is a number from 0 to 100, not 101"),
        ('on_error("see", 1, "panic").', "3:20 what happens after an error is one of"),
        ('valid_for("see", fn:duration:from_minutes(-5)).', "3:18 a tool is valid for some time"),
        ('macro_step("see", 0, "look").', "3:19 steps are counted from 1, not 0"),
        ('macro("other", " "). macro_step("other", 1, "look").', "3:16 the description of the tool is empty"),
        ('on_error("see", 7, "stop").', "3:17 see has no step 7"),
        ('on_error("see", 1, "undo").', "3:20 see has no step that can be undone"),
        ('arg_value("see", 1, "pth", "x").', "3:21 look has no parameter 'pth'"),
        ('arg_from("see", 1, "pth", "x").', "3:20 look has no parameter 'pth'"),
        ('macro_step("see", 2, "look"). arg_step("see", 2, "pth", 1, "/x").', "3:50 look has no parameter 'pth'"),
        ('arg_value("see", 2, "path", "x").', "3:18 see has no step 2"),
        ('arg_value("see", 1, "pth", X) :- skill(X).', "3:21 look has no parameter 'pth'"),
        ('undo_value("see", 1, "path", "x").', "3:19 see has no step 1 with an undo action"),
        ('macro_param("see", "p", 7).', "3:25 the schema of 'p' is not an object"),
        ('macro_param("see", "p", {"type": "strin"}).', "3:25 a schema is no JSON Schema"),
        ('macro_output("see", {"type": "strin"}).', "3:21 a schema is no JSON Schema"),
    ],
)
def test_a_constant_that_names_nothing(rules: str, told: str) -> None:
    (found,) = complaints(TOOL + rules)
    assert found.startswith(f"rules/domain/domain.mg:{told}")


@pytest.mark.parametrize(
    ("rules", "told"),
    [
        ('macro_step("see", 2, "count").', "look and count take 'path'|count and look take 'path'"),
        ('macro_step("see", 2, "look").\narg_step("see", 1, "path", 2, "/x").', "does not run before it"),
    ],
)
def test_a_tool_that_no_request_can_change_has_to_be_whole(rules: str, told: str) -> None:
    count = action("count", params={"path": {"type": "integer"}})
    (found,) = problems(TOOL + rules, actions=["look", count])
    assert found.severity == "error"
    assert found.place == "rules/domain/domain.mg:1:7"
    assert found.message.startswith("the tool 'see' is never offered: ")
    assert re.search(told, found.message)
    # what a request may still change is not judged
    more = '\narg_value("see", 1, "path", X) :- intent(X).'
    assert Domain.load(pack(TOOL + rules + more, actions=["look", count])).warnings == ()


@pytest.mark.parametrize(
    ("rules", "told"),
    [
        ('arg_step("see", 1, "path", 7, "/x").', "3:28 see has no step 7"),
        ('arg_step("see", 1, "path", 1, "/x").', "3:28 step 1 of see waits for itself"),
        ('step_after("see", 1, 7).', "3:22 see has no step 7"),
        ('step_after("see", 7, 1).', "3:19 see has no step 7"),
        ('step_after("see", 1, 1).', "3:22 step 1 of see waits for itself"),
        ('macro_result("see", "k", 9, "").', "3:26 see has no step 9"),
        ('macro_result("see", "k", 1, "no pointer").', "3:29 'no pointer' is not a JSON Pointer"),
        ('macro_result("see", "k", 1, "/a~2").', "3:29 '/a~2' is not a JSON Pointer"),
        ('extract("look", "k", "v").', "3:22 'v' is not a JSON Pointer"),
        ('needs_resource("see", "javascript:alert(1)", "w", 1).', "3:23 'javascript:alert(1)' is not a path or URI"),
        ('needs_resource("see", " ", "w", 1).', "3:23 ' ' is not a path or URI"),
    ],
)
def test_a_constant_that_refers_to_nothing(rules: str, told: str) -> None:
    (found,) = complaints(TOOL + rules)
    assert found.startswith(f"rules/domain/domain.mg:{told}")


@pytest.mark.parametrize(
    ("rules", "told"),
    [
        ('optional_param("see", "pth").', "see has no parameter 'pth' that could be left out"),
        ('conflicts("see", "see").', "see cannot be its own rival"),
        ('instruction("see", 1, " ") :- intent("repair").', "the instruction is empty"),
        ('needs_resource("see", "notes.txt", " ", 1).', "the resource has no relevance"),
        ('instruction("see", 1, "Mind it.").', "no fact of a request decides about this instruction"),
        (
            'instruction(T, 1, "Mind it.") :- macro(T, _), T = "see".',
            "no fact of a request decides about this instruction",
        ),
        (
            'conflicts("sea", "see").\nrequires("see", "sea") :- intent("repair").',
            "see requires sea and is in conflict with it, so that it is never offered",
        ),
    ],
)
def test_a_constant_that_does_nothing_is_doubtful(rules: str, told: str) -> None:
    sea = 'macro("sea", "Sea."). macro_step("sea", 1, "look"). relevant("sea", 9).\n'
    assert warnings(pack(TOOL + sea + rules, intents=["repair"])) == [told]


@pytest.mark.req("SKILL-04", "SKILL-14")
def test_each_skill_is_gated_by_a_fact_of_the_request() -> None:
    def told(rules: str, *skills: str) -> list[str]:
        return warnings(
            pack(TOOL + 'Decl seen(X) descr [direction("input")].\n' + rules, skills=skills, intents=["go"])
        )

    gated = 'relevant("see", 5) :- intent("go").\n'
    orphan, constant = "no rule needs this skill", "no fact of a request decides about this needs_skill"
    assert told(gated + 'needs_skill("see", "care") :- seen(_).', "care") == []
    assert told(gated + 'needs_skill("see", "care") :- !seen("calm").', "care") == []
    assert told(gated + 'needs_skill("see", S) :- skill(S), intent("go").', "care", "more") == []
    assert told(gated + 'needs_skill("see", "care") :- seen(_).', "care", "more") == [orphan]
    assert told(gated + 'needs_skill("see", "care").', "care") == [constant]
    assert told(gated + 'needs_skill(T, "care") :- kind(T). kind("see").', "care") == [constant]
    assert told(gated + 'instruction("see", 1, "Look.") :- seen(_).') == []
    assert told(gated + 'instruction("see", 1, "Look.").') == ["no fact of a request decides about this instruction"]
    assert told(gated + 'needs_resource("see", "a.txt", "", 5) :- seen(_).') == ["the resource has no relevance"]


def test_references_that_may_be_right() -> None:
    rules = """\
    macro_step("see", 2, "look") :- intent("repair").
    step_after("see", 2, 1).
    arg_step("see", 2, "path", 1, "/a").
    macro_result("see", "all", 2, "").
    macro_result("see", "part", 1, "/a/~0~1/0").
    arg_from("see", 1, "path", "file").
    optional_param("see", "file").
    optional_param("see", "depth").
    needs_resource("see", "notes.txt", "They matter.", 1).
    instruction("see", N, "Mind it.") :- intent("repair"), N = 1.
    suggests("repair", {}, "Why.") :- ran("see").
    macro("sea", "Sea.").
    macro_step("sea", N, "look") :- intent("repair"), N = 5.
    macro_result("sea", "k", 4, "").
    macro_param("sea", P, {}) :- intent(P).
    optional_param("sea", "anything").
    conflicts("sea", "see") :- intent("repair").
    requires("see", "sea") :- intent("observe").
    """
    given = pack(TOOL + textwrap.dedent(rules), intents=["repair", "observe"])
    assert warnings(given) == []


def test_what_variables_stand_for_is_not_guessed() -> None:
    rules = """\
    macro(T, "Made.") :- skill(T).
    macro_step(T, 1, A) :- skill(T), action(A).
    arg_value(T, 1, "anything", "x") :- skill(T).
    arg_value("see", 1, "anything", "x").
    relevant(T, N) :- skill(T), N = 5.
    needs_skill(T, T) :- skill(T), intent(_).
    """
    assert Domain.load(pack(rules, skills=["see"])).warnings == ()


def test_everything_at_once() -> None:
    found = complaints(
        'macro_step("see", 1, "loook").\nprohibited("see", "x").\nrelevant("see", 400).\np(X) :- q(Y).\n',
        policy='effect_denied("lok", "x").\n',
        intents=[IntentSettings(name="observe", description="x", required_facts=("nothing",))],
    )
    text = "\n".join(found)
    for part in ("no action 'loook'", "belongs to policy", "score is a number", "no action 'lok'", "names nothing"):
        assert part in text
    assert "rules/domain/domain.mg:4:" in text  # the language's own errors stand among them
    places = [one.split(" ")[0] for one in found]
    assert places == sorted(places)


def test_files_that_do_not_parse_do_not_hide_the_others() -> None:
    found = complaints('macro_step("see", 1, "loook").', policy="p(")
    assert any("loook" in text for text in found)
    assert any(text.startswith("rules/policy/policy.mg:1:") for text in found)


@pytest.mark.req("MANI-12")
def test_required_facts_are_predicates_that_clients_may_state() -> None:
    schema = 'Decl seen(X) descr [direction("input")]. Decl made(X) descr [direction("output")]. Decl own(X).'
    wanted = IntentSettings(name="observe", description="x", required_facts=("seen",), optional_facts=("made", "own"))
    found = complaints(schema=schema, intents=[wanted])
    assert [text.split(", which")[0] for text in found] == [
        f"pack.toml optional_facts of the intent 'observe' names {name}" for name in ("made", "own")
    ]


def test_directions_are_checked() -> None:
    assert "direction takes one string" in complaints(schema='Decl seen(X) descr [direction("inn")].')[0]
    assert "belongs to the protocol" in complaints(schema="Decl disclosure_upgrade(X).")[0]


# --- external predicates ---------------------------------------------------------------------------------------------

SIMILAR = ExternalDescription(predicate="similar", mode="+-", arguments=("Text", "Id"))
ASKS = "Decl found(Id). found(Id) :- intent(Name), similar(Name, Id)."


@pytest.mark.req("MANI-21")
def test_external_predicates_are_declared_where_they_are_answered() -> None:
    declared = 'Decl similar(Text, Id) descr [external(), mode("+", "-")].'
    assert Domain.load(pack(ASKS, externals=[SIMILAR])).program.predicates["similar", 2].external
    assert Domain.load(pack(ASKS, schema=declared, externals=[SIMILAR])).warnings == ()
    assert complaints(ASKS, schema=declared) == ["rules/schema/schema.mg:1:6 externals.py does not answer similar"]
    assert "unknown predicate similar" in complaints(ASKS)[0]
    for other in ('Decl similar(Text, Id) descr [external(), mode("+", "+")].', "Decl similar(Text, Id)."):
        told = complaints(ASKS, schema=other, externals=[SIMILAR])
        assert any(text.endswith("with another number of arguments or mode") for text in told)
    assert warnings(pack(externals=[SIMILAR])) == ["no rule uses similar"]


# --- warnings --------------------------------------------------------------------------------------------------------


def test_intents_that_no_rule_mentions() -> None:
    rules = TOOL + 'relevant("see", 50) :- intent("observe").\n'
    assert warnings(pack(rules, intents=["observe"])) == []
    assert warnings(pack(rules, intents=["observe", "repair"])) == ["no rule mentions the intent 'repair'"]
    told = [problem.message for problem in problems(rules, intents=["obserwe"])]
    assert told == ["no rule mentions the intent 'obserwe'", "the intent 'observe' is not listed in pack.toml"]
    assert warnings(pack(TOOL + 'relevant("see", 50).', intents=["observe"])) == []
    generic = TOOL + 'relevant("see", 50) :- intent(I), skill(I).'
    assert warnings(pack(generic, intents=["observe"])) == []
    equal = TOOL + 'relevant("see", 50) :- intent(I), I = "observe".'
    assert warnings(pack(equal, intents=["observe", "x"])) == ["no rule mentions the intent 'x'"]


def test_two_values_where_one_counts() -> None:
    two = TOOL + 'macro("see", "Look.").\nmacro_summary("see", "a").\n'
    assert complaints(two) == [
        "rules/domain/domain.mg:3:1 macro('see', …) has two values, so that the tool is never offered"
    ]


def test_tools_that_cannot_be_offered() -> None:
    assert warnings(pack('macro("idle", "x").')) == ["the tool 'idle' has no step and is never offered"]
    assert warnings(pack('macro("elsewhere", "x"). macro_param("elsewhere", "n", ["type": "integer"]).')) == []
    told = complaints(TOOL + 'relevant("sea", 50).\nrequires("see", "sae").')
    assert [one.partition(" ")[2] for one in told] == [
        "no clause of macro defines the tool 'sea'",
        "no clause of macro defines the tool 'sae'",
    ]
    assert warnings(pack(TOOL + 'relevant("see", 50).')) == []


# --- what the kernel states ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rule",
    [
        'conflicts("see", "saw").',
        'conflicts("saw", "see").',
        'requires("saw", "see").',
        'reversible("saw").',
        'instruction("saw", 1, "Mind.").',
        'needs_confirmation("saw").',
        'needs_resource("saw", "u", "w", 1).',
    ],
)
def test_a_tool_that_is_mistyped_is_told(rule: str) -> None:
    (told,) = complaints(TOOL + rule)
    assert told.endswith("no clause of macro defines the tool 'saw'")


def test_a_prohibition_of_a_mistyped_tool_is_told() -> None:
    (problem,) = problems(TOOL, policy='prohibited("sse", "x").')
    assert (problem.severity, problem.message) == ("error", "no clause of macro defines the tool 'sse'")
    assert problem.fix == 'did you mean see? If not, write it in actions.py, under @action, or macro("sse", …)'
    assert not warnings(pack(TOOL, policy='prohibited("see", "x").'))


def test_the_base_knows_actions_skills_settings_and_fact_files(tmp_path: Path) -> None:
    file = tmp_path / "known.jsonl"
    file.write_text('{"pred": "known", "args": ["a"]}\n')
    pay = action("pay", effects=("payments", "network"), tier=3)
    given = pack(
        schema="Decl known(X) bound [/string].",
        actions=[pay],
        skills=["s"],
        params={"root": "/x"},
        fact_files=[str(file)],
    )
    facts = Domain.load(given, facts=[Fact("known", ("b",))]).base.evaluate(now=0).facts()
    assert {
        'action("pay")',
        'action_effect("pay","network")',
        'action_effect("pay","payments")',
        'action_tier("pay",3)',
        'action_param("pay","path",/true)',
        'action_param("pay","depth",/false)',
        'skill("s")',
        'setting("root","/x")',
        'known("a")',
        'known("b")',
    } <= set(facts)


def test_bad_fact_files(tmp_path: Path) -> None:
    file = tmp_path / "facts.mg"
    file.write_text('macro("a", 1).\n')
    found = complaints(TOOL, fact_files=[str(file), str(tmp_path / "none.mg")])
    assert len(found) == 2
    assert any("cannot be read" in text for text in found)


@pytest.mark.req("MANI-24")
def test_the_interval_limit_holds_for_the_base_too() -> None:
    facts = [Fact("logged", ("x",), (n * 10**10, n * 10**10)) for n in range(1_200)]
    given = pack(schema="Decl logged(X) temporal bound [/string].", limits=PackLimits(max_intervals_per_atom=1_200))
    Domain.load(given, facts=facts)
    with pytest.raises(PackError, match="limit of 1199 intervals"):
        Domain.load(pack(schema=SCHEMA, limits=PackLimits(max_intervals_per_atom=1_199)), facts=facts)


@pytest.mark.req("EVAL-19")
def test_another_rule_fact_file_or_base_fact_is_another_digest() -> None:
    same = [Domain.load(pack(TOOL)).digest for _ in range(2)]
    assert same[0] == same[1]
    others = [
        Domain.load(pack(TOOL + 'reversible("see").')).digest,
        Domain.load(pack(TOOL, params={"a": "b"})).digest,
        Domain.load(pack(TOOL), facts=[Fact("reversible", ("see",))]).digest,
    ]
    assert len({same[0], *others}) == 4


def test_needs_confirmation_is_settled_when_a_pack_is_loaded() -> None:
    domain = Domain.load(pack('macro("p", "x").\nmacro_step("p", 1, "pay").', actions=[action("pay", tier=3)]))
    number = domain.base.compiled.ids["needs_confirmation", 1]
    assert domain.base.layer.facts[number].facts == {("p",)}


# --- schemas that attack ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "schema",
    [
        '{"$ref": "https://example.invalid/schema.json"}',
        '{"$ref": "file:///etc/passwd"}',
        '{"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}',
        '{"$dynamicRef": "https://example.invalid/schema.json"}',
        '{"pattern": "("}',
        '{"type": "string", "minLength": -1}',
        '{"properties": {"a": {"items": {"$ref": "other.json#/x"}}}}',
    ],
)
def test_schemas_that_reach_out_or_are_none(schema: str) -> None:
    started = time.monotonic()
    (told,) = complaints(TOOL + f'macro_param("see", "p", {schema}).')
    assert told.startswith("rules/domain/domain.mg:3:25 ")
    assert time.monotonic() - started < 20


def test_a_schema_that_is_nested_too_deep() -> None:
    deep = '{"type": "string"}'
    for _ in range(2_000):
        deep = '{"items": ' + deep + "}"
    assert complaints(TOOL + f'macro_param("see", "p", {deep}).')


# --- cycles through the kernel ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parts", "place"),
    [
        ({"domain": 'relevant("see", 50) :- intent("x"), !chosen("see", _, _).'}, "rules/domain/domain.mg:3:37"),
        ({"domain": 'relevant("see", 50) :- chosen("see", _, _).'}, "rules/domain/domain.mg:3:24"),
        ({"domain": 'mandatory("see") :- upset().\nupset() :- excluded("see", _, _).'}, "rules/domain/domain.mg:3:21"),
        ({"policy": 'prohibited("see", "x") :- offered("see").'}, "rules/policy/policy.mg:1:27"),
        (
            {"domain": "mine(T) :- offered(T).", "policy": 'prohibited(T, "x") :- mine(T).'},
            "rules/domain/domain.mg:3:12",
        ),
    ],
)
def test_a_cycle_through_the_kernel_is_told_where_the_pack_closes_it(parts: dict[str, str], place: str) -> None:
    """The kernel alone has none, and its author is not the one who can mend it."""
    (told,) = problems(**{**parts, "domain": TOOL + parts.get("domain", "")})
    assert told.place == place
    assert "depends on itself through" in told.message
    assert told.fix is not None
