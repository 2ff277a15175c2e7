"""The error of an action that is refused or impossible. Its text has the reason, the path and a fix."""

from __future__ import annotations

__all__ = ["Refusal"]


class Refusal(ValueError):
    """An action was refused, and no file was changed."""
