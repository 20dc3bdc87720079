"""The functions of sql/spark, and docs/reference/macros_spark.md: its examples run, as DuckDB's macros answer."""

from __future__ import annotations

import random
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest

from sqlanon.support.resources import macro_script, read_sql_file

DOCS = Path(__file__).resolve().parents[2] / "docs" / "reference" / "macros_spark.md"
EXAMPLES = re.findall(r"^```sql\n(.*?)^```$", DOCS.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
FUNCTIONS = re.findall(
    r"^CREATE OR REPLACE FUNCTION sqlanon\.(\w+)", read_sql_file("spark/functions.sql"), re.MULTILINE
)


@pytest.fixture(scope="module")
def functions(session: Any) -> Any:
    """The session of Spark, with the functions."""
    before = {row[0] for row in session.sql("SHOW SCHEMAS").collect()}
    statements = re.sub(r"--.*", "", read_sql_file("spark/functions.sql"))
    for statement in statements.split(";"):
        if statement.strip():
            session.sql(statement)
    session.sql(EXAMPLES[0].rstrip().rstrip(";"))
    yield session
    session.catalog.dropTempView("patients")
    for name in FUNCTIONS:
        session.sql(f"DROP FUNCTION sqlanon.{name}")
    if "sqlanon" not in before:
        session.sql("DROP SCHEMA sqlanon")


def text_of(value: Any) -> str:
    return "NULL" if value is None else f"{value:.6g}" if isinstance(value, (float, Decimal)) else str(value)


@pytest.mark.parametrize("example", EXAMPLES[1:], ids=range(len(EXAMPLES) - 1))
def test_examples_show_their_results(example: str, functions: Any) -> None:
    query, _, expected = example.partition(";\n")
    sql = functions.sql(query)
    rows = [
        ", ".join(f"{name} {text_of(v)}" for name, v in zip(sql.columns, row, strict=True)) for row in sql.collect()
    ]
    assert sorted(rows) == [line.removeprefix("-- ") for line in expected.splitlines()]


def test_every_function_has_an_example() -> None:
    called = {name for example in EXAMPLES for name in re.findall(r"sqlanon\.(\w+)\(", example)}
    assert called == set(FUNCTIONS) != set()


PER_CLASS = """
    WITH counted AS (SELECT q, s, count(*) AS n FROM few GROUP BY q, s),
    source AS (SELECT s, count(*) / sum(count(*)) OVER () AS share, count(*) OVER () AS many FROM few GROUP BY s)
    SELECT c.q, sqlanon.entropy_l(collect_list(n)), sqlanon.recursive_c(collect_list(n), 2),
        sqlanon.alpha(collect_list(n)), sqlanon.equal_distance(collect_list(struct(n, share))),
        sqlanon.delta_disclosure(collect_list(struct(n, share)), max(many)),
        sqlanon.beta(collect_list(struct(n, share))), sqlanon.enhanced_excess(collect_list(struct(n, share)))
    FROM counted AS c JOIN source AS s ON c.s <=> s.s GROUP BY c.q
"""
MACROS = """
    SELECT l.q, entropy_l, recursive_c, alpha, t, delta, beta, enhanced_excess
    FROM sqlanon.l_diversity_classes('few', ['q'], 's') AS l
    JOIN sqlanon.disclosure_classes('few', ['q'], 's') AS d ON l.q IS NOT DISTINCT FROM d.q
    JOIN sqlanon.t_closeness_classes('few', ['q'], 's') AS t ON l.q IS NOT DISTINCT FROM t.q
"""


@pytest.mark.parametrize("seed", range(3))
def test_spark_functions_match_the_duckdb_macros(seed: int, functions: Any) -> None:
    rng = random.Random(seed)
    rows = [(rng.choice(["a", "A", "é", None]), rng.choice([None, "x", "y", "Y"])) for _ in range(rng.randrange(5, 60))]
    connection = duckdb.connect()
    connection.execute(macro_script())
    connection.execute("CREATE TABLE few (q VARCHAR, s VARCHAR)")
    connection.executemany("INSERT INTO few VALUES (?, ?)", rows)
    functions.createDataFrame(rows, "q STRING, s STRING").createOrReplaceTempView("few")
    in_spark = {row[0]: list(row[1:]) for row in functions.sql(PER_CLASS).collect()}
    in_duckdb = {row[0]: list(row[1:]) for row in connection.execute(MACROS).fetchall()}
    assert in_spark.keys() == in_duckdb.keys()
    for name, figures in in_duckdb.items():
        assert in_spark[name] == pytest.approx(figures, rel=1e-12, abs=1e-12)
    sizes = "(SELECT collect_list(n) FROM (SELECT count(*) AS n FROM few GROUP BY q))"
    for name, columns in (
        ("k_anonymity", "k, classes, rows, uniques"),
        ("average_risk", "average_risk, sample_uniqueness, classes"),
    ):
        answer = connection.execute(f"SELECT {columns} FROM sqlanon.{name}('few', ['q'])").fetchone()
        assert tuple(functions.sql(f"SELECT * FROM sqlanon.{name}({sizes})").collect()[0]) == pytest.approx(answer)
    functions.catalog.dropTempView("few")


def test_empty_tables_have_results(functions: Any) -> None:
    none = "CAST(array() AS ARRAY<BIGINT>)"
    assert tuple(functions.sql(f"SELECT * FROM sqlanon.k_anonymity({none})").collect()[0]) == (None, 0, 0, 0)
    assert tuple(functions.sql(f"SELECT * FROM sqlanon.average_risk({none})").collect()[0]) == (None, None, 0)
