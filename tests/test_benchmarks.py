"""The benchmarks' own parts: tables that are the same on every run, and figures that mean what they say."""

from __future__ import annotations

import argparse
import json
import resource
import sys
from pathlib import Path

import duckdb
import pytest

import sqlanon

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))

from bootstrap import bootstrap_query
from harness import case_policy, run_measured, toml
from heights import make_people as make_heights
from k_epsilon import COMPARED, print_claims, searches, steps, with_noise
from noise_cost import CASES as NOISE_CASES
from noise_cost import policy as noise_policy
from people import COUNTRIES_QUERY, QUASI, make_people, people_policy, people_query
from plain import floor
from risk import policy as risk_policy
from score import label_leaves, score, set_leaves

from sqlanon.sources.workspace import Workspace

pytestmark = pytest.mark.slow

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def rows_of(query: str, threads: int) -> list[tuple[object, ...]]:
    with duckdb.connect(config={"threads": threads}) as connection:
        return sorted(connection.execute(query).fetchall())


@pytest.mark.thorough
def test_people_are_the_same_at_any_number_of_threads_and_differ_by_seed() -> None:
    rows = 5000  # more than a vector
    first = rows_of(people_query(rows), 1)
    assert rows_of(people_query(rows), 3) == first != rows_of(people_query(rows, seed=2), 1)


@pytest.mark.thorough
def test_generated_people_are_skewed() -> None:
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE people AS {people_query(20_000)}")
        (largest, children, nearest) = connection.execute("""
            SELECT (SELECT max(n) FROM (SELECT count(*) AS n FROM people GROUP BY zip)),
                count(*) FILTER (birth > DATE '2016-01-01' AND (marital <> 'single' OR education = 'bachelor')),
                avg((country = 'c00')::INTEGER)
            FROM people
        """).fetchone()  # fmt: skip
    assert largest > 50  # evenly, a ZIP code has less than one
    assert children == 0
    assert 0.8 < nearest < 0.95


@pytest.mark.thorough
def test_people_are_anonymized_by_their_policy() -> None:
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE people AS {people_query(300)}")
        connection.execute(f"CREATE TABLE countries AS {COUNTRIES_QUERY}")
        with sqlanon.connect(connection) as db:
            result = db.anonymize(sqlanon.Policy(**people_policy(None, None)))
    assert list(result.generalization) == list(QUASI)
    assert result.optimal and result.smallest_class >= 5 and result.suppressed_rows <= 15


@pytest.mark.thorough
def test_the_floor_counts_all_groups_and_leaves_no_file(tmp_path: Path) -> None:
    database = tmp_path / "people.duckdb"
    make_people(database, 1000, memory_limit="200MB")
    figures = floor(database, tmp_path / "fresh.duckdb", "200MB", 2)
    with duckdb.connect(str(database), read_only=True) as connection:
        (groups,) = connection.execute(
            f"SELECT count(*) FROM (SELECT DISTINCT {', '.join(QUASI)} FROM people)"
        ).fetchone()
    assert figures["groups"] == groups
    assert figures["group"] > 0 and figures["copy"] > 0
    assert [path.name for path in tmp_path.iterdir()] == ["people.duckdb"]


def test_bootstraps_redraw_one_cell_in_ten_from_its_own_column() -> None:
    with duckdb.connect() as connection:
        connection.execute(
            "CREATE TABLE adult AS SELECT i::UBIGINT AS n, 'a' || i AS a, 'b' || i AS b FROM range(50) AS r(i)"
        )
        query = f"({bootstrap_query(('a', 'b'), 20_000, 50)})"
        (rows, unchanged, first, second) = connection.execute(
            f"SELECT count(*), avg((a[2:] = b[2:])::INTEGER), count(DISTINCT a), count(DISTINCT b) FROM {query}"
        ).fetchone()
    assert (rows, first, second) == (20_000, 50, 50)
    assert unchanged == pytest.approx(0.9**2 + (1 - 0.9**2) / 50, abs=0.02)


def test_toml_policies_equal_benchmark_policies(tmp_path: Path) -> None:
    for tree in (
        people_policy(tmp_path / "it's.duckdb", tmp_path / "release.duckdb"),
        case_policy("Adult-9", 50, 0.01, tmp_path / "release.duckdb", measure="entropy"),
        *(noise_policy(tmp_path / "people.duckdb", tmp_path / "release.duckdb", case) for case in NOISE_CASES),
    ):
        assert tomllib.loads(toml(tree)) == json.loads(json.dumps(tree))


