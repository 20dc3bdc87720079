-- 1. frequency set: the combinations of values with their counts; write it as Parquet, and name the files in the policy: frequency_set = "..." under [source]
SELECT
  `zip` AS `zip`,
  `age` AS `age`,
  `born` AS `born`,
  `sex` AS `sex`,
  `diagnosis` AS `diagnosis`,
  `ward` AS `ward`,
  COUNT(*) AS `n`
FROM `lake`.`clinic`.`patients`
GROUP BY
  `zip`,
  `age`,
  `born`,
  `sex`,
  `diagnosis`,
  `ward`;

-- 2. release: over uploaded tables: values with labels, sqlanon_0_zip (of 'zip'), sqlanon_1_age (of 'age'), sqlanon_2_born (of 'born'), sqlanon_3_sex (of 'sex'); suppressed classes, sqlanon_suppressed; sqlanon anonymize POLICY.toml --export FOLDER --dialect spark finds and writes them, with this statement (here: at level 1, or the lowest allowed level)
SET spark.sql.ansi.enabled = TRUE;
SET spark.sql.caseSensitive = FALSE;
SET spark.sql.variable.substitute = FALSE;
SET spark.sql.parser.escapedStringLiterals = FALSE;
SET spark.sql.parser.quotedRegexColumnNames = FALSE;
SET spark.sql.path.enabled = FALSE;
SET spark.sql.functionResolution.sessionOrder = second;
CREATE TABLE `shared`.`patients` AS
SELECT
  `zip`,
  `age`,
  `born`,
  `sex`,
  `diagnosis`,
  `ward`,
  `cost`
FROM (
  SELECT
    `h0`.`label_1` AS `zip`,
    `h1`.`label_1` AS `age`,
    `h2`.`label_1` AS `born`,
    '*' AS `sex`,
    `s`.`diagnosis` AS `diagnosis`,
    `s`.`ward` AS `ward`,
    `s`.`cost` AS `cost`
  FROM `lake`.`clinic`.`patients` AS `s`
  JOIN `sqlanon_0_zip` AS `h0`
    ON `s`.`zip` IS NOT DISTINCT FROM `h0`.`value`
  JOIN `sqlanon_1_age` AS `h1`
    ON `s`.`age` IS NOT DISTINCT FROM `h1`.`value`
  JOIN `sqlanon_2_born` AS `h2`
    ON `s`.`born` IS NOT DISTINCT FROM `h2`.`value`
  LEFT ANTI JOIN `sqlanon_suppressed` AS `x`
    ON `h0`.`code_1` = `x`.`code_0`
    AND `h1`.`code_1` = `x`.`code_1`
    AND `h2`.`code_1` = `x`.`code_2`
    AND (
      `h2`.`known`
    ) = `x`.`known`
  WHERE
    `h2`.`known`
) AS `released`
ORDER BY
  RAND();

-- 3. audit: the classes that break a requirement, one query each, and the rows in which the release differs from its statement: there should be none; then the classes; not in SQL: ordered 0.3-closeness of diagnosis
-- 5-anonymity
SELECT
  `zip` AS `zip`,
  `age` AS `age`,
  `born` AS `born`,
  `sex` AS `sex`,
  COUNT(*) AS `class_size`
FROM `shared`.`patients`
GROUP BY
  `zip`,
  `age`,
  `born`,
  `sex`
HAVING
  COUNT(*) < 5;
-- distinct 2-diversity of diagnosis
SELECT
  `quasi_0` AS `zip`,
  `quasi_1` AS `age`,
  `quasi_2` AS `born`,
  `quasi_3` AS `sex`,
  COUNT(*) AS `figure`
FROM (
  SELECT
    `quasi_0`,
    `quasi_1`,
    `quasi_2`,
    `quasi_3`,
    `value`,
    CAST(COUNT(*) AS DOUBLE) AS `row_count`
  FROM (
    SELECT
      `zip` AS `quasi_0`,
      `age` AS `quasi_1`,
      `born` AS `quasi_2`,
      `sex` AS `quasi_3`,
      `diagnosis` AS `value`
    FROM `shared`.`patients`
  ) AS `r`
  GROUP BY
    `quasi_0`,
    `quasi_1`,
    `quasi_2`,
    `quasi_3`,
    `value`
) AS `v`
GROUP BY
  `quasi_0`,
  `quasi_1`,
  `quasi_2`,
  `quasi_3`
HAVING
  COUNT(*) < 2;
