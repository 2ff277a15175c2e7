CREATE TABLE issue_event (
    seq      BIGINT PRIMARY KEY CHECK (seq > 0),
    issue_id TEXT NOT NULL,
    row_hash TEXT NOT NULL UNIQUE,
    row      TEXT NOT NULL
) {strict};

CREATE INDEX issue_event_of ON issue_event (issue_id, seq);

CREATE TABLE issue (
    id          TEXT PRIMARY KEY,
    title       TEXT NOT NULL,
    description TEXT NOT NULL,
    status      TEXT NOT NULL CHECK (status IN ('blocked', 'closed', 'in_progress', 'open')),
    priority    BIGINT NOT NULL CHECK (priority BETWEEN 0 AND 4),
    labels      TEXT NOT NULL,
    assignee    TEXT,
    notes       TEXT NOT NULL,
    created_at  TEXT NOT NULL,
    updated_at  TEXT NOT NULL,
    closed_at   TEXT CHECK ((closed_at IS NOT NULL) = (status = 'closed')),
    added_by    BIGINT NOT NULL UNIQUE REFERENCES issue_event (seq) DEFERRABLE INITIALLY DEFERRED,
    fence       BIGINT NOT NULL
) {strict};

CREATE INDEX issue_frontier ON issue (priority, added_by) WHERE status IN ('open', 'in_progress');

CREATE TABLE dependency (
    issue_id   TEXT NOT NULL REFERENCES issue (id),
    type       TEXT NOT NULL CHECK (type IN (
        'blocks', 'conditional-blocks', 'discovered-from', 'duplicates', 'parent-child', 'related', 'relates-to',
        'replies-to', 'supersedes', 'waits-for'
    )),
    depends_on TEXT NOT NULL REFERENCES issue (id) CHECK (depends_on <> issue_id),
    PRIMARY KEY (issue_id, type, depends_on)
) {clustered};

CREATE INDEX dependency_on ON dependency (depends_on);

CREATE TABLE lease (
    issue_id    TEXT PRIMARY KEY REFERENCES issue (id),
    owner       TEXT NOT NULL,
    fence       BIGINT NOT NULL,
    acquired_at TEXT NOT NULL,
    expires_at  TEXT NOT NULL,
    renewed_at  TEXT
) {strict};

CREATE TABLE mutation (
    witness_id      TEXT PRIMARY KEY,
    call_id         TEXT NOT NULL UNIQUE, -- a turn that is reported again has another witness and the same call
    seq             BIGINT NOT NULL UNIQUE REFERENCES issue_event (seq),
    issue_id        TEXT NOT NULL REFERENCES issue (id),
    mutation        TEXT NOT NULL,
    session_refs    TEXT NOT NULL,
    trajectory_refs TEXT NOT NULL,
    before          TEXT,
    after           TEXT NOT NULL
) {strict};
