"""Permits: decisions about calls that the application of a client executes itself, and the reported outcomes.

A permit is a record of the decision log, committed before the client receives the permit's id. Its outcome is a second
record. Both have the permit's id in the column ``run``. A permit has at most one outcome (:meth:`.Decisions.unreported`
finds permits without an outcome).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from manglecp.base.digest import digest
from manglecp.base.ids import random_id
from manglecp.intent import Decision, Identity
from manglecp.invoke.admission import args_digest, credential_not_valid
from manglecp.invoke.approval import ApprovalService, ledger_entry
from manglecp.invoke.approval_text import render_permit_request
from manglecp.invoke.decision_log import DecisionLog, add_decision_id, explain_approval
from manglecp.mangle import instant_text
from manglecp.store import Approval, ApprovalBinding, DecisionRecord, Store, StoredDecision, StoreError, Transaction
from manglecp.wire import WireError
from manglecp.wire.messages import DecidePayload, DecideResult, Permit, PermitReport

LIFETIME_MS: Final = 600_000
"""The time after which a permit has ended; an outcome that is reported later is marked as late."""


class PermitService:
    """Issues permits, and records their outcomes."""

    def __init__(
        self,
        store: Store,
        approvals: ApprovalService,
        log: DecisionLog,
        clock: Callable[[], int],
        operation: str = "permit",
    ) -> None:
        """``operation`` is the operation of the permits' records in the decision log."""
        self._store = store
        self._approvals = approvals
        self._log = log
        self._clock = clock
        self._operation = operation

    async def issue(self, payload: DecidePayload, decision: Decision) -> tuple[Permit, DecisionRecord]:
        """Record a permit for the call; return it with the record of its decision.

        Raises :class:`WireError` for a denied call, and for one that needs an approval and has none.
        """
        if decision.identity.revoked:
            raise credential_not_valid()
        if decision.error is not None:
            raise add_decision_id(decision.error, await self._log.record(decision, self._operation))
        sent_digest = args_digest(payload.args)
        approval = await self._find_approval(payload, decision, sent_digest)
        permit_id = f"p-{random_id()}-{_suffix(sent_digest)}"
        record = self._log.build(decision, self._operation, permit_id)

        def use(tx: Transaction) -> None:
            if approval is not None:
                self._approvals.use(tx, approval, permit_id)

        entries = () if approval is None else (ledger_entry(approval, "used", decision.identity.name),)
        await self._store.writer.write(use, entries, [record])
        return _permit(record), record

    async def _find_approval(self, payload: DecidePayload, decision: Decision, sent_digest: str) -> Approval | None:
        """Return the approval of the call; None if it needs none. Raises WireError, and stores a request if needed."""
        identity, tool, judgement = decision.identity.name, decision.call.tool, decision.judgement
        if payload.approval is None and decision.verdict == "allow":
            return None
        binding = ApprovalBinding(
            identity=identity,
            pack_digest=decision.domain.digest,
            chain_digest=digest({"permit": tool}),  # no approval of an invocation holds for a permit
            args_digest=sent_digest,
            subject_digest="",
        )
        if payload.approval is not None:
            try:
                return await self._approvals.check(payload.approval, binding, judgement.safety)
            except WireError as error:
                raise add_decision_id(error, await self._log.record(decision, self._operation)) from None
        description = " ".join(str(text) for _, text in judgement.rows.get("macro", ()))
        text = render_permit_request(tool, description, decision.call.args, identity, self._log.secret_args(decision))
        record = self._log.build(decision, self._operation)
        demand = await self._approvals.request(binding, judgement, text, [record])
        raise add_decision_id(explain_approval(demand, decision), record.id)

    async def report(self, payload: DecidePayload, report: PermitReport, identity: Identity) -> DecideResult:
        """Record the outcome of a permitted call, once; an equal report gets the same result. Raises WireError."""
        issued = await self._find(report.permit, self._operation)
        if issued is None or issued.principal != identity.name:
            raise WireError("x-permit_not_found", "No permit of yours has this id")
        if issued.tool != payload.tool or not report.permit.endswith(_suffix(args_digest(payload.args))):
            raise WireError("x-permit_conflict", "The permit is for another call", {"reason": "other_call"})
        record = self._log.build_outcome(issued, report, self._clock(), issued.at_ms + LIFETIME_MS)
        if await self._find(report.permit, "outcome") is None:
            with suppress(StoreError):  # another report may be recorded at the same time
                await self._store.writer.append((), [record])
        outcome = await self._find(report.permit, "outcome")
        if outcome is None:
            raise StoreError("the outcome of a permit was not recorded")
        if outcome.args_digest != record.args_digest:
            message = "Another outcome of this permit was reported already"
            raise WireError("x-permit_conflict", message, {"reason": "reported"})
        verdict: Any = issued.verdict
        decided_at = instant_text(issued.at_ms * 1_000_000)
        permit = _permit(issued)
        return DecideResult(verdict=verdict, decided_at=decided_at, decision=outcome.id, permit=permit)

    async def _find(self, permit: str, operation: str) -> StoredDecision | None:
        decisions = self._store.decisions
        records = await self._store.writer.read(lambda tx: decisions.newest(tx, 1, run=permit, operation=operation))
        return records[0] if records else None


def _permit(issued: DecisionRecord) -> Permit:
    return Permit(id=str(issued.run), expires_at=instant_text((issued.at_ms + LIFETIME_MS) * 1_000_000))


def _suffix(sent_digest: str) -> str:
    """Return the end of a permit's id: a part of the digest of its arguments, which binds reports to the arguments."""
    return sent_digest[-16:]
