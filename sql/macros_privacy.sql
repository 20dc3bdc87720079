-- The macro library: how diverse the values of a sensitive attribute are in each class.
--
-- p is the share of a value in a class, and q its share in the source: the relation `reference`, which has a column of the
-- same name (NULL: rel itself). NULL is a value. With `person`, distinct pairs of person and value are counted instead of
-- rows, and the source needs that column too. class_size always counts rows.
--
-- Steps: "sqlanon values" is the scan; "sqlanon counts" has the counts by class and value, "sqlanon shares" p, "sqlanon
-- source" q, and "sqlanon pairs" both.

CREATE SCHEMA IF NOT EXISTS sqlanon;

-- l-diversity (Machanavajjhala et al. 2007) of the least diverse class. distinct_l is the number of different values;
-- entropy_l is e to the power of the entropy (l if l values are equally frequent); recursive_c is the count of the most
-- frequent value / the sum of the counts from the l-th on: every class is recursive (c, l)-diverse for each greater c
-- (infinity if a class has fewer than l values, 0 for l = 1); and the number of classes.
-- For several sensitive attributes together, add the others to qi.
CREATE OR REPLACE MACRO sqlanon.l_diversity(rel, qi, sensitive, l := 2, person := NULL) AS TABLE (
    WITH "sqlanon values" AS (
        SELECT
            struct_pack(*COLUMNS(list_concat(qi, []::VARCHAR[]))) AS class,
            COLUMNS([sensitive]) AS value,
            COLUMNS([coalesce(person, sensitive)]) AS person_id,
            count(*) AS n
        FROM query_table(rel)
        GROUP BY ALL
    ),
    "sqlanon counts" AS (
        SELECT class, value, CASE WHEN person IS NULL THEN sum(n) ELSE count(*) END AS n, sum(n) AS rows
        FROM "sqlanon values"
        GROUP BY class, value
    ),
    "sqlanon figures" AS (
        SELECT
            class,
            sum(rows)::BIGINT AS class_size,
            count(*) AS distinct_l,
            exp(ln(sum(n)) - sum(n * ln(n) ORDER BY n) / fsum(n)) AS entropy_l,
            CASE
                WHEN l > 1 AND l = floor(l)
                THEN coalesce(max(n) / list_aggregate(list(n ORDER BY n DESC)[l:], 'fsum'), 'infinity'::FLOAT)
                WHEN l = 1 THEN 0
                ELSE error('l must be a whole number, 1 or more')
            END AS recursive_c
        FROM "sqlanon counts"
        GROUP BY class
    )
    SELECT
        min(distinct_l) AS distinct_l,
        min(entropy_l) AS entropy_l,
        max(recursive_c) AS recursive_c,
        count(*) AS classes
    FROM "sqlanon figures"
);

-- The quasi-identifiers, class_size, and the same figures for each class.
CREATE OR REPLACE MACRO sqlanon.l_diversity_classes(rel, qi, sensitive, l := 2, person := NULL) AS TABLE (
    WITH "sqlanon values" AS (
        SELECT
            struct_pack(*COLUMNS(list_concat(qi, []::VARCHAR[]))) AS class,
            COLUMNS([sensitive]) AS value,
            COLUMNS([coalesce(person, sensitive)]) AS person_id,
            count(*) AS n
        FROM query_table(rel)
        GROUP BY ALL
    ),
    "sqlanon counts" AS (
        SELECT class, value, CASE WHEN person IS NULL THEN sum(n) ELSE count(*) END AS n, sum(n) AS rows
        FROM "sqlanon values"
        GROUP BY class, value
    ),
    "sqlanon figures" AS (
        SELECT
            class,
            sum(rows)::BIGINT AS class_size,
            count(*) AS distinct_l,
            exp(ln(sum(n)) - sum(n * ln(n) ORDER BY n) / fsum(n)) AS entropy_l,
            CASE
                WHEN l > 1 AND l = floor(l)
                THEN coalesce(max(n) / list_aggregate(list(n ORDER BY n DESC)[l:], 'fsum'), 'infinity'::FLOAT)
                WHEN l = 1 THEN 0
                ELSE error('l must be a whole number, 1 or more')
            END AS recursive_c
        FROM "sqlanon counts"
        GROUP BY class
    )
    SELECT
        unnest(class),
        CASE
            WHEN regexp_matches(array_to_string(qi, chr(10)), '(?im)^(class_size|distinct_l|entropy_l|recursive_c)$')
            THEN error('a quasi-identifier has the name of a figure: rename it in a view')
            ELSE class_size
        END AS class_size,
        distinct_l,
        entropy_l,
        recursive_c
    FROM "sqlanon figures"
);