-- entropy 1.5-diversity of diagnosis
SELECT
  `quasi_0` AS `zip`,
  `quasi_1` AS `age`,
  `quasi_2` AS `born`,
  `quasi_3` AS `sex`,
  CASE
    WHEN SUM(`row_count`) > 0
    THEN LN(SUM(`row_count`))
    WHEN SUM(`row_count`) = 0
    THEN CAST('-Infinity' AS DOUBLE)
    WHEN SUM(`row_count`) < 0
    THEN CAST('NaN' AS DOUBLE)
  END - SUM(
    `row_count` * CASE
      WHEN `row_count` > 0
      THEN LN(`row_count`)
      WHEN `row_count` = 0
      THEN CAST('-Infinity' AS DOUBLE)
      WHEN `row_count` < 0
      THEN CAST('NaN' AS DOUBLE)
    END
  ) / CAST(NULLIF(SUM(`row_count`), 0) AS DOUBLE) AS `figure`
FROM (
  SELECT
    `quasi_0`,
    `quasi_1`,
    `quasi_2`,
    `quasi_3`,
    `value`,
    CAST(COUNT(*) AS DOUBLE) AS `row_count`
  FROM (
    SELECT
      `zip` AS `quasi_0`,
      `age` AS `quasi_1`,
      `born` AS `quasi_2`,
      `sex` AS `quasi_3`,
      `diagnosis` AS `value`
    FROM `shared`.`patients`
  ) AS `r`
  GROUP BY
    `quasi_0`,
    `quasi_1`,
    `quasi_2`,
    `quasi_3`,
    `value`
) AS `v`
GROUP BY
  `quasi_0`,
  `quasi_1`,
  `quasi_2`,
  `quasi_3`
HAVING
  CASE
    WHEN SUM(`row_count`) > 0
    THEN LN(SUM(`row_count`))
    WHEN SUM(`row_count`) = 0
    THEN CAST('-Infinity' AS DOUBLE)
    WHEN SUM(`row_count`) < 0
    THEN CAST('NaN' AS DOUBLE)
  END - SUM(
    `row_count` * CASE
      WHEN `row_count` > 0
      THEN LN(`row_count`)
      WHEN `row_count` = 0
      THEN CAST('-Infinity' AS DOUBLE)
      WHEN `row_count` < 0
      THEN CAST('NaN' AS DOUBLE)
    END
  ) / CAST(NULLIF(SUM(`row_count`), 0) AS DOUBLE) < CAST(0.4054651081071644 AS DOUBLE);
-- recursive (3, 2)-diversity of diagnosis
SELECT
  `quasi_0` AS `zip`,
  `quasi_1` AS `age`,
  `quasi_2` AS `born`,
  `quasi_3` AS `sex`,
  CAST(MAX(`row_count`) AS DOUBLE) / CAST(NULLIF(SUM(CASE WHEN `place` >= 2 THEN `row_count` ELSE CAST(0 AS DOUBLE) END), 0) AS DOUBLE) AS `figure`
FROM (
  SELECT
    `quasi_0`,
    `quasi_1`,
    `quasi_2`,
    `quasi_3`,
    `row_count`,
    ROW_NUMBER() OVER (PARTITION BY `quasi_0`, `quasi_1`, `quasi_2`, `quasi_3` ORDER BY `row_count` DESC) AS `place`
  FROM (
    SELECT
      `quasi_0`,
      `quasi_1`,
      `quasi_2`,
      `quasi_3`,
      `value`,
      CAST(COUNT(*) AS DOUBLE) AS `row_count`
    FROM (
      SELECT
        `zip` AS `quasi_0`,
        `age` AS `quasi_1`,
        `born` AS `quasi_2`,
        `sex` AS `quasi_3`,
        `diagnosis` AS `value`
      FROM `shared`.`patients`
    ) AS `r`
    GROUP BY
      `quasi_0`,
      `quasi_1`,
      `quasi_2`,
      `quasi_3`,
      `value`
  ) AS `c`
) AS `v`
GROUP BY
  `quasi_0`,
  `quasi_1`,
  `quasi_2`,
  `quasi_3`
HAVING
  NOT COALESCE(
    (
      CAST(MAX(`row_count`) AS DOUBLE) / CAST(NULLIF(SUM(CASE WHEN `place` >= 2 THEN `row_count` ELSE CAST(0 AS DOUBLE) END), 0) AS DOUBLE) < CAST(3.0 AS DOUBLE)
    ),
    FALSE
  );
-- joint distinct 2-diversity of diagnosis
SELECT
  `quasi_0` AS `zip`,
  `quasi_1` AS `age`,
  `quasi_2` AS `born`,
  `quasi_3` AS `sex`,
  `quasi_4` AS `ward`,
  COUNT(*) AS `figure`
