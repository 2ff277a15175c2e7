"""Checks of facts and their encoding. The ids (*rows*) are defined in ``docs/reference/requirements.md``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from manglecp.conformance.connections import ServerMessage, get_objects, get_path
from manglecp.conformance.server_test import DENIED_CODES, ServerTest, check, require

_MAX_SENT_FACTS: Final = 50_000  # a higher limit of the server is not tested
_SAMPLES: Final[Mapping[str, Any]] = {"string": "conformance", "number": 1, "boolean": True, "any": "conformance"}
_WRONG_SAMPLES: Final[Mapping[str, Any]] = {"string": 1, "number": "conformance", "boolean": "conformance"}
_INVALID_CODES: Final = ("invalid_facts", "type_mismatch", "malformed_message")


def _sample_fact(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a fact with arguments of the types in a predicate schema of the manifest."""
    types = schema.get("arg_types") or ["any"] * int(schema["arity"])
    return {"pred": schema["predicate"], "args": [_SAMPLES.get(type_, "conformance") for type_ in types]}


async def _evaluate_with(test: ServerTest, *facts: Mapping[str, Any]) -> tuple[ServerMessage, int]:
    """Evaluate an intent with its facts and ``facts``. Return the answer, and the index of the first added fact."""
    intent = await test.usable_intent()
    return await test.evaluate(intent, facts=[*intent.facts, *facts]), len(intent.facts)


async def _expect_refusal(test: ServerTest, fact: Mapping[str, Any], code: str | Sequence[str], *rows: str) -> None:
    """Evaluate an intent with this fact, and record whether the answer is an error with this code (or one of these)."""
    answer, _ = await _evaluate_with(test, fact)
    test.note_error(answer, code, *rows, about=str(fact))


def _note_violation(test: ServerTest, answer: ServerMessage, index: int, issue: str, *rows: str) -> None:
    """Record whether the error lists this issue of the fact at ``index``, with its predicate and a message."""
    for violation in answer.violations:
        if violation.get("fact_index") == index and violation.get("issue") == issue:
            is_complete = isinstance(violation.get("predicate"), str) and isinstance(violation.get("message"), str)
            test.note(rows, is_complete, "fact_index, predicate, issue and message in a violation", violation)
            return
    test.note(rows, False, f"a violation {issue} of fact {index}", answer.details or answer)


@check("ERR-13", "ERR-34", "ERR-35", "CONF-10")
async def unknown_predicates(test: ServerTest) -> None:
    """A predicate that the manifest does not have is refused"""
    test.assertable_predicate()  # raises Untested without described predicates: the server may accept any
    answer, index = await _evaluate_with(test, {"pred": "conformance_no_such_predicate", "args": []})
    test.note_error(answer, "unknown_predicate", about="a predicate that the manifest does not have")
    _note_violation(test, answer, index, "unknown_predicate", "ERR-34", "ERR-35", "CONF-10")


@check("ERR-14", "ERR-34", "ERR-35", "ERR-36")
async def wrong_arity(test: ServerTest) -> None:
    """A fact with too many arguments is refused"""
    schema = test.assertable_predicate()
    arity = int(schema["arity"])
    fact = _sample_fact(schema)
    fact["args"].append("one more")
    answer, index = await _evaluate_with(test, fact)
    test.note_error(answer, "arity_mismatch", about=f"{arity + 1} arguments instead of {arity}")
    _note_violation(test, answer, index, "arity_mismatch", "ERR-34", "ERR-35")
    for violation in answer.violations:
        if "expected_arity" in violation or "actual_arity" in violation:
            arities = (violation.get("expected_arity"), violation.get("actual_arity"))
            expected = f"expected_arity {arity} and actual_arity {arity + 1}"
            test.note("ERR-36", arities == (arity, arity + 1), expected, violation)


@check("ERR-15", "ERR-34", "ERR-35", "ERR-36")
async def wrong_types(test: ServerTest) -> None:
    """An argument of another type is refused"""
    schema = test.assertable_predicate(
        lambda schema: not _WRONG_SAMPLES.keys().isdisjoint(schema.get("arg_types") or ())
    )
    position = next(i for i, type_ in enumerate(schema["arg_types"]) if type_ in _WRONG_SAMPLES)
    fact = _sample_fact(schema)
    fact["args"][position] = _WRONG_SAMPLES[schema["arg_types"][position]]
    answer, index = await _evaluate_with(test, fact)
    test.note_error(answer, ("type_mismatch", "invalid_facts"), "ERR-15", about=f"argument {position} of {schema}")
    _note_violation(test, answer, index, "type_mismatch", "ERR-34", "ERR-35")
    for violation in answer.violations:
        if "argument_index" in violation and violation.get("issue") == "type_mismatch":
            argument = violation["argument_index"]
            is_in_range = isinstance(argument, int) and 0 <= argument < int(schema["arity"])
            test.note("ERR-36", is_in_range, "argument_index from 0 on", violation)