@pytest.mark.thorough
def test_a_process_is_measured_and_stopped_in_time() -> None:
    ours = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    held = ours + 50_000_000  # what starts a process counts to its peak
    done = run_measured([sys.executable, "-c", f"print(len(bytearray({held})))"])
    assert (done.status, done.output, done.timed_out) == (0, f"{held}\n", False)
    assert held < done.peak < held + 50_000_000
    late = run_measured([sys.executable, "-c", "import time; time.sleep(60)"], timeout=0.2)
    assert late.timed_out and late.status < 0 and late.seconds < 60


def test_the_loss_of_others_is_counted_as_ours() -> None:
    lines = [["1", "1-2", "*"], ["2", "1-2", "*"], ["3", "3-4", "*"], ["4", "3-4", "*"]]
    assert label_leaves(lines, {"1-2": 7, "3-4": 1}) == {"1-2": 2, "3-4": 2}
    with pytest.raises(ValueError, match="no level"):
        label_leaves(lines, {"1": 1, "3-4": 1})
    assert set_leaves(lines, {"2": 5, "2-4": 1}) == {"2": 1, "2-4": 3}
    assert set_leaves([["x", "*"], ["y", "*"]], {"y,x": 5, "y": 1}) == {"y,x": 2, "y": 1}


@pytest.mark.thorough
def test_benchmark_release_has_its_claimed_score(data: Path, tmp_path: Path) -> None:
    tree = case_policy("Adult-8", 5, 0.05, tmp_path / "release.duckdb")
    with sqlanon.connect() as db:
        result = db.anonymize(sqlanon.Policy(**tree))
        release = result.publish()
    with duckdb.connect(str(release.path), read_only=True) as connection:
        scores = score(connection, "adult", result.rows, sets=False)
    assert scores["loss"] == pytest.approx(result.score)
    assert (scores["classes"], scores["smallest"], scores["missing"]) == (result.classes, 5, result.suppressed_rows)


@pytest.mark.thorough
def test_risk_of_people_with_and_without_weights(tmp_path: Path) -> None:
    database = tmp_path / "people.duckdb"
    make_people(database, 2000, memory_limit="200MB")
    with sqlanon.connect() as db:
        plain, weighed = (db.risk(risk_policy(database, weighed)) for weighed in (False, True))
    assert len(plain.leakage) == 8 + 28 + 56
    assert plain.population is not None and plain.population.N == 200_000
    assert plain.individual is None and weighed.individual is not None and weighed.household is not None
    assert plain.leakage == weighed.leakage


@pytest.mark.thorough
def test_heights_are_those_of_sex_and_age_and_the_same_on_every_run(data: Path) -> None:
    query = """
        SELECT sex, count(*), avg(height), round(stddev(height), 9), avg(height) FILTER (born > 1974),
            avg(height) FILTER (born <= 1924), sum(hash(people))
        FROM people GROUP BY sex ORDER BY sex
    """
    heights = []
    for threads in (1, 3):
        with duckdb.connect(config={"threads": threads}) as connection:
            make_heights(connection)
            heights.append(connection.execute(query).fetchall())
    assert heights[0] == heights[1]
    women, men = heights[0]
    assert women[1] + men[1] == 30_162
    assert women[2:6] == pytest.approx((162.3, 7.2, 161.5, 158.6), abs=1)
    assert men[2:6] == pytest.approx((175.6, 7.5, 175.0, 172.6), abs=1.5)


@pytest.mark.thorough
def test_the_experiment_with_noise_in_small(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    namespace = argparse.Namespace(runs=1, k=[COMPARED], epsilon=[0.5, 4.0], strategies=["optimal"], results=tmp_path)
    with duckdb.connect() as connection:
        make_heights(connection)
        space = Workspace(connection)
        strong, weak = with_noise(space, namespace)
        plain, wide, useful = searches(space, 20, "optimal", 0.0, 1)
        space.close()
    assert strong["expected"] == pytest.approx(8 * weak["expected"])
    assert strong["observed"] == pytest.approx(strong["expected"], rel=0.05)
    assert weak["uniform_error"] == pytest.approx(weak["expected"], rel=0.05)
    assert weak["whole_error"] > 1.3 * weak["observed"] and weak["whole_linked"] < weak["linked"]
    assert 0 < strong["strictly"] <= strong["linked"] < weak["linked"]
    assert 0 <= strong["confidence"] < weak["confidence"] < 0.05 and strong["feasible"] == 1
    assert steps([strong, weak], "epsilon") == (0, 1) and steps([weak, {**strong, "epsilon": 9}], "epsilon") == (1, 1)
    assert plain["loss"] <= wide["loss"] < useful["loss"] and useful["level"] <= 4
    print_claims([strong, weak])
    assert "| linking risk falls with smaller ε | optimal | in 1 of 1 steps | yes |" in capsys.readouterr().out
    assert len((tmp_path / "results.jsonl").read_text().splitlines()) == 2
