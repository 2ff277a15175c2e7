"""The policies that ship with manglecp."""

from __future__ import annotations

from manglecp.harness.policy.kinds import KINDS
from manglecp.pack.governance import default_governance

OF_CHAINS = {"tools", "callers", "examples", "deferral"}
"""Every chain has its own."""
RELEASED = {"manglecp-default@1.0.0": "sha256:075d7f140acaefa58bc386144cd67dc2164c3bf25cf43158f4764f49c3ed41bf"}
"""Packs pin these, and recorded turns are bound to them. Whoever changes a word gives it another version."""


def test_a_version_never_changes() -> None:
    package = default_governance()
    assert RELEASED[package.ref] == package.digest


def test_every_field_of_a_call_spec_has_its_document() -> None:
    owed = {kind.name for kind in KINDS.values() if kind.inline_field or kind.digest_field} - OF_CHAINS
    assert owed <= set(default_governance().contents)


def test_a_person_has_to_approve_what_is_done_at_the_highest_tier() -> None:
    package = default_governance()
    assert [tier for tier in ("low", "moderate", "high") if package.needs_approval(tier)] == ["high"]
    assert package.highest_tier() == "high"
    assert package.may_mutate
