"""The connection of a client: manifest, readiness, authentication, requests and retries.

The client uses the newest manifest (the server's description) that it received. It sends no request while the status in
the manifest is ``booting`` or ``draining``. A session is authenticated after its first manifest; without a session
every request carries the credential. A request is retried unchanged only if the error is transient, or if the
connection was lost and a repetition is safe: with exponential back-off, not before ``retry_after_ms``, and at most five
times. All other errors are raised.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import logging
import random
import secrets
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias, TypeVar, cast

from manglecp.client.errors import ClientError, ConnectionLost, RequestRefused, ResponseTimeout, ServerError
from manglecp.client.fact_checks import FactChecks, check_size
from manglecp.client.transports.session import OnProgress, Request, Transport
from manglecp.wire import API_KEY_HEADER, CODES, SCHEMES, encode, messages

MAX_RETRIES: Final = 5
_TRANSIENT: Final = frozenset({"server_not_ready", "rate_limited"})
# Standard codes that are marked as recoverable, but only with a changed request.
_NEEDS_CHANGE: Final = {code for code, row in CODES.items() if row.recoverable and code[:2] != "x-"} - _TRANSIENT


def is_retryable(error: ServerError) -> bool:
    """Return whether the unchanged request may succeed later; with a custom code, only if it has ``retry_after_ms``."""
    if not error.recoverable or error.code in _NEEDS_CHANGE:
        return False
    return error.code in _TRANSIENT or error.retry_after_ms is not None


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The number of retries of a request, and their delays. ``jitter`` returns a random number from 0 to 1.

    An error whose ``retry_after_ms`` is longer than ``max_delay_ms`` is raised, not retried.
    """

    max_retries: int = MAX_RETRIES
    first_delay_ms: int = 200
    max_delay_ms: int = 60_000
    jitter: Callable[[], float] = field(default=random.random, repr=False)

    def __post_init__(self) -> None:
        if not 0 <= self.max_retries <= MAX_RETRIES:
            raise ValueError(f"a request is retried at most {MAX_RETRIES} times")

    def delay_ms(self, retry_count: int, retry_after_ms: int | None = None) -> float | None:
        """Return the delay before the next retry, after ``retry_count`` retries; None if there is no next retry."""
        min_delay_ms = retry_after_ms or 0
        if retry_count >= self.max_retries or min_delay_ms > self.max_delay_ms:
            return None
        half_ms: float = min(self.max_delay_ms, self.first_delay_ms * 2**retry_count) / 2  # half of the delay is random
        return max(min_delay_ms, half_ms) + half_ms * self.jitter()


Scheme: TypeAlias = Literal["bearer", "oauth2", "api_key"]
TokenSource: TypeAlias = str | Callable[[], str | Awaitable[str]]
"""A token, or a function that returns one and is called again when the server rejects the previous token."""


class Credential:
    """A token and its scheme. ``repr`` does not show the token."""

    def __init__(self, source: TokenSource, scheme: Scheme | None = None) -> None:
        if scheme is not None and scheme not in SCHEMES:
            raise ValueError(f"{scheme} is not a scheme; use one of {', '.join(SCHEMES)}")
        self._source = source
        self._token = source if isinstance(source, str) else None
        self._scheme = scheme

    def __repr__(self) -> str:
        return f"Credential({self._scheme or 'any scheme'}, …)"

    @property
    def is_renewable(self) -> bool:
        return not isinstance(self._source, str)

    def forget_token(self) -> None:
        """Clear the cached token of a renewable credential, so that :meth:`token` calls the source again."""
        self._token = None

    async def token(self) -> str:
        """Return the token, cached until :meth:`forget_token`."""
        if self._token is None:
            assert not isinstance(self._source, str)
            token = self._source()
            self._token = await token if inspect.isawaitable(token) else token
        return self._token

    def scheme(self, accepted: Sequence[str]) -> Scheme:
        """Return the configured scheme, by default bearer or the first accepted one. Raises :class:`RequestRefused`."""
        default = accepted[0] if accepted and "bearer" not in accepted else "bearer"
        scheme = self._scheme or default
        if scheme not in accepted:
            raise RequestRefused("auth_required", f"the server accepts {', '.join(accepted) or 'no token'} only")
        return cast(Scheme, scheme)

    async def headers(self, accepted: Sequence[str]) -> dict[str, str]:
        """Return the HTTP headers of a request to a server that accepts these schemes."""
        token = await self.token()
        if not token or not token.isascii() or not token.isprintable() or " " in token:
            raise RequestRefused("bad_token", "a token must consist of printable ASCII characters without spaces")
        if self.scheme(accepted) == "api_key":
            return {API_KEY_HEADER: token}
        return {"Authorization": f"Bearer {token}"}


