"""Pins: the package in force, and the history of its promotions.

A pin holds the documents of the package, their digests and the package digest, so that differences can be listed. Its
history is a hash chain: the first row starts the pin, each further row is a promotion. Reading recomputes all digests
and hashes, so a pin edited by hand is rejected. :meth:`Pin.promoted` is the only way to change the package, and it
takes a ``MutationReady``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from manglecp.base.diagnostic import FileLocation
from manglecp.harness.canonical_v1 import canonical, digest_v1 as digest
from manglecp.harness.policy.package import PolicyPackage, package_of, read_json
from manglecp.harness.policy.shapes import (
    PolicyError,
    Problems,
    anything,
    integer,
    items,
    one_of,
    sequence,
    table,
    table_of,
    text,
)
from manglecp.harness.states import MutationReady, WrongMutation, redeem

ACTION: Final = "policy.promote"
_GATES: Final = {
    "mutation": "mutationPolicyDigest",
    "eval-gate": "evalGatePolicyDigest",
    "red-team": "redTeamPolicyDigest",
}
"""The documents that govern a promotion, and the call spec field that each binds."""
_PIN_KIND: Final = "manglecp.policy.pin.v1"


def candidate_ref(package: PolicyPackage) -> str:
    """Return the reference by which an intent names the package to promote."""
    return f"policy-package://{package.digest}"


# --- what differs --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Change:
    """One changed value of a document; None if absent."""

    pointer: str
    before: Any
    after: Any


@dataclass(frozen=True, slots=True)
class Difference:
    """One changed document, or ``package`` for a changed name or version."""

    document: str
    before: str | None
    """Its digest, None if the document is new."""
    after: str | None
    """Its digest, None if the document is gone."""
    changes: tuple[Change, ...]


def differences(before: PolicyPackage, after: PolicyPackage) -> tuple[Difference, ...]:
    """Return all differences; empty if and only if the digests are equal."""
    found = []
    if before.ref != after.ref:
        names = {"name": before.name, "version": before.version}, {"name": after.name, "version": after.version}
        found.append(Difference("package", before.ref, after.ref, tuple(_changes("", *names))))
    for kind in sorted({*before.contents, *after.contents}):
        old, new = before.digests.get(kind), after.digests.get(kind)
        if old != new:
            changes = tuple(_changes("", before.contents.get(kind), after.contents.get(kind)))
            found.append(Difference(kind, old, new, changes))
    return tuple(found)


def _changes(pointer: str, before: Any, after: Any) -> Iterator[Change]:
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for name in sorted({*before, *after}):
            yield from _changes(f"{pointer}/{name}", before.get(name), after.get(name))
    elif canonical(before) != canonical(after):  # for Python, 1 and true are equal
        yield Change(pointer, before, after)


# --- the pin -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Pin:
    """A pinned package. Created by :meth:`first` and :meth:`promoted`, or read by :func:`read_pin`."""

    package: PolicyPackage
    history: tuple[Mapping[str, Any], ...]

    def __post_init__(self) -> None:
        if self.history[-1]["packageDigest"] != self.package.digest:
            raise ValueError("the history of a pin ends with its package")

    @staticmethod
    def first(package: PolicyPackage, *, at: str) -> Pin:
        """Return the first pin of a package. ``at`` is the time, RFC 3339."""
        return Pin(package, (_row(0, None, {"act": "pin", "at": at, **_named(package)}),))

    @property
    def digest(self) -> str:
        """Return the pinned package digest."""
        return self.package.digest

    @property
    def head(self) -> str:
        """Return the hash of the last row; a copy of it elsewhere detects a rewritten history."""
        return str(self.history[-1]["rowHash"])

    def verify(self, package: PolicyPackage) -> tuple[Difference, ...]:
        """Return the differences from the pinned package."""
        return differences(self.package, package)

    def promoted(self, package: PolicyPackage, ready: MutationReady, *, at: str) -> Pin:
        """Return the pin of another package, by the right of an accepted promotion over this one."""
        turn = ready.document["evidence"]
        if turn["callSpec"]["governancePolicyDigest"] != self.digest:
            raise WrongMutation("the promotion was made under another package than the one that is pinned")
        for kind, field in _GATES.items():
            if turn["callSpec"].get(field) != self.package.digests.get(kind, turn["callSpec"].get(field)):
                raise WrongMutation(f"the promotion was made under another {kind} document than the pinned one")
        if candidate_ref(package) not in turn["mutation"]["inputRefs"]:
            raise WrongMutation(f"the promotion is not one of {package.ref} {package.digest}")
        judgement = redeem(ready, "governance_policy", ACTION)
        row = {
            "act": "promote",
            "at": at,
            **_named(package),
            "instructionRef": turn["mutation"]["instructionRef"],
            "inputRefs": sorted(turn["mutation"]["inputRefs"]),
            "joinWitnessRef": judgement.witness_id,
        }
        return Pin(package, (*self.history, _row(len(self.history), self.head, row)))

    def as_json(self) -> dict[str, Any]:
        """Return the JSON that :func:`read_pin` reads."""
        documents = {
            kind: {"digest": self.package.digests[kind], "content": self.package.contents[kind]}
            for kind in self.package.digests
        }
        return {
            "pinKind": _PIN_KIND,
            **_named(self.package),
            "documents": documents,
            "history": [dict(row) for row in self.history],
        }


def _named(package: PolicyPackage) -> dict[str, str]:
    return {"name": package.name, "version": package.version, "packageDigest": package.digest}


def _row(number: int, previous: str | None, members: Mapping[str, Any]) -> dict[str, Any]:
    row = {"number": number, "previousHash": previous, **members}
    return {**row, "rowHash": digest(row)}


# --- reading -------------------------------------------------------------------------------------------------------


def _previous(value: Any, place: FileLocation, problems: Problems) -> Any:
    return value if value is None else text(value, place, problems)


_NAMED: Final = {"name": text, "version": text, "packageDigest": text}
_ROW: Final = table(
    {
        "number": integer(0),
        "previousHash": _previous,
        "act": one_of(("pin", "promote")),
        "at": text,
        **_NAMED,
        "instructionRef": text,
        "inputRefs": items(),
        "joinWitnessRef": text,
        "rowHash": text,
    },
    required=("number", "previousHash", "act", "at", *_NAMED, "rowHash"),
)
_PIN: Final = table(
    {
        "pinKind": one_of((_PIN_KIND,)),
        **_NAMED,
        "documents": table_of(table({"digest": text, "content": anything}, required=("digest", "content"))),
        "history": sequence(_ROW),
    },
    required=("pinKind", *_NAMED, "documents", "history"),
)


def read_pin(data: bytes, file: str = "pin") -> Pin:
    """Read a pin. Raises :class:`.PolicyError`."""
    problems = Problems()
    place = FileLocation(file)
    decoded = read_json(data, place, problems)
    problems.refuse()
    found = _PIN(decoded, place, problems)
    problems.refuse()
    if not found["history"]:
        problems.add(place / "history", "a history has one row at least")
        problems.refuse()
    package = _pinned_package(found, place, problems)
    for number, (row, written) in enumerate(zip(found["history"], decoded["history"], strict=True)):
        previous = found["history"][number - 1]["rowHash"] if number else None
        rest = {name: value for name, value in written.items() if name != "rowHash"}
        if (row["number"], row["previousHash"]) != (number, previous):
            problems.add(place / "history" / number, "the row does not follow the one before it")
        if row["rowHash"] != digest(rest):
            problems.add(place / "history" / number / "rowHash", "the row was changed after it was written")
        if (row["act"] == "promote") != bool(number):
            problems.add(place / "history" / number / "act", "a history is one pin and then promotions")
        elif number and not row.keys() >= {"instructionRef", "inputRefs", "joinWitnessRef"}:
            problems.add(place / "history" / number, "a promotion says what it rests on")
    if found["history"][-1]["packageDigest"] != found["packageDigest"]:
        problems.add(place / "packageDigest", "the last row of the history is about another package")
    problems.refuse()
    return Pin(package, tuple(found["history"]))


def _pinned_package(found: Mapping[str, Any], place: FileLocation, problems: Problems) -> PolicyPackage:
    contents = {kind: entry["content"] for kind, entry in found["documents"].items()}
    try:
        package = package_of({"name": found["name"], "version": found["version"]}, contents)
    except PolicyError as error:
        for problem in error.diagnostics:
            problems.add(
                FileLocation(place.file, pointer=f"/documents/{problem.file}{problem.pointer}"), problem.message
            )
        problems.refuse()
        raise  # not reached: there were problems
    for kind, entry in found["documents"].items():
        if entry["digest"] != package.digests[kind]:
            problems.add(place / "documents" / kind / "digest", f"the digest of the content is {package.digests[kind]}")
    if found["packageDigest"] != package.digest:
        problems.add(place / "packageDigest", f"the digest of the documents is {package.digest}")
    return package
