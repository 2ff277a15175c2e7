"""Logs as JSON lines on standard error.

Of a record's additional fields, only those in ``_FIELDS`` are written. The server logs no messages and no credentials.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, Final, TextIO

_FIELDS: Final = (
    *("session", "peer", "request_id", "identity", "intent", "tool", "code", "milliseconds"),
    *("run_id", "action", "url", "decision"),
)
_MAX_LENGTH: Final = 4_096  # characters of a message or traceback


class JsonLines(logging.Formatter):
    """Formats records as JSON, with long messages and tracebacks truncated."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line of ASCII."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage()[:_MAX_LENGTH],
        }
        for name in _FIELDS:
            value = getattr(record, name, None)
            if value is not None:
                line[name] = round(value, 3) if isinstance(value, float) else value
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)[-_MAX_LENGTH:]
        return json.dumps(line, ensure_ascii=True, default=str)


def configure_logging(level: str = "info", *, as_json: bool = True, stream: TextIO | None = None) -> None:
    """Log to ``stream`` (by default standard error) only: manglecp from ``level`` on, warnings of other packages."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(
        JsonLines() if as_json else logging.Formatter("%(asctime)s %(levelname)s %(message)s", "%H:%M:%S")
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("manglecp").setLevel(level.upper())
