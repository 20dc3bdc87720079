"""The statements for warehouses in each dialect, compared with golden files."""

from __future__ import annotations

import re
from pathlib import Path

import duckdb
import pytest
from golden_statements import GOLDEN, golden_file, golden_text, plans
from sqlglot import exp, parse

import sqlanon
from sqlanon.engines.dialects.translation import translate_query
from sqlanon.engines.dialects.variables import without_variables
from sqlanon.errors import UntranslatableError
from sqlanon.support.expressions import cast, col
from sqlanon.warehouse import DIALECTS
from support.lanes import some

BACKTICKS = ("bigquery", "databricks", "spark")


def statements(text: str, dialect: str) -> list[exp.Expr]:
    expressions = [expression for expression in parse(text, dialect=dialect) if expression is not None]
    return [expression for expression in expressions if not isinstance(expression, exp.Semicolon)]


@pytest.mark.thorough
@pytest.mark.parametrize("dialect", DIALECTS)
def test_warehouse_statements_equal_the_golden_files(dialect: str) -> None:
    assert golden_text(dialect) == golden_file(dialect).read_text(encoding="utf-8")


def test_each_dialect_has_a_golden_file() -> None:
    files = {*GOLDEN.glob("*.sql"), *GOLDEN.glob("*.diff")}
    assert files == {golden_file(dialect) for dialect in DIALECTS}


@pytest.mark.thorough
@pytest.mark.parametrize("dialect", some(DIALECTS, 4))
def test_every_statement_parses_in_its_dialect(dialect: str) -> None:
    expressions = statements(plans(dialect), dialect)
    kinds = [type(expression) for expression in expressions]
    # By plan: the frequency set, the release, and the audit: 14 requirements, 12 of them in SQL, the rows in which the
    # release differs, and the figures. PostgreSQL's search path is set by a query.
    assert kinds.count(exp.Create) == 2
    assert kinds.count(exp.Select) == (1 + 13 + 2) + (1 + 1 + 2)
    assert set(kinds) <= {exp.Create, exp.Select, exp.Set}
    assert kinds.count(exp.Set) == {"trino": 2, "postgres": 2, "spark": 14}.get(dialect, 0)


TYPES = {
    "bigquery": {"INT64", "FLOAT64", "STRING"},
    "databricks": {"BIGINT", "DOUBLE", "STRING"},
    "duckdb": {"BIGINT", "DOUBLE", "TEXT"},
    "postgres": {"BIGINT", "DOUBLE PRECISION", "TEXT"},
    "snowflake": {"BIGINT", "DOUBLE", "VARCHAR"},
    "spark": {"BIGINT", "DOUBLE", "STRING"},
    "trino": {"BIGINT", "DOUBLE", "VARCHAR"},
}


def code_of(text: str) -> str:
    """Without comments, and without what is between single quotes."""
    return re.sub(r"'[^']*'", "''", re.sub(r"--.*", "", text))


@pytest.mark.cases(1)
@pytest.mark.parametrize("dialect", some(DIALECTS, 4))
def test_no_construct_is_used_that_a_dialect_lacks(dialect: str) -> None:
    code = code_of(plans(dialect))
    assert set(re.findall(r"CAST\(.*? AS ([A-Z0-9 ]+)\)", code)) <= TYPES[dialect]
    own_join = {"duckdb": "ANTI JOIN", "spark": "LEFT ANTI JOIN", "databricks": "LEFT ANTI JOIN"}
    assert ("ANTI JOIN" in code) == (dialect in own_join)
    assert own_join.get(dialect, "NOT EXISTS(") in code
    assert not re.search(r"\bSEMI\b|\bFILTER\b|\bQUALIFY\b|::|\bUNNEST\b|\bHUGEINT\b", code)
    assert ("`" in code) == (dialect in BACKTICKS) and ('"' in code) != (dialect in BACKTICKS)
    assert ("RANDOM()" in code.upper()) == (dialect in ("duckdb", "postgres", "snowflake"))


@pytest.mark.cases(2)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_names_that_bite_stay_names(dialect: str) -> None:
    name = "a`b\"c'd\n; DROP TABLE t --"
    policy = sqlanon.Policy(
        source={"table": '"x`y"'},
        attributes={
            name: {"role": "quasi", "hierarchy": {"mask": "right"}},
            "größe": {"role": "quasi", "hierarchy": "suppress"},
            "s;": {"role": "sensitive"},
        },
        privacy={"k": 2, "l_diversity": [{"attribute": "s;", "kind": "entropy", "l": 2}]},
    )
    with sqlanon.connect() as db:
        text = str(db.plan(policy, dialect=dialect))
    expressions = statements(text, dialect)
    assert {type(expression) for expression in expressions} <= {exp.Create, exp.Select, exp.Set}
    assert len([expression for expression in expressions if not isinstance(expression, exp.Set)]) == 6
    names = {node.name for node in expressions[0].find_all(exp.Column)}
    assert {name, "größe", "s;"} <= names
    comments = [line for line in text.splitlines() if "DROP TABLE" in line and line.startswith("--")]
    assert comments and all("\n" not in line for line in comments)


