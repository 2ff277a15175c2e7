"""Credentials that are missing, wrong, right, and not sufficient."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from manglecp.conformance.bench import HTTP, SESSIONS, Bench, Untested, check, encode, message, tools_of
from manglecp.conformance.connections import Answer, HttpConnection, member

_WRONG = "conformance-wrong-token"


def _intent() -> dict[str, Any]:
    return message("intent_request", {"intent": {"name": "conformance_access"}})


async def _as(connection: HttpConnection, headers: Mapping[str, str]) -> Answer:
    return await connection.ask(encode(_intent()), credentials=headers)


@check("SEC-17", "SEC-09", "ERR-09", "ERR-10", "TRANS-17", transports=HTTP, access=False)
async def credentials_on_http(b: Bench) -> None:
    """Without a credential, and with a wrong one, nothing is answered"""
    b.require_auth()
    connection = await b.http()
    answer = await _as(connection, {})
    b.refused(answer, "auth_required", "SEC-17", about="a request without a credential")
    b.note("TRANS-17", answer.status == 401, "status 401", answer.status)
    answer = await _as(connection, {"Authorization": f"Bearer {_WRONG}"})
    b.refused(answer, "auth_invalid", "SEC-17", about="a wrong credential")
    schemes = member(b.manifest, "auth", "schemes")
    b.note("SEC-09", bool(schemes), "at least one scheme", schemes)
    if isinstance(schemes, list) and "api_key" in schemes:
        answer = await _as(connection, {"X-MangleCP-API-Key": _WRONG})
        b.refused(answer, "auth_invalid", "SEC-17", about="a wrong API key")


@check("SEC-12", access=False)
async def keys_and_tokens(b: Bench) -> None:
    """A server that accepts API keys accepts bearer tokens too"""
    schemes = member(b.manifest, "auth", "schemes")
    if not isinstance(schemes, list) or "api_key" not in schemes:
        raise Untested("the server takes no API keys")
    b.note("SEC-12", "bearer" in schemes, "bearer among auth.schemes", schemes)


@check("SEC-13", "SEC-17", "ERR-09", "ERR-10", transports=SESSIONS, access=False)
async def credentials_on_sessions(b: Bench) -> None:
    """Before authentication nothing is answered; a wrong credential is refused, and the session goes on"""
    b.require_auth()
    async with b.other_session() as connection:
        answer = await connection.ask(encode(_intent()))
        b.refused(answer, "auth_required", "SEC-13", "SEC-17", about="an intent before authentication")
        invoking = message("invoke_request", {"macro_id": "conformance-none", "args": {}})
        answer = await connection.ask(encode(invoking))
        b.refused(answer, "auth_required", "SEC-13", about="an invocation before authentication")
        answer = await b.authenticate(connection, _WRONG)
        b.refused(answer, "auth_invalid", "SEC-17", about="a wrong credential")
        answer = await connection.ask(encode(_intent()))
        b.refused(answer, "auth_required", "SEC-13", about="an intent after a wrong credential")


@check("SEC-14", "SEC-15", transports=SESSIONS)
async def authenticating(b: Bench) -> None:
    """A valid credential is answered with its identity"""
    b.require_auth()
    async with b.other_session() as connection:
        answer = await b.authenticate(connection)
        b.note("SEC-14", answer.type == "authenticate_response", "authenticate_response", answer)


@check("OPEN-40", "SEC-04")
async def denied_intents(b: Bench) -> None:
    """What policy refuses is refused with the code of the plan"""
    if not b.plan.denied:
        raise Untested("the plan names no intent that is refused")
    for denied in b.plan.denied:
        request = message("intent_request", denied.intent.payload())
        connection = await b.connection()
        if denied.token is None:
            answer = await b.ask(request)
        elif isinstance(connection, HttpConnection):
            headers = {"Authorization": f"Bearer {denied.token}"}
            answer = await connection.ask(encode(request), credentials=headers)
        else:
            async with b.other_session() as session:
                await b.authenticate(session, denied.token)
                answer = await session.ask(encode(request))
        b.refused(answer, denied.code, "OPEN-40", "SEC-04", about=f"the intent {denied.intent.label}")


@check("SEC-27")
async def tools_depend_on_intents(b: Bench) -> None:
    """Different intents bring different tools"""
    tools: dict[str, frozenset[str]] = {}
    for planned in b.plan.intents:
        answer = await b.evaluate(planned)
        if answer.type == "intent_response":
            tools[planned.label] = frozenset(str(tool.get("name")) for tool in tools_of(answer))
    if len(tools) < 2:
        raise Untested("the plan has fewer than two intents")
    b.note("SEC-27", len(set(tools.values())) > 1, "other tools for another intent", tools)
