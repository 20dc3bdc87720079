-- The macro library in Spark: functions of Spark 4 (`CREATE FUNCTION ... RETURN`), for any client of it.
--
-- A function of Spark cannot be given the name of a table, as DuckDB's macros are: so the grouping is the caller's, and
-- the functions work out the figures of what was counted. docs/reference/macros_spark.md has a query for each.
--
-- sizes: of each class its rows (or persons). counts: of each value of a class its rows. pairs: the same, beside the
-- value's share q of the source. In all of them the order does not matter.

CREATE SCHEMA IF NOT EXISTS sqlanon;

-- k (the smallest class), the classes, the rows, and the rows that are alone in their class.
CREATE OR REPLACE FUNCTION sqlanon.k_anonymity(sizes ARRAY<BIGINT>)
RETURNS TABLE (k BIGINT, classes BIGINT, `rows` BIGINT, uniques BIGINT)
RETURN SELECT
    array_min(sizes),
    CAST(array_size(sizes) AS BIGINT),
    aggregate(sizes, 0L, (total, n) -> total + n),
    CAST(array_size(filter(sizes, n -> n = 1)) AS BIGINT);

-- average_risk: the classes by the sum of their sizes; sample_uniqueness: the classes of size 1 by the same sum.
CREATE OR REPLACE FUNCTION sqlanon.average_risk(sizes ARRAY<BIGINT>)
RETURNS TABLE (average_risk DOUBLE, sample_uniqueness DOUBLE, classes BIGINT)
RETURN SELECT
    array_size(sizes) / nullif(aggregate(sizes, 0L, (total, n) -> total + n), 0),
    array_size(filter(sizes, n -> n = 1)) / nullif(aggregate(sizes, 0L, (total, n) -> total + n), 0),
    CAST(array_size(sizes) AS BIGINT);

-- Of a class, e to the entropy of its values: it is l where l values are equally frequent.
CREATE OR REPLACE FUNCTION sqlanon.entropy_l(counts ARRAY<BIGINT>) RETURNS DOUBLE
RETURN exp(
    ln(aggregate(counts, 0L, (total, n) -> total + n))
    - aggregate(counts, 0D, (total, n) -> total + n * ln(n)) / aggregate(counts, 0L, (total, n) -> total + n)
);

-- Of a class, the most frequent value's count by those of the l-th and rarer together: it is recursive (c, l)-diverse
-- for every c above it (infinity: it has fewer than l values; l = 1 always holds: 0).
CREATE OR REPLACE FUNCTION sqlanon.recursive_c(counts ARRAY<BIGINT>, l INT) RETURNS DOUBLE
RETURN CASE
    WHEN l > 1 AND array_size(counts) < l THEN double('infinity')
    WHEN l > 1
    THEN array_max(counts) / aggregate(slice(sort_array(counts, FALSE), l, array_size(counts)), 0L, (total, n) -> total + n)
    WHEN l = 1 THEN 0D
    ELSE raise_error('l must be a whole number, 1 or more')
END;

-- Of a class, the greatest share of a value: the alpha of (alpha, k)-anonymity.
CREATE OR REPLACE FUNCTION sqlanon.alpha(counts ARRAY<BIGINT>) RETURNS DOUBLE
RETURN array_max(counts) / aggregate(counts, 0L, (total, n) -> total + n);

-- Of a class, the equal distance to the source: the t of t-closeness.
CREATE OR REPLACE FUNCTION sqlanon.equal_distance(pairs ARRAY<STRUCT<n: BIGINT, q: DOUBLE>>) RETURNS DOUBLE
RETURN (
    aggregate(
        pairs, 0D,
        (so_far, x) -> so_far + abs(x.n / aggregate(pairs, 0L, (total, y) -> total + y.n) - x.q) - x.q
    ) + 1
) / 2;

-- Of a class, the greatest |ln(p/q)| of a value; infinity where it lacks one of the source's, of which there are so many.
CREATE OR REPLACE FUNCTION sqlanon.delta_disclosure(pairs ARRAY<STRUCT<n: BIGINT, q: DOUBLE>>, distinct_values BIGINT)
RETURNS DOUBLE
RETURN CASE
    WHEN array_size(pairs) < distinct_values THEN double('infinity')
    ELSE array_max(transform(pairs, x -> abs(ln(x.n / aggregate(pairs, 0L, (total, y) -> total + y.n) / x.q))))
END;

-- Of a class, the greatest gain (p - q) / q of a value, at least 0; and how far a gain goes beyond its own -ln q, at
-- most (0: nowhere). Basic beta-likeness is beta <= b; the enhanced one is that and enhanced_excess = 0.
CREATE OR REPLACE FUNCTION sqlanon.beta(pairs ARRAY<STRUCT<n: BIGINT, q: DOUBLE>>) RETURNS DOUBLE
RETURN greatest(
    array_max(transform(pairs, x -> x.n / aggregate(pairs, 0L, (total, y) -> total + y.n) / x.q - 1)), 0D
);
CREATE OR REPLACE FUNCTION sqlanon.enhanced_excess(pairs ARRAY<STRUCT<n: BIGINT, q: DOUBLE>>) RETURNS DOUBLE
RETURN greatest(
    array_max(
        transform(
            filter(pairs, x -> x.n / aggregate(pairs, 0L, (total, y) -> total + y.n) > x.q),
            x -> x.n / aggregate(pairs, 0L, (total, y) -> total + y.n) / x.q - 1 + ln(x.q)
        )
    ),
    0D
);
