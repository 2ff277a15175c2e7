"""Run the tests of the fast lane that a change can affect.

    python tools/affected.py [--list]

A change is every file that differs from BASE, plus untracked files. BASE is an environment variable; without it, the
merge base with `main` or `origin/main`, whichever is nearer; on that commit itself, its parent. A changed module
affects all modules that import it, directly or indirectly; an import of a re-exported name counts as an import of the
module that defines it. A changed file of another kind affects the modules that name it, or else its folder. With ALL=1
all test modules are selected. `--list` prints the selected modules and runs no test.
"""

from __future__ import annotations

import ast
import os
import pickle
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / "build" / "imports.pickle"
FOLDERS = ("src/manglecp", "tests", "tools", "examples")
PYTEST = [".venv/bin/pytest", "-m", "fast and not soak", "-n", "2", "--dist", "worksteal", "-q", "--no-header"]
NO_TESTS_COLLECTED = 5

Import = tuple[str, str | None]
"""A module and the name that is imported from it; None for the module itself."""


class Modules:
    """The modules of the project, by name and by path, and which of them imports which."""

    def __init__(self) -> None:
        self.paths = {_name(path): path for folder in FOLDERS for path in _python_files(folder)}
        self.names = {path: name for name, path in self.paths.items()}
        self.names |= {path + "i": name for path, name in self.names.items() if (ROOT / (path + "i")).exists()}
        self.tests = {name for name in self.paths if re.fullmatch(r"tests\..*\btest_\w+", name)}
        self._imports = {name: set(imports) for name, imports in _read_imports(self.paths).items()}
        imported = {target for one in self._imports.values() for found in one for target, _ in self._resolved(found)}
        for name in self.paths:
            # Imported by no module: the package loads it by name, as it does commands.
            if name.startswith("manglecp.") and not name.endswith("__main__") and name not in imported:
                self._imports[name.rpartition(".")[0]].add((name, None))

    def affected(self, changed: Iterable[str]) -> set[str]:
        """Return the test modules that depend on these files."""
        reached: set[str] = set()
        for path in changed:
            for name in self._changed(path):
                reached |= self._downstream(name)
        folders = tuple(name.removesuffix("conftest") for name in reached if name.endswith(".conftest"))
        return {name for name in self.tests if name in reached or name.startswith(folders)}

    def _changed(self, path: str) -> set[str]:
        name = self.names.get(path)
        if name is None:
            return self._naming(PurePosixPath(path))
        supports = name.startswith(("tests.", "examples.")) and name not in self.tests and not name.endswith("conftest")
        if supports and self._downstream(name) == {name}:
            return {name} | self._naming(PurePosixPath(path).with_suffix(""))  # a program, or part of a pack
        return {name}

    @cached_property
    def _importers(self) -> dict[tuple[str, bool], set[str]]:
        """The modules that import a module; the flag is false if they only use a name that it re-exports."""
        found: dict[tuple[str, bool], set[str]] = defaultdict(set)
        for name, imports in self._imports.items():
            for one in imports:
                for target in self._resolved(one):
                    found[target].add(name)
        return found

    def _downstream(self, name: str) -> set[str]:
        reached, ahead = {name}, [*self._importers[name, True], *self._importers[name, False]]
        while ahead:
            if (user := ahead.pop()) not in reached:
                reached.add(user)
                ahead += self._importers[user, True]
        return reached

    def _resolved(self, one: Import) -> Iterator[tuple[str, bool]]:
        """Yield the modules to which an import resolves; the flag is false for one that only re-exports the name."""
        module, name = one
        if name is not None and f"{module}.{name}" in self.paths:
            yield f"{module}.{name}", True
        elif module in self.paths:
            passed_on = self.paths[module].endswith("__init__.py") and name is not None
            homes = [home for home in self._imports[module] if home[1] == name] if passed_on else []
            yield module, not homes
            for home in homes:
                yield from self._resolved(home)

    def _naming(self, path: PurePosixPath) -> set[str]:
        """Return the modules that depend on a file that is not a module."""
        if path.parts[0] == "docs" or (len(path.parts) == 1 and path.suffix == ".md"):
            return {name for name in self.paths if name.startswith("tests.docs.")} | self._with_words(path.name)
        if path.parts[0] == "examples":
            return self._with_words("examples", path.parts[1])
        packages = (one for one in path.parents if str(one) not in FOLDERS and f"{one}/__init__.py" in self.names)
        home = next(packages, None)
        if home is None:  # no package: tests/conformance/mangle
            return self._with_words(*path.parts[1:-1], *([path.name] if len(path.parts) < 3 else []))
        below = path.relative_to(home).parts
        beside = self._in(home)
        return next((found for word in reversed(below) if (found := self._with_words(word, among=beside))), beside)

    def _in(self, folder: PurePosixPath) -> set[str]:
        return {name for name, path in self.paths.items() if path.startswith(f"{folder}/")}

    def _with_words(self, *words: str, among: Iterable[str] = ()) -> set[str]:
        patterns = [re.compile(rf"(?<![\w.-]){re.escape(word)}(?![\w-])") for word in words]
        texts = ((name, (ROOT / self.paths[name]).read_text("utf-8")) for name in among or self.paths)
        return {name for name, text in texts if all(pattern.search(text) for pattern in patterns)}


