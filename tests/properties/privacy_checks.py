"""Run policies with privacy requirements on random cases, and compare releases with the oracle."""

from __future__ import annotations

import csv
import math
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, settings

import sqlanon
from oracles import oracle, oracle_privacy
from oracles.oracle import Hierarchy
from oracles.oracle_privacy import Record, Release, Source
from properties.privacy_cases import PrivacyCase
from support.lanes import SEARCHING, examples

quick = settings(
    max_examples=examples(5),
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
)


thorough = settings(quick, derandomize=not SEARCHING, max_examples=examples(25), print_blob=True)


def columns_of(source: Source) -> dict[str, pa.DataType]:
    """The columns of a source with their types; ground values of a hierarchy decide where no other value exists."""
    names = [*source.quasi, *source.sensitive, *([source.person] if source.person else [])]
    trees = {**source.quasi, **source.sensitive}
    types = {}
    for name in names:
        tree = trees.get(name)
        values = [*(tree.paths if tree else ()), *(row[name] for row in source.rows if row[name] is not None)]
        types[name] = pa.int64() if values and isinstance(values[0], int) else pa.string()
    return types


def arrow_table(records: list[Record], types: Mapping[str, pa.DataType]) -> pa.Table:
    """Its columns stand in another order than the policy's attributes."""
    return pa.table({name: pa.array([row[name] for row in records], type=types[name]) for name in sorted(types)})


def write_hierarchy(tree: Hierarchy, path: Path) -> str:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, delimiter=";", lineterminator="\n").writerows(tree.paths.values())
    return str(path)


def policy_of(case: PrivacyCase, strategy: str, directory: Path) -> sqlanon.Policy:
    source = case.source
    attributes: dict[str, dict[str, Any]] = {}
    trees = {**source.quasi, **source.sensitive}
    for i, (name, tree) in enumerate(trees.items()):
        attributes[name] = {"role": "quasi" if name in source.quasi else "sensitive"}
        if tree is not None:
            attributes[name]["hierarchy"] = {"file": write_hierarchy(tree, directory / f"hierarchy_{i}.csv")}
        if name in (case.weights or {}):
            attributes[name]["weight"] = case.weights[name]
    for name, tree in source.quasi.items():
        if not all(tree.knows(row[name]) for row in source.rows):
            attributes[name]["on_unknown"] = "suppress"
    if case.declared:
        attributes[source.person] = {"role": "identifying"}
    search = {"strategy": strategy, "suppression_limit": float(case.limit), "measure": case.measure}
    if case.aggregate is not None:
        search["aggregate"] = case.aggregate
    sections: dict[str, Any] = {}
    if source.population is not None:
        who = {"person": source.population_person} if source.population_person else {}
        sections["population"] = {"table": "people", **who}
    return sqlanon.Policy(
        source={"table": "t", **({"person": source.person} if source.person else {})},
        attributes=attributes,
        privacy=dict(case.privacy),
        search=search,
        release={"table": "released"},
        **sections,
    )


@contextmanager
def open_database(source: Source) -> Iterator[sqlanon.Database]:
    """A database with the source and its population."""
    types = columns_of(source)
    with duckdb.connect() as connection:
        connection.execute("SET threads = 1")
        tables = {"t": arrow_table(source.rows, types)}
        if source.population is not None:
            columns = {name: types[name] for name in source.quasi}
            columns |= {source.population_person: pa.string()} if source.population_person else {}
            if source.population_person == source.person is not None:
                columns[source.person] = types[source.person]
            tables["people"] = arrow_table(source.population, columns)
        for name, table in tables.items():
            connection.register("arrow_table", table)
            connection.execute(f"CREATE TABLE {name} AS FROM arrow_table")
            connection.unregister("arrow_table")
        with sqlanon.connect(connection) as db:
            yield db


@contextmanager
def anonymize_case(
    case: PrivacyCase, strategy: str, limits: Mapping[str, Any] | None = None
) -> Iterator[tuple[Any, sqlanon.Database, sqlanon.Policy, Path]]:
    """The result of sqlanon, its case, and a directory to publish to; ``limits`` are of each attribute."""
    with tempfile.TemporaryDirectory() as name, open_database(case.source) as db:
        policy = policy_of(case, strategy, Path(name))
        if limits:
            tree = policy.model_dump(mode="json", exclude_none=True)
            for attribute in case.source.quasi:
                tree["attributes"][attribute] |= limits
            policy = sqlanon.Policy(**tree)
        yield db.anonymize(policy), db, policy, Path(name)


def as_dict(case: PrivacyCase, levels: oracle.Levels) -> dict[str, int]:
    return dict(zip(case.source.quasi, levels, strict=True))


