"""Checks of authentication and permissions. The ids (*rows*) are defined in ``docs/reference/requirements.md``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from manglecp.conformance.connections import HttpConnection, ServerMessage, get_path
from manglecp.conformance.server_test import HTTP, SESSIONS, ServerTest, check, encode, message, require

_WRONG_TOKEN = "conformance-wrong-token"
_NO_AUTH = "the server requires no authentication"


def _intent_request() -> dict[str, Any]:
    return message("intent_request", {"intent": {"name": "conformance_access"}})


async def _request_with(connection: HttpConnection, headers: Mapping[str, str]) -> ServerMessage:
    return await connection.request(encode(_intent_request()), credentials=headers)


@check("SEC-17", "SEC-09", "ERR-09", "ERR-10", "TRANS-17", transports=HTTP, needs_credential=False)
async def credentials_on_http(test: ServerTest) -> None:
    """Requests without a credential, or with a wrong one, are refused"""
    require(test.auth_required, _NO_AUTH)
    connection = await test.http()
    answer = await _request_with(connection, {})
    test.note_error(answer, "auth_required", "SEC-17", about="a request without a credential")
    test.note("TRANS-17", answer.status == 401, "status 401", answer.status)
    answer = await _request_with(connection, {"Authorization": f"Bearer {_WRONG_TOKEN}"})
    test.note_error(answer, "auth_invalid", "SEC-17", about="a wrong credential")
    schemes = get_path(test.manifest, "auth", "schemes")
    test.note("SEC-09", bool(schemes), "at least one scheme", schemes)
    if isinstance(schemes, list) and "api_key" in schemes:
        answer = await _request_with(connection, {"X-MangleCP-API-Key": _WRONG_TOKEN})
        test.note_error(answer, "auth_invalid", "SEC-17", about="a wrong API key")


@check("SEC-13", "SEC-17", "ERR-09", "ERR-10", transports=SESSIONS, needs_credential=False)
async def credentials_on_sessions(test: ServerTest) -> None:
    """Before authentication requests are refused; a wrong credential is refused, and the session continues"""
    require(test.auth_required, _NO_AUTH)
    async with test.other_session() as (session, _):
        answer = await session.request(encode(_intent_request()))
        test.note_error(answer, "auth_required", "SEC-13", "SEC-17", about="an intent before authentication")
        invoke_request = message("invoke_request", {"macro_id": "conformance-none", "args": {}})
        answer = await session.request(encode(invoke_request))
        test.note_error(answer, "auth_required", "SEC-13", about="an invocation before authentication")
        answer = await test.authenticate(session, _WRONG_TOKEN)
        test.note_error(answer, "auth_invalid", "SEC-17", about="a wrong credential")
        answer = await session.request(encode(_intent_request()))
        test.note_error(answer, "auth_required", "SEC-13", about="an intent after a wrong credential")


@check("SEC-14", "SEC-15", transports=SESSIONS)
async def authentication(test: ServerTest) -> None:
    """The response to a valid credential is an authenticate_response"""
    require(test.auth_required, _NO_AUTH)
    async with test.other_session() as (session, _):
        answer = await test.authenticate(session)
        test.note("SEC-14", answer.type == "authenticate_response", "authenticate_response", answer)


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
