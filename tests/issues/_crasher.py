"""A process that closes an issue and is killed in front of the n-th statement of that transaction, or of its commit."""

from __future__ import annotations

import itertools
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from manglecp.harness import replay_turn
from manglecp.issues import IssueMemory
from manglecp.issues.model import Close, system_clock
from manglecp.issues.tables import IssueTables, StoredIssues
from manglecp.store.database import Rows
from manglecp.store.store import open_database
from tests.issues.turns import turn


class Mortal(StoredIssues):
    """Dies in front of one statement."""

    last: int

    @contextmanager
    def write_transaction(self) -> Iterator[IssueTables]:
        numbers = itertools.count(1)

        def die() -> None:
            if next(numbers) == self.last:
                os.kill(os.getpid(), signal.SIGKILL)

        with super().write_transaction() as tables:
            execute = tables._execute

            def dying(*args: Any) -> Rows:
                die()
                return execute(*args)

            tables._execute = dying
            yield tables
            die()


def main(where: str, issue: str, statement: str) -> None:
    store = Mortal(open_database(where))
    store.last = int(statement)
    ready = replay_turn(turn("issue.close", f"issue://{issue}", call_id="the turn"))
    IssueMemory(store, clock=system_clock, new_id=lambda: "unused").mutate(ready, "kim", issue, Close())
    print("closed")
    store.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
