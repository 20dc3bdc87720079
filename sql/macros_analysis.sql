-- The macro library: analysing a release. The rules of macros.sql apply here, too.
--
-- A label is read by its form: 20, 20-24, -5 to 24, [20, 25), <0, ≥100; 1980-01-02, 1980-01, 1980-Q1, 1980-W01, 1980,
-- 1980s; {a, b} and lists, member by member. Other labels (*, masks, names) can stand for any value. Labels are read as
-- dates where low or high is a date, else as numbers of at most 12 decimals. Intervals include both ends; NULL leaves
-- an end open. A value that is NULL is in no interval.
--
-- Dates are compared as microseconds in UTC: a date without a time is its whole day, also as an end of the interval.
--
-- On the way: x is a label, or a member of one; l and h are the ends of the interval, as text; start is the first day of
-- a period; since and till are the ends of a range of dates, as text; a and b are the ends of x. The macros that read
-- labels repeat these steps in the same words.

CREATE SCHEMA IF NOT EXISTS sqlanon;

-- The share of a label's values that lie in an interval, if they are spread evenly over the label's range: 1 if all do,
-- 0 if none does, NULL if the label does not show it (*, a mask, an open end).
CREATE OR REPLACE MACRO sqlanon.share(label, low, high) AS (
    SELECT CASE WHEN count(share) = count(*) THEN avg(share) END
    FROM (
        SELECT CASE
            WHEN x IS NULL THEN 0
            WHEN coalesce(a, b) IS NULL OR a > b THEN NULL
            WHEN a > upper OR b < lower OR (b = lower AND half_open) THEN 0
            WHEN coalesce(a >= lower, lower IS NULL) AND coalesce(b <= upper, upper IS NULL) THEN 1
            WHEN a + b IS NOT NULL
            THEN least(
                greatest((least(b, upper) - greatest(a, lower) + step) / (b - a + step), 0.000001),
                0.999999
            )
        END AS share
        FROM (
            SELECT
                x,
                NOT dated AND regexp_matches(x, '^<|\)$') AS half_open,
                CASE WHEN NOT dated AND regexp_matches(x, '[.[]') THEN 0 ELSE 1 END AS step,
                CASE
                    WHEN dated
                    THEN epoch_us(regexp_replace(regexp_replace(l, '^.{10}$', '\0 00:00'), '^.{10}[ T][0-9:.]+$', '\0+00')::TIMESTAMPTZ)
                    ELSE l::DECIMAL(38, 12)
                END AS lower,
                CASE
                    WHEN dated
                    THEN epoch_us(regexp_replace(regexp_replace(h, '^.{10}$', '\0 00:00'), '^.{10}[ T][0-9:.]+$', '\0+00')::TIMESTAMPTZ)
                        + CASE WHEN length(h) = 10 THEN 86399999999 ELSE 0 END
                    ELSE h::DECIMAL(38, 12)
                END AS upper,
                CASE
                    WHEN dated
                    THEN coalesce(
                        epoch_us(TRY_CAST(regexp_replace(regexp_replace(since, '^.{10}$', '\0 00:00'), '^.{10}[ T][0-9:.]+$', '\0+00') AS TIMESTAMPTZ)),
                        epoch_us(start)
                    )
                    ELSE TRY_CAST(
                        regexp_extract(x, '^[≥[]?(-?[0-9]*\.?[0-9]{1,12})((-| to |, )-?[0-9.]+\)?)?$', 1)
                        AS DECIMAL(38, 12)
                    )
                END AS a,
                CASE
                    WHEN dated
                    THEN coalesce(
                        epoch_us(TRY_CAST(regexp_replace(regexp_replace(till, '^.{10}$', '\0 00:00'), '^.{10}[ T][0-9:.]+$', '\0+00') AS TIMESTAMPTZ))
                            + CASE WHEN regexp_matches(x, '^<|\)$') THEN -1 WHEN length(till) = 10 THEN 86399999999 ELSE 0 END,
                        epoch_us(start + CASE length(x)
                            WHEN 4 THEN to_months(12)
                            WHEN 5 THEN to_months(120)
                            WHEN 8 THEN to_days(7)
                            ELSE to_months(CASE WHEN contains(x, 'Q') THEN 3 ELSE 1 END)
                        END) - 1
                    )
                    ELSE TRY_CAST(
                        regexp_extract(x, '^(<|\[?-?[0-9.]+(-| to |, ))?(-?[0-9]*\.?[0-9]{1,12})\)?$', 3)
                        AS DECIMAL(38, 12)
                    )
                END AS b
            FROM (
                SELECT
                    *,
                    coalesce(regexp_matches(coalesce(l, h), '^[0-9]{4}-[0-9]{2}-'), FALSE) AS dated,
                    try_strptime(
                        replace(replace(replace(x, 'Q4', '10'), 'Q3', '07'), 'Q2', '04') || '-1',
                        ['%Y-%m-%d', '%Y-Q%m-%d', '%Y-%j', '%Ys-%j', '%G-W%V-%u']
                    )::DATE AS start,
                    regexp_extract(x, '^[≥[]?([0-9]{4}-[0-9]{2}-[0-9]{2}([ T][0-9:.+-]+)?)(( to |, ).+)?$', 1) AS since,
                    regexp_extract(x, '(^<?| to |, )([0-9]{4}-[0-9]{2}-[0-9]{2}([ T][0-9:.+-]+)?)\)?$', 2) AS till
                FROM (
                    SELECT
                        unnest(CASE
                            WHEN regexp_matches(label::VARCHAR, '^\{|\]$')
                            THEN string_split(trim(label::VARCHAR, '{}[]'), ', ')
                            ELSE [label::VARCHAR]
                        END),
                        low::VARCHAR,
                        high::VARCHAR
                ) AS "sqlanon label"(x, l, h)
            )
        )
    )
);

