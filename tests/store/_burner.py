"""A process that tries to use every nonce, and says which it got."""

from __future__ import annotations

import sys

from manglecp.store.store import open_store


def main(where: str, count: str) -> None:
    store = open_store(where, patience=60)
    print("here", flush=True)
    sys.stdin.readline()
    for number in range(int(count)):
        with store.write_transaction() as tx:
            won = store.nonces.burn(tx, "kim", f"n{number}", 1000)
        if won:
            print(f"n{number}", flush=True)
    store.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
