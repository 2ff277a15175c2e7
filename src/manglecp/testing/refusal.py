"""What a pack or its invocations refuse, as a failure of a test that says why."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from manglecp.base.text import escape_invisible
from manglecp.wire import WireError, error_lines

__all__ = ["Refused", "explained"]


class Refused(AssertionError):
    """The answer is an error. A test that expects it writes ``with pytest.raises(Refused, match="intent_denied")``."""

    def __init__(self, error: WireError, more: Iterable[str] = ()) -> None:
        self.code = error.code
        self.message = error.message
        self.details: Mapping[str, Any] = error.details or {}
        wrong = (f"  {one['path'] or '/'}: {one['message']}" for one in self.details.get("schema_errors", ()))
        asked = str(self.details.get("challenge", {}).get("text", "")).splitlines()
        lines = [
            *error_lines(error.code, error.message, error.details),
            *wrong,
            *(f"  {line}" for line in asked),
            *more,
        ]
        super().__init__(explained(lines))


def explained(lines: Iterable[str]) -> str:
    """Facts and results may hold anything, so whatever is not seen is written out."""
    return "\n".join(escape_invisible(part) for line in lines for part in line.split("\n"))
