-- 1. frequency set: the combinations of values with their counts; write it as Parquet, and name the files in the policy: frequency_set = "..." under [source]
SELECT
  "zip" AS "zip",
  "age" AS "age",
  "born" AS "born",
  "sex" AS "sex",
  "diagnosis" AS "diagnosis",
  "ward" AS "ward",
  pg_catalog.COUNT(*) AS "n"
FROM "lake"."clinic"."patients"
GROUP BY
  "zip",
  "age",
  "born",
  "sex",
  "diagnosis",
  "ward",
  pg_catalog.concat("zip") COLLATE "pg_catalog"."C",
  pg_catalog.concat("age") COLLATE "pg_catalog"."C",
  pg_catalog.concat("born") COLLATE "pg_catalog"."C",
  pg_catalog.concat("sex") COLLATE "pg_catalog"."C",
  pg_catalog.concat("diagnosis") COLLATE "pg_catalog"."C",
  pg_catalog.concat("ward") COLLATE "pg_catalog"."C";

-- 2. release: over uploaded tables: values with labels, sqlanon_0_zip (of 'zip'), sqlanon_1_age (of 'age'), sqlanon_2_born (of 'born'), sqlanon_3_sex (of 'sex'); suppressed classes, sqlanon_suppressed; sqlanon anonymize POLICY.toml --export FOLDER --dialect postgres finds and writes them, with this statement (here: at level 1, or the lowest allowed level)
SET standard_conforming_strings = on;
CREATE TABLE "shared"."patients" AS
SELECT
  "zip",
  "age",
  "born",
  "sex",
  "diagnosis",
  "ward",
  "cost"
FROM (
  SELECT
    "h0"."label_1" AS "zip",
    "h1"."label_1" AS "age",
    "h2"."label_1" AS "born",
    '*' AS "sex",
    "s"."diagnosis" AS "diagnosis",
    "s"."ward" AS "ward",
    "s"."cost" AS "cost"
  FROM "lake"."clinic"."patients" AS "s"
  JOIN "sqlanon_0_zip" AS "h0"
    ON (
      (
        "s"."zip" IS NULL AND "h0"."value" IS NULL
      )
      OR COALESCE((
        "s"."zip" OPERATOR(pg_catalog.=) "h0"."value"
      ), FALSE)
    )
  JOIN "sqlanon_1_age" AS "h1"
    ON (
      (
        "s"."age" IS NULL AND "h1"."value" IS NULL
      )
      OR COALESCE((
        "s"."age" OPERATOR(pg_catalog.=) "h1"."value"
      ), FALSE)
    )
  JOIN "sqlanon_2_born" AS "h2"
    ON (
      (
        "s"."born" IS NULL AND "h2"."value" IS NULL
      )
      OR COALESCE((
        "s"."born" OPERATOR(pg_catalog.=) "h2"."value"
      ), FALSE)
    )
  WHERE
    "h2"."known"
    AND NOT EXISTS(
      SELECT
        1
      FROM "sqlanon_suppressed" AS "x"
      WHERE
        (
          "h0"."code_1" OPERATOR(pg_catalog.=) "x"."code_0"
        )
        AND (
          "h1"."code_1" OPERATOR(pg_catalog.=) "x"."code_1"
        )
        AND (
          "h2"."code_1" OPERATOR(pg_catalog.=) "x"."code_2"
        )
        AND (
          (
            "h2"."known"
          ) OPERATOR(pg_catalog.=) "x"."known"
        )
    )
) AS "released"
ORDER BY
  pg_catalog.RANDOM();

-- 3. audit: the classes that break a requirement, one query each, and the rows in which the release differs from its statement: there should be none; then the classes; not in SQL: ordered 0.3-closeness of diagnosis
-- 5-anonymity
SELECT
  "zip" AS "zip",
  "age" AS "age",
  "born" AS "born",
  "sex" AS "sex",
  pg_catalog.COUNT(*) AS "class_size"
FROM "shared"."patients"
GROUP BY
  "zip",
  "age",
  "born",
  "sex"
HAVING
  (
    pg_catalog.COUNT(*) OPERATOR(pg_catalog.<) 5
  );
-- distinct 2-diversity of diagnosis
SELECT
  "quasi_0" AS "zip",
  "quasi_1" AS "age",
  "quasi_2" AS "born",
  "quasi_3" AS "sex",
  pg_catalog.COUNT(*) AS "figure"
FROM (
  SELECT
    "quasi_0",
    "quasi_1",
    "quasi_2",
    "quasi_3",
    "value",
    CAST(pg_catalog.COUNT(*) AS DOUBLE PRECISION) AS "row_count"
  FROM (
    SELECT
      "zip" AS "quasi_0",
      "age" AS "quasi_1",
      "born" AS "quasi_2",
      "sex" AS "quasi_3",
      "diagnosis" AS "value"
    FROM "shared"."patients"
  ) AS "r"
  GROUP BY
    "quasi_0",
    "quasi_1",
    "quasi_2",
    "quasi_3",
    "value"
) AS "v"
GROUP BY
  "quasi_0",
  "quasi_1",
  "quasi_2",
  "quasi_3"
HAVING
  (
    pg_catalog.COUNT(*) OPERATOR(pg_catalog.<) 2
  );
-- entropy 1.5-diversity of diagnosis
SELECT
  "quasi_0" AS "zip",
  "quasi_1" AS "age",
  "quasi_2" AS "born",
  "quasi_3" AS "sex",
  (
    pg_catalog.LN(pg_catalog.SUM("row_count")) OPERATOR(pg_catalog.-) (
      pg_catalog.SUM((
        "row_count" OPERATOR(pg_catalog.*) pg_catalog.LN("row_count")
      )) OPERATOR(pg_catalog./) CAST(CASE
        WHEN (
          pg_catalog.SUM("row_count") OPERATOR(pg_catalog.=) 0
        )
        THEN NULL
        ELSE pg_catalog.SUM("row_count")
      END AS DOUBLE PRECISION)
    )
  ) AS "figure"
