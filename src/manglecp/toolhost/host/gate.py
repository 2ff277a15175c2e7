"""Whether a call may run: it needs a lease, where leases are enforced.

A host that was started with a key enforces always, in every mode and for every call: nobody who can write to its pipe
can switch that off, and whoever started it can give a lease for each call. One that was started by hand follows the
contract: ``MACHINA_LEASE_ENFORCE`` is ``1`` or ``true``, in serve mode, and calls of tier 0 need none.

``_lease.issue`` and ``_lease.gc`` on the pipe are for clients of the C++ toolhost, and only there if the host was
started with ``--pipe-leases``: with them whoever writes to the pipe can permit himself everything.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from manglecp.toolhost.context import Reports
from manglecp.toolhost.host.messages import refusal
from manglecp.toolhost.tool import Tool

if TYPE_CHECKING:
    from manglecp.toolhost.leases import LeaseBook

__all__ = ["Gate", "enforced"]

_MIN_TTL_MS: Final = 1_000
_MAX_TTL_MS: Final = 300_000
_DEFAULT_TTL_MS: Final = 10_000


def enforced(environ: Mapping[str, str]) -> bool:
    """Whether the environment asks for leases. Exactly these two words do, as upstream."""
    return environ.get("MACHINA_LEASE_ENFORCE") in ("1", "true")


@cache
def _leases() -> Any:
    """How leases are made and checked: only a host that enforces them loads it, when the first comes."""
    from manglecp.toolhost import leases

    return leases


class Gate:
    """The lease check of one host. ``key`` None is an open gate; ``every_call`` says that tier 0 is guarded, too."""

    def __init__(
        self, key: bytes | None, reports: Reports, *, pipe_leases: bool = False, every_call: bool = False
    ) -> None:
        self._key = key
        self._every_call = every_call
        self._reports = reports
        self._pipe_leases = pipe_leases
        self._book: LeaseBook | None = None
        self._counts = {"lease_granted": 0, "lease_used": 0, "lease_refused": 0}
        self._outstanding: dict[object, Any] = {}

    def refusal(self, tool: Tool, input_json: str, request: dict[str, Any]) -> dict[str, Any] | None:
        """Why this call may not run. None: it may, and its token has been used."""
        tier = tool.said.tier
        if self._key is None or (tier == 0 and not self._every_call):
            return None
        token = request.get("_lease_token")
        if not isinstance(token, str) or not token:
            self._audit("lease_refused", {"aid": tool.aid, "tier": tier, "reason": "lease_required"}, counted=False)
            return refusal("lease_required", tier=tier, aid=tool.aid)
        leases = _leases()
        if self._book is None:
            self._book = leases.LeaseBook(self._key, audit=self._audit)
        call = request.get("call_id")
        reason = self._book.check(
            token, tool.aid, leases.input_digest(input_json), call if isinstance(call, str) else "", tier
        )
        return refusal("lease_rejected", reason=reason) if reason is not None else None

    def command(self, aid: str, request: dict[str, Any]) -> dict[str, Any] | None:
        """The answer to ``_lease.issue`` or ``_lease.gc``, where these are allowed."""
        if not self._pipe_leases or aid not in ("_lease.issue", "_lease.gc"):
            return None
        return self._issue(request) if aid == "_lease.issue" else self._gc()

    def _issue(self, request: dict[str, Any]) -> dict[str, Any]:
        tool_aid = request.get("tool_aid", "")
        tier = request.get("tier", 0)
        ttl = request.get("ttl_ms", _DEFAULT_TTL_MS)
        if not isinstance(tool_aid, str) or type(tier) is not int or type(ttl) is not int:
            return refusal("tool_aid is a string, tier and ttl_ms are integers")
        ttl = min(max(ttl, _MIN_TTL_MS), _MAX_TTL_MS)
        token = _leases().mint(
            self._key or b"",
            aid=tool_aid,
            input_digest=None,
            call_id=None,
            tier=tier,
            ttl=ttl / 1000,
            audit=self._audit,
        )
        return {"ok": True, "token_id": token, "tool_aid": tool_aid, "tier": tier, "expires_ms": ttl}

    def _gc(self) -> dict[str, Any]:
        now = time.monotonic()
        self._outstanding = {lease: until for lease, until in self._outstanding.items() if until > now}
        return {
            "ok": True,
            "active": len(self._outstanding),
            "issued": self._counts["lease_granted"],
            "consumed": self._counts["lease_used"],
            "rejected": self._counts["lease_refused"],
        }

    def _audit(self, event: str, details: Mapping[str, object], *, counted: bool = True) -> None:
        if counted:
            self._counts[event] += 1
        if event == "lease_granted":
            self._outstanding[details["lease"]] = details["expires"]
        elif event == "lease_used":
            self._outstanding.pop(details["lease"], None)
        self._reports.send(event, details)
