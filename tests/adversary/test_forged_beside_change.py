"""A release on a server that is forged while its source changes: the change of the source excuses no forgery."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pytest

import sqlanon
from adversary.digest_collision import numbers_that_hide
from sqlanon.engines.postgres.engine import PostgresEngine
from sqlanon.engines.spark.engine import SparkEngine
from sqlanon.release.source_change import SOURCE_CHECK
from sqlanon.support.resources import RELEASE_MACROS, macro_scripts
from support.between_statements import attack_between
from support.lanes import some
from support.servers.postgres import VARIABLE, Server
from support.verification import failed_checks

HERE = f"env:{VARIABLE}"
ILLNESSES = ("asthma", "flu", "gout", "HIV")
ROWS = [(f"p{i}", 20 + i % 20, ILLNESSES[i % 3], i, 1000 + i) for i in range(60)]
LEFT = [row for row in ROWS if row[0] not in ("p3", "p4")]
COLUMNS = {"pid": "text", "age": "integer", "illness": "text", "number": "bigint", "stay": "bigint"}

Run = Callable[[str], list[tuple[Any, ...]]]
Forge = Callable[["Forger"], None]


class Forger:
    """Somebody with all rights on the schema of a release, of version 1 unless it was published again."""

    def __init__(self, run: Run, rows: Run) -> None:
        self.run, self.rows = run, rows

    def replace_row(self, number: int, illness: str, new_number: int, new_stay: int) -> None:
        raise NotImplementedError

    def manifest(self) -> dict[str, Any]:
        raise NotImplementedError

    def put_manifest(self, manifest: Mapping[str, Any]) -> None:
        raise NotImplementedError

    def digest(self) -> str:
        """The digest of the rows as they are now."""
        rows = self.rows("SELECT age, illness, number, stay FROM shared.r_v1")
        with duckdb.connect() as connection:
            for script in macro_scripts(RELEASE_MACROS):
                connection.execute(script)
            connection.execute("CREATE TABLE r (age VARCHAR, illness VARCHAR, number BIGINT, stay BIGINT)")
            connection.executemany("INSERT INTO r VALUES (?, ?, ?, ?)", rows)
            return str(connection.execute("SELECT digest FROM sqlanon.digest('r')").fetchall()[0][0])


class PostgresForger(Forger):
    def replace_row(self, number: int, illness: str, new_number: int, new_stay: int) -> None:
        values = f"illness = '{illness}', number = {new_number}, stay = {new_stay}"
        self.run(f"UPDATE shared.r_v1 SET {values} WHERE number = {number}")

    def manifest(self) -> dict[str, Any]:
        return dict(json.loads(self.rows("SELECT manifest FROM shared.sqlanon_manifest")[0][0]))

    def put_manifest(self, manifest: Mapping[str, Any]) -> None:
        text = json.dumps(manifest, ensure_ascii=False).replace("'", "''")
        self.run(f"UPDATE shared.sqlanon_manifest SET manifest = '{text}'")


class SparkForger(Forger):
    def replace_row(self, number: int, illness: str, new_number: int, new_stay: int) -> None:
        self.run("CREATE TABLE clinic.kept USING PARQUET AS SELECT * FROM shared.r_v1")
        is_row = f"number = {number}"
        values = (
            f"if({is_row}, '{illness}', illness), if({is_row}, {new_number}, number), if({is_row}, {new_stay}, stay)"
        )
        self.run(f"INSERT OVERWRITE shared.r_v1 SELECT age, {values} FROM clinic.kept")
        self.run("DROP TABLE clinic.kept")

    def manifest(self) -> dict[str, Any]:
        return dict(json.loads(self.rows("SELECT manifest FROM shared.r_v1_manifest")[0][0]))

    def put_manifest(self, manifest: Mapping[str, Any]) -> None:
        text = json.dumps(manifest, ensure_ascii=False).replace("\\", "\\\\").replace("'", "\\'")
        self.run(f"INSERT OVERWRITE shared.r_v1_manifest SELECT 'r', 1, '{text}'")


def keep_digest(forger: Forger) -> None:
    """Another illness for one person; two numbers of the row hide it."""
    before = forger.digest()
    hiding = numbers_that_hide(("illness", "flu", "HIV"), ("number", "stay"), (7, 1007))
    forger.replace_row(7, "HIV", *hiding)
    assert forger.digest() == before


def write_new_digest(forger: Forger) -> None:
    forger.replace_row(7, "HIV", 7, 1007)
    forger.put_manifest(forger.manifest() | {"digest": forger.digest()})


def claim(**fields: Any) -> Forge:
    return lambda forger: forger.put_manifest(forger.manifest() | fields)


def change_policy(forger: Forger) -> None:
    manifest = forger.manifest()
    policy = json.loads(manifest["policy"]) if isinstance(manifest["policy"], str) else manifest["policy"]
    policy["search"]["suppression_limit"] = 1
    forger.put_manifest(manifest | {"policy": json.dumps(policy, ensure_ascii=False)})


def run(*statements: str) -> Forge:
    def forge(forger: Forger) -> None:
        for statement in statements:
            forger.run(statement)

    return forge


FORGED: dict[str, Forge] = {
    "a row, under the digest": keep_digest,
    "a row, and the digest": write_new_digest,
    "rows of the source": claim(rows=58),
    "the hash of another policy": claim(policy_hash="0" * 64),
    "the policy": change_policy,
    "the time": claim(published_at="2026-01-01T00:00:00"),
    "the version of sqlanon": claim(sqlanon_version="99.0"),
}
IN_POSTGRES: dict[str, Forge] = {
    "a comment": run("COMMENT ON COLUMN shared.r.illness IS 'John Doe has HIV'"),
    "a type": run(
        "DROP VIEW shared.r",
        "ALTER TABLE shared.r_v1 ALTER number TYPE text",
        "CREATE VIEW shared.r AS SELECT age, illness, number, stay FROM shared.r_v1",
    ),
    "the view of another table": run(
        "CREATE TABLE shared.r_v2 AS SELECT * FROM shared.r_v1",
        "UPDATE shared.r_v2 SET illness = 'HIV' WHERE number = 7",
        "CREATE OR REPLACE VIEW shared.r AS SELECT age, illness, number, stay FROM shared.r_v2",
    ),
    "a second table": run("CREATE TABLE shared.r_v2 AS SELECT * FROM shared.r_v1"),
    "a second manifest": run(
        "ALTER TABLE shared.sqlanon_manifest DROP CONSTRAINT sqlanon_manifest_pkey",
        "INSERT INTO shared.sqlanon_manifest SELECT table_name, 2, manifest FROM shared.sqlanon_manifest",
    ),
    "a reader of the table": run("GRANT SELECT ON shared.r_v1 TO PUBLIC"),
}
IN_SPARK: dict[str, Forge] = {
    "a comment": run("ALTER TABLE shared.r_v1 ALTER COLUMN illness COMMENT 'John Doe has HIV'"),
    "the view of another table": run(
        "CREATE TABLE shared.r_v2 USING PARQUET AS SELECT * FROM shared.r_v1",
        "CREATE OR REPLACE VIEW shared.r AS SELECT age, illness, number, stay FROM shared.r_v2",
    ),
    "a second manifest": run("INSERT INTO shared.r_v1_manifest SELECT * FROM shared.r_v1_manifest"),
}


def policy(folder: Path, source: dict[str, Any], release: dict[str, Any]) -> sqlanon.Policy:
    return sqlanon.Policy(
        source=source | {"table": "clinic.visits", "person": "pid"},
        attributes={
            "age": {"role": "quasi", "hierarchy": {"intervals": [10, 20]}},
            "illness": {"role": "sensitive"},
            "number": {"role": "insensitive"},
            "stay": {"role": "insensitive"},
        },
        privacy={"k": 3},
        search={"suppression_limit": 0.2},
        release=release | {"table": "shared.r"},
        catalog={"database": folder / "c.duckdb"},
    )


def check_not_excused(db: sqlanon.Database, place: Any, wanted: sqlanon.Policy, forgery: str) -> None:
    try:
        verification = db.verify(place, wanted, "shared.r")
    except sqlanon.ReleaseError as error:
        assert error.exit_status == 1, forgery
        return
    assert not verification.verified, forgery
    assert verification.source_change is None, forgery
    assert not failed_checks(verification) & {SOURCE_CHECK}, forgery
    assert failed_checks(verification), forgery


def check_excused(db: sqlanon.Database, place: Any, wanted: sqlanon.Policy) -> None:
    """The release before the forgery: later failures are caused by the forgery."""
    verification = db.verify(place, wanted, "shared.r")
    assert failed_checks(verification) == {SOURCE_CHECK}, verification.failures
    assert verification.source_change is not None
    assert verification.source_change.withdrawn_persons == 2


@pytest.fixture
def schemas(postgres: Server) -> Iterator[Server]:
    drop = [f"DROP SCHEMA IF EXISTS {name} CASCADE" for name in ("clinic", "shared")]
    postgres.run(*drop, "CREATE SCHEMA clinic", "CREATE SCHEMA shared")
    yield postgres
    postgres.run(*drop)


def forger_in(server: Server) -> PostgresForger:
    def run(statement: str) -> list[tuple[Any, ...]]:
        server.run(statement)
        return []

    return PostgresForger(run, server.rows)


def publish_in_postgres(server: Server, folder: Path) -> sqlanon.Policy:
    """A release of a source that has lost two persons since."""
    wanted = policy(folder, {"postgres": HERE}, {"postgres": HERE})
    server.run("DROP TABLE IF EXISTS clinic.visits")
    server.load("clinic.visits", COLUMNS, ROWS)
    with sqlanon.connect() as db:
        db.anonymize(wanted).publish()
        assert db.verify(HERE, wanted, "shared.r").verified
    server.run("DELETE FROM clinic.visits WHERE pid IN ('p3', 'p4')")
    return wanted


@pytest.mark.thorough
@pytest.mark.parametrize("forgery", [*FORGED, *IN_POSTGRES])
def test_no_forgery_in_postgresql_is_excused(schemas: Server, tmp_path: Path, forgery: str) -> None:
    wanted = publish_in_postgres(schemas, tmp_path)
    (FORGED | IN_POSTGRES)[forgery](forger_in(schemas))
    with sqlanon.connect() as db:
        check_not_excused(db, HERE, wanted, forgery)


@pytest.mark.thorough
def test_an_unchanged_release_in_postgresql_is_excused(schemas: Server, tmp_path: Path) -> None:
    wanted = publish_in_postgres(schemas, tmp_path)
    with sqlanon.connect() as db:
        check_excused(db, HERE, wanted)


@pytest.mark.slow
def test_an_older_version_that_is_put_back_is_not_excused(schemas: Server, tmp_path: Path) -> None:
    """An older version would show who was withdrawn."""
    wanted = publish_in_postgres(schemas, tmp_path)
    forger = forger_in(schemas)
    manifest = forger.manifest()
    schemas.run("CREATE TABLE clinic.kept AS SELECT * FROM shared.r_v1")
    with sqlanon.connect() as db:
        db.withdraw(wanted).publish(force=True)
        assert db.verify(HERE, wanted, "shared.r").verified
        schemas.run("TRUNCATE shared.r_v2", "INSERT INTO shared.r_v2 SELECT * FROM clinic.kept")
        forger.put_manifest(manifest | {"version": 2})
        check_not_excused(db, HERE, wanted, "an older version")


@pytest.mark.slow
def test_an_earlier_release_that_is_forged_under_its_digest_is_not_compared_with(
    schemas: Server, tmp_path: Path
) -> None:
    wanted = publish_in_postgres(schemas, tmp_path)
    keep_digest(forger_in(schemas))
    message = "/shared.r is not the release that the ledger recorded: its rows were changed"
    with sqlanon.connect() as db, pytest.raises(sqlanon.SqlanonError, match=message):
        db.withdraw(wanted).publish(force=True)


@pytest.mark.thorough
def test_the_rows_of_a_release_in_postgresql_are_read_once_to_verify_it(schemas: Server, tmp_path: Path) -> None:
    """All checks are then of the same rows, also if the source has changed."""
    wanted = publish_in_postgres(schemas, tmp_path)
    with attack_between(PostgresEngine, lambda: None, None) as statements, sqlanon.connect() as db:
        check_excused(db, HERE, wanted)
    assert len([text for text in statements.texts if text.startswith("stream:") and '"shared"."r"' in text]) == 1


@contextmanager
def spark_schemas(session: Any) -> Iterator[None]:
    for schema in ("clinic", "shared"):
        session.sql(f"CREATE SCHEMA {schema}")
    try:
        yield
    finally:
        for schema in ("clinic", "shared"):
            session.sql(f"DROP SCHEMA {schema} CASCADE")


def load_in_spark(session: Any, rows: list[tuple[Any, ...]]) -> None:
    session.sql("DROP TABLE IF EXISTS clinic.visits")
    types = "pid string, age int, illness string, number bigint, stay bigint"
    session.createDataFrame(rows, types).write.saveAsTable("clinic.visits")


def forger_in_spark(session: Any) -> SparkForger:
    def run_there(statement: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in session.sql(statement).collect()]

    return SparkForger(run_there, run_there)


@pytest.mark.thorough
@pytest.mark.spark
def test_the_ledger_has_the_hash_of_the_audited_rows_in_spark(session: Any, tmp_path: Path) -> None:
    """The ledger has no hash of rows that somebody exchanges between the audit and the hash."""
    wanted = policy(tmp_path, {}, {"spark": True})
    with spark_schemas(session), sqlanon.connect(session) as db:
        load_in_spark(session, ROWS)
        result = db.anonymize(wanted)
        with attack_between(SparkEngine, lambda: None, None) as statements:
            result.publish()
        (hashing,) = [i for i, text in enumerate(statements.texts) if "collect_list" in text.lower()]
        with attack_between(SparkEngine, lambda: None, None) as statements:
            assert db.verify(session, wanted, "shared.r").verified
        assert len([text for text in statements.texts if "FROM `shared`.`r`" in text]) == 1
        session.sql("DROP SCHEMA shared CASCADE")
        session.sql("CREATE SCHEMA shared")
        (tmp_path / "c.duckdb").unlink()
        result = db.anonymize(wanted)
        with attack_between(SparkEngine, lambda: keep_digest(forger_in_spark(session)), hashing) as statements:
            result.publish()
        assert statements.was_attacked
        assert "against the ledger: sha256" in failed_checks(db.verify(session, wanted, "shared.r"))


@pytest.mark.thorough
@pytest.mark.spark
@pytest.mark.parametrize("forged", some([["", "a row, under the digest"], [*FORGED][1:], [*IN_SPARK]], 3))
def test_no_forgery_in_spark_is_excused(session: Any, spark_cluster: Any, tmp_path: Path, forged: list[str]) -> None:
    wanted = policy(tmp_path, {}, {"spark": True})
    with spark_schemas(session):
        for i, forgery in enumerate(forged):
            with sqlanon.connect(session) as db:
                if i:
                    session.sql("DROP SCHEMA shared CASCADE")
                    session.sql("CREATE SCHEMA shared")
                (tmp_path / "c.duckdb").unlink(missing_ok=True)
                load_in_spark(session, ROWS)
                db.anonymize(wanted).publish()
                load_in_spark(session, LEFT)
                if forgery:
                    (FORGED | IN_SPARK)[forgery](forger_in_spark(session))
                    check_not_excused(db, session, wanted, forgery)
                else:
                    check_excused(db, session, wanted)
