"""A process that carries out runs for as long as it lives, and says what was committed."""

from __future__ import annotations

import itertools
import sys

from manglecp.store.ledger import Ledger
from manglecp.store.store import open_database
from tests.store.runs.bench import PARTS, Bench, ending, new_run, start


def main(where: str, name: str) -> None:
    bench = Bench(open_database(where, parts=PARTS, patience=60))
    for count in itertools.count():
        run = f"{name}.{count}"
        with bench.database.write_transaction() as tx:
            bench.runs.accept(tx, new_run(run, owner=name))
            Ledger().append(tx, "admission", {}, run=run)
        print("accepted", run, flush=True)
        for number in (1, 2):
            with bench.database.write_transaction() as tx:
                bench.runs.record_starts(tx, run, 1, [start(number)])
                Ledger().append(tx, "turn", {"step": number}, run=run)
            print("started", run, number, flush=True)
            bench.finished(ending(number), run=run)
            print("finished", run, number, flush=True)
        bench.end(run=run)
        print("ended", run, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
