"""A server as a client sees it over time: connected, known, asked, and asked again where that may be.

The newest manifest counts, whether it came first, later or after the connection was lost (MANI-34). Nothing is sent
while it says ``booting`` or ``draining`` (CLI-14). On a connection that lasts, the client authenticates after each
manifest that begins one (SEC-13); without one, every request carries the credential.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, TypeVar

from manglecp.client.checking import FactChecks, check_size
from manglecp.client.credential import Credential
from manglecp.client.errors import ClientError, ConnectionLost, NoAnswer, Refused, ServerError
from manglecp.client.retrying import Retrying, repeatable
from manglecp.client.transports.protocol import OnProgress, Request, Transport
from manglecp.wire import encode
from manglecp.wire.messages import (
    UNSET,
    Authenticate,
    Authenticated,
    AuthenticatePayload,
    AuthenticateResponse,
    ErrorMessage,
    Manifest,
    ManifestPayload,
    ServerMessage,
)

__all__ = ["Connection"]

T = TypeVar("T")
_POLL_MS: Final = 250
"""How often a manifest that says ``booting`` is read again at first, where new ones do not come by themselves."""
_LOOK_SECONDS: Final = 0.2
"""How long to wait for news on a connection before looking whether it is still there."""
_UNKNOWN: Final = frozenset({"auth_required", "auth_invalid"})
_log = logging.getLogger(__name__)


class Connection:
    """One server, reached through one transport."""

    def __init__(
        self,
        transport: Transport,
        *,
        credential: Credential | None = None,
        retrying: Retrying | None = None,
        answer_seconds: float | None = None,
        boot_seconds: float = 60.0,
        on_manifest: Callable[[ManifestPayload], object] | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """``answer_seconds`` is how long an answer may take, None for as long as it takes."""
        self._transport = transport
        self._credential = credential
        self._retrying = retrying or Retrying()
        self._answer_seconds = answer_seconds
        self._boot_seconds = boot_seconds
        self._told = on_manifest
        self._sleep = sleep
        self._ids = (f"{secrets.token_hex(4)}-{number}" for number in itertools.count(1))
        self._getting_ready = asyncio.Lock()
        self._news = asyncio.Event()
        self._manifest: ManifestPayload | None = None
        self._checks: FactChecks | None = None
        self._stale = False
        self._closed = False
        self._asking = 0
        """How many requests are unanswered."""
        self.identity: Authenticated | None = None
        """What the server said to the credential; None on transports where it says nothing."""

    @property
    def manifest(self) -> ManifestPayload:
        """The newest one. Raises :class:`Refused` before there was any."""
        if self._manifest is None:
            raise Refused("not_connected", "the client is not connected; it is used inside its async with block")
        return self._manifest

    @property
    def checks(self) -> FactChecks:
        """How facts are checked against the newest manifest."""
        assert self._checks is not None, "there is a manifest before anything is checked"
        return self._checks

    @property
    def keeps_request_keys(self) -> bool:
        """Does the server say that it does a request with a known key only once?"""
        extensions = self.manifest.extensions
        return extensions is not UNSET and "x-request_key" in extensions

    # --- its life --------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Connect, and wait for the manifest; whether the server is ready matters when something is asked."""
        async with self._getting_ready:
            self._closed = False
            await self._connect()

    async def close(self) -> None:
        """End the connection. Nothing but :meth:`open` connects again."""
        self._closed = True
        self.identity = None
        await self._transport.close()

    async def refresh(self) -> ManifestPayload:
        """Read the manifest again where it does not come by itself."""
        if not self._transport.session:
            async with self._getting_ready:
                await self._connect()
        return self.manifest

    async def _connect(self) -> None:
        """Nothing of an earlier connection holds (TRANS-08)."""
        self.identity = None
        self._stale = False
        self._take(await self._transport.connect(self._take))
        if self._transport.session and self._credential is not None and self._takes_credentials():
            try:
                await self._authenticate(self._credential)
            except BaseException:  # nothing is asked in nobody's name
                await self._transport.close()
                raise

    def _take(self, manifest: Manifest) -> None:
        self._manifest = manifest.payload
        self._checks = FactChecks(manifest.payload)
        self._news.set()
        if self._told is not None:
            try:
                self._told(manifest.payload)
            except Exception:
                _log.exception("what was to be told of a manifest failed")

    # --- who asks --------------------------------------------------------------------------------------------------

    def _schemes(self) -> tuple[str, ...]:
        said = self.manifest.auth.schemes
        return () if said is UNSET else said

    def _takes_credentials(self) -> bool:
        return self.manifest.auth.required or bool(self._schemes())

    async def _authenticate(self, credential: Credential) -> None:
        for renewed in (False, True):
            payload = AuthenticatePayload(scheme=credential.scheme(self._schemes()), token=await credential.token())
            try:
                answer = _good(await self._ask(Authenticate(id=next(self._ids), payload=payload), None))
            except ServerError as error:
                if error.code != "auth_invalid" or not credential.renewable or renewed:
                    raise
                credential.forget()
            else:
                assert isinstance(answer, AuthenticateResponse)
                self.identity = answer.payload
                return

    async def _headers(self) -> dict[str, str]:
        if self._transport.session or self._credential is None or not self._takes_credentials():
            return {}
        return await self._credential.headers(self._schemes())

    # --- asking ----------------------------------------------------------------------------------------------------

    async def ready(self) -> None:
        """Connected, authenticated, and the server takes requests; :class:`Refused` if it does not."""
        if self._closed:
            raise Refused("not_connected", "the client is closed; connect() opens it again")
        async with self._getting_ready:
            if not self._transport.connected or self._stale:
                await self._connect()
            await self._taking()
            if self.manifest.auth.required and self._credential is None:
                raise Refused("auth_required", "the server wants a credential, and there is none: give token")

    async def _taking(self) -> None:
        """Wait for a manifest that says neither ``booting`` nor ``draining``, by reading it again where none comes by
        itself (MANI-28, MANI-32). Where a server drains, another one may answer at the same address: a connection that
        lasts is made anew once everything that was asked on it is answered (MANI-31)."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self._boot_seconds
        polls = 0
        while (status := self.manifest.status) in ("booting", "draining"):
            left = until - loop.time()
            if left <= 0:
                raise Refused("server_not_ready", f"the server is still {status} after {self._boot_seconds:g} seconds")
            if self._transport.session and self._transport.connected and (status == "booting" or self._asking):
                self._news.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(left, _LOOK_SECONDS)):
                        await self._news.wait()
                continue
            if self._transport.session and status == "booting":
                raise ConnectionLost("the connection was lost while the server was booting")
            if polls or status == "booting":
                await self._sleep(min(left, _POLL_MS * 2 ** min(polls, 4) / 1000))
            polls += 1
            await self._connect()

    async def prepared(self) -> FactChecks:
        """As :meth:`ready`, however often that has to be tried; the checks that the manifest asks for."""
        await self._repeatedly(self.ready, lambda: True)
        return self.checks

    async def exchange(
        self, make: Callable[[str], Request], *, harmless: Callable[[], bool], on_progress: OnProgress | None = None
    ) -> ServerMessage:
        """The answer to a request, which is not an error.

        ``make`` gives the request for an id; every attempt has its own (OPEN-43). ``harmless``: may it be sent again
        although nobody knows whether it was done?
        """
        sent = False

        async def attempt() -> ServerMessage:
            nonlocal sent
            sent = False
            await self.ready()
            message = make(next(self._ids))
            sent = True
            return _good(await self._ask(message, on_progress))

        return await self._repeatedly(attempt, lambda: not sent or harmless())

    async def _repeatedly(self, attempt: Callable[[], Awaitable[T]], harmless: Callable[[], bool]) -> T:
        retries = 0
        renewed = False
        while True:
            failure: ClientError
            least = None
            try:
                return await attempt()
            except NoAnswer:
                raise
            except ConnectionLost as lost:
                if not harmless():
                    raise
                failure = lost
            except ServerError as error:
                failure, least = error, error.retry_after_ms
                self._stale = error.code == "server_not_ready" and not self._transport.session
                if error.code in _UNKNOWN and not renewed and self._renewable() and self._transport.connected:
                    renewed = True
                    await self._renew()
                elif not repeatable(error):
                    raise
            wait = self._retrying.wait_ms(retries, least)
            if wait is None:
                raise failure
            retries += 1
            _log.info("asking again in %.0f ms, for the %d. time: %s", wait, retries, failure)
            await self._sleep(wait / 1000)

    def _renewable(self) -> bool:
        return self._credential is not None and self._credential.renewable

    async def _renew(self) -> None:
        assert self._credential is not None
        self._credential.forget()
        if self._transport.session:
            await self._authenticate(self._credential)

    async def _ask(self, message: Request, on_progress: OnProgress | None) -> ServerMessage:
        data = check_size(encode(message), self.manifest)
        headers = await self._headers()
        self._asking += 1
        try:
            async with asyncio.timeout(self._answer_seconds):
                return await self._transport.request(message, data, headers, on_progress)
        except TimeoutError:
            raise NoAnswer(f"no answer within {self._answer_seconds:g} seconds") from None
        finally:
            self._asking -= 1


def _good(answer: ServerMessage) -> ServerMessage:
    if isinstance(answer, ErrorMessage):
        raise ServerError.of(answer.payload)
    return answer
