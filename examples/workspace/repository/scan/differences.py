"""Find the definitions that differ from the last commit.

Both versions of a file are parsed, and definitions with the same name are compared by their lines; a definition that
only moved is unchanged. A class differs if one of its methods does. Results are memoised by the hashes of both
versions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Final

from ..git import Git
from .file_reader import LARGEST
from .files import ScannedFile
from .python import Outline, parse_outline

__all__ = ["Differences"]

_MOST: Final = 500
"""The most changed files; with more, no definitions are compared."""
_MOST_BYTES: Final = 32 << 20
"""The most bytes of committed versions that one pass reads; the rest is left out."""


class Differences:
    """The changed definitions, memoised from pass to pass."""

    def __init__(self, read: Callable[[str], bytes]) -> None:
        self._read: Final = read
        self._known: dict[tuple[str, str], frozenset[str]] = {}

    def find(self, git: Git, before: Mapping[str, str], files: Mapping[str, ScannedFile]) -> dict[str, frozenset[str]]:
        """Return the changed definitions by file. ``before`` has the git object id of each committed version."""
        pairs = {name: (old, files[name].digest if name in files else "") for name, old in before.items()}
        if len(pairs) > _MOST:
            return {}
        committed = _contents(git, {old for old, digest in pairs.values() if (old, digest) not in self._known})
        kept = {pair: self._known[pair] for pair in pairs.values() if pair in self._known}
        for name, pair in pairs.items():
            if pair not in kept and pair[0] in committed:
                found = self._compare(name, committed[pair[0]], files.get(name))
                if found is not None:
                    kept[pair] = found
        self._known = kept
        return {name: kept[pair] for name, pair in pairs.items() if pair in kept}

    def _compare(self, name: str, committed: bytes, now: ScannedFile | None) -> frozenset[str] | None:
        data = self._read(name) if now is not None else b""
        if now is not None and hashlib.sha256(data).hexdigest() != now.digest:
            return None  # changed since it was scanned: the next pass compares it
        after = _definitions(data, now.analysis.outline) if now is not None else {}
        before = _definitions(committed, parse_outline(committed))
        return frozenset(name for name in {*before, *after} if before.get(name) != after.get(name))


def _definitions(data: bytes, found: Outline) -> dict[str, list[list[str]]]:
    """Return the lines of each definition; several definitions can have the same name."""
    lines = data.decode("utf-8", "replace").splitlines()
    definitions: dict[str, list[list[str]]] = {}
    for symbol in found.symbols:
        definitions.setdefault(symbol.name, []).append([line.rstrip() for line in lines[symbol.line - 1 : symbol.end]])
    return definitions


def _contents(git: Git, names: set[str]) -> dict[str, bytes]:
    """Return the contents of git objects by id, without those that are too large."""
    if not names:
        return {}
    ids = "".join(f"{name}\n" for name in sorted(names)).encode()
    sizes = git.output("cat-file", "--batch-check=%(objectname) %(objecttype) %(objectsize)", stdin=ids).decode()
    wanted, left = [], _MOST_BYTES
    for fields in (line.split(" ") for line in sizes.split("\n")):
        if len(fields) == 3 and fields[1] == "blob" and int(fields[2]) <= min(LARGEST, left):
            wanted.append(fields[0])
            left -= int(fields[2])
    output = (
        git.output("cat-file", "--batch", stdin="".join(f"{name}\n" for name in wanted).encode()) if wanted else b""
    )
    found, at = {}, 0
    while at < len(output):
        end = output.index(b"\n", at)
        name, _, size = output[at:end].decode().split(" ")
        found[name] = output[end + 1 : end + 1 + int(size)]
        at = end + 2 + int(size)
    return found
