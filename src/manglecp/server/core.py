"""The message core of all transports: sessions, pending requests, the manifest, and draining."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from manglecp.intent import Identity, manifest
from manglecp.pack import Settings, outline_manifest
from manglecp.server.auth import Auth, OpenAuth
from manglecp.server.auth_config import describe_auth
from manglecp.server.evaluation import EvaluationScheduler
from manglecp.server.outbox import Send
from manglecp.server.pending import PendingRequest, Reply
from manglecp.server.request_limits import RequestLimits
from manglecp.server.revisions import RevisionManager
from manglecp.server.sessions import Session, Transport
from manglecp.wire import encode
from manglecp.wire.messages import ClientMessage, Endpoints, IntentRequest, Status

_LOGGED_FIELDS: Final = ("session", "peer", "identity", "intent", "tool", "code")
_MAX_LOGGED_ID: Final = 128  # characters
_LAST_REPLIES_SECONDS: Final = 5.0
"""How long a drain waits for the replies to requests that did not end within the grace period."""
_log = logging.getLogger(__name__)


class ManifestDocument(NamedTuple):
    """An encoded manifest, its ETag with quotation marks, and the status of the server in it."""

    data: bytes
    etag: str
    status: Status


def strong_etag(data: bytes) -> str:
    """Return an ETag of exactly these bytes, with its quotation marks."""
    return f'"{hashlib.sha256(data).hexdigest()[:32]}"'  # 128 bits: no collisions by chance


class HandledRequest(NamedTuple):
    """A handled message and its reply, for logs, metrics and traces. It has only the names in the payload."""

    session: str
    transport: Transport
    peer: str | None
    """The client's network address."""
    type: str | None
    """None if the message could not be decoded."""
    intent: str | None
    """The name of an intent that the pack declares; None for other names, which clients choose freely."""
    tool: str | None
    """The name of the tool that was invoked."""
    id: str | None
    """The id of the request, truncated."""
    identity: str | None
    code: str | None
    """The error code; None for a success."""
    status: int
    """The status code of HTTP."""
    began_ns: int
    ended_ns: int


@dataclass(frozen=True, slots=True)
class IdentifiedSessions:
    """Opens sessions of one principal, authenticated by the program that embeds the server."""

    core: Core
    identity: Identity

    def session(self, transport: Transport, /, *, send: Send) -> Session:
        return self.core.session(transport, send=send, identity=self.identity)