FROM (
  SELECT
    "quasi_0",
    "quasi_1",
    "quasi_2",
    "quasi_3",
    "value",
    CAST(pg_catalog.COUNT(*) AS DOUBLE PRECISION) AS "row_count"
  FROM (
    SELECT
      "zip" AS "quasi_0",
      "age" AS "quasi_1",
      "born" AS "quasi_2",
      "sex" AS "quasi_3",
      "diagnosis" AS "value"
    FROM "shared"."patients"
  ) AS "r"
  GROUP BY
    "quasi_0",
    "quasi_1",
    "quasi_2",
    "quasi_3",
    "value"
) AS "v"
GROUP BY
  "quasi_0",
  "quasi_1",
  "quasi_2",
  "quasi_3"
HAVING
  (
    (
      pg_catalog.LN(pg_catalog.SUM("row_count")) OPERATOR(pg_catalog.-) (
        pg_catalog.SUM((
          "row_count" OPERATOR(pg_catalog.*) pg_catalog.LN("row_count")
        )) OPERATOR(pg_catalog./) CAST(CASE
          WHEN (
            pg_catalog.SUM("row_count") OPERATOR(pg_catalog.=) 0
          )
          THEN NULL
          ELSE pg_catalog.SUM("row_count")
        END AS DOUBLE PRECISION)
      )
    ) OPERATOR(pg_catalog.<) CAST(0.4054651081071644 AS DOUBLE PRECISION)
  );
-- recursive (3, 2)-diversity of diagnosis
SELECT
  "quasi_0" AS "zip",
  "quasi_1" AS "age",
  "quasi_2" AS "born",
  "quasi_3" AS "sex",
  (
    CAST(pg_catalog.MAX("row_count") AS DOUBLE PRECISION) OPERATOR(pg_catalog./) CAST(CASE
      WHEN (
        pg_catalog.SUM(
          CASE
            WHEN (
              "place" OPERATOR(pg_catalog.>=) 2
            )
            THEN "row_count"
            ELSE CAST(0 AS DOUBLE PRECISION)
          END
        ) OPERATOR(pg_catalog.=) 0
      )
      THEN NULL
      ELSE pg_catalog.SUM(
        CASE
          WHEN (
            "place" OPERATOR(pg_catalog.>=) 2
          )
          THEN "row_count"
          ELSE CAST(0 AS DOUBLE PRECISION)
        END
      )
    END AS DOUBLE PRECISION)
  ) AS "figure"
FROM (
  SELECT
    "quasi_0",
    "quasi_1",
    "quasi_2",
    "quasi_3",
    "row_count",
    pg_catalog.ROW_NUMBER() OVER (
      PARTITION BY "quasi_0", "quasi_1", "quasi_2", "quasi_3"
      ORDER BY "row_count" DESC NULLS LAST
    ) AS "place"
  FROM (
    SELECT
      "quasi_0",
      "quasi_1",
      "quasi_2",
      "quasi_3",
      "value",
      CAST(pg_catalog.COUNT(*) AS DOUBLE PRECISION) AS "row_count"
    FROM (
      SELECT
        "zip" AS "quasi_0",
        "age" AS "quasi_1",
        "born" AS "quasi_2",
        "sex" AS "quasi_3",
        "diagnosis" AS "value"
      FROM "shared"."patients"
    ) AS "r"
    GROUP BY
      "quasi_0",
      "quasi_1",
      "quasi_2",
      "quasi_3",
      "value"
  ) AS "c"
) AS "v"
GROUP BY
  "quasi_0",
  "quasi_1",
  "quasi_2",
  "quasi_3"
HAVING
  NOT COALESCE(
    (
      (
        (
          CAST(pg_catalog.MAX("row_count") AS DOUBLE PRECISION) OPERATOR(pg_catalog./) CAST(CASE
            WHEN (
              pg_catalog.SUM(
                CASE
                  WHEN (
                    "place" OPERATOR(pg_catalog.>=) 2
                  )
                  THEN "row_count"
                  ELSE CAST(0 AS DOUBLE PRECISION)
                END
              ) OPERATOR(pg_catalog.=) 0
            )
            THEN NULL
            ELSE pg_catalog.SUM(
              CASE
                WHEN (
                  "place" OPERATOR(pg_catalog.>=) 2
                )
                THEN "row_count"
                ELSE CAST(0 AS DOUBLE PRECISION)
              END
            )
          END AS DOUBLE PRECISION)
        ) OPERATOR(pg_catalog.<) CAST(3.0 AS DOUBLE PRECISION)
      )
    ),
    FALSE
  );
-- joint distinct 2-diversity of diagnosis
SELECT
  "quasi_0" AS "zip",
  "quasi_1" AS "age",
  "quasi_2" AS "born",
  "quasi_3" AS "sex",
  "quasi_4" AS "ward",
  pg_catalog.COUNT(*) AS "figure"
FROM (
  SELECT
    "quasi_0",
    "quasi_1",
    "quasi_2",
    "quasi_3",
    "quasi_4",
    "value",
    CAST(pg_catalog.COUNT(*) AS DOUBLE PRECISION) AS "row_count"
  FROM (
    SELECT
      "zip" AS "quasi_0",
      "age" AS "quasi_1",
      "born" AS "quasi_2",
      "sex" AS "quasi_3",
      "ward" AS "quasi_4",
      "diagnosis" AS "value"
    FROM "shared"."patients"
  ) AS "r"
  GROUP BY
    "quasi_0",
    "quasi_1",
    "quasi_2",
    "quasi_3",
    "quasi_4",
    "value"
) AS "v"
GROUP BY
  "quasi_0",
  "quasi_1",
  "quasi_2",
  "quasi_3",
  "quasi_4"
