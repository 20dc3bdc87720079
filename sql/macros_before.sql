-- Macros in the words of earlier builds of this version. `verify` accepts them in a release file.

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
                CASE WHEN dated THEN l::DATE - DATE '1970-01-01' ELSE l::DECIMAL(38, 12) END AS lower,
                CASE WHEN dated THEN h::DATE - DATE '1970-01-01' ELSE h::DECIMAL(38, 12) END AS upper,
                CASE
                    WHEN dated
                    THEN coalesce(
                        TRY_CAST(regexp_extract(x, '^[≥[]?([0-9]{4}-[0-9]{2}-[0-9]{2})([ T][0-9:.+-]+)?(( to |, ).+)?$', 1) AS DATE),
                        start
                    ) - DATE '1970-01-01'
                    ELSE TRY_CAST(
                        regexp_extract(x, '^[≥[]?(-?[0-9]*\.?[0-9]{1,12})((-| to |, )-?[0-9.]+\)?)?$', 1)
                        AS DECIMAL(38, 12)
                    )
                END AS a,
                CASE
                    WHEN dated
                    THEN coalesce(
                        TRY_CAST(
                            regexp_extract(x, '(^<?| to |, )([0-9]{4}-[0-9]{2}-[0-9]{2})([ T][0-9:.+-]+)?\)?$', 2)
                            AS DATE
                        ) - regexp_matches(x, '^<|\)$')::INTEGER,
                        (start + CASE length(x)
                            WHEN 4 THEN to_months(12)
                            WHEN 5 THEN to_months(120)
                            WHEN 8 THEN to_days(7)
                            ELSE to_months(CASE WHEN contains(x, 'Q') THEN 3 ELSE 1 END)
                        END)::DATE - 1
                    ) - DATE '1970-01-01'
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
                    )::DATE AS start
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
            CASE WHEN dated THEN l::DATE - DATE '1970-01-01' ELSE l::DECIMAL(38, 12) END AS lower,
            CASE WHEN dated THEN h::DATE - DATE '1970-01-01' ELSE h::DECIMAL(38, 12) END AS upper,
            CASE
                WHEN dated
                THEN coalesce(
                    TRY_CAST(regexp_extract(x, '^[≥[]?([0-9]{4}-[0-9]{2}-[0-9]{2})([ T][0-9:.+-]+)?(( to |, ).+)?$', 1) AS DATE),
                    start
                ) - DATE '1970-01-01'
                ELSE TRY_CAST(
                    regexp_extract(x, '^[≥[]?(-?[0-9]*\.?[0-9]{1,12})((-| to |, )-?[0-9.]+\)?)?$', 1)
                    AS DECIMAL(38, 12)
                )
            END AS a,
            CASE
                WHEN dated
                THEN coalesce(
                    TRY_CAST(
                        regexp_extract(x, '(^<?| to |, )([0-9]{4}-[0-9]{2}-[0-9]{2})([ T][0-9:.+-]+)?\)?$', 2)
                        AS DATE
                    ) - regexp_matches(x, '^<|\)$')::INTEGER,
                    (start + CASE length(x)
                        WHEN 4 THEN to_months(12)
                        WHEN 5 THEN to_months(120)
                        WHEN 8 THEN to_days(7)
                        ELSE to_months(CASE WHEN contains(x, 'Q') THEN 3 ELSE 1 END)
                    END)::DATE - 1
                ) - DATE '1970-01-01'
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
                )::DATE AS start
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
                        CASE WHEN dated THEN l::DATE - DATE '1970-01-01' ELSE l::DECIMAL(38, 12) END AS lower,
                        CASE WHEN dated THEN h::DATE - DATE '1970-01-01' ELSE h::DECIMAL(38, 12) END AS upper,
                        CASE
                            WHEN dated
                            THEN coalesce(
                                TRY_CAST(regexp_extract(x, '^[≥[]?([0-9]{4}-[0-9]{2}-[0-9]{2})([ T][0-9:.+-]+)?(( to |, ).+)?$', 1) AS DATE),
                                start
                            ) - DATE '1970-01-01'
                            ELSE TRY_CAST(
                                regexp_extract(x, '^[≥[]?(-?[0-9]*\.?[0-9]{1,12})((-| to |, )-?[0-9.]+\)?)?$', 1)
                                AS DECIMAL(38, 12)
                            )
                        END AS a,
                        CASE
                            WHEN dated
                            THEN coalesce(
                                TRY_CAST(
                                    regexp_extract(x, '(^<?| to |, )([0-9]{4}-[0-9]{2}-[0-9]{2})([ T][0-9:.+-]+)?\)?$', 2)
                                    AS DATE
                                ) - regexp_matches(x, '^<|\)$')::INTEGER,
                                (start + CASE length(x)
                                    WHEN 4 THEN to_months(12)
                                    WHEN 5 THEN to_months(120)
                                    WHEN 8 THEN to_days(7)
                                    ELSE to_months(CASE WHEN contains(x, 'Q') THEN 3 ELSE 1 END)
                                END)::DATE - 1
                            ) - DATE '1970-01-01'
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
                            )::DATE AS start
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
