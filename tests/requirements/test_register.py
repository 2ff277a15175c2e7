"""The register itself, the strictness of its reader, and both directions between rows and tests."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .checks import nearest, problems
from .marks import CollectionError, Marks, collect
from .plugin import WHOLE_SUITE
from .register import AREAS, Area, Level, Register, RegisterError, Requirement, Status, load, read_area
from .report import ROOT

# Rows, and how many of them are MUST, SHOULD, MAY and design.
TOTALS = {
    "WIRE": (30, 17, 5, 2, 6),
    "TRANS": (40, 24, 6, 7, 3),
    "DATA": (54, 25, 4, 6, 19),
    "MANI": (35, 25, 4, 6, 0),
    "EVAL": (50, 22, 9, 5, 14),
    "TOOL": (25, 9, 3, 9, 4),
    "SKILL": (19, 4, 8, 3, 4),
    "INVK": (18, 11, 1, 3, 3),
    "DELTA": (14, 2, 3, 3, 6),
    "OBS": (11, 6, 3, 1, 1),
    "NEXT": (7, 1, 2, 1, 3),
    "PROG": (8, 5, 0, 2, 1),
    "SEC": (38, 9, 7, 3, 19),
    "ERR": (49, 34, 10, 2, 3),
    "PROOF": (10, 1, 1, 2, 6),
    "COV": (10, 1, 1, 1, 7),
    "CONF": (19, 16, 1, 1, 1),
    "CLI": (14, 3, 5, 1, 5),
    "IPC": (40, 2, 0, 4, 34),
    "HARN": (85, 1, 0, 1, 83),
    "FAIL": (43, 1, 0, 0, 42),
    "SLICE": (18, 0, 0, 0, 18),
}


def row(name: str, status: Status = Status.PLANNED) -> Requirement:
    return Requirement(name, Level.MUST, "S00 §0", "It holds.", status)


def register(*rows: Requirement) -> Register:
    return Register((Area("DATA", "made up", rows),))


def suite(folder: Path, text: str) -> Path:
    """A made-up test suite that has the plugin of the real one."""
    (folder / "conftest.py").write_text((ROOT / "tests" / "conftest.py").read_text("utf-8"), "utf-8")
    (folder / "pytest.ini").write_text(
        "[pytest]\naddopts = --strict-markers --import-mode=importlib -m 'not soak'\n"
        f"pythonpath = {ROOT}\nfilterwarnings = error\nmarkers = soak: slow\n",
        "utf-8",
    )
    (folder / "test_made_up.py").write_text("import pytest\n\n" + text, "utf-8")
    return folder


# ------------------------------------------------------------------------------------- the register


def test_areas_have_the_rows_they_should_have() -> None:
    counted = {area.name: (len(area.rows), *(area.count(level) for level in Level)) for area in load().areas}
    assert counted == TOTALS
    assert [sum(column) for column in zip(*counted.values(), strict=True)] == [637, 219, 73, 63, 282]


def test_rows_are_numbered_without_a_gap_in_the_order_of_areas() -> None:
    expected = [f"{area}-{n:02d}" for area in AREAS for n in range(1, TOTALS[area][0] + 1)]
    assert list(load().by_id) == expected


@pytest.mark.no_cover
def test_the_suite_keeps_the_register(request: pytest.FixtureRequest) -> None:
    marks = request.config.stash.get(WHOLE_SUITE, None) or collect(ROOT, "tests")
    found = problems(load(), marks)
    assert not found, "\n".join(found)


# --------------------------------------------------------------------------------------- the reader

GOOD = """
area = "DATA"
covers = "made up"

[[requirement]]
id = "DATA-01"
level = "MUST"
source = "S00 §0"
statement = "It holds."
status = "deviates"
reason = "It cannot hold here."

