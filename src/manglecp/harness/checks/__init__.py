"""The checks: each examines one aspect of a turn and yields a finding for every row that violates it.

A check depends on the evidence and the terms in force, never on other checks; :mod:`manglecp.harness.classes` defines
which state a class blocks. A finding names the offending row. If two rows contradict each other, each gets a
finding. Therefore the removal of rows without a finding never makes a turn acceptable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from manglecp.harness.checks import execution, governance, mutation, tool
from manglecp.harness.classes import Finding
from manglecp.harness.turn import Turn

Check: TypeAlias = Callable[[Turn], Iterator[Finding]]

CHECKS: Final[tuple[Check, ...]] = tuple(
    function
    for module in (tool, execution, governance, mutation)
    for name, function in vars(module).items()
    if name.startswith("check_")
)
"""All checks: the functions of these modules whose names start with ``check_``."""
