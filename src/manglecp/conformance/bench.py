"""What a check works with: a line to the server, its manifest, the plan, and where it notes what it finds."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from manglecp.conformance.lines.http import HttpLine
from manglecp.conformance.lines.line import Answer, End, Line
from manglecp.conformance.lines.session import SessionLine
from manglecp.conformance.lines.stdio import StdioLine
from manglecp.conformance.lines.websocket import WebSocketLine
from manglecp.conformance.plan import Invocation, Plan, Stated, instant
from manglecp.conformance.registry import Check
from manglecp.conformance.report import Report
from manglecp.conformance.watching import CODE_ROWS, Watcher
from manglecp.wire.messages import VERSION

__all__ = ["Bench", "Target", "Untested", "dumped", "message", "tools_of"]

Target = str | Sequence[str]
"""An address, or the words of a command."""
_PATIENT: Final = ("rate_limited", "server_not_ready")
_RETRIES: Final = 5
_ids = itertools.count(1)


class Untested(Exception):
    """Why a check cannot say anything."""


def message(type_: str, payload: Mapping[str, Any] | None = None, /, **changes: Any) -> dict[str, Any]:
    """An envelope with an id of its own; ``...`` leaves a member out."""
    made = {"type": type_, "id": f"conformance-{next(_ids)}", "manglecp": VERSION, "payload": dict(payload or {})}
    return {name: value for name, value in {**made, **changes}.items() if value is not ...}


def dumped(given: Mapping[str, Any]) -> bytes:
    """The JSON of a message, as UTF-8."""
    return json.dumps(given, ensure_ascii=False).encode()


class Bench:
    """One run of the checks against one server."""

    def __init__(self, target: Target, plan: Plan, report: Report, watcher: Watcher, now: float) -> None:
        self.plan = plan
        self.report = report
        self.watcher = watcher
        self.now = now
        self.manifest: dict[str, Any] = {}
        self.kept: dict[str, Any] = {}
        """What one check found and another uses."""
        self.check: Check | None = None
        self.noted: set[str] = set()
        self._target = target
        self._line: Line | None = None

    # --- lines -------------------------------------------------------------------------------------------------------

    def new_line(self, *, known: bool = True) -> Line:
        """One more, not opened; ``known`` shows the credentials of the plan."""
        if not isinstance(self._target, str):
            return StdioLine(self._target, self.watcher)
        if self._target.startswith(("ws://", "wss://")):
            return WebSocketLine(self._target, self.watcher)
        return HttpLine(self._target, self.watcher, self.plan.credentials.headers if known else {})

    async def line(self) -> Line:
        """The line that checks share; opened, and authenticated where the server wants that, when first asked for."""
        if self._line is None:
            line = self.new_line()
            self._line = line
            self.manifest = (await line.open()).payload
            if isinstance(line, SessionLine) and self.auth_required and self.plan.credentials.token is not None:
                await self.authenticate(line)
        return self._line

    async def http(self) -> HttpLine:
        """The same, for checks that run on HTTP only."""
        line = await self.line()
        assert isinstance(line, HttpLine)
        return line

    async def session(self) -> SessionLine:
        """The same, for checks that run only where a connection lasts."""
        line = await self.line()
        assert isinstance(line, SessionLine)
        return line

    async def drop(self) -> None:
        """Close the shared line. The next check that wants one gets another."""
        line, self._line = self._line, None
        if line is not None:
            await line.close()

    @property
    def opened(self) -> Line | None:
        """The shared line, if there is one now."""
        return self._line

    async def authenticate(self, line: SessionLine, token: str | None = None) -> Answer:
        """The answer to this token, or to that of the plan."""
        credentials = self.plan.credentials
        payload = {"scheme": credentials.scheme, "token": token or credentials.token}
        return await line.ask(dumped(message("authenticate", payload)))

    @property
    def auth_required(self) -> bool:
        """Does the manifest say so?"""
        auth = self.manifest.get("auth")
        return isinstance(auth, dict) and auth.get("required") is True

    # --- notes -------------------------------------------------------------------------------------------------------

    def that(self, rows: str | Sequence[str], held: bool, expected: str, seen: object) -> bool:
        """Note whether it holds."""
        assert self.check is not None
        for row in (rows,) if isinstance(rows, str) else rows:
            assert row in self.check.rows, f"{row} is not among the rows of this check"
            self.noted.add(row)
            self.report.note(row, held, expected, str(seen), self.check.name)
        return held

    def refused(self, answer: Answer, code: str | Sequence[str], *rows: str, about: str) -> bool:
        """Note that it is the error that it should be, at these rows and at the row of the code."""
        assert self.check is not None
        codes = (code,) if isinstance(code, str) else tuple(code)
        own = [row for row in (CODE_ROWS.get(one) for one in codes) if row in self.check.rows]
        wanted = " or ".join(codes)
        return self.that([*rows, *filter(None, own)], answer.code in codes, f"{wanted} for {about}", answer)

    # --- asking ------------------------------------------------------------------------------------------------------

    async def ask(self, given: Mapping[str, Any] | bytes, end: End = "evaluate") -> Answer:
        """Politely: whoever says that it is busy is asked again."""
        line = await self.line()
        for _ in range(_RETRIES):
            answer = await line.ask(given if isinstance(given, bytes) else dumped(given), end)
            waiting = answer.payload.get("retry_after_ms")
            if answer.code not in _PATIENT or not isinstance(waiting, int):
                break
            await asyncio.sleep(waiting / 1_000)
        return answer

    async def state(self, stated: Stated, **changes: Any) -> Answer:
        """Whatever answers this intent; ``changes`` replace members of the payload."""
        return await self.ask(message("intent_request", stated.payload(**changes)))

    async def tools(self, stated: Stated, **changes: Any) -> list[dict[str, Any]]:
        """Those of the answer; there is nothing to test without one."""
        return tools_of(await self.answered(stated, **changes))

    async def answered(self, stated: Stated, **changes: Any) -> Answer:
        """The answer to this intent. :class:`Untested` if it is an error."""
        answer = await self.state(stated, **changes)
        if answer.type != "intent_response":
            raise Untested(f"the intent {stated.label} is answered with {answer.code}")
        return answer

    async def intent(self) -> Stated:
        """One that can be evaluated, with tools if there is one: of the plan, or of the manifest."""
        if "intent" not in self.kept:
            self.kept["intent"] = await self._find_intent()
        found = self.kept["intent"]
        if found is None:
            raise Untested("no intent can be evaluated" if self.plan.given else "no intent can be evaluated unplanned")
        assert isinstance(found, Stated)
        return found

    async def _find_intent(self) -> Stated | None:
        best: Stated | None = None
        for stated in self.plan.intents or self._announced():
            answer = await self.state(stated)
            if answer.type == "intent_response":
                if tools_of(answer):
                    return stated
                best = best or stated
        return best

    def _announced(self) -> list[Stated]:
        """Intents of the manifest that need no facts."""
        intents = self.manifest.get("intents")
        return [
            Stated(label=one["name"], name=one["name"], eval_time=instant(self.now))
            for one in (intents if isinstance(intents, list) else ())
            if isinstance(one, dict) and isinstance(one.get("name"), str) and not one.get("required_facts")
        ]

    def predicate(self, fits: Callable[[dict[str, Any]], bool] = lambda _: True) -> dict[str, Any]:
        """One of the manifest that clients may assert."""
        for one in self.predicates:
            if one.get("direction", "both") != "output" and fits(one):
                return one
        raise Untested("the manifest has no predicate for it")

    @property
    def predicates(self) -> list[dict[str, Any]]:
        """The schemas of the manifest, as far as they are any."""
        profile = self.manifest.get("facts_profile")
        listed = profile.get("predicates") if isinstance(profile, dict) else None
        found = listed if isinstance(listed, list) else []
        return [one for one in found if isinstance(one, dict) and {"predicate", "arity"} <= set(one)]

    def invocations(self, fits: Callable[[Invocation], bool]) -> list[Invocation]:
        """Those of the plan that fit. :class:`Untested` if there are none."""
        found = [one for one in self.plan.invocations if fits(one)]
        if not found:
            raise Untested("the plan names no tool for it")
        return found

    async def macro_id(self, invocation: Invocation) -> str:
        """The id of its tool, by asking for its intent. :class:`Untested` if the tool is not offered."""
        tools = await self.tools(invocation.intent)
        for tool in tools:
            if tool.get("name") == invocation.tool and isinstance(tool.get("macro_id"), str):
                return str(tool["macro_id"])
        raise Untested(f"the intent {invocation.intent.label} brings no tool {invocation.tool}")

    async def invoke(self, macro_id: str, args: Any, **more: Any) -> Answer:
        """Whatever answers this invocation; ``more`` are members of the payload."""
        return await self.ask(message("invoke_request", {"macro_id": macro_id, "args": args, **more}), "invoke")

    def limit(self, name: str) -> int:
        """What the manifest says. :class:`Untested` if it says nothing."""
        limits = self.manifest.get("limits")
        value = limits.get(name) if isinstance(limits, dict) else None
        if type(value) is not int:
            raise Untested(f"the manifest has no limits.{name}")
        return value


def tools_of(answer: Answer) -> list[dict[str, Any]]:
    """The tools of an answer, as far as they are objects."""
    tools = answer.payload.get("macro_tools")
    return [tool for tool in tools if isinstance(tool, dict)] if isinstance(tools, list) else []
