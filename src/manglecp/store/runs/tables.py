"""The two tables of the journal.

What must never happen is forbidden here, whatever the code above does:

* ``steps_once``: a step is started again only if no attempt at it is under way, done or skipped, and none that must not
  be repeated is in doubt. So no effect is sent twice unless its action is idempotent.
* a run that is over holds no values.

Bytes stand last: SQLite reads the small columns without following a long value.
"""

from __future__ import annotations

from typing import Final

from manglecp.store.migrations import Part

__all__ = ["RUNS"]

_V1: Final = (
    """
    CREATE TABLE runs (
        run_id          TEXT PRIMARY KEY,
        identity        TEXT NOT NULL,
        macro_id        TEXT NOT NULL,
        pack_digest     TEXT NOT NULL,
        request_key     TEXT,
        request_digest  TEXT NOT NULL,
        state           TEXT NOT NULL
                        CHECK (state IN ('running', 'needs_decision', 'succeeded', 'failed', 'cancelled')),
        code            TEXT,
        step            BIGINT,
        kind            TEXT CHECK (kind IN ('do', 'undo')),
        fence           BIGINT NOT NULL,
        owner           TEXT,
        claim_until_ms  BIGINT NOT NULL,
        takeovers       BIGINT NOT NULL,
        cancel          BIGINT NOT NULL CHECK (cancel IN (0, 1)),
        revision        BIGINT NOT NULL,
        created_ms      BIGINT NOT NULL,
        touched_ms      BIGINT NOT NULL,
        ended_ms        BIGINT CHECK ((ended_ms IS NULL) = (state IN ('running', 'needs_decision'))),
        answer_until_ms BIGINT,
        admission       {blob} NOT NULL,
        plan            {blob} CHECK (plan IS NULL OR ended_ms IS NULL),
        args            {blob} CHECK (args IS NULL OR ended_ms IS NULL),
        slots           {blob} CHECK (slots IS NULL OR ended_ms IS NULL),
        answer          {blob},
        UNIQUE (identity, request_key)
    ) {strict}
    """,
    "CREATE INDEX runs_claimable ON runs (pack_digest, claim_until_ms) WHERE state = 'running'",
    "CREATE INDEX runs_by_state ON runs (state, created_ms)",
    "CREATE INDEX runs_created ON runs (created_ms)",
    "CREATE INDEX runs_ended ON runs (ended_ms) WHERE ended_ms IS NOT NULL",
    "CREATE INDEX runs_answered ON runs (answer_until_ms) WHERE answer_until_ms IS NOT NULL",
    # No foreign key: rows are only written under a lock on their run, and PostgreSQL would lock it once more for each.
    """
    CREATE TABLE steps (
        run_id          TEXT NOT NULL,
        kind            TEXT NOT NULL CHECK (kind IN ('do', 'undo')),
        number          BIGINT NOT NULL,
        attempt         BIGINT NOT NULL CHECK (attempt > 0),
        seq             BIGINT NOT NULL,
        state           TEXT NOT NULL CHECK (state IN ('started', 'done', 'failed', 'skipped', 'unknown')),
        call_id         TEXT,
        action          TEXT NOT NULL,
        tier            BIGINT NOT NULL,
        repeatable      BIGINT NOT NULL CHECK (repeatable IN (0, 1)),
        input_digest    TEXT,
        output_digest   TEXT,
        code            TEXT,
        witness         TEXT,
        decided_by      TEXT,
        started_ms      BIGINT NOT NULL,
        ended_ms        BIGINT CHECK ((ended_ms IS NULL) = (state = 'started')),
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
)

RUNS: Final = Part("runs", (_V1,))
