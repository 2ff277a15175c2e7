"""Where invocations of a test run: an invoker over a store in memory, with functions and, if needed, real hosts.

A stage has an event loop in a thread of its own, so that tests need none. The time that it shows is that of the test:
a tool that expires can be tried before and after. Consent is that of the test, too, and signed as a person's would be.
"""

from __future__ import annotations

import asyncio
import secrets as chance
import time
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Any, TypeVar, cast

from manglecp.base.background_loop import background_loop, runs_here, wait_for
from manglecp.intent import Domain, Identity
from manglecp.invoke import Invoker, Secrets, sign
from manglecp.store import open_store
from manglecp.testing.actions import Actions, Called, Function
from manglecp.testing.messages import message
from manglecp.toolhost import Dispatcher, profile_of, serve_actions
from manglecp.wire import WireError
from manglecp.wire.messages import IntentRequest, InvokeRequest, InvokeResult

__all__ = ["Stage"]

T = TypeVar("T")


class Stage:
    """Entered when the first tool is invoked. ``close`` ends its hosts and its thread."""

    def __init__(
        self,
        domain: Domain,
        functions: Mapping[str, Function],
        *,
        workspace: Sequence[Path | str] = (),
        programs: Sequence[str] = (),
        degrade: bool = False,
    ) -> None:
        self._domain = domain
        self._hosting: dict[str, Any] = {"workspace": workspace, "programs": programs, "degrade": degrade}
        self._secrets = Secrets(local=chance.token_bytes(32))
        self._now: int | None = None
        self._stack = AsyncExitStack()
        self._hosts: Dispatcher | None = None
        self._starting = asyncio.Lock()
        self._actions = Actions(domain.pack, functions, self._started)
        self._end = ExitStack()
        self._loop = self._end.enter_context(background_loop("manglecp-testing"))
        try:
            self._invoker = self._wait(self._opened())
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """May be called again."""
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
    ) -> tuple[InvokeResult | WireError, tuple[Called, ...]]:
        """What came of it, and the calls that were made. The tool is proven at one time and invoked at another."""
        before = len(self._actions.called)
        self._now = evaluated_at
        self._wait(self._invoker.evaluate(request, identity))
        self._now = now
        payload: dict[str, Any] = {"macro_id": macro_id, "args": dict(args)}
        if request_key is not None:
            payload["x-request_key"] = request_key
        try:
            answer: InvokeResult | WireError = self._wait(self._agreed(payload, identity, confirm))
        except WireError as error:
            answer = error
        return answer, tuple(self._actions.called[before:])

    async def _agreed(self, payload: dict[str, Any], identity: Identity, confirm: bool) -> InvokeResult:
        """Once more with a token, if a person has to agree and the test says that one does."""
        try:
            return await self._invoked(payload, identity)
        except WireError as error:
            challenge = (error.details or {}).get("challenge")
            if error.code != "confirmation_required" or challenge is None or not confirm:
                raise
        secret = self._secrets.of(identity.name)
        assert secret is not None  # one is derived for everybody
        about = (challenge["macro_id"], challenge["args_digest"], challenge["nonce"], challenge["issued_ms"])
        token = sign(secret, identity.name, *about)
        return await self._invoked({**payload, "confirmation_token": token}, identity)

    async def _invoked(self, payload: dict[str, Any], identity: Identity) -> InvokeResult:
        request: InvokeRequest = message("invoke_request", payload, self._domain.pack)
        return (await self._invoker.invoke(request, identity)).payload

    async def _opened(self) -> Invoker:
        store = await asyncio.to_thread(open_store, ":memory:")
        self._stack.callback(store.close)
        invoker = Invoker(
            self._domain,
            store,
            cast(Dispatcher, self._actions),
            secrets=self._secrets,
            sandbox=profile_of(self._domain.pack, programs=self._hosting["programs"]),
            clock=lambda: time.time_ns() if self._now is None else self._now,
        )
        return await self._stack.enter_async_context(invoker)

    async def _started(self) -> Dispatcher:
        """Hosts of the pack, from the first call on."""
        async with self._starting:
            if self._hosts is None:
                hosts = serve_actions(self._domain.pack, **self._hosting)
                self._hosts = await self._stack.enter_async_context(hosts)
        return self._hosts

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        if runs_here(self._loop):
            work.close()
            raise RuntimeError("a tool cannot be invoked while the loop of the test waits for another")
        return wait_for(self._loop, work)
