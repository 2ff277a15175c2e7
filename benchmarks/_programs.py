"""The programs that are measured. Deterministic: the same text on every machine."""

from __future__ import annotations

import random
from pathlib import Path

PROGRAMS = Path(__file__).parent / "programs"


def intent_rules() -> str:
    """An agent's request as rules: 127 of them in six layers, with declarations."""
    return (PROGRAMS / "intent_rules.mg").read_text(encoding="utf-8")


def intent_facts() -> str:
    """The 60 facts of one request."""
    return (PROGRAMS / "intent_facts.mg").read_text(encoding="utf-8")


def intent_base(count: int) -> list[str]:
    """Facts a server knows about a code base: symbols, calls between them, files."""
    rnd = random.Random(5)
    symbols = int(count * 0.6)
    files = int(count * 0.08)
    places = max(20, count // 25)
    lines = []
    for i in range(symbols):
        place, kind, line = rnd.randrange(places), "/func" if i % 3 else "/type", rnd.randrange(10000)
        lines.append(f"symbol(/s/{i}, /f/{place}, {kind}, {line}).")
    calls: set[tuple[int, int]] = set()
    while len(calls) < count - symbols - files:
        calls.add((rnd.randrange(symbols), rnd.randrange(symbols)))
    lines += [f"calls(/s/{caller}, /s/{callee})." for caller, callee in sorted(calls)]
    lines += [f'filemeta(/fm/{i}, "lib/pkg{i}/file{i}.go", {rnd.randrange(100000)}).' for i in range(files)]
    return lines
