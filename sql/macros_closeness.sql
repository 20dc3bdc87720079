-- The macro library: how far the distribution of a sensitive attribute in each class is from the source's.
-- The parameters, and the steps up to "sqlanon source", are as in macros_privacy.sql.
--
-- distance is one of:
--   'equal': half the sum of |p - q|, which is the sum of p - q over the values with p > q.
--   'hierarchical': the distance of two values is the level of their closest common ancestor / the height. If all leaves
--     have the same depth, this is the mean of the equal distance over the levels below the top. `hierarchy` is the
--     relation of the tree, with one row for each value: level_0 (the value), level_1, ... up to the top, as in the
--     catalog. A value that is not in it (NULL too) is a node of its own on every level below the top.
--   'ordered': the sum of |P - Q|, the cumulative shares, over the m values in the order of their type (NULL first),
--     / (m - 1).
--
-- 'equal' is 'hierarchical' with one level and no tree; both use "sqlanon nodes".
-- For 'ordered', P is constant between a value of a class and its next one: a row of "sqlanon runs". There, |P - Q| is
-- Q - P, plus 2 (P - Q) where Q < P, which holds up to the place that "sqlanon crossings" adds (last_place), because Q only
-- grows. The sums of Q up to each place (area) are computed once, so that a class costs what it has, not what the whole
-- table has.

CREATE SCHEMA IF NOT EXISTS sqlanon;

-- t-closeness (Li et al. 2007): the greatest distance of a class from the source, and the number of classes.
CREATE OR REPLACE MACRO sqlanon.t_closeness(
    rel, qi, sensitive, reference := NULL, distance := 'equal', hierarchy := NULL, person := NULL
) AS TABLE (
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
    "sqlanon tree" AS (
        SELECT
            "sqlanon value" AS value,
            substr(level, 7)::INTEGER AS level,
            CASE WHEN count(*) > 1 THEN error('the hierarchy has a value twice') ELSE {'label': min(label)} END AS label
        FROM (
            SELECT
                COLUMNS([CASE WHEN hierarchy IS NULL THEN sensitive ELSE 'level_0' END]),
                COLUMNS(CASE WHEN hierarchy IS NULL THEN '' ELSE '(?i)^level_[0-9]+$' END)::VARCHAR
            FROM query_table(coalesce(hierarchy, rel))
            WHERE hierarchy IS NOT NULL
        ) AS c("sqlanon value")
        UNPIVOT INCLUDE NULLS (label FOR level IN (COLUMNS(* EXCLUDE ("sqlanon value"))))
        GROUP BY ALL
    ),
    "sqlanon levels" AS (
        SELECT unnest(range(height)) AS level, height
        FROM (SELECT greatest(max(level), 1) AS height FROM "sqlanon tree")
    ),
    "sqlanon all shares" AS (
        SELECT * FROM "sqlanon shares"
        UNION ALL
        SELECT NULL, NULL, value, q FROM "sqlanon source"
    ),
    "sqlanon labels" AS (
        SELECT
            *,
            (
                SELECT label
                FROM "sqlanon tree" AS t
                WHERE t.value IS NOT DISTINCT FROM c.value AND t.level = nullif(s.level, 0)
            ) AS label
        FROM "sqlanon all shares" AS c, "sqlanon levels" AS s
        WHERE distance <> 'ordered'
    ),
    "sqlanon nodes" AS (
        SELECT
            class,
            class_size,
            {'level': level, 'label': label, 'value': [value][:(label IS NULL)::INTEGER]} AS node,
            height,
            sum(p ORDER BY p) AS p
        FROM "sqlanon labels"
        GROUP BY ALL
    ),
    "sqlanon scale" AS (
        SELECT *, count(*) OVER () AS m, sum(q) OVER () AS whole, sum(q) OVER (ORDER BY place ASC) AS area
        FROM (
            SELECT
                value,
                row_number() OVER up AS place,
                coalesce(sum(max(p) FILTER (class IS NULL)) OVER up, 0) AS q
            FROM "sqlanon all shares"
            WHERE distance = 'ordered'
            GROUP BY value
            WINDOW up AS (ORDER BY value ASC NULLS FIRST)
        )
    ),
    "sqlanon runs" AS (
        SELECT
            class,
            class_size,
            m,
            whole,
            sum(p) OVER up AS p,
            place,
            area - q AS area,
            coalesce(lead(place) OVER up, m + 1) AS next_place,
            coalesce(lead(area - q) OVER up, whole) AS next_area
        FROM "sqlanon shares" AS c, "sqlanon scale" AS s
        WHERE c.value IS NOT DISTINCT FROM s.value
        WINDOW up AS (PARTITION BY class ORDER BY place ASC)
    ),
    "sqlanon crossings" AS (
        SELECT *, max(scale_place) OVER (ORDER BY p ASC) AS last_place, max(scale_area) OVER (ORDER BY p ASC) AS last_area
        FROM (
            SELECT *, 0 AS scale_place, 0 AS scale_area FROM "sqlanon runs"
            UNION ALL BY NAME
            SELECT q AS p, place AS scale_place, area AS scale_area FROM "sqlanon scale"
        )
    ),
    "sqlanon figures" AS (
        SELECT class, class_size, sum(greatest(p - coalesce(q, 0), 0) ORDER BY p, q) / height AS t
        FROM (
            SELECT *, (SELECT p FROM "sqlanon nodes" AS s WHERE s.class IS NULL AND s.node = c.node) AS q
            FROM "sqlanon nodes" AS c
        )
        WHERE class IS NOT NULL
        GROUP BY class, class_size, height
        UNION ALL
        SELECT
            class,
            class_size,
            CASE
                WHEN whole > 0 THEN greatest(0, whole + sum(
                    p * (2 * greatest(least(last_place + 1, next_place) - place, 0) + place - next_place)
                    - 2 * (greatest(least(last_area, next_area), area) - area)
                    ORDER BY place
                )) / greatest(m - 1, 1)
                ELSE 1
            END
        FROM "sqlanon crossings"
        WHERE class IS NOT NULL
        GROUP BY class, class_size, m, whole
    )
    SELECT
        CASE
            WHEN coalesce(distance, '') NOT IN ('equal', 'ordered', 'hierarchical')
            THEN error('the distance must be equal, ordered or hierarchical')
            WHEN (distance = 'hierarchical') <> (hierarchy IS NOT NULL)
            THEN error('the hierarchical distance needs a hierarchy, and no other does')
            ELSE max(t)
        END AS t,
        count(*) AS classes
    FROM "sqlanon figures"
);

