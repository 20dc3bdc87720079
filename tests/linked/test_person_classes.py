"""Classes of persons with levels of their own hide each person among k, lose little, and obey the limits."""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter, defaultdict
from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pytest
from sqlglot import exp

import sqlanon
from oracles.oracle_linked import LinkedDatabase, best, combinations_of
from properties.linked_cases import LinkedCase, make_linked_case
from sqlanon.errors import InfeasibleError, PolicyError
from sqlanon.linked.anonymize import ClassesResult, LinkedResult
from sqlanon.linked.classes import mondrian
from sqlanon.linked.publish.stage import LinkedRelease
from sqlanon.policy.linked import LinkedPolicy
from support.commands import cli
from support.databases import small_database
from support.lanes import draw_tables
from support.linked_databases import two_tables
from support.linked_hospital import POLICY, make_hospital

MOST_GENERALIZATIONS = 100

Labels = dict[int, tuple[Any, ...]]


@dataclass(frozen=True)
class Reader:
    """A release as its reader sees it. Rows are named by their tags, which are the numbers of source rows."""

    database: LinkedDatabase
    labels: list[Labels]
    """The released quasi-identifiers, by table and row."""

    def groups(self, known: int | str) -> dict[Hashable, set[int]]:
        """The persons who share the knowledge of an attacker."""
        groups: dict[Hashable, set[int]] = defaultdict(set)
        rows: dict[int, Counter[Hashable]] = {person: Counter() for person in self.labels[0]}
        for (t, number), person in self.database.person_of.items():
            if number in self.labels[t]:
                rows[person][self.database.known_row(self.labels, t, number)] += 1
        for person, labels in self.labels[0].items():
            if known == "all":
                groups[self.signature(0, person)].add(person)
                continue
            for size in range(int(known) + 1):
                for combination in combinations_of(rows[person], size):
                    groups[labels, combination].add(person)
        return groups

    def signature(self, t: int, number: int) -> Hashable:
        """The labels of a row with the nested multisets of its child rows."""
        children = [at for at in self.database.children_of.get((t, number), ()) if at[1] in self.labels[at[0]]]
        return self.labels[t][number], tuple(sorted(((at[0], self.signature(*at)) for at in children), key=repr))

    def loss(self, weights: tuple[float, ...]) -> float:
        """The loss of the released labels; each label has one level."""
        losses = []
        for t, table in enumerate(self.database.tables):
            for i, hierarchy in enumerate(table.hierarchies):
                values = {row.values[i] for row in table.rows}
                ground = [*hierarchy.paths, *([None] if None in values else [])]
                total = 0.0
                for row in table.rows:
                    if row.number not in self.labels[t]:
                        total += 1
                        continue
                    label = self.labels[t][row.number][i]
                    level = next(
                        at for at in range(hierarchy.height + 1) if hierarchy.label(row.values[i], at) == label
                    )
                    leaves = sum(hierarchy.label(value, level) == label for value in ground)
                    total += (leaves - 1) / (len(ground) - 1) if len(ground) > 1 else 0
                losses.append(total / len(table.rows) if table.rows else 0)
        return math.fsum(x * w for x, w in zip(losses, weights, strict=True)) / math.fsum(weights)


def publish(case: LinkedCase, row_limit: float, path: Path) -> tuple[LinkedResult, Reader] | None:
    """The result of a case, and its release; None if nothing meets the policy."""
    connection = small_database()
    case.fill(connection)
    tree = case.policy()
    tree["search"] |= {"row_suppression_limit": row_limit, "strategy": "mondrian"}
    for t, (table, section) in enumerate(zip(case.database.tables, tree["table"], strict=True)):
        connection.execute(f"ALTER TABLE {table.name} ADD COLUMN tag INTEGER")
        connection.execute(f"UPDATE {table.name} SET tag = id_{t} - 100")
        section["attributes"]["tag"] = {"role": "insensitive"}
    with sqlanon.connect(connection) as db:
        try:
            result = db.anonymize(LinkedPolicy(**tree))
        except InfeasibleError:
            return None
        release = result.publish(path)
    assert release.verify().verified
    assert release.manifest.smallest_group >= case.k
    labels: list[Labels] = []
    with duckdb.connect(str(path), read_only=True) as reader:
        for table in case.database.tables:
            names = ", ".join(["tag", *(f'"{name}"' for name in table.names)])
            rows = reader.execute(f"SELECT {names} FROM {table.name}").fetchall()
            labels.append({tag: tuple(values) for tag, *values in rows})
    return result, Reader(case.database, labels)


