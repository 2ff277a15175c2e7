"""One step's change of the state: all of it or nothing.

The change that a successful action made is kept as a list of ``add``, ``replace`` and ``remove`` on ``/slots/<n>`` in
the order of slots, upstream's ``tx_patch``. Upstream leaves the operations before a bad one applied; here a patch
counts only as a whole. Files and networks are not undone: a transaction covers the state alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from manglecp.toolhost import state as wire
from manglecp.toolhost.runner.canonical import canonical
from manglecp.toolhost.runner.errors import BadTransaction
from manglecp.toolhost.state import Artifact, Slots, StateError

__all__ = ["apply", "difference", "received"]

LARGEST_STATE: Final = 10 * 1024 * 1024
"""Bytes. A host reads no longer request than that."""
_PATH: Final = re.compile(r"/slots/([0-7])")


def received(slots: object) -> Slots:
    """What an action left, if it is a state that can be written down."""
    if not isinstance(slots, Mapping) or not all(isinstance(one, Artifact) for one in slots.values()):
        raise BadTransaction("the state is no map from slots to artifacts")
    try:
        size = len(canonical(wire.full(slots)))
    except (StateError, TypeError, ValueError) as error:
        raise BadTransaction(f"the state cannot be written down: {error}") from None
    if size > LARGEST_STATE:
        raise BadTransaction(f"the state has more than {LARGEST_STATE} bytes")
    return dict(slots)


def difference(before: Mapping[int, Artifact], after: Mapping[int, Artifact]) -> list[dict[str, Any]]:
    """The operations that lead from one state to the other."""
    values = wire.full(after)["slots"]
    found: list[dict[str, Any]] = []
    for slot in sorted(before.keys() | after.keys()):
        path = f"/slots/{slot}"
        if slot not in after:
            found.append({"op": "remove", "path": path})
        elif before.get(slot) != after[slot]:
            found.append({"op": "replace" if slot in before else "add", "path": path, "value": values[str(slot)]})
    return found


def apply(before: Mapping[int, Artifact], operations: Iterable[object]) -> Slots:
    """The state after all operations; :class:`BadTransaction` if one of them does not fit."""
    after = dict(before)
    for one in operations:
        found = _PATH.fullmatch(str(one.get("path"))) if isinstance(one, Mapping) else None
        if found is None or not isinstance(one, Mapping):
            raise BadTransaction("an operation leads to no slot")
        op, slot = one.get("op"), int(found[1])
        if op not in ("add", "replace", "remove") or (op == "add") == (slot in after):
            raise BadTransaction(f"{str(op)[:20]!a} does not fit slot {slot}")
        if op == "remove":
            del after[slot]
            continue
        try:
            after |= wire.apply({"slots": {str(slot): one.get("value")}}, {})
        except StateError as error:
            raise BadTransaction(str(error)) from None
    return after
