"""The tables of the journal.

The unique index ``steps_once`` enforces at-most-once: a step is started again only if no attempt at it is under way,
done or skipped, and none that must not be repeated is in doubt. There are no other constraints: PostgreSQL prepares
them anew for every statement, which made a step a tenth slower.

A row of ``runs`` is written with every step and every heartbeat, so it is kept small: rarely changed columns are in
``run_values``, and no index has a column that a step or a heartbeat changes.
"""

from __future__ import annotations

from typing import Final

from manglecp.store.schema import ByDialect, Part

RUNS: Final = Part(
    "runs",
    (
        """
    CREATE TABLE runs (
        run_id          TEXT PRIMARY KEY,
        identity        TEXT NOT NULL,
        macro_id        TEXT NOT NULL,
        pack_digest     TEXT NOT NULL,
        request_key     TEXT,
        request_digest  TEXT NOT NULL,
        state           TEXT NOT NULL,
        code            TEXT,
        step            BIGINT,
        kind            TEXT,
        fence           BIGINT NOT NULL,
        owner           TEXT,
        claim_until_ms  BIGINT NOT NULL,
        takeovers       BIGINT NOT NULL,
        cancel          BIGINT NOT NULL,
        revision        BIGINT NOT NULL,
        created_ms      BIGINT NOT NULL,
        touched_ms      BIGINT NOT NULL,
        ended_ms        BIGINT,
        answer_until_ms BIGINT,
        slots           {blob},
        UNIQUE (identity, request_key)
    ) {strict}
    """,
        "CREATE INDEX runs_claimable ON runs (pack_digest) WHERE state = 'running'",
        "CREATE INDEX runs_by_state ON runs (state, created_ms)",
        "CREATE INDEX runs_created ON runs (created_ms)",
        "CREATE INDEX runs_ended ON runs (ended_ms) WHERE ended_ms IS NOT NULL",
        "CREATE INDEX runs_answered ON runs (answer_until_ms) WHERE answer_until_ms IS NOT NULL",
        """
    CREATE TABLE run_values (
        run_id          TEXT PRIMARY KEY,
        admission       {blob} NOT NULL,
        plan            {blob},
        args            {blob},
        answer          {blob}
    ) {strict}
    """,
        # No foreign key: rows are only written under a lock on their run, and PostgreSQL would lock it again for each.
        """
    CREATE TABLE steps (
        run_id          TEXT NOT NULL,
        kind            TEXT NOT NULL,
        number          BIGINT NOT NULL,
        attempt         BIGINT NOT NULL,
        seq             BIGINT NOT NULL,
        state           TEXT NOT NULL,
        call_id         TEXT,
        action          TEXT NOT NULL,
        tier            BIGINT NOT NULL,
        repeatable      BIGINT NOT NULL,
        input_digest    TEXT,
        output_digest   TEXT,
        code            TEXT,
        witness         TEXT,
        decided_by      TEXT,
        started_ms      BIGINT NOT NULL,
        ended_ms        BIGINT,
        input           {blob},
        output          {blob},
        note            {blob},
        PRIMARY KEY (run_id, kind, number, attempt)
    ) {strict}
    """,
        """
    CREATE UNIQUE INDEX steps_once ON steps (run_id, kind, number)
    WHERE state IN ('started', 'done', 'skipped') OR (state = 'unknown' AND repeatable = 0)
    """,
        # Free space for the next version of a row in its page; no compression of encrypted values.
        ByDialect(
            sqlite=(),
            postgresql=(
                "ALTER TABLE runs SET (fillfactor = 50), ALTER COLUMN slots SET STORAGE EXTERNAL",
                "ALTER TABLE run_values ALTER COLUMN plan SET STORAGE EXTERNAL, ALTER COLUMN args SET STORAGE EXTERNAL,"
                " ALTER COLUMN answer SET STORAGE EXTERNAL",
                "ALTER TABLE steps ALTER COLUMN input SET STORAGE EXTERNAL, ALTER COLUMN output SET STORAGE EXTERNAL,"
                " ALTER COLUMN note SET STORAGE EXTERNAL",
            ),
        ),
        # What a run leaves for a later one. It goes when the run is forgotten.
        """
    CREATE TABLE run_kept (
        run_id          TEXT NOT NULL,
        name            TEXT NOT NULL,
        value           {blob} NOT NULL,
        PRIMARY KEY (run_id, name)
    ) {strict}
    """,
        ByDialect(sqlite=(), postgresql=("ALTER TABLE run_kept ALTER COLUMN value SET STORAGE EXTERNAL",)),
    ),
)
