"""Run the tests of the project with pytest, in the project's own environment.

The repository is read-only: temporary files, caches and bytecode go to a folder that is deleted afterwards. There is no
network; time and memory are limited. A plugin (:mod:`pytest_plugin.manglecp_report`) records the result of each test,
so that the output of pytest need not be parsed. The record is in the temporary folder of this call: tests of other
calls cannot change it. These tests can, so it is never better than the exit status of pytest.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypedDict

from manglecp import Context, Limits, action

from ..programs import ProcessResult, locate, run
from ..refusal import Refusal
from ..secrets import redact
from .locations import Frame, parse_frames, relative_path
from .roots import Root
from .testids import covers, path_of_test

__all__ = ["Comparison", "Failure", "TestRun", "compare_runs", "run_tests"]

_PLUGIN: Final = "manglecp_report"
_PLUGIN_FOLDER: Final = Path(__file__).parent / "pytest_plugin"
_MOST_OUTPUT: Final = 20_000
_MOST_FAILURES: Final = 50
_MOST_FAILED: Final = 2_000
_MOST_LISTED: Final = 400_000
"""The most characters of listed ids of passed and skipped tests; some projects have more tests than fit in a result."""
_LARGEST_REPORT: Final = 32 * 1024 * 1024
_REPORT: Final = "report.jsonl"
Outcome = Literal["passed", "failed", "interrupted", "no_tests", "timeout", "unusable"]
_STOPPED: Final = ("timeout", "unusable", "interrupted")
_NO_PYTEST: Final = "the project's Python has no pytest: install it there, or serve the pack with --set python=PATH"
_OUTCOMES: Final[dict[int, Outcome]] = {0: "passed", 1: "failed", 2: "interrupted", 5: "no_tests"}


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
    """``unusable``: pytest could not start, and the output has the reason. ``interrupted``: pytest did not reach its
    end, and the test that was running has failed."""
    passed: list[str]
    failed: list[str]
    skipped: list[str]
    upto: str | None
    """The last listed id of passed and skipped tests; None if all of them are listed."""
    count: int
    """The number of passed tests, listed or not."""
    missing: list[str]
    """Selected ids without a report."""
    failures: list[Failure]
    output: str
    """The end of the output of pytest."""
    seconds: float
    problem: str
    """The reason why no test can run here, and how to fix it; empty on success."""


class Comparison(TypedDict):
    worse: bool
    broken: list[str]
    """Tests that fail now and did not fail before, or that passed before and are skipped now."""
    gone: list[str]
    """Tests that passed before and have no report now."""
    fewer: int
    """The decrease in the number of passed tests, if not all of them are listed; otherwise 0."""
    mended: list[str]
    failing: list[str]
    """Tests that fail now."""
    outcome: Outcome
    """The outcome of the second run."""


@action(effects=["process"], spawn=["python"], idempotent=True, timeout=900)
def run_tests(
    context: Context,
    tests: Annotated[list[str], Limits(max_length=500)],
    seconds: Annotated[int, Limits(ge=1, le=800)] = 120,
    memory_mb: Annotated[int, Limits(ge=128, le=2048)] = 1024,
    stop_at_first: bool = False,
    refuse: bool = True,
) -> TestRun:
    """Run tests of the repository with pytest, in the project's environment.

    Args:
        tests: ids, files or folders; an empty list means all tests
        seconds: the time limit for all tests together
        memory_mb: the memory limit of each process
        stop_at_first: stop at the first failure
        refuse: fail if no test can run, instead of returning the problem
    """
    selected = list(dict.fromkeys(tests))
    try:
        return _run(context, selected, seconds, memory_mb, stop_at_first)
    except Refusal as refusal:
        if refuse:
            raise
        problem = str(refusal)
    return {
        "outcome": "unusable",
        "passed": [],
        "failed": [],
        "skipped": [],
        "upto": None,
        "count": 0,
        "missing": selected,
        "failures": [],
        "output": "",
        "seconds": 0.0,
        "problem": problem,
    }


def _run(context: Context, selected: list[str], seconds: int, memory_mb: int, stop_at_first: bool) -> TestRun:
    named = dict.fromkeys(map(path_of_test, selected))
    with Root.open(context.settings) as root, tempfile.TemporaryDirectory(prefix="tests-") as folder:
        existing = [f"./{path}" for path in named if root.kind(path) in ("file", "folder")]
        if selected and not existing:
            raise Refusal(f"none of these test files exists, relative to the root: {', '.join(named)[:200]}")
        begun = time.monotonic()
        argv = [_interpreter(context), "-m", "pytest", "-p", _PLUGIN, "-q", "--color=no", "--tb=short"]
        argv += ["--continue-on-collection-errors"]
        argv += [f"--rootdir={root.path}", f"--basetemp={folder}/tests", "-o", f"cache_dir={folder}/cache"]
        ended = run(
            [*argv, *(["-x"] if stop_at_first else []), *existing],
            folder=root.path,
            environ=_environment(Path(folder), selected),
            seconds=seconds,
            memory_mb=memory_mb,
            most=4 * _MOST_OUTPUT,
            keep_end=True,
        )
        return _test_run(list(_read(Path(folder) / _REPORT)), ended, selected, root.path, time.monotonic() - begun)


def _interpreter(context: Context) -> str:
    """Return the path of the project's Python. A wrapper script is refused: the sandbox cannot start it."""
    named = context.settings.get("python") or "python3"
    try:
        program = locate(named)
    except Refusal as refusal:
        raise Refusal(f"{refusal}: serve the pack with --set python=PATH, a name or an absolute path") from None
    with suppress(PermissionError), Path(program).open("rb") as stream:  # starting it reports the same error
        if stream.read(2) == b"#!":
            raise Refusal(f"{named!r} is a script, not an interpreter: serve the pack with --set python=PATH")
    return program


