"""Offers: macro-tools that were proven for an identity, stored so that this identity can invoke them.

An offer is the definition of a tool and the *proof inputs* of its evaluation: intent, parameters and session facts,
with every ``now`` resolved. It grants nothing: an invocation proves the tool again from these inputs, with the rights,
rules, facts and clock of that moment. Secret settings are not stored.

Each process caches what it stored, and writes only offers that are new, changed, removed by another process, or close
to the end of their retention.
"""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgspec

from manglecp.base.cache import LruCache
from manglecp.base.digest import digest, digest_bytes
from manglecp.base.json import value_size
from manglecp.intent.decision import Call, Decision, ProofInputs, decide
from manglecp.intent.definition import Definition, default_arguments
from manglecp.intent.domain import Domain
from manglecp.intent.evaluation import CLOCK_TOLERANCE_NS, IntentEvaluation
from manglecp.intent.identity import Identity
from manglecp.intent.redaction import is_secret_setting, secret_values
from manglecp.intent.rendering import skill
from manglecp.intent.responder import respond
from manglecp.mangle import instant_text
from manglecp.pack import Pack
from manglecp.store import Store, StoredOffer, Transaction
from manglecp.wire import WireError, refused_arguments, schema_errors
from manglecp.wire.messages import Intent, IntentRequest, IntentResponse, Skill

_MAX_READ: Final = 4_096  # cached offers that were read, and decoded definitions
_MAX_STORED: Final = 2_048  # cached offers that were written
_LARGEST_CACHED: Final = 8_192  # bytes; larger documents are not cached: clients influence their number and size
_SLOW_SECONDS: Final = 0.005  # a decision that takes longer must not block the event loop
# The largest arguments with which a decision that reads them is made on the event loop instead of in a thread.
_LARGEST_INLINE: Final = 64
_FRESH_SECONDS: Final = 1.0  # how long a cached offer is used before the store is read again
_MAX_SKILL_PROOFS: Final = 64  # proofs for one request to read skills
JsonPath = tuple[str | int, ...]


@dataclass(eq=False, slots=True)
class Offer:
    """A macro-tool as it was proven, and the inputs of its proof."""

    definition: Definition
    inputs: ProofInputs
    defaults: Mapping[str, Any]  # the defaults of call arguments
    is_cheap: bool = False  # whether its last proof was so fast that the next one may block the event loop


class _Stored(NamedTuple):
    """An offer that this process stored at ``at_ms``; ``digest`` is the digest of its document."""

    inputs_digest: str
    definition: Definition
    digest: str
    at_ms: int


class _ReadOffer(NamedTuple):
    """An offer that was read from the store, and until when it is used."""

    offer: Offer
    ends_ms: int  # since 1970: the end of its validity or, if that is unlimited, of its retention
    fresh_until: float  # a time of the monotonic clock