HAVING
  (
    pg_catalog.COUNT(*) OPERATOR(pg_catalog.<) 2
  );
-- equal 0.3-closeness of diagnosis
SELECT
  "quasi_0" AS "zip",
  "quasi_1" AS "age",
  "quasi_2" AS "born",
  "quasi_3" AS "sex",
  pg_catalog.SUM(
    CASE
      WHEN (
        "p" OPERATOR(pg_catalog.>) "q"
      )
      THEN (
        "p" OPERATOR(pg_catalog.-) "q"
      )
      ELSE CAST(0 AS DOUBLE PRECISION)
    END
  ) AS "figure"
FROM (
  SELECT
    "c"."quasi_0",
    "c"."quasi_1",
    "c"."quasi_2",
    "c"."quasi_3",
    "c"."p",
    "s"."q",
    "s"."values"
  FROM (
    SELECT
      "quasi_0",
      "quasi_1",
      "quasi_2",
      "quasi_3",
      "value",
      (
        CAST("row_count" AS DOUBLE PRECISION) OPERATOR(pg_catalog./) CAST(CASE
          WHEN (
            pg_catalog.SUM("row_count") OVER (PARTITION BY "quasi_0", "quasi_1", "quasi_2", "quasi_3") OPERATOR(pg_catalog.=) 0
          )
          THEN NULL
          ELSE pg_catalog.SUM("row_count") OVER (PARTITION BY "quasi_0", "quasi_1", "quasi_2", "quasi_3")
        END AS DOUBLE PRECISION)
      ) AS "p"
    FROM (
      SELECT
        "quasi_0",
        "quasi_1",
        "quasi_2",
        "quasi_3",
        "value",
        CAST(pg_catalog.COUNT(*) AS DOUBLE PRECISION) AS "row_count"
      FROM (
        SELECT
          "zip" AS "quasi_0",
          "age" AS "quasi_1",
          "born" AS "quasi_2",
          "sex" AS "quasi_3",
          "diagnosis" AS "value"
        FROM "shared"."patients"
      ) AS "r"
      GROUP BY
        "quasi_0",
        "quasi_1",
        "quasi_2",
        "quasi_3",
        "value"
    ) AS "c"
  ) AS "c"
  JOIN (
    SELECT
      "value",
      (
        CAST("row_count" AS DOUBLE PRECISION) OPERATOR(pg_catalog./) CAST(CASE
          WHEN (
            pg_catalog.SUM("row_count") OVER () OPERATOR(pg_catalog.=) 0
          )
          THEN NULL
          ELSE pg_catalog.SUM("row_count") OVER ()
        END AS DOUBLE PRECISION)
      ) AS "q",
      pg_catalog.COUNT(*) OVER () AS "values"
    FROM (
      SELECT
        "value",
        CAST(pg_catalog.COUNT(*) AS DOUBLE PRECISION) AS "row_count"
      FROM (
        SELECT
          "diagnosis" AS "value"
        FROM "lake"."clinic"."patients"
      ) AS "r"
      GROUP BY
        "value"
    ) AS "c"
  ) AS "s"
    ON (
      (
        "c"."value" IS NULL AND "s"."value" IS NULL
      )
      OR COALESCE((
        "c"."value" OPERATOR(pg_catalog.=) "s"."value"
      ), FALSE)
    )
) AS "v"
GROUP BY
  "quasi_0",
  "quasi_1",
  "quasi_2",
  "quasi_3"
HAVING
  (
    pg_catalog.SUM(
      CASE
        WHEN (
          "p" OPERATOR(pg_catalog.>) "q"
        )
        THEN (
          "p" OPERATOR(pg_catalog.-) "q"
        )
        ELSE CAST(0 AS DOUBLE PRECISION)
      END
    ) OPERATOR(pg_catalog.>) CAST(0.30000000000099997 AS DOUBLE PRECISION)
  );
-- 1-disclosure privacy of diagnosis
SELECT
  "quasi_0" AS "zip",
  "quasi_1" AS "age",
  "quasi_2" AS "born",
  "quasi_3" AS "sex",
  pg_catalog.MAX(
    pg_catalog.ABS(
      pg_catalog.LN(
        (
          CAST("p" AS DOUBLE PRECISION) OPERATOR(pg_catalog./) CAST(CASE WHEN (
            "q" OPERATOR(pg_catalog.=) 0
          ) THEN NULL ELSE "q" END AS DOUBLE PRECISION)
        )
      )
    )
  ) AS "figure"
FROM (
  SELECT
    "c"."quasi_0",
    "c"."quasi_1",
    "c"."quasi_2",
    "c"."quasi_3",
    "c"."p",
    "s"."q",
    "s"."values"
  FROM (
    SELECT
      "quasi_0",
      "quasi_1",
      "quasi_2",
      "quasi_3",
      "value",
      (
        CAST("row_count" AS DOUBLE PRECISION) OPERATOR(pg_catalog./) CAST(CASE
          WHEN (
            pg_catalog.SUM("row_count") OVER (PARTITION BY "quasi_0", "quasi_1", "quasi_2", "quasi_3") OPERATOR(pg_catalog.=) 0
          )
          THEN NULL
          ELSE pg_catalog.SUM("row_count") OVER (PARTITION BY "quasi_0", "quasi_1", "quasi_2", "quasi_3")
        END AS DOUBLE PRECISION)
      ) AS "p"
    FROM (
      SELECT
        "quasi_0",
        "quasi_1",
        "quasi_2",
        "quasi_3",
        "value",
        CAST(pg_catalog.COUNT(*) AS DOUBLE PRECISION) AS "row_count"
      FROM (
        SELECT
          "zip" AS "quasi_0",
          "age" AS "quasi_1",
          "born" AS "quasi_2",
          "sex" AS "quasi_3",
          "diagnosis" AS "value"
        FROM "shared"."patients"
      ) AS "r"
      GROUP BY
        "quasi_0",
        "quasi_1",
        "quasi_2",
        "quasi_3",
        "value"
    ) AS "c"
  ) AS "c"
  JOIN (
    SELECT
      "value",
      (
        CAST("row_count" AS DOUBLE PRECISION) OPERATOR(pg_catalog./) CAST(CASE
          WHEN (
            pg_catalog.SUM("row_count") OVER () OPERATOR(pg_catalog.=) 0
          )
          THEN NULL
          ELSE pg_catalog.SUM("row_count") OVER ()
        END AS DOUBLE PRECISION)
      ) AS "q",
      pg_catalog.COUNT(*) OVER () AS "values"
    FROM (
      SELECT
        "value",
        CAST(pg_catalog.COUNT(*) AS DOUBLE PRECISION) AS "row_count"
      FROM (
        SELECT
          "diagnosis" AS "value"
        FROM "lake"."clinic"."patients"
      ) AS "r"
      GROUP BY
        "value"
    ) AS "c"
  ) AS "s"
    ON (
      (
        "c"."value" IS NULL AND "s"."value" IS NULL
      )
      OR COALESCE((
        "c"."value" OPERATOR(pg_catalog.=) "s"."value"
      ), FALSE)
    )
) AS "v"
GROUP BY
  "quasi_0",
  "quasi_1",
  "quasi_2",
  "quasi_3"
