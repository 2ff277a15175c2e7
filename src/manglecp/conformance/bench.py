"""What a check works with: a connection to the server, its manifest, the plan, and the report."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from manglecp.conformance.connections import (
    Answer,
    Connection,
    End,
    HttpConnection,
    SessionConnection,
    StdioConnection,
    Transport,
    WebSocketConnection,
    member,
)
from manglecp.conformance.message_rules import CODE_ROWS, Watcher
from manglecp.conformance.plan import Invocation, Plan, PlannedIntent, instant
from manglecp.conformance.report import Report
from manglecp.wire.messages import VERSION

ALL: Final[tuple[Transport, ...]] = ("http", "websocket", "stdio")
HTTP: Final[tuple[Transport, ...]] = ("http",)
SESSIONS: Final[tuple[Transport, ...]] = ("websocket", "stdio")
STDIO: Final[tuple[Transport, ...]] = ("stdio",)
WEBSOCKET: Final[tuple[Transport, ...]] = ("websocket",)
Run = Callable[["Bench"], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Check:
    """A check of requirements, of which the watcher notes those about single messages.

    ``access``: it needs a credential; ``patience``: a factor of its time limit.
    """

    run: Run
    rows: tuple[str, ...]
    level: int
    transports: tuple[Transport, ...]
    access: bool
    patience: float

    @property
    def name(self) -> str:
        return (self.run.__doc__ or "").partition("\n")[0].rstrip(".")


def check(
    *rows: str,
    level: int = 1,
    transports: tuple[Transport, ...] = ALL,
    access: bool = True,
    patience: float = 1.0,
) -> Callable[[Run], Check]:
    """Turn a function into a check of these requirements; the first line of its docstring names what holds."""
    return lambda run: Check(run, rows, level, transports, access, patience)


Target = str | Sequence[str]
"""An address, or the words of a command."""
_RETRIED: Final = ("rate_limited", "server_not_ready")
_RETRIES: Final = 5
_ids = itertools.count(1)


class Untested(Exception):
    """The reason why a check cannot be made."""


def message(type_: str, payload: Mapping[str, Any] | None = None, /, **changes: Any) -> dict[str, Any]:
    """Return an envelope with a fresh id; ``...`` leaves a member out."""
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
        self.now = now
        self.manifest: dict[str, Any] = {}
        self.cache: dict[str, Any] = {}  # results that several checks use
        self.check: Check | None = None
        self.noted: set[str] = set()
        self._target = target
        self.opened: Connection | None = None

    def new_connection(self) -> Connection:
        """Return another connection, not opened."""
        if not isinstance(self._target, str):
            return StdioConnection(self._target, self.watcher)
        if self._target.startswith(("ws://", "wss://")):
            return WebSocketConnection(self._target, self.watcher)
        return HttpConnection(self._target, self.watcher, self.plan.credentials.headers)

    async def connection(self) -> Connection:
        """Return the connection that checks share, opened and authenticated at first use."""
        if self.opened is None:
            connection = self.opened = self.new_connection()
            self.manifest = (await connection.open()).payload
            has_token = self.plan.credentials.token is not None
            if isinstance(connection, SessionConnection) and self.auth_required and has_token:
                await self.authenticate(connection)
        return self.opened

    @asynccontextmanager
    async def other_session(self) -> AsyncIterator[SessionConnection]:
        """Open another session, not authenticated, and close it at the end."""
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

    async def drop(self) -> None:
        """Close the shared connection; the next use opens another."""
        connection, self.opened = self.opened, None
        if connection is not None:
            await connection.close()

    async def authenticate(self, connection: SessionConnection, token: str | None = None) -> Answer:
        credentials = self.plan.credentials
        payload = {"scheme": credentials.scheme, "token": token or credentials.token}
        return await connection.ask(encode(message("authenticate", payload)))

    async def approve(self, approval: str, *, as_approver: bool = True) -> Answer:
        """Approve a request of the extension ``x-approvals``, as the approver of the plan or as the requester."""
        data = encode(message("x-approval_request", {"operation": "approve", "approval": approval}))
        credentials = self.plan.credentials
        token = credentials.approver_token if as_approver else credentials.token
        connection = await self.connection()
        if isinstance(connection, HttpConnection):
            return await connection.ask(data, "approvals", credentials=credentials.headers_of(token))
        async with self.other_session() as session:
            if token is not None:
                await self.authenticate(session, token)
            return await session.ask(data)

    def has_extension(self, name: str) -> bool:
        extensions = self.manifest.get("extensions")
        return isinstance(extensions, dict) and name in extensions

    @property
    def auth_required(self) -> bool:
        return member(self.manifest, "auth", "required") is True

    def require_auth(self) -> None:
        if not self.auth_required:
            raise Untested("the server requires no authentication")

    def note(self, rows: str | Sequence[str], held: bool, expected: str, seen: object) -> bool:
        """Record whether these requirements hold."""
        assert self.check is not None
        for row in (rows,) if isinstance(rows, str) else rows:
            assert row in self.check.rows, f"{row} is not among the rows of this check"
            self.noted.add(row)
            self.report.note(row, held, expected, str(seen), self.check.name)
        return held

    def refused(self, answer: Answer, code: str | Sequence[str], *rows: str, about: str) -> bool:
        """Record whether the answer is this error, at these rows and at the row of the code."""
        assert self.check is not None
        codes = (code,) if isinstance(code, str) else tuple(code)
        own = [row for row in (CODE_ROWS.get(one) for one in codes) if row in self.check.rows]
        wanted = " or ".join(codes)
        return self.note([*rows, *filter(None, own)], answer.code in codes, f"{wanted} for {about}", answer)

    async def ask(self, request: Mapping[str, Any] | bytes, end: End = "evaluate") -> Answer:
        """Send a request, again while the server is busy."""
        connection = await self.connection()
        for _ in range(_RETRIES):
            answer = await connection.ask(request if isinstance(request, bytes) else encode(request), end)
            delay_ms = answer.payload.get("retry_after_ms")
            if answer.code not in _RETRIED or not isinstance(delay_ms, int):
                break
            await asyncio.sleep(delay_ms / 1_000)
        return answer

    async def evaluate(self, planned: PlannedIntent, **changes: Any) -> Answer:
        """Evaluate an intent; ``changes`` replace members of the payload."""
        return await self.ask(message("intent_request", planned.payload(**changes)))

    async def tools(self, planned: PlannedIntent, **changes: Any) -> list[dict[str, Any]]:
        """Evaluate an intent and return its tools. Raises :class:`Untested` for an error."""
        return tools_of(await self.response(planned, **changes))

    async def some_tools(self, planned: PlannedIntent, **changes: Any) -> list[dict[str, Any]]:
        """Return the tools of an intent. Raises :class:`Untested` if there are none."""
        tools = await self.tools(planned, **changes)
        if not tools:
            raise Untested("the intent brings no tools")
        return tools

    async def response(self, planned: PlannedIntent, **changes: Any) -> Answer:
        """Evaluate an intent. Raises :class:`Untested` for an error."""
        answer = await self.evaluate(planned, **changes)
        if answer.type != "intent_response":
            raise Untested(f"the intent {planned.label} is answered with {answer.code}")
        return answer

    async def intent(self) -> PlannedIntent:
        """Return an intent of the plan or the manifest that can be evaluated, with tools if there is one."""
        if "intent" not in self.cache:
            self.cache["intent"] = await self._find_intent()
        intent: PlannedIntent | None = self.cache["intent"]
        if intent is None:
            raise Untested(f"no intent can be evaluated{'' if self.plan.from_file else ' unplanned'}")
        return intent

    async def _find_intent(self) -> PlannedIntent | None:
        best: PlannedIntent | None = None
        for planned in self.plan.intents or self._listed_intents():
            answer = await self.evaluate(planned)
            if answer.type == "intent_response":
                if tools_of(answer):
                    return planned
                best = best or planned
        return best

    def _listed_intents(self) -> list[PlannedIntent]:
        intents = self.manifest.get("intents")
        return [
            PlannedIntent(label=one["name"], name=one["name"], eval_time=instant(self.now))
            for one in (intents if isinstance(intents, list) else ())
            if isinstance(one, dict) and isinstance(one.get("name"), str) and not one.get("required_facts")
        ]

    def predicate(self, fits: Callable[[dict[str, Any]], bool] = lambda _: True) -> dict[str, Any]:
        """Return a predicate of the manifest that clients may assert."""
        for one in self.predicates:
            if one.get("direction", "both") != "output" and fits(one):
                return one
        raise Untested("the manifest has no predicate for it")

    @property
    def predicates(self) -> list[dict[str, Any]]:
        schemas = member(self.manifest, "facts_profile", "predicates")
        schemas = schemas if isinstance(schemas, list) else []
        return [one for one in schemas if isinstance(one, dict) and {"predicate", "arity"} <= set(one)]

    def invocations(self, fits: Callable[[Invocation], bool]) -> list[Invocation]:
        """Return those of the plan that fit. Raises :class:`Untested` if there are none."""
        invocations = [one for one in self.plan.invocations if fits(one)]
        if not invocations:
            raise Untested("the plan names no tool for it")
        return invocations

    async def tool(self, invocation: Invocation, **changes: Any) -> dict[str, Any]:
        """Evaluate its intent and return the tool. Raises :class:`Untested` if it is not offered."""
        for tool in await self.tools(invocation.intent, **changes):
            if tool.get("name") == invocation.tool and isinstance(tool.get("macro_id"), str):
                return tool
        raise Untested(f"the intent {invocation.intent.label} brings no tool {invocation.tool}")

    async def macro_id(self, invocation: Invocation) -> str:
        return str((await self.tool(invocation))["macro_id"])

    async def invoke(self, macro_id: str, args: Any, **more: Any) -> Answer:
        return await self.ask(message("invoke_request", {"macro_id": macro_id, "args": args, **more}), "invoke")

    def limit(self, name: str) -> int:
        """Return a limit of the manifest. Raises :class:`Untested` if it has none."""
        value = member(self.manifest, "limits", name)
        if type(value) is not int:
            raise Untested(f"the manifest has no limits.{name}")
        return value


def tools_of(answer: Answer) -> list[dict[str, Any]]:
    tools = answer.payload.get("macro_tools")
    return [tool for tool in tools if isinstance(tool, dict)] if isinstance(tools, list) else []