-- Whether a value of the label can lie in an interval: FALSE only where the label excludes it.
CREATE OR REPLACE MACRO sqlanon.overlaps(label, low, high) AS (
    SELECT bool_or(
        CASE
            WHEN x IS NULL THEN FALSE
            WHEN a > b THEN TRUE
            ELSE NOT coalesce(a > upper OR b < lower OR (b = lower AND half_open), FALSE)
        END
    )
    FROM (
        SELECT
            x,
            NOT dated AND regexp_matches(x, '^<|\)$') AS half_open,
            CASE WHEN NOT dated AND regexp_matches(x, '[.[]') THEN 0 ELSE 1 END AS step,
            CASE
                WHEN dated
                THEN epoch_us(regexp_replace(regexp_replace(l, '^.{10}$', '\0 00:00'), '^.{10}[ T][0-9:.]+$', '\0+00')::TIMESTAMPTZ)
                ELSE l::DECIMAL(38, 12)
            END AS lower,
            CASE
                WHEN dated
                THEN epoch_us(regexp_replace(regexp_replace(h, '^.{10}$', '\0 00:00'), '^.{10}[ T][0-9:.]+$', '\0+00')::TIMESTAMPTZ)
                    + CASE WHEN length(h) = 10 THEN 86399999999 ELSE 0 END
                ELSE h::DECIMAL(38, 12)
            END AS upper,
            CASE
                WHEN dated
                THEN coalesce(
                    epoch_us(TRY_CAST(regexp_replace(regexp_replace(since, '^.{10}$', '\0 00:00'), '^.{10}[ T][0-9:.]+$', '\0+00') AS TIMESTAMPTZ)),
                    epoch_us(start)
                )
                ELSE TRY_CAST(
                    regexp_extract(x, '^[≥[]?(-?[0-9]*\.?[0-9]{1,12})((-| to |, )-?[0-9.]+\)?)?$', 1)
                    AS DECIMAL(38, 12)
                )
            END AS a,
            CASE
                WHEN dated
                THEN coalesce(
                    epoch_us(TRY_CAST(regexp_replace(regexp_replace(till, '^.{10}$', '\0 00:00'), '^.{10}[ T][0-9:.]+$', '\0+00') AS TIMESTAMPTZ))
                        + CASE WHEN regexp_matches(x, '^<|\)$') THEN -1 WHEN length(till) = 10 THEN 86399999999 ELSE 0 END,
                    epoch_us(start + CASE length(x)
                        WHEN 4 THEN to_months(12)
                        WHEN 5 THEN to_months(120)
                        WHEN 8 THEN to_days(7)
                        ELSE to_months(CASE WHEN contains(x, 'Q') THEN 3 ELSE 1 END)
                    END) - 1
                )
                ELSE TRY_CAST(
                    regexp_extract(x, '^(<|\[?-?[0-9.]+(-| to |, ))?(-?[0-9]*\.?[0-9]{1,12})\)?$', 3)
                    AS DECIMAL(38, 12)
                )
            END AS b
        FROM (
            SELECT
                *,
                coalesce(regexp_matches(coalesce(l, h), '^[0-9]{4}-[0-9]{2}-'), FALSE) AS dated,
                try_strptime(
                    replace(replace(replace(x, 'Q4', '10'), 'Q3', '07'), 'Q2', '04') || '-1',
                    ['%Y-%m-%d', '%Y-Q%m-%d', '%Y-%j', '%Ys-%j', '%G-W%V-%u']
                )::DATE AS start,
                regexp_extract(x, '^[≥[]?([0-9]{4}-[0-9]{2}-[0-9]{2}([ T][0-9:.+-]+)?)(( to |, ).+)?$', 1) AS since,
                regexp_extract(x, '(^<?| to |, )([0-9]{4}-[0-9]{2}-[0-9]{2}([ T][0-9:.+-]+)?)\)?$', 2) AS till
            FROM (
                SELECT
                    unnest(CASE
                        WHEN regexp_matches(label::VARCHAR, '^\{|\]$')
                        THEN string_split(trim(label::VARCHAR, '{}[]'), ', ')
                        ELSE [label::VARCHAR]
                    END),
                    low::VARCHAR,
                    high::VARCHAR
            ) AS "sqlanon label"(x, l, h)
        )
    )
);

