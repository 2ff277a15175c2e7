"""The cost of store transactions: wall time on a shared machine, in milliseconds, the median of many.

``commit`` is a transaction that changes one row (an approval is used), ``ledger`` one with one entry of the ledger,
``ledger x 10`` one with ten. ``find`` looks up one of a million offers, each in its own transaction, and ``keep``
stores eight offers for a principal among as many. ``verify`` verifies a thousand entries.

A figure outside of its budget is marked; a slow machine does not fail the benchmark.
"""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from _postgres import postgres
from _table import print_table

from manglecp.base.digest import digest_bytes
from manglecp.store import ApprovalBinding, NewEntry, Store, StoredOffer, Transaction, open_store
from manglecp.store.database import Dialect, Synchronous

IDENTITIES: Final = 10_000
TOOLS: Final = 100
DOCUMENTS: Final = 1_000
"""The number of tool definitions; many principals have offers of the same definition."""

ALLOWED: Final = 0.2
"""The budget of a lookup among a million offers, in milliseconds."""

NOW: Final = 1_800_000_000_000
HOUR: Final = 3_600_000
CHAIN: Final = "sha256:" + "a" * 64
INPUTS: Final = b"intent and session facts " * 40

BODY: Final = {
    "witness": "jw1_" + "b" * 64,
    "turn": 2,
    "mutation": "sha256:" + "c" * 64,
    "calls": [{"call": "run/s1/1", "action": "AID.PLUGIN.CHARGE.v1", "input": "sha256:" + "e" * 64}],
}

# A million entries in one statement, in the order of their key.
FILL: Final[dict[Dialect, str]] = {
    "sqlite": """
        WITH RECURSIVE
            person(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM person WHERE i + 1 < ?),
            tool(t) AS (SELECT 0 UNION ALL SELECT t + 1 FROM tool WHERE t + 1 < ?),
            document(n, digest) AS MATERIALIZED
                (SELECT row_number() OVER (ORDER BY digest) - 1, digest FROM registry_document)
        INSERT INTO registry
        SELECT printf('user-%05d', i), printf('macro_%016x', i * 1000 + t), ?, digest,
            printf('inputs-%05d', i), NULL, ?, ?, ?
        FROM person CROSS JOIN tool JOIN document ON n = (i * 7 + t) % ?
    """,
    "postgresql": """
        INSERT INTO registry
        SELECT 'user-' || lpad(i::text, 5, '0'), 'macro_' || lpad(to_hex(i * 1000 + t), 16, '0'), ?, digest,
            'inputs-' || lpad(i::text, 5, '0'), NULL, ?, ?, ?
        FROM generate_series(0, ? - 1) AS i CROSS JOIN generate_series(0, ? - 1) AS t
        JOIN (SELECT row_number() OVER (ORDER BY digest) - 1 AS n, digest FROM registry_document) AS document
            ON n = (i * 7 + t) % ?
    """,
}


def fill(store: Store) -> int:
    """Insert a million entries, and return their number."""
    dialect = store.database.dialect
    contents = [f"definition {number} ".encode() * 90 for number in range(DOCUMENTS)]
    row = (CHAIN, NOW + HOUR, NOW, NOW + 2 * HOUR)
    put = "INSERT INTO registry_document (digest, check_ms, content) VALUES (?, ?, ?)"
    with store.write_transaction() as tx:
        tx.executemany(put, [(digest_bytes(content), NOW + HOUR, content) for content in contents])
        many = (IDENTITIES, TOOLS)
        tx.execute(FILL[dialect], (*many, *row, DOCUMENTS) if dialect == "sqlite" else (*row, *many, DOCUMENTS))
        tx.executemany(put, [(f"inputs-{person:05}", NOW + HOUR, INPUTS) for person in range(IDENTITIES)])
        return int(tx.execute("SELECT count(*) FROM registry").fetchone()[0])