FROM (
  SELECT
    `quasi_0`,
    `quasi_1`,
    `quasi_2`,
    `quasi_3`,
    `quasi_4`,
    `value`,
    CAST(COUNT(*) AS DOUBLE) AS `row_count`
  FROM (
    SELECT
      `zip` AS `quasi_0`,
      `age` AS `quasi_1`,
      `born` AS `quasi_2`,
      `sex` AS `quasi_3`,
      `ward` AS `quasi_4`,
      `diagnosis` AS `value`
    FROM `shared`.`patients`
  ) AS `r`
  GROUP BY
    `quasi_0`,
    `quasi_1`,
    `quasi_2`,
    `quasi_3`,
    `quasi_4`,
    `value`
) AS `v`
GROUP BY
  `quasi_0`,
  `quasi_1`,
  `quasi_2`,
  `quasi_3`,
  `quasi_4`
HAVING
  COUNT(*) < 2;
-- equal 0.3-closeness of diagnosis
SELECT
  `quasi_0` AS `zip`,
  `quasi_1` AS `age`,
  `quasi_2` AS `born`,
  `quasi_3` AS `sex`,
  SUM(CASE WHEN `p` > `q` THEN `p` - `q` ELSE CAST(0 AS DOUBLE) END) AS `figure`
FROM (
  SELECT
    `c`.`quasi_0`,
    `c`.`quasi_1`,
    `c`.`quasi_2`,
    `c`.`quasi_3`,
    `c`.`p`,
    `s`.`q`,
    `s`.`values`
  FROM (
    SELECT
      `quasi_0`,
      `quasi_1`,
      `quasi_2`,
      `quasi_3`,
      `value`,
      CAST(`row_count` AS DOUBLE) / CAST(NULLIF(SUM(`row_count`) OVER (PARTITION BY `quasi_0`, `quasi_1`, `quasi_2`, `quasi_3`), 0) AS DOUBLE) AS `p`
    FROM (
      SELECT
        `quasi_0`,
        `quasi_1`,
        `quasi_2`,
        `quasi_3`,
        `value`,
        CAST(COUNT(*) AS DOUBLE) AS `row_count`
      FROM (
        SELECT
          `zip` AS `quasi_0`,
          `age` AS `quasi_1`,
          `born` AS `quasi_2`,
          `sex` AS `quasi_3`,
          `diagnosis` AS `value`
        FROM `shared`.`patients`
      ) AS `r`
      GROUP BY
        `quasi_0`,
        `quasi_1`,
        `quasi_2`,
        `quasi_3`,
        `value`
    ) AS `c`
  ) AS `c`
  JOIN (
    SELECT
      `value`,
      CAST(`row_count` AS DOUBLE) / CAST(NULLIF(SUM(`row_count`) OVER (), 0) AS DOUBLE) AS `q`,
      COUNT(*) OVER () AS `values`
    FROM (
      SELECT
        `value`,
        CAST(COUNT(*) AS DOUBLE) AS `row_count`
      FROM (
        SELECT
          `diagnosis` AS `value`
        FROM `lake`.`clinic`.`patients`
      ) AS `r`
      GROUP BY
        `value`
    ) AS `c`
  ) AS `s`
    ON `c`.`value` IS NOT DISTINCT FROM `s`.`value`
) AS `v`
GROUP BY
  `quasi_0`,
  `quasi_1`,
  `quasi_2`,
  `quasi_3`
HAVING
  SUM(CASE WHEN `p` > `q` THEN `p` - `q` ELSE CAST(0 AS DOUBLE) END) > CAST(0.30000000000099997 AS DOUBLE);
-- 1-disclosure privacy of diagnosis
SELECT
  `quasi_0` AS `zip`,
  `quasi_1` AS `age`,
  `quasi_2` AS `born`,
  `quasi_3` AS `sex`,
  MAX(
    ABS(
      CASE
        WHEN CAST(`p` AS DOUBLE) / CAST(NULLIF(`q`, 0) AS DOUBLE) > 0
        THEN LN(CAST(`p` AS DOUBLE) / CAST(NULLIF(`q`, 0) AS DOUBLE))
        WHEN CAST(`p` AS DOUBLE) / CAST(NULLIF(`q`, 0) AS DOUBLE) = 0
        THEN CAST('-Infinity' AS DOUBLE)
        WHEN CAST(`p` AS DOUBLE) / CAST(NULLIF(`q`, 0) AS DOUBLE) < 0
        THEN CAST('NaN' AS DOUBLE)
      END
    )
  ) AS `figure`
