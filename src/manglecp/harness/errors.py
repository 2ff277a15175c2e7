"""Input that cannot be typed.

There are two ways for a turn to fail. Evidence that is *wrong* is judged and gets a class. Evidence that cannot even be
*read* (a list where a text belongs, two different results under one id) has no verdict: it is an
:class:`InvalidEvidence`, and says where.
"""

from __future__ import annotations

__all__ = ["InvalidEvidence"]


class InvalidEvidence(ValueError):
    """The document is no evidence. ``path`` is the JSON pointer to the reason."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(path, message)
        self.path = path
        self.message = message

    def __str__(self) -> str:
        return f"{self.path or '/'}: {self.message}"

    def under(self, step: str | int) -> InvalidEvidence:
        """The same, seen from one step further out. Readers know only where they are; the path grows on the way up."""
        self.path = f"/{str(step).replace('~', '~0').replace('/', '~1')}{self.path}"
        self.args = (self.path, self.message)
        return self
