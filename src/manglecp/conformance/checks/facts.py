"""Facts and the encoding of their values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from manglecp.conformance.bench import Bench, Untested, check, tools_of
from manglecp.conformance.connections import Answer, member

_MOST: Final = 50_000  # facts that a check sends at most
SAMPLES: Final[Mapping[str, Any]] = {"string": "conformance", "number": 1, "boolean": True, "any": "conformance"}
REFUSED: Final = ("invalid_facts", "type_mismatch", "malformed_message")
_OTHERS: Final[Mapping[str, Any]] = {"string": 1, "number": "conformance", "boolean": "conformance"}


def sample(schema: Mapping[str, Any]) -> list[Any]:
    """Return arguments that fit the predicate as far as its schema describes them."""
    types = schema.get("arg_types") or ["any"] * int(schema["arity"])
    return [SAMPLES.get(type_, "conformance") for type_ in types]


async def send(b: Bench, *facts: Mapping[str, Any]) -> tuple[Answer, int]:
    """Return the answer to an intent with these extra facts, and the position of the first of them."""
    planned = await b.intent()
    return await b.evaluate(planned, facts=[*planned.facts, *facts]), len(planned.facts)


def violations(answer: Answer) -> list[dict[str, Any]]:
    listed = answer.details.get("violations")
    return [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []


def record_violation(b: Bench, answer: Answer, index: int, issue: str, *rows: str) -> None:
    """Record whether a violation names the fact, the predicate and the issue."""
    for one in violations(answer):
        if one.get("fact_index") == index and one.get("issue") == issue:
            whole = isinstance(one.get("predicate"), str) and isinstance(one.get("message"), str)
            b.note(rows, whole, "fact_index, predicate, issue and message in a violation", one)
            return
    b.note(rows, False, f"a violation {issue} of fact {index}", answer.details or answer)


@check("ERR-13", "ERR-34", "ERR-35", "CONF-10")
async def unknown_predicates(b: Bench) -> None:
    """A predicate that the manifest does not have is refused"""
    b.predicate()
    answer, index = await send(b, {"pred": "conformance_no_such_predicate", "args": []})
    b.refused(answer, "unknown_predicate", about="a predicate that the manifest does not have")
    record_violation(b, answer, index, "unknown_predicate", "ERR-34", "ERR-35", "CONF-10")


@check("ERR-14", "ERR-34", "ERR-35", "ERR-36")
async def wrong_arity(b: Bench) -> None:
    """A fact with too many arguments is refused"""
    schema = b.predicate()
    arity = int(schema["arity"])
    answer, index = await send(b, {"pred": schema["predicate"], "args": [*sample(schema), "one more"]})
    b.refused(answer, "arity_mismatch", about=f"{arity + 1} arguments instead of {arity}")
    record_violation(b, answer, index, "arity_mismatch", "ERR-34", "ERR-35")
    for one in violations(answer):
        if "expected_arity" in one or "actual_arity" in one:
            fits = (one.get("expected_arity"), one.get("actual_arity")) == (arity, arity + 1)
            b.note("ERR-36", fits, f"expected_arity {arity} and actual_arity {arity + 1}", one)


@check("ERR-15", "ERR-34", "ERR-35", "ERR-36")
async def wrong_types(b: Bench) -> None:
    """An argument of another type is refused"""
    schema = b.predicate(lambda one: any(type_ in _OTHERS for type_ in one.get("arg_types") or ()))
    position = next(n for n, type_ in enumerate(schema["arg_types"]) if type_ in _OTHERS)
    args = sample(schema)
    args[position] = _OTHERS[schema["arg_types"][position]]
    answer, index = await send(b, {"pred": schema["predicate"], "args": args})
    b.refused(answer, ("type_mismatch", "invalid_facts"), "ERR-15", about=f"argument {position} of {schema}")
    record_violation(b, answer, index, "type_mismatch", "ERR-34", "ERR-35")
    for one in violations(answer):
        if "argument_index" in one and one.get("issue") == "type_mismatch":
            in_range = isinstance(one["argument_index"], int) and 0 <= one["argument_index"] < int(schema["arity"])
            b.note("ERR-36", in_range, "argument_index from 0 on", one)


@check("DATA-04", "ERR-16", "SEC-02", "ERR-35")
async def reserved_predicates(b: Bench) -> None:
    """Predicates of the protocol itself are refused"""
    for name in ("_manglecp_internal", "_manglecp_"):
        answer, index = await send(b, {"pred": name, "args": ["conformance"]})
        b.refused(answer, "reserved_predicate", "DATA-04", "SEC-02", about=f"the predicate {name}")
        if violations(answer):
            record_violation(b, answer, index, "reserved_predicate", "ERR-35")


@check("DATA-01", "DATA-02", "ERR-12")
async def predicate_names(b: Bench) -> None:
    """A predicate is a small letter and then small letters, digits and underscores, 128 at most"""
    for name in ("Upper", "1first", "with-hyphen", "with.dot", "ünder", "", "with space"):
        answer, _ = await send(b, {"pred": name, "args": []})
        b.refused(answer, "invalid_facts", "DATA-01", about=f"the predicate {name!r}")
    answer, _ = await send(b, {"pred": "a" * 129, "args": []})
    b.refused(answer, "invalid_facts", "DATA-02", about="a predicate of 129 characters")
    answer, _ = await send(b, {"pred": "a" * 128, "args": []})
    b.note("DATA-02", answer.code in (None, "unknown_predicate"), "128 characters taken as a name", answer)


@check("DATA-06", "DATA-05", "ERR-12")
async def one_kind_of_arguments(b: Bench) -> None:
    """A fact has either args or named_args"""
    name = b.predicate()["predicate"]
    cases = ({"pred": name}, {"pred": name, "args": [], "named_args": {}}, {"pred": name, "args": {"a": 1}})
    for fact in cases:
        answer, _ = await send(b, fact)
        wanted = ("invalid_facts", "malformed_message") if isinstance(fact.get("args"), dict) else "invalid_facts"
        row = "DATA-05" if isinstance(fact.get("args"), dict) else "DATA-06"
        b.refused(answer, wanted, row, about=str(fact))


@check("DATA-37", "DATA-39", "DATA-43", "ERR-12")
async def provenance_is_checked(b: Bench) -> None:
    """Sources have a type, custom ones begin with x-, and there are three categories"""
    schema = b.predicate()
    fact = {"pred": schema["predicate"], "args": sample(schema)}
    cases: list[tuple[str, dict[str, Any]]] = [
        ("DATA-37", {"source": {}}),
        ("DATA-37", {"source": {"source_type": 1}}),
        ("DATA-39", {"source": {"source_type": "conformance"}}),
        ("DATA-43", {"category": "conformance"}),
    ]
    for row, more in cases:
        answer, _ = await send(b, {**fact, **more})
        b.refused(answer, "invalid_facts", row, about=f"a fact with {more}")


@check("ERR-38", "ERR-34", "OPEN-04", "OPEN-05", level=2)
async def several_violations(b: Bench) -> None:
    """All violations are reported at once, and mixed ones are invalid_facts"""
    schema = b.predicate()
    wrong = {"pred": schema["predicate"], "args": [*sample(schema), "one more"]}
    answer, index = await send(b, wrong, {"pred": "_manglecp_internal", "args": []})
    b.note("ERR-38", answer.code == "invalid_facts", "invalid_facts for two kinds of violations", answer)
    b.note("OPEN-04", answer.payload.get("recoverable") is True, "recoverable true", answer.payload)
    issues = {(one.get("fact_index"), one.get("issue")) for one in violations(answer)}
    both = {(index, "arity_mismatch"), (index + 1, "reserved_predicate")}
    b.note(("ERR-38", "ERR-34"), both <= issues, f"both violations: {sorted(both)}", violations(answer))
    unknown = [{"pred": f"conformance_unknown_{n}", "args": []} for n in range(3)]
    answer, _ = await send(b, *unknown)
    b.note("OPEN-05", answer.code == "unknown_predicate", "unknown_predicate for three of them", answer)
    b.note("ERR-34", len(violations(answer)) == 3, "three violations", violations(answer))


@check("ERR-17", "MANI-24", patience=3)
async def too_many_facts(b: Bench) -> None:
    """More facts than limits.max_facts_per_request are refused"""
    limit = b.limit("max_facts_per_request")
    if limit > _MOST:
        raise Untested(f"limits.max_facts_per_request is {limit}")
    schema = b.predicate()
    fact = {"pred": schema["predicate"], "args": sample(schema)}
    planned = await b.intent()
    answer = await b.evaluate(planned, facts=[fact] * (limit + 1))
    b.refused(answer, "too_many_facts", "MANI-24", about=f"{limit + 1} facts")


@check("MANI-14", "OPEN-18", "ERR-12")
async def required_facts(b: Bench) -> None:
    """Facts that an intent requires have to be there"""
    intents = [one for one in b.manifest.get("intents") or () if isinstance(one, dict) and one.get("required_facts")]
    if not intents:
        raise Untested("no intent requires facts")
    planned = await b.intent()
    for one in intents:
        answer = await b.evaluate(planned, intent={"name": one["name"]}, facts=[])
        if answer.code in ("auth_required", "auth_insufficient"):
            continue
        b.refused(answer, "invalid_facts", "MANI-14", about=f"{one['name']} without {one['required_facts']}")
        missing = answer.details.get("missing_facts")
        listed = isinstance(missing, list) and set(one["required_facts"]) <= set(missing)
        b.note("OPEN-18", listed, f"missing_facts {one['required_facts']}", answer.details)


@check("OPEN-17", "DATA-53", "ERR-12")
async def directions(b: Bench) -> None:
    """A predicate that only the server derives is refused"""
    only = [one for one in b.predicates if one.get("direction") == "output"]
    if not only:
        raise Untested("the manifest has no predicate of the direction output")
    answer, _ = await send(b, {"pred": only[0]["predicate"], "args": sample(only[0])})
    b.refused(answer, "invalid_facts", "OPEN-17", "DATA-53", about=f"a fact of {only[0]['predicate']}")


@check("OPEN-14", "DATA-17")
async def no_wildcards(b: Bench) -> None:
    """A fact that is asserted holds no wildcard"""
    schema = b.predicate(lambda one: int(one.get("arity", 0)) > 0)
    answer, _ = await send(b, {"pred": schema["predicate"], "args": [None, *sample(schema)[1:]]})
    b.refused(answer, REFUSED, "OPEN-14", "DATA-17", about="null as an argument")


def comparable(answer: Answer) -> list[tuple[Any, ...]]:
    """Return the part of an answer that must be equal in equal answers."""
    return sorted(
        (str(tool.get("macro_id")), str(tool.get("disclosure_level")), str((tool.get("metadata") or {}).get("score")))
        for tool in tools_of(answer)
    )


@check("DATA-40", "DATA-42", "DATA-44", "OPEN-20")
async def provenance_changes_nothing(b: Bench) -> None:
    """Where a fact comes from, and what it claims to be, changes nothing"""
    planned = await b.intent()
    if not planned.facts:
        raise Untested("the plan has no facts")
    plain = comparable(await b.response(planned))
    sources: list[dict[str, Any]] = [
        {"source": {"source_type": "server", "source_id": "conformance"}},
        {"source": {"source_type": "x-conformance", "asserted_at": planned.eval_time}},
        {"category": "server"},
        {"category": "derived"},
        {"source": None, "category": None},
    ]
    for more in sources:
        answer = await b.response(planned, facts=[{**fact, **more} for fact in planned.facts])
        rows = ("DATA-44", "OPEN-20") if "source" not in more else ("DATA-42", "DATA-40", "OPEN-20")
        b.note(rows, comparable(answer) == plain, f"the same tools with {more}", comparable(answer))
    twice = await b.response(planned, facts=[*planned.facts, *({**one, **sources[0]} for one in planned.facts)])
    b.note("DATA-42", comparable(twice) == plain, "one fact, however many sources it has", comparable(twice))


@check("DATA-07", "DATA-08", "DATA-10", "DATA-11", "ERR-12")
async def named_arguments(b: Bench) -> None:
    """Named arguments mean the same as those in order; unknown and missing names are refused"""
    offered = member(b.manifest, "capabilities", "named_args") is True
    planned = await b.intent()
    names = {one["predicate"]: one["arg_names"] for one in b.predicates if one.get("arg_names")}
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
    if not offered:
        b.refused(answer, "invalid_facts", "DATA-11", about="named_args, which are not offered")
        return
    plain = comparable(await b.response(planned))
    b.note(("DATA-07", "DATA-08", "DATA-11"), comparable(answer) == plain, "the same tools with named_args", answer)
    arguments = _named(facts[0], names)
    for about, wrong in (
        ("an unknown name", {**arguments, "conformance": 1}),
        ("a missing name", dict(list(arguments.items())[1:])),
    ):
        answer, _ = await send(b, {"pred": facts[0]["pred"], "named_args": wrong})
        b.note("DATA-10", answer.type == "error" and bool(violations(answer)), f"invalid_facts for {about}", answer)


def _named(fact: Any, names: dict[str, list[str]]) -> dict[str, Any]:
    return dict(zip(names[fact["pred"]], fact["args"], strict=False))


@check("DATA-09", "ERR-12")
async def names_that_are_not_declared(b: Bench) -> None:
    """A predicate without arg_names has no named arguments"""
    schema = b.predicate(lambda one: not one.get("arg_names") and int(one.get("arity", 0)) > 0)
    answer, _ = await send(b, {"pred": schema["predicate"], "named_args": {"a": 1}})
    b.refused(answer, "invalid_facts", "DATA-09", about=f"named_args for {schema['predicate']}")


@check("DATA-19", "DATA-20", "DATA-21", "WIRE-19")
async def large_integers(b: Bench) -> None:
    """Integers are numbers up to 2^53 - 1, and wrapped beyond"""
    schema = b.predicate(lambda one: "number" in (one.get("arg_types") or ()))
    position = schema["arg_types"].index("number")

    def fact(value: Any) -> dict[str, Any]:
        args = sample(schema)
        return {"pred": schema["predicate"], "args": [*args[:position], value, *args[position + 1 :]]}

    for rows, value in (
        (("DATA-19", "DATA-20", "WIRE-19"), 9_007_199_254_740_991),
        (("DATA-19",), -9_007_199_254_740_991),
        (("DATA-21", "DATA-20"), {"_type": "int64", "value": "9007199254740993"}),
        (("DATA-21",), {"_type": "int64", "value": "-9223372036854775808"}),
    ):
        answer, index = await send(b, fact(value))
        wrong = [
            one
            for one in violations(answer)
            if one.get("fact_index") == index and one.get("argument_index", position) == position
        ]
        b.note(rows, not wrong, f"{value} taken as a number", wrong)
    for text in ("9223372036854775808", "1.5", "", "0x1"):
        answer, _ = await send(b, fact({"_type": "int64", "value": text}))
        b.refused(answer, REFUSED, "DATA-21", about=f"the int64 {text!r}")


@check("DATA-27", "DATA-28", "DATA-29", "OPEN-12", level=2)
async def times_of_facts(b: Bench) -> None:
    """Times are RFC 3339, in each form of t; others only if the manifest has them"""
    formats = member(b.manifest, "facts_profile", "time_formats")
    formats = formats if isinstance(formats, list) else []
    schema = b.predicate(lambda one: one.get("temporal") is True)
    args = sample(schema)
    at, until = "2026-01-02T03:04:05Z", "2026-01-02T04:04:05.5+01:00"
    good: list[Any] = [
        {"at": at},
        {"start": at, "end": "2026-01-02T03:05:00Z"},
        {"start": at, "end": "_"},
        {"start": "_", "end": until},
        {"at": "now"},
        None,
    ]
    if "epoch_ms" in formats:
        good.append({"at": 1_767_323_045_000})
    for form in good:
        answer, index = await send(b, {"pred": schema["predicate"], "args": args, "t": form})
        issues = {one.get("issue") for one in violations(answer) if one.get("fact_index") == index}
        b.note(("DATA-27", "DATA-28"), issues <= {"type_mismatch"}, f"t {form} taken", answer.details)
    bad: list[tuple[str, Any]] = [
        ("DATA-27", {"at": "yesterday"}),
        ("DATA-27", {"at": "2026-13-40T00:00:00Z"}),
        ("DATA-27", {}),
        ("OPEN-12", {"at": "_"}),
        ("OPEN-12", {"start": "2026-01-02T03:05:00Z", "end": at}),
    ]
    if "epoch_ms" not in formats:
        bad.append(("DATA-29", {"at": 1_767_323_045_000}))
    for row, form in bad:
        answer, _ = await send(b, {"pred": schema["predicate"], "args": args, "t": form})
        b.refused(answer, REFUSED, row, about=f"t {form}")
