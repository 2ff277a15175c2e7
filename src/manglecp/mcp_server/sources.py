"""What is served: a pack in this process, or a server elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

import anyio

from manglecp.client import Client, RequestRefused
from manglecp.intent import Identity
from manglecp.invoke import OPERATOR, args_digest
from manglecp.server import Core, IdentifiedSessions
from manglecp.wire import WireError, messages

MAX_FORM_TEXT: Final = 6_000
"""The longest approval request, in characters, that is shown in the form of a host: hosts may cut longer texts."""


_NOT_ATTESTED: Final = "An answer in the form of a host is not accepted here"


class OfferInputs(NamedTuple):
    """The tool of an offer, and the intent and facts that it was proven from."""

    tool: str
    intent: messages.Intent
    facts: Sequence[Any]


class Source(Protocol):
    """A pack or a server."""

    @property
    def approve_with(self) -> str:
        """The options of ``manglecp approvals`` that name the store or the server, each with a space before it."""

    def client(self, identity: Identity) -> Any:
        """Return an asynchronous context manager of a client that acts as this principal."""

    async def offer_inputs(self, identity: Identity, handle: str) -> OfferInputs | None:
        """Return what an offer to this principal was proven from; None if that is not known."""

    async def approval_text(self, approval: str) -> str | None:
        """Return the text of an approval request that the user of the host may decide; None for any other."""

    async def attest(
        self, identity: Identity, handle: str, args: Mapping[str, Any], approval: str, *, approved: bool
    ) -> None:
        """Record the user's decision about exactly this call. Raises :class:`WireError`."""


@dataclass(frozen=True, slots=True)
class PackSource:
    """A pack of this process. ``attested``: whether an answer in the form of a host counts as an approval."""

    core: Core
    approve_with: str = ""
    attested: bool = True

    @asynccontextmanager
    async def client(self, identity: Identity) -> AsyncIterator[Client]:
        client = Client(IdentifiedSessions(self.core, identity))
        await client.connect()
        try:
            yield client
        finally:
            with anyio.CancelScope(shield=True):  # the message that cancels a run must be sent
                await client.close()

    async def offer_inputs(self, identity: Identity, handle: str) -> OfferInputs | None:
        if identity.anonymous:  # all anonymous clients share the offer: its facts may be those of another one
            return None
        with self.core.revisions.use() as revision:
            offer = await revision.offers.find(identity.name, handle)
        if offer is None or offer.inputs.intent is None:
            return None
        return OfferInputs(offer.definition.tool, offer.inputs.intent, offer.inputs.facts)

    async def approval_text(self, approval: str) -> str | None:
        if not self.attested:
            return None
        with self.core.revisions.use() as revision:
            request = await asyncio.to_thread(revision.invoker.approvals.show, OPERATOR, approval)
        is_for_user = not request.roles and not request.four_eyes and len(request.text) <= MAX_FORM_TEXT
        return request.text if is_for_user and request.state == "pending" else None

    async def attest(
        self, identity: Identity, handle: str, args: Mapping[str, Any], approval: str, *, approved: bool
    ) -> None:
        with self.core.revisions.use() as revision:
            offer = await revision.offers.find(identity.name, handle)
            if not self.attested or identity.anonymous or offer is None:
                raise WireError("auth_insufficient", _NOT_ATTESTED)
            call = offer.definition.chain_digest, args_digest(args)
            attest = revision.invoker.approvals.attest
            await asyncio.to_thread(attest, identity, approval, *call, "approved" if approved else "denied")


@dataclass(frozen=True, slots=True)
class ServerSource:
    """A server, used with one credential: that of the operator, never that of an MCP client."""

    connected: Client
    approve_with: str = ""

    @asynccontextmanager
    async def client(self, identity: Identity) -> AsyncIterator[Client]:  # noqa: ARG002 - it has one identity
        yield self.connected

    async def offer_inputs(self, identity: Identity, handle: str) -> OfferInputs | None:  # noqa: ARG002
        try:
            tool = await self.connected.upgrade(handle)
        except RequestRefused:  # another process has evaluated the intent
            return None
        return OfferInputs(tool.name, tool.request.intent, tool.request.facts)

    async def approval_text(self, approval: str) -> str | None:  # noqa: ARG002 - approvers decide at the server
        return None

    async def attest(self, *_: object, **__: object) -> None:
        raise WireError("auth_insufficient", _NOT_ATTESTED)