[[requirement]]
id = "DATA-02"
level = "design"
source = "S00 §0"
statement = "It is so."
status = "done"
"""


def test_a_good_file_is_read() -> None:
    area = read_area("DATA", GOOD)
    assert area.rows == (
        Requirement("DATA-01", Level.MUST, "S00 §0", "It holds.", Status.DEVIATES, reason="It cannot hold here."),
        Requirement("DATA-02", Level.DESIGN, "S00 §0", "It is so.", Status.DONE),
    )


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ('status = "done"', 'status = "done"\nowner = "me"', "DATA-02: unknown key owner"),
        ('status = "done"', "", "DATA-02: missing status"),
        ('status = "done"', 'status = "finished"', "DATA-02: 'finished' is not a valid Status"),
        ('status = "done"', 'status = "deviates"', "DATA-02: status deviates needs a reason"),
        ('status = "done"', 'status = "done"\nreason = "?"', "DATA-02: status done takes no reason"),
        ('reason = "It cannot hold here."', "", "DATA-01: status deviates needs a reason"),
        ('reason = "It cannot hold here."', 'reason = " "', "DATA-01: reason must be text"),
        ('level = "design"', 'level = "must"', "DATA-02: 'must' is not a valid Level"),
        ('statement = "It is so."', 'statement = ""', "DATA-02: statement must be text"),
        ('statement = "It is so."', "statement = 2", "DATA-02: statement must be text"),
        ('id = "DATA-02"', 'id = "DATA-01"', "DATA-01: the id stands there more than once"),
        ('id = "DATA-01"', 'id = "DATA-03"', "DATA-02: stands after DATA-03"),
        ('id = "DATA-02"', 'id = "WIRE-02"', "WIRE-02: an id of this file looks like DATA-01"),
        ('id = "DATA-02"', 'id = "DATA-2"', "DATA-2: an id of this file looks like DATA-01"),
        ('id = "DATA-02"', "", "DATA, row 2: missing id"),
        ('area = "DATA"', 'area = "WIRE"', "DATA: the file says it is area 'WIRE'"),
        ('covers = "made up"', 'covers = "made up"\nnote = "x"', "DATA: unknown key note"),
        ('area = "DATA"', "area = DATA", "DATA: not TOML"),
    ],
)
def test_a_bad_file_is_refused_and_the_row_named(old: str, new: str, error: str) -> None:
    assert old in GOOD
    with pytest.raises(RegisterError) as refused:
        read_area("DATA", GOOD.replace(old, new, 1))
    assert str(refused.value).startswith(error)


@pytest.mark.parametrize("rows", ["requirement = 1", "requirement = [1]"])
def test_rows_must_be_tables(rows: str) -> None:
    with pytest.raises(RegisterError, match=r"^DATA: row"):
        read_area("DATA", f'area = "DATA"\ncovers = "made up"\n{rows}\n')


def test_a_missing_and_an_extra_file_are_named(tmp_path: Path) -> None:
    (tmp_path / "notes.toml").touch()
    for name in AREAS[1:]:
        (tmp_path / f"{name.lower()}.toml").touch()
    with pytest.raises(RegisterError, match=r"missing \['wire.toml'\], not expected \['notes.toml'\]"):
        load(tmp_path)


# ---------------------------------------------------------------------------------------- the checks


def test_a_done_row_needs_a_test() -> None:
    rows = register(row("DATA-01", Status.DONE), row("DATA-02", Status.DONE), row("DATA-03", Status.DONE))
    marks = Marks(proving={"DATA-01": ["t.py::a"]}, idle={"DATA-03": ["t.py::b"]}, malformed=[])
    assert problems(rows, marks) == [
        "DATA-02: said to be done, but no test names it",
        "DATA-03: said to be done, but only skipped or failing tests name it: t.py::b",
    ]


def test_a_planned_row_may_have_tests_or_none() -> None:
    marks = Marks(proving={"DATA-01": ["t.py::a"]}, idle={}, malformed=[])
    assert problems(register(row("DATA-01"), row("DATA-02")), marks) == []


def test_an_unknown_id_is_reported_with_the_nearest_known_one() -> None:
    tests = [f"t.py::test_{n}" for n in range(5)]
    marks = Marks(proving={"DTA-01": tests}, idle={"DATA-1": ["t.py::skipped"]}, malformed=["t.py::empty"])
    assert problems(register(row("DATA-01"), row("DATA-02")), marks) == [
        "t.py::empty: mark.req takes requirement ids as strings",
        "DATA-1: no such requirement, did you mean DATA-01? Named by t.py::skipped",
        "DTA-01: no such requirement, did you mean DATA-01? "
        "Named by t.py::test_0, t.py::test_1, t.py::test_2 and 2 more",
    ]


@pytest.mark.parametrize(
    ("written", "meant"),
    [("DATA-5", "DATA-05"), ("data-21", "DATA-21"), ("DATE-21", "DATA-21"), ("INVOKE-07", "INVK-07")],
)
def test_nearest(written: str, meant: str) -> None:
    assert nearest(load(), written) == meant


# ------------------------------------------------------------------------------------ made-up suites


def test_marks_are_found_wherever_they_stand(tmp_path: Path) -> None:
    text = """
