"""Are these the answers to what was sent? Every one a message that the schemas take, none of them a failure of the
server, each under an id that it may have, and one for everything that is answered.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

import pytest

from manglecp.wire import CODES
from tests.fuzz.frames import SENTINEL, Sent
from tests.fuzz.messages import fitting_answer

__all__ = ["MEMORY", "SIZES", "answer", "check", "check_all"]

SIZES: Final = [pytest.param(1_000, id="1,000"), pytest.param(100_000, id="100,000", marks=pytest.mark.soak)]
MEMORY: Final = 48 << 10
"""Kilobytes that a server may grow by, however much it is sent: allocators keep some, and little is kept on purpose."""
NEVER: Final = frozenset({code for code, row in CODES.items() if row.status == 500})
"""No client can make the server fail."""


def answer(data: bytes) -> dict[str, Any]:
    """A message of the server."""
    told: dict[str, Any] = json.loads(data)
    wrong = fitting_answer(told)
    assert wrong is None, f"{wrong}: {data[:500]!r}"
    assert told["payload"].get("code") not in NEVER, data[:500]
    return told


def check(one: Sent, told: dict[str, Any]) -> None:
    """Is this the answer to that?"""
    assert told["id"] in one.ids, f"{one.data[:500]!r} was answered with {told}"
    # What the schema does not take is never taken; whether what it takes is, depends on what it says.
    assert told["type"] == "error" or one.fitting or None in one.ids, f"{one.data[:500]!r} was answered with {told}"
    if one is SENTINEL:
        assert [tool["name"] for tool in told["payload"]["macro_tools"]] == ["measure_text"]


def check_all(several: Iterable[Sent], told: list[dict[str, Any]]) -> None:
    """In any order: each answer belongs to one that was sent."""
    expected = [one for one in several if not one.silent]
    assert len(expected) == len(told), f"{len(expected)} messages had {len(told)} answers"
    by_id = {one["id"]: one for one in told}
    left = Counter(one["id"] for one in told)
    given = Counter(name for one in expected for name in one.ids)
    for one in sorted(expected, key=lambda each: len(each.ids)):  # first those that are sure
        # An id that is taken already is no id.
        ids = one.ids | {None} if any(given[name] > 1 for name in one.ids) else one.ids
        found = next((name for name in sorted(ids, key=lambda name: name is None) if left[name]), ...)
        assert found is not ..., f"{one.data[:500]!r} has no answer under any of {set(one.ids)}, but {+left} are left"
        left[found] -= 1
        if found is not None and given[found] == 1:  # else nobody can tell whose answer it is
            check(one, by_id[found])
