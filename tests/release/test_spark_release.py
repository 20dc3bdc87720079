"""Releases in Spark: what readers find there, what a crash leaves, and what `verify` sees."""

from __future__ import annotations

import contextlib
import csv
import io
import itertools
import json
import math
import os
import random
import re
import signal
import struct
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from killed_runs import killed_at
from spark_patients import ATTRIBUTES, PRIVATE, count_rows, names_in, patients, place, policy_of, publish
from sqlglot import exp

import sqlanon
from sqlanon.engines.spark.engine import SparkEngine
from sqlanon.engines.spark.session import java_home
from sqlanon.ledger import read_ledger, recording
from sqlanon.publish.targets.base import Reach, release_location
from sqlanon.publish.targets.spark import rows as spark_rows
from sqlanon.publish.targets.spark.catalog import ReleaseCatalog, ReleaseComments, insert_shuffled
from sqlanon.publish.targets.spark.rows import digest_query, is_digestible
from sqlanon.publish.targets.spark.target import SparkLocation
from sqlanon.requirements.macros import call_digest
from sqlanon.support.expressions import col, select, select_star, table
from sqlanon.support.resources import RELEASE_MACROS, macro_script
from support.commands import cli
from support.lanes import share
from support.pages import SPARK, blocks
from support.servers.spark import Cluster, free_port
from support.thresholds import SMALL_SPARK
from support.verification import failed_checks

pytestmark = pytest.mark.spark

__all__ = ["place"]  # fixtures

pyspark = pytest.importorskip("pyspark", reason="the extra spark is not installed")

HOSTILE = ["a`b", 'quo"te', "it's", "dot.ted", "ünïcode 日本", "two words", "${env:HOME}", "back\\slash", "rows"]