@action(effects=["none"], idempotent=True, deterministic=True)
def compare_runs(before: TestRun, after: TestRun) -> Comparison:
    """Compare two runs of the same tests, and return whether the second one is worse."""
    passed, failed = set(before["passed"]), set(before["failed"])
    passing, failing = set(after["passed"]), set(after["failed"])
    skipped, upto = set(after["skipped"]), after["upto"]
    broken = (passed & (failing | skipped)) | (failing - failed)
    gone = {test for test in passed - passing - broken if upto is None or test <= upto}
    all_listed = before["upto"] is None and upto is None
    fewer = 0 if all_listed else max(before["count"] - after["count"], 0)
    stopped = after["outcome"] in _STOPPED and after["outcome"] != before["outcome"]
    hidden = _hides_failures(after) and not _hides_failures(before)
    return {
        "worse": bool(broken or gone or fewer or stopped or hidden),
        "broken": sorted(broken),
        "gone": sorted(gone),
        "fewer": fewer,
        "mended": sorted(failed & passing),
        "failing": sorted(failing),
        "outcome": after["outcome"],
    }


def _hides_failures(run: TestRun) -> bool:
    """Return whether pytest failed and no test did: a plugin failed the session, or a test changed the record."""
    return run["outcome"] == "failed" and not run["failed"]


def _environment(folder: Path, selected: list[str]) -> dict[str, str]:
    """Return the whole environment of the tests. Files of tests and tools go to the folder."""
    for name in ("home", "tmp"):
        (folder / name).mkdir()
    selection = {}
    if selected:
        (folder / "selected.json").write_text(json.dumps(selected))
        selection["MANGLECP_SELECTED"] = f"{folder}/selected.json"
    return selection | {
        "PATH": os.environ.get("PATH", os.defpath),
        "LANG": "C.UTF-8",
        "HOME": f"{folder}/home",
        "TMPDIR": f"{folder}/tmp",
        "PYTHONPATH": str(_PLUGIN_FOLDER),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        "COVERAGE_FILE": f"{folder}/coverage",
        "HYPOTHESIS_STORAGE_DIRECTORY": f"{folder}/hypothesis",
        "MANGLECP_REPORT": f"{folder}/{_REPORT}",
    }


