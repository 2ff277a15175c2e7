"""What has to hold before anything runs, in the order of the specification (INVK-05, OPEN-29).

Identity first: a tool belongs to whoever it was proven for, and to the edition of the pack it was proven under. A tool
of somebody else, a made-up one and one of yesterday's rules look the same (OPEN-31). Then its window, by the server's
clock; then the arguments, all that is wrong with them at once; then consent. Nothing here changes anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from manglecp.base.digest import digest
from manglecp.base.json import Uncanonical
from manglecp.intent import Definition, Identity
from manglecp.invoke.asking import consent_text
from manglecp.invoke.calls import secret_names, with_defaults
from manglecp.invoke.confirmation import AutoConfirm, Consent, Secrets, challenge, verify
from manglecp.invoke.documents import Documents, Proven
from manglecp.invoke.plan import Plan, Unplannable
from manglecp.mangle import instant_text
from manglecp.pack import ActionDescription
from manglecp.store import Kept
from manglecp.wire import WireError, malformed, refused_arguments, schema_errors
from manglecp.wire.messages import InvokePayload

__all__ = ["Checked", "Checks", "args_digest", "not_found"]


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """An invocation that may run."""

    proven: Proven
    plan: Plan
    args: Mapping[str, Any]
    """As they were sent."""
    args_digest: str
    approval: str | None = None
    consent: Consent | None = None
    """A nonce that has to be used up when the run is accepted."""

    @property
    def definition(self) -> Definition:
        """The tool, as it was proven."""
        return self.proven.definition


@dataclass(frozen=True, slots=True, kw_only=True)
class Checks:
    """The checks of one edition of a pack."""

    pack_digest: str
    actions: Mapping[str, ActionDescription]
    documents: Documents
    secrets: Secrets
    auto_confirm: AutoConfirm
    hide: Callable[[Any], Any] = lambda value: value
    """Takes the values of secret settings out of JSON."""

    def check(
        self, kept: Kept | None, payload: InvokePayload, digested: str, identity: Identity, now_ms: int
    ) -> Checked:
        """``kept`` is what is known under this macro_id for this identity, ``digested`` the digest of the arguments."""
        if kept is None or kept.pack_digest != self.pack_digest:
            raise not_found()
        proven = self.documents.read(kept.document)
        try:
            plan = proven.plan(self.actions)
        except Unplannable:
            raise not_found() from None
        _in_time(kept, now_ms)
        if errors := schema_errors(payload.args, proven.definition.input_schema):
            raise refused_arguments(errors)
        approval, consent = self._consented(proven.definition, payload, digested, identity, now_ms)
        return Checked(
            proven=proven, plan=plan, args=payload.args, args_digest=digested, approval=approval, consent=consent
        )

    def _consented(
        self, definition: Definition, payload: InvokePayload, digested: str, identity: Identity, now_ms: int
    ) -> tuple[str | None, Consent | None]:
        if payload.confirmation_token is not None:
            secret = self.secrets.of(identity.name)
            token, macro_id = payload.confirmation_token, definition.macro_id
            consent = verify(token, secret, identity.name, macro_id, digested, now_ms)
            if consent is None:
                raise invalid_confirmation()
            return f"confirm:{consent.nonce}", consent
        if not definition.safety.requires_user_confirmation:
            return None, None
        approval = self.auto_confirm.approval(identity.name, definition.safety.side_effects)
        if approval is not None:
            return approval, None
        schema = definition.input_schema
        given = with_defaults(payload.args, schema)
        text = consent_text(definition, given, secret_args=secret_names(schema), hide=self.hide)
        asked = challenge(definition, digested, text, now_ms)
        raise WireError("confirmation_required", "A person has to agree first", {"challenge": asked})


def not_found() -> WireError:
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


def _in_time(kept: Kept, now_ms: int) -> None:
    """OPEN-27: by the server's clock, whatever ``eval_time`` says."""
    if kept.not_before_ms is not None and now_ms < kept.not_before_ms:
        message = f"The macro-tool is valid from {instant_text(kept.not_before_ms * 1_000_000)} on"
        raise WireError("x-macro_not_yet_valid", message, retry_after_ms=kept.not_before_ms - now_ms)
    if kept.expires_at_ms is not None and now_ms >= kept.expires_at_ms:
        message = f"The macro-tool was valid until {instant_text(kept.expires_at_ms * 1_000_000)}"
        raise WireError("macro_expired", f"{message}; evaluate the intent again")