-- The alpha of (alpha, k)-anonymity (Wong et al. 2006) over all values: the greatest share of a value in a class; and the
-- number of classes.
CREATE OR REPLACE MACRO sqlanon.alpha(rel, qi, sensitive, person := NULL) AS TABLE (
    WITH "sqlanon values" AS (
        SELECT
            struct_pack(*COLUMNS(list_concat(qi, []::VARCHAR[]))) AS class,
            COLUMNS([sensitive]) AS value,
            COLUMNS([coalesce(person, sensitive)]) AS person_id,
            count(*) AS n
        FROM query_table(rel)
        GROUP BY ALL
    ),
    "sqlanon counts" AS (
        SELECT class, value, CASE WHEN person IS NULL THEN sum(n) ELSE count(*) END AS n, sum(n) AS rows
        FROM "sqlanon values"
        GROUP BY class, value
    )
    SELECT max(alpha) AS alpha, count(*) AS classes
    FROM (SELECT max(n) / fsum(n) AS alpha FROM "sqlanon counts" GROUP BY class)
);

-- delta-disclosure (Brickell and Shmatikov 2008): the greatest |ln(p/q)| of a value in a class, infinity if a class lacks a
-- value of the source or has one that the source lacks; and the number of classes.
CREATE OR REPLACE MACRO sqlanon.delta_disclosure(rel, qi, sensitive, reference := NULL, person := NULL) AS TABLE (
    WITH "sqlanon values" AS (
        SELECT
            struct_pack(*COLUMNS(list_concat(qi, []::VARCHAR[]))) AS class,
            COLUMNS([sensitive]) AS value,
            COLUMNS([coalesce(person, sensitive)]) AS person_id,
            count(*) AS n
        FROM query_table(rel)
        GROUP BY ALL
    ),
    "sqlanon counts" AS (
        SELECT class, value, CASE WHEN person IS NULL THEN sum(n) ELSE count(*) END AS n, sum(n) AS rows
        FROM "sqlanon values"
        GROUP BY class, value
    ),
    "sqlanon classes" AS (
        SELECT class, fsum(n) AS total, sum(rows)::BIGINT AS class_size FROM "sqlanon counts" GROUP BY class
    ),
    "sqlanon shares" AS (
        SELECT c.class, class_size, value, n / total AS p
        FROM "sqlanon counts" AS c, "sqlanon classes" AS s
        WHERE c.class IS NOT DISTINCT FROM s.class
    ),
    "sqlanon source" AS (
        SELECT value, n / fsum(n) OVER () AS q
        FROM (
            SELECT value, CASE WHEN person IS NULL THEN sum(n) ELSE count(*) END AS n
            FROM (
                SELECT COLUMNS([sensitive]) AS value, COLUMNS([coalesce(person, sensitive)]) AS person_id, count(*) AS n
                FROM query_table(coalesce(reference, rel))
                GROUP BY ALL
            )
            GROUP BY value
        )
    ),
    "sqlanon pairs" AS (
        SELECT *, (SELECT q FROM "sqlanon source" AS s WHERE s.value IS NOT DISTINCT FROM c.value) AS q
        FROM "sqlanon shares" AS c
    )
    SELECT max(delta) AS delta, count(*) AS classes
    FROM (
        SELECT
            CASE
                WHEN count(q) < count(*) OR count(*) < (SELECT count(*) FROM "sqlanon source") THEN 'infinity'::FLOAT
                ELSE max(abs(ln(p / q)))
            END AS delta
        FROM "sqlanon pairs"
        GROUP BY class
    )
);

