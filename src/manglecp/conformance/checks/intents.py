"""Checks of the evaluation of intents. The ids (*rows*) are defined in ``docs/reference/requirements.md``."""

from __future__ import annotations

from typing import Any, Final

from manglecp.conformance.connections import comparable, get_objects, get_path, parse_instant
from manglecp.conformance.server_test import ServerTest, check, message, require

_REPETITIONS: Final = 100
_NO_WINDOWS: Final = "the plan has no windows"
_SLACK_MS: Final = 250  # an evaluation may take this much longer than its limit


@check("CONF-04", "EVAL-27", "EVAL-13", "EVAL-14")
async def planned_intents(test: ServerTest) -> None:
    """Intents of the plan return the tools that it expects"""
    if not test.plan.intents:
        await test.usable_intent()
        test.note(("CONF-04", "EVAL-27"), True)
        return
    denied_labels = {denied.intent.label for denied in test.plan.denied if denied.token is None}
    for intent in test.plan.intents:
        if intent.label in denied_labels:
            continue
        answer = await test.evaluate(intent)
        test.note(("CONF-04", "EVAL-27"), answer.type == "intent_response", f"an answer to {intent.label}", answer)
        names = [tool.get("name") for tool in answer.tools]
        missing_names = [name for name in intent.expects if name not in names]
        test.note("CONF-04", not missing_names, f"{', '.join(intent.expects)} for {intent.label}", names)
        extra_names = [name for name in intent.absent if name in names]
        expected = f"none of {', '.join(intent.absent)} for {intent.label}"
        test.note(("EVAL-13", "EVAL-14"), not extra_names, expected, extra_names)


@check("CONF-14", "CONF-15", "EVAL-18", "EVAL-11", "TOOL-02", time_factor=10)
async def determinism(test: ServerTest) -> None:
    """The same request a hundred times returns the same tools, levels and scores"""
    intent = await test.usable_intent()
    options = {"include_proof_hints": True} if test.report.level == 3 else {}
    first_results: tuple[Any, ...] | None = None
    for number in range(1, _REPETITIONS + 1):
        answer = await test.evaluate_successfully(intent, options=options)
        derived_count = get_path(answer.payload, "diagnostics", "facts_derived")
        derivations = get_objects(answer.payload, "proof_hints", "derivations")
        scores = sorted((str(proof.get("macro_id")), str(proof.get("score"))) for proof in derivations)
        tools = comparable(answer)
        ids = [tool[0] for tool in tools]
        first_results = first_results or (ids, tools, scores, derived_count)
        first_ids, first_tools, first_scores, first_count = first_results
        has_same_ids = ids == first_ids
        test.note(("CONF-14", "EVAL-18"), has_same_ids, f"the macro_ids {first_ids}", f"answer {number}: {ids}")
        test.note("TOOL-02", has_same_ids, "ids that are not random", ids)
        expected, seen = (first_tools, first_scores), (tools, scores)
        rows = ("CONF-15", "EVAL-18")
        test.note(rows, seen == expected, f"the levels and scores {expected}", f"answer {number}: {seen}")
        if derived_count is not None:
            holds, seen_count = derived_count == first_count, f"answer {number}: {derived_count}"
            test.note("EVAL-11", holds, f"facts_derived {first_count}", seen_count)


@check("DATA-47", "EVAL-10", "NEXT-06")
async def facts_are_not_kept(test: ServerTest) -> None:
    """Facts of one request are gone in the next"""
    with_facts = [intent for intent in test.plan.intents if intent.facts and intent.expects]
    intent = require(with_facts, "the plan has no intent with facts and expected tools")[0]
    before = await test.evaluate(intent, facts=[])
    await test.evaluate_successfully(intent)
    after = await test.evaluate(intent, facts=[])
    rows = ("DATA-47", "EVAL-10", "NEXT-06")
    is_same = (before.type, before.code, comparable(before)) == (after.type, after.code, comparable(after))
    test.note(rows, is_same, f"the same as before without facts: {before}", after)


