"""Strategy mondrian: the parts and the labels of a slow, plain mondrian; and worked examples."""

from __future__ import annotations

import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_mondrian import Part, Plain, released_labels

import sqlanon
from oracles import oracle_privacy
from properties import privacy_checks
from properties.local_tasks import LIMITS, adult, local_policy
from properties.privacy_cases import PrivacyCase, privacy_cases
from properties.random_cases import Case, cases
from properties.search_checks import arrow_table, thorough
from sqlanon.strategies.local.core.finish import on_combinations
from sqlanon.strategies.local.core.task import LocalOutcome, LocalTask
from sqlanon.strategies.local.mondrian import mondrian
from support.lanes import examples, some

pytestmark = pytest.mark.slow

MONDRIAN = {"strategy": "mondrian"}


def check(
    case: Case,
    limits: Sequence[int],
    summary: str,
    cuts: str,
    publish: bool = False,
    ends: str = "grid",
    at_once: bool = True,
) -> None:
    seen: list[int] = []

    def beside_a_plain_one(task: LocalTask) -> LocalOutcome:
        outcome = mondrian(task)
        plain = Plain(task, summary, cuts == "relaxed", case.k)
        parts = plain.parts()
        expected = {combination: plain.render(part) for part in parts for combination in part}
        assert released_labels(task, outcome) == expected
        if (summary, cuts, ends) == ("range", "strict", "exact"):
            for part in parts:
                refuse_further_cuts(plain, part)
        seen.append(len(expected))
        return outcome

    with pytest.MonkeyPatch().context() as patch, tempfile.TemporaryDirectory() as name:
        patch.setattr("sqlanon.strategies.local.mondrian.run", on_combinations(beside_a_plain_one))
        if not at_once:  # one statement a round, as on a large table
            patch.setattr("sqlanon.strategies.local.mondrian.MAX_RECURSIVE", 0)
        policy = local_policy(
            case, Path(name), limits, **MONDRIAN, suppression_limit=1.0, summary=summary, cuts=cuts, ends=ends
        )
        with sqlanon.connect(arrow_table(case)) as db:
            try:
                result = db.anonymize(policy)
            except sqlanon.InfeasibleError:
                assert not any(seen)
                return
            assert seen[0]
            assert result.smallest_class >= case.k
            if publish:
                assert db.verify(result.publish(Path(name) / "r.duckdb").path, policy).verified


def refuse_further_cuts(plain: Plain, part: Part) -> None:
    """No border, and no child of the lowest common ancestor, has rows enough on both sides."""
    for column in plain.columns:
        place = column.common(part)
        if place == 0:
            continue
        if column.ordered:
            lows = sorted({column.value(combination).low for combination in part})
            sides = [[c for c in part if column.value(c).low <= low] for low in lows[:-1]]
        else:
            children = {column.paths[combination][place - 1] for combination in part}
            sides = [[c for c in part if column.paths[c][place - 1] == child] for child in children]
        for side in sides:
            assert min(plain.rows(side), plain.rows(part) - plain.rows(side)) < plain.k


SUMMARIES, CUTS = st.sampled_from(["range", "set", "median"]), st.sampled_from(["strict", "relaxed"])
ENDS_OF_RANGES = st.sampled_from(["grid", "exact"])


@pytest.mark.thorough
@settings(thorough, max_examples=examples(50))
@given(cases(), LIMITS, SUMMARIES, CUTS, st.booleans(), ENDS_OF_RANGES, st.booleans())
def test_parts_and_labels_are_those_of_a_plain_mondrian(
    case: Case, limits: list[int], summary: str, cuts: str, publish: bool, ends: str, at_once: bool
) -> None:
    check(case, limits, summary, cuts, publish, ends, at_once)


