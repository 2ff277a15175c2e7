"""A process that tries to decide or use approval requests, and prints the ids of those for which it succeeded."""

from __future__ import annotations

import sys

from manglecp.store.store import open_store


def main(where: str, change: str, name: str, now_ms: str) -> None:
    store = open_store(where, patience=60)
    print("ready", flush=True)
    for approval_id in sys.stdin.readline().split():
        with store.write_transaction() as tx:
            if change == "decide":
                changed = store.approvals.decide(tx, approval_id, "approved", name, int(now_ms))
            else:
                changed = store.approvals.use(tx, approval_id, name, int(now_ms))
        if changed:
            print(approval_id, flush=True)
    store.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