class OfferService:
    """Evaluates intents for one revision of a pack, and stores and finds the offers. Thread-safe."""

    def __init__(self, domain: Domain, store: Store, *, clock: Callable[[], int] = time.time_ns) -> None:
        self.domain = domain
        self.codec = OfferCodec(domain.pack)
        self._store = store
        self._clock = clock
        self._retention_ms = domain.pack.settings.invocation.retention_ms
        self._written_cache: LruCache[tuple[str, str], _Stored] = LruCache(_MAX_STORED)
        self._read_cache: LruCache[tuple[str, str], _ReadOffer] = LruCache(_MAX_READ)
        self._change_lock = threading.Lock()

    async def evaluate(self, request: IntentRequest, identity: Identity) -> IntentResponse:
        """Evaluate an intent in a thread, and store the offers of the response."""
        return await asyncio.to_thread(self.evaluate_blocking, request, identity)

    def evaluate_blocking(self, request: IntentRequest, identity: Identity) -> IntentResponse:
        now_ns = self._clock()
        selection = respond(self.domain, request, identity, lambda: now_ns)
        if selection.definitions:
            self._store_offers(selection.evaluation, selection.definitions, now_ns)
        return selection.response

    def change(self, update: Callable[[Domain], Domain]) -> None:
        """Replace the current domain by ``update(domain)``, one change at a time. Blocks."""
        with self._change_lock:
            self.renew(update(self.domain))

    def renew(self, domain: Domain) -> None:
        """Use a domain with other generated facts. Evaluations under way keep the old domain."""
        if domain.digest != self.domain.digest:
            raise ValueError("the domain is of another pack revision, which needs its own OfferService")
        self.domain = domain

    async def find(self, identity: str, macro_id: str) -> Offer | None:
        """Return the offer last stored for this identity, valid now or not; None past its retention.

        A valid offer is cached briefly: an offer stored by another process becomes visible after ``_FRESH_SECONDS``.
        """
        now_ms, key = self._clock() // 1_000_000, (identity, macro_id)
        cached_offer = self._read_cache.get(key)
        if cached_offer is not None and now_ms < cached_offer.ends_ms and time.monotonic() < cached_offer.fresh_until:
            return cached_offer.offer
        registry = self._store.registry

        def read(tx: Transaction) -> tuple[StoredOffer | None, int]:
            entry = registry.find(tx, identity, macro_id, now_ms)
            return entry, 0 if entry is None else registry.entries(tx, identity, [macro_id])[macro_id].drop_ms

        read_at = time.monotonic()
        entry, drop_ms = await self._store.writer.read(read)
        if entry is None:
            return None
        try:
            definition = self.codec.read(entry.document)
        except LookupError:  # the document has a secret setting that this pack revision does not have
            return None
        inputs = self._store.seals.unseal(entry.inputs, *_seal_binding(identity, entry.inputs_digest))
        offer = Offer(definition, ProofInputs.decode(inputs), default_arguments(definition))
        if len(entry.document) + len(inputs) <= _LARGEST_CACHED and _is_valid(entry, now_ms):
            self._read_cache.put(key, _ReadOffer(offer, entry.expires_at_ms or drop_ms, read_at + _FRESH_SECONDS))
        return offer

    async def skills(self, identity: Identity, skill_id: str | None = None) -> tuple[Skill, ...]:
        """Return one skill with its text, or all skills with summaries, if offers to this identity need them now.

        The offers are proven again, the newest first, within the time limit of one evaluation. Raises WireError if no
        offer needs the skill ``skill_id`` now, whether it exists or not.
        """
        now_ms, registry = self._clock() // 1_000_000, self._store.registry
        latest_ms = now_ms + CLOCK_TOLERANCE_NS // 1_000_000  # the client's clock may be ahead
        macro_ids = await self._store.writer.read(
            lambda tx: registry.with_skill(tx, identity.name, skill_id, now_ms, latest_ms, _MAX_SKILL_PROOFS)
        )
        deadline = time.monotonic() + self.domain.limits.milliseconds / 1_000
        needed_ids: set[str] = set()
        for macro_id in macro_ids:
            if time.monotonic() >= deadline or skill_id in needed_ids:
                break
            offer = await self.find(identity.name, macro_id)
            if offer is not None and not needed_ids.issuperset(offer.definition.skills):
                needed_ids.update(await asyncio.to_thread(self._needed_skills, offer, identity))
        pack_skills = [pack_skill for _, pack_skill in sorted(self.domain.pack.skills.items())]
        readable = [pack_skill for pack_skill in pack_skills if pack_skill.skill_id in needed_ids]
        if skill_id is None:
            return tuple(map(skill, readable))
        matching_skills = tuple(skill(found, complete=True) for found in readable if found.skill_id == skill_id)
        if not matching_skills:
            raise WireError("x-skill_not_found", "No tool that is offered to you now refers to a skill with this id")
        return matching_skills

    def _needed_skills(self, offer: Offer, identity: Identity) -> tuple[str, ...]:
        """Prove an offered tool again, and return the ids of the skills that it needs now; empty without a proof.

        Clients without a credential share one identity. Their facts and parameters are not used, so that the facts of
        one client do not give a skill to another.
        """
        tool, inputs = offer.definition.tool, offer.inputs
        assert inputs.intent is not None  # tools are offered only in response to an intent
        if identity.anonymous:
            inputs = ProofInputs(Intent(name=inputs.intent.name))
        call, offered_digest = Call(tool, offer.defaults, inputs), offer.definition.chain_digest
        with suppress(WireError):
            return decide(self.domain, call, identity, self._clock(), (), offered=offered_digest).proven().skills
        return ()

    async def prove(
        self, identity: Identity, macro_id: str, args: Mapping[str, Any], *, is_large: bool = False
    ) -> Decision:
        """Prove an offered tool again, now and for a call with these arguments, and return the decision.

        Large arguments are checked in a thread. Raises WireError if this identity has no such offer, its validity is
        over, or the arguments do not fit; and as :func:`.decision.decide` does.
        """
        offer = await self.find(identity.name, macro_id)
        if offer is None:
            raise macro_not_found()
        _check_end(offer.definition, self._clock())
        reads_call = self.domain.run_rules.reads_call
        if is_large or not offer.is_cheap or (reads_call and value_size(args, _LARGEST_INLINE) > _LARGEST_INLINE):
            return await asyncio.to_thread(self._prove, offer, identity, args)
        return self._prove(offer, identity, args)

    def _prove(self, offer: Offer, identity: Identity, args: Mapping[str, Any]) -> Decision:
        domain, definition = self.domain, offer.definition
        if errors := schema_errors(args, definition.input_schema):
            raise refused_arguments(errors)
        call = Call(definition.tool, {**offer.defaults, **args}, offer.inputs)
        facts = call.facts(domain)
        # Other threads must not make a proof look slow, so CPU time is measured. If the offer is cheap, the proof is
        # usually made on the event loop, where the clock that costs less to read suffices.
        clock = time.perf_counter if offer.is_cheap else time.thread_time
        started_at = clock()
        try:
            decision = decide(domain, call, identity, self._clock(), facts, offered=definition.chain_digest)
        finally:
            offer.is_cheap = clock() - started_at < _SLOW_SECONDS
        try:
            if decision.error is not None and decision.error.code == "macro_expired":
                _check_begin(definition, self._clock())
        except WireError as error:
            return replace(decision, error=error)
        return decision

    def _store_offers(self, evaluation: IntentEvaluation, definitions: Sequence[Definition], now_ns: int) -> None:
        now_ms, name = now_ns // 1_000_000, evaluation.identity.name
        inputs = ProofInputs.of(evaluation, now_ns).encode()
        inputs_digest = digest([name, digest_bytes(inputs)])
        stored_before = self._stored_before(name, inputs_digest, definitions)
        if stored_before is not None and self._are_stored(name, stored_before, now_ms):
            return
        sealed_inputs = self._store.seals.seal(inputs, *_seal_binding(name, inputs_digest))
        entries = [
            StoredOffer(
                definition.macro_id,
                definition.chain_digest,
                self.codec.write(definition),
                inputs_digest,
                sealed_inputs,
                *_window(definition),
                skills=definition.skills,
            )
            for definition in definitions
        ]
        # A tool that is offered often is kept longer than it has to be, so that its next offers need no write.
        half_ms = self._retention_ms // 2
        is_frequent = stored_before is not None and all(now_ms - stored.at_ms <= half_ms for stored in stored_before)
        retention_ms = self._retention_ms * 3 // 2 if is_frequent else self._retention_ms
        with self._store.write_transaction() as tx:
            self._store.registry.register(tx, name, entries, retention_ms=retention_ms, now_ms=now_ms)
        for definition, entry in zip(definitions, entries, strict=True):
            key = name, definition.macro_id
            self._read_cache.discard(key)
            if len(entry.document) <= _LARGEST_CACHED:
                self._written_cache.put(key, _Stored(inputs_digest, definition, digest_bytes(entry.document), now_ms))

    def _stored_before(self, name: str, inputs_digest: str, definitions: Sequence[Definition]) -> list[_Stored] | None:
        """Return the offers that this process stored for these definitions and inputs; None if an offer is missing."""
        stored_before = []
        for definition in definitions:
            stored = self._written_cache.get((name, definition.macro_id))
            if stored is None or stored.inputs_digest != inputs_digest or stored.definition != definition:
                return None
            stored_before.append(stored)
        return stored_before

    def _are_stored(self, name: str, stored_before: Sequence[_Stored], now_ms: int) -> bool:
        """Return whether the store still has these offers, and for at least as long as it would keep new ones."""
        with self._store.read_transaction() as tx:
            entries = self._store.registry.entries(tx, name, [stored.definition.macro_id for stored in stored_before])
        for stored in stored_before:
            document_digest, drop_ms, inputs_digest = entries.get(stored.definition.macro_id, ("", 0, ""))
            begin_ms, end_ms = _window(stored.definition)
            min_drop_ms = max(now_ms, begin_ms or 0, end_ms or 0) + self._retention_ms
            if (document_digest, inputs_digest) != (stored.digest, stored.inputs_digest) or drop_ms < min_drop_ms:
                return False
        return True


