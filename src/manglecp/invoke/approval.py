"""Approvals: the server stores and renders a request, an approver decides it there, and one call uses it.

An invocation that needs an approval stores a request and fails with ``confirmation_required`` and the request's id. An
approver reads the complete text from the server and approves or denies it. The requester repeats the invocation with
the id as its ``confirmation_token``. An approval is bound to the requester, the pack revision, the chain, the
arguments, the subject (results of previews and other values that the approver was shown), and the server's workspace,
programs and sandbox: a call that differs in any of them needs another approval.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, Literal

import msgspec

from manglecp.base.digest import digest
from manglecp.intent import Definition, Identity, Judgement, SafetyData
from manglecp.mangle import instant_text
from manglecp.store import Approval, ApprovalBinding, DecisionRecord, NewEntry, Store, TooManyPending, Transaction
from manglecp.wire import WireError
from manglecp.wire.messages import UNSET, ApprovalView

APPROVE: Final = "approve"
"""The permission to decide about approval requests. Agents must not have it."""
ANY_ROLE: Final = "approve:*"
"""The permission to decide in every role."""
OPERATOR: Final = Identity("local", frozenset({APPROVE, ANY_ROLE}), "local")
"""The operator of this machine, who has access to the store."""
LIFETIME_MS: Final = 3_600_000
"""The time from a request until it must be decided and the approval used."""
MAX_TEXT: Final = 262_144
"""The maximum length of a request's text. A longer text is refused, not truncated: an approver must see all of it."""

Verdict = Literal["approved", "denied"]
InvalidReason = Literal["expired", "denied", "used", "other_call", "server", "revision", "subject", "approver"]


class Approvers(msgspec.Struct, frozen=True):
    """The requirements on approvers that an approval met."""

    roles: tuple[str, ...]
    """The permissions that the approver had to have in addition to ``approve``."""
    four_eyes: bool
    """Whether the approver had to be another principal than the requester."""

    def satisfy(self, safety: SafetyData) -> bool:
        """Return whether an approval that met these requirements also meets ``safety``, the tool's present ones."""
        return set(self.roles).issuperset(safety.approver_roles) and (self.four_eyes or not safety.four_eyes)


