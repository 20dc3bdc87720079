-- The macro library: persons instead of rows, the whole table, and populations. See macros.sql.

CREATE SCHEMA IF NOT EXISTS sqlanon;

-- The fewest persons in a class (k), the number of classes, of persons, of rows, and of classes of one person.
CREATE OR REPLACE MACRO sqlanon.person_k_anonymity(rel, qi, person) AS TABLE (
    WITH "sqlanon persons" AS (
        SELECT
            struct_pack(*COLUMNS(list_concat(qi, []::VARCHAR[]))) AS class,
            COLUMNS([person]) AS person_id,
            count(*) AS n
        FROM query_table(rel)
        GROUP BY ALL
    )
    SELECT
        min(persons) AS k,
        count(*) AS classes,
        (SELECT count(*) FROM (SELECT DISTINCT person_id FROM "sqlanon persons")) AS persons,
        coalesce(sum(n), 0)::BIGINT AS rows,
        count(*) FILTER (persons = 1) AS uniques
    FROM (SELECT count(*) AS persons, sum(n) AS n FROM "sqlanon persons" GROUP BY class)
);

-- The quasi-identifiers, class_size (persons) and class_rows.
CREATE OR REPLACE MACRO sqlanon.person_k_anonymity_classes(rel, qi, person) AS TABLE (
    WITH "sqlanon persons" AS (
        SELECT
            struct_pack(*COLUMNS(list_concat(qi, []::VARCHAR[]))) AS class,
            COLUMNS([person]) AS person_id,
            count(*) AS n
        FROM query_table(rel)
        GROUP BY ALL
    )
    SELECT
        unnest(class),
        CASE
            WHEN regexp_matches(array_to_string(qi, chr(10)), '(?im)^(class_size|class_rows)$')
            THEN error('a quasi-identifier has the name of a figure: rename it in a view')
            ELSE persons
        END AS class_size,
        n AS class_rows
    FROM (SELECT class, count(*) AS persons, sum(n)::BIGINT AS n FROM "sqlanon persons" GROUP BY class)
);

-- The average risk of a row to be re-identified: the number of classes / the sum of their sizes, in rows or persons
-- (average_risk); the classes of size 1 / the same sum (sample_uniqueness); the number of classes and of rows.
CREATE OR REPLACE MACRO sqlanon.average_risk(rel, qi, person := NULL) AS TABLE (
    SELECT
        count(*) / nullif(fsum(size), 0) AS average_risk,
        count(*) FILTER (size = 1) / nullif(fsum(size), 0) AS sample_uniqueness,
        count(*) AS classes,
        coalesce(sum(n), 0)::BIGINT AS rows
    FROM (
        SELECT CASE WHEN person IS NULL THEN sum(n) ELSE count(*) END AS size, sum(n) AS n
        FROM (
            SELECT
                struct_pack(*COLUMNS(list_concat(qi, []::VARCHAR[]))) AS class,
                COLUMNS([coalesce(person, qi[1])]) AS person_id,
                count(*) AS n
            FROM query_table(rel)
            GROUP BY ALL
        )
        GROUP BY class
    )
);

-- k-map (Sweeney): how many rows, or persons, of a population each class matches. The population is a relation with the
-- same columns, generalized as rel is. k is the smallest number (0: a class matches none), null_map the number of rows
-- in classes without a match; and the number of classes of rel.
CREATE OR REPLACE MACRO sqlanon.k_map(rel, qi, population, population_person := NULL) AS TABLE (
    WITH "sqlanon population matches" AS (
        SELECT struct_pack(*COLUMNS(list_concat(qi, []::VARCHAR[]))) AS class, count(*) AS rows, 0 AS population_size
        FROM query_table(rel)
        GROUP BY ALL
        UNION ALL
        SELECT class, 0, CASE WHEN population_person IS NULL THEN sum(n) ELSE count(*) END
        FROM (
            SELECT
                struct_pack(*COLUMNS(list_concat(qi, []::VARCHAR[]))) AS class,
                COLUMNS([coalesce(population_person, qi[1])]) AS person_id,
                count(*) AS n
            FROM query_table(population)
            GROUP BY ALL
        )
        GROUP BY class
    )
    SELECT
        min(population_size)::BIGINT AS k,
        coalesce(sum(rows) FILTER (population_size = 0), 0)::BIGINT AS null_map,
        count(*) AS classes
    FROM (
        SELECT sum(rows) AS rows, sum(population_size) AS population_size
        FROM "sqlanon population matches"
        GROUP BY class
    )
    WHERE rows > 0
);

