"""The client for code without an event loop: the same methods, each of which blocks until its result is available.

    with BlockingClient("https://desk.example", token=token) as client:
        tools = client.evaluate("investigate_build", facts=facts)

A background thread runs the event loop, so that connections outlive a call. Callbacks run in that thread. Interrupting
a call cancels the request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from manglecp.base.background_loop import background_loop, runs_here
from manglecp.client.client import Client
from manglecp.client.errors import RequestRefused
from manglecp.client.permit import Permit
from manglecp.client.results import Tool
from manglecp.client.transports import Target
from manglecp.client.working_state import WorkingState
from manglecp.wire.messages import Authenticated, ManifestPayload

P = ParamSpec("P")
T = TypeVar("T")


def _blocking(
    method: Callable[Concatenate[Client, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[BlockingClient, P], T]:
    @wraps(method)
    def call(self: BlockingClient, /, *args: P.args, **options: P.kwargs) -> T:
        return self._wait(method(self._client, *args, **options))

    return call


class BlockingClient:
    """A blocking client with the arguments of :class:`Client`. It may be used from several threads."""

    def __init__(self, target: Target, **options: Any) -> None:
        self._client = Client(target, **options)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_stack = ExitStack()

    def __enter__(self) -> Self:
        self._loop = self._loop_stack.enter_context(background_loop("manglecp-client"))
        try:
            self._wait(self._client.connect())
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._wait(self._client.close())
        finally:
            self._stop()

    @property
    def manifest(self) -> ManifestPayload:
        return self._client.manifest

    @property
    def identity(self) -> Authenticated | None:
        return self._client.identity

    @property
    def state(self) -> WorkingState:
        return self._client.state

    ready = _blocking(Client.ready)
    refresh = _blocking(Client.refresh)
    evaluate = _blocking(Client.evaluate)
    upgrade = _blocking(Client.upgrade)
    invoke = _blocking(Client.invoke)
    follow = _blocking(Client.follow)
    prepare = _blocking(Client.prepare)
    intents = _blocking(Client.intents)
    why = _blocking(Client.why)
    why_not = _blocking(Client.why_not)
    decide = _blocking(Client.decide)

    @contextmanager
    def permit(self, tool: str | Tool, args: Mapping[str, Any] | None = None, **options: Any) -> Iterator[Permit]:
        """Yield a permit to execute a call here, and report its outcome; see :meth:`Client.permit`."""
        context = self._client.permit(tool, args, **options)
        permit = self._wait(context.__aenter__())
        try:
            yield permit
        except BaseException as error:
            self._wait(context.__aexit__(type(error), error, error.__traceback__))
            raise
        self._wait(context.__aexit__(None, None, None))

    skills = _blocking(Client.skills)
    skill = _blocking(Client.skill)
    push_facts = _blocking(Client.push_facts)
    approvals = _blocking(Client.approvals)
    approval = _blocking(Client.approval)
    approve = _blocking(Client.approve)
    deny = _blocking(Client.deny)

    def _wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        if self._loop is None or runs_here(self._loop):  # a callback in the loop's thread would wait for itself
            coroutine.close()
            raise RequestRefused("not_connected", "use the client inside its with block, and not in its callbacks")
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _stop(self) -> None:
        self._loop = None
        self._loop_stack.close()
