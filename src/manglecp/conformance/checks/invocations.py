"""Checks of invocations and their results. The ids name requirements of ``docs/reference/requirements.md``."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import jsonschema_rs

from manglecp.conformance.bench import DENIED_CODES, SESSIONS, Bench, Untested, check, message
from manglecp.conformance.checks.facts import comparable
from manglecp.conformance.connections import ServerMessage, get_path
from manglecp.conformance.plan import Invocation, PlannedIntent


@check("INVK-06", "ERR-23", "INVK-05")
async def unknown_tools(b: Bench) -> None:
    """A macro_id that was never offered is not found"""
    for macro_id in ("conformance-none", "m-0000000000000000", ""):
        answer = await b.invoke(macro_id, {"conformance": [1]})
        b.note_error(answer, "macro_not_found", "INVK-06", "INVK-05", about=f"the macro_id {macro_id!r}")


@check("INVK-01", "INVK-02", "ERR-06")
async def incomplete_requests(b: Bench) -> None:
    """An invocation has a macro_id and arguments"""
    cases: list[tuple[str, dict[str, Any]]] = [
        ("INVK-01", {"args": {}}),
        ("INVK-01", {"macro_id": 1, "args": {}}),
        ("INVK-02", {"macro_id": "conformance-none"}),
        ("INVK-02", {"macro_id": "conformance-none", "args": []}),
        ("INVK-02", {"macro_id": "conformance-none", "args": "x"}),
    ]
    for row, payload in cases:
        answer = await b.request(message("invoke_request", payload), "invoke")
        b.note_error(answer, "malformed_message", row, about=f"the payload {payload}")


@check("INVK-08", "ERR-25", "ERR-39", "INVK-05", "INVK-02")
async def wrong_arguments(b: Bench) -> None:
    """Arguments that do not fit the schema are refused, with the reasons"""
    for invocation in b.planned_invocations(lambda planned: planned.wrong_args is not None and not planned.expired):
        answer = await b.invoke(await b.macro_id(invocation), invocation.wrong_args)
        about = f"{invocation.wrong_args} for {invocation.tool}"
        b.note_error(answer, "schema_validation_failed", "INVK-08", "INVK-05", "INVK-02", about=about)
        errors = answer.details.get("schema_errors")
        members = {"path", "message", "keyword"}
        has_reasons = isinstance(errors, list) and bool(errors) and all(members <= set(error) for error in errors)
        b.note("ERR-39", has_reasons, "schema_errors with path, message and keyword", answer.details)


@check("INVK-07", "ERR-24", "INVK-05", "OPEN-27", "OPEN-29", level=2)
async def expired_tools(b: Bench) -> None:
    """A tool that has expired is not invoked"""
    for invocation in b.planned_invocations(lambda planned: planned.expired):
        macro_id = await b.macro_id(invocation)
        answer = await b.invoke(macro_id, invocation.args)
        b.note_error(answer, "macro_expired", "INVK-07", about=f"{invocation.tool}, which has expired")
        answer = await b.invoke(macro_id, invocation.args, eval_time=invocation.intent.eval_time)
        b.note_error(answer, "macro_expired", "OPEN-27", about="the same with an eval_time inside the window")
        if invocation.wrong_args is not None:
            answer = await b.invoke(macro_id, invocation.wrong_args)
            b.note_error(answer, "macro_expired", "INVK-05", "OPEN-29", about="the same with wrong arguments")


@check("INVK-09", "INVK-10", "ERR-26", "ERR-27", "SEC-24", "CONF-09", "INVK-05", level=2)
async def approval_is_needed(b: Bench) -> None:
    """A tool that needs approval is not invoked without a valid token"""
    for invocation in b.planned_invocations(lambda planned: planned.confirm):
        tool = await b.offered_tool(invocation, options={"disclosure_preference": "full"})
        macro_id, safety = tool["macro_id"], tool.get("safety")
        flag = get_path(safety, "requires_user_confirmation")
        b.note("CONF-09", flag is True, f"requires_user_confirmation for {invocation.tool}", safety)
        answer = await b.invoke(macro_id, invocation.args)
        about = f"{invocation.tool} without a token"
        b.note_error(answer, "confirmation_required", "INVK-09", "SEC-24", about=about)
        for token in ("conformance", "v1.forged"):
            answer = await b.invoke(macro_id, invocation.args, confirmation_token=token)
            b.note_error(answer, "confirmation_invalid", "INVK-10", about=f"the token {token!r}")
        answer = await b.invoke(macro_id, invocation.args, confirmation_token="")
        is_refused = answer.code in ("confirmation_invalid", "confirmation_required")
        b.note("INVK-10", is_refused, "an error for an empty token", answer)
        if invocation.wrong_args is not None:
            answer = await b.invoke(macro_id, invocation.wrong_args)
            b.note_error(answer, "schema_validation_failed", "INVK-05", about="wrong arguments and no token")


@check("SEC-22", "CONF-09", "INVK-04", level=2, time_factor=3)
async def approval_is_used(b: Bench) -> None:
    """A tool that needs approval is invoked with an approval, once"""
    invocations = b.planned_invocations(lambda planned: planned.confirm)
    if not b.has_extension("x-approvals"):
        raise Untested("the server's confirmation tokens have a format of their own")
    if b.plan.credentials.approver_token is None:
        raise Untested("the plan has no approver_token")
    if (await b.connection()).transport == "stdio":
        raise Untested("standard streams have no second credential")
    for invocation in invocations:
        macro_id = await b.macro_id(invocation)
        refusal = await b.invoke(macro_id, invocation.args)
        approval_id = get_path(refusal.details, "challenge", "approval")
        if not b.note("SEC-22", isinstance(approval_id, str), "the id of an approval request", refusal):
            continue
        too_early = await b.invoke(macro_id, invocation.args, confirmation_token=approval_id)
        b.note_error(too_early, "confirmation_required", "SEC-22", about="a request that is not approved")
        answer = await b.approve(approval_id, b.plan.credentials.token)
        b.note_error(answer, DENIED_CODES, "SEC-22", about="an approval by the requester")
        approved = await b.approve(approval_id, b.plan.credentials.approver_token)
        b.note("SEC-22", approved.type == "x-approval_response", "the approver's decision", approved)
        answer = await b.invoke(macro_id, invocation.args, confirmation_token=approval_id)
        was_run = answer.type == "invoke_response" or (invocation.fails and answer.code == "execution_failed")
        b.note(("SEC-22", "CONF-09", "INVK-04"), was_run, f"{invocation.tool} invoked with an approval", answer)
        again = await b.invoke(macro_id, invocation.args, confirmation_token=approval_id)
        b.note_error(again, "confirmation_invalid", "SEC-22", about="the same approval again")


def _is_plain(planned: Invocation) -> bool:
    return not (planned.confirm or planned.expired or planned.fails or planned.slow)


class _Run(NamedTuple):
    invocation: Invocation
    tool: dict[str, Any]
    answer: ServerMessage


async def _run_planned(b: Bench) -> list[_Run]:
    """Invoke each plain tool of the plan. Later calls return the answers of the first call."""
    if "runs" not in b.cache:
        runs = []
        for invocation in b.planned_invocations(_is_plain):
            tool = await b.offered_tool(invocation, options={"disclosure_preference": "full"})
            runs.append(_Run(invocation, tool, await b.invoke(tool["macro_id"], invocation.args)))
        b.cache["runs"] = runs
    return cast(list[_Run], b.cache["runs"])


@check("CONF-05", "INVK-14", "INVK-15", "INVK-11", time_factor=5)
async def results(b: Bench) -> None:
    """A tool that is invoked answers with a result that fits its schema"""
    for invocation, tool, answer in await _run_planned(b):
        is_response = answer.type == "invoke_response"
        if not b.note(("CONF-05", "INVK-11"), is_response, f"an answer of {invocation.tool}", answer):
            continue
        schema = tool.get("output_schema")
        if isinstance(schema, dict):
            errors = jsonschema_rs.validator_for(schema).iter_errors(answer.payload.get("result"))
            messages = [error.message for error in errors]
            b.note("INVK-15", not messages, "a result that fits output_schema", messages)


@check("INVK-16", "OPEN-33", "OBS-01", level=2, time_factor=5)
async def complete_answers(b: Bench) -> None:
    """An answer has a result, a state_delta, observability and next"""
    for _, _, answer in await _run_planned(b):
        if answer.type != "invoke_response":
            raise Untested("the invocation failed")
        members = ("result", "state_delta", "observability", "next")
        missing = [name for name in members if name not in answer.payload]
        b.note(("INVK-16", "OPEN-33"), not missing, "all four members", f"without {missing}")
        observability = answer.payload.get("observability")
        is_complete = isinstance(observability, dict) and {"summary", "events", "duration_ms"} <= set(observability)
        b.note("OBS-01", is_complete, "summary, events and duration_ms", observability)


@check("CONF-08", "DELTA-02", "DELTA-06", "DATA-45", level=2, time_factor=5)
async def deltas(b: Bench) -> None:
    """Changes are asserted with category and source, and retracted by patterns"""
    has_changes = False
    for _, _, answer in await _run_planned(b):
        for fact in get_path(answer.payload, "state_delta", "assert") or ():
            has_changes = True
            b.note("CONF-08", {"category", "source"} <= set(fact), "category and source", fact)
            b.note("DELTA-06", None not in (fact.get("args") or ()), "no wildcard in assert", fact)
        for fact in get_path(answer.payload, "state_delta", "retract") or ():
            has_changes = True
            b.note("DELTA-06", isinstance(fact.get("args"), list), "a pattern with args", fact)
    if not has_changes:
        raise Untested("no invocation of the plan changes anything")


@check("NEXT-01", "NEXT-03", "NEXT-05", "CONF-08", "NEXT-07", level=2, time_factor=5)
async def suggestions(b: Bench) -> None:
    """A suggested intent can be evaluated, with the continuation facts"""
    runs = [run for run in await _run_planned(b) if run.invocation.suggests is not None]
    if not runs:
        raise Untested("the plan expects no suggestion")
    for invocation, _, answer in runs:
        next_ = answer.payload.get("next")
        suggested = get_path(next_, "suggested_intents") or ()
        matches = [intent for intent in suggested if intent.get("name") == invocation.suggests]
        rows = ("NEXT-01", "CONF-08", "NEXT-07")
        if not b.note(rows, bool(matches), f"{invocation.suggests} as suggested intent", next_):
            continue
        planned = PlannedIntent(
            label=str(invocation.suggests),
            name=str(invocation.suggests),
            eval_time=invocation.intent.eval_time,
            facts=tuple(get_path(next_, "continuation_facts") or ()),
            params=matches[0].get("params"),
        )
        answer = await b.evaluate(planned)
        holds = answer.type == "intent_response" or answer.code in DENIED_CODES
        b.note(("NEXT-03", "NEXT-05"), holds, "an answer to the intent that was suggested", answer)


@check("DELTA-11", "DELTA-13", time_factor=5)
async def deltas_are_advice(b: Bench) -> None:
    """An invocation changes nothing about how the same intent is evaluated"""
    invocation, _, answer = (await _run_planned(b))[0]
    if answer.type != "invoke_response":
        raise Untested("the invocation failed")
    before = comparable(await b.evaluate_successfully(invocation.intent))
    await b.invoke(await b.macro_id(invocation), invocation.args)
    after = comparable(await b.evaluate_successfully(invocation.intent))
    b.note(("DELTA-11", "DELTA-13"), before == after, f"the same tools as before: {before}", after)


@check("OPEN-31", "INVK-12", time_factor=5)
async def tools_outlive_connections(b: Bench) -> None:
    """A tool that was offered on one connection can be invoked on another"""
    connection = await b.connection()
    if connection.transport == "stdio":
        raise Untested("a new connection starts a server process without the tools of the first")
    invocation = b.planned_invocations(_is_plain)[0]
    macro_id = await b.macro_id(invocation)
    await b.disconnect()
    answer = await b.invoke(macro_id, invocation.args)
    b.note(("OPEN-31", "INVK-12"), answer.code != "macro_not_found", "the tool of another connection", answer)


@check("INVK-17", "ERR-28", level=2, time_factor=5)
async def failures(b: Bench) -> None:
    """A run that fails is an error"""
    for invocation in b.planned_invocations(lambda planned: planned.fails and not planned.confirm):
        answer = await b.invoke(await b.macro_id(invocation), invocation.args)
        b.note_error(answer, "execution_failed", "INVK-17", about=f"{invocation.tool}, which fails")


@check("PROG-02", "PROG-05", "PROG-06", "PROG-08", transports=SESSIONS, time_factor=5)
async def progress(b: Bench) -> None:
    """Progress has the id of its request, and comes before the answer"""
    has_progress = False
    for _, _, answer in await _run_planned(b):
        for envelope in answer.progress:
            has_progress = True
            b.note("PROG-05", envelope.get("id") == answer.id, "the id of the invocation", envelope.get("id"))
        b.note("PROG-06", answer.type in ("invoke_response", "error"), "an answer after progress", answer)
    connection = await b.session()
    invocation = b.planned_invocations(_is_plain)[0]
    await b.invoke(await b.macro_id(invocation), invocation.args)
    await b.evaluate(invocation.intent)  # gives late progress the time to arrive
    late_progress = connection.late_progress
    b.note("PROG-08", not late_progress, "no progress after the terminal message", late_progress)
    if not has_progress:
        raise Untested("no invocation of the plan reports progress")
