"""The oracle itself: worked examples, figures by hand, and proven optima on real tables."""

from __future__ import annotations

import csv
import json
import math
import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from oracles import oracle
from oracles.oracle import Hierarchy, Release, Table
from properties import random_cases
from support.lanes import examples

DATA = Path(os.environ.get("SQLANON_DATA", Path(__file__).parents[3] / "shared" / "data"))


def hierarchy_of(*paths: str) -> Hierarchy:
    """A hierarchy from ``leaf;...;root`` lines."""
    split = [tuple(path.split(";")) for path in paths]
    return Hierarchy({path[0]: path for path in split})


RACE = hierarchy_of("asian;person", "black;person", "white;person")
ZIP = hierarchy_of(*(f"{zip_};{zip_[:4]}*;021**" for zip_ in ("02138", "02139", "02141", "02142")))


# --- Sweeney 2002 -----------------------------------------------------------------------------------


def figure_2() -> tuple[list[tuple[str, ...]], dict[str, Hierarchy]]:
    rows = [
        *[("black", "1965", "m", "0214*")] * 2,
        *[("black", "1965", "f", "0213*")] * 2,
        *[("black", "1964", "f", "0213*")] * 2,
        *[("white", "1964", "m", "0213*")] * 3,
        *[("white", "1967", "m", "0213*")] * 2,
    ]
    hierarchies = {
        "race": RACE,
        "birth": hierarchy_of("1964;196*", "1965;196*", "1967;196*"),
        "gender": hierarchy_of("m;*", "f;*"),
        "zip": hierarchy_of("0213*;021**", "0214*;021**"),
    }
    return rows, hierarchies


def figure_3() -> tuple[list[tuple[str, ...]], dict[str, Hierarchy]]:
    rows = [(race, zip_) for race in RACE.paths for zip_ in ZIP.paths]
    return rows, {"race": RACE, "zip": ZIP}


def test_figure_2_is_2_anonymous_without_generalization() -> None:
    solution = oracle.solve(*figure_2(), k=2, suppression_limit="0", measure="loss")
    assert solution is not None
    assert (solution.levels, solution.score) == ((0, 0, 0, 0), 0)
    assert (solution.classes, solution.suppressed_rows) == (5, 0)


def test_figure_2_is_not_3_anonymous() -> None:
    levels = [f.levels for f in oracle.satisfying(Table.of(*figure_2()), 3, "0", "loss")]
    assert levels
    assert (0, 0, 0, 0) not in levels


@pytest.mark.parametrize(("k", "expected"), [(2, [(0, 1), (1, 0)]), (3, [(0, 2), (1, 0)])])
def test_the_oracle_finds_the_k_minimal_generalizations_of_figure_3(k: int, expected: list[tuple[int, ...]]) -> None:
    minimal = oracle.k_minimal(*figure_3(), k=k, suppression_limit="0")
    assert minimal is not None
    assert [f.levels for f in minimal.satisfying] == expected


def test_figure_3_preferences_of_samarati_and_sweeney() -> None:
    def best_solution(measure: str) -> tuple[tuple[int, ...], float]:
        solution = oracle.k_minimal(*figure_3(), k=2, suppression_limit="0", measure=measure)
        assert solution is not None
        return solution.levels, solution.score

    assert best_solution("height") == ((0, 1), 1)  # a tie: the first in lexicographic order
    assert best_solution("relative_height") == ((0, 1), 0.5)  # ZIP has height 2, race has 1
    assert best_solution("distinct") == ((0, 1), 6)
    assert best_solution("suppression") == ((0, 1), 0)


# --- figures by hand --------------------------------------------------------------------------------

# Levels (0, 1), k = 2: classes (asian, 0213*) × 2, (black, NULL) × 2; suppressed (asian, 0214*).
ROWS = [("asian", "02138"), ("asian", "02139"), ("asian", "02141"), ("black", None), ("black", None)]


@pytest.mark.parametrize(
    ("measure", "aggregate", "weights", "expected"),
    [
        # race: the kept lose 0, the one suppressed of 5 loses 1: 0.2.
        # zip has 5 leaves with the NULL: 2 rows lose (2 - 1) / 4, 2 rows 0, the suppressed 1: 1.5 / 5 = 0.3.
        ("loss", "mean", None, (0.2 + 0.3) / 2),
        ("loss", "sum", None, 0.5),
        ("loss", "max", None, 0.3),
        ("loss", "geometric", None, math.sqrt(1.2 * 1.3) - 1),
        ("loss", "mean", {"zip": 3.0}, (0.2 + 3 * 0.3) / 4),
        ("loss", "sum", {"race": 0.5, "zip": 3.0}, 0.5 * 0.2 + 3 * 0.3),
        ("precision", "mean", None, (0.2 + (4 * 0.5 + 1) / 5) / 2),
        ("precision", "max", None, 0.6),
        ("height", None, None, 1),
        ("relative_height", None, None, 0.5),
        ("discernibility", None, None, 4 + 4 + 5),
        ("average_class_size", None, None, 5 / 3),
        ("distinct", None, None, 2),
        ("suppression", None, None, 1),
        # zip: 02138 and 02139 are 1 in 2 each, 02141 and NULL alone in theirs; one suppressed row: 0.
        ("entropy", None, None, 2),
    ],
)
def test_measures_match_computations_by_hand(
    measure: str, aggregate: str | None, weights: dict[str, float] | None, expected: float
) -> None:
    release = Release(Table.of(ROWS, {"race": RACE, "zip": ZIP}), (0, 1), 2)
    assert oracle.score(release, measure, aggregate, weights) == pytest.approx(expected, rel=1e-14, abs=0)


