-- The macro library: published attacks on releases, under the names of `sqlanon attack`.
--
-- NULL is a value, equal to NULL. Two relations are compared on the columns `on`, which both have, by equal values:
-- convert the values of another table to labels of the release first (02139 becomes 0213*).

CREATE SCHEMA IF NOT EXISTS sqlanon;

-- Homogeneity (Machanavajjhala et al. 2007): the classes whose rows all have the same sensitive value. The
-- quasi-identifiers, class_size and value.
CREATE OR REPLACE MACRO sqlanon.homogeneous_classes(rel, qi, sensitive) AS TABLE (
    WITH "sqlanon values" AS (
        SELECT
            struct_pack(*COLUMNS(list_concat(qi, []::VARCHAR[]))) AS class,
            COLUMNS([sensitive]) AS value,
            count(*) AS n
        FROM query_table(rel)
        GROUP BY ALL
    )
    SELECT
        unnest(class),
        CASE
            WHEN regexp_matches(array_to_string(qi, chr(10)), '(?im)^(class_size|value)$')
            THEN error('a quasi-identifier has the name of a figure: rename it in a view')
            ELSE class_size
        END AS class_size,
        value
    FROM (
        SELECT class, sum(n)::BIGINT AS class_size, any_value(value) AS value
        FROM "sqlanon values"
        GROUP BY class
        HAVING count(*) = 1
    )
);

-- Background knowledge (the same paper): the classes in which a single value remains for an attacker who can rule out
-- `known` values. The quasi-identifiers, class_size and distinct_l, the number of different values (at most known + 1).
CREATE OR REPLACE MACRO sqlanon.background_knowledge_classes(rel, qi, sensitive, known := 1) AS TABLE (
    WITH "sqlanon values" AS (
        SELECT
            struct_pack(*COLUMNS(list_concat(qi, []::VARCHAR[]))) AS class,
            COLUMNS([sensitive]) AS value,
            count(*) AS n
        FROM query_table(rel)
        GROUP BY ALL
    )
    SELECT
        unnest(class),
        CASE
            WHEN regexp_matches(array_to_string(qi, chr(10)), '(?im)^(class_size|distinct_l)$')
            THEN error('a quasi-identifier has the name of a figure: rename it in a view')
            ELSE class_size
        END AS class_size,
        distinct_l
    FROM (
        SELECT class, sum(n)::BIGINT AS class_size, count(*) AS distinct_l
        FROM "sqlanon values"
        GROUP BY class
        HAVING count(*) <= known + 1
    )
);

-- Skewness (Li et al. 2007): one row for each value in each class. The quasi-identifiers, class_size, value, value_rows
-- (the rows of the class with this value), p (its share of the class) and ratio (p / its share of all rows).
CREATE OR REPLACE MACRO sqlanon.skewness_classes(rel, qi, sensitive) AS TABLE (
    WITH "sqlanon values" AS (
        SELECT
            struct_pack(*COLUMNS(list_concat(qi, []::VARCHAR[]))) AS class,
            COLUMNS([sensitive]) AS value,
            count(*) AS n
        FROM query_table(rel)
        GROUP BY ALL
    )
    SELECT
        unnest(class),
        CASE
            WHEN regexp_matches(array_to_string(qi, chr(10)), '(?im)^(class_size|value|value_rows|p|ratio)$')
            THEN error('a quasi-identifier has the name of a figure: rename it in a view')
            ELSE class_size
        END AS class_size,
        value,
        n AS value_rows,
        n / total AS p,
        n / total / (value_total / table_total) AS ratio
    FROM (
        SELECT
            *,
            (sum(n) OVER (PARTITION BY class))::BIGINT AS class_size,
            fsum(n) OVER (PARTITION BY class) AS total,
            fsum(n) OVER (PARTITION BY value) AS value_total,
            fsum(n) OVER () AS table_total
        FROM "sqlanon values"
    )
);

