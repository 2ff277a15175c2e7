"""HTTP without manners: any body and any headers to any path."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Final
from urllib.parse import urljoin

import httpx

from manglecp.conformance.lines.line import Answer, Closed, End, Transport, Watch, read_message

__all__ = ["HttpLine"]

MANIFEST_PATH: Final = "/.well-known/manglecp/manifest.json"
_JSON: Final = {"content-type": "application/json", "accept": "application/json"}
_MEMBERS: Final[Mapping[End, str]] = {"evaluate": "intent_eval", "invoke": "macro_invoke"}


class HttpLine:
    """A line (:class:`.Line`) without a session: each question is a request of its own."""

    transport: Transport = "http"

    def __init__(self, url: str, watch: Watch, credentials: Mapping[str, str] | None = None) -> None:
        self.manifest_url = url if url.endswith(".json") else urljoin(url, MANIFEST_PATH)
        self._watch = watch
        self._credentials = dict(credentials or {})
        # Whom the system trusts, as on a WebSocket; a .netrc must not say who we are.
        self._client = httpx.AsyncClient(timeout=None, trust_env=False, verify=ssl.create_default_context())
        self._ends: dict[str, str] = {}

    async def open(self) -> Answer:
        response = await self.request("GET", self.manifest_url, headers={"accept": "application/json"})
        if response.status_code != 200:
            raise Closed(f"{self.manifest_url} was answered with {response.status_code}")
        answer = self._read(response)
        ends = answer.payload.get("endpoints")
        if isinstance(ends, dict):
            self._ends = {name: urljoin(self.manifest_url, end) for name, end in ends.items() if isinstance(end, str)}
        return answer

    def address(self, end: End) -> str:
        """As the manifest says; where it says nothing, the usual place (TRANS-12)."""
        return self._ends.get(_MEMBERS[end]) or urljoin(self.manifest_url, f"/{end}")

    async def ask(
        self,
        data: bytes,
        end: End = "evaluate",
        *,
        headers: Mapping[str, str] | None = None,
        credentials: Mapping[str, str] | None = None,
    ) -> Answer:
        known = self._credentials if credentials is None else credentials
        sent = {**_JSON, **known, **(headers or {})}
        return self._read(await self.request("POST", self.address(end), content=data, headers=sent))

    async def request(
        self, method: str, url: str, *, content: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> httpx.Response:
        """The response, whatever it is. :class:`Closed` if there is none."""
        try:
            return await self._client.request(method, url, content=content, headers=dict(headers or {}))
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise Closed(f"{method} {url}: {str(error) or type(error).__name__}") from None

    def _read(self, response: httpx.Response) -> Answer:
        message = read_message(response.content)
        answer = Answer(message, response.content, response.status_code, dict(response.headers))
        self._watch(answer)
        return answer

    async def close(self) -> None:
        await self._client.aclose()