def check(case: PrivacyCase, strategy: str = "optimal") -> None:
    """The answer of sqlanon is the oracle's."""
    expected = (oracle_privacy.solve if strategy == "optimal" else oracle_privacy.k_minimal)(**case.arguments)
    if expected is None:
        check_infeasible(case, strategy)
        return
    release = Release(case.source, expected.levels, case.privacy)
    with anonymize_case(case, strategy) as (result, *_):
        assert math.isclose(result.score, expected.score, rel_tol=1e-9), (result.score, expected)
        assert dict(result.generalization) == as_dict(case, expected.levels), expected.ties
        assert (result.suppressed_rows, result.classes) == (expected.suppressed_rows, expected.classes)
        assert result.smallest_class == min(release.counts)
        assert result.smallest_class_rows == min(release.kept.values())
        check_persons(result, release)
        if strategy == "k_minimal":
            minimal = sorted(tuple(node[name] for name in case.source.quasi) for node in result.k_minimal)
            assert minimal == [f.levels for f in expected.satisfying]
        if case.source.population is not None:
            assert result.null_map == release.null_map
            if case.source.person and case.source.population_person:
                assert result.wrong_map == release.wrong_map


def check_persons(result: Any, release: Release) -> None:
    """The persons of the release, where persons are counted."""
    counts = (result.persons, result.released_persons, result.suppressed_persons, result.partly_released_persons)
    if release.source.person is None:
        assert counts == (None, None, None, None)
        return
    persons, lost = release.source.count(release.source.rows), release.suppressed_persons
    assert counts == (persons, persons - lost, lost, release.partly_released_persons)


def check_infeasible(case: PrivacyCase, strategy: str) -> None:
    """Check that the error says so, and that the figures of the generalization that it names are right."""
    with pytest.raises(sqlanon.InfeasibleError) as caught, anonymize_case(case, strategy):
        pass
    error, persons = caught.value, case.source.person is not None
    allowed = oracle.allowed_rows(case.limit, case.source.count(case.source.rows))
    if not case.source.rows:
        assert (error.nearest, error.suppressed_rows) == (None, 0)
        return
    if error.nearest is None:
        levels = [tree.height for tree in case.source.quasi.values()]
        assert not Release(case.source, tuple(levels), case.privacy).holds_as_a_whole()
        assert "of the population have values" in str(error)
        return
    assert (error.allowed_rows, error.allowed_persons) == ((None, allowed) if persons else (allowed, None))
    nearest = Release(case.source, tuple(error.nearest[name] for name in case.source.quasi), case.privacy)
    assert error.suppressed_rows == nearest.suppressed
    assert error.suppressed_persons == (nearest.suppressed_persons if persons else None)


S: dict[str, Any] = {"attribute": "s"}


HARD: dict[str, list[dict[str, Any]]] = {
    "entropy": [{"l_diversity": [{**S, "kind": "entropy", "l": l}]} for l in (1.5, 2, 2.5)],  # noqa: E741  (its name in the paper)
    "recursive": [{"l_diversity": [{**S, "kind": "recursive", "l": 2, "c": c}]} for c in (1.5, 2.0)],
    "equal": [{"t_closeness": [{**S, "distance": "equal", "t": t}]} for t in (0.1, 0.2, 0.3)],
    "ordered": [{"t_closeness": [{**S, "distance": "ordered", "t": t}]} for t in (0.1, 0.2, 0.3)],
    "hierarchical": [{"t_closeness": [{**S, "distance": "hierarchical", "t": t}]} for t in (0.2, 0.3)],
    "delta_disclosure": [{"delta_disclosure": [{**S, "delta": delta}]} for delta in (0.5, 1.0)],
    "beta_likeness": [{"beta_likeness": [{**S, "beta": beta}]} for beta in (0.3, 0.5, 1.0)],
    "alpha_k": [{"alpha_k": [{**S, "alpha": alpha}]} for alpha in (0.4, 0.5, 0.6)],
    "average_risk": [{"k": 2, "average_risk": limit} for limit in (0.15, 0.2, 0.25, 0.3)],
}


WITH_SUPPRESSION = {
    **HARD,
    "joint": [{"l_diversity": [{**S, "kind": "distinct", "l": 2, "joint": True}]}],
    "delta_presence": [{"delta_presence": {"max": most}} for most in (0.5, 0.8, 1.0)],
    "delta_presence_min": [{"delta_presence": {"min": 0.2, "max": most}} for most in (0.8, 1.0)],
    "with shields": [{**requirement, "k_anonymity": [{"quasi": ["x"], "k": 4}]} for requirement in HARD["entropy"]],
    "with k": [{**requirement, "k": 2} for requirement in [*HARD["entropy"], *HARD["ordered"]]],
    "with k_map": [{**requirement, "k_map": 2} for requirement in [*HARD["recursive"], *HARD["equal"]]],
    "two": [{**requirement, **second} for requirement in HARD["alpha_k"] for second in HARD["recursive"]],
}
