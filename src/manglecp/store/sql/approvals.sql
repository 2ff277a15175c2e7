CREATE TABLE approval (
    id             TEXT PRIMARY KEY,
    identity       TEXT NOT NULL,
    pack_digest    TEXT NOT NULL,
    tool           TEXT NOT NULL,
    chain_digest   TEXT NOT NULL,
    args_digest    TEXT NOT NULL,
    subject_digest TEXT NOT NULL,
    server_digest  TEXT NOT NULL,
    roles          TEXT NOT NULL,
    four_eyes      BIGINT NOT NULL,
    created_ms     BIGINT NOT NULL,
    expires_ms     BIGINT NOT NULL,
    state          TEXT NOT NULL,
    approver       TEXT,
    approver_credential TEXT NOT NULL,
    decided_ms     BIGINT,
    run            TEXT,
    content        {blob} NOT NULL
) {strict};

CREATE INDEX approval_expiry ON approval (expires_ms);

CREATE INDEX approval_pending ON approval (identity, state);
