"""Noise for a source in Spark: the same as with DuckDB, drawn once by Spark's workers; no record comes here."""

from __future__ import annotations

import itertools
import math
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from sqlglot import exp, parse_one

import sqlanon
from oracles import oracle_noise
from oracles.oracle_noise import Noisy
from sqlanon.audit import noise as nc
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.engines.egress_guard import is_aggregated
from sqlanon.engines.federation import FederatedEngine
from sqlanon.engines.spark.engine import SparkEngine
from sqlanon.engines.spark.session import send_module
from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.errors import SourceError
from sqlanon.noise.laplace import batch_noise_drawer
from sqlanon.noise.statements import STEPS
from sqlanon.publish.stage import NOT_COMPARED
from sqlanon.release.visible_values import count_different_rows
from sqlanon.support.expressions import full_name, mark_row_level, table
from support.servers.spark import Cluster, needs_spark

FALSE_ALARM = 1e-6
"""False alarm rate of each test that may fail by chance."""

EPOCH = date(1970, 1, 1)
PAY = 'pa`y"'
ROWS, K, BETA = 900, 4, 0.6
EPSILONS = {"born": 2.0, PAY: 5.0, "cost": 3.0}
NOISE = {"cost": {"bounds": [-3, 60.05], "round": 0.05}}


def people() -> pa.Table:
    """Persons with an id, a date and an odd number each; some without a date, some without a number."""
    draw = random.Random(9)
    pays = [draw.uniform(-50, 5000) for _ in range(ROWS)]
    columns = {
        "id": pa.array(range(ROWS), pa.int32()),
        "zip": pa.array([None if i % 9 == 0 else f"z{i % 5}" for i in range(ROWS)]),
        "age": pa.array([i * 7 % 40 for i in range(ROWS)], pa.int32()),
        "born": pa.array([None if i % 31 == 0 else EPOCH + timedelta(days=i * 13 % 9000) for i in range(ROWS)]),
        PAY: pa.array([float("nan") if i % 41 == 0 else None if i % 43 == 0 else pay for i, pay in enumerate(pays)]),
        "cost": pa.array([Decimal(i * 37 % 6100 - 300) / 100 for i in range(ROWS)], pa.decimal128(9, 2)),
        "ill": pa.array([f"ill{i % 7}" for i in range(ROWS)]),
    }
    return pa.table(columns)


ATTRIBUTES: dict[str, Any] = {
    "id": {"role": "insensitive"},
    "zip": {"role": "quasi", "hierarchy": "suppress"},
    "age": {"role": "quasi", "hierarchy": {"intervals": [10, 20]}},
    "ill": {"role": "sensitive"},
} | {
    name: {"role": "quasi", "noise": {"epsilon": epsilon, **NOISE.get(name, {})}, "on_unknown": "suppress"}
    for name, epsilon in EPSILONS.items()
}


def policy(**sections: Any) -> sqlanon.Policy:
    """A policy with noise on three attributes and confidence, or with the given sections."""
    tree: dict[str, Any] = {
        "source": {"table": "people"},
        "attributes": ATTRIBUTES,
        "privacy": {
            "k": K,
            "confidence": BETA,
            "l_diversity": [{"attribute": "ill", "kind": "distinct", "l": 2}],
        },
        "search": {"suppression_limit": 0.7},
        "release": {"table": "people"},
    }
    return sqlanon.Policy(**(tree | sections))


def with_one() -> sqlanon.Policy:
    """One attribute with noise, and no confidence; a requirement that the audit needs the source for."""
    born = {"epsilon": 1.0, "round": 7, "bounds": [date(1971, 1, 1), date(1990, 12, 31)]}
    attributes = {
        **ATTRIBUTES,
        "born": {"role": "quasi", "noise": born, "on_unknown": "suppress"},
        PAY: {"role": "insensitive"},
        "cost": {"role": "insensitive"},
    }
    privacy = {"k": K, "t_closeness": [{"attribute": "ill", "distance": "equal", "t": 0.3}]}
    return policy(attributes=attributes, privacy=privacy)


