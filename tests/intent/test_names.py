"""Names in rules and fact files: those that do not exist, how they get there, and when that is certain."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from manglecp.base.diagnostic import Diagnostic
from manglecp.intent.domain import Domain
from manglecp.intent.lint import _SEED_WORDS
from manglecp.mangle import Fact
from manglecp.pack import ExternalDescription, IntentSettings, PackError
from tests.intent.packs import action, pack

TOOLS = """
macro("rollback", "x"). macro_step("rollback", 1, "undo"). relevant("rollback", 50) :- intent("deploy").
macro("ship", "x"). macro_step("ship", 1, "push"). relevant("ship", 50) :- intent("deploy").
needs_skill("ship", "care") :- intent("deploy").
"""
SCHEMA = """
Decl seen(Word) descr [direction("input")] bound [/string].
Decl listed(Word) bound [/string].
"""
TOOL = "no clause of macro defines the tool {!r}"
ACTION = "the pack has no action {!r}"
PERMISSION = "pack.toml does not declare the permission {!r}"
EFFECT = "there is no effect {!r}"
INTENT = "the intent {!r} is not listed in pack.toml"
SKILL = "the pack has no skill {!r}"
PREDICATE = "clients cannot state {!r}, so that denying it has no effect"


def found(policy: str = "", domain: str = "", schema: str = SCHEMA, **parts: object) -> list[Diagnostic]:
    """All problems of a pack, whether it loads or not."""
    facts = parts.pop("facts", ())
    parts = {
        "actions": ("push", "undo"),
        "intents": ("deploy",),
        "permissions": ("refund",),
        "skills": ("care",),
        **parts,
    }
    given = pack(TOOLS + domain, policy=policy, schema=schema, **parts)  # type: ignore[arg-type]
    try:
        return list(Domain.load(given, facts=facts).warnings)  # type: ignore[arg-type]
    except PackError as error:
        return list(error.diagnostics)


@pytest.mark.parametrize(
    ("policy", "message", "known"),
    [
        ('prohibited("rolback", "x").', TOOL.format("rolback"), "rollback"),
        ('permitted("rolback").', TOOL.format("rolback"), "rollback"),
        ('needs_approval("rolback", "refund").', TOOL.format("rolback"), "rollback"),
        ('four_eyes("rolback").', TOOL.format("rolback"), "rollback"),
        ('effect_denied("psuh", "x").', ACTION.format("psuh"), "push"),
        ('prohibited("ship", "x") :- !client_permission("refnd").', PERMISSION.format("refnd"), "refund"),
        ('needs_approval("ship", "refnd").', PERMISSION.format("refnd"), "refund"),
        ('prohibited(T, "x") :- macro_effect(T, "filesytem").', EFFECT.format("filesytem"), "filesystem"),
        ('intent_denied("x") :- intent("depoly").', INTENT.format("depoly"), "deploy"),
        ('prohibited("ship", "x") :- needs_skill("ship", "cara").', SKILL.format("cara"), "care"),
        ('fact_denied("sen", "x") :- seen("bad").', PREDICATE.format("sen"), "seen"),
        # through predicates of the pack, in one or several steps
        ('dangerous("rolback"). needs_confirmation(T) :- dangerous(T).', TOOL.format("rolback"), "rollback"),
        (
            'bad("rolback"). dangerous(X) :- bad(X). prohibited(T, "x") :- dangerous(T), !client_permission("refund").',
            TOOL.format("rolback"),
            "rollback",
        ),
        (
            'needs("ship", "refnd"). prohibited(T, "x") :- needs(T, P), !client_permission(P).',
            PERMISSION.format("refnd"),
            "refund",
        ),
        ('safe("rolback"). prohibited(T, "x") :- macro(T, _), !safe(T).', TOOL.format("rolback"), "rollback"),
        ('late("depoly"). intent_denied("x") :- late(I), intent(I).', INTENT.format("depoly"), "deploy"),
        ('risky("psuh"). prohibited(T, "x") :- risky(A), macro_step(T, _, A).', ACTION.format("psuh"), "push"),
        # in bodies and comparisons
        (
            'prohibited(T, "x") :- dangerous(T), !dangerous("rolback"). dangerous("ship").',
            TOOL.format("rolback"),
            "rollback",
        ),
        ('permitted(T) :- macro(T, _), T != "rolback".', TOOL.format("rolback"), "rollback"),
        ('prohibited(T, "x") :- T = "rolback".', TOOL.format("rolback"), "rollback"),
        ('prohibited(T, "x") :- macro(T, _), U = T, U = "rolback".', TOOL.format("rolback"), "rollback"),
        ('prohibited(T, "x") :- macro(T, _), :list:member(T, ["rolback"]).', TOOL.format("rolback"), "rollback"),
    ],
)  # fmt: skip
def test_a_name_that_does_not_exist_is_an_error_with_the_nearest_one(policy: str, message: str, known: str) -> None:
    (problem,) = found(policy)
    assert (problem.severity, problem.message) == ("error", message)
    assert problem.fix is not None
    assert problem.fix.startswith(f"did you mean {known}? If not, ")
    assert problem.file == "rules/policy/policy.mg"


@pytest.mark.parametrize(
    "policy",
    [
        'prohibited("rollback", "x"). effect_denied("push", "x") :- !client_permission("refund").',
        'dangerous("rollback"). needs_confirmation(T) :- dangerous(T).',
        'prohibited("ship", "x") :- client_permission("explain_policy"), client_permission("approve:*").',
        'prohibited(T, "x") :- macro_effect(T, "x-own").',
        'either("push"). either("ship"). prohibited(T, "x") :- either(T). effect_denied(A, "x") :- either(A).',
        'fact_denied("seen", "x") :- seen("rolback").',
        'prohibited("ship", "rolback").',
        'word("rolback"). prohibited("ship", W) :- word(W).',
    ],
)
def test_names_that_exist_and_texts_that_are_no_names(policy: str) -> None:
    assert found(policy) == []


def test_declared_parameters_of_intents_are_all_that_there_are() -> None:
    listed = [IntentSettings(name="deploy", description="x", params=("service",))]
    policy = 'prohibited("ship", "x") :- intent_param("{}", _).'
    assert found(policy.format("service"), intents=listed) == []
    (problem,) = found(policy.format("servce"), intents=listed)
    assert (problem.severity, problem.message) == ("error", "no intent in pack.toml has the parameter 'servce'")
    assert str(problem.fix).startswith("did you mean service?")


@pytest.mark.parametrize(
    ("policy", "domain"),
    [
        ('effect_denied("push", "x") :- run_arg("count", _).', 'macro_param("ship", "count", {"type": "integer"}).'),
        ('effect_denied("push", "x") :- run_arg("where", _).', 'arg_from("ship", 1, "path", "where").'),
        ('effect_denied("push", "x") :- step_value(1, "size", _).', 'extract("undo", "size", "/n").'),
        ('effect_denied("push", "x") :- step_status(1, _, "failure").', ""),
        ('prohibited("ship", "x") :- client_trust("automated"), action_param("push", "path", _).', ""),
    ],
)
def test_arguments_values_and_words_that_exist(policy: str, domain: str) -> None:
    assert found(policy, domain) == []


def test_computed_names_of_tools_that_exist() -> None:
    made = f'{SERVICES} {COMPUTED} macro_step(T, 1, "push") :- macro(T, _).'
    policy = 'prohibited(T, "x") :- critical(S) |> let T = fn:string:concat("restart_", S). critical("{}").'
    assert [one for one in found(policy.format("web"), made) if "names computed" in one.message] == []


def test_an_undeclared_permission_names_the_line_to_add() -> None:
    (problem,) = found('prohibited("ship", "x") :- !client_permission("deploy").', permissions=())
    assert problem.fix == 'add permissions = ["deploy"] below [pack]'


def test_effects_that_actions_declare() -> None:
    (problem,) = found(actions=("push", action("undo", effects=("filesytem",))))
    assert (problem.file, problem.message) == ("actions.py", EFFECT.format("filesytem"))
    assert found(actions=("push", action("undo", effects=("x-robot",)))) == []


def test_names_in_fact_files(tmp_path: Path) -> None:
    file = tmp_path / "tools.jsonl"
    file.write_text('{"pred": "listed", "args": ["rolback"]}\n{"pred": "listed", "args": ["ship"]}\n')
    (problem,) = found("needs_confirmation(T) :- listed(T).", fact_files=[str(file)])
    assert (problem.severity, problem.file, problem.message) == ("error", "tools.jsonl", TOOL.format("rolback"))


def test_facts_that_a_server_adds_are_only_doubtful() -> None:
    (problem,) = found("needs_confirmation(T) :- listed(T).", facts=[Fact("listed", ("rolback",))])
    assert (problem.severity, problem.message) == ("warning", TOOL.format("rolback"))


def test_tools_that_rules_and_facts_define(tmp_path: Path) -> None:
    file = tmp_path / "tools.jsonl"
    file.write_text('{"pred": "listed", "args": ["made"]}\n')
    made = 'macro(T, "x") :- listed(T), intent("deploy"). macro_step(T, 1, "push") :- listed(T).'
    assert found('prohibited("made", "x").', made, fact_files=[str(file)]) == []
    (problem,) = found('prohibited("maed", "x").', made, fact_files=[str(file)])
    assert (problem.severity, problem.message) == ("error", TOOL.format("maed"))
    bounded = made.replace("intent(", "seen(T), intent(")  # what clients state is among what is listed
    assert [one.severity for one in found('prohibited("maed", "x").', bounded, fact_files=[str(file)])] == ["error"]


def test_tools_that_depend_on_the_time() -> None:
    made = 'macro(T, "x") :- shift(T)@[now]. macro_step(T, 1, "push") :- shift(T)@[now]. '
    made += 'Decl shift(T) temporal bound [/string]. shift("night")@[2020-01-01T00:00:00Z, 2020-01-02T00:00:00Z].'
    assert found('prohibited("night", "x").', made) == []
    assert [one.severity for one in found('prohibited("nihgt", "x").', made)] == ["error"]


SERVICES = 'service("web"). service("db").'
COMPUTED = 'macro(T, "x") :- service(S), intent("deploy"), T = fn:string:concat("restart_", S).'


@pytest.mark.parametrize(
    ("policy", "domain", "schema", "source"),
    [
        # the names of tools come from outside
        ('prohibited("resart", "x").', 'macro(T, "x") :- seen(T).', SCHEMA, "seen"),
        ('prohibited("restart_wbe", "x").', f"{SERVICES} {COMPUTED}", SCHEMA, "service"),
        ('prohibited("resart", "x").', 'macro(T, "x") :- similar("a", T), :string:contains(T, "").', SCHEMA, "similar"),
        # facts of the predicate come from outside
        ('prohibited(T, "x") :- seen(T). prohibited("ship", "y") :- seen("resart").', "", SCHEMA, "seen"),
    ],
)
def test_names_that_may_come_from_outside_are_doubtful(policy: str, domain: str, schema: str, source: str) -> None:
    external = ExternalDescription(predicate="similar", mode="+-", arguments=("Text", "Id"))
    more = {"externals": [external]} if source == "similar" else {}
    (problem,) = found(policy, domain, schema, **more)
    assert problem.severity == "warning"
    assert problem.message.startswith("no clause of macro defines the tool")
    assert f"or declare {source} with open(…)" in str(problem.fix)


def test_a_declaration_says_that_names_come_from_outside() -> None:
    opened = SCHEMA.replace('[direction("input")]', '[direction("input"), open("from the ticket system")]')
    policy = 'prohibited(T, "x") :- seen(T). prohibited("ship", "y") :- seen("resart").'
    assert len(found(policy)) == 1
    assert found(policy, schema=opened) == []
    assert found('prohibited("resart", "x").', 'macro(T, "x") :- seen(T).', opened) == []
    # it opens its own names, and no others
    assert [one.severity for one in found(policy + 'permitted("sihp").', schema=opened)] == ["error"]


def test_a_domain_file_does_not_open_what_policy_owns() -> None:
    policy = 'dangerous("rolback"). needs_confirmation(T) :- dangerous(T).'
    problems = found(policy, 'Decl dangerous(T) descr [open("x")] bound [/string].')
    assert "dangerous belongs to policy, a domain Decl may not have open" in [one.message for one in problems]


def test_without_a_list_the_intents_of_the_domain_count() -> None:
    policy = 'intent_denied("x") :- intent("depoly").'
    (problem,) = found(policy, intents=())
    assert (problem.severity, problem.message) == ("error", "no rule of the domain reads the intent 'depoly'")
    (problem,) = found(policy, 'relevant("ship", 9).', intents=())  # a tool for any intent
    assert problem.severity == "warning"


def test_a_file_that_does_not_parse_may_define_tools_but_no_actions() -> None:
    problems = found('prohibited("rolback", "x"). effect_denied("psuh", "x").', "oh no(")
    told = [one.message for one in problems]
    assert ACTION.format("psuh") in told
    assert TOOL.format("rolback") not in told


# --- words of the specification's examples ---------------------------------------------------------------------------

SEED = """
Decl intent_type(Id, Intent) descr [direction("input")] bound [/string, /string].
Decl has_console_errors() descr [direction("input")].
"""


@pytest.mark.parametrize(
    ("rule", "word", "fix"),
    [
        ('macro_tool("observe_console", "full") :- intent_type(_, "x"), has_console_errors().', "macro_tool", "macro("),
        ('selected_tool("i", "ship").', "selected_tool", "relevant(Tool"),
        ('mandatory_for_intent("deploy", "ship").', "mandatory_for_intent", "mandatory(Tool) :- intent("),
        ('needs_file("deploy", "a.txt").', "needs_file", "needs_resource("),
        ('Decl needs_file(I, F). needs_file("deploy", "a.txt").', "needs_file", "needs_resource("),
        ('requires_confirmation("ship").', "requires_confirmation", "needs_confirmation(Tool)"),
        ('high_risk_effect("network").', "high_risk_effect", "macro_effect(Tool, Effect)"),
    ],
)
def test_words_of_the_specification_have_others_here(rule: str, word: str, fix: str) -> None:
    (problem,) = found(domain=rule, schema=SCHEMA + SEED)
    assert (problem.severity, problem.message) == ("warning", f"nothing reads {word}")
    assert fix in str(problem.fix)


def test_such_a_word_in_policy_is_an_error() -> None:
    (problem,) = found('requires_confirmation("ship").')
    assert (problem.severity, problem.fix) == ("error", "write needs_confirmation(Tool)")


def test_such_words_that_read_each_other_lead_to_no_tool() -> None:
    rules = 'mandatory_for_intent("deploy", "ship"). selected_tool(I, T) :- mandatory_for_intent(I, T).'
    assert [one.message for one in found(domain=rules)] == [
        "nothing reads mandatory_for_intent",
        "nothing reads selected_tool",
    ]
    led = rules + " mandatory(T) :- selected_tool(I, T), intent(I)."
    assert found(domain=led) == []


def test_the_page_about_these_words() -> None:
    page = Path(__file__).resolve().parents[2].joinpath("docs/reference/seed-vocabulary.md").read_text("utf-8")
    assert set(_SEED_WORDS) <= set(re.findall(r"^\| `(\w+)\(", page, re.MULTILINE))
    theirs, ours = re.findall(r"^```\w+\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    (problem,) = found(domain=theirs.replace("errors.", "errors()."), schema=SCHEMA + SEED)
    assert problem.message == "nothing reads macro_tool"
    actions, intents = ("push", "undo", "read_console"), ("deploy", "diagnose_error")
    assert found(domain=ours, schema=SCHEMA + SEED, actions=actions, intents=intents) == []


# --- facts without a time --------------------------------------------------------------------------------------------

ALERT = 'Decl alert(Word) temporal descr [direction("{}"){}] bound [/string].'


@pytest.mark.parametrize("direction", ["input", "both"])
@pytest.mark.parametrize(
    "premise", ["<-[10m] alert(_)", "[-[10m] alert(_)", "<+[10m] alert(_)", "!<-[0s, 10m] alert(_)"]
)
def test_a_window_over_facts_that_may_have_no_time_is_an_error(direction: str, premise: str) -> None:
    rule = f'prohibited("ship", "x") :- intent("deploy"), {premise}.'
    (problem,) = found(rule, schema=ALERT.format(direction, ""))
    assert problem.severity == "error"
    assert problem.message == "a client can state alert without a time, and such a fact is in every window"
    assert 'untimed("now")' in str(problem.fix)
    for meaning in ("now", "always"):
        assert found(rule, schema=ALERT.format(direction, f', untimed("{meaning}")')) == []


def test_a_window_over_what_takes_over_such_times_is_an_error() -> None:
    copies = """
    Decl copied(Word) temporal bound [/string].
    Decl again(Word) temporal bound [/string].
    copied(W)@[S, E] :- alert(W)@[S, E].
    again(W)@[S] :- copied(W)@[S, _].
    """
    rule = 'prohibited("ship", "x") :- <-[10m] again(_).'
    (problem,) = found(rule, copies, ALERT.format("input", ""))
    assert "a client can state alert without a time" in problem.message
    assert found(rule, copies, ALERT.format("input", ', untimed("now")')) == []


def test_windows_over_facts_of_the_server_and_instants_are_fine() -> None:
    schema = 'Decl freeze() temporal. Decl alert(Word) temporal descr [direction("input")] bound [/string].'
    policy = 'prohibited("ship", "x") :- <-[10m] freeze(). prohibited("ship", "y") :- alert(_)@[now].'
    assert found(policy, schema=schema) == []


@pytest.mark.parametrize("descriptor", ['untimed("later")', "untimed()", 'untimed("now"), untimed("always")'])
def test_what_untimed_takes(descriptor: str) -> None:
    (problem,) = found(schema=ALERT.format("input", f", {descriptor}"))
    assert problem.message == 'alert: untimed takes "now" or "always", once, of a temporal predicate'
    (problem,) = found(schema='Decl alert(Word) descr [direction("input"), untimed("now")] bound [/string].')
    assert "of a temporal predicate" in problem.message
