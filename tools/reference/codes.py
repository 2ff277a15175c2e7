"""The table of error codes."""

from __future__ import annotations

from collections.abc import Callable

from manglecp.wire import CODES
from tools.reference.tables import cell, table

__all__ = ["blocks"]


def blocks() -> dict[str, Callable[[], str]]:
    return {"error codes": _codes}


def _codes() -> str:
    rows = (
        (
            f"`{name}`",
            str(code.status),
            "yes" if code.recoverable else "no",
            cell(code.meaning),
            ", ".join(f"`{member}`" for member in code.details),
        )
        for name, code in CODES.items()
    )
    return table(("code", "HTTP", "recoverable", "meaning", "details"), rows)
