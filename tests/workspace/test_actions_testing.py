"""Running tests of a project, comparing two runs, and reading failures out of text."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from examples.workspace.repository.actions.failures import parse_failures
from examples.workspace.repository.actions.pytest_runs import TestRun as Run, compare_runs, run_tests
from examples.workspace.repository.refusal import Refusal
from tests.workspace.acting import context

TESTS = """
import os
import warnings
from pathlib import Path

import pytest

from shop import price


@pytest.mark.parametrize("n", [1, "a::b", "x y"])
def test_many(n, tmp_path):
    (tmp_path / "file").write_text("x")


def test_wrong():
    assert price("book") == 7


@pytest.fixture
def broken():
    raise RuntimeError("no fixture")


def test_setup(broken):
    pass


class TestClass:
    @pytest.mark.skip(reason="later")
    def test_later(self):
        pass

    @pytest.mark.xfail
    def test_expected(self):
        assert False


def test_where():
    import tempfile

    home = str(Path.home())
    assert os.environ["TMPDIR"].startswith(os.path.dirname(home))
    assert tempfile.gettempdir() == os.environ["TMPDIR"]
    assert "SECRET_OF_THE_SERVER" not in os.environ
"""
FILES = {
    "shop.py": "def price(kind):\n    return table()[kind]\n\n\ndef table():\n    return {'food': 1}\n",
    "tests/test_shop.py": TESTS,
    "tests/test_broken.py": "import nothing_of_that_name\n",
    "tests/test_loop.py": "import time\n\n\ndef test_loop():\n    time.sleep(600)\n",
    "tests/test_large.py": "def test_large():\n    assert len(bytearray(3 << 30))\n",
    "pytest.ini": "[pytest]\npythonpath = .\naddopts = -ra --strict-markers\n",
}
SHOP = "tests/test_shop.py"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("testing")
    for name, text in FILES.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text)
    return root


def test_each_test_is_told_with_its_id(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_THE_SERVER", "x")
    asked = [SHOP, "tests/test_broken.py", "tests/nothing.py", f"{SHOP}::test_gone", "--co"]
    run = run_tests(context(project), asked)
    assert run["outcome"] == "failed"
    passed = ["test_many[1]", "test_many[a::b]", "test_many[x y]", "test_where"]
    assert run["passed"] == [f"{SHOP}::{name}" for name in passed]
    assert run["failed"] == ["tests/test_broken.py", f"{SHOP}::test_setup", f"{SHOP}::test_wrong"]
    assert run["skipped"] == [f"{SHOP}::TestClass::test_expected", f"{SHOP}::TestClass::test_later"]
    assert run["missing"] == ["tests/nothing.py", f"{SHOP}::test_gone", "--co"]
    told = {one["test"]: one for one in run["failures"]}
    assert told["tests/test_broken.py"]["phase"] == "collect"
    assert "nothing_of_that_name" in told["tests/test_broken.py"]["message"]
    wrong = told[f"{SHOP}::test_wrong"]
    assert (wrong["phase"], wrong["file"], wrong["line"]) == ("call", "shop.py", 2)
    assert wrong["message"] == "KeyError: 'book'"
    assert wrong["frames"] == [{"file": SHOP, "line": 17}, {"file": "shop.py", "line": 2}]
    assert "KeyError" in run["output"]
    left = {str(path.relative_to(project)) for path in project.rglob("*") if path.is_file()}
    assert left == set(FILES), "no caches and no bytecode"


def test_only_what_was_asked_for_is_run(project: Path) -> None:
    run = run_tests(context(project), [f"{SHOP}::test_many[a::b]", f"{SHOP}::TestClass"])
    assert (run["outcome"], run["passed"], run["failed"]) == ("passed", [f"{SHOP}::test_many[a::b]"], [])
    assert len(run["skipped"]) == 2


def test_time_and_memory_have_an_end(project: Path) -> None:
    run = run_tests(context(project), ["tests/test_loop.py"], seconds=6)
    assert (run["outcome"], run["passed"], run["missing"]) == ("timeout", [], [])
    failures = [(one["test"], one["message"]) for one in run["failures"]]
    assert failures == [(run["failed"][0], "the test did not end in time")]
    run = run_tests(context(project), ["tests/test_large.py"], memory_mb=512)
    assert run["failures"][0]["message"].startswith("MemoryError")


@pytest.mark.parametrize("when", ["collected", "run"])
def test_a_test_that_ends_the_process_has_not_passed(tmp_path: Path, when: str) -> None:
    leave = {"collected": "import os\nos._exit(0)\n", "run": "import os\ndef test_x():\n    os._exit(0)\n"}[when]
    (tmp_path / "test_leaving.py").write_text(leave)
    run = run_tests(context(tmp_path), ["test_leaving.py"])
    assert (run["outcome"], run["passed"]) == ("interrupted", [])
    assert run["failed"] == (["test_leaving.py::test_x"] if when == "run" else [])


@pytest.mark.parametrize(
    "tests", [["-x"], ["@args"], ["../x.py"], ["/etc/x.py::t"], [f"{SHOP}\n"], ["tests/nothing.py"]]
)
def test_ids_that_are_none_are_refused(project: Path, tests: list[str]) -> None:
    (project.parent / "args").write_text("--version")
    with pytest.raises(Refusal):
        run_tests(context(project), tests)


def test_an_interpreter_that_cannot_be_used_says_so(project: Path, tmp_path: Path) -> None:
    shim = tmp_path / "python"
    shim.write_text('#!/bin/sh\nexec python3 "$@"\n')
    shim.chmod(0o755)
    with pytest.raises(Refusal, match="is a script, not an interpreter"):
        run_tests(context(project, python=str(shim)), [SHOP])
    said = run_tests(context(project, python="python9"), [], refuse=False)
    assert (said["outcome"], said["failed"]) == ("unusable", [])
    assert said["problem"].startswith("there is no program 'python9' on PATH: serve the pack with --set python=PATH")
    with pytest.raises(Refusal, match="there is no program 'python9'"):
        run_tests(context(project, python="python9"), [SHOP])


def result(
    passed: str = "",
    failed: str = "",
    skipped: str = "",
    outcome: str = "failed",
    upto: str | None = None,
    count: int = 0,
) -> Run:
    return {
        "outcome": outcome,  # type: ignore[typeddict-item]  # all of them
        "passed": passed.split(),
        "failed": failed.split(),
        "skipped": skipped.split(),
        "upto": upto,
        "count": count or len(passed.split()),
        "missing": [],
        "failures": [],
        "output": "",
        "seconds": 1.0,
        "problem": "",
    }


@pytest.mark.parametrize(
    ("before", "after", "worse"),
    [
        (result("a", "b"), result("a b", outcome="passed"), {"worse": False, "mended": ["b"]}),
        (result("a", "b"), result("a", "b"), {"worse": False, "failing": ["b"]}),
        (result("a", "b"), result("b", "a"), {"worse": True, "broken": ["a"], "mended": ["b"]}),
        (result("a", "b"), result("a", "b c"), {"worse": True, "broken": ["c"]}),
        (result("a b"), result("a"), {"worse": True, "gone": ["b"], "broken": []}),
        (result("a b"), result("a", skipped="b"), {"worse": True, "broken": ["b"], "gone": []}),
        (result("", "a"), result("", "", outcome="unusable"), {"worse": True, "broken": []}),
        (result(outcome="timeout"), result(outcome="timeout"), {"worse": False}),
        (result("a"), result("a c", outcome="passed"), {"worse": False, "broken": [], "gone": []}),
        (result("a b", upto="b", count=4), result("a a1", upto="a1", count=5), {"worse": False, "gone": []}),
        (result("a b", upto="b", count=4), result("b c", upto="c", count=5), {"worse": True, "gone": ["a"]}),
        (result("a b", upto="b", count=4), result("a b", upto="b", count=2), {"worse": True, "gone": [], "fewer": 2}),
        (result("a b", upto="b", count=4), result("a", "z", upto="a", count=4), {"worse": True, "broken": ["z"]}),
        (result("a", outcome="passed"), result("a"), {"worse": True, "broken": [], "outcome": "failed"}),
        (result("a"), result("a"), {"worse": False, "outcome": "failed"}),
    ],
)
def test_worse_is_what_passed_and_does_not_any_more(before: Run, after: Run, worse: dict[str, Any]) -> None:
    said = compare_runs(before, after)
    assert {**said, **worse} == said


FORGING = """
import atexit, os, pathlib

