"""Releases in Spark under attack: with forged relations, and with changes between any two statements."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from spark_patients import ATTRIBUTES, count_rows, names_in, patients, place, policy_of, publish
from sqlglot import exp

import sqlanon
from sqlanon.engines.spark.engine import SparkEngine
from sqlanon.errors import SqlanonError
from sqlanon.publish.targets.base import release_location
from support.between_statements import attack_between
from support.lanes import examples, some
from support.verification import failed_checks

pytestmark = pytest.mark.spark

__all__ = ["place"]

pyspark = pytest.importorskip("pyspark", reason="the extra spark is not installed")

MARK = "sqlanon-evaluated"
_BOOM = f"reflect('java.io.File', 'createTempFile', '{MARK}', '.mark')"
_JAVA = f"java_method('java.io.File', 'createTempFile', '{MARK}', '.mark')"
COLUMNS = ("zip", "age", "diagnosis", "cost", "number")
OURS = "USING PARQUET TBLPROPERTIES ('sqlanon.release' = 'r')"


@pytest.fixture
def was_evaluated(spark: Any) -> Iterator[Callable[[], bool]]:
    """Whether something of a forgery was evaluated, by the driver or an executor: it makes a file."""
    folder = Path(spark._jvm.java.lang.System.getProperty("java.io.tmpdir"))
    yield lambda: any(folder.glob(f"{MARK}*"))
    for file in folder.glob(f"{MARK}*"):
        file.unlink()


def view_of(rows: str, boom: str = _BOOM) -> str:
    return f"SELECT {boom} AS zip, {', '.join(COLUMNS[1:])} FROM {rows}"


FORGED: dict[str, list[str]] = {
    "the view evaluates": ["CREATE OR REPLACE VIEW shared.r AS " + view_of("shared.r_v1")],
    "the view calls Java": ["CREATE OR REPLACE VIEW shared.r AS " + view_of("shared.r_v1", _JAVA)],
    "the rows are a view": [
        f"CREATE TABLE shared.other {OURS} AS SELECT * FROM shared.r_v1",
        "DROP TABLE shared.r_v1",
        "CREATE VIEW shared.r_v1 TBLPROPERTIES ('sqlanon.release' = 'r') AS " + view_of("shared.other"),
    ],
    "the manifest is a view": [
        f"CREATE TABLE shared.other {OURS} AS SELECT * FROM shared.r_v1_manifest",
        "DROP TABLE shared.r_v1_manifest",
        "CREATE VIEW shared.r_v1_manifest TBLPROPERTIES ('sqlanon.release' = 'r') AS "
        f"SELECT table_name, version, if({_BOOM} IS NULL, manifest, manifest) AS manifest FROM shared.other",
    ],
    "a default": ["ALTER TABLE shared.r_v1 ALTER COLUMN zip SET DEFAULT 'told'"],
    "the rows are other files": [
        "CREATE TABLE clinic.other USING PARQUET AS SELECT * FROM shared.r_v1",
        "DROP TABLE shared.r_v1",
        "CREATE TABLE shared.r_v1 (zip STRING, age STRING, diagnosis STRING, cost DOUBLE, number BIGINT) "
        "USING PARQUET LOCATION '{location}' TBLPROPERTIES ('sqlanon.release' = 'r')",
    ],
    "the rows are text files": [
        "DROP TABLE shared.r_v1",
        "CREATE TABLE shared.r_v1 (zip STRING, age STRING, diagnosis STRING, cost DOUBLE, number BIGINT) "
        "USING CSV TBLPROPERTIES ('sqlanon.release' = 'r')",
    ],
}


def forge(spark: Any, case: str) -> None:
    for statement in FORGED[case]:
        location = ""
        if "{location}" in statement:
            description = spark.sql("DESCRIBE EXTENDED clinic.other").collect()
            location = next(row[1] for row in description if row[0] == "Location")
        spark.sql(statement.replace("{location}", location))


@pytest.mark.parametrize("case", some(FORGED, 1))
def test_nothing_of_a_forged_release_is_evaluated(case: str, place: Any, was_evaluated: Callable[[], bool]) -> None:
    patients(place, 120)
    policy = policy_of()
    release = publish(place, policy)
    forge(place, case)
    assert not was_evaluated()
    for with_source in (False, True):
        try:
            with sqlanon.connect(place) as db:
                verification = db.verify(place, policy, "shared.r") if with_source else release.verify()
            assert failed_checks(verification) & {"view", "tables"}, case
        except sqlanon.ReleaseError as error:
            assert "was a release of sqlanon" in str(error)
            assert error.exit_status == 1
        assert not was_evaluated(), case
    try:
        publish(place, policy)
    except SqlanonError:
        assert not was_evaluated()
    else:
        assert release_location(place, "shared.r").verify().checks
        assert not was_evaluated()


@pytest.mark.thorough
def test_a_forgery_would_be_evaluated(place: Any, was_evaluated: Callable[[], bool]) -> None:
    patients(place, 60)
    publish(place)
    forge(place, "the view evaluates")
    place.sql("SELECT * FROM shared.r").collect()
    assert was_evaluated()


def squat(spark: Any) -> None:
    """Actions of a role with the right to create: all names that a publication may use are views that evaluate."""
    rows = ", ".join(f"CAST(NULL AS STRING) AS {name}" for name in COLUMNS[1:])
    for name in ("r", *(f"r_v{i}" for i in range(1, 4))):
        spark.sql(f"CREATE VIEW IF NOT EXISTS shared.{name} AS SELECT {_BOOM} AS zip, {rows}")
    for i in range(1, 4):
        manifest = f"SELECT 'r' AS table_name, {i} AS version, {_BOOM} AS manifest"
        spark.sql(f"CREATE VIEW IF NOT EXISTS shared.r_v{i}_manifest AS {manifest}")


def in_release_schema(text: str) -> bool:
    return "shared" in text.lower()


def clear(spark: Any) -> None:
    spark.sql("DROP SCHEMA shared CASCADE")
    spark.sql("CREATE SCHEMA shared")


@pytest.mark.thorough
@pytest.mark.parametrize("again", [False, True], ids=["the first release", "a later release"])
def test_somebody_creates_relations_between_two_statements(
    place: Any, was_evaluated: Callable[[], bool], again: bool
) -> None:
    """Nothing of the intruder is evaluated or shown: the release is published whole, or the earlier one stays."""
    patients(place, 60)
    policy = policy_of()
    with sqlanon.connect(place) as db:
        result = db.anonymize(policy)
        with attack_between(SparkEngine, lambda: None, None, in_release_schema) as statements:
            result.publish()
        clear(place)
        expected, numbers = None, range(len(statements.texts))
        step = max(1, round(len(numbers) / examples(30)))
        for number in list(numbers)[::step]:
            if again:
                result.publish()
                expected = count_rows(place)
            with attack_between(SparkEngine, lambda: squat(place), number, in_release_schema) as statements:
                try:
                    result.publish()
                except SqlanonError as error:
                    reason = str(error)
                else:
                    reason = ""
            where = f"before {statements.texts[number] if number < len(statements.texts) else number}: {reason}"
            assert not was_evaluated(), where
            if not reason:
                verification = release_location(place, "shared.r").verify()
                assert failed_checks(verification) <= {"versions"}, where
                assert expected is None or sum(count_rows(place).values()) == sum(expected.values()), where
            elif again:
                assert count_rows(place) == expected, where
            assert not was_evaluated(), where
            clear(place)


@pytest.mark.thorough
def test_a_table_that_is_replaced_after_the_audit_is_not_shown(place: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    patients(place, 60)
    publish(place)
    before = count_rows(place)

    def replace() -> None:
        place.sql("DROP TABLE shared.r_v2")
        place.sql("CREATE VIEW shared.r_v2 AS SELECT zip, age, diagnosis, cost, number FROM shared.r_v1")

    with attack_between(SparkEngine, lambda: None, None, in_release_schema) as statements:
        publish(place)
    last = max(i for i, text in enumerate(statements.texts) if "ALTER COLUMN" in text)
    clear(place)
    publish(place)
    before = count_rows(place)
    with (
        attack_between(SparkEngine, replace, last + 1, in_release_schema),
        pytest.raises(sqlanon.AuditError, match="r_v2: not part of the release"),
    ):
        publish(place)
    assert count_rows(place) == before


@pytest.mark.thorough
def test_a_replacement_has_no_false_warning(place: Any) -> None:
    patients(place, 60)
    publish(place)
    release = publish(place)
    assert [warning for warning in release.warnings if "catalog" not in warning] == []
    assert names_in(place) == {"r", "r_v2", "r_v2_manifest"}


@pytest.mark.thorough
def test_an_older_version_that_stays_is_named(place: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next publication removes it."""
    patients(place, 60)
    publish(place)
    execute = SparkEngine.execute

    def refusing(self: SparkEngine, statement: exp.Expr, parameters: Any = ()) -> None:
        if isinstance(statement, exp.Drop) and "r_v1`" in statement.sql("spark"):
            place.sql("DROP TABLE shared.r_v1_nowhere")
        execute(self, statement, parameters)

    monkeypatch.setattr(SparkEngine, "execute", refusing)
    release = publish(place)
    monkeypatch.undo()
    (warning,) = [warning for warning in release.warnings if "could not be removed" in warning]
    assert warning.startswith("shared.r_v1: could not be removed: table or view")
    assert names_in(place) == {"r", "r_v1", "r_v2", "r_v2_manifest"}
    publish(place)
    assert names_in(place) == {"r", "r_v3", "r_v3_manifest"}


