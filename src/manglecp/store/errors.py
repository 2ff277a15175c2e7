"""Errors of the store. Messages name ids, fields and limits; they never quote the value of a field."""

from __future__ import annotations


class StoreError(Exception):
    """The base class. The transaction was rolled back, except with :class:`CommitUnknown`."""


class Busy(StoreError):
    """Another process locked the database for longer than the timeout; the caller may retry."""


class CommitUnknown(StoreError):
    """The connection broke during the commit: read whether the change was made before retrying."""


class Unusable(StoreError):
    """The database is not a store, is damaged, has another schema revision or key, or is unreachable."""


class Invalid(StoreError):
    """A value is invalid or outside of its limits, whatever the state of the store."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.field = field
        self.reason = reason


class ChangeRefused(StoreError):
    """The state of the store does not admit the change; ``code`` is the reason."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class Fenced(ChangeRefused):
    """The run was taken over, or has ended. The caller must not act on it again."""

    def __init__(self, run_id: str, fence: int) -> None:
        super().__init__("fenced", f"run {run_id} is no longer held under fence {fence}")
        self.run_id = run_id
        self.fence = fence


class KeyTaken(ChangeRefused):
    """The identity has used this request key for ``run_id``. An equal ``request_digest`` means a repeated request."""

    def __init__(self, run_id: str, request_digest: str) -> None:
        super().__init__("key_taken", f"the request key belongs to run {run_id}")
        self.run_id = run_id
        self.request_digest = request_digest


class NoRun(ChangeRefused):
    """There is no run with this id, or it was deleted."""

    def __init__(self, run_id: str) -> None:
        super().__init__("no_run", f"there is no run {run_id}")
        self.run_id = run_id


class NotOpen(ChangeRefused):
    """The state of the run or the step does not admit the change."""

    def __init__(self, message: str) -> None:
        super().__init__("not_open", message)
