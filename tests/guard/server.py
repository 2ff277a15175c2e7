"""An MCP server without an SDK, for tests: ``python server.py STATE RECEIVED``.

STATE is a JSON file that is read for every request: ``tools`` (or ``pages`` of tools), ``era``, ``greeting`` (members
of the result of ``initialize`` or ``server/discover``), and ``fails``, whether results are errors. Each line that
arrives is appended to RECEIVED. A result has the ``params`` as this server's parser reads them.
"""

import json
import os
import sys
import threading
import time
from typing import Any


def main(state_path: str, received_path: str) -> None:
    lock = threading.Lock()

    def send(message: object) -> None:
        with lock:
            sys.stdout.write(json.dumps(message) + "\n")
            sys.stdout.flush()

    def respond(message: dict[str, Any], state: dict[str, Any]) -> None:
        method, params = message["method"], message.get("params") or {}
        if method == "initialize" and state.get("era") == "modern":
            error = {"code": -32601, "message": "there are no sessions"}
            send({"jsonrpc": "2.0", "id": message["id"], "error": error})
            return
        result: dict[str, Any] = {}
        if method == "initialize":
            info = {"name": "raw", "version": "1"}
            result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
        if method in ("initialize", "server/discover"):
            result |= state.get("greeting", {})
        elif method == "tools/list":
            pages = state.get("pages") or [state["tools"]]
            page = int(params.get("cursor") or 0)
            result = {"tools": pages[page]} | ({"nextCursor": str(page + 1)} if page + 1 < len(pages) else {})
        elif method == "tools/call":
            args = params.get("arguments") or {}
            if params["name"] == "sleep":
                time.sleep(args["seconds"])
            if params["name"] == "die":
                os._exit(7)
            text = "x" * args["size"] if params["name"] == "big" else json.dumps(params)
            result = {"content": [{"type": "text", "text": text}], "isError": state.get("fails", False)}
        send({"jsonrpc": "2.0", "id": message["id"], "result": result})

    for line in sys.stdin:  # universal newlines, as in the Python SDK
        with open(received_path, "a") as received:  # noqa: PTH123
            received.write(line if line.endswith("\n") else line + "\n")
        with open(state_path) as file:  # noqa: PTH123
            state = json.load(file)
        if state.get("raw"):  # bytes to send before anything else
            with lock:
                sys.stdout.write(state["raw"])
                sys.stdout.flush()
            continue
        try:
            message = json.loads(line)
        except ValueError:
            continue
        for item in message if isinstance(message, list) else [message]:
            if isinstance(item, dict) and "method" in item and "id" in item:
                threading.Thread(target=respond, args=(item, state), daemon=True).start()


if __name__ == "__main__":
    sys.stderr.write("the server has started\n")
    main(sys.argv[1], sys.argv[2])