-- How many rows have a value in an interval: certainly (sure), on average (expected), and at most; and how many rows
-- there are. Rows whose label does not show it, and suppressed rows, are expected to be like the others.
CREATE OR REPLACE MACRO sqlanon.estimated_count(rel, attribute, low, high, suppressed := 0) AS TABLE (
    SELECT
        coalesce(sum(n) FILTER (share = 1), 0)::BIGINT AS sure,
        fsum(n * share) / nullif(fsum(n) FILTER (share IS NOT NULL), 0) * (fsum(n) + suppressed) AS expected,
        (coalesce(sum(n) FILTER (coalesce(share, 1) > 0), 0) + suppressed)::BIGINT AS at_most,
        (coalesce(sum(n), 0) + suppressed)::BIGINT AS rows
    FROM (
        SELECT n, (
            SELECT CASE WHEN count(share) = count(*) THEN avg(share) END
            FROM (
                SELECT CASE
                    WHEN x IS NULL THEN 0
                    WHEN coalesce(a, b) IS NULL OR a > b THEN NULL
                    WHEN a > upper OR b < lower OR (b = lower AND half_open) THEN 0
                    WHEN coalesce(a >= lower, lower IS NULL) AND coalesce(b <= upper, upper IS NULL) THEN 1
                    WHEN a + b IS NOT NULL
                    THEN least(
                        greatest((least(b, upper) - greatest(a, lower) + step) / (b - a + step), 0.000001),
                        0.999999
                    )
                END AS share
                FROM (
                    SELECT
                        x,
                        NOT dated AND regexp_matches(x, '^<|\)$') AS half_open,
                        CASE WHEN NOT dated AND regexp_matches(x, '[.[]') THEN 0 ELSE 1 END AS step,
                        CASE
                            WHEN dated
                            THEN epoch_us(regexp_replace(regexp_replace(l, '^.{10}$', '\0 00:00'), '^.{10}[ T][0-9:.]+$', '\0+00')::TIMESTAMPTZ)
                            ELSE l::DECIMAL(38, 12)
                        END AS lower,
                        CASE
                            WHEN dated
                            THEN epoch_us(regexp_replace(regexp_replace(h, '^.{10}$', '\0 00:00'), '^.{10}[ T][0-9:.]+$', '\0+00')::TIMESTAMPTZ)
                                + CASE WHEN length(h) = 10 THEN 86399999999 ELSE 0 END
                            ELSE h::DECIMAL(38, 12)
                        END AS upper,
                        CASE
                            WHEN dated
                            THEN coalesce(
                                epoch_us(TRY_CAST(regexp_replace(regexp_replace(since, '^.{10}$', '\0 00:00'), '^.{10}[ T][0-9:.]+$', '\0+00') AS TIMESTAMPTZ)),
                                epoch_us(start)
                            )
                            ELSE TRY_CAST(
                                regexp_extract(x, '^[≥[]?(-?[0-9]*\.?[0-9]{1,12})((-| to |, )-?[0-9.]+\)?)?$', 1)
                                AS DECIMAL(38, 12)
                            )
                        END AS a,
                        CASE
                            WHEN dated
                            THEN coalesce(
                                epoch_us(TRY_CAST(regexp_replace(regexp_replace(till, '^.{10}$', '\0 00:00'), '^.{10}[ T][0-9:.]+$', '\0+00') AS TIMESTAMPTZ))
                                    + CASE WHEN regexp_matches(x, '^<|\)$') THEN -1 WHEN length(till) = 10 THEN 86399999999 ELSE 0 END,
                                epoch_us(start + CASE length(x)
                                    WHEN 4 THEN to_months(12)
                                    WHEN 5 THEN to_months(120)
                                    WHEN 8 THEN to_days(7)
                                    ELSE to_months(CASE WHEN contains(x, 'Q') THEN 3 ELSE 1 END)
                                END) - 1
                            )
                            ELSE TRY_CAST(
                                regexp_extract(x, '^(<|\[?-?[0-9.]+(-| to |, ))?(-?[0-9]*\.?[0-9]{1,12})\)?$', 3)
                                AS DECIMAL(38, 12)
                            )
                        END AS b
                    FROM (
                        SELECT
                            *,
                            coalesce(regexp_matches(coalesce(l, h), '^[0-9]{4}-[0-9]{2}-'), FALSE) AS dated,
                            try_strptime(
                                replace(replace(replace(x, 'Q4', '10'), 'Q3', '07'), 'Q2', '04') || '-1',
                                ['%Y-%m-%d', '%Y-Q%m-%d', '%Y-%j', '%Ys-%j', '%G-W%V-%u']
                            )::DATE AS start,
                            regexp_extract(x, '^[≥[]?([0-9]{4}-[0-9]{2}-[0-9]{2}([ T][0-9:.+-]+)?)(( to |, ).+)?$', 1) AS since,
                            regexp_extract(x, '(^<?| to |, )([0-9]{4}-[0-9]{2}-[0-9]{2}([ T][0-9:.+-]+)?)\)?$', 2) AS till
                        FROM (
                            SELECT
                                unnest(CASE
                                    WHEN regexp_matches(label::VARCHAR, '^\{|\]$')
                                    THEN string_split(trim(label::VARCHAR, '{}[]'), ', ')
                                    ELSE [label::VARCHAR]
                                END),
                                low::VARCHAR,
                                high::VARCHAR
                        ) AS "sqlanon label"(x, l, h)
                    )
                )
            )
        ) AS share
        FROM (
            SELECT COLUMNS([attribute]), count(*)
            FROM query_table(rel)
            GROUP BY ALL
        ) AS c(label, n)
    )
);