def _read(report: Path) -> Iterator[dict[str, Any]]:
    """Yield the records of the plugin. Tests can write to the file too, so invalid lines are skipped."""
    if not report.is_file() or report.is_symlink() or report.stat().st_size > _LARGEST_REPORT:
        return
    for line in report.read_bytes().splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict):
            yield record


def _test_run(
    reports: list[dict[str, Any]], ended: ProcessResult, tests: list[str], root: str, seconds: float
) -> TestRun:
    failures = [_failure(record, root) for record in reports if record.get("outcome") == "failed"]
    outcome = _outcome(ended.code, reports)
    if outcome == "passed" and failures:
        outcome = "failed"
    failures += [_unfinished(test, outcome) for test in _running_tests(reports)]
    failed = {failure["test"] for failure in failures}
    reported = {str(record.get("test")): record for record in reports if "outcome" in record}
    passed = {test for test, record in reported.items() if record["outcome"] == "passed"} - failed
    skipped = {test for test, record in reported.items() if record["outcome"] == "skipped"} - failed - passed
    upto = _last_listed(passed | skipped)
    known = reported.keys() | failed
    missing = [test for test in tests if not any(covers(test, each) for each in known)]
    output = ended.output + (b"\n" + ended.errors if outcome == "unusable" or not ended.output else b"")
    return {
        "outcome": outcome,
        "passed": sorted(test for test in passed if upto is None or test <= upto),
        "failed": sorted(failed)[:_MOST_FAILED],
        "skipped": sorted(test for test in skipped if upto is None or test <= upto),
        "upto": upto,
        "count": len(passed),
        "missing": missing,
        "failures": failures[:_MOST_FAILURES],
        "output": redact(output.decode(errors="replace"))[-_MOST_OUTPUT:].replace("\0", ""),
        "seconds": round(seconds, 3),
        "problem": _NO_PYTEST if outcome == "unusable" and b"No module named pytest" in ended.errors else "",
    }


def _last_listed(tests: set[str]) -> str | None:
    """Return the last id, in sorted order, that fits into a result; None if all ids fit."""
    size, last = 0, ""
    for test in sorted(tests):
        size += len(json.dumps(json.dumps(test)))  # the result is JSON in a JSON string
        if size > _MOST_LISTED:
            return last
        last = test
    return None


def _outcome(code: int | None, reports: list[dict[str, Any]]) -> Outcome:
    """Return the outcome. A test can end the process with any status, so the end of the session must be recorded."""
    if code is None:
        return "timeout"
    if not any("started" in record for record in reports):
        return "unusable"
    if not any("finished" in record for record in reports):
        return "interrupted" if code in _OUTCOMES or any("begun" in record for record in reports) else "unusable"
    return _OUTCOMES.get(code, "unusable")


def _running_tests(reports: list[dict[str, Any]]) -> list[str]:
    """Return the tests that started and did not end."""
    ended = {record.get("over") for record in reports}
    return [test for record in reports if isinstance(test := record.get("begun"), str) and test not in ended]


def _unfinished(test: str, outcome: Outcome) -> Failure:
    why = "the test did not end in time" if outcome == "timeout" else "the process ended while the test ran"
    return {"test": test, "phase": "call", "file": test.split("::", 1)[0], "line": 0, "message": why, "frames": []}


def _failure(record: dict[str, Any], root: str) -> Failure:
    line = record.get("line")
    return {
        "test": str(record.get("test", "")),
        "phase": str(record.get("when", "")),
        "file": relative_path(str(record.get("file", "")), root),
        "line": line if isinstance(line, int) else 0,
        "message": redact(str(record.get("message", ""))),
        "frames": parse_frames(record.get("frames"), root),
    }