def macro_not_found() -> WireError:
    """Return the same error for an unknown macro-tool, one past its retention and one of another identity."""
    return WireError("macro_not_found", "No macro-tool of yours has this id now; evaluate the intent again")


def _check_begin(definition: Definition, now_ns: int) -> None:
    """Raise :class:`WireError` if the tool, which is not proven now, was offered for a later time (OPEN-28)."""
    begin = definition.not_before
    if begin is not None and now_ns < begin:
        message = f"The macro-tool is valid from {instant_text(begin)} on"
        wait_ms = -((now_ns - begin) // 1_000_000)  # the double negation rounds up
        raise WireError("x-macro_not_yet_valid", message, retry_after_ms=wait_ms)


def _check_end(definition: Definition, now_ns: int) -> None:
    """Raise :class:`WireError` if the validity is over by the server's clock; the client's does not count (OPEN-27)."""
    end = definition.expires_at
    if end is not None and now_ns >= end:
        message = f"The macro-tool was valid until {instant_text(end)}; evaluate the intent again"
        raise WireError("macro_expired", message)


def _seal_binding(identity: str, inputs_digest: str) -> tuple[str, ...]:
    """Return the place of proof inputs in the store: their seal is valid only there."""
    return "registry", identity, inputs_digest, "inputs"


def _window(definition: Definition) -> tuple[int | None, int | None]:
    """Return the begin and end of the validity in milliseconds, rounded inwards."""
    return (
        None if definition.not_before is None else -(-definition.not_before // 1_000_000),
        None if definition.expires_at is None else definition.expires_at // 1_000_000,
    )


def _is_valid(stored: StoredOffer, now_ms: int) -> bool:
    return (stored.not_before_ms or 0) <= now_ms and (stored.expires_at_ms is None or now_ms < stored.expires_at_ms)


class _SecretText(msgspec.Struct, frozen=True):
    """A text that contains secrets. The document has an empty text at ``place``, and ``parts`` to restore it."""

    place: JsonPath
    parts: tuple[str, ...]  # alternately a text and the name of a secret setting, starting with a text


class _Document(msgspec.Struct, frozen=True, omit_defaults=True):
    definition: Any  # plain JSON
    blanks: tuple[_SecretText, ...] = ()


_decoder: Final = msgspec.json.Decoder(_Document)


class OfferCodec:
    """Encodes and decodes the definitions of one pack, without its secret settings."""

    def __init__(self, pack: Pack) -> None:
        secrets = secret_values(pack)  # the longest first, so that a secret within another is not matched instead
        self._setting_by_secret = {value: name for name, value in pack.params.items() if is_secret_setting(name)}
        self._settings = pack.params
        self._secret = re.compile("|".join(map(re.escape, secrets))) if secrets else None
        self.read: Callable[[bytes], Definition] = lru_cache(_MAX_READ)(self._read)

    def write(self, definition: Definition) -> bytes:
        blanks: list[_SecretText] = []
        content = msgspec.to_builtins(definition)
        if self._secret is not None:
            content = self._without_secrets(content, (), blanks)
        return msgspec.json.encode(_Document(content, tuple(blanks)), order="sorted")

    def _read(self, document: bytes) -> Definition:
        decoded_document = _decoder.decode(document)
        for blank in decoded_document.blanks:
            *path, last = blank.place
            container = decoded_document.definition
            for step in path:
                container = container[step]
            # Parts with odd indices name settings.
            texts = [self._settings[part] if index % 2 else part for index, part in enumerate(blank.parts)]
            container[last] = "".join(texts)
        return msgspec.convert(decoded_document.definition, Definition)

    def _without_secrets(self, value: Any, place: JsonPath, blanks: list[_SecretText]) -> Any:
        """Return the JSON value at ``place``; replace texts with secrets by empty texts, and add them to ``blanks``."""
        if isinstance(value, str):
            parts = self._parts(value)
            if len(parts) == 1:
                return value
            blanks.append(_SecretText(place, tuple(parts)))
            return ""
        if isinstance(value, dict):
            return {name: self._without_secrets(member, (*place, name), blanks) for name, member in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._without_secrets(item, (*place, number), blanks) for number, item in enumerate(value)]
        return value

    def _parts(self, text: str) -> Sequence[str]:
        """Return the parts of a :class:`_SecretText`; only the text itself if it has no secret."""
        assert self._secret is not None
        parts, end = [], 0
        for secret in self._secret.finditer(text):
            parts += [text[end : secret.start()], self._setting_by_secret[secret[0]]]
            end = secret.end()
        return [*parts, text[end:]]
