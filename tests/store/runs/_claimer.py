"""A process that claims runs until there are none left, and says which."""

from __future__ import annotations

import sys

from manglecp.store.store import open_database
from tests.store.runs.bench import PARTS, Bench


def main(where: str, pack: str, owner: str) -> None:
    bench = Bench(open_database(where, parts=PARTS, patience=60))
    print("here", flush=True)
    sys.stdin.readline()
    while True:
        claimed = bench.claim(owner, packs=[pack])
        if claimed is not None:
            print(claimed.run.run_id, flush=True)
            continue
        with bench.database.read_transaction() as tx:  # None may mean that somebody was quicker
            if tx.execute("SELECT 1 FROM runs WHERE owner = 'first'").fetchone() is None:
                return


if __name__ == "__main__":
    main(*sys.argv[1:])
