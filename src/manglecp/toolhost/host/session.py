"""One request, in the order of the contract: parse, aid, ``_lease.*``, lookup, lease, cache, state, input types, run.

The lease comes before the cache, so that no key can fetch what a lease guards; a hit spends its lease. The state of a
request is applied also if the input is then refused, as clients of upstream expect. An answer has a ``ds_state`` if and
only if the state was applied. A hit changes the state as the call that it repeats. Every failure is answered, and
leaves the state as it was.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeVar

from manglecp.toolhost.context import Reports, describe, trace
from manglecp.toolhost.host.execution import InvalidInput, Worker
from manglecp.toolhost.host.messages import RequestError, input_text, parse, refusal, with_call_id
from manglecp.toolhost.idempotency import AnswerCache, canonical_digest
from manglecp.toolhost.plugin import Plugin, PluginAction
from manglecp.toolhost.state import Drift, Slots, StateError, apply_state, digest_state, full_state, state_delta

if TYPE_CHECKING:
    from manglecp.toolhost.leases import LeaseBook

_MIN_TTL_MS: Final = 1_000
_MAX_TTL_MS: Final = 300_000
_DEFAULT_TTL_MS: Final = 10_000


def enforced(environ: Mapping[str, str]) -> bool:
    """Return whether the environment requires leases, by exactly these two values, as upstream."""
    return environ.get("MACHINA_LEASE_ENFORCE") in ("1", "true")


@cache
def _leases() -> Any:
    from manglecp.toolhost import leases

    return leases


class Gate:
    """The lease check of one host. ``key`` None is an open gate; ``every_call`` guards tier 0, too.

    A host that was started with a key enforces always, for every call. One that was started by hand follows the
    contract: ``MACHINA_LEASE_ENFORCE``, in serve mode, above tier 0. ``--pipe-leases`` allows ``_lease.issue`` and
    ``_lease.gc`` for clients of the C++ toolhost: with them, every writer to the pipe can issue itself leases.
    """

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

    def refusal(self, tool: PluginAction, input_json: str, request: dict[str, Any]) -> dict[str, Any] | None:
        """Return the refusal of a call; None if it may run, and its token is then used."""
        tier = tool.declaration.tier
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
        """Return the answer to ``_lease.issue`` or ``_lease.gc``, where these are allowed."""
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


def _size(value: object) -> int:
    """Return the approximate memory of an answer."""
    if isinstance(value, dict):
        return sum(_size(name) + _size(member) for name, member in value.items())
    return sys.getsizeof(value)


T = TypeVar("T")


class HostSession:
    """A plugin and its state between requests: slots, and a cache of answers."""

    def __init__(self, plugin: Plugin, gate: Gate, worker: Worker) -> None:
        self._tools = plugin.tools
        self._gate = gate
        self._worker = worker
        self._cache: AnswerCache[tuple[str, dict[str, Any]]] = AnswerCache()  # by action and idempotency key
        self._slots: Slots = {}
        self._before: Slots = {}

    def restore_slots(self) -> None:
        """Restore the slots: the last answer cannot be sent."""
        self._slots = self._before

    def serve(self, line: bytes) -> dict[str, Any]:
        try:
            request = parse(line)
        except ValueError:
            request = None
        if request is None:
            return refusal("invalid JSON")
        aid = request.get("aid") if isinstance(request, dict) else None
        if not isinstance(aid, str) or not aid:
            return refusal("missing aid")
        return with_call_id(self._run_step(self._lookup, aid, request), request)

    def run(self, tool: PluginAction, request: dict[str, Any]) -> dict[str, Any]:
        """Return the answer in run mode: the only call of this process, with the whole state in it."""
        incoming = request.get("ds_state")
        if isinstance(incoming, dict) and incoming.get("delta") is True:
            # There is no base for a delta; upstream, too, treats it as a whole state.
            request = {**request, "ds_state": {"slots": incoming.get("slots")}}
        answer = self._run_step(self._call, tool, request)
        if "ds_state" in answer:
            answer["ds_state"] = full_state(self._slots)
        return with_call_id(answer, request)

    def _run_step(
        self, step: Callable[[T, dict[str, Any]], dict[str, Any]], about: T, request: dict[str, Any]
    ) -> dict[str, Any]:
        self._before = before = self._slots
        try:
            return step(about, request)
        except BaseException as error:
            trace(error)
            self._slots = before
            return refusal(describe(error), status="TOOL_ERROR")

    def _lookup(self, aid: str, request: dict[str, Any]) -> dict[str, Any]:
        answer = self._gate.command(aid, request)
        if answer is not None:
            return answer
        tool = self._tools.get(aid)
        if tool is None:
            return refusal(f"tool not found: {aid}", status="INVALID_PICK")
        return self._call(tool, request)

    def _call(self, tool: PluginAction, request: dict[str, Any]) -> dict[str, Any]:
        wrong = None
        try:
            input_json = input_text(request)
        except RequestError as error:
            text = request.get("input_json")
            input_json, wrong = text if isinstance(text, str) else "", error
        refused = self._gate.refusal(tool, input_json, request)
        if refused is not None:
            return refused
        key = request.get("idempotency_key")
        if not isinstance(key, str) or not key or wrong is not None:
            return self._run(tool, input_json, wrong, request)
        digest = canonical_digest(input_json)
        cached = self._cache.find((tool.aid, key))
        if cached is not None:
            if cached[0] != digest:
                return refusal("idempotency_conflict")
            return self._hit(cached[1], request.get("ds_state"))
        answer = self._run(tool, input_json, wrong, request)
        if answer.get("status") == "OK":
            # Only successes are kept: a failure may be tried again.
            self._cache.keep((tool.aid, key), (digest, dict(answer)), _size(key) + _size(answer))
        return answer

    def _hit(self, cached: dict[str, Any], incoming: object) -> dict[str, Any]:
        change = {name: value for name, value in cached["ds_state"].items() if name != "base_digest"}
        try:
            before = apply_state(incoming, self._slots)
        except StateError:  # the cache is checked before the state: an invalid state is ignored
            return {**cached, "ds_state": change, "idempotent_hit": True}
        self._slots = apply_state(change, before)
        if isinstance(incoming, dict) and "base_digest" in incoming:
            change["base_digest"] = digest_state(before)
        return {**cached, "ds_state": change, "idempotent_hit": True}

    def _run(
        self, tool: PluginAction, input_json: str, wrong: RequestError | None, request: dict[str, Any]
    ) -> dict[str, Any]:
        incoming = request.get("ds_state")
        try:
            before = apply_state(incoming, self._slots)
        except Drift as error:
            return refusal("state_drift", detail=str(error), expected=error.expected, held=error.held)
        except StateError as error:
            return refusal(f"invalid ds_state: {error}")
        knows_digests = isinstance(incoming, dict) and "base_digest" in incoming
        try:
            if wrong is not None:
                raise InvalidInput(f"invalid input: {wrong}")
            outcome = self._worker.call(tool, input_json, before, {"aid": tool.aid, "call_id": request.get("call_id")})
        except InvalidInput as error:
            self._slots = before
            unchanged = state_delta(before, before, name_base=knows_digests)
            return refusal(str(error), status="INVALID_PICK", ds_state=unchanged)
        self._slots = outcome.slots
        return {
            "ok": True,
            "status": outcome.status,
            "output_json": outcome.output_json,
            "error": outcome.error,
            "ds_state": state_delta(before, outcome.slots, name_base=knows_digests),
            **({"code": "bad_output"} if outcome.returned else {}),
        }