@dataclass
class ReleaseDraft:
    """A run on Spark, and the same in DuckDB.

    Attributes
    ----------
    there, here:
        Their results.
    db:
        Has Spark.
    path:
        The release.
    came:
        What came from Spark before it was published.
    records:
        By id what each record has got: what the test alone looks at, in Spark.
    """

    there: sqlanon.Result
    here: sqlanon.Result
    db: sqlanon.Database
    path: Path
    came: list[pa.Table] = field(default_factory=list)
    records: dict[int, Noisy] = field(default_factory=dict)


@contextmanager
def watch_fetches() -> Iterator[list[pa.Table]]:
    """Everything that is fetched from Spark within the context."""
    came, stream = [], SparkEngine.stream

    @contextmanager
    def watch_stream(self: SparkEngine, query: exp.Expr) -> Iterator[pa.RecordBatchReader]:
        with stream(self, query) as reader:
            came.append(reader.read_all())
            yield came[-1].to_reader()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SparkEngine, "stream", watch_stream)
        yield came


@contextmanager
def open_draft(session: Any, requested_policy: sqlanon.Policy, folder: Path) -> Iterator[ReleaseDraft]:
    source = people()
    session.createDataFrame(source).createOrReplaceTempView("people")
    with duckdb.connect() as connection, sqlanon.connect(session) as db:
        connection.register("people", source)
        with sqlanon.connect(connection) as local_db:
            result = local_db.anonymize(requested_policy)
            with watch_fetches() as came:
                spark_result = db.anonymize(requested_policy)
            spark_result.publish(folder / "release.duckdb")
            yield ReleaseDraft(
                spark_result, result, db, folder / "release.duckdb", came, records_of(spark_result, requested_policy)
            )


def records_of(result: sqlanon.Result, requested_policy: sqlanon.Policy) -> dict[int, Noisy]:
    engine = result._run.engine
    assert isinstance(engine, FederatedEngine)
    view = engine.remote.tables[full_name(result._run.work("noise_rows"))].sql("spark")
    n = len(requested_policy.noisy_attributes)
    columns = [f"{letter}_{j}" for letter in "xyv" for j in range(n)]
    query = parse_one(f"SELECT value_0, class, {', '.join(columns)} FROM {view}", dialect="spark")
    rows = engine.remote.server.rows(query)
    return {row[0]: Noisy(row[1], row[2 : 2 + n], row[2 + n : 2 + 2 * n], row[2 + 2 * n :]) for row in rows}


@pytest.fixture(scope="module")
def three(session: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReleaseDraft]:
    """Three attributes with noise, and confidence."""
    with open_draft(session, policy(), tmp_path_factory.mktemp("noise")) as draft:
        yield draft


@pytest.fixture(scope="module")
def one_draft(session: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReleaseDraft]:
    with open_draft(session, with_one(), tmp_path_factory.mktemp("noise")) as draft:
        yield draft


def released_rows(path: Path) -> list[dict[str, Any]]:
    with duckdb.connect(str(path), read_only=True) as connection:
        sql = connection.sql("SELECT * FROM people")
        return [dict(zip(sql.columns, row, strict=True)) for row in sql.fetchall()]


# --- the same as with DuckDB ------------------------------------------------------------------------


@pytest.mark.usefixtures("spark_cluster")
@pytest.mark.parametrize("which", ["one_draft", pytest.param("three", marks=pytest.mark.thorough)])
def test_the_same_is_found_and_claimed_as_with_duckdb(which: str, request: pytest.FixtureRequest) -> None:
    draft: ReleaseDraft = request.getfixturevalue(which)
    spark_result, duckdb_result = draft.there, draft.here
    assert spark_result.generalization == duckdb_result.generalization
    assert spark_result.score == pytest.approx(duckdb_result.score, rel=1e-12)
    assert spark_result.epsilon == duckdb_result.epsilon
    assert spark_result.noise is not None and duckdb_result.noise is not None
    for name, expected in duckdb_result.noise.items():
        for figure in ("epsilon", "expected_error", "expected_relative_error", "zero_rows"):
            assert spark_result.noise[name][figure] == (
                None if expected[figure] is None else pytest.approx(expected[figure], rel=1e-9)
            )
    claims = [
        result._draft.noise.manifest_values(result.policy)
        for result in (spark_result, duckdb_result)
        if result._draft.noise is not None
    ]
    assert [(claim["epsilon"], claim["noise"]) for claim in claims] == [(claims[1]["epsilon"], claims[1]["noise"])] * 2
    if which == "one_draft":  # nothing depends on what is drawn
        assert (spark_result.classes, spark_result.smallest_class) == (
            duckdb_result.classes,
            duckdb_result.smallest_class,
        )
        # Figures that need the rows are not measured in Spark.
        warnings = tuple(
            warning
            for warning in spark_result.warnings
            if "its rows are in Spark" not in warning and warning != NOT_COMPARED
        )
        # Their order depends on estimated numbers of values, which differ between engines.
        assert (spark_result.suppressed_rows, sorted(warnings)) == (
            duckdb_result.suppressed_rows,
            sorted(duckdb_result.warnings),
        )


