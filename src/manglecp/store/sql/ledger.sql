CREATE TABLE ledger (
    seq       BIGINT PRIMARY KEY CHECK (seq > 0),
    at_ms     BIGINT NOT NULL,
    kind      TEXT NOT NULL,
    run       TEXT,
    identity  TEXT,
    body      TEXT NOT NULL,
    prev_hash TEXT NOT NULL,
    row_hash  TEXT NOT NULL
) {strict};

CREATE INDEX ledger_of_run ON ledger (run, seq) WHERE run IS NOT NULL;

CREATE TABLE ledger_head (
    one      BIGINT PRIMARY KEY CHECK (one = 1), -- the only row
    seq      BIGINT NOT NULL,
    row_hash TEXT NOT NULL
) {strict};

INSERT INTO ledger_head VALUES (1, 0, 'sha256:0000000000000000000000000000000000000000000000000000000000000000');
