"""Load facts in bulk: read fact files, and prepare a base of a million facts.

Budgets: 300,000 facts a second from CSV of short strings; a million facts over 20 predicates prepared in 10 s from CSV
or tuples and in 20 s from Mangle text, below 1 GB. Seconds are CPU seconds, of all threads. Each measurement runs in
its own process, because it includes the peak memory.
"""

from __future__ import annotations

import json
import multiprocessing
import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from _table import print_table

from manglecp.mangle import Fact, Program, Source
from manglecp.pack.factfiles import FactFile, read_facts

STRINGS = 300_000
MILLION = 1_000_000
PREDICATES = 20
DECLS = "Decl strings(A, B, C) bound [/string, /string, /string].\n" + "".join(
    f"Decl p{i}(Item, Group, Count) bound [/string, /string, /number].\n" for i in range(PREDICATES)
)


def program() -> Program:
    return Program.load([Source("schema.mg", DECLS)])


def rows(count: int) -> Iterator[tuple[str, str, int]]:
    rnd = random.Random(1)
    return ((f"item{i}", f"group{rnd.randrange(1_000)}", rnd.randrange(10_000)) for i in range(count))


def write_files(folder: Path) -> None:
    """Write the same facts in all formats."""
    strings = [(item, group, f"x{count}") for item, group, count in rows(STRINGS)]
    (folder / "strings.csv").write_text("a,b,c\n" + "".join(f"{a},{b},{c}\n" for a, b, c in strings))
    objects = (json.dumps({"pred": "strings", "args": row}) for row in strings)
    (folder / "strings.jsonl").write_text("\n".join(objects))
    columns = ("\n".join(f'"{row[i]}"' for row in strings) for i in range(3))
    (folder / "strings.sc").write_text("\n".join([f"1\nstrings 3 {STRINGS}", *columns]) + "\n")
    tables: list[list[str]] = [["item,group,count"] for _ in range(PREDICATES)]
    with (folder / "million.mg").open("w") as text:
        for i, (item, group, count) in enumerate(rows(MILLION)):
            tables[i % PREDICATES].append(f"{item},{group},{count}")
            text.write(f'p{i % PREDICATES}("{item}", "{group}", {count}).\n')
    for i, lines in enumerate(tables):
        (folder / f"p{i}.csv").write_text("\n".join(lines) + "\n")


# --- measurements -----------------------------------------------------------------------------------------------------


def read(*paths: Path) -> None:
    read_facts([FactFile(path) for path in paths], program())


def prepare(check: bool, *paths: Path) -> None:
    loaded = program()
    loaded.base(read_facts([FactFile(path) for path in paths], loaded, check=check), check=check)


def from_tuples(check: bool) -> None:
    facts = (Fact(f"p{i % PREDICATES}", row) for i, row in enumerate(rows(MILLION)))
    program().base(facts, check=check)


def as_program(path: Path) -> None:
    """Load the facts as part of the program, with the full analysis."""
    Program.load([Source("schema.mg", DECLS), Source("million.mg", path.read_text())]).base()


def measured(run: Callable[..., None], *args: object) -> tuple[float, int]:
    """Return CPU seconds and peak memory in MB of a new process."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_measure, (run, args))


def _measure(run: Callable[..., None], args: tuple[object, ...]) -> tuple[float, int]:
    start = time.process_time()
    run(*args)
    seconds = time.process_time() - start
    unit = 1 << 20 if sys.platform == "darwin" else 1 << 10
    return seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // unit


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_files(folder)
        tables = [folder / f"p{i}.csv" for i in range(PREDICATES)]
        strings = [folder / f"strings.{ending}" for ending in ("csv", "jsonl", "sc")]
        table = []
        for path in strings:
            seconds, _ = min(measured(read, path) for _ in range(3))
            budget = "300,000" if path.suffix == ".csv" else ""
            table.append((f"read {path.suffix}", f"{STRINGS / seconds:,.0f}", budget))
        for check in (True, False):
            seconds, _ = min(measured(prepare, check, strings[0]) for _ in range(3))
            table.append((f"read .csv and prepare, check={check}", f"{STRINGS / seconds:,.0f}", ""))
        print_table((f"{STRINGS:,} facts of three strings", "facts a second", "at least"), table)
        print()
        millions = [
            ("tuples", "10", measured(from_tuples, True)),
            ("tuples, check=False", "10", measured(from_tuples, False)),
            (".csv", "10", measured(prepare, True, *tables)),
            (".csv, check=False", "10", measured(prepare, False, *tables)),
            (".mg, as a fact file", "20", measured(prepare, True, folder / "million.mg")),
            (".mg, as part of the program", "", measured(as_program, folder / "million.mg")),
        ]
        print_table(
            (f"a base of {MILLION:,} facts, from", "CPU seconds", "at most", "peak MB", "at most"),
            [(what, f"{seconds:.1f}", most, f"{peak:,}", "1,000") for what, most, (seconds, peak) in millions],
        )


if __name__ == "__main__":
    main()
