"""The invoker of a pack under test: a store in memory, with functions in place of actions.

A function's arguments are validated, and its right is checked and spent, as before a host call. Actions without a
function run in hosts, started at the first call. An event loop in a thread makes it synchronous. The clock is the
test's, and ``confirm`` decides as an approver.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar, cast

import msgspec

from manglecp.base.background_loop import background_loop, runs_here, wait_for
from manglecp.base.suggestions import did_you_mean
from manglecp.intent import Domain, Identity, request_message
from manglecp.invoke import OPERATOR, Invoker, PackOptions, PackRuntime, invoke_with_approval, serve_pack_actions
from manglecp.pack import ActionDescription, Pack
from manglecp.store import Approval, open_store
from manglecp.toolhost import ActionResult, CallRefused, Dispatcher, DispatchError, ErrorCode, HostCall, Right, failure
from manglecp.wire import WireError
from manglecp.wire.messages import IntentRequest, InvokeRequest, InvokeResult

_APPROVER: Final = OPERATOR._replace(name="approver")
"""Approves in every role, and is not the caller (``four_eyes``)."""
Function: TypeAlias = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class ActionCall:
    """One call of an action: its name, its input, and its output or error."""

    action: str
    input: Mapping[str, Any]
    output: Any = None
    error: str | None = None


def check_functions(pack: Pack, functions: Mapping[str, Function]) -> Mapping[str, Function]:
    """Return the functions. Raises ``ValueError`` or ``TypeError`` for one that cannot replace its action."""
    for name, function in functions.items():
        action = pack.actions.get(name)
        if action is None:
            raise ValueError(f"the pack has no action {name}; {did_you_mean(name, set(pack.actions))}")
        params = action.input_schema.get("properties", {})
        required = action.input_schema.get("required", ())
        try:
            signature = inspect.signature(function)
            for arguments in (params, required):
                signature.bind(**dict.fromkeys(arguments))
        except TypeError as error:
            raise TypeError(f"{name} takes {', '.join(params) or 'nothing'}; the function: {error}") from None
    return dict(functions)


class Actions:
    """A dispatcher for an invoker. ``calls`` are in the order of their ends."""

    def __init__(self, pack: Pack, functions: Mapping[str, Function], hosts: Callable[[], Awaitable[Dispatcher]]):
        self._actions = {action.aid: action for action in pack.actions.values()}
        self._functions = functions
        self._hosts = hosts
        self._started: Dispatcher | None = None
        self.calls: list[ActionCall] = []

    async def call(self, aid: str, **options: Any) -> ActionResult | DispatchError:
        """Run the function for this action, or a host where there is none."""
        action = self._actions[aid]
        if action.name in self._functions:
            answer = await self._call_function(action, self._functions[action.name], options)
        else:
            self._started = await self._hosts()
            answer = await self._started.call(aid, **options)
        arguments = msgspec.json.decode(options["input_json"])  # not what the function may have changed
        if isinstance(answer, ActionResult):
            self.calls.append(ActionCall(action.name, arguments, msgspec.json.decode(answer.output_json)))
        else:
            self.calls.append(ActionCall(action.name, arguments, error=answer["detail"]))
        return answer

    async def _call_function(
        self, action: ActionDescription, function: Function, options: Mapping[str, Any]
    ) -> ActionResult | DispatchError:
        named = ("input_json", "slots", "identity", "call_id", "authority")
        right = Right(
            HostCall(
                aid=action.aid,
                tier=action.tier,
                idempotent=action.idempotent,
                **{name: options[name] for name in named if name in options},
            )
        )
        try:
            right.check()
            right.spend(effect=action.tier > 0)
        except CallRefused as refused:
            return failure(action.aid, refused.kind, refused.detail, code=refused.code)
        limits = [seconds for seconds in (options.get("timeout"), action.timeout) if seconds is not None]
        try:
            async with asyncio.timeout(min(limits, default=None)):
                # In a thread: a function may be slow, and may use the pack itself.
                output = await asyncio.to_thread(function, **msgspec.json.decode(options["input_json"]))
                output = await output if inspect.isawaitable(output) else output
            return ActionResult(action.aid, msgspec.json.encode(output).decode(), dict(options["slots"]))
        except TimeoutError:
            code: ErrorCode | None = None if action.idempotent else "outcome_unknown"
            return failure(action.aid, "timeout", "the function did not return in time", code=code)
        except Exception as error:
            return failure(action.aid, "tool_error", f"{type(error).__name__}: {error}", status="TOOL_ERROR")

    def cancel(self, call_id: str) -> bool:
        """Cancel a call of a host; functions are not cancelled."""
        return self._started is not None and self._started.cancel(call_id)


T = TypeVar("T")


class Stage:
    """Runs invocations on an event loop in a thread, until ``close``."""

    def __init__(self, domain: Domain, functions: Mapping[str, Function], options: PackOptions) -> None:
        self._domain = domain
        self._options = options
        self._now: int | None = None
        self._stack = AsyncExitStack()
        self._hosts: Dispatcher | None = None
        self._starting = asyncio.Lock()
        self._actions = Actions(domain.pack, functions, self._start_hosts)
        self._end = ExitStack()
        self._loop = self._end.enter_context(background_loop("manglecp-testing"))
        try:
            self._invoker = self._wait(self._open_invoker())
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if self._loop.is_closed():
            return
        with self._end:
            self._wait(self._stack.aclose())

    def invoke(
        self,
        request: IntentRequest,
        identity: Identity,
        macro_id: str,
        args: Mapping[str, Any],
        *,
        confirm: bool,
        evaluated_at: int,
        now: int,
        request_key: str | None = None,
    ) -> tuple[InvokeResult | WireError, tuple[ActionCall, ...], str]:
        """Return the result or error, the calls that were made, and the text of the approval request.

        Evaluation and invocation have their own time.
        """
        text = ""

        def decide(approval: Approval) -> bool | None:
            nonlocal text
            text = approval.text
            return True if confirm else None

        before = len(self._actions.calls)
        self._now = evaluated_at
        self._wait(self._invoker.offers.evaluate(request, identity))
        self._now = now
        payload: dict[str, Any] = {"macro_id": macro_id, "args": dict(args)}
        if request_key is not None:
            payload["x-request_key"] = request_key
        try:
            answer: InvokeResult | WireError = self._wait(
                invoke_with_approval(
                    partial(self._invoke, identity),
                    payload,
                    self._invoker.approvals,
                    decide,
                    approver=_APPROVER,
                )
            )
        except WireError as error:
            answer = error
        return answer, tuple(self._actions.calls[before:]), text

    async def _invoke(self, identity: Identity, payload: dict[str, Any]) -> InvokeResult:
        request: InvokeRequest = request_message("invoke_request", payload, self._domain.pack, "test")
        return (await self._invoker.invoke(request, identity)).payload

    async def _open_invoker(self) -> Invoker:
        store = await asyncio.to_thread(open_store, ":memory:")
        self._stack.callback(store.close)
        clock = lambda: time.time_ns() if self._now is None else self._now  # noqa: E731
        actions = cast(Dispatcher, self._actions)
        runtime = PackRuntime.from_domain(self._domain, actions, self._options, store, clock=clock)
        return await self._stack.enter_async_context(runtime.invoker)

    async def _start_hosts(self) -> Dispatcher:
        async with self._starting:
            if self._hosts is None:
                hosts = serve_pack_actions(self._domain.pack, self._options)
                self._hosts = await self._stack.enter_async_context(hosts)
        return self._hosts

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        if runs_here(self._loop):
            work.close()
            raise RuntimeError("a tool cannot be invoked while the loop of the test waits for another")
        return wait_for(self._loop, work)
