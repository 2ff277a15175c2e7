"""The message core: what all transports talk to.

It has the sessions that last and the pending requests, sends new manifests to sessions, and drains.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple

from manglecp.intent import manifest
from manglecp.invoke import AutoConfirm, PackRuntime
from manglecp.pack import outline_manifest
from manglecp.server.admission import Admission
from manglecp.server.auth import Auth, OpenAuth
from manglecp.server.auth_config import describe_auth
from manglecp.server.evaluation import EvaluationScheduler
from manglecp.server.outbox import Send
from manglecp.server.pending import PendingRequest, Reply
from manglecp.server.revisions import RevisionManager
from manglecp.server.sessions import Session, Transport
from manglecp.wire import encode
from manglecp.wire.messages import ClientMessage, Endpoints, IntentRequest, Status

__all__ = ["Core", "HandledRequest"]

_LONGEST_ID: Final = 128
_LAST_REPLIES: Final = 5.0
"""Seconds in which requests are answered after drain has given up on them."""
_log = logging.getLogger(__name__)


class ManifestDocument(NamedTuple):
    """A manifest as it is sent, and the state of the server that it tells of. ``etag`` has its quotation marks."""

    data: bytes
    etag: str
    status: Status


class HandledRequest(NamedTuple):
    """An answered message, for logs, metrics and traces. It has nothing of the payload but known names."""

    session: str
    transport: Transport
    peer: str | None
    """The client's network address."""
    type: str | None
    """None if it could not be read."""
    intent: str | None
    """The name of an intent that the pack declares; of another one None, for clients may write anything."""
    tool: str | None
    """The name of the tool that was invoked."""
    id: str | None
    identity: str | None
    code: str | None
    """Of the error; None if it was answered with what it asked for."""
    status: int
    began_ns: int
    ended_ns: int


