"""Checks of the evaluation of intents. The ids name requirements of ``docs/reference/requirements.md``."""

from __future__ import annotations

from typing import Any, Final

from manglecp.conformance.bench import DENIED_CODES, Bench, Untested, check, message
from manglecp.conformance.checks.facts import comparable
from manglecp.conformance.connections import get_objects, get_path, parse_instant

_REPETITIONS: Final = 100
_SLACK_MS: Final = 250  # an evaluation may take this much longer than its limit


@check("CONF-04", "EVAL-27", "EVAL-13", "EVAL-14")
async def planned_intents(b: Bench) -> None:
    """Intents of the plan bring the tools that it expects"""
    if not b.plan.intents:
        await b.usable_intent()
        b.note(("CONF-04", "EVAL-27"), True)
        return
    denied_labels = {denied.intent.label for denied in b.plan.denied if denied.token is None}
    for planned in b.plan.intents:
        if planned.label in denied_labels:
            continue
        answer = await b.evaluate(planned)
        b.note(("CONF-04", "EVAL-27"), answer.type == "intent_response", f"an answer to {planned.label}", answer)
        names = [tool.get("name") for tool in answer.tools]
        missing = [name for name in planned.expects if name not in names]
        b.note("CONF-04", not missing, f"{', '.join(planned.expects)} for {planned.label}", names)
        extra = [name for name in planned.absent if name in names]
        expected = f"none of {', '.join(planned.absent)} for {planned.label}"
        b.note(("EVAL-13", "EVAL-14"), not extra, expected, extra)


@check("CONF-14", "CONF-15", "EVAL-18", "EVAL-11", "TOOL-02", time_factor=10)
async def determinism(b: Bench) -> None:
    """The same request a hundred times brings the same tools, levels and scores"""
    planned = await b.usable_intent()
    options = {"include_proof_hints": True} if b.report.level == 3 else {}
    first: tuple[Any, ...] | None = None
    for number in range(1, _REPETITIONS + 1):
        answer = await b.evaluate_successfully(planned, options=options)
        derived = get_path(answer.payload, "diagnostics", "facts_derived")
        derivations = get_objects(answer.payload, "proof_hints", "derivations")
        scores = sorted((str(proof.get("macro_id")), str(proof.get("score"))) for proof in derivations)
        tools = comparable(answer)
        ids = [tool[0] for tool in tools]
        first = first or (ids, tools, scores, derived)
        first_ids, first_tools, first_scores, first_derived = first
        has_same_ids = ids == first_ids
        b.note(("CONF-14", "EVAL-18"), has_same_ids, f"the macro_ids {first_ids}", f"answer {number}: {ids}")
        b.note("TOOL-02", has_same_ids, "ids that are not random", ids)
        expected, seen = (first_tools, first_scores), (tools, scores)
        rows = ("CONF-15", "EVAL-18")
        b.note(rows, seen == expected, f"the levels and scores {expected}", f"answer {number}: {seen}")
        if derived is not None:
            b.note("EVAL-11", derived == first_derived, f"facts_derived {first_derived}", f"answer {number}: {derived}")


@check("DATA-47", "EVAL-10", "NEXT-06")
async def nothing_is_kept(b: Bench) -> None:
    """Facts of one request are gone in the next"""
    planned = next((intent for intent in b.plan.intents if intent.facts and intent.expects), None)
    if planned is None:
        raise Untested("the plan has no intent with facts and expected tools")
    before = await b.evaluate(planned, facts=[])
    await b.evaluate_successfully(planned)
    after = await b.evaluate(planned, facts=[])
    rows = ("DATA-47", "EVAL-10", "NEXT-06")
    is_same = (before.type, before.code, comparable(before)) == (after.type, after.code, comparable(after))
    b.note(rows, is_same, f"the same as before without facts: {before}", after)


@check("CONF-16", "CONF-17", "EVAL-20", "EVAL-17", "EVAL-24", "ERR-19", "ERR-40", "MANI-24", "EVAL-05")
async def derivation_limit(b: Bench) -> None:
    """Derivation stops at max_facts_created, and the error has the budget"""
    planned = await b.usable_intent()
    answer = await b.evaluate_successfully(planned)
    derived = get_path(answer.payload, "diagnostics", "facts_derived")
    if not isinstance(derived, int):
        raise Untested("the server has no diagnostics.facts_derived")
    if derived <= 10:
        raise Untested(f"the intent {planned.label} derives {derived} facts only")
    for limit in (10, 0):
        answer = await b.evaluate(planned, constraints={"max_facts_created": limit})
        rows = ("CONF-16", "EVAL-20", "EVAL-17", "MANI-24", "EVAL-05")
        b.note_error(answer, "derivation_limit_exceeded", *rows, about=f"max_facts_created {limit}, of {derived} facts")
        b.note("EVAL-24", "macro_tools" not in answer.payload, "no partial tools", answer.payload)
        budget = answer.details.get("budget")
        has_budget = isinstance(budget, dict) and budget.get("limit") == limit and "consumed" in budget
        b.note("CONF-17", has_budget, f"details.budget with limit {limit} and consumed", answer.details)
        has_flag = isinstance(answer.details.get("partial_results_available"), bool)
        has_both = has_flag and "suggestion" in answer.details
        b.note("ERR-40", has_both, "partial_results_available and suggestion", answer.details)
    answer = await b.evaluate(planned, constraints={"max_facts_created": derived})
    b.note("EVAL-20", answer.type == "intent_response", f"an answer under max_facts_created {derived}", answer)
    answer = await b.evaluate(planned, constraints={"max_facts_created": None, "max_compute_ms": None})
    b.note("EVAL-05", answer.type == "intent_response", "null accepted as no constraint", answer)