def test_entropy_counts_suppressed_rows() -> None:
    rows = [*[("asian", "02138")] * 2, ("black", "02139"), ("white", "02139"), ("white", "?")]
    release = Release(Table.of(rows, {"race": RACE, "zip": ZIP}), (0, 1), 2)
    # race: level 0 loses nothing, the suppressed are black, white, white. zip: 02138 × 2 and 02139 × 2 under
    # 0213*, the unknown under itself; the suppressed are 0213* × 2 and the unknown.
    thirds = 2 * math.log2(3 / 2) + math.log2(3)
    assert oracle.score(release, "entropy") == pytest.approx(thirds + 4 + thirds, rel=1e-14, abs=0)


def test_one_leaf_and_height_0_lose_nothing_but_the_suppressed() -> None:
    table = Table.of(
        [("a", "x"), ("a", "x"), ("a", "y")], {"one": hierarchy_of("a;*"), "other": hierarchy_of("x;*", "y;*")}
    )
    release = Release(table, (1, 0), 2)
    assert oracle.loss(release) == [1 / 3, 1 / 3]
    flat = Release(Table.of([("a",), ("a",)], {"flat": hierarchy_of("a")}), (0,), 2)
    assert oracle.precision(flat) == oracle.loss(flat) == [0]


def test_unknown_rows_are_always_suppressed_and_count_towards_the_limit() -> None:
    rows = [("asian",), ("asian",), ("martian",), ("martian",)]
    assert oracle.solve(rows, {"race": RACE}, 2, "0.49", "loss") is None
    solution = oracle.solve(rows, {"race": RACE}, 2, "0.5", "loss")
    assert solution is not None
    assert (solution.levels, solution.suppressed_rows, solution.score) == ((0,), 2, 0.5)


def test_null_joins_the_others_at_the_top_only() -> None:
    rows = [("02138",), ("02139",), (None,)]
    assert oracle.solve(rows, {"zip": ZIP}, 2, "0.3", "loss").levels == (2,)
    assert oracle.solve(rows, {"zip": ZIP}, 2, "0.34", "loss").levels == (1,)


def test_empty_release_is_not_a_solution() -> None:
    assert oracle.solve([], {"race": RACE}, 1, "1", "loss") is None
    assert oracle.solve([("asian",)], {"race": RACE}, 2, "1", "loss") is None


def test_level_limits_restrict_solutions() -> None:
    rows, hierarchies = figure_3()
    solution = oracle.solve(rows, hierarchies, 2, "0", "height", level_limits={"zip": (2, 2)})
    assert solution is not None
    assert (solution.levels, len(solution.satisfying)) == ((0, 2), 2)
    assert oracle.solve(rows, hierarchies, 3, "0", "height", level_limits={"race": (0, 0), "zip": (0, 1)}) is None


# --- what must hold for any table -------------------------------------------------------------------


@settings(max_examples=examples(60), deadline=None)
@given(random_cases.cases())
def test_properties_of_the_answer(case: random_cases.Case) -> None:
    table = Table.of(case.rows, case.hierarchies)
    good = {f.levels for f in oracle.satisfying(table, case.k, case.limit, "suppression")}
    nodes = list(oracle.lattice(table))
    above = {b for a in good for b in nodes if oracle.strictly_lower(a, b)}
    assert above <= good, "k-anonymity with a suppression limit is monotone"
    if len(case.rows) >= case.k and len(table.known_rows) == len(table.rows):
        assert nodes[-1] in good, "the top is always a solution"
    minimal = oracle.k_minimal(**case.arguments)
    assert (minimal is None) == (not good)
    if minimal is not None:
        least = {f.levels for f in minimal.satisfying}
        assert least <= good
        assert good == least | {b for a in least for b in nodes if oracle.strictly_lower(a, b)}


# --- proven optima on real tables -------------------------------------------------------------------


def read(path: Path) -> list[list[str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file, delimiter=";"))


@cache
def known_optima() -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = json.loads((DATA / "known_optima.json").read_text(encoding="utf-8"))
    return [entry for entry in entries if entry["model"] == "k"]


@cache
def real_table(name: str, quasi: tuple[str, ...]) -> Table:
    header, *lines = read(DATA / name / f"{name}.csv")
    places = [header.index(column) for column in quasi]
    hierarchies = {
        column: Hierarchy({p[0]: tuple(p) for p in read(DATA / name / f"hierarchy_{column}.csv")}) for column in quasi
    }
    return Table.of((tuple([line[p] for p in places]) for line in lines), hierarchies)


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["adult", "fars"])
def test_figures_of_known_optima(name: str) -> None:
    if not DATA.exists():
        pytest.skip(f"no known optima in {DATA} (SQLANON_DATA says where)")
    entries = [entry for entry in known_optima() if entry["dataset"] == name]
    assert entries
    for entry in entries:
        table = real_table(name, tuple(entry["quasi"]))
        assert table.size == entry["rows"]
        figures = []
        for optimum in entry["optima"]:
            release = Release(table, tuple(optimum["levels"]), entry["k"])
            assert oracle.satisfies(release, str(entry["suppression_limit"]))
            assert (release.suppressed, len(release.kept)) == (optimum["suppressed"], optimum["classes"])
            figure = oracle.score(release, entry["measure"], entry["aggregate"])
            assert math.isclose(figure, entry["score"], rel_tol=oracle.TIE), (entry["measure"], optimum)
            figures.append(oracle.Figures(release.levels, figure, release.suppressed, len(release.kept)))
        if entry["ties"] == len(figures):
            solution = oracle.best(figures, entry["measure"])
            assert solution is not None
            assert solution.levels == tuple(entry["preferred"])
            assert len(solution.ties) == entry["ties"]
