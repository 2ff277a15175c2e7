"""Errors of the runner. Unparsable selections raise none of them: they are selections too, ``INVALID``."""

from __future__ import annotations


class RunnerError(ValueError):
    """Invalid input of the runner."""


class BadHeader(RunnerError):
    """An invalid run header (contract, section 1)."""


class BadMenu(RunnerError):
    """An invalid menu."""


class PatchRefused(RunnerError):
    """An input patch that is no small, shallow JSON object."""


class BadTransaction(RunnerError):
    """An invalid state, or an invalid patch of one."""


class PolicyRefused(RunnerError):
    """A policy command that may not be started."""


class LogBroken(RunnerError):
    """A run log that was changed. ``line`` is the first one that shows it, counted from 1."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(f"line {line}: {reason}")
        self.line = line
        self.reason = reason