@check("EVAL-22", "ERR-18", "TRANS-18")
async def compute_limit(b: Bench) -> None:
    """Evaluation stops at max_compute_ms"""
    planned = await b.usable_intent()
    answer = await b.evaluate(planned, constraints={"max_compute_ms": 0})
    if answer.type == "intent_response":
        duration_ms = answer.payload.get("eval_duration_ms")
        if not isinstance(duration_ms, int) or duration_ms <= _SLACK_MS:
            raise Untested(f"the intent {planned.label} is evaluated too fast")
        b.note("EVAL-22", False, "evaluation_timeout for max_compute_ms 0", f"an answer after {duration_ms} ms")
        return
    b.note_error(answer, "evaluation_timeout", "EVAL-22", about="max_compute_ms 0")
    if answer.status is not None:
        b.note("TRANS-18", answer.status == 408, "status 408", answer.status)


@check("EVAL-30", "OPEN-21")
async def fewer_tools(b: Bench) -> None:
    """No more tools than max_tools_returned, and no error"""
    planned = await b.usable_intent()
    all_ids = {tool.get("macro_id") for tool in await b.tools(planned)}
    for limit in (0, 1, 2):
        answer = await b.evaluate(planned, constraints={"max_tools_returned": limit})
        ids = {tool.get("macro_id") for tool in answer.tools}
        b.note("OPEN-21", answer.type == "intent_response", "an answer", answer)
        holds = len(ids) <= limit and ids <= all_ids
        b.note("EVAL-30", holds, f"{limit} tools at most", sorted(map(str, ids)))


@check("EVAL-25", "DATA-32", "DATA-33", "EVAL-04")
async def evaluation_time(b: Bench) -> None:
    """The time of the client is used, or else the clock of the server, and is returned"""
    planned = await b.usable_intent()
    used = (await b.evaluate_successfully(planned)).payload.get("eval_time_used")
    b.note(("EVAL-25", "DATA-32"), parse_instant(used) == parse_instant(planned.eval_time), planned.eval_time, used)
    answer = await b.evaluate(planned, eval_time=...)
    if answer.type == "intent_response":
        used = parse_instant(answer.payload.get("eval_time_used"))
        is_present = used is not None and abs(used - b.now) < 86_400  # clocks may differ by a day
        b.note(("DATA-33", "EVAL-04"), is_present, "about the present time", answer.payload.get("eval_time_used"))


@check("EVAL-15", "EVAL-16", "CONF-07", "OPEN-21", level=2)
async def rivals_and_needs(b: Bench) -> None:
    """Only one of two rivals is returned, and no tool without the tool that it needs"""
    cases = [planned for planned in b.plan.intents if planned.rivals or planned.needs]
    if not cases:
        raise Untested("the plan names no rivals and no needs")
    for planned in cases:
        for limit in (None, 1, 2):
            tools = await b.tools(planned, constraints={"max_tools_returned": limit})
            names = [tool.get("name") for tool in tools]
            for pair in planned.rivals:
                b.note(("EVAL-15", "CONF-07"), not set(pair) <= set(names), f"one of {' and '.join(pair)}", names)
            for tool, needed in planned.needs:
                holds = tool not in names or needed in names
                b.note(("EVAL-16", "CONF-07", "OPEN-21"), holds, f"{tool} not without {needed}", names)


@check("EVAL-21", "ERR-20", "ERR-40", level=2)
async def interval_limit(b: Bench) -> None:
    """A fact at more times than max_intervals_per_atom is refused"""
    planned = await b.usable_intent()
    timed = next((fact for fact in planned.facts if fact.get("t") is not None), None)
    if timed is None:
        raise Untested("the plan has no facts with a time")
    facts = [*planned.facts, *({**timed, "t": {"at": f"2026-01-01T00:0{n}:00Z"}} for n in range(9))]
    answer = await b.evaluate(planned, facts=facts, constraints={"max_intervals_per_atom": 3})
    b.note_error(answer, "interval_limit_exceeded", "EVAL-21", about="nine times under max_intervals_per_atom 3")
    b.note("ERR-40", isinstance(answer.details.get("budget"), dict), "details.budget", answer.details)
    answer = await b.evaluate(planned, facts=facts, constraints={"max_intervals_per_atom": 100})
    b.note("EVAL-21", answer.type == "intent_response", "an answer under max_intervals_per_atom 100", answer)


