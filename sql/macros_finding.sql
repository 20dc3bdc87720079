-- The macro library: finding quasi-identifiers. The rules of macros.sql apply here, too.

-- How well columns distinguish rows (Motwani and Xu, "Efficient algorithms for masking and finding quasi-identifiers",
-- 2007): the number of distinct combinations of their values (distinct) and of rows; distinct / rows (distinction: 1 for a
-- key, NULL without rows); and the share of pairs of rows that differ in them (separation: NULL below two rows).
CREATE OR REPLACE MACRO sqlanon.distinction(rel, qi) AS TABLE (
    SELECT
        count(*) AS "distinct",
        coalesce(sum("sqlanon class size"), 0)::BIGINT AS rows,
        count(*) / nullif(fsum("sqlanon class size"), 0) AS distinction,
        1 - fsum("sqlanon class size" * ("sqlanon class size" - 1))
            / nullif(fsum("sqlanon class size") * (fsum("sqlanon class size") - 1), 0) AS separation
    FROM (
        SELECT count(*), COLUMNS(list_concat(qi, []::VARCHAR[]))
        FROM query_table(rel)
        GROUP BY ALL
    ) AS c("sqlanon class size")
);
