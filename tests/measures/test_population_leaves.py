"""Leaves for `loss`: where a rule makes a hierarchy, the values of the column, and not those of its population."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import duckdb
import pytest

import sqlanon
from support.databases import insert
from support.policies import make_policy

pytestmark = pytest.mark.thorough

Labels = Callable[[Any], list[str]]  # of a value: by level, from the value itself to the top


def labels_of_age(value: Any) -> list[str]:
    return ["NULL", "NULL", "NULL", "*"] if value is None else [str(value), str(value // 5), str(value // 20), "*"]


def labels_of_zip(value: Any) -> list[str]:
    return ["NULL"] * 3 + ["*"] if value is None else [value, value[:2], value[:1], "*"]


def loss(column: list[Any], labels: Labels, level: int) -> float:
    """The mean over all rows of (leaves under the label − 1) / (leaves − 1)."""
    leaves = set(column)
    under = {value: sum(labels(leaf)[level] == labels(value)[level] for leaf in leaves) for value in leaves}
    return sum((under[value] - 1) / (len(leaves) - 1) for value in column) / len(column) if len(leaves) > 1 else 0.0


@pytest.mark.parametrize("seed", range(3))
def test_loss_counts_the_values_of_the_column(seed: int) -> None:
    rng = random.Random(seed)

    def people(count: int) -> list[tuple[Any, str]]:
        ages = [
            rng.choice([None, *range(100)]) if rng.random() < 0.3 else rng.randrange(0, 40, 3) for _ in range(count)
        ]
        return [(age, f"{rng.randrange(60):02}{rng.randrange(3)}") for age in ages]

    source = people(12)
    population = source + [(age, zip_) for age, zip_ in people(60) if age is not None or seed]
    with duckdb.connect() as connection:
        for name, rows in (("t", source), ("everybody", population)):
            connection.execute(f"CREATE TABLE {name} (age INTEGER, zip VARCHAR)")
            insert(connection, name, rows)
        policy = make_policy(
            {"age": {"intervals": [5, 20]}, "zip": "mask"},
            privacy={"k_map": 3},
            population={"table": "everybody"},
        )
        with sqlanon.connect(connection) as db:
            result = db.anonymize(policy)
            figures = {tuple(row[0]): row[6] for row in result.lattice.fetchall() if row[6] is not None}
    assert figures
    for levels, score in figures.items():
        columns = zip(zip(*source, strict=True), (labels_of_age, labels_of_zip), levels, strict=True)
        losses = [loss(list(column), labels, level) for column, labels, level in columns]
        assert score == pytest.approx(sum(losses) / 2), levels
