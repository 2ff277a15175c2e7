"""Checks of invocations and their results. The ids (*rows*) are defined in ``docs/reference/requirements.md``."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import jsonschema_rs

from manglecp.conformance.checks.facts import comparable
from manglecp.conformance.connections import ServerMessage, get_path
from manglecp.conformance.plan import Invocation, PlannedIntent
from manglecp.conformance.server_test import (
    DENIED_CODES,
    SESSIONS,
    ServerTest,
    check,
    invocation_message,
    message,
    require,
)


@check("INVK-09", "INVK-10", "ERR-26", "ERR-27", "SEC-24", "CONF-09", "INVK-05", level=2)
async def approval_is_needed(test: ServerTest) -> None:
    """A tool that needs approval is not invoked without a valid token"""
    for invocation in test.planned_invocations(lambda invocation: invocation.confirm):
        tool = await test.offered_tool(invocation, options={"disclosure_preference": "full"})
        macro_id, safety = tool["macro_id"], tool.get("safety")
        flag = get_path(safety, "requires_user_confirmation")
        test.note("CONF-09", flag is True, f"requires_user_confirmation for {invocation.tool}", safety)
        request, about = invocation_message(macro_id, invocation.args), f"{invocation.tool} without a token"
        await test.expect_error(request, "confirmation_required", "INVK-09", "SEC-24", about=about)
        for token in ("conformance", "v1.forged"):
            request = invocation_message(macro_id, invocation.args, confirmation_token=token)
            await test.expect_error(request, "confirmation_invalid", "INVK-10", about=f"the token {token!r}")
        answer = await test.invoke(macro_id, invocation.args, confirmation_token="")
        is_refused = answer.code in ("confirmation_invalid", "confirmation_required")
        test.note("INVK-10", is_refused, "an error for an empty token", answer)
        if invocation.wrong_args is not None:
            request, about = invocation_message(macro_id, invocation.wrong_args), "wrong arguments and no token"
            await test.expect_error(request, "schema_validation_failed", "INVK-05", about=about)


@check("SEC-22", "CONF-09", "INVK-04", level=2, time_factor=3)
async def approval_is_used(test: ServerTest) -> None:
    """A tool that needs approval is invoked with an approval, once"""
    invocations = test.planned_invocations(lambda invocation: invocation.confirm)
    require(test.has_extension("x-approvals"), "the server's confirmation tokens have a format of their own")
    approver_token = require(test.plan.credentials.approver_token, "the plan has no approver_token")
    require(test.report.transport != "stdio", "standard streams have no second credential")
    for invocation in invocations:
        macro_id, args = await test.macro_id(invocation), invocation.args
        refusal = await test.invoke(macro_id, args)
        approval_id = get_path(refusal.details, "challenge", "approval")
        if not test.note("SEC-22", isinstance(approval_id, str), "the id of an approval request", refusal):
            continue
        request = invocation_message(macro_id, args, confirmation_token=approval_id)
        await test.expect_error(request, "confirmation_required", "SEC-22", about="a request that is not approved")
        approval = message("x-approval_request", {"operation": "approve", "approval": approval_id})
        answer = await test.request_as(test.plan.credentials.token, approval, "approvals")
        test.note_error(answer, DENIED_CODES, "SEC-22", about="an approval by the requester")
        decision = await test.request_as(approver_token, approval, "approvals")
        test.note("SEC-22", decision.type == "x-approval_response", "the approver's decision", decision)
        answer = await test.invoke(macro_id, args, confirmation_token=approval_id)
        was_run = answer.type == "invoke_response" or (invocation.fails and answer.code == "execution_failed")
        test.note(("SEC-22", "CONF-09", "INVK-04"), was_run, f"{invocation.tool} invoked with an approval", answer)
        request = invocation_message(macro_id, args, confirmation_token=approval_id)
        await test.expect_error(request, "confirmation_invalid", "SEC-22", about="the same approval again")


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
