"""One scanner, pass after pass: the first tells everything, later ones what is different.

A pass asks git which files there are, looks at their stamps, reads those that changed, and works out again only what
rests on them. What comes out is cut into parts: for each file one of its content, one of its relations and one of its
past, and a few for the repository as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ..git import Git
from ..gitdir import git_folders
from ..protection import bounds, in_small_letters
from .cache import Cache
from .differences import Differences
from .files import Files
from .history import Commit, commits, order, pasts
from .index import Index
from .marks import PYTHON, language_of
from .owners import PLACES, Owners
from .reading import read
from .relations import Relations
from .told import Fact, Part, Progress
from .tree import Tree, look

__all__ = ["Scanner", "Settings"]

_STEP: Final = 200
_ATTRIBUTE: Final = "linguist-generated"


@dataclass(frozen=True)
class Settings:
    """What a person may choose."""

    protected: str = ""
    area: str = ""
    closed: str = ""
    """Branches that nobody commits to, besides those that the repository names."""
    git_dir: str = ""
    """Where the history of a linked work tree lies."""
    history: int = 10_000
    """The most commits that are looked at."""
    many: int = 2_000
    """From how many files on there are many."""
    test_seconds: int = 300
    test_memory: int = 1_024
    """In MiB."""

    @property
    def limits(self) -> Iterator[Fact]:
        """What tests may take."""
        for name, what, value, (least, most) in (
            ("test_seconds", "seconds", self.test_seconds, (1, 800)),
            ("test_memory", "memory", self.test_memory, (128, 2_048)),
        ):
            if not least <= value <= most:
                raise ValueError(f"{name}: {value} is not a number from {least} to {most}")
            yield "limit_of_tests", what, value


class Scanner:
    """Of one repository."""

    def __init__(self, root: Path, cache: Path | None = None, settings: Settings | None = None) -> None:
        self._root: Final = root.resolve(strict=True)
        self._settings: Final = settings or Settings()
        said = self._settings
        protected = map(in_small_letters, bounds("protected", said.protected))
        self._bounds: Final[list[Fact]] = [*protected, *bounds("area", said.area), *said.limits]
        self._cache: Final = Cache(cache)
        self._index: Final = Index(git_folders(self._root, said.git_dir).own, cache)
        self._files: Final = Files(self._root, self._cache)
        self._relations: Final = Relations(self._root)
        self._differences: Final = Differences(self._bytes)
        self._made: dict[str, Commit] | None = None
        self._owners = Owners("")
        self._told: dict[str, tuple[Fact, ...]] = {}
        self._last: dict[str, object] = {}

    def scan(self) -> Iterator[Part | Progress]:
        """One pass."""
        git = Git(self._root, self._settings.git_dir, index=self._index.current())
        tree = look(git, self._settings.closed)
        changed: set[str] = set()
        for told in self._files.look(tree.files):
            if isinstance(told, Progress):
                yield told
            else:
                changed.add(told)
        yield from self._say("tree", [*tree.facts, *self._links(), *self._bounds, *self._size()])
        for name in sorted(changed):
            yield from self._say(f"file {name}", self._files.facts(name))
        for name in sorted(self._relations.stale(self._files.known, changed)):
            yield from self._say(f"relations {name}", self._relations.facts(name, self._files.known))
        yield from self._changed_symbols(git, tree)
        yield from self._history(git, tree)
        yield from self._ownership()
        yield from self._attributes(git)

    def close(self) -> None:
        """Let go of the cache."""
        self._cache.close()
        self._index.close()

    def _say(self, name: str, facts: Iterable[Fact]) -> Iterator[Part]:
        """A part, unless it was told as it is."""
        found = tuple(dict.fromkeys(facts))
        if found != self._told.get(name, ()):
            if found:
                self._told[name] = found
            else:
                del self._told[name]
            yield Part(name, found)

    def _with_told(self, kind: str, names: Iterable[str]) -> list[str]:
        """Names, and those that something was told of before."""
        start = f"{kind} "
        return sorted({*names, *(part.removeprefix(start) for part in self._told if part.startswith(start))})

    def _differs(self, what: str, now: object) -> bool:
        if what in self._last and self._last[what] == now:
            return False
        self._last[what] = now
        return True

    def _links(self) -> Iterator[Fact]:
        for name, target in sorted(self._files.links.items()):
            yield ("link", name, target) if target is not None else ("unreadable", name, "link out of the root")

    def _size(self) -> list[Fact]:
        count = len(self._files.known)
        return [("many_files", count)] if count >= self._settings.many else []

    def _changed_symbols(self, git: Git, tree: Tree) -> Iterator[Part]:
        before = {name: old for name, old in tree.before.items() if language_of(name) == PYTHON}
        found = self._differences.find(git, before, self._files.known)
        facts = [("changed_symbol", name, symbol) for name, symbols in found.items() for symbol in sorted(symbols)]
        yield from self._say("symbols", facts)

    def _history(self, git: Git, tree: Tree) -> Iterator[Part | Progress]:
        names = frozenset(self._files.known)
        if not self._differs("history", (tree.head, names)):
            return
        if self._made is None:
            self._made = self._cache.made()
        known, newest = self._made, order(git, tree.head, self._settings.history) if tree.head else []
        missing = [name for name in newest if name not in known]
        new: list[tuple[str, Commit]] = []
        for name, commit in commits(git, missing):
            if len(new) % _STEP == 0:
                yield Progress(len(new), len(missing), "commits")
            new.append((name, commit))
        known.update(new)
        self._cache.keep_commits(new)
        found = pasts(newest, known)
        for name in self._with_told("past", names):
            past = found.get(name) if name in names else None
            facts: list[Fact] = []
            if past is not None:
                facts = [
                    ("last_change", name, past.when, past.commit),
                    ("authors", name, len(past.authors)),
                    ("churn", name, past.count),
                ]
            yield from self._say(f"past {name}", facts)

    def _ownership(self) -> Iterator[Part]:
        known = self._files.known
        place = next((place for place in PLACES if place in known), None)
        digest = known[place].digest if place is not None else ""
        if not self._differs("owners", (place, digest, frozenset(known))):
            return
        if self._differs("owners' file", (place, digest)):
            self._owners = Owners(self._text(place) if place is not None else "")
        yield from self._say("owners", [("invalid_owners", place, line) for line in self._owners.invalid])
        for name in self._with_told("owner", known):
            owners = self._owners.of(name) if name in known else ()
            yield from self._say(f"owner {name}", [("owner", name, owner) for owner in owners])

    def _attributes(self, git: Git) -> Iterator[Part]:
        """Files that an attribute calls generated."""
        known = self._files.known
        digests = {name: one.digest for name, one in known.items() if name.rpartition("/")[2] == ".gitattributes"}
        if not self._differs("attributes", (digests, frozenset(known))):
            return
        facts: list[Fact] = []
        if any(_ATTRIBUTE in self._text(name) for name in digests):
            asked = "\0".join(sorted(known)).encode()
            answer = git.ask("check-attr", "-z", "--stdin", _ATTRIBUTE, stdin=asked).decode().split("\0")
            for name, value in zip(answer[0::3], answer[2::3], strict=False):
                if value in ("set", "true"):
                    facts.append(("generated", name, "attribute"))
        yield from self._say("attributes", facts)

    def _text(self, name: str) -> str:
        return self._bytes(name).decode("utf-8-sig", "replace")

    def _bytes(self, name: str) -> bytes:
        """What a file holds now; nothing if it cannot be had."""
        try:
            return read(self._root, name).data or b""
        except OSError:
            return b""