T = TypeVar("T")
_FIRST_POLL_SECONDS: Final = 0.25  # before the manifest is fetched again; the interval doubles
_SESSION_CHECK_SECONDS: Final = 0.2  # interval of the check whether the session was lost during the wait for a manifest
_AUTH_ERRORS: Final = frozenset({"auth_required", "auth_invalid"})
_log = logging.getLogger(__name__)


class Connection:
    """The base class of :class:`manglecp.client.Client`, which documents the parameters; tests replace ``sleep``."""

    def __init__(
        self,
        transport: Transport,
        *,
        credential: Credential | None = None,
        retry_policy: RetryPolicy | None = None,
        response_seconds: float | None = None,
        boot_seconds: float = 60.0,
        on_manifest: Callable[[messages.ManifestPayload], object] | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._transport = transport
        self._credential = credential
        self._retry_policy = retry_policy or RetryPolicy()
        self._response_seconds = response_seconds
        self._boot_seconds = boot_seconds
        self._on_manifest = on_manifest
        self._sleep = sleep
        self._request_ids = (f"{secrets.token_hex(4)}-{number}" for number in itertools.count(1))
        self._ready_lock = asyncio.Lock()
        self._manifest_arrived = asyncio.Event()
        self._manifest: messages.ManifestPayload | None = None
        self._checks: FactChecks | None = None
        self._manifest_is_stale = False  # whether to fetch the manifest before the next request
        self._closed = False
        self._requests_in_flight = 0
        self.identity: messages.Authenticated | None = None
        """The authenticated identity; None without a session."""

    @property
    def manifest(self) -> messages.ManifestPayload:
        """The newest manifest."""
        if self._manifest is None:
            raise RequestRefused("not_connected", "the client is not connected; use it inside its async with block")
        return self._manifest

    def _has_extension(self, name: str) -> bool:
        return name in (self.manifest.extensions or {})

    async def connect(self) -> None:
        """Connect, receive the manifest and, in a session, authenticate. The server may still be booting afterwards."""
        async with self._ready_lock:
            self._closed = False
            await self._connect()

    async def close(self) -> None:
        """End the connection, and the server process if the transport started one."""
        self._closed = True
        self.identity = None
        await self._transport.close()

    async def refresh(self) -> messages.ManifestPayload:
        """Return the newest manifest; without a session, fetch it again."""
        if not self._transport.is_persistent:
            async with self._ready_lock:
                await self._connect()
        return self.manifest

    async def _connect(self) -> None:
        self.identity = None
        self._manifest_is_stale = False
        self._use_manifest(await self._transport.connect(self._use_manifest))
        if self._transport.is_persistent and self._credential is not None and self._accepts_credentials():
            try:
                await self._authenticate(self._credential)
            except BaseException:  # a session without the configured credential must not send requests
                await self._transport.close()
                raise

    def _use_manifest(self, manifest: messages.Manifest) -> None:
        self._manifest = manifest.payload
        self._checks = FactChecks(manifest.payload)
        self._manifest_arrived.set()
        if self._on_manifest is not None:
            try:
                self._on_manifest(manifest.payload)
            except Exception:
                _log.exception("the manifest callback failed")

    def _schemes(self) -> tuple[str, ...]:
        return self.manifest.auth.schemes or ()

    def _accepts_credentials(self) -> bool:
        return self.manifest.auth.required or bool(self._schemes())

    async def _authenticate(self, credential: Credential) -> None:
        for is_renewed in (False, True):
            payload = messages.AuthenticatePayload(
                scheme=credential.scheme(self._schemes()), token=await credential.token()
            )
            try:
                self.identity = await self._send(messages.Authenticate, payload)
            except ServerError as error:
                if error.code != "auth_invalid" or not credential.is_renewable or is_renewed:
                    raise
                credential.forget_token()
            else:
                return

    async def _headers(self) -> dict[str, str]:
        if self._transport.is_persistent or self._credential is None or not self._accepts_credentials():
            return {}
        return await self._credential.headers(self._schemes())

    async def ready(self) -> messages.ManifestPayload:
        """Wait until the server accepts requests, and return its manifest, which is complete by then."""
        await self._fact_checks()
        return self.manifest

    async def _fact_checks(self) -> FactChecks:
        """Return the fact checks of the manifest, once the server is ready. Retries after transient errors."""
        await self._with_retries(self._ensure_ready, may_repeat=lambda: True)
        assert self._checks is not None, "a ready connection has a manifest"
        return self._checks

    async def _ensure_ready(self) -> None:
        """Connect if necessary, and wait until ready. Raises :class:`RequestRefused` after ``boot_seconds``."""
        if self._closed:
            raise RequestRefused("not_connected", "the client is closed; connect() opens it again")
        async with self._ready_lock:
            if not self._transport.connected or self._manifest_is_stale:
                await self._connect()
            await self._wait_until_ready()
            is_identified = getattr(self._transport, "is_identified", False)
            if self.manifest.auth.required and self._credential is None and not is_identified:
                raise RequestRefused("auth_required", "the server requires a credential: pass token")

    async def _wait_until_ready(self) -> None:
        """Wait for a manifest that is neither ``booting`` nor ``draining``; poll without a session.

        A session with a draining server is reconnected once its pending requests are done: another server may listen at
        the same address.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._boot_seconds
        poll_count = 0
        while (status := self.manifest.status) in ("booting", "draining"):
            seconds_left = deadline - loop.time()
            if seconds_left <= 0:
                raise RequestRefused(
                    "server_not_ready", f"the server is still {status} after {self._boot_seconds:g} seconds"
                )
            is_persistent = self._transport.is_persistent
            if is_persistent and self._transport.connected and (status == "booting" or self._requests_in_flight):
                self._manifest_arrived.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(seconds_left, _SESSION_CHECK_SECONDS)):
                        await self._manifest_arrived.wait()
                continue
            if is_persistent and status == "booting":
                raise ConnectionLost("the connection was lost while the server was booting")
            if poll_count or status == "booting":  # the first reconnect from a draining server is immediate
                await self._sleep(min(seconds_left, _FIRST_POLL_SECONDS * 2 ** min(poll_count, 4)))
            poll_count += 1
            await self._connect()

    async def _exchange(
        self,
        request_type: type[Request],
        payload: Any,
        *,
        may_repeat: bool = True,
        on_progress: OnProgress | None = None,
    ) -> Any:
        """Send a request, retry it by the policy, and return the payload of its response. Raises :class:`ServerError`.

        ``may_repeat`` is whether the request may be sent again after a lost connection, although the server may have
        executed it.
        """
        was_sent = False

        async def attempt() -> Any:
            nonlocal was_sent
            was_sent = False
            await self._ensure_ready()
            was_sent = True
            return await self._send(request_type, payload, on_progress)

        return await self._with_retries(attempt, may_repeat=lambda: may_repeat or not was_sent)

    async def _with_retries(self, attempt: Callable[[], Awaitable[T]], may_repeat: Callable[[], bool]) -> T:
        """Return the result of ``attempt``, retried by the policy; after a lost connection only if ``may_repeat()``."""
        retry_count = 0
        was_renewed = False  # whether the credential was renewed
        while True:
            failure: ClientError
            retry_after_ms = None
            try:
                return await attempt()
            except ResponseTimeout:  # the server may still be working on the request
                raise
            except ConnectionLost as lost:
                if not may_repeat():
                    raise
                failure = lost
            except ServerError as error:
                failure, retry_after_ms, credential = error, error.retry_after_ms, self._credential
                self._manifest_is_stale = error.code == "server_not_ready" and not self._transport.is_persistent
                may_renew = error.code in _AUTH_ERRORS and not was_renewed and self._transport.connected
                if may_renew and credential is not None and credential.is_renewable:
                    was_renewed = True
                    credential.forget_token()
                    if self._transport.is_persistent:
                        await self._authenticate(credential)
                elif not is_retryable(error):
                    raise
            delay_ms = self._retry_policy.delay_ms(retry_count, retry_after_ms)
            if delay_ms is None:
                raise failure
            retry_count += 1
            _log.info("retry %d in %.0f ms: %s", retry_count, delay_ms, failure)
            await self._sleep(delay_ms / 1000)

    async def _send(self, request_type: type[Request], payload: Any, on_progress: OnProgress | None = None) -> Any:
        """Send a request once, and return the payload of its response. Raises :class:`ServerError` for an error."""
        request = request_type(id=next(self._request_ids), payload=payload)
        data = check_size(encode(request), self.manifest)
        headers = await self._headers()
        self._requests_in_flight += 1
        try:
            async with asyncio.timeout(self._response_seconds):
                response = await self._transport.request(request, data, headers, on_progress)
        except TimeoutError:
            raise ResponseTimeout(f"no response within {self._response_seconds:g} seconds") from None
        finally:
            self._requests_in_flight -= 1
        if isinstance(response, messages.ErrorMessage):
            raise ServerError.from_payload(response.payload)
        return response.payload
