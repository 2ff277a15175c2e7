"""Files to facts, by suffix. All errors of all files are reported together, and then nothing is loaded."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from manglecp.base.diagnostic import Diagnostic
from manglecp.base.gc_pause import gc_paused
from manglecp.mangle import Fact, ParseError, Program
from manglecp.pack.factfiles.files import FileLimits, contents, refuse, source
from manglecp.pack.factfiles.parquet_table import read_parquet
from manglecp.pack.factfiles.tables import read_csv
from manglecp.pack.factfiles.text_formats import read_jsonl, read_mangle, read_simplecolumn
from manglecp.wire import Schemas

SUFFIXES: Final = (".mg", ".jsonl", ".csv", ".parquet", ".sc")
_PACKED: Final = ".gz"


@dataclass(frozen=True, slots=True)
class FactFile:
    """A file of facts. A table holds those of ``predicate``; by default, of the one that the file is named after."""

    path: Path
    predicate: str | None = None
    name: str | None = None
    """What messages call it; the path, by default."""
    sha256: str | None = None
    """The hash that the file must have."""

    @property
    def format(self) -> str:
        """The suffix of its format."""
        return Path(self._unpacked).suffix

    @property
    def table_of(self) -> str:
        """The predicate whose facts a table holds."""
        return self._unpacked.removesuffix(self.format) if self.predicate is None else self.predicate

    @property
    def _unpacked(self) -> str:
        return self.path.name.removesuffix(_PACKED)


def read_facts(
    files: Iterable[FactFile], program: Program, *, limits: FileLimits | None = None, check: bool = True
) -> list[Fact]:
    """Return the facts of the files, in order, read by the declarations of the program.

    ``check=False`` leaves out the comparison with the declared bounds, not the reading by them. What is wrong with the
    files is a :class:`ParseError`; a file that cannot be read at all is an OSError.
    """
    schemas = Schemas(program.predicates)
    limits = limits or FileLimits()
    facts: list[Fact] = []
    wrong: list[Diagnostic] = []
    with gc_paused():
        for file in files:
            try:
                facts += _read(file, schemas, replace(limits, facts=limits.facts - len(facts)), check)
            except ParseError as error:
                wrong += error.diagnostics
    if wrong:
        raise ParseError(wrong)
    return facts


def _read(file: FactFile, schemas: Schemas, limits: FileLimits, check: bool) -> list[Fact]:
    name = str(file.path) if file.name is None else file.name
    match file.format:
        case ".mg":
            return read_mangle(source(file.path, limits, name, file.sha256), schemas, limits, check)
        case ".jsonl":
            return read_jsonl(source(file.path, limits, name, file.sha256), schemas, limits, check)
        case ".csv":
            return read_csv(source(file.path, limits, name, file.sha256), file.table_of, schemas, limits, check)
        case ".parquet":
            return read_parquet(
                name, contents(file.path, limits, name, file.sha256), file.table_of, schemas, limits, check
            )
        case ".sc":
            return read_simplecolumn(source(file.path, limits, name, file.sha256), schemas, limits, check)
    known = ", ".join(SUFFIXES)
    return refuse(name, "not a fact file by its name", f"known endings are {known}, each also with {_PACKED}")