@check("DATA-04", "ERR-16", "SEC-02", "ERR-35")
async def reserved_predicates(test: ServerTest) -> None:
    """Predicates of the protocol itself are refused"""
    for name in ("_manglecp_internal", "_manglecp_"):
        answer, index = await _evaluate_with(test, {"pred": name, "args": ["conformance"]})
        test.note_error(answer, "reserved_predicate", "DATA-04", "SEC-02", about=f"the predicate {name}")
        if answer.violations:
            _note_violation(test, answer, index, "reserved_predicate", "ERR-35")


@check("DATA-01", "DATA-02", "ERR-12")
async def predicate_names(test: ServerTest) -> None:
    """A predicate has at most 128 lower-case letters, digits and underscores, and begins with a letter"""
    for name in ("Upper", "1first", "with-hyphen", "with.dot", "ünder", "", "with space"):
        await _expect_refusal(test, {"pred": name, "args": []}, "invalid_facts", "DATA-01")
    await _expect_refusal(test, {"pred": "a" * 129, "args": []}, "invalid_facts", "DATA-02")
    answer, _ = await _evaluate_with(test, {"pred": "a" * 128, "args": []})
    test.note("DATA-02", answer.code in (None, "unknown_predicate"), "a predicate of 128 characters accepted", answer)


@check("DATA-05", "DATA-06", "DATA-37", "DATA-39", "DATA-43", "ERR-12")
async def members_of_facts(test: ServerTest) -> None:
    """A fact has either args or named_args, a source with a type, and one of three categories"""
    fact = _sample_fact(test.assertable_predicate())
    without_args = {"pred": fact["pred"]}
    await _expect_refusal(test, without_args, "invalid_facts", "DATA-06")
    await _expect_refusal(test, {**without_args, "args": [], "named_args": {}}, "invalid_facts", "DATA-06")
    await _expect_refusal(test, {**without_args, "args": {"a": 1}}, ("invalid_facts", "malformed_message"), "DATA-05")
    await _expect_refusal(test, {**fact, "source": {}}, "invalid_facts", "DATA-37")
    await _expect_refusal(test, {**fact, "source": {"source_type": 1}}, "invalid_facts", "DATA-37")
    await _expect_refusal(test, {**fact, "source": {"source_type": "conformance"}}, "invalid_facts", "DATA-39")
    await _expect_refusal(test, {**fact, "category": "conformance"}, "invalid_facts", "DATA-43")


@check("ERR-38", "ERR-34", "OPEN-04", "OPEN-05", level=2)
async def several_violations(test: ServerTest) -> None:
    """All violations are reported at once, and mixed ones are invalid_facts"""
    too_long = _sample_fact(test.assertable_predicate())
    too_long["args"].append("one more")
    answer, index = await _evaluate_with(test, too_long, {"pred": "_manglecp_internal", "args": []})
    test.note("ERR-38", answer.code == "invalid_facts", "invalid_facts for two kinds of violations", answer)
    test.note("OPEN-04", answer.payload.get("recoverable") is True, "recoverable true", answer.payload)
    issues = {(item.get("fact_index"), item.get("issue")) for item in answer.violations}
    expected = {(index, "arity_mismatch"), (index + 1, "reserved_predicate")}
    test.note(("ERR-38", "ERR-34"), expected <= issues, f"both violations: {sorted(expected)}", answer.violations)
    unknown_facts = [{"pred": f"conformance_unknown_{n}", "args": []} for n in range(3)]
    answer, _ = await _evaluate_with(test, *unknown_facts)
    test.note("OPEN-05", answer.code == "unknown_predicate", "unknown_predicate for three unknown predicates", answer)
    test.note("ERR-34", len(answer.violations) == 3, "three violations", answer.violations)


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


