"""`python -m tests.requirements`: how far the register is covered, by area."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from .checks import problems
from .marks import CollectionError, Marks, collect
from .register import AREAS, Area, Level, Register, RegisterError, Status, load

__all__ = ["ROOT", "main", "missing", "table"]

ROOT = Path(__file__).parents[2]
_COLUMNS = ("rows", "MUST", "done", "deviates", "planned", "with tests")


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table, or the rows without tests; 1 if a check fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.requirements", description=__doc__)
    parser.add_argument(
        "--missing", metavar="AREA", type=str.upper, choices=AREAS, help="list the rows of AREA without tests"
    )
    options = parser.parse_args(arguments)
    try:
        register, marks = load(), collect(ROOT, "tests")
    except (CollectionError, RegisterError) as error:
        print(error, file=sys.stderr)
        return 1
    print(missing(register, marks, options.missing) if options.missing else table(register, marks))
    found = problems(register, marks)
    for line in found:
        print(line, file=sys.stderr)
    return 1 if found else 0


def table(register: Register, marks: Marks) -> str:
    """One line per area, and their sum."""
    figures = {area.name: _figures(area, marks) for area in register.areas}
    figures["total"] = [sum(column) for column in zip(*figures.values(), strict=True)]
    lines = ["area   " + "  ".join(f"{title:>6}" for title in _COLUMNS)]
    for name, row in figures.items():
        cells = (f"{n:>{max(6, len(title))}}" for title, n in zip(_COLUMNS, row, strict=True))
        lines.append(f"{name:<7}" + "  ".join(cells))
    return "\n".join(lines)


def _figures(area: Area, marks: Marks) -> list[int]:
    counts = [area.count(key) for key in (Level.MUST, Status.DONE, Status.DEVIATES, Status.PLANNED)]
    return [len(area.rows), *counts, sum(row.id in marks.proving for row in area.rows)]


def missing(register: Register, marks: Marks, name: str) -> str:
    """The rows of one area that no test proves."""
    [area] = (area for area in register.areas if area.name == name)
    rows = [row for row in area.rows if row.id not in marks.proving]
    lines = [f"{row.id:<8}  {row.level:<6}  {row.status:<8}  {row.statement}" for row in rows]
    return "\n".join([*lines, f"{len(rows)} of {len(area.rows)} rows without tests"])
