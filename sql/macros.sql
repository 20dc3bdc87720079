-- The macro library: checks that any DuckDB client can run. It is in every release file, and in each database that
-- `sqlanon init` has prepared. This file has the checks that every release needs. Persons and populations are in
-- macros_persons.sql, sensitive values in macros_privacy.sql and macros_closeness.sql.
--
-- A relation is a text ('patients', or '"my schema"."my table"'), and columns are a list of texts, in any case. An
-- unknown name is an error; it never groups by fewer columns.
-- Most macros return one row for the whole table. Macros with names in _classes return one row for each class.
-- `person` is a column of person ids. With it, persons are counted instead of rows; all rows without an id count as one
-- person.
--
-- No macro calls another one, because it would not be found in a file that is attached to another database. Steps that
-- two macros share are repeated in the same words. Their names begin with "sqlanon", because relations are looked up
-- among them too. Where a class is a STRUCT (class), its columns keep their names.
--
-- DuckDB 1.5 and 2.0 must write a macro to a release file, and read it back, in the same words: `verify` compares them.
-- So macros use no lambdas, no JOINs (lists of tables and scalar subqueries instead), no casts to DOUBLE (fsum returns
-- one; the type of an integer division depends on a setting), and no window functions with a second argument.

CREATE SCHEMA IF NOT EXISTS sqlanon;

-- The equivalence classes: the quasi-identifiers and class_size. A quasi-identifier called class_size is an error.
CREATE OR REPLACE MACRO sqlanon.equivalence_classes(rel, qi) AS TABLE (
    SELECT
        COLUMNS(list_concat(qi, []::VARCHAR[])),
        CASE
            WHEN contains(chr(10) || lower(array_to_string(qi, chr(10))) || chr(10), chr(10) || 'class_size' || chr(10))
            THEN error('a quasi-identifier is called class_size: rename it in a view')
            ELSE count(*)
        END AS class_size
    FROM query_table(rel)
    GROUP BY ALL
);

-- The size of the smallest class (k), the number of classes, of rows, and of rows that are alone in their class.
-- (The count is named by position, so that no column of the same name takes its place.)
CREATE OR REPLACE MACRO sqlanon.k_anonymity(rel, qi) AS TABLE (
    SELECT
        min("sqlanon class size") AS k,
        count(*) AS classes,
        coalesce(sum("sqlanon class size"), 0)::BIGINT AS rows,
        count(*) FILTER ("sqlanon class size" = 1) AS uniques
    FROM (
        SELECT count(*), COLUMNS(list_concat(qi, []::VARCHAR[]))
        FROM query_table(rel)
        GROUP BY ALL
    ) AS c("sqlanon class size")
);

-- The content digest finds rows that were lost, duplicated or changed by accident. It does not depend on the order of
-- the rows, and is the same in every engine. Deliberate changes can keep it; the SHA-256 of the file, recorded elsewhere,
-- finds those.
-- N is the upper 31 bits of the MD5 of the column's name, M its lowest 31 (as a number whose first byte is the lowest).
-- A cell's number is h * N, where h is the upper 31 bits of the MD5 of '=' and its text; of an integer or BOOLEAN x it is
-- ((x mod 2^31) + 1431655765) * N XOR floor(x / 2^31) * M; of NULL it is 0. A row's number is the XOR of its cells' numbers. The
-- digest is the sum, over the rows, of floor(number / 2^32) * (number mod 2^31): the product ties the cells of a row
-- together. (MD5 is the expensive part. In this form DuckDB computes it once for a repeated text, and not for numbers, but
-- only with constants. alias() is not constant and typeof() is, so the name of the column is read from the type of a
-- STRUCT, "STRUCT(zip VARCHAR)", where names that need quotes have them.)
CREATE OR REPLACE MACRO sqlanon.digest(rel) AS TABLE (
    SELECT count(*) AS rows, coalesce(sum((line >> 32) * (line & 2147483647)), 0)::VARCHAR AS digest
    FROM (
        SELECT list_bit_xor([*COLUMNS(*)]) AS line
        FROM (
            SELECT CASE
                WHEN typeof(COLUMNS(*)) IN ('TINYINT', 'SMALLINT', 'INTEGER', 'BIGINT', 'BOOLEAN')
                THEN xor(
                    ((TRY_CAST(COLUMNS(*) AS BIGINT) & 2147483647) + 1431655765)
                    * (md5_number(replace(regexp_replace(
                        typeof(struct_pack(COLUMNS(*))), '^STRUCT\((?:"((?:[^"]|"")*)"|([^" ]*)) .*$', '\1\2', 's'
                    ), '""', '"')) >> 97)::BIGINT,
                    (TRY_CAST(COLUMNS(*) AS BIGINT) >> 31)
                    * (md5_number(replace(regexp_replace(
                        typeof(struct_pack(COLUMNS(*))), '^STRUCT\((?:"((?:[^"]|"")*)"|([^" ]*)) .*$', '\1\2', 's'
                    ), '""', '"')) & 2147483647)::BIGINT
                )
                ELSE (md5_number('=' || COLUMNS(*)::VARCHAR) >> 97)::BIGINT
                    * (md5_number(replace(regexp_replace(
                        typeof(struct_pack(COLUMNS(*))), '^STRUCT\((?:"((?:[^"]|"")*)"|([^" ]*)) .*$', '\1\2', 's'
                    ), '""', '"')) >> 97)::BIGINT
            END
            FROM query_table(rel)
        )
    )
);