-- beta-likeness (Cao and Karras 2012). beta is the greatest gain (p - q) / q of a value in a class; enhanced_excess is the
-- most by which a gain exceeds its own -ln q (0: never); and the number of classes.
-- Basic beta-likeness means beta <= b; enhanced beta-likeness also means enhanced_excess = 0.
CREATE OR REPLACE MACRO sqlanon.beta_likeness(rel, qi, sensitive, reference := NULL, person := NULL) AS TABLE (
    WITH "sqlanon values" AS (
        SELECT
            struct_pack(*COLUMNS(list_concat(qi, []::VARCHAR[]))) AS class,
            COLUMNS([sensitive]) AS value,
            COLUMNS([coalesce(person, sensitive)]) AS person_id,
            count(*) AS n
        FROM query_table(rel)
        GROUP BY ALL
    ),
    "sqlanon counts" AS (
        SELECT class, value, CASE WHEN person IS NULL THEN sum(n) ELSE count(*) END AS n, sum(n) AS rows
        FROM "sqlanon values"
        GROUP BY class, value
    ),
    "sqlanon classes" AS (
        SELECT class, fsum(n) AS total, sum(rows)::BIGINT AS class_size FROM "sqlanon counts" GROUP BY class
    ),
    "sqlanon shares" AS (
        SELECT c.class, class_size, value, n / total AS p
        FROM "sqlanon counts" AS c, "sqlanon classes" AS s
        WHERE c.class IS NOT DISTINCT FROM s.class
    ),
    "sqlanon source" AS (
        SELECT value, n / fsum(n) OVER () AS q
        FROM (
            SELECT value, CASE WHEN person IS NULL THEN sum(n) ELSE count(*) END AS n
            FROM (
                SELECT COLUMNS([sensitive]) AS value, COLUMNS([coalesce(person, sensitive)]) AS person_id, count(*) AS n
                FROM query_table(coalesce(reference, rel))
                GROUP BY ALL
            )
            GROUP BY value
        )
    ),
    "sqlanon pairs" AS (
        SELECT *, (SELECT q FROM "sqlanon source" AS s WHERE s.value IS NOT DISTINCT FROM c.value) AS q
        FROM "sqlanon shares" AS c
    )
    SELECT max(beta) AS beta, max(enhanced_excess) AS enhanced_excess, count(*) AS classes
    FROM (
        SELECT
            greatest(max(CASE WHEN q IS NULL THEN 'infinity'::FLOAT ELSE (p - q) / q END), 0) AS beta,
            greatest(
                max(CASE WHEN q IS NULL THEN 'infinity'::FLOAT WHEN p > q THEN (p - q) / q + ln(q) END), 0
            ) AS enhanced_excess
        FROM "sqlanon pairs"
        GROUP BY class
    )
);

-- The quasi-identifiers, class_size, and delta, beta, enhanced_excess and alpha of each class.
CREATE OR REPLACE MACRO sqlanon.disclosure_classes(rel, qi, sensitive, reference := NULL, person := NULL) AS TABLE (
    WITH "sqlanon values" AS (
        SELECT
            struct_pack(*COLUMNS(list_concat(qi, []::VARCHAR[]))) AS class,
            COLUMNS([sensitive]) AS value,
            COLUMNS([coalesce(person, sensitive)]) AS person_id,
            count(*) AS n
        FROM query_table(rel)
        GROUP BY ALL
    ),
    "sqlanon counts" AS (
        SELECT class, value, CASE WHEN person IS NULL THEN sum(n) ELSE count(*) END AS n, sum(n) AS rows
        FROM "sqlanon values"
        GROUP BY class, value
    ),
    "sqlanon classes" AS (
        SELECT class, fsum(n) AS total, sum(rows)::BIGINT AS class_size FROM "sqlanon counts" GROUP BY class
    ),
    "sqlanon shares" AS (
        SELECT c.class, class_size, value, n / total AS p
        FROM "sqlanon counts" AS c, "sqlanon classes" AS s
        WHERE c.class IS NOT DISTINCT FROM s.class
    ),
    "sqlanon source" AS (
        SELECT value, n / fsum(n) OVER () AS q
        FROM (
            SELECT value, CASE WHEN person IS NULL THEN sum(n) ELSE count(*) END AS n
            FROM (
                SELECT COLUMNS([sensitive]) AS value, COLUMNS([coalesce(person, sensitive)]) AS person_id, count(*) AS n
                FROM query_table(coalesce(reference, rel))
                GROUP BY ALL
            )
            GROUP BY value
        )
    ),
    "sqlanon pairs" AS (
        SELECT *, (SELECT q FROM "sqlanon source" AS s WHERE s.value IS NOT DISTINCT FROM c.value) AS q
        FROM "sqlanon shares" AS c
    )
    SELECT
        unnest(class),
        CASE
            WHEN regexp_matches(array_to_string(qi, chr(10)), '(?im)^(class_size|delta|beta|enhanced_excess|alpha)$')
            THEN error('a quasi-identifier has the name of a figure: rename it in a view')
            ELSE class_size
        END AS class_size,
        delta,
        beta,
        enhanced_excess,
        alpha
    FROM (
        SELECT
            class,
            class_size,
            CASE
                WHEN count(q) < count(*) OR count(*) < (SELECT count(*) FROM "sqlanon source") THEN 'infinity'::FLOAT
                ELSE max(abs(ln(p / q)))
            END AS delta,
            greatest(max(CASE WHEN q IS NULL THEN 'infinity'::FLOAT ELSE (p - q) / q END), 0) AS beta,
            greatest(
                max(CASE WHEN q IS NULL THEN 'infinity'::FLOAT WHEN p > q THEN (p - q) / q + ln(q) END), 0
            ) AS enhanced_excess,
            max(p) AS alpha
        FROM "sqlanon pairs"
        GROUP BY class, class_size
    )
);
