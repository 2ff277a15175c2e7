"""Functions in place of actions. Everything but the host is the real thing.

What is sent to a function was checked as what is sent to a host is, and the right to the call is looked at and spent
in the same way. So a test with functions cannot do what the harness would not permit.
Actions without a function run in hosts, which are started when the first of them is called.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec

from manglecp.base.suggestions import did_you_mean
from manglecp.pack import ActionDescription, Pack
from manglecp.toolhost import Answer, Call, CallRefused, Dispatcher, DispatchError, ErrorCode, Right, failure

__all__ = ["Actions", "Called", "Function", "checked"]

Function: TypeAlias = Callable[..., Any]
"""Takes the parameters of the action by name; what it returns, or what an awaitable gives, is the action's output."""


@dataclass(frozen=True, slots=True)
class Called:
    """One call of an action: by its name, with what it was given, and what it gave or why it failed."""

    action: str
    input: Mapping[str, Any]
    output: Any = None
    error: str | None = None


def checked(pack: Pack, functions: Mapping[str, Function]) -> Mapping[str, Function]:
    """The functions, if each can stand for the action of its name; ``ValueError`` or ``TypeError`` if not."""
    for name, function in functions.items():
        action = pack.actions.get(name)
        if action is None:
            raise ValueError(f"the pack has no action {name}; {did_you_mean(name, set(pack.actions))}")
        params = action.input_schema.get("properties", {})
        required = action.input_schema.get("required", ())
        try:
            signature = inspect.signature(function)
            for given in (params, required):
                signature.bind(**dict.fromkeys(given))
        except TypeError as error:
            raise TypeError(f"{name} takes {', '.join(params) or 'nothing'}; the function: {error}") from None
    return dict(functions)


class Actions:
    """What an invoker asks of a dispatcher. ``called`` are the calls that were made, in the order of their ends."""

    def __init__(self, pack: Pack, functions: Mapping[str, Function], hosts: Callable[[], Awaitable[Dispatcher]]):
        self._actions = {action.aid: action for action in pack.actions.values()}
        self._functions = functions
        self._hosts = hosts
        self._started: Dispatcher | None = None
        self.called: list[Called] = []

    async def call(self, aid: str, **asked: Any) -> Answer | DispatchError:
        """Answer with the function for this action, or with a host where there is none."""
        action = self._actions[aid]
        if action.name in self._functions:
            answer = await self._function(action, self._functions[action.name], **asked)
        else:
            self._started = await self._hosts()
            answer = await self._started.call(aid, **asked)
        given = msgspec.json.decode(asked["input_json"])
        if isinstance(answer, Answer):
            self.called.append(Called(action.name, given, msgspec.json.decode(answer.output_json)))
        else:
            self.called.append(Called(action.name, given, error=answer["detail"]))
        return answer

    async def _function(self, action: ActionDescription, function: Function, **asked: Any) -> Answer | DispatchError:
        given = msgspec.json.decode(asked["input_json"])
        named = ("input_json", "slots", "identity", "call_id", "authority")
        right = Right(
            Call(
                aid=action.aid,
                tier=action.tier,
                idempotent=action.idempotent,
                **{name: asked[name] for name in named if name in asked},
            )
        )
        try:
            right.check()
            right.spend(effect=action.tier > 0)
        except CallRefused as refused:
            return failure(action.aid, refused.kind, refused.detail, code=refused.code)
        return await self._output(action, function, given, asked)

    async def _output(
        self, action: ActionDescription, function: Function, given: Mapping[str, Any], asked: Mapping[str, Any]
    ) -> Answer | DispatchError:
        limits = [seconds for seconds in (asked.get("timeout"), action.timeout) if seconds is not None]
        try:
            async with asyncio.timeout(min(limits, default=None)):
                output = await _called(function, given)
            return Answer(action.aid, msgspec.json.encode(output).decode(), dict(asked["slots"]))
        except TimeoutError:
            return failure(action.aid, "timeout", "the function did not return in time", code=_doubt(action))
        except Exception as error:
            return failure(action.aid, "tool_error", f"{type(error).__name__}: {error}", status="TOOL_ERROR")

    def cancel(self, call_id: str) -> bool:
        """Only real calls: nobody but the test waits for a function."""
        return self._started is not None and self._started.cancel(call_id)


def _doubt(action: ActionDescription) -> ErrorCode | None:
    """Whether an effect happened that nobody heard of, nobody knows."""
    return None if action.idempotent else "outcome_unknown"


async def _called(function: Function, given: Mapping[str, Any]) -> Any:
    """In a thread of its own, as if it were elsewhere: it may be slow, and may ask the pack something itself."""
    output = await asyncio.to_thread(function, **given)
    return await output if inspect.isawaitable(output) else output
