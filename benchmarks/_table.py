"""Measuring and printing: best of several runs, CPU time, one table."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence


def best(run: Callable[[], object], times: int = 5) -> float:
    """The least CPU seconds of several runs."""
    results = []
    for _ in range(times):
        start = time.process_time()
        run()
        results.append(time.process_time() - start)
    return min(results)


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]
    for row in (header, ["-" * width for width in widths], *rows):
        cells = [cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))]
        print("  ".join(cells).rstrip())
