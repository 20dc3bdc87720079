"""Figures of a release follow from its rows: another value of one person changes none of them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import sqlanon
from sqlanon.ledger.joint.release_links import (
    NO_HIERARCHIES,
    ComparedHierarchies,
    ComparedHierarchy,
    ComparedRelease,
    link_releases,
)
from sqlanon.policy import SearchSection
from sqlanon.support.expressions import table
from support.lanes import examples, some
from support.policies import make_policy

pytestmark = pytest.mark.thorough

Row = tuple[int | None, str | None, str]

BLOCKS = ((20, 21, 22, 23, 24), (31, 32, 33), (90, 91), (None,))
CITIES = {"North": ["Aston", "Bever"], "South": ["Corby", "Derby", "Exton"]}
MEASURES = (
    "loss",
    "precision",
    "height",
    "relative_height",
    "discernibility",
    "average_class_size",
    "distinct",
    "suppression",
    "entropy",
)
FULL = ("optimal", "k_minimal", "samarati", "samarati-binary", "incognito", "ola", "flash", "datafly")
LOCAL = ("mondrian", "k-similar", "subtree", "local", "mu-argus")
OF_LEVELS = ("height", "relative_height", "entropy")


def release_of(rows: list[Row], policy: sqlanon.Policy) -> tuple[Counter[Any], dict[str, Any]] | None:
    """The rows of a release, and its manifest; None if infeasible."""
    with TemporaryDirectory() as folder, duckdb.connect() as connection:
        path = Path(folder) / "release.parquet"
        connection.execute("CREATE TABLE t (age INTEGER, town VARCHAR, illness VARCHAR)")
        connection.executemany("INSERT INTO t VALUES (?, ?, ?)", rows)
        try:
            with sqlanon.connect(connection) as db:
                db.anonymize(policy).publish(path)
        except sqlanon.InfeasibleError:
            return None
        released_table = pq.read_table(path)
        manifest = json.loads(released_table.schema.metadata[b"sqlanon"])
        return Counter(map(tuple, (row.values() for row in released_table.to_pylist()))), manifest


def figures(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest without the time of publication."""
    return {name: value for name, value in manifest.items() if name != "published_at"}


@st.composite
def policies(draw: st.DrawFn) -> sqlanon.Policy:
    strategy = draw(st.sampled_from(FULL + LOCAL))
    cells = strategy in FULL and draw(st.integers(0, 5)) == 0
    measures = [measure for measure in MEASURES if not ((strategy in LOCAL or cells) and measure in OF_LEVELS)]
    search: dict[str, Any] = {
        "strategy": strategy,
        "measure": draw(st.sampled_from(measures)),
        "suppression_limit": draw(st.sampled_from([0.3, 0.5])),
    }
    if cells:
        search["suppression"] = "cells"
    level = 0 if strategy in LOCAL else draw(st.sampled_from([1, 1, 1, 0]))
    attributes = {
        "age": {"role": "quasi", "hierarchy": {"intervals": [5, 10]}, "min_level": level},
        "town": {"role": "quasi", "hierarchy": {"categories": CITIES}, "min_level": level},
        "illness": "sensitive",
    }
    return make_policy(
        attributes,
        k=2,
        search=search,
        release={"suppressed": draw(st.sampled_from(["drop", "mask"]))},
    )


@st.composite
def neighbours(draw: st.DrawFn) -> tuple[list[Row], list[Row]]:
    """Two tables that differ in one value of one person: mostly in one that the first labels do not distinguish."""
    blocks = st.sampled_from((*BLOCKS[:1] * 3, *BLOCKS[1:]))
    ages = blocks.flatmap(st.sampled_from)
    regions = st.sampled_from((*CITIES.values(), (None,)))
    towns = regions.flatmap(st.sampled_from)
    rows = draw(st.lists(st.tuples(ages, towns, st.sampled_from(["flu", "gout"])), min_size=5, max_size=9))
    at = draw(st.integers(0, len(rows) - 1))
    age, town, illness = rows[at]
    alike = next(block for block in BLOCKS if age in block)
    near = next((region for region in CITIES.values() if town in region), [None])
    if draw(st.booleans()):
        return rows, [*rows[:at], (draw(st.sampled_from(alike) | ages), town, illness), *rows[at + 1 :]]
    return rows, [*rows[:at], (age, draw(st.sampled_from(near) | towns), illness), *rows[at + 1 :]]