-- Linking with another table that names people (Sweeney 2002). The rows of `other` that match no row of rel
-- (other_none), one (other_one), or some but fewer than k (other_few); the rows of rel, and those with a match
-- (matched); and the pairs of rows that match each other and no other row (identified).
CREATE OR REPLACE MACRO sqlanon.linkage(rel, other, "on", k := 5) AS TABLE (
    WITH "sqlanon linked classes" AS (
        SELECT sum("sqlanon rows")::BIGINT AS "sqlanon rows", sum("sqlanon other rows")::BIGINT AS "sqlanon other rows"
        FROM (
            SELECT count(*) AS "sqlanon rows", 0 AS "sqlanon other rows", struct_pack(*COLUMNS(list_concat("on", []::VARCHAR[])))
            FROM query_table(rel)
            GROUP BY ALL
            UNION ALL
            SELECT 0, count(*), struct_pack(*COLUMNS(list_concat("on", []::VARCHAR[])))
            FROM query_table(other)
            GROUP BY ALL
        ) AS u("sqlanon rows", "sqlanon other rows", "sqlanon class")
        GROUP BY "sqlanon class"
    )
    SELECT
        coalesce(sum("sqlanon other rows") FILTER ("sqlanon rows" = 0), 0)::BIGINT AS other_none,
        coalesce(sum("sqlanon other rows") FILTER ("sqlanon rows" = 1), 0)::BIGINT AS other_one,
        coalesce(sum("sqlanon other rows") FILTER ("sqlanon rows" BETWEEN 1 AND k - 1), 0)::BIGINT AS other_few,
        coalesce(sum("sqlanon rows"), 0)::BIGINT AS rows,
        coalesce(sum("sqlanon rows") FILTER ("sqlanon other rows" > 0), 0)::BIGINT AS matched,
        count(*) FILTER ("sqlanon rows" = 1 AND "sqlanon other rows" = 1) AS identified
    FROM "sqlanon linked classes"
);

-- Composition (Ganta et al. 2008) of two releases with the same labels: the classes, by the columns `on`, that have a
-- single sensitive value in common; and the rows of each release that have it.
CREATE OR REPLACE MACRO sqlanon.composition_classes(rel, other, "on", sensitive) AS TABLE (
    WITH "sqlanon values of both" AS (
        SELECT class, value, sum(n)::BIGINT AS n, sum(m)::BIGINT AS m
        FROM (
            SELECT
                struct_pack(*COLUMNS(list_concat("on", []::VARCHAR[]))),
                COLUMNS([sensitive]),
                count(*),
                0
            FROM query_table(rel)
            GROUP BY ALL
            UNION ALL
            SELECT
                struct_pack(*COLUMNS(list_concat("on", []::VARCHAR[]))),
                COLUMNS([sensitive]),
                0,
                count(*)
            FROM query_table(other)
            GROUP BY ALL
        ) AS u(class, value, n, m)
        GROUP BY class, value
    )
    SELECT
        unnest(class),
        CASE
            WHEN regexp_matches(array_to_string("on", chr(10)), '(?im)^(value|rows|other_rows)$')
            THEN error('a quasi-identifier has the name of a figure: rename it in a view')
            ELSE value
        END AS value,
        rows,
        other_rows
    FROM (
        SELECT class, any_value(value) AS value, any_value(n) AS rows, any_value(m) AS other_rows
        FROM "sqlanon values of both"
        WHERE n > 0 AND m > 0
        GROUP BY class
        HAVING count(*) = 1
    )
);

-- Unsorted matching (Sweeney 2002): the number of positions that both relations have, how many of them have the same
-- values in the columns `on`, and the share expected by chance: that of all pairs of rows with the same values.
CREATE OR REPLACE MACRO sqlanon.unsorted_matching(rel, other, "on") AS TABLE (
    WITH "sqlanon positions" AS (
        SELECT 1 AS side, row_number() OVER () AS row_position, struct_pack(*COLUMNS(list_concat("on", []::VARCHAR[]))) AS class
        FROM query_table(rel)
        UNION ALL
        SELECT 2, row_number() OVER (), struct_pack(*COLUMNS(list_concat("on", []::VARCHAR[])))
        FROM query_table(other)
    ),
    "sqlanon row counts" AS (
        SELECT count(*) FILTER (side = 1) AS n, count(*) FILTER (side = 2) AS m
        FROM "sqlanon positions"
    )
    SELECT
        (SELECT least(n, m) FROM "sqlanon row counts") AS places,
        (
            SELECT count(*)
            FROM (SELECT row_position FROM "sqlanon positions" GROUP BY row_position, class HAVING count(*) = 2)
        ) AS agreeing,
        (
            SELECT fsum(n * m)
            FROM (
                SELECT count(*) FILTER (side = 1) AS n, count(*) FILTER (side = 2) AS m
                FROM "sqlanon positions"
                GROUP BY class
            )
        ) / (SELECT nullif(fsum(n * m), 0) FROM "sqlanon row counts") AS chance
);

