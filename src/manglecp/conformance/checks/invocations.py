"""Invocations and their results."""

from __future__ import annotations

from typing import Any, cast

import jsonschema_rs

from manglecp.conformance.bench import SESSIONS, Bench, Untested, check, message
from manglecp.conformance.checks.facts import comparable
from manglecp.conformance.connections import Answer, member
from manglecp.conformance.plan import Invocation, PlannedIntent


@check("INVK-06", "ERR-23", "INVK-05")
async def unknown_tools(b: Bench) -> None:
    """A macro_id that was never offered is not found"""
    for macro_id in ("conformance-none", "m-0000000000000000", ""):
        answer = await b.invoke(macro_id, {"conformance": [1]})
        b.refused(answer, "macro_not_found", "INVK-06", "INVK-05", about=f"the macro_id {macro_id!r}")


@check("INVK-01", "INVK-02", "ERR-06")
async def whole_requests(b: Bench) -> None:
    """An invocation has a macro_id and arguments"""
    cases: list[tuple[str, dict[str, Any]]] = [
        ("INVK-01", {"args": {}}),
        ("INVK-01", {"macro_id": 1, "args": {}}),
        ("INVK-02", {"macro_id": "conformance-none"}),
        ("INVK-02", {"macro_id": "conformance-none", "args": []}),
        ("INVK-02", {"macro_id": "conformance-none", "args": "x"}),
    ]
    for row, payload in cases:
        answer = await b.ask(message("invoke_request", payload), "invoke")
        b.refused(answer, "malformed_message", row, about=f"the payload {payload}")


@check("INVK-08", "ERR-25", "ERR-39", "INVK-05", "INVK-02")
async def wrong_arguments(b: Bench) -> None:
    """Arguments that do not fit the schema are refused, with the reasons"""
    for invocation in b.invocations(lambda one: one.wrong_args is not None and not one.expired):
        answer = await b.invoke(await b.macro_id(invocation), invocation.wrong_args)
        about = f"{invocation.wrong_args} for {invocation.tool}"
        b.refused(answer, "schema_validation_failed", "INVK-08", "INVK-05", "INVK-02", about=about)
        errors = answer.details.get("schema_errors")
        whole = (
            isinstance(errors, list) and bool(errors) and all({"path", "message", "keyword"} <= set(e) for e in errors)
        )
        b.note("ERR-39", whole, "schema_errors with path, message and keyword", answer.details)


@check("INVK-07", "ERR-24", "INVK-05", "OPEN-27", "OPEN-29", level=2)
async def expired_tools(b: Bench) -> None:
    """A tool whose window is over is not invoked"""
    for invocation in b.invocations(lambda one: one.expired):
        macro_id = await b.macro_id(invocation)
        answer = await b.invoke(macro_id, invocation.args)
        b.refused(answer, "macro_expired", "INVK-07", about=f"{invocation.tool}, which has expired")
        answer = await b.invoke(macro_id, invocation.args, eval_time=invocation.intent.eval_time)
        b.refused(answer, "macro_expired", "OPEN-27", about="the same with an eval_time inside the window")
        if invocation.wrong_args is not None:
            answer = await b.invoke(macro_id, invocation.wrong_args)
            b.refused(answer, "macro_expired", "INVK-05", "OPEN-29", about="the same with wrong arguments")


@check("INVK-09", "INVK-10", "ERR-26", "ERR-27", "SEC-24", "CONF-09", "INVK-05", level=2)
async def approval_is_needed(b: Bench) -> None:
    """A tool that needs approval is not invoked without a token that holds"""
    for invocation in b.invocations(lambda one: one.confirm):
        tool = await b.tool(invocation, options={"disclosure_preference": "full"})
        macro_id, safety = tool["macro_id"], tool.get("safety")
        flag = member(safety, "requires_user_confirmation")
        b.note("CONF-09", flag is True, f"requires_user_confirmation for {invocation.tool}", safety)
        answer = await b.invoke(macro_id, invocation.args)
        rows = ("INVK-09", "SEC-24")
        b.refused(answer, "confirmation_required", *rows, about=f"{invocation.tool} without a token")
        for token in ("conformance", "v1.forged"):
            answer = await b.invoke(macro_id, invocation.args, confirmation_token=token)
            b.refused(answer, "confirmation_invalid", "INVK-10", about=f"the token {token!r}")
        answer = await b.invoke(macro_id, invocation.args, confirmation_token="")
        refused = answer.code in ("confirmation_invalid", "confirmation_required")
        b.note("INVK-10", refused, "an error for an empty token", answer)
        if invocation.wrong_args is not None:
            answer = await b.invoke(macro_id, invocation.wrong_args)
            about = "wrong arguments and no token"
            b.refused(answer, "schema_validation_failed", "INVK-05", about=about)


