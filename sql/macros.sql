-- The macro library: checks that any DuckDB client can run, in every release file and wherever `sqlanon init` put it.
-- Here: what every release is checked by. Persons and populations: macros_persons.sql; sensitive values:
-- macros_privacy.sql and macros_closeness.sql.
--
-- Relations are named by text ('patients', or '"my schema"."my table"'); columns by a list of texts, whose case does
-- not matter. A name that is not there is an error: it never makes the grouping coarser in silence.
-- Most give one row for the whole table; those whose names end in _classes, one for each class.
-- `person` is the column of person ids: persons count then, not rows. All rows without an id are one person.
--
-- No macro calls another: in a file that is attached to another database, it would not be found. So a part that two of
-- them need is there twice, in the same words. Parts have names of our own kind ("sqlanon seen"), because relations are
-- looked up among them as well. Where a class is a STRUCT (class), its columns keep their names and meet none of ours.
--
-- What DuckDB writes to a file of a release's version it must read as it was, in 1.5 and 2.0, word by word: `verify`
-- compares. So there are no lambdas, no JOINs (but lists of tables, and scalar subqueries), no DOUBLE (fsum gives one:
-- what an integer by an integer is depends on a setting), and no window function with a second argument.

CREATE SCHEMA IF NOT EXISTS sqlanon;

-- The equivalence classes: the quasi-identifiers and class_size. (A column of that name is refused: which is which?)
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

-- The count comes first and is named by position, so that a column of the same name cannot take its place.
-- k (the smallest class), the classes, the rows, and the rows that are alone in their class.
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

-- The content digest: it finds rows that were lost, doubled or changed by accident. It is order-free, and the same in every
-- engine. Somebody who chooses what to change can keep it as it is: the SHA-256 of the file, recorded elsewhere, finds that.
-- N is the upper 31 bits of the MD5 of the column's name, M its lowest 31 (as a number whose first byte is the lowest).
-- A cell's number is h * N, where h is the upper 31 bits of the MD5 of '=' and its text; of an integer or BOOLEAN x it is
-- ((x mod 2^31) + 1431655765) * N XOR floor(x / 2^31) * M; of NULL it is 0. A row's number is the XOR of its cells' numbers. The
-- digest is the sum, over the rows, of floor(number / 2^32) * (number mod 2^31): the product binds the cells of a row
-- together. (In these words DuckDB works out a text that repeats only once, and no text of a number: MD5 is what costs.
-- It does so only beside constants. alias() is none, but typeof() is: the column's name is read from the type of a STRUCT
-- of that column, "STRUCT(zip VARCHAR)", where a name that needs quotes has them.)
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
