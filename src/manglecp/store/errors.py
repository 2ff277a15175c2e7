"""What can go wrong in the store.

    StoreError
    ├── Busy        another process is writing; nothing was done, and it may be tried again
    ├── Unsure      the connection broke while committing: it was done or it was not
    ├── Unusable    the database is not a store of ours, is damaged, is of a newer version, or cannot be reached
    ├── Invalid     a value is outside of its limits, whatever the store holds
    └── Refused     what the store holds does not admit the change; ``code`` says why
        ├── Fenced      the run is not the caller's any more
        ├── KeyTaken    the identity has used this request key already
        ├── NoRun       there is no such run
        └── NotOpen     the run or the step is not in a state that admits this

The texts name ids, fields and limits. They never quote what somebody wrote into a field.
"""

from __future__ import annotations

__all__ = ["Busy", "Fenced", "Invalid", "KeyTaken", "NoRun", "NotOpen", "Refused", "StoreError", "Unsure", "Unusable"]


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


class Fenced(Refused):
    """The run was taken over, or is over. The caller must not act on the run again."""

    def __init__(self, run_id: str, fence: int) -> None:
        super().__init__("fenced", f"run {run_id} is no longer held under fence {fence}")
        self.run_id = run_id
        self.fence = fence


class KeyTaken(Refused):
    """The run with this key is ``run_id``; whether it is the same request shows in ``request_digest``."""

    def __init__(self, run_id: str, request_digest: str) -> None:
        super().__init__("key_taken", f"the request key belongs to run {run_id}")
        self.run_id = run_id
        self.request_digest = request_digest


class NoRun(Refused):
    """There is no run of this id, or it was forgotten."""

    def __init__(self, run_id: str) -> None:
        super().__init__("no_run", f"there is no run {run_id}")
        self.run_id = run_id


class NotOpen(Refused):
    """The run is not in a state in which this can be said about it."""

    def __init__(self, message: str) -> None:
        super().__init__("not_open", message)
