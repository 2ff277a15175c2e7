from __future__ import annotations

from typing import Any

import pytest

from tests.harness.checks.cases import accepts, raises
from tests.harness.evidence import ABSENT, classes, turn

BOUNDARY = "runtime.shell_boundary_violation"
COMPACTION = "runtime.compaction_state_invalid"

SHELL = {"workdir": "/srv/jobs", "sandboxRef": "box", "commandDigest": "sha256:c"}
ROOTS = {"workdirRoots": ["/srv/jobs"]}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        accepts("inside", request__toolKind="shell", result__shell=SHELL, call__executionBoundaryPolicy=ROOTS),
        accepts("no roots declared", result__shell=SHELL),
        raises("shell call without block", BOUNDARY, request__toolKind="Shell"),
        raises("command without block", BOUNDARY, result__provenance={"kind": "command", "ref": "c"}),
        accepts("api without block", result__provenance={"kind": "api", "ref": "c"}),
        raises("no workdir", BOUNDARY, result__shell={**SHELL, "workdir": " "}),
        raises("relative", BOUNDARY, result__shell={**SHELL, "workdir": "srv/jobs"}),
        raises("upwards", BOUNDARY, result__shell={**SHELL, "workdir": "/srv/jobs/../x"}),
        raises("outside", BOUNDARY, result__shell={**SHELL, "workdir": "/srv"}, call__executionBoundaryPolicy=ROOTS),
        raises("beside", BOUNDARY, result__shell={**SHELL, "workdir": "/srv/jobs-old"},
               call__executionBoundaryPolicy=ROOTS),
        accepts("below", result__shell={**SHELL, "workdir": "/srv/jobs/1"}, call__executionBoundaryPolicy={
            "workdirRoots": ["/srv/jobs/"]}),
        accepts("under the root of everything", result__shell=SHELL, runtimeConstraints={"workdirRoots": ["/"]}),
        raises("outside of what is in force", BOUNDARY, result__shell=SHELL,
               runtimeConstraints={"workdirRoots": ["/tmp"]}),
        raises("roots intersect", BOUNDARY, result__shell=SHELL, call__executionBoundaryPolicy=ROOTS,
               runtimeConstraints={"workdirRoots": ["/srv/jobs/1"]}),
        raises("no sandbox", BOUNDARY, result__shell={**SHELL, "sandboxRef": ""}),
        raises("another sandbox", BOUNDARY, result__shell=SHELL, call__runtimeSandboxRef="cell"),
        accepts("the sandbox", result__shell=SHELL, call__runtimeSandboxRef="box"),
        raises("no command digest", BOUNDARY, result__shell={**SHELL, "commandDigest": None}),
        raises("untyped command digest", BOUNDARY, result__shell={**SHELL, "commandDigest": "make"}),
        raises("shell edits", BOUNDARY, result__shell={**SHELL, "editedPaths": ["x"]},
               call__executionBoundaryPolicy={"shellEditsForbidden": True}),
        accepts("shell edits nothing", result__shell={**SHELL, "editedPaths": [" "]},
                call__executionBoundaryPolicy={"shellEditsForbidden": True}),
        accepts("shell may edit by the policy", result__shell={**SHELL, "editedPaths": ["x"]},
                call__executionBoundaryPolicy=ROOTS),
        accepts("no edit", call__executionBoundaryPolicy={"allowedEditSurfaces": ["apply_patch"]}),
        raises("no edit by an orphan", "tool.result_orphan", "tool.join_incomplete", evidence__toolRequests=[],
               call__executionBoundaryPolicy={"allowedEditSurfaces": ["apply_patch"]}),
        accepts("shell may edit", result__shell={**SHELL, "editedPaths": ["x"]}),
        raises("surface not allowed", BOUNDARY, result__editSurface="sed",
               call__executionBoundaryPolicy={"allowedEditSurfaces": ["apply_patch"]}),
        raises("no surface allowed", BOUNDARY, result__editSurface="sed",
               call__executionBoundaryPolicy={"allowedEditSurfaces": []}),
        raises("edit by an unknown surface", BOUNDARY, request__toolKind="edit",
               call__executionBoundaryPolicy={"allowedEditSurfaces": ["apply_patch"]}),
        accepts("surface allowed", result__editSurface="apply_patch",
                call__executionBoundaryPolicy={"allowedEditSurfaces": ["apply_patch"]}),
        accepts("surfaces not listed", result__editSurface="sed", call__executionBoundaryPolicy=ROOTS),
    ],
)  # fmt: skip
@pytest.mark.req("HARN-25", "HARN-26", "HARN-57", "SLICE-11")
def test_shell_boundary(changes: dict[str, Any], expected: set[str]) -> None:
    assert classes(turn(), changes) == expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        accepts("carried"),
        accepts("declined", evidence__compaction={"invoked": False}, call__compactionPolicyDigest=ABSENT),
        accepts("continued from it", evidence__continuity={"mode": "compaction"}),
        raises("no policy", COMPACTION, call__compactionPolicyDigest=ABSENT),
        raises("another policy", COMPACTION, evidence__compaction__policyDigest="q"),
        raises("no policy named", COMPACTION, evidence__compaction__policyDigest=ABSENT),
        raises("disabled", COMPACTION, runtimeConstraints__compaction__enabled=False),
        raises("goal lost", COMPACTION, runtimeConstraints__compaction__requiredCarryForwardRefs=["goal", "plan"]),
        raises("no summary", COMPACTION, evidence__compaction__summaryDigest=None),
        raises("no continuity", COMPACTION, evidence__compaction__continuityRef=" "),
        raises("a call dropped", COMPACTION, evidence__compaction__droppedToolCallIds=["a"]),
        accepts("an old call dropped", evidence__compaction__droppedToolCallIds=["z"]),
        raises("continued from none", COMPACTION, evidence__continuity={"mode": "compaction"},
               evidence__compaction=None),
        raises("continued from one that was declined", COMPACTION, evidence__continuity={"mode": "compaction"},
               evidence__compaction__invoked=False),
        accepts("fresh", evidence__continuity={"mode": "fresh"}, evidence__compaction=None),
    ],
)  # fmt: skip
@pytest.mark.req("HARN-27", "SLICE-12")
def test_compaction(changes: dict[str, Any], expected: set[str]) -> None:
    record = {"policyDigest": "p", "summaryDigest": "s", "continuityRef": "c", "carryForwardRefs": ["goal"]}
    document = turn(compaction=record)
    document["evidence"]["callSpec"]["compactionPolicyDigest"] = "p"
    document["runtimeConstraints"] = {"compaction": {"enabled": True, "requiredCarryForwardRefs": ["goal"]}}
    assert classes(document, changes) == expected
