"""One client's conversation: messages in, answers out, whatever carries them.

The checks come in a fixed order, each before anything that costs more: size, decoding, version and type, the state of
the server, who asks, how often, how many at once. Then an intent is evaluated in a thread or a tool is invoked.

On HTTP a session is one request (:meth:`Session.handle`). On WebSocket and standard streams it lasts: messages are
taken as they come (:meth:`Session.receive`) and answered in any order, progress in between, a new manifest whenever
there is one. An identity that was found through a credential is looked for again from time to time.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection
from functools import partial
from typing import TYPE_CHECKING, Final, Literal, Self

from manglecp.intent import ANONYMOUS, Identity
from manglecp.server.auth import LOCAL
from manglecp.server.outbox import Outbox, Send
from manglecp.server.pending import Pending
from manglecp.server.replies import Reply, failure, success
from manglecp.server.steps import Steps, run
from manglecp.server.working import evaluate, internal_error, invoke
from manglecp.store import StoreError
from manglecp.wire import WireError, invalid_type, malformed, receive
from manglecp.wire.messages import (
    UNSET,
    Authenticate,
    Authenticated,
    AuthenticateResponse,
    Cancel,
    ClientMessage,
    IntentRequest,
    ProgressPayload,
)

if TYPE_CHECKING:
    from manglecp.server.core import Core

__all__ = ["Session", "Transport"]

Transport = Literal["http", "websocket", "stdio"]
_REQUESTS: Final = frozenset({"intent_request", "invoke_request"})
_ALL: Final = frozenset({"intent_request", "invoke_request", "cancel", "authenticate"})
_LONG: Final = 65_536
"""Bytes of a message that are not decoded on the event loop, and not at all for somebody unknown."""
_log = logging.getLogger(__name__)


class Session:
    """Made by :meth:`manglecp.server.core.Core.session`. One that lasts is an async context manager."""

    __slots__ = (
        *("name", "peer", "transport"),
        *("_core", "_credential", "_identity", "_known_until", "_left", "_outbox", "_pending", "_send", "_told"),
        "_unknown",
    )

    def __init__(self, core: Core, transport: Transport, peer: str | None, send: Send | None, name: str) -> None:
        self.name = name
        """In logs."""
        self.transport: Transport = transport
        self.peer = peer
        self._core = core
        self._send = send
        self._outbox: Outbox | None = None
        self._told: str | None = None
        """The tag of the last manifest."""
        self._pending: dict[str, Pending] = {}
        self._left = False
        """Was everything cancelled, also what is not begun?"""
        self._credential: tuple[str, str] | None = None
        self._identity: Identity | None = None
        self._known_until = 0.0
        self._unknown: asyncio.Event | None = None
        """Set when the credential was good, and is not any more; there if anybody waits for that."""
        if not core.auth.required:
            self._identity = LOCAL if transport == "stdio" else ANONYMOUS

    # --- its life ----------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        """The manifest goes first (TRANS-02, TRANS-25)."""
        assert self._send is not None, "a session that lasts has somewhere to send to"
        settings = self._core.settings
        self._outbox = Outbox(self._send, settings.outbox_bytes, settings.send_timeout)
        self.tell()
        self._core.opened(self)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def tell(self) -> None:
        """Send the manifest, if it is another than before (MANI-33)."""
        document = self._core.manifest()
        if self._outbox is not None and document.etag != self._told:
            self._told = document.etag
            self._outbox.put(document.data, "manifest")

    @property
    def lost(self) -> bool:
        """Does the client take nothing any more?"""
        return self._outbox is not None and self._outbox.broken.is_set()

    async def gone(self) -> None:
        """Wait until the client takes nothing any more."""
        assert self._outbox is not None
        await self._outbox.broken.wait()

    async def drain(self) -> None:
        """Wait until everything is answered and sent: the client says nothing more, and listens (TRANS-27)."""
        while self._pending:
            await asyncio.wait([one.answer for one in self._pending.values()])
        if self._outbox is not None:
            await self._outbox.flushed()

    async def close(self) -> None:
        """The client is gone. Nobody needs its evaluations; its runs go on, for they belong to no connection."""
        self._core.closed(self)
        for pending in tuple(self._pending.values()):
            if isinstance(pending.message, IntentRequest):
                pending.cancel()
        if self._outbox is not None:
            self._outbox.abort()

    def cancel_all(self) -> None:
        """On HTTP a client cancels by closing the connection (TRANS-40); not what it may ask for again by its key."""
        self._left = True
        for pending in tuple(self._pending.values()):
            if not pending.keyed:
                pending.cancel()

    # --- who asks ----------------------------------------------------------------------------------------------------

    def present(self, scheme: str, credential: str) -> None:
        """A credential that came with the connection; looked at when something is asked."""
        self._credential = (scheme, credential)
        self._identity, self._known_until = None, 0.0

    @property
    def identity(self) -> Identity | None:
        """Who speaks; None until that is known."""
        return self._identity

    def who(self) -> Steps[Identity]:
        """Whoever asks; ``auth_required`` or ``auth_invalid`` if that is nobody who may."""
        if self._credential is not None and self._core.clock() >= self._known_until:
            self._identity = None
            self._known((yield self._identify(*self._credential)))
        if self._identity is None:
            raise WireError("auth_required", "This server answers nobody without a credential")
        return self._identity

    async def recheck(self) -> None:
        """Look at the credential again, whoever asks or not."""
        if self._credential is None or self._identity is None:  # nothing, or nothing yet
            return
        scheme, credential = given = self._credential
        async with asyncio.timeout(self._core.settings.identify_timeout):
            identity = await self._core.auth.identify(scheme, credential)
        if self._credential is not given:  # another one came meanwhile
            return
        self._identity = identity
        if identity is None:
            self._known_until = 0.0
            self._waiting().set()

    async def unknown(self) -> None:
        """Wait until a credential that was good is not any more."""
        await self._waiting().wait()

    def _waiting(self) -> asyncio.Event:
        if self._unknown is None:
            self._unknown = asyncio.Event()
        return self._unknown

    def _known(self, identity: Identity) -> None:
        self._identity = identity
        self._known_until = self._core.clock() + self._core.settings.recheck

    async def _identify(self, scheme: str, credential: str) -> Identity:
        auth, settings = self._core.auth, self._core.settings
        identity = None
        if scheme in auth.schemes:
            try:
                async with asyncio.timeout(settings.identify_timeout):
                    identity = await auth.identify(scheme, credential)
            except TimeoutError:
                raise WireError("internal_error", "The credential could not be checked in time") from None
        if identity is None:
            self._core.admission.failed_try(self.peer)
            raise WireError("auth_invalid", "The credential is not valid, or not any more")
        return identity

    def _authenticate(self, message: Authenticate) -> Steps[Reply]:
        if self._core.serving.status == "draining":
            raise self._core.serving.not_ready()
        scheme, token = message.payload.scheme, message.payload.token
        identity: Identity = yield self._identify(scheme, token)
        self._credential = (scheme, token)
        self._known(identity)
        effects = self._core.auto_confirm.effects.get(identity.name, frozenset())
        return success(
            AuthenticateResponse(
                id=message.id,
                payload=Authenticated(
                    status="authenticated",
                    identity=identity.name,
                    permissions=tuple(sorted(identity.permissions)),
                    trust_level=identity.trust,
                    auto_confirm_effects=tuple(sorted(effects)) or UNSET,
                ),
            )
        )

    # --- messages ----------------------------------------------------------------------------------------------------

    async def handle(self, data: bytes, types: Collection[str] | None = None) -> Reply | None:
        """The answer to a message, progress already sent; None if it has none. ``types`` are those taken here."""
        return await run(self.answering(data, types))

    def answering(self, data: bytes, types: Collection[str] | None = None) -> Steps[Reply | None]:
        """The same, for who may not have to wait."""
        taken = yield from self._take(data, types)
        if not isinstance(taken, Pending):
            return taken
        try:
            reply: Reply = yield taken
        except asyncio.CancelledError:  # whoever waited for it is gone
            if not taken.keyed:
                taken.cancel()
            raise
        if self._outbox is not None:
            yield self._outbox.flushed()
        return reply

    async def receive(self, data: bytes | WireError) -> None:
        """Take a message, whose answer is sent when it is there, or what keeps it from being one. Returns when the next
        one may be read.

        A ConnectionResetError says that the client takes nothing any more.
        """
        assert self._outbox is not None, "a session that lasts is entered first"
        taken = await run(self._take(data, None, self._outbox))
        if isinstance(taken, Reply):
            self._outbox.put(taken.data)
        await asyncio.sleep(0)  # messages that come without a pause must not keep others from their turn
        await self._outbox.room()
        if self._outbox.broken.is_set():
            raise ConnectionResetError("the client takes nothing any more")

    def _take(
        self, data: bytes | WireError, types: Collection[str] | None, into: Outbox | None = None
    ) -> Steps[Reply | Pending | None]:
        """Everything before the work: what is refused costs little. The answer of what is not goes ``into`` there."""
        began_ns = time.time_ns()
        message: ClientMessage | None = None
        try:
            message = yield from self._read(data)
            self._fits_here(message, types)
            if isinstance(message, Cancel):
                yield from self._cancel(message)
                return None
            self._core.admission.charge_peer(self.peer)
            if message.id in self._pending:
                # Answering under this id would answer the other request.
                raise _Uncorrelated("The id is that of a request that is not answered yet")
            if isinstance(message, Authenticate):
                reply = yield from self._authenticate(message)
            else:
                return (yield from self._begin(message, began_ns, into))
        except _Uncorrelated as error:
            reply = failure(malformed(str(error), "$.id", "Give every request an id of its own."), None)
        except WireError as error:
            reply = failure(error, error.id if message is None or isinstance(message, Cancel) else message.id)
        except Exception:
            _log.exception("a message could not be handled", extra={"session": self.name})
            reply = failure(internal_error(), None if message is None else message.id)
        self._core.handled(self, message, began_ns, reply)
        return reply

    def _read(self, data: bytes | WireError) -> Steps[ClientMessage]:
        core = self._core
        most, structured = core.max_message_bytes, core.structured_facts
        try:
            if isinstance(data, WireError):
                raise data
            if not _LONG < len(data) <= most:
                return receive(data, most, structured_facts=structured)
            yield from self.who()
            message: ClientMessage = yield self._read_aside(partial(receive, data, most, structured_facts=structured))
            return message
        except WireError as error:
            try:
                core.admission.charge_peer(self.peer)  # nonsense is not for free either
            except WireError as limited:
                limited.id = error.id
                raise limited from None
            raise

    async def _read_aside(self, work: Callable[[], ClientMessage]) -> ClientMessage:
        return await asyncio.get_running_loop().run_in_executor(self._core.readers, work)

    def _fits_here(self, message: ClientMessage, types: Collection[str] | None) -> None:
        known = types if types is not None else _REQUESTS if self.transport == "http" else _ALL
        type_ = str(message.__struct_config__.tag)
        if isinstance(message, Cancel) and message.payload.request_key is not None and "invoke_request" in known:
            return  # also where no session could tell which request is meant
        if type_ not in known:
            raise invalid_type(type_, known, "is not taken here")

    def _cancel(self, message: Cancel) -> Steps[None]:
        """Those that are unknown or answered are passed over (OPEN-59). With its key a run is found wherever it is:
        a client that lost its connection, or has none that lasts, can cancel as well."""
        pending, key = self._pending.get(message.payload.request_id), message.payload.request_key
        if pending is not None:  # it costs nothing, and spares work
            pending.cancel()
        elif key is not None:
            self._core.admission.charge_peer(self.peer)
            identity = yield from self.who()
            self._core.admission.charge(identity)
            try:
                with self._core.serving.use() as edition:
                    yield edition.invoker.cancel(identity, key)
            except StoreError as error:
                _log.error("the store failed: %s", error, extra={"session": self.name})
                self._core.serving.store_failed(error)
                raise internal_error() from None

    # --- work --------------------------------------------------------------------------------------------------------

    def _begin(self, message: ClientMessage, began_ns: int, into: Outbox | None) -> Steps[Pending]:
        core = self._core
        assert not isinstance(message, Cancel | Authenticate)
        if core.serving.status in ("booting", "draining"):
            raise core.serving.not_ready()
        identity = yield from self.who()
        core.admission.charge(identity)
        if len(self._pending) >= core.settings.pending:
            raise WireError(
                "rate_limited",
                f"More than {core.settings.pending} requests of this session are unanswered",
                retry_after_ms=core.settings.retry_after_ms,
            )
        if message.id in self._pending:  # somebody may have been asked who this is
            raise _Uncorrelated("The id is that of a request that is not answered yet")

        def answered(pending: Pending, reply: Reply) -> None:
            del self._pending[pending.id]
            core.answered(pending)
            if into is not None:
                into.put(reply.data)
            core.handled(self, message, pending.began_ns, reply, pending.tool)

        pending = Pending(message, answered, began_ns)
        if self._left and not pending.keyed:
            raise WireError("cancelled", "The request was cancelled")
        if isinstance(message, IntentRequest):
            evaluate(core, self.name, pending, message, identity)
        else:
            progress = None if self._outbox is None else partial(self._progress, pending)
            invoke(core, self.name, pending, message, identity, progress)
        self._pending[pending.id] = pending
        core.taken(pending)
        return pending

    def _progress(self, pending: Pending, payload: ProgressPayload) -> None:
        """Only on sessions that last (PROG-04), under the request's id (PROG-05)."""
        data = pending.progress(payload)
        if data is not None and self._outbox is not None:
            self._outbox.put(data, "progress")


class _Uncorrelated(Exception):
    """Wrong in a way that no request can be told of."""
