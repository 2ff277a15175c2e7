"""Evaluation of intents, and tools that have a time."""

from __future__ import annotations

from typing import Any, Final

from manglecp.conformance.bench import Bench, Untested, check, message, tools_of
from manglecp.conformance.checks.facts import comparable
from manglecp.conformance.connections import member, parse_instant

_TIMES: Final = 100
_SLACK_MS: Final = 250  # overhead of an evaluation beyond its limit


@check("CONF-04", "EVAL-27", "EVAL-13", "EVAL-14")
async def planned_intents(b: Bench) -> None:
    """Intents of the plan bring the tools that it expects"""
    if not b.plan.intents:
        await b.intent()
        b.note(("CONF-04", "EVAL-27"), True, "", "")
        return
    denied = {one.intent.label for one in b.plan.denied if one.token is None}
    for planned in b.plan.intents:
        if planned.label in denied:
            continue
        answer = await b.evaluate(planned)
        b.note(("CONF-04", "EVAL-27"), answer.type == "intent_response", f"an answer to {planned.label}", answer)
        names = [tool.get("name") for tool in tools_of(answer)]
        missing = [name for name in planned.expects if name not in names]
        b.note("CONF-04", not missing, f"{', '.join(planned.expects)} for {planned.label}", names)
        there = [name for name in planned.absent if name in names]
        rows = ("EVAL-13", "EVAL-14")
        b.note(rows, not there, f"none of {', '.join(planned.absent)} for {planned.label}", there)


@check("CONF-14", "CONF-15", "EVAL-18", "EVAL-11", "TOOL-02", patience=10)
async def determinism(b: Bench) -> None:
    """The same request a hundred times brings the same tools, levels and scores"""
    planned = await b.intent()
    options = {"include_proof_hints": True} if b.report.level == 3 else {}
    first: Any = None
    for time in range(_TIMES):
        answer = await b.response(planned, options=options)
        derived = member(answer.payload, "diagnostics", "facts_derived")
        derivations = member(answer.payload, "proof_hints", "derivations") or ()
        scores = sorted((str(one.get("macro_id")), str(one.get("score"))) for one in derivations)
        tools = comparable(answer)
        now = (sorted(one[0] for one in tools), tools, scores, derived)
        first = first or now
        rows = ("CONF-14", "EVAL-18")
        b.note(rows, now[0] == first[0], f"the macro_ids {first[0]}", f"answer {time + 1}: {now[0]}")
        b.note("TOOL-02", now[0] == first[0], "ids that are not chance", now[0])
        fits = now[1:3] == first[1:3]
        b.note(("CONF-15", "EVAL-18"), fits, f"the levels and scores {first[1:3]}", f"answer {time + 1}: {now[1:3]}")
        if derived is not None:
            b.note("EVAL-11", derived == first[3], f"facts_derived {first[3]}", f"answer {time + 1}: {derived}")


@check("DATA-47", "EVAL-10", "NEXT-06")
async def nothing_is_kept(b: Bench) -> None:
    """Facts of one request are gone in the next"""
    planned = next((one for one in b.plan.intents if one.facts and one.expects), None)
    if planned is None:
        raise Untested("the plan has no intent with facts and expected tools")
    bare = await b.evaluate(planned, facts=[])
    await b.response(planned)
    again = await b.evaluate(planned, facts=[])
    rows = ("DATA-47", "EVAL-10", "NEXT-06")
    fits = (bare.type, bare.code, comparable(bare)) == (again.type, again.code, comparable(again))
    b.note(rows, fits, f"the same as before without facts: {bare}", again)


