"""Checks of invocations and their results. The ids (*rows*) are defined in ``docs/reference/requirements.md``."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import jsonschema_rs

from manglecp.conformance.connections import ServerMessage, comparable, get_path
from manglecp.conformance.plan import Invocation, PlannedIntent
from manglecp.conformance.server_test import (
    DENIED_CODES,
    SESSIONS,
    ServerTest,
    check,
    require,
)


def _is_plain(invocation: Invocation) -> bool:
    """Return whether the invocation can succeed at once: without an approval, before its expiry, and fast."""
    return not (invocation.confirm or invocation.expired or invocation.fails or invocation.slow)


class _Run(NamedTuple):
    """An invocation of the plan, the tool that the server offered for it, and the answer to the invocation."""

    invocation: Invocation
    tool: dict[str, Any]
    answer: ServerMessage


async def _run_planned(test: ServerTest) -> list[_Run]:
    """Invoke each plain tool of the plan. Later calls return the cached answers."""
    if "runs" not in test.cache:
        runs = []
        for invocation in test.planned_invocations(_is_plain):
            tool = await test.offered_tool(invocation, options={"disclosure_preference": "full"})
            runs.append(_Run(invocation, tool, await test.invoke(tool["macro_id"], invocation.args)))
        test.cache["runs"] = runs
    return cast(list[_Run], test.cache["runs"])


@check("CONF-05", "INVK-14", "INVK-15", "INVK-11", time_factor=5)
async def results(test: ServerTest) -> None:
    """A tool that is invoked answers with a result that fits its schema"""
    for invocation, tool, answer in await _run_planned(test):
        is_response = answer.type == "invoke_response"
        if not test.note(("CONF-05", "INVK-11"), is_response, f"an answer of {invocation.tool}", answer):
            continue
        schema = tool.get("output_schema")
        if isinstance(schema, dict):
            errors = jsonschema_rs.validator_for(schema).iter_errors(answer.payload.get("result"))
            messages = [error.message for error in errors]
            test.note("INVK-15", not messages, "a result that fits output_schema", messages)


@check("INVK-16", "OPEN-33", "OBS-01", level=2, time_factor=5)
async def complete_answers(test: ServerTest) -> None:
    """An answer has a result, a state_delta, observability and next"""
    for _, _, answer in await _run_planned(test):
        require(answer.type == "invoke_response", "the invocation failed")
        members = ("result", "state_delta", "observability", "next")
        missing_members = [name for name in members if name not in answer.payload]
        test.note(("INVK-16", "OPEN-33"), not missing_members, "all four members", f"without {missing_members}")
        observability = answer.payload.get("observability")
        is_complete = isinstance(observability, dict) and {"summary", "events", "duration_ms"} <= set(observability)
        test.note("OBS-01", is_complete, "summary, events and duration_ms", observability)


@check("CONF-08", "DELTA-02", "DELTA-06", "DATA-45", level=2, time_factor=5)
async def deltas(test: ServerTest) -> None:
    """Changes are asserted with category and source, and retracted by patterns"""
    has_changes = False
    for _, _, answer in await _run_planned(test):
        for fact in get_path(answer.payload, "state_delta", "assert") or ():
            has_changes = True
            test.note("CONF-08", {"category", "source"} <= set(fact), "category and source", fact)
            test.note("DELTA-06", None not in (fact.get("args") or ()), "no wildcard in assert", fact)
        for fact in get_path(answer.payload, "state_delta", "retract") or ():
            has_changes = True
            test.note("DELTA-06", isinstance(fact.get("args"), list), "a pattern with args", fact)
    require(has_changes, "no invocation of the plan has a delta")


@check("NEXT-01", "NEXT-03", "NEXT-05", "CONF-08", "NEXT-07", level=2, time_factor=5)
async def suggestions(test: ServerTest) -> None:
    """A suggested intent can be evaluated, with the continuation facts"""
    runs = [run for run in await _run_planned(test) if run.invocation.suggests is not None]
    for invocation, _, answer in require(runs, "the plan expects no suggestion"):
        next_ = answer.payload.get("next")
        suggested_intents = get_path(next_, "suggested_intents") or ()
        matches = [intent for intent in suggested_intents if intent.get("name") == invocation.suggests]
        rows = ("NEXT-01", "CONF-08", "NEXT-07")
        if not test.note(rows, bool(matches), f"{invocation.suggests} as suggested intent", next_):
            continue
        intent = PlannedIntent(
            label=str(invocation.suggests),
            name=str(invocation.suggests),
            eval_time=invocation.intent.eval_time,
            facts=tuple(get_path(next_, "continuation_facts") or ()),
            params=matches[0].get("params"),
        )
        answer = await test.evaluate(intent)
        holds = answer.type == "intent_response" or answer.code in DENIED_CODES
        test.note(("NEXT-03", "NEXT-05"), holds, "an answer to the intent that was suggested", answer)


@check("DELTA-11", "DELTA-13", time_factor=5)
async def deltas_are_advice(test: ServerTest) -> None:
    """An invocation changes nothing about how the same intent is evaluated"""
    invocation, _, answer = (await _run_planned(test))[0]
    require(answer.type == "invoke_response", "the invocation failed")
    before = comparable(await test.evaluate_successfully(invocation.intent))
    await test.invoke(await test.macro_id(invocation), invocation.args)
    after = comparable(await test.evaluate_successfully(invocation.intent))
    test.note(("DELTA-11", "DELTA-13"), before == after, f"the same tools as before: {before}", after)


@check("OPEN-31", "INVK-12", time_factor=5)
async def tools_outlive_connections(test: ServerTest) -> None:
    """A tool that was offered on one connection can be invoked on another"""
    require(test.report.transport != "stdio", "a new connection starts a server process without the tools of the first")
    invocation = test.planned_invocations(_is_plain)[0]
    macro_id = await test.macro_id(invocation)
    await test.disconnect()
    answer = await test.invoke(macro_id, invocation.args)
    test.note(("OPEN-31", "INVK-12"), answer.code != "macro_not_found", "the tool of another connection", answer)


@check("PROG-02", "PROG-05", "PROG-06", "PROG-08", transports=SESSIONS, time_factor=5)
async def progress(test: ServerTest) -> None:
    """Progress has the id of its request, and comes before the answer"""
    has_progress = False
    for _, _, answer in await _run_planned(test):
        for envelope in answer.progress:
            has_progress = True
            test.note("PROG-05", envelope.get("id") == answer.id, "the id of the invocation", envelope.get("id"))
        test.note("PROG-06", answer.type in ("invoke_response", "error"), "an answer after progress", answer)
    connection = await test.session()
    invocation = test.planned_invocations(_is_plain)[0]
    await test.invoke(await test.macro_id(invocation), invocation.args)
    await test.evaluate(invocation.intent)  # gives late progress the time to arrive
    late_progress = connection.late_progress
    test.note("PROG-08", not late_progress, "no progress after the terminal message", late_progress)
    require(has_progress, "no invocation of the plan reports progress")
