"""The overhead of an invocation, without the time in its actions: wall time on a shared machine, the median of many.

The tool is a chain of three steps, each with the result of the previous one as input; the store is a file, the host a
warm process. The actions return at once, so the total is the overhead. The first table has its parts:

    checks      look up the offer in the store, check its validity, the arguments and the approval
    arguments   build, validate and hash the input of each step
    dispatch    execute each call under a lease, and validate its result
    harness     open the turn, judge each request, close the join
    rules       evaluate the rules about the run, if the pack has any
    response    result, delta, events and suggestions, redacted
    ledger      write, hash and commit the entry with the witness
    rest        tasks, threads and the event loop

For comparison, the client of the MCP SDK calls the same three functions in a stdio server of the SDK (extra ``mcp``),
without checks, leases, turns, rules or a ledger. ``undisturbed`` is the least median of twenty runs in a row, ``CPU``
the time of this process without hosts, all threads, and ``KB`` the growth of the store for each run. The
instrumentation of the parts costs time, so the total is measured without it.

The second table has chains of three effects: admission, three steps with a gate and journal records before and after,
and the end of the run. ``journal.py`` measures the journal alone, ``store.py`` a store with a million offers. The third
table has long chains: the cost of a step must not grow with the number of steps before it.

A figure outside of its budget is marked; a slow machine does not fail the benchmark.
"""

from __future__ import annotations

import asyncio
import gc
import importlib.util
import os
import sqlite3
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from _postgres import postgres
from _table import print_table

from manglecp.intent import Domain, Identity, OfferService
from manglecp.invoke import Invoker, executor
from manglecp.invoke.gate import Turn, Turns
from manglecp.invoke.journal import ReadJournal
from manglecp.invoke.run_driver import ResponseBuilder
from manglecp.invoke.run_rules import RunRules
from manglecp.pack import read_pack
from manglecp.store import open_store
from manglecp.store.database import Synchronous
from manglecp.toolhost import Dispatcher
from manglecp.toolhost.dispatch.catalogue import Listing, list_plugin
from manglecp.toolhost.dispatch.dispatcher import ServedPlugin
from manglecp.toolhost.dispatch.launch import HostCommand
from manglecp.wire.messages import Intent, IntentPayload, IntentRequest, InvokePayload, InvokeRequest, InvokeResult

ALLOWED: Final = 3.0
RUNS: Final = 600
WARM: Final = 50
ME: Final = Identity("bench", frozenset(), "local", auto_confirm_effects=("network",))

ACTIONS: Final = '''
from manglecp import action


@action(effects=["none"])
def look(x: int) -> dict[str, int]:
    """The next number."""
    return {"x": x + 1}


@action(effects=["network"], egress=["api.test:443"])
def put(x: int) -> dict[str, int]:
    """The same, as if it changed something."""
    return {"x": x + 1}
'''
ABOUT_RUNS: Final = """
extract("look", "x", "/x").
summary("The number was found.") :- ran("chain").
"""
MCP_SERVER: Final = '''
from mcp.server import MCPServer

server = MCPServer("benchmark")


@server.tool()
def look(x: int) -> dict[str, int]:
    """The next number."""
    return {"x": x + 1}


server.run()
'''


# --- a pack and its server ------------------------------------------------------------------------------------------


def write_pack(folder: Path, action: str, steps: int, more: str = "") -> Path:
    """Write a pack with one tool: a chain of calls of one action, each with the result of the previous one."""
    rules = ['macro("chain", "A chain.").', 'mandatory("chain") :- intent("go").', 'arg_from("chain", 1, "x", "x").']
    rules += [f'macro_step("chain", {number}, "{action}").' for number in range(1, steps + 1)]
    rules += [f'arg_step("chain", {number}, "x", {number - 1}, "/x").' for number in range(2, steps + 1)]
    (folder / "rules" / "domain").mkdir(parents=True)
    (folder / "rules" / "domain" / "chain.mg").write_text("\n".join([*rules, more]))
    (folder / "actions.py").write_text(ACTIONS)
    return folder


