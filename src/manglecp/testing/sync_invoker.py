"""The invoker of a pack under test, with a store in memory and functions in place of actions.

Before a function is called, its arguments are validated, and its lease is checked and spent, as before the call of a
host. Actions without a function are executed by hosts, which are started at the first call. The invoker runs on an
event loop in a thread, so that tests are synchronous. Times are nanoseconds since 1970, set by the test.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar, cast

import msgspec

from manglecp.base.background_loop import background_loop, runs_here, wait_for
from manglecp.base.suggestions import did_you_mean
from manglecp.intent import Domain, Identity, request_message
from manglecp.invoke import OPERATOR, PREVIEW_CALL, Invoker, PackOptions, PackRuntime, serve_pack_actions
from manglecp.pack import ActionDescription, Pack
from manglecp.store import open_store
from manglecp.toolhost import (
    ActionResult,
    CallRefused,
    Dispatcher,
    DispatchError,
    ErrorCode,
    HostCall,
    Right,
    failure,
    failure_of,
)
from manglecp.wire import WireError
from manglecp.wire.messages import IntentRequest, InvokeRequest, InvokeResult

_APPROVER: Final = OPERATOR._replace(name="approver")  # has every role, and is never the caller (four eyes)
Function: TypeAlias = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class ActionCall:
    """One call of an action: its name, its input, and its output or error."""

    action: str
    input: Mapping[str, Any]
    output: Any = None
    error: str | None = None


def check_functions(pack: Pack, functions: Mapping[str, Function]) -> Mapping[str, Function]:
    """Return the functions by action name. Raises ``ValueError`` or ``TypeError`` for an unsuitable function."""
    for name, function in functions.items():
        action = pack.actions.get(name)
        if action is None:
            raise ValueError(f"the pack has no action {name}; {did_you_mean(name, set(pack.actions))}")
        params = action.input_schema.get("properties", {})
        required_names = action.input_schema.get("required", ())
        try:
            signature = inspect.signature(function)
            for names in (params, required_names):  # a call with all parameters, and one without the optional ones
                signature.bind(**dict.fromkeys(names))
        except TypeError as error:
            raise TypeError(f"{name} takes {', '.join(params) or 'nothing'}; the function: {error}") from None
    return dict(functions)


class FunctionDispatcher:
    """Takes the place of a :class:`Dispatcher`: calls functions, and hosts for actions without a function."""

    def __init__(self, pack: Pack, functions: Mapping[str, Function], start_hosts: Callable[[], Awaitable[Dispatcher]]):
        self._actions = {action.aid: action for action in pack.actions.values()}
        self._functions = functions  # the functions, by action name
        self._start_hosts = start_hosts  # every call returns the same dispatcher
        self._hosts: Dispatcher | None = None
        self.calls: list[ActionCall] = []  # calls of runs, and failed calls of previews, in the order of their ends

    async def call(self, aid: str, **options: Any) -> ActionResult | DispatchError:
        """Call the function of an action, or a host if the action has no function; ``aid`` is the id of the action."""
        action = self._actions[aid]
        if action.name in self._functions:
            result = await self._call_function(action, self._functions[action.name], options)
        else:
            self._hosts = await self._start_hosts()
            result = await self._hosts.call(aid, **options)
        arguments = msgspec.json.decode(options["input_json"])  # the function may have changed its arguments
        if isinstance(result, ActionResult):
            if not options["call_id"].startswith(PREVIEW_CALL):  # a preview belongs to the approval, not to the run
                self.calls.append(ActionCall(action.name, arguments, msgspec.json.decode(result.output_json)))
        else:
            self.calls.append(ActionCall(action.name, arguments, error=result["detail"]))
        return result

    async def _call_function(
        self, action: ActionDescription, function: Function, options: Mapping[str, Any]
    ) -> ActionResult | DispatchError:
        names = ("input_json", "slots", "identity", "call_id", "authority")
        members = {name: options[name] for name in names if name in options}
        right = Right(HostCall(aid=action.aid, tier=action.tier, idempotent=action.idempotent, **members))
        try:
            right.check()
            right.spend(effect=action.tier > 0)
        except CallRefused as refused:
            return failure(action.aid, refused.kind, refused.detail, code=refused.code)
        timeouts = [seconds for seconds in (options.get("timeout"), action.timeout) if seconds is not None]
        try:
            async with asyncio.timeout(min(timeouts, default=None)):
                # In a thread, because a function may block, and may itself invoke tools of the pack.
                output = await asyncio.to_thread(function, **msgspec.json.decode(options["input_json"]))
                output = await output if inspect.isawaitable(output) else output
            return ActionResult(action.aid, msgspec.json.encode(output).decode(), dict(options["slots"]))
        except TimeoutError:
            code: ErrorCode | None = None if action.idempotent else "outcome_unknown"
            return failure(action.aid, "timeout", "the function did not return in time", code=code, sent=True)
        except Exception as error:
            return failure_of(action.aid, error)

    def cancel(self, call_id: str) -> bool:
        """Cancel a call of a host; functions are not cancelled."""
        return self._hosts is not None and self._hosts.cancel(call_id)


T = TypeVar("T")


class SyncInvoker:
    """Executes invocations on an event loop in a thread, until ``close``. Its methods block."""

    def __init__(self, domain: Domain, functions: Mapping[str, Function], options: PackOptions) -> None:
        self._domain = domain
        self._options = options
        self._now: int | None = None  # the time that the invoker's clock returns; None for the current time
        self._stack = AsyncExitStack()  # closed on the event loop, before the loop ends
        self._hosts: Dispatcher | None = None
        self._start_lock = asyncio.Lock()
        self._dispatcher = FunctionDispatcher(domain.pack, functions, self._start_hosts)
        self._loop_stack = ExitStack()
        self._loop = self._loop_stack.enter_context(background_loop("manglecp-testing"))
        try:
            self._invoker = self._wait(self._open_invoker())
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if self._loop.is_closed():
            return
        with self._loop_stack:
            self._wait(self._stack.aclose())

    def renew(self, domain: Domain) -> None:
        """Use a domain with other generated facts."""
        self._invoker.offers.renew(domain)

    def invoke(
        self,
        request: IntentRequest,
        identity: Identity,
        macro_id: str,
        args: Mapping[str, Any],
        *,
        confirm: bool,
        evaluated_at: int,
        invoked_at: int,
        request_key: str | None = None,
    ) -> tuple[InvokeResult | WireError, tuple[ActionCall, ...], str]:
        """Evaluate the intent, so that the tool is offered, and invoke the tool; ``confirm`` approves the invocation.

        Returns the result or the error, the calls of actions, and the text of the approval request, or "" without one.
        """
        earlier_call_count = len(self._dispatcher.calls)
        self._now = evaluated_at
        self._wait(self._invoker.offers.evaluate(request, identity))
        self._now = invoked_at
        payload: dict[str, Any] = {"macro_id": macro_id, "args": dict(args)}
        if request_key is not None:
            payload["x-request_key"] = request_key
        answer, approval_text = self._wait(self._invoke(identity, payload)), ""
        challenge = (answer.details or {}).get("challenge") if isinstance(answer, WireError) else None
        if challenge is not None:
            approvals = self._invoker.approvals
            approval = self._wait(asyncio.to_thread(approvals.show, _APPROVER, challenge["approval"]))
            approval_text = approval.text
            if confirm:
                if approval.state == "pending":
                    self._wait(asyncio.to_thread(approvals.decide, _APPROVER, approval.id, "approved"))
                answer = self._wait(self._invoke(identity, {**payload, "confirmation_token": approval.id}))
        return answer, tuple(self._dispatcher.calls[earlier_call_count:]), approval_text

    async def _invoke(self, identity: Identity, payload: dict[str, Any]) -> InvokeResult | WireError:
        request: InvokeRequest = request_message("invoke_request", payload, self._domain.pack, "test")
        try:
            return (await self._invoker.invoke(request, identity)).payload
        except WireError as error:
            return error

    async def _open_invoker(self) -> Invoker:
        store = await asyncio.to_thread(open_store, ":memory:")
        self._stack.callback(store.close)
        clock = lambda: time.time_ns() if self._now is None else self._now  # noqa: E731
        dispatcher = cast(Dispatcher, self._dispatcher)
        runtime = PackRuntime.from_domain(self._domain, dispatcher, self._options, store, clock=clock)
        return await self._stack.enter_async_context(runtime.invoker)

    async def _start_hosts(self) -> Dispatcher:
        async with self._start_lock:
            if self._hosts is None:
                hosts = serve_pack_actions(self._domain.pack, self._options)
                self._hosts = await self._stack.enter_async_context(hosts)
        return self._hosts

    def _wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        if runs_here(self._loop):
            coroutine.close()
            raise RuntimeError("a tool cannot be invoked from the event loop that runs the invocations of the test")
        return wait_for(self._loop, coroutine)
