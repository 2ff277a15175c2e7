"""The objects that a check uses: a connection to the server, its manifest, the plan, and the report.

A *row* is the id of a requirement, for example ``WIRE-01``.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from manglecp.conformance.connections import (
    Connection,
    Endpoint,
    HttpConnection,
    ServerMessage,
    SessionConnection,
    StdioConnection,
    Transport,
    WebSocketConnection,
    get_objects,
    get_path,
)
from manglecp.conformance.message_rules import CODE_ROWS, Watcher
from manglecp.conformance.plan import Invocation, Plan, PlannedIntent, format_instant
from manglecp.conformance.report import Report
from manglecp.wire.messages import VERSION

Transports = tuple[Transport, ...]
ALL_TRANSPORTS: Final[Transports] = ("http", "websocket", "stdio")
HTTP: Final[Transports] = ("http",)
SESSIONS: Final[Transports] = ("websocket", "stdio")
Run = Callable[["Bench"], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Check:
    """A test of some requirements. The watcher tests the requirements that concern every single message."""

    run: Run
    rows: tuple[str, ...]
    level: int  # the lowest conformance level with these requirements
    transports: Transports
    needs_credential: bool  # whether it needs a credential if the server requires authentication
    time_factor: float  # its time limit, in multiples of the usual one

    @property
    def name(self) -> str:
        return (self.run.__doc__ or "").partition("\n")[0].rstrip(".")


def check(
    *rows: str,
    level: int = 1,
    transports: Transports = ALL_TRANSPORTS,
    needs_credential: bool = True,
    time_factor: float = 1,
) -> Callable[[Run], Check]:
    """Turn a function into a check of these rows; the first line of its docstring is the name of the check."""
    return lambda run: Check(run, rows, level, transports, needs_credential, time_factor)


Target = str | Sequence[str]
"""A URL, or the command and arguments that start a server on standard streams."""
DENIED_CODES: Final = ("auth_required", "auth_insufficient")
BUSY_CODES: Final = ("rate_limited", "server_not_ready")
_MAX_ATTEMPTS: Final = 5
_ids = itertools.count(1)


def transport_of(target: Target) -> Transport:
    if not isinstance(target, str):
        return "stdio"
    return "websocket" if target.startswith(("ws://", "wss://")) else "http"


class Untested(Exception):
    """A check cannot be made; the message is the reason for the report."""


def message(type_: str, payload: Mapping[str, Any] | None = None, /, **changes: Any) -> dict[str, Any]:
    """Return an envelope with a fresh id; ``changes`` replace members, and the value ``...`` removes one."""
    envelope = {"type": type_, "id": f"conformance-{next(_ids)}", "manglecp": VERSION, "payload": dict(payload or {})}
    return {name: value for name, value in {**envelope, **changes}.items() if value is not ...}


def encode(envelope: Mapping[str, Any]) -> bytes:
    return json.dumps(envelope, ensure_ascii=False).encode()


class Bench:
    """One run of the checks against one server."""

    def __init__(self, target: Target, plan: Plan, report: Report, watcher: Watcher, now: float) -> None:
        self.plan = plan
        self.report = report
        self.watcher = watcher
        self.now = now  # the start of the run, as Unix time in seconds
        self.manifest: dict[str, Any] = {}  # its payload
        self.cache: dict[str, Any] = {}  # results that several checks use
        self.check: Check | None = None  # the running check
        self.noted: set[str] = set()  # rows that the running check has noted
        self._target = target
        self.shared_connection: Connection | None = None

    def new_connection(self) -> Connection:
        """Return another connection to the server, not yet opened."""
        if not isinstance(self._target, str):
            return StdioConnection(self._target, self.watcher)
        if transport_of(self._target) == "websocket":
            return WebSocketConnection(self._target, self.watcher)
        credentials = self.plan.credentials
        return HttpConnection(self._target, self.watcher, credentials.headers_of(credentials.token))

    async def connection(self) -> Connection:
        """Return the connection that checks share; open and authenticate it at the first use."""
        if self.shared_connection is None:
            connection = self.shared_connection = self.new_connection()
            self.manifest = (await connection.open()).payload
            has_token = self.plan.credentials.token is not None
            if isinstance(connection, SessionConnection) and self.auth_required and has_token:
                await self.authenticate(connection)
        return self.shared_connection

    @asynccontextmanager
    async def other_session(self) -> AsyncIterator[SessionConnection]:
        """Open another session without authenticating it, and close it at the end."""
        connection = self.new_connection()
        assert isinstance(connection, SessionConnection)
        try:
            await connection.open()
            yield connection
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
        """Close the shared connection; its next use opens another."""
        connection, self.shared_connection = self.shared_connection, None
        if connection is not None:
            await connection.close()

    async def authenticate(self, connection: SessionConnection, token: str | None = None) -> ServerMessage:
        """Send this token, or that of the plan, in the scheme of the plan."""
        credentials = self.plan.credentials
        payload = {"scheme": credentials.scheme, "token": token or credentials.token}
        return await connection.request(encode(message("authenticate", payload)))

    async def request_as(
        self, token: str | None, envelope: Mapping[str, Any], endpoint: Endpoint = "evaluate"
    ) -> ServerMessage:
        """Send a request with another credential, or with none; if the server has sessions, in a session of its own."""
        connection = await self.connection()
        if isinstance(connection, HttpConnection):
            headers = self.plan.credentials.headers_of(token)
            return await connection.request(encode(envelope), endpoint, credentials=headers)
        async with self.other_session() as session:
            if token is not None:
                await self.authenticate(session, token)
            return await session.request(encode(envelope))

    async def approve(self, approval_id: str, token: str | None) -> ServerMessage:
        """Approve a request of the extension ``x-approvals``, with this credential."""
        payload = {"operation": "approve", "approval": approval_id}
        return await self.request_as(token, message("x-approval_request", payload), "approvals")

    def has_extension(self, name: str) -> bool:
        extensions = self.manifest.get("extensions")
        return isinstance(extensions, dict) and name in extensions

    @property
    def auth_required(self) -> bool:
        return get_path(self.manifest, "auth", "required") is True

    def require_auth(self) -> None:
        if not self.auth_required:
            raise Untested("the server requires no authentication")

    def note(self, rows: str | Sequence[str], holds: bool, expected: str = "", seen: object = "") -> bool:
        """Record in the report whether these requirements hold, and return ``holds``."""
        assert self.check is not None
        for row in (rows,) if isinstance(rows, str) else rows:
            assert row in self.check.rows, f"{row} is not among the rows of this check"
            self.noted.add(row)
            self.report.note(row, holds, expected, str(seen), self.check.name)
        return holds

    def note_error(self, answer: ServerMessage, code: str | Sequence[str], *rows: str, about: str) -> bool:
        """Record whether the answer is an error with this code (or one of these), and return whether it is.

        It is recorded for ``rows``, and for the rows of the codes if the check has these. ``about`` is the request.
        """
        assert self.check is not None
        codes = (code,) if isinstance(code, str) else tuple(code)
        code_rows = [CODE_ROWS[name] for name in codes if CODE_ROWS.get(name) in self.check.rows]
        return self.note([*rows, *code_rows], answer.code in codes, f"{' or '.join(codes)} for {about}", answer)

    async def request(self, request: Mapping[str, Any] | bytes, endpoint: Endpoint = "evaluate") -> ServerMessage:
        """Send a request on the shared connection, and repeat it while the server is busy. Return the last answer."""
        connection = await self.connection()
        for _ in range(_MAX_ATTEMPTS):
            answer = await connection.request(request if isinstance(request, bytes) else encode(request), endpoint)
            delay_ms = answer.payload.get("retry_after_ms")
            if answer.code not in BUSY_CODES or not isinstance(delay_ms, int):
                break
            await asyncio.sleep(delay_ms / 1_000)
        return answer

    async def evaluate(self, planned: PlannedIntent, **changes: Any) -> ServerMessage:
        """Evaluate an intent; ``changes`` replace members of the payload, and the value ``...`` removes one."""
        return await self.request(message("intent_request", planned.payload(**changes)))

    async def tools(self, planned: PlannedIntent, **changes: Any) -> list[dict[str, Any]]:
        """Evaluate an intent and return the offered tools. Raises :class:`Untested` for an error."""
        return (await self.evaluate_successfully(planned, **changes)).tools

    async def nonempty_tools(self, planned: PlannedIntent, **changes: Any) -> list[dict[str, Any]]:
        """Evaluate an intent and return the offered tools. Raises :class:`Untested` if there are none."""
        tools = await self.tools(planned, **changes)
        if not tools:
            raise Untested("the intent brings no tools")
        return tools

    async def evaluate_successfully(self, planned: PlannedIntent, **changes: Any) -> ServerMessage:
        """Evaluate an intent. Raises :class:`Untested` for an error."""
        answer = await self.evaluate(planned, **changes)
        if answer.type != "intent_response":
            raise Untested(f"the intent {planned.label} is answered with {answer.code}")
        return answer

    async def usable_intent(self) -> PlannedIntent:
        """Return an intent that the server evaluates without an error, if possible one that brings tools.

        The intents are those of the plan, or else of the manifest. Raises :class:`Untested` if there is none.
        """
        if "intent" not in self.cache:
            self.cache["intent"] = await self._find_intent()
        intent: PlannedIntent | None = self.cache["intent"]
        if intent is None:
            raise Untested(f"no intent can be evaluated{'' if self.plan.from_file else ' without a plan'}")
        return intent

    async def _find_intent(self) -> PlannedIntent | None:
        without_tools: PlannedIntent | None = None
        for planned in self.plan.intents or self._listed_intents():
            answer = await self.evaluate(planned)
            if answer.type == "intent_response":
                if answer.tools:
                    return planned
                without_tools = without_tools or planned
        return without_tools

    def _listed_intents(self) -> list[PlannedIntent]:
        """Return the intents of the manifest that require no facts."""
        return [
            PlannedIntent(label=intent["name"], name=intent["name"], eval_time=format_instant(self.now))
            for intent in get_objects(self.manifest, "intents")
            if isinstance(intent.get("name"), str) and not intent.get("required_facts")
        ]

    def assertable_predicate(self, condition: Callable[[dict[str, Any]], bool] = lambda _: True) -> dict[str, Any]:
        """Return the first predicate schema of the manifest that clients may assert and that meets the condition."""
        for schema in self.predicate_schemas:
            if schema.get("direction", "both") != "output" and condition(schema):
                return schema
        raise Untested("the manifest has no predicate for this check")

    @property
    def predicate_schemas(self) -> list[dict[str, Any]]:
        schemas = get_objects(self.manifest, "facts_profile", "predicates")
        return [schema for schema in schemas if {"predicate", "arity"} <= set(schema)]

    def planned_invocations(self, condition: Callable[[Invocation], bool]) -> list[Invocation]:
        """Return the invocations of the plan that meet the condition. Raises :class:`Untested` if there are none."""
        invocations = list(filter(condition, self.plan.invocations))
        if not invocations:
            raise Untested("the plan names no tool for this check")
        return invocations

    async def offered_tool(self, invocation: Invocation, **changes: Any) -> dict[str, Any]:
        """Evaluate the intent of an invocation and return its tool. Raises :class:`Untested` if it is not offered."""
        for tool in await self.tools(invocation.intent, **changes):
            if tool.get("name") == invocation.tool and isinstance(tool.get("macro_id"), str):
                return tool
        raise Untested(f"the intent {invocation.intent.label} brings no tool {invocation.tool}")

    async def macro_id(self, invocation: Invocation) -> str:
        return str((await self.offered_tool(invocation))["macro_id"])

    async def invoke(self, macro_id: str, args: Any, **members: Any) -> ServerMessage:
        """Invoke a tool; ``members`` are added to the payload."""
        return await self.request(message("invoke_request", {"macro_id": macro_id, "args": args, **members}), "invoke")

    def manifest_limit(self, name: str) -> int:
        """Return a member of ``limits`` in the manifest. Raises :class:`Untested` if it has none."""
        value = get_path(self.manifest, "limits", name)
        if type(value) is not int:
            raise Untested(f"the manifest has no limits.{name}")
        return value
