-- Macros that check releases of older versions. New releases do not have them.

CREATE SCHEMA IF NOT EXISTS sqlanon;

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

-- The content digest of releases whose manifest says xor-md5-cells. A cell's number is the upper 62 bits of the MD5 of its
-- text behind an equals sign (NULL: of no text), times those of the MD5 of its column's name; a row's is the XOR of its
-- cells' numbers; the digest is the sum, over the rows, of bits 93 and up of the row's number times its lowest 31 bits.
CREATE OR REPLACE MACRO sqlanon.digest_of_cells(rel) AS TABLE (
    SELECT count(*) AS rows, coalesce(sum((line >> 93)::BIGINT * (line & 2147483647)::BIGINT), 0)::VARCHAR AS digest
    FROM (
        SELECT list_bit_xor([*COLUMNS(*)]) AS line
        FROM (
            SELECT (md5_number(concat('=' || COLUMNS(*)::VARCHAR)) >> 66) * (md5_number(alias(COLUMNS(*))) >> 66)
            FROM query_table(rel)
        )
    )
);
