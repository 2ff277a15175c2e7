"""The checks themselves: each names rows that there are, and what is only recommended is known as such."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from manglecp.conformance import Report, read_plan, run
from manglecp.conformance.checks import CHECKS
from manglecp.conformance.message_rules import CODE_ROWS, WATCHED
from manglecp.conformance.patterns import differences, fill
from manglecp.conformance.report import RECOMMENDED
from manglecp.conformance.runner import DEVIATIONS, UNTESTED
from tests.requirements.register import load
from tests.server.house import house

REGISTER = load().by_id


def used() -> set[str]:
    rows = {row for check in CHECKS for row in check.rows} | set(UNTESTED) | WATCHED
    return {row for row in rows if not row.startswith("OPEN-")}


def test_every_row_is_in_the_register() -> None:
    assert used() <= set(REGISTER)


def test_deviations_are_registered() -> None:
    assert [row for row in DEVIATIONS if REGISTER[row].status != "deviates"] == []


def test_what_is_recommended_and_no_more_is_advice() -> None:
    assert {row for row in used() if REGISTER[row].level == "SHOULD"} == RECOMMENDED & used()
    assert {row for row in REGISTER if REGISTER[row].level == "SHOULD"} >= RECOMMENDED


def test_each_code_stands_in_its_row() -> None:
    for code, row in CODE_ROWS.items():
        assert REGISTER[row].statement.startswith(f"`{code}`"), code


def test_every_required_row_about_servers_is_looked_at() -> None:
    """Or it is said why not."""
    others = {"CLI", "IPC", "HARN", "FAIL", "SLICE"}
    required = {id_ for id_, row in REGISTER.items() if row.level == "MUST" and id_.split("-")[0] not in others}
    assert required - used() == set()


def test_checks_have_names_of_their_own() -> None:
    names = [check.name for check in CHECKS]
    assert len(set(names)) == len(names)
    assert all(names)


def test_one_note_against_a_row_is_enough() -> None:
    report = Report("x", "http", 3)
    report.note("WIRE-04", True, "", "")
    report.note("WIRE-04", False, "one", "another")
    report.note("TRANS-26", False, "one", "another")
    report.skip(["WIRE-01"], "because")
    assert (report.of("failed"), report.of("advice"), report.of("not tested")) == (
        ["WIRE-04"],
        ["TRANS-26"],
        ["WIRE-01"],
    )
    assert not report.conforms
    assert "because: WIRE-01" in "\n".join(report.lines())


def test_a_plan_knows_what_time_it_is(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(
        '[[intents]]\nname = "a"\neval_time = "$now+1h"\nfacts = [{pred = "p", args = ["$now", "$now-2d"]}]\n'
    )
    (planned,) = read_plan(path, now=1_767_323_045).intents
    assert planned.eval_time == "2026-01-02T04:04:05Z"
    assert planned.facts[0]["args"] == ["2026-01-02T03:04:05Z", "2025-12-31T03:04:05Z"]
    assert planned.label == "a"


@pytest.mark.req("MANI-29")
async def test_a_server_that_boots_is_waited_for() -> None:
    hold = asyncio.Event()
    async with house(boot=False, hold=hold) as h:
        running = asyncio.create_task(run(h.url, seconds=30.0, rows={"WIRE-04"}))
        while not any(one.code == "server_not_ready" for one in h.desk.handled):
            await asyncio.sleep(0.01)
        hold.set()
        report = await running
        assert report.conforms, "\n".join(report.lines())
        assert report["MANI-29"].outcome == report["WIRE-04"].outcome == "passed"


def test_a_wrong_name_in_a_script_is_no_fault_of_a_server() -> None:
    assert list(differences(fill({"a": "<b>"}, {"b": [1]}), {"a": [2], "c": 3})) == ["answer.a is [2], expected [1]"]
    with pytest.raises(AssertionError, match="unknown name c"):
        fill({"a": ["x <c>"]}, {"b": 1})
