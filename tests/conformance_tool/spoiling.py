"""A server with one flaw: the real application, and something in between that changes what it hears or says."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from manglecp.server.app import App

Message = dict[str, Any]


@dataclass(frozen=True)
class Flaw:
    heard: Callable[[bytes], bytes] | None = None
    """What the server hears instead of what the client says."""
    said: Callable[[Message | None, Message], Message | list[Message] | None] | None = None
    """What the client hears instead: the request if it is known, and the answer. None: nothing."""
    http: Callable[[int, dict[str, str], bytes], tuple[int, dict[str, str], bytes]] | None = None
    binary: bool = False
    token: str | None = None
    """The token by which every request with a credential is authenticated."""


class Spoiled:
    def __init__(self, app: App, flaw: Flaw | None) -> None:
        self._app = app
        self._flaw = flaw or Flaw()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "websocket":
            await self._websocket(scope, receive, send)
        elif self._flaw == Flaw():
            await self._app(scope, receive, send)
        else:
            await self._http(scope, receive, send)

    async def _http(self, scope: Any, receive: Any, send: Any) -> None:
        flaw, body, more = self._flaw, b"", True
        while more:
            event = await receive()
            body, more = body + event.get("body", b""), event.get("more_body", False)
        heard = flaw.heard(body) if flaw.heard is not None and body else body
        told: dict[str, Any] = {"status": 0, "headers": {}, "body": b""}
        events = [{"type": "http.request", "body": heard, "more_body": False}]

        async def hear() -> Any:
            return events.pop() if events else await receive()

        async def say(event: Any) -> None:
            if event["type"] == "http.response.start":
                told["status"] = event["status"]
                told["headers"] = {name.decode(): value.decode() for name, value in event["headers"]}
            else:
                told["body"] += event.get("body", b"")

        headers = [one for one in scope["headers"] if one[0] != b"content-length"]
        if flaw.token is not None and any(name == b"authorization" for name, _ in headers):
            headers = [one for one in headers if one[0] != b"authorization"]
            headers.append((b"authorization", f"Bearer {flaw.token}".encode()))
        headers.append((b"content-length", b"%d" % len(heard)))
        await self._app({**scope, "headers": headers}, hear, say)
        status, names, data = told["status"], told["headers"], told["body"]
        if flaw.said is not None and data.startswith(b"{"):
            changed = flaw.said(_parsed(body), json.loads(data))
            if isinstance(changed, dict):
                data = json.dumps(changed).encode()
                if json.loads(told["body"]).get("type") == "error" and changed.get("type") != "error":
                    status = 200
        if flaw.http is not None:
            status, names, data = flaw.http(status, names, data)
        names["content-length"] = str(len(data))
        encoded = [(name.encode(), value.encode()) for name, value in names.items()]
        await send({"type": "http.response.start", "status": status, "headers": encoded})
        await send({"type": "http.response.body", "body": b"" if status == 304 else data})

    async def _websocket(self, scope: Any, receive: Any, send: Any) -> None:
        flaw = self._flaw
        requests: dict[Any, Message] = {}

        async def hear() -> Any:
            event = await receive()
            if event["type"] == "websocket.receive" and event.get("text") is not None:
                said = event["text"].encode()
                request = _parsed(said)
                if request is not None and isinstance(request.get("id"), str):
                    requests[request["id"]] = request
                if flaw.heard is not None:
                    event = {**event, "text": flaw.heard(said).decode()}
            return event

        async def say(event: Any) -> None:
            if event["type"] != "websocket.send" or "text" not in event:
                await send(event)
                return
            answer = json.loads(event["text"])
            changed = answer if flaw.said is None else flaw.said(requests.get(answer["id"]), answer)
            for one in changed if isinstance(changed, list) else [changed] if changed is not None else []:
                text = json.dumps(one)
                await send({"type": "websocket.send", **({"bytes": text.encode()} if flaw.binary else {"text": text})})

        await self._app(scope, hear, say)


def _parsed(data: bytes) -> Message | None:
    try:
        found = json.loads(data)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
