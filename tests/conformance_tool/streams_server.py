"""A server on standard streams that is wrong in the way that its argument names; the manifest comes from a file."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any


def say(message: dict[str, Any]) -> None:
    print(json.dumps(message), flush=True)


def answer(request: dict[str, Any]) -> dict[str, Any]:
    used = request["payload"].get("eval_time") or "2026-01-01T00:00:00Z"
    payload: dict[str, Any] = {"eval_time_used": used, "eval_duration_ms": 0, "macro_tools": []}
    return {"type": "intent_response", "id": request["id"], "manglecp": "2026-02-draft", "payload": payload}


def main(way: str, manifest: str) -> None:
    first = json.loads(Path(manifest).read_text())
    if way == "chatty":
        print("starting up", flush=True)
    if way != "shy":
        say(first)
    if way == "broken text":
        print(json.dumps(first)[:50], flush=True)
    for number, line in enumerate(sys.stdin):
        if way == "shy" and not number:
            say(first)
        elif way == "silent":
            time.sleep(600)
        elif way == "gone":
            return
        say(answer(json.loads(line)))
    if way == "last words":
        say({**first, "type": "error", "payload": {"code": "internal_error", "message": "Bye", "recoverable": False}})
    if way == "unhappy end":
        sys.exit(3)


if __name__ == "__main__":
    main(*sys.argv[1:])