-- The average of numbers that are released as ranges: its bounds, and the average of the ranges' middles. All values
-- lie between least and most: labels without an end (*, <0) and suppressed rows need them, else a bound is NULL.
CREATE OR REPLACE MACRO sqlanon.estimated_average(
    rel, attribute, least := NULL, most := NULL, suppressed := 0
) AS TABLE (
    SELECT
        CASE
            WHEN count(a) = count(*) AND (suppressed = 0 OR least IS NOT NULL)
            THEN (fsum(n * a) + suppressed * coalesce(least, 0)) / (fsum(n) + suppressed)
        END AS lower,
        fsum(n * (a + b) / 2) / fsum(n) FILTER (a + b IS NOT NULL) AS expected,
        CASE
            WHEN count(b) = count(*) AND (suppressed = 0 OR most IS NOT NULL)
            THEN (fsum(n * b) + suppressed * coalesce(most, 0)) / (fsum(n) + suppressed)
        END AS upper,
        coalesce(sum(n), 0)::BIGINT AS rows
    FROM (
        SELECT
            n,
            greatest(CASE WHEN coalesce(a <= b, TRUE) THEN a END, least::DECIMAL(38, 12)) / 1 AS a,
            least(CASE WHEN coalesce(a <= b, TRUE) THEN b END, most::DECIMAL(38, 12)) / 1 AS b
        FROM (
            SELECT
                n,
                TRY_CAST(
                    regexp_extract(label, '^[≥[]?(-?[0-9]*\.?[0-9]{1,12})((-| to |, )-?[0-9.]+\)?)?$', 1)
                    AS DECIMAL(38, 12)
                ) AS a,
                TRY_CAST(
                    regexp_extract(label, '^(<|\[?-?[0-9.]+(-| to |, ))?(-?[0-9]*\.?[0-9]{1,12})\)?$', 3)
                    AS DECIMAL(38, 12)
                ) AS b
            FROM (
                SELECT COLUMNS([attribute])::VARCHAR, count(*)
                FROM query_table(rel)
                GROUP BY ALL
            ) AS c(label, n)
            WHERE label IS NOT NULL
        )
    )
);

