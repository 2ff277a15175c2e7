"""A streamed message of the Anthropic Messages API, put together again.

Arguments of a call come as pieces of JSON text. If they do not add up to JSON, because the stream was cut off, the text
itself stays in their place, and the call is one with invalid arguments.
"""

from __future__ import annotations

from typing import Any, Final

from manglecp.adapters.fields import array, entry, kind_of, mapping, optional_text
from manglecp.adapters.records import parse
from manglecp.wire import JSON, Fault

__all__ = ["EVENTS", "Stream"]

EVENTS: Final = frozenset(
    {
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
        "ping",
        "error",
    }
)
_APPENDED: Final = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}
_MOST_BLOCKS: Final = 10_000


class Stream:
    """Takes the events of one message."""

    def __init__(self) -> None:
        self._message: dict[str, Any] | None = None
        self._blocks: dict[int, dict[str, Any]] = {}
        self._pieces: dict[tuple[int, str], list[str]] = {}

    def take(self, event: dict[str, Any]) -> None:
        """Add one event. Raises :class:`Fault` where it does not follow from those before it."""
        kind = kind_of(event)
        if kind == "message_start":
            if self._message is not None:
                raise Fault("a message starts within another")
            self._message = dict(entry(event.get("message"), "message"))
        elif kind in ("ping", "error"):
            return
        elif self._message is None:
            raise Fault("a part of a message that has not started")
        elif kind == "content_block_start":
            self._blocks[_index(event)] = dict(entry(event.get("content_block"), "content_block"))
        elif kind == "content_block_delta":
            self._delta(_index(event), entry(event.get("delta"), "delta"))
        elif kind == "message_delta":
            self._message |= mapping(event, "delta") or {}
        elif kind not in ("content_block_stop", "message_stop"):
            raise Fault("no event of a stream").inside("type")

    def message(self) -> dict[str, Any] | None:
        """The message as far as it has come; None if it has not started."""
        if self._message is None:
            return None
        blocks = {index: dict(block) for index, block in self._blocks.items()}
        for (index, name), pieces in self._pieces.items():
            text = "".join(pieces)
            if name == "input":
                blocks[index]["input"] = _arguments(text) if text else blocks[index].get("input", {})
            else:
                blocks[index][name] = (optional_text(blocks[index], name) or "") + text
        given = array(self._message, "content")
        return {**self._message, "content": [*given, *(blocks[index] for index in sorted(blocks))]}

    def _delta(self, index: int, delta: dict[str, Any]) -> None:
        block = self._blocks.get(index)
        if block is None:
            raise Fault("a part of a block that has not started").inside("index")
        kind = kind_of(delta)
        if kind == "input_json_delta":
            self._append(index, "input", optional_text(delta, "partial_json"))
        elif kind in _APPENDED:
            name = _APPENDED[kind]
            self._append(index, name, optional_text(delta, name))
        elif kind == "citations_delta":
            block["citations"] = [*array(block, "citations"), delta.get("citation")]

    def _append(self, index: int, name: str, piece: str | None) -> None:
        self._pieces.setdefault((index, name), []).append(piece or "")


def _index(event: dict[str, Any]) -> int:
    index = event.get("index")
    if type(index) is not int or not 0 <= index < _MOST_BLOCKS:
        raise Fault("a small whole number belongs here").inside("index")
    return index


def _arguments(text: str) -> JSON:
    try:
        return parse(text.encode())
    except (Fault, UnicodeEncodeError):
        return text
