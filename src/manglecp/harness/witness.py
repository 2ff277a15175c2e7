"""The witness of a turn: a record that can be judged again without the payloads.

It holds every normalised row, the constraints and policy documents, and the verdict. Verification judges the rows again
and compares the verdicts. Digests of payloads, arguments and messages, and the schema verdicts, cannot be recomputed; a
verification lists them as *on record*: accepted as the witness has them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, TypeVar

import msgspec

from manglecp.harness.canonical_v1 import canonical
from manglecp.harness.classes import row_pointer
from manglecp.harness.constraints import Constraints, PolicyDocuments, read_documents
from manglecp.harness.evidence import Evidence, check_row_order
from manglecp.harness.judgement import Judgement, judge_turn
from manglecp.harness.readers import InvalidEvidence, read_member
from manglecp.harness.turn import Turn

T = TypeVar("T")

KIND: Final = "manglecp.harness.witness.v1"
_VERDICT: Final = ("kind", "id", "result", "failureClasses", "joinClosed", "mutationReady", "digests", "findings")


@dataclass(frozen=True, slots=True)
class Difference:
    """A recorded value that differs from the recomputed value."""

    where: str  # JSON pointer
    expected: Any  # the recomputed value
    found: Any  # the recorded value


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of :func:`verify`. ``on_record`` are JSON pointers to values that cannot be recomputed."""

    differences: tuple[Difference, ...]
    on_record: tuple[str, ...]
    judgement: Judgement

    @property
    def holds(self) -> bool:
        """Whether the recomputed verdict and rows equal the recorded ones."""
        return not self.differences

    def as_json(self) -> dict[str, Any]:
        """Return the output of ``manglecp harness verify``."""
        return {
            "holds": self.holds,
            "witnessId": self.judgement.witness_id,
            "result": self.judgement.result,
            "failureClasses": list(self.judgement.failure_classes),
            "differences": [asdict(difference) for difference in self.differences],
            "onRecord": list(self.on_record),
        }


class Witness(dict[str, Any]):
    """The JSON object of a witness."""

    @property
    def id(self) -> str:
        """The witness id; equal evidence has an equal id."""
        return str(self["id"])

    @property
    def raw_json(self) -> msgspec.Raw:
        """The canonical JSON."""
        return msgspec.Raw(canonical(dict(self)))


def witness_of(judgement: Judgement) -> Witness:
    """Return the witness of a judged turn."""
    verdict = judgement.as_json()
    return Witness(kind=KIND, id=verdict.pop("witnessId"), **verdict, turn=judgement.normalized)


def verify(witness: Mapping[str, Any]) -> Verification:
    """Judge the rows of a witness again. Raises :class:`.InvalidEvidence` if the rows are unreadable."""
    if not isinstance(witness, Mapping):
        raise InvalidEvidence("", "an object is expected")
    turn = _read_recorded_turn(witness.get("turn"))
    judgement = judge_turn(turn)
    expected = witness_of(judgement)
    differences = [
        difference
        for name in (*_VERDICT, "turn")
        for difference in _compare(f"/{name}", expected[name], witness.get(name))
    ]
    on_record: list[str] = []
    for name in ("toolRequests", "toolResults"):
        on_record += _find_on_record(f"/turn/evidence/{name}", expected["turn"]["evidence"].get(name))
    on_record += (f"/turn/schemaVerdicts/{name}" for name in sorted(turn.schema_verdicts))
    return Verification(tuple(differences), tuple(on_record), judgement)


def _read_recorded_turn(recorded: Any) -> Turn:
    """Return the recorded turn. Unlike other evidence, its rows must be normalised already."""
    if not isinstance(recorded, dict):
        raise InvalidEvidence("/turn", "is absent or not an object")
    try:
        msgspec.json.encode(recorded)  # for its errors only
    except (RecursionError, TypeError, UnicodeEncodeError) as error:
        raise InvalidEvidence("/turn", f"is not JSON: {error}") from None
    evidence = _convert(recorded, "evidence", Evidence)
    constraints = _convert(recorded, "constraints", Constraints)
    verdicts = _convert(recorded, "schemaVerdicts", dict[str, bool])
    try:
        documents = read_member(recorded, "policyDocuments", read_documents)
        check_row_order(evidence)
    except InvalidEvidence as error:
        raise error.inside("turn") from None
    if documents is None:
        raise InvalidEvidence("/turn/policyDocuments", "is absent")
    return Turn(evidence, constraints, PolicyDocuments(documents, evidence.call_spec), verdicts)


def _convert(recorded: dict[str, Any], name: str, kind: type[T]) -> T:
    """Return a typed member. Raises :class:`.InvalidEvidence` whose pointer is the path in msgspec's message."""
    try:
        return msgspec.convert(recorded.get(name), kind)
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at `$")
        steps = "".join(f"/{step}" for step in re.findall(r"[^.\[\]`]+", path))
        raise InvalidEvidence(f"/turn/{name}{steps}", message) from None


def _compare(where: str, expected: Any, recorded: Any) -> Iterator[Difference]:
    """Yield the innermost differences, in document order."""
    if isinstance(expected, dict) and isinstance(recorded, dict):
        for name in sorted({*expected, *recorded}):
            yield from _compare(row_pointer(where, name), expected.get(name), recorded.get(name))
    elif isinstance(expected, list) and isinstance(recorded, list) and len(expected) == len(recorded):
        for index, pair in enumerate(zip(expected, recorded, strict=True)):
            yield from _compare(f"{where}/{index}", *pair)
    elif expected != recorded or type(expected) is not type(recorded):
        yield Difference(where, expected, recorded)


_ON_RECORD: Final = ("inputDigest", "searchFits", "queryDigest", "resultDigest", "payloadBytes", "errorMessageDigest")
"""Members of requests and results that were computed from data which the witness does not hold."""


def _find_on_record(where: str, value: Any) -> Iterator[str]:
    """Yield the JSON pointers to the members in :data:`_ON_RECORD`."""
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, part in parts:
        if name in _ON_RECORD:
            yield f"{where}/{name}"
        else:
            yield from _find_on_record(f"{where}/{name}", part)