-- The values of a set, as a list: {a, "b, c"} is ['a', 'b, c']. Any other label is a list of one, NULL included.
CREATE OR REPLACE MACRO sqlanon.members(label) AS (
    CASE
        WHEN regexp_full_match(label, '\{("([^"]|"")*"|[^",{}\s][^",{}]*)(, ("([^"]|"")*"|[^",{}\s][^",{}]*))*\}')
        THEN (
            '["' || replace(replace(replace(
                array_to_string(
                    regexp_extract_all(
                        regexp_replace(label[2:-2], '"((?:[^"]|"")*)"|([^",{}\s][^",{}]*)', '"\1\2"', 'g'),
                        '"((?:[^"]|"")*)"',
                        1
                    ),
                    ' " '
                ),
                '\', '\\'), '""', '\"'), ' " ', '", "')
            || '"]'
        )::VARCHAR[]
        ELSE [label]
    END
);

-- How many rows have one of the wanted values: certainly (sure), on average (expected), and at most; and how many rows
-- there are. A set counts by its members, each with the same weight: 1 if all are wanted, 0 if none is. A label by
-- itself that is not wanted, in no set and not among the others may stand for any value (*, a mask, a group). Such rows
-- and suppressed rows are expected to be like the others.
CREATE OR REPLACE MACRO sqlanon.estimated_members(rel, attribute, wanted, others := [], suppressed := 0) AS TABLE (
    SELECT
        coalesce(sum(n) FILTER (share = 1), 0)::BIGINT AS sure,
        fsum(n * share) / nullif(fsum(n) FILTER (share IS NOT NULL), 0) * (fsum(n) + suppressed) AS expected,
        (coalesce(sum(n) FILTER (coalesce(share, 1) > 0), 0) + suppressed)::BIGINT AS at_most,
        (coalesce(sum(n), 0) + suppressed)::BIGINT AS rows
    FROM (
        SELECT
            n,
            CASE
                WHEN members IS NULL THEN 0
                WHEN len(members) = 1 AND NOT list_has_all(known_values, members) THEN NULL
                ELSE len(list_intersect(members, list_concat(wanted, []::VARCHAR[]))) * 1.0 / len(members)
            END AS share
        FROM (
            SELECT unnest(labels, recursive := TRUE, max_depth := 2), known_values
            FROM (
                SELECT
                    list(struct_pack(n := n, members := members)) AS labels,
                    list_concat(
                        coalesce(flatten(list(members) FILTER (len(members) > 1)), []),
                        list_concat(wanted, list_concat(others, []::VARCHAR[]))
                    ) AS known_values
                FROM (
                    SELECT
                        n,
                        CASE
                            WHEN typeof(label) = 'VARCHAR[]' THEN TRY_CAST(label AS VARCHAR[])
                            WHEN label IS NULL THEN NULL
                            WHEN regexp_full_match(label::VARCHAR, '\{("([^"]|"")*"|[^",{}\s][^",{}]*)(, ("([^"]|"")*"|[^",{}\s][^",{}]*))*\}')
                            THEN (
                                '["' || replace(replace(replace(
                                    array_to_string(
                                        regexp_extract_all(
                                            regexp_replace((label::VARCHAR)[2:-2], '"((?:[^"]|"")*)"|([^",{}\s][^",{}]*)', '"\1\2"', 'g'),
                                            '"((?:[^"]|"")*)"',
                                            1
                                        ),
                                        ' " '
                                    ),
                                    '\', '\\'), '""', '\"'), ' " ', '", "')
                                || '"]'
                            )::VARCHAR[]
                            ELSE [label::VARCHAR]
                        END AS members
                    FROM (
                        SELECT COLUMNS([attribute]), count(*)
                        FROM query_table(rel)
                        GROUP BY ALL
                    ) AS c(label, n)
                )
            )
        )
    )
);

-- How many rows show * in a column, and their share: one row for each column, none of an empty relation.
CREATE OR REPLACE MACRO sqlanon.suppressed_values(rel, qi) AS TABLE (
    SELECT attribute, suppressed, rows, suppressed * 1.0 / rows AS share
    FROM (
        SELECT unnest([*COLUMNS(*)], recursive := TRUE)
        FROM (
            SELECT struct_pack(
                attribute := any_value(alias(COLUMNS(list_concat(qi, []::VARCHAR[])))),
                suppressed := count(CASE
                    WHEN COLUMNS(list_concat(qi, []::VARCHAR[]))::VARCHAR IN ('*', '[*]') THEN 1
                END),
                rows := count(*)
            )
            FROM query_table(rel)
        )
    )
    WHERE rows > 0
);
