"""A server that says what a test tells it to, and remembers what it was asked.

``Scripted(*answers)`` answers the first request with the first answer, and so on; the last one stays. An answer is a
payload, an error, ``LOSE`` (the connection ends), ``NOTHING`` (no answer), or a function of the request that gives one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, Literal, Self

from manglecp.client.client import Client
from manglecp.client.connection import RetryPolicy
from manglecp.client.errors import ConnectionLost
from manglecp.client.transports import MemoryTransport
from manglecp.wire import WireError, encode, receive
from manglecp.wire.messages import (
    ApprovalResponse,
    ApprovalResult,
    Authenticate,
    Authenticated,
    AuthenticateResponse,
    Cancel,
    ClientMessage,
    ErrorMessage,
    IntentRequest,
    IntentResponse,
    IntentResult,
    InvokeRequest,
    InvokeResponse,
    InvokeResult,
    MacroTool,
    Manifest,
    Message,
    Metadata,
    ProgressMessage,
    ProgressPayload,
    Safety,
)
from tests.client.manifests import manifest as example
from tests.deadlines import patience

PATIENCE: Final = patience(60.0)
"""Seconds after which a test has failed, on however slow a machine."""
LOSE: Final = "lose the connection"
NOTHING: Final = "say nothing"
Answer = Any
Send = Callable[[bytes], Awaitable[None]]
FREE = {"facts_profile": {"predicates": []}, "intents": [{"name": "go", "description": "Go."}]}
"""A manifest that lets everything be said."""


def tool(name: str = "t", **more: Any) -> MacroTool:
    """In full, without effects, with one number as its argument."""
    number = {"type": "object", "properties": {"n": {"type": "integer"}}, "additionalProperties": False}
    told: dict[str, Any] = {
        "macro_id": f"m-{name}",
        "name": name,
        "description": f"Does {name}.",
        "disclosure_level": "full",
        "input_schema": number,
        "safety": Safety(requires_user_confirmation=False, side_effects=("none",)),
        **more,
    }
    return MacroTool(**told)


def condensed(name: str = "t", score: float | None = None) -> MacroTool:
    more: dict[str, Any] = {} if score is None else {"metadata": Metadata(score=score)}
    return MacroTool(macro_id=f"m-{name}", name=name, description=f"Does {name}.", disclosure_level="condensed", **more)


def writes(name: str = "t", *, confirm: bool = False, **more: Any) -> MacroTool:
    return tool(name, safety=Safety(requires_user_confirmation=confirm, side_effects=("filesystem",), **more))


def tools(*found: MacroTool) -> IntentResult:
    return IntentResult(eval_time_used="2026-03-02T09:20:00Z", macro_tools=found)


def done(**more: Any) -> InvokeResult:
    return InvokeResult(result={"ok": True}, **more)


class Scripted:
    """What :class:`MemoryTransport` takes for a server."""

    def __init__(self, *answers: Answer, manifest: Manifest | None = None, **changes: Any) -> None:
        self.answers = list(answers)
        self.manifest = manifest or example(**{**FREE, **changes})
        self.received: list[ClientMessage] = []
        self.sessions: list[_Session] = []
        self.transport = MemoryTransport(self)
        self.slow = 0.0
        """Seconds until it hears what is said."""
        self.unreachable = 0
        """So many attempts to connect fail."""
        self.came = asyncio.Event()
        """Set whenever something comes."""

    def session(self, _transport: Literal["websocket", "stdio"], /, *, send: Send) -> _Session:
        if self.unreachable:
            self.unreachable -= 1
            raise ConnectionLost("nobody is there")
        self.sessions.append(_Session(self, send))
        return self.sessions[-1]

    def client(self, **options: Any) -> Client:
        """Waits for nothing, and is lucky: nothing is added to what it has to wait."""
        retry_policy = options.pop("retry_policy", RetryPolicy(jitter=lambda: 0.0))
        return Client(self.transport, sleep=options.pop("sleep", _no_sleep), retry_policy=retry_policy, **options)

    async def push(self, **changes: Any) -> None:
        self.manifest = example(**{**FREE, **changes})
        await self.sessions[-1].send(encode(self.manifest))

    async def until(self, kind: type[ClientMessage], count: int = 1) -> ClientMessage:
        """The message of this kind, once there are as many."""
        async with asyncio.timeout(PATIENCE):
            while len(found := [one for one in self.received if isinstance(one, kind)]) < count:
                self.came.clear()
                await self.came.wait()
        return found[count - 1]

    @property
    def intents(self) -> list[IntentRequest]:
        return [one for one in self.received if isinstance(one, IntentRequest)]

    @property
    def invocations(self) -> list[InvokeRequest]:
        return [one for one in self.received if isinstance(one, InvokeRequest)]

    def answer(self, message: ClientMessage) -> Answer:
        found = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return found(message) if callable(found) else found


class _Session:
    def __init__(self, server: Scripted, send: Send) -> None:
        self.server = server
        self.send = send

    async def __aenter__(self) -> Self:
        await self.send(encode(self.server.manifest))
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def receive(self, data: bytes) -> None:
        await asyncio.sleep(self.server.slow)
        message = receive(data, 1 << 24)
        self.server.received.append(message)
        self.server.came.set()
        if isinstance(message, Cancel):
            return
        answer = self.server.answer(message)
        if answer == LOSE:
            self.server.transport.lose()
        elif isinstance(answer, list):  # progress first
            for one in answer[:-1]:
                assert isinstance(one, ProgressPayload)
                await self.send(encode(ProgressMessage(id=str(message.id), payload=one)))
            await self.send(encode(wrapped(message, answer[-1])))
        elif answer != NOTHING:
            await self.send(answer if isinstance(answer, bytes) else encode(wrapped(message, answer)))


def wrapped(message: ClientMessage, answer: Answer) -> Message:
    """The message that says so."""
    if isinstance(answer, Message):
        return answer
    assert message.id is not None
    if isinstance(answer, WireError):
        return ErrorMessage(id=message.id, payload=answer.payload())
    if isinstance(answer, IntentResult):
        return IntentResponse(id=message.id, payload=answer)
    if isinstance(answer, Authenticated):
        assert isinstance(message, Authenticate)
        return AuthenticateResponse(id=message.id, payload=answer)
    if isinstance(answer, ApprovalResult):
        return ApprovalResponse(id=message.id, payload=answer)
    assert isinstance(answer, InvokeResult)
    return InvokeResponse(id=message.id, payload=answer)


async def _no_sleep(_seconds: float) -> None:
    await asyncio.sleep(0)
