"""A permit to execute one call in the application, as :meth:`.Client.permit` yields it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from manglecp.client.working_state import copy_json
from manglecp.wire import messages


@dataclass(slots=True)
class Permit:
    """The permission to execute a call once, with exactly these arguments, until ``expires_at``."""

    id: str
    expires_at: str
    tool: str
    args: dict[str, Any]
    result: Any = messages.UNSET

    def record(self, result: Any) -> None:
        """Report this result (JSON) with the outcome. Raises :class:`.NotJson`."""
        self.result = copy_json(result)

    def report(self, error: BaseException | None) -> messages.DecidePayload:
        """Return the request that reports the outcome."""
        outcome = messages.PermitReport(
            permit=self.id,
            outcome="success" if error is None else "failure",
            error=messages.UNSET if error is None else type(error).__name__,
            result=self.result,
        )
        return messages.DecidePayload(tool=self.tool, args=self.args, report=outcome)