@check("EVAL-22", "ERR-18", "TRANS-18")
async def compute_limit(test: ServerTest) -> None:
    """Evaluation stops at max_compute_ms"""
    intent = await test.usable_intent()
    answer = await test.evaluate(intent, constraints={"max_compute_ms": 0})
    if answer.type == "intent_response":
        duration_ms = answer.payload.get("eval_duration_ms")
        is_slow = isinstance(duration_ms, int) and duration_ms > _SLACK_MS
        require(is_slow, f"the intent {intent.label} is evaluated too fast")
        test.note("EVAL-22", False, "evaluation_timeout for max_compute_ms 0", f"an answer after {duration_ms} ms")
        return
    test.note_error(answer, "evaluation_timeout", "EVAL-22", about="max_compute_ms 0")
    if answer.status is not None:
        test.note("TRANS-18", answer.status == 408, "status 408", answer.status)


@check("EVAL-30", "OPEN-21")
async def fewer_tools(test: ServerTest) -> None:
    """No more tools than max_tools_returned, and no error"""
    intent = await test.usable_intent()
    all_ids = {tool.get("macro_id") for tool in await test.tools(intent)}
    for limit in (0, 1, 2):
        answer = await test.evaluate(intent, constraints={"max_tools_returned": limit})
        ids = {tool.get("macro_id") for tool in answer.tools}
        test.note("OPEN-21", answer.type == "intent_response", "an answer", answer)
        holds = len(ids) <= limit and ids <= all_ids
        test.note("EVAL-30", holds, f"{limit} tools at most", sorted(map(str, ids)))


@check("EVAL-25", "DATA-32", "DATA-33", "EVAL-04")
async def evaluation_time(test: ServerTest) -> None:
    """The time of the client is used, or else the clock of the server, and is returned"""
    intent = await test.usable_intent()
    time_used = (await test.evaluate_successfully(intent)).payload.get("eval_time_used")
    is_equal = parse_instant(time_used) == parse_instant(intent.eval_time)
    test.note(("EVAL-25", "DATA-32"), is_equal, intent.eval_time, time_used)
    answer = await test.evaluate(intent, eval_time=...)
    if answer.type == "intent_response":
        time_used = answer.payload.get("eval_time_used")
        instant = parse_instant(time_used)
        is_present = instant is not None and abs(instant - test.now) < 86_400  # clocks may differ by a day
        test.note(("DATA-33", "EVAL-04"), is_present, "about the present time", time_used)


@check("EVAL-15", "EVAL-16", "CONF-07", "OPEN-21", level=2)
async def rivals_and_needs(test: ServerTest) -> None:
    """Only one of two rivals is returned, and no tool without the tool that it needs"""
    cases = [intent for intent in test.plan.intents if intent.rivals or intent.needs]
    for intent in require(cases, "the plan names no rivals and no needs"):
        for limit in (None, 1, 2):
            tools = await test.tools(intent, constraints={"max_tools_returned": limit})
            names = [tool.get("name") for tool in tools]
            for pair in intent.rivals:
                test.note(("EVAL-15", "CONF-07"), not set(pair) <= set(names), f"one of {' and '.join(pair)}", names)
            for tool, needed_tool in intent.needs:
                holds = tool not in names or needed_tool in names
                test.note(("EVAL-16", "CONF-07", "OPEN-21"), holds, f"{tool} not without {needed_tool}", names)


@check("EVAL-21", "ERR-20", "ERR-40", level=2)
async def interval_limit(test: ServerTest) -> None:
    """A fact at more times than max_intervals_per_atom is refused"""
    intent = await test.usable_intent()
    timed_facts = [fact for fact in intent.facts if fact.get("t") is not None]
    timed_fact = require(timed_facts, "the plan has no facts with a time")[0]
    facts = [*intent.facts, *({**timed_fact, "t": {"at": f"2026-01-01T00:0{n}:00Z"}} for n in range(9))]
    answer = await test.evaluate(intent, facts=facts, constraints={"max_intervals_per_atom": 3})
    test.note_error(answer, "interval_limit_exceeded", "EVAL-21", about="nine times under max_intervals_per_atom 3")
    test.note("ERR-40", isinstance(answer.details.get("budget"), dict), "details.budget", answer.details)
    answer = await test.evaluate(intent, facts=facts, constraints={"max_intervals_per_atom": 100})
    test.note("EVAL-21", answer.type == "intent_response", "an answer under max_intervals_per_atom 100", answer)


