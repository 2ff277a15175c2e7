"""A provider of models on this machine that replies from a script: the Messages API and the Responses API."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, TypeAlias

__all__ = ["Call", "Provider", "provider"]

Call: TypeAlias = tuple[str, dict[str, Any]]
"""The name of a tool and its arguments."""
_USAGE: Final = {"input_tokens": 1, "output_tokens": 1}


class Provider:
    """Replies to each request with the next item of a script: the calls of tools, or the last text."""

    def __init__(self, url: str, script: Sequence[list[Call] | str]) -> None:
        self.url = url
        self.requests: list[dict[str, Any]] = []
        self._script = script

    def reply(self, path: str, request: dict[str, Any]) -> dict[str, Any]:
        item = self._script[len(self.requests)]
        self.requests.append(request)
        render = _response if path.endswith("/responses") else _message
        return render(request["model"], len(self.requests), item)

    @property
    def env(self) -> dict[str, str]:
        """Variables that lead the SDKs here, and to no proxy."""
        keys = {f"{name}_API_KEY": "test" for name in ("ANTHROPIC", "OPENAI")}
        urls = {"ANTHROPIC_BASE_URL": self.url, "OPENAI_BASE_URL": f"{self.url}/v1"}
        return keys | urls | {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1", "OPENAI_AGENTS_DISABLE_TRACING": "1"}

    @property
    def schemas(self) -> list[dict[str, dict[str, Any]]]:
        """The schemas of the tools by name, of each request, with their required members sorted."""
        return [{tool["name"]: _schema(tool) for tool in request["tools"]} for request in self.requests]

    @property
    def results(self) -> list[str]:
        """The results of all calls, as the last request returned them to the model."""
        found = []
        for message in self.requests[-1].get("messages") or self.requests[-1]["input"]:
            if message.get("type") == "function_call_output":
                found.append(_text(message["output"]))
            elif isinstance(message.get("content"), list):
                blocks = [block for block in message["content"] if block["type"] == "tool_result"]
                found += [_text(block["content"]) for block in blocks]
        return found


def _schema(tool: dict[str, Any]) -> dict[str, Any]:
    schema: dict[str, Any] = tool.get("input_schema") or tool["parameters"]
    return {**schema, "required": sorted(schema["required"])}


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def _message(model: str, number: int, item: list[Call] | str) -> dict[str, Any]:
    content: list[dict[str, Any]]
    if isinstance(item, str):
        content = [{"type": "text", "text": item}]
    else:
        content = [
            {"type": "tool_use", "id": f"toolu_{number}_{index}", "name": name, "input": args}
            for index, (name, args) in enumerate(item)
        ]
    stop = "end_turn" if isinstance(item, str) else "tool_use"
    members = {"stop_reason": stop, "stop_sequence": None, "usage": _USAGE, "content": content}
    return {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": model, **members}


def _response(model: str, number: int, item: list[Call] | str) -> dict[str, Any]:
    output: list[dict[str, Any]]
    if isinstance(item, str):
        text = {"type": "output_text", "text": item, "annotations": []}
        output = [{"type": "message", "id": f"msg_{number}", "status": "completed", "role": "assistant"}]
        output[0]["content"] = [text]
    else:
        output = [
            {
                "type": "function_call",
                "id": f"fc_{number}_{index}",
                "call_id": f"call_{number}_{index}",
                "status": "completed",
                "name": name,
                "arguments": json.dumps(args),
            }
            for index, (name, args) in enumerate(item)
        ]
    usage = {**_USAGE, "total_tokens": 2, "input_tokens_details": {"cached_tokens": 0}}
    usage["output_tokens_details"] = {"reasoning_tokens": 0}
    members = {"tools": [], "tool_choice": "auto", "parallel_tool_calls": True, "usage": usage, "output": output}
    return {
        "id": f"resp_{number}",
        "object": "response",
        "created_at": 0,
        "model": model,
        "status": "completed",
    } | members


def _events(message: dict[str, Any]) -> bytes:
    """Return a message of the Messages API as the events of a stream."""
    start = {**message, "content": [], "stop_reason": None}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": start}]
    for index, block in enumerate(message["content"]):
        empty: dict[str, Any]
        if block["type"] == "text":
            empty, delta = {"text": ""}, {"type": "text_delta", "text": block["text"]}
        else:
            empty, delta = {"input": {}}, {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        events.append({"type": "content_block_start", "index": index, "content_block": block | empty})
        events.append({"type": "content_block_delta", "index": index, "delta": delta})
        events.append({"type": "content_block_stop", "index": index})
    end = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    events += [{"type": "message_delta", "delta": end, "usage": _USAGE}, {"type": "message_stop"}]
    return "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events).encode()


@contextmanager
def provider(*script: list[Call] | str) -> Iterator[Provider]:
    """Run a provider for the duration of the block."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            reply = running.reply(self.path.partition("?")[0], request)
            body = _events(reply) if request.get("stream") else json.dumps(reply).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream" if request.get("stream") else "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Write no log."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        running = Provider(f"http://127.0.0.1:{server.server_address[1]}", script)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield running
        finally:
            server.shutdown()
