"""Checks of facts and their encoding. The ids name requirements of ``docs/reference/requirements.md``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from manglecp.conformance.bench import DENIED_CODES, Bench, Untested, check
from manglecp.conformance.connections import ServerMessage, get_objects, get_path

_MAX_SENT_FACTS: Final = 50_000  # a higher limit of the server is not tested
_SAMPLES: Final[Mapping[str, Any]] = {"string": "conformance", "number": 1, "boolean": True, "any": "conformance"}
_INVALID_CODES: Final = ("invalid_facts", "type_mismatch", "malformed_message")
_WRONG_SAMPLES: Final[Mapping[str, Any]] = {"string": 1, "number": "conformance", "boolean": "conformance"}


def _sample_args(schema: Mapping[str, Any]) -> list[Any]:
    """Return arguments of the types in a predicate schema of the manifest."""
    types = schema.get("arg_types") or ["any"] * int(schema["arity"])
    return [_SAMPLES.get(type_, "conformance") for type_ in types]


async def _evaluate_with(b: Bench, *facts: Mapping[str, Any]) -> tuple[ServerMessage, int]:
    """Evaluate an intent with its facts and these. Return the answer, and the index of the first of these facts."""
    planned = await b.usable_intent()
    return await b.evaluate(planned, facts=[*planned.facts, *facts]), len(planned.facts)


def _note_violation(b: Bench, answer: ServerMessage, index: int, issue: str, *rows: str) -> None:
    """Record whether the error lists this issue of the fact at ``index``, with its predicate and a message."""
    for violation in answer.violations:
        if violation.get("fact_index") == index and violation.get("issue") == issue:
            is_complete = isinstance(violation.get("predicate"), str) and isinstance(violation.get("message"), str)
            b.note(rows, is_complete, "fact_index, predicate, issue and message in a violation", violation)
            return
    b.note(rows, False, f"a violation {issue} of fact {index}", answer.details or answer)


@check("ERR-13", "ERR-34", "ERR-35", "CONF-10")
async def unknown_predicates(b: Bench) -> None:
    """A predicate that the manifest does not have is refused"""
    b.assertable_predicate()  # untested if the manifest describes none: the server may then accept any
    answer, index = await _evaluate_with(b, {"pred": "conformance_no_such_predicate", "args": []})
    b.note_error(answer, "unknown_predicate", about="a predicate that the manifest does not have")
    _note_violation(b, answer, index, "unknown_predicate", "ERR-34", "ERR-35", "CONF-10")


@check("ERR-14", "ERR-34", "ERR-35", "ERR-36")
async def wrong_arity(b: Bench) -> None:
    """A fact with too many arguments is refused"""
    schema = b.assertable_predicate()
    arity = int(schema["arity"])
    answer, index = await _evaluate_with(b, {"pred": schema["predicate"], "args": [*_sample_args(schema), "one more"]})
    b.note_error(answer, "arity_mismatch", about=f"{arity + 1} arguments instead of {arity}")
    _note_violation(b, answer, index, "arity_mismatch", "ERR-34", "ERR-35")
    for violation in answer.violations:
        if "expected_arity" in violation or "actual_arity" in violation:
            arities = (violation.get("expected_arity"), violation.get("actual_arity"))
            expected = f"expected_arity {arity} and actual_arity {arity + 1}"
            b.note("ERR-36", arities == (arity, arity + 1), expected, violation)


@check("ERR-15", "ERR-34", "ERR-35", "ERR-36")
async def wrong_types(b: Bench) -> None:
    """An argument of another type is refused"""
    schema = b.assertable_predicate(lambda schema: not _WRONG_SAMPLES.keys().isdisjoint(schema.get("arg_types") or ()))
    position = next(i for i, type_ in enumerate(schema["arg_types"]) if type_ in _WRONG_SAMPLES)
    args = _sample_args(schema)
    args[position] = _WRONG_SAMPLES[schema["arg_types"][position]]
    answer, index = await _evaluate_with(b, {"pred": schema["predicate"], "args": args})
    b.note_error(answer, ("type_mismatch", "invalid_facts"), "ERR-15", about=f"argument {position} of {schema}")
    _note_violation(b, answer, index, "type_mismatch", "ERR-34", "ERR-35")
    for violation in answer.violations:
        if "argument_index" in violation and violation.get("issue") == "type_mismatch":
            argument = violation["argument_index"]
            is_in_range = isinstance(argument, int) and 0 <= argument < int(schema["arity"])
            b.note("ERR-36", is_in_range, "argument_index from 0 on", violation)


@check("DATA-04", "ERR-16", "SEC-02", "ERR-35")
async def reserved_predicates(b: Bench) -> None:
    """Predicates of the protocol itself are refused"""
    for name in ("_manglecp_internal", "_manglecp_"):
        answer, index = await _evaluate_with(b, {"pred": name, "args": ["conformance"]})
        b.note_error(answer, "reserved_predicate", "DATA-04", "SEC-02", about=f"the predicate {name}")
        if answer.violations:
            _note_violation(b, answer, index, "reserved_predicate", "ERR-35")


@check("DATA-01", "DATA-02", "ERR-12")
async def predicate_names(b: Bench) -> None:
    """A predicate has at most 128 lower-case letters, digits and underscores, and begins with a letter"""
    for name in ("Upper", "1first", "with-hyphen", "with.dot", "ünder", "", "with space"):
        answer, _ = await _evaluate_with(b, {"pred": name, "args": []})
        b.note_error(answer, "invalid_facts", "DATA-01", about=f"the predicate {name!r}")
    answer, _ = await _evaluate_with(b, {"pred": "a" * 129, "args": []})
    b.note_error(answer, "invalid_facts", "DATA-02", about="a predicate of 129 characters")
    answer, _ = await _evaluate_with(b, {"pred": "a" * 128, "args": []})
    b.note("DATA-02", answer.code in (None, "unknown_predicate"), "a predicate of 128 characters accepted", answer)


@check("DATA-06", "DATA-05", "ERR-12")
async def one_kind_of_arguments(b: Bench) -> None:
    """A fact has either args or named_args"""
    name = b.assertable_predicate()["predicate"]
    facts: tuple[dict[str, Any], ...] = ({"pred": name}, {"pred": name, "args": [], "named_args": {}})
    for fact in facts:
        answer, _ = await _evaluate_with(b, fact)
        b.note_error(answer, "invalid_facts", "DATA-06", about=str(fact))
    fact = {"pred": name, "args": {"a": 1}}
    answer, _ = await _evaluate_with(b, fact)
    b.note_error(answer, ("invalid_facts", "malformed_message"), "DATA-05", about=str(fact))


@check("DATA-37", "DATA-39", "DATA-43", "ERR-12")
async def provenance_is_checked(b: Bench) -> None:
    """Sources have a type, custom ones begin with x-, and there are three categories"""
    schema = b.assertable_predicate()
    fact = {"pred": schema["predicate"], "args": _sample_args(schema)}
    cases: list[tuple[str, dict[str, Any]]] = [
        ("DATA-37", {"source": {}}),
        ("DATA-37", {"source": {"source_type": 1}}),
        ("DATA-39", {"source": {"source_type": "conformance"}}),
        ("DATA-43", {"category": "conformance"}),
    ]
    for row, members in cases:
        answer, _ = await _evaluate_with(b, {**fact, **members})
        b.note_error(answer, "invalid_facts", row, about=f"a fact with {members}")


@check("ERR-38", "ERR-34", "OPEN-04", "OPEN-05", level=2)
async def several_violations(b: Bench) -> None:
    """All violations are reported at once, and mixed ones are invalid_facts"""
    schema = b.assertable_predicate()
    too_long = {"pred": schema["predicate"], "args": [*_sample_args(schema), "one more"]}
    answer, index = await _evaluate_with(b, too_long, {"pred": "_manglecp_internal", "args": []})
    b.note("ERR-38", answer.code == "invalid_facts", "invalid_facts for two kinds of violations", answer)
    b.note("OPEN-04", answer.payload.get("recoverable") is True, "recoverable true", answer.payload)
    issues = {(item.get("fact_index"), item.get("issue")) for item in answer.violations}
    both = {(index, "arity_mismatch"), (index + 1, "reserved_predicate")}
    b.note(("ERR-38", "ERR-34"), both <= issues, f"both violations: {sorted(both)}", answer.violations)
    unknown = [{"pred": f"conformance_unknown_{n}", "args": []} for n in range(3)]
    answer, _ = await _evaluate_with(b, *unknown)
    b.note("OPEN-05", answer.code == "unknown_predicate", "unknown_predicate for three unknown predicates", answer)
    b.note("ERR-34", len(answer.violations) == 3, "three violations", answer.violations)


@check("ERR-17", "MANI-24", time_factor=3)
async def too_many_facts(b: Bench) -> None:
    """More facts than limits.max_facts_per_request are refused"""
    limit = b.manifest_limit("max_facts_per_request")
    if limit > _MAX_SENT_FACTS:
        raise Untested(f"limits.max_facts_per_request is {limit}")
    schema = b.assertable_predicate()
    fact = {"pred": schema["predicate"], "args": _sample_args(schema)}
    planned = await b.usable_intent()
    answer = await b.evaluate(planned, facts=[fact] * (limit + 1))
    b.note_error(answer, "too_many_facts", "MANI-24", about=f"{limit + 1} facts")


@check("MANI-14", "OPEN-18", "ERR-12")
async def required_facts(b: Bench) -> None:
    """An intent is refused without the facts that it requires"""
    intents = [intent for intent in get_objects(b.manifest, "intents") if intent.get("required_facts")]
    if not intents:
        raise Untested("no intent requires facts")
    planned = await b.usable_intent()
    for intent in intents:
        name, required = intent["name"], intent["required_facts"]
        answer = await b.evaluate(planned, intent={"name": name}, facts=[])
        if answer.code in DENIED_CODES:
            continue
        b.note_error(answer, "invalid_facts", "MANI-14", about=f"{name} without {required}")
        missing = answer.details.get("missing_facts")
        holds = isinstance(missing, list) and set(required) <= set(missing)
        b.note("OPEN-18", holds, f"missing_facts {required}", answer.details)


@check("OPEN-17", "DATA-53", "ERR-12")
async def directions(b: Bench) -> None:
    """A predicate that only the server derives is refused"""
    schema = next((schema for schema in b.predicate_schemas if schema.get("direction") == "output"), None)
    if schema is None:
        raise Untested("the manifest has no predicate of the direction output")
    answer, _ = await _evaluate_with(b, {"pred": schema["predicate"], "args": _sample_args(schema)})
    b.note_error(answer, "invalid_facts", "OPEN-17", "DATA-53", about=f"a fact of {schema['predicate']}")


@check("OPEN-14", "DATA-17")
async def no_wildcards(b: Bench) -> None:
    """A fact that is asserted holds no wildcard"""
    schema = b.assertable_predicate(lambda schema: int(schema["arity"]) > 0)
    answer, _ = await _evaluate_with(b, {"pred": schema["predicate"], "args": [None, *_sample_args(schema)[1:]]})
    b.note_error(answer, _INVALID_CODES, "OPEN-14", "DATA-17", about="null as an argument")


def comparable(answer: ServerMessage) -> list[tuple[str, str, str]]:
    """Return (macro_id, disclosure level, score) of the tools, sorted: they must be equal for equal requests."""
    return sorted(
        (str(tool.get("macro_id")), str(tool.get("disclosure_level")), str((tool.get("metadata") or {}).get("score")))
        for tool in answer.tools
    )


@check("DATA-40", "DATA-42", "DATA-44", "OPEN-20")
async def provenance_changes_nothing(b: Bench) -> None:
    """The source and the category of a fact change nothing"""
    planned = await b.usable_intent()
    if not planned.facts:
        raise Untested("the plan has no facts")
    plain = comparable(await b.evaluate_successfully(planned))
    provenances: list[dict[str, Any]] = [
        {"source": {"source_type": "server", "source_id": "conformance"}},
        {"source": {"source_type": "x-conformance", "asserted_at": planned.eval_time}},
        {"category": "server"},
        {"category": "derived"},
        {"source": None, "category": None},
    ]
    for members in provenances:
        answer = await b.evaluate_successfully(planned, facts=[{**fact, **members} for fact in planned.facts])
        rows = ("DATA-42", "DATA-40", "OPEN-20") if "source" in members else ("DATA-44", "OPEN-20")
        b.note(rows, comparable(answer) == plain, f"the same tools with {members}", comparable(answer))
    facts = [*planned.facts, *({**fact, **provenances[0]} for fact in planned.facts)]
    twice = await b.evaluate_successfully(planned, facts=facts)
    b.note("DATA-42", comparable(twice) == plain, "one fact, however many sources it has", comparable(twice))


@check("DATA-07", "DATA-08", "DATA-10", "DATA-11", "ERR-12")
async def named_arguments(b: Bench) -> None:
    """Named arguments mean the same as those in order; unknown and missing names are refused"""
    is_supported = get_path(b.manifest, "capabilities", "named_args") is True
    planned = await b.usable_intent()
    names = {schema["predicate"]: schema["arg_names"] for schema in b.predicate_schemas if schema.get("arg_names")}
    facts = [fact for fact in planned.facts if fact.get("pred") in names and "args" in fact]
    if not facts:
        raise Untested("the plan has no facts of predicates with arg_names")
    named = [
        {**{key: value for key, value in fact.items() if key != "args"}, "named_args": _named(fact, names)}
        if fact in facts
        else fact
        for fact in planned.facts
    ]
    answer = await b.evaluate(planned, facts=named)
    if not is_supported:
        b.note_error(answer, "invalid_facts", "DATA-11", about="named_args, which the manifest does not offer")
        return
    plain = comparable(await b.evaluate_successfully(planned))
    b.note(("DATA-07", "DATA-08", "DATA-11"), comparable(answer) == plain, "the same tools with named_args", answer)
    arguments = _named(facts[0], names)
    cases = {"an unknown name": {**arguments, "conformance": 1}, "a missing name": dict(list(arguments.items())[1:])}
    for about, wrong in cases.items():
        answer, _ = await _evaluate_with(b, {"pred": facts[0]["pred"], "named_args": wrong})
        b.note("DATA-10", answer.type == "error" and bool(answer.violations), f"invalid_facts for {about}", answer)


def _named(fact: Any, names: dict[str, list[str]]) -> dict[str, Any]:
    """Return the arguments of a fact by name; ``names`` are the argument names of each predicate."""
    return dict(zip(names[fact["pred"]], fact["args"], strict=False))


@check("DATA-09", "ERR-12")
async def names_that_are_not_declared(b: Bench) -> None:
    """A predicate without arg_names has no named arguments"""
    schema = b.assertable_predicate(lambda schema: not schema.get("arg_names") and int(schema["arity"]) > 0)
    answer, _ = await _evaluate_with(b, {"pred": schema["predicate"], "named_args": {"a": 1}})
    b.note_error(answer, "invalid_facts", "DATA-09", about=f"named_args for {schema['predicate']}")


@check("DATA-19", "DATA-20", "DATA-21", "WIRE-19")
async def large_integers(b: Bench) -> None:
    """Integers are numbers up to 2^53 - 1, and wrapped beyond"""
    schema = b.assertable_predicate(lambda schema: "number" in (schema.get("arg_types") or ()))
    position = schema["arg_types"].index("number")

    def fact(value: Any) -> dict[str, Any]:
        args = _sample_args(schema)
        return {"pred": schema["predicate"], "args": [*args[:position], value, *args[position + 1 :]]}

    for rows, value in (
        (("DATA-19", "DATA-20", "WIRE-19"), 9_007_199_254_740_991),
        (("DATA-19",), -9_007_199_254_740_991),
        (("DATA-21", "DATA-20"), {"_type": "int64", "value": "9007199254740993"}),
        (("DATA-21",), {"_type": "int64", "value": "-9223372036854775808"}),
    ):
        answer, index = await _evaluate_with(b, fact(value))
        refusals = [
            violation
            for violation in answer.violations
            if violation.get("fact_index") == index and violation.get("argument_index", position) == position
        ]
        b.note(rows, not refusals, f"{value} accepted as a number", refusals)
    for text in ("9223372036854775808", "1.5", "", "0x1"):
        answer, _ = await _evaluate_with(b, fact({"_type": "int64", "value": text}))
        b.note_error(answer, _INVALID_CODES, "DATA-21", about=f"the int64 {text!r}")


@check("DATA-27", "DATA-28", "DATA-29", "OPEN-12", level=2)
async def times_of_facts(b: Bench) -> None:
    """Times are RFC 3339, in each form of t; others only if the manifest has them"""
    formats = get_path(b.manifest, "facts_profile", "time_formats")
    formats = formats if isinstance(formats, list) else []
    schema = b.assertable_predicate(lambda schema: schema.get("temporal") is True)
    args = _sample_args(schema)
    time, later = "2026-01-02T03:04:05Z", "2026-01-02T03:05:00Z"
    valid: list[Any] = [
        {"at": time},
        {"start": time, "end": later},
        {"start": time, "end": "_"},
        {"start": "_", "end": "2026-01-02T04:04:05.5+01:00"},
        {"at": "now"},
        None,
    ]
    if "epoch_ms" in formats:
        valid.append({"at": 1_767_323_045_000})
    for form in valid:
        answer, index = await _evaluate_with(b, {"pred": schema["predicate"], "args": args, "t": form})
        issues = {item.get("issue") for item in answer.violations if item.get("fact_index") == index}
        # The sample arguments may be wrong: a schema does not describe them in full.
        b.note(("DATA-27", "DATA-28"), issues <= {"type_mismatch"}, f"t {form} accepted", answer.details)
    invalid: list[tuple[str, Any]] = [
        ("DATA-27", {"at": "yesterday"}),
        ("DATA-27", {"at": "2026-13-40T00:00:00Z"}),
        ("DATA-27", {}),
        ("OPEN-12", {"at": "_"}),
        ("OPEN-12", {"start": later, "end": time}),
    ]
    if "epoch_ms" not in formats:
        invalid.append(("DATA-29", {"at": 1_767_323_045_000}))
    for row, form in invalid:
        answer, _ = await _evaluate_with(b, {"pred": schema["predicate"], "args": args, "t": form})
        b.note_error(answer, _INVALID_CODES, row, about=f"t {form}")