@check("EVAL-41", "EVAL-14")
async def clients_do_not_decide(test: ServerTest) -> None:
    """A client cannot assert the facts that decide about tools"""
    intent = await test.usable_intent()
    expected_tools = comparable(await test.evaluate_successfully(intent))
    assertable = {schema["predicate"] for schema in test.predicate_schemas}
    for name in sorted({"mandatory", "selected", "allowed", "client_permission"} - assertable):
        args = ["x", 100] if name == "selected" else ["x"]
        answer = await test.evaluate(intent, facts=[*intent.facts, {"pred": name, "args": args}])
        has_no_effect = answer.type == "error" or comparable(answer) == expected_tools
        test.note(("EVAL-41", "EVAL-14"), has_no_effect, f"no effect of the fact {name}", answer)


@check("DATA-31", "DATA-32", "DATA-34", "CONF-07", level=2)
async def windows(test: ServerTest) -> None:
    """A tool is offered while its facts are recent, and not afterwards"""
    for window in require(test.plan.windows, _NO_WINDOWS):
        for time, is_offered in ((window.inside, True), (window.outside, False)):
            names = [tool.get("name") for tool in await test.tools(window.intent, eval_time=time)]
            expected = f"{window.tool} {'at' if is_offered else 'not at'} {time}"
            rows = ("DATA-31", "DATA-32", "DATA-34", "CONF-07")
            test.note(rows, (window.tool in names) == is_offered, expected, names)


@check("TOOL-17", "TOOL-18", "TOOL-19", "CONF-11", level=3)
async def expiry(test: ServerTest) -> None:
    """A tool that depends on recent facts has an expiry, and is not offered afterwards"""
    options = {"disclosure_preference": "full"}
    for window in require(test.plan.windows, _NO_WINDOWS):
        tools = await test.tools(window.intent, eval_time=window.inside, options=options)
        tool = next((tool for tool in tools if tool.get("name") == window.tool), None)
        if tool is None:
            continue
        validity = tool.get("validity")
        expires_at, not_before = get_path(validity, "expires_at"), get_path(validity, "not_before")
        expiry_time = parse_instant(expires_at)
        if not test.note(("TOOL-18", "CONF-11"), expiry_time is not None, "validity.expires_at", validity):
            continue
        times = [parse_instant(window.inside), expiry_time, parse_instant(window.outside)]
        expected = f"an end between {window.inside} and {window.outside}"
        test.note("TOOL-19", _are_in_order(*times), expected, expires_at)
        holds = not_before is None or _are_in_order(parse_instant(not_before), expiry_time)
        test.note("TOOL-17", holds, "not_before before expires_at", validity)


def _are_in_order(*times: float | None) -> bool:
    """Return whether no time is missing and none is after its successor."""
    valid_times = [time for time in times if time is not None]
    return len(valid_times) == len(times) and valid_times == sorted(valid_times)


@check("OPEN-40", "SEC-04")
async def denied_intents(test: ServerTest) -> None:
    """An intent that policy refuses is refused with the code of the plan"""
    for case in require(test.plan.denied, "the plan names no intent that is refused"):
        request = message("intent_request", case.intent.payload())
        answer = await (test.request(request) if case.token is None else test.request_as(case.token, request))
        test.note_error(answer, case.code, "OPEN-40", "SEC-04", about=f"the intent {case.intent.label}")


@check("SEC-27")
async def tools_depend_on_intents(test: ServerTest) -> None:
    """Different intents return different tools"""
    names_by_intent: dict[str, frozenset[str]] = {}
    for intent in test.plan.intents:
        answer = await test.evaluate(intent)
        if answer.type == "intent_response":
            names_by_intent[intent.label] = frozenset(str(tool.get("name")) for tool in answer.tools)
    require(len(names_by_intent) >= 2, "the plan has fewer than two intents that can be evaluated")
    test.note("SEC-27", len(set(names_by_intent.values())) > 1, "other tools for another intent", names_by_intent)
