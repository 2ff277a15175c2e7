"""Packages are read strictly, all at once, and in one form."""

from __future__ import annotations

import hashlib
import json
import tomllib
from importlib.resources import files
from typing import Any

import pytest
from hypothesis import given, strategies as st

from manglecp.harness.canonical_v1 import canonical
from manglecp.harness.constraints import ROLES, TIERS
from manglecp.harness.policy import PolicyError, package_of, read_package
from manglecp.harness.policy.kinds import KINDS
from tests.harness.policy.packages import careful, careful_files, changed


def refused(files: dict[str, bytes]) -> list[str]:
    with pytest.raises(PolicyError) as caught:
        read_package(files)
    return [f"{one.place}: {one.message}" for one in caught.value.diagnostics]


def test_the_example_has_every_document() -> None:
    assert set(careful().contents) == set(KINDS)


def test_toml_and_json_are_the_same_package() -> None:
    as_json = {
        name.replace(".toml", ".json"): json.dumps(tomllib.loads(data.decode())).encode()
        for name, data in careful_files().items()
    }
    assert read_package(as_json) == careful()
    assert read_package(as_json).digest == careful().digest


def test_what_means_the_same_has_the_same_digest() -> None:
    files = careful_files()
    files["guardrail-stages.toml"] = b'requiredStages = ["Output", " input", "pre_flight", "input"]'
    files["handoff.toml"] = files["handoff.toml"].replace(
        b'"specialist.code", "specialist.tests", "orchestrator.main"',
        b'"orchestrator.main", " specialist.tests ", "specialist.code"',
    )
    assert read_package(files).digests == careful().digests


def test_everything_that_is_wrong_at_once() -> None:
    files = careful_files()
    files["tolos.toml"] = b""
    files["notes.yaml"] = b""
    files["stop.toml"] = b"maxTurn = 3\nmaxIterations = true\ncheckpointEveryTurns = 0"
    files["eval-gate.toml"] = b"dataset = ' '\n[thresholds]\nrecal = 0.5\nf1 = 1.5"
    files["risk-tiers.toml"] = b"tiers = 4"
    files["queue.json"] = b'{"dedup": true, "dedup": false}'
    files["views.toml"] = b"views ="
    files["scope.toml"] = b"[roles.specialist]\nread = ['a', 3]"
    files["boundary.toml"] = b"\xff"
    assert refused(files) == [
        "boundary.toml: not UTF-8: byte 0xff",
        "eval-gate.toml: /dataset: the text is blank",
        "eval-gate.toml: /thresholds/f1: 1.5 is greater than the maximum of 1",
        "eval-gate.toml: /thresholds/recal: the key 'recal' is unknown; did you mean recall?",
        "notes.yaml: the files of a package end in .toml or .json",
        "queue.json: an object has the key 'dedup' twice",
        "queue.toml: queue.json is the same kind of document",
        "risk-tiers.toml: defaultTier is missing",
        "risk-tiers.toml: /tiers: a table belongs here, not a number",
        "scope.toml: /roles/specialist/read/1: a text belongs here, not a number",
        "stop.toml: /checkpointEveryTurns: 0 is less than the minimum of 1",
        "stop.toml: /maxIterations: a whole number belongs here, not true or false",
        "stop.toml: /maxTurn: the key 'maxTurn' is unknown; did you mean maxTurns?",
        "tolos.toml: the document 'tolos' is unknown; did you mean tools?",
        "views.toml: not TOML: Invalid value (at end of document)",
    ]


def test_the_schemas_have_the_words_of_the_checks() -> None:
    definitions = json.loads(files("manglecp.harness.policy").joinpath("documents.json").read_text())["$defs"]
    assert tuple(definitions["risk-tiers"]["properties"]["tiers"]["properties"]) == TIERS
    for document, member in (("scope", "roles"), ("handoff", "allowedTargetsByRole")):
        assert tuple(definitions[document]["properties"][member]["properties"]) == ROLES


def test_documents_that_are_owed() -> None:
    assert refused({}) == [
        f"{name}: the document is missing"
        for name in ("decomposition", "governance", "mutation", "package", "queue", "render", "views")
    ]


def test_a_document_of_another_name() -> None:
    with pytest.raises(PolicyError, match="the document 'stopp' is unknown; did you mean stop"):
        package_of({"name": "a", "version": "1"}, {"stopp": {}})


