"""Rows of the register that no single class stands for."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

from manglecp.harness.canonical_v1 import digest_v1 as digest
from manglecp.harness.witness import verify, witness_of
from tests.harness.evidence import ABSENT, classes, judged, turn

HARNESS = Path(__file__).parents[2] / "src" / "manglecp" / "harness"


@pytest.mark.req("HARN-07")
def test_a_deferred_tool_is_found_before_it_is_called() -> None:
    defer = {"eager": ["read"], "deferred": ["grep"]}
    found = {"query": "search text", "resultTools": ["grep"], "resolvedToolName": "grep"}
    changes: dict[str, Any] = {
        "policyDocuments.deferPolicy": defer,
        "evidence.callSpec.deferPolicyDigest": digest(defer),
    }
    assert classes(turn(), changes) == {"tool.discovery_unresolved"}
    assert classes(turn(), changes | {"evidence.toolRequests.0.searchRef": found}) == set()


@pytest.mark.req("HARN-48", "SLICE-05")
def test_a_search_is_bound_to_the_catalogue() -> None:
    catalogue = {"catalogId": "c", "tools": [{"toolName": "grep"}]}
    search = {
        "query": "q",
        "catalogDigest": digest(catalogue),
        "resultTools": ["grep"],
        "resultSetDigest": digest(["grep"]),
        "resolvedToolName": "grep",
    }
    changes: dict[str, Any] = {
        "policyDocuments.toolCatalog": catalogue,
        "evidence.callSpec.toolCatalogDigest": digest(catalogue),
        "evidence.toolRequests.0.searchRef": search,
    }
    assert classes(turn(), changes) == set()
    for member, value in (("catalogDigest", digest("old")), ("resultSetDigest", digest(["grep", "rm"]))):
        assert classes(turn(), {**changes, f"evidence.toolRequests.0.searchRef.{member}": value}) == {
            "tool.discovery_mismatch"
        }


@pytest.mark.req("HARN-13")
@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("auto", set()),
        ("any", set()),
        ({"mode": "specific", "toolName": "grep"}, set()),
        ({"mode": "specific", "toolName": "read"}, {"tool.unknown_or_disallowed"}),
        ("specific", {"tool.schema_invalid"}),
        ("sometimes", {"tool.schema_invalid"}),
    ],
)
def test_tool_choice(choice: object, expected: set[str]) -> None:
    assert classes(turn(), {"evidence.callSpec.toolChoice": choice}) == expected


@pytest.mark.req("HARN-45", "HARN-80")
@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, {"tool.schema_invalid"}),
        ({"evidence.callSpec.toolPolicy": {"parserProfileId": "react@1"}}, set()),
        ({"evidence.toolRequests.0.parserProfileId": "react@1"}, set()),
        (
            {"evidence.toolRequests.0.parserProfileId": "react@1", "toolConstraints.parserProfiles": ["other@1"]},
            {"tool.schema_invalid"},
        ),
        (
            {"evidence.toolRequests.0.parserProfileId": "react@1", "evidence.toolRequests.0.sourceBlock": "free_text"},
            {"tool.schema_invalid"},
        ),
    ],
)
def test_text_is_no_call_without_an_adapter(changes: dict[str, Any], expected: set[str]) -> None:
    assert classes(turn(), {"evidence.callSpec.actionMode": "text", **changes}) == expected


@pytest.mark.req("HARN-80")
def test_text_without_calls_may_be_observed() -> None:
    quiet = dict.fromkeys(("toolRequests", "toolResults", "toolUse", "toolRender"), ABSENT)
    changes = {"evidence.callSpec.actionMode": "text", **{f"evidence.{name}": ABSENT for name in quiet}}
    judgement = judged(turn(), changes)
    assert judgement.result == "accepted"
    assert not judgement.mutation_ready


@pytest.mark.req("HARN-78")
def test_code_runs_several_calls_and_shows_what_it_printed() -> None:
    changes: dict[str, Any] = {
        "evidence.callSpec.actionMode": "code",
        "evidence.toolRequests.0.toolKind": "code_execution",
        "evidence.toolRequests.1.callerId": "code_execution",
        "evidence.toolResults.1.callerEdge": {"callerKind": "code_execution", "parentToolCallId": "a"},
    }
    observed = {"stdoutDigest": digest("out"), "stderrDigest": digest(""), "tracebackDigest": digest("none")}
    assert classes(turn("a", "b"), changes) == {"tool.schema_invalid"}
    assert classes(turn("a", "b"), {**changes, "evidence.toolResults.0.observation": observed}) == set()


@pytest.mark.req("HARN-59")
def test_a_result_has_two_renders() -> None:
    one = judged(turn()).digests["toolRenderSetDigest"]
    for member in ("operatorPayloadDigest", "reminderRenderDigest"):
        assert judged(turn(), {f"evidence.toolRender.0.{member}": "sha256:other"}).digests["toolRenderSetDigest"] != one


@pytest.mark.req("HARN-82")
def test_the_room_is_pure() -> None:
    """Nothing in it reads a clock, a file, a process or chance; the import contract says the same of whole modules."""
    impure = {"asyncio", "os", "pathlib", "random", "secrets", "socket", "subprocess", "time", "datetime", "uuid"}
    for path in sorted(HARNESS.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names = {alias.name.partition(".")[0] for n in ast.walk(tree) if isinstance(n, ast.Import) for alias in n.names}
        names |= {(n.module or "").partition(".")[0] for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
        calls = {n.func.id for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
        assert not names & impure, path.name
        assert "open" not in calls, path.name


def test_a_search_is_kept_without_its_words() -> None:
    search = {
        "query": "who is ann's doctor",
        "resultTools": ["grep", "read"],
        "resolvedToolName": "grep",
        "x": "secret",
    }
    again = {**search, "query": " who is ann's doctor\n", "resultTools": ["read", "grep", "grep"]}
    row = {"toolCallId": "a", "toolName": "grep", "searchRef": search}
    judgement = judged(turn(), {"evidence.toolRequests": [row, {**row, "searchRef": again}]})
    assert judgement.result == "accepted", "the two rows say the same"
    kept = json.dumps(witness_of(judgement))
    assert "doctor" not in kept
    assert "secret" not in kept
    assert verify(witness_of(judgement)).holds