@pytest.mark.cases(5)
@pytest.mark.parametrize("dialect", ["bigquery", "postgres", "snowflake", "trino"])
@pytest.mark.parametrize(
    "query",
    [
        cast(col("x"), "VARCHAR"),  # each engine writes numbers in its own way
        cast(exp.Ln(this=col("x")), "BIGINT"),  # and rounds
        cast(col("x"), "UTINYINT"),
        exp.Filter(this=exp.Count(this=exp.Star()), expression=exp.Where(this=col("x"))),
        exp.ArrayAgg(this=col("x")),
        exp.Round(this=col("x")),
        exp.func("hash", col("x")),
        exp.Window(this=exp.RowNumber()),
    ],
)
def test_ambiguous_functions_are_refused(query: exp.Expr, dialect: str) -> None:
    with pytest.raises(UntranslatableError):
        translate_query(exp.select(query), dialect)


def test_integers_are_divided_as_numbers() -> None:
    half = exp.Div(this=exp.Count(this=exp.Star()), expression=exp.Literal.number(2))
    assert translate_query(half, "postgres").sql("postgres") == (
        "CAST(COUNT(*) AS DOUBLE PRECISION) / CAST(2 AS DOUBLE PRECISION)"
    )
    assert translate_query(half, "bigquery").sql("bigquery") == "CAST(COUNT(*) AS FLOAT64) / CAST(2 AS FLOAT64)"


LABELS = [
    *("${env:HOME}", "${spark.app.name}", "$${x}", "a ${x} b ${y}", "${", "$", "{x}", "$x"),
    *("{{ jinja }}", "{{{ x }}}", "{% raw %}", "{# x #}", "{", "}}", "<% x %>", "A&B", "&{x}", "&&x"),
    *("it's", '"', "`", "\\", "\\'", "\\\\${x}", "a\nb", "\t", "-- x", "/* x */", "$$", "", "%s", ":x", "?"),
]
REPLACED = {
    **dict.fromkeys(DIALECTS, r"\$\{|\{\{|\{%|\{#"),
    "databricks": r"\$[\w{]|\{\{|\{%|\{#",
    "snowflake": r"\$\{|\{\{|\{%|\{#|<%|&[\w{]",
}
"""Text that an engine, or a client or template language in front of it, replaces in any part of a text."""


def literal_text(value: exp.Expr) -> str:
    """The text of a literal, or of several that are concatenated."""
    if isinstance(value, exp.Paren):
        return literal_text(value.this)
    if isinstance(value, exp.DPipe):
        return literal_text(value.this) + literal_text(value.expression)
    assert isinstance(value, exp.Literal) and value.is_string
    return value.name


@pytest.mark.slow
@pytest.mark.parametrize("dialect", DIALECTS)
def test_no_part_of_a_literal_is_a_variable(dialect: str) -> None:
    literals = [exp.alias_(exp.Literal.string(label), f"c{i}") for i, label in enumerate(LABELS)]
    text = without_variables(exp.select(*literals), dialect).sql(dialect, pretty=True)
    assert not re.search(REPLACED[dialect], text)
    (back,) = statements(text, dialect)
    assert [literal_text(expression.this) for expression in back.expressions] == LABELS


@pytest.mark.thorough
def test_no_part_of_an_export_is_a_variable(tmp_path: Path) -> None:
    """Labels of the top level stand in the statement, and names of requirements in comments."""
    (tmp_path / "h.csv").write_text("a;${env:HOME}\nb;${env:HOME}\n")
    (tmp_path / "j.csv").write_text("a;{{ x }}\nb;{{ x }}\n")
    name = "{{ ill }} <% &x"
    policy = sqlanon.Policy(
        source={"table": "patients", "frequency_set": str(tmp_path / "f.parquet")},
        attributes={
            "zip": {"role": "quasi", "hierarchy": {"file": str(tmp_path / "h.csv")}},
            "sex": {"role": "quasi", "hierarchy": {"file": str(tmp_path / "j.csv")}},
            name: {"role": "sensitive"},
        },
        privacy={"k": 2, "l_diversity": [{"attribute": name, "kind": "distinct", "l": 2}]},
        release={"table": "released"},
    )
    with duckdb.connect() as connection:
        query = f"SELECT * FROM (VALUES ('a', 'b', 'x', 1), ('b', 'a', 'y', 1)) AS v(zip, sex, \"{name}\", n)"
        connection.execute(f"COPY ({query}) TO '{tmp_path / 'f.parquet'}'")
    with sqlanon.connect() as db:
        result = db.anonymize(policy)
        for dialect in DIALECTS:
            folder = result.export(tmp_path / dialect, dialect)
            quote = "`" if dialect in BACKTICKS else '"'
            for file in ("release.sql", "audit.sql"):
                text = (folder / file).read_text(encoding="utf-8")
                assert "'{env:HOME}'" in text and "'{ x }}'" in text
                # Names cannot be put together of parts.
                assert not re.search(REPLACED[dialect], text.replace(f"{quote}{name}{quote}", ""))


@pytest.mark.parametrize("dialect", ["spark", "databricks"])
def test_names_that_would_be_replaced_are_refused(dialect: str) -> None:
    policy = sqlanon.Policy(
        source={"table": "patients"},
        attributes={"${env:HOME}": {"role": "quasi", "hierarchy": "suppress"}},
        privacy={"k": 2},
    )
    with sqlanon.connect() as db, pytest.raises(UntranslatableError, match="another name"):
        db.plan(policy, dialect=dialect)
