"""The checks: each asks one question of a turn and yields a finding for every row that answers it wrongly.

One module per family of classes. A check reads evidence and what is in force, nothing else, and knows nothing of the
other checks; which classes block what is written in :mod:`manglecp.harness.classes`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from manglecp.harness.checks import tool
from manglecp.harness.findings import Finding
from manglecp.harness.turn import Turn

__all__ = ["CHECKS", "Check"]

Check: TypeAlias = Callable[[Turn], Iterator[Finding]]

CHECKS: Final[tuple[Check, ...]] = (*tool.CHECKS,)
