-- The catalog: what the program knows, to be asked in SQL, years later too. It is private: it holds ground values.

CREATE SCHEMA IF NOT EXISTS sqlanon;

-- The format of these tables, for later versions to know. 2: the ledger. 3: versions in one place.
CREATE TABLE IF NOT EXISTS sqlanon.catalog_format AS SELECT 3 AS format;
UPDATE sqlanon.catalog_format SET format = 3 WHERE format < 3;

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

-- What keys are hashed with: one row, made when the first keys are kept. Who has a release and guesses keys learns
-- nothing without it.
CREATE TABLE IF NOT EXISTS sqlanon.secret (secret VARCHAR NOT NULL);

-- Where the decoys of a run are: rows of nobody, with the columns of its release. Nothing in the release tells them.
-- The real rows are FROM release EXCEPT ALL FROM <table_name>.
CREATE TABLE IF NOT EXISTS sqlanon.decoys (
    run_id VARCHAR PRIMARY KEY,
    table_name VARCHAR NOT NULL,          -- in schema sqlanon
    rows BIGINT NOT NULL,
    made_at TIMESTAMP NOT NULL
);

-- Publications with the figures of their runs. What is known of a record from all releases of a source that have noise
-- adds up: epsilon_so_far.
CREATE OR REPLACE VIEW sqlanon.ledger AS
SELECT
    r.run_id, r.published_at, r.path, r.table_name, r.source, coalesce(r.policy_hash, n.policy_hash) AS policy_hash,
    n.strategy, n.generalization, n.rows, r.released_rows, n.suppressed_rows, n.classes, n.measure, n.score, n.optimal,
    r.epsilon, sum(r.epsilon) OVER (PARTITION BY r.source ORDER BY r.published_at) AS epsilon_so_far,
    r.after, r.breaks, r.extends, r.replaced_at, r.digest, r.version
FROM sqlanon.releases AS r LEFT JOIN sqlanon.runs AS n ON r.run_id = n.run_id;