def check_privacy(case: PrivacyCase, summary: str, cuts: str) -> None:
    """The release meets every requirement, and exists wherever the top generalization meets them."""
    refused = {"k_map", "null_map", "wrong_map", "delta_presence", "average_risk", "sample_uniqueness"}
    privacy = {name: requirement for name, requirement in case.privacy.items() if name not in refused} or {"k": 2}
    case = replace(case, privacy=privacy, measure="loss", aggregate=None, source=replace(case.source, population=None))
    heights = tuple(tree.height for tree in case.source.quasi.values())
    top = oracle_privacy.Release(case.source, heights, privacy)
    with tempfile.TemporaryDirectory() as name, privacy_checks.open_database(case.source) as db:
        tree = privacy_checks.policy_of(case, "optimal", Path(name)).model_dump(mode="json", exclude_none=True)
        tree["search"] |= MONDRIAN | {"summary": summary, "cuts": cuts}
        policy = sqlanon.Policy(**tree)
        if not oracle_privacy.satisfies(top, case.limit):
            with pytest.raises(sqlanon.InfeasibleError):
                db.anonymize(policy)
            return
        result = db.anonymize(policy)
        assert result.suppressed_rows == top.suppressed
        release = result.publish(Path(name) / "r.duckdb")
        verification = db.verify(release.path, policy)
        assert verification.verified, verification.failures


@pytest.mark.thorough
@privacy_checks.thorough
@given(privacy_cases(), SUMMARIES, CUTS)
def test_every_requirement_stops_the_cuts(case: PrivacyCase, summary: str, cuts: str) -> None:
    check_privacy(case, summary, cuts)


# --- worked examples ----------------------------------------------------------------------------------

PATIENTS = """CREATE TABLE t AS FROM (VALUES
    (25, 'Male', 53711, 'Flu'), (25, 'Female', 53712, 'Hepatitis'), (26, 'Male', 53711, 'Brochitis'),
    (27, 'Male', 53710, 'Broken Arm'), (27, 'Female', 53712, 'AIDS'), (28, 'Male', 53711, 'Hang Nail')
) AS v(age, sex, zip, disease)"""

HAMBURG = """CREATE TABLE t AS FROM (VALUES
    ('w', 22981, 1944, 'Hepatitis'), ('w', 22362, 1945, 'Gicht'), ('w', 22669, 1949, 'Arthrose'),
    ('w', 22862, 1985, 'Diabetes'), ('w', 22875, 1992, 'Demenz'), ('m', 22997, 1936, 'Arthrose'),
    ('m', 22121, 1949, 'Diabetes'), ('m', 22350, 1963, 'Demenz'), ('m', 22188, 1964, 'Demenz'),
    ('m', 22997, 1975, 'Hepatitis')
) AS v(sex, zip, born, disease)"""


@contextmanager
def run_mondrian(
    statement: str, hierarchies: Mapping[str, Any], privacy: Mapping[str, Any], **search: Any
) -> Iterator[tuple[Any, list[tuple[Any, ...]], list[str]]]:
    """The result for a small table, the rows of its release in the table's columns, and their types."""
    with duckdb.connect() as connection, tempfile.TemporaryDirectory() as folder:
        connection.execute(statement)
        columns = [row[0] for row in connection.execute("DESCRIBE t").fetchall()]
        attributes = {
            column: {"role": "quasi", "hierarchy": hierarchies[column]}
            if column in hierarchies
            else {"role": "sensitive"}
            for column in columns
        }
        policy = sqlanon.Policy(
            source={"table": "t"}, attributes=attributes, privacy=dict(privacy), release={"table": "released"},
            search={**MONDRIAN, **search},
        )  # fmt: skip
        with sqlanon.connect(connection) as db:
            result = db.anonymize(policy)
            release = result.publish(Path(folder) / "r.duckdb")
        with duckdb.connect(str(release.path), read_only=True) as reader:
            sql = reader.sql(f"SELECT {', '.join(columns)} FROM released ORDER BY ALL")
            yield result, sql.fetchall(), [str(type_) for type_ in sql.types]


PLAIN_TREES = {"age": {"intervals": [5, 10]}, "sex": "suppress", "zip": {"mask": "right"}}