HAVING
  (
    pg_catalog.COUNT(*) OPERATOR(pg_catalog.<) pg_catalog.MAX("values")
  )
  OR (
    pg_catalog.MAX(
      pg_catalog.ABS(
        pg_catalog.LN(
          (
            CAST("p" AS DOUBLE PRECISION) OPERATOR(pg_catalog./) CAST(CASE WHEN (
              "q" OPERATOR(pg_catalog.=) 0
            ) THEN NULL ELSE "q" END AS DOUBLE PRECISION)
          )
        )
      )
    ) OPERATOR(pg_catalog.>) CAST(1.000000000001 AS DOUBLE PRECISION)
  );
-- enhanced 2-likeness of diagnosis
SELECT
  "quasi_0" AS "zip",
  "quasi_1" AS "age",
  "quasi_2" AS "born",
  "quasi_3" AS "sex",
  pg_catalog.MAX(
    (
      (
        CAST("p" AS DOUBLE PRECISION) OPERATOR(pg_catalog./) CAST(CASE WHEN (
          "q" OPERATOR(pg_catalog.=) 0
        ) THEN NULL ELSE "q" END AS DOUBLE PRECISION)
      ) OPERATOR(pg_catalog./) CASE
        WHEN (
          (
            (
              CAST(1.0 AS DOUBLE PRECISION) OPERATOR(pg_catalog.+) CASE
                WHEN (
                  (
                    0 OPERATOR(pg_catalog.-) pg_catalog.LN("q")
                  ) OPERATOR(pg_catalog.<) CAST(2.0 AS DOUBLE PRECISION)
                )
                THEN (
                  0 OPERATOR(pg_catalog.-) pg_catalog.LN("q")
                )
                ELSE CAST(2.0 AS DOUBLE PRECISION)
              END
            )
          ) OPERATOR(pg_catalog.=) 0
        )
        THEN NULL
        ELSE (
          (
            CAST(1.0 AS DOUBLE PRECISION) OPERATOR(pg_catalog.+) CASE
              WHEN (
                (
                  0 OPERATOR(pg_catalog.-) pg_catalog.LN("q")
                ) OPERATOR(pg_catalog.<) CAST(2.0 AS DOUBLE PRECISION)
              )
              THEN (
                0 OPERATOR(pg_catalog.-) pg_catalog.LN("q")
              )
              ELSE CAST(2.0 AS DOUBLE PRECISION)
            END
          )
        )
      END
    )
  ) AS "figure"
FROM (
  SELECT
    "c"."quasi_0",
    "c"."quasi_1",
    "c"."quasi_2",
    "c"."quasi_3",
    "c"."p",
    "s"."q",
    "s"."values"
  FROM (
    SELECT
      "quasi_0",
      "quasi_1",
      "quasi_2",
      "quasi_3",
      "value",
      (
        CAST("row_count" AS DOUBLE PRECISION) OPERATOR(pg_catalog./) CAST(CASE
          WHEN (
            pg_catalog.SUM("row_count") OVER (PARTITION BY "quasi_0", "quasi_1", "quasi_2", "quasi_3") OPERATOR(pg_catalog.=) 0
          )
          THEN NULL
          ELSE pg_catalog.SUM("row_count") OVER (PARTITION BY "quasi_0", "quasi_1", "quasi_2", "quasi_3")
        END AS DOUBLE PRECISION)
      ) AS "p"
    FROM (
      SELECT
        "quasi_0",
        "quasi_1",
        "quasi_2",
        "quasi_3",
        "value",
        CAST(pg_catalog.COUNT(*) AS DOUBLE PRECISION) AS "row_count"
      FROM (
        SELECT
          "zip" AS "quasi_0",
          "age" AS "quasi_1",
          "born" AS "quasi_2",
          "sex" AS "quasi_3",
          "diagnosis" AS "value"
        FROM "shared"."patients"
      ) AS "r"
      GROUP BY
        "quasi_0",
        "quasi_1",
        "quasi_2",
        "quasi_3",
        "value"
    ) AS "c"
  ) AS "c"
  JOIN (
    SELECT
      "value",
      (
        CAST("row_count" AS DOUBLE PRECISION) OPERATOR(pg_catalog./) CAST(CASE
          WHEN (
            pg_catalog.SUM("row_count") OVER () OPERATOR(pg_catalog.=) 0
          )
          THEN NULL
          ELSE pg_catalog.SUM("row_count") OVER ()
        END AS DOUBLE PRECISION)
      ) AS "q",
      pg_catalog.COUNT(*) OVER () AS "values"
    FROM (
      SELECT
        "value",
        CAST(pg_catalog.COUNT(*) AS DOUBLE PRECISION) AS "row_count"
      FROM (
        SELECT
          "diagnosis" AS "value"
        FROM "lake"."clinic"."patients"
      ) AS "r"
      GROUP BY
        "value"
    ) AS "c"
  ) AS "s"
    ON (
      (
        "c"."value" IS NULL AND "s"."value" IS NULL
      )
      OR COALESCE((
        "c"."value" OPERATOR(pg_catalog.=) "s"."value"
      ), FALSE)
    )
) AS "v"
GROUP BY
  "quasi_0",
  "quasi_1",
  "quasi_2",
  "quasi_3"
