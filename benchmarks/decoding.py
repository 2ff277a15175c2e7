"""Decode and validate a request of 10,000 facts.

Five predicates with strings, numbers, fractions, names and booleans; a third of the facts are temporal, each at another
time. Budget: 40 ms in total. For comparison, the standard library, msgspec, and msgspec with typed structs only decode;
the last is the minimum for a validating server. A further row has the same request with one invalid fact.
"""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec
from _table import best, print_table

from manglecp.mangle import Program, Source
from manglecp.wire import Profile, WireError, decode, receive
from manglecp.wire.messages import IntentRequest

FACTS: Final = 10_000
MOST_BYTES: Final = 1 << 24
DECLARATIONS: Final = """
Decl console_event(SessionId, Level, Message, Timestamp) temporal descr [direction("input")]
    bound [/string, /string, /string, /number].
Decl network_request(Id, Url, Status, Seconds) temporal descr [direction("input")]
    bound [/string, /string, /number, /float64].
Decl log_line(Service, Text) temporal descr [direction("both")] bound [/string, /string].
Decl build(Service, Number, Outcome) descr [direction("input")]
    bound [/string, /number, fn:Union(fn:Singleton(/ok), fn:Singleton(/failed))].
Decl flag(Name, On) descr [direction("input")]
    bound [/string, fn:Union(fn:Singleton(/true), fn:Singleton(/false))].
"""


class When(msgspec.Struct):
    at: str


class TypedFact(msgspec.Struct):
    pred: str
    args: list[str | int | float | bool]
    t: When | None = None


class TypedPayload(msgspec.Struct):
    facts: list[TypedFact]


class TypedRequest(msgspec.Struct):
    payload: TypedPayload


def facts(chance: random.Random) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for number in range(0, FACTS, 5):
        line = f"TypeError: x is undefined at line {chance.randrange(5_000)}"
        level = chance.choice(["error", "warn", "info"])
        request = [f"r{number}", f"https://example.com/api/{chance.randrange(900)}", chance.choice([200, 404, 500])]
        found += [
            {"pred": "console_event", "args": [f"s{chance.randrange(50)}", level, line, 1_772_442_840_000 + number]},
            {"pred": "network_request", "args": [*request, chance.random()]},
            {"pred": "log_line", "args": ["payments", f"message number {number} with some text"]},
            {"pred": "build", "args": ["api", number, chance.choice(["/ok", "/failed"])]},
            {"pred": "flag", "args": [f"flag {number}", chance.random() < 0.5]},
        ]
    start = datetime(2026, 3, 2, 9, tzinfo=UTC)
    temporal = [fact for fact in found if fact["pred"] in ("console_event", "network_request", "log_line")]
    for fact in chance.sample(temporal, FACTS // 3):
        instant = start + timedelta(milliseconds=chance.randrange(10**7))
        fact["t"] = {"at": instant.isoformat(timespec="milliseconds").replace("+00:00", "Z")}
    return found


def message(content: list[dict[str, Any]]) -> bytes:
    payload = {"intent": {"name": "observe"}, "facts": content}
    request = {"type": "intent_request", "id": "r-1", "manglecp": "2026-02-draft", "payload": payload}
    return json.dumps(request).encode()


def main() -> None:
    profile = Profile.of(Program.load([Source("schema.mg", DECLARATIONS)]).predicates)
    content = facts(random.Random(1))
    data = message(content)
    wrong = message([*content[:-1], {"pred": "flags", "args": []}])
    typed = msgspec.json.Decoder(TypedRequest)

    def whole(request: bytes) -> int:
        received = receive(request, MOST_BYTES)
        assert isinstance(received, IntentRequest)
        return len(profile.read(received.payload.facts, 0, limit=FACTS))

    def refused() -> None:
        try:
            whole(wrong)
        except WireError:
            return
        raise AssertionError("an invalid fact was accepted")

    assert whole(data) == FACTS
    decoded = json.loads(data)["payload"]["facts"]
    measured = [
        ("json.loads", "", lambda: json.loads(data)),
        ("msgspec, plain", "", lambda: msgspec.json.decode(data)),
        ("msgspec, typed", "", lambda: typed.decode(data)),
        ("decode, keys checked", "", lambda: decode(data)),
        ("validate decoded facts", "", lambda: profile.read(decoded, 0)),
        ("bytes to validated facts", "40.0", lambda: whole(data)),
        ("bytes to an error (one invalid fact)", "", refused),
    ]
    rows = [(name, f"{best(run, 9) * 1_000:.1f}", budget) for name, budget, run in measured]
    print(f"{FACTS:,} facts, {len(data):,} bytes")
    print_table(("measurement", "CPU ms", "budget"), rows)


if __name__ == "__main__":
    main()
