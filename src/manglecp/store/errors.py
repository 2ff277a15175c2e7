"""What can go wrong in the store.

    StoreError
    ├── Busy        another process is writing; nothing was done, and it may be tried again
    ├── Unsure      the connection broke while committing: it was done or it was not
    ├── Unusable    the database is not a store of ours, is damaged, is of a newer version, or cannot be reached
    ├── Invalid     a value is outside of its limits, whatever the store holds
    └── Refused     what the store holds does not admit the change; ``code`` says why

The texts name ids, fields and limits. They never quote what somebody wrote into a field.
"""

from __future__ import annotations

__all__ = ["Busy", "Invalid", "Refused", "StoreError", "Unsure", "Unusable"]


class StoreError(Exception):
    """Nothing was changed, unless it is :class:`Unsure`."""


class Busy(StoreError):
    """The database is held by someone else for longer than one waits."""


class Unsure(StoreError):
    """The answer to a commit was lost. Look before doing it again."""


class Unusable(StoreError):
    """There is no working with this database."""


class Invalid(StoreError):
    """A value that no store would take."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.field = field
        self.reason = reason


class Refused(StoreError):
    """A change that is not admissible now."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
