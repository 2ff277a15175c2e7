"""The test of one server: with its methods, checks send requests and record whether requirements hold.

A *row* is the id of a requirement, for example ``WIRE-01``.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from manglecp.conformance.connections import (
    Connection,
    Endpoint,
    HttpConnection,
    ServerMessage,
    SessionConnection,
    TransportName,
    get_objects,
    get_path,
)
from manglecp.conformance.message_rules import CODE_ROWS, Watcher
from manglecp.conformance.plan import Invocation, Plan, PlannedIntent, format_instant
from manglecp.conformance.report import Report
from manglecp.wire.messages import VERSION

Transports = tuple[TransportName, ...]
ALL_TRANSPORTS: Final[Transports] = ("http", "websocket", "stdio")
HTTP: Final[Transports] = ("http",)
SESSIONS: Final[Transports] = ("websocket", "stdio")
Run = Callable[["ServerTest"], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Check:
    """A function that tests some requirements. The watcher tests the requirements that apply to every message."""

    run: Run
    name: str
    rows: tuple[str, ...]
    level: int  # the lowest conformance level with these requirements
    transports: Transports
    needs_credential: bool  # whether the check needs a credential if the server requires authentication
    time_factor: float  # the time limit of the check, as a multiple of the usual limit


def check(
    *rows: str,
    level: int = 1,
    transports: Transports = ALL_TRANSPORTS,
    needs_credential: bool = True,
    time_factor: float = 1,
) -> Callable[[Run], Check]:
    """Turn a function into a check of these rows; its docstring is the name of the check."""
    return lambda run: Check(run, run.__doc__ or "", rows, level, transports, needs_credential, time_factor)


Request = Mapping[str, Any] | bytes
"""An envelope, or the bytes to send, which need not be a message."""
Target = str | Sequence[str]
"""A URL, or the command and arguments that start a server on standard streams."""
DENIED_CODES: Final = ("auth_required", "auth_insufficient")
BUSY_CODES: Final = ("rate_limited", "server_not_ready")
_MAX_ATTEMPTS: Final = 5
_ids: Final = itertools.count(1)
T = TypeVar("T")


def transport_of(target: Target) -> TransportName:
    if not isinstance(target, str):
        return "stdio"
    return "websocket" if target.startswith(("ws://", "wss://")) else "http"


class Untested(Exception):
    """A check cannot be executed; the message is the reason for the report."""


def require(value: T | None, reason: str) -> T:
    """Return the value. Raises :class:`Untested` with this reason if it is None, false or empty."""
    if not value:
        raise Untested(reason)
    return value


def message(type_: str, payload: Mapping[str, Any] | None = None, /, **changes: Any) -> dict[str, Any]:
    """Return an envelope with a fresh id; ``changes`` replace members, and the value ``...`` removes one."""
    envelope = {"type": type_, "id": f"conformance-{next(_ids)}", "manglecp": VERSION, "payload": dict(payload or {})}
    return {name: value for name, value in {**envelope, **changes}.items() if value is not ...}


def invocation_message(macro_id: str, args: Any, **members: Any) -> dict[str, Any]:
    """Return an ``invoke_request``; ``members`` are added to its payload."""
    return message("invoke_request", {"macro_id": macro_id, "args": args, **members})


def encode(envelope: Mapping[str, Any]) -> bytes:
    return json.dumps(envelope, ensure_ascii=False).encode()


class ServerTest:
    """One execution of checks against one server."""

    def __init__(self, target: Target, plan: Plan, report: Report, watcher: Watcher, now: float) -> None:
        self.plan = plan
        self.report = report
        self.watcher = watcher
        self.now = now  # the start of the test, as Unix time in seconds
        self.first_message: ServerMessage  # the first message on the shared connection
        self.manifest: dict[str, Any] = {}  # the payload of the manifest
        self._intent: tuple[PlannedIntent | None] | None = None  # the usable intent, once it was searched for
        self._runs: list[tuple[Invocation, dict[str, Any], ServerMessage]] | None = None
        self.check: Check | None = None  # the current check
        self.noted: set[str] = set()  # rows that the current check has noted
        self._target = target
        self.shared_connection: Connection | None = None

    def new_connection(self) -> Connection:
        """Return another connection to the server, not yet opened."""
        if isinstance(self._target, str) and transport_of(self._target) == "http":
            credentials = self.plan.credentials
            return HttpConnection(self._target, self.watcher, credentials.headers_of(credentials.token))
        return SessionConnection(self._target, self.watcher)

    async def connection(self) -> Connection:
        """Return the connection that checks share; open and authenticate it at the first use."""
        if self.shared_connection is None:
            connection = self.shared_connection = self.new_connection()
            self.first_message = await connection.open()
            self.manifest = self.first_message.payload
            has_token = self.plan.credentials.token is not None
            if isinstance(connection, SessionConnection) and self.auth_required and has_token:
                await self.authenticate(connection)
        return self.shared_connection

    @asynccontextmanager
    async def other_session(self) -> AsyncIterator[tuple[SessionConnection, ServerMessage]]:
        """Yield another session, without authentication, and its first message."""
        connection = self.new_connection()
        assert isinstance(connection, SessionConnection)
        try:
            yield connection, await connection.open()
        finally:
            await connection.close()

    async def http(self) -> HttpConnection:
        connection = await self.connection()
        assert isinstance(connection, HttpConnection)
        return connection

    async def session(self) -> SessionConnection:
        connection = await self.connection()
        assert isinstance(connection, SessionConnection)
        return connection

    async def disconnect(self) -> None:
        """Close the shared connection; the next use opens a new one."""
        connection, self.shared_connection = self.shared_connection, None
        if connection is not None:
            await connection.close()

    async def authenticate(self, connection: SessionConnection, token: str | None = None) -> ServerMessage:
        """Send this token, by default the token of the plan, in the scheme of the plan."""
        credentials = self.plan.credentials
        payload = {"scheme": credentials.scheme, "token": token or credentials.token}
        return await connection.request(encode(message("authenticate", payload)))

    async def request_as(
        self, token: str | None, envelope: Mapping[str, Any], endpoint: Endpoint = "evaluate"
    ) -> ServerMessage:
        """Send a request with another credential, or with none; over a transport with sessions, in a new session."""
        connection = await self.connection()
        if isinstance(connection, HttpConnection):
            headers = self.plan.credentials.headers_of(token)
            return await connection.request(encode(envelope), endpoint, credentials=headers)
        async with self.other_session() as (session, _):
            if token is not None:
                await self.authenticate(session, token)
            return await session.request(encode(envelope))

    def has_extension(self, name: str) -> bool:
        extensions = self.manifest.get("extensions")
        return isinstance(extensions, dict) and name in extensions

    @property
    def auth_required(self) -> bool:
        return get_path(self.manifest, "auth", "required") is True

    def note(self, rows: str | Sequence[str], holds: bool, expected: str = "", seen: object = "") -> bool:
        """Record in the report whether these requirements hold, and return ``holds``."""
        assert self.check is not None
        for row in (rows,) if isinstance(rows, str) else rows:
            assert row in self.check.rows, f"{row} is not among the rows of this check"
            self.noted.add(row)
            self.report.note(row, holds, expected, str(seen))
        return holds

    def note_error(self, answer: ServerMessage, code: str | Sequence[str], *rows: str, about: str) -> bool:
        """Record and return whether the answer is an error with ``code``, or with one of several codes.

        The result is recorded for ``rows``, and for those rows of the codes that the check has. ``about`` describes the
        request.
        """
        assert self.check is not None
        codes = (code,) if isinstance(code, str) else tuple(code)
        code_rows = [CODE_ROWS[name] for name in codes if CODE_ROWS.get(name) in self.check.rows]
        return self.note([*rows, *code_rows], answer.code in codes, f"{' or '.join(codes)} for {about}", answer)

    async def request(self, request: Request, endpoint: Endpoint | None = None) -> ServerMessage:
        """Send a request on the shared connection, and repeat it while the server is busy. Return the last answer.

        The default ``endpoint`` follows from the type of the request.
        """
        connection = await self.connection()
        if endpoint is None:
            is_invocation = isinstance(request, Mapping) and request.get("type") == "invoke_request"
            endpoint = "invoke" if is_invocation else "evaluate"
        for _ in range(_MAX_ATTEMPTS):
            answer = await connection.request(request if isinstance(request, bytes) else encode(request), endpoint)
            delay_ms = answer.payload.get("retry_after_ms")
            if answer.code not in BUSY_CODES or not isinstance(delay_ms, int):
                break
            await asyncio.sleep(delay_ms / 1_000)
        return answer

    async def evaluate(self, intent: PlannedIntent, /, **changes: Any) -> ServerMessage:
        """Evaluate an intent; ``changes`` replace members of the payload, and the value ``...`` removes one."""
        return await self.request(message("intent_request", intent.payload(**changes)))

    async def evaluate_successfully(self, intent: PlannedIntent, /, **changes: Any) -> ServerMessage:
        """Evaluate an intent as :meth:`evaluate` does. Raises :class:`Untested` for an error."""
        answer = await self.evaluate(intent, **changes)
        require(answer.type == "intent_response", f"the intent {intent.label} is answered with {answer.code}")
        return answer

    async def tools(self, intent: PlannedIntent, /, **changes: Any) -> list[dict[str, Any]]:
        """Evaluate an intent and return the offered tools. Raises :class:`Untested` for an error."""
        return (await self.evaluate_successfully(intent, **changes)).tools

    async def usable_intent(self) -> PlannedIntent:
        """Return an intent that the server evaluates without an error, if possible one that returns tools.

        The intents come from the plan or, if it has none, from the manifest. Raises :class:`Untested` if no intent is
        usable.
        """
        if self._intent is None:
            self._intent = (await self._find_intent(),)
        reason = "no intent can be evaluated" if self.plan.from_file else "no intent can be evaluated without a plan"
        return require(self._intent[0], reason)

    async def _find_intent(self) -> PlannedIntent | None:
        without_tools: PlannedIntent | None = None
        for intent in self.plan.intents or self._listed_intents():
            answer = await self.evaluate(intent)
            if answer.type == "intent_response":
                if answer.tools:
                    return intent
                without_tools = without_tools or intent
        return without_tools

    def _listed_intents(self) -> Iterator[PlannedIntent]:
        """Yield the intents of the manifest that require no facts."""
        for intent in get_objects(self.manifest, "intents"):
            if isinstance(name := intent.get("name"), str) and not intent.get("required_facts"):
                yield PlannedIntent(label=name, name=name, eval_time=format_instant(self.now))

    @property
    def predicate_schemas(self) -> list[dict[str, Any]]:
        schemas = get_objects(self.manifest, "facts_profile", "predicates")
        return [schema for schema in schemas if {"predicate", "arity"} <= set(schema)]

    def planned_invocations(self, condition: Callable[[Invocation], bool]) -> list[Invocation]:
        """Return the invocations of the plan that meet the condition. Raises :class:`Untested` if there are none."""
        return require(list(filter(condition, self.plan.invocations)), "the plan names no tool for this check")

    async def offered_tool(self, invocation: Invocation, **changes: Any) -> dict[str, Any]:
        """Evaluate the intent of an invocation and return its tool. Raises :class:`Untested` if it is not offered."""
        for tool in await self.tools(invocation.intent, **changes):
            if tool.get("name") == invocation.tool and isinstance(tool.get("macro_id"), str):
                return tool
        raise Untested(f"the intent {invocation.intent.label} returns no tool {invocation.tool}")

    async def runs(self) -> list[tuple[Invocation, dict[str, Any], ServerMessage]]:
        """Invoke each plain tool of the plan, once per test. Return invocation, offered tool and answer."""
        if self._runs is None:
            runs = []
            for invocation in self.planned_invocations(Invocation.is_plain):
                tool = await self.offered_tool(invocation, options={"disclosure_preference": "full"})
                runs.append((invocation, tool, await self.invoke(tool["macro_id"], invocation.args)))
            self._runs = runs
        return self._runs

    async def macro_id(self, invocation: Invocation) -> str:
        return str((await self.offered_tool(invocation))["macro_id"])

    async def invoke(self, macro_id: str, args: Any, **members: Any) -> ServerMessage:
        """Invoke a tool; ``members`` are added to the payload."""
        return await self.request(invocation_message(macro_id, args, **members))

    def manifest_limit(self, name: str) -> int:
        """Return a member of ``limits`` in the manifest. Raises :class:`Untested` if the member is absent."""
        value = get_path(self.manifest, "limits", name)
        if type(value) is not int:
            raise Untested(f"the manifest has no limits.{name}")
        return value
