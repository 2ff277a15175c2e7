"""The categories of tests that the specification names: each is tested, and the report says how each came out."""

from __future__ import annotations

import pytest

from manglecp.conformance import Report
from manglecp.conformance.checks import CHECKS
from manglecp.conformance.report import CATEGORIES
from tests.conformance_tool.test_registry import used
from tests.requirements.register import load

NAMED = (
    *("manifest", "fact encoding", "intent evaluation", "macro-tools"),
    *("invocation", "errors", "security", "transport"),
)


def areas(rows: set[str]) -> set[str]:
    return {row.split("-")[0] for row in rows}


@pytest.mark.req("CONF-18")
def test_the_categories_are_those_of_the_specification_and_hold_every_row() -> None:
    statement = load().by_id["CONF-18"].statement
    assert statement == f"Test categories: {', '.join(NAMED)}."
    assert tuple(CATEGORIES) == NAMED
    belonging = [area for some in CATEGORIES.values() for area in some]
    assert len(set(belonging)) == len(belonging)
    assert areas(used()) - set(belonging) == {"CONF"}
    checked = areas({row for check in CHECKS for row in check.rows})
    for category, some in CATEGORIES.items():
        assert checked & set(some), f"no check is about {category}"


@pytest.mark.req("CONF-18")
def test_a_failure_shows_in_its_category_and_in_no_other() -> None:
    report = Report("x", "http", 3)
    report.note("SEC-13", False, "one", "another")
    report.note("DATA-01", True, "", "")
    report.skip(["PROG-04"], "because")
    assert tuple(report.document()["categories"]) == NAMED
    assert all(f"{name}:" in "\n".join(report.lines()) for name in NAMED)
    assert {name: counts for name in CATEGORIES if any((counts := report.counts(name)).values())} == {
        "fact encoding": {"passed": 1, "failed": 0, "advice": 0, "not tested": 0},
        "invocation": {"passed": 0, "failed": 0, "advice": 0, "not tested": 1},
        "security": {"passed": 0, "failed": 1, "advice": 0, "not tested": 0},
    }
