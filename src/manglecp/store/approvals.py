"""Approval requests: stored with the complete text that the approver reads, decided once, used once.

A request is bound to one call: requester, pack revision, chain, arguments, subject (the results of previews and the
values of earlier steps), and the workspace and programs of the server. Its text is sealed if the store has a key.
Decision and use are conditional updates, so two approvers or two replicas cannot both succeed. Insertions are
serialised, so that two replicas do not store the same request twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, Final, Literal, TypeAlias

import msgspec

from manglecp.base.ids import random_id
from manglecp.store.database import Transaction
from manglecp.store.schema import read_part
from manglecp.store.seals import Seals

APPROVALS: Final = read_part(__package__, "approvals")

ApprovalState: TypeAlias = Literal["pending", "approved", "denied", "used"]

MAX_PENDING: Final = 100  # requests of one identity
RETENTION_MS: Final = 7 * 86_400_000
"""How long a request is stored after it expired, so that a late use gets the reason."""
_REQUEST_LOCK: Final = 0x6D636170  # "mcap": an advisory lock of PostgreSQL, unlikely to be used by other programs


class ApprovalBinding(msgspec.Struct, frozen=True, kw_only=True):
    """The call that an approval is for."""

    identity: str
    """The requester."""
    pack_digest: str
    chain_digest: str
    args_digest: str
    subject_digest: str
    """Digest of the results of previews and the values of earlier steps and runs; empty if the call has neither."""
    server_digest: str = ""
    """Digest of the workspace, the programs and the sandbox of the server's actions."""


class Approval(msgspec.Struct, frozen=True, kw_only=True):
    """A stored approval request."""

    id: str
    binding: ApprovalBinding
    tool: str
    roles: tuple[str, ...]
    """The permissions that the approver needs in addition to ``approve``."""
    four_eyes: bool
    """Whether the approver must be another identity than the requester."""
    created_ms: int
    expires_ms: int
    state: ApprovalState
    approver: str | None = None
    approver_credential: str = ""
    """The hash of the approver's token in the operator's token file; empty if the approver authenticated otherwise."""
    decided_ms: int | None = None
    run: str | None = None
    """The run that used the approval."""
    text: str
    """The complete text that the approver reads."""


# A row has the fields of the binding beside those of the request, and the sealed text as ``content``.
_OWN_FIELDS: Final = tuple(name for name in Approval.__struct_fields__ if name not in ("binding", "text"))
_COLUMNS: Final = (*_OWN_FIELDS, *ApprovalBinding.__struct_fields__, "content")
_SELECT: Final = f"SELECT {', '.join(_COLUMNS)} FROM approval"
_SELECT_WITHOUT_TEXT: Final = f"SELECT {', '.join(_COLUMNS[:-1])} FROM approval"
_INSERT: Final = f"INSERT INTO approval ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))})"


class TooManyPending(Exception):
    """The identity has ``MAX_PENDING`` undecided approval requests."""