@pytest.mark.thorough
@pytest.mark.parametrize("cuts", some(["strict", "relaxed"], 2))
def test_mondrian_makes_the_release_of_the_paper(cuts: str) -> None:
    """The multidimensional 2-anonymization that the paper shows of its six patients."""
    with run_mondrian(PATIENTS, PLAIN_TREES, {"k": 2}, cuts=cuts, ends="exact") as (result, rows, _):
        assert rows == [
            ("25-26", "Male", "53711", "Brochitis"),
            ("25-26", "Male", "53711", "Flu"),
            ("25-27", "Female", "53712", "AIDS"),
            ("25-27", "Female", "53712", "Hepatitis"),
            ("27-28", "Male", "53710-53711", "Broken Arm"),
            ("27-28", "Male", "53710-53711", "Hang Nail"),
        ]
        assert (result.classes, result.suppressed_rows, result.checked) == (3, 0, 3)


@pytest.mark.thorough
def test_ranges_of_the_patients_of_the_paper_end_on_the_grid() -> None:
    """Ages end at multiples of five, ZIP codes at their last but one digit."""
    with run_mondrian(PATIENTS, PLAIN_TREES, {"k": 2}) as (result, rows, _):
        assert Counter(row[:3] for row in rows) == {("25-29", "Male", "5371*"): 4, ("25-29", "Female", "53712"): 2}
        assert result.losses["age"] == 1


@pytest.mark.thorough
@pytest.mark.parametrize("summary", some(["set", "range"], 2))
def test_many_values_take_few_rounds(summary: str) -> None:
    statement = "CREATE TABLE t AS SELECT 'v' || i // 2 AS x FROM range(128) AS r(i)"
    with run_mondrian(statement, {"x": "suppress"}, {"k": 2}, summary=summary) as (result, rows, _):
        assert result.classes == len(set(rows)) == 64
        assert result.checked < 64 / 2


@pytest.mark.thorough
def test_medians_are_values_of_their_columns() -> None:
    with run_mondrian(PATIENTS, PLAIN_TREES, {"k": 2}, summary="median", ends="exact") as (_, rows, types):
        assert types[:3] == ["INTEGER", "VARCHAR", "INTEGER"]
        assert Counter(row[:3] for row in rows) == {
            (25, "Male", 53711): 2, (25, "Female", 53712): 2, (27, "Male", 53710): 2,
        }  # fmt: skip


@pytest.mark.thorough
@pytest.mark.parametrize(
    "privacy", some([{"k": 2, "l_diversity": [{"attribute": "disease", "kind": "distinct", "l": 2}]}, {"k": 2}], 2)
)
def test_ten_patients_are_all_released(privacy: dict[str, Any]) -> None:
    trees = {"sex": "suppress", "zip": {"mask": "right"}, "born": {"intervals": [10, 20]}}
    with run_mondrian(HAMBURG, trees, privacy) as (result, rows, _):
        assert (len(rows), result.suppressed_rows) == (10, 0)
        assert result.classes >= 4
        classes = defaultdict(list)
        for *quasi, disease in rows:
            classes[tuple(quasi)].append(disease)
        assert all(len(diseases) >= 2 for diseases in classes.values())
        if "l_diversity" in privacy:
            assert all(len(set(diseases)) >= 2 for diseases in classes.values())


@pytest.mark.thorough
def test_null_is_in_no_range_of_dates() -> None:
    """NULL is in no range, and a range of dates can be read; a month is not a range."""
    statement = """CREATE TABLE t AS FROM (VALUES
        (DATE '2020-01-05', 1), (DATE '2020-01-07', 1), (DATE '2021-03-01', 1), (DATE '2021-03-01', 1), (NULL, 2),
        (NULL, 2), (NULL, 3), (DATE '2022-01-01', 3)) AS v(day, ward)"""
    trees = {"day": {"dates": ["month", "year"]}, "ward": "suppress"}
    other_rows = {("2021-03-01", 1): 2, (None, 2): 2, ("*", 3): 2}
    with run_mondrian(statement, trees, {"k": 2}, ends="exact") as (_, rows, _):
        assert Counter(rows) == {("2020-01-05 to 2020-01-07", 1): 2, **other_rows}
    with run_mondrian(statement, trees, {"k": 2}) as (_, rows, _):
        assert Counter(rows) == {("2020-01", 1): 2, **other_rows}


