"""Invocations without processes: packs in memory, and actions that are Python functions.

Everything but the toolhost is the real thing. The hosts' part is played by :class:`Bench`, which spends the right to
each call exactly as a lease would be minted, and then runs a function. What it ran is in ``bench.ran``.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from manglecp.harness import MutationReady, ToolRequests
from manglecp.intent import Domain, Identity, OfferService
from manglecp.invoke.approval import APPROVE
from manglecp.invoke.invoker import Invoker, InvokeSettings
from manglecp.invoke.progress import RunObserver
from manglecp.pack import Pack
from manglecp.store import Store, open_store
from manglecp.toolhost import ActionResult, DispatchError, HostCall, PlanPermit, Right, failure
from manglecp.wire import WireError, receive
from manglecp.wire.messages import InvokeRequest, InvokeResult, ProgressPayload
from tests.intent.packs import NOW, request

ME = Identity("me", frozenset({"explain_policy"}), "local")
APPROVER = Identity("ann", frozenset({APPROVE}), "user")
Authority = MutationReady | ToolRequests | PlanPermit
Work = Callable[[dict[str, Any]], Any | Awaitable[Any]]


class Fails(Exception):
    """What an action raises to have dispatch answer with this error; by default, that of a request that was sent."""

    def __init__(
        self, kind: str = "tool_error", code: str | None = None, status: str | None = None, *, sent: bool = True
    ) -> None:
        is_lost = sent and kind in ("timeout", "crash", "parse_error")
        self.error: DispatchError = failure("", kind, "it failed", code=code, status=status, sent=is_lost)  # type: ignore[arg-type]


@dataclass
class Bench:
    """The actions of a pack by their names."""

    pack: Pack
    work: dict[str, Work]
    ran: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    given_up: list[str] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    _pending: dict[str, asyncio.Task[Any]] = field(default_factory=dict)

    async def call(
        self, aid: str, *, authority: Authority, call_id: str, input_json: str, **more: Any
    ) -> ActionResult | DispatchError:
        action = next(one for one in self.pack.actions.values() if one.aid == aid)
        right = Right(HostCall(aid=aid, call_id=call_id, input_json=input_json, tier=action.tier, authority=authority))
        assert isinstance(authority, MutationReady if action.tier > 0 else (ToolRequests, PlanPermit))
        right.check()
        right.spend(effect=action.tier > 0)
        self.calls.append({"aid": aid, "call_id": call_id, "input_json": input_json, **more})
        given = json.loads(input_json)
        self.ran.append((action.name, given))
        try:
            output = self.work[action.name](given)
            if inspect.isawaitable(output):
                self._pending[call_id] = asyncio.ensure_future(output)
                output = await self._pending[call_id]
        except Fails as fails:
            return {**fails.error, "aid": aid}
        except asyncio.CancelledError:
            if call_id not in self.given_up:
                raise
            return failure(aid, "exception", "given up", code="cancelled")
        finally:
            self._pending.pop(call_id, None)
        return ActionResult(aid, json.dumps(output), dict(more["slots"]))

    def cancel(self, call_id: str) -> bool:
        self.given_up.append(call_id)
        if call_id in self._pending:
            self._pending[call_id].cancel()
            return True
        return False


class Stop:
    """Cancels the runs of the observers that watch it, once it is set."""

    def __init__(self) -> None:
        self._is_set = False
        self._observers: list[RunObserver] = []

    def set(self) -> None:
        self._is_set = True
        for observer in self._observers:
            observer.cancel()

    def watch(self, observer: RunObserver) -> None:
        self._observers.append(observer)
        if self._is_set:
            observer.cancel()


@dataclass
class Shop:
    """An invoker and what surrounds it."""

    invoker: Invoker
    store: Store
    bench: Bench
    domain: Domain

    async def tools(self, intent: str = "go", identity: Identity = ME, **more: Any) -> dict[str, str]:
        """Evaluate; the ids of the tools by their names."""
        answer = await self.invoker.offers.evaluate(request(intent, **more), identity)
        return {tool.name: tool.macro_id for tool in answer.payload.macro_tools}

    async def invoke(
        self,
        tool: str,
        args: Mapping[str, Any] | None = None,
        *,
        identity: Identity = ME,
        evaluate: bool = True,
        confirm: bool = False,
        progress: Callable[[ProgressPayload], None] | None = None,
        cancel: Stop | None = None,
        **payload: Any,
    ) -> InvokeResult:
        """Invoke a tool by its name (or by its id, without evaluating first); the error if there is one is raised."""
        macro_id = (await self.tools(identity=identity))[tool] if evaluate else tool
        asked = invocation(macro_id, args or {}, **payload)

        def watched() -> RunObserver:
            observer = RunObserver(on_progress=progress)
            if cancel is not None:
                cancel.watch(observer)
            return observer

        try:
            answer = await self.invoker.invoke(asked, identity, watched())
        except WireError as error:
            if error.code != "confirmation_required" or not confirm:
                raise
            token = await self.approve(error)
            approved = invocation(macro_id, args or {}, **payload, confirmation_token=token)
            answer = await self.invoker.invoke(approved, identity, watched())
        return answer.payload

    async def approve(self, error: WireError, approver: Identity = APPROVER) -> str:
        """Approve the request that an invocation stored, and return its id, which is the token."""
        assert error.code == "confirmation_required"
        approval: str = (error.details or {})["challenge"]["approval"]
        await asyncio.to_thread(self.invoker.approvals.decide, approver, approval, "approved")
        return approval

    async def refused(self, tool: str, args: Mapping[str, Any] | None = None, **more: Any) -> WireError:
        """The error that an invocation comes to."""
        try:
            await self.invoke(tool, args, **more)
        except WireError as error:
            return error
        raise AssertionError("it was not refused")

    def ledger(self) -> list[tuple[str, dict[str, Any]]]:
        """Kinds and bodies, after the chain was verified; without the entries of the decision log."""
        with self.store.read_transaction() as tx:
            assert not self.store.ledger.verify(tx).findings
            assert not self.store.decisions.verify(tx)
            return [(entry.kind, entry.body) for entry in self.store.ledger.rows(tx) if entry.kind != "decision_log"]


def invocation(macro_id: str, args: Mapping[str, Any], **payload: Any) -> InvokeRequest:
    named = {"request_key": "x-request_key"}
    members = {named.get(name, name): value for name, value in payload.items()}
    message = {
        "type": "invoke_request",
        "id": "inv-1",
        "manglecp": "2026-02-draft",
        "payload": {"macro_id": macro_id, "args": args, **members},
    }
    received = receive(json.dumps(message).encode(), 1 << 20)
    assert isinstance(received, InvokeRequest)
    return received


def waiving(*effects: str, of: str = "me") -> Callable[[Identity], Identity]:
    """Every credential of this identity waives approvals for these effects."""
    return lambda identity: identity._replace(auto_confirm_effects=effects) if identity.name == of else identity


@asynccontextmanager
async def shop(
    pack: Pack,
    work: Mapping[str, Work] | None = None,
    *,
    store: Store | None = None,
    settings: InvokeSettings | None = None,
    clock: Callable[[], int] = lambda: NOW,
    **more: Any,
) -> AsyncIterator[Shop]:
    """``work`` says what actions do; those it does not name give back their input."""
    domain = Domain.load(pack)
    functions = {name: (work or {}).get(name, lambda given: given) for name in pack.actions}
    bench = Bench(pack, functions)
    kept = store or open_store(":memory:")
    try:
        async with Invoker(
            OfferService(domain, kept, clock=clock),
            kept,
            bench,  # type: ignore[arg-type]  # it does what the invoker asks of a dispatcher
            settings=settings,
            clock=clock,
            **more,
        ) as invoker:
            yield Shop(invoker, kept, bench, domain)
    finally:
        if store is None:
            kept.close()
