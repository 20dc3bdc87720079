"""Below the full domain: whatever a strategy places, what is released of it is judged, scored and recoded rightly."""

from __future__ import annotations

import math
import tempfile
import zlib
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from sqlglot import exp

import sqlanon
from oracles import oracle
from oracles.oracle import Row, Table, Value
from properties.local_tasks import Plain
from properties.random_cases import Case, cases
from properties.search_checks import arrow_table, policy, thorough
from sqlanon.policy import Policy
from sqlanon.strategies.local.core.finish import on_combinations
from sqlanon.strategies.local.core.task import LocalOutcome, LocalTask
from support.databases import connection_of
from support.lanes import examples

pytestmark = pytest.mark.thorough

MEASURES = ("loss", "precision", "discernibility", "average_class_size", "distinct", "suppression")


def draw_levels(labels: tuple[Value, ...], heights: list[int]) -> list[int]:
    """A level for each attribute of a combination, as if by chance: by its ground values."""
    chance = zlib.crc32(repr(labels).encode())
    return [(chance >> (4 * i)) % 16 % (height + 1) for i, height in enumerate(heights)]


def at_random(task: LocalTask) -> LocalOutcome:
    """A strategy that can be requested without a reason."""
    heights = [tree.height for tree in task.trees]
    ground = []
    for i, tree in enumerate(task.trees):
        rows = task.engine.rows(exp.select("node", "label").from_(tree.nodes).where("level = 0"))
        assert tree.floor == 0, i
        ground.append(dict(rows))
    placed = []
    for combination, paths in Plain(task).paths.items():
        labels = tuple(ground[i][path[0]] for i, path in enumerate(paths))
        levels = draw_levels(labels, heights)
        placed.append((combination, *(path[level] for path, level in zip(paths, levels, strict=True))))
    names = ["combination", *(f"node_{i}" for i in range(len(heights)))]
    values = exp.values([tuple(map(int, row)) for row in placed] or [(-1,) * len(names)], alias="v", columns=names)
    target = task.work("at_random")
    return LocalOutcome(task, task.runner.create_table(target, exp.select("*").from_(values)), rounds=1)


class Expected:
    """The expected release, computed slowly."""

    def __init__(self, case: Case) -> None:
        self.case, self.table = case, Table.of(case.rows, case.hierarchies)
        self.trees = list(case.hierarchies.values())
        self.heights = [tree.height for tree in self.trees]
        self.shown = [(row, self.released(row)) for row in case.rows]
        sizes = Counter(labels for _, labels in self.shown if labels is not None)
        self.kept = {labels: n for labels, n in sizes.items() if n >= case.k}
        self.suppressed = len(case.rows) - sum(self.kept.values())

    def levels(self, row: Row) -> list[int]:
        return draw_levels(tuple(None if value is None else str(value) for value in row), self.heights)

    def released(self, row: Row) -> Row | None:
        """The labels of a row; None where a value is unknown."""
        if not all(tree.knows(value) for tree, value in zip(self.trees, row, strict=True)):
            return None
        labels = [tree.label(v, level) for tree, v, level in zip(self.trees, row, self.levels(row), strict=True)]
        return tuple(None if label is None else str(label) for label in labels)

    def costs(self, measure: str) -> list[float]:
        """The mean cost over the rows, by attribute."""
        costs = []
        for a, tree in enumerate(self.trees):
            total = 0.0
            for row, labels in self.shown:
                if labels not in self.kept:
                    total += 1
                    continue
                level, leaves = self.levels(row)[a], len(self.table.ground_values(a))
                if measure == "precision":
                    total += level / tree.height if tree.height else 0
                elif leaves > 1:
                    total += (self.table.leaves_under[a][level][tree.label(row[a], level)] - 1) / (leaves - 1)
            costs.append(total / len(self.case.rows))
        return costs

    def score(self, measure: str) -> float:
        rows, sizes = len(self.case.rows), self.kept.values()
        if measure in ("loss", "precision"):
            weights = [(self.case.weights or {}).get(name, 1.0) for name in self.case.hierarchies]
            costs = self.costs(measure)
            aggregate = self.case.aggregate or "mean"
            total = math.fsum(w * x for w, x in zip(weights, costs, strict=True))
            if aggregate in ("mean", "sum"):
                return total / math.fsum(weights) if aggregate == "mean" else total
            return max(costs) if aggregate == "max" else math.prod(1 + x for x in costs) ** (1 / len(costs)) - 1
        if measure == "discernibility":
            return sum(n * n for n in sizes) + rows * self.suppressed
        if measure == "average_class_size":
            return rows / (len(sizes) + bool(self.suppressed))
        return len(sizes) if measure == "distinct" else self.suppressed


def local_policy(case: Case, directory: Path, suppressed: str) -> Policy:
    tree = policy(case, "optimal", directory).model_dump(mode="json", exclude_none=True)
    tree["search"]["strategy"] = "local"
    tree["release"]["suppressed"] = suppressed
    return sqlanon.Policy(**tree)


def check(case: Case, suppressed: str, publish: bool = True) -> None:
    """Published, or by the statement that a release is made with."""
    case = replace(case, measure=case.measure if case.measure in MEASURES else "loss")
    expected = Expected(case)
    allowed = oracle.allowed_rows(case.limit, len(case.rows))
    with tempfile.TemporaryDirectory() as name, sqlanon.connect(arrow_table(case)) as db:
        requested_policy = local_policy(case, Path(name), suppressed)
        if not expected.kept or expected.suppressed > allowed:
            with pytest.raises(sqlanon.InfeasibleError):
                db.anonymize(requested_policy)
            return
        result = db.anonymize(requested_policy)
        assert (result.suppressed_rows, result.classes) == (expected.suppressed, len(expected.kept))
        assert result.smallest_class == min(expected.kept.values())
        assert math.isclose(result.score, expected.score(case.measure), rel_tol=1e-9, abs_tol=1e-12)
        columns = ", ".join(f'"{column.replace(chr(34), chr(34) * 2)}"::VARCHAR' for column in case.hierarchies)
        if not publish:
            rows = connection_of(db).execute(f"SELECT {columns} FROM ({result.sql()})").fetchall()
            assert Counter(rows) == expected.kept
            return
        release = result.publish(Path(name) / "r.duckdb")
        with duckdb.connect(str(release.path), read_only=True) as connection:
            released = Counter(connection.execute(f"SELECT {columns} FROM released").fetchall())
        wanted: Counter[Any] = Counter(expected.kept)
        if suppressed == "mask" and result.released_rows == len(case.rows):
            wanted[tuple(str(tree.top) for tree in expected.trees)] += expected.suppressed
        assert released == wanted
        verification = db.verify(release.path, requested_policy)
        assert verification.verified, verification.failures


@pytest.fixture(autouse=True)
def placed_at_random(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sqlanon.strategies.local.local.run", on_combinations(at_random))


@settings(thorough, max_examples=examples(25))
@given(cases())
def test_assigned_combinations_are_released(case: Case) -> None:
    check(case, "drop")
    check(replace(case, limit="1"), "mask")
