"""What the runner refuses.

A selection is never refused with an error: what cannot be read is a selection too, ``INVALID``.
"""

from __future__ import annotations

__all__ = ["BadHeader", "BadMenu", "BadTransaction", "LogBroken", "PatchRefused", "PolicyRefused", "RunnerError"]


class RunnerError(ValueError):
    """The runner was given something that it does not take."""


class BadHeader(RunnerError):
    """No run header."""


class BadMenu(RunnerError):
    """No menu."""


class PatchRefused(RunnerError):
    """No patch of the inputs."""


class BadTransaction(RunnerError):
    """No state, or no patch that leads from one state to another."""


class PolicyRefused(RunnerError):
    """A command that is not on the list of allowed executables."""


class LogBroken(RunnerError):
    """The log is not what was written. ``line`` is the first one that shows it, counted from 1."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(f"line {line}: {reason}")
        self.line = line
        self.reason = reason