HAVING
  (
    pg_catalog.MAX(
      (
        (
          CAST("p" AS DOUBLE PRECISION) OPERATOR(pg_catalog./) CAST(CASE WHEN (
            "q" OPERATOR(pg_catalog.=) 0
          ) THEN NULL ELSE "q" END AS DOUBLE PRECISION)
        ) OPERATOR(pg_catalog./) CASE
          WHEN (
            (
              (
                CAST(1.0 AS DOUBLE PRECISION) OPERATOR(pg_catalog.+) CASE
                  WHEN (
                    (
                      0 OPERATOR(pg_catalog.-) pg_catalog.LN("q")
                    ) OPERATOR(pg_catalog.<) CAST(2.0 AS DOUBLE PRECISION)
                  )
                  THEN (
                    0 OPERATOR(pg_catalog.-) pg_catalog.LN("q")
                  )
                  ELSE CAST(2.0 AS DOUBLE PRECISION)
                END
              )
            ) OPERATOR(pg_catalog.=) 0
          )
          THEN NULL
          ELSE (
            (
              CAST(1.0 AS DOUBLE PRECISION) OPERATOR(pg_catalog.+) CASE
                WHEN (
                  (
                    0 OPERATOR(pg_catalog.-) pg_catalog.LN("q")
                  ) OPERATOR(pg_catalog.<) CAST(2.0 AS DOUBLE PRECISION)
                )
                THEN (
                  0 OPERATOR(pg_catalog.-) pg_catalog.LN("q")
                )
                ELSE CAST(2.0 AS DOUBLE PRECISION)
              END
            )
          )
        END
      )
    ) OPERATOR(pg_catalog.>) CAST(1.000000000001 AS DOUBLE PRECISION)
  );
-- basic 2-likeness of diagnosis
SELECT
  "quasi_0" AS "zip",
  "quasi_1" AS "age",
  "quasi_2" AS "born",
  "quasi_3" AS "sex",
  pg_catalog.MAX(
    (
      (
        CAST("p" AS DOUBLE PRECISION) OPERATOR(pg_catalog./) CAST(CASE WHEN (
          "q" OPERATOR(pg_catalog.=) 0
        ) THEN NULL ELSE "q" END AS DOUBLE PRECISION)
      ) OPERATOR(pg_catalog./) CASE
        WHEN (
          (
            (
              CAST(1.0 AS DOUBLE PRECISION) OPERATOR(pg_catalog.+) CAST(2.0 AS DOUBLE PRECISION)
            )
          ) OPERATOR(pg_catalog.=) 0
        )
        THEN NULL
        ELSE (
          (
            CAST(1.0 AS DOUBLE PRECISION) OPERATOR(pg_catalog.+) CAST(2.0 AS DOUBLE PRECISION)
          )
        )
      END
    )
  ) AS "figure"
FROM (
  SELECT
    "c"."quasi_0",
    "c"."quasi_1",
    "c"."quasi_2",
    "c"."quasi_3",
    "c"."p",
    "s"."q",
    "s"."values"
  FROM (
    SELECT
      "quasi_0",
      "quasi_1",
      "quasi_2",
      "quasi_3",
      "value",
      (
        CAST("row_count" AS DOUBLE PRECISION) OPERATOR(pg_catalog./) CAST(CASE
          WHEN (
            pg_catalog.SUM("row_count") OVER (PARTITION BY "quasi_0", "quasi_1", "quasi_2", "quasi_3") OPERATOR(pg_catalog.=) 0
          )
          THEN NULL
          ELSE pg_catalog.SUM("row_count") OVER (PARTITION BY "quasi_0", "quasi_1", "quasi_2", "quasi_3")
        END AS DOUBLE PRECISION)
      ) AS "p"
    FROM (
      SELECT
        "quasi_0",
        "quasi_1",
        "quasi_2",
        "quasi_3",
        "value",
        CAST(pg_catalog.COUNT(*) AS DOUBLE PRECISION) AS "row_count"
      FROM (
        SELECT
          "zip" AS "quasi_0",
          "age" AS "quasi_1",
          "born" AS "quasi_2",
          "sex" AS "quasi_3",
          "diagnosis" AS "value"
        FROM "shared"."patients"
      ) AS "r"
      GROUP BY
        "quasi_0",
        "quasi_1",
        "quasi_2",
        "quasi_3",
        "value"
    ) AS "c"
  ) AS "c"
  JOIN (
    SELECT
      "value",
      (
        CAST("row_count" AS DOUBLE PRECISION) OPERATOR(pg_catalog./) CAST(CASE
          WHEN (
            pg_catalog.SUM("row_count") OVER () OPERATOR(pg_catalog.=) 0
          )
          THEN NULL
          ELSE pg_catalog.SUM("row_count") OVER ()
        END AS DOUBLE PRECISION)
      ) AS "q",
      pg_catalog.COUNT(*) OVER () AS "values"
    FROM (
      SELECT
        "value",
        CAST(pg_catalog.COUNT(*) AS DOUBLE PRECISION) AS "row_count"
      FROM (
        SELECT
          "diagnosis" AS "value"
        FROM "lake"."clinic"."patients"
      ) AS "r"
      GROUP BY
        "value"
    ) AS "c"
  ) AS "s"
    ON (
      (
        "c"."value" IS NULL AND "s"."value" IS NULL
      )
      OR COALESCE((
        "c"."value" OPERATOR(pg_catalog.=) "s"."value"
      ), FALSE)
    )
) AS "v"
GROUP BY
  "quasi_0",
  "quasi_1",
  "quasi_2",
  "quasi_3"