class ApprovalService:
    """The approval requests of a store, for requesters and approvers."""

    def __init__(
        self,
        store: Store,
        clock: Callable[[], int],
        refresh_identity: Callable[[Identity], Identity] = Identity.current_without_tokens,
    ) -> None:
        """``clock`` returns nanoseconds; ``refresh_identity`` returns an identity with the rights that it has now."""
        self._store = store
        self._clock = clock
        self._refresh_identity = refresh_identity

    async def request(
        self,
        binding: ApprovalBinding,
        call: Definition | Judgement,
        text: str,
        decisions: Sequence[DecisionRecord] = (),
    ) -> WireError:
        """Store a request with the ``decisions`` that led to it; return ``confirmation_required`` with its id."""
        if len(text) > MAX_TEXT:
            message = (
                f"The approval request has {len(text):,} characters, and an approver is shown at most {MAX_TEXT:,}"
            )
            return WireError("x-approval_too_large", message, {"limit": MAX_TEXT, "actual": len(text)})
        safety, now_ms = call.safety, self._now_ms
        entries: list[NewEntry] = []  # no entry for a request that is pending already

        def write(tx: Transaction) -> Approval:
            entries.clear()  # ``write`` may run again after its batch was rolled back
            approval, is_new = self._store.approvals.request(
                tx,
                binding,
                tool=call.tool,
                roles=safety.approver_roles,
                four_eyes=safety.four_eyes,
                text=text,
                now_ms=now_ms,
                lifetime_ms=LIFETIME_MS,
            )
            if is_new:
                entries.append(ledger_entry(approval, "requested", binding.identity))
            return approval

        try:
            approval = await self._store.writer.write(write, entries, decisions)
        except TooManyPending:
            return WireError("rate_limited", "You have too many approval requests that wait for a decision")
        return confirmation_required(approval)

    async def check(self, approval_id: str, binding: ApprovalBinding, safety: SafetyData) -> Approval:
        """Return the approval of this call; the caller checks its ``subject_digest``. Raises :class:`WireError`."""
        approval = await self._store.writer.read(lambda tx: self._store.approvals.find(tx, approval_id))
        # An approval of another requester is indistinguishable from an unknown id.
        if approval is None or approval.binding.identity != binding.identity:
            raise invalid_approval("other_call")
        approved_binding = approval.binding
        if (approved_binding.chain_digest, approved_binding.args_digest) != (binding.chain_digest, binding.args_digest):
            raise invalid_approval("other_call")
        if approved_binding.server_digest != binding.server_digest:
            raise invalid_approval("server")
        if approved_binding.pack_digest != binding.pack_digest:
            raise invalid_approval("revision")
        if approval.state in ("denied", "used"):
            raise invalid_approval("denied" if approval.state == "denied" else "used")
        if approval.expires_ms <= self._now_ms:
            raise invalid_approval("expired")
        if approval.state == "pending":
            raise confirmation_required(approval)
        # The rules may now require other approvers than at the time of the request.
        if not Approvers(approval.roles, approval.four_eyes).satisfy(safety):
            raise invalid_approval("approver")
        # The decision does not count if the approver's token was removed, or the approver lost a permission, after it.
        permissions = frozenset({APPROVE, *approval.roles})
        stored_approver = Identity(approval.approver or "", permissions, "user", approval.approver_credential)
        approver = self._refresh_identity(stored_approver)
        if APPROVE not in approver.permissions or not may_decide(approver, approval):
            raise invalid_approval("approver")
        return approval

    def use(self, tx: Transaction, approval: Approval, run: str) -> None:
        """Mark an approval as used by a run or permit, in the transaction that stores it. Raises :class:`WireError`."""
        if not self._store.approvals.use(tx, approval.id, run, self._now_ms):
            raise invalid_approval("used")

    def pending(self, approver: Identity) -> list[Approval]:
        """Return the requests that this approver may decide, without texts. Blocks. Raises :class:`WireError`."""
        approver = self._require_permission(approver)
        with self._store.read_transaction() as tx:
            return self._store.approvals.pending(tx, self._now_ms, partial(may_decide, approver))

    def show(self, approver: Identity, approval_id: str) -> Approval:
        """Return a request. Blocks. Raises :class:`WireError` if it does not exist, or is for other approvers."""
        approver = self._require_permission(approver)
        with self._store.read_transaction() as tx:
            return self._find(tx, approver, approval_id)

    def decide(self, approver: Identity, approval_id: str, verdict: Verdict) -> Approval:
        """Approve or deny a request, and return it. Blocks. Raises :class:`WireError`."""
        approver = self._require_permission(approver)
        now_ms = self._now_ms
        with self._store.write_transaction() as tx:
            approval = self._find(tx, approver, approval_id)
            if not self._store.approvals.decide(tx, approval_id, verdict, approver.name, now_ms, approver.credential):
                state = "expired" if approval.state == "pending" else approval.state  # the reason of the refusal
                message = f"The approval request {approval_id} is {state}"
                raise WireError("x-approval_decided", message, {"state": state})
            self._store.ledger.append_all(tx, [ledger_entry(approval, verdict, approver.name)])
        return msgspec.structs.replace(approval, state=verdict, approver=approver.name, decided_ms=now_ms)

    def attest(
        self, requester: Identity, approval_id: str, chain_digest: str, args_digest: str, verdict: Verdict
    ) -> Approval:
        """Record the decision of the requester's user, as the requester's program reports it. Blocks.

        The decision counts only if the request requires no role and no second principal. Raises :class:`WireError`.
        """
        now_ms = self._now_ms
        with self._store.write_transaction() as tx:
            approval = self._store.approvals.find(tx, approval_id)
            call = requester.name, chain_digest, args_digest
            if approval is None or call != (
                approval.binding.identity,
                approval.binding.chain_digest,
                approval.binding.args_digest,
            ):
                raise invalid_approval("other_call")
            if approval.roles or approval.four_eyes:
                raise WireError("auth_insufficient", "This call needs an approver with a credential of its own")
            approver = f"attested:{requester.name}"
            if self._store.approvals.decide(tx, approval_id, verdict, approver, now_ms):
                self._store.ledger.append_all(tx, [ledger_entry(approval, verdict, approver, attested=True)])
        return approval

    def view(self, approval: Approval, *, text: bool = True) -> ApprovalView:
        """Return the request as an approver sees it; a list of requests leaves out their ``text``."""
        is_expired = approval.state in ("pending", "approved") and approval.expires_ms <= self._now_ms
        return ApprovalView(
            id=approval.id,
            requester=approval.binding.identity,
            tool=approval.tool,
            roles=approval.roles,
            four_eyes=approval.four_eyes,
            state="expired" if is_expired else approval.state,
            created_at=instant_text(approval.created_ms * 1_000_000),
            expires_at=instant_text(approval.expires_ms * 1_000_000),
            text=approval.text if text else UNSET,
            approver=approval.approver or UNSET,
            run=approval.run or UNSET,
        )

    def _find(self, tx: Transaction, approver: Identity, approval_id: str) -> Approval:
        approval = self._store.approvals.find(tx, approval_id)
        if approval is None:
            raise WireError("x-approval_not_found", "There is no such approval request")
        if not may_decide(approver, approval):
            raise WireError("auth_insufficient", "This approval request is for other approvers")
        return approval

    def _require_permission(self, approver: Identity) -> Identity:
        """Return the approver with its present rights. Raises :class:`WireError` if it may not decide at all."""
        current = self._refresh_identity(approver)
        if APPROVE not in current.permissions:
            message = f"Deciding about approval requests needs the permission {APPROVE}"
            raise WireError("auth_required" if approver.anonymous else "auth_insufficient", message)
        return current

    @property
    def _now_ms(self) -> int:
        return self._clock() // 1_000_000


