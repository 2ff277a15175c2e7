"""Checks of invocations and their results. The ids (*rows*) are defined in ``docs/reference/requirements.md``."""

from __future__ import annotations

from manglecp.conformance.connections import get_path
from manglecp.conformance.plan import Invocation, PlannedIntent
from manglecp.conformance.server_test import (
    DENIED_CODES,
    SESSIONS,
    ServerTest,
    check,
    require,
)


@check("NEXT-01", "NEXT-03", "NEXT-05", "CONF-08", "NEXT-07", level=2, time_factor=5)
async def suggestions(test: ServerTest) -> None:
    """A suggested intent can be evaluated, with the continuation facts"""
    runs = [run for run in await test.runs() if run[0].suggests is not None]
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


@check("OPEN-31", "INVK-12", time_factor=5)
async def tools_outlive_connections(test: ServerTest) -> None:
    """A tool that was offered on one connection can be invoked on another"""
    require(test.report.transport != "stdio", "a new connection starts a server process without the tools of the first")
    invocation = test.planned_invocations(Invocation.is_plain)[0]
    macro_id = await test.macro_id(invocation)
    await test.disconnect()
    answer = await test.invoke(macro_id, invocation.args)
    test.note(("OPEN-31", "INVK-12"), answer.code != "macro_not_found", "the tool of another connection", answer)


@check("PROG-02", "PROG-05", "PROG-06", "PROG-08", transports=SESSIONS, time_factor=5)
async def progress(test: ServerTest) -> None:
    """Progress has the id of its request, and comes before the answer"""
    has_progress = False
    for _, _, answer in await test.runs():
        for envelope in answer.progress:
            has_progress = True
            test.note("PROG-05", envelope.get("id") == answer.id, "the id of the invocation", envelope.get("id"))
        test.note("PROG-06", answer.type in ("invoke_response", "error"), "an answer after progress", answer)
    connection = await test.session()
    invocation = test.planned_invocations(Invocation.is_plain)[0]
    await test.invoke(await test.macro_id(invocation), invocation.args)
    await test.evaluate(invocation.intent)  # gives late progress the time to arrive
    late_progress = connection.late_progress
    test.note("PROG-08", not late_progress, "no progress after the terminal message", late_progress)
    require(has_progress, "no invocation of the plan reports progress")
