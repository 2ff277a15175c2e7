"""The printed table and the list of rows without tests."""

import pytest

from . import report
from .marks import CollectionError, Marks
from .register import Area, Level, Register, Requirement, Status

REGISTER = Register(
    (
        Area(
            "WIRE",
            "made up",
            (
                Requirement("WIRE-01", Level.MUST, "S00 §1", "First.", Status.DONE),
                Requirement("WIRE-02", Level.MAY, "S00 §2", "Second.", Status.PLANNED),
            ),
        ),
        Area(
            "TRANS",
            "made up",
            (Requirement("TRANS-01", Level.MUST, "S00 §3", "Third.", Status.DEVIATES, "Because."),),
        ),
    )
)
MARKS = Marks(proving={"WIRE-01": ["t.py::a"]}, idle={"WIRE-02": ["t.py::b"]}, malformed=[])


def test_table() -> None:
    assert report.table(REGISTER, MARKS).splitlines() == [
        "area     rows    MUST    done  deviates  planned  with tests",
        "WIRE        2       1       1         0        1           1",
        "TRANS       1       1       0         1        0           0",
        "total       3       2       1         1        1           1",
    ]


def test_missing() -> None:
    assert report.missing(REGISTER, MARKS, "WIRE").splitlines() == [
        "WIRE-02   MAY     planned   Second.",
        "1 of 2 rows without tests",
    ]


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "load", lambda: REGISTER)
    monkeypatch.setattr(report, "collect", lambda *_: MARKS)


@pytest.mark.usefixtures("made_up")
def test_main_prints_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert report.main([]) == 0
    assert capsys.readouterr().out == report.table(REGISTER, MARKS) + "\n"


@pytest.mark.usefixtures("made_up")
def test_main_lists_one_area(capsys: pytest.CaptureFixture[str]) -> None:
    assert report.main(["--missing", "wire"]) == 0
    assert capsys.readouterr().out == report.missing(REGISTER, MARKS, "WIRE") + "\n"


@pytest.mark.usefixtures("made_up")
def test_main_fails_when_a_check_fails(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(report, "collect", lambda *_: Marks({}, {}, []))
    assert report.main([]) == 1
    assert capsys.readouterr().err == "WIRE-01: said to be done, but no test names it\n"


@pytest.mark.usefixtures("made_up")
def test_main_fails_when_the_suite_cannot_be_collected(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> Marks:
        raise CollectionError("no luck")

    monkeypatch.setattr(report, "collect", refuse)
    assert report.main([]) == 1
    assert capsys.readouterr() == ("", "no luck\n")


def test_an_unknown_area_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        report.main(["--missing", "NOPE"])
    assert stop.value.code == 2
    assert "NOPE" in capsys.readouterr().err