pytestmark = pytest.mark.req("DATA-01")

class TestGroup:
    pytestmark = [pytest.mark.req("DATA-02")]

    @pytest.mark.req("DATA-03", "DATA-04")
    @pytest.mark.req("DATA-03")
    def test_method(self): ...

@pytest.mark.parametrize("n", [pytest.param(1, marks=pytest.mark.req("DATA-05")), 2])
def test_parameter(n): ...

@pytest.mark.soak
@pytest.mark.req("DATA-06")
def test_slow(): ...
"""
    method, one, two, slow = (
        f"test_made_up.py::{name}"
        for name in ("TestGroup::test_method", "test_parameter[1]", "test_parameter[2]", "test_slow")
    )
    marks = collect(suite(tmp_path, text))
    assert marks == Marks(
        proving={
            "DATA-01": [method, one, two, slow],
            "DATA-02": [method],
            "DATA-03": [method],
            "DATA-04": [method],
            "DATA-05": [one],
            "DATA-06": [slow],
        },
        idle={},
        malformed=[],
    )


def test_what_cannot_pass_or_is_not_run_proves_nothing(tmp_path: Path) -> None:
    text = """
@pytest.mark.skip(reason="not now")
@pytest.mark.req("DATA-01")
def test_skip(): ...

@pytest.mark.skipif(True, reason="not here")
@pytest.mark.req("DATA-02")
def test_skipif(): ...

@pytest.mark.skipif(condition=False, reason="elsewhere")
@pytest.mark.req("DATA-03")
def test_not_skipped(): ...

@pytest.mark.xfail(reason="known bug")
@pytest.mark.req("DATA-04")
def test_xfail(): ...

@pytest.mark.req
def test_no_id(): ...

@pytest.mark.req(21)
def test_number(): ...
"""
    marks = collect(suite(tmp_path, text))
    assert sorted(marks.proving) == ["DATA-03"]
    assert sorted(marks.idle) == ["DATA-01", "DATA-02", "DATA-04"]
    assert marks.malformed == ["test_made_up.py::test_no_id", "test_made_up.py::test_number"]


def test_a_made_up_suite_is_checked_both_ways(tmp_path: Path) -> None:
    marks = collect(suite(tmp_path, '@pytest.mark.req("DATA-12")\ndef test_one(): ...\n'))
    assert problems(register(row("DATA-01", Status.DONE), row("DATA-02")), marks) == [
        "DATA-12: no such requirement, did you mean DATA-02? Named by test_made_up.py::test_one",
        "DATA-01: said to be done, but no test names it",
    ]


def test_an_empty_suite_names_nothing(tmp_path: Path) -> None:
    assert collect(suite(tmp_path, "")) == Marks({}, {}, [])


def test_a_suite_that_cannot_be_collected_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CollectionError, match="no_such_module"):
        collect(suite(tmp_path, "import no_such_module\n"))


@pytest.mark.soak
def test_a_run_spread_over_processes_writes_the_marks_too(tmp_path: Path) -> None:
    pytest.importorskip("xdist")
    suite(tmp_path, '@pytest.mark.req("DATA-01")\ndef test_one(): ...\n\ndef test_two(): ...\n')
    subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "2", "-p", "no:cacheprovider", "--requirements-json=out.json"],
        cwd=tmp_path,
        env={k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "COVERAGE_"))},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    marks = Marks.from_json((tmp_path / "out.json").read_text("utf-8"))
    assert marks.proving == {"DATA-01": ["test_made_up.py::test_one"]}
