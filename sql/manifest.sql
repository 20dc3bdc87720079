-- The manifest of a release: its claims, which `verify` compares with its rows. It has no private values, and one row for
-- each version in the file.

CREATE TABLE sqlanon.manifest (
    table_name VARCHAR NOT NULL,
    format INTEGER NOT NULL,              -- of this manifest
    published_at TIMESTAMP NOT NULL,      -- UTC; a claim: no row supports it
    sqlanon_version VARCHAR NOT NULL,
    engine VARCHAR NOT NULL,
    policy VARCHAR NOT NULL,              -- JSON: roles, kinds of rules, parameters; draft: true of a draft
    policy_hash VARCHAR NOT NULL,
    columns VARCHAR NOT NULL,             -- JSON: [{"name": ..., "type": ..., "role": ...}]
    generalization VARCHAR NOT NULL,      -- JSON: level by quasi-identifier, null if released at several levels
    rows BIGINT NOT NULL,                 -- of the source
    dropped_lines BIGINT,                 -- of CSV files with on_bad_line = "drop": the bad lines that were left out
    released_rows BIGINT NOT NULL,
    suppressed_rows BIGINT NOT NULL,
    classes BIGINT NOT NULL,
    smallest_class BIGINT NOT NULL,       -- its rows; where persons are counted, the fewest persons in a class
    smallest_class_rows BIGINT,           -- where persons are counted: the fewest rows in a class
    persons BIGINT,                       -- of the source, where persons are counted
    released_persons BIGINT,              -- persons with all of their rows released
    suppressed_persons BIGINT,            -- with a suppressed row
    partly_released_persons BIGINT,       -- of these, with a released row, too
    measure VARCHAR NOT NULL,
    score DOUBLE,                         -- NULL if it does not follow from the released rows
    optimal BOOLEAN NOT NULL,
    guarantee VARCHAR NOT NULL,           -- quasi-identifiers: of all of them; combinations: of some at a time
    epsilon DOUBLE,                       -- with noise: ε of a record, over all its attributes with noise
    noise VARCHAR,                        -- JSON: {attribute: {"epsilon": ...}}, with bounds and round as in the policy
    confidence VARCHAR,                   -- JSON: {"beta": ...}
    decoys BIGINT,                        -- with decoys: the number of decoys among the released rows
    heights VARCHAR,                      -- JSON: height of the hierarchy by quasi-identifier, if the release shows it
    version INTEGER,                      -- the rows are in <table_name>_v<version>; the view <table_name> shows the newest
    digest_algorithm VARCHAR NOT NULL,
    digest VARCHAR NOT NULL
);
