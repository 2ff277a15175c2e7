"""An incremental scanner: the first pass yields all facts, later passes only the differences.

A pass lists the files with git, compares their stamps, reads the changed files, and recomputes only the results that
depend on them. Facts are grouped into named parts: for each file its content, its relations and its history, and a few
parts for the repository as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ..git import Git
from ..gitdir import git_folders
from ..protection import in_lower_case, path_bounds
from .cache import Cache
from .differences import Differences
from .file_kinds import PYTHON, language_of
from .file_reader import read
from .files import Files
from .history import Commit, file_histories, newest_commits, read_commits
from .index import Index
from .owners import PLACES, Owners
from .relations import Relations
from .scan_facts import Fact, ScanPart, ScanProgress
from .tree import Tree, read_tree

__all__ = ["Scanner", "Settings"]

_STEP: Final = 200
_ATTRIBUTE: Final = "linguist-generated"


@dataclass(frozen=True)
class Settings:
    """The settings of a scan."""

    protected: str = ""
    area: str = ""
    protected_branches: str = ""
    """Protected branches, in addition to those of the repository."""
    git_dir: str = ""
    """The git folder of a linked work tree."""
    history: int = 10_000
    """The most commits that are read."""
    many: int = 2_000
    """The number of files from which on the fact ``many_files`` holds."""
    test_seconds: int = 300
    test_memory: int = 1_024
    """In MiB."""

    @property
    def limits(self) -> Iterator[Fact]:
        """Yield the limits of a test run. Raises ValueError if a setting is out of range."""
        for name, what, value, (least, most) in (
            ("test_seconds", "seconds", self.test_seconds, (1, 800)),
            ("test_memory", "memory", self.test_memory, (128, 2_048)),
        ):
            if not least <= value <= most:
                raise ValueError(f"{name}: {value} is not a number from {least} to {most}")
            yield "limit_of_tests", what, value


class Scanner:
    """The scanner of one repository."""

    def __init__(self, root: Path, cache: Path | None = None, settings: Settings | None = None) -> None:
        self._root: Final = root.resolve(strict=True)
        self._settings: Final = settings or Settings()
        protected = map(in_lower_case, path_bounds("protected", self._settings.protected))
        area = path_bounds("area", self._settings.area)
        self._bounds: Final[list[Fact]] = [*protected, *area, *self._settings.limits]
        self._cache: Final = Cache(cache)
        self._index: Final = Index(git_folders(self._root, self._settings.git_dir).own, cache)
        self._files: Final = Files(self._root, self._cache)
        self._relations: Final = Relations(self._root)
        self._differences: Final = Differences(self._bytes)
        self._made: dict[str, Commit] | None = None
        self._owners = Owners("")
        self._emitted: dict[str, tuple[Fact, ...]] = {}
        self._last: dict[str, object] = {}

    def scan(self) -> Iterator[ScanPart | ScanProgress]:
        """Run one pass."""
        git = Git(self._root, self._settings.git_dir, index=self._index.current())
        tree = read_tree(git, self._settings.protected_branches)
        changed: set[str] = set()
        for item in self._files.refresh(tree.files):
            if isinstance(item, ScanProgress):
                yield item
            else:
                changed.add(item)
        yield from self._emit("tree", [*tree.facts, *self._links(), *self._bounds, *self._size()])
        for name in sorted(changed):
            yield from self._emit(f"file {name}", self._files.facts(name))
        for name in sorted(self._relations.stale(self._files.scanned, changed)):
            yield from self._emit(f"relations {name}", self._relations.facts(name, self._files.scanned))
        yield from self._changed_symbols(git, tree)
        yield from self._history(git, tree)
        yield from self._ownership()
        yield from self._attributes(git)

    def close(self) -> None:
        """Close the cache."""
        self._cache.close()
        self._index.close()

    def _emit(self, name: str, facts: Iterable[Fact]) -> Iterator[ScanPart]:
        """Yield a part unless it is unchanged since it was last emitted."""
        found = tuple(dict.fromkeys(facts))
        if found != self._emitted.get(name, ()):
            if found:
                self._emitted[name] = found
            else:
                del self._emitted[name]
            yield ScanPart(name, found)

    def _with_emitted(self, kind: str, names: Iterable[str]) -> list[str]:
        """Return the names together with those of earlier parts of this kind."""
        start = f"{kind} "
        return sorted({*names, *(part.removeprefix(start) for part in self._emitted if part.startswith(start))})

    def _has_changed(self, what: str, now: object) -> bool:
        if what in self._last and self._last[what] == now:
            return False
        self._last[what] = now
        return True

    def _links(self) -> Iterator[Fact]:
        for name, target in sorted(self._files.links.items()):
            yield ("link", name, target) if target is not None else ("unreadable", name, "link out of the root")

    def _size(self) -> list[Fact]:
        count = len(self._files.scanned)
        return [("many_files", count)] if count >= self._settings.many else []

    def _changed_symbols(self, git: Git, tree: Tree) -> Iterator[ScanPart]:
        before = {name: old for name, old in tree.before.items() if language_of(name) == PYTHON}
        found = self._differences.find(git, before, self._files.scanned)
        facts = [("changed_symbol", name, symbol) for name, symbols in found.items() for symbol in sorted(symbols)]
        yield from self._emit("symbols", facts)

    def _history(self, git: Git, tree: Tree) -> Iterator[ScanPart | ScanProgress]:
        names = frozenset(self._files.scanned)
        if not self._has_changed("history", (tree.head, names)):
            return
        if self._made is None:
            self._made = self._cache.load_commits()
        known, newest = self._made, newest_commits(git, tree.head, self._settings.history) if tree.head else []
        missing = [name for name in newest if name not in known]
        new: list[tuple[str, Commit]] = []
        for name, commit in read_commits(git, missing):
            if len(new) % _STEP == 0:
                yield ScanProgress(len(new), len(missing), "commits")
            new.append((name, commit))
        known.update(new)
        self._cache.store_commits(new)
        found = file_histories(newest, known)
        for name in self._with_emitted("past", names):
            past = found.get(name) if name in names else None
            facts: list[Fact] = []
            if past is not None:
                facts = [
                    ("last_change", name, past.changed_at, past.commit),
                    ("authors", name, len(past.authors)),
                    ("churn", name, past.count),
                ]
            yield from self._emit(f"past {name}", facts)

    def _ownership(self) -> Iterator[ScanPart]:
        known = self._files.scanned
        place = next((place for place in PLACES if place in known), None)
        digest = known[place].digest if place is not None else ""
        if not self._has_changed("owners", (place, digest, frozenset(known))):
            return
        if self._has_changed("owners' file", (place, digest)):
            self._owners = Owners(self._text(place) if place is not None else "")
        yield from self._emit("owners", [("invalid_owners", place, line) for line in self._owners.invalid])
        for name in self._with_emitted("owner", known):
            owners = self._owners.owners_of(name) if name in known else ()
            yield from self._emit(f"owner {name}", [("owner", name, owner) for owner in owners])

    def _attributes(self, git: Git) -> Iterator[ScanPart]:
        """Yield the files that ``.gitattributes`` marks as generated."""
        known = self._files.scanned
        digests = {name: one.digest for name, one in known.items() if name.rpartition("/")[2] == ".gitattributes"}
        if not self._has_changed("attributes", (digests, frozenset(known))):
            return
        facts: list[Fact] = []
        if any(_ATTRIBUTE in self._text(name) for name in digests):
            paths = "\0".join(sorted(known)).encode()
            fields = git.output("check-attr", "-z", "--stdin", _ATTRIBUTE, stdin=paths).decode().split("\0")
            for name, value in zip(fields[0::3], fields[2::3], strict=False):
                if value in ("set", "true"):
                    facts.append(("generated", name, "attribute"))
        yield from self._emit("attributes", facts)

    def _text(self, name: str) -> str:
        return self._bytes(name).decode("utf-8-sig", "replace")

    def _bytes(self, name: str) -> bytes:
        """Return the current content of a file; empty if it cannot be read."""
        try:
            return read(self._root, name).data or b""
        except OSError:
            return b""