HAVING
  (
    pg_catalog.MAX(
      (
        (
          CAST("p" AS DOUBLE PRECISION) OPERATOR(pg_catalog./) CAST(CASE WHEN (
            "q" OPERATOR(pg_catalog.=) 0
          ) THEN NULL ELSE "q" END AS DOUBLE PRECISION)
        ) OPERATOR(pg_catalog./) CASE
          WHEN (
            (
              (
                CAST(1.0 AS DOUBLE PRECISION) OPERATOR(pg_catalog.+) CAST(2.0 AS DOUBLE PRECISION)
              )
            ) OPERATOR(pg_catalog.=) 0
          )
          THEN NULL
          ELSE (
            (
              CAST(1.0 AS DOUBLE PRECISION) OPERATOR(pg_catalog.+) CAST(2.0 AS DOUBLE PRECISION)
            )
          )
        END
      )
    ) OPERATOR(pg_catalog.>) CAST(1.000000000001 AS DOUBLE PRECISION)
  );
-- share of at most 0.5 of each diagnosis
SELECT
  "quasi_0" AS "zip",
  "quasi_1" AS "age",
  "quasi_2" AS "born",
  "quasi_3" AS "sex",
  (
    CAST(pg_catalog.MAX("row_count") AS DOUBLE PRECISION) OPERATOR(pg_catalog./) CAST(CASE
      WHEN (
        pg_catalog.SUM("row_count") OPERATOR(pg_catalog.=) 0
      )
      THEN NULL
      ELSE pg_catalog.SUM("row_count")
    END AS DOUBLE PRECISION)
  ) AS "figure"
FROM (
  SELECT
    "quasi_0",
    "quasi_1",
    "quasi_2",
    "quasi_3",
    "value",
    CAST(pg_catalog.COUNT(*) AS DOUBLE PRECISION) AS "row_count"
  FROM (
    SELECT
      "zip" AS "quasi_0",
      "age" AS "quasi_1",
      "born" AS "quasi_2",
      "sex" AS "quasi_3",
      "diagnosis" AS "value"
    FROM "shared"."patients"
  ) AS "r"
  GROUP BY
    "quasi_0",
    "quasi_1",
    "quasi_2",
    "quasi_3",
    "value"
) AS "v"
GROUP BY
  "quasi_0",
  "quasi_1",
  "quasi_2",
  "quasi_3"
HAVING
  (
    (
      CAST(pg_catalog.MAX("row_count") AS DOUBLE PRECISION) OPERATOR(pg_catalog./) CAST(CASE
        WHEN (
          pg_catalog.SUM("row_count") OPERATOR(pg_catalog.=) 0
        )
        THEN NULL
        ELSE pg_catalog.SUM("row_count")
      END AS DOUBLE PRECISION)
    ) OPERATOR(pg_catalog.>) CAST(0.500000000001 AS DOUBLE PRECISION)
  );
-- 20-anonymity of zip
SELECT
  "zip" AS "zip",
  pg_catalog.COUNT(*) AS "class_size"
FROM "shared"."patients"
GROUP BY
  "zip"
HAVING
  (
    pg_catalog.COUNT(*) OPERATOR(pg_catalog.<) 20
  );
-- average risk of at most 0.2
SELECT
  (
    CAST(pg_catalog.COUNT(*) AS DOUBLE PRECISION) OPERATOR(pg_catalog./) CAST(CASE
      WHEN (
        pg_catalog.SUM("row_count") OPERATOR(pg_catalog.=) 0
      )
      THEN NULL
      ELSE pg_catalog.SUM("row_count")
    END AS DOUBLE PRECISION)
  ) AS "figure"
FROM (
  SELECT
    pg_catalog.COUNT(*) AS "row_count"
  FROM "shared"."patients"
  GROUP BY
    "zip",
    "age",
    "born",
    "sex"
) AS "classes"
HAVING
  (
    (
      CAST(pg_catalog.COUNT(*) AS DOUBLE PRECISION) OPERATOR(pg_catalog./) CAST(CASE
        WHEN (
          pg_catalog.SUM("row_count") OPERATOR(pg_catalog.=) 0
        )
        THEN NULL
        ELSE pg_catalog.SUM("row_count")
      END AS DOUBLE PRECISION)
    ) OPERATOR(pg_catalog.>) CAST(0.20000000000100002 AS DOUBLE PRECISION)
  );
-- sample uniqueness of at most 0.01
SELECT
  (
    CAST(pg_catalog.SUM(CASE WHEN (
      "row_count" OPERATOR(pg_catalog.=) 1
    ) THEN 1 ELSE 0 END) AS DOUBLE PRECISION) OPERATOR(pg_catalog./) CAST(CASE
      WHEN (
        pg_catalog.SUM("row_count") OPERATOR(pg_catalog.=) 0
      )
      THEN NULL
      ELSE pg_catalog.SUM("row_count")
    END AS DOUBLE PRECISION)
  ) AS "figure"
FROM (
  SELECT
    pg_catalog.COUNT(*) AS "row_count"
  FROM "shared"."patients"
  GROUP BY
    "zip",
    "age",
    "born",
    "sex"
) AS "classes"
HAVING
  (
    (
      CAST(pg_catalog.SUM(CASE WHEN (
        "row_count" OPERATOR(pg_catalog.=) 1
      ) THEN 1 ELSE 0 END) AS DOUBLE PRECISION) OPERATOR(pg_catalog./) CAST(CASE
        WHEN (
          pg_catalog.SUM("row_count") OPERATOR(pg_catalog.=) 0
        )
        THEN NULL
        ELSE pg_catalog.SUM("row_count")
      END AS DOUBLE PRECISION)
    ) OPERATOR(pg_catalog.>) CAST(0.010000000001 AS DOUBLE PRECISION)
  );
