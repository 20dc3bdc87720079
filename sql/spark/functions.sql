-- The macro library in Spark: functions of Spark 4 (`CREATE FUNCTION ... RETURN`), for any client of it.
--
-- A function of Spark cannot take the name of a table, as DuckDB's macros do. So the caller groups and counts, and the
-- functions compute the figures from the counts. docs/reference/macros_spark.md has a query for each.
--
-- sizes has the rows (or persons) of each class, counts the rows of each value of a class, and pairs the same counts with
-- the share q of the value in the source. Their order does not matter.

CREATE SCHEMA IF NOT EXISTS sqlanon;

-- The size of the smallest class (k), the number of classes, of rows, and of rows that are alone in their class.
CREATE OR REPLACE FUNCTION sqlanon.k_anonymity(sizes ARRAY<BIGINT>)
RETURNS TABLE (k BIGINT, classes BIGINT, `rows` BIGINT, uniques BIGINT)
RETURN SELECT
    array_min(sizes),
    CAST(array_size(sizes) AS BIGINT),
    aggregate(sizes, 0L, (total, n) -> total + n),
    CAST(array_size(filter(sizes, n -> n = 1)) AS BIGINT);

-- The number of classes / the sum of their sizes (average_risk), and the classes of size 1 / the same sum
-- (sample_uniqueness).
CREATE OR REPLACE FUNCTION sqlanon.average_risk(sizes ARRAY<BIGINT>)
RETURNS TABLE (average_risk DOUBLE, sample_uniqueness DOUBLE, classes BIGINT)
RETURN SELECT
    array_size(sizes) / nullif(aggregate(sizes, 0L, (total, n) -> total + n), 0),
    array_size(filter(sizes, n -> n = 1)) / nullif(aggregate(sizes, 0L, (total, n) -> total + n), 0),
    CAST(array_size(sizes) AS BIGINT);

-- e to the power of the entropy of a class (l if l values are equally frequent).
CREATE OR REPLACE FUNCTION sqlanon.entropy_l(counts ARRAY<BIGINT>) RETURNS DOUBLE
RETURN exp(
    ln(aggregate(counts, 0L, (total, n) -> total + n))
    - aggregate(counts, 0D, (total, n) -> total + n * ln(n)) / aggregate(counts, 0L, (total, n) -> total + n)
);

-- The count of the most frequent value of a class / the sum of the counts from the l-th value on: the class is recursive
-- (c, l)-diverse for each greater c (infinity if it has fewer than l values, 0 for l = 1).
CREATE OR REPLACE FUNCTION sqlanon.recursive_c(counts ARRAY<BIGINT>, l INT) RETURNS DOUBLE
RETURN CASE
    WHEN l > 1 AND array_size(counts) < l THEN double('infinity')
    WHEN l > 1
    THEN array_max(counts) / aggregate(slice(sort_array(counts, FALSE), l, array_size(counts)), 0L, (total, n) -> total + n)
    WHEN l = 1 THEN 0D
    ELSE raise_error('l must be a whole number, 1 or more')
END;

-- The greatest share of a value in a class: the alpha of (alpha, k)-anonymity.
CREATE OR REPLACE FUNCTION sqlanon.alpha(counts ARRAY<BIGINT>) RETURNS DOUBLE
RETURN array_max(counts) / aggregate(counts, 0L, (total, n) -> total + n);

-- The equal distance of a class from the source: the t of t-closeness.
CREATE OR REPLACE FUNCTION sqlanon.equal_distance(pairs ARRAY<STRUCT<n: BIGINT, q: DOUBLE>>) RETURNS DOUBLE
RETURN (
    aggregate(
        pairs, 0D,
        (so_far, x) -> so_far + abs(x.n / aggregate(pairs, 0L, (total, y) -> total + y.n) - x.q) - x.q
    ) + 1
) / 2;

-- The greatest |ln(p/q)| of a value in a class; infinity if the class lacks one of the source's
-- `distinct_values` values.
CREATE OR REPLACE FUNCTION sqlanon.delta_disclosure(pairs ARRAY<STRUCT<n: BIGINT, q: DOUBLE>>, distinct_values BIGINT)
RETURNS DOUBLE
RETURN CASE
    WHEN array_size(pairs) < distinct_values THEN double('infinity')
    ELSE array_max(transform(pairs, x -> abs(ln(x.n / aggregate(pairs, 0L, (total, y) -> total + y.n) / x.q))))
END;

-- The greatest gain (p - q) / q of a value in a class (beta, at least 0), and the most by which a gain exceeds its own
-- -ln q (enhanced_excess, 0: never). Basic beta-likeness means beta <= b; the enhanced one also enhanced_excess = 0.
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
