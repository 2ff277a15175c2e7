-- A row of runs is written with every step and every heartbeat, so it is kept small: large columns that seldom change
-- are in run_values, and no index has a column that a step or a heartbeat changes. There are no CHECK constraints,
-- because PostgreSQL prepares them anew for every statement, which made a step a tenth slower.
CREATE TABLE runs (
    run_id          TEXT PRIMARY KEY,
    identity        TEXT NOT NULL,
    macro_id        TEXT NOT NULL,
    pack_digest     TEXT NOT NULL,
    request_key     TEXT,
    request_digest  TEXT NOT NULL,
    state           TEXT NOT NULL,
    code            TEXT,
    step            BIGINT, -- the number of the step that needs a decision
    kind            TEXT,   -- of this step: do or undo
    fence           BIGINT NOT NULL,
    owner           TEXT,
    claim_until_ms  BIGINT NOT NULL,
    takeovers       BIGINT NOT NULL,
    cancel          BIGINT NOT NULL, -- 1: the owner should stop
    revision        BIGINT NOT NULL,
    created_ms      BIGINT NOT NULL,
    touched_ms      BIGINT NOT NULL,
    ended_ms        BIGINT,
    answer_until_ms BIGINT, -- end of the retention of the answer
    slots           {blob},
    UNIQUE (identity, request_key)
) {strict};

CREATE INDEX runs_claimable ON runs (pack_digest) WHERE state = 'running';

CREATE INDEX runs_by_state ON runs (state, created_ms);

CREATE INDEX runs_created ON runs (created_ms);

CREATE INDEX runs_ended ON runs (ended_ms) WHERE ended_ms IS NOT NULL;

CREATE INDEX runs_answered ON runs (answer_until_ms) WHERE answer_until_ms IS NOT NULL;

CREATE TABLE run_values (
    run_id          TEXT PRIMARY KEY,
    admission       {blob} NOT NULL,
    plan            {blob},
    args            {blob},
    answer          {blob}
) {strict};

-- No foreign key: rows are only written under a lock on their run, and PostgreSQL would lock it again for each.
CREATE TABLE steps (
    run_id          TEXT NOT NULL,
    kind            TEXT NOT NULL,
    number          BIGINT NOT NULL,
    attempt         BIGINT NOT NULL,
    seq             BIGINT NOT NULL, -- order of the records of a run
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
) {strict};

-- Enforces at-most-once: a step is started again only if no attempt at it is under way, done or skipped, and no attempt
-- that must not be repeated has an unknown outcome.
CREATE UNIQUE INDEX steps_once ON steps (run_id, kind, number)
WHERE state IN ('started', 'done', 'skipped') OR (state = 'unknown' AND repeatable = 0);

-- only postgresql: fillfactor leaves space in a page for the next version of a row
ALTER TABLE runs SET (fillfactor = 50),
    ALTER COLUMN slots SET STORAGE EXTERNAL;

-- only postgresql: EXTERNAL does not compress, because values are encrypted
ALTER TABLE run_values
    ALTER COLUMN plan SET STORAGE EXTERNAL,
    ALTER COLUMN args SET STORAGE EXTERNAL,
    ALTER COLUMN answer SET STORAGE EXTERNAL;

-- only postgresql
ALTER TABLE steps
    ALTER COLUMN input SET STORAGE EXTERNAL,
    ALTER COLUMN output SET STORAGE EXTERNAL,
    ALTER COLUMN note SET STORAGE EXTERNAL;

-- Values that later runs of the same identity may read. They are deleted with the run.
CREATE TABLE run_kept (
    run_id          TEXT NOT NULL,
    name            TEXT NOT NULL,
    value           {blob} NOT NULL,
    PRIMARY KEY (run_id, name)
) {strict};

-- only postgresql
ALTER TABLE run_kept ALTER COLUMN value SET STORAGE EXTERNAL;

-- Why calls failed, also those of runs without effects, which have no row in runs.
CREATE TABLE run_failures (
    run_id          TEXT PRIMARY KEY,
    failed_ms       BIGINT NOT NULL,
    failures        {blob} NOT NULL
) {strict};

CREATE INDEX run_failures_by_time ON run_failures (failed_ms);
