"""The record of an accepted invocation: what every turn of its run goes back to.

It holds digests and names, never values. Its digest is the instruction that the mutations of the run cite.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import msgspec

from manglecp.base.digest import digest
from manglecp.intent import Definition

__all__ = ["Admission", "chain_digest"]


class Admission(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was accepted, as names and digests."""

    run: str
    identity: str
    macro_id: str
    tool: str
    pack_digest: str
    policy_digest: str
    """Of the policy package that was loaded when it was accepted."""
    proof_digest: str
    """Of the question that the tool was the answer to; with the pack digest it determines the proof."""
    chain_digest: str
    args_digest: str
    eval_time: str | None = None
    approval: str | None = None
    request_key_digest: str | None = None

    @property
    def digest(self) -> str:
        """What the turns of the run name it by."""
        return digest(self.record())

    def record(self) -> dict[str, Any]:
        """As it stands in the ledger."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found


def chain_digest(definition: Definition) -> str:
    """Of the steps as they will be run: order, actions, where arguments come from, frozen values, compensation."""
    steps = [asdict(step) for step in definition.steps]
    return digest({"macro_id": definition.macro_id, "ordered": definition.ordered, "steps": steps})
