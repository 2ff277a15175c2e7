"""Logs of the OpenAI APIs: Chat Completions and Responses.

A record is one of

* an exchange, ``{"request": …, "response": …}``, or either of them alone; ``session`` may name the conversation. A
  request with ``input`` is one of the Responses API, one with ``messages`` of Chat Completions;
* a completion, a response object, or a chunk or event of a streamed one;
* a transcript: ``{"messages": […]}``, a list, or one message or item per line: items have a type. It has no stop
  reasons.

Of several choices the first is taken; a call in another one is refused. The words for why a reply ended become those of
the specification where there is one: ``tool_calls`` is ``tool_use``, ``stop`` is ``end_turn``, ``length`` is
``max_tokens``; others stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from manglecp.adapters.conversation import Event
from manglecp.adapters.dialogue import Dialogue
from manglecp.adapters.fields import (
    array,
    each_object,
    entry,
    identifier,
    kind_of,
    mapping,
    optional_text,
    unwrapped,
)
from manglecp.adapters.limits import LogLimits
from manglecp.adapters.openai_chat import ChatMessages, Chunks, finished, parts_of_choice, refuse_calls
from manglecp.adapters.openai_responses import Items, ItemStream, parts_of_output, stop_of_response
from manglecp.adapters.records import stream_records
from manglecp.wire import JSON, Fault

__all__ = ["OpenAILog"]

_CHUNK: Final = "chat.completion.chunk"
_COMPLETION: Final = "chat.completion"
_RESPONSE: Final = "response"


class OpenAILog:
    """Reads records in their order. The two interfaces have conversations of their own."""

    def __init__(self, limits: LogLimits) -> None:
        self._limits = limits
        self._chat = Dialogue(ChatMessages(), limits)
        self._items = Dialogue(Items(), limits)
        self._chunks = Chunks()
        self._events = ItemStream()

    def read(self, value: JSON, line: int) -> Iterator[Event]:
        if type(value) is list:
            self._at(line)
            yield from self._transcript(value)
            return
        record = entry(value)
        if kind_of(record, "object") == _CHUNK:
            if self._chunks.is_of_another(record):
                yield from self._streamed()
            self._at(line)
            self._chunks.take(record)
        elif _is_event(record):
            self._at(line)
            self._events.take(record)
            if self._events.ended:
                yield from self._streamed()
        else:
            yield from self._streamed()
            self._at(line)
            yield from self._whole(record)

    def finish(self) -> Iterator[Event]:
        yield from self._streamed()
        yield from self._chat.finish()
        yield from self._items.finish()

    def _at(self, line: int) -> None:
        self._chat.line = self._items.line = line

    def _whole(self, record: dict[str, Any]) -> Iterator[Event]:
        """A record that is no part of a stream."""
        if "request" in record or type(record.get("response")) in (dict, list, str):
            yield from self._exchange(record)
        elif kind_of(record, "object") in (_COMPLETION, _RESPONSE):
            yield from self._answer(record)
        elif "messages" in record:
            yield from self._chat.transcript(record, "messages")
        elif "role" in record and "type" not in record:
            yield from self._chat.message(record)
        elif kind_of(record) is not None:
            yield from self._items.message(record)
        else:
            raise Fault("neither an exchange, nor a message or item, nor a part of a stream")

    def _transcript(self, messages: list[Any]) -> Iterator[Event]:
        """A list of messages, or of items: those have a type."""
        if any(type(message) is dict and "type" in message for message in messages):
            yield from self._items.transcript({"input": messages})
        else:
            yield from self._chat.transcript({"messages": messages})

    def _exchange(self, record: dict[str, Any]) -> Iterator[Event]:
        steps: tuple[str, ...] = ()
        if record.get("request") is not None:
            try:
                request, steps = unwrapped(record["request"])
                yield from self._request(request, optional_text(record, "session"))
            except Fault as fault:
                raise fault.inside("request", *steps) from None
        try:
            yield from self._response(record.get("response"))
        except Fault as fault:
            raise fault.inside("response") from None

    def _request(self, request: dict[str, Any], session: str | None) -> Iterator[Event]:
        if "input" not in request:
            yield self._chat.request(request, session)
            return
        if type(request["input"]) is str:
            request = {**request, "input": [{"role": "user", "content": request["input"]}]}
        previous = optional_text(request, "previous_response_id")
        conversation = request.get("conversation")
        if type(conversation) is dict:
            conversation = identifier(conversation, "id")
        key = previous or conversation
        yield self._items.request(request, session) if key is None else self._items.addition(request, str(key))

    def _response(self, response: JSON) -> Iterator[Event]:
        """The reply in a response, whole or as its stream."""
        if response is None:
            return
        if type(response) is str:
            response = stream_records(response, self._limits)
        if type(response) is not list:
            answer, steps = unwrapped(response)
            try:
                yield from self._answer(answer)
            except Fault as fault:
                raise fault.inside(*steps) from None
            return
        for i, part in enumerate(response):
            try:
                piece = entry(part)
                (self._chunks if kind_of(piece, "object") == _CHUNK else self._events).take(piece)
            except Fault as fault:
                raise fault.inside(i) from None
        yield from self._streamed()

    def _answer(self, answer: dict[str, Any]) -> Iterator[Event]:
        """A reply. An error is none: the same request is expected to be sent again."""
        if "choices" in answer:
            if array(answer, "choices"):
                yield self._completion(answer)
        elif "output" in answer:
            yield self._items.reply(
                parts_of_output(array(answer, "output")),
                stop_of_response(answer),
                optional_text(answer, "model"),
                optional_text(answer, "id"),
            )
        elif answer.get("error") is None:
            raise Fault("neither choices, nor output, nor an error")

    def _completion(self, answer: dict[str, Any]) -> Event:
        for i, other in each_object(answer, "choices"):
            if i:
                refuse_calls(mapping(other, "message"), i)
        try:
            choice = entry(answer["choices"][0])
            return self._chat.reply(parts_of_choice(choice), finished(choice), optional_text(answer, "model"))
        except Fault as fault:
            raise fault.inside("choices", 0) from None

    def _streamed(self) -> Iterator[Event]:
        completion, self._chunks = self._chunks.completion(), Chunks()
        if completion is not None:
            yield self._completion(completion)
        response, self._events = self._events.response(), ItemStream()
        if response is not None:
            yield from self._answer(response)


def _is_event(record: dict[str, Any]) -> bool:
    kind = kind_of(record) or ""
    return kind.startswith("response.") or kind == "error"
