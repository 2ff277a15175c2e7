"""A worker process: claims what is there until nothing is left, and prints each claim."""

from __future__ import annotations

import sys

from manglecp.store.instants import system_clock
from manglecp.store.issues import IssueMemory
from manglecp.store.issues.stored import StoredIssues
from manglecp.store.opening import open_database


def main(path: str, worker: str) -> None:
    memory = IssueMemory(StoredIssues(open_database(path, patience=60)), clock=system_clock, new_id=lambda: worker)
    print("here", flush=True)
    sys.stdin.readline()
    while (lease := memory.claim_next(worker)) is not None:
        print(lease.issue, lease.fence, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
