"""A process that closes an issue and is killed in front of the n-th statement of that transaction."""

from __future__ import annotations

import itertools
import os
import signal
import sys

from manglecp.harness.replay import ready_from
from manglecp.store.instants import system_clock
from manglecp.store.issues import IssueMemory
from manglecp.store.issues.events import Close
from manglecp.store.issues.stored import StoredIssues
from manglecp.store.opening import open_database
from manglecp.store.sqlite import SqliteDatabase
from tests.store.turns import turn


def main(path: str, issue: str, statement: str) -> None:
    database = open_database(path)
    assert isinstance(database, SqliteDatabase)
    store = StoredIssues(database)
    ready = ready_from(turn("issue.close", f"issue://{issue}", call_id="the turn"))
    numbers = itertools.count(1)

    def die(_: str) -> None:
        if next(numbers) == int(statement):
            os.kill(os.getpid(), signal.SIGKILL)

    database._connection.set_trace_callback(die)
    IssueMemory(store, clock=system_clock, new_id=lambda: "unused").close(ready, "kim", issue, Close())
    database._connection.set_trace_callback(None)
    print("closed")


if __name__ == "__main__":
    main(*sys.argv[1:])
