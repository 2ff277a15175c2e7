"""The identity of a caller, visible to rules as ``client``, ``client_permission`` and ``client_trust``.

A module of its own without heavy imports: authentication needs it before the engine is loaded.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from manglecp.intent.definition import SafetyData


class Identity(NamedTuple):
    """An authenticated caller. Derived by the server from a credential, never taken from a request."""

    name: str = "anonymous"
    permissions: frozenset[str] = frozenset()
    trust: str = "anonymous"
    credential: str = ""
    """The hash of the token in the operator's file of tokens; empty for an identity of any other origin."""
    expires_at: float | None = None
    """When the identity's access token expires, in seconds since 1970; None without one."""
    auto_confirm_effects: tuple[str, ...] = ()
    """The effects that need no approval: a setting of the token."""

    @property
    def anonymous(self) -> bool:
        return self.trust == "anonymous"

    @property
    def revoked(self) -> bool:
        """Whether the credential is not valid any more: whatever the rules derive, the identity has no rights."""
        return self.trust == REVOKED

    def waives_approval(self, safety: SafetyData) -> bool:
        """Return whether ``auto_confirm_effects`` has all effects of a tool (SEC-24, OPEN-39).

        An approval for which rules name a role or require another principal is not waived.
        """
        covers_tool = bool(self.auto_confirm_effects) and set(self.auto_confirm_effects).issuperset(safety.side_effects)
        return covers_tool and not safety.approver_roles and not safety.four_eyes

    def revoke(self) -> Identity:
        """Return this identity without any rights."""
        return self._replace(permissions=frozenset(), trust=REVOKED, auto_confirm_effects=())

    def current_without_tokens(self) -> Identity:
        """Return the identity with its present rights, in a process that has no file of tokens.

        An access token gives its rights until it expires. A token of a file is not valid here.
        """
        is_expired = self.expires_at is not None and time.time() >= self.expires_at
        return self.revoke() if is_expired or self.credential else self


ANONYMOUS: Final = Identity()
REVOKED: Final = "revoked"
"""The trust level of an identity whose credential is not valid any more; no credential has it."""
