"""The analysed files of the work tree. A file is read again only if its stamp has changed."""

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
from .cache import Cache, CachedFile
from .file_kinds import config_of, generated_by_name, language_of, lock_of
from .file_reader import Stamp, read, stamp, target_inside
from .scan_facts import Fact, ScanProgress

__all__ = ["Files", "ScannedFile"]

_STEP: Final = 50


class ScannedFile(NamedTuple):
    """A file as it was last read."""

    stamp: Stamp
    settled: bool
    digest: str
    """The hash of the content; empty if the file was not read."""
    language: str
    analysis: Analysis


class Files:
    """The files of a repository, kept from pass to pass."""

    def __init__(self, root: Path, cache: Cache) -> None:
        self._root: Final = root
        self._cache: Final = cache
        self._seen = cache.load_files()
        self._first = True
        self.scanned: dict[str, ScannedFile] = {}
        self.links: dict[str, str | None] = {}
        """The targets of symbolic links; None for a target outside of the root."""

    def refresh(self, names: list[str]) -> Iterator[ScanProgress | str]:
        """Read new and changed files. Yields the names of added, changed and removed files, and the progress."""
        stamps = self._stamps(names)
        gone = [name for name in self.scanned if name not in stamps]
        for name in gone:
            del self.scanned[name]
            yield name
        stale = [name for name, now in stamps.items() if not self._is_unchanged(name, now)]
        found: list[tuple[str, ScannedFile]] = []
        for done, name in enumerate(stale):
            if done % _STEP == 0:
                yield ScanProgress(done, len(stale), "files")
            new = self._read(name, stamps[name])
            if new is None:
                if self.scanned.pop(name, None) is not None:
                    yield name
                continue
            old = self.scanned.get(name)
            self.scanned[name] = new
            if old is None or (old.digest, old.language, old.analysis.problem) != (
                new.digest,
                new.language,
                new.analysis.problem,
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
            except OSError:  # deleted in the work tree
                continue
            if stat.S_ISLNK(status.st_mode):
                links[name] = target_inside(self._root, name)
            elif not stat.S_ISDIR(status.st_mode):
                stamps[name] = stamp(status)
        self.links = links
        return stamps

    def _is_unchanged(self, name: str, now: Stamp) -> bool:
        known = self.scanned.get(name)
        return known is not None and known.settled and known.stamp == now

    def _read(self, name: str, now: Stamp) -> ScannedFile | None:
        seen = self._seen.pop(name, None)
        if seen is not None and seen.stamp == now:
            analysis = self._cache.load_analysis(seen.digest, seen.language)
            if analysis is not None:
                return ScannedFile(now, True, seen.digest, seen.language, analysis)
        try:
            content = read(self._root, name)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EPERM):
                return ScannedFile(now, False, "", language_of(name), Analysis(problem="not permitted"))
            return None  # deleted or replaced by a link since it was listed
        if content.data is None:
            return ScannedFile(content.stamp, content.settled, "", language_of(name), Analysis(problem=content.problem))
        digest = hashlib.sha256(content.data).hexdigest()
        language = language_of(name, content.data)
        old = self.scanned.get(name)
        if old is not None and (old.digest, old.language) == (digest, language):
            analysis = old.analysis
        else:
            analysis = self._cache.load_analysis(digest, language) or analyse(content.data, language)
        return ScannedFile(content.stamp, content.settled, digest, language, analysis)

    def _keep(self, found: list[tuple[str, ScannedFile]], gone: list[str]) -> None:
        kept = [(name, one) for name, one in found if one.digest]
        if self._first:
            gone = [*gone, *(name for name in self._seen if name not in self.scanned)]
            self._seen.clear()
        if kept or gone:
            self._cache.store_files(
                ((name, CachedFile(one.stamp, one.digest, one.language)) for name, one in kept if one.settled),
                gone,
                ((one.digest, one.language, one.analysis) for _, one in kept),
            )
        if self._first:
            self._first = False
            self._cache.delete_unused_analyses((one.digest, one.language) for one in self.scanned.values())

    def facts(self, name: str) -> Iterator[Fact]:
        """Yield the facts that follow from one file alone."""
        known = self.scanned.get(name)
        if known is None:
            return
        found = known.analysis
        yield "file", name, "binary" if found.problem == "binary" else known.language, known.stamp.size, known.digest
        if known.language == "python":
            stem = name.rpartition("/")[2].rpartition(".")[0]
            yield "base_name", name, stem
            subject = stem.removeprefix("test_").removesuffix("_test")
            if subject != stem:
                yield "subject", name, subject
        if found.problem:
            yield "unreadable", name, found.problem
        if found.problem == "syntax error":
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
        for predicate, value in (
            ("generated", generated_by_name(name)),
            ("config_file", config_of(name)),
            ("lock_file", lock_of(name)),
        ):
            if value is not None:
                yield predicate, name, value
