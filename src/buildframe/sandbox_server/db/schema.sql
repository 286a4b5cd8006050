-- Timestamps are integers, in microseconds since 1970, unless noted otherwise.
CREATE TABLE world (what TEXT PRIMARY KEY, value BLOB NOT NULL);
CREATE TABLE counters (what TEXT PRIMARY KEY, last INTEGER NOT NULL);
CREATE TABLE pipelines (
    key TEXT PRIMARY KEY, organization TEXT NOT NULL, slug TEXT NOT NULL, name TEXT NOT NULL, position INTEGER NOT NULL,
    record BLOB NOT NULL, UNIQUE (organization, slug), UNIQUE (organization, name)
);
CREATE TABLE plans (key TEXT PRIMARY KEY, steps BLOB NOT NULL);
CREATE TABLE tokens (hash TEXT PRIMARY KEY, access BLOB NOT NULL);
CREATE TABLE events (at INTEGER NOT NULL, seq INTEGER NOT NULL, kind TEXT NOT NULL, about TEXT NOT NULL);
-- A build has its state for the simulator (run), its JSON for responses (body), and the columns that filters use.
CREATE TABLE builds (
    seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, organization TEXT NOT NULL, pipeline_key TEXT NOT NULL,
    number INTEGER NOT NULL, state TEXT NOT NULL, blocked INTEGER NOT NULL, branch TEXT NOT NULL,
    sha TEXT NOT NULL, creator TEXT, created INTEGER NOT NULL, finished INTEGER, over INTEGER NOT NULL,
    run BLOB NOT NULL, body BLOB NOT NULL
);
CREATE UNIQUE INDEX builds_by_number ON builds (pipeline_key, number);
CREATE INDEX builds_by_creation ON builds (organization, created, seq);
CREATE INDEX builds_of_pipeline_by_creation ON builds (pipeline_key, created, seq);
CREATE INDEX active_builds ON builds (seq) WHERE over = 0;
CREATE TABLE meta_data (
    build INTEGER NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (build, key)
) WITHOUT ROWID;
-- `agent` is a name.
CREATE TABLE jobs (
    build INTEGER NOT NULL, position INTEGER NOT NULL, pipeline_key TEXT NOT NULL, state TEXT NOT NULL,
    retried INTEGER NOT NULL, active INTEGER NOT NULL, agent TEXT, PRIMARY KEY (build, position)
) WITHOUT ROWID;
CREATE INDEX active_jobs ON jobs (pipeline_key, state) WHERE active = 1;
-- The JSON of a build's jobs, as a MessagePack list by position. It is made when it is first read after a change.
CREATE TABLE job_bodies (build INTEGER PRIMARY KEY, bodies BLOB NOT NULL);
CREATE TRIGGER build_gone AFTER DELETE ON builds
    BEGIN
        DELETE FROM jobs WHERE build = old.seq;
        DELETE FROM job_bodies WHERE build = old.seq;
        DELETE FROM meta_data WHERE build = old.seq;
    END;
CREATE TABLE teams (
    id TEXT PRIMARY KEY, organization TEXT NOT NULL, name TEXT NOT NULL, description TEXT NOT NULL,
    created INTEGER NOT NULL
);
CREATE TABLE team_pipelines (
    id TEXT PRIMARY KEY, team TEXT NOT NULL, pipeline TEXT NOT NULL, level TEXT NOT NULL, created INTEGER NOT NULL,
    UNIQUE (team, pipeline)
);
CREATE TRIGGER pipeline_gone AFTER DELETE ON pipelines
    BEGIN DELETE FROM team_pipelines WHERE pipeline = old.key; END;

-- Tokens of hooks are stored in clear text, because deliveries contain them. A delivery is pending while it has a body.
-- `due` and `delivered` are seconds of real time since 1970.
CREATE TABLE hooks (
    id TEXT PRIMARY KEY, organization TEXT NOT NULL, url TEXT NOT NULL, token TEXT NOT NULL, signed INTEGER NOT NULL,
    events TEXT NOT NULL
);
CREATE TABLE deliveries (
    seq INTEGER PRIMARY KEY, id TEXT NOT NULL, hook TEXT NOT NULL, url TEXT NOT NULL, event TEXT NOT NULL,
    at INTEGER NOT NULL, body BLOB, due REAL NOT NULL, attempts INTEGER NOT NULL, status INTEGER, failure TEXT,
    delivered REAL
);
CREATE INDEX pending_deliveries ON deliveries (hook, seq) WHERE body IS NOT NULL;
CREATE INDEX settled_deliveries ON deliveries (hook, seq) WHERE body IS NULL;
