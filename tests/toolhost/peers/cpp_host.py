"""A toolhost that behaves as the C++ one does, its faults included, on the standard library alone.

Nothing of ours is used here, so that it can be wrong in its own way. What it does where the contract is silent was
observed on the real program: escaped slashes, raw UTF-8 (also if it is none), nesting up to 32, everything after the
first JSON value ignored, ``ds_state: {}`` on a repeated key, keys that know neither action nor input, failures kept,
no limit on lines, an oversized run that is run on nothing, leases that anybody is issued, reasons in words.

``WRONG`` in the environment names one thing more to do wrong (see :data:`WRONGS`), which a suite has to notice.
"""

import json
import os
import secrets
import sys
import time
from typing import Any

MAX_STDIN = 10 * 1024 * 1024
MAX_DEPTH = 32

TOOLS: dict[str, dict[str, Any]] = {
    "AID.TEST.STATUS.v1": {"side_effects": ["none"], "deterministic": True},
    "AID.FILE.WRITE.v1": {"side_effects": ["filesystem_write"], "deterministic": False},
    "AID.TEST.ECHO.v1": {"side_effects": ["none"], "deterministic": True},
    "AID.TEST.KEEP.v1": {"side_effects": ["none"], "deterministic": True},
    "AID.PROC.SELF_METRICS.v1": {"side_effects": ["process_introspection"], "deterministic": False},
    "AID.TEST.BINARY.v1": {"side_effects": ["none"], "deterministic": True},
}

WRONGS = {
    "newline after a listing": "1-command-line: a listing names every tool, without a newline at its end",
    "noise on stderr": "1-command-line: a listing leaves stderr alone, for a client may read both as one",
    "unknown mode first": "1-command-line: a missing plugin comes before an unknown mode",
    "exit 1 for no request": "2-run: no request",
    "exit 1 for a failed tool": "2-run: a call that fails was still a call",
    "delta in run mode": "2-run: a call that writes a slot answers with all slots",
    "object as output": "2-run: a call that succeeds",
    "no newline": "3-serve: an unknown AID",
    "two answers": "3-serve: a call that succeeds",
    "lines of Unicode": "3-serve: a separator of Unicode is no end of a line",
    "blank is empty": "3-serve: what is no JSON is answered, and the host goes on",
    "goes on after an empty line": "3-serve: an empty line ends it",
    "last line dropped": "3-serve: a last line needs no newline",
    "out of order": "3-serve: a hundred lines at once have a hundred answers, in order",
    "ok is one": "3-serve: a call that succeeds",
    "full state in serve mode": "4-state: an answer says what changed, and an identical slot did not",
    "removed before written": "4-state: a slot that a delta both writes and removes is gone",
    "delta replaces": "4-state: a delta changes what it names",
    "keys forgotten": "5-idempotency: a repeated key is answered from memory",
    "hits not said": "5-idempotency: a repeated key is answered from memory",
    "key before lookup": "5-idempotency: lookup comes before the key",
    "leases used twice": "6-leases: a lease is good for one call",
    "leases for any tool": "6-leases: a lease is good for one call",
    "leases for ever": "6-leases: a lease ends",
    "leases always": "6-leases: without enforcement no lease is asked for",
}
"""What can be done wrong, and a conversation that has to find it."""

WRONG = os.environ.get("WRONG", "")


class Bad(Exception):
    """Text that even json-c does not take."""


def parse(data: bytes) -> Any:
    """As json-c: the first value counts, and ``NaN`` is one; bytes that are no UTF-8 are kept as they are."""
    text = data.decode("utf-8", "surrogateescape").lstrip(" \t\r\n")
    try:
        value, _ = json.JSONDecoder(strict=False).raw_decode(text)
    except (ValueError, RecursionError) as error:
        raise Bad from error
    if value is None or depth(value) > MAX_DEPTH:
        raise Bad
    return cut(value)


def depth(value: Any) -> int:
    """How deep it is nested."""
    if isinstance(value, dict):
        return 1 + max(map(depth, value.values()), default=0)
    return 1 + max(map(depth, value), default=0) if isinstance(value, list) else 0


def cut(value: Any) -> Any:
    """C strings end at the first NUL."""
    if isinstance(value, dict):
        return {name.split("\0")[0]: cut(member) for name, member in value.items()}
    if isinstance(value, list):
        return [cut(member) for member in value]
    return value.split("\0")[0] if isinstance(value, str) else value


def text_of(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).replace("/", "\\/")


def write(answer: Any, end: bytes = b"") -> None:
    data = text_of(answer).encode("utf-8", "surrogateescape") + end
    while data:
        data = data[os.write(1, data) :]


def no(error: str, **members: Any) -> dict[str, Any]:
    return {"ok": False, "error": error, **members}


# ----------------------------------------------------------------------------------------------------- state


