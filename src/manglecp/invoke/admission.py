"""Admission: from an invocation request to a run.

The checks change nothing, and run in the order of the specification (requirements INVK-05 and OPEN-29): the owner of
the offer (another principal's offer is indistinguishable from an unknown id, OPEN-31); the validity of the offer, by
the server's clock; the arguments, reporting all their errors; a new proof of the tool, for the principal's present
rights; the approval. A run with effects is admitted in one transaction, which writes the run, the use of the approval
and the ledger entry.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgspec

from manglecp.base.cache import LruCache
from manglecp.base.digest import digest, digest_text
from manglecp.base.ids import ordered_id
from manglecp.base.json import Uncanonical
from manglecp.intent import Decision, Definition, Identity, OfferService, ProofInputs, approval_waiver, macro_not_found
from manglecp.invoke.approval import ApprovalService, Approvers, invalid_approval
from manglecp.invoke.calls import ActionCall, StepOutcome
from manglecp.invoke.decision_log import DecisionLog, add_decision_id, explain_approval
from manglecp.invoke.gate import Resumption
from manglecp.invoke.journal import Admission, Journal, ReadJournal
from manglecp.invoke.ownership import OwnershipRegistry
from manglecp.invoke.plan import Plan, Unplannable
from manglecp.invoke.preview import ApprovalSubject, PreviewRunner
from manglecp.pack import Pack
from manglecp.store import (
    Approval,
    ApprovalBinding,
    DecisionRecord,
    EntryKind,
    NewEntry,
    NewRun,
    Store,
    Transaction,
    Values,
)
from manglecp.toolhost import Slots
from manglecp.wire import WireError, malformed
from manglecp.wire.messages import InvokePayload, Remedy

NUL: Final = "\0"
"""PostgreSQL cannot store this character; no name of this server contains it."""
_MAX_KEY_LENGTH: Final = 128
_MAX_PLANS: Final = 4_096
_REMEDY_SECONDS: Final = 0.02  # time limit of the search for what would unlock a refused call
_FIRST_FENCE: Final = 1
"""The fencing token of the process that admits a run."""


def check_request_key(key: str | None) -> str | None:
    """Return the request key. Raises :class:`WireError` if it is malformed."""
    if key is not None and (not 1 <= len(key) <= _MAX_KEY_LENGTH or NUL in key):
        message = f"x-request_key has 1 to {_MAX_KEY_LENGTH} characters, none of them NUL"
        raise malformed(message, "$.payload.x-request_key")
    return key


def key_conflict() -> WireError:
    """Return the error for a request key that was used with another tool or other arguments."""
    return WireError("x-request_key_conflict", "The request key was used for another macro-tool or other arguments")


class CheckedInvocation(msgspec.Struct, frozen=True, kw_only=True):
    """An invocation that passed all checks and may be accepted as a run."""

    decision: Decision
    """The decision about the invocation, with the proof of the tool."""
    plan: Plan
    args: Mapping[str, Any]
    """The arguments as the client sent them, without defaults."""
    approval_ref: str | None = None
    """The reference to the approval, or to its waiver, for the admission record."""
    approval: Approval | None = None
    """The approval to mark as used when the run is accepted; None without one, or if it is waived."""
    subject: ApprovalSubject | None = None
    """What the approver was shown; None without an approval."""

    @property
    def approvers(self) -> Approvers | None:
        return None if self.approval is None else Approvers(self.approval.roles, self.approval.four_eyes)


class InvocationKey(msgspec.Struct, frozen=True):
    """What identifies an invocation."""

    identity: Identity
    key: str | None
    """The client's request key (idempotency key)."""
    macro_id: str
    args_digest: str
    eval_time_ns: int | None = None
    """The client's ``eval_time``, for the admission record only."""

    @property
    def digest(self) -> str:
        """The digest of tool and arguments; a request key may be used again only for the same digest."""
        return digest({"macro_id": self.macro_id, "args": self.args_digest})


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The journal of a run that another process began."""

    outcomes: tuple[StepOutcome, ...] = ()
    carried: tuple[StepOutcome, ...] = ()
    """The ``outcomes`` that no closed turn contains; they become rows of the next turn."""
    unfinished: tuple[ActionCall, ...] = ()
    """Calls that were sent and have no recorded outcome."""
    attempts: Mapping[tuple[str, int], int] = field(default_factory=dict)
    """The number of attempts, by kind (``do`` or ``undo``) and number of the step."""
    slots: Slots = field(default_factory=dict)
    cancelled: bool = False
    resumption: Resumption


class AdmittedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run that may be executed, new or resumed."""

    admission: Admission
    plan: Plan
    args: dict[str, Any]
    """The arguments, with defaults."""
    identity: Identity
    inputs: ProofInputs
    subject: ApprovalSubject | None = None
    """What the approver was shown."""
    approvers: Approvers | None = None
    """None without an approval, or if it is waived."""
    journal: Journal
    history: History | None = None
    """None for a new run."""


