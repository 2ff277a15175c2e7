"""A process that adds, claims, discovers and closes for as long as it lives, and says what was acknowledged."""

from __future__ import annotations

import sys

from manglecp.harness import replay_turn
from manglecp.issues import IssueMemory
from manglecp.issues.model import Add, Close, Discover, system_clock
from manglecp.issues.tables import open_issues
from tests.issues.turns import turn


def main(path: str, name: str, rounds: str) -> None:
    memory = IssueMemory(open_issues(path, patience=60), clock=system_clock, new_id=lambda: "unused")
    for number in range(int(rounds)):
        issue = f"{name}.{number}"
        memory.add(name, Add(title="work"), issue)
        print("added", issue, flush=True)
        lease = memory.claim(name, issue)
        found = replay_turn(turn("issue.discover", f"issue://{issue}", call_id=f"{issue}/1"))
        memory.mutate(found, name, f"{issue}.more", Discover(parent=issue, title="more"))
        print("discovered", f"{issue}.more", flush=True)
        done = replay_turn(turn("issue.close", f"issue://{issue}", call_id=f"{issue}/2"))
        memory.mutate(done, name, issue, Close(fence=lease.fence))
        print("closed", issue, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