FROM (
  SELECT
    `c`.`quasi_0`,
    `c`.`quasi_1`,
    `c`.`quasi_2`,
    `c`.`quasi_3`,
    `c`.`p`,
    `s`.`q`,
    `s`.`values`
  FROM (
    SELECT
      `quasi_0`,
      `quasi_1`,
      `quasi_2`,
      `quasi_3`,
      `value`,
      CAST(`row_count` AS DOUBLE) / CAST(NULLIF(SUM(`row_count`) OVER (PARTITION BY `quasi_0`, `quasi_1`, `quasi_2`, `quasi_3`), 0) AS DOUBLE) AS `p`
    FROM (
      SELECT
        `quasi_0`,
        `quasi_1`,
        `quasi_2`,
        `quasi_3`,
        `value`,
        CAST(COUNT(*) AS DOUBLE) AS `row_count`
      FROM (
        SELECT
          `zip` AS `quasi_0`,
          `age` AS `quasi_1`,
          `born` AS `quasi_2`,
          `sex` AS `quasi_3`,
          `diagnosis` AS `value`
        FROM `shared`.`patients`
      ) AS `r`
      GROUP BY
        `quasi_0`,
        `quasi_1`,
        `quasi_2`,
        `quasi_3`,
        `value`
    ) AS `c`
  ) AS `c`
  JOIN (
    SELECT
      `value`,
      CAST(`row_count` AS DOUBLE) / CAST(NULLIF(SUM(`row_count`) OVER (), 0) AS DOUBLE) AS `q`,
      COUNT(*) OVER () AS `values`
    FROM (
      SELECT
        `value`,
        CAST(COUNT(*) AS DOUBLE) AS `row_count`
      FROM (
        SELECT
          `diagnosis` AS `value`
        FROM `lake`.`clinic`.`patients`
      ) AS `r`
      GROUP BY
        `value`
    ) AS `c`
  ) AS `s`
    ON `c`.`value` IS NOT DISTINCT FROM `s`.`value`
) AS `v`
GROUP BY
  `quasi_0`,
  `quasi_1`,
  `quasi_2`,
  `quasi_3`
HAVING
  COUNT(*) < MAX(`values`)
  OR MAX(
    ABS(
      CASE
        WHEN CAST(`p` AS DOUBLE) / CAST(NULLIF(`q`, 0) AS DOUBLE) > 0
        THEN LN(CAST(`p` AS DOUBLE) / CAST(NULLIF(`q`, 0) AS DOUBLE))
        WHEN CAST(`p` AS DOUBLE) / CAST(NULLIF(`q`, 0) AS DOUBLE) = 0
        THEN CAST('-Infinity' AS DOUBLE)
        WHEN CAST(`p` AS DOUBLE) / CAST(NULLIF(`q`, 0) AS DOUBLE) < 0
        THEN CAST('NaN' AS DOUBLE)
      END
    )
  ) > CAST(1.000000000001 AS DOUBLE);
-- enhanced 2-likeness of diagnosis
SELECT
  `quasi_0` AS `zip`,
  `quasi_1` AS `age`,
  `quasi_2` AS `born`,
  `quasi_3` AS `sex`,
  MAX(
    CAST(`p` AS DOUBLE) / CAST(NULLIF(`q`, 0) AS DOUBLE) / NULLIF(
      (
        CAST(1.0 AS DOUBLE) + CASE
          WHEN -CASE
            WHEN `q` > 0
            THEN LN(`q`)
            WHEN `q` = 0
            THEN CAST('-Infinity' AS DOUBLE)
            WHEN `q` < 0
            THEN CAST('NaN' AS DOUBLE)
          END < CAST(2.0 AS DOUBLE)
          THEN -CASE
            WHEN `q` > 0
            THEN LN(`q`)
            WHEN `q` = 0
            THEN CAST('-Infinity' AS DOUBLE)
            WHEN `q` < 0
            THEN CAST('NaN' AS DOUBLE)
          END
          ELSE CAST(2.0 AS DOUBLE)
        END
      ),
      0
    )
  ) AS `figure`