class Approvals:
    """Operations on approval requests, each inside the caller's transaction."""

    __slots__ = ("_seals",)

    def __init__(self, seals: Seals) -> None:
        self._seals = seals

    def request(
        self,
        tx: Transaction,
        binding: ApprovalBinding,
        *,
        tool: str,
        roles: Sequence[str],
        four_eyes: bool,
        text: str,
        now_ms: int,
        lifetime_ms: int,
    ) -> tuple[Approval, bool]:
        """Store a request and return it with True; return an equal, pending or approved request with False.

        Raises :class:`TooManyPending`.
        """
        if tx.dialect == "postgresql":
            # One lock for all identities: locks per identity, taken in any order by one transaction, could deadlock.
            tx.execute("SELECT pg_advisory_xact_lock(?)", (_REQUEST_LOCK,))
        roles = tuple(sorted(roles))
        rows = tx.execute(
            f"{_SELECT} WHERE {' AND '.join(f'{name} = ?' for name in ApprovalBinding.__struct_fields__)}"
            " AND state IN ('pending', 'approved') AND expires_ms > ? ORDER BY created_ms, id",
            (*msgspec.structs.astuple(binding), now_ms),
        ).fetchall()
        for row in rows:
            stored_request = self._read(row)
            if (stored_request.roles, stored_request.four_eyes, stored_request.text) == (roles, four_eyes, text):
                return stored_request, False
        count_pending = "SELECT count(*) FROM approval WHERE identity = ? AND state = 'pending' AND expires_ms > ?"
        if tx.execute(count_pending, (binding.identity, now_ms)).fetchone()[0] >= MAX_PENDING:
            raise TooManyPending
        approval = Approval(
            id=f"ap-{random_id()}",
            binding=binding,
            tool=tool,
            roles=roles,
            four_eyes=four_eyes,
            created_ms=now_ms,
            expires_ms=now_ms + lifetime_ms,
            state="pending",
            text=text,
        )
        row = msgspec.structs.asdict(approval) | msgspec.structs.asdict(binding)
        row |= {"roles": msgspec.json.encode(roles).decode(), "four_eyes": int(four_eyes)}
        row["content"] = self._seals.seal(text.encode(), *_place(approval.id, binding))
        tx.execute(_INSERT, [row[name] for name in _COLUMNS])
        return approval, True

    def find(self, tx: Transaction, approval_id: str) -> Approval | None:
        row = tx.execute(f"{_SELECT} WHERE id = ?", (approval_id,)).fetchone()
        return None if row is None else self._read(row)

    def pending(
        self, tx: Transaction, now_ms: int, may_decide: Callable[[Approval], bool] = lambda _: True, limit: int = 1_000
    ) -> list[Approval]:
        """Return the requests that wait for a decision and satisfy ``may_decide``, without their texts, oldest first.

        If there are too many, the first request of every identity (for the same approvers) is selected before a second
        request of any identity, so that no identity can displace another.
        """
        rank = "row_number() OVER (PARTITION BY identity, roles, four_eyes ORDER BY created_ms, id)"
        query = f"{_SELECT_WITHOUT_TEXT} WHERE state = 'pending' AND expires_ms > ? ORDER BY {rank}, created_ms, id"
        requests = map(self._read, tx.execute(query, (now_ms,)).fetchall())
        selected_requests = islice(filter(may_decide, requests), limit)
        return sorted(selected_requests, key=lambda request: (request.created_ms, request.id))

    def decide(
        self,
        tx: Transaction,
        approval_id: str,
        state: Literal["approved", "denied"],
        approver: str,
        now_ms: int,
        credential: str = "",
    ) -> bool:
        """Record a decision; ``credential`` is the ``approver_credential`` of :class:`Approval`.

        Return False if there is no such request, it was decided already, or it has expired.
        """
        statement = (
            "UPDATE approval SET state = ?, approver = ?, approver_credential = ?, decided_ms = ?"
            " WHERE id = ? AND state = 'pending' AND expires_ms > ?"
        )
        return tx.execute(statement, (state, approver, credential, now_ms, approval_id, now_ms)).rowcount == 1

    def use(self, tx: Transaction, approval_id: str, run: str, now_ms: int) -> bool:
        """Mark an approval as used by a run; return False if it is not approved, was used already, or has expired."""
        statement = "UPDATE approval SET state = 'used', run = ? WHERE id = ? AND state = 'approved' AND expires_ms > ?"
        return tx.execute(statement, (run, approval_id, now_ms)).rowcount == 1

    def sweep(self, tx: Transaction, now_ms: int) -> int:
        """Delete requests past their retention; return their number."""
        return tx.execute("DELETE FROM approval WHERE expires_ms <= ?", (now_ms - RETENTION_MS,)).rowcount

    def _read(self, row: Sequence[Any]) -> Approval:
        """Return the request of a row; its text is empty if the row has no ``content``."""
        fields = dict(zip(_COLUMNS, row, strict=False))  # a row without the text has no field ``content``
        binding = ApprovalBinding(**{name: fields.pop(name) for name in ApprovalBinding.__struct_fields__})
        content = fields.pop("content", None)
        text = "" if content is None else self._seals.unseal(bytes(content), *_place(fields["id"], binding)).decode()
        fields |= {"roles": msgspec.json.decode(fields["roles"]), "four_eyes": bool(fields["four_eyes"])}
        return msgspec.convert(fields | {"binding": binding, "text": text}, Approval)


def _place(approval_id: str, binding: ApprovalBinding) -> tuple[str, ...]:
    """Return the place that the text is sealed for: if the call in the row is changed, the text cannot be unsealed."""
    return "approval", approval_id, *msgspec.structs.astuple(binding)