-- Complementary release (Sweeney 2002) of two releases with the same labels, joined on equal labels and on equal values
-- of the columns `shared`: the combinations of qi with fewer than k rows, and their number of rows. Each shared value
-- counts as often as in the release where it is rarer.
CREATE OR REPLACE MACRO sqlanon.complementary_classes(rel, other, qi, shared, k := 5) AS TABLE (
    WITH "sqlanon matching rows" AS (
        SELECT class, least(sum(n), sum(m))::BIGINT AS rows
        FROM (
            SELECT
                struct_pack(*COLUMNS(list_concat(qi, []::VARCHAR[]))),
                struct_pack(*COLUMNS(list_concat(shared, []::VARCHAR[]))),
                count(*),
                0
            FROM query_table(rel)
            GROUP BY ALL
            UNION ALL
            SELECT
                struct_pack(*COLUMNS(list_concat(qi, []::VARCHAR[]))),
                struct_pack(*COLUMNS(list_concat(shared, []::VARCHAR[]))),
                0,
                count(*)
            FROM query_table(other)
            GROUP BY ALL
        ) AS u(class, value, n, m)
        GROUP BY class, value
    )
    SELECT
        unnest(class),
        CASE
            WHEN regexp_matches(array_to_string(qi, chr(10)), '(?im)^rows$')
            THEN error('a quasi-identifier has the name of a figure: rename it in a view')
            ELSE rows
        END AS rows
    FROM (
        SELECT class, sum(rows)::BIGINT AS rows
        FROM "sqlanon matching rows"
        WHERE rows > 0
        GROUP BY class
    )
    WHERE rows < k
);

-- Temporal attack (the same paper) on an earlier release, rel, and a later one, other, with the same labels: the
-- classes, by the columns `on`, in which at least one row but fewer than k were added or removed. With `shared`, columns
-- that both releases show unchanged, rows whose values there changed count, too.
CREATE OR REPLACE MACRO sqlanon.temporal_classes(rel, other, "on", k := 5, shared := NULL) AS TABLE (
    WITH "sqlanon compared classes" AS (
        SELECT class, sum(n)::BIGINT AS n, sum(m)::BIGINT AS m
        FROM (
            SELECT
                struct_pack(*COLUMNS(list_concat("on", []::VARCHAR[]))),
                struct_pack(*COLUMNS(coalesce(shared, list_concat("on", []::VARCHAR[])))),
                count(*),
                0
            FROM query_table(rel)
            GROUP BY ALL
            UNION ALL
            SELECT
                struct_pack(*COLUMNS(list_concat("on", []::VARCHAR[]))),
                struct_pack(*COLUMNS(coalesce(shared, list_concat("on", []::VARCHAR[])))),
                0,
                count(*)
            FROM query_table(other)
            GROUP BY ALL
        ) AS u(class, value, n, m)
        GROUP BY class, value
    )
    SELECT
        unnest(class),
        CASE
            WHEN regexp_matches(array_to_string("on", chr(10)), '(?im)^(added|removed)$')
            THEN error('a quasi-identifier has the name of a figure: rename it in a view')
            ELSE added
        END AS added,
        removed
    FROM (
        SELECT class, sum(greatest(m - n, 0))::BIGINT AS added, sum(greatest(n - m, 0))::BIGINT AS removed
        FROM "sqlanon compared classes"
        GROUP BY class
    )
    WHERE added BETWEEN 1 AND k - 1 OR removed BETWEEN 1 AND k - 1
);