class Core:
    """The message core of a process, used on one event loop."""

    def __init__(
        self,
        revisions: RevisionManager,
        auth: Auth | None = None,
        request_limits: RequestLimits | None = None,
        *,
        observers: Sequence[Callable[[HandledRequest], None]] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Serve the current revision. ``observers`` are called with each handled request; ``clock`` returns seconds."""
        self.revisions = revisions
        self.settings = revisions.settings
        self.auth: Auth = auth or OpenAuth()
        self.request_limits = request_limits or RequestLimits(self.settings)
        self.evaluations = EvaluationScheduler(self.settings)
        self.clock = clock
        self.decoder = ThreadPoolExecutor(1, thread_name_prefix="manglecp-decoder")
        """Decodes long messages, one at a time."""
        self.pushing = asyncio.Lock()
        """Held during a push of facts: further pushes wait without a thread, which other requests need."""
        self._observers = tuple(observers)
        self._manifests: dict[bool, tuple[Any, ManifestDocument]] = {}
        """The cached manifests with HTTP endpoints (True) and without (False), each with the state it describes."""
        self.sessions: set[Session] = set()
        """The persistent sessions, which receive new manifests."""
        self.pending: set[PendingRequest] = set()
        """The requests of all sessions that have no reply yet."""
        self._session_numbers = itertools.count(1)
        revisions.on_change = self._send_manifests

    def session(
        self,
        transport: Transport,
        *,
        peer: str | None = None,
        send: Send | None = None,
        identity: Identity | None = None,
    ) -> Session:
        """Return a new session. ``peer`` is the client's network address; a persistent session needs ``send``.

        With ``identity`` the session needs no credential: the caller has authenticated the principal.
        """
        session = Session(self, transport, peer, send, f"{transport}-{next(self._session_numbers)}")
        if identity is not None:
            session.identity = identity
        return session

    def manifest(self, *, http: bool = False) -> ManifestDocument:
        """Return the current manifest; with ``http`` it has the endpoints (requirement MANI-11).

        Before the pack is loaded, the manifest has the pack's name, intents and limits, and the status ``booting``.
        """
        revisions, revision = self.revisions, self.revisions.current
        state = (revision, revisions.status, dict(revisions.failures))
        if http in self._manifests:
            cached_state, cached_document = self._manifests[http]
            if cached_state == state:
                return cached_document
        base, auth = self.settings.base, describe_auth(self.auth)
        endpoints = None
        if http:
            endpoints = Endpoints(
                intent_eval=f"{base}/evaluate",
                macro_invoke=f"{base}/invoke",
                approvals=f"{base}/approvals",
                decide=f"{base}/decide",
                skills=f"{base}/skills",
                facts=f"{base}/facts",
            )
        if revision is None:
            message = outline_manifest(revisions.outline, revisions.status, endpoints, auth)
        else:
            extensions = {"x-degraded": dict(revisions.failures)} if revisions.failures else None
            message = manifest(revision.domain, revisions.status, endpoints, auth, extensions)
        data = encode(message)
        document = ManifestDocument(data, strong_etag(data), revisions.status)
        self._manifests[http] = (state, document)
        return document

    @property
    def pack_settings(self) -> Settings:
        """The settings of the current pack revision; while booting, of the pack's settings file."""
        revision = self.revisions.current
        return self.revisions.outline if revision is None else revision.domain.pack.settings

    async def recheck(self) -> None:
        """Check the credentials of all sessions again: a credential may have expired or been revoked."""
        for session in tuple(self.sessions):
            try:
                await session.recheck()
            except Exception as error:  # the next request or recheck repeats the check
                _log.warning("a credential could not be checked again: %s", type(error).__name__)

    async def drain(self, grace: float | None = None) -> bool:
        """Refuse new requests and wait for pending ones; return whether all ended within ``grace`` seconds.

        The reply to an evaluation that did not end is ``server_not_ready``. Runs are not cancelled: another process
        resumes them from the store.
        """
        self.revisions.drain()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.settings.grace_period if grace is None else grace):
                await self._wait_until_idle()
                return True
        for pending in tuple(self.pending):
            pending.abandon(self.revisions.not_ready())
        self.revisions.end_grace_period()
        if replies := [pending.reply for pending in self.pending]:
            await asyncio.wait(replies, timeout=_LAST_REPLIES_SECONDS)
        return False

    async def _wait_until_idle(self) -> None:
        """Wait for all replies, and for abandoned evaluations, which still run in their threads."""
        while replies := [pending.reply for pending in self.pending]:
            await asyncio.wait(replies)
        await self.evaluations.wait_until_idle()

    async def close(self) -> None:
        """Wait for pending requests and close the core. The caller has closed the transports."""
        self.revisions.on_change = None
        await self._wait_until_idle()
        await self.revisions.end()
        self.evaluations.shutdown()
        self.decoder.shutdown(wait=False)

    def report_handled(
        self, session: Session, message: ClientMessage | None, began_ns: int, reply: Reply, tool: str | None = None
    ) -> None:
        """Log a handled message and notify the observers."""
        is_logged = _log.isEnabledFor(logging.INFO)
        if not is_logged and not self._observers:
            return
        identity = session.identity
        request_id = None if message is None or message.id is None else message.id[:_MAX_LOGGED_ID]
        event = HandledRequest(
            session=session.name,
            transport=session.transport,
            peer=session.peer,
            type=None if message is None else str(message.__struct_config__.tag),
            intent=self._declared_intent(message) if isinstance(message, IntentRequest) else None,
            tool=tool,
            id=request_id,
            identity=None if identity is None else identity.name,
            code=reply.code,
            status=reply.status,
            began_ns=began_ns,
            ended_ns=time.time_ns(),
        )
        if is_logged:
            _log.info(
                "%s answered with %s",
                event.type or "a message",
                event.code or "a result",
                extra={name: getattr(event, name) for name in _LOGGED_FIELDS}
                | {"request_id": event.id, "milliseconds": (event.ended_ns - event.began_ns) / 1e6},
            )
        for observer in self._observers:
            try:
                observer(event)
            except Exception:
                _log.exception("an observer failed")

    def _declared_intent(self, message: IntentRequest) -> str | None:
        revision, name = self.revisions.current, message.payload.intent.name
        declared_intents = () if revision is None else revision.domain.pack.settings.intents
        return name if any(name == intent.name for intent in declared_intents) else None

    def _send_manifests(self) -> None:
        for session in tuple(self.sessions):
            session.send_manifest()