@pytest.mark.usefixtures("spark_cluster")
@pytest.mark.parametrize("which", [pytest.param("one_draft", marks=pytest.mark.thorough), "three"])
def test_classes_are_those_of_duckdb_with_their_ranges(which: str, request: pytest.FixtureRequest) -> None:
    draft: ReleaseDraft = request.getfixturevalue(which)
    ranges_by_engine = [
        result._run.engine.rows(exp.select("*").from_(result._run.work("noise_classes")).order_by('"class"'))
        for result in (draft.there, draft.here)
    ]
    assert len(ranges_by_engine[0]) > 10
    assert ranges_by_engine[0] == [
        tuple(pytest.approx(value, rel=1e-12) for value in row) for row in ranges_by_engine[1]
    ]


# --- the noise --------------------------------------------------------------------------------------


def test_each_record_with_values_has_got_noise_of_its_own(three: ReleaseDraft) -> None:
    source = {row["id"]: row for row in people().to_pylist()}
    usable = {
        i for i, row in source.items() if row["born"] is not None and row[PAY] is not None and not math.isnan(row[PAY])
    }
    assert set(three.records) <= usable
    assert len(usable) - len(three.records) == suppressed_before(three, usable)
    for i, record in three.records.items():
        assert record.xs == ((source[i]["born"] - EPOCH).days, source[i][PAY], float(source[i]["cost"]))
    # The ends of a class lie a whole number of grid steps apart, so that their noise is alike now and then.
    ends: dict[Hashable, list[float]] = {}
    for record in three.records.values():
        ends.setdefault(record.place, []).append(record.xs[1])
    inner = [record for record in three.records.values() if record.xs[1] > min(ends[record.place])]
    moved = Counter(record.vs[1] - record.xs[1] for record in inner)
    assert moved.most_common(1)[0][1] == 1
    assert len(inner) > len(three.records) / 2


