"""Random small tables as local strategies see them, read back into plain Python."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import strategies as st
from sqlglot import exp

import sqlanon
from properties import privacy_checks
from properties.privacy_cases import PrivacyCase
from properties.random_cases import Case, cases
from properties.search_checks import arrow_table, policy
from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.pipeline import prepare
from sqlanon.strategies.local.core.task import LocalTask, prepare_local_task

Read = tuple[str | None, ...]
Nodes = tuple[int, ...]

SOME_ROWS = cases().filter(lambda case: bool(case.rows))

LIMITS = st.lists(st.sampled_from([0, 0, 0, 1, 2, 4, 5]), min_size=4, max_size=4)
"""By attribute, what is not allowed of it: 1 the top, 2 the ground, 4 the label of a ground value."""


def local_policy(
    case: Case, directory: Path, limits: Sequence[int] = (), key: str | None = None, **search: Any
) -> sqlanon.Policy:
    """A policy for a case that minimises its loss."""
    case = replace(case, measure="loss", aggregate=None)
    tree = policy(case, "optimal", directory).model_dump(mode="json", exclude_none=True)
    tree["search"] |= search
    tree["source"] |= {"key": key} if key else {}
    for (name, hierarchy), limit in zip(case.hierarchies.items(), limits, strict=False):
        attribute = tree["attributes"][name]
        if limit & 1 and hierarchy.height:
            attribute["max_level"] = hierarchy.height - 1
        if limit & 2:
            attribute["min_level"] = min(1, hierarchy.height, attribute.get("max_level", 1))
        if limit & 4:
            attribute["forbidden"] = [str(next(iter(hierarchy.paths)))]
    return sqlanon.Policy(**tree)


@contextmanager
def task_of(case: Case, limits: Sequence[int] = (), key: str | None = None, **search: Any) -> Iterator[LocalTask]:
    """The task of a local strategy; with a column that is the key of rows, if it needs one."""
    rows = arrow_table(case)
    if key:
        rows = rows.append_column(key, pa.array(range(rows.num_rows)))
    with tempfile.TemporaryDirectory() as name, sqlanon.connect(rows) as db:
        ask = local_policy(case, Path(name), limits, key, **search)
        with db._workspace.run(ask) as run:
            steps = StatementRunner(run.engine)
            prepared = prepare(steps, ask, run.source, run.work)
            yield prepare_local_task(steps, prepared, lambda open_, checked, best: None)


@dataclass(frozen=True)
class Node:
    """A node of a hierarchy, as `nodes_i` has it."""

    level: int
    label: str | None
    leaves: float
    released: bool


def _climb(node: int | None, parents: Mapping[int, int | None]) -> Iterator[int]:
    """A node and its ancestors, up to the top."""
    while node is not None:
        yield node
        node = parents[node]


@dataclass
class Plain:
    """A task in plain Python: by combination its rows, and for each attribute its nodes from the floor up."""

    task: LocalTask

    def __post_init__(self) -> None:
        trees, rows = self.task.trees, self.task.engine.rows
        self.nodes = [
            {node: Node(*columns) for node, *columns in rows(
                exp.select("node", "level", "label", "leaves", "released").from_(tree.nodes))}
            for tree in trees
        ]  # fmt: skip
        parents = [dict(rows(exp.select("node", "parent").from_(tree.nodes))) for tree in trees]
        names = [f"node_{i}_level_{tree.floor}" for i, tree in enumerate(trees)]
        self.n: dict[int, int] = {}
        self.paths: dict[int, tuple[Nodes, ...]] = {}
        for combination, n, *grounds in rows(
            exp.select("combination", "row_count", *names).from_(self.task.combinations)
        ):
            self.n[combination] = n
            self.paths[combination] = tuple(
                tuple(_climb(ground, parent_of)) for ground, parent_of in zip(grounds, parents, strict=True)
            )

    @property
    def allowed(self) -> int:
        """Limit for the rows that are in combinations."""
        return self.task.allowed_rows - (self.task.row_count - sum(self.n.values()))

    def placed(self, relation: exp.Table) -> dict[int, Nodes]:
        names = [f"node_{i}" for i in range(len(self.nodes))]
        rows = self.task.engine.rows(exp.select("combination", *names).from_(relation))
        assert len({row[0] for row in rows}) == len(rows)
        return {row[0]: tuple(row[1:]) for row in rows}

    def at(self, levels: Sequence[int]) -> dict[int, Nodes]:
        floors = [tree.floor for tree in self.task.trees]
        return {
            combination: tuple(path[level - low] for path, level, low in zip(paths, levels, floors, strict=True))
            for combination, paths in self.paths.items()
        }

    def read(self, nodes: Nodes) -> Read:
        return tuple(by[node].label for by, node in zip(self.nodes, nodes, strict=True))

    def sizes(self, placed: dict[int, Nodes]) -> Counter[Read]:
        """The classes, as readers see them, with their rows."""
        sizes: Counter[Read] = Counter()
        for combination, nodes in placed.items():
            sizes[self.read(nodes)] += self.n[combination]
        return sizes

    def kept(self, placed: dict[int, Nodes], k: int) -> dict[int, Nodes]:
        """Without the classes of fewer than k rows."""
        sizes = self.sizes(placed)
        return {c: nodes for c, nodes in placed.items() if sizes[self.read(nodes)] >= k}

    def rows(self, placed: dict[int, Nodes]) -> int:
        return sum(self.n[combination] for combination in placed)

    def loss(self, placed: dict[int, Nodes]) -> float:
        """The mean over all rows and attributes, with weights; an unassigned combination counts 1."""
        trees = self.task.trees
        weights = sum(tree.weight for tree in trees)
        lost = self.task.row_count - self.rows(placed)
        for combination, nodes in placed.items():
            for by, tree, node in zip(self.nodes, trees, nodes, strict=True):
                if tree.leaves > 1:
                    share = by[node].leaves / (tree.leaves - 1)
                    lost += self.n[combination] * tree.weight * share / weights
        return lost / self.task.row_count


ADULT = ("sex", "age", "race", "marital-status", "education", "native-country", "workclass", "salary-class")


def adult(data: Path, k: int, limit: float, **search: Any) -> sqlanon.Policy:
    """The policy of the benchmarks for Adult."""
    folder = data / "adult"
    rules = {name: {"file": str(folder / f"hierarchy_{name}.csv")} for name in ADULT}
    return sqlanon.Policy(
        attributes={name: {"role": "quasi", "hierarchy": rule} for name, rule in rules.items()},
        privacy={"k": k},
        source={"files": [str(folder / "adult.csv")], "undeclared": "drop"},
        search={"suppression_limit": limit, **search},
    )


def check_privacy(case: PrivacyCase, **search: Any) -> None:
    """With any class requirements, for rows or persons: the result meets them, and loses no more than the optimum
    of the full domain."""
    of_population = {"k_map", "delta_presence", "null_map", "wrong_map"}
    refused = {*of_population, "average_risk", "sample_uniqueness", "population_uniqueness"}
    privacy = {name: requirement for name, requirement in case.privacy.items() if name not in refused} or {"k": 2}
    case = replace(case, privacy=privacy, measure="loss", aggregate=None, source=replace(case.source, population=None))
    with tempfile.TemporaryDirectory() as name, privacy_checks.open_database(case.source) as db:
        whole = privacy_checks.policy_of(case, "optimal", Path(name))
        tree = whole.model_dump(mode="json", exclude_none=True)
        tree["search"] |= search
        ask = sqlanon.Policy(**tree)
        try:
            start = db.anonymize(whole)
        except sqlanon.InfeasibleError:
            with pytest.raises(sqlanon.InfeasibleError):
                db.anonymize(ask)
            return
        result = db.anonymize(ask)
        assert result.score <= start.score + 1e-9
        verification = db.verify(result.publish(Path(name) / "r.duckdb").path, ask)
        assert verification.verified, verification.failures
