-- What releases of older versions are checked by. New ones do not have it.

-- The content digest of releases whose manifest says sum-md5-lower64. A row's text is its values as text, each behind its
-- length and a colon, NULL as N; the digest is the sum of the lower 64 bits of the rows' MD5.
CREATE OR REPLACE MACRO sqlanon.digest_of_rows(rel) AS TABLE (
    SELECT count(*) AS rows, coalesce(sum(md5_number_lower(line)), 0)::VARCHAR AS digest
    FROM (
        SELECT concat(*COLUMNS(*)) AS line
        FROM (
            SELECT coalesce(length(COLUMNS(*)::VARCHAR)::VARCHAR || ':' || COLUMNS(*)::VARCHAR, 'N')
            FROM query_table(rel)
        )
    )
);
