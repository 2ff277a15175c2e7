"""Checks of intents and facts. The ids (*rows*) are defined in ``docs/reference/requirements.md``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from manglecp.conformance.connections import comparable, get_objects, get_path, parse_instant
from manglecp.conformance.server_test import DENIED_CODES, ServerTest, check, require

_REPETITIONS: Final = 100
_NO_WINDOWS: Final = "the plan has no windows"
_SLACK_MS: Final = 250  # an evaluation may take this much longer than its limit


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
