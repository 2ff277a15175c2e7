"""Offers: macro-tools that were proven for an identity, stored so that this identity can invoke them.

An offer is one JSON document: the definition and the digest of the request that proved it. Secret settings are
replaced by blanks.

Each process remembers what it stored, and writes only offers that are new, changed, removed by another process, or
close to the end of their retention. The proof digest of an offer is that of the first request that proved it.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache
from typing import Any, Final, NamedTuple

import msgspec

from manglecp.base.cache import LruCache
from manglecp.base.digest import digest, digest_bytes
from manglecp.intent.definition import Definition
from manglecp.intent.domain import Domain
from manglecp.intent.identity import Identity
from manglecp.intent.redaction import is_secret_setting, secret_values
from manglecp.intent.responder import respond
from manglecp.pack import Pack
from manglecp.store import Store, StoredOffer, Transaction
from manglecp.wire.messages import IntentRequest, IntentResponse

_CACHED: Final = 4_096
_STORED: Final = 2_048
_LARGEST: Final = 8_192  # larger documents are not cached: clients influence their number and size
_FRESH_SECONDS: Final = 1.0  # how long a cached offer is used before the store is read again
Path = tuple[str | int, ...]


@dataclass(frozen=True, eq=False)
class Offer:
    """A macro-tool, and the digest of the request that proved it."""

    definition: Definition
    proof_digest: str

    @cached_property
    def chain_digest(self) -> str:
        """Return the digest of the steps: order, actions, argument sources, frozen values, compensation."""
        definition = self.definition
        steps = [asdict(step) for step in definition.steps]
        return digest({"macro_id": definition.macro_id, "ordered": definition.ordered, "steps": steps})


class _Stored(NamedTuple):
    request_key: bytes
    definition: Definition
    digest: str
    at_ms: int


class _Found(NamedTuple):
    kept: StoredOffer
    drop_ms: int
    fresh_until: float


class OfferService:
    """Evaluates intents of one revision of a pack, and stores and finds the offers. Thread-safe."""

    def __init__(self, domain: Domain, store: Store, *, clock: Callable[[], int] = time.time_ns) -> None:
        self.domain = domain
        self.codec = OfferCodec(domain.pack)
        self._store = store
        self._clock = clock
        self._retention_ms = domain.pack.settings.invocation.retention_ms
        self._stored: LruCache[tuple[str, str], _Stored] = LruCache(_STORED)
        self._found: LruCache[tuple[str, str], _Found] = LruCache(_CACHED)

    async def evaluate(self, request: IntentRequest, identity: Identity) -> IntentResponse:
        """Evaluate an intent in a thread. The identity can invoke the tools of the response from now on."""
        return await asyncio.to_thread(self.evaluate_blocking, request, identity)

    def evaluate_blocking(self, request: IntentRequest, identity: Identity) -> IntentResponse:
        domain, now_ns = self.domain, self._clock()
        answer = respond(domain, request, identity, lambda: now_ns)
        if answer.definitions:
            self._store_offers(request, identity, answer.definitions, now_ns, domain.facts_version)
        return answer.response

    def renew(self, domain: Domain) -> None:
        """Replace the facts. Evaluations under way keep theirs; stored offers stay valid."""
        if domain.digest != self.domain.digest:
            raise ValueError("another pack revision has an invoker of its own")
        self.domain = domain

    async def find(self, identity: str, macro_id: str) -> StoredOffer | None:
        """Return the offer last stored for this identity, valid now or not; None past its retention.

        A valid offer is cached briefly: an offer stored by another process becomes visible after ``_FRESH_SECONDS``.
        """
        now_ms, key = self._clock() // 1_000_000, (identity, macro_id)
        found = self._found.get(key)
        if found is not None and now_ms < found.drop_ms and time.monotonic() < found.fresh_until:
            return found.kept

        def read(tx: Transaction) -> tuple[StoredOffer | None, int]:
            registry = self._store.registry
            kept = registry.find(tx, identity, macro_id, now_ms)
            return kept, 0 if kept is None else registry.entries(tx, identity, [macro_id])[macro_id][1]

        read_at = time.monotonic()
        kept, drop_ms = await self._store.writer.read(read)
        if kept is not None and len(kept.document) <= _LARGEST and _is_valid(kept, now_ms):
            self._found.put(key, _Found(kept, kept.expires_at_ms or drop_ms, read_at + _FRESH_SECONDS))
        return kept

    def _store_offers(
        self,
        request: IntentRequest,
        identity: Identity,
        definitions: Sequence[Definition],
        now_ns: int,
        facts_version: str,
    ) -> None:
        now_ms, name = now_ns // 1_000_000, identity.name
        request_key = _request_key(request, identity, facts_version)
        stored_before = self._known(name, request_key, definitions)
        if stored_before is not None and self._are_stored(name, stored_before, now_ms):
            return
        proof = request_digest(request, identity, self.domain.digest, now_ns, facts_version)
        entries = [self._entry(definition, proof) for definition in definitions]
        # A tool that is offered again soon is kept longer than it has to be, so that the next offer is not written.
        soon = stored_before is not None and all(now_ms - one.at_ms <= self._retention_ms // 2 for one in stored_before)
        retention_ms = self._retention_ms * 3 // 2 if soon else self._retention_ms
        with self._store.write_transaction() as tx:
            self._store.registry.keep(tx, name, entries, retention_ms=retention_ms, now_ms=now_ms)
        for definition, entry in zip(definitions, entries, strict=True):
            key = name, definition.macro_id
            self._found.discard(key)
            if len(entry.document) <= _LARGEST:
                self._stored.put(key, _Stored(request_key, definition, digest_bytes(entry.document), now_ms))

    def _entry(self, definition: Definition, proof: str) -> StoredOffer:
        document = self.codec.write(Offer(definition, proof))
        return StoredOffer(definition.macro_id, self.domain.digest, document, *_window(definition))

    def _known(self, name: str, request_key: bytes, definitions: Sequence[Definition]) -> list[_Stored] | None:
        """Return what this process stored for an equal request with equal definitions, else None."""
        stored_before = []
        for definition in definitions:
            one = self._stored.get((name, definition.macro_id))
            if one is None or one.request_key != request_key or one.definition != definition:
                return None
            stored_before.append(one)
        return stored_before

    def _are_stored(self, name: str, stored_before: Sequence[_Stored], now_ms: int) -> bool:
        """Return whether the store has all of them, for at least the retention of new offers."""
        with self._store.read_transaction() as tx:
            entries = self._store.registry.entries(tx, name, [one.definition.macro_id for one in stored_before])
        for one in stored_before:
            stored, drop_ms = entries.get(one.definition.macro_id, ("", 0))
            begins_ms, ends_ms = _window(one.definition)
            if stored != one.digest or drop_ms < max(now_ms, begins_ms or 0, ends_ms or 0) + self._retention_ms:
                return False
        return True


def _window(definition: Definition) -> tuple[int | None, int | None]:
    """Return the validity in milliseconds, rounded inwards."""
    return (
        None if definition.not_before is None else -(-definition.not_before // 1_000_000),
        None if definition.expires_at is None else definition.expires_at // 1_000_000,
    )


def _is_valid(kept: StoredOffer, now_ms: int) -> bool:
    return (kept.not_before_ms or 0) <= now_ms and (kept.expires_at_ms is None or now_ms < kept.expires_at_ms)


def _request_key(request: IntentRequest, identity: Identity, facts_version: str) -> bytes:
    """Return the digest of a request without its time. The order of members matters."""
    principal = (identity.name, sorted(identity.permissions), identity.trust)
    return hashlib.sha256(msgspec.json.encode((principal, facts_version, request.payload))).digest()


def request_digest(
    request: IntentRequest, identity: Identity, pack_digest: str, now_ns: int, facts_version: str = ""
) -> str:
    """Return the digest of all inputs of an evaluation: pack, identity, request, time and generated facts."""
    payload: dict[str, Any] = msgspec.to_builtins(request.payload)
    principal = {"name": identity.name, "permissions": sorted(identity.permissions), "trust": identity.trust}
    generated = {"facts": facts_version} if facts_version else {}
    return digest({"pack": pack_digest, "identity": principal, "asked": payload, "now": str(now_ns), **generated})


class _Blank(msgspec.Struct, frozen=True):
    """A text with secrets, which is not stored: its path, and its parts."""

    place: Path
    parts: tuple[str, ...]  # odd parts are names of settings


class _Document(msgspec.Struct, frozen=True, omit_defaults=True):
    definition: Any
    proof_digest: str
    blanks: tuple[_Blank, ...] = ()


_decoder: Final = msgspec.json.Decoder(_Document)


class OfferCodec:
    """Encodes and decodes the offers of one pack."""

    def __init__(self, pack: Pack) -> None:
        hidden = secret_values(pack)  # the longest first
        self._names = {value: name for name, value in pack.params.items() if is_secret_setting(name)}
        self._settings = pack.params
        self._secret = re.compile("|".join(map(re.escape, hidden))) if hidden else None
        self.read: Callable[[bytes], Offer] = lru_cache(_CACHED)(self._read)

    def write(self, offer: Offer) -> bytes:
        blanks: list[_Blank] = []
        definition = msgspec.to_builtins(offer.definition)
        if self._secret is not None:
            definition = self._blanked(definition, (), blanks)
        return msgspec.json.encode(_Document(definition, offer.proof_digest, tuple(blanks)), order="sorted")

    def _read(self, document: bytes) -> Offer:
        found = _decoder.decode(document)
        for blank in found.blanks:
            *way, last = blank.place
            inside = found.definition
            for part in way:
                inside = inside[part]
            inside[last] = "".join(self._settings[text] if n % 2 else text for n, text in enumerate(blank.parts))
        return Offer(msgspec.convert(found.definition, Definition), found.proof_digest)

    def _blanked(self, value: Any, place: Path, blanks: list[_Blank]) -> Any:
        if isinstance(value, str):
            parts = self._parts(value)
            if len(parts) == 1:
                return value
            blanks.append(_Blank(place, tuple(parts)))
            return ""
        if isinstance(value, dict):
            return {name: self._blanked(member, (*place, name), blanks) for name, member in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._blanked(item, (*place, number), blanks) for number, item in enumerate(value)]
        return value

    def _parts(self, text: str) -> Sequence[str]:
        assert self._secret is not None
        parts, end = [], 0
        for found in self._secret.finditer(text):
            parts += [text[end : found.start()], self._names[found[0]]]
            end = found.end()
        return [*parts, text[end:]]