FROM (
  SELECT
    `c`.`quasi_0`,
    `c`.`quasi_1`,
    `c`.`quasi_2`,
    `c`.`quasi_3`,
    `c`.`p`,
    `s`.`q`,
    `s`.`values`
  FROM (
    SELECT
      `quasi_0`,
      `quasi_1`,
      `quasi_2`,
      `quasi_3`,
      `value`,
      CAST(`row_count` AS DOUBLE) / CAST(NULLIF(SUM(`row_count`) OVER (PARTITION BY `quasi_0`, `quasi_1`, `quasi_2`, `quasi_3`), 0) AS DOUBLE) AS `p`
    FROM (
      SELECT
        `quasi_0`,
        `quasi_1`,
        `quasi_2`,
        `quasi_3`,
        `value`,
        CAST(COUNT(*) AS DOUBLE) AS `row_count`
      FROM (
        SELECT
          `zip` AS `quasi_0`,
          `age` AS `quasi_1`,
          `born` AS `quasi_2`,
          `sex` AS `quasi_3`,
          `diagnosis` AS `value`
        FROM `shared`.`patients`
      ) AS `r`
      GROUP BY
        `quasi_0`,
        `quasi_1`,
        `quasi_2`,
        `quasi_3`,
        `value`
    ) AS `c`
  ) AS `c`
  JOIN (
    SELECT
      `value`,
      CAST(`row_count` AS DOUBLE) / CAST(NULLIF(SUM(`row_count`) OVER (), 0) AS DOUBLE) AS `q`,
      COUNT(*) OVER () AS `values`
    FROM (
      SELECT
        `value`,
        CAST(COUNT(*) AS DOUBLE) AS `row_count`
      FROM (
        SELECT
          `diagnosis` AS `value`
        FROM `lake`.`clinic`.`patients`
      ) AS `r`
      GROUP BY
        `value`
    ) AS `c`
  ) AS `s`
    ON `c`.`value` IS NOT DISTINCT FROM `s`.`value`
) AS `v`
GROUP BY
  `quasi_0`,
  `quasi_1`,
  `quasi_2`,
  `quasi_3`
HAVING
  MAX(
    CAST(`p` AS DOUBLE) / CAST(NULLIF(`q`, 0) AS DOUBLE) / NULLIF(
      (
        CAST(1.0 AS DOUBLE) + CASE
          WHEN -CASE
            WHEN `q` > 0
            THEN LN(`q`)
            WHEN `q` = 0
            THEN CAST('-Infinity' AS DOUBLE)
            WHEN `q` < 0
            THEN CAST('NaN' AS DOUBLE)
          END < CAST(2.0 AS DOUBLE)
          THEN -CASE
            WHEN `q` > 0
            THEN LN(`q`)
            WHEN `q` = 0
            THEN CAST('-Infinity' AS DOUBLE)
            WHEN `q` < 0
            THEN CAST('NaN' AS DOUBLE)
          END
          ELSE CAST(2.0 AS DOUBLE)
        END
      ),
      0
    )
  ) > CAST(1.000000000001 AS DOUBLE);
-- basic 2-likeness of diagnosis
SELECT
  `quasi_0` AS `zip`,
  `quasi_1` AS `age`,
  `quasi_2` AS `born`,
  `quasi_3` AS `sex`,
  MAX(
    CAST(`p` AS DOUBLE) / CAST(NULLIF(`q`, 0) AS DOUBLE) / NULLIF((
      CAST(1.0 AS DOUBLE) + CAST(2.0 AS DOUBLE)
    ), 0)
  ) AS `figure`
FROM (
  SELECT
    `c`.`quasi_0`,
    `c`.`quasi_1`,
    `c`.`quasi_2`,
    `c`.`quasi_3`,
    `c`.`p`,
    `s`.`q`,
    `s`.`values`
  FROM (
    SELECT
      `quasi_0`,
      `quasi_1`,
      `quasi_2`,
      `quasi_3`,
      `value`,
      CAST(`row_count` AS DOUBLE) / CAST(NULLIF(SUM(`row_count`) OVER (PARTITION BY `quasi_0`, `quasi_1`, `quasi_2`, `quasi_3`), 0) AS DOUBLE) AS `p`
    FROM (
      SELECT
        `quasi_0`,
        `quasi_1`,
        `quasi_2`,
        `quasi_3`,
        `value`,
        CAST(COUNT(*) AS DOUBLE) AS `row_count`
      FROM (
        SELECT
          `zip` AS `quasi_0`,
          `age` AS `quasi_1`,
          `born` AS `quasi_2`,
          `sex` AS `quasi_3`,
          `diagnosis` AS `value`
        FROM `shared`.`patients`
      ) AS `r`
      GROUP BY
        `quasi_0`,
        `quasi_1`,
        `quasi_2`,
        `quasi_3`,
        `value`
    ) AS `c`
  ) AS `c`
  JOIN (
    SELECT
      `value`,
      CAST(`row_count` AS DOUBLE) / CAST(NULLIF(SUM(`row_count`) OVER (), 0) AS DOUBLE) AS `q`,
      COUNT(*) OVER () AS `values`
    FROM (
      SELECT
        `value`,
        CAST(COUNT(*) AS DOUBLE) AS `row_count`
      FROM (
        SELECT
          `diagnosis` AS `value`
        FROM `lake`.`clinic`.`patients`
      ) AS `r`
      GROUP BY
        `value`
    ) AS `c`
  ) AS `s`
    ON `c`.`value` IS NOT DISTINCT FROM `s`.`value`
) AS `v`
GROUP BY
  `quasi_0`,
  `quasi_1`,
  `quasi_2`,
  `quasi_3`