@pytest.mark.cases(1)
@pytest.mark.parametrize(
    ("number", "row_limit"),
    [
        pytest.param(number, limit, marks=[] if number in (0, 4) else [pytest.mark.slow])
        for number, limit in zip(range(draw_tables(6, 50)), itertools.cycle((0.2, 0.0, 0.34)))
    ],
)
def test_every_release_hides_each_person_and_obeys_the_limits(number: int, row_limit: float, tmp_path: Path) -> None:
    case = make_linked_case(number)
    database = case.database
    published = publish(case, row_limit, tmp_path / "release.duckdb")
    heights = math.prod(height + 1 for height in database.heights)
    optimum = None
    if not row_limit and heights <= MOST_GENERALIZATIONS:
        optimum = best(database, case.k, case.known, case.allowed_persons, case.weights)
        assert (published is None) == (optimum is None)
    if published is None:
        return
    result, reader = published
    assert min(map(len, reader.groups(case.known).values())) >= case.k
    suppressed = database.everything.persons - reader.labels[0].keys()
    assert result.suppressed_persons == len(suppressed) <= case.allowed_persons
    missing = [at for at, person in database.person_of.items() if at[1] not in reader.labels[at[0]]]
    alone = [at for at in missing if database.person_of[at] not in suppressed]
    assert len(alone) <= row_limit * len(database.person_of)
    assert result.score == pytest.approx(reader.loss(case.weights), abs=1e-9)
    assert not result.optimal
    assert optimum is None or result.score <= optimum.score + 1e-9


def hospital(connection: duckdb.DuckDBPyConnection, patients: int) -> None:
    """Patients in regions of unequal size, with up to seven visits."""
    connection.execute(f"""
        CREATE TABLE patients AS
        SELECT
            i AS patient_id,
            'tag ' || i AS tag,
            (100 + hash(i) % 7 * (hash(i, 1) % 5))::VARCHAR AS zip,
            (20 + hash(i, 2) % 60)::INTEGER AS age
        FROM range({patients}) AS r(i);
        CREATE TABLE visits AS
        SELECT
            row_number() OVER () AS visit_id,
            patient_id,
            DATE '2023-01-01' + (hash(patient_id, j) % 730)::INTEGER AS seen,
            'ward ' || least(hash(patient_id, j, 3) % 4, hash(j, patient_id) % 8) AS ward
        FROM patients, range(1 + (hash(patient_id, 9) % 3 * (hash(patient_id, 10) % 3))::INTEGER) AS r(j)
    """)


def hospital_policy(strategy: str, known: int | str, **zip_keys: Any) -> LinkedPolicy:
    """A policy for the hospital."""
    patients = {
        "tag": {"role": "insensitive"},
        "zip": {"role": "quasi", "hierarchy": {"mask": "right"}, **zip_keys},
        "age": {"role": "quasi", "hierarchy": {"intervals": [5, 10, 20, 40]}},
    }
    visits = {
        "seen": {"role": "quasi", "hierarchy": {"dates": ["month", "quarter", "year"]}},
        "ward": {"role": "quasi", "hierarchy": "suppress"},
    }
    search = {"strategy": strategy, "suppression_limit": 0.05}
    return LinkedPolicy(**two_tables(patients, visits, privacy={"k": 4, "known": known}, search=search))


