"""The example package, changed ones, and what is brought to promote them."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from manglecp.harness.policy import Pin, PolicyPackage, package_of, read_package
from manglecp.harness.policy.promotion import Reports, read_reports

CAREFUL = Path(__file__).resolve().parents[3] / "examples" / "policies" / "careful"
AT = "2026-03-01T12:00:00Z"


def careful_files() -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(CAREFUL.iterdir()) if path.suffix == ".toml"}


@cache
def careful() -> PolicyPackage:
    return read_package(careful_files())


def changed(package: PolicyPackage, version: str = "1.1.0", **members: Any) -> PolicyPackage:
    """``changed(careful(), stop={"maxTurns": 9})``: members of documents replaced; None takes a document away."""
    documents: dict[str, Any] = copy.deepcopy(dict(package.contents))
    for name, change in members.items():
        kind = name.replace("_", "-")
        if change is None:
            del documents[kind]
        else:
            documents[kind] = {**documents.get(kind, {}), **change}
    return package_of({"name": package.name, "version": version}, documents)


def evaluation(package: PolicyPackage) -> dict[str, Any]:
    return {
        "packageDigest": package.digest,
        "dataset": "repository-changes-labelled",
        "profileRef": "bench://repository-changes",
        "passed": True,
        "metrics": {"precision": 0.94, "recall": 0.9, "f1": 0.92},
        "datasetLineageRef": "dataset://repository-changes@7",
        "graderConfigLineageRef": "grader://rubric@3",
        "metricThresholdsRef": "thresholds://careful@1",
    }


def red_team(package: PolicyPackage) -> dict[str, Any]:
    return {
        "packageDigest": package.digest,
        "passed": True,
        "plugins": ["prompt-injection", "tool-abuse", "data-exfiltration", "pii"],
        "strategies": ["multi-turn", "encoded"],
        "probes": 420,
        "failures": 0,
        "reportRef": "redteam://run/88",
    }


def instruction(pin: Pin, package: PolicyPackage) -> dict[str, Any]:
    return {
        "evidenceKind": "instruction",
        "packageDigest": package.digest,
        "pinnedDigest": pin.digest,
        "intent": "shorter sessions",
        "requestedBy": "kim",
        "capabilityClaims": [
            "capabilities.change_morphisms",
            "capabilities.change_morphisms.policy_promote",
        ],
    }


def approval(package: PolicyPackage) -> dict[str, Any]:
    return {"evidenceKind": "approval", "packageDigest": package.digest, "tier": "high", "approvedBy": "lee"}


def brought(pin: Pin, package: PolicyPackage) -> dict[str, dict[str, Any]]:
    """Everything that a promotion needs, by its name."""
    return {
        "evaluation": evaluation(package),
        "red_team": red_team(package),
        "instruction": instruction(pin, package),
        "approval": approval(package),
    }


def reports(documents: Mapping[str, Mapping[str, Any]]) -> Reports:
    files = {name: (f"{name}.json", json.dumps(document).encode()) for name, document in documents.items()}
    evidence = [files[name] for name in ("instruction", "approval") if name in files]
    return read_reports(files["evaluation"], files["red_team"], evidence)
