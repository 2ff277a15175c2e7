"""What can go wrong in the store.

    StoreError
    ├── Busy        another process is writing; nothing was done, and it may be tried again
    ├── Unusable    the file is not a store of ours, is damaged, or is of a newer version
    ├── Invalid     a value is outside of its limits, whatever the store holds
    └── Refused     what the store holds does not admit the change; ``code`` says why

The texts name ids, fields and limits. They never quote what somebody wrote into a field.
"""

from __future__ import annotations

__all__ = ["Busy", "Invalid", "Refused", "StoreError", "Unusable"]


class StoreError(Exception):
    """Nothing was changed."""


class Busy(StoreError):
    """The database is held by someone else for longer than one waits."""


class Unusable(StoreError):
    """There is no working with this file."""


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