-- the rows in which the release and the statement differ
SELECT
  "zip",
  "age",
  "born",
  "sex",
  "diagnosis",
  "ward",
  "cost",
  pg_catalog.SUM("in_statement") AS "rows_of_statement",
  pg_catalog.SUM("in_release") AS "rows_of_release"
FROM (
  SELECT
    "zip",
    "age",
    "born",
    "sex",
    "diagnosis",
    "ward",
    "cost",
    1 AS "in_statement",
    0 AS "in_release"
  FROM (
    SELECT
      "h0"."label_1" AS "zip",
      "h1"."label_1" AS "age",
      "h2"."label_1" AS "born",
      '*' AS "sex",
      "s"."diagnosis" AS "diagnosis",
      "s"."ward" AS "ward",
      "s"."cost" AS "cost"
    FROM "lake"."clinic"."patients" AS "s"
    JOIN "sqlanon_0_zip" AS "h0"
      ON (
        (
          "s"."zip" IS NULL AND "h0"."value" IS NULL
        )
        OR COALESCE((
          "s"."zip" OPERATOR(pg_catalog.=) "h0"."value"
        ), FALSE)
      )
    JOIN "sqlanon_1_age" AS "h1"
      ON (
        (
          "s"."age" IS NULL AND "h1"."value" IS NULL
        )
        OR COALESCE((
          "s"."age" OPERATOR(pg_catalog.=) "h1"."value"
        ), FALSE)
      )
    JOIN "sqlanon_2_born" AS "h2"
      ON (
        (
          "s"."born" IS NULL AND "h2"."value" IS NULL
        )
        OR COALESCE((
          "s"."born" OPERATOR(pg_catalog.=) "h2"."value"
        ), FALSE)
      )
    WHERE
      "h2"."known"
      AND NOT EXISTS(
        SELECT
          1
        FROM "sqlanon_suppressed" AS "x"
        WHERE
          (
            "h0"."code_1" OPERATOR(pg_catalog.=) "x"."code_0"
          )
          AND (
            "h1"."code_1" OPERATOR(pg_catalog.=) "x"."code_1"
          )
          AND (
            "h2"."code_1" OPERATOR(pg_catalog.=) "x"."code_2"
          )
          AND (
            (
              "h2"."known"
            ) OPERATOR(pg_catalog.=) "x"."known"
          )
      )
  ) AS "statement"
  UNION ALL
  SELECT
    "zip",
    "age",
    "born",
    "sex",
    "diagnosis",
    "ward",
    "cost",
    0 AS "in_statement",
    1 AS "in_release"
  FROM "shared"."patients"
) AS "compared"
GROUP BY
  "zip",
  "age",
  "born",
  "sex",
  "diagnosis",
  "ward",
  "cost"
HAVING
  (
    pg_catalog.SUM("in_statement") OPERATOR(pg_catalog.<>) pg_catalog.SUM("in_release")
  );
-- the classes
SELECT
  COALESCE(CAST(pg_catalog.SUM("row_count") AS BIGINT), 0) AS "released_rows",
  pg_catalog.COUNT(*) AS "classes",
  COALESCE(pg_catalog.MIN("row_count"), 0) AS "smallest_class"
FROM (
  SELECT
    pg_catalog.COUNT(*) AS "row_count"
  FROM "shared"."patients"
  GROUP BY
    "zip",
    "age",
    "born",
    "sex"
) AS "classes";

-- The size of the lattice depends on the data: on the values of zip.

-- 1. frequency set: the combinations of values with their counts; write it as Parquet, and name the files in the policy: frequency_set = "..." under [source]
SELECT
  "zip" AS "zip",
  "age" AS "age",
  "born" AS "born",
  "sex" AS "sex",
  pg_catalog.COUNT(*) AS "n"
FROM (SELECT * FROM clinic.patients WHERE year = 2024 -- this year's
) AS "source"
GROUP BY
  "zip",
  "age",
  "born",
  "sex",
  pg_catalog.concat("zip") COLLATE "pg_catalog"."C",
  pg_catalog.concat("age") COLLATE "pg_catalog"."C",
  pg_catalog.concat("born") COLLATE "pg_catalog"."C",
  pg_catalog.concat("sex") COLLATE "pg_catalog"."C";

-- 2. release: over uploaded tables: values with labels, sqlanon_0_zip (of 'zip'), sqlanon_1_age (of 'age'), sqlanon_2_born (of 'born'), sqlanon_3_sex (of 'sex'); suppressed classes, sqlanon_suppressed; sqlanon anonymize POLICY.toml --export FOLDER --dialect postgres finds and writes them, with this statement (here: at level 1, or the lowest allowed level)
SET standard_conforming_strings = on;
CREATE TABLE "shared"."patients" AS
SELECT
  "zip",
  "age",
  "born",
  "sex",
  "diagnosis",
  "ward",
  "cost"
