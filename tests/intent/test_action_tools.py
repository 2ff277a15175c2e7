"""One action is one tool: what rules add to it, what policy takes away, and which actions are no tools."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

from manglecp.intent import Decision, Domain, Identity, manifest
from manglecp.intent.evaluation import evaluate
from manglecp.invoke import decide_call
from manglecp.pack import ActionDescription, Pack, PackError
from manglecp.wire import WireError
from manglecp.wire.messages import DecidePayload, Intent
from tests.intent.answering import composer, tools
from tests.intent.packs import action, pack, request

ANN = Identity("ann", frozenset(), "user")
LEAD = Identity("lee", frozenset({"lead"}), "user")
PARAMS = {
    "order": {"type": "string"},
    "amount": {"type": "integer", "default": 5},
    "note": {"type": "string"},
}
SCHEMA = 'Decl complaint(Order) descr [doc("A complaint."), direction("input")] bound [/string].\n'


def refund(**changes: Any) -> ActionDescription:
    text = "Refund an order. In part.\n\nNever twice."
    changes = {"params": PARAMS, "required": ["order"], "effects": ("filesystem",), "tier": 1, **changes}
    return action("refund", tool=True, description=text, mutates=True, **changes)


def desk(domain: str = "", policy: str = "", *more: ActionDescription, **changes: Any) -> Pack:
    return pack(domain, policy=policy, schema=SCHEMA, actions=[refund(), *more], permissions=["lead"], **changes)


def own(name: str, **changes: Any) -> ActionDescription:
    return action(name, tool=True, **changes)


def offered(given: Pack | Domain, intent: str = "any", **changes: Any) -> list[str]:
    return sorted(tools(given, intent, **changes))


def decided(
    given: Pack, tool: str = "refund", identity: Identity = ANN, intent: str | None = "any", **args: Any
) -> Decision:
    args = {"order": "A-1", **args} if tool == "refund" else args
    payload = DecidePayload(tool=tool, args=args, intent=None if intent is None else Intent(name=intent))
    return decide_call(Domain.load(given), payload, identity, 0)


# --- the tool --------------------------------------------------------------------------------------------------------


def test_an_action_without_rules_is_a_tool() -> None:
    domain = Domain.load(desk())
    assert domain.warnings == ()
    (tool,) = tools(domain, "any").values()
    assert (tool["name"], tool["description"]) == ("refund", "Refund an order. In part.\n\nNever twice.")
    definition = composer(evaluate(domain, request("any"), ANN)).compose("refund")
    assert (definition.summary, definition.output_schema) == ("Refund an order.", None)
    schema = tool["input_schema"]
    assert schema["properties"] == PARAMS
    assert (schema["required"], schema["additionalProperties"]) == (["order"], False)
    assert tool["safety"]["side_effects"] == ["filesystem"]
    assert decided(desk(), amount=7).verdict == "allow"
    assert decided(desk(), intent=None).verdict == "allow"
    with pytest.raises(WireError, match="schema validation error"):
        decided(desk(), amount="much")


def test_it_equals_the_tool_that_rules_would_compose() -> None:
    rules = """macro("refund", "Refund an order. In part.\\n\\nNever twice."). macro_step("refund", 1, "refund").
    relevant("refund", 80)."""
    assert tools(desk(rules), "any") == tools(desk(), "any")


def test_an_action_without_a_docstring_is_described_by_its_name() -> None:
    (tool,) = tools(pack(actions=[own("find_order", description="")]), "any").values()
    assert tool["description"] == "find order"


# --- intents ---------------------------------------------------------------------------------------------------------


def test_a_pack_without_intents_has_one() -> None:
    domain = Domain.load(desk())
    assert [intent.name for intent in manifest(domain).payload.intents] == ["any"]
    for name, advice in (("anny", "any"), ("help", "any"), ("refund", "any")):
        with pytest.raises(WireError, match=f"can match the intent '{name}'") as caught:
            evaluate(domain, request(name), ANN)
        assert caught.value.details is not None
        assert caught.value.details["suggestion"] == f"Did you mean '{advice}'?"


@pytest.mark.parametrize("intents", [["help", "buy"], []])
def test_a_tool_serves_every_intent_of_the_pack_and_no_other(intents: list[str]) -> None:
    other = 'macro("look_up", "Look."). macro_step("look_up", 1, "look"). relevant("look_up", 9) :- intent("help").'
    more = "" if intents else 'relevant("look_up", 9) :- intent("buy").'
    domain = Domain.load(desk(other + more, "", action("look"), intents=intents))
    assert offered(domain, "help") == offered(domain, "buy") == ["refund"]
    with pytest.raises(WireError, match="can match the intent 'any'"):
        evaluate(domain, request("any"), ANN)


def test_an_intent_that_only_policy_names_is_an_error() -> None:
    with pytest.raises(PackError, match=r"policy.mg:1:38: the intent 'help' is not listed"):
        Domain.load(desk(policy='prohibited("refund", "no") :- intent("help").'))
    assert offered(desk(policy='prohibited("refund", "no") :- intent("any").')) == []


# --- what rules add --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rules",
    [
        'relevant("refund", 40) :- complaint(_).',
        'mandatory("refund") :- complaint(_).',
        'relevant(T, 40) :- complaint(_), helpful(T). helpful("refund").',
        "relevant(T, 40) :- complaint(T).",  # the name is that of a client
        "relevant(T, 40) :- complaint(_), action(T).",
        "relevant(T, 40) :- complaint(_), macro(T, _).",
    ],
)
def test_a_rule_for_its_relevance_restricts_it(rules: str) -> None:
    assert offered(desk(rules)) == []
    assert offered(desk(rules), facts=[("complaint", "refund")]) == ["refund"]


def test_a_rule_for_another_tool_does_not() -> None:
    rules = 'relevant(T, 40) :- complaint(_), helpful(T). helpful("look").'
    assert offered(desk(rules, "", own("look"))) == ["refund"]
    assert offered(desk(rules, "", own("look")), facts=[("complaint", "x")]) == ["look", "refund"]


@pytest.mark.parametrize("rules", ['macro("refund", "Pay back.").', 'macro(T, "Pay back.") :- t(T). t("refund").'])
def test_a_rule_replaces_the_description(rules: str) -> None:
    (tool,) = tools(desk(rules), "any").values()
    assert tool["description"] == "Pay back."


def test_macro_param_narrows_one_parameter_and_the_others_stay() -> None:
    rules = 'macro_param("refund", "order", {"type": "string", "maxLength": 3}).'
    (tool,) = tools(desk(rules), "any").values()
    assert tool["input_schema"]["properties"] == {**PARAMS, "order": {"type": "string", "maxLength": 3}}
    assert tool["input_schema"]["required"] == ["order"]
    with pytest.raises(WireError, match="schema validation error"):
        decided(desk(rules), order="A-1000")
    for more in ('arg_value("refund", 1, "note", "x").', 'arg_from("refund", 1, "note", "text").'):
        (tool,) = tools(desk(rules + more), "any").values()
        assert "note" not in tool["input_schema"]["properties"]
        assert "amount" in tool["input_schema"]["properties"]
    sometimes = Domain.load(desk(rules + 'arg_value("refund", 1, "amount", 7) :- complaint(_).'))
    for facts, names in (((), ["amount", "note", "order"]), ([("complaint", "x")], ["note", "order"])):
        (tool,) = tools(sometimes, "any", facts=facts).values()
        assert sorted(tool["input_schema"]["properties"]) == names


def test_arg_value_fixes_a_parameter() -> None:
    rules = 'arg_value("refund", 1, "order", Order) :- complaint(Order).'
    domain = Domain.load(desk(rules))
    (free,) = tools(domain, "any").values()
    (fixed,) = tools(domain, "any", facts=[("complaint", "A-2")]).values()
    assert "order" in free["input_schema"]["properties"]
    assert sorted(fixed["input_schema"]["properties"]) == ["amount", "note"]
    assert free["macro_id"] != fixed["macro_id"]
    always = desk('arg_value("refund", 1, "order", "A-9").')
    with pytest.raises(WireError, match="schema validation error"):
        decided(always, order="A-1")


def test_a_second_step_is_added_by_a_rule_for_every_tool() -> None:
    rules = 'macro_step(T, 2, "note") :- macro(T, _).'
    (tool,) = tools(desk(rules, "", own("note", params={})), "any").values()
    assert tool["name"] == "refund"


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ('arg_value("refund", 1, "ordr", "x").', "refund has no parameter 'ordr'"),
        ('arg_value("refund", 1, "amount", "x").', "refund does not take this value as 'amount'"),
        ('arg_value("refund", 2, "order", "x").', "refund has no step 2"),
        ('relevant("refnd", 40).', "no clause of macro defines the tool 'refnd'"),
    ],
)
def test_mistakes_about_it_are_found(rules: str, message: str) -> None:
    with pytest.raises(PackError, match=message):
        Domain.load(desk(rules))


# --- policy ----------------------------------------------------------------------------------------------------------


def test_policy_permits_by_name() -> None:
    policy = 'permitted("look") :- client_permission("lead").'
    given = desk("", policy, own("look"))
    assert offered(given) == []
    assert offered(given, identity=LEAD) == ["look"]
    for intent in ("any", None):
        assert decided(given, intent=intent).reasons == ("not permitted",)
    assert decided(given, "look", LEAD, path="x").verdict == "allow"


DENIALS = {
    "prohibited": 'prohibited("refund", "no").',
    "permitted": 'permitted("refund") :- client_permission("lead").',
    "effect_denied": 'effect_denied("refund", "no").',
    "intent_denied": 'intent_denied("no") :- intent("any").',
    "fact_denied": 'fact_denied("complaint", "no").',
}


@pytest.mark.parametrize("denial", DENIALS)
def test_policy_denies_it_in_each_way(denial: str) -> None:
    domain = Domain.load(desk(policy=DENIALS[denial]))
    fact = {"pred": "complaint", "args": ["A-1"]}
    refused = nullcontext() if denial in ("prohibited", "permitted", "effect_denied") else pytest.raises(WireError)
    with refused:
        assert evaluate(domain, request("any", [fact]), ANN).selected == ()
    payload = DecidePayload(tool="refund", args={"order": "A-1"}, intent=Intent(name="any"), facts=[fact])
    decision = decide_call(domain, payload, ANN, 0)
    assert decision.verdict == "deny"
    assert decision.reasons == (("not permitted",) if denial == "permitted" else ("no",))


def test_policy_reads_its_arguments_and_asks() -> None:
    policy = """
    prohibited("refund", Text) :- call("refund"), call_arg("amount", N), N > 20
      |> let Text = fn:string:concat("at most 20, not ", N).
    public_reason("refund", Text) :- prohibited("refund", Text).
    needs_approval("refund", "lead") :- call("refund"), call_arg("amount", N), N > 10.
    """
    given = desk(policy=policy)
    assert offered(given) == ["refund"]
    assert [decided(given, amount=n).verdict for n in (5, 10, 11, 20)] == ["allow", "allow", "ask", "ask"]
    denied = decided(given, amount=21)
    assert (denied.verdict, denied.public_reasons) == ("deny", ("at most 20, not 21",))
    assert decided(given).verdict == "allow", "the default of the action is an argument of the call"


def test_a_dangerous_action_needs_an_approval() -> None:
    given = pack(actions=[own("pay", effects=("payments",), tier=3, params={})])
    assert offered(given) == ["pay"]
    assert decided(given, "pay", intent=None).verdict == "ask"


@pytest.mark.parametrize("name", ["refnd", "look"])
def test_policy_about_no_tool_is_an_error(name: str) -> None:
    """``look`` is an action, and not a tool."""
    with pytest.raises(PackError, match=f"no clause of macro defines the tool '{name}'") as caught:
        Domain.load(desk("", f'needs_confirmation("{name}").', action("look")))
    assert ("did you mean refund?" in str(caught.value)) is (name == "refnd")


# --- actions that are no tools ---------------------------------------------------------------------------------------


CHAIN = 'macro("t", "T."). macro_step("t", 1, "refund"). relevant("t", 80).\n'


@pytest.mark.parametrize(
    "rules",
    [
        'macro("t", "T."). macro_step("t", 1, "look"). relevant("t", 80).',
        'macro("t", "T."). macro_step("t", 1, "look") :- complaint(_). relevant("t", 80).',
        'macro("t", "T."). macro_step("t", 1, A) :- part(A). part("look"). relevant("t", 80).',
        'macro("t", "T."). macro_step("t", 1, A) :- action(A), A != "refund". relevant("t", 80).',
        'macro("t", "T."). macro_step("t", 1, A) :- complaint(A). relevant("t", 80).',
        CHAIN + 'undo_step("t", 1, "look"). undo_in("t", 1, "path", "order").',
        CHAIN + 'undo_step("t", 1, A) :- part(A). part("look"). undo_in("t", 1, "path", "order").',
    ],
)
@pytest.mark.parametrize("intent", ["any", None])
def test_a_part_of_a_chain_is_no_tool(rules: str, intent: str | None) -> None:
    given = desk(rules, "", own("look"))
    assert "look" not in offered(given)
    (reason,) = decided(given, "look", intent=intent, path="x").reasons
    assert reason in ("no rule offers the tool for this intent", "no rule defines this tool")


def test_a_part_in_a_fact_file_is_no_tool(tmp_path: Any) -> None:
    file = tmp_path / "steps.mg"
    file.write_text('macro_step("t", 1, "look").\n')
    given = desk('macro("t", "T."). relevant("t", 80).', "", own("look"), fact_files=[str(file)])
    assert offered(given) == ["refund", "t"]


def test_neither_a_preview_nor_an_excepted_action_is_a_tool() -> None:
    effect = refund(preview="look")
    given = pack(actions=[effect, own("look"), own("part"), action("hidden")])
    assert offered(given) == ["part", "refund"]


def test_an_action_is_no_tool_if_rules_give_its_name_to_another() -> None:
    rules = 'macro("refund", "Look."). macro_step("refund", 1, "look"). relevant("refund", 80).'
    (tool,) = tools(desk(rules, "", own("look")), "any").values()
    assert "path" in tool["input_schema"]["properties"]
    assert tool["safety"]["side_effects"] == ["none"]


def test_a_client_that_names_its_step_does_not_get_another_tool() -> None:
    """A step whose tool is computed from a fact of a client removes the tool for this client only."""
    rules = 'macro_step(T, 1, "look") :- complaint(T). macro(T, "Look.") :- complaint(T).'
    domain = Domain.load(desk(rules, "", own("look")))
    assert offered(domain, facts=[("complaint", "x")]) == ["refund"]
    assert offered(domain, facts=[("complaint", "refund")]) == []


# --- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["größe", "x" * 65, "поиск"])
def test_an_action_with_a_name_that_providers_refuse(name: str) -> None:
    with pytest.raises(PackError, match="model providers accept 1 to 64 letters") as caught:
        Domain.load(pack(actions=[own(name)]))
    assert "actions.py" in str(caught.value)
    assert offered(pack(actions=[action(name), own("look")])) == ["look"]