-- The quasi-identifiers, class_size, and the distance t of each class.
CREATE OR REPLACE MACRO sqlanon.t_closeness_classes(
    rel, qi, sensitive, reference := NULL, distance := 'equal', hierarchy := NULL, person := NULL
) AS TABLE (
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
    "sqlanon tree" AS (
        SELECT
            "sqlanon value" AS value,
            substr(level, 7)::INTEGER AS level,
            CASE WHEN count(*) > 1 THEN error('the hierarchy has a value twice') ELSE {'label': min(label)} END AS label
        FROM (
            SELECT
                COLUMNS([CASE WHEN hierarchy IS NULL THEN sensitive ELSE 'level_0' END]),
                COLUMNS(CASE WHEN hierarchy IS NULL THEN '' ELSE '(?i)^level_[0-9]+$' END)::VARCHAR
            FROM query_table(coalesce(hierarchy, rel))
            WHERE hierarchy IS NOT NULL
        ) AS c("sqlanon value")
        UNPIVOT INCLUDE NULLS (label FOR level IN (COLUMNS(* EXCLUDE ("sqlanon value"))))
        GROUP BY ALL
    ),
    "sqlanon levels" AS (
        SELECT unnest(range(height)) AS level, height
        FROM (SELECT greatest(max(level), 1) AS height FROM "sqlanon tree")
    ),
    "sqlanon all shares" AS (
        SELECT * FROM "sqlanon shares"
        UNION ALL
        SELECT NULL, NULL, value, q FROM "sqlanon source"
    ),
    "sqlanon labels" AS (
        SELECT
            *,
            (
                SELECT label
                FROM "sqlanon tree" AS t
                WHERE t.value IS NOT DISTINCT FROM c.value AND t.level = nullif(s.level, 0)
            ) AS label
        FROM "sqlanon all shares" AS c, "sqlanon levels" AS s
        WHERE distance <> 'ordered'
    ),
    "sqlanon nodes" AS (
        SELECT
            class,
            class_size,
            {'level': level, 'label': label, 'value': [value][:(label IS NULL)::INTEGER]} AS node,
            height,
            sum(p ORDER BY p) AS p
        FROM "sqlanon labels"
        GROUP BY ALL
    ),
    "sqlanon scale" AS (
        SELECT *, count(*) OVER () AS m, sum(q) OVER () AS whole, sum(q) OVER (ORDER BY place ASC) AS area
        FROM (
            SELECT
                value,
                row_number() OVER up AS place,
                coalesce(sum(max(p) FILTER (class IS NULL)) OVER up, 0) AS q
            FROM "sqlanon all shares"
            WHERE distance = 'ordered'
            GROUP BY value
            WINDOW up AS (ORDER BY value ASC NULLS FIRST)
        )
    ),
    "sqlanon runs" AS (
        SELECT
            class,
            class_size,
            m,
            whole,
            sum(p) OVER up AS p,
            place,
            area - q AS area,
            coalesce(lead(place) OVER up, m + 1) AS next_place,
            coalesce(lead(area - q) OVER up, whole) AS next_area
        FROM "sqlanon shares" AS c, "sqlanon scale" AS s
        WHERE c.value IS NOT DISTINCT FROM s.value
        WINDOW up AS (PARTITION BY class ORDER BY place ASC)
    ),
    "sqlanon crossings" AS (
        SELECT *, max(scale_place) OVER (ORDER BY p ASC) AS last_place, max(scale_area) OVER (ORDER BY p ASC) AS last_area
        FROM (
            SELECT *, 0 AS scale_place, 0 AS scale_area FROM "sqlanon runs"
            UNION ALL BY NAME
            SELECT q AS p, place AS scale_place, area AS scale_area FROM "sqlanon scale"
        )
    ),
    "sqlanon figures" AS (
        SELECT class, class_size, sum(greatest(p - coalesce(q, 0), 0) ORDER BY p, q) / height AS t
        FROM (
            SELECT *, (SELECT p FROM "sqlanon nodes" AS s WHERE s.class IS NULL AND s.node = c.node) AS q
            FROM "sqlanon nodes" AS c
        )
        WHERE class IS NOT NULL
        GROUP BY class, class_size, height
        UNION ALL
        SELECT
            class,
            class_size,
            CASE
                WHEN whole > 0 THEN greatest(0, whole + sum(
                    p * (2 * greatest(least(last_place + 1, next_place) - place, 0) + place - next_place)
                    - 2 * (greatest(least(last_area, next_area), area) - area)
                    ORDER BY place
                )) / greatest(m - 1, 1)
                ELSE 1
            END
        FROM "sqlanon crossings"
        WHERE class IS NOT NULL
        GROUP BY class, class_size, m, whole
    )
    SELECT
        unnest(class),
        CASE
            WHEN regexp_matches(array_to_string(qi, chr(10)), '(?im)^(class_size|t)$')
            THEN error('a quasi-identifier has the name of a figure: rename it in a view')
            ELSE class_size
        END AS class_size,
        CASE
            WHEN coalesce(distance, '') NOT IN ('equal', 'ordered', 'hierarchical')
            THEN error('the distance must be equal, ordered or hierarchical')
            WHEN (distance = 'hierarchical') <> (hierarchy IS NOT NULL)
            THEN error('the hierarchical distance needs a hierarchy, and no other does')
            ELSE t
        END AS t
    FROM "sqlanon figures"
);