class Transactions:
    """The measured operations, each in one transaction."""

    def __init__(self, store: Store, commits: int) -> None:
        self.store = store
        self.chance = random.Random(7)
        with store.write_transaction() as tx:
            self.approvals = iter([self.approved(tx, f"user-{number:05}") for number in range(commits)])

    def approved(self, tx: Transaction, identity: str) -> str:
        """Store an approval, and return its id."""
        call = ApprovalBinding(
            identity=identity, pack_digest=CHAIN, chain_digest=CHAIN, args_digest=CHAIN, subject_digest=""
        )
        approval, _ = self.store.approvals.request(
            tx, call, tool="bench", roles=(), four_eyes=False, text="Commit", now_ms=NOW, lifetime_ms=HOUR
        )
        assert self.store.approvals.decide(tx, approval.id, "approved", "bench", NOW)
        return approval.id

    def commit(self) -> None:
        with self.store.write_transaction() as tx:
            assert self.store.approvals.use(tx, next(self.approvals), "run", NOW)

    def append(self) -> None:
        with self.store.write_transaction() as tx:
            self.store.ledger.append(tx, "turn", BODY, run="run", identity="bench")

    def append_ten(self) -> None:
        with self.store.write_transaction() as tx:
            self.store.ledger.append_all(tx, [NewEntry("turn", BODY, "run", "bench")] * 10)

    def verify(self) -> None:
        with self.store.read_transaction() as tx:
            assert self.store.ledger.verify(tx).sound

    def find(self) -> None:
        person, tool = self.chance.randrange(IDENTITIES), self.chance.randrange(TOOLS)
        with self.store.read_transaction() as tx:
            found = self.store.registry.find(tx, f"user-{person:05}", f"macro_{person * 1000 + tool:016x}", NOW)
        assert found is not None

    def keep(self) -> None:
        person = self.chance.randrange(IDENTITIES)
        tools = [
            StoredOffer(
                macro_id=f"macro_{person * 1000 + tool:016x}",
                chain_digest=CHAIN,
                document=b"new %d " % tool * 150,
                inputs_digest=f"inputs-{person:05}",
                inputs=INPUTS,
                not_before_ms=None,
                expires_at_ms=NOW + HOUR,
            )
            for tool in range(8)
        ]
        with self.store.write_transaction() as tx:
            self.store.registry.register(tx, f"user-{person:05}", tools, now_ms=NOW)


def median(run: Callable[[], None], times: int) -> float:
    """Return the median in milliseconds."""
    took = []
    for _ in range(times):
        start = time.perf_counter()
        run()
        took.append(time.perf_counter() - start)
    return statistics.median(took) * 1_000


def measure(where: str | Path, synchronous: Synchronous, *, registry: bool) -> list[str]:
    store = open_store(where, synchronous=synchronous, patience=60)
    times = 1_000 if synchronous == "normal" else 150
    do = Transactions(store, commits=times)
    cells = [median(do.commit, times), median(do.append, times), median(do.append_ten, times // 10)]
    if registry:
        with store.read_transaction() as tx:
            missing = max(0, 1_000 - store.ledger.head(tx).seq)
        with store.write_transaction() as tx:
            store.ledger.append_all(tx, [NewEntry("turn", BODY)] * missing)
            entries = store.ledger.head(tx).seq
        cells.append(median(do.verify, 3) * 1_000 / entries)
        assert fill(store) == IDENTITIES * TOOLS
        median(do.find, 500)  # warm the cache
        cells += [median(do.find, 3_000), median(do.keep, 300)]
    store.close()
    return [f"{cell:.3f}" for cell in cells]


def main() -> None:
    header = ("ms (median)", "commit", "ledger", "ledger x 10", "verify", "find", "keep", "allowed", "")
    rows: list[tuple[str, ...]] = []
    with tempfile.TemporaryDirectory() as folder, postgres() as url:
        for name, where in (("SQLite", None), ("PostgreSQL", url)):
            for synchronous, registry in (("full", False), ("normal", True)):
                title = f"{name}, {synchronous}"
                if name == "PostgreSQL" and where is None:
                    rows.append((title, *["not installed"] * 6, "", ""))
                    continue
                place = where or Path(folder) / f"{synchronous}.sqlite3"
                cells = measure(place, synchronous, registry=registry)  # type: ignore[arg-type]
                if registry:
                    verdict = "" if float(cells[4]) <= ALLOWED else "MISSED"
                    rows.append((title, *cells, f"find {ALLOWED}", verdict))
                else:
                    rows.append((title, *cells, "", "", "", "", ""))
    print_table(header, rows)


if __name__ == "__main__":
    main()
