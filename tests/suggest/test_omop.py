"""`suggest` knows the OMOP common data model: the roles of columns, the person of a row, concepts by ancestors."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import duckdb
import pytest

from sqlanon.policy.linked import LinkedPolicy
from sqlanon.suggest.omop import ColumnRole, read_roles
from support.commands import cli

TABLES = """
    CREATE TABLE person AS
    SELECT
        i * 3 AS person_id, 8507 + i % 2 * 25 AS gender_concept_id, 1950 + i % 50 AS year_of_birth,
        8527 AS race_concept_id, 0 AS ethnicity_concept_id, 'MRN' || i AS person_source_value, 'x' AS local_column
    FROM range(200) AS r(i);
    CREATE TABLE visit_occurrence AS
    SELECT i AS visit_occurrence_id, i % 190 * 3 AS person_id, 9202 AS visit_concept_id,
        DATE '2024-01-01' + (i % 300)::INTEGER AS visit_start_date, 'v' || i AS visit_source_value
    FROM range(400) AS r(i);
    CREATE TABLE condition_occurrence AS
    SELECT i AS condition_occurrence_id, i % 201 * 3 AS person_id, 100 + i % 9 AS condition_concept_id,
        DATE '2024-01-01' + (i % 300)::INTEGER AS condition_start_date, i % 400 AS visit_occurrence_id
    FROM range(500) AS r(i);
    CREATE TABLE death AS
    SELECT i * 3 AS person_id, DATE '2024-06-01' + (i % 30)::INTEGER AS death_date FROM range(20) AS r(i);
    CREATE TABLE drug_exposure (drug_exposure_id INTEGER, person_id INTEGER);
    CREATE TABLE note AS SELECT i AS note_id, i * 3 AS person_id, 'seen today' AS note_text FROM range(20) AS r(i);
    CREATE TABLE concept AS SELECT i AS concept_id, 'c' || i AS concept_name, 'X' AS concept_class_id
    FROM range(200) AS r(i);
    CREATE TABLE concept_ancestor AS
    SELECT
        CASE step WHEN 0 THEN 100 + i WHEN 1 THEN 50 + i // 3 ELSE 10 END AS ancestor_concept_id,
        100 + i AS descendant_concept_id,
        step AS min_levels_of_separation
    FROM range(9) AS r(i), range(3) AS s(step)
    UNION ALL
    SELECT 10, 50 + i, 1 FROM range(3) AS r(i);
