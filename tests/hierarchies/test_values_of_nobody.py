"""Values that no row of the source has, or that look like a label: what makes a policy fail, and what does not."""

from __future__ import annotations

from typing import Any

import duckdb
import pytest

import sqlanon
from sqlanon.errors import HierarchyError

MASK: dict[str, Any] = {"role": "quasi", "hierarchy": {"mask": "right"}}
CATEGORIES: dict[str, Any] = {"role": "quasi", "hierarchy": {"categories": {"x": ["ab"], "y": [""]}}}


def generalize(values: list[str | None], population_values: list[str], attribute: dict[str, Any]) -> int:
    """The level of the only quasi-identifier; the population has the values of the source, and others."""
    policy = sqlanon.Policy(
        source={"table": "t"}, population={"table": "people"}, attributes={"a": attribute}, privacy={"k": 2, "k_map": 2}
    )
    with duckdb.connect() as connection, sqlanon.connect(connection) as db:
        for name, some in (("t", values), ("people", [*values, *population_values])):
            connection.execute(f"CREATE TABLE {name} AS SELECT unnest($values::VARCHAR[]) AS a", {"values": some})
        return db.anonymize(policy).generalization["a"]


@pytest.mark.thorough
def test_population_only_value_may_equal_the_top_label() -> None:
    assert generalize(["ab", "ab", "ac", "ac"], ["*"], MASK) == 0


def test_a_value_like_the_top_is_refused() -> None:
    with pytest.raises(HierarchyError, match="'\\*'"):
        generalize(["ab", "ab", "*", "*"], [], MASK)


@pytest.mark.thorough
def test_labels_of_the_empty_text_are_its_own_if_rows_have_it() -> None:
    assert generalize(["ab", "ab", "", "", None, None], [], CATEGORIES) == 0


@pytest.mark.thorough
def test_labels_of_the_empty_text_may_be_meant_for_null() -> None:
    with pytest.raises(HierarchyError, match="NULL"):
        generalize(["ab", "ab", None, None], [], CATEGORIES)
