"""The actions of plugins as the actions of a run, executed through dispatch.

A run has one set of inputs; each action gets those that its schema names. Members with a leading underscore steer the
runner and reach no action. The state of a run travels whole with every step, and no host is kept between steps: a
selector may take long.

An action with effects needs an authority per call, which ``authorise`` obtains; without one, dispatch refuses. A
refusal by the action or its schema is deterministic. Other failures (a deadline, a crash, an open breaker) are not,
and a replay does not expect them again.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from manglecp.runner.execution import Outcome, StepStatus, settled
from manglecp.runner.selection import Offer
from manglecp.toolhost import SAFE, Answer, CallOptions, Catalogue, Dispatcher, Slots, read_catalogue

if TYPE_CHECKING:
    from manglecp.harness import MutationReady


class Authorise(Protocol):
    """Returns the authority for one call above tier 0, now or when awaited; None refuses it."""

    def __call__(
        self, aid: str, call_id: str, input_json: str, /
    ) -> MutationReady | Awaitable[MutationReady | None] | None: ...


@dataclass(frozen=True, slots=True)
class Dispatched:
    """Executes the actions of all plugins behind a dispatcher, for one identity."""

    dispatcher: Dispatcher
    identity: str = ""
    authorise: Authorise | None = None

    async def __call__(self, aid: str, inputs: dict[str, Any], state: Slots, /) -> Outcome:
        profile = self.dispatcher.actions.get(aid)
        asked: CallOptions = {"inputs": _taken(inputs, None if profile is None else profile.inputs_schema)}
        if self.authorise is not None and profile is not None and profile.tier > SAFE:
            text, call_id = msgspec.json.encode(asked["inputs"]).decode(), secrets.token_hex(16)
            authority = await settled(self.authorise(aid, call_id, text))
            asked = {"input_json": text, "call_id": call_id, "authority": authority}
        answer = await self.dispatcher.call(aid, identity=self.identity, slots=state, **asked)
        if isinstance(answer, Answer):
            return Outcome(StepStatus.OK, json.loads(answer.output_json), answer.slots)
        status = StepStatus(answer.get("status", StepStatus.TOOL_ERROR))
        by_action = "status" in answer and status is not StepStatus.BREAKER_TRIP
        return Outcome(status, dict(answer), state, by_action)


def offers(listing: bytes) -> list[Offer]:
    """Return the offers of a ``--list`` answer.

    Only actions of tier 0 count as deterministic, whatever they declare: a replay repeats those, and must have no
    effects.
    """
    catalogue = read_catalogue(listing)
    tools: list[Mapping[str, Any]] = json.loads(listing)["tools"]
    return [_offer(tool, catalogue) for tool in tools]


def _offer(tool: Mapping[str, Any], catalogue: Catalogue) -> Offer:
    profile = catalogue[tool["aid"]]
    name, tags = tool.get("name"), tool.get("tags")
    return Offer(
        profile.aid,
        name if isinstance(name, str) else "",
        frozenset(tag for tag in tags if isinstance(tag, str)) if isinstance(tags, list) else frozenset(),
        tool.get("deterministic") is True and profile.tier == SAFE,
        profile.inputs_schema,
    )


def _taken(inputs: Mapping[str, Any], schema: Mapping[str, Any] | None) -> dict[str, Any]:
    public = {name: value for name, value in inputs.items() if not name.startswith("_")}
    known = schema.get("properties") if schema is not None else None
    if schema is None or schema.get("additionalProperties") is not False or not isinstance(known, dict):
        return public
    return {name: value for name, value in public.items() if name in known}