def test_wrong():
    path = pathlib.Path(os.environ["MANGLECP_REPORT"])
    atexit.register(lambda: path.write_text(path.read_text().replace('"outcome": "OLD"', '"outcome": "NEW"')))
    assert RESULT
"""


def test_a_test_that_changes_the_record_makes_the_run_no_better(tmp_path: Path) -> None:
    file = tmp_path / "test_forging.py"
    file.write_text("def test_wrong():\n    pass\n")
    before = run_tests(context(tmp_path), [file.name])
    file.write_text(FORGING.replace("OLD", "failed").replace("NEW", "passed").replace("RESULT", "False"))
    after = run_tests(context(tmp_path), [file.name])
    assert (before["outcome"], after["outcome"], after["failed"]) == ("passed", "failed", [])
    assert compare_runs(before, after)["worse"], "pytest failed, and its record says that no test did"
    file.write_text(FORGING.replace("OLD", "passed").replace("NEW", "failed").replace("RESULT", "True"))
    assert run_tests(context(tmp_path), [file.name])["outcome"] == "failed"


def test_more_tests_than_an_answer_has_place_for_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("examples.workspace.repository.actions.pytest_runs._MOST_LISTED", 200)
    many = "import pytest\n\n\n@pytest.mark.parametrize('n', range(30))\ndef test_n(n):\n    assert n != 29\n"
    (tmp_path / "test_many.py").write_text(many)
    before = run_tests(context(tmp_path), ["test_many.py"])
    assert (before["count"], before["failed"]) == (29, ["test_many.py::test_n[29]"])
    assert 0 < len(before["passed"]) < 10
    assert before["upto"] == before["passed"][-1]
    (tmp_path / "test_many.py").write_text(many.replace("range(30)", "range(-1, 30)"))
    assert not compare_runs(before, run_tests(context(tmp_path), ["test_many.py"]))["worse"], (
        "one more moves the others"
    )
    (tmp_path / "test_many.py").write_text(many.replace("range(30)", "range(28)"))
    assert compare_runs(before, run_tests(context(tmp_path), ["test_many.py"]))["fewer"] == 1


# ------------------------------------------------------------------------------------------------- failures from text


def test_the_output_of_pytest_gives_what_the_run_gave(project: Path) -> None:
    """In the styles of tracebacks that pytest has."""
    how = [sys.executable, "-B", "-m", "pytest", "-p", "no:cacheprovider", SHOP, "-k", "not where"]
    for style in ("short", "long", "native"):
        argv = [*how, f"--tb={style}"]
        alone = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # others only cost time here
        done = subprocess.run(argv, cwd=project, env=alone, capture_output=True, text=True, timeout=120, check=False)
        parsed = parse_failures(context(project), done.stdout)
        assert set(parsed["tests"]) == {f"{SHOP}::test_wrong", f"{SHOP}::test_setup"}, style
        wrong = next(one for one in parsed["failures"] if one["test"].endswith("wrong"))
        assert (wrong["exception"], wrong["message"]) == ("KeyError", "'book'"), style
        assert (wrong["file"], wrong["line"]) == ("shop.py", 2), style
        assert set(parsed["files"]) == {"shop.py", SHOP}
    summary = done.stdout[done.stdout.index("short test summary") :]
    parsed = parse_failures(context(project), f"== {summary}")
    assert set(parsed["tests"]) == {f"{SHOP}::test_wrong", f"{SHOP}::test_setup"}
    assert parsed["files"] == [SHOP]


TRACEBACK = """some output before
Traceback (most recent call last):
  File "{root}/app/main.py", line 10, in <module>
    run()
  File "/usr/lib/python3.11/json/decoder.py", line 355, in raw_decode
    raise JSONDecodeError("Expecting value", s, err.value) from None