def suppressed_before(draft: ReleaseDraft, usable: set[int]) -> int:
    """The records of classes that are too small, or have one illness alone."""
    rows = [row for row in people().to_pylist() if row["id"] in usable]
    width = [1, 10, 20, 10**9][draft.there.generalization["age"] or 0]
    whole_zip = draft.there.generalization["zip"] == 0
    classes: dict[Any, list[str]] = {}
    for row in people().to_pylist():
        classes.setdefault((row["zip"] if whole_zip else "*", row["age"] // width), []).append(row["ill"])
    bad = {place for place, ills in classes.items() if len(ills) < K or len(set(ills)) < 2}
    return sum((row["zip"] if whole_zip else "*", row["age"] // width) in bad for row in rows)


def test_released_values_are_the_drawn_ones(three: ReleaseDraft) -> None:
    rows = released_rows(three.path)
    assert len(rows) == three.there.released_rows
    for row in rows:
        record = three.records[row["id"]]
        assert (row["born"] - EPOCH).days == record.ys[0]
        assert row[PAY] == record.ys[1]
        assert type(row["cost"]) is Decimal
        assert float(row["cost"]) == record.ys[2]
        assert Decimal(-3) <= row["cost"] <= Decimal("60.05")
        assert not row["cost"] % Decimal("0.05")


def test_published_twice_it_has_the_same_rows(three: ReleaseDraft, tmp_path: Path) -> None:
    again = three.there.publish(tmp_path / "again.duckdb")
    assert sorted(map(str, released_rows(Path(again.path)))) == sorted(map(str, released_rows(three.path)))


def test_noise_is_discrete_laplace_and_drawn_once(spark: Any) -> None:
    engine, records, parts = SparkEngine(spark), 160_000, 8
    try:
        query = parse_one(f"SELECT id AS record FROM RANGE(0, {records}, 1, {parts})", dialect="spark")
        types = {"record": "bigint", "n_0": "bigint", "n_1": "bigint"}
        epsilons = [float(STEPS), 1.0]
        assert engine.materialize_mapped("draws", query, batch_noise_drawer(epsilons), types) == records
        everything = parse_one("SELECT * FROM draws", dialect="spark")
        noise_by_record = {record: noise for record, *noise in engine.rows(everything)}
        assert sorted(noise_by_record) == list(range(records))
        assert noise_by_record == {record: noise for record, *noise in engine.rows(everything)}
        of_parts = {tuple(noise_by_record[i * records // parts + j][1] for j in range(50)) for i in range(parts)}
        assert len(of_parts) == parts
        for j, epsilon in enumerate(epsilons):
            assert p_value([noise[j] for noise in noise_by_record.values()], STEPS / epsilon) > FALSE_ALARM
        assert (
            p_value([noise[0] for noise in noise_by_record.values()], 1.05) < FALSE_ALARM
        )  # a little more would be seen
    finally:
        engine.close()


def p_value(draws: list[int], scale: float, bins: int = 10) -> float:
    """χ² of draws against the discrete Laplace law, P(n) = (1 - a) / (1 + a) a^|n| with a = exp(-1 / scale).

    The bins cover each side of 0 and it, have the width of a fifth of the scale, and include the tails.
    """
    a, n, width = math.exp(-1 / scale), len(draws), max(int(scale / 5), 1)
    beyond = a ** (bins * width + 1) / (1 + a)
    edges = [1 + i * width for i in range(bins + 1)]
    side = [(a**low - a**high) / (1 + a) for low, high in itertools.pairwise(edges)]
    shares = [beyond, *reversed(side), (1 - a) / (1 + a), *side, beyond]
    assert math.isclose(sum(shares), 1)
    counts = Counter(max(-bins - 1, min(bins + 1, int(math.copysign((abs(x) + width - 1) // width, x)))) for x in draws)
    square = sum((counts[i - bins - 1] - n * share) ** 2 / (n * share) for i, share in enumerate(shares))
    half, degrees = square / 2, len(shares) - 1
    assert degrees % 2 == 0  # then there is a closed form
    return math.exp(-half) * sum(half**i / math.factorial(i) for i in range(degrees // 2))


# --- what is suppressed last, and the linking attack --------------------------------------------------


def test_the_linking_risk_is_that_of_all_pairs(one_draft: ReleaseDraft, three: ReleaseDraft) -> None:
    for draft, epsilons in ((one_draft, [1.0]), (three, list(EPSILONS.values()))):
        ids, records = list(draft.records), list(draft.records.values())
        if draft is one_draft:
            records = [Noisy(record.place, record.xs[:1], record.ys[:1]) for record in records]
        out = {row["id"] for row in released_rows(draft.path)}
        left = [i for i, id_ in enumerate(ids) if id_ in out]
        for risk, strict in ((draft.there.linking_risk, False), (draft.there.linking_risk_strict, True)):
            least, most = (oracle_noise.linking_risk(records, epsilons, left, strict, slack) for slack in (-1e-9, 1e-9))
            assert risk is not None and 0 < least <= risk <= most < 1


def test_who_is_near_to_too_few_is_left_out_and_then_their_classes(three: ReleaseDraft) -> None:
    ids, records = list(three.records), list(three.records.values())
    few = oracle_noise.too_few(records, list(EPSILONS.values()), BETA, K)
    assert few
    ills = dict(enumerate(people()["ill"].to_pylist()))

    def meets(members: list[int]) -> bool:
        return len(members) >= K and len({ills[ids[i]] for i in members}) >= 2

    left = oracle_noise.kept_records(records, few, meets)
    assert {row["id"] for row in released_rows(three.path)} == {ids[i] for i in left}
    assert three.there.confidence == {"beta": BETA, "suppressed_rows": len(records) - len(left)}
    assert three.there.classes == len({records[i].place for i in left})


# --- rows stay in Spark -------------------------------------------------------------------------------


@pytest.mark.usefixtures("spark_cluster")
@pytest.mark.parametrize("which", [pytest.param("one_draft", marks=pytest.mark.thorough), "three"])
def test_no_record_leaves_spark(which: str, request: pytest.FixtureRequest) -> None:
    draft: ReleaseDraft = request.getfixturevalue(which)
    combinations = len({(row["zip"], row["age"], row["ill"]) for row in people().to_pylist()})
    pays, seen = set(people()[PAY].to_pylist()), set[float]()
    assert draft.came
    for came in draft.came:
        assert came.num_rows <= combinations < ROWS
        assert not {"id", "record", "x_0", "y_0", "value_0"} & set(came.column_names)
        seen |= {value for column in came.columns for value in column.to_pylist() if isinstance(value, float)}
    classes = draft.here._run.engine.rows(
        exp.select("low_1" if which == "three" else "low_0").from_(draft.here._run.work("noise_classes"))
    )
    assert seen & pays <= {low for (low,) in classes}  # of each class it has the least


def test_remote_records_cannot_be_shown(three: ReleaseDraft) -> None:
    with pytest.raises(SourceError, match="never leave it"):
        _ = three.there.noisy
    assert three.here.noisy is not None


def test_the_plan_shows_that_all_of_it_is_in_spark(one_draft: ReleaseDraft) -> None:
    text = str(one_draft.db.plan(policy()))
    tables = ("records", "classes", "rows", "links", "near_0", "near", "survivors", "evaluated", "kept")
    assert [name for name in tables if f"-- in Spark, makes noise_{name}\n" not in text] == []
    # Numbers without a gap would have all rows in one place.
    assert "MONOTONICALLY_INCREASING_ID() AS `record`" in text


def test_grouping_by_records_counts_as_reading_rows() -> None:
    query = exp.select("record", exp.Count(this=exp.Star())).from_("t").group_by("record")
    assert is_aggregated(query, {full_name(exp.to_table("t"))})
    assert not is_aggregated(mark_row_level(query), {full_name(exp.to_table("t"))})


# --- the release, held against its source ---------------------------------------------------------------


def test_the_release_is_verified_with_its_source_in_spark(one_draft: ReleaseDraft, spark: Any, tmp_path: Path) -> None:
    with watch_fetches() as came:
        verification = one_draft.db.verify(one_draft.path, one_draft.there.policy)
    assert verification.verified
    messages = {check.name: check.message for check in verification.checks}
    assert "all released rows are in the source" in messages["against the source: recoded source"]  # others had no date
    assert "(expected: " in messages["against the source: size of the noise of born"]
    assert len(came) > 3
    assert all(not {"born", "x_0", "value_2"} & set(table.column_names) for table in came)
    # Of another source it is none: two rows have other numbers.
    source = people().to_pylist()
    for i, row in enumerate(source):
        row["id"] += i in (1, 2)
    changed = pa.Table.from_pylist(source, people().schema)
    spark.createDataFrame(changed).createOrReplaceTempView("people")
    try:
        second_verification = one_draft.db.verify(one_draft.path, one_draft.there.policy)
    finally:
        spark.createDataFrame(people()).createOrReplaceTempView("people")
    assert [check.name for check in second_verification.checks if check.passed is False] == [
        "against the source: recoded source"
    ]


@pytest.mark.thorough
def test_rows_that_one_side_has_more_often_are_found() -> None:
    """Against multisets of Python, with NULL, NaN and a zero with a sign; those of the source are counted."""
    draw, types = random.Random(2), {"a": "VARCHAR", 'b"': "DOUBLE"}
    values = [(None, 1.5), ("x", None), ("x", float("nan")), ("y", 0.0), (None, None)]
    released, recoded, once = table("released"), table("recoded"), table("once")
    with duckdb.connect() as connection:
        engine = DuckDBEngine(connection)
        for _ in range(40):
            sides = [draw.choices(pool, k=draw.randrange(7)) for pool in ([*values, ("y", -0.0)], values)]
            for name, rows in zip(("released", "recoded"), sides, strict=True):
                connection.execute(f'CREATE OR REPLACE TABLE {name} (a VARCHAR, "b""" DOUBLE)')
                if rows:
                    connection.executemany(f"INSERT INTO {name} VALUES (?, ?)", rows)
            engine.execute(parse_one("DROP TABLE IF EXISTS once"))
            StatementRunner(engine).create_table(once, nc.count_combinations(recoded, list(types), "n"))
            left, right = (Counter(map(str, rows)) for rows in sides)
            expected = [((left - right).total(), (right - left).total())]
            assert engine.rows(count_different_rows(released, once, types, "n")) == expected
            assert engine.rows(count_different_rows(released, recoded, types)) == expected


# --- where it is drawn ----------------------------------------------------------------------------------

WORKER = """
import builtins, importlib.abc, sys
class Without(importlib.abc.MetaPathFinder):
    def find_spec(self, name, *rest):
        if name.partition(".")[0] in sys.argv[2:]:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Without())
import pickle, pyarrow
draw = pickle.load(open(sys.argv[1], "rb"))
ids = pyarrow.table({"record": pyarrow.array(range(3), pyarrow.int64())}).to_batches()
print([column.to_pylist().count(None) for batch in draw(iter(ids)) for column in batch.columns])
"""


@needs_spark
@pytest.mark.parametrize(("missing", "nulls"), [(["sqlanon"], [0, 0, 0]), (["sqlanon", "opendp"], [0, 3, 3])])
def test_workers_need_opendp_and_not_sqlanon(missing: list[str], nulls: list[int], tmp_path: Path) -> None:
    from pyspark import cloudpickle  # noqa: PLC0415  (it is an extra)

    function = batch_noise_drawer([1.0, 2.0])
    with send_module(function):
        (tmp_path / "draw").write_bytes(cloudpickle.dumps(function))
    done = subprocess.run(
        [sys.executable, "-c", WORKER, str(tmp_path / "draw"), *missing],
        capture_output=True, text=True, check=True, cwd=tmp_path,
    )  # fmt: skip
    assert done.stdout.strip() == str(nulls)


def test_noise_is_drawn_once_through_the_thin_client(spark_connect: Any) -> None:
    engine = SparkEngine(spark_connect)
    try:
        types = {"record": "bigint", "n_0": "bigint"}
        query = parse_one("SELECT id AS record FROM RANGE(0, 3000, 1, 3)", dialect="spark")
        assert engine.materialize_mapped("through_connect", query, batch_noise_drawer([float(STEPS)]), types) == 3000
        first, again = (engine.rows(parse_one("SELECT * FROM through_connect", dialect="spark")) for _ in range(2))
        assert sorted(first) == sorted(again)
        assert p_value([noise for _, noise in first], 1.0) > FALSE_ALARM
    finally:
        engine.close()


@pytest.mark.thorough
def test_a_lost_executor_takes_noise_with_it_and_none_is_drawn_again(spark_cluster: Cluster) -> None:
    engine = SparkEngine(spark_cluster.session)
    everything = parse_one("SELECT * FROM to_be_lost", dialect="spark")
    try:
        query = parse_one("SELECT id AS record FROM RANGE(0, 40000, 1, 4)", dialect="spark")
        engine.materialize_mapped("to_be_lost", query, batch_noise_drawer([1.0]), {"record": "bigint", "n_0": "bigint"})
        before = sorted(engine.rows(everything))
        for executor in spark_cluster.executors():
            os.kill(executor, signal.SIGKILL)
        with pytest.raises(SourceError, match="an executor was lost"), engine.translate_errors():
            for _ in range(60):  # until Spark has seen that they are gone
                assert sorted(engine.rows(everything)) == before
                time.sleep(2)
    finally:
        engine.close()
    assert spark_cluster.session.range(10).count() == 10  # others have come


@needs_spark
def test_tasks_that_run_twice_draw_nothing() -> None:
    engine = SparkEngine(Speculating())
    try:
        with pytest.raises(SourceError, match=r"spark\.speculation"):
            engine.materialize_mapped(
                "draws", parse_one("SELECT 1 AS record"), batch_noise_drawer([1.0]), {"record": "bigint"}
            )
    finally:
        engine.close()


class Speculating:
    """A session that has one setting."""

    _active_session = threading.local()

    @property
    def conf(self) -> Speculating:
        return self

    def get(self, name: str, default: str | None = None) -> str | None:
        return "true" if name == "spark.speculation" else default

    @property
    def getAll(self) -> dict[str, str]:  # noqa: N802 - as Spark calls it
        return {}

    def set(self, name: str, value: str) -> None:
        """Set nothing."""

    def unset(self, name: str) -> None:
        """Set nothing."""

    def addTag(self, tag: str) -> None:  # noqa: N802  (it is Spark's name)
        """Tag nothing."""
