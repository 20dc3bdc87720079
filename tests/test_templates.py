"""Templates: what fills a placeholder stands there as one expression, and nothing of it is read as text."""

from __future__ import annotations

import duckdb
import pytest
from sqlglot import exp

from sqlanon.support.expressions import col, fragment, number, table, template


@pytest.mark.parametrize("filled", [{}, {"k": 1, "other": 2}])
def test_a_placeholder_that_is_missing_or_unknown_is_an_error(filled: dict[str, int]) -> None:
    with pytest.raises(KeyError):
        fragment("n >= :k")(**filled)


def test_names_are_quoted_and_not_read() -> None:
    name = 'a" FROM x --'
    query = template("SELECT :keys, count(*) AS n FROM :rows GROUP BY :keys")(keys=[col(name)], rows=table(name))
    with duckdb.connect() as connection:
        connection.execute('CREATE TABLE "a"" FROM x --" AS SELECT 7 AS "a"" FROM x --"')
        assert connection.execute(query.sql("duckdb")).fetchall() == [(7, 1)]


@pytest.mark.slow
@pytest.mark.parametrize("sql", [":a * :b", ":a - :b", ":a / :b", "-:a + :b", ":a * 2 - :b * 3"])
def test_an_operation_stands_in_parentheses(sql: str) -> None:
    """Python's result for the terms 1 + 2 and 3 - 5 is expected."""
    left, right = fragment("1 + 2")(), fragment("3 - 5")()
    expected = eval(sql.replace(":a", "(1 + 2)").replace(":b", "(3 - 5)"))
    with duckdb.connect() as connection:
        filled = fragment(sql)(a=left, b=right).sql("duckdb")
        assert connection.execute(f"SELECT {filled}").fetchone() == (expected,)


def test_lists_may_be_empty_or_several() -> None:
    sizes = template("SELECT :keys, count(*) AS n FROM :rows GROUP BY :keys ORDER BY :keys")
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t AS SELECT i % 2 AS a, 1 AS b FROM range(3) r(i)")
        for names, expected in (([], [(3,)]), (["a", "b"], [(0, 1, 2), (1, 1, 1)])):
            query = sizes(keys=[col(name) for name in names], rows=table("t"))
            assert connection.execute(query.sql("duckdb")).fetchall() == expected


def test_a_query_stands_for_a_table_and_no_filling_changes_the_next() -> None:
    least = template("SELECT min(n) AS n FROM :rows AS r WHERE n > :k")
    inner = template("SELECT unnest([1, 2, 3]) AS n")()
    with duckdb.connect() as connection:
        answers = [connection.execute(least(rows=inner, k=number(k)).sql("duckdb")).fetchone() for k in (0, 2)]
    assert answers == [(1,), (3,)]


@pytest.mark.parametrize("text", ["regexp_replace(a, '[[:space:]]', '')", "a = 'at :name'"])
def test_placeholder_inside_a_text_literal_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a template cannot have :name inside a text: '"):
        template(f"SELECT {text} AS b FROM :rows")(rows=table("t"))


def test_a_colon_before_anything_else_is_part_of_a_text() -> None:
    query = template("SELECT strftime(a, '%H:%M') AS b, ': ' AS c FROM :rows")(rows=table("t"))
    assert {node.this for node in query.find_all(exp.Literal)} == {"%H:%M", ": "}
