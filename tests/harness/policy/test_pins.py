"""What is pinned, what differs from it, and that a pin cannot be edited."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from manglecp.harness.canonical_v1 import digest_v1 as digest
from manglecp.harness.policy import Pin, PolicyError, compare_packages, read_pin
from manglecp.harness.policy.promotion import DocumentDifference, ValueChange, promote
from tests.harness.policy.packages import AT, brought, careful, changed, reports


def promoted() -> Pin:
    pin = Pin.first(careful(), at=AT)
    candidate = changed(careful(), stop={"maxTurns": 30})
    return promote(pin, candidate, reports(brought(pin, candidate)), at=AT)


def test_a_pin_is_read_as_it_was_written() -> None:
    for pin in (Pin.first(careful(), at=AT), promoted()):
        found = read_pin(json.dumps(pin.as_json()).encode())
        assert found.as_json() == pin.as_json()
        assert found.verify(pin.package) == ()
        assert found.head == pin.head


@pytest.mark.req("SLICE-14")
def test_a_pin_has_every_digest() -> None:
    written = Pin.first(careful(), at=AT).as_json()
    assert (written["name"], written["version"]) == ("careful", "1.0.0")
    assert written["packageDigest"] == careful().digest
    assert {kind: entry["digest"] for kind, entry in written["documents"].items()} == careful().digests


def test_exactly_what_differs() -> None:
    other = changed(careful(), version="1.0.0", stop={"maxTurns": 30}, retry=None)
    assert Pin.first(careful(), at=AT).verify(other) == (
        DocumentDifference(
            "retry", careful().digests["retry"], None, (ValueChange("", careful().contents["retry"], None),)
        ),
        DocumentDifference(
            "stop", careful().digests["stop"], other.digests["stop"], (ValueChange("/maxTurns", 40, 30),)
        ),
    )
    (renamed,) = compare_packages(careful(), changed(careful(), version="1.0.1"))
    assert renamed == DocumentDifference(
        "package", "careful@1.0.0", "careful@1.0.1", (ValueChange("/version", "1.0.0", "1.0.1"),)
    )


def test_a_number_is_not_a_flag() -> None:
    before = changed(careful(), version="1", examples={"tools": {"repo.grep": [1]}})
    after = changed(careful(), version="1", examples={"tools": {"repo.grep": [True]}})
    (found,) = compare_packages(before, after)
    assert found.changes == (ValueChange("/tools/repo.grep", [1], [True]),)


def test_the_history_of_a_promotion() -> None:
    first, second = promoted().history
    assert (first["number"], first["act"], first["previousHash"]) == (0, "pin", None)
    assert (second["number"], second["act"], second["previousHash"]) == (1, "promote", first["rowHash"])
    assert second["instructionRef"].startswith("instr1_")
    assert second["joinWitnessRef"].startswith("jw1_")
    assert [ref.partition("://")[0] for ref in second["inputRefs"]] == [
        "approval",
        "evaluation",
        "policy-package",
        "red-team",
    ]


def _rehashed(row: dict[str, Any]) -> None:
    row["rowHash"] = digest({name: value for name, value in row.items() if name != "rowHash"})


def _swap_package(written: dict[str, Any]) -> None:
    """What one would write by hand to have another package pinned, with every digest of it right."""
    other = Pin.first(changed(careful(), version="6", stop={"maxTurns": 999}), at=AT).as_json()
    written.update({name: other[name] for name in ("name", "version", "packageDigest", "documents")})


def _other_start(written: dict[str, Any]) -> None:
    written["history"][0]["at"] = "2020-01-01T00:00:00Z"
    _rehashed(written["history"][0])


def _without_evidence(written: dict[str, Any]) -> None:
    row = written["history"][1]
    del row["joinWitnessRef"]
    _rehashed(row)


def _second_pin(written: dict[str, Any]) -> None:
    row = written["history"][1]
    row["act"] = "pin"
    _rehashed(row)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda written: written.pop("history"), "history is missing"),
        (lambda written: written.update(history=[]), "the history is empty"),
        (lambda written: written.update(extra=1), "the key 'extra' is unknown"),
        (lambda written: written.update(pinKind="other"), "the word 'other' is unknown"),
        (lambda written: written["documents"]["stop"]["content"].update(maxTurns=999), "/documents/stop/digest: the"),
        (lambda written: written["documents"]["stop"]["content"].update(maxTurn=9), "/documents/stop/maxTurn: the key"),
        (lambda written: written.update(packageDigest="sha256:0"), "/packageDigest: the digest of the documents"),
        (lambda written: written["history"].pop(), "the last row of the history is about another package"),
        (lambda written: written["history"].pop(0), "/history/0: number or previousHash does not follow"),
        (lambda written: written["history"][0].update(at="2027-01-01T00:00:00Z"), "/history/0/rowHash: the row was"),
        (_other_start, "/history/1: number or previousHash does not follow"),
        (_swap_package, "the last row of the history is about another package"),
        (_without_evidence, "instructionRef, inputRefs or joinWitnessRef is missing"),
        (_second_pin, "the first act must be pin, the others promote"),
    ],
)
def test_a_pin_that_was_edited(edit: Callable[[dict[str, Any]], object], message: str) -> None:
    written = json.loads(json.dumps(promoted().as_json()))
    edit(written)
    with pytest.raises(PolicyError, match=message):
        read_pin(json.dumps(written).encode(), "careful.pin.json")


def test_a_pin_is_not_made_of_parts() -> None:
    with pytest.raises(ValueError, match="the digest of its package"):
        Pin(changed(careful()), Pin.first(careful(), at=AT).history)


@pytest.mark.parametrize("data", [b"", b"[]", b"null", b"{", b'{"history": 1}', b'{"a": 1, "a": 2}', b"\xff"])
def test_what_is_no_pin(data: bytes) -> None:
    with pytest.raises(PolicyError):
        read_pin(data)
