"""Checks of facts and their encoding. The ids (*rows*) are defined in ``docs/reference/requirements.md``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from manglecp.conformance.connections import ServerMessage, get_objects, get_path
from manglecp.conformance.server_test import DENIED_CODES, ServerTest, check, require

_MAX_SENT_FACTS: Final = 50_000  # a higher limit of the server is not tested
_SAMPLES: Final[Mapping[str, Any]] = {"string": "conformance", "number": 1, "boolean": True, "any": "conformance"}


def _sample_fact(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a fact with arguments of the types in a predicate schema of the manifest."""
    types = schema.get("arg_types") or ["any"] * int(schema["arity"])
    return {"pred": schema["predicate"], "args": [_SAMPLES.get(type_, "conformance") for type_ in types]}


async def _evaluate_with(test: ServerTest, *facts: Mapping[str, Any]) -> tuple[ServerMessage, int]:
    """Evaluate an intent with its facts and ``facts``. Return the answer, and the index of the first added fact."""
    intent = await test.usable_intent()
    return await test.evaluate(intent, facts=[*intent.facts, *facts]), len(intent.facts)


@check("ERR-17", "MANI-24", time_factor=3)
async def too_many_facts(test: ServerTest) -> None:
    """More facts than limits.max_facts_per_request are refused"""
    limit = test.manifest_limit("max_facts_per_request")
    require(limit <= _MAX_SENT_FACTS, f"limits.max_facts_per_request is {limit}")
    fact = _sample_fact(test.assertable_predicate())
    answer = await test.evaluate(await test.usable_intent(), facts=[fact] * (limit + 1))
    test.note_error(answer, "too_many_facts", "MANI-24", about=f"{limit + 1} facts")


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


def comparable(answer: ServerMessage) -> list[tuple[str, str, str]]:
    """Return (macro_id, detail level, score) of the tools, sorted: they must be equal for equal requests."""
    return sorted(
        (str(tool.get("macro_id")), str(tool.get("disclosure_level")), str((tool.get("metadata") or {}).get("score")))
        for tool in answer.tools
    )


@check("DATA-40", "DATA-42", "DATA-44", "OPEN-20")
async def provenance_changes_nothing(test: ServerTest) -> None:
    """The source and the category of a fact change nothing"""
    intent = await test.usable_intent()
    require(intent.facts, "the plan has no facts")
    tools = comparable(await test.evaluate_successfully(intent))
    provenances: list[dict[str, Any]] = [
        {"source": {"source_type": "server", "source_id": "conformance"}},
        {"source": {"source_type": "x-conformance", "asserted_at": intent.eval_time}},
        {"category": "server"},
        {"category": "derived"},
        {"source": None, "category": None},
    ]
    for members in provenances:
        answer = await test.evaluate_successfully(intent, facts=[{**fact, **members} for fact in intent.facts])
        rows = ("DATA-42", "DATA-40", "OPEN-20") if "source" in members else ("DATA-44", "OPEN-20")
        test.note(rows, comparable(answer) == tools, f"the same tools with {members}", comparable(answer))
    facts = [*intent.facts, *({**fact, **provenances[0]} for fact in intent.facts)]
    answer = await test.evaluate_successfully(intent, facts=facts)
    test.note("DATA-42", comparable(answer) == tools, "one fact, however many sources it has", comparable(answer))


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
        answer, _ = await _evaluate_with(test, {"pred": named_facts[0]["pred"], "named_args": wrong_arguments})
        test.note("DATA-10", answer.type == "error" and bool(answer.violations), f"invalid_facts for {about}", answer)


def _name_arguments(fact: Mapping[str, Any], names: Mapping[str, list[str]]) -> Mapping[str, Any]:
    """Return the fact with its arguments by name, if ``names`` has the argument names of its predicate."""
    if fact.get("pred") not in names or "args" not in fact:
        return fact
    other_members = {member: value for member, value in fact.items() if member != "args"}
    return {**other_members, "named_args": dict(zip(names[fact["pred"]], fact["args"], strict=False))}
