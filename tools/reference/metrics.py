"""What ``/metrics`` exposes, and what spans carry."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final
from unittest import mock

from manglecp.server import metrics, names
from manglecp.server.metrics import Metrics
from tools.reference.tables import cell, table

__all__ = ["blocks"]

_SPANS: Final = {
    "ATTRIBUTE_TYPE": "the type of the message",
    "ATTRIBUTE_REQUEST": "the id of the request",
    "ATTRIBUTE_SESSION": "the session, where there is one",
    "ATTRIBUTE_TRANSPORT": "the transport",
    "ATTRIBUTE_ERROR": "the code of the error that was answered",
    "ATTRIBUTE_INTENT": "the intent, if the pack declares it",
    "ATTRIBUTE_TOOL": "the tool, if there is one of that name",
}
"""What each attribute has; one without a meaning, and a meaning without one, is an error."""


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
    known = {name for name in vars(names) if name.startswith("ATTRIBUTE_")}
    if known != _SPANS.keys():
        raise ValueError(f"attributes without a meaning, or the other way round: {known ^ _SPANS.keys()}")
    return table(("attribute", "what it has"), ((f"`{getattr(names, key)}`", text) for key, text in _SPANS.items()))