@check("OPEN-17", "DATA-53", "ERR-12")
async def directions(test: ServerTest) -> None:
    """A predicate that only the server derives is refused"""
    outputs = [schema for schema in test.predicate_schemas if schema.get("direction") == "output"]
    require(outputs, "the manifest has no predicate of the direction output")
    await _expect_refusal(test, _sample_fact(outputs[0]), "invalid_facts", "OPEN-17", "DATA-53")


@check("OPEN-14", "DATA-17")
async def no_wildcards(test: ServerTest) -> None:
    """A fact that is asserted holds no wildcard"""
    fact = _sample_fact(test.assertable_predicate(lambda schema: int(schema["arity"]) > 0))
    fact["args"][0] = None
    await _expect_refusal(test, fact, _INVALID_CODES, "OPEN-14", "DATA-17")


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


@check("DATA-09", "ERR-12")
async def undeclared_names(test: ServerTest) -> None:
    """A predicate without arg_names has no named arguments"""
    schema = test.assertable_predicate(lambda schema: not schema.get("arg_names") and int(schema["arity"]) > 0)
    await _expect_refusal(test, {"pred": schema["predicate"], "named_args": {"a": 1}}, "invalid_facts", "DATA-09")


@check("DATA-19", "DATA-20", "DATA-21", "WIRE-19")
async def large_integers(test: ServerTest) -> None:
    """Integers are numbers up to 2^53 - 1, and wrapped beyond"""
    schema = test.assertable_predicate(lambda schema: "number" in (schema.get("arg_types") or ()))
    position = schema["arg_types"].index("number")

    def fact(value: Any) -> dict[str, Any]:
        fact = _sample_fact(schema)
        fact["args"][position] = value
        return fact

    for rows, value in (
        (("DATA-19", "DATA-20", "WIRE-19"), 9_007_199_254_740_991),
        (("DATA-19",), -9_007_199_254_740_991),
        (("DATA-21", "DATA-20"), {"_type": "int64", "value": "9007199254740993"}),
        (("DATA-21",), {"_type": "int64", "value": "-9223372036854775808"}),
    ):
        answer, index = await _evaluate_with(test, fact(value))
        places = [(item.get("fact_index"), item.get("argument_index", position)) for item in answer.violations]
        test.note(rows, (index, position) not in places, f"{value} accepted as a number", answer.violations)
    for text in ("9223372036854775808", "1.5", "", "0x1"):
        await _expect_refusal(test, fact({"_type": "int64", "value": text}), _INVALID_CODES, "DATA-21")


@check("DATA-27", "DATA-28", "DATA-29", "OPEN-12", level=2)
async def times_of_facts(test: ServerTest) -> None:
    """Times are RFC 3339, in each form of t; others only if the manifest has them"""
    formats = get_path(test.manifest, "facts_profile", "time_formats")
    accepts_milliseconds = isinstance(formats, list) and "epoch_ms" in formats
    fact = _sample_fact(test.assertable_predicate(lambda schema: schema.get("temporal") is True))
    time, later_time = "2026-01-02T03:04:05Z", "2026-01-02T03:05:00Z"
    valid_forms: list[Any] = [
        {"at": time},
        {"start": time, "end": later_time},
        {"start": time, "end": "_"},
        {"start": "_", "end": "2026-01-02T04:04:05.5+01:00"},
        {"at": "now"},
        None,
    ]
    invalid_forms: list[tuple[str, Any]] = [
        ("DATA-27", {"at": "yesterday"}),
        ("DATA-27", {"at": "2026-13-40T00:00:00Z"}),
        ("DATA-27", {}),
        ("OPEN-12", {"at": "_"}),
        ("OPEN-12", {"start": later_time, "end": time}),
    ]
    milliseconds = {"at": 1_767_323_045_000}
    if accepts_milliseconds:
        valid_forms.append(milliseconds)
    else:
        invalid_forms.append(("DATA-29", milliseconds))
    for form in valid_forms:
        answer, index = await _evaluate_with(test, {**fact, "t": form})
        issues = {item.get("issue") for item in answer.violations if item.get("fact_index") == index}
        # The sample arguments may be wrong: a schema does not describe them in full.
        test.note(("DATA-27", "DATA-28"), issues <= {"type_mismatch"}, f"t {form} accepted", answer.details)
    for row, form in invalid_forms:
        await _expect_refusal(test, {**fact, "t": form}, _INVALID_CODES, row)
