"""One client's conversation: messages in, replies out, on every transport.

The checks come in a fixed order, each before anything that costs more: size, decoding, version and type, state of the
server, identity, rates, concurrency. Then an intent is evaluated in a thread or a tool is invoked.

On HTTP a session is one request (:meth:`Session.handle`). On WebSocket and standard streams it lasts: messages are
taken as they come (:meth:`Session.receive`) and answered in any order, with progress in between and a new manifest
whenever there is one. An identity that came from a credential is checked again from time to time.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection
from functools import partial
from typing import TYPE_CHECKING, Final, Literal, Self

from manglecp.intent import ANONYMOUS, Identity
from manglecp.server.auth import LOCAL
from manglecp.server.handlers import internal_error, respond
from manglecp.server.outbox import Outbox, Send
from manglecp.server.pending import PendingRequest, Reply, failure, success
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
    InvokeRequest,
    ProgressPayload,
)

if TYPE_CHECKING:
    from manglecp.server.core import Core

__all__ = ["Session", "Transport"]

Transport = Literal["http", "websocket", "stdio"]
_REQUESTS: Final = frozenset({"intent_request", "invoke_request"})
_ALL: Final = frozenset({"intent_request", "invoke_request", "cancel", "authenticate"})
_LONG: Final = 65_536
"""Bytes from which a message is decoded in a thread, and only for a known identity."""
_log = logging.getLogger(__name__)


class Session:
    """Made by :meth:`manglecp.server.core.Core.session`. One that lasts is an async context manager."""

    __slots__ = (
        *("name", "peer", "transport"),
        *("_core", "_credential", "_identity", "_known_until", "_left", "_manifest_tag", "_outbox", "_pending"),
        *("_revoked", "_send"),
    )

    def __init__(self, core: Core, transport: Transport, peer: str | None, send: Send | None, name: str) -> None:
        self.name = name
        """In logs."""
        self.transport: Transport = transport
        self.peer = peer
        self._core = core
        self._send = send
        self._outbox: Outbox | None = None
        self._manifest_tag: str | None = None
        """Of the manifest that was sent last."""
        self._pending: dict[str, PendingRequest] = {}
        self._left = False
        """Everything was cancelled, also what has not begun."""
        self._credential: tuple[str, str] | None = None
        self._identity: Identity | None = None
        self._known_until = 0.0
        self._revoked: asyncio.Event | None = None
        """Of a session that lasts: set when a credential that was valid is not any more."""
        if not core.auth.required:
            self._identity = LOCAL if transport == "stdio" else ANONYMOUS

    # --- life cycle --------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        """The manifest goes first (TRANS-02, TRANS-25)."""
        assert self._send is not None, "a session that lasts has a function to send with"
        settings = self._core.settings
        self._revoked = asyncio.Event()
        self._outbox = Outbox(self._send, settings.outbox_bytes, settings.send_timeout)
        self.send_manifest()
        self._core.opened(self)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def send_manifest(self) -> None:
        """Send the manifest if it has changed (MANI-33)."""
        document = self._core.manifest()
        if self._outbox is not None and document.etag != self._manifest_tag:
            self._manifest_tag = document.etag
            self._outbox.put(document.data, "manifest")

    @property
    def lost(self) -> bool:
        """Whether the client has stopped taking messages."""
        return self._outbox is not None and self._outbox.broken.is_set()

    async def gone(self) -> None:
        """Wait until the client has stopped taking messages."""
        assert self._outbox is not None
        await self._outbox.broken.wait()

    async def drain(self) -> None:
        """Wait until every reply is sent: the client has closed its side and still listens (TRANS-27)."""
        while self._pending:
            await asyncio.wait([one.reply for one in self._pending.values()])
        if self._outbox is not None:
            await self._outbox.flushed()

    async def close(self) -> None:
        """The client is gone: cancel its evaluations. Its runs go on, for they belong to no connection."""
        self._core.closed(self)
        for pending in tuple(self._pending.values()):
            if isinstance(pending.message, IntentRequest):
                pending.cancel()
        if self._outbox is not None:
            self._outbox.abort()

    def cancel_all(self) -> None:
        """An HTTP client cancels by closing the connection (TRANS-40); not what it may repeat with its key."""
        self._left = True
        for pending in tuple(self._pending.values()):
            if not pending.keyed:
                pending.cancel()

    # --- identity ----------------------------------------------------------------------------------------------------

    def present(self, scheme: str, credential: str) -> None:
        """Set the credential that came with the connection. It is checked with the first request."""
        self._credential = (scheme, credential)
        self._identity, self._known_until = None, 0.0

    @property
    def identity(self) -> Identity | None:
        """None until the credential was checked."""
        return self._identity

    async def identify(self) -> Identity:
        """Return the caller's identity. Raises ``auth_required`` or ``auth_invalid``."""
        if self._credential is not None and self._core.clock() >= self._known_until:
            self._identity = None
            self._set_identity(await self._check(*self._credential))
        if self._identity is None:
            raise WireError("auth_required", "This server answers nobody without a credential")
        return self._identity

    async def recheck(self) -> None:
        """Check the credential again, whether there is a request or not."""
        if self._credential is None or self._identity is None:
            return
        scheme, credential = given = self._credential
        async with asyncio.timeout(self._core.settings.identify_timeout):
            identity = await self._core.auth.identify(scheme, credential)
        if self._credential is not given:  # replaced meanwhile
            return
        self._identity = identity
        if identity is None:
            self._known_until = 0.0
            if self._revoked is not None:
                self._revoked.set()

    async def revoked(self) -> None:
        """Wait until a credential that was valid is not any more."""
        assert self._revoked is not None
        await self._revoked.wait()

    def _set_identity(self, identity: Identity) -> None:
        self._identity = identity
        self._known_until = self._core.clock() + self._core.settings.recheck

    async def _check(self, scheme: str, credential: str) -> Identity:
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

    async def _authenticate(self, message: Authenticate) -> Reply:
        if self._core.revisions.status == "draining":
            raise self._core.revisions.not_ready()
        scheme, token = message.payload.scheme, message.payload.token
        identity = await self._check(scheme, token)
        self._credential = (scheme, token)
        self._set_identity(identity)
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
        """Return the reply to a message after its progress was sent; None if it has none.

        ``types`` are those that are accepted here. The request runs in the calling task.
        """
        pending = await self._admit(data, types)
        if not isinstance(pending, PendingRequest):
            return pending
        reply = await self._respond(pending)
        if self._outbox is not None:
            await self._outbox.flushed()
        return reply

    async def receive(self, data: bytes | WireError) -> None:
        """Take a message, or the error that stands for one; its reply is sent when it is there.

        Returns when the next message may be read. Raises ConnectionResetError if the client takes nothing any more.
        """
        assert self._outbox is not None, "a session that lasts is entered first"
        pending = await self._admit(data, None)
        if isinstance(pending, Reply):
            self._outbox.put(pending.data)
        elif pending is not None:
            pending.task = asyncio.create_task(self._respond(pending, self._outbox))
        await asyncio.sleep(0)  # messages without a pause must not starve other sessions
        await self._outbox.room()
        if self._outbox.broken.is_set():
            raise ConnectionResetError("the client takes nothing any more")

    async def _admit(self, data: bytes | WireError, types: Collection[str] | None) -> Reply | PendingRequest | None:
        """Do all checks that come before the work."""
        began_ns = time.time_ns()
        message: ClientMessage | None = None
        try:
            message = await self._decode(data)
            self._check_type(message, types)
            if isinstance(message, Cancel):
                await self._cancel(message)
                return None
            self._core.admission.charge_peer(self.peer)
            if message.id in self._pending:
                raise _DuplicateId
            if not isinstance(message, Authenticate):
                return await self._register(message, began_ns)
            reply = await self._authenticate(message)
        except _DuplicateId:
            # A reply with this id would be taken for the reply to the other request.
            text = "The id is that of a request that is not answered yet"
            reply = failure(malformed(text, "$.id", "Give every request an id of its own."), None)
        except WireError as error:
            reply = failure(error, error.id if message is None or isinstance(message, Cancel) else message.id)
        except Exception:
            _log.exception("a message could not be handled", extra={"session": self.name})
            reply = failure(internal_error(), None if message is None else message.id)
        self._core.handled(self, message, began_ns, reply)
        return reply

    async def _decode(self, data: bytes | WireError) -> ClientMessage:
        core = self._core
        limit, structured = core.max_message_bytes, core.structured_facts
        try:
            if isinstance(data, WireError):
                raise data
            if not _LONG < len(data) <= limit:
                return receive(data, limit, structured_facts=structured)
            await self.identify()
            decode = partial(receive, data, limit, structured_facts=structured)
            return await asyncio.get_running_loop().run_in_executor(core.readers, decode)
        except WireError as error:
            try:
                core.admission.charge_peer(self.peer)  # malformed messages count as well
            except WireError as limited:
                limited.id = error.id
                raise limited from None
            raise

    def _check_type(self, message: ClientMessage, types: Collection[str] | None) -> None:
        known = types if types is not None else _REQUESTS if self.transport == "http" else _ALL
        type_ = str(message.__struct_config__.tag)
        if isinstance(message, Cancel) and message.payload.request_key is not None and "invoke_request" in known:
            return  # a key identifies the run without a session
        if type_ not in known:
            raise invalid_type(type_, known, "is not taken here")

    async def _cancel(self, message: Cancel) -> None:
        """Requests that are unknown or answered are ignored (OPEN-59). A run is found by its key on every replica, so
        that a client without its connection can cancel as well."""
        pending, key = self._pending.get(message.payload.request_id), message.payload.request_key
        if pending is not None:  # not charged: it saves work
            pending.cancel()
        elif key is not None:
            self._core.admission.charge_peer(self.peer)
            identity = await self.identify()
            self._core.admission.charge(identity)
            try:
                with self._core.revisions.use() as revision:
                    await revision.invoker.cancel(identity, key)
            except StoreError as error:
                _log.error("the store failed: %s", error, extra={"session": self.name})
                self._core.revisions.store_failed(error)
                raise internal_error() from None

    # --- requests ----------------------------------------------------------------------------------------------------

    async def _register(self, message: IntentRequest | InvokeRequest, began_ns: int) -> PendingRequest:
        core = self._core
        if core.revisions.status in ("booting", "draining"):
            raise core.revisions.not_ready()
        identity = await self.identify()
        core.admission.charge(identity)
        if len(self._pending) >= core.settings.pending:
            raise WireError(
                "rate_limited",
                f"More than {core.settings.pending} requests of this session are unanswered",
                retry_after_ms=core.settings.retry_after_ms,
            )
        if message.id in self._pending:  # registered while the identity was looked up
            raise _DuplicateId
        pending = PendingRequest(message, identity, began_ns)
        if self._left and not pending.keyed:
            raise WireError("cancelled", "The request was cancelled")
        self._pending[pending.id] = pending
        core.begin(pending)
        return pending

    async def _respond(self, pending: PendingRequest, outbox: Outbox | None = None) -> Reply:
        progress = None if self._outbox is None else partial(self._progress, pending)
        try:
            reply = await respond(self._core, self.name, pending, progress)
        except BaseException:  # this task was cancelled; a run that was accepted goes on without it
            if not pending.keyed:
                pending.cancel()
            self._end(pending)
            pending.reply.cancel()
            raise
        self._end(pending)
        pending.reply.set_result(reply)
        if outbox is not None:
            outbox.put(reply.data)
        self._core.handled(self, pending.message, pending.began_ns, reply, pending.tool)
        return reply

    def _end(self, pending: PendingRequest) -> None:
        del self._pending[pending.id]
        self._core.end(pending)

    def _progress(self, pending: PendingRequest, payload: ProgressPayload) -> None:
        """Only on sessions that last (PROG-04), under the request's id (PROG-05)."""
        data = pending.progress(payload)
        if data is not None and self._outbox is not None:
            self._outbox.put(data, "progress")


class _DuplicateId(Exception):
    """The id of the message is that of a pending request."""