def check(pair: tuple[list[Row], list[Row]], policy: sqlanon.Policy) -> None:
    assume(pair[0] != pair[1])
    released_rows = release_of(pair[0], policy)
    assume(released_rows is not None)
    assert released_rows is not None
    # A column that is all NULL hides its level.
    assume(all(any(row[i] is not None for row in released_rows[0]) for i in range(2)))
    second_release = release_of(pair[1], policy)
    assume(second_release is not None and released_rows[0] == second_release[0])
    assert second_release is not None
    assert figures(released_rows[1]) == figures(second_release[1])


@settings(max_examples=examples(300), suppress_health_check=[HealthCheck.filter_too_much])
@given(neighbours(), policies())
def test_one_value_of_one_person_changes_no_figure(pair: tuple[list[Row], list[Row]], policy: sqlanon.Policy) -> None:
    check(pair, policy)


# All of one label: whatever their ages are, the rows of the release are the same.
@pytest.mark.parametrize(
    ("measure", "suppressed"),
    some(product(["height", "precision", "loss", "relative_height"], ["mask", "drop"]), 8),
)
def test_the_top_of_a_mask_does_not_show_how_long_the_longest_text_is(measure: str, suppressed: str) -> None:
    """All towns are hidden; the longest is that of a suppressed person, whose age forms a separate class."""
    kept_rows: list[Row] = [(20, town, "flu") for town in ("AB", "CD", "EF", "GH")]
    attributes = {
        "age": {"role": "quasi", "hierarchy": "suppress", "max_level": 0},
        "town": "mask",
        "illness": "sensitive",
    }
    search = {"suppression_limit": 0.5, "measure": measure}
    policy = make_policy(attributes, k=4, search=search, release={"suppressed": suppressed})
    releases = [
        release_of([*kept_rows, *((90 + i, text, "flu") for i in range(4))], policy) for text in ("XY", "XYZ", "XYZVW")
    ]
    seen = [None if release is None else (release[0], figures(release[1])) for release in releases]
    assert seen[0] is not None
    assert seen[0] == seen[1] == seen[2]
    manifest = seen[0][1]
    assert json.loads(manifest["generalization"]) == {"age": 0, "town": 1}
    assert json.loads(manifest["heights"]) == {"age": 1, "town": 1}
    assert (manifest["score"] is None) == (measure in ("height", "loss"))


def hidden_towns(place: Path, name: str, low: int = 5, **release: Any) -> sqlanon.Policy:
    """People in a file, whose towns have five letters; ``low`` 5 is the top."""
    source = place / "people.duckdb"
    if not source.exists():
        with duckdb.connect(source) as connection:
            connection.execute("""
                CREATE TABLE t AS
                SELECT i AS id, 20 + i % 3 AS age, 'town' || i % 2 AS town, 'illness ' || i % 5 AS illness
                FROM range(60) AS r(i)
            """)
    return make_policy(
        {
            "age": {"role": "quasi", "hierarchy": {"intervals": [5]}},
            "town": {"role": "quasi", "hierarchy": {"mask": "right"}, "min_level": low},
            "illness": "sensitive",
        },
        k=5,
        table=None,
        source={"database": source, "table": "t", "key": ["id"], "undeclared": "drop"},
        release={"database": place / f"{name}.duckdb", **release},
        catalog={"database": place / "private.duckdb"},
    )


def test_the_comparison_with_the_source_includes_fully_suppressed_attributes(tmp_path: Path) -> None:
    policy = hidden_towns(tmp_path, "one")
    with sqlanon.connect() as db:
        result = db.anonymize(policy)
        release = result.publish()
        assert (result.generalization, result.to_dict()["generalization"]["town"]) == ({"age": 0, "town": 5}, 5)
        assert (release.manifest.generalization, release.manifest.heights) == (
            {"age": 0, "town": 1},
            {"age": 2, "town": 1},
        )
        assert db.verify(release.path, policy).verified
        attacks = sqlanon.attack(release.path, policy, only=["dependencies", "downcoding", "unsorted_matching"])
        assert {name: (outcome.victims, outcome.skipped) for name, outcome in attacks.items() if outcome.victims} == {}
        # A later one that is based on it shows no more of the towns.
        later = hidden_towns(tmp_path, "two", 0, after=["one"])
        based = db.anonymize(later)
        assert based.generalization["town"] == 5
        assert db.verify(based.publish().path, later).verified
    with duckdb.connect(release.path, read_only=True) as connection:
        relation = connection.execute(
            "SELECT level, height, what_was_done FROM release_overview WHERE attribute = 'town'"
        )
        assert relation.fetchall() == [(1, 1, "level 1 of 1: fully suppressed")]


