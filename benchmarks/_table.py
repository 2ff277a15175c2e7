"""Measure CPU time and peak memory, and print tables."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Sequence
from pathlib import Path


def best(run: Callable[[], object], times: int = 5) -> float:
    """Return the least CPU seconds of several runs."""
    results = []
    for _ in range(times):
        start = time.process_time()
        run()
        results.append(time.process_time() - start)
    return min(results)


def peak_kilobytes() -> int:
    """Return the peak memory of this process. getrusage would include the peak of the parent before exec."""
    status = Path("/proc/self/status")
    lines = status.read_text(encoding="ascii").splitlines() if status.exists() else []
    peak = next((line.split()[1] for line in lines if line.startswith("VmHWM:")), None)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss if peak is None else int(peak)


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]
    for row in (header, ["-" * width for width in widths], *rows):
        first, *rest = zip(row, widths, strict=True)
        cells = [first[0].ljust(first[1]), *[cell.rjust(width) for cell, width in rest]]
        print("  ".join(cells).rstrip())
