"""A host with faults on demand: what a call asks for in its input is what happens to it.

Runs as a program of its own, on the standard library alone. ``input_json`` may hold ``fault`` (see :func:`misbehave`),
``seconds`` and ``effect``: a file to which the id of the call is appended *before* the fault, as its effect.
An action ``AID.COUNT.v1`` counts in slot 0. Faults may also strike at start-up: ``FAULT_AT_START`` in the environment.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any


def misbehave(fault: str, seconds: float) -> bytes | None:
    """Commit the fault; bytes that are to be written instead of an answer, or None to answer as usual."""
    match fault:
        case "crash":
            os._exit(7)
        case "leave":
            os._exit(0)
        case "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        case "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "hang":
            time.sleep(60)
        case "deaf":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(60)
        case "slow":
            time.sleep(seconds)
        case "flood":
            while True:
                os.write(1, b"x" * 65_536)
        case "stderr":
            for _ in range(64):
                os.write(2, b"noise\n" * 10_000)
        case "close":
            os.close(1)
            time.sleep(60)
        case "child":
            subprocess.Popen(["sleep", "61"])
            time.sleep(60)
        case "half":
            os.write(1, b'{"ok":true,"status":"O')
            os._exit(3)
        case "noise":
            return b"this is no JSON\n"
        case "binary":
            return b'{"ok":true,"status":"OK","output_json":"\xff\xfe"}\n'
        case "empty":
            return b"\n"
        case "array":
            return b"[1]\n"
        case "oversize":
            return b'{"ok":true,"status":"OK","output_json":"' + b"x" * 1_048_576 + b'"}\n'
        case _:
            return None
    return None


def answer(request: dict[str, Any], wanted: dict[str, Any]) -> bytes:
    """A good answer, or what ``wanted`` says instead."""
    if request["aid"] == "_health" or wanted.get("fault") == "unknown":
        reply: dict[str, Any] = {"ok": False, "error": f"tool not found: {request['aid']}", "status": "INVALID_PICK"}
    elif "reply" in wanted:
        reply = wanted["reply"]
    else:
        slots = request["ds_state"]["slots"]
        changed = {}
        if request["aid"] == "AID.COUNT.v1":
            count = int(slots.get("0", {"content_json": "0"})["content_json"]) + 1
            changed = {"0": {"type": "n", "provenance": "test", "content_json": str(count), "size_bytes": 1}}
        seen = {"pid": os.getpid(), "request": request, "argv": sys.argv[1:]}
        reply = {
            "ok": True,
            "status": "OK",
            "output_json": json.dumps(seen),
            "error": "",
            "ds_state": {"delta": True, "slots": changed, "removed_slots": []},
        }
    if "call_id" in request and "reply" not in wanted:
        reply["call_id"] = request["call_id"]
    line = json.dumps(reply).encode() + b"\n"
    return line * 2 if wanted.get("fault") == "twice" else line


def main() -> None:
    if misbehave(os.environ.get("FAULT_AT_START", ""), 0.0) is None and "--progress" in sys.argv:
        progress = int(sys.argv[sys.argv.index("--progress") + 1])
        os.write(progress, b'{"event":"up"}\nnoise\n')
    if "FAULT_TEXT" in os.environ:
        sys.stderr.write(os.environ["FAULT_TEXT"])
        sys.exit(3)
    for line in sys.stdin.buffer:
        if line == b"\n":
            break
        request = json.loads(line)
        wanted = json.loads(request.get("input_json", "{}"))
        if "effect" in wanted:
            with Path(wanted["effect"]).open("a") as effects:
                effects.write(request["call_id"] + "\n")
        instead = misbehave(wanted.get("fault", ""), wanted.get("seconds", 0.0))
        out = answer(request, wanted) if instead is None else instead
        while out:
            out = out[os.write(1, out) :]
    os._exit(0)


if __name__ == "__main__":
    main()
