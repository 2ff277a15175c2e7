"""Parquet tables: columns as in CSV, but typed. Needs the extra ``parquet`` (pyarrow).

A cell is converted like JSON in a message, by the declared bound; instants, durations and bytes keep their type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import repeat
from types import ModuleType
from typing import Any, Final

from manglecp.base.diagnostic import Diagnostic, FileLocation
from manglecp.base.extras import how_to_install
from manglecp.mangle import Bytes, Duration, Fact, Interval, Source, Time, Value
from manglecp.pack.factfiles.files import SPLIT_FIX, FileErrors, FileLimits, refuse_file
from manglecp.pack.factfiles.tables import Layout, find_layout, parse_instant, read_interval
from manglecp.wire import Fault, Schemas, to_value

_BATCH: Final = 4_096  # rows


def read_parquet(
    file: str, data: bytes, predicate: str, schemas: Schemas, limits: FileLimits, check: bool
) -> list[Fact]:
    """Return the facts; with ``check`` they are validated. Raises :class:`ParseError`, also if pyarrow is missing."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        refuse_file(file, "reading Parquet needs pyarrow, which is not installed", how_to_install("parquet"))
    try:
        parquet = pyarrow.parquet.ParquetFile(pyarrow.BufferReader(data))
        if parquet.metadata.num_rows > limits.facts:
            refuse_file(file, f"more than {limits.facts:,} facts", SPLIT_FIX)
        names = parquet.schema_arrow.names
        table_layout = find_layout(predicate, names, schemas)
        columns: list[list[Any]] = [[] for _ in names]
        unpacked = 0  # bytes; the compressed file can be much smaller
        for batch in parquet.iter_batches(_BATCH):
            unpacked += batch.nbytes
            if unpacked > limits.bytes:
                refuse_file(file, f"more than {limits.bytes:,} bytes", SPLIT_FIX)
            for cells, column in zip(columns, batch.columns, strict=True):
                cells += _cells(pyarrow, column)
    except (pyarrow.ArrowException, OSError, ValueError, OverflowError) as error:
        reason = str(error).partition("\n")[0]
        refuse_file(file, f"not a Parquet table, or a damaged one: {reason}", "write the file again")
    except Fault as fault:
        refuse_file(file, fault.message, fault.fix)
    return _Rows(file, table_layout, columns, limits, check).facts()


def _cells(pyarrow: ModuleType, column: Any) -> list[Any]:
    """Return the cells of a column; instants and durations as Mangle values, because Python's lack nanoseconds."""
    types = pyarrow.types
    if types.is_date(column.type):
        column = column.cast(pyarrow.timestamp("s"))
    kind = column.type
    for is_kind, nanosecond_type, from_nanoseconds in (
        (types.is_timestamp, pyarrow.timestamp("ns"), Time),
        (types.is_duration, pyarrow.duration("ns"), Duration),
    ):
        if is_kind(kind):
            numbers = column.cast(nanosecond_type).cast(pyarrow.int64()).to_pylist()
            return [None if number is None else from_nanoseconds(number) for number in numbers]
    cells: list[Any] = column.to_pylist()
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return [Bytes(cell) if type(cell) is bytes else cell for cell in cells]
    return cells


class _Rows:
    def __init__(self, file: str, layout: Layout, columns: list[list[Any]], limits: FileLimits, check: bool) -> None:
        self.layout = layout
        self.columns = columns
        self.check = check
        self.file = file
        self.problems = FileErrors(Source(file, ""), limits.errors)

    def facts(self) -> list[Fact]:
        count = len(self.columns[0]) if self.columns else 0
        values = [
            self._read_cells(column, self._reader(position), self.columns[column])
            for position, column in enumerate(self.layout.arguments)
        ]
        intervals = self._intervals(count)
        self.problems.raise_if_any()
        return list(self.layout.facts(values, intervals))

    def _reader(self, position: int) -> Callable[[Any], Value]:
        schema = self.layout.schema
        shape = schema.shapes[position]

        def read(cell: Any) -> Value:
            value = cell if isinstance(cell, Time | Duration | Bytes) else to_value(cell, shape)
            return schema.check(position, value) if self.check else value

        cached = cache(read)
        # Only text is cached: 1, 1.0 and True would share a cache entry.
        return lambda cell: cached(cell) if type(cell) is str else read(cell)

    def _read_cells(self, column: int, read: Callable[[Any], Any], cells: Sequence[Any]) -> list[Any]:
        """Return the values of cells; report each invalid cell, and omit its value."""
        values = []
        for row, cell in enumerate(cells, 1):
            try:
                values.append(read(cell))
            except Fault as fault:
                message = f"row {row}, column {self.layout.header[column]}: {fault.message}"
                self.problems.add_diagnostic(Diagnostic("parse", message, FileLocation(self.file), fix=fault.fix))
        return values

    def _intervals(self, count: int) -> Iterator[Interval | None]:
        times = self.layout.times
        if not times:
            return repeat(None, count)
        schema = self.layout.schema
        rows = list(zip(*(self.columns[index] for index in times), strict=True))
        return iter(self._read_cells(times[0], lambda row: read_interval(row, _nanoseconds, schema), rows))


def _nanoseconds(cell: Any) -> int:
    if isinstance(cell, Time):
        return cell.ns
    if type(cell) in (str, int):
        return parse_instant(str(cell))
    raise Fault("a time is a timestamp, RFC 3339 text or milliseconds since 1970")
