"""Pushes of facts to a source: the time of a push, and until a second process of the store uses it.

    python benchmarks/shared_facts.py [FACTS] [STORE]

One push replaces FACTS facts (default 20,000) of which ten differ; ``base`` is only what the rules derive from the
difference, ``load`` the evaluation of all facts from nothing, with which a push would otherwise begin.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median

from manglecp.intent import Identity
from manglecp.invoke import PUSH_FACTS, PackOptions, PackRuntime, SharedFacts
from manglecp.mangle import Fact
from manglecp.pack import SandboxPolicy
from manglecp.store import open_store

RULES = """
Decl imports(A, B) bound [/string, /string].
Decl reaches(A, B) bound [/string, /string].
reaches(A, B) :- imports(A, B).
reaches(A, C) :- reaches(A, B), imports(B, C).
macro("t", "A tool."). macro_step("t", 1, "look"). mandatory("t") :- intent("go").
"""
ACTIONS = 'from manglecp import action\n\n@action(effects=[])\ndef look() -> str:\n    """Look."""\n    return "x"\n'
SETTINGS = '[facts.code]\npush = true\npredicates = ["imports"]\nmax_facts = 1000000\n'
ROUNDS = 5
WHO = Identity("bench", frozenset({PUSH_FACTS}), "user")


def facts(count: int, shift: int) -> list[dict[str, object]]:
    pairs = [(f"m{number}", f"n{number}") for number in range(count - 10)]
    pairs += [(f"x{shift}.{number}", f"y{number}") for number in range(10)]
    return [{"pred": "imports", "args": list(pair)} for pair in pairs]


async def main(count: int, where: str | None) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name, text in {"rules/a.mg": RULES, "actions.py": ACTIONS, "pack.toml": SETTINGS}.items():
            file = Path(folder, "pack", name)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        options = PackOptions(Path(folder, "pack"), sandbox=SandboxPolicy(degrade=True))
        async with AsyncExitStack() as stack:
            opened = []
            for _ in range(2):
                store = open_store(where or str(Path(folder, "store.db")))
                stack.callback(store.close)
                opened.append(await stack.enter_async_context(PackRuntime.open(options, store)))
            first, second = opened
            assert isinstance(first.facts, SharedFacts)
            await asyncio.to_thread(first.facts.push, "code", facts(count, 0), WHO)
            pushes, lags, bases = [], [], []
            for shift in range(1, ROUNDS + 1):
                content = facts(count, shift)
                began = time.perf_counter()
                await asyncio.to_thread(first.facts.push, "code", content, WHO)
                pushed = time.perf_counter()
                while second.invoker.domain.facts_version != first.invoker.domain.facts_version:
                    await asyncio.sleep(0.002)
                lags.append(time.perf_counter() - pushed)
                pushes.append(pushed - began)
                began = time.perf_counter()
                first.invoker.domain.base.with_facts([Fact("imports", (f"z{shift}", "n"))], [], check=False)
                bases.append(time.perf_counter() - began)
            began = time.perf_counter()
            given = [Fact("imports", (fact["args"][0], fact["args"][1])) for fact in facts(count, 0)]  # type: ignore[index]
            first.domain.program.base(given)
            load = time.perf_counter() - began
    figures = {"push": pushes, "visible elsewhere after": lags, "base": bases, "load": [load]}
    for name, seconds in figures.items():
        print(f"{name:>24}  median {median(seconds) * 1e3:8.1f} ms  max {max(seconds) * 1e3:8.1f} ms")


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 20_000, sys.argv[2] if len(sys.argv) > 2 else None))