def take(document: Any, slots: dict[int, Any]) -> dict[int, Any]:
    """Apply a state as it came; slots by their leading integer, whatever follows."""
    if not isinstance(document, dict):
        return dict(slots)
    came = {
        leading(key): {"type": "", "provenance": "", "content_json": "", "size_bytes": 0, **artifact}
        for key, artifact in (document.get("slots") or {}).items()
        if isinstance(artifact, dict)
    }
    if not document.get("delta") or WRONG == "delta replaces":
        return came
    removed = [leading(slot) for slot in document.get("removed_slots") or []]
    if WRONG == "removed before written":
        return {slot: artifact for slot, artifact in slots.items() if slot not in removed} | came
    return {slot: artifact for slot, artifact in (slots | came).items() if slot not in removed}


def leading(key: Any) -> int:
    digits = ""
    for character in str(key).strip():
        if not character.isdigit():
            break
        digits += character
    return int(digits or "0")


def whole(slots: dict[int, Any]) -> dict[str, Any]:
    return {"slots": {str(slot): artifact for slot, artifact in slots.items()}}


def difference(before: dict[int, Any], after: dict[int, Any]) -> dict[str, Any]:
    return {
        "delta": True,
        "slots": {str(slot): artifact for slot, artifact in after.items() if before.get(slot) != artifact},
        "removed_slots": [slot for slot in before if slot not in after],
    }


# ----------------------------------------------------------------------------------------------------- tools


class Host:
    """One plugin, loaded. Tools write into its slots, and nothing takes that back."""

    def __init__(self) -> None:
        self.slots: dict[int, Any] = {}
        self.count = 0
        self.kept: dict[str, tuple[float, dict[str, Any]]] = {}
        self.leases: dict[str, dict[str, Any]] = {}
        self.counts = {"issued": 0, "consumed": 0, "rejected": 0}
        self.enforced = os.environ.get("MACHINA_LEASE_ENFORCE") in ("1", "true") or WRONG == "leases always"

    def call(self, aid: str, request: Any) -> dict[str, Any]:
        """The tool's result; the members of an answer, without the state."""
        given = request.get("input_json") if isinstance(request, dict) else None
        text = given if isinstance(given, str) else "{}"
        try:
            inputs = parse(text.encode("utf-8", "surrogateescape"))
        except Bad:
            return result("TOOL_ERROR", "", "bad input")
        if aid == "AID.TEST.ECHO.v1":
            return result("OK", text_of({"echo": inputs}))
        if aid == "AID.TEST.BINARY.v1":
            return result("OK", '"\udcff\udcfe"')
        if aid == "AID.TEST.KEEP.v1":
            content = str(inputs.get("text", ""))
            slot = int(inputs.get("slot", 0))
            self.slots[slot] = {"type": "text", "provenance": aid, "content_json": content, "size_bytes": len(content)}
            return result("TOOL_ERROR", "", "after writing") if inputs.get("fail") else result("OK", "{}")
        if aid == "AID.TEST.STATUS.v1":
            return result(str(inputs.get("status", "OK")), "", str(inputs.get("error", "")))
        self.count += 1
        return result("OK", text_of({"count": self.count, "request": sorted(request)}))

    # ----------------------------------------------------------------------------------------------- serve

    def serve(self, line: bytes) -> dict[str, Any]:
        """The answer to one line, in the order of checks."""
        try:
            request = parse(line)
        except Bad:
            return no("invalid JSON")
        aid = request.get("aid") if isinstance(request, dict) else None
        if not isinstance(aid, str) or not aid:
            return no("missing aid")
        if aid == "_lease.issue":
            return self.issue(request)
        if aid == "_lease.gc":
            return self.collect()
        key = request.get("idempotency_key")
        key = key if isinstance(key, str) and key and WRONG != "keys forgotten" else None
        if aid not in TOOLS and not (WRONG == "key before lookup" and key in self.kept):
            return no(f"tool not found: {aid}")
        if key in self.kept and self.kept[key][0] > time.time():
            hit = {} if WRONG == "hits not said" else {"idempotent_hit": True}
            return {"ok": True, **self.kept[key][1], **hit, "ds_state": {}}
        refused = self.refusal(aid, request)
        if refused is not None:
            return refused
        self.slots = take(request.get("ds_state"), self.slots)
        before = dict(self.slots)
        found = self.call(aid, request)
        if key is not None:
            self.kept[key] = (time.time() + 60, found)
        after = whole(self.slots) if WRONG == "full state in serve mode" else difference(before, self.slots)
        return {"ok": 1 if WRONG == "ok is one" else True, **found, "ds_state": after}

    # ---------------------------------------------------------------------------------------------- leases

    def issue(self, request: dict[str, Any]) -> dict[str, Any]:
        tool, tier, ttl = request.get("tool_aid", ""), request.get("tier"), request.get("ttl_ms")
        tier = tier if type(tier) is int else 0
        ttl = min(max(ttl if type(ttl) is int else 10_000, 1_000), 300_000)
        token = "lease_" + secrets.token_hex(16)
        self.leases[token] = {"tool": tool, "until": time.time() + ttl / 1000, "used": False}
        self.counts["issued"] += 1
        return {"ok": True, "token_id": token, "tool_aid": tool, "tier": tier}

    def collect(self) -> dict[str, Any]:
        self.leases = {
            token: lease for token, lease in self.leases.items() if not lease["used"] and lease["until"] > time.time()
        }
        return {"ok": True, "active": len(self.leases), **self.counts}

    def refusal(self, aid: str, request: dict[str, Any]) -> dict[str, Any] | None:
        tier = tier_of(aid)
        if not self.enforced or tier == 0:
            return None
        token = request.get("_lease_token")
        if not isinstance(token, str) or not token:
            return no("lease_required", tier=tier, aid=aid)
        lease = self.leases.get(token)
        reason = ""
        if lease is None:
            reason = "lease not found"
        elif lease["until"] <= time.time() and WRONG != "leases for ever":
            del self.leases[token]
            reason = "lease expired"
        elif lease["used"] and WRONG != "leases used twice":
            reason = "lease already consumed"
        elif lease["tool"] not in ("*", aid) and WRONG != "leases for any tool":
            reason = f"lease tool mismatch: expected={lease['tool']} got={aid}"
        else:
            lease["used"] = True
            self.counts["consumed"] += 1
            return None
        self.counts["rejected"] += 1
        return no("lease_rejected", reason=reason)