-- delta-presence (Nergiz et al. 2007): the size of a class / the size of the same class in the population, over the
-- classes of both: the least and the greatest, and the number of classes. 0: a class of the population has no row in
-- rel; infinity: a class of rel has no match in the population.
CREATE OR REPLACE MACRO sqlanon.delta_presence(
    rel, qi, population, person := NULL, population_person := NULL
) AS TABLE (
    WITH "sqlanon class sizes" AS (
        SELECT class, CASE WHEN person IS NULL THEN sum(n) ELSE count(*) END AS size, 0 AS population_size
        FROM (
            SELECT
                struct_pack(*COLUMNS(list_concat(qi, []::VARCHAR[]))) AS class,
                COLUMNS([coalesce(person, qi[1])]) AS person_id,
                count(*) AS n
            FROM query_table(rel)
            GROUP BY ALL
        )
        GROUP BY class
        UNION ALL
        SELECT class, 0, CASE WHEN population_person IS NULL THEN sum(n) ELSE count(*) END
        FROM (
            SELECT
                struct_pack(*COLUMNS(list_concat(qi, []::VARCHAR[]))) AS class,
                COLUMNS([coalesce(population_person, qi[1])]) AS person_id,
                count(*) AS n
            FROM query_table(population)
            GROUP BY ALL
        )
        GROUP BY class
    ),
    "sqlanon presence" AS (
        SELECT
            class,
            sum(size)::BIGINT AS class_count,
            sum(population_size)::BIGINT AS population_count,
            CASE
                WHEN sum(population_size) = 0 THEN 'infinity'::FLOAT
                ELSE sum(size) / fsum(population_size)
            END AS presence
        FROM "sqlanon class sizes"
        GROUP BY class
    )
    SELECT min(presence) AS min, max(presence) AS max, count(*) AS classes FROM "sqlanon presence"
);

-- The classes of rel and of the population: the quasi-identifiers, class_count and population_count (rows or persons),
-- and presence (class_count / population_count).
CREATE OR REPLACE MACRO sqlanon.presence_classes(
    rel, qi, population, person := NULL, population_person := NULL
) AS TABLE (
    WITH "sqlanon class sizes" AS (
        SELECT class, CASE WHEN person IS NULL THEN sum(n) ELSE count(*) END AS size, 0 AS population_size
        FROM (
            SELECT
                struct_pack(*COLUMNS(list_concat(qi, []::VARCHAR[]))) AS class,
                COLUMNS([coalesce(person, qi[1])]) AS person_id,
                count(*) AS n
            FROM query_table(rel)
            GROUP BY ALL
        )
        GROUP BY class
        UNION ALL
        SELECT class, 0, CASE WHEN population_person IS NULL THEN sum(n) ELSE count(*) END
        FROM (
            SELECT
                struct_pack(*COLUMNS(list_concat(qi, []::VARCHAR[]))) AS class,
                COLUMNS([coalesce(population_person, qi[1])]) AS person_id,
                count(*) AS n
            FROM query_table(population)
            GROUP BY ALL
        )
        GROUP BY class
    ),
    "sqlanon presence" AS (
        SELECT
            class,
            sum(size)::BIGINT AS class_count,
            sum(population_size)::BIGINT AS population_count,
            CASE
                WHEN sum(population_size) = 0 THEN 'infinity'::FLOAT
                ELSE sum(size) / fsum(population_size)
            END AS presence
        FROM "sqlanon class sizes"
        GROUP BY class
    )
    SELECT
        unnest(class),
        CASE
            WHEN regexp_matches(array_to_string(qi, chr(10)), '(?im)^(class_count|population_count|presence)$')
            THEN error('a quasi-identifier has the name of a figure: rename it in a view')
            ELSE class_count
        END AS class_count,
        population_count,
        presence
    FROM "sqlanon presence"
);
