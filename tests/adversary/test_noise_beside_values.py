"""A reader of a release with noise and of another that shows the values: the nearest one is most likely true."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pytest

import sqlanon
from oracles.oracle_noise_reader import Side, few_combinations, interval, nearest_matches, told_apart
from sqlanon.errors import AuditError
from support.databases import fetch
from support.lanes import some

pytestmark = pytest.mark.slow

ROWS = 400


@pytest.fixture
def clinic(tmp_path: Path) -> Path:
    with duckdb.connect(str(tmp_path / "clinic.duckdb")) as connection:
        connection.execute(
            "CREATE TABLE visits AS SELECT 20 + i % 40 AS age, 'z' || i % 4 AS zip, 40 + i * 13 % 400 * 0.15 AS kg, "
            f"['flu', 'gout'][1 + i % 2] AS illness, i AS row_id FROM range({ROWS}) t(i)"
        )
    return tmp_path


SHOWN = {"role": "insensitive"}
ZIP = {"zip": {"role": "quasi", "hierarchy": "suppress"}}


def policy(place: Path, name: str, kg: Any, more: dict[str, Any] | None = None, **sections: Any) -> sqlanon.Policy:
    """A release with the weights and the ages, in bands."""
    if isinstance(kg, float):
        sections["privacy"] = {"linkable_noise": kg > 10} | sections.get("privacy", {})
        kg = {"role": "quasi", "noise": {"epsilon": kg}}
    band = {"role": "quasi", "hierarchy": {"intervals": [10]}, "min_level": 1}
    return sqlanon.Policy(
        source={"database": place / "clinic.duckdb", "table": "visits", "undeclared": "drop", "person": False},
        attributes={"age": band} | ({} if kg is None else {"kg": kg}) | (more or {}),
        privacy={"k": 5} | sections.pop("privacy", {}),
        release={"database": place / f"{name}.duckdb", "table": "visits"},
        catalog={"database": place / "catalog.duckdb"},
        **sections,
    )


def publish(requested_policy: sqlanon.Policy, **how: Any) -> list[tuple[Any, float, float]]:
    """Publish; of each row with noise its class, the released value and the true one."""
    with sqlanon.connect() as db:
        result = db.anonymize(requested_policy)
        result.publish(**how)
        noisy = result.noisy
        return [] if noisy is None else noisy.select("class, y_0, x_0").fetchall()


def refusal_message(requested_policy: sqlanon.Policy) -> str:
    with pytest.raises(AuditError) as caught:
        publish(requested_policy)
    return str(caught.value)


def add_bands(noisy: Sequence[tuple[Any, float, float]], place: Path) -> list[tuple[Any, float, float]]:
    """The same with the band of ages that a reader sees, by the classes in their order."""
    bands = [band for (band,) in fetch(place / "noisy.duckdb", "SELECT DISTINCT age FROM visits ORDER BY age")]
    return [(bands[class_ - 1], released, true) for class_, released, true in noisy]


def test_weak_noise_and_then_the_value_is_refused(clinic: Path) -> None:
    """The comparison includes the columns with noise: the nearest value joins most rows."""
    noisy = add_bands(publish(policy(clinic, "noisy", 1000.0)), clinic)
    message = refusal_message(policy(clinic, "exact", SHOWN, ZIP))
    assert "by intervals around values with noise (kg, 99% confidence)" in message
    assert "rows of that release can be fewer than 5 rows of this one" in message
    assert "leave the column out, or generalize it further" in message
    assert not (clinic / "exact.duckdb").exists()
    publish(policy(clinic, "exact", SHOWN, ZIP), force=True)
    exact = fetch(clinic / "exact.duckdb", "SELECT age, kg FROM visits")
    assert nearest_matches(noisy, [(band, float(kg)) for band, kg in exact]) > 250  # 323 on average, give or take 8


@pytest.mark.thorough
def test_the_value_and_then_weak_noise_is_refused(clinic: Path) -> None:
    publish(policy(clinic, "exact", SHOWN, ZIP))
    message = refusal_message(policy(clinic, "noisy", 1000.0))
    assert "rows of this one can be fewer than 5 rows of that release" in message


@pytest.mark.thorough
def test_strong_noise_may_be_published_beside_the_values(clinic: Path) -> None:
    """Strong noise excludes no row of a class; and a release without the column is compared by its other columns."""
    publish(policy(clinic, "noisy", 4.0))
    publish(policy(clinic, "exact", SHOWN, ZIP))
    publish(policy(clinic, "without", None, ZIP))


@pytest.mark.thorough
def test_a_release_without_the_column_may_follow_weak_noise(clinic: Path) -> None:
    publish(policy(clinic, "noisy", 1000.0))
    publish(policy(clinic, "without", None, ZIP))


# --- against the oracle

K = 4
SHAPES = [("noise", "value"), ("value", "noise"), ("noise", "bands"), ("bands", "noise"), ("noise", "noise")]


def make_small(place: Path, seed: int) -> None:
    rng = random.Random(seed)
    with duckdb.connect(str(place / "clinic.duckdb")) as connection:
        connection.execute("CREATE TABLE visits (age INTEGER, kg INTEGER)")
        values = [rng.sample(range(300), rng.randint(1, 12)) for _ in range(3)]
        rows = [(20 + 10 * (i % 3), rng.choice(values[i % 3])) for i in range(rng.randint(15, 40))]
        connection.executemany("INSERT INTO visits VALUES (?, ?)", rows)


def release_of(place: Path, name: str, shape: str, epsilon: float) -> sqlanon.Policy:
    attribute: Any = SHOWN
    if shape == "bands":
        attribute = {"role": "quasi", "hierarchy": {"intervals": [20, 100]}, "min_level": 1}
    elif shape == "noise":
        attribute = {"role": "quasi", "noise": {"epsilon": epsilon}}
    return policy(
        place,
        name,
        attribute,
        privacy={"k": K, "epsilon_total": 4000, "linkable_noise": True} if shape == "noise" else {"k": K},
        search={"suppression_limit": 1.0 if shape == "bands" else 0},
    )


def side_of(place: Path, name: str, shape: str, epsilon: float, truth: dict[str, list[int]]) -> Side:
    """Knowledge of a reader about each row, with the ranges of classes that only the data holder has."""
    rows = fetch(place / f"{name}.duckdb", "SELECT age, kg FROM visits")
    if shape == "value":
        return [(age, age, kg, kg) for age, kg in rows]
    if shape == "noise":
        return [
            (age, age, *interval(kg, min(truth[age]), max(truth[age]), epsilon, 0.99, rounding_of(truth[age])))
            for age, kg in rows
        ]
    every = [kg for values in truth.values() for kg in values]
    return [(age, (age, label), *ends_of(label, every)) for age, label in rows]


def ends_of(label: str, every: list[int]) -> tuple[float, float]:
    low, high = (int(end) for end in label.split("-")) if label != "*" else (0, 10**6)
    inside = [value for value in every if low <= value <= high]
    return min(inside), max(inside)


def rounding_of(values: list[int]) -> float:
    """Half of a step of whole numbers, which are 1 apart at least, and half of a step of the grid."""
    delta = max(values) - min(values)
    return (0.5 if delta else 0.0) + delta / 2048


@pytest.mark.parametrize("seed", some(range(60), 60))
def test_the_rows_that_are_counted_are_those_of_all_pairs(seed: int, tmp_path: Path) -> None:
    make_small(tmp_path, seed)
    shapes, epsilon = SHAPES[seed % len(SHAPES)], [6.0, 10.0, 40.0, 1000.0][seed % 4]
    truth: dict[str, list[int]] = {}
    for age, kg in fetch(tmp_path / "clinic.duckdb", "SELECT age, kg FROM visits"):
        truth.setdefault(f"{age}-{age + 9}", []).append(kg)
    counts, sides = (0, 0, 0, 0, 0), []
    for name, shape in zip(("one", "two"), shapes, strict=True):
        with sqlanon.connect() as db:
            result = db.anonymize(release_of(tmp_path, name, shape, epsilon))
            try:
                result.publish()
            except AuditError as error:
                assert name == "two"
                counts = counts_in(str(error))
                result.publish(force=True)  # with the same noise
        sides.append(side_of(tmp_path, name, shape, epsilon, truth))
    of_first, of_second = told_apart(*sides, K), told_apart(*reversed(sides), K)
    combinations = few_combinations(sides[0], sides[1], K)
    assert counts == (of_first[0], of_second[0], of_first[1], of_second[1], combinations)


def counts_in(message: str) -> tuple[int, ...]:
    """Counts in a refusal: linked rows of that release and of this one, removed and added rows, and combinations."""
    forms = (
        r"(\d+) rows? of that release can be fewer",
        r"(\d+) rows? of this one can be fewer",
        r"(\d+) rows? of that release (?:is|are) gone",
        r"(\d+) rows? of this one (?:is|are) new",
        r"(\d+) combinations? of values ha(?:s|ve) fewer than \d+ rows",
    )
    return tuple(int(search_result[1]) if (search_result := re.search(form, message)) else 0 for form in forms)
