"""A reader who knows whose row each released row is counts the persons of every class, and those who lost a row."""

from __future__ import annotations

import json
import random
import shutil
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pytest

import sqlanon
from sqlanon.policy.strategies import STRATEGIES
from support.commands import cli
from support.lanes import examples, some

pytestmark = pytest.mark.slow

K = 3
ZIPS = ("110", "111", "120", "210", "211")
Visits = list[tuple[int, str, int, str | None, float | None]]


def visits(seed: int) -> Visits:
    """Rows of persons who mostly stay where they are: a few move, and some have unique rows."""
    rng, rows = random.Random(seed), []
    for person in range(rng.randint(12, 20)):
        who = None if person == 11 else f"p{person}"
        home, age = rng.choice(ZIPS[:4]), rng.choice([20, 21, 22, 30])
        for _ in range(rng.choice([1, 2, 3, 9])):
            moved = rng.random() < 0.15
            zip_ = rng.choice(ZIPS) if moved else home
            old = rng.choice([20, 21, 22, 30, 31, 80]) if moved else age
            rows.append((len(rows), zip_, old, who, rng.choice([1.5, 2.5, 3.5, None]) if rng.random() < 0.2 else 4.5))
    return rows


@contextmanager
def open_database(rows: Visits) -> Iterator[sqlanon.Database]:
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t (row_id INTEGER, zip VARCHAR, age INTEGER, who VARCHAR, cost DOUBLE)")
        connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?)", rows)
        with sqlanon.connect(connection) as db:
            yield db


def policy_of(limit: float, attributes: dict[str, Any] | None = None, **search: Any) -> sqlanon.Policy:
    return sqlanon.Policy(
        source={"table": "t", "person": "who"},
        attributes={
            "zip": {"role": "quasi", "hierarchy": {"mask": "right"}},
            "age": {"role": "quasi", "hierarchy": {"intervals": [10, 40]}},
            "row_id": {"role": "insensitive"},
            "cost": {"role": "insensitive"},
        }
        | (attributes or {}),
        privacy={"k": K},
        search={"suppression_limit": limit, "max_checks": 300, **search},
        release={"table": "t", "suppressed": "drop"},
    )


def read(
    path: Path, rows: Visits, quasi: tuple[str, ...] = ("zip", "age")
) -> tuple[list[set[str | None]], list[int], int, int]:
    """The persons of each class, its rows, the persons who lost a row, and those of them who have another one."""
    whose = {row_id: who for row_id, _, _, who, _ in rows}
    with duckdb.connect(str(path), read_only=True) as connection:
        released = connection.execute(f"SELECT row_id, {', '.join(quasi)} FROM t").fetchall()
    classes = defaultdict(list)
    for row_id, *labels in released:
        classes[tuple(labels)].append(row_id)
    row_ids = {row_id for row_id, *_ in released}
    lost = {who for row_id, who in whose.items() if row_id not in row_ids}
    left = {who for row_id, who in whose.items() if row_id in row_ids}
    return (
        [{whose[row] for row in some_} for some_ in classes.values()],
        [*map(len, classes.values())],
        len(lost),
        len(lost & left),
    )


def check(
    result: sqlanon.Result, path: Path, rows: Visits, limit: float, quasi: tuple[str, ...] = ("zip", "age")
) -> None:
    persons = len({who for *_, who, _ in rows})
    classes, sizes, lost, partly = read(path, rows, quasi)
    assert lost <= int(round(limit * 100) * persons / 100)
    assert (result.persons, result.suppressed_persons, result.released_persons) == (persons, lost, persons - lost)
    assert result.partly_released_persons == partly
    assert result.suppressed_rows == len(rows) - sum(sizes)
    fewest = min(map(len, classes))
    assert (result.smallest_class, result.smallest_class_rows) == (fewest, min(sizes))
    if result.policy.search.strategy != "mu-argus":  # it guarantees k of some quasi-identifiers at a time
        assert fewest >= K


SUPPRESSING = 11
"""Seed of a table in which suppressing some persons is best."""

WAYS: list[dict[str, Any]] = [
    *({"strategy": name} for name, strategy in STRATEGIES.items() if not strategy.traits.may_split_equal_rows),
    {"suppression": "cells"},
    {"strategy": "mondrian", "summary": "set", "cuts": "relaxed"},
    {"strategy": "k-similar", "summary": "median"},
]


