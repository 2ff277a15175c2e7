"""What someone has to bring to have a policy promoted, and how it is read.

Four documents, each of which names the package that it is about by its digest. A report on another package, however
good, is no report on this one.

* the **evaluation**: what was measured, on which data, by which grader;
* the **red team**: how the package was attacked, and with what success;
* the **instruction**: who wants the promotion, from which package to which, with which capability claims;
* the **approval** of a human, where the pinned package demands one for its highest risk tier.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from manglecp.base.diagnostic import FileLocation
from manglecp.harness.canonical_v1 import canonical, digest_v1 as digest
from manglecp.harness.policy.kinds import METRICS, TIERS
from manglecp.harness.policy.problems import Problems
from manglecp.harness.policy.reading import read_json
from manglecp.harness.policy.shapes import Shape, flag, integer, items, number, one_of, table, table_of, text

__all__ = ["Reports", "read_reports"]

_MOST: Final = 2**53

EVALUATION: Final = table(
    {
        "packageDigest": text,
        "dataset": text,
        "profileRef": text,
        "passed": flag,
        "metrics": table_of(number(0, 1), names=METRICS),
        "datasetLineageRef": text,
        "graderConfigLineageRef": text,
        "metricThresholdsRef": text,
        "loading": table(
            {
                "samples": integer(1),
                "accuracyBefore": number(0, 1),
                "accuracyAfter": number(0, 1),
                "tokensBefore": number(0, _MOST),
                "tokensAfter": number(0, _MOST),
            },
            required=("samples", "accuracyBefore", "accuracyAfter", "tokensBefore", "tokensAfter"),
        ),
    },
    required=("packageDigest", "dataset", "passed", "metrics"),
)

RED_TEAM: Final = table(
    {
        "packageDigest": text,
        "passed": flag,
        "plugins": items(),
        "strategies": items(),
        "probes": integer(0),
        "failures": integer(0),
        "reportRef": text,
    },
    required=("packageDigest", "passed", "plugins", "strategies", "probes", "failures"),
)

_EVIDENCE: Final[dict[str, Shape]] = {
    "instruction": table(
        {
            "evidenceKind": text,
            "packageDigest": text,
            "pinnedDigest": text,
            "intent": text,
            "requestedBy": text,
            "capabilityClaims": items(),
            "automated": flag,
            "selfEvolution": table({"maxAttempts": integer(1), "terminalEscalation": text, "rollbackRef": text}),
        },
        required=("packageDigest", "pinnedDigest", "intent", "requestedBy", "capabilityClaims"),
    ),
    "approval": table(
        {"evidenceKind": text, "packageDigest": text, "tier": one_of(TIERS), "approvedBy": text},
        required=("packageDigest", "tier", "approvedBy"),
    ),
}


@dataclass(frozen=True, slots=True)
class Reports:
    """They have their shapes. What they are worth is judged in :mod:`.promotion`."""

    evaluation: Mapping[str, Any]
    red_team: Mapping[str, Any]
    instruction: Mapping[str, Any] | None = None
    approval: Mapping[str, Any] | None = None

    @property
    def instruction_ref(self) -> str | None:
        """How the evidence of a promotion names the instruction: by its hash. None where there is none."""
        if self.instruction is None:
            return None
        return "instr1_" + hashlib.sha256(canonical(self.instruction)).hexdigest()

    @property
    def approval_ref(self) -> str | None:
        """How the approval is named: by its digest. None where nobody approved."""
        return None if self.approval is None else f"approval://{digest(self.approval)}"


def read_reports(
    evaluation: tuple[str, bytes], red_team: tuple[str, bytes], evidence: Sequence[tuple[str, bytes]] = ()
) -> Reports:
    """The reports of files, each given as its name and its bytes, or a :class:`.PolicyError`."""
    problems = Problems()
    measured = _read(EVALUATION, evaluation, problems)
    attacked = _read(RED_TEAM, red_team, problems)
    others: dict[str, Any] = {}
    for name, data in evidence:
        place = FileLocation(name)
        document = read_json(data, place, problems)
        kind = document.get("evidenceKind") if isinstance(document, dict) else None
        if document is None:
            continue
        if kind not in _EVIDENCE:
            problems.unknown(place / "evidenceKind", "the kind of evidence", str(kind), _EVIDENCE)
        elif kind in others:
            problems.add(place, f"there is already an {kind}")
        else:
            others[str(kind)] = _EVIDENCE[str(kind)](document, place, problems)
    problems.refuse()
    return Reports(measured, attacked, others.get("instruction"), others.get("approval"))


def _read(shape: Shape, file: tuple[str, bytes], problems: Problems) -> Any:
    name, data = file
    document = read_json(data, FileLocation(name), problems)
    return None if document is None else shape(document, FileLocation(name), problems)
