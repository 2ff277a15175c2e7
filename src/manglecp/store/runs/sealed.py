"""Values of runs, sealed on their way in and opened on their way out.

A value is bound to its place (table, run, step, column): moved to another row or column it does not open.
"""

from __future__ import annotations

from manglecp.store.runs.model import StepKind
from manglecp.store.sealing import Seals

__all__ = ["ValueSeals"]


class ValueSeals:
    """Seals for values that may be missing, by their place in the journal."""

    def __init__(self, seals: Seals) -> None:
        self._seals = seals

    def seal_run(self, value: bytes | None, run_id: str, column: str) -> bytes | None:
        """A value of the run itself."""
        return None if value is None else self._seals.seal(value, "runs", run_id, column)

    def open_run(self, sealed: bytes | None, run_id: str, column: str) -> bytes | None:
        """The value again. Raises :class:`Unusable` where :meth:`Seals.unseal` does."""
        return None if sealed is None else self._seals.unseal(sealed, "runs", run_id, column)

    def seal_kept(self, value: bytes, run_id: str, name: str) -> bytes:
        """A value that the run leaves for later ones."""
        return self._seals.seal(value, "run_kept", run_id, name)

    def open_kept(self, sealed: bytes, run_id: str, name: str) -> bytes:
        """The value again. Raises :class:`Unusable` where :meth:`Seals.unseal` does."""
        return self._seals.unseal(sealed, "run_kept", run_id, name)

    def seal_step(
        self, value: bytes | None, run_id: str, kind: StepKind, number: int, attempt: int, column: str
    ) -> bytes | None:
        """A value of one attempt at a step."""
        if value is None:
            return None
        return self._seals.seal(value, "steps", run_id, f"{kind}/{number}/{attempt}", column)

    def open_step(
        self, sealed: bytes | None, run_id: str, kind: StepKind, number: int, attempt: int, column: str
    ) -> bytes | None:
        """The value again. Raises :class:`Unusable` where :meth:`Seals.unseal` does."""
        if sealed is None:
            return None
        return self._seals.unseal(sealed, "steps", run_id, f"{kind}/{number}/{attempt}", column)