@check("CONF-16", "CONF-17", "EVAL-20", "EVAL-17", "EVAL-24", "ERR-19", "ERR-40", "MANI-24", "EVAL-05")
async def derivation_limit(b: Bench) -> None:
    """Derivation stops at max_facts_created, and the error has the budget"""
    planned = await b.intent()
    answer = await b.response(planned)
    derived = member(answer.payload, "diagnostics", "facts_derived")
    if not isinstance(derived, int):
        raise Untested("the server has no diagnostics.facts_derived")
    if derived <= 10:
        raise Untested(f"the intent {planned.label} derives {derived} facts only")
    for limit in (10, 0):
        answer = await b.evaluate(planned, constraints={"max_facts_created": limit})
        rows = ("CONF-16", "EVAL-20", "EVAL-17", "MANI-24", "EVAL-05")
        b.refused(answer, "derivation_limit_exceeded", *rows, about=f"max_facts_created {limit}, of {derived} facts")
        b.note("EVAL-24", "macro_tools" not in answer.payload, "no partial tools", answer.payload)
        budget = answer.details.get("budget")
        whole = isinstance(budget, dict) and budget.get("limit") == limit and "consumed" in budget
        b.note("CONF-17", whole, f"details.budget with limit {limit} and consumed", answer.details)
        more = isinstance(answer.details.get("partial_results_available"), bool) and "suggestion" in answer.details
        b.note("ERR-40", more, "partial_results_available and suggestion", answer.details)
    answer = await b.evaluate(planned, constraints={"max_facts_created": derived})
    b.note("EVAL-20", answer.type == "intent_response", f"max_facts_created {derived} enough for as many", answer)
    answer = await b.evaluate(planned, constraints={"max_facts_created": None, "max_compute_ms": None})
    b.note("EVAL-05", answer.type == "intent_response", "null taken as no constraint", answer)


@check("EVAL-22", "ERR-18", "TRANS-18")
async def compute_limit(b: Bench) -> None:
    """Evaluation stops at max_compute_ms"""
    planned = await b.intent()
    answer = await b.evaluate(planned, constraints={"max_compute_ms": 0})
    if answer.type == "intent_response":
        took = answer.payload.get("eval_duration_ms")
        if not isinstance(took, int) or took <= _SLACK_MS:
            raise Untested(f"the intent {planned.label} is evaluated in no time")
        b.note("EVAL-22", False, "evaluation_timeout for max_compute_ms 0", f"an answer after {took} ms")
        return
    b.refused(answer, "evaluation_timeout", "EVAL-22", about="max_compute_ms 0")
    if answer.status is not None:
        b.note("TRANS-18", answer.status == 408, "status 408", answer.status)


@check("EVAL-30", "OPEN-21")
async def fewer_tools(b: Bench) -> None:
    """No more tools than max_tools_returned, and no error"""
    planned = await b.intent()
    every = {tool.get("macro_id") for tool in await b.tools(planned)}
    for most in (0, 1, 2):
        answer = await b.evaluate(planned, constraints={"max_tools_returned": most})
        returned = {tool.get("macro_id") for tool in tools_of(answer)}
        b.note("OPEN-21", answer.type == "intent_response", "an answer", answer)
        b.note(
            "EVAL-30", len(returned) <= most and returned <= every, f"{most} tools at most", sorted(map(str, returned))
        )


@check("EVAL-25", "DATA-32", "DATA-33", "EVAL-04")
async def evaluation_time(b: Bench) -> None:
    """The time of the client is used, or else the clock of the server, and is returned"""
    planned = await b.intent()
    used = (await b.response(planned)).payload.get("eval_time_used")
    b.note(("EVAL-25", "DATA-32"), parse_instant(used) == parse_instant(planned.eval_time), planned.eval_time, used)
    payload = planned.payload(eval_time=...)
    answer = await b.ask(message("intent_request", payload))
    if answer.type == "intent_response":
        used = parse_instant(answer.payload.get("eval_time_used"))
        near = used is not None and abs(used - b.now) < 86_400
        b.note(("DATA-33", "EVAL-04"), near, "about the present time", answer.payload.get("eval_time_used"))


@check("EVAL-15", "EVAL-16", "CONF-07", "OPEN-21", level=2)
async def rivals_and_needs(b: Bench) -> None:
    """Of rivals one is returned, and with a tool what it needs"""
    cases = [one for one in b.plan.intents if one.rivals or one.needs]
    if not cases:
        raise Untested("the plan names no rivals and no needs")
    for planned in cases:
        for most in (None, 1, 2):
            tools = await b.tools(planned, constraints={"max_tools_returned": most})
            names = [tool.get("name") for tool in tools]
            for pair in planned.rivals:
                b.note(("EVAL-15", "CONF-07"), not set(pair) <= set(names), f"one of {' and '.join(pair)}", names)
            for tool, needed in planned.needs:
                whole = tool not in names or needed in names
                b.note(("EVAL-16", "CONF-07", "OPEN-21"), whole, f"{tool} not without {needed}", names)


