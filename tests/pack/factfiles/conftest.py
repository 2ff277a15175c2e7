"""A program with one predicate of each sort, and a folder for its fact files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from manglecp.mangle import ParseError, Program, Source
from manglecp.pack.factfiles import FactFile, FileLimits, read_facts

PROGRAM = Program.load(
    [
        Source(
            "schema.mg",
            """
            Decl calls(Caller, CalleeName, Line) bound [/string, /string, /number].
            Decl kinds(Name, Float, Time, Span, Data, Flag)
                bound [/name, /float64, /time, /duration, /bytes, /name].
            Decl state(Service, Level) temporal bound [/string, fn:Union(fn:Singleton(/up), fn:Singleton(/down))].
            Decl nested(Items, Point) bound [fn:List(/number), .Struct</x : /number>].
            Decl mixed(Value) bound [fn:Union(/number, /string)].
            Decl owner(Service, Team) bound [/string, /team].
            Decl either(A, B) bound [/string, /number] bound [/number, /string].
            Decl ready().
            Decl twice(A). Decl twice(A, B).
            Decl unnamed(_, _) bound [/string, /number].
            loose("a", "b").
            """,
        ),
        Source("zoo.mg", "Package zoo! Decl bird(Name) bound [/string]."),
    ]
)

Read = Callable[..., list[str]]
Wrong = Callable[..., list[tuple[str | None, str]]]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """The facts of a file with this name and content, as text."""

    def read(name: str, content: str | bytes, predicate: str | None = None, **options: Any) -> list[str]:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return [fact.text for fact in read_facts([FactFile(path, predicate)], PROGRAM, **options)]

    return read


@pytest.fixture
def wrong(read: Read) -> Wrong:
    """What is wrong with such a file: ``line:column``, and the message."""

    def wrong(name: str, content: str | bytes, **limits: int) -> list[tuple[str | None, str]]:
        with pytest.raises(ParseError) as refused:
            read(name, content, limits=FileLimits(**limits))
        for diagnostic in refused.value.diagnostics:
            assert name in diagnostic.render().splitlines()[0]
        return [
            (None if d.span is None else f"{d.span.line}:{d.span.column}", d.message) for d in refused.value.diagnostics
        ]

    return wrong
