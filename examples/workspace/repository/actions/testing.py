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
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypedDict

from manglecp import Context, Limits, action

from ..programs import Ended, locate, run
from ..refusal import Refused
from ..secrets import redacted
from .places import Frame, frames_of, relative
from .roots import Root
from .testids import covers, file_of

__all__ = ["Comparison", "Failure", "TestRun", "compare_runs", "run_tests"]

_PLUGIN: Final = "manglecp_report"
_REPORTING: Final = Path(__file__).parent / "reporting"
_MOST_OUTPUT: Final = 20_000
_MOST_FAILURES: Final = 50
_MOST_FAILED: Final = 2_000
_MOST_TOLD: Final = 400_000
"""Characters of ids of tests that passed or were skipped. An answer has an end, and some projects have more tests."""
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
    """``unusable``: pytest itself could not do its work, and the output says why. ``interrupted``: it did not get to
    its end. A test that was running then has failed."""
    passed: list[str]
    failed: list[str]
    skipped: list[str]
    upto: str | None
    """The last id up to which those that passed and were skipped are listed; None if all of them are."""
    count: int
    """How many passed, listed or not."""
    missing: list[str]
    """Ids that were asked for and of which nothing was heard."""
    failures: list[Failure]
    output: str
    """The end of what pytest printed."""
    seconds: float
    problem: str
    """Why no test can be run here at all, and what would help; empty if there is no problem."""


class Comparison(TypedDict):
    worse: bool
    broken: list[str]
    """Fail now and did not before, or passed before and are skipped now."""
    gone: list[str]
    """Passed before, and nothing was heard of them now."""
    fewer: int
    """By how many fewer passed, where not all of them are listed; else 0."""
    mended: list[str]
    failing: list[str]
    """Fail now."""
    outcome: Outcome
    """Of the second run: what was not run shows nothing."""


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
        tests: ids, files or folders; none means all
        seconds: how long they may take together
        memory_mb: how much memory each process may use
        stop_at_first: end with the first failure
        refuse: fail if nothing can be run, in place of saying so
    """
    asked = list(dict.fromkeys(tests))
    try:
        return _run(context, asked, seconds, memory_mb, stop_at_first)
    except Refused as refused:
        if refuse:
            raise
        problem = str(refused)
    return {
        "outcome": "unusable",
        "passed": [],
        "failed": [],
        "skipped": [],
        "upto": None,
        "count": 0,
        "missing": asked,
        "failures": [],
        "output": "",
        "seconds": 0.0,
        "problem": problem,
    }


def _run(context: Context, asked: list[str], seconds: int, memory_mb: int, stop_at_first: bool) -> TestRun:
    named = dict.fromkeys(map(file_of, asked))
    with Root.opened(context.settings) as root, tempfile.TemporaryDirectory(prefix="tests-") as folder:
        there = [f"./{path}" for path in named if root.kind(path) in ("file", "folder")]
        if asked and not there:
            raise Refused(f"there is no file of these tests, as seen from the root: {', '.join(named)[:200]}")
        begun = time.monotonic()
        argv = [_interpreter(context), "-m", "pytest", "-p", _PLUGIN, "-q", "--color=no", "--tb=short"]
        argv += ["--continue-on-collection-errors"]
        argv += [f"--rootdir={root.path}", f"--basetemp={folder}/tests", "-o", f"cache_dir={folder}/cache"]
        ended = run(
            [*argv, *(["-x"] if stop_at_first else []), *there],
            folder=root.path,
            environ=_environment(Path(folder), asked),
            seconds=seconds,
            memory_mb=memory_mb,
            most=4 * _MOST_OUTPUT,
            keep_end=True,
        )
        return _judged(list(_read(Path(folder) / _REPORT)), ended, asked, root.path, time.monotonic() - begun)


def _interpreter(context: Context) -> str:
    """The project's Python; not a script that looks for one, which could not be started here."""
    named = context.settings.get("python") or "python3"
    try:
        program = locate(named)
    except Refused as refused:
        raise Refused(f"{refused}: serve the pack with --set python=PATH, a name or an absolute path") from None
    with suppress(PermissionError), Path(program).open("rb") as stream:  # to start it may be refused as well
        if stream.read(2) == b"#!":
            raise Refused(f"{named!r} is a script that looks for an interpreter: serve the pack with --set python=PATH")
    return program


