"""What the server says about itself, as the bytes that are sent, with a tag that changes whenever they do.

The bytes depend on the edition, the state and why it is degraded; they are made once for each. Before the pack is
loaded only its settings are known: such a manifest has its name, its intents and its limits, and says ``booting``.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from manglecp.intent import manifest
from manglecp.pack import outline_manifest
from manglecp.server.auth import Auth
from manglecp.server.serving import Serving
from manglecp.server.who import described
from manglecp.wire import encode
from manglecp.wire.messages import Endpoints, Status

__all__ = ["Document", "Manifests"]


@dataclass(frozen=True, slots=True)
class Document:
    """A manifest as it is sent, and the state of the server that it tells of."""

    data: bytes
    etag: str
    """With its quotation marks, as in a header."""
    status: Status


class Manifests:
    """Written once for each state of the server, however often they are asked for."""

    def __init__(self, serving: Serving, auth: Auth) -> None:
        self._serving = serving
        self._auth = auth
        self._made: dict[bool, tuple[Any, Document]] = {}

    def document(self, *, http: bool = False) -> Document:
        """The manifest as it is now. On HTTP it says where to ask (MANI-11)."""
        serving = self._serving
        edition = serving.edition
        now = (edition, serving.status, dict(serving.troubles))
        made = self._made.get(http)
        if made is not None and made[0] == now:
            return made[1]
        base = serving.settings.base
        endpoints = Endpoints(intent_eval=f"{base}/evaluate", macro_invoke=f"{base}/invoke") if http else None
        if edition is None:
            message = outline_manifest(serving.outline, serving.status, endpoints, described(self._auth))
        else:
            more = {"x-degraded": dict(serving.troubles)} if serving.troubles else None
            message = manifest(edition.domain, serving.status, endpoints, described(self._auth), more)
        data = encode(message)
        document = Document(data, f'"{hashlib.sha256(data).hexdigest()[:32]}"', serving.status)
        self._made[http] = (now, document)
        return document
