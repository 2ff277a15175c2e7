CREATE TABLE session_event (
    stream   TEXT NOT NULL REFERENCES issue (id),
    seq      BIGINT NOT NULL CHECK (seq > 0),
    kind     TEXT NOT NULL,
    row_hash TEXT NOT NULL UNIQUE,
    row      TEXT NOT NULL,
    PRIMARY KEY (stream, seq)
) {strict};
