"""Items of the Responses API, and its streamed events.

The output of a response is a list of items. Some are calls that the client has to answer with an item of its own;
others are calls that the provider has already run, with the result in the same item.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from manglecp.adapters.conversation import CODE_EXECUTION, Call, Caller, Failure, Offer, Result
from manglecp.adapters.dialogue import Message, Part
from manglecp.adapters.digests import canonical_bytes, digest_of
from manglecp.adapters.envelopes import failure_in
from manglecp.adapters.fields import each_object, entry, identifier, kind_of, mapping, optional_text
from manglecp.adapters.offers import Tool, caller_kind, offer
from manglecp.adapters.openai_chat import arguments, choice_of, failed_result, words
from manglecp.base.digest import digest_text
from manglecp.wire import JSON, Fault

__all__ = ["ItemStream", "Items", "parts_of_output", "stop_of_response"]

_CALL: Final = "_call"
_OUTPUT: Final = "_call_output"
_CLIENT: Final = {
    "function_call": "function",
    "custom_tool_call": "function",
    "computer_call": "function",
    "local_shell_call": "shell",
    "shell_call": "shell",
    "apply_patch_call": "edit",
}
"""Calls that the client answers, and their kinds."""
_SERVED_KINDS: Final = {"code_interpreter_call": CODE_EXECUTION, "mcp_call": "mcp"}
_SERVED_INPUT: Final = ("arguments", "action", "queries", "code", "input")
_SERVED_OUTPUT: Final = ("output", "outputs", "results", "result")
_RUNNING: Final = ("in_progress", "searching", "interpreting", "generating", "calling", "queued")
_SUFFIXES: Final = ("_preview", "_20")


class Items:
    """What items of this interface mean."""

    list_name = "input"
    joined = True

    def is_reply(self, message: Message) -> bool:
        kind = _type(message)
        if kind == "message":
            return kind_of(message, "role") == "assistant"
        return not kind.endswith("_output") and kind != "mcp_approval_response"

    def is_system(self, message: Message) -> bool:
        return kind_of(message, "role") in ("system", "developer")

    def texts(self, message: Message) -> list[str]:
        return words(message.get("content")) if _type(message) == "message" else []

    def results(self, message: Message) -> list[Result]:
        if not _type(message).endswith(_OUTPUT):
            return []
        return [failed_result(identifier(message, "call_id"), message.get("output"), message)]

    def parts(self, message: Message) -> Iterator[Part]:
        return _parts(message)

    def stop(self, message: Message) -> str | None:  # noqa: ARG002  # of the response, not of its items
        return None

    def system(self, request: Message) -> list[str]:
        instructions = optional_text(request, "instructions")
        return [] if instructions is None else [instructions]

    def offer(self, request: Message) -> Offer:
        tools = []
        closed = True
        for i, definition in each_object(request, "tools"):
            try:
                if kind_of(definition) == "mcp":
                    closed = False  # a server names its tools
                else:
                    tools.append(_tool(definition))
            except Fault as fault:
                raise fault.inside("tools", i) from None
        return offer(tools, closed=closed)

    def choice(self, request: Message) -> JSON:
        return choice_of(request.get("tool_choice"))

    def transport(self, request: Message) -> Mapping[str, Any] | None:
        return {"parallelToolCalls": False} if request.get("parallel_tool_calls") is False else None


class ItemStream:
    """Takes the events of one response. The last of them repeats the whole of it."""

    def __init__(self) -> None:
        self.ended = False
        self._response: dict[str, Any] | None = None
        self._items: dict[int, dict[str, Any]] = {}

    def take(self, event: dict[str, Any]) -> None:
        """Add one event. Events of other kinds than whole items and whole responses are passed over."""
        kind = kind_of(event)
        if (response := mapping(event, "response")) is not None:
            self._response = response
            self.ended = kind in ("response.completed", "response.incomplete", "response.failed")
        elif kind == "response.output_item.done":
            index = event.get("output_index")
            if type(index) is not int:
                raise Fault("a whole number belongs here").inside("output_index")
            self._items[index] = entry(event.get("item"), "item")

    def response(self) -> dict[str, Any] | None:
        """The response as far as it has come; None if it has not begun."""
        if self._response is None or self.ended:
            return self._response
        return {**self._response, "output": [self._items[index] for index in sorted(self._items)]}


def stop_of_response(response: dict[str, Any]) -> str | None:
    """A completed response stops for its calls if it has any; an incomplete one has a reason of its own."""
    status = optional_text(response, "status")
    if status == "completed":
        calls = any(kind_of(item) in _CLIENT for _, item in each_object(response, "output"))
        return "tool_use" if calls else "end_turn"
    if status == "incomplete":
        reason = optional_text(mapping(response, "incomplete_details") or {}, "reason")
        return "max_tokens" if reason == "max_output_tokens" else reason
    return None if status == "in_progress" else status


def parts_of_output(items: list[Any]) -> list[Part]:
    """What the model said and called. A :class:`Fault` leads to the item that cannot be read."""
    found: list[Part] = []
    for i, item in enumerate(items):
        try:
            found += _parts(entry(item))
        except Fault as fault:
            raise fault.inside("output", i) from None
    return found


def _type(item: dict[str, Any]) -> str:
    """What an item is; messages need not say it."""
    return (kind_of(item) or "") if "type" in item else "message"


def _parts(item: dict[str, Any]) -> Iterator[Part]:
    kind = _type(item)
    if kind == "message":
        yield from words(item.get("content"))
    elif kind in _CLIENT:
        yield _client_call(item)
    elif kind.endswith(_CALL):
        yield _served_call(item)
        yield _served_result(item)


def _client_call(item: dict[str, Any]) -> Call:
    kind = item["type"]
    if kind == "function_call":
        given, valid = arguments(optional_text(item, "arguments"))
        name = identifier(item, "name")
    else:
        given, valid = item.get("input", item.get("action", item.get("operation"))), True
        name = optional_text(item, "name") or kind.removesuffix(_CALL)
    return Call(identifier(item, "call_id"), name, given, _CLIENT[kind], "function_call", valid, caller=_caller(item))


def _served_call(item: dict[str, Any]) -> Call:
    kind = item["type"]
    given = next((item[name] for name in _SERVED_INPUT if item.get(name) is not None), None)
    valid = True
    if kind == "mcp_call":
        given, valid = arguments(optional_text(item, "arguments"))
    return Call(
        identifier(item, "id"),
        optional_text(item, "name") or kind.removesuffix(_CALL),
        given,
        _SERVED_KINDS.get(kind, "function"),
        "function_call",
        valid,
        served=True,
        caller=_caller(item),
    )


def _served_result(item: dict[str, Any]) -> Result:
    status = optional_text(item, "status") or "completed"
    payload = next((item[name] for name in _SERVED_OUTPUT if item.get(name) is not None), None)
    failure: Failure | None = None
    if item.get("error") is not None or status in ("failed", "incomplete"):
        error = item.get("error")
        payload = error if payload is None else payload
        text = error if type(error) is str else "" if error is None else canonical_bytes(error).decode()
        failure = failure_in({"error": error}, text)
    evidence: dict[str, Any] = {}
    outputs = item.get("outputs")
    if item["type"] == "code_interpreter_call" and type(outputs) is list:
        logs = [out["logs"] for out in outputs if type(out) is dict and type(out.get("logs")) is str]
        # One stream holds what the program wrote to either.
        both = digest_text("\n".join(logs))
        evidence["observation"] = {"stdoutDigest": both, "stderrDigest": both}
    state = "running" if status in _RUNNING else "ok" if failure is None else "error"
    return Result(identifier(item, "id"), payload, item, state, failure, None, evidence)


def _caller(item: dict[str, Any]) -> Caller | None:
    caller = item.get("caller")
    if type(caller) is str:
        kind, parent = caller_kind(caller), None
    elif type(caller) is dict:
        kind = caller_kind(identifier(caller, "type"))
        parent = next(
            (caller[key] for key in ("tool_id", "caller_id", "call_id", "id") if type(caller.get(key)) is str), None
        )
    else:
        return None
    return None if kind == "direct" else Caller(kind, parent)


def _tool(definition: dict[str, Any]) -> Tool:
    kind = identifier(definition, "type")
    if "name" in definition:
        name = identifier(definition, "name")
        schema = definition.get("parameters", definition.get("format"))
        return Tool(name, schema, deferred=definition.get("defer_loading") is True)
    name = kind
    for suffix in _SUFFIXES:
        name = name.partition(suffix)[0]
    name = {"computer_use": "computer"}.get(name, name)
    return Tool(name, {"type": kind, "digest": digest_of(definition)}, _CLIENT.get(name + _CALL, "function"))
