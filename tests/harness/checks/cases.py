"""Cases of a check: what is changed in an accepted turn, and which classes that raises."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.harness.evidence import ROWS

JOIN = "tool.join_incomplete"


def raises(title: str, *names: str, **changes: Any) -> Any:
    """The classes that are raised, and no others. Changes are written with ``__`` for the dots of their paths."""
    marks = [pytest.mark.req(ROWS[name]) for name in names]
    return pytest.param(_paths(changes), set(names), id=title.replace(" ", "-"), marks=marks)


def accepts(title: str, **changes: Any) -> Any:
    return pytest.param(_paths(changes), set(), id=title.replace(" ", "-"))


def _paths(changes: Mapping[str, Any]) -> dict[str, Any]:
    short = {"call": "evidence.callSpec", "request": "evidence.toolRequests.0", "result": "evidence.toolResults.0"}
    short |= {"use": "evidence.toolUse.0", "state": "evidence.protocolState", "tools": "toolConstraints"}
    found = {}
    for name, value in changes.items():
        head, *rest = name.split("__")
        found[".".join([short.get(head, head), *rest])] = value
    return found
