CREATE TABLE registry_document (
    digest   TEXT PRIMARY KEY,
    check_ms BIGINT NOT NULL,
    content  {blob} NOT NULL
) {strict};

CREATE INDEX registry_document_check ON registry_document (check_ms);

CREATE TABLE registry (
    identity      TEXT NOT NULL,
    macro_id      TEXT NOT NULL,
    chain_digest  TEXT NOT NULL,
    digest        TEXT NOT NULL, -- of the definition
    inputs        TEXT NOT NULL, -- digest of the inputs
    not_before_ms BIGINT,
    expires_at_ms BIGINT,
    kept_ms       BIGINT NOT NULL, -- time of the offer
    drop_ms       BIGINT NOT NULL, -- end of the retention
    PRIMARY KEY (identity, macro_id)
) {clustered};

CREATE TABLE registry_skill (
    digest TEXT NOT NULL REFERENCES registry_document (digest) ON DELETE CASCADE, -- of the definition
    skill  TEXT NOT NULL,
    PRIMARY KEY (digest, skill)
) {clustered};

CREATE INDEX registry_drop ON registry (drop_ms);

CREATE INDEX registry_of ON registry (digest);

CREATE INDEX registry_from ON registry (inputs);

CREATE INDEX registry_kept ON registry (kept_ms);
