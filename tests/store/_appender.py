"""A process that appends to the ledger, and says what it was told."""

from __future__ import annotations

import sys

from manglecp.store.store import open_store


def main(where: str, name: str, count: str) -> None:
    store = open_store(where, patience=60)
    for number in range(int(count)):
        with store.write_transaction() as tx:
            head = store.ledger.append(tx, "audit", {"n": number}, run=name)
        print(head.seq, head.row_hash, flush=True)
    store.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
