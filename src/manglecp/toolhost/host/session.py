"""The handling of a request, in the order of the IPC contract.

The order is: parse, action id, ``_lease.*``, lookup, lease, cache of answers by idempotency key, state, input types,
run. The lease comes before the cache, so that no idempotency key can fetch what a lease guards; a cached answer spends
a lease, too, and changes no state: neither the change of the first call nor the state of the request is applied. The
state of a request is applied also if the input is then refused, as clients of the C++ host expect. An answer has an
empty ``ds_state`` if and only if the state was not applied. After a failed action the state is that of the request;
after an error of the host, the state before the request.

The handling is written as coroutines. A sequential host runs them without an event loop.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeVar

from manglecp.base.coroutines import run_to_end
from manglecp.toolhost.context import Reports, describe, trace
from manglecp.toolhost.host.execution import ActionExecutor, InvalidInput
from manglecp.toolhost.host.messages import RequestError, input_text, parse, refusal, with_call_id
from manglecp.toolhost.idempotency import AnswerCache, canonical_digest
from manglecp.toolhost.plugin import Plugin, PluginAction
from manglecp.toolhost.state import BaseMismatch, Slots, StateError, apply_state, full_state, state_delta

if TYPE_CHECKING:
    from manglecp.toolhost.leases import LeaseBook

_MIN_TTL_MS: Final = 1_000
_MAX_TTL_MS: Final = 300_000
_DEFAULT_TTL_MS: Final = 10_000


def requires_leases(environ: Mapping[str, str]) -> bool:
    """Return whether the environment requires leases, by the same two values as the C++ host."""
    return environ.get("MACHINA_LEASE_ENFORCE") in ("1", "true")


@cache
def _leases() -> Any:
    from manglecp.toolhost import leases  # only a host that checks or issues leases pays for this import

    return leases


class LeaseCheck:
    """The lease check of one host. Without ``key`` no call needs a lease; ``every_call``: calls of tier 0 need one.

    A host that was started with a key requires a lease for every call. One that was started by hand follows the
    contract: with ``MACHINA_LEASE_ENFORCE``, in serve mode, above tier 0. ``pipe_leases`` allows ``_lease.issue`` and
    ``_lease.gc`` for clients of the C++ toolhost: with ``pipe_leases``, every writer to the pipe can get leases.
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
        self._unused: dict[object, Any] = {}  # expiries of granted leases, by lease id

    def check_lease(self, tool: PluginAction, input_json: str, request: dict[str, Any]) -> dict[str, Any] | None:
        """Return the refusal of a call; None if the call may run; its lease token is then spent."""
        tier = tool.declaration.tier
        if self._key is None or (tier == 0 and not self._every_call):
            return None
        token = request.get("_lease_token")
        if not isinstance(token, str) or not token:
            # The count of rejected leases is that of invalid tokens: a missing token is not counted.
            self._audit("lease_refused", {"aid": tool.aid, "tier": tier, "reason": "lease_required"}, counted=False)
            return refusal("lease_required", tier=tier, aid=tool.aid)
        leases = _leases()
        if self._book is None:
            self._book = leases.LeaseBook(self._key, audit=self._audit)
        call_id = request.get("call_id")
        reason = self._book.check(
            token, tool.aid, leases.input_digest(input_json), call_id if isinstance(call_id, str) else "", tier
        )
        return refusal("lease_rejected", reason=reason) if reason is not None else None

    def answer_lease_command(self, aid: str, request: dict[str, Any]) -> dict[str, Any] | None:
        """Return the answer to ``_lease.issue`` or ``_lease.gc``; None for other ids, or without ``pipe_leases``."""
        if not self._pipe_leases or aid not in ("_lease.issue", "_lease.gc"):
            return None
        return self._issue(request) if aid == "_lease.issue" else self._collect_expired()

    def _issue(self, request: dict[str, Any]) -> dict[str, Any]:
        tool_aid = request.get("tool_aid", "")
        tier = request.get("tier", 0)
        ttl_ms = request.get("ttl_ms", _DEFAULT_TTL_MS)
        if not isinstance(tool_aid, str) or type(tier) is not int or type(ttl_ms) is not int:
            return refusal("tool_aid is a string, tier and ttl_ms are integers")
        ttl_ms = min(max(ttl_ms, _MIN_TTL_MS), _MAX_TTL_MS)
        ttl = ttl_ms / 1000
        token = _leases().mint(
            self._key or b"", aid=tool_aid, input_digest=None, call_id=None, tier=tier, ttl=ttl, audit=self._audit
        )
        return {"ok": True, "token_id": token, "tool_aid": tool_aid, "tier": tier, "expires_ms": ttl_ms}

    def _collect_expired(self) -> dict[str, Any]:
        """Forget expired leases; return the number of unused ones, and the counts since the start."""
        now = time.monotonic()
        self._unused = {lease: expiry for lease, expiry in self._unused.items() if expiry > now}
        return {
            "ok": True,
            "active": len(self._unused),
            "issued": self._counts["lease_granted"],
            "consumed": self._counts["lease_used"],
            "rejected": self._counts["lease_refused"],
        }

    def _audit(self, event: str, details: Mapping[str, object], *, counted: bool = True) -> None:
        if counted:
            self._counts[event] += 1
        if event == "lease_granted":
            self._unused[details["lease"]] = details["expires"]
        elif event == "lease_used":
            self._unused.pop(details["lease"], None)
        self._reports.send(event, details)


T = TypeVar("T")