def tier_of(aid: str) -> int:
    """The first side effect that says something, as a part of a word."""
    for effect in TOOLS[aid]["side_effects"]:
        if any(word in effect for word in ("exec", "network", "process")):
            return 2
        if any(word in effect for word in ("write", "append", "delete", "create")):
            return 1
    return 0


def result(status: str, output: str, error: str = "") -> dict[str, Any]:
    return {"status": status, "output_json": output, "error": error}


# ----------------------------------------------------------------------------------------------------- modes


def main(argv: list[str]) -> int:
    if len(argv) < 2:
        sys.stderr.write("usage: toolhost --list|--run|--serve <plugin> [aid]\n")
        return 2
    mode, plugin, *rest = argv
    known = ("--list", "--run", "--serve")
    if not os.path.exists(plugin) and not (WRONG == "unknown mode first" and mode not in known):  # noqa: PTH110
        write(no(f"dlopen failed: {plugin}"))
        return 3
    if mode == "--list":
        return listing()
    if mode == "--run":
        return run(rest)
    if mode == "--serve":
        return serve()
    write(no(f"unknown mode: {mode}"))
    return 2


def listing() -> int:
    if WRONG == "noise on stderr":
        sys.stderr.write("loading\n")
    tools = [
        {"aid": aid, "name": aid.split(".")[2].lower(), "tags": [], "replay_inputs": [], **said}
        for aid, said in TOOLS.items()
    ]
    write({"ok": True, "tools": tools}, b"\n" if WRONG == "newline after a listing" else b"")
    return 0


def run(rest: list[str]) -> int:
    if not rest:
        write(no("missing aid"))
        return 2
    if rest[0] not in TOOLS:
        write(no(f"tool not found in plugin: {rest[0]}"))
        return 4
    data = sys.stdin.buffer.read()
    try:
        request = {"error": "too large"} if len(data) > MAX_STDIN else parse(data)
    except Bad:
        write(no("invalid JSON request on stdin"))
        return 1 if WRONG == "exit 1 for no request" else 5
    host = Host()
    state = request.get("ds_state") if isinstance(request, dict) else None
    host.slots = take({**state, "delta": False} if isinstance(state, dict) else None, {})
    before = dict(host.slots)
    found = host.call(rest[0], request if isinstance(request, dict) else {})
    after = difference(before, host.slots) if WRONG == "delta in run mode" else whole(host.slots)
    if WRONG == "object as output":
        found["output_json"] = json.loads(found["output_json"] or "{}")
    write({"ok": True, **found, "ds_state": after})
    return 1 if WRONG == "exit 1 for a failed tool" and found["status"] != "OK" else 0


def serve() -> int:
    host = Host()
    waiting: list[dict[str, Any]] = []
    for line in lines():
        blank = WRONG == "blank is empty" and not line.strip()
        if (not line or blank) and WRONG != "goes on after an empty line":
            break
        answer = host.serve(line)
        if WRONG == "out of order":  # every second answer overtakes the one before it
            waiting.append(answer)
            if len(waiting) == 2:
                write(waiting.pop(), b"\n")
                write(waiting.pop(), b"\n")
            continue
        write(answer, b"" if WRONG == "no newline" else b"\n")
        if WRONG == "two answers":
            write(answer, b"\n")
    return 0


def lines() -> Any:
    """The lines of the input without their newlines, one that is not finished included."""
    for line in sys.stdin.buffer:
        if WRONG == "last line dropped" and not line.endswith(b"\n"):
            return
        if WRONG == "lines of Unicode":
            yield from (
                part.encode() for part in line.decode("utf-8", "replace").removesuffix("\n").splitlines() or [""]
            )
        else:
            yield line.removesuffix(b"\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
