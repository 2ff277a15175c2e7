"""A server on standard streams, for tests: what it does is its first argument."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

EXAMPLE = Path(__file__).parent.parent / "wire" / "examples" / "companion-5.1.Manifest.json"
TOOL = {
    "macro_id": "m-t",
    "name": "t",
    "description": "Does t.",
    "disclosure_level": "full",
    "input_schema": {"type": "object"},
    "safety": {"requires_user_confirmation": False, "side_effects": ["none"]},
}


def say(type_: str, id_: str | None, payload: dict[str, Any]) -> None:
    message = {"type": type_, "id": id_, "manglecp": "2026-02-draft", "payload": payload}
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def manifest() -> None:
    payload = json.loads(EXAMPLE.read_text())["payload"]
    payload["auth"] = {"required": False}
    payload["facts_profile"]["predicates"] = []
    payload["intents"] = []
    payload["server_version"] = str(os.getpid())
    say("manifest", None, payload)


def main(what: str) -> None:
    if what == "die":
        sys.stderr.write("no such pack\n")
        sys.exit(3)
    if what == "noise":
        print("Welcome!", flush=True)
    if what == "long":
        sys.stdout.write(" " * 200_000 + "\n")
    sys.stderr.write("x" * 500_000 + "the end\n")
    sys.stderr.flush()
    manifest()
    if what == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if what == "asked to go":
        signal.signal(signal.SIGTERM, lambda *_: (Path(os.environ["MARK"]).write_text("went"), os._exit(0)))
    for line in sys.stdin:
        message = json.loads(line)
        if message["type"] == "cancel":
            say("error", message["payload"]["request_id"], {"code": "cancelled", "message": "", "recoverable": False})
        elif message["type"] == "invoke_request" and what == "crash":
            os._exit(1)
        elif message["type"] == "invoke_request":
            say("progress", message["id"], {"status": "started"})
            say("invoke_response", message["id"], {"result": {"env": os.environ.get("MARK", "")}})
        else:
            say("intent_response", message["id"], {"eval_time_used": "2026-03-02T09:20:00Z", "macro_tools": [TOOL]})
    if what in ("stubborn", "asked to go"):
        time.sleep(600)
    if what == "talkative":
        for _ in range(50):
            say("invoke_response", "pending", {"result": {"text": "y" * 20_000}})
    if what == "last words":
        Path(os.environ["MARK"]).write_text("ended by itself")


if __name__ == "__main__":
    main(sys.argv[1])
