"""Until when a macro-tool is valid: what rules say, else as long as it would go on being selected.

A tool is selected as long as something speaks for it, or as long as a selected tool needs it; so its window ends with
the last of these. Only a tool whose selection can depend on a premise about time has a window, which the rule graph
tells before any request: for most tools this is one look into a table.

Rules may give an end that has passed. Such a tool is not offered, as no window ends before it begins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from manglecp.mangle import INT_MAX, Duration, Fact, Time
from manglecp.mangle.explain import may_expire

if TYPE_CHECKING:
    from manglecp.intent.evaluation import Evaluation

__all__ = ["expired", "validity"]

_SPOKEN_FOR: Final = (("mandatory", 1), ("relevant", 2))


def validity(evaluation: Evaluation, tool: str) -> tuple[int | None, int | None] | None:
    """Not before and expires at, in nanoseconds since 1970; both None for a tool without a window. None for a tool that
    rules have given an end that has passed."""
    end = _ruled(evaluation, tool)
    if end is None:
        end = _selected(evaluation, tool)
    elif end < evaluation.now:
        return None
    if end is None or end >= INT_MAX:
        return None, None
    return evaluation.now, end


def expired(evaluation: Evaluation, tool: str) -> bool:
    """Have rules given it an end that has passed?"""
    end = _ruled(evaluation, tool)
    return end is not None and end < evaluation.now


def _ruled(evaluation: Evaluation, tool: str) -> int | None:
    """The earliest end that rules give it."""
    spans = evaluation.lookup.rows("valid_for", 2, tool)
    until = evaluation.lookup.rows("valid_until", 2, tool)
    if not spans and not until:
        return None
    ends = [evaluation.now + cast(Duration, span).ns for _, span in spans]
    return min([*ends, *(cast(Time, end).ns for _, end in until)])


def _selected(evaluation: Evaluation, tool: str) -> int | None:
    """The latest end of what it is selected for."""
    lookup, result = evaluation.lookup, evaluation.result
    reasons: list[Fact] = []
    if lookup.rows("kept", 1, tool):
        if not any(may_expire(evaluation.domain.base.compiled, key, tool) for key in _SPOKEN_FOR):
            return None
        reasons += [Fact("candidate", row) for row in lookup.rows("candidate", 3, tool)]
    reasons += [Fact("needed", row) for row in lookup.rows("needed", 1, tool)]
    latest: int | None = None
    for reason in reasons:
        end = result.expiry(reason)
        if end is None:
            return None
        latest = end if latest is None else max(latest, end)
    return latest
