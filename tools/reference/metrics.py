"""The metrics of ``/metrics``, and the attributes of spans."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final
from unittest import mock

from manglecp.server import metrics
from manglecp.server.metrics import Metrics
from manglecp.server.tracing import ATTRIBUTES
from tools.reference.tables import cell, table

__all__ = ["blocks"]

_SPANS: Final = {
    "type": "the type of the message",
    "id": "the id of the request",
    "session": "the session, where there is one",
    "transport": "the transport",
    "code": "the code of the error that was answered",
    "intent": "the intent, if the pack declares it",
    "tool": "the tool, if there is one of that name",
}
"""The meaning of each attribute; an attribute without a meaning, or the reverse, is an error."""


def blocks() -> dict[str, Callable[[], str]]:
    return {"metrics": _metrics, "spans": _spans}


def _metrics() -> str:
    with mock.patch.dict(os.environ):
        os.environ.pop(metrics.FOLDER_VARIABLE, None)
        found = Metrics()
    rows = []
    for instrument in vars(found).values():
        describe = getattr(instrument, "describe", None)
        if describe is None or not hasattr(instrument, "_labelnames"):
            continue
        (family,) = describe()
        labels = ", ".join(f"`{label}`" for label in instrument._labelnames)
        rows.append((f"`{family.name}`", family.type, labels, cell(family.documentation)))
    assert len(rows) > 1
    return table(("name", "kind", "labels", "meaning"), rows)


def _spans() -> str:
    if ATTRIBUTES.keys() != _SPANS.keys():
        raise ValueError(f"attributes without a meaning, or the reverse: {ATTRIBUTES.keys() ^ _SPANS.keys()}")
    return table(("attribute", "what it has"), ((f"`{ATTRIBUTES[key]}`", text) for key, text in _SPANS.items()))
