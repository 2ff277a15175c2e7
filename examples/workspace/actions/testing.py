"""Running tests of the project with pytest, in the project's own environment.

The repository can be read and not written: tests keep what they write in a folder that is gone afterwards, and so do
caches, bytecode and the like. There is no network. Time and memory are limited. What became of each test is written
down by a plugin (:mod:`reporting.manglecp_report`), for nobody should have to guess it from what pytest prints.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypedDict

from manglecp import Context, Limits, action

from .places import Frame, frames_of, relative
from .programs import Ended, locate, run
from .roots import Root
from .secrets import redacted
from .test_ids import argument_of

__all__ = ["Comparison", "Failure", "TestRun", "compare_runs", "run_tests"]

_PLUGIN: Final = "manglecp_report"
_REPORTING: Final = Path(__file__).parent / "reporting"
_MOST_OUTPUT: Final = 20_000
_MOST_FAILURES: Final = 50
_MOST_IDS: Final = 5_000
_LARGEST_REPORT: Final = 32 * 1024 * 1024
_OUTCOMES: Final = {0: "passed", 1: "failed", 2: "interrupted", 5: "no_tests"}

Outcome = Literal["passed", "failed", "interrupted", "no_tests", "timeout", "unusable"]


class Failure(TypedDict):
    test: str
    phase: str
    """``setup``, ``call``, ``teardown``, or ``collect`` for a file that could not be imported."""
    file: str
    line: int
    message: str
    frames: list[Frame]


class TestRun(TypedDict):
    outcome: Outcome
    """``unusable``: pytest itself could not do its work, and the output says why."""
    passed: list[str]
    failed: list[str]
    skipped: list[str]
    missing: list[str]
    """Ids that were asked for and of which nothing was heard."""
    failures: list[Failure]
    output: str
    """The end of what pytest printed."""
    seconds: float


class Comparison(TypedDict):
    worse: bool
    broken: list[str]
    """Passed before, and do not pass now."""
    mended: list[str]
    failing: list[str]
    """Fail now."""


@action(effects=["process"], spawn=["python"], timeout=900)
def run_tests(
    context: Context,
    tests: Annotated[list[str], Limits(max_length=500)],
    seconds: Annotated[int, Limits(ge=1, le=800)] = 120,
    memory_mb: Annotated[int, Limits(ge=128, le=2048)] = 1024,
    stop_at_first: bool = False,
) -> TestRun:
    """Run tests of the repository with pytest, in the project's environment.

    Args:
        tests: ids, files or folders; none means all
        seconds: how long they may take together
        memory_mb: how much memory each process may use
        stop_at_first: end with the first failure
    """
    arguments = [argument_of(test) for test in dict.fromkeys(tests)]
    with Root.opened(context.settings) as root, tempfile.TemporaryDirectory(prefix="tests-") as folder:
        report = Path(folder) / "report.jsonl"
        python = locate(context.settings.get("python") or "python3")
        argv = [python, "-m", "pytest", "-p", _PLUGIN, "-q", "--color=no", "--tb=short", f"--rootdir={root.path}"]
        argv += [f"--basetemp={folder}/tests", "-o", f"cache_dir={folder}/cache", *(["-x"] if stop_at_first else [])]
        begun = time.monotonic()
        environ = _environment(Path(folder), report)
        ended = run(
            [*argv, *arguments],
            folder=root.path,
            environ=environ,
            seconds=seconds,
            memory_mb=memory_mb,
            most=4 * _MOST_OUTPUT,
            keep_end=True,
        )
        return _judged(list(_read(report)), ended, tests, root.path, time.monotonic() - begun)


@action(effects=["none"], idempotent=True, deterministic=True)
def compare_runs(before: TestRun, after: TestRun) -> Comparison:
    """Say whether tests got worse between two runs of the same ones."""
    passing, now = set(before["passed"]), set(after["passed"])
    failing = set(before["failed"])
    broken = sorted(passing - now)
    fresh = sorted(set(after["failed"]) - failing - passing)
    stopped = after["outcome"] in ("timeout", "unusable", "interrupted") and after["outcome"] != before["outcome"]
    return {
        "worse": bool(broken or fresh or stopped),
        "broken": sorted({*broken, *fresh}),
        "mended": sorted(failing & now),
        "failing": sorted(after["failed"]),
    }


def _environment(folder: Path, report: Path) -> dict[str, str]:
    """All that the tests inherit. Whatever they and their tools like to keep goes to the folder."""
    for name in ("home", "tmp"):
        (folder / name).mkdir()
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "LANG": "C.UTF-8",
        "HOME": f"{folder}/home",
        "TMPDIR": f"{folder}/tmp",
        "PYTHONPATH": str(_REPORTING),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        "COVERAGE_FILE": f"{folder}/coverage",
        "HYPOTHESIS_STORAGE_DIRECTORY": f"{folder}/hypothesis",
        "MANGLECP_REPORT": str(report),
    }


def _read(report: Path) -> Iterator[dict[str, Any]]:
    """What the plugin wrote; the tests could write there too, so a line may be anything."""
    if not report.is_file() or report.is_symlink() or report.stat().st_size > _LARGEST_REPORT:
        return
    for line in report.read_bytes().splitlines():
        try:
            said = json.loads(line)
        except ValueError:
            continue
        if isinstance(said, dict):
            yield said


def _judged(reports: list[dict[str, Any]], ended: Ended, tests: list[str], root: str, seconds: float) -> TestRun:
    failures = [_failure(said, root) for said in reports if said.get("outcome") == "failed"]
    failed = {failure["test"] for failure in failures}
    heard = {str(said.get("test")): said for said in reports if "outcome" in said}
    passed = {test for test, said in heard.items() if said["outcome"] == "passed"} - failed
    skipped = {test for test, said in heard.items() if said["outcome"] == "skipped"} - failed - passed
    outcome: Outcome = "timeout" if ended.code is None else _OUTCOMES.get(ended.code, "unusable")  # type: ignore[assignment]
    known = heard.keys()
    missing = [test for test in tests if not any(_covers(test, each) for each in known)]
    output = ended.output + (b"\n" + ended.errors if outcome == "unusable" or not ended.output else b"")
    return {
        "outcome": outcome,
        "passed": sorted(passed)[:_MOST_IDS],
        "failed": sorted(failed)[:_MOST_IDS],
        "skipped": sorted(skipped)[:_MOST_IDS],
        "missing": missing,
        "failures": failures[:_MOST_FAILURES],
        "output": redacted(output.decode(errors="replace"))[-_MOST_OUTPUT:].replace("\0", ""),
        "seconds": round(seconds, 3),
    }


def _covers(asked: str, test: str) -> bool:
    """Whether a test is one that was asked for by its id, its class, its file or its folder."""
    return test == asked or test.startswith((f"{asked}::", f"{asked}[", f"{asked}/"))


def _failure(said: dict[str, Any], root: str) -> Failure:
    line = said.get("line")
    return {
        "test": str(said.get("test", "")),
        "phase": str(said.get("when", "")),
        "file": relative(str(said.get("file", "")), root),
        "line": line if isinstance(line, int) else 0,
        "message": redacted(str(said.get("message", ""))),
        "frames": frames_of(said.get("frames"), root),
    }