def check_way(way: dict[str, Any], seed: int, tmp_path: Path) -> int | None:
    """The persons who lost a row; None where no release is possible."""
    rng, rows = random.Random(seed), visits(seed)
    limit = rng.choice([0.0, 0.06, 0.1, 0.2])
    with open_database(rows) as db:
        try:
            result = db.anonymize(policy_of(limit, **way))
        except sqlanon.InfeasibleError as error:
            assert error.allowed_rows is None
            assert error.allowed_persons == int(round(limit * 100) * len({who for *_, who, _ in rows}) / 100)
            return None
        result.publish(tmp_path / f"{seed}.duckdb")
        check(result, tmp_path / f"{seed}.duckdb", rows, limit)
        return result.suppressed_persons


@pytest.mark.parametrize("way", WAYS, ids=lambda way: " ".join(map(str, way.values())))
def test_every_strategy_keeps_k_and_the_limit_in_persons(way: dict[str, Any], tmp_path: Path) -> None:
    lost = check_way(way, SUPPRESSING, tmp_path)
    assert lost or way != {"strategy": "optimal"}
    for seed in range(SUPPRESSING + 1, SUPPRESSING + examples(6)):
        check_way(way, seed, tmp_path)


@pytest.mark.thorough
def test_masked_rows_are_of_suppressed_persons() -> None:
    """They are in the release; their persons count as those who lost a row."""
    rows = [(i, "110", 20, f"p{i % 20}", 1.0) for i in range(60)] + [
        (60 + i, f"2{i}0", 80, f"p{i}", 1.0) for i in range(4)
    ]
    with open_database(rows) as db:
        policy = policy_of(0.2, {"zip": {"role": "quasi", "hierarchy": "suppress"}})
        masked = policy.model_copy(update={"release": policy.release.model_copy(update={"suppressed": "mask"})})
        result = db.anonymize(masked)
    assert (result.suppressed_rows, result.released_rows) == (4, 64)
    assert (result.suppressed_persons, result.released_persons, result.partly_released_persons) == (4, 16, 4)


@pytest.mark.thorough
@pytest.mark.parametrize("way", some(["optimal", "local", "mu-argus", "subtree", "iab", "k-similar"], 1))
def test_rows_of_unknown_values_count_for_the_limit(way: str, tmp_path: Path) -> None:
    rows = [(i, "110" if i % 2 else "111", 20, f"p{i // 3}", 1.0) for i in range(60)]
    rows += [(60 + i, "110", 30, f"p{i}", 1.0) for i in range(2)]
    tree = {
        "age": {
            "role": "quasi",
            "hierarchy": {"categories": {"young": ["20"], "old": ["80"]}},
            "on_unknown": "suppress",
        }
    }
    with open_database(rows) as db:
        result = db.anonymize(policy_of(0.1, tree, strategy=way))
        result.publish(tmp_path / "r.duckdb")
        check(result, tmp_path / "r.duckdb", rows, 0.1)
        assert result.suppressed_persons == 2
        with pytest.raises(sqlanon.InfeasibleError) as caught:
            db.anonymize(policy_of(0.05, tree, strategy=way))
        assert caught.value.allowed_persons == 1


def test_rows_that_are_suppressed_after_noise_count_for_the_limit(tmp_path: Path) -> None:
    """Two of twenty persons have a cost that noise cannot be added to, one of them in one row of three."""
    pytest.importorskip("opendp")
    rows: Visits = [(i, "110", 20, f"p{i // 3}", 1.0 + i) for i in range(60)]
    rows[0] = (*rows[0][:4], None)
    rows[3:6] = [(*row[:4], None) for row in rows[3:6]]
    cost = {"cost": {"role": "quasi", "noise": {"epsilon": 1.0}, "on_unknown": "suppress"}}
    with open_database(rows) as db:
        result = db.anonymize(policy_of(0.1, cost))
        result.publish(tmp_path / "r.duckdb")
        check(result, tmp_path / "r.duckdb", rows, 0.1)
        assert (result.suppressed_persons, result.partly_released_persons) == (2, 1)
        with pytest.raises(sqlanon.InfeasibleError, match="rows of 2 of 20 persons") as caught:
            db.anonymize(policy_of(0.09, cost))
        assert (caught.value.suppressed_persons, caught.value.allowed_persons) == (2, 1)


