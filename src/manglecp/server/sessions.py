"""The messages of one client and their replies, on every transport.

The checks of a message run in order of their cost: size, decoding, version and type, status of the server, identity,
rates, concurrency. Then an intent is evaluated in a thread, or a tool is invoked.

Over HTTP, each request has a :class:`Session` of its own, which handles it with :meth:`Session.handle`. On WebSocket
and standard streams, a session is persistent: it checks messages in the order of their arrival
(:meth:`Session.receive`), sends each reply as soon as it is complete, sends progress and new manifests in between, and
rechecks the credential periodically. ``core.revisions`` has the current pack revision and the status of the server.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection
from functools import partial
from typing import TYPE_CHECKING, Final, Literal, Self

from manglecp.intent import ANONYMOUS, Identity
from manglecp.server.auth import LOCAL, Credential
from manglecp.server.outbox import Outbox, Send
from manglecp.server.pending import (
    PendingMessage,
    PendingRequest,
    Reply,
    error_reply,
    foreign_reply,
    handle_approval,
    internal_error,
    push_facts,
)
from manglecp.store import StoreError
from manglecp.wire import WireError, encode, invalid_type, malformed, messages, receive

if TYPE_CHECKING:
    from manglecp.server.core import Core

Transport = Literal["http", "websocket", "stdio"]
_REQUEST_TYPES: Final = frozenset(
    {"intent_request", "invoke_request", "x-approval_request", "x-decide_request", "x-skill_request", "x-facts_request"}
)
_ALL_TYPES: Final = _REQUEST_TYPES | {"cancel", "authenticate"}
_MAX_INLINE_BYTES: Final = 65_536
"""Longer messages are decoded in a thread, not on the event loop, and only for an identified client."""
_log = logging.getLogger(__name__)


class Session:
    """A session, created by :meth:`manglecp.server.core.Core.session`; a persistent one is an async context manager."""

    def __init__(self, core: Core, transport: Transport, peer: str | None, send: Send | None, name: str) -> None:
        self.name = name
        self.transport: Transport = transport
        self.peer = peer
        self.identity: Identity | None = None
        """None if a credential is required, and none was accepted yet."""
        self.revoked: asyncio.Event
        """Set when the accepted credential of a persistent session is no longer valid."""
        self._core = core
        self._send = send
        self._outbox: Outbox | None = None
        self._manifest_etag: str | None = None
        """The ETag of the manifest that was sent last."""
        self._pending: dict[str, PendingRequest] = {}
        self._is_disconnected = False
        """Whether the client is gone: requests that are not registered yet are cancelled, too."""
        self._credential: Credential | None = None
        self._recheck_at = 0.0  # when the credential is checked next, by core.clock(); 0.0: with the next request
        if not core.auth.required:
            self.identity = LOCAL if transport == "stdio" else ANONYMOUS

    async def __aenter__(self) -> Self:
        """Send the manifest before any other message (requirements TRANS-02, TRANS-25)."""
        assert self._send is not None, "a persistent session needs send"
        settings = self._core.settings
        self.revoked = asyncio.Event()
        self._outbox = Outbox(self._send, settings.outbox_bytes, settings.send_timeout)
        self.send_manifest()
        self._core.sessions.add(self)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def send_manifest(self) -> None:
        """Send the manifest if it has changed (MANI-33)."""
        document = self._core.manifest()
        if self._outbox is not None and document.etag != self._manifest_etag:
            self._manifest_etag = document.etag
            self._outbox.put(document.data, "manifest")

    @property
    def lost(self) -> asyncio.Event:
        """The event that is set when the client is gone, or has stopped reading messages."""
        assert self._outbox is not None, "enter the session first"
        return self._outbox.broken

    async def drain(self) -> None:
        """Wait until every reply is sent: a client that has closed its output may still read (TRANS-27)."""
        while self._pending:
            await asyncio.wait([pending.reply for pending in self._pending.values()])
        if self._outbox is not None:
            await self._outbox.flush()

    async def close(self) -> None:
        """Close the session of a client that is gone."""
        self._core.sessions.discard(self)
        self.disconnect()
        if self._outbox is not None:
            self._outbox.abort()

    def disconnect(self) -> None:
        """Cancel the pending requests of a client that is gone, except runs with a request key or an effect."""
        self._is_disconnected = True
        for pending in tuple(self._pending.values()):
            pending.disconnect()

    def set_credential(self, scheme: str, token: str) -> None:
        """Set the credential of the connection. The first request checks the credential."""
        self._credential = Credential(scheme, token)
        self.identity, self._recheck_at = None, 0.0

    async def identify(self) -> Identity:
        """Return the client's identity, after a check if that is due. Raises ``auth_required`` or ``auth_invalid``."""
        if self._credential is not None and self._core.clock() >= self._recheck_at:
            self.identity = None
            self._set_identity(await self._check_credential(self._credential))
        if self.identity is None:
            raise WireError("auth_required", "This server requires a credential")
        return self.identity

    async def recheck(self) -> None:
        """Check a valid credential again, now. Raises TimeoutError."""
        if self._credential is None or self.identity is None:
            return
        credential = self._credential
        async with asyncio.timeout(self._core.settings.identify_timeout):
            identity = await self._core.auth.identify(credential.scheme, credential.token)
        if self._credential is not credential:  # another credential was set during the check
            return
        self.identity = identity
        if identity is None:
            self._recheck_at = 0.0
            self.revoked.set()

    def _set_identity(self, identity: Identity) -> None:
        self.identity = identity
        self._recheck_at = self._core.clock() + self._core.settings.recheck_interval

    async def _check_credential(self, credential: Credential) -> Identity:
        auth, settings = self._core.auth, self._core.settings
        identity = None
        if credential.scheme in auth.schemes:
            try:
                async with asyncio.timeout(settings.identify_timeout):
                    identity = await auth.identify(credential.scheme, credential.token)
            except TimeoutError:
                raise WireError("internal_error", "The credential could not be checked in time") from None
        if identity is None:
            self._core.request_limits.charge_failed_attempt(self.peer)
            raise WireError("auth_invalid", "The credential is not valid, or no longer valid")
        return identity

    async def _authenticate(self, message: messages.Authenticate) -> Reply:
        if self._core.revisions.status == "draining":
            raise self._core.revisions.not_ready()
        credential = Credential(message.payload.scheme, message.payload.token)
        identity = await self._check_credential(credential)
        self._credential = credential
        self._set_identity(identity)
        payload = messages.Authenticated(
            status="authenticated",
            identity=identity.name,
            permissions=tuple(sorted(identity.permissions)),
            trust_level=identity.trust,
            auto_confirm_effects=identity.auto_confirm_effects or messages.UNSET,
        )
        return Reply(encode(messages.AuthenticateResponse(id=message.id, payload=payload)))

    async def handle(self, data: bytes, types: Collection[str] | None = None) -> Reply | None:
        """Handle a message in the calling task, and return the reply; None for a message without a reply.

        ``types`` are the accepted message types; None means all types that the transport accepts.
        """
        result = await self._accept(data, types)
        if not isinstance(result, PendingRequest):
            return result
        reply = await self._respond(result)
        if self._outbox is not None:  # progress messages come before the reply
            await self._outbox.flush()
        return reply

    async def receive(self, data: bytes) -> None:
        """Check a message; a task sends the reply. Returns when the next message may be read.

        Raises ConnectionResetError if the client has stopped reading.
        """
        assert self._outbox is not None, "enter the session first"
        result = await self._accept(data, None)
        if isinstance(result, Reply):
            self._outbox.put(result.data)
        elif result is not None:
            result.task = asyncio.create_task(self._respond(result, self._outbox))
        await asyncio.sleep(0)  # messages without a pause must not starve other sessions
        await self._outbox.has_room.wait()
        if self._outbox.broken.is_set():
            raise ConnectionResetError("the client has stopped reading")

    async def _accept(self, data: bytes, types: Collection[str] | None) -> Reply | PendingRequest | None:
        """Check a message. Returns the registered request, the reply to any other message, or None for a ``cancel``."""
        began_ns = time.time_ns()
        message: messages.ClientMessage | None = None
        try:
            message = await self._decode(data)
            self._check_type(message, types)
            if isinstance(message, messages.Cancel):
                await self._cancel(message)
                return None
            self._core.request_limits.charge_peer(self.peer)
            self._check_id(message)
            if isinstance(message, messages.Authenticate):
                reply = await self._authenticate(message)
            elif isinstance(message, messages.ApprovalMessage | messages.SkillMessage | messages.FactsMessage):
                reply = await self._handle_extension(message)
            else:
                return await self._register(message, began_ns)
        except WireError as error:
            # A decoding error has the id that the decoder found, if any. A cancel message has no id.
            request_id = error.id if message is None or isinstance(message, messages.Cancel) else message.id
            # With the id of a pending request, this error would look like the reply to the pending request.
            foreign = foreign_reply(data) if message is None else None
            reply = foreign or error_reply(error, None if request_id in self._pending else request_id)
        except Exception:
            _log.exception("a message could not be handled", extra={"session": self.name})
            reply = error_reply(internal_error(), None if message is None else message.id)
        self._core.report_handled(self, message, began_ns, reply)
        return reply

    async def _decode(self, data: bytes) -> messages.ClientMessage:
        core, settings = self._core, self._core.pack_settings
        limit, structured_facts = settings.limits.max_message_bytes, settings.structured_facts
        try:
            if len(data) <= _MAX_INLINE_BYTES or len(data) > limit:  # ``receive`` refuses longer messages undecoded
                return receive(data, limit, structured_facts=structured_facts)
            await self.identify()
            decode = partial(receive, data, limit, structured_facts=structured_facts)
            return await asyncio.get_running_loop().run_in_executor(core.decoder, decode)
        except WireError as error:
            try:
                core.request_limits.charge_peer(self.peer)  # malformed messages count as well
            except WireError as rate_error:
                rate_error.id = error.id  # for the reply to the malformed message
                raise rate_error from None
            raise

    def _check_type(self, message: messages.ClientMessage, types: Collection[str] | None) -> None:
        if types is None:
            types = _REQUEST_TYPES if self.transport == "http" else _ALL_TYPES
        type_ = str(message.__struct_config__.tag)
        if (
            isinstance(message, messages.Cancel)
            and message.payload.request_key is not None
            and "invoke_request" in types
        ):
            return  # the request key is enough to find the run: any transport can cancel it
        if type_ not in types:
            raise invalid_type(type_, types, "is not accepted here")

    def _check_id(self, message: messages.ClientMessage) -> None:
        if message.id in self._pending:
            raise malformed("The id is that of a pending request", "$.id", "Use a different id for every request.")

    async def _cancel(self, message: messages.Cancel) -> None:
        """Cancel the pending request with this id, else the run with this request key (OPEN-59).

        An unknown id or key is ignored. Any replica finds a run by its key, also after the client lost its connection.
        """
        pending, key = self._pending.get(message.payload.request_id), message.payload.request_key
        if pending is not None:  # not counted by the rate limit: a cancellation saves work
            pending.cancel()
        elif key is not None:
            self._core.request_limits.charge_peer(self.peer)
            identity = await self.identify()
            self._core.request_limits.charge(identity)
            try:
                with self._core.revisions.use() as revision:
                    await revision.invoker.cancel(identity, key)
            except StoreError as error:
                self._core.revisions.store_failed(error, {"session": self.name})
                raise internal_error() from None

    async def _charge_identity(self) -> Identity:
        """Return the client's identity, and charge it for a request. Raises WireError."""
        core = self._core
        if core.revisions.status in ("booting", "draining"):
            raise core.revisions.not_ready()
        identity = await self.identify()
        core.request_limits.charge(identity)
        return identity

    async def _handle_extension(
        self, message: messages.ApprovalMessage | messages.SkillMessage | messages.FactsMessage
    ) -> Reply:
        """Return the reply to a message of an extension of the protocol: approvals, skills or facts."""
        identity = await self._charge_identity()
        try:
            with self._core.revisions.use() as revision:
                if isinstance(message, messages.SkillMessage):
                    skills = await revision.offers.skills(identity, message.payload.skill_id)
                    payload = messages.SkillResult(skills=skills)
                    return Reply(encode(messages.SkillResponse(id=message.id, payload=payload)))
                if isinstance(message, messages.FactsMessage):
                    push = message.payload
                    facts = push.facts if push.text is None else push.text
                    async with self._core.pushing:
                        facts_result = await asyncio.to_thread(push_facts, revision, identity, push.source, facts)
                    return Reply(encode(messages.FactsResponse(id=message.id, payload=facts_result)))
                approvals = revision.invoker.approvals
                result = await asyncio.to_thread(handle_approval, approvals, identity, message.payload)
        except StoreError as error:
            self._core.revisions.store_failed(error, {"session": self.name})
            raise internal_error() from None
        return Reply(encode(messages.ApprovalResponse(id=message.id, payload=result)))

    async def _register(self, message: PendingMessage, began_ns: int) -> PendingRequest:
        core, identity = self._core, await self._charge_identity()
        if len(self._pending) >= core.settings.max_pending:
            text = f"More than {core.settings.max_pending} requests of this session are pending"
            raise WireError("rate_limited", text, retry_after_ms=core.settings.retry_after_ms)
        self._check_id(message)  # checked again, because a request with this id may have been registered meanwhile
        pending = PendingRequest(message, identity, began_ns)
        if self._is_disconnected and not pending.has_request_key:
            raise WireError("cancelled", "The request was cancelled")
        self._pending[pending.id] = pending
        core.pending.add(pending)
        return pending

    async def _respond(self, pending: PendingRequest, outbox: Outbox | None = None) -> Reply:
        """Handle a registered request, put the reply into ``outbox``, if one is passed, and return the reply."""
        progress = None if self._outbox is None else partial(self._send_progress, pending)
        try:
            reply = await pending.handle(self._core, self.name, progress)
        except BaseException:  # this task was cancelled; a run with a key continues in its own task
            pending.disconnect()
            self._unregister(pending)
            pending.reply.cancel()
            raise
        self._unregister(pending)
        pending.reply.set_result(reply)
        if outbox is not None:
            outbox.put(reply.data)
        self._core.report_handled(self, pending.message, pending.began_ns, reply, pending.tool)
        return reply

    def _unregister(self, pending: PendingRequest) -> None:
        del self._pending[pending.id]
        self._core.pending.discard(pending)

    def _send_progress(self, pending: PendingRequest, payload: messages.ProgressPayload) -> None:
        """Send progress with the request's id (PROG-05), in a persistent session (PROG-04)."""
        data = pending.progress(payload)
        if data is not None and self._outbox is not None:
            self._outbox.put(data, "progress")
