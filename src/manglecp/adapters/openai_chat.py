"""Messages of the Chat Completions API, and its streamed chunks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from manglecp.adapters.conversation import Call, Offer, Result
from manglecp.adapters.dialogue import Message, Part
from manglecp.adapters.envelopes import failure_in, reports_failure
from manglecp.adapters.fields import each_object, entry, identifier, kind_of, mapping, optional_text, texts_of
from manglecp.adapters.offers import Tool, offer
from manglecp.adapters.records import parse
from manglecp.wire import JSON, Fault

__all__ = [
    "ChatMessages",
    "Chunks",
    "arguments",
    "choice_of",
    "failed_result",
    "finished",
    "parts_of_choice",
    "words",
]

STOP_REASONS: Final = {"tool_calls": "tool_use", "stop": "end_turn", "length": "max_tokens"}
_MOST_CALLS: Final = 10_000


class ChatMessages:
    """What messages of this interface mean."""

    list_name = "messages"
    joined = False

    def is_reply(self, message: Message) -> bool:
        return kind_of(message, "role") == "assistant"

    def is_system(self, message: Message) -> bool:
        return kind_of(message, "role") in ("system", "developer")

    def texts(self, message: Message) -> list[str]:
        return [] if kind_of(message, "role") == "tool" else words(message.get("content"))

    def results(self, message: Message) -> list[Result]:
        if kind_of(message, "role") != "tool":
            return []
        return [failed_result(identifier(message, "tool_call_id"), message.get("content"), message)]

    def parts(self, message: Message) -> Iterator[Part]:
        yield from words(message.get("content"))
        for i, call in each_object(message, "tool_calls"):
            try:
                yield _call(call)
            except Fault as fault:
                raise fault.inside("tool_calls", i) from None

    def stop(self, message: Message) -> str | None:
        return finished(message)

    def system(self, request: Message) -> list[str]:  # noqa: ARG002  # system messages stand in the list
        return []

    def offer(self, request: Message) -> Offer:
        return offer(_tool(definition, i) for i, definition in each_object(request, "tools"))

    def choice(self, request: Message) -> JSON:
        return choice_of(request.get("tool_choice"))

    def transport(self, request: Message) -> Mapping[str, Any] | None:
        return {"parallelToolCalls": False} if request.get("parallel_tool_calls") is False else None


_SAID: Final = {"function": "arguments", "custom": "input"}
"""Where each kind of call says what it calls with."""


class Chunks:
    """Takes the chunks of one completion."""

    def __init__(self) -> None:
        self._first: dict[str, Any] | None = None
        self._texts: list[str] = []
        self._calls: dict[int, dict[str, Any]] = {}
        self._finish: str | None = None

    def is_of_another(self, chunk: dict[str, Any]) -> bool:
        """Does this chunk belong to another completion than those before it?"""
        return self._first is not None and chunk.get("id") != self._first.get("id")

    def take(self, chunk: dict[str, Any]) -> None:
        """Add one chunk. Only the first choice is read; calls in another one are a :class:`Fault`."""
        self._first = self._first or chunk
        for i, choice in each_object(chunk, "choices"):
            if choice.get("index", 0) != 0:
                refuse_calls(mapping(choice, "delta"), i)
                continue
            try:
                self._finish = optional_text(choice, "finish_reason") or self._finish
                self._delta(mapping(choice, "delta") or {})
            except Fault as fault:
                raise fault.inside("choices", i) from None

    def completion(self) -> dict[str, Any] | None:
        """The completion as far as it has come; None if there was no chunk."""
        if self._first is None:
            return None
        calls = [
            {
                "id": call["id"],
                "type": call["type"],
                call["type"]: {"name": call["name"], _SAID[call["type"]]: "".join(call["said"])},
            }
            for _, call in sorted(self._calls.items())
        ]
        message = {"role": "assistant", "content": "".join(self._texts) or None, "tool_calls": calls or None}
        return {**self._first, "choices": [{"index": 0, "message": message, "finish_reason": self._finish}]}

    def _delta(self, delta: dict[str, Any]) -> None:
        try:
            self._texts.append(optional_text(delta, "content") or "")
            for i, piece in each_object(delta, "tool_calls"):
                self._piece(piece, i)
        except Fault as fault:
            raise fault.inside("delta") from None

    def _piece(self, piece: dict[str, Any], i: int) -> None:
        index = piece.get("index", 0)
        if type(index) is not int or not 0 <= index < _MOST_CALLS:
            raise Fault("a small whole number belongs here").inside("tool_calls", i, "index")
        call = self._calls.setdefault(index, {"id": None, "type": "function", "name": None, "said": []})
        call["id"] = optional_text(piece, "id") or call["id"]
        for kind, said in _SAID.items():
            part = mapping(piece, kind)
            if part is not None:
                call["type"] = kind
                call["name"] = optional_text(part, "name") or call["name"]
                call["said"].append(optional_text(part, said) or "")


def refuse_calls(message: dict[str, Any] | None, i: int) -> None:
    """Of several choices the first is taken. A call in another one would be lost, so it may not be there."""
    if message is not None and message.get("tool_calls"):
        raise Fault("calls in a choice other than the first cannot be told apart").inside("choices", i)


def finished(choice: dict[str, Any]) -> str | None:
    """Why a choice ended, in the words of the specification where it has one."""
    reason = optional_text(choice, "finish_reason")
    return None if reason is None else STOP_REASONS.get(reason, reason)


def parts_of_choice(choice: dict[str, Any]) -> list[Part]:
    """What the model said and called in one choice of a completion."""
    return list(ChatMessages().parts(entry(choice.get("message"), "message")))


def words(content: JSON) -> list[str]:
    """The texts of a content, be it a text or a list of typed parts."""
    if type(content) is str:
        return [content]
    parts = content if type(content) is list else []
    return [text for part in parts if type(part) is dict and type(text := part.get("text")) is str]


def arguments(text: str | None) -> tuple[JSON, bool]:
    """The arguments of a call, and whether they are an object. What is no JSON stays text."""
    try:
        value = parse((text or "").encode())
    except Fault:
        return text, False
    return value, type(value) is dict


def failed_result(call_id: str, content: JSON, shown: JSON) -> Result:
    """A result, and whether it failed: the interface has no place to say so, but the result may say it itself."""
    payload = "" if content is None else content
    text = "\n".join(texts_of(payload) if type(payload) is not list else words(payload))
    failed = reports_failure(None, text)
    return Result(call_id, payload, shown, "error" if failed else "ok", failure_in(None, text) if failed else None)


def choice_of(choice: JSON) -> JSON:
    """``required`` is ``any``, a named function is ``specific``; ``none`` forbids calls and is no choice of one."""
    if type(choice) is dict:
        inner = choice.get("function")
        name = inner.get("name") if type(inner) is dict else choice.get("name")
        return {"mode": "specific", "toolName": name} if type(name) is str else None
    return {"required": "any", "none": None}.get(choice, choice) if type(choice) is str else None


def _call(call: dict[str, Any]) -> Call:
    if (custom := mapping(call, "custom")) is not None:
        return Call(identifier(call, "id"), identifier(custom, "name"), custom.get("input"), block="function_call")
    function = entry(call.get("function"), "function")
    given, valid = arguments(optional_text(function, "arguments"))
    return Call(identifier(call, "id"), identifier(function, "name"), given, block="function_call", valid=valid)


def _tool(definition: dict[str, Any], i: int) -> Tool:
    try:
        function = mapping(definition, "function") or mapping(definition, "custom") or definition
        name = identifier(function, "name")
    except Fault as fault:
        raise fault.inside("tools", i) from None
    return Tool(name, function.get("parameters", function.get("format")))