@check("SEC-22", "CONF-09", "INVK-04", level=2, patience=3)
async def approval_is_used(b: Bench) -> None:
    """With an approval it is invoked, once"""
    invocations = b.invocations(lambda one: one.confirm)
    if not b.has_extension("x-approvals"):
        raise Untested("the server's confirmation tokens have a format of their own")
    if b.plan.credentials.approver_token is None:
        raise Untested("the plan has no approver_token")
    if (await b.connection()).transport == "stdio":
        raise Untested("standard streams have no second credential")
    for invocation in invocations:
        macro_id = await b.macro_id(invocation)
        requested = await b.invoke(macro_id, invocation.args)
        approval = member(requested.details, "challenge", "approval")
        if not b.note("SEC-22", isinstance(approval, str), "the id of an approval request", requested):
            continue
        early = await b.invoke(macro_id, invocation.args, confirmation_token=approval)
        b.refused(early, "confirmation_required", "SEC-22", about="a request that is not approved")
        own = await b.approve(approval, as_approver=False)
        b.refused(own, ("auth_required", "auth_insufficient"), "SEC-22", about="an approval by the requester")
        approved = await b.approve(approval)
        b.note("SEC-22", approved.type == "x-approval_response", "the approver's decision", approved)
        answer = await b.invoke(macro_id, invocation.args, confirmation_token=approval)
        went = answer.type == "invoke_response" or (invocation.fails and answer.code == "execution_failed")
        b.note(("SEC-22", "CONF-09", "INVK-04"), went, f"{invocation.tool} invoked with an approval", answer)
        again = await b.invoke(macro_id, invocation.args, confirmation_token=approval)
        b.refused(again, "confirmation_invalid", "SEC-22", about="the same approval again")


def _plain(one: Invocation) -> bool:
    return not (one.confirm or one.expired or one.fails or one.slow)


async def _run_planned(b: Bench) -> list[tuple[Invocation, dict[str, Any], Answer]]:
    """Invoke each tool of the plan that needs no special handling, once in a run."""
    if "runs" not in b.cache:
        runs = []
        for invocation in b.invocations(_plain):
            tool = await b.tool(invocation, options={"disclosure_preference": "full"})
            runs.append((invocation, tool, await b.invoke(tool["macro_id"], invocation.args)))
        b.cache["runs"] = runs
    return cast(list[tuple[Invocation, dict[str, Any], Answer]], b.cache["runs"])


@check("CONF-05", "INVK-14", "INVK-15", "INVK-11", patience=5)
async def results(b: Bench) -> None:
    """A tool that is invoked answers with a result that fits its schema"""
    for invocation, tool, answer in await _run_planned(b):
        rows = ("CONF-05", "INVK-11")
        if not b.note(rows, answer.type == "invoke_response", f"an answer of {invocation.tool}", answer):
            continue
        schema = tool.get("output_schema")
        if isinstance(schema, dict):
            errors = jsonschema_rs.validator_for(schema).iter_errors(answer.payload.get("result"))
            messages = [error.message for error in errors]
            b.note("INVK-15", not messages, "a result that fits output_schema", messages)


@check("INVK-16", "OPEN-33", "OBS-01", level=2, patience=5)
async def whole_outcomes(b: Bench) -> None:
    """An answer has its result, delta, observability and what comes next"""
    for _, _, answer in await _run_planned(b):
        if answer.type != "invoke_response":
            raise Untested("the invocation failed")
        missing = [n for n in ("result", "state_delta", "observability", "next") if n not in answer.payload]
        b.note(("INVK-16", "OPEN-33"), not missing, "all four members", f"without {missing}")
        seen = answer.payload.get("observability")
        whole = isinstance(seen, dict) and {"summary", "events", "duration_ms"} <= set(seen)
        b.note("OBS-01", whole, "summary, events and duration_ms", seen)


