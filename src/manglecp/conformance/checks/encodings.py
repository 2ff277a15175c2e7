"""Facts that are right, in each form that they may have."""

from __future__ import annotations

from typing import Any

from manglecp.conformance.bench import Bench, Untested, tools_of
from manglecp.conformance.checks.facts import REFUSED, sent, violations
from manglecp.conformance.lines.line import Answer
from manglecp.conformance.registry import check


def same(answer: Answer) -> list[tuple[Any, ...]]:
    """What must be equal in equal answers."""
    return sorted(
        (str(tool.get("macro_id")), str(tool.get("disclosure_level")), str((tool.get("metadata") or {}).get("score")))
        for tool in tools_of(answer)
    )


def _issues(answer: Answer, index: int) -> list[Any]:
    return [one.get("issue") for one in violations(answer) if one.get("fact_index") == index]


@check("DATA-40", "DATA-42", "DATA-44", "OPEN-20")
async def provenance_changes_nothing(b: Bench) -> None:
    """Where a fact comes from, and what it claims to be, changes nothing"""
    stated = await b.intent()
    if not stated.facts:
        raise Untested("the plan has no facts")
    plain = same(await b.answered(stated))
    sources: list[dict[str, Any]] = [
        {"source": {"source_type": "server", "source_id": "conformance"}},
        {"source": {"source_type": "x-conformance", "asserted_at": stated.eval_time}},
        {"category": "server"},
        {"category": "derived"},
        {"source": None, "category": None},
    ]
    for more in sources:
        answer = await b.answered(stated, facts=[{**fact, **more} for fact in stated.facts])
        rows = ("DATA-44", "OPEN-20") if "source" not in more else ("DATA-42", "DATA-40", "OPEN-20")
        b.that(rows, same(answer) == plain, f"the same tools with {more}", same(answer))
    twice = await b.answered(stated, facts=[*stated.facts, *({**one, **sources[0]} for one in stated.facts)])
    b.that("DATA-42", same(twice) == plain, "one fact, however many sources it has", same(twice))


@check("DATA-07", "DATA-08", "DATA-10", "DATA-11", "ERR-12")
async def named_arguments(b: Bench) -> None:
    """Named arguments mean the same as those in order; unknown and missing names are refused"""
    capabilities = b.manifest.get("capabilities")
    offered = isinstance(capabilities, dict) and capabilities.get("named_args") is True
    stated = await b.intent()
    names = {one["predicate"]: one["arg_names"] for one in b.predicates if one.get("arg_names")}
    facts = [fact for fact in stated.facts if fact.get("pred") in names and "args" in fact]
    if not facts:
        raise Untested("the plan has no facts of predicates with arg_names")
    named = [
        {**{key: value for key, value in fact.items() if key != "args"}, "named_args": _named(fact, names)}
        if fact in facts
        else fact
        for fact in stated.facts
    ]
    answer = await b.state(stated, facts=named)
    if not offered:
        b.refused(answer, "invalid_facts", "DATA-11", about="named_args, which are not offered")
        return
    plain = same(await b.answered(stated))
    b.that(("DATA-07", "DATA-08", "DATA-11"), same(answer) == plain, "the same tools with named_args", answer)
    given = _named(facts[0], names)
    for about, wrong in (
        ("an unknown name", {**given, "conformance": 1}),
        ("a missing name", dict(list(given.items())[1:])),
    ):
        answer, _ = await sent(b, {"pred": facts[0]["pred"], "named_args": wrong})
        b.that("DATA-10", answer.type == "error" and bool(violations(answer)), f"invalid_facts for {about}", answer)


def _named(fact: Any, names: dict[str, list[str]]) -> dict[str, Any]:
    return dict(zip(names[fact["pred"]], fact["args"], strict=False))


@check("DATA-09", "ERR-12")
async def names_that_are_not_declared(b: Bench) -> None:
    """A predicate without arg_names has no named arguments"""
    schema = b.predicate(lambda one: not one.get("arg_names") and int(one.get("arity", 0)) > 0)
    answer, _ = await sent(b, {"pred": schema["predicate"], "named_args": {"a": 1}})
    b.refused(answer, "invalid_facts", "DATA-09", about=f"named_args for {schema['predicate']}")


@check("DATA-19", "DATA-20", "DATA-21", "WIRE-19")
async def large_integers(b: Bench) -> None:
    """Integers are numbers up to 2^53 - 1, and wrapped beyond"""
    schema = b.predicate(lambda one: "number" in (one.get("arg_types") or ()))
    position = schema["arg_types"].index("number")
    for rows, value in (
        (("DATA-19", "DATA-20", "WIRE-19"), 9_007_199_254_740_991),
        (("DATA-19",), -9_007_199_254_740_991),
        (("DATA-21", "DATA-20"), {"_type": "int64", "value": "9007199254740993"}),
        (("DATA-21",), {"_type": "int64", "value": "-9223372036854775808"}),
    ):
        args: list[Any] = ["conformance" if one != "number" else 1 for one in schema["arg_types"]]
        args[position] = value
        answer, index = await sent(b, {"pred": schema["predicate"], "args": args})
        wrong = [
            one
            for one in violations(answer)
            if one.get("fact_index") == index and one.get("argument_index", position) == position
        ]
        b.that(rows, not wrong, f"{value} taken as a number", wrong)
    for text in ("9223372036854775808", "1.5", "", "0x1"):
        args = ["conformance" if one != "number" else 1 for one in schema["arg_types"]]
        args[position] = {"_type": "int64", "value": text}
        answer, _ = await sent(b, {"pred": schema["predicate"], "args": args})
        b.refused(answer, REFUSED, "DATA-21", about=f"the int64 {text!r}")


@check("DATA-27", "DATA-28", "DATA-29", "OPEN-12", level=2)
async def times_of_facts(b: Bench) -> None:
    """Times are RFC 3339, in each form of t; others only if the manifest has them"""
    profile = b.manifest.get("facts_profile")
    formats = profile.get("time_formats") if isinstance(profile, dict) else None
    formats = formats if isinstance(formats, list) else []
    schema = b.predicate(lambda one: one.get("temporal") is True)
    types = schema.get("arg_types") or ["any"] * int(schema["arity"])
    args = [1 if one == "number" else "conformance" for one in types]
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
        answer, index = await sent(b, {"pred": schema["predicate"], "args": args, "t": form})
        wrong = [issue for issue in _issues(answer, index) if issue != "type_mismatch"]
        b.that(("DATA-27", "DATA-28"), not wrong, f"t {form} taken", answer.details)
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
        answer, _ = await sent(b, {"pred": schema["predicate"], "args": args, "t": form})
        b.refused(answer, REFUSED, row, about=f"t {form}")