class _ApprovalCall(NamedTuple):
    """An invocation that needs an approval."""

    plan: Plan
    args: Mapping[str, Any]
    """The arguments, with defaults."""
    identity: str
    args_digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionService:
    """Checks invocations of one pack revision, and accepts them as runs."""

    offers: OfferService
    store: Store
    ownership: OwnershipRegistry
    approvals: ApprovalService
    previews: PreviewRunner
    clock: Callable[[], int]
    """Returns the time in nanoseconds since 1970."""
    log: DecisionLog
    server_digest: str = ""
    """The digest of what the hosts can reach: an approval is valid at servers with the same digest."""
    _plans: LruCache[str, Plan] = field(default_factory=lambda: LruCache(_MAX_PLANS))
    """The plans, by the digest of the chain."""

    @property
    def pack(self) -> Pack:
        return self.offers.domain.pack

    async def check(
        self, payload: InvokePayload, invocation: InvocationKey, *, is_large: bool = False
    ) -> CheckedInvocation:
        """Return the checked invocation; ``is_large`` is whether its arguments are large. Raises :class:`WireError`."""
        decision = await self.offers.prove(invocation.identity, payload.macro_id, payload.args, is_large=is_large)
        try:
            plan = self._plan(decision.proven())
            checked = CheckedInvocation(decision=decision, plan=plan, args=payload.args)
            checked = await self._check_approval(checked, payload.confirmation_token, invocation)
            if payload.prepare:
                raise WireError("x-approval_not_needed", "The call needs no further approval; invoke it")
            return checked
        except WireError as error:
            if error is decision.error and decision.judgement.denials:
                add_remedies(decision, await asyncio.to_thread(decision.find_remedies, _REMEDY_SECONDS))
            if "x-decision" not in (error.details or {}):  # an approval request has recorded the decision
                add_decision_id(error, await self.log.record(decision, "admission"))
            raise

    def _plan(self, definition: Definition) -> Plan:
        plan = self._plans.get(definition.chain_digest)
        if plan is None or plan.definition is not definition:  # the cached plan may be of another definition
            try:
                plan = Plan.of(definition, self.pack.actions)
            except Unplannable:
                raise macro_not_found() from None
            self._plans.put(definition.chain_digest, plan)
        return plan

    async def _check_approval(
        self, checked: CheckedInvocation, token: str | None, invocation: InvocationKey
    ) -> CheckedInvocation:
        definition, identity = checked.plan.definition, invocation.identity
        if token is None and not definition.safety.requires_user_confirmation:
            return checked
        waiver = approval_waiver(identity, definition.safety) if token is None else None
        if waiver is not None:
            return msgspec.structs.replace(checked, approval_ref=waiver)
        call = _ApprovalCall(
            checked.plan, {**checked.plan.defaults, **checked.args}, identity.name, invocation.args_digest
        )
        if token is None:
            record = self.log.build(checked.decision, "admission")
            error = explain_approval(await self._request_approval(call, [record]), checked.decision)
            raise add_decision_id(error, record.id) if error.code == "confirmation_required" else error
        approval = await self.approvals.check(token, self._binding(call, ApprovalSubject()), definition.safety)
        # The subject is checked last: its previews call actions, which an invalid approval must not cause.
        subject = await self.previews.subject(call.plan, call.args, call.identity)
        if approval.binding.subject_digest != subject.digest:
            raise invalid_approval("subject")
        ref = f"approval:{approval.id}"
        return msgspec.structs.replace(checked, approval_ref=ref, approval=approval, subject=subject)

    async def request_approval(self, run: AdmittedRun, definition: Definition) -> WireError:
        """Store a request for the approval that the tool of a run needs now; return ``confirmation_required``.

        ``definition`` is the tool as it was proven last. The run ends: only a new invocation can use the approval.
        """
        call = _ApprovalCall(self._plan(definition), run.args, run.identity.name, run.admission.args_digest)
        return await self._request_approval(call)

    async def _request_approval(self, call: _ApprovalCall, decisions: Sequence[DecisionRecord] = ()) -> WireError:
        subject = await self.previews.subject(call.plan, call.args, call.identity)
        text = self.previews.render(call.plan, call.args, subject, call.identity)
        return await self.approvals.request(self._binding(call, subject), call.plan.definition, text, decisions)

    def _binding(self, call: _ApprovalCall, subject: ApprovalSubject) -> ApprovalBinding:
        return ApprovalBinding(
            identity=call.identity,
            pack_digest=self.offers.domain.digest,
            chain_digest=call.plan.definition.chain_digest,
            args_digest=call.args_digest,
            subject_digest=subject.digest,
            server_digest=self.server_digest,
        )

    async def accept(self, checked: CheckedInvocation, invocation: InvocationKey) -> AdmittedRun:
        """Store and return the run. Raises :class:`KeyTaken` if the request key has a run already."""
        run = f"r-{ordered_id()}"
        admission = Admission(
            run=run,
            identity=invocation.identity.name,
            macro_id=checked.plan.definition.macro_id,
            tool=checked.plan.definition.tool,
            pack_digest=self.offers.domain.digest,
            policy_digest=self.pack.governance.digest,
            proof_digest=checked.decision.digest,
            chain_digest=checked.plan.definition.chain_digest,
            args_digest=invocation.args_digest,
            proven_at=str(checked.decision.at_ns),
            eval_time=None if invocation.eval_time_ns is None else str(invocation.eval_time_ns),
            approval=checked.approval_ref,
            request_key_digest=None if invocation.key is None else digest_text(invocation.key),
        )
        is_durable = checked.plan.has_effects
        has_row = is_durable or invocation.key is not None
        new_run = self._new_run(admission, checked, invocation) if has_row else None
        before_write = time.monotonic()
        decisions = [self.log.build(checked.decision, "admission", run)]
        if is_durable or checked.approval is not None:
            await self._write(admission, checked, new_run if is_durable else None, decisions)
            decisions = []
        journal: Journal
        if is_durable:
            self.ownership.add(run, _FIRST_FENCE, before_write)
            journal = Journal(self.store, run, invocation.identity.name, _FIRST_FENCE)
        else:  # its row is stored at the end, with the response
            journal = ReadJournal(self.store, admission, new_run)
            journal.decisions = decisions
        return AdmittedRun(
            admission=admission,
            plan=checked.plan,
            args={**checked.plan.defaults, **checked.args},
            identity=invocation.identity,
            inputs=checked.decision.call.inputs,
            subject=checked.subject,
            approvers=checked.approvers,
            journal=journal,
        )

    def _new_run(self, admission: Admission, checked: CheckedInvocation, invocation: InvocationKey) -> NewRun:
        args = {name: value for name, value in checked.args.items() if name not in checked.plan.secrets}
        return NewRun(
            run_id=admission.run,
            identity=invocation.identity.name,
            macro_id=admission.macro_id,
            pack_digest=admission.pack_digest,
            request_digest=invocation.digest,
            request_key=invocation.key,
            admission=msgspec.json.encode(admission.record(), order="sorted"),
            values=Values(
                plan=self.offers.codec.write(checked.plan.definition),
                args=msgspec.json.encode(
                    {
                        "args": args,
                        "identity": invocation.identity,
                        "inputs": checked.decision.call.inputs,
                        "subject": checked.subject,
                        "approvers": checked.approvers,
                    }
                ),
            ),
            owner=self.ownership.owner,
            claim_ms=self.ownership.claim_ms,
        )

    async def _write(
        self,
        admission: Admission,
        checked: CheckedInvocation,
        durable_run: NewRun | None,
        decisions: Sequence[DecisionRecord],
    ) -> None:
        """Write the durable run, the used approval, the decision and the ledger entry in one transaction."""

        def write(tx: Transaction) -> None:
            if durable_run is not None:
                self.store.runs.accept(tx, durable_run)
            if checked.approval is not None:
                self.approvals.use(tx, checked.approval, admission.run)

        kind: EntryKind = "admission" if durable_run is not None else "approval"
        entry = NewEntry(kind, admission.record(), admission.run, admission.identity)
        await self.store.writer.write(write, [entry], decisions)


def add_remedies(decision: Decision, remedies: Sequence[Remedy]) -> None:
    """Add the remedies for a denied call to its error: to the message, and as ``would_unlock`` to the details."""
    error = decision.error
    if error is not None and remedies:
        error.message = "; ".join((error.message, *(remedy.text for remedy in remedies)))
        error.details = {**(error.details or {}), "would_unlock": msgspec.to_builtins(remedies)}


def credential_not_valid() -> WireError:
    """Return the error of a principal whose credential was removed or has expired since it was accepted."""
    return WireError("auth_invalid", "The credential was removed or has expired", {"reason": "credential"})


def args_digest(args: Mapping[str, Any]) -> str:
    """Return the digest of the canonical JSON of the arguments, without defaults."""
    try:
        return digest(args if type(args) is dict else dict(args))
    except Uncanonical as error:
        raise malformed(f"The arguments have no canonical form: {error.reason}", "$.payload.args") from None