FROM (
  SELECT
    CASE
      WHEN NOT "h2"."known" OR NOT "x"."known" IS NULL
      THEN '*'
      ELSE "h0"."label_1"
    END AS "zip",
    CASE
      WHEN NOT "h2"."known" OR NOT "x"."known" IS NULL
      THEN '*'
      ELSE "h1"."label_1"
    END AS "age",
    CASE
      WHEN NOT "h2"."known" OR NOT "x"."known" IS NULL
      THEN '*'
      ELSE "h2"."label_1"
    END AS "born",
    '*' AS "sex",
    "s"."diagnosis" AS "diagnosis",
    "s"."ward" AS "ward",
    "s"."cost" AS "cost"
  FROM (SELECT * FROM clinic.patients WHERE year = 2024 -- this year's
  ) AS "s"
  JOIN "sqlanon_0_zip" AS "h0"
    ON (
      (
        "s"."zip" IS NULL AND "h0"."value" IS NULL
      )
      OR COALESCE((
        "s"."zip" OPERATOR(pg_catalog.=) "h0"."value"
      ), FALSE)
    )
  JOIN "sqlanon_1_age" AS "h1"
    ON (
      (
        "s"."age" IS NULL AND "h1"."value" IS NULL
      )
      OR COALESCE((
        "s"."age" OPERATOR(pg_catalog.=) "h1"."value"
      ), FALSE)
    )
  JOIN "sqlanon_2_born" AS "h2"
    ON (
      (
        "s"."born" IS NULL AND "h2"."value" IS NULL
      )
      OR COALESCE((
        "s"."born" OPERATOR(pg_catalog.=) "h2"."value"
      ), FALSE)
    )
  LEFT JOIN "sqlanon_suppressed" AS "x"
    ON (
      "h0"."code_1" OPERATOR(pg_catalog.=) "x"."code_0"
    )
    AND (
      "h1"."code_1" OPERATOR(pg_catalog.=) "x"."code_1"
    )
    AND (
      "h2"."code_1" OPERATOR(pg_catalog.=) "x"."code_2"
    )
    AND (
      (
        "h2"."known"
      ) OPERATOR(pg_catalog.=) "x"."known"
    )
) AS "released"
ORDER BY
  pg_catalog.RANDOM();

-- 3. audit: the classes that break a requirement, one query each, and the rows in which the release differs from its statement: there should be none; then the classes
-- 5-anonymity
SELECT
  "zip" AS "zip",
  "age" AS "age",
  "born" AS "born",
  "sex" AS "sex",
  pg_catalog.COUNT(*) AS "class_size"
FROM "shared"."patients"
GROUP BY
  "zip",
  "age",
  "born",
  "sex"
HAVING
  (
    pg_catalog.COUNT(*) OPERATOR(pg_catalog.<) 5
  );
-- the rows in which the release and the statement differ
SELECT
  "zip",
  "age",
  "born",
  "sex",
  "diagnosis",
  "ward",
  "cost",
  pg_catalog.SUM("in_statement") AS "rows_of_statement",
  pg_catalog.SUM("in_release") AS "rows_of_release"
FROM (
  SELECT
    "zip",
    "age",
    "born",
    "sex",
    "diagnosis",
    "ward",
    "cost",
    1 AS "in_statement",
    0 AS "in_release"
  FROM (
    SELECT
      CASE
        WHEN NOT "h2"."known" OR NOT "x"."known" IS NULL
        THEN '*'
        ELSE "h0"."label_1"
      END AS "zip",
      CASE
        WHEN NOT "h2"."known" OR NOT "x"."known" IS NULL
        THEN '*'
        ELSE "h1"."label_1"
      END AS "age",
      CASE
        WHEN NOT "h2"."known" OR NOT "x"."known" IS NULL
        THEN '*'
        ELSE "h2"."label_1"
      END AS "born",
      '*' AS "sex",
      "s"."diagnosis" AS "diagnosis",
      "s"."ward" AS "ward",
      "s"."cost" AS "cost"
    FROM (SELECT * FROM clinic.patients WHERE year = 2024 -- this year's
    ) AS "s"
    JOIN "sqlanon_0_zip" AS "h0"
      ON (
        (
          "s"."zip" IS NULL AND "h0"."value" IS NULL
        )
        OR COALESCE((
          "s"."zip" OPERATOR(pg_catalog.=) "h0"."value"
        ), FALSE)
      )
    JOIN "sqlanon_1_age" AS "h1"
      ON (
        (
          "s"."age" IS NULL AND "h1"."value" IS NULL
        )
        OR COALESCE((
          "s"."age" OPERATOR(pg_catalog.=) "h1"."value"
        ), FALSE)
      )
    JOIN "sqlanon_2_born" AS "h2"
      ON (
        (
          "s"."born" IS NULL AND "h2"."value" IS NULL
        )
        OR COALESCE((
          "s"."born" OPERATOR(pg_catalog.=) "h2"."value"
        ), FALSE)
      )
    LEFT JOIN "sqlanon_suppressed" AS "x"
      ON (
        "h0"."code_1" OPERATOR(pg_catalog.=) "x"."code_0"
      )
      AND (
        "h1"."code_1" OPERATOR(pg_catalog.=) "x"."code_1"
      )
      AND (
        "h2"."code_1" OPERATOR(pg_catalog.=) "x"."code_2"
      )
      AND (
        (
          "h2"."known"
        ) OPERATOR(pg_catalog.=) "x"."known"
      )
  ) AS "statement"
  UNION ALL
  SELECT
    "zip",
    "age",
    "born",
    "sex",
    "diagnosis",
    "ward",
    "cost",
    0 AS "in_statement",
    1 AS "in_release"
  FROM "shared"."patients"
) AS "compared"
GROUP BY
  "zip",
  "age",
  "born",
  "sex",
  "diagnosis",
  "ward",
  "cost"
HAVING
  (
    pg_catalog.SUM("in_statement") OPERATOR(pg_catalog.<>) pg_catalog.SUM("in_release")
  );
-- the classes
SELECT
  COALESCE(CAST(pg_catalog.SUM("row_count") AS BIGINT), 0) AS "released_rows",
  pg_catalog.COUNT(*) AS "classes",
  COALESCE(pg_catalog.MIN("row_count"), 0) AS "smallest_class"
FROM (
  SELECT
    pg_catalog.COUNT(*) AS "row_count"
  FROM "shared"."patients"
  GROUP BY
    "zip",
    "age",
    "born",
    "sex"
) AS "classes";

-- The size of the lattice depends on the data: on the values of zip.