@action(effects=["none"], idempotent=True, deterministic=True)
def compare_runs(before: TestRun, after: TestRun) -> Comparison:
    """Say whether tests got worse between two runs of the same ones."""
    passed, failed = set(before["passed"]), set(before["failed"])
    passing, failing = set(after["passed"]), set(after["failed"])
    skipped, upto = set(after["skipped"]), after["upto"]
    broken = (passed & (failing | skipped)) | (failing - failed)
    gone = {test for test in passed - passing - broken if upto is None or test <= upto}
    all_listed = before["upto"] is None and upto is None
    fewer = 0 if all_listed else max(before["count"] - after["count"], 0)
    stopped = after["outcome"] in _STOPPED and after["outcome"] != before["outcome"]
    return {
        "worse": bool(broken or gone or fewer or stopped),
        "broken": sorted(broken),
        "gone": sorted(gone),
        "fewer": fewer,
        "mended": sorted(failed & passing),
        "failing": sorted(failing),
        "outcome": after["outcome"],
    }


def _environment(folder: Path, asked: list[str]) -> dict[str, str]:
    """All that the tests inherit. Whatever they and their tools like to keep goes to the folder."""
    for name in ("home", "tmp"):
        (folder / name).mkdir()
    selection = {}
    if asked:
        (folder / "asked.json").write_text(json.dumps(asked))
        selection["MANGLECP_ASKED"] = f"{folder}/asked.json"
    return selection | {
        "PATH": os.environ.get("PATH", os.defpath),
        "LANG": "C.UTF-8",
        "HOME": f"{folder}/home",
        "TMPDIR": f"{folder}/tmp",
        "PYTHONPATH": str(_REPORTING),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        "COVERAGE_FILE": f"{folder}/coverage",
        "HYPOTHESIS_STORAGE_DIRECTORY": f"{folder}/hypothesis",
        "MANGLECP_REPORT": f"{folder}/{_REPORT}",
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
    outcome = _outcome(ended.code, reports)
    failures += [_unfinished(test, outcome) for test in _at_work(reports)]
    failed = {failure["test"] for failure in failures}
    heard = {str(said.get("test")): said for said in reports if "outcome" in said}
    passed = {test for test, said in heard.items() if said["outcome"] == "passed"} - failed
    skipped = {test for test, said in heard.items() if said["outcome"] == "skipped"} - failed - passed
    upto = _told_upto(passed | skipped)
    known = heard.keys() | failed
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
        "output": redacted(output.decode(errors="replace"))[-_MOST_OUTPUT:].replace("\0", ""),
        "seconds": round(seconds, 3),
        "problem": _NO_PYTEST if outcome == "unusable" and b"No module named pytest" in ended.errors else "",
    }


def _told_upto(tests: set[str]) -> str | None:
    """The last of the ids, in their order, that an answer has place for; None if it has for all."""
    told, last = 0, ""
    for test in sorted(tests):
        told += len(json.dumps(json.dumps(test)))  # as it stands in an answer
        if told > _MOST_TOLD:
            return last
        last = test
    return None


def _outcome(code: int | None, reports: list[dict[str, Any]]) -> Outcome:
    """A test can end the process, with any status: to have passed, pytest has to say that it is through."""
    if code is None:
        return "timeout"
    if not any("started" in said for said in reports):
        return "unusable"
    if not any("finished" in said for said in reports):
        return "interrupted" if code in _OUTCOMES or any("begun" in said for said in reports) else "unusable"
    return _OUTCOMES.get(code, "unusable")


def _at_work(reports: list[dict[str, Any]]) -> list[str]:
    """Tests that began, and of whose end nothing was heard."""
    over = {said.get("over") for said in reports}
    return [test for said in reports if isinstance(test := said.get("begun"), str) and test not in over]


def _unfinished(test: str, outcome: Outcome) -> Failure:
    why = "it did not end in time" if outcome == "timeout" else "the process ended while it ran"
    return {"test": test, "phase": "call", "file": test.split("::", 1)[0], "line": 0, "message": why, "frames": []}


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
