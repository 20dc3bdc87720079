"""Real tables with proven optima: each is found again, and the tie rule picks the same generalization."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import pytest
from optima_workshop import Entry, Workshop, policy_of, workshop

import sqlanon
from oracles import oracle_privacy
from properties.adult_privacy import adult, privacy_of
from sqlanon.policy.strategies import STRATEGIES
from sqlanon.strategies.registry import run_strategy
from support.files import data_folder
from support.lanes import EXAMPLES, some

__all__ = ["workshop"]  # fixtures

pytestmark = pytest.mark.thorough

Levels = tuple[int, ...]


def entries() -> list[Entry]:
    """The proven optima: of k-anonymity alone, and together with l-diversity or t-closeness of an attribute."""
    folder = data_folder()
    if folder is None:
        return []
    document: list[Entry] = json.loads((folder / "known_optima.json").read_text(encoding="utf-8"))
    return document


def is_slow(entry: Entry) -> bool:
    """Whether it takes a thousand checks, is one of many on the larger table, or a limit between two others."""
    if entry["dataset"] == "fars":
        words = ("k", "measure", "aggregate")
        return tuple(entry[word] for word in words) != (5, "loss", "mean") or entry["suppression_limit"] != 0.05
    if entry["model"] != "k":
        if entry["model"].startswith("hierarchical"):  # it takes as long as all the others
            return True
        return (entry["suppression_limit"], entry["measure"], entry["aggregate"]) != (0.05, "loss", "mean")
    few = ("loss", "suppression") if entry["suppression_limit"] else ("loss", "suppression", "distinct")
    return entry["measure"] not in few or entry["k"] != 5 or entry["suppression_limit"] == 0.02


def parameters() -> list[Any]:
    """The slow lane has every third of the cases that take long; longer runs have all."""
    words = ("dataset", "model", "k", "suppression_limit", "measure", "aggregate")
    cases = [
        pytest.param(
            entry,
            id="-".join(str(entry[word]) for word in words if entry[word] is not None),
            marks=[pytest.mark.slow] if is_slow(entry) else [],
        )
        for i, entry in enumerate(entries())
        if not is_slow(entry) or not i % 3 or EXAMPLES > 1
    ]
    return cases or [pytest.param(None, marks=pytest.mark.skip("no test data: set SQLANON_DATA"))]


def labelled_query(folder: Path, entry: Entry) -> str:
    """The table as a query: a column ``c{i}_{level}`` for each quasi-identifier and level, in plain SQL."""
    dataset_folder = folder / entry["dataset"]
    columns, joins = [], []
    for i, name in enumerate(entry["quasi"]):
        file = dataset_folder / f"hierarchy_{name}.csv"
        columns += [f"h{i}.column{level} AS c{i}_{level}" for level in range(height_of(file) + 1)]
        text = "delim = ';', all_varchar = true"
        joins.append(f"JOIN read_csv('{file}', {text}, header = false) AS h{i} ON t.\"{name}\" = h{i}.column0")
    table_file = dataset_folder / f"{entry['dataset']}.csv"
    return f"SELECT {', '.join(columns)} FROM read_csv('{table_file}', {text}, header = true) AS t {' '.join(joins)}"


@cache
def height_of(file: Path) -> int:
    return file.read_text(encoding="utf-8").splitlines()[0].count(";")


@dataclass
class Recount:
    """The table of an entry, counted by SQL that shares nothing with sqlanon."""

    folder: Path
    connection: duckdb.DuckDBPyConnection
    made: dict[tuple[str, ...], str] = field(default_factory=dict)

    def combinations(self, entry: Entry) -> str:
        """A table of small integers for the labels of each level, and ``n`` rows. Made once."""
        key = (entry["dataset"], *entry["quasi"])
        if key not in self.made:
            name = self.made[key] = f"combinations_{len(self.made)}"
            labels = labelled_query(self.folder, entry)
            columns = [column for (column, *_) in self.connection.sql(labels).description]
            codes = ", ".join(f"CAST(dense_rank() OVER (ORDER BY {c}) AS SMALLINT) AS {c}" for c in columns)
            grouped = f"SELECT *, count(*) AS n FROM ({labels}) GROUP BY ALL"
            self.connection.execute(f"CREATE TABLE {name} AS SELECT {codes}, n FROM ({grouped})")
        return self.made[key]

    def figures(self, entry: Entry, levels: Levels) -> tuple[int, int]:
        """The suppressed rows and kept classes of a generalization."""
        group = ", ".join(f"c{i}_{level}" for i, level in enumerate(levels))
        sizes = f"SELECT sum(n) AS n FROM {self.combinations(entry)} GROUP BY {group}"
        small, large = (f"n {sign} {entry['k']}" for sign in ("<", ">="))
        ((suppressed, class_count),) = self.connection.sql(
            f"SELECT coalesce(sum(n) FILTER ({small}), 0), count(*) FILTER ({large}) FROM ({sizes})"
        ).fetchall()
        return int(suppressed), int(class_count)

    def satisfying(self, entry: Entry) -> set[Levels]:
        """Every generalization that satisfies the policy, by asking one after the other."""
        dataset_folder = self.folder / entry["dataset"]
        heights = [height_of(dataset_folder / f"hierarchy_{name}.csv") for name in entry["quasi"]]
        ((rows,),) = self.connection.sql(f"SELECT sum(n) FROM {self.combinations(entry)}").fetchall()
        allowed = math.floor(Decimal(str(entry["suppression_limit"])) * int(rows))
        feasible = set()
        for levels in itertools.product(*(range(height + 1) for height in heights)):
            suppressed, class_count = self.figures(entry, levels)
            if suppressed <= allowed and class_count:
                feasible.add(levels)
        return feasible


@pytest.fixture(scope="module")
def recount(data: Path) -> Iterator[Recount]:
    with duckdb.connect() as connection:
        connection.execute("SET threads = 1")
        yield Recount(data, connection)


@pytest.mark.parametrize("entry", parameters())
def test_the_proven_optimum_is_found(workshop: Workshop, recount: Recount, entry: Entry) -> None:
    outcome = run_strategy(workshop.task(entry), STRATEGIES["optimal"])
    search = outcome.search
    assert search is not None and outcome.levels is not None
    assert outcome.optimal
    assert search.lattice.size == entry["generalizations"]
    assert math.isclose(
        search.measure.reported_score(search.scores[outcome.levels]), entry["score"], rel_tol=1e-9, abs_tol=0
    )
    assert list(outcome.levels) == entry["preferred"]
    figures = search.figures[outcome.levels]
    # Where there are more than twenty ties the preferred one need not be among those that are listed.
    optima = {tuple(o["levels"]): (o["suppressed"], o["classes"]) for o in entry["optima"]}
    expected = optima.get(outcome.levels) or counted_again(recount, entry, outcome.levels)
    assert (figures.suppressed_rows, figures.classes) == expected


def counted_again(recount: Recount, entry: Entry, levels: Levels) -> tuple[int, int]:
    """The suppressed rows and kept classes of a generalization."""
    if entry["model"] == "k":
        return recount.figures(entry, levels)
    release = oracle_privacy.Release(adult(tuple(entry["quasi"]), entry["sensitive"]), levels, privacy_of(entry))
    return release.suppressed, len(release.kept)


def test_recounted_optima_match_the_list(recount: Recount) -> None:
    """The check above leans on it."""
    entry = next(entry for entry in entries() if entry["suppression_limit"] and entry["model"] == "k")
    first = entry["optima"][0]
    assert recount.figures(entry, tuple(first["levels"])) == (first["suppressed"], first["classes"])


@pytest.mark.parametrize("model", ["k", *(pytest.param(m, marks=pytest.mark.slow) for m in ("entropy:3", "equal:0.2"))])
def test_the_whole_job_gives_the_same_answer(data: Path, tmp_path: Path, model: str) -> None:
    """Through the public API, from CSV to a verified release."""
    wanted = ("adult", model, 5, 0.05, "loss", "mean")
    words = ("dataset", "model", "k", "suppression_limit", "measure", "aggregate")
    (entry,) = [entry for entry in entries() if tuple(entry[word] for word in words) == wanted]
    with sqlanon.connect() as db:
        policy = policy_of(entry, data)
        result = db.anonymize(policy)
        release = result.publish(tmp_path / "release.duckdb", "adult")
        assert db.verify(release.path, policy).verified
    assert list(result.generalization.items()) == list(zip(entry["quasi"], entry["preferred"], strict=True))
    assert math.isclose(result.score, entry["score"], rel_tol=1e-9)
    (first,) = entry["optima"]
    assert (result.rows, result.nodes) == (entry["rows"], entry["generalizations"])
    assert (result.suppressed_rows, result.classes) == (first["suppressed"], first["classes"])
    assert release.verify().verified
    assert release.manifest.released_rows == entry["rows"] - first["suppressed"]


def strictly_lower(lower: Levels, upper: Levels) -> bool:
    return lower != upper and all(a <= b for a, b in zip(lower, upper, strict=True))


SOME = ("sex", "age", "race", "marital-status", "education")
ALL = (*SOME, "native-country", "workclass", "salary-class")


@pytest.mark.parametrize(("quasi", "k", "limit"), some([(SOME, 10, 0.01), (SOME, 5, 0.0)], 2))
def test_k_minimal_generalizations_are_those_of_exhaustive_search(
    recount: Recount, quasi: tuple[str, ...], k: int, limit: float
) -> None:
    check_k_minimal(recount, quasi, k, limit)


def test_k_minimal_generalizations_of_a_large_lattice(recount: Recount) -> None:
    check_k_minimal(recount, ALL, 5, 0.02)


def check_k_minimal(recount: Recount, quasi: tuple[str, ...], k: int, limit: float) -> None:
    entry = {
        "dataset": "adult", "model": "k", "quasi": quasi, "k": k, "suppression_limit": limit,
        "measure": "height", "aggregate": None,
    }  # fmt: skip
    good = recount.satisfying(entry)
    minimal = {levels for levels in good if not any(strictly_lower(lower, levels) for lower in good)}
    assert len(minimal) > 1, "the case shows nothing"
    with sqlanon.connect() as db:
        result = db.anonymize(policy_of(entry, recount.folder, "k_minimal"))
        assert result.k_minimal is not None
        assert {tuple(node[name] for name in quasi) for node in result.k_minimal} == minimal
        assert len(result.k_minimal) == len(minimal)
        lowest = min(minimal, key=lambda levels: (sum(levels), levels))
        assert tuple(result.generalization.values()) == lowest
        assert result.score == sum(lowest)
