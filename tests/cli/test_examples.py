"""The examples do what their pages say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.conftest import Run

EXAMPLES = Path(__file__).parents[2] / "examples"
INCIDENT = str(EXAMPLES / "first" / "incident.mg")
PROGRAMS = sorted(EXAMPLES.glob("**/*.mg"))


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_examples_are_laid_out(run: Run, program: Path) -> None:
    assert run("fmt", "--check", str(program)).exit_code == 0


def facts(run: Run, query: str, clock: str = "12:00") -> list[str]:
    shown = run("query", INCIDENT, query, "--now", f"2026-01-15T{clock}:00Z")
    assert (shown.exit_code, shown.stderr) == (0, "")
    return shown.stdout.splitlines()


def test_incident_as_its_page_says(run: Run) -> None:
    page = (EXAMPLES / "first" / "README.md").read_text("utf-8")
    answer = re.search(r"prints:\n\n```\n(.*?)```", page, re.DOTALL)
    assert answer is not None
    assert facts(run, "why(Tool, Service, Reason)") == answer[1].splitlines()


def test_incident_changes_with_the_time(run: Run) -> None:
    assert facts(run, "root(_)") == ["root(/payments)"]
    assert facts(run, "offered(T, /payments)") == [
        "offered(/page,/payments)",
        "offered(/read_logs,/payments)",
        "offered(/rollback,/payments)",
    ]
    assert facts(run, "offered(T, /payments)", "12:10") == [
        "offered(/page,/payments)",
        "offered(/read_logs,/payments)",
        "offered(/restart,/payments)",
    ]
    assert facts(run, "firing(_)", "11:43") == ["firing(/payments)"]
    assert facts(run, "offered(_, _)", "11:00") == []
    assert facts(run, "hidden(T)") == ["hidden(/drop_table)", "hidden(/failover)", "hidden(/restart)"]
