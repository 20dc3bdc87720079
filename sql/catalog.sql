-- The catalog: what the program knows, to be asked in SQL, years later too. It is private: it holds ground values.

CREATE SCHEMA IF NOT EXISTS sqlanon;

-- The format of these tables, for later versions to know.
CREATE TABLE IF NOT EXISTS sqlanon.catalog_format AS SELECT 1 AS format;

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

-- One row a published release.
CREATE TABLE IF NOT EXISTS sqlanon.releases (
    run_id VARCHAR NOT NULL,
    published_at TIMESTAMP NOT NULL,
    path VARCHAR NOT NULL,
    table_name VARCHAR NOT NULL,
    released_rows BIGINT NOT NULL,
    digest VARCHAR NOT NULL
);

-- Where the decoys of a run are: rows of nobody, with the columns of its release. Nothing in the release tells them.
-- The real rows are FROM release EXCEPT ALL FROM <table_name>.
CREATE TABLE IF NOT EXISTS sqlanon.decoys (
    run_id VARCHAR PRIMARY KEY,
    table_name VARCHAR NOT NULL,          -- in schema sqlanon
    rows BIGINT NOT NULL,
    made_at TIMESTAMP NOT NULL
);
