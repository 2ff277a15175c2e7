"""Reads fact files by suffix. The errors of all files are reported together; after an error no fact is returned."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from manglecp.base.diagnostic import Diagnostic
from manglecp.base.gc_pause import gc_paused
from manglecp.base.source import Source
from manglecp.mangle import Fact, Key, ParseError, Predicate, Program, decode
from manglecp.pack.factfiles.files import FileLimits, read_bytes, refuse_file
from manglecp.pack.factfiles.tables import read_csv
from manglecp.pack.factfiles.text_formats import read_jsonl, read_mangle, read_simplecolumn
from manglecp.wire import Schemas

SUFFIXES: Final = (".mg", ".jsonl", ".csv", ".sc")
_GZIP_SUFFIX: Final = ".gz"
_READERS: Final = {".mg": read_mangle, ".jsonl": read_jsonl, ".sc": read_simplecolumn}  # CSV needs a predicate, too


@dataclass(frozen=True, slots=True)
class FactFile:
    """A file of facts. A file with another hash than ``sha256`` is refused.

    ``predicate`` is used for CSV only, by default the name of the file without endings. ``name`` is used in messages,
    by default the path.
    """

    path: Path
    predicate: str | None = None
    name: str | None = None
    sha256: str | None = None

    @property
    def format(self) -> str:
        return Path(self._unpacked_name).suffix

    @property
    def table_predicate(self) -> str:
        """The predicate whose facts a table holds."""
        return self._unpacked_name.removesuffix(self.format) if self.predicate is None else self.predicate

    @property
    def _unpacked_name(self) -> str:
        return self.path.name.removesuffix(_GZIP_SUFFIX)


def read_facts(
    files: Iterable[FactFile], program: Program, *, limits: FileLimits | None = None, check: bool = True
) -> list[Fact]:
    """Return the facts of the files, in order, read by the declarations of the program.

    ``check=False`` skips validation against the declared bounds. Raises :class:`ParseError` with all diagnostics, and
    ``OSError`` for a file that cannot be read.
    """
    schemas = Schemas(program.predicates)
    limits = limits or FileLimits()
    facts: list[Fact] = []
    diagnostics: list[Diagnostic] = []
    with gc_paused():
        for file in files:
            try:
                facts += _read(file, schemas, replace(limits, facts=limits.facts - len(facts)), check)
            except ParseError as error:
                diagnostics += error.diagnostics
    if diagnostics:
        raise ParseError(diagnostics)
    return facts


def parse_facts(source: Source, predicates: Mapping[Key, Predicate], limits: FileLimits) -> list[Fact]:
    """Return the facts of a text in Mangle. Raises :class:`ParseError` with all diagnostics."""
    return read_mangle(source, Schemas(predicates), limits, True)


def _read(file: FactFile, schemas: Schemas, limits: FileLimits, check: bool) -> list[Fact]:
    name = str(file.path) if file.name is None else file.name
    if file.format not in SUFFIXES:
        fix = f"known endings are {', '.join(SUFFIXES)}, each also with {_GZIP_SUFFIX}"
        refuse_file(name, "the name is not that of a fact file", fix)
    data = read_bytes(file.path, limits, name, file.sha256)
    source = decode(name, data)
    if file.format == ".csv":
        return read_csv(source, file.table_predicate, schemas, limits, check)
    return _READERS[file.format](source, schemas, limits, check)
