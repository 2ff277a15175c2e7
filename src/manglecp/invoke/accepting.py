"""Accepting an invocation: from here on there is a run.

With effects it is one transaction: the run, the confirmation that is used up and the entry in the ledger are there, or
none of them is. A run that somebody else accepted is put together again from the journal.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from manglecp.base.digest import digest, digest_text
from manglecp.base.ids import random_id
from manglecp.harness.policy import PolicyPackage
from manglecp.intent import Identity
from manglecp.invoke.admission import Admission
from manglecp.invoke.checking import Checked, invalid_confirmation
from manglecp.invoke.claims import Claims
from manglecp.invoke.documents import Documents, Proven
from manglecp.invoke.history import History, history_of
from manglecp.invoke.journal import Durable, EndState, Journal, Unrecorded
from manglecp.invoke.plan import Plan
from manglecp.pack import ActionDescription
from manglecp.store import Claimed, EntryKind, KeyTaken, NewRun, Note, RunState, Store, Transaction, Values

__all__ = ["Accepted", "Accepting", "Asked"]


class Asked(msgspec.Struct, frozen=True):
    """Who asks, under which key, for which tool with which arguments (their digest), and what rules take for now."""

    identity: Identity
    key: str | None
    macro_id: str
    args_digest: str
    now_ns: int

    @property
    def digest(self) -> str:
        """Of tool and arguments: what a key stands for."""
        return digest({"macro_id": self.macro_id, "args": self.args_digest})


class Accepted(msgspec.Struct, frozen=True, kw_only=True):
    """A run that is to be carried out here."""

    admission: Admission
    proven: Proven
    plan: Plan
    args: dict[str, Any]
    """With their defaults."""
    identity: Identity
    now_ns: int
    """What rules take for now."""
    journal: Journal
    history: History | None = None
    first: list[KeyTaken] = []  # of each its own
    """Whose answer to the same request is the one that is kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepting:
    """For one edition of a pack."""

    pack_digest: str
    actions: Mapping[str, ActionDescription]
    documents: Documents
    policies: Callable[[], PolicyPackage]
    store: Store
    claims: Claims

    async def accept(self, checked: Checked, asked: Asked) -> Accepted:
        """:class:`KeyTaken` if the key stands for a run already."""
        run = f"r-{random_id()}"
        admission = Admission(
            run=run,
            identity=asked.identity.name,
            macro_id=checked.definition.macro_id,
            tool=checked.definition.tool,
            pack_digest=self.pack_digest,
            policy_digest=self.policies().digest,
            proof_digest=checked.proven.proof_digest,
            chain_digest=checked.proven.chain_digest,
            args_digest=checked.args_digest,
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
        first: list[KeyTaken] = []
        if durable:
            self.claims.hold(run, 1, since)
            journal = Durable(self.store, run, asked.identity.name, 1)
        else:
            keep = None if new is None else self._keeping(new, first)
            journal = Unrecorded(self.store, admission, keep)
        return Accepted(
            admission=admission,
            proven=checked.proven,
            plan=checked.plan,
            args={**checked.plan.defaults, **checked.args},
            identity=asked.identity,
            now_ns=asked.now_ns,
            journal=journal,
            first=first,
        )

    def _new_run(self, admission: Admission, checked: Checked, asked: Asked) -> NewRun:
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
                plan=self.documents.write(checked.proven),
                args=msgspec.json.encode({"args": stored, "identity": who}),
            ),
            owner=self.claims.owner,
            claim_ms=self.claims.claim_ms,
        )

    async def _write(self, admission: Admission, checked: Checked, new: NewRun | None) -> None:
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

    def _keeping(self, new: NewRun, first: list[KeyTaken]) -> Callable[[Transaction, EndState, bytes], None]:
        """Keep the answer of a run without effects for whoever repeats its request key. ``first`` gets whoever did so
        before, at another server."""

        def keep(tx: Transaction, end: EndState, answer: bytes) -> None:
            first.clear()  # an attempt in a batch may have been undone
            try:
                self.store.runs.accept(tx, new)
            except KeyTaken as taken:
                first.append(taken)
                return
            self.store.runs.end(tx, new.run_id, 1, RunState(end), answer)

        return keep

    def accepted_before(self, claimed: Claimed) -> Accepted:
        """A run as its journal has it, for whoever goes on with it."""
        assert claimed.values.plan is not None  # it has not ended
        assert claimed.values.args is not None
        proven = self.documents.read(claimed.values.plan)
        plan = proven.plan(self.actions)
        stored = msgspec.json.decode(claimed.values.args)
        identity = Identity(
            claimed.run.identity, frozenset(stored["identity"]["permissions"]), stored["identity"]["trust"]
        )
        admission = Admission(**msgspec.json.decode(claimed.admission))
        with self.store.read_transaction() as tx:
            turns = self.store.ledger.rows(tx, kind="turn", run=claimed.run.run_id)
            witnesses = [str(entry.body["id"]) for entry in turns]
        return Accepted(
            admission=admission,
            proven=proven,
            plan=plan,
            args={**plan.defaults, **stored["args"]},
            identity=identity,
            now_ns=int(admission.eval_time or time.time_ns()),
            journal=Durable(self.store, admission.run, identity.name, claimed.run.fence),
            history=history_of(claimed, plan, witnesses),
        )