@asynccontextmanager
async def serving(
    folder: Path, where: str | Path, synchronous: Synchronous = "normal", point: Callable[[str], None] = lambda _: None
) -> AsyncIterator[tuple[Invoker, InvokeRequest]]:
    """Yield the invoker of a pack, and the request that invokes its tool."""
    pack = read_pack(folder)
    listing = list_plugin(f"{pack.folder}/actions.py", os.environ, sandbox="none")
    assert isinstance(listing, Listing), listing
    command = listing.command(os.environ, sandbox="none")
    assert isinstance(command, HostCommand), command
    store = open_store(where, synchronous=synchronous)
    async with (
        Dispatcher([ServedPlugin(listing.catalogue, command)], size=1) as dispatcher,
        Invoker(
            OfferService(Domain.load(pack), store),
            store,
            dispatcher,
            point=point,
        ) as invoker,
    ):
        evaluated = await invoker.offers.evaluate(
            IntentRequest(id="i", payload=IntentPayload(intent=Intent(name="go"))), ME
        )
        (tool,) = (tool for tool in evaluated.payload.macro_tools if tool.name == "chain")
        yield invoker, InvokeRequest(id="v", payload=InvokePayload(macro_id=tool.macro_id, args={"x": 1}))


async def invoked(invoker: Invoker, request: InvokeRequest, times: int) -> list[float]:
    """Return the milliseconds of each invocation."""
    took = []
    for _ in range(times):
        start = time.perf_counter()
        answer = await invoker.invoke(request, ME)
        took.append((time.perf_counter() - start) * 1_000)
        assert isinstance(answer.payload, InvokeResult), answer
    return took


def undisturbed(took: list[float], together: int = 20) -> float:
    return min(statistics.median(took[at : at + together]) for at in range(0, len(took), together))


# --- by part --------------------------------------------------------------------------------------------------------

PARTS: Final[dict[str, list[tuple[Any, str]]]] = {
    "arguments": [(executor, "build_call")],
    "dispatch": [(executor.RunExecutor, "_dispatch")],
    "harness": [
        (Turns, "__init__"),
        (Turns, "open"),
        *((Turn, name) for name in ("admit", "request", "record_outcomes", "finish")),
    ],
    "rules": [(RunRules, name) for name in ("__init__", "skips", "denied")],
    "after": [(RunRules, "after")],
    "response": [(ResponseBuilder, "build")],
    "ledger": [(ReadJournal, "record_end")],
}


@contextmanager
def by_part() -> Iterator[dict[str, float]]:
    """Yield the seconds in each part since the dictionary was last cleared."""
    spent: dict[str, float] = defaultdict(float)

    def watched(part: str, work: Callable[..., Any]) -> Callable[..., Any]:
        def run(*given: Any, **named: Any) -> Any:
            start = time.perf_counter()
            try:
                return work(*given, **named)
            finally:
                spent[part] += time.perf_counter() - start

        async def wait(*given: Any, **named: Any) -> Any:
            start = time.perf_counter()
            try:
                return await work(*given, **named)
            finally:
                spent[part] += time.perf_counter() - start

        return wait if asyncio.iscoroutinefunction(work) else run

    with ExitStack() as stack:
        for part, places in PARTS.items():
            for holder, name in places:
                stack.enter_context(patch.object(holder, name, watched(part, getattr(holder, name))))
        yield spent


async def parts_of(folder: Path) -> dict[str, float]:
    """Return the medians of each part, of the total and of the CPU time, in milliseconds."""
    took: dict[str, list[float]] = defaultdict(list)
    begun = [0.0]
    with by_part() as spent:

        def point(name: str) -> None:
            if name == "accepted":
                spent["checks"] = time.perf_counter() - begun[0]

        async with serving(folder, folder / "parts.sqlite3", point=point) as (invoker, request):
            await invoked(invoker, request, WARM)
            for _ in range(RUNS):
                spent.clear()
                begun[0] = time.perf_counter()
                await invoker.invoke(request, ME)
                whole = time.perf_counter() - begun[0]
                spent["response"] -= spent["after"]  # rules are evaluated while the response is built
                spent["rules"] += spent.pop("after")
                spent["rest"] = whole - sum(spent.values())
                for part, seconds in spent.items():
                    took[part].append(seconds * 1_000)
    return {part: statistics.median(times) for part, times in took.items()}


async def whole_of(folder: Path, where: str | Path, synchronous: Synchronous = "normal") -> dict[str, float]:
    """Return the same without instrumentation: the median, the least median of twenty, and the CPU time."""
    async with serving(folder, where, synchronous) as (invoker, request):
        await invoked(invoker, request, WARM)
        gc.collect()
        kept, before = size_of(where), time.process_time()
        took = await invoked(invoker, request, RUNS)
        cpu = (time.process_time() - before) * 1_000 / RUNS
        grown = (size_of(where) - kept) / 1_000 / RUNS
    return {"whole": statistics.median(took), "undisturbed": undisturbed(took), "CPU": cpu, "KB": grown}


