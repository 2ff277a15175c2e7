"""The HTTP transport: the manifest is fetched from its well-known address, and each request is one POST.

The size of a response is limited while it arrives, and a compressed response is refused. Closing the connection cancels
a request, except the invocation of a run with an idempotency key: such an invocation is cancelled by a message, if the
server supports that.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Collection
from contextlib import suppress
from typing import Final
from urllib.parse import urljoin, urlsplit

import httpx

from manglecp.client.errors import ClientError, ConnectionLost, InvalidResponse, RequestRefused, ServerError
from manglecp.client.transports import session
from manglecp.wire import MANIFEST_PATH, messages

_SCHEMES: Final = frozenset({"http", "https"})
_MAX_REDIRECTS: Final = 3
_JSON: Final = "application/json"
_HEADERS: Final = {"Accept": _JSON, "Accept-Encoding": "identity"}
_PROXY_ERRORS: Final = frozenset({502, 503, 504})


class HttpTransport:
    """A transport to a server. ``url`` is any URL of the server, or that of its manifest.

    Endpoints and redirects may lead to the host of ``url`` and to those in ``hosts``. ``insecure`` permits connections
    without TLS to other machines. ``network`` sends the requests; tests replace it.
    """

    is_persistent: Final = False

    def __init__(
        self,
        url: str,
        *,
        max_response_bytes: int = session.MAX_RESPONSE_BYTES,
        connect_seconds: float = 30.0,
        hosts: Collection[str] = (),
        insecure: bool = False,
        tls: ssl.SSLContext | None = None,
        network: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        session.check_address(url, _SCHEMES, insecure=insecure)
        self._url = url if urlsplit(url).path.endswith("/manifest.json") else urljoin(url, MANIFEST_PATH)
        self._max_bytes = max_response_bytes
        self._hosts = frozenset(hosts)
        self._insecure = insecure
        self._connect_seconds = connect_seconds
        self._tls = tls
        self._network = network
        self._client: httpx.AsyncClient | None = None
        self._manifest: messages.Manifest | None = None
        self._etag: str | None = None
        self._endpoints: dict[type[messages.Message], str] | None = None
        self._cancel_sender = session.CancelSender()

    @property
    def connected(self) -> bool:
        return self._client is not None and self._endpoints is not None

    async def connect(self, on_manifest: session.OnManifest) -> messages.Manifest:  # noqa: ARG002 - HTTP sends no later one
        """Return the manifest, from the cache if the server responds that the cached one is current."""
        if self._client is None:
            self._client = httpx.AsyncClient(
                headers=_HEADERS,
                timeout=httpx.Timeout(None, connect=self._connect_seconds),
                follow_redirects=False,
                trust_env=False,  # a .netrc file must not supply credentials
                verify=self._tls or ssl.create_default_context(),  # the system's trust store, as on a WebSocket
                transport=self._network,
            )
        headers = {} if self._etag is None else {"If-None-Match": self._etag}
        response, data, url = await self._fetch("GET", self._url, headers=headers)
        if response.status_code == 304 and self._manifest is not None:
            return self._manifest
        if response.status_code == 404:
            address = session.display_address(self._url)
            raise RequestRefused(
                "not_manglecp", f"there is no manifest at {address}: not a MangleCP server, or at another address"
            )
        message = self._decode_response(response, data)
        if isinstance(message, messages.ErrorMessage):
            raise ServerError.from_payload(message.payload)
        if not isinstance(message, messages.Manifest):
            raise InvalidResponse("the server sent another message instead of its manifest")
        endpoints = message.payload.endpoints
        if endpoints is messages.UNSET:
            raise InvalidResponse("the manifest has no endpoints")
        addresses: dict[type[messages.Message], str | messages.UnsetType] = {
            messages.IntentRequest: endpoints.intent_eval,
            messages.InvokeRequest: endpoints.macro_invoke,
            messages.ApprovalMessage: endpoints.approvals,
            messages.DecideRequest: endpoints.decide,
            messages.SkillMessage: endpoints.skills,
            messages.FactsMessage: endpoints.facts,
        }
        self._endpoints = {
            type_: self._resolve(url, address) for type_, address in addresses.items() if address is not messages.UNSET
        }
        self._manifest, self._etag = message, response.headers.get("etag")
        return message

    def _resolve(self, base: str, address: str) -> str:
        """Return the URL of an address that the server sent. Raises :class:`RequestRefused` if it is not permitted."""
        return session.resolve_address(base, address, _SCHEMES, hosts=self._hosts, insecure=self._insecure)

    async def request(
        self,
        message: session.Request,
        data: bytes,
        headers: dict[str, str],
        on_progress: session.OnProgress | None = None,  # noqa: ARG002 - HTTP has no progress
    ) -> messages.ServerMessage:
        if self._endpoints is None:
            raise ConnectionLost("there is no manifest yet")
        url = self._endpoints.get(type(message))
        if url is None:
            raise RequestRefused("not_supported", "the server has no endpoint for this request")
        headers = {"Content-Type": _JSON, **headers}
        try:
            response, body, _ = await self._fetch("POST", url, headers=headers, content=data)
        except asyncio.CancelledError:
            request_key = message.payload.request_key if isinstance(message, messages.InvokeRequest) else None
            if request_key is not None and self._supports_cancel():
                cancel = session.cancel_message(message.id, request_key)
                self._cancel_sender.start(self._fetch("POST", url, headers=headers, content=cancel))
            raise
        reply = self._decode_response(response, body)
        if isinstance(reply, messages.ErrorMessage) and reply.id is None:  # the server could not read the id
            return reply
        if reply.id != message.id:
            raise InvalidResponse("the response has the id of another request")
        return session.require_response(message, reply)

    def _supports_cancel(self) -> bool:
        extensions = messages.UNSET if self._manifest is None else self._manifest.payload.extensions
        extension = None if extensions is messages.UNSET else extensions.get("x-request_key")
        return isinstance(extension, dict) and "cancel" in extension

    async def close(self) -> None:
        await self._cancel_sender.wait()
        client, self._client = self._client, None
        self._endpoints = self._manifest = self._etag = None
        if client is not None:
            await client.aclose()

    async def _fetch(
        self, method: str, url: str, *, headers: dict[str, str], content: bytes | None = None
    ) -> tuple[httpx.Response, bytes, str]:
        """Return the response, its body, and its URL after redirects."""
        client = self._client
        if client is None:
            raise ConnectionLost("there is no connection")
        for _ in range(_MAX_REDIRECTS + 1):
            try:
                async with client.stream(method, url, headers=headers, content=content) as response:
                    data = await self._read_body(response)
            except httpx.TimeoutException:
                raise ConnectionLost(f"no connection within {self._connect_seconds:g} seconds") from None
            except httpx.ConnectError as error:
                raise ConnectionLost(session.unreachable_message(url, error)) from None
            except (httpx.TransportError, httpx.StreamError) as error:
                raise ConnectionLost(f"the connection failed: {type(error).__name__}") from None
            except (httpx.InvalidURL, UnicodeError):
                raise RequestRefused("bad_address", "the server refers to an invalid address") from None
            except RuntimeError as error:  # close() was called during the request
                raise ConnectionLost("the connection was closed") from error
            if not response.has_redirect_location:
                return response, data, url
            if method != "GET" and response.status_code not in (307, 308):
                raise RequestRefused("redirected", "the server redirects a request without its body")
            url = self._resolve(url, response.headers["location"])
        raise RequestRefused("redirected", f"the server redirects more than {_MAX_REDIRECTS} times")

    async def _read_body(self, response: httpx.Response) -> bytes:
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            raise InvalidResponse("the server compressed its response, although the request excludes that")
        parts: list[bytes] = []
        size = 0
        async for part in response.aiter_raw():
            size += len(part)
            if size > self._max_bytes:
                raise InvalidResponse(f"the response is longer than {self._max_bytes:,} bytes")
            parts.append(part)
        return b"".join(parts)

    def _decode_response(self, response: httpx.Response, data: bytes) -> messages.ServerMessage:
        """Return the message in the body, also of a response with an error status. Raises :class:`ClientError`."""
        status = response.status_code
        if response.headers.get("content-type", "").split(";")[0].strip().lower() == _JSON:
            if status == 200:
                return session.decode_message(data, self._max_bytes)
            with suppress(ClientError):
                return session.decode_message(data, self._max_bytes)
        if status == 429:  # the status comes from a proxy: a server would have sent a message
            seconds = response.headers.get("retry-after", "")
            delay_ms = int(seconds) * 1_000 if seconds.isdecimal() and len(seconds) < 10 else None
            payload = messages.ErrorPayload(
                code="rate_limited", message="HTTP 429", recoverable=True, retry_after_ms=delay_ms
            )
            return messages.ErrorMessage(id=None, payload=payload)
        if status in _PROXY_ERRORS:
            raise ConnectionLost(f"HTTP {status} without a message: a proxy could not reach the server")
        raise InvalidResponse(f"HTTP {status} without a message")
