"""A worker process: claims what is there until nothing is left, and prints each claim."""

from __future__ import annotations

import sys

from manglecp.issues import IssueMemory
from manglecp.issues.model import system_clock
from manglecp.issues.tables import open_issues


def main(path: str, worker: str) -> None:
    memory = IssueMemory(open_issues(path, patience=60), clock=system_clock, new_id=lambda: worker)
    print("here", flush=True)
    sys.stdin.readline()
    while (lease := memory.claim_next(worker)) is not None:
        print(lease.issue, lease.fence, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
