"""The witness of a turn: a record that can be judged again without the payloads.

It holds every normalised row, the constraints and policy documents, and the verdict. Verification judges again and
compares the verdicts. Digests of payloads, arguments and messages, and the schema verdicts, cannot be recomputed; a
verification lists them as taken *on record*.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, TypeVar

import msgspec

from manglecp.harness.canonical_v1 import canonical
from manglecp.harness.classes import row_pointer
from manglecp.harness.constraints import Constraints, read_documents
from manglecp.harness.evidence import Evidence, check_row_order
from manglecp.harness.judgement import Judgement, judge_turn
from manglecp.harness.readers import InvalidEvidence, read_member
from manglecp.harness.turn import Turn, TurnContext

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
        """Whether the recomputed verdict is equal."""
        return not self.differences

    def as_json(self) -> dict[str, Any]:
        """Return the output of ``manglecp harness verify``."""
        return {
            "holds": self.holds,
            "witnessId": self.judgement.witness_id,
            "result": self.judgement.result,
            "failureClasses": list(self.judgement.failure_classes),
            "differences": [
                {"where": entry.where, "expected": entry.expected, "found": entry.found} for entry in self.differences
            ],
            "onRecord": list(self.on_record),
        }


def witness_of(judgement: Judgement) -> dict[str, Any]:
    """Return the JSON object of the witness."""
    verdict = judgement.as_json()
    return {"kind": KIND, "id": verdict.pop("witnessId"), **verdict, "turn": judgement.normalized}


class Witness(Mapping[str, Any]):
    """A witness whose JSON is computed on demand."""

    def __init__(self, judgement: Judgement) -> None:
        self._judgement = judgement

    @property
    def id(self) -> str:
        """The witness id; equal evidence has an equal id."""
        return self._judgement.witness_id

    @cached_property
    def written(self) -> msgspec.Raw:
        """The canonical JSON."""
        return msgspec.Raw(canonical(self._members))

    @cached_property
    def _members(self) -> dict[str, Any]:
        return witness_of(self._judgement)

    def __getitem__(self, name: str) -> Any:
        return self._members[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)


def verify(witness: Mapping[str, Any]) -> Verification:
    """Judge the rows of a witness again. Raises :class:`.InvalidEvidence` if they are unreadable."""
    if not isinstance(witness, Mapping):
        raise InvalidEvidence("", "an object is expected")
    turn = _read_recorded_turn(witness.get("turn"))
    judgement = judge_turn(turn)
    expected = witness_of(judgement)
    differences: list[Difference] = []
    for name in (*_VERDICT, "turn"):
        _compare(f"/{name}", expected[name], witness.get(name), differences)
    return Verification(tuple(differences), tuple(_unverifiable_pointers(turn)), judgement)


def _read_recorded_turn(recorded: Any) -> Turn:
    """Return the recorded turn. Unlike other evidence, its rows must be normalised already."""
    if not isinstance(recorded, dict):
        raise InvalidEvidence("/turn", "is absent or not an object")
    try:
        msgspec.json.encode(recorded)  # only for its errors
    except (RecursionError, TypeError, UnicodeEncodeError) as error:
        raise InvalidEvidence("/turn", f"is not JSON: {error}") from None
    evidence = _convert(recorded, "evidence", Evidence)
    constraints = _convert(recorded, "constraints", Constraints)
    verdicts = _convert(recorded, "schemaVerdicts", dict[str, bool])
    try:
        documents = read_member(recorded, "policyDocuments", read_documents)
        check_row_order(evidence)
    except InvalidEvidence as error:
        raise error.under("turn") from None
    if documents is None:
        raise InvalidEvidence("/turn/policyDocuments", "is absent")
    return Turn(evidence, TurnContext(evidence.call_spec, constraints, documents), verdicts)


def _convert(recorded: dict[str, Any], name: str, kind: type[T]) -> T:
    """Return a typed member. Raises :class:`.InvalidEvidence` with the path in msgspec's message as a pointer."""
    try:
        return msgspec.convert(recorded.get(name), kind)
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at `$")
        steps = "".join(f"/{step}" for step in re.findall(r"[^.\[\]`]+", path))
        raise InvalidEvidence(f"/turn/{name}{steps}", message) from None


def _compare(where: str, expected: Any, recorded: Any, differences: list[Difference]) -> None:
    """Append the innermost differences, in document order."""
    pending = [(where, expected, recorded)]
    while pending:
        where, left, right = pending.pop()
        if isinstance(left, dict) and isinstance(right, dict):
            names = sorted({*left, *right}, reverse=True)  # the last one of ``pending`` is next
            pending += [(row_pointer(where, name), left.get(name), right.get(name)) for name in names]
        elif isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
            pending += [(f"{where}/{i}", a, b) for i, (a, b) in reversed([*enumerate(zip(left, right, strict=True))])]
        elif left != right or type(left) is not type(right):
            differences.append(Difference(where, left, right))


def _unverifiable_pointers(turn: Turn) -> list[str]:
    """Return the JSON pointers to values that were computed from data which the witness does not hold."""
    pointers = []
    for index, request in enumerate(turn.evidence.tool_requests):
        if request.input_digest is not None:
            pointers.append(f"/turn/evidence/toolRequests/{index}/inputDigest")
        if request.search_fits is not None:
            pointers.append(f"/turn/evidence/toolRequests/{index}/searchFits")
        if request.search_ref is not None and request.search_ref.query_digest is not None:
            pointers.append(f"/turn/evidence/toolRequests/{index}/searchRef/queryDigest")
    for index, result in enumerate(turn.evidence.tool_results):
        where = f"/turn/evidence/toolResults/{index}"
        if result.result_digest is not None:
            pointers.append(f"{where}/resultDigest")
        if result.payload_bytes is not None:
            pointers.append(f"{where}/payloadBytes")
        if result.error is not None:
            pointers.append(f"{where}/error/errorMessageDigest")
    return pointers + [f"/turn/schemaVerdicts/{name}" for name in sorted(turn.schema_verdicts)]
