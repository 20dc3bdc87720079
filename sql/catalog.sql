-- The catalog: what the program knows, to be asked in SQL, years later too. It is private: it holds ground values.

CREATE SCHEMA IF NOT EXISTS sqlanon;

-- The format of these tables, for later versions to know. 2: the ledger. 3: versions in one place.
-- 4: hashes of files, intents, noise by attribute, sources known by their content. 5: exports.
-- 6: drafts. 7: catalogs that were merged into this one.
CREATE TABLE IF NOT EXISTS sqlanon.catalog_format AS SELECT 7 AS format;

-- One row a run of `anonymize`.
CREATE TABLE IF NOT EXISTS sqlanon.runs (
    run_id VARCHAR PRIMARY KEY,
    started_at TIMESTAMP NOT NULL,
    policy VARCHAR NOT NULL,              -- JSON, not redacted
    policy_hash VARCHAR NOT NULL,
    strategy VARCHAR NOT NULL,
    measure VARCHAR NOT NULL,
    rows BIGINT NOT NULL,
    suppressed_rows BIGINT NOT NULL,
    classes BIGINT NOT NULL,
    score DOUBLE NOT NULL,
    optimal BOOLEAN NOT NULL,
    generalization VARCHAR NOT NULL,      -- JSON: level by attribute
    nodes HUGEINT NOT NULL,
    checked BIGINT NOT NULL,
    seconds DOUBLE NOT NULL,
    sqlanon_version VARCHAR NOT NULL
);

-- Where the hierarchy tables of a policy are: level_0 (ground value) to level_<height>, leaf to root.
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

-- Every generalization that a run looked at.
CREATE TABLE IF NOT EXISTS sqlanon.lattice (
    run_id VARCHAR NOT NULL,
    levels INTEGER[] NOT NULL,            -- one a quasi-identifier, as the policy orders them
    height INTEGER NOT NULL,
    bound DOUBLE,
    status VARCHAR NOT NULL,              -- satisfies | violates | open
    classes BIGINT,
    suppressed_rows BIGINT,
    score DOUBLE
);

-- One row a publication. What stands below `digest` is what later releases are held against.
CREATE TABLE IF NOT EXISTS sqlanon.releases (
    run_id VARCHAR NOT NULL,
    published_at TIMESTAMP NOT NULL,
    path VARCHAR NOT NULL,                -- where it is; the rows stay there
    table_name VARCHAR NOT NULL,
    released_rows BIGINT NOT NULL,
    digest VARCHAR NOT NULL
);
ALTER TABLE sqlanon.releases ADD COLUMN IF NOT EXISTS source VARCHAR;         -- JSON: of what it is a release
ALTER TABLE sqlanon.releases ADD COLUMN IF NOT EXISTS policy_hash VARCHAR;
ALTER TABLE sqlanon.releases ADD COLUMN IF NOT EXISTS manifest_hash VARCHAR;  -- of what it claims
ALTER TABLE sqlanon.releases ADD COLUMN IF NOT EXISTS epsilon DOUBLE;         -- of a record, with noise
ALTER TABLE sqlanon.releases ADD COLUMN IF NOT EXISTS after VARCHAR[];        -- run_ids of those it is safe with
ALTER TABLE sqlanon.releases ADD COLUMN IF NOT EXISTS breaks VARCHAR[];       -- paths of those it breaks, by --force
ALTER TABLE sqlanon.releases ADD COLUMN IF NOT EXISTS extends VARCHAR;        -- run_id of the one whose rows it has, too
ALTER TABLE sqlanon.releases ADD COLUMN IF NOT EXISTS replaced_at TIMESTAMP;  -- when another took its place
ALTER TABLE sqlanon.releases ADD COLUMN IF NOT EXISTS version INTEGER;        -- of those in one file
ALTER TABLE sqlanon.releases ADD COLUMN IF NOT EXISTS sha256 VARCHAR;         -- of the file, as it was published then
-- When a run was about to publish it. NULL as soon as it is known to be out; the row goes if it is known not to be.
ALTER TABLE sqlanon.releases ADD COLUMN IF NOT EXISTS intended_at TIMESTAMP;
ALTER TABLE sqlanon.releases ADD COLUMN IF NOT EXISTS noise VARCHAR;          -- JSON: epsilon by attribute
ALTER TABLE sqlanon.releases ADD COLUMN IF NOT EXISTS same_source VARCHAR;    -- the description of an earlier release's
                                                                              -- source whose rows its own has
