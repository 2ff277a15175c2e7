"""A package from its files: strictly, and with everything that is wrong at once.

A package is a set of files: ``package.toml`` with its name and version, and one file per document, named after its
kind (:mod:`.kinds`). Each may be TOML or JSON; which of the two makes no difference to a digest.

A document may carry its own digest as ``policyDigest``: ``pol1_`` and the hash of the rest. It is compared, and left
out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final

from manglecp.base.diagnostic import FileLocation
from manglecp.base.json import Uncanonical
from manglecp.harness.canonical_v1 import canonical
from manglecp.harness.policy.consistency import check
from manglecp.harness.policy.kinds import KINDS, MANIFEST
from manglecp.harness.policy.package import PolicyPackage
from manglecp.harness.policy.problems import Problems

__all__ = ["ENDINGS", "package_of", "read_json", "read_package"]

ENDINGS: Final = (".toml", ".json")
DEEPEST: Final = 100
"""How deep a document may be nested. A key with many dots nests as deep as it has dots."""
_MANIFEST: Final = "package"


def read_package(files: Mapping[str, bytes]) -> PolicyPackage:
    """The package that files of these names and contents make, or a :class:`.PolicyError`."""
    problems = Problems()
    decoded: dict[str, Any] = {}
    places: dict[str, FileLocation] = {}
    for file in sorted(files):
        stem, dot, ending = file.rpartition(".")
        place = FileLocation(file)
        if dot + ending not in ENDINGS:
            problems.add(place, "the files of a package end in .toml or .json")
        elif stem != _MANIFEST and stem not in KINDS:
            problems.unknown(place, "the document", stem, [_MANIFEST, *KINDS])
        elif stem in places:
            problems.add(place, f"{places[stem].file} is the same document")
        else:
            places[stem] = place
            found = _decode(files[file], ending, place, problems)
            if found is not None:
                decoded[stem] = found
    return _package(decoded, places, problems, complete=decoded.keys() == places.keys())


def package_of(manifest: Mapping[str, Any], documents: Mapping[str, Mapping[str, Any]]) -> PolicyPackage:
    """The package of a manifest and documents that are already decoded."""
    problems = Problems()
    places = {_MANIFEST: FileLocation(_MANIFEST)}
    for kind in documents:
        places[kind] = FileLocation(kind)
        if kind not in KINDS:
            problems.unknown(places[kind], "the document", kind, KINDS)
    known = {kind: content for kind, content in documents.items() if kind in KINDS}
    return _package({_MANIFEST: manifest, **known}, places, problems, complete=True)


def _package(
    decoded: Mapping[str, Any], places: Mapping[str, FileLocation], problems: Problems, *, complete: bool
) -> PolicyPackage:
    """``complete`` says that what is not there was left out, and not just unreadable."""
    manifest: dict[str, Any] = {}
    contents: dict[str, Any] = {}
    for name, content in decoded.items():
        content = _without_own_digest(content, places[name], problems)
        if name == _MANIFEST:
            manifest = MANIFEST(content, places[name], problems)
        else:
            contents[name] = KINDS[name].shape(content, places[name], problems)
    if complete:
        owed = [_MANIFEST, *(kind.name for kind in KINDS.values() if kind.required)]
        for name in owed:
            if name not in decoded:
                problems.add(FileLocation(name), "the document is missing")
    problems.refuse()  # what is consistent can only be said of documents that have their shape
    check(contents, places, problems)
    problems.refuse()
    return PolicyPackage(manifest["name"], manifest["version"], contents, manifest.get("description"))


def _decode(data: bytes, ending: str, place: FileLocation, problems: Problems) -> Any:
    if ending == "json":
        return read_json(data, place, problems)
    import tomllib  # not every package has TOML

    try:
        return _bounded(tomllib.loads(data.decode()), place, problems)
    except UnicodeDecodeError as error:
        problems.add(place, f"not UTF-8: byte {data[error.start]:#04x}")
    except tomllib.TOMLDecodeError as error:
        problems.add(place, f"not TOML: {error}")
    except RecursionError:
        problems.add(place, "nested too deeply")
    return None


def read_json(data: bytes, place: FileLocation, problems: Problems) -> Any:
    """JSON without a key twice; None, and a problem, if it is none."""
    from manglecp.wire import (
        Fault,
        decode,  # nor has every package JSON
    )

    try:
        found = decode(data)
    except Fault as fault:
        problems.add(place, fault.message)
        return None
    if found is None:
        problems.add(place, "null is no document")
    return _bounded(found, place, problems)


def _bounded(document: Any, place: FileLocation, problems: Problems) -> Any:
    """The document, unless it is nested deeper than anything that reads it can follow."""
    level = [document]
    for _ in range(DEEPEST):
        level = [
            part
            for whole in level
            if isinstance(whole, dict | list)
            for part in (whole.values() if isinstance(whole, dict) else whole)
        ]
        if not level:
            return document
    problems.add(place, "nested too deeply")
    return None


def _without_own_digest(content: Any, place: FileLocation, problems: Problems) -> Any:
    if not isinstance(content, Mapping) or "policyDigest" not in content:
        return content
    rest = {name: value for name, value in content.items() if name != "policyDigest"}
    try:
        expected = "pol1_" + hashlib.sha256(canonical(rest)).hexdigest()
    except Uncanonical:
        return rest  # its shape says where
    if content["policyDigest"] != expected:
        problems.add(place / "policyDigest", f"the digest of the document is {expected}")
    return rest
