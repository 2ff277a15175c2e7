"""CSV (RFC 4180): the first row names the columns, each other row is a fact.

Rows are taken in blocks and each block column by column, so that the work per cell is done by loops in C. Only a block
in which something is wrong is looked at row by row, to say what and where.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from itertools import islice, repeat
from typing import Any, Final

from manglecp.mangle import Fact, Interval, Source, Value
from manglecp.pack.factfiles.cells import Cells, Strings, cell_reader, instant, literal
from manglecp.pack.factfiles.columns import Layout, interval, layout
from manglecp.pack.factfiles.limits import FileLimits
from manglecp.pack.factfiles.opening import lines
from manglecp.pack.factfiles.problems import Problems
from manglecp.wire import Fault, Schemas

_BLOCK: Final = 10_000
"""Rows taken at once: enough that what is done per block does not count, few enough to stay in the cache."""
_CELL: Final = re.compile(r'"(?:[^"]|"")*"|[^,\r\n]*')


def read_csv(source: Source, predicate: str, schemas: Schemas, limits: FileLimits, check: bool) -> list[Fact]:
    """The facts, or an error with everything that is wrong in the file."""
    return _Table(source, limits, check).read(predicate, schemas)


class _Table:
    def __init__(self, source: Source, limits: FileLimits, check: bool) -> None:
        self.source = source
        self.limits = limits
        self.check = check
        self.problems = Problems(source, limits.errors)
        self.rows = csv.reader(lines(source.text), strict=True)
        self.broken: str | None = None
        self.instants = Cells(instant)

    def read(self, predicate: str, schemas: Schemas) -> list[Fact]:
        self.layout = self._header(predicate, schemas)
        self.cells = [self._cells(position) for position in range(self.layout.schema.arity)]
        facts: list[Fact] = []
        first_line = self.rows.line_num + 1
        while block := self._block(_BLOCK):
            facts += self._facts(block, first_line)
            if len(facts) > self.limits.facts:
                self.problems.add_line(
                    f"more than {self.limits.facts:,} facts", first_line, "split the file, or give larger FileLimits"
                )
                self.problems.refuse()
            first_line = self.rows.line_num + 1
        self.problems.settle()
        return facts

    def _header(self, predicate: str, schemas: Schemas) -> Layout:
        while (rows := self._block(1)) and not rows[0]:
            pass  # an empty line
        try:
            if not rows:
                raise Fault("the file is empty", "the first row names the columns, as the Decl names the arguments")
            return layout(predicate, [name.strip() for name in rows[0]], schemas)
        except Fault as fault:
            self.problems.add_line(fault.message, max(1, self.rows.line_num), fault.fix)
            self.problems.refuse()

    def _cells(self, position: int) -> Cells[Any]:
        schema = self.layout.schema
        read = cell_reader(schema.shapes[position])
        if self.check and (read is literal or not schema.shapes[position].by_kind):
            return Cells(lambda text: schema.check(position, read(text)))
        return Strings() if read is str else Cells(read)

    def _block(self, size: int) -> list[list[str]]:
        """The next rows. What is not CSV ends them: nobody knows where the next row would start."""
        rows: list[list[str]] = []
        if self.broken is None:
            try:
                rows.extend(islice(self.rows, size))
            except csv.Error as error:
                self.broken = str(error)  # to be reported when the rows before it have been looked at
        if self.broken is not None and not rows:
            fix: str | None = 'a cell with a comma, a quote or a line end is written "like ""this"""'
            if "field limit" in self.broken:
                self.broken, fix = f"a cell has more than {csv.field_size_limit():,} characters", None
            self.problems.add_line(f"not CSV: {self.broken}", max(1, self.rows.line_num), fix)
            self.problems.refuse()
        return rows

    def _facts(self, block: list[list[str]], first_line: int) -> list[Fact]:
        width = len(self.layout.header)
        if set(map(len, block)) == {width}:
            try:
                columns = list(zip(*block, strict=True))
                values = [
                    cells.column(columns[at]) for cells, at in zip(self.cells, self.layout.arguments, strict=True)
                ]
                return list(self.layout.facts(values, self._intervals(block)))
            except Fault:
                pass
        return self._row_by_row(block, first_line)

    def _intervals(self, block: list[list[str]]) -> Iterator[Interval | None]:
        if not self.layout.times:
            return repeat(None, len(block))
        return (self._interval(row) for row in block)

    def _interval(self, row: list[str]) -> Interval | None:
        return interval([row[at] for at in self.layout.times], self.instants.__getitem__, self.layout.schema)

    def _row_by_row(self, block: list[list[str]], line: int) -> list[Fact]:
        """The facts of a block that is not all right, and what is wrong with the others."""
        facts: list[Fact] = []
        width = len(self.layout.header)
        for row in block:
            if len(row) == width:
                fact = self._fact(row, line)
                if fact is not None:
                    facts.append(fact)
            elif row:  # an empty line is none
                fix = f"the header names {width}"
                self.problems.add_line(f"{len(row)} cell{'' if len(row) == 1 else 's'} in this row", line, fix)
            line += 1 + sum(cell.count("\n") for cell in row)
        return facts

    def _fact(self, row: list[str], line: int) -> Fact | None:
        """The fact of one row, or None and everything that is wrong with it."""
        args: list[Value] = []
        sound = True
        for cells, at in zip(self.cells, self.layout.arguments, strict=True):
            try:
                args.append(cells[row[at]])
            except Fault as fault:
                self._complain(fault, line, at)
                sound = False
        try:
            when = self._interval(row) if self.layout.times else None
        except Fault as fault:
            self._complain(fault, line, self.layout.times[0])
            sound = False
        return Fact(self.layout.schema.predicate, tuple(args), when) if sound else None

    def _complain(self, fault: Fault, line: int, column: int) -> None:
        """Point at one cell of the record that begins in a line."""
        at = self.source.offset(line)
        for _ in range(column):
            at = self._end_of_cell(at) + 1
        message = f"column {self.layout.header[column]}: {fault.message}"
        self.problems.add(message, at, self._end_of_cell(at), fault.fix)

    def _end_of_cell(self, start: int) -> int:
        found = _CELL.match(self.source.text, start)
        assert found is not None  # it may be empty
        return found.end()
