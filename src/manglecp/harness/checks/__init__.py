"""The checks: each asks one question of a turn and yields a finding for every row that answers it wrongly.

One module per family of classes. A check reads evidence and what is in force, nothing else, and knows nothing of the
other checks; what a class blocks is written in :mod:`manglecp.harness.classes`.

A finding points at what is wrong, or at what something is wrong with. Where two rows contradict each other it points at
both, so that taking away a row that nobody complains about never makes a turn acceptable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from manglecp.harness.checks import context, coordination, drift, governance, handoff, mutation, protocol, runtime, tool
from manglecp.harness.findings import Finding
from manglecp.harness.turn import Turn

__all__ = ["CHECKS", "Check"]

Check: TypeAlias = Callable[[Turn], Iterator[Finding]]

CHECKS: Final[tuple[Check, ...]] = tuple(
    check
    for family in (tool, protocol, runtime, context, coordination, governance, handoff, mutation, drift)
    for check in family.CHECKS
)
