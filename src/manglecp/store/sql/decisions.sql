CREATE TABLE decision (
    entry       BIGINT NOT NULL, -- number of the ledger entry of the batch
    position    BIGINT NOT NULL, -- in the batch
    id          TEXT NOT NULL UNIQUE,
    at_ms       BIGINT NOT NULL,
    operation   TEXT NOT NULL,
    principal   TEXT NOT NULL,
    tool        TEXT NOT NULL,
    verdict     TEXT NOT NULL,
    run         TEXT,
    revision    TEXT NOT NULL,
    args_digest TEXT NOT NULL,
    content     {blob} NOT NULL,
    PRIMARY KEY (entry, position)
) {clustered};

CREATE INDEX decision_of_run ON decision (run) WHERE run IS NOT NULL;
