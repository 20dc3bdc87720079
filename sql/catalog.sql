-- The catalog: runs, hierarchies and releases, to query in SQL years later. It is private because it has ground values.

CREATE SCHEMA IF NOT EXISTS sqlanon;

-- The format of these tables. Catalogs of other formats are refused.
CREATE TABLE IF NOT EXISTS sqlanon.catalog_format AS SELECT 12 AS format;

-- One row per run of `anonymize`.
CREATE TABLE IF NOT EXISTS sqlanon.runs (
    run_id VARCHAR PRIMARY KEY,
    started_at TIMESTAMP NOT NULL,
    policy VARCHAR NOT NULL,              -- JSON, not redacted
    policy_hash VARCHAR NOT NULL,
    strategy VARCHAR NOT NULL,
    measure VARCHAR NOT NULL,
    rows BIGINT NOT NULL,
    suppressed_rows BIGINT NOT NULL,
    persons BIGINT,                       -- NULL where rows are counted
    suppressed_persons BIGINT,
    classes BIGINT NOT NULL,
    score DOUBLE NOT NULL,
    optimal BOOLEAN NOT NULL,
    generalization VARCHAR NOT NULL,      -- JSON: level by attribute
    nodes HUGEINT NOT NULL,
    checked BIGINT NOT NULL,
    seconds DOUBLE NOT NULL,
    sqlanon_version VARCHAR NOT NULL
);

-- The hierarchy tables of a policy: level_0 (ground value) to level_<height>, leaf to root.
CREATE TABLE IF NOT EXISTS sqlanon.hierarchies (
    policy_hash VARCHAR NOT NULL,
    attribute VARCHAR NOT NULL,
    rule VARCHAR NOT NULL,                -- JSON, as in the policy
    height INTEGER NOT NULL,
    leaves BIGINT NOT NULL,
    table_name VARCHAR NOT NULL,          -- in schema sqlanon
    made_at TIMESTAMP NOT NULL,
    PRIMARY KEY (policy_hash, attribute)
);

-- One row per generalization that a run checked.
CREATE TABLE IF NOT EXISTS sqlanon.lattice (
    run_id VARCHAR NOT NULL,
    levels INTEGER[] NOT NULL,            -- one per quasi-identifier, in the order of the policy
    height INTEGER NOT NULL,
    bound DOUBLE,
    status VARCHAR NOT NULL,              -- satisfies | violates | open
    classes BIGINT,
    suppressed_rows BIGINT,
    suppressed_persons BIGINT,            -- NULL where rows are counted
    score DOUBLE
);

-- One row per publication. Later releases are compared with these.
CREATE TABLE IF NOT EXISTS sqlanon.releases (
    run_id VARCHAR NOT NULL,
    published_at TIMESTAMP NOT NULL,
    path VARCHAR NOT NULL,                -- its location; only the release itself has the rows
    table_name VARCHAR NOT NULL,
    released_rows BIGINT NOT NULL,
    digest VARCHAR NOT NULL,
    source VARCHAR,                       -- JSON: the description of its source
    policy_hash VARCHAR,
    manifest_hash VARCHAR,                -- the hash of its manifest
    epsilon DOUBLE,                       -- per record, with noise
    after VARCHAR[],                      -- run_ids of the releases on which it is based
    breaks VARCHAR[],                     -- paths of the releases that it breaks (--force)
    extends VARCHAR,                      -- run_id of the release that it extends
    replaced_at TIMESTAMP,                -- when another release replaced it
    version INTEGER,                      -- its number among the versions in one file
    sha256 VARCHAR,                       -- of the published file; on a server, of the rows
    intended_at TIMESTAMP,                -- when a run began to publish it; NULL once it is published; if it is not
                                          -- published, the row is deleted
    noise VARCHAR,                        -- JSON: epsilon by attribute
    same_source VARCHAR,                  -- the description of an earlier source that has the same rows
    draft BOOLEAN NOT NULL DEFAULT false, -- true: not compared with other releases
    withdraws VARCHAR,                    -- run_id of the release that it replaced without rows that left the source
    only_rows_of VARCHAR,                 -- run_id of the release with all of its rows; NULL: any rows of the source
    linked BOOLEAN NOT NULL DEFAULT false -- true: one of several tables about the same persons, each with a row
);

-- The rows of the source in a release: hashes of their keys, made with the secret.
CREATE TABLE IF NOT EXISTS sqlanon.released_keys (
    run_id VARCHAR NOT NULL,
    key_hash UUID NOT NULL
);

-- The hierarchies of published releases when these were made: level_0 (ground value) to level_<height>.
CREATE TABLE IF NOT EXISTS sqlanon.released_hierarchies (
    run_id VARCHAR NOT NULL,
    attribute VARCHAR NOT NULL,
    height INTEGER NOT NULL,
    table_name VARCHAR NOT NULL           -- in schema sqlanon
);

