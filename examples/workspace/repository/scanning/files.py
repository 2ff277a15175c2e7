"""What each file holds: read where its stamp has changed, and otherwise known."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from ..credentials import KIND, holds_credentials
from .analysis import Analysis, analyse
from .cache import Cache, Seen
from .marks import config_of, generated_by_name, language_of, lock_of
from .reading import Stamp, read, stamp, target_inside
from .told import Fact, Progress

__all__ = ["Files", "Known"]

_STEP: Final = 50


class Known(NamedTuple):
    """One file, as it was last read."""

    stamp: Stamp
    settled: bool
    digest: str
    """Empty if it was not read."""
    language: str
    analysis: Analysis


class Files:
    """All files, from one pass to the next."""

    def __init__(self, root: Path, cache: Cache) -> None:
        self._root: Final = root
        self._cache: Final = cache
        self._seen = cache.seen()
        self._first = True
        self.known: dict[str, Known] = {}
        self.links: dict[str, str | None] = {}
        """Where links lead; None if not to something in the root."""

    def look(self, names: list[str]) -> Iterator[Progress | str]:
        """Tell which names are new, changed or gone, and how it goes."""
        stamps = self._stamps(names)
        gone = [name for name in self.known if name not in stamps]
        for name in gone:
            del self.known[name]
            yield name
        stale = [name for name, now in stamps.items() if not self._is_known(name, now)]
        found: list[tuple[str, Known]] = []
        for done, name in enumerate(stale):
            if done % _STEP == 0:
                yield Progress(done, len(stale), "files")
            new = self._read(name, stamps[name])
            if new is None:
                if self.known.pop(name, None) is not None:
                    yield name
                continue
            old = self.known.get(name)
            self.known[name] = new
            if old is None or (old.digest, old.language, old.analysis.why) != (
                new.digest,
                new.language,
                new.analysis.why,
            ):
                yield name
            found.append((name, new))
        self._keep(found, gone)

    def _stamps(self, names: list[str]) -> dict[str, Stamp]:
        stamps: dict[str, Stamp] = {}
        links: dict[str, str | None] = {}
        top = f"{self._root}/"
        for name in names:
            try:
                status = os.lstat(top + name)
            except OSError:  # it is gone, as the tree says
                continue
            if stat.S_ISLNK(status.st_mode):
                links[name] = target_inside(self._root, name)
            elif not stat.S_ISDIR(status.st_mode):
                stamps[name] = stamp(status)
        self.links = links
        return stamps

    def _is_known(self, name: str, now: Stamp) -> bool:
        known = self.known.get(name)
        return known is not None and known.settled and known.stamp == now

    def _read(self, name: str, now: Stamp) -> Known | None:
        seen = self._seen.pop(name, None)
        if seen is not None and seen.stamp == now:
            analysis = self._cache.analysis(seen.digest, seen.language)
            if analysis is not None:
                return Known(now, True, seen.digest, seen.language, analysis)
        try:
            content = read(self._root, name)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EPERM):
                return Known(now, False, "", language_of(name), Analysis(why="not permitted"))
            return None  # gone meanwhile, or a link by now
        if content.data is None:
            return Known(content.stamp, content.settled, "", language_of(name), Analysis(why=content.why))
        digest = hashlib.sha256(content.data).hexdigest()
        language = language_of(name, content.data)
        old = self.known.get(name)
        if old is not None and (old.digest, old.language) == (digest, language):
            analysis = old.analysis
        else:
            analysis = self._cache.analysis(digest, language) or analyse(content.data, language)
        return Known(content.stamp, content.settled, digest, language, analysis)

    def _keep(self, found: list[tuple[str, Known]], gone: list[str]) -> None:
        kept = [(name, one) for name, one in found if one.digest]
        if self._first:
            gone = [*gone, *(name for name in self._seen if name not in self.known)]
            self._seen.clear()
        if kept or gone:
            self._cache.keep_files(
                ((name, Seen(one.stamp, one.digest, one.language)) for name, one in kept if one.settled),
                gone,
                ((one.digest, one.language, one.analysis) for _, one in kept),
            )
        if self._first:
            self._first = False
            self._cache.forget_analyses((one.digest, one.language) for one in self.known.values())

    def facts(self, name: str) -> Iterator[Fact]:
        """What a file by itself gives."""
        known = self.known.get(name)
        if known is None:
            return
        found = known.analysis
        yield "file", name, "binary" if found.why == "binary" else known.language, known.stamp.size, known.digest
        if known.language == "python":
            stem = name.rpartition("/")[2].rpartition(".")[0]
            yield "base_name", name, stem
            subject = stem.removeprefix("test_").removesuffix("_test")
            if subject != stem:
                yield "subject", name, subject
        if found.why:
            yield "unreadable", name, found.why
        if found.why == "syntax error":
            yield "syntax_error", name, found.line
        if name.lower() != name:
            yield "small_name", name, name.lower(), name
        for symbol in found.outline.symbols:
            yield "symbol", name, symbol.name, symbol.kind, symbol.line, symbol.end
            own = symbol.name.rpartition(".")[2]
            if own.lower() != own:
                yield "small_name", name, own.lower(), symbol.name
        if holds_credentials(name):
            yield "secret_in", name, 1, KIND
        for line, kind in found.secrets:
            yield "secret_in", name, line, kind
        if found.generated:
            yield "generated", name, "marked"
        for predicate, said in (
            ("generated", generated_by_name(name)),
            ("config_file", config_of(name)),
            ("lock_file", lock_of(name)),
        ):
            if said is not None:
                yield predicate, name, said
