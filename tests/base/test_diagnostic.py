"""Diagnostics: locations of every kind, and how they are rendered. Carets are tested with the language."""

from __future__ import annotations

import pytest

from manglecp.base.diagnostic import Diagnostic, DiagnosticError, FileLocation, JsonPath, Location
from manglecp.base.source import Source, Span


@pytest.mark.parametrize(
    ("location", "place"),
    [
        (None, ""),
        (FileLocation("pack.toml"), "pack.toml"),
        (FileLocation("pack.toml", 3), "pack.toml:3"),
        (FileLocation("pack.toml", 3, 1), "pack.toml:3:1"),
        (FileLocation("stop.json") / "a/b" / 0, "stop.json: /a~1b/0"),
        (FileLocation("stop.toml", 2, 1) / "x", "stop.toml:2:1: /x"),
        (JsonPath(("args", 1)), "$.args[1]"),
        (JsonPath(), "$"),
        (JsonPath(["x"] * 65), "$" + ".x" * 64 + "…"),
        (Span(Source("a.mg", "p(1).\nq(2)."), 6, 7), "a.mg:2:1"),
    ],
)
def test_a_place_is_as_precise_as_is_known(location: Location | None, place: str) -> None:
    diagnostic = Diagnostic("pack", "wrong", location)
    assert diagnostic.place == place
    assert diagnostic.render().startswith(f"error[pack]: {place}: wrong" if place else "error[pack]: wrong")


def test_parts_of_a_location() -> None:
    at = Diagnostic("policy", "wrong", FileLocation("stop.toml", 2, 1, "/x"), fix="write 3", severity="warning")
    assert (at.file, at.line, at.column, at.pointer, at.span) == ("stop.toml", 2, 1, "/x", None)
    assert at.render() == "warning[policy]: stop.toml:2:1: /x: wrong\n  fix: write 3"
    nowhere = Diagnostic("value", "wrong", JsonPath(("x",)))
    assert (nowhere.file, nowhere.line, nowhere.column, nowhere.pointer) == ("", None, None, "")


def test_a_file_name_cannot_speak_to_a_terminal() -> None:
    assert "\x1b" not in Diagnostic("pack", "wrong", FileLocation("\x1b[31m.toml")).render()


def test_an_error_carries_all_of_them() -> None:
    error = DiagnosticError(Diagnostic("pack", message) for message in ("first", "second"))
    assert [diagnostic.message for diagnostic in error.diagnostics] == ["first", "second"]
    assert str(error) == "error[pack]: first\nerror[pack]: second"
