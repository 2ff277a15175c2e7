"""A server without sockets and without processes: packs in memory behind the real message core.

``async with desk(pack, work) as d`` has a core that is ready. ``d.client()`` is a session that lasts, with everything
it was sent in ``client.sent``; ``d.post(message)`` is a request over HTTP.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Self

from manglecp.intent import Identity
from manglecp.invoke import InvokeSettings, PackRuntime
from manglecp.pack import Pack, PackError
from manglecp.server.auth import Auth
from manglecp.server.config import ServerSettings
from manglecp.server.core import Core, HandledRequest
from manglecp.server.pending import Reply
from manglecp.server.request_limits import RequestLimits
from manglecp.server.revisions import RevisionManager
from manglecp.server.sessions import Session, Transport
from manglecp.store import open_store
from tests.deadlines import patience
from tests.intent.packs import NOW, action, pack
from tests.invoke.workshop import Shop, Work, shop

PATIENCE = patience(60.0)
"""Seconds after which a test has failed, on however slow a machine."""

RULES = """
macro("t", "A tool."). mandatory("t") :- intent("go"). macro_step("t", 1, "look"). macro_step("t", 2, "look").
macro("w", "Writes."). mandatory("w") :- intent("go"). macro_step("w", 1, "write").
relevant("t", 10) :- intent("slow").
"""


def plain_pack(rules: str = RULES, *, intents: tuple[str, ...] = ("go", "slow"), **more: Any) -> Pack:
    number = {"n": {"type": "integer"}}
    write = action("write", params=number, effects=("filesystem",), tier=1, mutates=True)
    return pack(rules, actions=(action("look", params=number), write), intents=intents, **more)


@dataclass(frozen=True)
class Tokens:
    """Credentials by their text."""

    known: dict[str, Identity]
    required: bool = True
    schemes: tuple[str, ...] = ("bearer", "api_key")
    token_url: str | None = None
    asked: list[str] = field(default_factory=list)

    async def identify(self, scheme: str, credential: str) -> Identity | None:
        self.asked.append(f"{scheme}:{credential}")
        return self.known.get(credential)


class Client:
    """A session that lasts, and what it was sent."""

    def __init__(self, core: Core, transport: Transport, peer: str | None) -> None:
        self.sent: list[dict[str, Any]] = []
        self._news = asyncio.Condition()
        self.session: Session = core.session(transport, peer=peer, send=self._take)
        self.open = asyncio.Event()
        """Does it take what it is sent?"""
        self.open.set()

    async def _take(self, data: bytes) -> None:
        await self.open.wait()
        async with self._news:
            self.sent.append(json.loads(data))
            self._news.notify_all()

    async def __aenter__(self) -> Self:
        await self.session.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.session.close()

    async def say(self, *messages: Mapping[str, Any] | bytes) -> None:
        for message in messages:
            await self.session.receive(message if isinstance(message, bytes) else encoded(message))

    async def until(self, wanted: Callable[[dict[str, Any]], bool], count: int = 1) -> list[dict[str, Any]]:
        """The messages that are wanted, once there are so many."""

        def found() -> list[dict[str, Any]]:
            return [one for one in self.sent if wanted(one)]

        async with asyncio.timeout(PATIENCE), self._news:
            await self._news.wait_for(lambda: len(found()) >= count)
        return found()

    async def answer(self, request: str | None) -> dict[str, Any]:
        """The terminal message with this id."""
        return (await self.until(lambda one: one["id"] == request and one["type"] not in ("progress", "manifest")))[0]

    async def ask(self, message: Mapping[str, Any]) -> dict[str, Any]:
        await self.say(message)
        return await self.answer(message["id"])


@dataclass
class Desk:
    core: Core
    revisions: RevisionManager
    packs: list[Pack]
    """The last one is what a reload finds; none at all is a broken edit."""
    shops: list[Shop]
    ended: list[Shop]
    handled: list[HandledRequest]

    @property
    def shop(self) -> Shop:
        return self.shops[-1]

    def client(self, transport: Transport = "websocket", peer: str | None = "192.0.2.1") -> Client:
        return Client(self.core, transport, peer)

    async def post(
        self, message: Mapping[str, Any] | bytes, token: str | None = None, peer: str | None = "192.0.2.1"
    ) -> tuple[dict[str, Any], Reply]:
        session = self.core.session("http", peer=peer)
        if token is not None:
            session.set_credential("bearer", token)
        reply = await session.handle(message if isinstance(message, bytes) else encoded(message))
        assert reply is not None
        return json.loads(reply.data), reply

    async def tools(self, client: Client) -> dict[str, str]:
        answer = await client.ask(intent(f"tools-{len(client.sent)}"))
        return {tool["name"]: tool["macro_id"] for tool in answer["payload"]["macro_tools"]}


@asynccontextmanager
async def desk(
    first: Pack | None = None,
    work: Mapping[str, Work] | None = None,
    *,
    auth: Auth | None = None,
    settings: ServerSettings | None = None,
    boot: bool = True,
    hold: asyncio.Event | None = None,
    probe: Callable[[], None] | None = None,
    clock: Callable[[], float] | None = None,
    shared: bool = False,
    invoking: InvokeSettings | None = None,
    now: Callable[[], int] = lambda: NOW,
) -> AsyncIterator[Desk]:
    """``hold`` keeps the pack from being loaded until it is set. ``now`` is what invocations go by."""
    packs = [first or plain_pack()]
    shops: list[Shop] = []
    ended: list[Shop] = []
    handled: list[HandledRequest] = []
    store = open_store(":memory:")

    @asynccontextmanager
    async def opening() -> AsyncIterator[PackRuntime]:
        if hold is not None:
            await hold.wait()
        if not packs:
            raise PackError([])
        more: dict[str, Any] = {"settings": invoking, "clock": now}
        async with shop(packs[-1], work, store=store, **more) as one:
            shops.append(one)
            yield PackRuntime(one.domain, one.invoker.offers, one.invoker)
        ended.append(one)

    settings = settings or ServerSettings(worker=False)
    revisions = RevisionManager(opening, packs[0].settings, settings, probe=probe, is_shared=lambda: shared)
    timing = {} if clock is None else {"clock": clock}
    limits = RequestLimits(settings, **timing)
    core = Core(revisions, auth, limits, observers=[handled.append], **timing)
    revisions.begin()
    try:
        if boot:
            await revisions.wait_until_loaded()
        yield Desk(core, revisions, packs, shops, ended, handled)
    finally:
        if hold is not None:  # nothing waits for the pack of a test that has failed
            hold.set()
        async with asyncio.timeout(PATIENCE):
            await core.close()
        store.close()


def encoded(message: Mapping[str, Any]) -> bytes:
    return json.dumps(message).encode()


def intent(request: str | None = "i-1", name: str = "go", **payload: Any) -> dict[str, Any]:
    return _message("intent_request", request, {"intent": {"name": name}, **payload})


def invoke(request: str, macro_id: str, args: Mapping[str, Any], **payload: Any) -> dict[str, Any]:
    return _message("invoke_request", request, {"macro_id": macro_id, "args": args, **payload})


def approvals(request: str, operation: str, approval: str | None = None) -> dict[str, Any]:
    return _message("x-approval_request", request, {"operation": operation, "approval": approval})


def facts(request: str) -> dict[str, Any]:
    return _message("x-facts_request", request, {"source": "s", "facts": []})


def cancel(request: str) -> dict[str, Any]:
    return _message("cancel", None, {"request_id": request})


def authenticate(request: str, token: str, scheme: str = "bearer") -> dict[str, Any]:
    return _message("authenticate", request, {"scheme": scheme, "token": token})


def _message(type_: str, request: str | None, payload: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": type_, "id": request, "manglecp": "2026-02-draft", "payload": payload}