"""


@pytest.fixture
def hospital(tmp_path: Path) -> Path:
    """A folder with a small database of the common data model, with a vocabulary."""
    with duckdb.connect(str(tmp_path / "omop.duckdb")) as connection:
        connection.execute(TABLES)
    return tmp_path


def suggest(folder: Path, *arguments: str) -> tuple[str, LinkedPolicy]:
    ended = cli("suggest", *arguments, "-o", "policy.toml", cwd=folder)
    assert (ended.status, ended.err) == (0, "")
    return (folder / "policy.toml").read_text(encoding="utf-8"), LinkedPolicy.load(folder / "policy.toml")


def test_the_roles_are_data_with_a_key_for_each_table() -> None:
    roles = read_roles()
    assert [*roles] == [
        *("person", "observation_period", "visit_occurrence", "condition_occurrence", "drug_exposure"),
        *("procedure_occurrence", "measurement", "death"),
    ]
    for columns in roles.values():
        assert columns["person_id"].role == "key"
        assert all(entry.rule is None for entry in columns.values() if entry.role != "quasi")
        assert all(entry.rule is not None for entry in columns.values() if entry.role == "quasi")
        assert all(entry.reason for entry in columns.values() if entry.role == "identifying")
    assert ColumnRole("quasi", "concepts", "").rule == "suppress"


def test_each_row_names_its_person_and_no_visit(hospital: Path) -> None:
    text, policy = suggest(hospital, "omop.duckdb")
    assert {section.name: dict(section.references) for section in policy.table} == {
        "person": {},
        "visit_occurrence": {"person_id": "person"},
        "condition_occurrence": {"person_id": "person"},
        "death": {"person_id": "person"},
    }
    by_name = {section.name: section for section in policy.table}
    assert by_name["death"].key == ("person_id",)
    assert by_name["condition_occurrence"].attributes["visit_occurrence_id"].role == "identifying"
    assert by_name["condition_occurrence"].orphans == "suppress"
    assert by_name["visit_occurrence"].orphans == "error"
    assert by_name["person"].attributes["local_column"].role == "identifying"
    words = " ".join(text.replace("#", " ").split())
    assert "Rows of condition_occurrence name their person directly, because some have no visit" in words
    assert "Not in this policy: drug_exposure, note." in words
    assert "--hierarchies" in text
    assert " \n" not in text


@pytest.mark.slow
def test_events_that_all_name_a_visit_of_their_person_belong_to_it(hospital: Path) -> None:
    with duckdb.connect(str(hospital / "omop.duckdb")) as connection:
        connection.execute("UPDATE condition_occurrence SET person_id = visit_occurrence_id % 190 * 3")
    text, policy = suggest(hospital, "omop.duckdb")
    (conditions,) = (section for section in policy.table if section.name == "condition_occurrence")
    assert dict(conditions.references) == {"visit_occurrence_id": "visit_occurrence", "person_id": "person"}
    assert (conditions.key, conditions.orphans) == (("condition_occurrence_id",), "error")
    assert "person_id names the row of person that this row belongs to" in text
    assert "name their person directly" not in text
    settings = ("privacy.known=1", "search.strategy=optimal", "search.row_suppression_limit=0", "search.max_checks=4")
    options = [part for setting in settings for part in ("--set", setting)]
    released = cli("anonymize", "policy.toml", *options, "--set", "search.suppression_limit=0.9", cwd=hospital)
    assert released.status == 0, released.err


@pytest.mark.thorough
def test_two_deaths_of_a_person_are_no_key(hospital: Path) -> None:
    with duckdb.connect(str(hospital / "omop.duckdb")) as connection:
        connection.execute("INSERT INTO death SELECT * FROM death LIMIT 1")
    text, policy = suggest(hospital, "omop.duckdb")
    (death,) = (section for section in policy.table if section.name == "death")
    assert death.key == ()
    assert "row_suppression_limit needs a key of each table" in text


@pytest.mark.slow
def test_files_in_capitals_are_the_same_tables_and_make_a_release(hospital: Path) -> None:
    """Other databases export names in capitals. With the vocabulary, concepts are generalized to their ancestors."""
    (hospital / "export").mkdir()
    with duckdb.connect(str(hospital / "omop.duckdb")) as connection:
        for name in ("person", "visit_occurrence", "condition_occurrence", "death", "concept", "concept_ancestor"):
            columns = [row[0] for row in connection.execute(f"DESCRIBE {name}").fetchall()]
            output = ", ".join(f"{column} AS {column.upper()}" for column in columns)
            connection.execute(f"COPY (SELECT {output} FROM {name}) TO '{hospital}/export/{name.upper()}.csv'")
    _, policy = suggest(hospital, "export", "--hierarchies", "levels")
    assert [section.name for section in policy.table] == ["PERSON", "VISIT_OCCURRENCE", "CONDITION_OCCURRENCE", "DEATH"]
    file = hospital / "levels" / "CONDITION_OCCURRENCE" / "hierarchy_CONDITION_CONCEPT_ID.csv"
    assert file.read_text().splitlines() == [f"{100 + i};{50 + i // 3};*" for i in range(9)]
    assert file.stat().st_mode & 0o777 == 0o600
    settings = ("privacy.known=1", "search.strategy=optimal", "search.row_suppression_limit=0", "search.max_checks=4")
    options = [part for setting in settings for part in ("--set", setting)]
    ended = cli("anonymize", "policy.toml", *options, cwd=hospital)
    assert ended.status == 0
    with duckdb.connect(str(hospital / "export_release.duckdb"), read_only=True) as connection:
        labels = connection.execute("SELECT DISTINCT CONDITION_CONCEPT_ID FROM CONDITION_OCCURRENCE").fetchall()
    assert {label for (label,) in labels} <= {*map(str, range(200)), "*"}


# Trees of concepts


def plain_tree(used: Mapping[int, int], distances: Mapping[tuple[int, int], int]) -> dict[int, list[int]]:
    """The chain of each used concept up to a root, in plain Python: ``distances`` is by descendant and ancestor."""
    weights: Counter[int] = Counter()
    for (descendant, ancestor), distance in distances.items():
        if distance:
            weights[ancestor] += used.get(descendant, 0)

    def parent(concept: int) -> int | None:
        above = [(distance, -weights[ancestor], ancestor) for (below, ancestor), distance in distances.items()
                 if below == concept and distance]  # fmt: skip
        return min(above)[2] if above else None

    chains: dict[int, list[int]] = {}
    for concept in used:
        chain = [concept]
        while (above := parent(chain[-1])) is not None:
            chain.append(above)
        chains[concept] = chain
    return chains


def random_ancestors(seed: int) -> tuple[dict[int, int], dict[tuple[int, int], int]]:
    """Rows by used concept, and the shortest distances in a random graph without cycles."""
    draw = random.Random(seed)
    concepts = range(100, 140)
    parents = {
        concept: draw.sample(range(100, concept), min(concept - 100, draw.choice([0, 1, 1, 2, 3])))
        for concept in concepts
    }
    distances: dict[tuple[int, int], int] = {}
    for concept in concepts:
        distances[concept, concept] = 0
        for above in parents[concept]:
            for (below, ancestor), distance in [*distances.items()]:
                if below == above:
                    distances[concept, ancestor] = min(distances.get((concept, ancestor), 99), distance + 1)
    used = {concept: draw.randrange(1, 9) for concept in draw.sample(concepts, 25)}
    return used, distances


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 25))])
def test_a_graph_of_concepts_becomes_the_tree_of_plain_python(seed: int, hospital: Path) -> None:
    """Each level of the file is the ancestor at one depth of the chain; a concept above it is its own label."""
    used, distances = random_ancestors(seed)
    with duckdb.connect(str(hospital / "omop.duckdb")) as connection:
        connection.execute("DELETE FROM concept_ancestor; DELETE FROM condition_occurrence")
        connection.execute("DROP TABLE death; DROP TABLE note; DROP TABLE drug_exposure")
        connection.executemany(
            "INSERT INTO concept_ancestor VALUES (?, ?, ?)",
            [(ancestor, descendant, distance) for (descendant, ancestor), distance in distances.items()],
        )
        rows = [concept for concept, count in used.items() for _ in range(count)]
        connection.executemany(
            "INSERT INTO condition_occurrence VALUES (?, ?, ?, DATE '2024-01-01', NULL)",
            [(number, number % 200 * 3, concept) for number, concept in enumerate(rows, 1)],
        )
    suggest(hospital, "omop.duckdb", "--hierarchies", "levels")
    file = hospital / "levels" / "condition_occurrence" / "hierarchy_condition_concept_id.csv"
    chains = plain_tree(used, distances)
    depths: list[int] = []
    below = len(used)
    for depth in range(max(map(len, chains.values())) - 2, -1, -1):
        labels = {concept: label_at(chain, depth) for concept, chain in chains.items()}
        if 1 < len({*labels.values()}) <= below / 2 and len(depths) < 3:
            depths.append(depth)
            below = len({*labels.values()})
    if not depths:
        assert not file.exists()
        return
    lines = [line.split(";") for line in file.read_text().splitlines()]
    assert {line[0]: line[1:-1] for line in lines} == {
        str(concept): [str(label_at(chain, depth)) for depth in depths] for concept, chain in chains.items()
    }


def label_at(chain: list[int], depth: int) -> int:
    """The concept of a chain at a depth below its root, else its first."""
    return chain[len(chain) - 1 - depth] if depth < len(chain) else chain[0]