def parse_request(line: bytes) -> Any:
    """Return the JSON value of a line; None if there is none."""
    try:
        return parse(line)
    except ValueError:
        return None


class RequestHandler:
    """Handles the requests to a plugin; keeps a cache of answers and, in a sequential host, the state (slots)."""

    def __init__(self, plugin: Plugin, lease_check: LeaseCheck, executor: ActionExecutor) -> None:
        self._tools = plugin.tools
        self._lease_check = lease_check
        self._executor = executor
        # By action id and idempotency key: the digest of the input, and the answer.
        self._cache: AnswerCache[tuple[str, dict[str, Any]]] = AnswerCache()
        self._slots: Slots = {}
        self._slots_before: Slots = {}

    def restore_slots(self) -> None:
        """Restore the slots from before the last request, because its answer cannot be sent."""
        self._slots = self._slots_before

    def serve(self, line: bytes) -> dict[str, Any]:
        """Return the answer to a request line in serve mode, without an event loop."""
        return run_to_end(self.answer(parse_request(line)))

    async def answer(self, request: Any) -> dict[str, Any]:
        """Return the answer to a result of :func:`parse_request` in serve mode."""
        if request is None:
            return refusal("invalid JSON")
        aid = request.get("aid") if isinstance(request, dict) else None
        if not isinstance(aid, str) or not aid:
            return refusal("missing aid")
        return with_call_id(await self._answer_or_restore(self._lookup, aid, request), request)

    def run(self, tool: PluginAction, request: dict[str, Any]) -> dict[str, Any]:
        """Return the answer in run mode, to the only call of this process; the answer has the whole state."""
        incoming_state = request.get("ds_state")
        if isinstance(incoming_state, dict) and incoming_state.get("delta") is True:
            # There is no base for a delta; the C++ host, too, treats the delta as a whole state.
            request = {**request, "ds_state": {"slots": incoming_state.get("slots")}}
        answer = run_to_end(self._answer_or_restore(self._call, tool, request))
        if answer["ds_state"]:
            answer["ds_state"] = full_state(self._slots)
        return with_call_id(answer, request)

    async def _answer_or_restore(
        self, handle: Callable[[T, dict[str, Any]], Awaitable[dict[str, Any]]], target: T, request: dict[str, Any]
    ) -> dict[str, Any]:
        """Return ``handle(target, request)``; if it raises, restore the slots, and return an error."""
        self._slots_before = self._slots
        try:
            return await handle(target, request)
        except BaseException as error:
            trace(error)
            self.restore_slots()
            return refusal(describe(error))

    async def _lookup(self, aid: str, request: dict[str, Any]) -> dict[str, Any]:
        answer = self._lease_check.answer_lease_command(aid, request)
        if answer is not None:
            return answer
        tool = self._tools.get(aid)
        if tool is None:
            return refusal(f"tool not found: {aid}", status="INVALID_PICK")
        return await self._call(tool, request)

    async def _call(self, tool: PluginAction, request: dict[str, Any]) -> dict[str, Any]:
        input_error = None
        try:
            input_json = input_text(request)
        except RequestError as error:  # reported after the checks of lease and state
            text = request.get("input_json")
            input_json, input_error = text if isinstance(text, str) else "", error
        refusal_answer = self._lease_check.check_lease(tool, input_json, request)
        if refusal_answer is not None:
            return refusal_answer
        key = request.get("idempotency_key")
        if not isinstance(key, str) or not key or input_error is not None:
            return await self._run(tool, input_json, input_error, request)
        digest = canonical_digest(input_json)
        cache_entry = self._cache.find((tool.aid, key))
        if cache_entry is not None:
            cached_digest, cached_answer = cache_entry
            if cached_digest != digest:
                return refusal("idempotency_conflict")
            return {**cached_answer, "idempotent_hit": True}
        answer = await self._run(tool, input_json, None, request)
        if answer.get("status") == "OK":
            # Only successes are cached: a failed call may be repeated.
            stored = {**answer, "ds_state": {}}
            self._cache.keep((tool.aid, key), (digest, stored), len(key) + len(answer["output_json"]))
        return answer

    async def _run(
        self, tool: PluginAction, input_json: str, input_error: RequestError | None, request: dict[str, Any]
    ) -> dict[str, Any]:
        incoming_state = request.get("ds_state")
        try:
            before = apply_state(incoming_state, {} if self._executor.concurrent else self._slots)
        except BaseMismatch as error:
            return refusal("state_drift", detail=str(error), expected=error.expected, held=error.held)
        except StateError as error:
            return refusal(f"invalid ds_state: {error}")
        # A client that sends the digest of its state gets one in the answer.
        client_sends_digests = isinstance(incoming_state, dict) and "base_digest" in incoming_state
        try:
            if input_error is not None:
                raise InvalidInput(f"invalid input: {input_error}")
            fields = {"aid": tool.aid, "call_id": request.get("call_id")}
            outcome = await self._executor.call(tool, input_json, before, fields, request.get("_secrets"))
        except InvalidInput as error:
            self._slots = before
            unchanged = state_delta(before, before, name_base=client_sends_digests)
            return refusal(str(error), status="INVALID_PICK", ds_state=unchanged)
        self._slots = outcome.slots
        return {
            "ok": True,
            "status": outcome.status,
            "output_json": outcome.output_json,
            "error": outcome.error,
            "ds_state": state_delta(before, outcome.slots, name_base=client_sends_digests),
            **outcome.failure,
        }
