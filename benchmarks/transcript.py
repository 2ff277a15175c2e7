"""A long transcript: 10,000 turns from log to verdict.

Budget: 10 s and 300 MB for reading and judging. The same work in three formats: one conversation of 10,000 turns as one
list of messages; the same with one message per line; and 500 conversations of 20 turns as exchanges, where each request
repeats its conversation. Seconds are CPU seconds. Each measurement runs in its own process, because it includes the
peak memory.
"""

from __future__ import annotations

import json
import multiprocessing
import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from _table import peak_kilobytes, print_table

from manglecp.adapters import ingest
from manglecp.harness import judge

TURNS = 10_000
LENGTH = 20
WORDS = [a + b + c for a in "bdfgklmnprst" for b in "aeiou" for c in ("ner", "lation", "rt", "ndexed", "sses")] + [
    "rel-4812",
    "0x7f3a",
]
TOOLS = [
    {
        "name": f"tool{i}",
        "description": "Read something.",
        "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}},
    }
    for i in range(8)
]


def turns(count: int, rnd: random.Random, name: str) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield replies with two calls, and messages with their results of one kilobyte each."""
    for i in range(count):
        calls = [f"toolu_{name}_{i}_{k}" for k in (0, 1)]
        uses = [
            {"type": "tool_use", "id": call, "name": f"tool{k}", "input": {"path": f"src/{i}/{rnd.choice(WORDS)}.py"}}
            for k, call in enumerate(calls)
        ]
        results = [
            {"type": "tool_result", "tool_use_id": call, "content": " ".join(rnd.choices(WORDS, k=140))}
            for call in calls
        ]
        words = {"type": "text", "text": " ".join(rnd.choices(WORDS, k=40))}
        reply = {"type": "message", "role": "assistant", "model": "m-1", "content": [words, *uses]}
        yield {**reply, "stop_reason": "tool_use"}, {"role": "user", "content": results}


def write_logs(folder: Path) -> None:
    rnd = random.Random(1)
    start = {"role": "user", "content": "Have a look at everything."}
    messages = [start, *(message for pair in turns(TURNS, rnd, "a") for message in pair)]
    (folder / "list.json").write_text(json.dumps({"tools": TOOLS, "system": "Be brief.", "messages": messages}))
    (folder / "lines.jsonl").write_text("".join(json.dumps(message) + "\n" for message in messages))
    with (folder / "exchanges.jsonl").open("w") as out:
        for thread in range(TURNS // LENGTH):
            known = [{"role": "user", "content": f"Have a look at part {thread}."}]
            for reply, answer in turns(LENGTH, rnd, f"b{thread}"):
                request = {"model": "m", "system": "Be brief.", "tools": TOOLS, "messages": known}
                out.write(json.dumps({"request": request, "response": reply}) + "\n")
                known = [*known, {"role": "assistant", "content": reply["content"]}, answer]


def check(path: Path) -> None:
    with path.open("rb") as log:
        assert sum(1 for document in ingest(log, "anthropic") if judge(document).result) == TURNS


def measured(path: Path) -> tuple[float, int]:
    """Return CPU seconds and peak memory in MB of a new process."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_measure, (path,))


def _measure(path: Path) -> tuple[float, int]:
    start = time.process_time()
    check(path)
    return time.process_time() - start, peak_kilobytes() >> 10


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_logs(folder)
        rows = []
        for path in sorted(folder.iterdir()):
            seconds, peak = measured(path)
            size = f"{path.stat().st_size / 1e6:,.0f} MB"
            rows.append((path.name, size, f"{seconds:.1f}", "10", f"{peak:,}", "300"))
        print_table((f"{TURNS:,} turns, judged", "log", "CPU seconds", "budget", "peak MB", "budget"), rows)


if __name__ == "__main__":
    main()