@check("CONF-08", "DELTA-02", "DELTA-06", "DATA-45", level=2, patience=5)
async def deltas(b: Bench) -> None:
    """What changed is asserted with category and source, and retracted by patterns"""
    asserted = retracted = 0
    for _, _, answer in await _run_planned(b):
        for fact in member(answer.payload, "state_delta", "assert") or ():
            asserted += 1
            b.note("CONF-08", {"category", "source"} <= set(fact), "category and source", fact)
            b.note("DELTA-06", None not in (fact.get("args") or ()), "no wildcard in assert", fact)
        for fact in member(answer.payload, "state_delta", "retract") or ():
            retracted += 1
            b.note("DELTA-06", isinstance(fact.get("args"), list), "a pattern with args", fact)
    if not asserted and not retracted:
        raise Untested("no invocation of the plan changes anything")


@check("NEXT-01", "NEXT-03", "NEXT-05", "CONF-08", "NEXT-07", level=2, patience=5)
async def suggestions(b: Bench) -> None:
    """What is suggested can be asked for, with the facts that go with it"""
    wanted = [(one, answer) for one, _, answer in await _run_planned(b) if one.suggests is not None]
    if not wanted:
        raise Untested("the plan expects no suggestion")
    for invocation, answer in wanted:
        following = answer.payload.get("next")
        suggested = member(following, "suggested_intents") or ()
        matches = [one for one in suggested if one.get("name") == invocation.suggests]
        rows = ("NEXT-01", "CONF-08", "NEXT-07")
        if not b.note(rows, bool(matches), f"{invocation.suggests} as suggested intent", following):
            continue
        planned = PlannedIntent(
            label=str(invocation.suggests),
            name=str(invocation.suggests),
            eval_time=invocation.intent.eval_time,
            facts=tuple(member(following, "continuation_facts") or ()),
            params=matches[0].get("params"),
        )
        after = await b.evaluate(planned)
        allowed = after.type == "intent_response" or after.code in ("auth_required", "auth_insufficient")
        b.note(("NEXT-03", "NEXT-05"), allowed, "an answer to the intent that was suggested", after)


@check("DELTA-11", "DELTA-13", patience=5)
async def deltas_are_advice(b: Bench) -> None:
    """An invocation changes nothing about how the same intent is evaluated"""
    invocation, _, answer = (await _run_planned(b))[0]
    if answer.type != "invoke_response":
        raise Untested("the invocation failed")
    before = comparable(await b.response(invocation.intent))
    await b.invoke(await b.macro_id(invocation), invocation.args)
    after = comparable(await b.response(invocation.intent))
    b.note(("DELTA-11", "DELTA-13"), before == after, f"the same tools as before: {before}", after)


@check("OPEN-31", "INVK-12", patience=5)
async def tools_outlive_connections(b: Bench) -> None:
    """A tool that was given on one connection can be invoked on another"""
    connection = await b.connection()
    if connection.transport == "stdio":
        raise Untested("another process need not know it")
    invocation = b.invocations(_plain)[0]
    macro_id = await b.macro_id(invocation)
    await b.drop()
    answer = await b.invoke(macro_id, invocation.args)
    b.note(("OPEN-31", "INVK-12"), answer.code != "macro_not_found", "the tool of another connection", answer)


@check("INVK-17", "ERR-28", level=2, patience=5)
async def failures(b: Bench) -> None:
    """A run that fails is an error"""
    for invocation in b.invocations(lambda one: one.fails and not one.confirm):
        answer = await b.invoke(await b.macro_id(invocation), invocation.args)
        b.refused(answer, "execution_failed", "INVK-17", about=f"{invocation.tool}, which fails")


@check("PROG-02", "PROG-05", "PROG-06", "PROG-08", transports=SESSIONS, patience=5)
async def progress(b: Bench) -> None:
    """Progress has the id of its request, and an answer comes after it and nothing after that"""
    reported = 0
    for _, _, answer in await _run_planned(b):
        for one in answer.progress:
            reported += 1
            b.note("PROG-05", one.get("id") == answer.message.get("id"), "the id of the invocation", one.get("id"))
        b.note("PROG-06", answer.type in ("invoke_response", "error"), "an answer after progress", answer)
    connection = await b.session()
    invocation = b.invocations(_plain)[0]
    await b.invoke(await b.macro_id(invocation), invocation.args)
    await b.evaluate(invocation.intent)  # whatever is late has come when this is answered
    b.note("PROG-08", not connection.late, "no progress after the terminal message", connection.late)
    if not reported:
        raise Untested("no invocation of the plan reports progress")
