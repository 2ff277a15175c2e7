"""Logs as JSON lines on standard error: one object for each record, with the ids that belong to it.

Only fields that this server sets are written, never a message or a credential.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, Final, TextIO

__all__ = ["JsonLines", "configure_logging"]

FIELDS: Final = (
    *("session", "peer", "request_id", "identity", "intent", "tool", "code", "milliseconds", "run_id", "action", "url"),
)
_LONGEST: Final = 4_096


class JsonLines(logging.Formatter):
    """Formats records as JSON. Messages and traces are cut where they are too long."""

    def format(self, record: logging.LogRecord) -> str:
        """One line without a line break; only known fields of the record, and only ASCII."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage()[:_LONGEST],
        }
        for name in FIELDS:
            value = getattr(record, name, None)
            if value is not None:
                line[name] = round(value, 3) if isinstance(value, float) else value
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)[-_LONGEST:]
        return json.dumps(line, ensure_ascii=True, default=str)


def configure_logging(level: str = "info", *, as_json: bool = True, stream: TextIO | None = None) -> None:
    """Everything that this process has to say goes there, and nowhere else."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(
        JsonLines() if as_json else logging.Formatter("%(asctime)s %(levelname)s %(message)s", "%H:%M:%S")
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("manglecp").setLevel(level.upper())