@pytest.mark.thorough
def test_the_command_counts_persons(tmp_path: Path) -> None:
    """Two of twenty persons lose a row, one of them all rows; a class of four persons has five rows."""
    rows: Visits = [(i, "110", 20, f"p{i % 15}", 1.0) for i in range(60)]
    rows += [(60 + i, "111", 20, f"q{i % 4}", 1.0) for i in range(5)] + [
        (65, "210", 80, "r", 1.0),
        (66, "211", 80, "p0", 1.0),
    ]
    with duckdb.connect(str(tmp_path / "t.duckdb")) as connection:
        connection.execute("CREATE TABLE t (row_id INTEGER, zip VARCHAR, age INTEGER, who VARCHAR, cost DOUBLE)")
        connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?)", rows)
    (tmp_path / "p.toml").write_text("""
        [source]
        database = "t.duckdb"
        table = "t"
        person = "who"
        [attributes]
        zip = { role = "quasi", hierarchy = "suppress", max_level = 0 }
        age = { role = "quasi", hierarchy = "suppress", max_level = 0 }
        row_id = { role = "insensitive" }
        cost = { role = "insensitive" }
        [privacy]
        k = 3
        [search]
        suppression_limit = 0.1
        [release]
        database = "r.duckdb"
        table = "t"
    """)
    ended = cli("anonymize", tmp_path / "p.toml")
    assert ended.status == 0, ended.err
    out = ended.out
    summary = "18 of 20 persons released with all their rows, 2 with suppressed rows (10 %); 1 of them have other rows"
    assert summary in out
    assert "2 classes; the smallest has 4 persons (5 rows or more)" in out
    figures = json.loads(cli("anonymize", tmp_path / "p.toml", "--json").out)
    names = ("persons", "released_persons", "suppressed_persons", "partly_released_persons", "smallest_class")
    assert [figures[name] for name in names] == [20, 18, 2, 1, 4]
    assert (figures["smallest_class_rows"], figures["suppressed_rows"]) == (5, 2)


@pytest.mark.thorough
def test_the_manifest_has_the_persons_that_verify_counts(tmp_path: Path) -> None:
    """A claim of more released persons, or of larger classes, is refuted by the source; a contradiction alone."""
    rows: Visits = [(i, "110", 20, f"p{i % 15}", 1.0) for i in range(60)]
    rows += [(60 + i, "111", 20, f"q{i % 4}", 1.0) for i in range(5)] + [(65, "210", 80, "p0", 1.0)]
    suppress = {name: {"role": "quasi", "hierarchy": "suppress", "max_level": 0} for name in ("zip", "age")}
    policy = policy_of(0.1, suppress)
    with open_database(rows) as db:
        path = tmp_path / "r.duckdb"
        manifest = db.anonymize(policy).publish(path).manifest
        counts = (manifest.persons, manifest.released_persons, manifest.suppressed_persons)
        assert (*counts, manifest.partly_released_persons) == (19, 18, 1, 1)
        assert (manifest.smallest_class, manifest.smallest_class_rows) == (4, 5)
        verification = db.verify(path, policy)
        assert verification.verified, verification.failures
        for claim, alone in {
            "released_persons = 19, suppressed_persons = 0, partly_released_persons = 0": False,
            "smallest_class = 5": False,
            "released_persons = 19": True,
            "persons = NULL": True,
            "smallest_class_rows = 6": True,
        }.items():
            forged = tmp_path / "forged.duckdb"
            shutil.copy(path, forged)
            with duckdb.connect(str(forged)) as connection:
                connection.execute(f"UPDATE sqlanon.manifest SET {claim}")
            checks = {check.name: check.passed for check in db.verify(forged, policy).checks}
            checked_alone = all(
                passed is not False for name, passed in checks.items() if name in ("manifest", "smallest class")
            )
            assert checked_alone is not alone
            assert not db.verify(forged, policy).verified


@pytest.mark.thorough
def test_strategies_are_compared_by_the_persons_who_lose_rows(tmp_path: Path) -> None:
    rows: Visits = [(i, "110", 20, f"p{i % 15}", 1.0) for i in range(60)] + [(60, "210", 80, "p0", 1.0)]
    suppress = {name: {"role": "quasi", "hierarchy": "suppress", "max_level": 0} for name in ("zip", "age")}
    with open_database(rows) as db:
        compared = db.compare(policy_of(0.1, suppress), ["optimal", "datafly"])
        assert compared.project("strategy, suppressed_rows, suppressed_persons").fetchall() == [
            ("optimal", 1, 1),
            ("datafly", 1, 1),
        ]
        db.anonymize(policy_of(0.1, suppress)).report(tmp_path / "r.html", private=True)
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "At most 10 % of the people may lose rows." in page
    assert "14 of 15 people are released with all their rows; 1 (" in page
