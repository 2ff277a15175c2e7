"""Where a fact says it comes from and how long it is meant to last: ``source`` and ``category`` (companion, 4.5).

Both must be well formed, and neither changes anything: what a client says is a session fact of a client (OPEN-20), and
facts that differ only here are one fact (DATA-42).
"""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias

from manglecp.base.text import quote
from manglecp.wire.facts import instant
from manglecp.wire.faults import Fault

Category: TypeAlias = Literal["server", "session", "derived"]

PROVENANCE_CATEGORIES: Final = ("server", "session", "derived")
SOURCE_TYPES: Final = ("server", "scan", "external", "client", "derived")
"""By falling trust; derived facts take theirs from what they rest on (DATA-38)."""


def check_source(data: Any, now: int) -> None:
    """A fault if this is no source. Null says nothing."""
    if data is None:
        return
    if type(data) is not dict:
        raise Fault("source is an object", 'write {"source_type": "client"}')
    kind = data.get("source_type")
    if type(kind) is not str:
        raise Fault("source_type is missing, or is not a string", 'write "client"').inside("source_type")
    if kind not in SOURCE_TYPES and not (kind.startswith("x-") and len(kind) > 2):
        fix = f"one of {', '.join(SOURCE_TYPES)}, or a type of your own that begins with x-"
        raise Fault(f"{quote(kind)} is not a source type", fix).inside("source_type")
    if type(data.get("source_id")) not in (str, type(None)):
        raise Fault("source_id is a string or null").inside("source_id")
    if data.get("asserted_at") is not None:
        try:
            instant(data["asserted_at"], now)
        except Fault as fault:
            raise fault.inside("asserted_at") from None


def check_category(data: Any) -> None:
    """A fault if this is no category. Null says nothing."""
    if data is not None and (type(data) is not str or data not in PROVENANCE_CATEGORIES):
        told = quote(data) if type(data) is str else "that"
        raise Fault(f"{told} is not a category", f"one of {', '.join(PROVENANCE_CATEGORIES)}")
