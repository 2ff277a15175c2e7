"""Checks of facts and their encoding. The ids (*rows*) are defined in ``docs/reference/requirements.md``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from manglecp.conformance.connections import comparable, get_objects, get_path
from manglecp.conformance.server_test import DENIED_CODES, ServerTest, check, require


@check("MANI-14", "OPEN-18", "ERR-12")
async def required_facts(test: ServerTest) -> None:
    """An intent is refused without the facts that it requires"""
    descriptions = [item for item in get_objects(test.manifest, "intents") if item.get("required_facts")]
    require(descriptions, "no intent requires facts")
    intent = await test.usable_intent()
    for item in descriptions:
        name, required_names = item["name"], item["required_facts"]
        answer = await test.evaluate(intent, intent={"name": name}, facts=[])
        if answer.code in DENIED_CODES:
            continue
        test.note_error(answer, "invalid_facts", "MANI-14", about=f"{name} without {required_names}")
        missing_names = answer.details.get("missing_facts")
        holds = isinstance(missing_names, list) and set(required_names) <= set(missing_names)
        test.note("OPEN-18", holds, f"missing_facts {required_names}", answer.details)


@check("DATA-07", "DATA-08", "DATA-10", "DATA-11", "ERR-12")
async def named_arguments(test: ServerTest) -> None:
    """Named arguments mean the same as those in order; unknown and missing names are refused"""
    is_supported = get_path(test.manifest, "capabilities", "named_args") is True
    intent = await test.usable_intent()
    names = {schema["predicate"]: schema["arg_names"] for schema in test.predicate_schemas if schema.get("arg_names")}
    facts = [_name_arguments(fact, names) for fact in intent.facts]
    named_facts = [fact for fact in facts if fact.get("pred") in names and "named_args" in fact]
    require(named_facts, "the plan has no facts of predicates with arg_names")
    answer = await test.evaluate(intent, facts=facts)
    if not is_supported:
        test.note_error(answer, "invalid_facts", "DATA-11", about="named_args, which the manifest does not offer")
        return
    tools = comparable(await test.evaluate_successfully(intent))
    test.note(("DATA-07", "DATA-08", "DATA-11"), comparable(answer) == tools, "the same tools with named_args", answer)
    arguments = named_facts[0]["named_args"]
    cases = {"an unknown name": {**arguments, "conformance": 1}, "a missing name": dict(list(arguments.items())[1:])}
    for about, wrong_arguments in cases.items():
        wrong_fact = {"pred": named_facts[0]["pred"], "named_args": wrong_arguments}
        answer = await test.evaluate(intent, facts=[*intent.facts, wrong_fact])
        test.note("DATA-10", answer.type == "error" and bool(answer.violations), f"invalid_facts for {about}", answer)


def _name_arguments(fact: Mapping[str, Any], names: Mapping[str, list[str]]) -> Mapping[str, Any]:
    """Return the fact with its arguments by name, if ``names`` has the argument names of its predicate."""
    if fact.get("pred") not in names or "args" not in fact:
        return fact
    other_members = {member: value for member, value in fact.items() if member != "args"}
    return {**other_members, "named_args": dict(zip(names[fact["pred"]], fact["args"], strict=False))}
