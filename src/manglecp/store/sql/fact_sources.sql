CREATE TABLE fact_source (
    pack           TEXT NOT NULL, -- the name of the pack
    source         TEXT NOT NULL,
    version        BIGINT NOT NULL, -- 0: no facts have arrived yet
    digest         TEXT NOT NULL,
    facts          BIGINT NOT NULL,
    principal      TEXT NOT NULL,
    changed_ms     BIGINT NOT NULL, -- time of the version
    confirmed_ms   BIGINT NOT NULL, -- time at which these facts were last provided
    owner          TEXT, -- the process that polls the source
    lease_until_ms BIGINT NOT NULL,
    due_ms         BIGINT NOT NULL, -- time of the next poll
    failures       BIGINT NOT NULL, -- consecutive failed polls
    error          TEXT,
    PRIMARY KEY (pack, source)
) {clustered};

CREATE TABLE fact_source_content (
    pack    TEXT NOT NULL,
    source  TEXT NOT NULL,
    content {blob} NOT NULL,
    PRIMARY KEY (pack, source)
) {strict}
