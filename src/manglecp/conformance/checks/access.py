"""Checks of authentication and permissions. The ids name requirements of ``docs/reference/requirements.md``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from manglecp.conformance.bench import HTTP, SESSIONS, Bench, Untested, check, encode, message
from manglecp.conformance.connections import HttpConnection, ServerMessage, get_path

_WRONG_TOKEN = "conformance-wrong-token"


def _intent_request() -> dict[str, Any]:
    return message("intent_request", {"intent": {"name": "conformance_access"}})


async def _request_with(connection: HttpConnection, headers: Mapping[str, str]) -> ServerMessage:
    return await connection.request(encode(_intent_request()), credentials=headers)


@check("SEC-17", "SEC-09", "ERR-09", "ERR-10", "TRANS-17", transports=HTTP, needs_credential=False)
async def credentials_on_http(b: Bench) -> None:
    """Requests without a credential, or with a wrong one, are refused"""
    b.require_auth()
    connection = await b.http()
    answer = await _request_with(connection, {})
    b.note_error(answer, "auth_required", "SEC-17", about="a request without a credential")
    b.note("TRANS-17", answer.status == 401, "status 401", answer.status)
    answer = await _request_with(connection, {"Authorization": f"Bearer {_WRONG_TOKEN}"})
    b.note_error(answer, "auth_invalid", "SEC-17", about="a wrong credential")
    schemes = get_path(b.manifest, "auth", "schemes")
    b.note("SEC-09", bool(schemes), "at least one scheme", schemes)
    if isinstance(schemes, list) and "api_key" in schemes:
        answer = await _request_with(connection, {"X-MangleCP-API-Key": _WRONG_TOKEN})
        b.note_error(answer, "auth_invalid", "SEC-17", about="a wrong API key")


@check("SEC-12", needs_credential=False)
async def keys_and_tokens(b: Bench) -> None:
    """A server that accepts API keys accepts bearer tokens too"""
    schemes = get_path(b.manifest, "auth", "schemes")
    if not isinstance(schemes, list) or "api_key" not in schemes:
        raise Untested("the server accepts no API keys")
    b.note("SEC-12", "bearer" in schemes, "bearer among auth.schemes", schemes)


@check("SEC-13", "SEC-17", "ERR-09", "ERR-10", transports=SESSIONS, needs_credential=False)
async def credentials_on_sessions(b: Bench) -> None:
    """Before authentication requests are refused; a wrong credential is refused, and the session continues"""
    b.require_auth()
    async with b.other_session() as connection:
        answer = await connection.request(encode(_intent_request()))
        b.note_error(answer, "auth_required", "SEC-13", "SEC-17", about="an intent before authentication")
        invoke_request = message("invoke_request", {"macro_id": "conformance-none", "args": {}})
        answer = await connection.request(encode(invoke_request))
        b.note_error(answer, "auth_required", "SEC-13", about="an invocation before authentication")
        answer = await b.authenticate(connection, _WRONG_TOKEN)
        b.note_error(answer, "auth_invalid", "SEC-17", about="a wrong credential")
        answer = await connection.request(encode(_intent_request()))
        b.note_error(answer, "auth_required", "SEC-13", about="an intent after a wrong credential")


@check("SEC-14", "SEC-15", transports=SESSIONS)
async def authentication(b: Bench) -> None:
    """The response to a valid credential is an authenticate_response"""
    b.require_auth()
    async with b.other_session() as connection:
        answer = await b.authenticate(connection)
        b.note("SEC-14", answer.type == "authenticate_response", "authenticate_response", answer)


@check("OPEN-40", "SEC-04")
async def denied_intents(b: Bench) -> None:
    """An intent that policy refuses is refused with the code of the plan"""
    if not b.plan.denied:
        raise Untested("the plan names no intent that is refused")
    for denied in b.plan.denied:
        request = message("intent_request", denied.intent.payload())
        answer = await (b.request(request) if denied.token is None else b.request_as(denied.token, request))
        b.note_error(answer, denied.code, "OPEN-40", "SEC-04", about=f"the intent {denied.intent.label}")


@check("SEC-27")
async def tools_depend_on_intents(b: Bench) -> None:
    """Different intents bring different tools"""
    names_by_intent: dict[str, frozenset[str]] = {}
    for planned in b.plan.intents:
        answer = await b.evaluate(planned)
        if answer.type == "intent_response":
            names_by_intent[planned.label] = frozenset(str(tool.get("name")) for tool in answer.tools)
    if len(names_by_intent) < 2:
        raise Untested("the plan has fewer than two intents that can be evaluated")
    b.note("SEC-27", len(set(names_by_intent.values())) > 1, "other tools for another intent", names_by_intent)
