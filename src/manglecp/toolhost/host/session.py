"""What happens to one request, in the order of the contract.

    parse, aid, _lease.* if allowed, lookup, lease, cache, state, input types, run

Each step either answers or passes on. The lease comes before the cache, so that no key can fetch what a lease guards,
and a hit uses its lease up. The state that a request brings counts once it was taken, whatever then becomes of the
input: a client of upstream believes that it does, and goes on from there. An answer has a ``ds_state`` if, and only if,
it does; a request that is refused earlier changes nothing.
"""

from __future__ import annotations

from typing import Any

from manglecp.toolhost import state
from manglecp.toolhost.host.cache import Cache
from manglecp.toolhost.host.execution import InvalidInput, Worker
from manglecp.toolhost.host.gate import Gate
from manglecp.toolhost.host.messages import RequestError, input_text, named, parse, refusal
from manglecp.toolhost.plugin import Plugin
from manglecp.toolhost.state import Drift, Slots, StateError
from manglecp.toolhost.tool import Tool

__all__ = ["Session"]


class Session:
    """A plugin, and what it keeps between two requests: slots, and recent answers."""

    def __init__(self, plugin: Plugin, gate: Gate, worker: Worker, cache: Cache) -> None:
        self._tools = plugin.tools
        self._gate = gate
        self._worker = worker
        self._cache = cache
        self._slots: Slots = {}

    def serve(self, line: bytes) -> dict[str, Any]:
        """The answer to one line of serve mode."""
        try:
            request = parse(line)
        except ValueError:
            request = None
        if request is None:
            return refusal("invalid JSON")
        aid = request.get("aid") if isinstance(request, dict) else None
        if not isinstance(aid, str) or not aid:
            return refusal("missing aid")
        answer = self._gate.command(aid, request)
        if answer is None:
            tool = self._tools.get(aid)
            if tool is None:
                answer = refusal(f"tool not found: {aid}", status="INVALID_PICK")
            else:
                answer = self._call(tool, request)
        return named(answer, request)

    def run(self, tool: Tool, request: dict[str, Any]) -> dict[str, Any]:
        """The answer in run mode: the only call of this process, with the whole state in it."""
        incoming = request.get("ds_state")
        if isinstance(incoming, dict) and incoming.get("delta") is True:
            # There is nothing here to which it could be a difference; upstream, too, takes it for a whole state.
            request = {**request, "ds_state": {"slots": incoming.get("slots")}}
        answer = self._call(tool, request)
        if "ds_state" in answer:
            answer["ds_state"] = state.full(self._slots)
        return named(answer, request)

    def _call(self, tool: Tool, request: dict[str, Any]) -> dict[str, Any]:
        try:
            input_json = input_text(request)
        except RequestError as error:
            return refusal(f"invalid input: {error}", status="INVALID_PICK")
        refused = self._gate.refusal(tool, input_json, request)
        if refused is not None:
            return refused
        key = request.get("idempotency_key")
        if not isinstance(key, str) or not key:
            return self._run(tool, input_json, request)
        from manglecp.toolhost.leases import input_digest

        digest = input_digest(input_json)
        entry = self._cache.find(tool.aid, key)
        if entry is not None:
            if entry.input_digest != digest:
                return refusal("idempotency_conflict")
            return {**entry.answer, "idempotent_hit": True}
        answer = self._run(tool, input_json, request)
        if answer.get("status") == "OK":
            self._cache.keep(tool.aid, key, digest, dict(answer))
        return answer

    def _run(self, tool: Tool, input_json: str, request: dict[str, Any]) -> dict[str, Any]:
        incoming = request.get("ds_state")
        try:
            before = state.apply(incoming, self._slots)
        except Drift as error:
            return refusal("state_drift", detail=str(error), expected=error.expected, held=error.held)
        except StateError as error:
            return refusal(f"invalid ds_state: {error}")
        knows_digests = isinstance(incoming, dict) and "base_digest" in incoming
        try:
            outcome = self._worker.call(tool, input_json, before, {"aid": tool.aid, "call_id": request.get("call_id")})
        except InvalidInput as error:
            self._slots = before
            taken = state.delta(before, before, name_base=knows_digests)
            return refusal(str(error), status="INVALID_PICK", ds_state=taken)
        self._slots = outcome.slots
        return {
            "ok": True,
            "status": outcome.status,
            "output_json": outcome.output_json,
            "error": outcome.error,
            "ds_state": state.delta(before, outcome.slots, name_base=knows_digests),
        }