ALTER TABLE sqlanon.releases ADD COLUMN IF NOT EXISTS draft BOOLEAN;          -- true: nothing is compared with it

-- Which rows of the source are in a release: hashes of their keys, with the secret.
CREATE TABLE IF NOT EXISTS sqlanon.released_keys (
    run_id VARCHAR NOT NULL,
    key_hash UUID NOT NULL
);

-- The hierarchies of what was published, as they were then: level_0 (ground value) to level_<height>.
CREATE TABLE IF NOT EXISTS sqlanon.released_hierarchies (
    run_id VARCHAR NOT NULL,
    attribute VARCHAR NOT NULL,
    height INTEGER NOT NULL,
    table_name VARCHAR NOT NULL           -- in schema sqlanon
);

-- Rows of the sources of releases, taken at random, each value as a hash with the secret: they show whether a later
-- source has these rows, whatever it is called. Who has this file has the secret, too, and can guess values.
CREATE TABLE IF NOT EXISTS sqlanon.source_samples (
    run_id VARCHAR NOT NULL,
    source_rows BIGINT NOT NULL,
    column_names VARCHAR[] NOT NULL,
    hashes UBIGINT[] NOT NULL             -- one a column
);

-- What keys are hashed with: one row, made when the first keys are kept. Who has a release and guesses keys learns
-- nothing without it.
CREATE TABLE IF NOT EXISTS sqlanon.secret (secret VARCHAR NOT NULL);

-- With what the keys and samples of some runs are hashed instead: runs of other catalogs, which were merged into this.
CREATE TABLE IF NOT EXISTS sqlanon.merged_secrets (
    run_id VARCHAR PRIMARY KEY,
    secret VARCHAR NOT NULL
);

-- Where the decoys of a run are: rows of nobody, with the columns of its release. Nothing in the release tells them.
-- The real rows are FROM release EXCEPT ALL FROM <table_name>.
CREATE TABLE IF NOT EXISTS sqlanon.decoys (
    run_id VARCHAR PRIMARY KEY,
    table_name VARCHAR NOT NULL,          -- in schema sqlanon
    rows BIGINT NOT NULL,
    made_at TIMESTAMP NOT NULL
);

-- One row an export for a warehouse: whether its statement was run there is not known here. Releases are not compared
-- with it; a warning counts the rows of this table. Delete those of tables that were never made, or that nobody has.
CREATE TABLE IF NOT EXISTS sqlanon.exports (
    run_id VARCHAR NOT NULL,
    exported_at TIMESTAMP NOT NULL,
    path VARCHAR NOT NULL,                -- the folder
    table_name VARCHAR NOT NULL,          -- what is made there
    dialect VARCHAR NOT NULL,
    source VARCHAR NOT NULL               -- JSON, as in releases
);
ALTER TABLE sqlanon.exports ADD COLUMN IF NOT EXISTS draft BOOLEAN;           -- true: no warning counts it

-- Publications with the figures of their runs. What is known of a record from all releases of a source that have noise
-- adds up, those that others have replaced among them, and drafts not: epsilon_so_far. A result that is published twice
-- shows the same noise, and counts once. The tables have no schema here: a view looks in its own schema, and in a file
-- called sqlanon.catalog.duckdb the name sqlanon is that of the database, too.
CREATE OR REPLACE VIEW sqlanon.ledger AS
SELECT
    r.run_id, r.published_at, r.path, r.table_name, r.source, coalesce(r.policy_hash, n.policy_hash) AS policy_hash,
    n.strategy, n.generalization, n.rows, r.released_rows, n.suppressed_rows, n.classes, n.measure, n.score, n.optimal,
    r.epsilon,
    system.main.sum(CASE WHEN r.times = 1 AND NOT coalesce(r.draft, false) THEN r.epsilon END)
        OVER (PARTITION BY coalesce(r.same_source, r.source) ORDER BY r.published_at) AS epsilon_so_far,
    r.after, r.breaks, r.extends, r.replaced_at, r.digest, r.version, r.sha256, r.intended_at, r.noise, r.same_source,
    coalesce(r.draft, false) AS draft
FROM (
    SELECT *, system.main.row_number() OVER (PARTITION BY run_id, coalesce(draft, false) ORDER BY published_at) AS times
    FROM releases
) AS r
LEFT JOIN runs AS n ON r.run_id = n.run_id;

-- Before format 5 samples had other hashes.
DELETE FROM sqlanon.source_samples WHERE (SELECT format FROM sqlanon.catalog_format LIMIT 1) < 5;
UPDATE sqlanon.catalog_format SET format = 7 WHERE format < 7;
