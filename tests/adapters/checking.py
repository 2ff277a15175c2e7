"""A log, read and judged."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from manglecp.adapters import ingest
from manglecp.harness.judgement import judge

LOGS = Path(__file__).parent / "logs"
MODEL = "claude-sonnet-4-5-20250929"

Document = dict[str, Any]


def log(name: str) -> bytes:
    return (LOGS / name).read_bytes()


def lines(records: Iterable[object]) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def turns(data: bytes, source: str = "anthropic", **options: Any) -> list[Document]:
    return list(ingest(data, source, **options))


def classes(document: Mapping[str, Any]) -> tuple[str, ...]:
    return judge(document).failure_classes


def verdicts(data: bytes, source: str = "anthropic", **options: Any) -> list[tuple[str, ...]]:
    return [classes(document) for document in turns(data, source, **options)]


def without_places(documents: Iterable[Document]) -> list[Document]:
    """Documents of equal turns are equal, but for the lines that they come from."""
    return [{**document, "turn": document["turn"]["number"]} for document in documents]


def rows(document: Mapping[str, Any], member: str) -> dict[str, Document]:
    """Rows of the evidence by their call."""
    return {row["toolCallId"]: row for row in document["evidence"][member]}


# --- a conversation, made of its parts -------------------------------------------------------------------------------


def text(words: str) -> Document:
    return {"type": "text", "text": words}


def tool_use(call: str, name: str = "read", **more: Any) -> Document:
    return {"type": "tool_use", "id": call, "name": name, "input": {"path": "a.py"}, **more}


def tool_result(call: str, content: Any = "fine", **more: Any) -> Document:
    return {"type": "tool_result", "tool_use_id": call, "content": content, **more}


def message(*content: Document, stop: str | None = "tool_use") -> Document:
    return {"type": "message", "role": "assistant", "model": MODEL, "content": list(content), "stop_reason": stop}


def exchanges(*steps: Any, first: str = "Have a look.", **request: Any) -> list[Document]:
    """Replies and the contents of the user messages between them, as requests with their responses."""
    messages: list[Document] = [{"role": "user", "content": first}]
    records = []
    for step in steps:
        if isinstance(step, dict):
            records.append({"request": {"model": "m", "messages": list(messages), **request}, "response": step})
            messages.append({"role": "assistant", "content": list(step["content"])})
        else:
            messages.append({"role": "user", "content": step})
    if not isinstance(steps[-1], dict):
        records.append({"request": {"model": "m", "messages": messages, **request}})
    return records
