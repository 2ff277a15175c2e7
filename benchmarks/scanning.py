"""Scan a repository of 5,000 files: a full scan, a scan with a cache, and a scan after one edit.

Budgets: a full scan in 20 s, a scan after an edit in 1 s, both on two cores. Wall time and CPU time include git; where
possible, they are the best of several runs. The second table measures the scan in the host of the pack, until the facts
are available to its rules.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from _table import print_table

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "examples" / "workspace"))

from repository.scan.scan_facts import ScanPart  # noqa: E402
from repository.scan.scanner import Scanner  # noqa: E402  # the import path of the pack

from manglecp.intent import Domain  # noqa: E402
from manglecp.pack import SandboxPolicy, read_pack  # noqa: E402
from manglecp.toolhost import serve_facts  # noqa: E402

T = TypeVar("T")
PACKAGES = 100
MODULES = 40
TESTS = 9
COMMITS = 2_000
AUTHORS = 25


def module(package: int, number: int) -> str:
    """Return about 150 lines that import two modules of other packages and one of the same package."""
    lines = [
        f'"""Module {number} of package {package}."""',
        "",
        "from __future__ import annotations",
        "",
        "import json",
    ]
    for step in (1, 7):
        lines.append(f"from shop.package{(package + step) % PACKAGES}.module{number} import Thing0 as Thing_{step}")
    if number:
        lines.append(f"from .module{number - 1} import Thing0")
    for each in range(6):
        lines += ["", "", f"class Thing{each}:", f'    """The thing number {each}."""', ""]
        for method in range(4):
            lines += [f"    def method{method}(self, one: int, two: str = 'x') -> str:"]
            lines += [f"        total = [one * index for index in range({method}) if index % 2]"]
            lines += ["        return json.dumps({'total': total, 'two': two.upper()})", ""]
    return "\n".join(lines) + "\n"


def test(package: int, number: int) -> str:
    lines = [f"from shop.package{package}.module{number} import Thing0, Thing1", ""]
    for each in range(8):
        lines += ["", f"def test_{each}() -> None:", f"    assert Thing{each % 2}().method{each % 4}({each})", ""]
    return "\n".join(lines)


def files() -> dict[str, str]:
    made = {"src/shop/__init__.py": "", ".github/CODEOWNERS": "* @shop/all\n/src/shop/package1*/ @shop/first\n"}
    for package in range(PACKAGES):
        made[f"src/shop/package{package}/__init__.py"] = f"from .module{MODULES - 1} import Thing1\n"
        for number in range(MODULES):
            made[f"src/shop/package{package}/module{number}.py"] = module(package, number)
        for number in range(TESTS):
            made[f"tests/package{package}/test_module{number}_{package}.py"] = test(package, number)
    return made


def make(root: Path) -> int:
    """Create a repository with a history, and return its number of files."""
    root.mkdir()
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}

    def git(*arguments: str, stdin: bytes = b"") -> None:
        subprocess.run(["git", *arguments], cwd=root, env=environment, input=stdin, check=True, capture_output=True)

    git("init", "--initial-branch=main")
    made = files()
    names = list(made)
    stream = [header(0)]
    stream += [f"M 100644 inline {name}\n{data(text)}" for name, text in made.items()]
    for number in range(1, COMMITS):
        stream.append(header(number))
        for step in range(4):
            name = names[(number * 31 + step * 997) % len(names)]
            made[name] += f"# {number}\n"
            stream.append(f"M 100644 inline {name}\n{data(made[name])}")
    git("fast-import", "--quiet", stdin="".join(stream).encode())
    git("reset", "--hard", "--quiet")
    return len(names)


def header(number: int) -> str:
    author = f"Author {number % AUTHORS} <author{number % AUTHORS}@example.org> {1_700_000_000 + number * 3_600} +0000"
    return f"commit refs/heads/main\nauthor {author}\ncommitter {author}\n{data(f'Change {number}')}"


def data(text: str) -> str:
    return f"data {len(text.encode())}\n{text}\n"


def measured(run: Callable[[], T]) -> tuple[float, float, T]:
    """Return wall time, CPU time with child processes, and the result."""
    before, started = os.times(), time.perf_counter()
    result = run()
    wall, after = time.perf_counter() - started, os.times()
    cpu = sum(
        getattr(after, key) - getattr(before, key) for key in ("user", "system", "children_user", "children_system")
    )
    return wall, cpu, result


def facts_of(scanner: Scanner) -> int:
    return sum(len(part.facts) for part in scanner.scan() if isinstance(part, ScanPart))


def edit(root: Path, number: int) -> None:
    with (root / f"src/shop/package{number}/module3.py").open("a") as file:
        file.write(f"\n\ndef added_{number}() -> int:\n    return {number}\n")


def served(root: Path, cache: Path) -> tuple[float, float]:
    """Return the seconds until the pack is loaded, and until its facts contain an edit."""
    pack = read_pack(ROOT / "examples" / "workspace", {"root": str(root)}, sandbox=SandboxPolicy(degrade=True))
    started = time.perf_counter()
    with serve_facts(pack, cache=cache, programs=["git"], sandbox=SandboxPolicy(degrade=True)) as generated:
        assert generated is not None
        domain = Domain.load(pack, generated=generated)
        loaded, edits = time.perf_counter() - started, []
        for number in range(5):
            edit(root, number + 10)
            started = time.perf_counter()
            looked = generated.run_pass("scan")
            domain = domain.with_facts(looked.added, looked.removed, looked.version)
            generated.commit(looked)
            edits.append(time.perf_counter() - started)
    return loaded, min(edits)


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cache = folder / "cache"
        cache.mkdir()
        count = make(folder / "repository")
        root = (folder / "repository").resolve()
        time.sleep(1.1)  # recently written files would be read again
        first = Scanner(root, cache)
        rows = [("everything", "20", *measured(lambda: facts_of(first)))]
        again = [measured(lambda: facts_of(Scanner(root, cache))) for _ in range(3)]
        rows.append(("everything, from the cache", "", *min(again)))
        rows.append(("nothing changed", "1", *min(measured(lambda: facts_of(first)) for _ in range(5))))
        edits = []
        for number in range(5):
            edit(root, number)
            edits.append(measured(lambda: facts_of(first)))
        rows.append(("one file edited", "1", *min(edits)))
        (root / "src/shop/package0/new.py").write_text("from shop.package1.module0 import Thing0\n")
        rows.append(("one file added", "1", *measured(lambda: facts_of(first))))
        print_table(
            (f"{count:,} files, {COMMITS:,} commits", "seconds", "budget", "CPU seconds", "facts"),
            [(what, f"{wall:.2f}", most, f"{cpu:.2f}", f"{facts:,}") for what, most, wall, cpu, facts in rows],
        )
        print()
        cache = folder / "cache of the host"
        cache.mkdir()
        _, cpu, (loaded, edited) = measured(lambda: served(root, cache))
        _, cpu_again, (from_cache, _) = measured(lambda: served(root, cache))
        print_table(
            ("in the host of the pack", "seconds", "budget", "CPU seconds"),
            [
                ("full scan", f"{loaded:.2f}", "20", f"{cpu:.2f} with five edits"),
                ("full scan, from the cache", f"{from_cache:.2f}", "", f"{cpu_again:.2f} with five edits"),
                ("one edit", f"{edited:.2f}", "1", ""),
            ],
        )


if __name__ == "__main__":
    main()