HAVING
  MAX(
    CAST(`p` AS DOUBLE) / CAST(NULLIF(`q`, 0) AS DOUBLE) / NULLIF((
      CAST(1.0 AS DOUBLE) + CAST(2.0 AS DOUBLE)
    ), 0)
  ) > CAST(1.000000000001 AS DOUBLE);
-- share of at most 0.5 of each diagnosis
SELECT
  `quasi_0` AS `zip`,
  `quasi_1` AS `age`,
  `quasi_2` AS `born`,
  `quasi_3` AS `sex`,
  CAST(MAX(`row_count`) AS DOUBLE) / CAST(NULLIF(SUM(`row_count`), 0) AS DOUBLE) AS `figure`
FROM (
  SELECT
    `quasi_0`,
    `quasi_1`,
    `quasi_2`,
    `quasi_3`,
    `value`,
    CAST(COUNT(*) AS DOUBLE) AS `row_count`
  FROM (
    SELECT
      `zip` AS `quasi_0`,
      `age` AS `quasi_1`,
      `born` AS `quasi_2`,
      `sex` AS `quasi_3`,
      `diagnosis` AS `value`
    FROM `shared`.`patients`
  ) AS `r`
  GROUP BY
    `quasi_0`,
    `quasi_1`,
    `quasi_2`,
    `quasi_3`,
    `value`
) AS `v`
GROUP BY
  `quasi_0`,
  `quasi_1`,
  `quasi_2`,
  `quasi_3`
HAVING
  CAST(MAX(`row_count`) AS DOUBLE) / CAST(NULLIF(SUM(`row_count`), 0) AS DOUBLE) > CAST(0.500000000001 AS DOUBLE);
-- 20-anonymity of zip
SELECT
  `zip` AS `zip`,
  COUNT(*) AS `class_size`
FROM `shared`.`patients`
GROUP BY
  `zip`
HAVING
  COUNT(*) < 20;
-- average risk of at most 0.2
SELECT
  CAST(COUNT(*) AS DOUBLE) / CAST(NULLIF(SUM(`row_count`), 0) AS DOUBLE) AS `figure`
FROM (
  SELECT
    COUNT(*) AS `row_count`
  FROM `shared`.`patients`
  GROUP BY
    `zip`,
    `age`,
    `born`,
    `sex`
) AS `classes`
HAVING
  CAST(COUNT(*) AS DOUBLE) / CAST(NULLIF(SUM(`row_count`), 0) AS DOUBLE) > CAST(0.20000000000100002 AS DOUBLE);
-- sample uniqueness of at most 0.01
SELECT
  CAST(SUM(CASE WHEN `row_count` = 1 THEN 1 ELSE 0 END) AS DOUBLE) / CAST(NULLIF(SUM(`row_count`), 0) AS DOUBLE) AS `figure`
FROM (
  SELECT
    COUNT(*) AS `row_count`
  FROM `shared`.`patients`
  GROUP BY
    `zip`,
    `age`,
    `born`,
    `sex`
) AS `classes`
HAVING
  CAST(SUM(CASE WHEN `row_count` = 1 THEN 1 ELSE 0 END) AS DOUBLE) / CAST(NULLIF(SUM(`row_count`), 0) AS DOUBLE) > CAST(0.010000000001 AS DOUBLE);
-- the rows in which the release and the statement differ
SELECT
  `zip`,
  `age`,
  `born`,
  `sex`,
  `diagnosis`,
  `ward`,
  `cost`,
  SUM(`in_statement`) AS `rows_of_statement`,
  SUM(`in_release`) AS `rows_of_release`