@check("EVAL-31", "MANI-13")
async def unknown_intents(b: Bench) -> None:
    """An intent that occurs in no rule brings no tools; a server may refuse it with a code of its own"""
    answer = await b.request(message("intent_request", {"intent": {"name": "conformance_no_such_intent"}}))
    if answer.code in DENIED_CODES:
        raise Untested("policy refuses unknown intents")
    has_no_tools = not answer.tools and (answer.type == "intent_response" or str(answer.code).startswith("x-"))
    b.note(("EVAL-31", "MANI-13"), has_no_tools, "an answer without tools", answer)


@check("EVAL-09", "SEC-03")
async def validation_comes_first(b: Bench) -> None:
    """A request with an invalid fact is not evaluated"""
    planned = await b.usable_intent()
    invalid_fact = {"pred": "_manglecp_internal", "args": []}
    constraints = {"max_facts_created": 0}  # evaluation would exceed this limit
    answer = await b.evaluate(planned, facts=[*planned.facts, invalid_fact], constraints=constraints)
    b.note(("EVAL-09", "SEC-03"), answer.code == "reserved_predicate", "the error of the fact, not a limit", answer)


@check("EVAL-41", "EVAL-14")
async def clients_do_not_decide(b: Bench) -> None:
    """A client cannot assert the facts that decide about tools"""
    planned = await b.usable_intent()
    expected = comparable(await b.evaluate_successfully(planned))
    assertable = {schema["predicate"] for schema in b.predicate_schemas}
    for name in sorted({"mandatory", "selected", "allowed", "client_permission"} - assertable):
        args = ["x", 100] if name == "selected" else ["x"]
        answer = await b.evaluate(planned, facts=[*planned.facts, {"pred": name, "args": args}])
        has_no_effect = answer.type == "error" or comparable(answer) == expected
        b.note(("EVAL-41", "EVAL-14"), has_no_effect, f"no effect of the fact {name}", answer)


@check("DATA-31", "DATA-32", "DATA-34", "CONF-07", level=2)
async def windows(b: Bench) -> None:
    """A tool is offered while its facts are recent, and not afterwards"""
    if not b.plan.windows:
        raise Untested("the plan has no windows")
    for window in b.plan.windows:
        for time, is_offered in ((window.inside, True), (window.outside, False)):
            names = [tool.get("name") for tool in await b.tools(window.intent, eval_time=time)]
            expected = f"{window.tool} {'at' if is_offered else 'not at'} {time}"
            rows = ("DATA-31", "DATA-32", "DATA-34", "CONF-07")
            b.note(rows, (window.tool in names) == is_offered, expected, names)


@check("MANI-18", "CONF-07", level=2, needs_credential=False)
async def temporal_reasoning(b: Bench) -> None:
    """From level 2 on a server reasons about time"""
    flag = get_path(b.manifest, "capabilities", "temporal")
    b.note(("MANI-18", "CONF-07"), flag is True, "capabilities.temporal true", flag)


@check("TOOL-17", "TOOL-18", "TOOL-19", "CONF-11", level=3)
async def expiry(b: Bench) -> None:
    """A tool that depends on recent facts has an expiry, and is not offered afterwards"""
    if not b.plan.windows:
        raise Untested("the plan has no windows")
    options = {"disclosure_preference": "full"}
    for window in b.plan.windows:
        tools = await b.tools(window.intent, eval_time=window.inside, options=options)
        tool = next((tool for tool in tools if tool.get("name") == window.tool), None)
        if tool is None:
            continue
        validity = tool.get("validity")
        expires_at, not_before = get_path(validity, "expires_at"), get_path(validity, "not_before")
        expiry_time = parse_instant(expires_at)
        if not b.note(("TOOL-18", "CONF-11"), expiry_time is not None, "validity.expires_at", validity):
            continue
        times = [parse_instant(window.inside), expiry_time, parse_instant(window.outside)]
        expected = f"an end between {window.inside} and {window.outside}"
        b.note("TOOL-19", _are_in_order(*times), expected, expires_at)
        holds = not_before is None or _are_in_order(parse_instant(not_before), expiry_time)
        b.note("TOOL-17", holds, "not_before before expires_at", validity)


def _are_in_order(*times: float | None) -> bool:
    """Return whether no time is missing and none is after its successor."""
    valid = [time for time in times if time is not None]
    return len(valid) == len(times) and valid == sorted(valid)