-- Random rows of the sources of releases, each value as a hash made with the secret. They show whether a later source
-- has the same rows under another name. Readers of this file have the secret, and can test guesses of values.
CREATE TABLE IF NOT EXISTS sqlanon.source_samples (
    run_id VARCHAR NOT NULL,
    source_rows BIGINT NOT NULL,
    column_names VARCHAR[] NOT NULL,
    hashes UBIGINT[] NOT NULL             -- one per column
);

-- The people of the sources of releases, as hashes made with the secret, for each column that can number people: at
-- most 4,000 people, those with the smallest hashes. They show whether a later source has the same people.
CREATE TABLE IF NOT EXISTS sqlanon.source_people (
    run_id VARCHAR NOT NULL,
    column_name VARCHAR NOT NULL,         -- the column that numbers people
    is_person BOOLEAN NOT NULL,           -- true: the policy names it as source.person
    is_personal BOOLEAN NOT NULL,         -- true: it seems to number people, and nothing else
    people BIGINT NOT NULL,               -- the people of the source
    most_rows BIGINT NOT NULL,            -- the most rows of one person
    running DOUBLE,                       -- the share of numbers that have a neighbour; NULL for names
    column_names VARCHAR[] NOT NULL,      -- the other columns
    person UBIGINT NOT NULL,
    hashes UBIGINT[] NOT NULL             -- the least hash of the person's values, per other column
);

-- The people in a release, if its policy names persons: hashes made with the secret.
CREATE TABLE IF NOT EXISTS sqlanon.released_people (
    run_id VARCHAR NOT NULL,
    person UBIGINT NOT NULL
);

-- The ranges of the classes of releases with noise: how far a released value may be from the true one.
CREATE TABLE IF NOT EXISTS sqlanon.released_noise (
    run_id VARCHAR NOT NULL,
    attribute VARCHAR NOT NULL,           -- the column with noise
    labels VARCHAR[] NOT NULL,            -- the labels of its class, in the order of the release's columns
    low DOUBLE NOT NULL,                  -- the least true value of the class; for dates the days since 1970-01-01
    high DOUBLE NOT NULL,                 -- the greatest
    step DOUBLE                           -- released values are multiples of it; NULL: they have no noise
);

-- The secret with which keys and samples are hashed, in one row. Without it, readers of a release cannot test guesses
-- of keys.
CREATE TABLE IF NOT EXISTS sqlanon.secret (secret VARCHAR NOT NULL);

-- The tables of decoys: invented rows with the columns of the run's release, which does not mark them. The real rows
-- are FROM release EXCEPT ALL FROM <table_name>.
CREATE TABLE IF NOT EXISTS sqlanon.decoys (
    run_id VARCHAR PRIMARY KEY,
    table_name VARCHAR NOT NULL,          -- in schema sqlanon
    rows BIGINT NOT NULL,
    made_at TIMESTAMP NOT NULL
);

-- One row per export for a warehouse, whether or not its statement was run there. Releases are not compared with
-- exports; a warning counts the rows of this table. Delete the rows of exports that were never run or handed out.
CREATE TABLE IF NOT EXISTS sqlanon.exports (
    run_id VARCHAR NOT NULL,
    exported_at TIMESTAMP NOT NULL,
    path VARCHAR NOT NULL,                -- the folder
    table_name VARCHAR NOT NULL,          -- the table that it makes in the warehouse
    dialect VARCHAR NOT NULL,
    source VARCHAR NOT NULL,              -- JSON, as in releases
    draft BOOLEAN NOT NULL DEFAULT false  -- true: not counted by warnings
);

-- Publications with the figures of their runs. epsilon_so_far adds up the noise of all releases of a source, including
-- replaced ones, but without drafts. A result that is published twice has the same noise, and counts once. The tables
-- have no schema, because the database of a file sqlanon.catalog.duckdb is called sqlanon as well.
CREATE OR REPLACE VIEW sqlanon.ledger AS
SELECT
    r.run_id, r.published_at, r.path, r.table_name, r.source, coalesce(r.policy_hash, n.policy_hash) AS policy_hash,
    n.strategy, n.generalization, n.rows, r.released_rows, n.suppressed_rows, n.classes, n.measure, n.score, n.optimal,
    r.epsilon,
    system.main.sum(CASE WHEN r.times = 1 AND NOT r.draft THEN r.epsilon END)
        OVER (PARTITION BY coalesce(r.same_source, r.source) ORDER BY r.published_at) AS epsilon_so_far,
    r.after, r.breaks, r.extends, r.replaced_at, r.digest, r.version, r.sha256, r.intended_at, r.noise, r.same_source,
    r.draft, r.withdraws
FROM (
    SELECT *, system.main.row_number() OVER (PARTITION BY run_id, draft ORDER BY published_at) AS times
    FROM releases
) AS r
LEFT JOIN runs AS n ON r.run_id = n.run_id;