FROM (
  SELECT
    `zip`,
    `age`,
    `born`,
    `sex`,
    `diagnosis`,
    `ward`,
    `cost`,
    1 AS `in_statement`,
    0 AS `in_release`
  FROM (
    SELECT
      `h0`.`label_1` AS `zip`,
      `h1`.`label_1` AS `age`,
      `h2`.`label_1` AS `born`,
      '*' AS `sex`,
      `s`.`diagnosis` AS `diagnosis`,
      `s`.`ward` AS `ward`,
      `s`.`cost` AS `cost`
    FROM `lake`.`clinic`.`patients` AS `s`
    JOIN `sqlanon_0_zip` AS `h0`
      ON `s`.`zip` IS NOT DISTINCT FROM `h0`.`value`
    JOIN `sqlanon_1_age` AS `h1`
      ON `s`.`age` IS NOT DISTINCT FROM `h1`.`value`
    JOIN `sqlanon_2_born` AS `h2`
      ON `s`.`born` IS NOT DISTINCT FROM `h2`.`value`
    LEFT ANTI JOIN `sqlanon_suppressed` AS `x`
      ON `h0`.`code_1` = `x`.`code_0`
      AND `h1`.`code_1` = `x`.`code_1`
      AND `h2`.`code_1` = `x`.`code_2`
      AND (
        `h2`.`known`
      ) = `x`.`known`
    WHERE
      `h2`.`known`
  ) AS `statement`
  UNION ALL
  SELECT
    `zip`,
    `age`,
    `born`,
    `sex`,
    `diagnosis`,
    `ward`,
    `cost`,
    0 AS `in_statement`,
    1 AS `in_release`
  FROM `shared`.`patients`
) AS `compared`
GROUP BY
  `zip`,
  `age`,
  `born`,
  `sex`,
  `diagnosis`,
  `ward`,
  `cost`
HAVING
  SUM(`in_statement`) <> SUM(`in_release`);
-- the classes
SELECT
  COALESCE(CAST(SUM(`row_count`) AS BIGINT), 0) AS `released_rows`,
  COUNT(*) AS `classes`,
  COALESCE(MIN(`row_count`), 0) AS `smallest_class`
FROM (
  SELECT
    COUNT(*) AS `row_count`
  FROM `shared`.`patients`
  GROUP BY
    `zip`,
    `age`,
    `born`,
    `sex`
) AS `classes`;

-- The size of the lattice depends on the data: on the values of zip.

-- 1. frequency set: the combinations of values with their counts; write it as Parquet, and name the files in the policy: frequency_set = "..." under [source]
SELECT
  `zip` AS `zip`,
  `age` AS `age`,
  `born` AS `born`,
  `sex` AS `sex`,
  COUNT(*) AS `n`
FROM (SELECT * FROM clinic.patients WHERE year = 2024 -- this year's
) AS `source`
GROUP BY
  `zip`,
  `age`,
  `born`,
  `sex`;

-- 2. release: over uploaded tables: values with labels, sqlanon_0_zip (of 'zip'), sqlanon_1_age (of 'age'), sqlanon_2_born (of 'born'), sqlanon_3_sex (of 'sex'); suppressed classes, sqlanon_suppressed; sqlanon anonymize POLICY.toml --export FOLDER --dialect spark finds and writes them, with this statement (here: at level 1, or the lowest allowed level)
SET spark.sql.ansi.enabled = TRUE;
SET spark.sql.caseSensitive = FALSE;
SET spark.sql.variable.substitute = FALSE;
SET spark.sql.parser.escapedStringLiterals = FALSE;
SET spark.sql.parser.quotedRegexColumnNames = FALSE;
SET spark.sql.path.enabled = FALSE;
SET spark.sql.functionResolution.sessionOrder = second;
CREATE TABLE `shared`.`patients` AS
SELECT
  `zip`,
  `age`,
  `born`,
  `sex`,
  `diagnosis`,
  `ward`,
  `cost`
