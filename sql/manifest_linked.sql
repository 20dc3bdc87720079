-- The manifest of a release of linked tables: one row with its claims, which `verify` compares with the rows of all its
-- tables. It has no private values.

CREATE TABLE sqlanon.linked_manifest (
    format INTEGER NOT NULL,              -- of this manifest
    published_at TIMESTAMP NOT NULL,      -- UTC; a claim: no row supports it
    sqlanon_version VARCHAR NOT NULL,
    engine VARCHAR NOT NULL,
    policy VARCHAR NOT NULL,              -- JSON: roles, kinds of rules, parameters
    policy_hash VARCHAR NOT NULL,
    tables VARCHAR NOT NULL,              -- JSON: name, parent, keys, columns, generalization, rows and digest of each table
    k BIGINT NOT NULL,
    known VARCHAR NOT NULL,               -- the child rows that an attacker knows: 1, 2, 3 or all
    persons BIGINT NOT NULL,              -- of the source
    released_persons BIGINT NOT NULL,
    smallest_group BIGINT NOT NULL,       -- the fewest persons who share what an attacker may know
    requirements VARCHAR NOT NULL,        -- JSON: key, parameters, table and column of each requirement on sensitive values
    optimal BOOLEAN NOT NULL,
    version INTEGER NOT NULL,             -- the rows are in <table>_v<version>; the view <table> shows them
    digest_algorithm VARCHAR NOT NULL
);