@check("EVAL-21", "ERR-20", "ERR-40", level=2)
async def interval_limit(b: Bench) -> None:
    """A fact at more times than max_intervals_per_atom is refused"""
    planned = await b.intent()
    timed = next((fact for fact in planned.facts if fact.get("t") is not None), None)
    if timed is None:
        raise Untested("the plan has no facts with a time")
    facts = [*planned.facts, *({**timed, "t": {"at": f"2026-01-01T00:0{n}:00Z"}} for n in range(9))]
    answer = await b.evaluate(planned, facts=facts, constraints={"max_intervals_per_atom": 3})
    b.refused(answer, "interval_limit_exceeded", "EVAL-21", about="nine times under max_intervals_per_atom 3")
    b.note("ERR-40", isinstance(answer.details.get("budget"), dict), "details.budget", answer.details)
    answer = await b.evaluate(planned, facts=facts, constraints={"max_intervals_per_atom": 100})
    b.note("EVAL-21", answer.type == "intent_response", "an answer under max_intervals_per_atom 100", answer)


@check("EVAL-31", "MANI-13")
async def unknown_intents(b: Bench) -> None:
    """An intent that no rule knows brings no tools, and no error"""
    answer = await b.ask(message("intent_request", {"intent": {"name": "conformance_no_such_intent"}}))
    if answer.code in ("auth_required", "auth_insufficient"):
        raise Untested("policy refuses unknown intents")
    empty = answer.type == "intent_response" and not tools_of(answer)
    b.note(("EVAL-31", "MANI-13"), empty, "an answer without tools", answer)


@check("EVAL-09", "SEC-03")
async def validation_comes_first(b: Bench) -> None:
    """What is not valid is not evaluated"""
    planned = await b.intent()
    wrong = {"pred": "_manglecp_internal", "args": []}
    limits = {"max_facts_created": 0}
    answer = await b.evaluate(planned, facts=[*planned.facts, wrong], constraints=limits)
    b.note(("EVAL-09", "SEC-03"), answer.code == "reserved_predicate", "the error of the fact, not a limit", answer)


@check("EVAL-41", "EVAL-14")
async def clients_do_not_decide(b: Bench) -> None:
    """A client cannot assert what the rules decide"""
    planned = await b.intent()
    expected = comparable(await b.response(planned))
    predicates = {one["predicate"] for one in b.predicates}
    claims: dict[str, list[Any]] = {
        "mandatory": ["x"],
        "selected": ["x", 100],
        "allowed": ["x"],
        "client_permission": ["x"],
    }
    for name, args in claims.items():
        if name in predicates:
            continue
        answer = await b.evaluate(planned, facts=[*planned.facts, {"pred": name, "args": args}])
        fits = answer.type == "error" or comparable(answer) == expected
        b.note(("EVAL-41", "EVAL-14"), fits, f"no effect of the fact {name}", answer)


@check("DATA-31", "DATA-32", "DATA-34", "CONF-07", level=2)
async def windows(b: Bench) -> None:
    """A tool is there while its facts are recent, and not afterwards"""
    if not b.plan.windows:
        raise Untested("the plan has no windows")
    for window in b.plan.windows:
        for when, there in ((window.inside, True), (window.outside, False)):
            names = [tool.get("name") for tool in await b.tools(window.intent, eval_time=when)]
            text = f"{window.tool} {'at' if there else 'not at'} {when}"
            b.note(("DATA-31", "DATA-32", "DATA-34", "CONF-07"), (window.tool in names) == there, text, names)


@check("MANI-18", "CONF-07", level=2, access=False)
async def temporal_reasoning(b: Bench) -> None:
    """From level 2 on a server reasons about time"""
    flag = member(b.manifest, "capabilities", "temporal")
    b.note(("MANI-18", "CONF-07"), flag is True, "capabilities.temporal true", flag)


@check("TOOL-17", "TOOL-18", "TOOL-19", "CONF-11", level=3)
async def validity(b: Bench) -> None:
    """A tool that depends on recent facts has an expiry, and is not offered afterwards"""
    if not b.plan.windows:
        raise Untested("the plan has no windows")
    options = {"disclosure_preference": "full"}
    for window in b.plan.windows:
        tools = await b.tools(window.intent, eval_time=window.inside, options=options)
        tool = next((one for one in tools if one.get("name") == window.tool), None)
        if tool is None:
            continue
        valid = tool.get("validity")
        expires = member(valid, "expires_at")
        if not b.note(("TOOL-18", "CONF-11"), isinstance(expires, str), "validity.expires_at", valid):
            continue
        in_order = window.inside <= str(expires) <= window.outside
        b.note("TOOL-19", in_order, f"an end between {window.inside} and {window.outside}", expires)
        begins = member(valid, "not_before")
        b.note("TOOL-17", begins is None or str(begins) <= str(expires), "not_before before expires_at", valid)
