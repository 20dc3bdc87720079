-- The macro library: finding quasi-identifiers. The rules of macros.sql hold here, too.

-- How well columns tell rows apart (Motwani and Xu, "Efficient algorithms for masking and finding quasi-identifiers",
-- 2007): distinct, the combinations of their values; rows; distinction, the combinations by the rows (1: they are a
-- key; NULL without rows); separation, the share of the pairs of rows that differ in them (NULL of fewer than two rows).
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
