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
from manglecp.intent import Identity, Offer, OfferCodec, make_redactor, secret_values
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

NUL: Final = "\0"
"""Not possible in a PostgreSQL text, and in no name of ours."""
_LONGEST_KEY: Final = 128
_PLANS: Final = 4_096


def check_request_key(key: str | None) -> str | None:
    """Return the request key. Raises :class:`WireError` if it is malformed."""
    if key is not None and (not 1 <= len(key) <= _LONGEST_KEY or NUL in key):
        raise malformed(
            f"x-request_key has 1 to {_LONGEST_KEY} characters, none of them NUL", "$.payload.x-request_key"
        )
    return key


def key_conflict() -> WireError:
    """Return the error for a request key that was used with another tool or other arguments."""
    return WireError("x-request_key_conflict", "The request key was used for another macro-tool or other arguments")


class CheckedInvocation(msgspec.Struct, frozen=True, kw_only=True):
    offer: Offer
    plan: Plan
    args: Mapping[str, Any]
    """Without defaults."""
    approval: str | None = None
    consent: Consent | None = None
    """A nonce that has to be used up when the run is accepted."""


class InvocationKey(msgspec.Struct, frozen=True):
    """The principal, its request key, the tool, the digest of the arguments, and the evaluation time."""

    identity: Identity
    key: str | None
    macro_id: str
    args_digest: str
    now_ns: int

    @property
    def digest(self) -> str:
        """The digest of tool and arguments, which a request key identifies."""
        return digest({"macro_id": self.macro_id, "args": self.args_digest})


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The journal of a run that another process began."""

    outcomes: tuple[StepOutcome, ...] = ()
    carried: tuple[StepOutcome, ...] = ()
    """Outcomes of the effects that the last witness permitted: rows of the next turn."""
    unfinished: tuple[ActionCall, ...] = ()
    """Calls that were sent and have no recorded outcome."""
    attempts: Mapping[tuple[str, int], int] = field(default_factory=dict)
    """The number of attempts, by kind and number of the step."""
    slots: Slots = field(default_factory=dict)
    cancelled: bool = False
    resumption: Resumption


class AdmittedRun(msgspec.Struct, frozen=True, kw_only=True):
    admission: Admission
    plan: Plan
    args: dict[str, Any]
    """With defaults."""
    identity: Identity
    now_ns: int
    """The evaluation time."""
    journal: Journal
    history: History | None = None

    @property
    def first(self) -> KeyTaken | None:
        """The run of the same request at another server whose response takes precedence."""
        return self.journal.first if isinstance(self.journal, ReadJournal) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionService:
    pack: Pack
    pack_digest: str
    codec: OfferCodec
    store: Store
    ownership: OwnershipRegistry
    secrets: Secrets
    auto_confirm: AutoConfirm
    _plans: LruCache[Offer, Plan] = field(default_factory=lambda: LruCache(_PLANS))

    def check(
        self, kept: StoredOffer | None, payload: InvokePayload, invocation: InvocationKey, now_ms: int
    ) -> CheckedInvocation:
        """Return the checked invocation. ``kept`` is the stored offer of this macro_id and identity."""
        if kept is None or kept.pack_digest != self.pack_digest:
            raise macro_not_found()
        offer = self.codec.read(kept.document)
        plan = self._plans.get(offer)
        if plan is None:
            try:
                plan = Plan.of(offer.definition, self.pack.actions)
            except Unplannable:
                raise macro_not_found() from None
            self._plans.put(offer, plan)
        _check_validity(kept, now_ms)
        if errors := schema_errors(payload.args, offer.definition.input_schema):
            raise refused_arguments(errors)
        approval, consent = self._check_approval(plan, payload, invocation, now_ms)
        return CheckedInvocation(offer=offer, plan=plan, args=payload.args, approval=approval, consent=consent)

    def _check_approval(
        self, plan: Plan, payload: InvokePayload, invocation: InvocationKey, now_ms: int
    ) -> tuple[str | None, Consent | None]:
        definition, name = plan.definition, invocation.identity.name
        if payload.confirmation_token is not None:
            token, macro_id = payload.confirmation_token, definition.macro_id
            consent = verify(token, self.secrets.of(name), name, macro_id, invocation.args_digest, now_ms)
            if consent is None:
                raise invalid_confirmation()
            return f"confirm:{consent.nonce}", consent
        if not definition.safety.requires_user_confirmation:
            return None, None
        approval = self.auto_confirm.approval(name, definition.safety.side_effects)
        if approval is not None:
            return approval, None
        args = {**plan.defaults, **payload.args}
        text = consent_text(definition, args, secret_args=plan.secrets, hide=make_redactor(secret_values(self.pack)))
        request = challenge(definition, invocation.args_digest, text, now_ms)
        raise WireError("confirmation_required", "A person has to agree first", {"challenge": request})

    async def accept(self, checked: CheckedInvocation, invocation: InvocationKey) -> AdmittedRun:
        """Store and return the run. Raises :class:`KeyTaken` if the request key has a run already."""
        run = f"r-{random_id()}"
        admission = Admission(
            run=run,
            identity=invocation.identity.name,
            macro_id=checked.plan.definition.macro_id,
            tool=checked.plan.definition.tool,
            pack_digest=self.pack_digest,
            policy_digest=self.pack.governance.digest,
            proof_digest=checked.offer.proof_digest,
            chain_digest=checked.offer.chain_digest,
            args_digest=invocation.args_digest,
            eval_time=str(invocation.now_ns),
            approval=checked.approval,
            request_key_digest=None if invocation.key is None else digest_text(invocation.key),
        )
        durable = checked.plan.has_effects
        new = self._new_run(admission, checked, invocation) if durable or invocation.key is not None else None
        since = time.monotonic() if durable else 0.0
        if durable or checked.consent is not None:
            await self._write(admission, checked, new if durable else None)
        journal: Journal
        if durable:
            self.ownership.add(run, 1, since)
            journal = Journal(self.store, run, invocation.identity.name, 1)
        else:
            journal = ReadJournal(self.store, admission, new)
        return AdmittedRun(
            admission=admission,
            plan=checked.plan,
            args={**checked.plan.defaults, **checked.args},
            identity=invocation.identity,
            now_ns=invocation.now_ns,
            journal=journal,
        )

    def _new_run(self, admission: Admission, checked: CheckedInvocation, invocation: InvocationKey) -> NewRun:
        hidden = checked.plan.secrets
        stored = {name: value for name, value in checked.args.items() if name not in hidden}
        principal = {"permissions": sorted(invocation.identity.permissions), "trust": invocation.identity.trust}
        return NewRun(
            run_id=admission.run,
            identity=invocation.identity.name,
            macro_id=admission.macro_id,
            pack_digest=admission.pack_digest,
            request_digest=invocation.digest,
            request_key=invocation.key,
            admission=msgspec.json.encode(admission.record(), order="sorted"),
            values=Values(
                plan=self.codec.write(checked.offer),
                args=msgspec.json.encode({"args": stored, "identity": principal}),
            ),
            owner=self.ownership.owner,
            claim_ms=self.ownership.claim_ms,
        )

    async def _write(self, admission: Admission, checked: CheckedInvocation, new: NewRun | None) -> None:
        """Write the run, the used confirmation and the ledger entry in one transaction."""
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
    """Return the same error for an unknown macro-tool, an expired one and one of another principal."""
    return WireError("macro_not_found", "No macro-tool of yours has this id now; evaluate the intent again")


def invalid_confirmation() -> WireError:
    return WireError("confirmation_invalid", "The confirmation token does not hold; ask for consent again")


def args_digest(args: Mapping[str, Any]) -> str:
    """Return the digest of the canonical JSON of the arguments, without defaults."""
    try:
        return digest(args if type(args) is dict else dict(args))
    except Uncanonical as error:
        raise malformed(f"The arguments have no canonical form: {error.reason}", "$.payload.args") from None


def _check_validity(kept: StoredOffer, now_ms: int) -> None:
    """Raise an error outside of the offer's validity, by the server's clock, not ``eval_time`` (OPEN-27)."""
    if kept.not_before_ms is not None and now_ms < kept.not_before_ms:
        message = f"The macro-tool is valid from {instant_text(kept.not_before_ms * 1_000_000)} on"
        raise WireError("x-macro_not_yet_valid", message, retry_after_ms=kept.not_before_ms - now_ms)
    if kept.expires_at_ms is not None and now_ms >= kept.expires_at_ms:
        message = f"The macro-tool was valid until {instant_text(kept.expires_at_ms * 1_000_000)}"
        raise WireError("macro_expired", f"{message}; evaluate the intent again")
