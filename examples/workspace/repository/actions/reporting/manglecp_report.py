"""A plugin of pytest that writes down what became of each test, one line of JSON per report, and runs only some.

Pytest itself runs nothing if one of the ids that it is given is not there. Here the others are run.

What begins is written down as well, and so are the begin and the end of it all: if the process is ended in between, or
ends itself, one can still tell which test was at work.

It runs in the environment of the project that is tested, with whatever Python and pytest are there, and imports nothing
else. What it cannot tell it leaves out: a report must never fail a test.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_PATH = os.environ.get("MANGLECP_REPORT", "")
_ASKED = os.environ.get("MANGLECP_ASKED", "")
_LONGEST = 2000


def _write(said: dict[str, Any]) -> None:
    if _PATH and "PYTEST_XDIST_WORKER" not in os.environ:
        with Path(_PATH).open("a", encoding="utf-8", errors="backslashreplace") as stream:
            stream.write(json.dumps(said) + "\n")


def _frames(longrepr: Any) -> Iterator[list[Any]]:
    """Where the error passed through, outermost first."""
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
    if not _ASKED:
        return
    asked = json.loads(Path(_ASKED).read_text(encoding="utf-8"))
    starts = tuple(each + after for each in asked for after in ("::", "[", "/"))
    wanted = [item for item in items if item.nodeid in asked or item.nodeid.startswith(starts)]
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