@pytest.mark.parametrize(
    ("kind", "document", "message"),
    [
        ("tools", {"catalogId": "c", "tools": [{"toolName": "t"}]}, "schemaDigest or inputSchema is missing"),
        ("tools", {"catalogId": "c", "tools": ["t"]}, "/tools/0: a table belongs here, not a text"),
        ("tools", {"catalogId": "c", "tools": "t"}, "a list belongs here"),
        (
            "tools",
            {"catalogId": "c", "tools": [{"toolName": "t", "inputSchema": {}, "schemaDigest": "sha256:0"}]},
            "/tools/0/schemaDigest: the digest of inputSchema is sha256:44136",
        ),
        ("tools", {"catalogId": "c", "tools": [{"toolName": "t", "schemaDigest": "d"}] * 2}, "'t' is present twice"),
        ("examples", {"tools": {"repo.grep": "x"}}, "a list belongs here, not a text"),
        ("callers", {"tools": {"é": ["direct"]}}, "ASCII"),
        ("callers", {"tools": {"repo.read": []}}, "the list is empty"),
        ("callers", {"tools": 1}, "a table belongs here"),
        ("callers", {"tools": {"rm": ["direct"]}}, "the tool 'rm' is not in the catalogue"),
        ("deferral", {"eager": ["repo.read"], "deferred": ["repo.read"]}, "both eager and deferred"),
        ("filter", {"mode": "allowed", "tools": ["rm"]}, "filter: /tools: the tool 'rm'"),
        ("observability", {"mode": "dashboard", "allowedModes": ["disabled"]}, "not one of allowedModes"),
        ("observability", {"mode": "dashboard", "zeroDataRetention": True}, "zeroDataRetention forbids"),
        ("observability", {"mode": "disabled", "requireProcessorRef": True}, "processorRef is required and missing"),
        ("risk-tiers", {"defaultTier": "low", "tiers": {}}, "the tier low is not defined"),
        ("stop", {"checkpointEveryTurns": 2}, "no checkpoint is ever due"),
        ("protocol", {"handledStopReasons": ["a"], "continuation": {"b": "stop"}}, "'b' is not one of handled"),
        ("parallel", {"allowed": False, "maxBranches": 2}, "although none are allowed"),
        ("parallel", {"allowed": True, "maxBranches": 2, "expectedBranches": 3}, "more than maxBranches"),
        (
            "handoff",
            {
                "allowedTargets": ["a"],
                "requiredArtifactRefs": [],
                "requireReturnPath": False,
                "allowedTargetsByRole": {"specialist": ["b"]},
            },
            "'b' is not one of allowedTargets",
        ),
        ("views", {"views": {}, "requiredStateViewIds": ["v"]}, "the view 'v' is not defined"),
        (
            "retry",
            {
                "rules": [
                    {"ruleId": "a", "classes": ["tool.use_missing"], "maxAttempts": 1, "escalationAction": "stop"},
                    {"ruleId": "b", "classes": ["tool.use_missing"], "maxAttempts": 1, "escalationAction": "stop"},
                ]
            },
            "tool.use_missing has two rules, a and b",
        ),
        (
            "retry",
            {
                "rules": [
                    {
                        "ruleId": "a",
                        "classes": ["governance.eval_gate_unmet"],
                        "maxAttempts": 2,
                        "escalationAction": "stop",
                    }
                ]
            },
            "governance.eval_gate_unmet is never retried",
        ),
        ("retry", {"rules": [{"ruleId": "a"}]}, "classes is missing"),
        ("mutation", {"mode": 4}, "a text belongs here, not a number"),
        ("governance", {"claimed": 1}, "true or false belongs here"),
        ("eval-gate", {"dataset": "d", "thresholds": {"f1": "high"}}, "a number belongs here"),
        ("eval-gate", {"dataset": "d", "thresholds": {}}, "at least one threshold"),
    ],
)
def test_refused(kind: str, document: dict[str, object], message: str) -> None:
    documents = {**careful().contents, kind: document}
    with pytest.raises(PolicyError, match=message):
        package_of({"name": "careful", "version": "2"}, documents)


def test_a_required_control_needs_its_document() -> None:
    with pytest.raises(PolicyError, match="guardrailStages needs the document guardrail-stages"):
        changed(careful(), guardrail_stages=None)


def test_null_is_no_document() -> None:
    files = careful_files()
    del files["queue.toml"]
    files["queue.json"] = b"null"
    assert refused(files) == ["queue.json: null is not a document"]


WRONG = "/dedup: true or false belongs here, not a"


@pytest.mark.parametrize(
    ("file", "data", "problem"),
    [
        ("queue.json", b'{"dedup":' * 400 + b"1" + b"}" * 400, "nested more than 200 deep"),
        ("queue.json", b"[" * 10**5, "nested too deeply"),
        ("queue.toml", b"dedup = " + b"[" * 10**5, "nested too deeply"),
        ("queue.toml", b"dedup = " + b"[" * 150 + b"]" * 150, f"{WRONG} list"),
        ("queue.toml", b".".join([b"dedup"] * 2_000) + b" = 1", "nested more than 200 deep"),
        (
            "examples.json",
            b'{"tools":{"repo.grep":[' + b"[" * 300 + b"]" * 300 + b"]}}",
            "nested more than 200 deep",
        ),
    ],
)
def test_a_document_that_is_nested_too_deeply(file: str, data: bytes, problem: str) -> None:
    files = careful_files()
    del files[file.replace(".json", ".toml")]
    assert refused({**files, file: data}) == [f"{file}: {problem}"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["tools", "rules", "tiers", "mode", "a/b"]) | st.text(max_size=3), inner)
    ),
    max_leaves=8,
)


@given(st.sampled_from(sorted(KINDS)), JSON, st.integers(0, 5))
def test_whatever_stands_there_is_a_package_or_refused(kind: str, value: Any, member: int) -> None:
    """A member of a document, or a whole one, replaced by anything."""
    document = dict(careful().contents[kind])
    if member < len(document):
        value = {**document, sorted(document)[member]: value}
    try:
        package = package_of({"name": "careful", "version": "1"}, {**careful().contents, kind: value})
    except PolicyError:
        return
    assert package_of({"name": "careful", "version": "1"}, package.contents) == package


def test_a_document_may_carry_its_own_digest() -> None:
    document = tomllib.loads(careful_files()["stop.toml"].decode())
    own = "pol1_" + hashlib.sha256(canonical(document)).hexdigest()
    carried = {**careful().contents, "stop": {**document, "policyDigest": own}}
    package = package_of({"name": "careful", "version": "1.0.0"}, carried)
    assert package.digests == careful().digests
    with pytest.raises(PolicyError, match=f"stop: /policyDigest: the digest of the document is {own}"):
        package_of({"name": "careful", "version": "1"}, {**carried, "stop": {**document, "policyDigest": "pol1_0"}})
