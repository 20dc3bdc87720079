"""Run searches on random cases, and compare them with exhaustive search."""

from __future__ import annotations

import csv
import itertools
import math
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings

import sqlanon
from oracles import oracle
from oracles.oracle import Hierarchy, Release, Table
from properties.random_cases import Case
from support.lanes import SEARCHING, draw_tables

quick = settings(
    max_examples=draw_tables(20, usual=15), deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)


thorough = settings(quick, derandomize=not SEARCHING, max_examples=draw_tables(20, usual=100), print_blob=True)


def arrow_table(case: Case) -> pa.Table:
    """The rows as an Arrow table; its columns stand in another order than the policy's attributes."""
    columns = {
        name: pa.array(
            [row[i] for row in case.rows],
            type=pa.int64() if isinstance(next(iter(tree.paths)), int) else pa.string(),
        )
        for i, (name, tree) in enumerate(case.hierarchies.items())
    }
    return pa.table({name: columns[name] for name in sorted(columns)})


def write_hierarchy(tree: Hierarchy, path: Path) -> str:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, delimiter=";", lineterminator="\n").writerows(tree.paths.values())
    return str(path)


def policy(case: Case, strategy: str, directory: Path) -> sqlanon.Policy:
    attributes: dict[str, dict[str, Any]] = {}
    for i, (name, tree) in enumerate(case.hierarchies.items()):
        file = write_hierarchy(tree, directory / f"hierarchy_{i}.csv")
        attributes[name] = {"role": "quasi", "hierarchy": {"file": file}}
        if name in (case.weights or {}):
            attributes[name]["weight"] = case.weights[name]
        if not all(tree.knows(row[i]) for row in case.rows):
            attributes[name]["on_unknown"] = "suppress"
    search = {"strategy": strategy, "suppression_limit": float(case.limit), "measure": case.measure}
    if case.aggregate is not None:
        search["aggregate"] = case.aggregate
    return sqlanon.Policy(
        source={"table": "t"},
        attributes=attributes,
        privacy={"k": case.k},
        search=search,
        release={"table": "released"},
    )


@contextmanager
def anonymize_case(case: Case, strategy: str) -> Iterator[tuple[Any, Path]]:
    """The result of sqlanon (valid inside the block), and a directory to publish to."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        with sqlanon.connect(arrow_table(case)) as db:
            yield db.anonymize(policy(case, strategy, directory)), directory


def as_dict(case: Case, levels: oracle.Levels) -> dict[str, int]:
    return dict(zip(case.hierarchies, levels, strict=True))


def check(case: Case, strategy: str) -> None:
    """The answer of sqlanon is the oracle's."""
    expected = (oracle.solve if strategy == "optimal" else oracle.k_minimal)(**case.arguments)
    if expected is None:
        check_infeasible(case, strategy)
        return
    with anonymize_case(case, strategy) as (result, _):
        assert math.isclose(result.score, expected.score, rel_tol=oracle.TIE), (result.score, expected)
        assert dict(result.generalization) == as_dict(case, expected.levels), expected.ties
        assert (result.suppressed_rows, result.classes) == (expected.suppressed_rows, expected.classes)
        if strategy == "k_minimal":
            minimal = sorted(tuple(node[name] for name in case.hierarchies) for node in result.k_minimal)
            assert minimal == [f.levels for f in expected.satisfying]


def check_infeasible(case: Case, strategy: str) -> None:
    """Check that the error names a generalization that suppresses as few rows as any."""
    with pytest.raises(sqlanon.InfeasibleError) as caught, anonymize_case(case, strategy):
        pass
    error, table = caught.value, Table.of(case.rows, case.hierarchies)
    assert error.allowed_rows == oracle.allowed_rows(case.limit, table.size)
    if not table.size:
        assert (error.nearest, error.suppressed_rows) == (None, 0)
        return
    assert error.nearest is not None
    assert set(error.nearest) == set(case.hierarchies)
    nearest = Release(table, tuple(error.nearest[name] for name in case.hierarchies), case.k)
    assert error.suppressed_rows == nearest.suppressed == oracle.fewest_suppressed(table, case.k)


# Sweeney 2002, figure 3: {0, 1} and {1, 0} are both 2-minimal and of height 1; the first is preferred.
RACES, ZIPS = ("asian", "black", "white"), ("02138", "02139", "02141", "02142")


FIGURE_3 = Case(
    rows=list(itertools.product(RACES, ZIPS)),
    hierarchies={
        "race": Hierarchy({race: (race, "person") for race in RACES}),
        "ZIP": Hierarchy({zip_: (zip_, f"{zip_[:4]}*", "021**") for zip_ in ZIPS}),
    },
    k=2,
    limit="0",
    measure="height",
)
