-- A file of issue memory as the first version wrote it, with five events in it.
PRAGMA application_id = 1835231603;
PRAGMA user_version = 1;
BEGIN TRANSACTION;
CREATE TABLE dependency (
        issue_id   TEXT NOT NULL REFERENCES issue (id),
        type       TEXT NOT NULL CHECK (type IN ('blocks', 'conditional-blocks', 'discovered-from', 'duplicates', 'parent-child', 'related', 'relates-to', 'replies-to', 'supersedes', 'waits-for')),
        depends_on TEXT NOT NULL REFERENCES issue (id) CHECK (depends_on <> issue_id),
        PRIMARY KEY (issue_id, type, depends_on)
    ) STRICT, WITHOUT ROWID
    ;
INSERT INTO "dependency" VALUES('a','blocks','b');
CREATE TABLE issue (
        id          TEXT PRIMARY KEY,
        title       TEXT NOT NULL,
        description TEXT NOT NULL,
        status      TEXT NOT NULL CHECK (status IN ('blocked', 'closed', 'in_progress', 'open')),
        priority    INTEGER NOT NULL CHECK (priority BETWEEN 0 AND 4),
        labels      TEXT NOT NULL,
        assignee    TEXT,
        notes       TEXT NOT NULL,
        created_at  TEXT NOT NULL,
        updated_at  TEXT NOT NULL,
        closed_at   TEXT CHECK ((closed_at IS NOT NULL) = (status = 'closed')),
        born        INTEGER NOT NULL UNIQUE REFERENCES issue_event (seq) DEFERRABLE INITIALLY DEFERRED,
        fence       INTEGER NOT NULL
    ) STRICT
    ;
INSERT INTO "issue" VALUES('a','do a','','in_progress',2,'[]','w1','','2026-01-31T12:00:00.000Z','2026-01-31T12:00:00.000Z',NULL,1,1);
INSERT INTO "issue" VALUES('b','do b','','closed',2,'[]',NULL,'','2026-01-31T12:00:00.000Z','2026-01-31T12:00:00.000Z','2026-01-31T12:00:00.000Z',2,0);
CREATE TABLE issue_event (
        seq      INTEGER PRIMARY KEY CHECK (seq > 0),
        issue_id TEXT NOT NULL,
        row_hash TEXT NOT NULL UNIQUE,
        row      TEXT NOT NULL
    ) STRICT
    ;
INSERT INTO "issue_event" VALUES(1,'a','sha256:7a37e4fa9b382c2c39d94406f491b9b4ac9848c7612ed1334c4e5008a7d09907','{"actor":"kim","at":"2026-01-31T12:00:00.000Z","change":{"title":"do a","type":"issue.add"},"issue":"a","mutation":null,"prev_hash":"sha256:0000000000000000000000000000000000000000000000000000000000000000","row_hash":"sha256:7a37e4fa9b382c2c39d94406f491b9b4ac9848c7612ed1334c4e5008a7d09907","schema":"manglecp.issue_event.v1","seq":1}');
INSERT INTO "issue_event" VALUES(2,'b','sha256:b1b29f8ea653491f7e0de1167097012cc1984454fa7fdbeeb44a7db32a7826b3','{"actor":"kim","at":"2026-01-31T12:00:00.000Z","change":{"title":"do b","type":"issue.add"},"issue":"b","mutation":null,"prev_hash":"sha256:7a37e4fa9b382c2c39d94406f491b9b4ac9848c7612ed1334c4e5008a7d09907","row_hash":"sha256:b1b29f8ea653491f7e0de1167097012cc1984454fa7fdbeeb44a7db32a7826b3","schema":"manglecp.issue_event.v1","seq":2}');
INSERT INTO "issue_event" VALUES(3,'a','sha256:0a71dcef45b14ee35082bac329aeca175f340818d91425335975322abea9c39a','{"actor":"kim","at":"2026-01-31T12:00:00.000Z","change":{"depends_on":"b","edge":"blocks","type":"dep.add"},"issue":"a","mutation":{"after":"sha256:1455fc92432cccf0dd129dafa415670040e7ae21f38b9bdbcc11485298ef5ab6","before":"sha256:b91ea3f395e67e318383c45e2d5fb26aa37f27c381ab45701c243ca45fe18cde","intent":{"action":"dep.add","capabilityClaims":["capabilities.change_morphisms","capabilities.change_morphisms.dep_add"],"inputRefs":["dependency://a/blocks/b"],"instructionRef":"instructions/tidy-up.json","kind":"dependency"},"session_refs":["session://orchard/12"],"trajectory_refs":[],"witness_id":"jw1_fedc52caf1a0cd4ab1198a6a0ef5df500082f339013bb01a346353579c2eeb15"},"prev_hash":"sha256:b1b29f8ea653491f7e0de1167097012cc1984454fa7fdbeeb44a7db32a7826b3","row_hash":"sha256:0a71dcef45b14ee35082bac329aeca175f340818d91425335975322abea9c39a","schema":"manglecp.issue_event.v1","seq":3}');
INSERT INTO "issue_event" VALUES(4,'b','sha256:c2fb146de5e3d03181f9f1ef0ae624d6c0d8407088de947eb01ae654ad19d7a7','{"actor":"kim","at":"2026-01-31T12:00:00.000Z","change":{"type":"issue.close"},"issue":"b","mutation":{"after":"sha256:417b0707f24c02f9f4e7bd539be183dcd8f3f45fe66a9012c89c7072b396337a","before":"sha256:2579adf4af319e18c719e98abd0ca89ff3ea228e4c78428c4968c13f2f9e8d58","intent":{"action":"issue.close","capabilityClaims":["capabilities.change_morphisms","capabilities.change_morphisms.issue_close"],"inputRefs":["issue://b"],"instructionRef":"instructions/tidy-up.json","kind":"issue"},"session_refs":["session://orchard/12"],"trajectory_refs":[],"witness_id":"jw1_27aee0025328e9673858d94db27e4541f1bdcd16814a2f6f64d3a7414ed63ea5"},"prev_hash":"sha256:0a71dcef45b14ee35082bac329aeca175f340818d91425335975322abea9c39a","row_hash":"sha256:c2fb146de5e3d03181f9f1ef0ae624d6c0d8407088de947eb01ae654ad19d7a7","schema":"manglecp.issue_event.v1","seq":4}');
INSERT INTO "issue_event" VALUES(5,'a','sha256:bb9318ebe4b5d8dd07d1a4fde0d3c0e3819a9c24435ba10556084bed1d09fed0','{"actor":"w1","at":"2026-01-31T12:00:00.000Z","change":{"ttl":3600,"type":"issue.claim"},"issue":"a","mutation":null,"prev_hash":"sha256:c2fb146de5e3d03181f9f1ef0ae624d6c0d8407088de947eb01ae654ad19d7a7","row_hash":"sha256:bb9318ebe4b5d8dd07d1a4fde0d3c0e3819a9c24435ba10556084bed1d09fed0","schema":"manglecp.issue_event.v1","seq":5}');
CREATE TABLE lease (
        issue_id    TEXT PRIMARY KEY REFERENCES issue (id),
        owner       TEXT NOT NULL,
        fence       INTEGER NOT NULL,
        acquired_at TEXT NOT NULL,
        expires_at  TEXT NOT NULL,
        renewed_at  TEXT
    ) STRICT
    ;
