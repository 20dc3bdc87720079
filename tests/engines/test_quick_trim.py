"""Texts that DuckDB trims quickly are trimmed as any others."""

from __future__ import annotations

import duckdb
import pytest

from sqlanon.engines.dialects.quick_trim import QuickDuckDB
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.engines.values import WHITE_SPACE, strip_white_space
from sqlanon.errors import SqlanonError
from sqlanon.support.expressions import col


@pytest.mark.thorough
def test_every_character_is_trimmed_or_kept_at_either_end() -> None:
    quick = strip_white_space(col("word")).sql(dialect=QuickDuckDB)
    assert quick.startswith("CASE")
    query = f"""
        WITH
            characters AS (
                SELECT '' AS character UNION ALL SELECT chr(i::INTEGER) FROM range(1, 55000) AS r(i)
            ),
            words AS (
                SELECT first || middle || character AS word
                FROM characters
                CROSS JOIN unnest(['', 'a', ' ', 'é', '\u3000']) AS f(first)
                CROSS JOIN unnest(['', 'b', ' b ']) AS m(middle)
                UNION ALL
                SELECT character || 'a' FROM characters
            )
        SELECT
            count(*),
            count(*) FILTER (WHERE ({quick}) IS DISTINCT FROM trim(word, $white_space)),
            count(*) FILTER (WHERE ({quick}) <> word)
        FROM words
    """
    with duckdb.connect() as connection:
        words, different, trimmed = connection.execute(query, {"white_space": WHITE_SPACE}).fetchall()[0]
    assert (different, words > 800_000, trimmed > 100_000) == (0, True, True)


def test_a_compiled_sqlglot_is_refused_with_the_way_to_remove_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class Compiled:
        def generator(self) -> None:
            raise TypeError("interpreted classes cannot inherit from compiled")

    monkeypatch.setattr("sqlanon.engines.duckdb.QuickDuckDB", Compiled)
    with duckdb.connect() as connection, pytest.raises(SqlanonError, match="run pip uninstall sqlglotc"):
        DuckDBEngine(connection)