def quote_name(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


# The content digest


def _double(draw: random.Random) -> float:
    kind = draw.random()
    if kind < 0.2:
        value: float = struct.unpack("d", draw.randbytes(8))[0]
        return 0.5 if math.isnan(value) else value  # a NaN with a sign is another text in DuckDB
    if kind < 0.3:
        return draw.choice([-1, 1]) * draw.randint(0, 3000) * 5e-324
    if kind < 0.6:
        return float(f"{draw.randint(1, 10 ** draw.randint(1, 17))}e{draw.randint(-25, 25)}")
    if kind < 0.7:
        return draw.choice([0.0, -0.0, 1e15, 1e16, 9999999999999998.0, 1e-4, 1e-5, 1e7, 1e-3, float("nan"), -1e400])
    return draw.choice([-1, 1]) * round(draw.uniform(0, 10 ** draw.randint(1, 8)), draw.randint(0, 6))


def _values(draw: random.Random, rows: int) -> pa.Table:
    """A column of each type that a release in Spark may have."""
    texts = ["", "a", "A", "é", "e\u0301", "ä`'\"", "x" * 300, "\\n", "${x}", "日本", "=", "NULL", " a ", "\U0001f600"]
    times = [-(10**17), 10**15, 253402300800000000, -62135596800000000, 0, 1500000, -1]

    def some(value: Callable[[], Any], type_: pa.DataType) -> pa.Array:
        return pa.array([None if draw.random() < 0.1 else value() for _ in range(rows)], type_)

    def whole(bits: int) -> Callable[[], int]:
        return lambda: draw.choice([draw.randint(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1), 0, -1, 7])

    def decimal(width: int, scale: int) -> Callable[[], Decimal]:
        return lambda: Decimal(draw.randint(-(10 ** draw.randint(1, width)) + 1, 10**width - 1)).scaleb(-scale)

    def moment() -> int:
        return draw.choice(times) + draw.choice([0, 10**6, draw.randint(-(10**14), 10**14)])

    return pa.table(
        {
            "tiny": some(whole(8), pa.int8()),
            "small": some(whole(16), pa.int16()),
            "whole": some(whole(32), pa.int32()),
            "big": some(whole(64), pa.int64()),
            "te`x't": some(lambda: draw.choice(texts), pa.string()),
            "flag": some(lambda: draw.random() < 0.5, pa.bool_()),
            "double": some(lambda: _double(draw), pa.float64()),
            "decimal": some(decimal(8, 2), pa.decimal128(8, 2)),
            "fraction": some(decimal(2, 2), pa.decimal128(2, 2)),
            "wide": some(decimal(38, 30), pa.decimal128(38, 30)),
            "long": some(decimal(19, 0), pa.decimal128(19, 0)),
            "day": some(lambda: draw.randint(-1600000, 4000000), pa.int32()).cast(pa.date32()),
            "time": some(moment, pa.int64()).cast(pa.timestamp("us")),
            "instant": some(moment, pa.int64()).cast(pa.timestamp("us", tz="UTC")),
        }
    )


def test_digest_in_spark_is_that_of_duckdb(spark: Any) -> None:
    values = _values(random.Random(20261122), 4000)
    local = duckdb.connect()
    local.execute("SET TimeZone = 'UTC'")
    local.execute(macro_script(RELEASE_MACROS))
    local.register("arrow", values)
    local.execute("CREATE TABLE t AS FROM arrow")
    types = {name: type_ for name, type_, *_ in local.execute("DESCRIBE t").fetchall()}
    assert all(map(is_digestible, types.values()))
    engine = SparkEngine(spark)
    try:
        relation = engine.upload("sqlanon_values", values)
        for name, type_ in types.items():
            local.execute(f"CREATE OR REPLACE VIEW one AS SELECT {duck(name)} FROM t")
            expected = local.execute(call_digest("one").sql("duckdb")).fetchall()
            assert engine.rows(digest_query(relation.copy(), {name: type_})) == expected, name
        expected = local.execute(call_digest("t").sql("duckdb")).fetchall()
        assert engine.rows(digest_query(relation.copy(), types)) == expected
        none = select_star(relation.copy()).where("FALSE").subquery("none")
        assert engine.rows(digest_query(none, types)) == [(0, "0")]
    finally:
        engine.close()


def duck(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


# What readers find


def test_readers_find_rows_and_comments(place: Any, tmp_path: Path) -> None:
    patients(place)
    with sqlanon.connect(place) as db:
        result = db.anonymize(policy_of())
        file = result.publish(tmp_path / "r.duckdb")
        release = result.publish()
    assert release.manifest.digest == file.manifest.digest
    assert release.manifest.columns == file.manifest.columns
    with duckdb.connect(str(file.path), read_only=True) as local:
        assert count_rows(place) == Counter(local.execute("FROM r").fetchall())
    assert names_in(place) == {"r", "r_v1", "r_v1_manifest"}
    verification = release.verify()
    assert verification.verified, verification.failures
    assert {check.name for check in verification.checks if check.passed} >= {"view", "versions", "content digest"}
    assert release.class_sizes() == file.class_sizes()
    assert release.table == "shared.r"
    # The catalog of the tests' Spark is in memory.
    assert any("in memory" in warning for warning in result.warnings)
    comments = {row["col_name"]: row["comment"] for row in place.sql("DESCRIBE shared.r").collect()}
    assert comments["diagnosis"].startswith("sensitive")
    assert "quasi-identifier" in comments["age"]


def test_verify_statements_reproduce_its_results(place: Any) -> None:
    patients(place, 200)
    release = publish(place)
    digest, combinations, *row_statements = release.verify_sql()
    assert place.sql(digest).collect()[0]["digest"] == release.manifest.digest
    counts = place.sql(combinations).collect()
    assert sum(row["rows"] for row in counts) == release.manifest.released_rows
    assert min(row["rows"] for row in counts) == release.manifest.smallest_class
    assert len(row_statements) == 1
    assert "K_ANONYMITY" in row_statements[0]
    sizes = place.sql(release.class_sizes_sql()).collect()
    assert [(row["class_size"], row["classes"]) for row in sizes] == release.class_sizes()


@pytest.mark.thorough
def test_the_next_version_takes_the_place_of_the_older(place: Any) -> None:
    patients(place)
    first = publish(place)
    with_age = dict(ATTRIBUTES) | {"cost": "identifying"}
    second = publish(place, policy_of(with_age))
    assert (first.manifest.version, second.manifest.version) == (1, 2)
    assert names_in(place) == {"r", "r_v2", "r_v2_manifest"}
    assert "cost" not in place.table("shared.r").columns
    assert second.verify().verified


def test_names_and_values_that_are_hostile(place: Any) -> None:
    rows = 240
    draw = random.Random(5)
    texts = ["", " ", "it's", '"', "`", "${spark.app.name}", "\\", "a\nb", None, "日本"]
    columns = {name: pa.array([draw.choice(texts) for _ in range(rows)]) for name in HOSTILE}
    place.createDataFrame(pa.table(columns)).write.saveAsTable("clinic.t")
    roles: dict[str, Any] = dict.fromkeys(HOSTILE, "insensitive")
    roles |= {HOSTILE[0]: "suppress", HOSTILE[6]: "suppress", HOSTILE[-1]: {"mask": "right"}, HOSTILE[1]: "sensitive"}
    diverse = {"k": 2, "l_diversity": [{"attribute": HOSTILE[1], "l": 2, "kind": "distinct"}]}
    release = publish(place, policy_of(roles, "SHARED.Secret_1", privacy=diverse))
    verification = release.verify()
    assert verification.verified, verification.failures
    assert place.table("shared.secret_1").columns == HOSTILE
    names = ", ".join(map(quote_name, HOSTILE[2:6]))
    assert count_rows(place, f"(SELECT {names} FROM shared.secret_1)") == count_rows(
        place, f"(SELECT {names} FROM clinic.t)"
    )
    comments = {row["col_name"]: row["comment"] for row in place.sql("DESCRIBE shared.secret_1").collect()}
    assert all(comments[name] for name in HOSTILE)


def test_constant_columns_are_published_and_verify(place: Any) -> None:
    values = "'a' AS zip, CAST(NULL AS INT) AS age, '' AS x"
    place.sql(f"CREATE TABLE clinic.t USING PARQUET AS SELECT {values} FROM range(50)")
    release = publish(place, policy_of({"zip": "suppress", "age": "suppress", "x": "insensitive"}))
    assert release.verify().verified
    assert count_rows(place) == Counter({("a", None, ""): 50})
    assert release.class_sizes() == [(50, 1)]


@pytest.mark.thorough
def test_a_release_with_noise(place: Any) -> None:
    patients(place, 300)
    spec = {"role": "quasi", "noise": {"epsilon": 2.0, "bounds": [0, 9000]}, "on_unknown": "suppress"}
    policy = policy_of({**ATTRIBUTES, "cost": spec}, search={"suppression_limit": 0.8})
    with sqlanon.connect(place) as db:
        result = db.anonymize(policy)
        release = result.publish()
        verification = release.verify()
        assert verification.verified, verification.failures
        assert release.manifest.noise["cost"]["epsilon"] == result.epsilon == 2.0
        # Message in place of a check that could not pass.
        with pytest.raises(sqlanon.ReleaseError, match="verified against its source only as a file"):
            db.verify(place, policy, "shared.r")
        again = result.publish()  # nothing is drawn anew
        assert (again.manifest.version, again.manifest.digest) == (2, release.manifest.digest)
    pairs = place.sql("SELECT r.cost AS released, t.cost FROM shared.r AS r JOIN clinic.t USING (number)").collect()
    assert len(pairs) == result.released_rows > 50
    assert sum(pair["released"] != pair["cost"] for pair in pairs) > 0.9 * len(pairs)
    assert all(0 <= pair["released"] <= 9000 for pair in pairs)


@pytest.mark.thorough
def test_a_release_with_masked_rows(place: Any) -> None:
    """Rows of classes that are too small stay, with all their quasi-identifiers at the top."""
    patients(place)
    policy = policy_of(
        {**ATTRIBUTES, "age": {"intervals": [5, 20]}},
        privacy={"k": 12, "l_diversity": [{"attribute": "diagnosis", "kind": "distinct", "l": 2}]},
        search={"suppression_limit": 0.3, "strategy": "ola"},
        release={"spark": True, "table": "shared.r", "suppressed": "mask"},
    )
    with sqlanon.connect(place) as db:
        result = db.anonymize(policy)
        release = result.publish()
        against = db.verify(place, policy, "shared.r")
    assert result.suppressed_rows > 0
    assert release.verify().verified
    assert against.verified, against.failures
    assert {check.name for check in against.checks if check.passed} >= {"against the source: recoded source"}
    assert sum(count_rows(place).values()) == result.released_rows
    with duckdb.connect() as local:  # by hand, of the source's rows
        local.register("released", place.table("shared.r").toArrow())
        local.register("source", place.table("clinic.t").toArrow())
        ((smallest,),) = local.execute(
            "SELECT MIN(n) FROM (SELECT COUNT(*) AS n FROM released GROUP BY zip, age)"
        ).fetchall()
        assert smallest >= 12
        masked = local.execute("SELECT COUNT(*) FROM released WHERE zip = '*' AND age = '*'").fetchall()
        assert masked == [(result.suppressed_rows,)]
        rows = local.execute("SELECT COUNT(*) FROM released JOIN source USING (number)").fetchall()
        assert rows == [(result.released_rows,)]


@pytest.mark.thorough
def test_the_program_of_the_spark_page_runs(place: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its program runs with its policy, on a table described by it."""
    draw = random.Random(3)
    people = [(f"p{i}", draw.choice(["10115", "10117"]), draw.randint(20, 60), draw.choice("mf")) for i in range(300)]
    values = [(*person, draw.choice(["flu", "cold"])) for person in people]
    place.createDataFrame(values, "name STRING, zip STRING, age INT, sex STRING, diagnosis STRING").write.saveAsTable(
        "clinic.patients"
    )
    (policy,), (program,) = blocks("toml", SPARK), blocks("python", SPARK)
    (tmp_path / "spark.toml").write_text(policy, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(program, "spark.md", "exec"), {"spark": place})
    assert "`clinic`.`patients`" in printed.getvalue() or "clinic.patients" in printed.getvalue()
    verification = release_location(place, "shared.patients").verify()
    assert verification.verified
    assert verification.manifest.smallest_class >= 5
    assert place.table("shared.patients").columns == ["zip", "age", "sex", "diagnosis"]


# Written files


def test_nothing_of_the_source_is_written_beside_the_rows(place: Any) -> None:
    """Spark hands comments of columns on, into tables that are made of a query and into the files themselves."""
    patients(place)
    publish(place)
    place.sql("CREATE TABLE shared.control USING PARQUET AS SELECT number FROM clinic.t")
    assert PRIVATE in _encode_struct(place, "control")  # it would be seen
    for name in ("r_v1", "r_v1_manifest"):
        assert PRIVATE not in _encode_struct(place, name)
    for name in ("r", "r_v1"):
        assert PRIVATE not in place.sql(f"DESCRIBE EXTENDED shared.{name} AS JSON").collect()[0][0]


def _encode_struct(spark: Any, name: str) -> str:
    """Everything in the files of a table except the values of columns."""
    texts = []
    for file in _files(spark, name):
        metadata = pq.read_metadata(file)
        texts += [str(metadata.metadata), str(metadata.to_dict())]
    return " ".join(texts)


def _files(spark: Any, name: str) -> list[Path]:
    place = spark.sql(f"DESCRIBE EXTENDED shared.{name} AS JSON").collect()[0][0]
    return sorted(Path(json.loads(place)["location"].removeprefix("file:")).glob("*.parquet"))


def test_row_order_is_independent_of_the_source(place: Any) -> None:
    """Rows that are all alike but for a number, in the order of the source: where it is in a file, and in which."""
    rows = 40_000
    place.sql(f"CREATE TABLE clinic.t USING PARQUET AS SELECT 'a' AS zip, id AS number FROM range(0, {rows}, 1, 4)")
    engine = SparkEngine(place)
    try:
        engine.execute(exp.Drop(tables=[table("n_v1", "shared")], kind="TABLE", exists=True))
        place.sql("CREATE TABLE shared.n_v1 (zip STRING, number BIGINT) USING PARQUET")
        source = select([col("zip"), col("number")], table("t", "clinic"))
        secret = engine.upload("kept_secret", pa.table({"secret": ["5ec2e7" * 10]}))
        insert = insert_shuffled(table("n_v1", "shared"), source, ["zip", "number"], secret)
        plan = place.sql(f"EXPLAIN EXTENDED {engine.sql(insert)}").collect()[0][0]
        place.conf.set("spark.sql.adaptive.coalescePartitions.enabled", "false")
        engine.execute(insert)
    finally:
        place.conf.unset("spark.sql.adaptive.coalescePartitions.enabled")
        engine.close()
    # Random numbers are drawn behind the exchange: a task that runs again sends each row to where it was sent before.
    assert re.search(r"Sort \[sha2\(.*?uuid\(.*?Exchange hashpartitioning\(xxhash64", plan, re.DOTALL)
    assert "5ec2e7" not in plan  # plans are logged, with the seeds of random numbers
    files = [pq.read_table(file)["number"].to_pylist() for file in _files(place, "n_v1")]
    assert len(files) > 1
    assert sorted(number for file in files for number in file) == list(range(rows))
    for file in files:
        count = len(file)
        assert abs(sum(file) / count - rows / 2) < 5 * rows / (12 * count) ** 0.5  # no file has a part of the source
        rising = sum(number < next_number for number, next_number in itertools.pairwise(file))
        assert abs(rising - count / 2) < 5 * (count / 12) ** 0.5
        places = sum(i * number for i, number in enumerate(file))
        spread = (count**3 / 12) ** 0.5 * rows / 12**0.5
        assert abs(places - count * (count - 1) / 2 * (sum(file) / count)) < 5 * spread


# What stops a publication


class Killed(BaseException):
    """The process is gone: nothing of it runs any more."""


@pytest.fixture
def stop_at_statement(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Stops the engine at a statement that changes something in Spark, counted from 0; for good, if it is killed."""
    execute = SparkEngine.execute

    def stop(at: int, error: BaseException, for_good: bool, afterwards: bool = False) -> None:
        counts = {"statements": 0}

        def counting(self: SparkEngine, statement: exp.Expr, parameters: Any = ()) -> None:
            dead = for_good and counts["statements"] > at
            if not _changes_a_release(statement) and not dead:
                return execute(self, statement, parameters)
            now = counts["statements"] == at
            counts["statements"] += 1
            if dead or (now and not afterwards):
                raise error
            execute(self, statement, parameters)
            if now:
                raise error

        monkeypatch.setattr(SparkEngine, "execute", counting)
        if for_good:
            for name in ("rows", "columns", "stream"):
                _dies_with(monkeypatch, name, counts, at, error)

    return stop


def _changes_a_release(statement: exp.Expr) -> bool:
    return any(node.db == "shared" for node in statement.find_all(exp.Table))


def _dies_with(patch: pytest.MonkeyPatch, name: str, counts: dict[str, int], at: int, error: BaseException) -> None:
    original = getattr(SparkEngine, name)

    def dying(self: SparkEngine, *arguments: Any) -> Any:
        if counts["statements"] > at:
            raise error
        return original(self, *arguments)

    patch.setattr(SparkEngine, name, dying)


VIEW, STATEMENTS = 9, 12
"""The table, its rows, the manifest's table, its row, the comments on the table and its four columns; the view; and the
older version's two tables."""


@pytest.mark.thorough
def test_readers_have_a_whole_release_after_a_crash_at_any_statement(
    place: Any, stop_at_statement: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The release verifies after each crash, and the next publication works."""
    patients(place, 120)
    older, newer = policy_of(), policy_of(dict(ATTRIBUTES) | {"cost": "identifying"})
    publish(place, older)
    before = count_rows(place)
    for at in (0, 1, 2, 3, 4, 6, *range(VIEW - 1, STATEMENTS + 1)):
        stop_at_statement(at, Killed(), for_good=True)
        if at < STATEMENTS:
            with pytest.raises(Killed):
                publish(place, newer)
        else:
            publish(place, newer)
        monkeypatch.undo()
        verification = release_location(place, "shared.r").verify()
        assert verification.verified, (at, verification.failures)
        is_new = at > VIEW
        assert ("cost" in place.table("shared.r").columns) != is_new
        assert count_rows(place) == before or is_new
        left = names_in(place) - {
            "r",
            f"r_v{verification.manifest.version}",
            f"r_v{verification.manifest.version}_manifest",
        }
        versions_check = next(check for check in verification.checks if check.name == "versions")
        assert (versions_check.passed is True) == (not left)
        assert all(name in versions_check.message for name in left)
        again = publish(place, older)
        version = again.manifest.version
        assert names_in(place) == {"r", f"r_v{version}", f"r_v{version}_manifest"}


@pytest.mark.thorough
def test_the_next_run_completes_or_removes_an_interrupted_publication(
    place: Any, stop_at_statement: Callable[..., None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Includes a crash between the view and its record."""
    patients(place, 120)
    catalog = {"database": str(tmp_path / "c.duckdb")}
    older, newer = policy_of(catalog=catalog), policy_of(dict(ATTRIBUTES) | {"cost": "identifying"}, catalog=catalog)

    def ledger_releases() -> list[tuple[Any, ...]]:
        with duckdb.connect(tmp_path / "c.duckdb", read_only=True) as connection:
            query = "SELECT digest, replaced_at IS NULL, intended_at IS NULL FROM sqlanon.releases ORDER BY rowid"
            return connection.execute(query).fetchall()

    publish(place, older)
    number, outcomes = 1, list[bool]()
    for at in (0, 3, VIEW, None):
        if at is None:
            with killed_at(recording, "complete_intent"):
                publish(place, newer)
        else:
            stop_at_statement(at, Killed(), for_good=True)
            with pytest.raises(Killed):
                publish(place, newer)
            monkeypatch.undo()
        outcomes.append(all(is_out for *_, is_out in ledger_releases()))
        number += at is None
        with sqlanon.connect(place) as db:
            result = db.anonymize(newer)
            read_ledger(result._run.engine, tmp_path / "c.duckdb", Reach(newer, result._search_input.source))
        verification = release_location(place, "shared.r").verify()
        assert verification.verified
        assert len(ledger_releases()) == number
        assert [row for row in ledger_releases() if row[1]] == [(verification.digest, True, True)]
    assert outcomes == [True, True, False, False]  # there was an intent from the view on
    publish(place, older)
    assert [row[1:] for row in ledger_releases()] == [(False, True), (False, True), (True, True)]


@pytest.mark.thorough
def test_an_error_at_any_statement_leaves_nothing(
    place: Any, stop_at_statement: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    patients(place, 120)
    publish(place)
    before, names = count_rows(place), names_in(place)
    for at in (0, 1, 2, 3, 6, VIEW):
        for afterwards in (False, True):
            if (at, afterwards) in ((0, True), (VIEW, True)):  # the table is unknown; the view is swapped
                continue
            stop_at_statement(at, KeyboardInterrupt(), for_good=False, afterwards=afterwards)
            with pytest.raises(KeyboardInterrupt):
                publish(place, policy_of(dict(ATTRIBUTES) | {"cost": "identifying"}))
            monkeypatch.undo()
            assert names_in(place) == names
    assert count_rows(place) == before
    assert release_location(place, "shared.r").verify().verified
    # The view exists, but an error says that it does not: then nothing behind it is removed.
    stop_at_statement(VIEW, KeyboardInterrupt(), for_good=False, afterwards=True)
    with pytest.raises(KeyboardInterrupt):
        publish(place, policy_of(dict(ATTRIBUTES) | {"cost": "identifying"}))
    monkeypatch.undo()
    verification = release_location(place, "shared.r").verify()
    assert verification.verified
    assert "cost" not in place.table("shared.r").columns


class Losing(threading.Thread):
    """Ends executors once a job works on a statement."""

    def __init__(self, session: Any, victims: list[int]) -> None:
        super().__init__(daemon=True)
        self._status, self._victims, self.killed = session.sparkContext.statusTracker(), victims, False

    def run(self) -> None:
        until = time.monotonic() + 600
        while time.monotonic() < until:
            stages = map(self._status.getStageInfo, self._status.getActiveStageIds())
            if any(stage is not None and stage.numCompletedTasks for stage in stages):
                break
            time.sleep(0.01)
        for victim in self._victims:
            os.kill(victim, signal.SIGKILL)
            self.killed = True


@pytest.mark.thorough
@pytest.mark.parametrize("keeps_rdds", [False, True], ids=["counts here", "counts there"])
def test_executors_that_die_while_rows_are_written(
    place: Any, spark_cluster: Cluster, keeps_rdds: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If one of two fails, it is repeated, and the release is complete; if both do, it is complete or an error."""
    monkeypatch.setattr(SMALL_SPARK, 5 if keeps_rdds else 500_000)
    rows = 20_000
    values = "CAST(id % 7 AS STRING) AS zip, CAST(id % 50 AS INT) AS age, id AS number"
    place.sql(f"CREATE TABLE clinic.t USING PARQUET AS SELECT {values} FROM range(0, {rows}, 1, 8)")
    attributes = {"zip": "suppress", "age": {"intervals": [5, 10]}, "number": "insensitive"}
    source = {"table": "clinic.t"} | ({"fetch_limit": 1} if keeps_rdds else {})
    older, newer = policy_of(attributes, source=source), policy_of(attributes, source=source, privacy={"k": 500})
    publish(place, older)
    before, names = count_rows(place), names_in(place)
    execute, losing = SparkEngine.execute, []

    def executing(self: SparkEngine, statement: exp.Expr, parameters: Any = ()) -> None:
        if isinstance(statement, exp.Insert) and not losing:
            victims = spark_cluster.both_executors()
            losing.append(Losing(place, victims if keeps_rdds else victims[:1]))
            losing[0].start()
        execute(self, statement, parameters)

    monkeypatch.setattr(SparkEngine, "execute", executing)
    try:
        release = publish(place, newer)
    except sqlanon.SourceError as error:
        assert keeps_rdds and "an executor was lost" in str(error)
        assert (count_rows(place), names_in(place)) == (before, names)
    else:
        assert release.manifest.version == 2
        assert names_in(place) == {"r", "r_v2", "r_v2_manifest"}
        assert count_rows(place, "(SELECT number FROM shared.r)") == Counter((i,) for i in range(rows))
    finally:
        losing[0].join()
    assert losing[0].killed
    assert release_location(place, "shared.r").verify().verified


def test_the_audit_refuses_lost_rows_and_removes_them(place: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The audit refuses a release that lost rows in writing, and removes it."""
    patients(place)
    publish(place)
    before, names = count_rows(place), names_in(place)
    monkeypatch.setattr("sqlanon.publish.targets.spark.catalog.insert_shuffled", _losing(insert_shuffled))
    with pytest.raises(sqlanon.AuditError, match=r"rows are in the release \(expected: 600\)"):
        publish(place)
    monkeypatch.undo()
    assert (count_rows(place), names_in(place)) == (before, names)


def _losing(fill: Any) -> Any:
    def losing(target: exp.Table, rows: exp.Query, columns: Any, secret: exp.Table) -> exp.Expr:
        few = exp.select("*").from_(rows.subquery("few")).where("number > 7")
        statement: exp.Expr = fill(target, few, columns, secret)
        return statement

    return losing


# What verify sees

TAMPERED = {
    "a changed row": (
        [
            "INSERT OVERWRITE shared.r_v1 "
            "SELECT zip, age, IF(number = 3, 'another', diagnosis), cost, number FROM kept"
        ],
        {"content digest"},
    ),
    "an added row": (["INSERT INTO shared.r_v1 SELECT * FROM kept LIMIT 1"], {"content digest", "rows"}),
    "a lost row": (["INSERT OVERWRITE shared.r_v1 SELECT * FROM kept WHERE number <> 3"], {"content digest", "rows"}),
    "exchanged cells": (
        [
            "INSERT OVERWRITE shared.r_v1 SELECT zip, age, diagnosis, cost, "
            "CASE number WHEN 3 THEN 4 WHEN 4 THEN 3 ELSE number END FROM kept"
        ],
        {"content digest"},
    ),
    "a view of some rows": (
        [
            "CREATE OR REPLACE VIEW shared.r AS "
            "SELECT zip, age, diagnosis, cost, number FROM shared.r_v1 WHERE number > 1"
        ],
        {"view"},
    ),
    "a view of another table": (
        [
            "CREATE TABLE clinic.r_v1 USING PARQUET AS SELECT * FROM kept",
            "CREATE OR REPLACE VIEW shared.r AS SELECT zip, age, diagnosis, cost, number FROM clinic.r_v1",
        ],
        {"view"},
    ),
    "a view that exchanges columns": (
        [
            "CREATE OR REPLACE VIEW shared.r (zip, age, diagnosis, cost, number) AS "
            "SELECT age, zip, diagnosis, cost, number FROM shared.r_v1"
        ],
        {"view"},
    ),
    "a view that names another column": (
        [
            "CREATE OR REPLACE VIEW shared.r AS "
            "SELECT zip, age, diagnosis, cost, number, number AS more FROM shared.r_v1"
        ],
        {"view"},
    ),
    "another type": (
        [
            "CREATE OR REPLACE VIEW shared.r AS "
            "SELECT zip, age, diagnosis, cost, CAST(number AS STRING) AS number FROM shared.r_v1"
        ],
        {"view"},
    ),
    "a view in place of its table": (
        ["DROP TABLE shared.r_v1", "CREATE TABLE clinic.u USING PARQUET AS SELECT * FROM kept",
         "CREATE VIEW shared.r_v1 AS SELECT * FROM clinic.u"],
        {"tables"},
    ),
    "a column more behind the view": (["ALTER TABLE shared.r_v1 ADD COLUMN leak STRING"], {"tables"}),
    "a table of somebody's": (["CREATE TABLE shared.r_v7 (x INT) USING PARQUET"], {"versions"}),
    "a manifest of another release": (
        ["INSERT OVERWRITE shared.r_v1_manifest SELECT * FROM shared.other_v1_manifest"],
        {"manifest table", "tables"},
    ),
    "a manifest of another version": (
        ["INSERT OVERWRITE shared.r_v1_manifest SELECT table_name, 2, manifest FROM kept_manifest"],
        {"manifest table"},
    ),
}  # fmt: skip


LIST = "SELECT `zip`, `age`, `diagnosis`, `cost`, `number` FROM `shared`.`r_v1`"
ALTERED = {
    "ALTER TABLE shared.r_v1_manifest ADD COLUMN leak STRING": "tables",
    "ALTER TABLE shared.r_v1 CHANGE COLUMN zip COMMENT 'planted'": "tables",
    "COMMENT ON TABLE shared.r_v1 IS 'planted'": "tables",
    "ALTER TABLE shared.r_v1 ALTER COLUMN zip SET DEFAULT 'planted'": "tables",
    "ALTER TABLE shared.r_v1 SET TBLPROPERTIES ('x' = 'planted')": "tables",
    "ALTER TABLE shared.r_v1 SET SERDEPROPERTIES ('x' = 'planted')": "tables",
    "ALTER TABLE shared.r_v1 UNSET TBLPROPERTIES ('sqlanon.release')": "tables",
    "ALTER VIEW shared.r SET TBLPROPERTIES ('x' = 'planted')": "view",
    "ALTER VIEW shared.r WITH SCHEMA TYPE EVOLUTION": "view",
    f"CREATE OR REPLACE VIEW shared.r AS {LIST}": "view",
    f"CREATE OR REPLACE VIEW shared.r COMMENT 'planted' AS {LIST}": "view",
    f"ALTER VIEW shared.r AS {LIST.replace('`age`', '/* planted */ `age`')}": "view",
    "ALTER VIEW shared.r SET TBLPROPERTIES ('comment' = 'planted')": "view",
    "ALTER TABLE shared.r_v1_manifest CHANGE COLUMN version COMMENT 'planted'": "tables",
}
"""Changes that the view does not show, and the check that detects each."""


def test_leaks_beside_the_rows_are_seen(place: Any) -> None:
    """The leaks are in the catalog, at the view and the tables behind it, which readers of the view can often read."""
    patients(place, 60)
    manifest = publish(place).manifest
    saved_tables = _make_folder(place)
    spot = SparkLocation.parse(place, "shared.r")
    with spot.opened_server() as server:
        for statement, expected in {"SELECT 1": None, **ALTERED, "SELECT 2": None}.items():
            place.sql(statement)
            checks = ReleaseCatalog.read(server, spot).checks(1, manifest, ReleaseComments.of(spot, 1, manifest))
            failed = {check.name for check in checks if check.passed is False} - {"versions"}
            assert failed == ({expected} if expected else set()), statement
            assert not [check for check in checks if "planted" in check.message]
            _put_back(place, saved_tables)


def _make_folder(spark: Any) -> dict[str, str]:
    """Parts of the release, according to Spark."""
    names = ("r_v1_manifest", "r_v1", "r")
    return {name: spark.sql(f"SHOW CREATE TABLE shared.{name}").collect()[0][0] for name in names}


def test_tampering_is_seen(place: Any) -> None:
    patients(place, 300)
    publish(place)
    publish(place, policy_of(table="shared.other", privacy={"k": 9}))
    saved_tables = _make_folder(place)
    for name in ("r_v1", "r_v1_manifest"):
        place.sql(f"CREATE TABLE clinic.kept_{name} USING PARQUET AS SELECT * FROM shared.{name}")
    place.sql("CREATE OR REPLACE TEMPORARY VIEW kept AS SELECT * FROM clinic.kept_r_v1")
    place.sql("CREATE OR REPLACE TEMPORARY VIEW kept_manifest AS SELECT * FROM clinic.kept_r_v1_manifest")
    for case, (statements, expected) in share([*TAMPERED.items()], 5):
        for statement in statements:
            place.sql(statement)
        failures = failed_checks(release_location(place, "shared.r").verify())
        assert failures >= expected, case
        assert failures - expected <= {"smallest class", "classes", "3-anonymity", "rows"}, case
        _put_back(place, saved_tables)
        place.sql("INSERT INTO shared.r_v1 SELECT * FROM kept")
        place.sql("INSERT INTO shared.r_v1_manifest SELECT * FROM kept_manifest")
    assert release_location(place, "shared.r").verify().verified


def test_rows_that_were_changed_with_their_digest_are_found_with_the_source(place: Any) -> None:
    patients(place, 300)
    policy = policy_of()
    release = publish(place, policy)
    place.sql("CREATE TABLE clinic.kept USING PARQUET AS SELECT * FROM shared.r_v1")
    number = place.sql("SELECT min(number) FROM clinic.kept").collect()[0][0]
    changed = f"SELECT zip, age, IF(number = {number}, 'another', diagnosis), cost, number FROM clinic.kept"
    place.sql(f"INSERT OVERWRITE shared.r_v1 {changed}")
    forged = release.verify().digest
    assert forged != release.manifest.digest
    _rewrite_manifest(place, {release.manifest.digest: forged})
    assert release.verify().verified
    with sqlanon.connect(place) as db:
        verification = db.verify(place, policy, "shared.r")
    assert failed_checks(verification) == {"against the source: recoded source"}
    (message,) = [check.message for check in verification.checks if check.passed is False]
    assert "rows that the source does not give: 1; rows missing in the release: 1" in message


def _rewrite_manifest(spark: Any, changes: dict[str, str]) -> None:
    """Change the manifest of the first version."""
    text = "manifest"
    for old, new in changes.items():
        text = f"replace({text}, '{old}', '{new}')"
    manifest_table = spark.table("shared.r_v1_manifest").toArrow()
    spark.createDataFrame(manifest_table).createOrReplaceTempView("kept_manifest")
    spark.sql(f"INSERT OVERWRITE shared.r_v1_manifest SELECT table_name, version, {text} FROM kept_manifest")


def _put_back(spark: Any, saved_tables: dict[str, str]) -> None:
    """The published objects, without their rows."""
    views = {row["viewName"] for row in spark.sql("SHOW VIEWS IN shared").collect()}
    for name in (*saved_tables, "r_v7"):
        spark.sql(f"DROP {'VIEW' if name in views else 'TABLE'} IF EXISTS shared.{name}")
    for name in ("u", "r_v1"):
        spark.sql(f"DROP TABLE IF EXISTS clinic.{name}")
    for statement in saved_tables.values():
        spark.sql(statement)


def test_a_broken_manifest_is_a_release_error(place: Any) -> None:
    patients(place, 100)
    release = publish(place)
    for change in ("'{}'", "'no JSON'", "replace(manifest, '\"policy\"', '\"polity\"')"):
        manifest_table = place.table("shared.r_v1_manifest").toArrow()
        place.createDataFrame(manifest_table).createOrReplaceTempView("kept_manifest")
        place.sql(f"INSERT OVERWRITE shared.r_v1_manifest SELECT table_name, version, {change} FROM kept_manifest")
        with pytest.raises(sqlanon.ReleaseError, match="its manifest is broken") as error:
            release.verify()
        assert error.value.exit_status == 1
        place.sql("INSERT OVERWRITE shared.r_v1_manifest SELECT * FROM kept_manifest")
    assert release.verify().verified
    place.sql("TRUNCATE TABLE shared.r_v1_manifest")
    with pytest.raises(sqlanon.ReleaseError, match="it has 0 rows"):
        release.verify()
    place.sql("DROP TABLE shared.r_v1_manifest")
    with pytest.raises(sqlanon.ReleaseError, match="is not a release of sqlanon"):
        release.verify()


@pytest.mark.thorough
def test_requirements_are_looked_at_in_parts(place: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """More combinations than are fetched at once, and each of them once."""
    patients(place)
    privacy = {
        "k": 2,
        "l_diversity": [{"attribute": "diagnosis", "l": 2, "kind": "entropy"}],
        "t_closeness": [{"attribute": "diagnosis", "t": 0.6, "distance": "equal"}],
    }
    attributes = dict(ATTRIBUTES) | {"number": "identifying", "cost": "identifying"}
    monkeypatch.setattr(spark_rows, "FETCH_SIZE", 7)
    release = publish(place, policy_of(attributes, privacy=privacy, search={"suppression_limit": 0.1}))
    verification = release.verify()
    assert verification.verified
    alone = {check.name for check in verification.checks if check.passed is None}
    assert alone == {"equal 0.6-closeness of diagnosis", "catalog"}
    assert not [name for name in names_in(place, "default") if name.startswith("sqlanon")]


# Refusals


def test_unsuitable_locations_are_refused(place: Any) -> None:
    patients(place, 60)
    place.sql("CREATE TABLE shared.taken (x INT) USING PARQUET")
    place.sql("CREATE VIEW shared.own AS SELECT x FROM shared.taken")
    place.sql("CREATE TABLE shared.own_v1 (x INT) USING PARQUET")
    refused = {
        "nowhere.r": "schema 'nowhere' does not exist",
        "shared.taken": "is not a release of sqlanon",
        "shared.own": "is not a release of sqlanon",
    }
    names = names_in(place)
    for name, message in refused.items():
        with pytest.raises(sqlanon.ReleaseError, match=message):
            publish(place, policy_of(table=name))
    assert names_in(place) == names
    for name in ("r", "a.b.c", 'shared."my table"', "shared.ä"):
        with pytest.raises(sqlanon.ReleaseError, match="is not a release in Spark"):
            release_location(place, name).verify()
    with pytest.raises(sqlanon.ReleaseError, match="it has no manifest"):
        release_location(place, "shared.taken").verify()
    with pytest.raises(sqlanon.ReleaseError, match="name the release in Spark"):
        release_location(place, None).verify()


def test_tables_of_others_stay(place: Any) -> None:
    """A table that is named like a version but was not created by sqlanon is neither written to nor dropped."""
    patients(place, 60)
    place.sql("CREATE TABLE shared.r_v3 USING PARQUET AS SELECT 1 AS x")
    release = publish(place)
    assert any(warning.startswith("r_v3: named like a version") for warning in release.warnings)
    assert release.manifest.version == 4
    assert place.table("shared.r_v3").count() == 1
    assert failed_checks(release.verify()) == {"versions"}


@pytest.mark.thorough
def test_a_second_release_is_refused_by_the_ledger(place: Any, tmp_path: Path) -> None:
    """Nothing is wrong with the first one, and the message does not say so."""
    patients(place, 60)
    catalog = {"database": str(tmp_path / "c.duckdb")}
    publish(place, policy_of(catalog=catalog))
    publish(place, policy_of(catalog=catalog))  # it takes the place of the first
    policy = policy_of(table="shared.other", catalog=catalog)
    with sqlanon.connect(place) as db:
        result = db.anonymize(policy)
        with pytest.raises(sqlanon.AuditError, match="releases there cannot be compared yet") as error:
            result.publish()
        assert "the two cannot be compared" in str(error.value)
        assert "--force" in str(error.value)
        assert result.publish(force=True).verify().verified
        assert any("releases there cannot be compared yet" in warning for warning in result.warnings)


@pytest.mark.thorough
def test_a_release_beside_one_in_a_file_is_refused_by_the_ledger(place: Any, tmp_path: Path) -> None:
    """Some of its columns are missing: the two cannot be compared."""
    patients(place, 60)
    with sqlanon.connect(place) as db:
        result = db.anonymize(policy_of(catalog={"database": str(tmp_path / "c.duckdb")}))
        result.publish(tmp_path / "one.duckdb")
        with pytest.raises(sqlanon.AuditError, match="the new release is in Spark, where releases cannot be compared"):
            result.publish()
        assert result.publish(force=True).verify().verified


def test_table_names_in_backticks_are_refused(place: Any) -> None:
    patients(place, 60)
    with pytest.raises(sqlanon.SourceError, match="without backticks"):
        publish(place, policy_of(source={"table": "`clinic`.`t`"}))


def test_types_that_cannot_be_verified_in_spark_are_refused(place: Any) -> None:
    place.sql("CREATE TABLE clinic.t USING PARQUET AS SELECT 'a' AS zip, CAST(id AS FLOAT) AS x FROM range(9)")
    with pytest.raises(sqlanon.ReleaseError, match=r"'x' \(FLOAT\)"):
        publish(place, policy_of({"zip": "suppress", "x": "insensitive"}))
    assert names_in(place) == set()


# Elsewhere


def test_the_thin_client_and_the_command_line(
    place: Any, spark_cluster: Cluster, spark_connect: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    patients(place)
    release = publish(spark_connect)
    assert release.verify().verified
    rows = count_rows(place)
    assert sum(rows.values()) == release.manifest.released_rows
    tree = policy_of(source={"spark": spark_cluster.connect, "table": "clinic.t"})
    with sqlanon.connect() as db:
        again = db.anonymize(tree).publish()
    assert again.manifest.digest == release.manifest.digest
    assert again.path == f"{spark_cluster.connect}/shared.r"
    arguments = ["verify", spark_cluster.connect, "--table", "shared.r"]
    assert cli(*arguments, "--json").status == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["verified"], document["release"], document["table"]) == (True, again.path, "shared.r")
    place.sql("INSERT INTO shared.r_v2 SELECT * FROM shared.r_v2 LIMIT 1")
    assert cli(*arguments).status == 1
    assert cli(*arguments[:3], "shared.none").status == 2


@pytest.mark.thorough
def test_beeline_reads_the_release(place: Any, tmp_path: Path) -> None:
    """BI tools read in this way: over JDBC, from Spark's own Thrift server."""
    patients(place, 200)
    release = publish(place)
    settings = {"hive.server2.thrift.bind.host": "127.0.0.1", "hive.server2.thrift.port": str(free_port())}
    for name, value in settings.items():
        place.sql(f"SET {name}={value}")
    place._jvm.java.lang.System.setProperty("derby.stream.error.file", str(tmp_path / "derby.log"))
    thrift = place._jvm.org.apache.spark.sql.hive.thriftserver.HiveThriftServer2
    server = thrift.startWithContext(place._jsparkSession.sqlContext())
    try:
        address = f"jdbc:hive2://127.0.0.1:{settings['hive.server2.thrift.port']}/shared"
        output = _beeline(address, "DESCRIBE r; SELECT * FROM r", tmp_path)
    finally:
        server.stop()
        for name in settings:
            place.sql(f"RESET {name}")
    described, header, listing = output.partition("zip,age,diagnosis,cost,number\n")
    text = "string collate UTF8_BINARY"
    for line in (f"zip,{text},", f"age,{text},", f"diagnosis,{text},sensitive", "cost,double,", "number,bigint,"):
        assert line in described
    rows = list(csv.DictReader((header + listing).splitlines()))
    assert len(rows) == release.manifest.released_rows
    expected = Counter((row["age"], row["number"]) for row in place.table("shared.r").collect())
    assert Counter((row["age"], int(row["number"])) for row in rows) == expected


def _beeline(address: str, statements: str, folder: Path) -> str:
    """The output of statements as text, from the client that comes with Spark."""
    java = java_home(folder)
    environment = dict(os.environ) | ({} if java is None else {"JAVA_HOME": str(java)})
    client = Path(pyspark.__file__).parent / "bin" / "beeline"
    command = [str(client), "-u", address, "--outputformat=csv2", "--silent=true", "-e", statements]
    outcome = subprocess.run(
        command, env=environment, cwd=folder, capture_output=True, text=True, timeout=300, check=True
    )
    return outcome.stdout