@pytest.fixture(scope="module")
def stopped_result(wards: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[ClassesResult, LinkedRelease]:
    """A result of three rounds with limits on levels and labels, and its release."""
    policy = hospital_policy("mondrian", 1, min_level=1, max_level=2, forbidden=["12*"])
    policy = policy.model_copy(update={"search": policy.search.model_copy(update={"max_checks": 3})})
    with sqlanon.connect(wards) as db:
        result = db.anonymize(policy)
        assert isinstance(result, ClassesResult)
        return result, result.publish(tmp_path_factory.mktemp("stopped") / "release.duckdb")


@pytest.fixture(scope="module")
def wards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database of 400 patients."""
    path = tmp_path_factory.mktemp("hospital") / "hospital.duckdb"
    with duckdb.connect(str(path)) as connection:
        hospital(connection, 400)
    return path


@pytest.mark.thorough
@pytest.mark.parametrize("known", [pytest.param(2, marks=pytest.mark.thorough), "all"])
def test_classes_of_persons_lose_less_than_the_full_domain_optimum(wards: Path, known: int | str) -> None:
    with sqlanon.connect(wards) as db:
        optimum = db.anonymize(hospital_policy("optimal", known))
        local = db.anonymize(hospital_policy("mondrian", known))
    assert optimum.optimal
    assert local.score < 0.95 * optimum.score


@pytest.mark.slow
def test_the_release_does_not_depend_on_the_number_of_threads(wards: Path, tmp_path: Path) -> None:
    rows = []
    for threads in (1, 3):
        with sqlanon.connect(wards, threads=threads) as db:
            result = db.anonymize(hospital_policy("mondrian", "all"))
            result.publish(tmp_path / f"{threads}.duckdb")
        with duckdb.connect(str(tmp_path / f"{threads}.duckdb"), read_only=True) as reader:
            query = "SELECT tag, zip, age, seen, ward FROM patients LEFT JOIN visits USING (patient_id) ORDER BY ALL"
            rows.append(reader.execute(query).fetchall())
    assert rows[0] == rows[1]
    figures = result.to_dict()
    assert figures["tables"]["patients"]["generalization"]["age"] is None
    assert figures["classes"] > 10


def test_levels_outside_the_limits_and_forbidden_labels_are_not_released(
    stopped_result: tuple[ClassesResult, LinkedRelease],
) -> None:
    with duckdb.connect(str(stopped_result[1].path), read_only=True) as reader:
        labels = {label for (label,) in reader.execute("SELECT DISTINCT zip FROM patients").fetchall()}
    assert labels
    assert all(re.fullmatch(r"1[0-9*]\*", label) and label != "12*" for label in labels), labels


@pytest.mark.thorough
def test_a_limit_on_the_rounds_leaves_coarser_classes_that_meet_the_policy(
    stopped_result: tuple[ClassesResult, LinkedRelease],
) -> None:
    result, release = stopped_result
    assert release.verify().verified
    assert result.classes.rounds == 3
    assert result.score < 1


@pytest.mark.thorough
@pytest.mark.parametrize("known", [1, 2, 3])
def test_combinations_are_counted_in_parts_alike(wards: Path, known: int, monkeypatch: pytest.MonkeyPatch) -> None:
    scores = []
    for part in (10**9, 700):
        monkeypatch.setattr("sqlanon.linked.classes.class_snapshot._MAX_COMBINATIONS", part)
        with sqlanon.connect(wards) as db:
            policy = hospital_policy("mondrian", known)
            search = policy.search.model_copy(update={"max_checks": 4})
            scores.append(db.anonymize(policy.model_copy(update={"search": search})).score)
    assert scores[0] == scores[1]


@pytest.mark.slow
def test_the_command_line_names_classes_and_mixed_levels(tmp_path: Path) -> None:
    labs, privacy = POLICY.index('[[table]]\nname = "labs"'), POLICY.index("[privacy]")
    make_hospital(tmp_path, POLICY[:labs] + POLICY[privacy:])
    settings = ("search.strategy=mondrian", "privacy.known=1", "search.max_checks=3")
    ended = cli("anonymize", tmp_path / "policy.toml", *(word for setting in settings for word in ("--set", setting)))
    assert ended.status == 0, ended.err
    assert "loss" in ended.out
    assert "classes of persons, each with its own levels" in ended.out
    assert "mixed" in ended.out
    assert cli("verify", tmp_path / "release.duckdb").status == 0


def test_other_local_strategies_are_refused_and_mondrian_named() -> None:
    with pytest.raises(PolicyError, match="'forest' is not supported with several tables: use \"mondrian\" for local"):
        hospital_policy("forest", 2)


@pytest.mark.parametrize("allowed", [0, 2, 3, 5, 100])
def test_the_best_steps_are_taken_within_the_limit(allowed: int) -> None:
    """Steps that suppress persons gain at least one for each person, and are taken in the order of that gain."""
    gains = {1: 0.5, 2: 0.5, 3: 0.5, 4: 1.0, 5: 0.1, 6: 2.0, 7: 0.25}
    counts = {1: (4, 0), 2: (4, 2), 3: (4, 3), 4: (9, 3), 5: (9, 0), 6: (0, 1), 7: (8, 1)}  # following, unassigned
    costly = [
        (-gains[step] * following / unassigned, step)
        for step, (following, unassigned) in counts.items()
        if following and unassigned and gains[step] * following >= unassigned
    ]
    assert [step for _, step in sorted(costly)] == [4, 7, 2]
    taken, suppressed = {step for step, (following, unassigned) in counts.items() if following and not unassigned}, 0
    for _, step in sorted(costly):
        suppressed += counts[step][1]
        taken |= {step} if suppressed <= allowed else set()
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE step_counts (parent_class INTEGER, following BIGINT, unassigned BIGINT)")
        connection.executemany("INSERT INTO step_counts VALUES (?, ?, ?)", [(i, *pair) for i, pair in counts.items()])
        connection.execute("CREATE TABLE moves (class_id INTEGER, gain DOUBLE)")
        connection.executemany("INSERT INTO moves VALUES (?, ?)", [*gains.items()])
        query = mondrian._TAKEN_STEPS(
            step_counts=exp.to_table("step_counts"), moves=exp.to_table("moves"), allowed=allowed
        )
        rows = connection.execute(query.sql("duckdb")).fetchall()
    assert sorted(rows) == [(step,) for step in sorted(taken)]
