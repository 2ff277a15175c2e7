"""Approval requests: stored with the complete text that the approver reads, decided once, used once.

A request is bound to one call: requester, pack revision, chain, arguments and subjects. Its text is sealed if the store
has a key. Decision and use are conditional updates, so two approvers or two replicas cannot both succeed. Requests are
serialised, so that two replicas do not store the same one twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

import msgspec

from manglecp.base.ids import random_id
from manglecp.store.database import Transaction
from manglecp.store.schema import SchemaPart
from manglecp.store.seals import Seals

APPROVALS: Final = SchemaPart(
    "approvals",
    (
        """
            CREATE TABLE approval (
                id             TEXT PRIMARY KEY,
                identity       TEXT NOT NULL,
                pack_digest    TEXT NOT NULL,
                tool           TEXT NOT NULL,
                chain_digest   TEXT NOT NULL,
                args_digest    TEXT NOT NULL,
                subject_digest TEXT NOT NULL,
                roles          TEXT NOT NULL,
                four_eyes      BIGINT NOT NULL,
                created_ms     BIGINT NOT NULL,
                expires_ms     BIGINT NOT NULL,
                state          TEXT NOT NULL,
                approver       TEXT,
                decided_ms     BIGINT,
                run            TEXT,
                content        {blob} NOT NULL
            ) {strict}
            """,
        "CREATE INDEX approval_expiry ON approval (expires_ms)",
        "CREATE INDEX approval_pending ON approval (identity, state)",
    ),
)

ApprovalState: TypeAlias = Literal["pending", "approved", "denied", "used"]

MAX_PENDING: Final = 100
"""Pending requests of one identity."""
RETENTION_MS: Final = 7 * 86_400_000
"""How long a request is stored after it expired, so that a late use gets the reason."""
_REQUEST_LOCK: Final = 0x6D636170
_COLUMNS: Final = (
    "id, identity, pack_digest, tool, chain_digest, args_digest, subject_digest, roles, four_eyes, created_ms,"
    " expires_ms, state, approver, decided_ms, run, content"
)


class ApprovalBinding(msgspec.Struct, frozen=True, kw_only=True):
    """The call that an approval is for."""

    identity: str
    """The requester."""
    pack_digest: str
    chain_digest: str
    args_digest: str
    subject_digest: str
    """Of the results of the previews; empty without one."""


class Approval(msgspec.Struct, frozen=True, kw_only=True):
    """A stored approval request."""

    id: str
    binding: ApprovalBinding
    tool: str
    roles: tuple[str, ...]
    """The permissions that the approver needs in addition to ``approve``."""
    four_eyes: bool
    """Whether the requester may not approve."""
    created_ms: int
    expires_ms: int
    state: ApprovalState
    approver: str | None = None
    decided_ms: int | None = None
    run: str | None = None
    text: str
    """All that the approver has to see."""


class TooManyPending(Exception):
    """The identity has ``MAX_PENDING`` approval requests that are not decided."""


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
        """Store a request and return it, with True; or return an equal one that is pending or approved, with False.

        Raises :class:`TooManyPending`.
        """
        if tx.dialect == "postgresql":
            # One lock for all identities: a batch of the writer may have requests of several, in any order.
            tx.execute("SELECT pg_advisory_xact_lock(?)", (_REQUEST_LOCK,))
        of = (binding.identity, binding.pack_digest, binding.chain_digest, binding.args_digest, binding.subject_digest)
        wanted = (tuple(sorted(roles)), four_eyes, text)
        rows = tx.execute(
            f"SELECT {_COLUMNS} FROM approval WHERE identity = ? AND pack_digest = ? AND chain_digest = ?"
            " AND args_digest = ? AND subject_digest = ? AND state IN ('pending', 'approved') AND expires_ms > ?"
            " ORDER BY created_ms, id",
            (*of, now_ms),
        ).fetchall()
        for row in rows:
            equal = self._read(row)
            if (equal.roles, equal.four_eyes, equal.text) == wanted:
                return equal, False
        pending = "SELECT count(*) FROM approval WHERE identity = ? AND state = 'pending' AND expires_ms > ?"
        if tx.execute(pending, (binding.identity, now_ms)).fetchone()[0] >= MAX_PENDING:
            raise TooManyPending
        approval = Approval(
            id=f"ap-{random_id()}",
            binding=binding,
            tool=tool,
            roles=wanted[0],
            four_eyes=four_eyes,
            created_ms=now_ms,
            expires_ms=now_ms + lifetime_ms,
            state="pending",
            text=text,
        )
        tx.execute(
            f"INSERT INTO approval ({_COLUMNS}) VALUES ({', '.join('?' * 16)})",
            (
                *(approval.id, binding.identity, binding.pack_digest, tool),
                *(binding.chain_digest, binding.args_digest, binding.subject_digest),
                *(msgspec.json.encode(approval.roles).decode(), int(four_eyes), now_ms, approval.expires_ms),
                *("pending", None, None, None, self._seals.seal(text.encode(), *_place(approval.id, binding))),
            ),
        )
        return approval, True

    def find(self, tx: Transaction, approval_id: str) -> Approval | None:
        row = tx.execute(f"SELECT {_COLUMNS} FROM approval WHERE id = ?", (approval_id,)).fetchone()
        return None if row is None else self._read(row)

    def pending(self, tx: Transaction, now_ms: int, *, limit: int = 1_000) -> list[Approval]:
        """Return the requests that wait for a decision, oldest first."""
        rows = tx.execute(
            f"SELECT {_COLUMNS} FROM approval WHERE state = 'pending' AND expires_ms > ?"
            " ORDER BY created_ms, id LIMIT ?",
            (now_ms, limit),
        ).fetchall()
        return [self._read(row) for row in rows]

    def decide(
        self, tx: Transaction, approval_id: str, state: Literal["approved", "denied"], approver: str, now_ms: int
    ) -> bool:
        """Return False if the request was decided already, or has expired."""
        statement = (
            "UPDATE approval SET state = ?, approver = ?, decided_ms = ?"
            " WHERE id = ? AND state = 'pending' AND expires_ms > ?"
        )
        return tx.execute(statement, (state, approver, now_ms, approval_id, now_ms)).rowcount == 1

    def use(self, tx: Transaction, approval_id: str, run: str, now_ms: int) -> bool:
        """Return False if the request is not approved, was used already, or has expired."""
        statement = "UPDATE approval SET state = 'used', run = ? WHERE id = ? AND state = 'approved' AND expires_ms > ?"
        return tx.execute(statement, (run, approval_id, now_ms)).rowcount == 1

    def sweep(self, tx: Transaction, now_ms: int) -> int:
        return tx.execute("DELETE FROM approval WHERE expires_ms <= ?", (now_ms - RETENTION_MS,)).rowcount

    def _read(self, row: Sequence[object]) -> Approval:
        (approval_id, identity, pack_digest, tool, chain, args, subject, roles, four_eyes, created_ms) = row[:10]
        (expires_ms, state, approver, decided_ms, run, content) = row[10:]
        binding = ApprovalBinding(
            identity=str(identity),
            pack_digest=str(pack_digest),
            chain_digest=str(chain),
            args_digest=str(args),
            subject_digest=str(subject),
        )
        return msgspec.convert(
            {
                "id": approval_id,
                "binding": binding,
                "tool": tool,
                "roles": msgspec.json.decode(str(roles)),
                "four_eyes": bool(four_eyes),
                "created_ms": created_ms,
                "expires_ms": expires_ms,
                "state": state,
                "approver": approver,
                "decided_ms": decided_ms,
                "run": run,
                "text": self._seals.unseal(bytes(content), *_place(str(approval_id), binding)).decode(),  # type: ignore[call-overload]  # a blob
            },
            Approval,
        )


def _place(approval_id: str, binding: ApprovalBinding) -> tuple[str, ...]:
    """Return what the seal of a text is bound to: a row with another call does not open."""
    return "approval", approval_id, *msgspec.structs.astuple(binding)