json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "{root}/app/store.py", line 3, in load
    ~~~~^^^^
  File "/repo/.venv/lib/python3.11/site-packages/lib/x.py", line 9, in inner
    raise KeyError(1)
app.errors.LoadError: cannot load: token ghp_{secret}
and more output
"""


def test_tracebacks_are_read_with_what_they_came_from(tmp_path: Path) -> None:
    text = TRACEBACK.format(root=tmp_path.resolve(), secret="a1B2" * 9)
    parsed = parse_failures(context(tmp_path), text)
    first, second = parsed["failures"]
    assert (first["exception"], first["file"], first["line"]) == ("json.decoder.JSONDecodeError", "app/main.py", 10)
    assert first["message"] == "Expecting value: line 1 column 1 (char 0)"
    assert (second["exception"], second["file"], second["line"]) == ("app.errors.LoadError", "app/store.py", 3)
    assert second["message"] == "cannot load: token [redacted: github token]"
    assert parsed["files"] == ["app/main.py", "app/store.py"]
    assert parsed["frames"] == [{"file": "app/main.py", "line": 10}, {"file": "app/store.py", "line": 3}]
    assert parsed["tests"] == []


def test_groups_and_errors_of_syntax(tmp_path: Path) -> None:
    group = """  + Exception Group Traceback (most recent call last):
  |   File "a.py", line 5, in <module>
  |     raise ExceptionGroup("both", errors)
  | ExceptionGroup: both (1 sub-exception)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File "b.py", line 2, in f
    |     1 / 0
    | ZeroDivisionError: division by zero
    +------------------------------------
"""
    parsed = parse_failures(context(tmp_path), group)
    assert [(one["exception"], one["file"], one["line"]) for one in parsed["failures"]] == [
        ("ExceptionGroup", "a.py", 5),
        ("ZeroDivisionError", "b.py", 2),
    ]
    syntax = "  File \"c.py\", line 7\n    x = (\n        ^\nSyntaxError: '(' was never closed\n"
    (one,) = parse_failures(context(tmp_path), syntax)["failures"]
    assert (one["exception"], one["file"], one["line"]) == ("SyntaxError", "c.py", 7)


def test_a_text_without_failures_has_none(tmp_path: Path) -> None:
    parsed = parse_failures(context(tmp_path), "all is well\n3 passed\n")
    assert list(parsed.values()) == [[], [], [], []]


PIECES = [
    "Traceback (most recent call last):\n",
    '  File "a.py", line 3, in f\n',
    "E   X: y\n",
    "___ t ___\n",
    "X: y\n",
]


@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=30), max_size=20).map("".join).filter(bool))
def test_any_text_is_read(text: str) -> None:
    parsed = parse_failures(context(Path("/nowhere")), text)
    assert all(not file.startswith("/") for file in parsed["files"])


def test_a_hostile_text_takes_no_time(tmp_path: Path) -> None:
    for text in ("_" * 200_000, "FAILED " + "a.py " * 40_000, "File " + '"' * 200_000, "a:" * 90_000, "|" * 200_000):
        parse_failures(context(tmp_path), f"{text[:1999]}\n{text}")