FROM (
  SELECT
    CASE
      WHEN NOT `h2`.`known` OR NOT `x`.`known` IS NULL
      THEN '*'
      ELSE `h0`.`label_1`
    END AS `zip`,
    CASE
      WHEN NOT `h2`.`known` OR NOT `x`.`known` IS NULL
      THEN '*'
      ELSE `h1`.`label_1`
    END AS `age`,
    CASE
      WHEN NOT `h2`.`known` OR NOT `x`.`known` IS NULL
      THEN '*'
      ELSE `h2`.`label_1`
    END AS `born`,
    '*' AS `sex`,
    `s`.`diagnosis` AS `diagnosis`,
    `s`.`ward` AS `ward`,
    `s`.`cost` AS `cost`
  FROM (SELECT * FROM clinic.patients WHERE year = 2024 -- this year's
  ) AS `s`
  JOIN `sqlanon_0_zip` AS `h0`
    ON `s`.`zip` IS NOT DISTINCT FROM `h0`.`value`
  JOIN `sqlanon_1_age` AS `h1`
    ON `s`.`age` IS NOT DISTINCT FROM `h1`.`value`
  JOIN `sqlanon_2_born` AS `h2`
    ON `s`.`born` IS NOT DISTINCT FROM `h2`.`value`
  LEFT JOIN `sqlanon_suppressed` AS `x`
    ON `h0`.`code_1` = `x`.`code_0`
    AND `h1`.`code_1` = `x`.`code_1`
    AND `h2`.`code_1` = `x`.`code_2`
    AND (
      `h2`.`known`
    ) = `x`.`known`
) AS `released`
ORDER BY
  RAND();

-- 3. audit: the classes that break a requirement, one query each, and the rows in which the release differs from its statement: there should be none; then the classes
-- 5-anonymity
SELECT
  `zip` AS `zip`,
  `age` AS `age`,
  `born` AS `born`,
  `sex` AS `sex`,
  COUNT(*) AS `class_size`
FROM `shared`.`patients`
GROUP BY
  `zip`,
  `age`,
  `born`,
  `sex`
HAVING
  COUNT(*) < 5;
-- the rows in which the release and the statement differ
SELECT
  `zip`,
  `age`,
  `born`,
  `sex`,
  `diagnosis`,
  `ward`,
  `cost`,
  SUM(`in_statement`) AS `rows_of_statement`,
  SUM(`in_release`) AS `rows_of_release`
FROM (
  SELECT
    `zip`,
    `age`,
    `born`,
    `sex`,
    `diagnosis`,
    `ward`,
    `cost`,
    1 AS `in_statement`,
    0 AS `in_release`
  FROM (
    SELECT
      CASE
        WHEN NOT `h2`.`known` OR NOT `x`.`known` IS NULL
        THEN '*'
        ELSE `h0`.`label_1`
      END AS `zip`,
      CASE
        WHEN NOT `h2`.`known` OR NOT `x`.`known` IS NULL
        THEN '*'
        ELSE `h1`.`label_1`
      END AS `age`,
      CASE
        WHEN NOT `h2`.`known` OR NOT `x`.`known` IS NULL
        THEN '*'
        ELSE `h2`.`label_1`
      END AS `born`,
      '*' AS `sex`,
      `s`.`diagnosis` AS `diagnosis`,
      `s`.`ward` AS `ward`,
      `s`.`cost` AS `cost`
    FROM (SELECT * FROM clinic.patients WHERE year = 2024 -- this year's
    ) AS `s`
    JOIN `sqlanon_0_zip` AS `h0`
      ON `s`.`zip` IS NOT DISTINCT FROM `h0`.`value`
    JOIN `sqlanon_1_age` AS `h1`
      ON `s`.`age` IS NOT DISTINCT FROM `h1`.`value`
    JOIN `sqlanon_2_born` AS `h2`
      ON `s`.`born` IS NOT DISTINCT FROM `h2`.`value`
    LEFT JOIN `sqlanon_suppressed` AS `x`
      ON `h0`.`code_1` = `x`.`code_0`
      AND `h1`.`code_1` = `x`.`code_1`
      AND `h2`.`code_1` = `x`.`code_2`
      AND (
        `h2`.`known`
      ) = `x`.`known`
  ) AS `statement`
  UNION ALL
  SELECT
    `zip`,
    `age`,
    `born`,
    `sex`,
    `diagnosis`,
    `ward`,
    `cost`,
    0 AS `in_statement`,
    1 AS `in_release`
  FROM `shared`.`patients`
) AS `compared`
GROUP BY
  `zip`,
  `age`,
  `born`,
  `sex`,
  `diagnosis`,
  `ward`,
  `cost`
HAVING
  SUM(`in_statement`) <> SUM(`in_release`);
-- the classes
SELECT
  COALESCE(CAST(SUM(`row_count`) AS BIGINT), 0) AS `released_rows`,
  COUNT(*) AS `classes`,
  COALESCE(MIN(`row_count`), 0) AS `smallest_class`
FROM (
  SELECT
    COUNT(*) AS `row_count`
  FROM `shared`.`patients`
  GROUP BY
    `zip`,
    `age`,
    `born`,
    `sex`
) AS `classes`;

-- The size of the lattice depends on the data: on the values of zip.
