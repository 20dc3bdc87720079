"""Coded values of tall hierarchies, which are coded level by level, against those that windows code."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sqlanon.support import coding
from sqlanon.support.expressions import table
from support.lanes import examples


def code(values: dict[str | None, int], paths: list[list[str | None]], tall: int, **options: Any) -> Any:
    """The columns and rows of coded values, and the figures of their marginals."""
    height = len(paths[0]) - 1 - options["open_ends"]
    names = ["level_0", *(["label_0"] if options["open_ends"] else []), *(f"level_{i + 1}" for i in range(height))]
    with duckdb.connect() as connection, patch.object(coding, "TALL_HIERARCHY", tall):
        connection.execute("CREATE TABLE v (value TEXT, rows BIGINT)")
        connection.executemany("INSERT INTO v VALUES (?, ?)", [*values.items()])
        connection.execute(f"CREATE TABLE h ({', '.join(f'{name} TEXT' for name in names)})")
        connection.executemany(f"INSERT INTO h VALUES ({', '.join('?' * len(names))})", paths)
        query = coding.coded_values(table("v"), table("h"), height, "*", nullable=True, count=len(values), **options)
        connection.execute(f"CREATE TABLE coded AS {query.sql('duckdb')}")
        coded = connection.execute("SELECT * FROM coded ORDER BY value NULLS FIRST").fetchall()
        coded_attribute = coding.CodedAttribute("x", height, table("coded"), open_ends=options["open_ends"])
        (figures,) = connection.execute(coding.marginals([coded_attribute], entropy=True).sql("duckdb")).fetchall()
    return query.named_selects, coded, figures


@settings(max_examples=examples(40), deadline=None, derandomize=True)
@given(st.data())
def test_tall_hierarchies_are_coded_like_others(data: st.DataObject) -> None:
    """The values include unknown ones and NULL, values that only a population has, and labels at level 0."""
    drawn = data.draw(st.lists(st.sampled_from([None, *"abcdef"]), unique=True, min_size=1))
    unknown = data.draw(st.lists(st.sampled_from("xyz"), unique=True))
    values = {value: data.draw(st.integers(0, 3)) for value in drawn + unknown}
    height, open_ends = data.draw(st.integers(2, 4)), data.draw(st.booleans())
    labels = st.lists(
        st.sampled_from([None, "p", "q"]), min_size=height - 1 + open_ends, max_size=height - 1 + open_ends
    )
    paths = [[value, *data.draw(labels), "*"] for value in drawn]
    options = {
        "open_ends": open_ends,
        "texts": data.draw(st.booleans()),
        "has_population_values": data.draw(st.booleans()),
    }
    names, coded, (number, figures) = code(values, paths, tall=1000, **options)
    names_of_tall, tall, (_, figures_of_tall) = code(values, paths, tall=1, **options)
    assert (names_of_tall, tall, number) == (names, coded, 0)
    assert figures_of_tall == pytest.approx(figures, nan_ok=True)
