"""Invocation: what is refused, in which order, and consent."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from typing import Any

from manglecp.base.digest import digest
from manglecp.conformance.bench import Bench, Untested, message
from manglecp.conformance.lines.line import Answer
from manglecp.conformance.plan import Invocation
from manglecp.conformance.registry import check
from manglecp.invoke import sign


@check("INVK-06", "ERR-23", "INVK-05")
async def unknown_tools(b: Bench) -> None:
    """A macro_id that nobody was given is not found"""
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
    """Arguments that do not fit the schema are refused, and told why"""
    for invocation in b.invocations(lambda one: one.wrong_args is not None and not one.expired):
        macro_id = await b.macro_id(invocation)
        answer = await b.invoke(macro_id, invocation.wrong_args)
        about = f"{invocation.wrong_args} for {invocation.tool}"
        b.refused(answer, "schema_validation_failed", "INVK-08", "INVK-05", "INVK-02", about=about)
        errors = answer.details.get("schema_errors")
        whole = (
            isinstance(errors, list) and bool(errors) and all({"path", "message", "keyword"} <= set(e) for e in errors)
        )
        b.that("ERR-39", whole, "schema_errors with path, message and keyword", answer.details)


@check("INVK-07", "ERR-24", "INVK-05", "OPEN-27", "OPEN-29", level=2)
async def expired_tools(b: Bench) -> None:
    """A tool whose window is over is not invoked"""
    for invocation in b.invocations(lambda one: one.expired):
        macro_id = await b.macro_id(invocation)
        answer = await b.invoke(macro_id, dict(invocation.args))
        b.refused(answer, "macro_expired", "INVK-07", about=f"{invocation.tool}, which has expired")
        answer = await b.invoke(macro_id, dict(invocation.args), eval_time=invocation.intent.eval_time)
        b.refused(answer, "macro_expired", "OPEN-27", about="the same with an eval_time inside the window")
        if invocation.wrong_args is not None:
            answer = await b.invoke(macro_id, invocation.wrong_args)
            b.refused(answer, "macro_expired", "INVK-05", "OPEN-29", about="the same with wrong arguments")


@check("INVK-09", "INVK-10", "ERR-26", "ERR-27", "SEC-24", "CONF-09", "INVK-05", level=2)
async def consent_is_needed(b: Bench) -> None:
    """A tool that needs consent is not invoked without a token that holds"""
    for invocation in b.invocations(lambda one: one.confirm):
        macro_id, tool = await _full(b, invocation)
        safety = tool.get("safety")
        flag = safety.get("requires_user_confirmation") if isinstance(safety, dict) else None
        b.that("CONF-09", flag is True, f"requires_user_confirmation for {invocation.tool}", safety)
        answer = await b.invoke(macro_id, dict(invocation.args))
        rows = ("INVK-09", "SEC-24")
        b.refused(answer, "confirmation_required", *rows, about=f"{invocation.tool} without a token")
        for token in ("conformance", "v1.forged"):
            answer = await b.invoke(macro_id, dict(invocation.args), confirmation_token=token)
            b.refused(answer, "confirmation_invalid", "INVK-10", about=f"the token {token!r}")
        answer = await b.invoke(macro_id, dict(invocation.args), confirmation_token="")
        refused = answer.code in ("confirmation_invalid", "confirmation_required")
        b.that("INVK-10", refused, "an error for an empty token", answer)
        if invocation.wrong_args is not None:
            answer = await b.invoke(macro_id, invocation.wrong_args)
            about = "wrong arguments and no token"
            b.refused(answer, "schema_validation_failed", "INVK-05", about=about)


@check("SEC-21", "SEC-22", "CONF-09", "INVK-04", level=2, patience=3)
async def consent_is_taken(b: Bench) -> None:
    """With a token that holds it is invoked, once"""
    invocations = b.invocations(lambda one: one.confirm)
    secret = b.plan.credentials.secret
    if secret is None:
        raise Untested("the plan has no secret to confirm with")
    for invocation in invocations:
        macro_id, _ = await _full(b, invocation)
        asked = await b.invoke(macro_id, dict(invocation.args))
        token = _token(b, secret, macro_id, invocation.args, asked)
        answer = await b.invoke(macro_id, dict(invocation.args), confirmation_token=token)
        went = answer.type == "invoke_response" or (invocation.fails and answer.code == "execution_failed")
        b.that(("SEC-21", "SEC-22", "CONF-09", "INVK-04"), went, f"{invocation.tool} invoked with consent", answer)
        again = await b.invoke(macro_id, dict(invocation.args), confirmation_token=token)
        b.refused(again, "confirmation_invalid", "SEC-22", about="the same token again")


def _token(b: Bench, secret: bytes, macro_id: str, args: Mapping[str, Any], asked: Answer) -> str:
    """As this project makes them: over the tool, the arguments, who confirms, a nonce and the time."""
    challenge = asked.details.get("challenge")
    given = challenge if isinstance(challenge, dict) else {}
    nonce, issued = given.get("nonce"), given.get("issued_ms")
    if not isinstance(nonce, str) or not isinstance(issued, int):
        nonce, issued = secrets.token_urlsafe(24), time.time_ns() // 1_000_000
    return sign(secret, b.plan.credentials.identity, macro_id, digest(args), nonce, issued)


async def _full(b: Bench, invocation: Invocation) -> tuple[str, dict[str, Any]]:
    tools = await b.tools(invocation.intent, options={"disclosure_preference": "full"})
    for tool in tools:
        if tool.get("name") == invocation.tool:
            return str(tool.get("macro_id")), tool
    raise Untested(f"the intent {invocation.intent.label} brings no tool {invocation.tool}")
