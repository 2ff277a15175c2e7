"""The conformance vectors, and that classes and vectors cover each other."""

from __future__ import annotations

import pytest

from manglecp.harness.classes import CLASSES
from manglecp.harness.judgement import judge
from tests.harness.evidence import ROWS, VECTORS


@pytest.mark.parametrize("name", VECTORS)
@pytest.mark.req("HARN-03", "SLICE-02", "SLICE-04")
def test_vector(name: str) -> None:
    vector = VECTORS[name]
    found = judge(vector["input"])
    assert {
        "result": found.result,
        "failure_classes": list(found.failure_classes),
        "join_closed": found.join_closed,
        "mutation_ready": found.mutation_ready,
    } == vector["expect"]


@pytest.mark.req("FAIL-01")
def test_no_class_leaves_a_mutation_possible() -> None:
    for vector in VECTORS.values():
        if vector["expect"]["failure_classes"]:
            assert not judge(vector["input"]).mutation_ready


def test_every_class_has_a_vector_and_every_vector_a_class() -> None:
    named = {name for vector in VECTORS.values() for name in vector["expect"]["failure_classes"]}
    assert named == set(CLASSES)


def test_every_class_has_a_row_of_the_register() -> None:
    assert set(ROWS) == set(CLASSES)
    assert len(set(ROWS.values())) == len(CLASSES) == 42
