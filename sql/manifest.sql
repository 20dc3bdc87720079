-- The manifest of a release: its claims, which `verify` compares with its rows. It has no private values, and one row for
-- each version in the file.

CREATE TABLE sqlanon.manifest (
    table_name VARCHAR NOT NULL,
    format INTEGER NOT NULL,              -- of this manifest
    published_at TIMESTAMP NOT NULL,      -- UTC
    sqlanon_version VARCHAR NOT NULL,
    engine VARCHAR NOT NULL,
    policy VARCHAR NOT NULL,              -- JSON: roles, kinds of rules, parameters; draft: true of a draft
    policy_hash VARCHAR NOT NULL,
    columns VARCHAR NOT NULL,             -- JSON: [{"name": ..., "type": ..., "role": ...}]
    generalization VARCHAR NOT NULL,      -- JSON: level by quasi-identifier, null where there are several
    rows BIGINT NOT NULL,                 -- of the source
    released_rows BIGINT NOT NULL,
    suppressed_rows BIGINT NOT NULL,
    classes BIGINT NOT NULL,
    smallest_class BIGINT NOT NULL,
    measure VARCHAR NOT NULL,
    score DOUBLE,                         -- NULL where it does not follow from what is released
    optimal BOOLEAN NOT NULL,
    guarantee VARCHAR NOT NULL,           -- quasi-identifiers: all together; combinations: some at a time
    epsilon DOUBLE,                       -- with noise: of a record, for all its attributes with noise together
    noise VARCHAR,                        -- JSON: {attribute: {"epsilon": ...}}, with bounds and round if asked for
    linking_risk DOUBLE,                  -- NULL; of older releases, the share of records whose own original is nearest
    confidence VARCHAR,                   -- JSON: {"beta": ...}
    decoys BIGINT,                        -- where asked for: so many of the released rows are of nobody
    decoy_classes BIGINT,                 -- NULL; of older releases, how many classes they fill
    smallest_class_without_decoys BIGINT, -- NULL; of older releases, what k is without them
    heights VARCHAR,                      -- JSON: height of the hierarchy by quasi-identifier, where readers can know it
    version INTEGER,                      -- the rows are in <table_name>_v<version>; the view <table_name> is of the newest
    digest_algorithm VARCHAR NOT NULL,
    digest VARCHAR NOT NULL
);