class Reading(threading.Thread):
    """Read the view repeatedly, in a separate session."""

    def __init__(self, spark: Any) -> None:
        super().__init__(daemon=True)
        self._session, self.stopped, self.seen = spark.newSession(), threading.Event(), Counter[str]()

    def run(self) -> None:
        while not self.stopped.is_set():
            self.seen["there" if self._session.catalog.tableExists("shared.r") else "missing"] += 1
            try:
                columns = tuple(self._session.table("shared.r").columns)
                self.seen[" ".join(columns)] += 1
            except Exception as error:
                name = str((getattr(error, "getMessageParameters", dict)() or {}).get("relationName", ""))
                self.seen["missing" if name.endswith(".`r`") else "an older version is gone"] += 1


@pytest.mark.thorough
def test_readers_always_find_the_view(place: Any) -> None:
    """`CREATE OR REPLACE VIEW` is a drop and a create: readers found no view in between."""
    patients(place, 60)
    policies = [policy_of(), policy_of(dict(ATTRIBUTES) | {"cost": "identifying"})]
    publish(place, policies[0])
    reading = Reading(place)
    reading.start()
    try:
        for i in range(4):
            publish(place, policies[i % 2])
    finally:
        reading.stopped.set()
        reading.join()
    assert reading.seen["missing"] == 0, reading.seen
    assert reading.seen["there"] > 20
    assert {"zip age diagnosis cost number", "zip age diagnosis number"} <= reading.seen.keys()


@pytest.mark.thorough
def test_replaced_draft_loses_its_mark(place: Any) -> None:
    patients(place, 60)
    with sqlanon.connect(place) as db:
        result = db.anonymize(policy_of())
        result.publish(draft=True)
        assert release_location(place, "shared.r").verify().verified
        assert "DRAFT" in str(place.sql("DESCRIBE EXTENDED shared.r AS JSON").collect())
        result.publish()
    assert release_location(place, "shared.r").verify().verified
    assert "DRAFT" not in str(place.sql("DESCRIBE EXTENDED shared.r AS JSON").collect())
