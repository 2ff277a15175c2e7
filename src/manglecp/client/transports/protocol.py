"""What every transport can do: connect, ask, cancel, close. It knows nothing of intents, retries or consent.

A transport can be connected again after its connection was lost. Nothing of the earlier connection is left then: who
waited for an answer hears :class:`~manglecp.client.errors.ConnectionLost`, and the manifest is a new one (TRANS-08).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol, TypeAlias

from manglecp.wire.messages import Authenticate, IntentRequest, InvokeRequest, Manifest, ProgressPayload, ServerMessage

__all__ = ["MAX_ANSWER_BYTES", "OnManifest", "OnProgress", "Request", "Transport"]

Request: TypeAlias = IntentRequest | InvokeRequest | Authenticate
OnProgress: TypeAlias = Callable[[ProgressPayload], object]
OnManifest: TypeAlias = Callable[[Manifest], None]
MAX_ANSWER_BYTES: Final = 1 << 24
"""The longest message that a client takes unless it is told otherwise."""


class Transport(Protocol):
    """One way to one server."""

    @property
    def session(self) -> bool:
        """Does the connection last, with an identity, progress, cancel messages and manifests that come later?"""

    @property
    def connected(self) -> bool:
        """Can a request be sent now?"""

    async def connect(self, on_manifest: OnManifest) -> Manifest:
        """The manifest; those that come later go to ``on_manifest``."""

    async def request(
        self, message: Request, data: bytes, headers: dict[str, str], on_progress: OnProgress | None = None
    ) -> ServerMessage:
        """The final message for this request, which may be an error. ``data`` are the bytes of the message.

        ``headers`` say who asks, where there is no session. Whoever is cancelled in here has cancelled the request.
        """

    async def close(self) -> None:
        """End the connection, and whatever was started for it."""