def test_a_class_shows_its_set() -> None:
    """If the set has all values of an ancestor, the ancestor is shown."""
    statement = (
        """CREATE TABLE t AS FROM (VALUES ('a', 2), ('b', 2), ('c', 1), ('d', 1), ('a', 3), ('c', 3)) AS v(x, y)"""
    )
    trees = {"x": {"categories": {"ab": ["a", "b"], "cde": ["c", "d", "e"]}}, "y": "suppress"}
    with run_mondrian(statement, trees, {"k": 2}, summary="set", ends="exact") as (result, rows, _):
        assert Counter(rows) == {("ab", 2): 2, ("{c, d}", 1): 2, ("{a, c}", 3): 2}
        assert result.score == pytest.approx(1 / 4 / 2)


@pytest.mark.thorough
def test_set_lists_only_values_of_k_rows() -> None:
    """One row has a, and one e, as one has their groups."""
    statement = """CREATE TABLE t AS FROM (VALUES
        ('a', 'p'), ('e', 'p'), ('b', 'q'), ('c', 'q'), ('b', 'r'), ('c', 'r'))
        AS v(x, y)"""
    trees = {"x": {"categories": {"a": ["a"], "bc": ["b", "c", "d"], "e": ["e"]}}, "y": "suppress"}
    pairs = {("{b, c}", "q"): 2, ("{b, c}", "r"): 2}
    for ends, label in (("grid", "*"), ("exact", "{a, e}")):
        with run_mondrian(statement, trees, {"k": 2}, summary="set", ends=ends) as (_, rows, _):
            assert Counter(rows) == {(label, "p"): 2, **pairs}


@pytest.mark.thorough
@pytest.mark.parametrize("limit", some([{"time_limit": 1e-9}, {"max_checks": 1}], 2))
def test_mondrian_may_be_stopped_at_any_time(limit: dict[str, Any]) -> None:
    """The parts so far meet the requirements; there is always a first round."""
    with run_mondrian(PATIENTS, PLAIN_TREES, {"k": 2}, ends="exact", **limit) as (result, _, _):
        assert (result.checked, result.classes, result.optimal) == (1, 2, False)


# --- real tables --------------------------------------------------------------------------------------

FIGURES = {
    ("range", "strict", 5): (0.02793, 3197),
    ("range", "relaxed", 5): (0.02754, 3221),
    ("set", "strict", 2): (0.00358, 6972),
    ("set", "strict", 5): (0.01278, 3222),
    ("set", "relaxed", 5): (0.01274, 3231),
}


@pytest.mark.thorough
@pytest.mark.parametrize(("summary", "cuts", "k"), FIGURES)
def test_adult_loses_little_and_nothing_is_suppressed(data: Path, summary: str, cuts: str, k: int) -> None:
    """Little is lost, and nothing is suppressed."""
    with sqlanon.connect() as db:
        result = db.anonymize(adult(data, k, 0, **MONDRIAN, summary=summary, cuts=cuts, ends="exact"))
        loss, classes = FIGURES[summary, cuts, k]
        assert result.score <= loss
        assert result.classes >= classes
        assert result.suppressed_rows == 0


@pytest.mark.thorough
def test_mondrian_result_is_independent_of_threads(data: Path, tmp_path: Path) -> None:
    policy = adult(data, 10, 0, **MONDRIAN, summary="set", cuts="relaxed")
    digests = set()
    for threads in (1, 4):
        with sqlanon.connect(threads=threads) as db:
            digests.add(db.anonymize(policy).publish(tmp_path / f"{threads}.duckdb", "adult").manifest.digest)
    assert len(digests) == 1
