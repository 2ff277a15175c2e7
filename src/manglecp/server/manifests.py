"""The manifest as encoded bytes with an entity tag, cached for each state of the server.

Before the pack is loaded, the manifest has the pack's name, intents and limits, and the status ``booting``.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from manglecp.intent import manifest
from manglecp.pack import outline_manifest
from manglecp.server.auth import Auth
from manglecp.server.auth_config import describe_auth
from manglecp.server.revisions import RevisionManager
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

    def __init__(self, revisions: RevisionManager, auth: Auth) -> None:
        self._revisions = revisions
        self._auth = auth
        self._made: dict[bool, tuple[Any, Document]] = {}

    def document(self, *, http: bool = False) -> Document:
        """The manifest as it is now. On HTTP it says where to ask (MANI-11)."""
        revisions = self._revisions
        revision = revisions.current
        now = (revision, revisions.status, dict(revisions.troubles))
        made = self._made.get(http)
        if made is not None and made[0] == now:
            return made[1]
        base = revisions.settings.base
        endpoints = Endpoints(intent_eval=f"{base}/evaluate", macro_invoke=f"{base}/invoke") if http else None
        if revision is None:
            message = outline_manifest(revisions.outline, revisions.status, endpoints, describe_auth(self._auth))
        else:
            more = {"x-degraded": dict(revisions.troubles)} if revisions.troubles else None
            message = manifest(revision.domain, revisions.status, endpoints, describe_auth(self._auth), more)
        data = encode(message)
        document = Document(data, f'"{hashlib.sha256(data).hexdigest()[:32]}"', revisions.status)
        self._made[http] = (now, document)
        return document