class Core:
    """One for a process; used on one event loop."""

    def __init__(
        self,
        revisions: RevisionManager,
        auth: Auth | None = None,
        admission: Admission | None = None,
        *,
        auto_confirm: AutoConfirm | None = None,
        observers: Sequence[Callable[[HandledRequest], None]] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``auto_confirm`` is that of the invokers; ``authenticate`` replies with it (SEC-23).

        ``observers`` are called with every answered message.
        """
        self.revisions = revisions
        self.settings = revisions.settings
        self.auth: Auth = auth or OpenAuth()
        self.admission = admission or Admission(self.settings)
        self.evaluations = EvaluationScheduler(self.settings)
        self.auto_confirm = auto_confirm or AutoConfirm()
        self.clock = clock
        self.readers = ThreadPoolExecutor(1, thread_name_prefix="manglecp-reader")
        """Decodes long messages, one after the other."""
        self._observers = tuple(observers)
        self._manifests: dict[bool, tuple[Any, ManifestDocument]] = {}
        """The encoded manifests, for HTTP and for sessions, each with the state of the server that it shows."""
        self._sessions: set[Session] = set()
        self._pending: set[PendingRequest] = set()
        self._intents: tuple[PackRuntime | None, frozenset[str]] = (None, frozenset())
        """Those that a revision declares."""
        self._numbers = itertools.count(1)
        self._unsubscribe = revisions.subscribe(self._send_manifests)

    # --- for transports ----------------------------------------------------------------------------------------------

    def session(self, transport: Transport, *, peer: str | None = None, send: Send | None = None) -> Session:
        """``peer`` is the client's network address. ``send`` sends messages of a session that lasts."""
        return Session(self, transport, peer, send, f"{transport}-{next(self._numbers)}")

    def manifest(self, *, http: bool = False) -> ManifestDocument:
        """The current manifest; on HTTP it has the endpoints (MANI-11).

        Before the pack is loaded, it has the pack's name, intents and limits, and the status ``booting``.
        """
        revisions, revision = self.revisions, self.revisions.current
        state = (revision, revisions.status, dict(revisions.troubles))
        known = self._manifests.get(http)
        if known is not None and known[0] == state:
            return known[1]
        base, auth = self.settings.base, describe_auth(self.auth)
        endpoints = Endpoints(intent_eval=f"{base}/evaluate", macro_invoke=f"{base}/invoke") if http else None
        if revision is None:
            message = outline_manifest(revisions.outline, revisions.status, endpoints, auth)
        else:
            more = {"x-degraded": dict(revisions.troubles)} if revisions.troubles else None
            message = manifest(revision.domain, revisions.status, endpoints, auth, more)
        data = encode(message)
        document = ManifestDocument(data, f'"{hashlib.sha256(data).hexdigest()[:32]}"', revisions.status)
        self._manifests[http] = (state, document)
        return document

    @property
    def max_message_bytes(self) -> int:
        """Of the pack that is served; before it is loaded, of its outline."""
        revision = self.revisions.current
        return (self.revisions.outline if revision is None else revision.domain.pack.settings).limits.max_message_bytes

    @property
    def structured_facts(self) -> bool:
        """Whether the pack accepts facts that are written as clauses."""
        revision = self.revisions.current
        return revision is not None and revision.domain.pack.settings.structured_facts

    @property
    def sessions(self) -> int:
        """The number of sessions that last."""
        return len(self._sessions)

    @property
    def pending(self) -> int:
        """The number of requests that are not answered yet."""
        return len(self._pending)

    async def recheck(self) -> None:
        """Check the credentials of all sessions again: one may have expired or been withdrawn."""
        for session in tuple(self._sessions):
            try:
                await session.recheck()
            except Exception as error:  # it is checked again with the next request
                _log.warning("a credential could not be looked at again: %s", type(error).__name__)

    async def drain(self, grace: float | None = None) -> bool:
        """Admit no requests and wait for those that are pending; return whether all ended within ``grace`` seconds.

        Evaluations that did not are answered with ``server_not_ready``. Runs are not cancelled: they stay as they are
        on record, and another process resumes them.
        """
        self.revisions.drain()
        try:
            async with asyncio.timeout(self.settings.grace if grace is None else grace):
                await self._ended()
        except TimeoutError:
            pass
        else:
            return True
        for pending in tuple(self._pending):
            pending.give_up(self.revisions.not_ready())
        self.revisions.leave()
        if replies := [pending.reply for pending in self._pending]:
            await asyncio.wait(replies, timeout=_LAST_REPLIES)
        return False

    async def _ended(self) -> None:
        """Wait for all replies, and for evaluations that were given up and still run in their threads."""
        while replies := [one.reply for one in self._pending]:
            await asyncio.wait(replies)
        await self.evaluations.drained()

    async def close(self) -> None:
        """Close after the transports. Pending requests end first, unless drain gave up on them."""
        self._unsubscribe()
        await self._ended()
        await self.revisions.end()
        self.evaluations.shutdown()
        self.readers.shutdown(wait=False)

    # --- for sessions ------------------------------------------------------------------------------------------------

    def opened(self, session: Session) -> None:
        """Register a session that lasts: it receives new manifests."""
        self._sessions.add(session)

    def closed(self, session: Session) -> None:
        self._sessions.discard(session)

    def begin(self, pending: PendingRequest) -> None:
        self._pending.add(pending)

    def end(self, pending: PendingRequest) -> None:
        self._pending.discard(pending)

    def handled(
        self,
        session: Session,
        message: ClientMessage | None,
        began_ns: int,
        reply: Reply,
        tool: str | None = None,
    ) -> None:
        """Log an answered message and notify the observers."""
        logged = _log.isEnabledFor(logging.INFO)
        if not logged and not self._observers:
            return
        identity = session.identity
        request = None if message is None or message.id is None else message.id[:_LONGEST_ID]
        event = HandledRequest(
            session=session.name,
            transport=session.transport,
            peer=session.peer,
            type=None if message is None else str(message.__struct_config__.tag),
            intent=self._declared(message) if isinstance(message, IntentRequest) else None,
            tool=tool,
            id=request,
            identity=None if identity is None else identity.name,
            code=reply.code,
            status=reply.status,
            began_ns=began_ns,
            ended_ns=time.time_ns(),
        )
        if logged:
            _log.info(
                "%s answered with %s",
                event.type or "a message",
                event.code or "a result",
                extra={
                    "session": event.session,
                    "peer": event.peer,
                    "request_id": event.id,
                    "identity": event.identity,
                    "intent": event.intent,
                    "tool": event.tool,
                    "code": event.code,
                    "milliseconds": (event.ended_ns - event.began_ns) / 1e6,
                },
            )
        for observer in self._observers:
            try:
                observer(event)
            except Exception:
                _log.exception("an observer failed")

    def _declared(self, message: IntentRequest) -> str | None:
        revision, name = self.revisions.current, message.payload.intent.name
        if revision is None:
            return None
        if self._intents[0] is not revision:
            self._intents = revision, frozenset(one.name for one in revision.domain.pack.settings.intents)
        return name if name in self._intents[1] else None

    def _send_manifests(self) -> None:
        for session in tuple(self._sessions):
            session.send_manifest()
