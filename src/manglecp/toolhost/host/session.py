"""What happens to one request, in the order of the contract.

    parse, aid, _lease.* if allowed, lookup, lease, cache, state, input types, run

Each step either answers or passes on. Input that is given twice is refused in its turn. The
lease comes before the cache, so that no key can fetch what a lease guards, and a hit uses its lease up. The state that
a request brings counts once it was taken, whatever then becomes of the input: a client of upstream believes that it
does, and goes on from there. An answer has a ``ds_state`` if, and only if, it does; a request that is refused earlier
changes nothing. A hit changes the state as the call did that it repeats.

Whatever goes wrong in all this is answered, too, and leaves the state as it was.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from manglecp.toolhost.canonical import canonical_digest
from manglecp.toolhost.describing import describe, trace
from manglecp.toolhost.host.cache import Cache
from manglecp.toolhost.host.execution import InvalidInput, Worker
from manglecp.toolhost.host.gate import Gate
from manglecp.toolhost.host.messages import RequestError, input_text, named, parse, refusal
from manglecp.toolhost.plugin import Plugin
from manglecp.toolhost.state import Drift, Slots, StateError, apply_state, digest_state, full_state, state_delta
from manglecp.toolhost.tool import Tool

__all__ = ["Session"]

T = TypeVar("T")


class Session:
    """A plugin, and what it keeps between two requests: slots, and recent answers."""

    def __init__(self, plugin: Plugin, gate: Gate, worker: Worker, cache: Cache) -> None:
        self._tools = plugin.tools
        self._gate = gate
        self._worker = worker
        self._cache = cache
        self._slots: Slots = {}
        self._held: Slots = {}

    def take_back(self) -> None:
        """The last answer cannot be sent: hold what was held before it."""
        self._slots = self._held

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
        return named(self._answered(self._lookup, aid, request), request)

    def run(self, tool: Tool, request: dict[str, Any]) -> dict[str, Any]:
        """The answer in run mode: the only call of this process, with the whole state in it."""
        incoming = request.get("ds_state")
        if isinstance(incoming, dict) and incoming.get("delta") is True:
            # There is nothing here to which it could be a difference; upstream, too, takes it for a whole state.
            request = {**request, "ds_state": {"slots": incoming.get("slots")}}
        answer = self._answered(self._call, tool, request)
        if "ds_state" in answer:
            answer["ds_state"] = full_state(self._slots)
        return named(answer, request)

    def _answered(
        self, step: Callable[[T, dict[str, Any]], dict[str, Any]], about: T, request: dict[str, Any]
    ) -> dict[str, Any]:
        self._held = held = self._slots
        try:
            return step(about, request)
        except BaseException as error:
            trace(error)
            self._slots = held
            return refusal(describe(error), status="TOOL_ERROR")

    def _lookup(self, aid: str, request: dict[str, Any]) -> dict[str, Any]:
        answer = self._gate.command(aid, request)
        if answer is not None:
            return answer
        tool = self._tools.get(aid)
        if tool is None:
            return refusal(f"tool not found: {aid}", status="INVALID_PICK")
        return self._call(tool, request)

    def _call(self, tool: Tool, request: dict[str, Any]) -> dict[str, Any]:
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
        entry = self._cache.find(tool.aid, key)
        if entry is not None:
            if entry.input_digest != digest:
                return refusal("idempotency_conflict")
            return self._hit(entry.answer, request.get("ds_state"))
        answer = self._run(tool, input_json, wrong, request)
        if answer.get("status") == "OK":
            self._cache.keep(tool.aid, key, digest, dict(answer))
        return answer

    def _hit(self, kept: dict[str, Any], incoming: object) -> dict[str, Any]:
        change = {name: value for name, value in kept["ds_state"].items() if name != "base_digest"}
        try:
            before = apply_state(incoming, self._slots)
        except StateError:  # the cache comes before the state: what is wrong with it is not looked at, and not taken
            return {**kept, "ds_state": change, "idempotent_hit": True}
        self._slots = apply_state(change, before)
        if isinstance(incoming, dict) and "base_digest" in incoming:
            change["base_digest"] = digest_state(before)
        return {**kept, "ds_state": change, "idempotent_hit": True}

    def _run(self, tool: Tool, input_json: str, wrong: RequestError | None, request: dict[str, Any]) -> dict[str, Any]:
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
            taken = state_delta(before, before, name_base=knows_digests)
            return refusal(str(error), status="INVALID_PICK", ds_state=taken)
        self._slots = outcome.slots
        return {
            "ok": True,
            "status": outcome.status,
            "output_json": outcome.output_json,
            "error": outcome.error,
            "ds_state": state_delta(before, outcome.slots, name_base=knows_digests),
            **({"code": "bad_output"} if outcome.returned else {}),
        }
