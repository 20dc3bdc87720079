-- Macros of macros.sql in the words of earlier builds of this version. `verify` accepts them in a release file.

CREATE OR REPLACE MACRO sqlanon.digest(rel) AS TABLE (
    SELECT count(*) AS rows, coalesce(sum((line >> 32) * (line & 2147483647)), 0)::VARCHAR AS digest
    FROM (
        SELECT list_bit_xor([*COLUMNS(*)]) AS line
        FROM (
            SELECT CASE
                WHEN typeof(COLUMNS(*)) IN ('TINYINT', 'SMALLINT', 'INTEGER', 'BIGINT', 'BOOLEAN')
                THEN xor(
                    ((TRY_CAST(COLUMNS(*) AS BIGINT) & 2147483647) + 1431655765)
                    * (md5_number(alias(COLUMNS(*))) >> 97)::BIGINT,
                    (TRY_CAST(COLUMNS(*) AS BIGINT) >> 31) * (md5_number(alias(COLUMNS(*))) & 2147483647)::BIGINT
                )
                ELSE (md5_number('=' || COLUMNS(*)::VARCHAR) >> 97)::BIGINT
                    * (md5_number(alias(COLUMNS(*))) >> 97)::BIGINT
            END
            FROM query_table(rel)
        )
    )
);
