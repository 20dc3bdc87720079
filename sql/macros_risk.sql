-- The macro library: the risk of a table. See macros.sql; docs/explanation/risk.md explains the figures.
--
-- These macros count rows. `qi` can be any columns of the relation.

CREATE SCHEMA IF NOT EXISTS sqlanon;

-- The prosecutor's risk (El Emam 2013). The risk of a row is 1 / the size of its class. The highest risk and the average;
-- the rows at the highest risk, and above a threshold; the expected number of re-identifications if an attacker tries all
-- rows (the number of classes: the marketer's risk times the rows); rows alone in their class, and classes of two.
CREATE OR REPLACE MACRO sqlanon.reidentification_risk(rel, qi, threshold := 0.2) AS TABLE (
    WITH "sqlanon sizes" AS (
        SELECT "sqlanon class size" AS size, count(*) AS n
        FROM (
            SELECT count(*), COLUMNS(list_concat(qi, []::VARCHAR[]))
            FROM query_table(rel)
            GROUP BY ALL
        ) AS c("sqlanon class size")
        GROUP BY size
    )
    SELECT
        1 / nullif(fsum(size) FILTER (size = (SELECT min(size) FROM "sqlanon sizes")), 0) AS highest,
        sum(n) / nullif(fsum(n * size), 0) AS average,
        coalesce(sum(n * size) FILTER (size = (SELECT min(size) FROM "sqlanon sizes")), 0)::BIGINT AS rows_at_highest,
        coalesce(sum(n * size) FILTER (1 > threshold * size), 0)::BIGINT AS rows_above,
        coalesce(sum(n), 0)::BIGINT AS expected,
        coalesce(sum(n) FILTER (size = 1), 0)::BIGINT AS uniques,
        coalesce(sum(n) FILTER (size = 2), 0)::BIGINT AS pairs,
        coalesce(sum(n * size), 0)::BIGINT AS rows
    FROM "sqlanon sizes"
);

-- The journalist's risk (El Emam 2013). The risk of a row is 1 / the number of rows of the population that its class
-- matches. The highest risk; the average (the greater of two: matched classes / population rows they match, and the mean
-- over the rows of rel); the rows at the highest risk, and above a threshold; the expected number of re-identifications if
-- an attacker tries all rows (the marketer's risk times the rows). Rows without a match have risk 0
-- (classes_of_nobody, rows_of_nobody).
CREATE OR REPLACE MACRO sqlanon.journalist_risk(rel, qi, population, threshold := 0.2) AS TABLE (
    WITH "sqlanon matched sizes" AS (
        SELECT population_size, count(*) AS n, sum(matched_rows)::BIGINT AS matched_rows
        FROM (
            SELECT sum(matched_rows)::BIGINT AS matched_rows, sum(population_size)::BIGINT AS population_size
            FROM (
                SELECT struct_pack(*COLUMNS(list_concat(qi, []::VARCHAR[]))), count(*), 0
                FROM query_table(rel)
                GROUP BY ALL
                UNION ALL
                SELECT struct_pack(*COLUMNS(list_concat(qi, []::VARCHAR[]))), 0, count(*)
                FROM query_table(population)
                GROUP BY ALL
            ) AS u(class, matched_rows, population_size)
            GROUP BY class
        )
        WHERE matched_rows > 0
        GROUP BY population_size
    ),
    "sqlanon figures" AS (
        SELECT
            (SELECT min(population_size) FROM "sqlanon matched sizes" WHERE population_size > 0) AS least,
            (SELECT nullif(fsum(matched_rows), 0) FROM "sqlanon matched sizes") AS whole,
            (
                SELECT coalesce(sum(risky_rows / population_size ORDER BY population_size), 0)
                FROM (
                    SELECT population_size, fsum(matched_rows) AS risky_rows
                    FROM "sqlanon matched sizes"
                    WHERE population_size > 0
                    GROUP BY population_size
                )
            ) AS expected
    )
    SELECT
        coalesce(1 / nullif(fsum(population_size) FILTER (population_size = (SELECT least FROM "sqlanon figures")), 0), 0) AS highest,
        coalesce(
            greatest(
                sum(n) FILTER (population_size > 0) / nullif(fsum(n * population_size), 0),
                (SELECT expected / whole FROM "sqlanon figures")
            ),
            0
        ) AS average,
        coalesce(sum(matched_rows) FILTER (population_size = (SELECT least FROM "sqlanon figures")), 0)::BIGINT AS rows_at_highest,
        coalesce(sum(matched_rows) FILTER (population_size > 0 AND 1 > threshold * population_size), 0)::BIGINT AS rows_above,
        (SELECT expected FROM "sqlanon figures") AS expected,
        coalesce(sum(n) FILTER (population_size = 0), 0)::BIGINT AS classes_of_nobody,
        coalesce(sum(matched_rows) FILTER (population_size = 0), 0)::BIGINT AS rows_of_nobody,
        coalesce(sum(matched_rows), 0)::BIGINT AS rows
    FROM "sqlanon matched sizes"
);

-- The histogram of class sizes: how many classes have each size, and how many rows they have together.
CREATE OR REPLACE MACRO sqlanon.class_sizes(rel, qi) AS TABLE (
    SELECT "sqlanon class size" AS class_size, count(*) AS classes, count(*) * "sqlanon class size" AS rows
    FROM (
        SELECT count(*), COLUMNS(list_concat(qi, []::VARCHAR[]))
        FROM query_table(rel)
        GROUP BY ALL
    ) AS c("sqlanon class size")
    GROUP BY "sqlanon class size"
    ORDER BY "sqlanon class size"
);

-- Leakage (the entropy measure after Longpré): the bits of information that the values of qi give about a person on
-- average (gain), and their share of the log2(rows) bits that identify a row (normalized).
CREATE OR REPLACE MACRO sqlanon.leakage(rel, qi) AS TABLE (
    SELECT gain, CASE WHEN whole > 0 THEN gain / whole ELSE 0 END AS normalized
    FROM (
        SELECT
            log2(fsum(size)) AS whole,
            greatest(log2(fsum(size)) - sum(size * log2(size) ORDER BY size) / fsum(size), 0) AS gain
        FROM (
            SELECT "sqlanon class size" AS size
            FROM (
                SELECT count(*), COLUMNS(list_concat(qi, []::VARCHAR[]))
                FROM query_table(rel)
                GROUP BY ALL
            ) AS c("sqlanon class size")
        )
    )
);
