"""Which definitions differ from the last commit.

Both versions of a file are parsed, and definitions of the same name are compared by their lines: what only moved is the
same. A class differs if one of its methods does. Versions have names that say everything about them, so a pair is
compared once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Final

from ..git import Git
from .files import Known
from .python import Outline, outline
from .reading import LARGEST

__all__ = ["Differences"]

_MOST: Final = 500
"""Files; where more have changed, nobody looks at single definitions."""
_MOST_BYTES: Final = 32 << 20
"""Of earlier versions, in one pass; the rest is left out."""


class Differences:
    """What was found, from one pass to the next."""

    def __init__(self, read: Callable[[str], bytes]) -> None:
        self._read: Final = read
        self._known: dict[tuple[str, str], frozenset[str]] = {}

    def find(self, git: Git, before: Mapping[str, str], files: Mapping[str, Known]) -> dict[str, frozenset[str]]:
        """By the names of files: the definitions that differ from the content that is named."""
        pairs = {name: (old, files[name].digest if name in files else "") for name, old in before.items()}
        if len(pairs) > _MOST:
            return {}
        was = _contents(git, {old for old, digest in pairs.values() if (old, digest) not in self._known})
        kept = {pair: self._known[pair] for pair in pairs.values() if pair in self._known}
        for name, pair in pairs.items():
            if pair not in kept and pair[0] in was:
                found = self._compare(name, was[pair[0]], files.get(name))
                if found is not None:
                    kept[pair] = found
        self._known = kept
        return {name: kept[pair] for name, pair in pairs.items() if pair in kept}

    def _compare(self, name: str, was: bytes, now: Known | None) -> frozenset[str] | None:
        data = self._read(name) if now is not None else b""
        if now is not None and hashlib.sha256(data).hexdigest() != now.digest:
            return None  # it has changed meanwhile: next time
        after = _definitions(data, now.analysis.outline) if now is not None else {}
        before = _definitions(was, outline(was))
        return frozenset(name for name in {*before, *after} if before.get(name) != after.get(name))


def _definitions(data: bytes, found: Outline) -> dict[str, list[list[str]]]:
    """The lines of each definition; there may be several of one name."""
    lines = data.decode("utf-8", "replace").splitlines()
    definitions: dict[str, list[list[str]]] = {}
    for symbol in found.symbols:
        definitions.setdefault(symbol.name, []).append([line.rstrip() for line in lines[symbol.line - 1 : symbol.end]])
    return definitions


def _contents(git: Git, names: set[str]) -> dict[str, bytes]:
    """Contents by the names that git has for them; without those that are too large."""
    if not names:
        return {}
    asked = "".join(f"{name}\n" for name in sorted(names)).encode()
    sizes = git.ask("cat-file", "--batch-check=%(objectname) %(objecttype) %(objectsize)", stdin=asked).decode()
    wanted, left = [], _MOST_BYTES
    for said in (line.split(" ") for line in sizes.split("\n")):
        if len(said) == 3 and said[1] == "blob" and int(said[2]) <= min(LARGEST, left):
            wanted.append(said[0])
            left -= int(said[2])
    answer = git.ask("cat-file", "--batch", stdin="".join(f"{name}\n" for name in wanted).encode()) if wanted else b""
    found, at = {}, 0
    while at < len(answer):
        end = answer.index(b"\n", at)
        name, _, size = answer[at:end].decode().split(" ")
        found[name] = answer[end + 1 : end + 1 + int(size)]
        at = end + 2 + int(size)
    return found
