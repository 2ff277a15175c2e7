"""What can go wrong with a run.

    StoreError
    └── Refused
        ├── Fenced      the run is not the caller's any more
        ├── KeyTaken    the identity has used this request key already
        ├── NoRun       there is no such run
        └── NotOpen     the run or the step is not in a state that admits this

Raised inside a transaction; nothing of it stays.
"""

from __future__ import annotations

from manglecp.store.errors import Refused

__all__ = ["Fenced", "KeyTaken", "NoRun", "NotOpen"]


class Fenced(Refused):
    """Somebody else has taken the run over, or it is over. Whoever gets this must not act on the run again."""

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
