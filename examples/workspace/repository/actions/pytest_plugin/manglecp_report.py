"""A pytest plugin that writes one line of JSON for each test report, and selects the requested tests.

Pytest runs no test at all if one requested id does not exist; this plugin runs the others.

The start and end of the session and of each test are written too, so that the running test is known if the process
ends early. The plugin runs in the environment of the tested project with its versions of Python and pytest, and has no
other imports. Missing attributes are left out: a report must never fail a test.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_PATH = os.environ.get("MANGLECP_REPORT", "")
_SELECTED = os.environ.get("MANGLECP_SELECTED", "")
_LONGEST = 2000


def _write(record: dict[str, Any]) -> None:
    if _PATH and "PYTEST_XDIST_WORKER" not in os.environ:
        with Path(_PATH).open("a", encoding="utf-8", errors="backslashreplace") as stream:
            stream.write(json.dumps(record) + "\n")


def _frames(longrepr: Any) -> Iterator[list[Any]]:
    """Yield file and line of each frame, outermost first."""
    for entry in getattr(getattr(longrepr, "reprtraceback", None), "reprentries", None) or ():
        place = getattr(entry, "reprfileloc", None)
        if place is not None:
            yield [str(place.path)[:_LONGEST], int(place.lineno)]


def _failure(report: Any) -> dict[str, Any]:
    longrepr = getattr(report, "longrepr", None)
    crash = getattr(longrepr, "reprcrash", None)
    text = getattr(crash, "message", None) or str(longrepr or "")
    found: dict[str, Any] = {"message": str(text)[:_LONGEST], "frames": list(_frames(longrepr))[-50:]}
    if crash is not None:
        found.update(file=str(crash.path), line=int(crash.lineno))
    return found


def pytest_sessionstart() -> None:
    _write({"started": True})


def pytest_collection_modifyitems(config: Any, items: list[Any]) -> None:
    if not _SELECTED:
        return
    selected = json.loads(Path(_SELECTED).read_text(encoding="utf-8"))
    starts = tuple(each + after for each in selected for after in ("::", "[", "/"))
    wanted = [item for item in items if item.nodeid in selected or item.nodeid.startswith(starts)]
    config.hook.pytest_deselected(items=[item for item in items if item not in wanted])
    items[:] = wanted


def pytest_runtest_logstart(nodeid: str) -> None:
    _write({"begun": nodeid})


def pytest_runtest_logfinish(nodeid: str) -> None:
    _write({"over": nodeid})


def pytest_sessionfinish() -> None:
    _write({"finished": True})


def pytest_runtest_logreport(report: Any) -> None:
    if report.when == "call" or report.outcome != "passed":
        failure = _failure(report) if report.outcome == "failed" else {}
        _write({"test": report.nodeid, "when": report.when, "outcome": report.outcome, **failure})


def pytest_collectreport(report: Any) -> None:
    if report.outcome == "failed":
        _write({"test": report.nodeid, "when": "collect", "outcome": "failed", **_failure(report)})
