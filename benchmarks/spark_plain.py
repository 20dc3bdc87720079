"""The floor by itself, in Spark: what it needs to read a table of people once and to write it once; one JSON object.

    python benchmarks/spark_plain.py "local-cluster[2,1,4096]" "people/*.parquet"

``group``: seconds of the ``GROUP BY`` of the 8 quasi-identifiers, whose groups are counted and not kept. ``copy``:
seconds of ``CREATE TABLE AS SELECT <released columns>``.
"""

from __future__ import annotations

import json
import sys
import time

from people import QUASI, RELEASED

from sqlanon.engines.spark.engine import SparkEngine


def main() -> None:
    master, files = sys.argv[1:]
    engine = SparkEngine.open(master, "the floor")
    session = engine.session
    session.read.parquet(files).createOrReplaceTempView("people")
    keys = ", ".join(QUASI)
    started = time.perf_counter()
    (row,) = session.sql(
        f"SELECT count(*) AS c, sum(n) AS s FROM (SELECT {keys}, count(*) AS n FROM people GROUP BY {keys})"
    ).collect()
    group = time.perf_counter() - started
    started = time.perf_counter()
    session.sql(f"CREATE TABLE default.floor USING PARQUET AS SELECT {', '.join(RELEASED)} FROM people")
    copy = time.perf_counter() - started
    engine.close()
    print(json.dumps({"group": group, "copy": copy, "groups": row[0]}))


if __name__ == "__main__":
    main()
