-- The macro library: checks that any DuckDB client can run, in every release file and wherever `sqlanon init` put it.
--
-- Relations are named by text ('patients', or '"my schema"."my table"'); columns by a list of texts, whose case does
-- not matter. A name that is not there is an error: it never makes the grouping coarser in silence.
-- The count comes first and is named by position, so that a column of the same name cannot take its place.

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

-- The content digest: order-free, and the same in every engine. A row's text is its values as text, each behind its
-- length and a colon, NULL as N; the digest is the sum of the lower 64 bits of the rows' MD5.
CREATE OR REPLACE MACRO sqlanon.digest(rel) AS TABLE (
    SELECT count(*) AS rows, coalesce(sum(md5_number_lower(line)), 0)::VARCHAR AS digest
    FROM (
        SELECT concat(*COLUMNS(*)) AS line
        FROM (
            SELECT coalesce(length(COLUMNS(*)::VARCHAR)::VARCHAR || ':' || COLUMNS(*)::VARCHAR, 'N')
            FROM query_table(rel)
        )
    )
);