INSERT INTO "lease" VALUES('a','w1',1,'2026-01-31T12:00:00.000Z','2026-01-31T13:00:00.000Z',NULL);
CREATE TABLE mutation (
        witness_id      TEXT PRIMARY KEY,
        seq             INTEGER NOT NULL UNIQUE REFERENCES issue_event (seq),
        issue_id        TEXT NOT NULL REFERENCES issue (id),
        intent          TEXT NOT NULL,
        session_refs    TEXT NOT NULL,
        trajectory_refs TEXT NOT NULL,
        before          TEXT,
        after           TEXT NOT NULL
    ) STRICT
    ;
INSERT INTO "mutation" VALUES('jw1_fedc52caf1a0cd4ab1198a6a0ef5df500082f339013bb01a346353579c2eeb15',3,'a','{"action":"dep.add","capabilityClaims":["capabilities.change_morphisms","capabilities.change_morphisms.dep_add"],"inputRefs":["dependency://a/blocks/b"],"instructionRef":"instructions/tidy-up.json","kind":"dependency"}','["session://orchard/12"]','[]','sha256:b91ea3f395e67e318383c45e2d5fb26aa37f27c381ab45701c243ca45fe18cde','sha256:1455fc92432cccf0dd129dafa415670040e7ae21f38b9bdbcc11485298ef5ab6');
INSERT INTO "mutation" VALUES('jw1_27aee0025328e9673858d94db27e4541f1bdcd16814a2f6f64d3a7414ed63ea5',4,'b','{"action":"issue.close","capabilityClaims":["capabilities.change_morphisms","capabilities.change_morphisms.issue_close"],"inputRefs":["issue://b"],"instructionRef":"instructions/tidy-up.json","kind":"issue"}','["session://orchard/12"]','[]','sha256:2579adf4af319e18c719e98abd0ca89ff3ea228e4c78428c4968c13f2f9e8d58','sha256:417b0707f24c02f9f4e7bd539be183dcd8f3f45fe66a9012c89c7072b396337a');
CREATE INDEX issue_event_of ON issue_event (issue_id, seq);
CREATE TRIGGER issue_event_stays BEFORE UPDATE ON issue_event
    BEGIN SELECT RAISE (ABORT, 'events are not changed'); END;
CREATE TRIGGER issue_event_is_kept BEFORE DELETE ON issue_event
    BEGIN SELECT RAISE (ABORT, 'events are not deleted'); END;
CREATE INDEX issue_frontier ON issue (priority, born) WHERE status IN ('open', 'in_progress');
CREATE INDEX dependency_on ON dependency (depends_on);
COMMIT;