def test_a_release_at_the_top_of_a_mask_can_grow(tmp_path: Path) -> None:
    policy = hidden_towns(tmp_path, "one")
    with sqlanon.connect() as db:
        db.anonymize(policy).publish()
    with duckdb.connect(tmp_path / "people.duckdb") as connection:
        connection.execute("INSERT INTO t SELECT 100 + i, 21, 'town' || i, 'flu' FROM range(5) AS r(i)")
    with sqlanon.connect() as db:
        extension = db.extend(policy)
        assert (extension.added_rows, extension.generalization) == (5, {"age": 0, "town": 5})
        release = extension.publish()
        assert (release.manifest.generalization, release.manifest.heights) == (
            {"age": 0, "town": 1},
            {"age": 2, "town": 1},
        )
        assert db.verify(release.path, policy).verified
    changes = [
        "INSERT INTO t SELECT 200 + i, 20, 'a longer town', 'flu' FROM range(5) AS r(i)",
        "DELETE FROM t WHERE id > 99",
    ]
    for change, rows, top in zip(changes, (70, 70), (13, 5), strict=True):  # a shorter mask shows no more
        with duckdb.connect(tmp_path / "people.duckdb") as connection:
            connection.execute(change)
        with sqlanon.connect() as db:
            extension = db.extend(policy)
            assert extension.generalization == {"age": 0, "town": top}
            release = extension.publish()
            assert release.manifest.heights == {"age": 2, "town": 1}
        with duckdb.connect(release.path, read_only=True) as connection:
            towns = f"SELECT town, count(*) FROM {release.manifest.table_name} GROUP BY town"
            assert connection.execute(towns).fetchall() == [("*", rows)]


def levels_of(claims: sqlanon.Release, levels: dict[str, int], heights: dict[str, int] | None) -> ComparedRelease:
    manifest = replace(claims.manifest, generalization=levels, heights=heights)
    return ComparedRelease(claims.path, manifest, table("t"))


def test_the_top_is_not_taken_for_the_first_level(tmp_path: Path) -> None:
    """Labels of two releases are joined as they are where both are at one level, and met by their hierarchy else."""
    with sqlanon.connect() as db:
        release = db.anonymize(hidden_towns(tmp_path, "one")).publish()
    first = levels_of(release, {"age": 0, "town": 1}, {"age": 2, "town": 5})
    top = levels_of(release, {"age": 0, "town": 1}, {"age": 2, "town": 1})
    older = levels_of(release, {"age": 0, "town": 5}, {"age": 2, "town": 5})
    oldest = levels_of(release, {"age": 0, "town": 5}, None)
    assert {
        name: link_releases(*pair, NO_HIERARCHIES).missing
        for name, pair in {
            "first and top": (first, top),
            "top and older": (top, older),
            "top and oldest": (top, oldest),
            "first and first": (first, first),
        }.items()
    } == {"first and top": ("town",), "top and older": (), "top and oldest": ("town",), "first and first": ()}
    tree = ComparedHierarchy(table("h"), 5)
    trees = ComparedHierarchies({"town": tree}, {"town": [top.rule("town")]})
    (_, town) = link_releases(first, top, trees).attributes
    assert (town.first_levels, town.second_levels) == ((1,), (5,))
    (_, town) = link_releases(top, oldest, trees).attributes
    assert (town.first_levels, town.second_levels) == ((5,), (5,))


def test_a_release_that_shows_the_level_of_its_top_still_verifies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The top is shown as level 5 of 5, with the score that follows from it."""
    requested_policy = hidden_towns(tmp_path, "one").model_copy(update={"search": SearchSection(measure="height")})
    monkeypatch.setattr(
        "sqlanon.publish.draft.public_generalization", lambda policy, levels, heights: (levels, heights)
    )
    with sqlanon.connect() as db:
        release = db.anonymize(requested_policy).publish()
        manifest = release.manifest
        assert (manifest.generalization["town"], manifest.heights, manifest.score) == (5, {"age": 2, "town": 5}, 5)
        assert [check.passed for check in release.verify().checks if check.name == "score"] == [True]
        assert release.verify().verified
        assert db.verify(release.path, requested_policy).verified