def size_of(where: str | Path) -> int:
    """Return the bytes of a database file with its write-ahead log; 0 if the store is not a file."""
    if isinstance(where, str):
        return 0
    with closing(sqlite3.connect(where)) as file:
        pages, size = (file.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size"))
    return int(pages * size)


async def mcp_sdk(folder: Path) -> dict[str, float] | None:
    """Measure three sequential calls, each with the result of the previous one."""
    if importlib.util.find_spec("mcp") is None:
        return None
    from mcp import Client, StdioServerParameters, stdio_client

    program = folder / "server.py"
    program.write_text(MCP_SERVER)
    paths = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    server = StdioServerParameters(command=sys.executable, args=[str(program)], env=paths)
    took = []
    with (folder / "log").open("w") as log:
        async with Client(stdio_client(server, errlog=log)) as client:
            for number in range(WARM + RUNS):
                if number == WARM:
                    before = time.process_time()
                start = time.perf_counter()
                x = 1
                for _ in range(3):
                    answer = await client.call_tool("look", {"x": x})
                    assert answer.structured_content is not None
                    x = answer.structured_content["x"]
                took.append((time.perf_counter() - start) * 1_000)
            cpu = (time.process_time() - before) * 1_000 / RUNS
    took = took[WARM:]
    return {"whole": statistics.median(took), "undisturbed": undisturbed(took), "CPU": cpu}


# --- tables ---------------------------------------------------------------------------------------------------------


async def reads(folder: Path) -> None:
    silent = write_pack(folder / "silent", "look", 3)
    telling = write_pack(folder / "telling", "look", 3, ABOUT_RUNS)
    found = [await parts_of(silent), await parts_of(telling)]
    whole = [await whole_of(silent, silent / "s.sqlite3"), await whole_of(telling, telling / "s.sqlite3")]
    full = await whole_of(silent, silent / "full.sqlite3", "full")
    peer = await mcp_sdk(folder)
    rows = []
    for part in ("checks", "arguments", "dispatch", "harness", "rules", "response", "ledger", "rest"):
        rows.append((part, *(f"{one.get(part, 0.0):.3f}" for one in found), "", "", "", ""))
    for name in ("whole", "undisturbed", "CPU"):
        missed = name == "whole" and whole[0][name] > ALLOWED
        rows.append(
            (
                name,
                *(f"{one[name]:.3f}" for one in (*whole, full)),
                f"{ALLOWED:.1f}" if name == "whole" else "",
                "MISSED" if missed else "",
                "not installed" if peer is None else f"{peer[name]:.3f}",
            )
        )
    rows.append(("KB", *(f"{one['KB']:.1f}" for one in (*whole, full)), "", "", ""))
    print_table(("ms (median), 3 reads", "no rules", "with rules", "full", "budget", "", "MCP SDK"), rows)


async def effects(folder: Path, url: str | None) -> None:
    pack = write_pack(folder / "effects", "put", 3)
    rows = []
    for name, where in (("SQLite", None), ("PostgreSQL", url)):
        for synchronous in ("normal", "full"):
            title = f"{name}, {synchronous}"
            if name == "PostgreSQL" and url is None:
                rows.append((title, *["not installed"] * 3))
                continue
            place = where or pack / f"{synchronous}.sqlite3"
            figures = await whole_of(pack, place, synchronous)
            rows.append((title, *(f"{figures[part]:.3f}" for part in ("whole", "undisturbed", "CPU"))))
    print_table(("ms (median), 3 effects", "total", "undisturbed", "CPU"), rows)


async def long_chains(folder: Path) -> None:
    rows = []
    for steps in (3, 12, 48, 192):
        pack = write_pack(folder / f"long{steps}", "look", steps)
        async with serving(pack, pack / "s.sqlite3") as (invoker, request):
            await invoked(invoker, request, 3)
            took = statistics.median(await invoked(invoker, request, 600 // steps))
        rows.append((f"{steps} reads", f"{took:.3f}", f"{took / steps:.3f}"))
    print_table(("ms (median)", "total", "each step"), rows)


async def main() -> None:
    with tempfile.TemporaryDirectory() as name, postgres() as url:
        folder = Path(name)
        await reads(folder)
        print()
        await effects(folder, url)
        print()
        await long_chains(folder)


if __name__ == "__main__":
    asyncio.run(main())
