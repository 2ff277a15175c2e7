"""The message core: what all transports talk to.

It knows which sessions there are, tells them of new manifests, counts what is under way, and lets it end when the
server goes.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

from manglecp.invoke import AutoConfirm
from manglecp.server.admission import Admission
from manglecp.server.auth import Auth, OpenAuth
from manglecp.server.edition import Edition
from manglecp.server.evaluating import Evaluating
from manglecp.server.manifests import Document, Manifests
from manglecp.server.outbox import Send
from manglecp.server.pending import Pending
from manglecp.server.replies import Reply
from manglecp.server.serving import Serving
from manglecp.server.sessions import Session, Transport
from manglecp.wire.messages import ClientMessage, IntentRequest, InvokeRequest

__all__ = ["Core", "Handled"]

_LONGEST_ID: Final = 128
_LAST_WORDS: Final = 5.0
"""Seconds in which runs that are left tell whoever waits for them."""
_log = logging.getLogger(__name__)


class Handled(NamedTuple):
    """A message that was answered; for logs, metrics and traces. Nothing of its payload is in it but known names."""

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
        serving: Serving,
        auth: Auth | None = None,
        admission: Admission | None = None,
        *,
        auto_confirm: AutoConfirm | None = None,
        observers: Sequence[Callable[[Handled], None]] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``auto_confirm`` is what the editions have; clients are told of it when they authenticate (SEC-23).

        ``observers`` are told of every answer.
        """
        self.serving = serving
        self.settings = serving.settings
        self.auth: Auth = auth or OpenAuth()
        self.admission = admission or Admission(self.settings)
        self.evaluating = Evaluating(self.settings)
        self.auto_confirm = auto_confirm or AutoConfirm()
        self.clock = clock
        self.readers = ThreadPoolExecutor(1, thread_name_prefix="manglecp-reader")
        """Decodes long messages, one after the other."""
        self._observers = tuple(observers)
        self._manifests = Manifests(serving, self.auth)
        self._sessions: set[Session] = set()
        self._pending: set[Pending] = set()
        self._intents: tuple[Edition | None, frozenset[str]] = (None, frozenset())
        """Those that an edition declares."""
        self._numbers = itertools.count(1)
        self._unsubscribe = serving.subscribe(self._tell)

    # --- for transports ----------------------------------------------------------------------------------------------

    def session(self, transport: Transport, *, peer: str | None = None, send: Send | None = None) -> Session:
        """``peer`` is the client's network address. ``send`` takes what a session that lasts has to say."""
        return Session(self, transport, peer, send, f"{transport}-{next(self._numbers)}")

    def manifest(self, *, http: bool = False) -> Document:
        """As it is now; on HTTP it says where to ask."""
        return self._manifests.document(http=http)

    @property
    def max_message_bytes(self) -> int:
        """Of the pack that is served; before one is, of what is known about it."""
        edition = self.serving.edition
        return (self.serving.outline if edition is None else edition.domain.pack.settings).limits.max_message_bytes

    @property
    def structured_facts(self) -> bool:
        """Does the pack that is served take facts that are written as clauses?"""
        edition = self.serving.edition
        return edition is not None and edition.domain.pack.settings.structured_facts

    @property
    def sessions(self) -> int:
        """How many there are that last."""
        return len(self._sessions)

    @property
    def pending(self) -> int:
        """How many requests are not answered yet."""
        return len(self._pending)

    async def recheck(self) -> None:
        """Look at the credentials of sessions again: one may have expired or been withdrawn."""
        for session in tuple(self._sessions):
            try:
                await session.recheck()
            except Exception as error:  # then it is looked at when something is asked
                _log.warning("a credential could not be looked at again: %s", type(error).__name__)

    async def drain(self, grace: float | None = None) -> bool:
        """Take nothing new, and wait for what is under way; is it over after ``grace`` seconds?

        If not, whoever waits for an evaluation is told to ask elsewhere. Runs are not cancelled, for nobody has asked
        for that: they stay as they are on record, from where another process goes on.
        """
        self.serving.drain()
        if await self._over(self.settings.grace if grace is None else grace):
            return True
        for pending in tuple(self._pending):
            pending.give_up(self.serving.not_ready())
        self.serving.leave()
        if waiting := [pending.answer for pending in self._pending]:
            await asyncio.wait(waiting, timeout=_LAST_WORDS)
        return False

    async def _over(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._ended()
        except TimeoutError:
            return False
        return True

    async def _ended(self) -> None:
        """Wait for what is under way, also for what cannot be stopped and nobody waits for."""
        while runs := [one.answer for one in self._pending if isinstance(one.message, InvokeRequest)]:
            await asyncio.wait(runs)
        await self.evaluating.over()

    async def close(self) -> None:
        """After the transports. What is under way ends first, if it was not left."""
        self._unsubscribe()
        await self._ended()
        await self.serving.end()
        self.evaluating.shutdown()
        self.readers.shutdown(wait=False)

    # --- for sessions ------------------------------------------------------------------------------------------------

    def opened(self, session: Session) -> None:
        """One more session that lasts: it is told new manifests and closed at the end."""
        self._sessions.add(session)

    def closed(self, session: Session) -> None:
        """That session is over."""
        self._sessions.discard(session)

    def taken(self, pending: Pending) -> None:
        """It will be answered, and :meth:`answered` called."""
        self._pending.add(pending)

    def answered(self, pending: Pending) -> None:
        """Nobody waits for it any more."""
        self._pending.discard(pending)

    def handled(
        self,
        session: Session,
        message: ClientMessage | None,
        began_ns: int,
        reply: Reply,
        tool: str | None = None,
    ) -> None:
        """Tell the log and the metrics about a request that is answered."""
        logged = _log.isEnabledFor(logging.INFO)
        if not logged and not self._observers:
            return
        who = session.identity
        request = None if message is None or message.id is None else message.id[:_LONGEST_ID]
        event = Handled(
            session=session.name,
            transport=session.transport,
            peer=session.peer,
            type=None if message is None else str(message.__struct_config__.tag),
            intent=self._declared(message) if isinstance(message, IntentRequest) else None,
            tool=tool,
            id=request,
            identity=None if who is None else who.name,
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
        edition, name = self.serving.edition, message.payload.intent.name
        if edition is None:
            return None
        if self._intents[0] is not edition:
            self._intents = edition, frozenset(one.name for one in edition.domain.pack.settings.intents)
        return name if name in self._intents[1] else None

    def _tell(self) -> None:
        for session in tuple(self._sessions):
            session.tell()