def ledger_entry(approval: Approval, event: str, identity: str, *, attested: bool = False) -> NewEntry:
    """Return the ledger entry of a request, a decision or a use (``event``) by the principal ``identity``.

    ``attested``: the requester's program vouches for the decision, not a credential of the approver.
    """
    body = {
        "event": event,
        "approval": approval.id,
        "tool": approval.tool,
        "text_digest": digest(approval.text),
        **({"attested": True} if attested else {}),
        **msgspec.to_builtins(approval.binding),
    }
    return NewEntry("approval", body, identity=identity)


class OperatorApprovals:
    """The approval requests of a store, for the operator of this machine, with the methods of a client."""

    def __init__(self, service: ApprovalService) -> None:
        self._service = service

    async def approvals(self) -> tuple[ApprovalView, ...]:
        pending = await asyncio.to_thread(self._service.pending, OPERATOR)
        return tuple(self._service.view(request, text=False) for request in pending)

    async def approval(self, approval: str) -> ApprovalView:
        return self._service.view(await asyncio.to_thread(self._service.show, OPERATOR, approval))

    async def approve(self, approval: str) -> ApprovalView:
        return self._service.view(await asyncio.to_thread(self._service.decide, OPERATOR, approval, "approved"))

    async def deny(self, approval: str) -> ApprovalView:
        return self._service.view(await asyncio.to_thread(self._service.decide, OPERATOR, approval, "denied"))


def may_decide(approver: Identity, approval: Approval) -> bool:
    """Return whether the approver has the request's roles and, with ``four_eyes``, is not the requester."""
    has_roles = ANY_ROLE in approver.permissions or approver.permissions.issuperset(approval.roles)
    return has_roles and not (approval.four_eyes and approver.name == approval.binding.identity)


def confirmation_required(approval: Approval) -> WireError:
    """Return the error for the requester, without the text of the request, which only approvers read."""
    challenge = {
        "approval": approval.id,
        "expires_at": instant_text(approval.expires_ms * 1_000_000),
        "roles": list(approval.roles),
        "four_eyes": approval.four_eyes,
    }
    message = f"An approver has to approve this call: {approval.id}; then repeat the call with that approval"
    return WireError("confirmation_required", message, {"challenge": challenge})


_REASONS: Final[Mapping[InvalidReason, str]] = {
    "expired": "the approval has expired",
    "denied": "the approver denied this call",
    "used": "the approval was used already",
    "other_call": "the approval is not for this call",
    "server": "the approval is for a server with another workspace, other programs or another sandbox",
    "revision": "the pack was changed after the approval",
    "subject": "what the approver was shown has changed",
    "approver": "the rules now require another approver, or the approver may not approve any more",
}


def invalid_approval(reason: InvalidReason) -> WireError:
    message = f"The confirmation token does not hold: {_REASONS[reason]}; invoke without it to request an approval"
    return WireError("confirmation_invalid", message, {"reason": reason})