def _python_files(folder: str) -> Iterator[str]:
    return (str(path.relative_to(ROOT)) for path in (ROOT / folder).rglob("*.py"))


def _name(path: str) -> str:
    return path.removeprefix("src/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _read_imports(paths: dict[str, str]) -> dict[str, list[Import]]:
    """Return the imports of each module, from a cache if the file is unchanged."""
    try:
        known: dict[str, tuple[float, list[Import]]] = pickle.loads(CACHE.read_bytes())
    except (OSError, ValueError, EOFError, pickle.UnpicklingError):
        known = {}
    read: dict[str, tuple[float, list[Import]]] = {}
    for name, path in paths.items():
        files = [file for file in (ROOT / path, ROOT / (path + "i")) if file.exists()]  # a stub has what is lazy
        modified = sum(file.stat().st_mtime for file in files)
        seen = known.get(name)
        if seen is None or seen[0] != modified:
            seen = modified, [one for file in files for one in _imports(name, file)]
        read[name] = seen
    CACHE.parent.mkdir(exist_ok=True)
    new = CACHE.with_suffix(f".{os.getpid()}")
    new.write_bytes(pickle.dumps(read))
    new.replace(CACHE)
    return {name: imports for name, (_, imports) in read.items()}


def _imports(name: str, file: Path) -> Iterator[Import]:
    try:
        tree = ast.parse(file.read_bytes())
    except SyntaxError:  # the linter reports it
        return
    package = name.split(".") if file.stem == "__init__" else name.split(".")[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) + 1 - node.level] if node.level else []
            module = ".".join([*above, *([node.module] if node.module else [])])
            yield from ((module, None if alias.name == "*" else alias.name) for alias in node.names)


def base() -> str:
    """Return the commit that the change is compared with."""
    if given := os.environ.get("BASE"):
        return _git("rev-parse", "--verify", f"{given}^{{commit}}")[0]
    head = _git("rev-parse", "HEAD")[0]
    left = [commit for branch in ("main", "origin/main") for commit in _git("merge-base", "HEAD", branch, check=False)]
    behind = {int(_git("rev-list", "--count", f"{commit}..HEAD")[0]): commit for commit in left if commit != head}
    parent = _git("rev-parse", "--verify", "-q", "HEAD~", check=False) or [head]
    return behind[min(behind)] if behind else parent[0]


def changed(since: str) -> list[str]:
    return sorted({*_git("diff", "--name-only", since), *_git("ls-files", "--others", "--exclude-standard")})


def _git(*words: str, check: bool = True) -> list[str]:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode and check:
        sys.exit(f"git {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout.splitlines() if done.returncode == 0 else []


def _summary(tests: Iterable[str]) -> str:
    counts = Counter(name.split(".")[1] for name in tests)
    return ", ".join(f"{folder} {count}" for folder, count in counts.most_common()) or "none"


def _shortened(files: list[str], at_most: int = 3) -> str:
    more = [f"{len(files) - at_most} more"] if len(files) > at_most else []
    return ", ".join([*files[:at_most], *more]) or "nothing"


def main(options: list[str]) -> int:
    modules = Modules()
    if os.environ.get("ALL"):
        chosen, why = modules.tests, "ALL is set"
    else:
        since = base()
        files = changed(since)
        chosen, why = modules.affected(files), f"changed since {since[:9]}: {_shortened(files)}"
    print(f"{len(chosen)} of {len(modules.tests)} test modules ({_summary(chosen)}); {why}", flush=True)
    paths = sorted(modules.paths[name] for name in chosen)
    if "--list" in options:
        print("\n".join(paths))
        return 0
    if not paths:
        return 0
    command = [*PYTEST, *(["tests"] if chosen == modules.tests else paths)]
    status = subprocess.run(command, cwd=ROOT, check=False).returncode
    return 0 if status == NO_TESTS_COLLECTED else status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
