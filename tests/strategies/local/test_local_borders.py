"""Strategies below the full domain, each at a border: a row more or less would be another answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pytest

import sqlanon
from sqlanon.audit.verify import verify_file
from sqlanon.strategies.local import cells
from support.databases import insert
from support.policies import make_policy

WARDS = {"categories": {"near": ["a", "b"], "far": ["c", "d"]}}
UNKNOWN = {"role": "quasi", "hierarchy": WARDS, "on_unknown": "suppress"}


def find_release(
    rows: Sequence[tuple[Any, ...]], attributes: dict[str, Any], folder: Path, k: int = 2, **search: Any
) -> tuple[sqlanon.Result, Counter[Any]]:
    """The result, and the published rows."""
    types = ["INTEGER" if isinstance(value, int) else "VARCHAR" for value in rows[0]]
    columns = ", ".join(f"{name} {type_}" for name, type_ in zip(attributes, types, strict=True))
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE t ({columns})")
        insert(connection, "t", rows)
        with sqlanon.connect(connection) as db:
            result = db.anonymize(make_policy(attributes, k=k, search=search))
            result.publish(folder / "r.duckdb")
    with duckdb.connect(folder / "r.duckdb", read_only=True) as connection:
        return result, Counter(connection.execute("FROM t").fetchall())


@pytest.mark.slow
def test_parts_of_just_k_rows_are_cut_off(tmp_path: Path) -> None:
    rows = [(1,), (1,), (7,), (7,), (7,)]
    result, released = find_release(rows, {"age": {"intervals": [5, 10]}}, tmp_path, strategy="mondrian")
    assert released == {(1,): 2, (7,): 3}
    assert (result.classes, result.score) == (2, 0)


def test_just_as_many_rows_are_suppressed_as_may_be_and_each_is_lost(tmp_path: Path) -> None:
    rows = [*[("a",)] * 4, *[("c",)] * 5, ("elsewhere",)]
    result, released = find_release(rows, {"ward": UNKNOWN}, tmp_path, strategy="mondrian", suppression_limit=0.1)
    assert released == {("a",): 4, ("c",): 5}
    assert (result.suppressed_rows, result.score) == (1, pytest.approx(0.1))


def test_rows_of_unknown_values_are_of_those_that_may_be_suppressed(tmp_path: Path) -> None:
    """One row may be suppressed, which is the one with the unknown value; so the single row of c is generalized."""
    rows = [*[("a",)] * 4, *[("b",)] * 4, ("c",), ("elsewhere",)]
    categories = {"categories": {"near": ["a"], "far": ["b", "c"]}}
    attributes = {"ward": UNKNOWN | {"hierarchy": categories}}
    result, released = find_release(rows, attributes, tmp_path, strategy="mu-argus", suppression_limit=0.1)
    assert released == {("near",): 4, ("far",): 5}
    assert result.suppressed_rows == 1


@pytest.mark.cases(1)
@pytest.mark.parametrize("strategy", ["mondrian", "local"])
def test_rows_of_unknown_values_are_suppressed_where_an_attribute_has_its_top_alone(
    strategy: str, tmp_path: Path
) -> None:
    rows = [*[("a", 1)] * 4, ("elsewhere", 1), *[("c", 2)] * 4, ("elsewhere", 2)]
    attributes = {"ward": UNKNOWN | {"min_level": 2}, "age": {"intervals": [5, 10]}}
    result, released = find_release(rows, attributes, tmp_path, strategy=strategy, suppression_limit=0.2)
    assert (result.suppressed_rows, released.total()) == (2, 8)
    assert {ward for ward, _ in released} == {"*"}


@pytest.mark.slow
def test_cells_that_are_blanked_for_nothing_are_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second row may read like the first, or like the third, and does like the third; so the first is left with the
    fourth, both all blank."""
    monkeypatch.setattr(cells, "EXACT", 0)
    rows = [("1", "1"), ("1", "2"), ("2", "2"), ("3", "3"), *[("9", "9")] * 6]
    attributes = {"one": "suppress", "two": "suppress"}
    result, released = find_release(
        rows, attributes, tmp_path, suppression="cells", suppression_limit=0.4, measure="loss"
    )
    assert released == {("*", "2"): 2, ("*", "*"): 2, ("9", "9"): 6}
    assert result.suppressed_rows == 0


@pytest.mark.slow
def test_the_guarantee_is_that_of_the_strategy(tmp_path: Path) -> None:
    """A release by combinations does not claim k-anonymity of all quasi-identifiers together."""
    rows = [(*"aaaa",), (*"aaaa",), (*"bbbb",), (*"bbbb",)]
    attributes = dict.fromkeys(("one", "two", "three", "four"), "suppress")
    find_release(rows, attributes, tmp_path, strategy="mu-argus")
    assert verify_file(tmp_path / "r.duckdb").verified
    with duckdb.connect(tmp_path / "r.duckdb") as connection:
        connection.execute("UPDATE sqlanon.manifest SET guarantee = 'quasi-identifiers', sqlanon_version = '0.0.0'")
    (check,) = [item for item in verify_file(tmp_path / "r.duckdb").checks if item.name == "manifest"]
    assert check.message == "contradicts itself in guarantee"
