"""Admission: from an invocation request to a run.

The checks come in the order of the specification (INVK-05, OPEN-29) and change nothing. Identity first: an offer
belongs to the principal and the pack revision that it was proven for; an offer of another principal, an invented one
and one of an older revision are indistinguishable (OPEN-31). Then its validity, by the server's clock; then the
arguments, with all their errors; then the approval. A run with effects is admitted in one transaction: the run, the
used confirmation and the ledger entry.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from manglecp.base.cache import LruCache
from manglecp.base.digest import digest, digest_text
from manglecp.base.ids import random_id
from manglecp.base.json import Uncanonical
from manglecp.intent import Identity, Offer, OfferCodec, hiding, secret_values
from manglecp.invoke.approval import AutoConfirm, Consent, Secrets, challenge, consent_text, verify
from manglecp.invoke.calls import ActionCall, StepOutcome
from manglecp.invoke.gate import Resumption
from manglecp.invoke.journal import Admission, Journal, ReadJournal
from manglecp.invoke.ownership import OwnershipRegistry
from manglecp.invoke.plan import Plan, Unplannable
from manglecp.mangle import instant_text
from manglecp.pack import Pack
from manglecp.store import EntryKind, KeyTaken, NewRun, Note, Store, StoredOffer, Transaction, Values
from manglecp.toolhost import Slots
from manglecp.wire import (
    WireError,
    malformed,
    refused_arguments,
    schema_errors,
)
from manglecp.wire.messages import InvokePayload

# --- requests ------------------------------------------------------------------------------------------------------

NUL: Final = "\0"
"""PostgreSQL has no text with it. Nothing of ours has it in its name."""
_LONGEST_KEY: Final = 128
_PLANS: Final = 4_096


def check_request_key(key: str | None) -> str | None:
    """A request key, if it can be one."""
    if key is not None and (not 1 <= len(key) <= _LONGEST_KEY or NUL in key):
        raise malformed(
            f"x-request_key has 1 to {_LONGEST_KEY} characters, none of them NUL", "$.payload.x-request_key"
        )
    return key


def key_conflict() -> WireError:
    """For a request key that comes again with something else."""
    return WireError("x-request_key_conflict", "The request key was used for another macro-tool or other arguments")


# --- checking ------------------------------------------------------------------------------------------------------


class CheckedInvocation(msgspec.Struct, frozen=True, kw_only=True):
    """An invocation that may run."""

    offer: Offer
    plan: Plan
    args: Mapping[str, Any]
    """As they were sent."""
    approval: str | None = None
    consent: Consent | None = None
    """A nonce that has to be used up when the run is accepted."""


class InvocationKey(msgspec.Struct, frozen=True):
    """The caller, its request key, the tool with the digest of its arguments, and what rules take for now."""

    identity: Identity
    key: str | None
    macro_id: str
    args_digest: str
    now_ns: int

    @property
    def digest(self) -> str:
        """Of tool and arguments: what a key stands for."""
        return digest({"macro_id": self.macro_id, "args": self.args_digest})


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The record of a run that another process began."""

    outcomes: tuple[StepOutcome, ...] = ()
    carried: tuple[StepOutcome, ...] = ()
    """Outcomes of the effects that the last witness permitted: rows of the next turn."""
    unfinished: tuple[ActionCall, ...] = ()
    """Sent, without an outcome on record."""
    attempts: Mapping[tuple[str, int], int] = field(default_factory=dict)
    """How often each step (by kind and number) was attempted."""
    slots: Slots = field(default_factory=dict)
    cancelled: bool = False
    """Whether a client had cancelled it."""
    resumption: Resumption


class AdmittedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run that is to be carried out here."""

    admission: Admission
    plan: Plan
    args: dict[str, Any]
    """With their defaults."""
    identity: Identity
    now_ns: int
    """What rules take for now."""
    journal: Journal
    history: History | None = None

    @property
    def first(self) -> KeyTaken | None:
        """The run at another server whose response to the same request is the one that counts."""
        return self.journal.first if isinstance(self.journal, ReadJournal) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionService:
    """Checks and admits invocations of one pack revision."""

    pack: Pack
    pack_digest: str
    codec: OfferCodec
    store: Store
    claims: OwnershipRegistry
    secrets: Secrets
    auto_confirm: AutoConfirm
    _plans: LruCache[Offer, Plan] = field(default_factory=lambda: LruCache(_PLANS))

    def plan_of(self, offer: Offer) -> Plan:
        """Raises :class:`Unplannable`. The actions of a pack never change, so neither does the plan."""
        plan = self._plans.get(offer)
        if plan is None:
            plan = Plan.of(offer.definition, self.pack.actions)
            self._plans.put(offer, plan)
        return plan

    def check(
        self, kept: StoredOffer | None, payload: InvokePayload, asked: InvocationKey, now_ms: int
    ) -> CheckedInvocation:
        """``kept`` is the offer that is known under this macro_id for this identity."""
        if kept is None or kept.pack_digest != self.pack_digest:
            raise macro_not_found()
        offer = self.codec.read(kept.document)
        try:
            plan = self.plan_of(offer)
        except Unplannable:
            raise macro_not_found() from None
        _in_time(kept, now_ms)
        if errors := schema_errors(payload.args, offer.definition.input_schema):
            raise refused_arguments(errors)
        approval, consent = self._consented(plan, payload, asked, now_ms)
        return CheckedInvocation(offer=offer, plan=plan, args=payload.args, approval=approval, consent=consent)

    def _consented(
        self, plan: Plan, payload: InvokePayload, asked: InvocationKey, now_ms: int
    ) -> tuple[str | None, Consent | None]:
        definition, name, digested = plan.definition, asked.identity.name, asked.args_digest
        if payload.confirmation_token is not None:
            token, macro_id = payload.confirmation_token, definition.macro_id
            consent = verify(token, self.secrets.of(name), name, macro_id, digested, now_ms)
            if consent is None:
                raise invalid_confirmation()
            return f"confirm:{consent.nonce}", consent
        if not definition.safety.requires_user_confirmation:
            return None, None
        approval = self.auto_confirm.approval(name, definition.safety.side_effects)
        if approval is not None:
            return approval, None
        given = {**plan.defaults, **payload.args}
        text = consent_text(definition, given, secret_args=plan.secrets, hide=hiding(secret_values(self.pack)))
        shown = challenge(definition, digested, text, now_ms)
        raise WireError("confirmation_required", "A person has to agree first", {"challenge": shown})

    async def accept(self, checked: CheckedInvocation, asked: InvocationKey) -> AdmittedRun:
        """:class:`KeyTaken` if the key stands for a run already."""
        run = f"r-{random_id()}"
        admission = Admission(
            run=run,
            identity=asked.identity.name,
            macro_id=checked.plan.definition.macro_id,
            tool=checked.plan.definition.tool,
            pack_digest=self.pack_digest,
            policy_digest=self.pack.governance.digest,
            proof_digest=checked.offer.proof_digest,
            chain_digest=checked.offer.chain_digest,
            args_digest=asked.args_digest,
            eval_time=str(asked.now_ns),
            approval=checked.approval,
            request_key_digest=None if asked.key is None else digest_text(asked.key),
        )
        durable = checked.plan.has_effects
        new = self._new_run(admission, checked, asked) if durable or asked.key is not None else None
        since = time.monotonic() if durable else 0.0
        if durable or checked.consent is not None:
            await self._write(admission, checked, new if durable else None)
        journal: Journal
        if durable:
            self.claims.hold(run, 1, since)
            journal = Journal(self.store, run, asked.identity.name, 1)
        else:
            journal = ReadJournal(self.store, admission, new)
        return AdmittedRun(
            admission=admission,
            plan=checked.plan,
            args={**checked.plan.defaults, **checked.args},
            identity=asked.identity,
            now_ns=asked.now_ns,
            journal=journal,
        )

    def _new_run(self, admission: Admission, checked: CheckedInvocation, asked: InvocationKey) -> NewRun:
        hidden = checked.plan.secrets
        stored = {name: value for name, value in checked.args.items() if name not in hidden}
        who = {"permissions": sorted(asked.identity.permissions), "trust": asked.identity.trust}
        return NewRun(
            run_id=admission.run,
            identity=asked.identity.name,
            macro_id=admission.macro_id,
            pack_digest=admission.pack_digest,
            request_digest=asked.digest,
            request_key=asked.key,
            admission=msgspec.json.encode(admission.record(), order="sorted"),
            values=Values(
                plan=self.codec.write(checked.offer),
                args=msgspec.json.encode({"args": stored, "identity": who}),
            ),
            owner=self.claims.owner,
            claim_ms=self.claims.claim_ms,
        )

    async def _write(self, admission: Admission, checked: CheckedInvocation, new: NewRun | None) -> None:
        """One transaction: the run, the consent that is used up, and the entry."""
        consent = checked.consent

        def write(tx: Transaction) -> None:
            if new is not None:
                self.store.runs.accept(tx, new)
            if consent and not self.store.nonces.burn(tx, admission.identity, consent.nonce, consent.expires_ms):
                raise invalid_confirmation()

        kind: EntryKind = "admission" if new is not None else "confirmation"
        note = Note(kind, admission.record(), admission.run, admission.identity)
        await self.store.writer.write(write, [note])


def macro_not_found() -> WireError:
    """For a tool that never was, has expired, or is somebody else's: nobody learns which."""
    return WireError("macro_not_found", "No macro-tool of yours has this id now; evaluate the intent again")


def invalid_confirmation() -> WireError:
    return WireError("confirmation_invalid", "The confirmation token does not hold; ask for consent again")


def args_digest(args: Mapping[str, Any]) -> str:
    """Canonical, of the arguments as they were sent."""
    try:
        return digest(args if type(args) is dict else dict(args))
    except Uncanonical as error:
        raise malformed(f"The arguments have no canonical form: {error.reason}", "$.payload.args") from None


def _in_time(kept: StoredOffer, now_ms: int) -> None:
    """OPEN-27: by the server's clock, whatever ``eval_time`` says."""
    if kept.not_before_ms is not None and now_ms < kept.not_before_ms:
        message = f"The macro-tool is valid from {instant_text(kept.not_before_ms * 1_000_000)} on"
        raise WireError("x-macro_not_yet_valid", message, retry_after_ms=kept.not_before_ms - now_ms)
    if kept.expires_at_ms is not None and now_ms >= kept.expires_at_ms:
        message = f"The macro-tool was valid until {instant_text(kept.expires_at_ms * 1_000_000)}"
        raise WireError("macro_expired", f"{message}; evaluate the intent again")
