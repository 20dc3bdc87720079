"""PostgreSQL in and out, on a real server: the same as DuckDB finds and releases of the same table."""

from __future__ import annotations

import itertools
import json
import random
import re
import signal
import struct
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest

import sqlanon
from sqlanon.engines.postgres import engine as postgres_engine
from sqlanon.publish.targets.base import release_location
from sqlanon.sources.postgres import PostgresSource
from support.databases import quote_name
from support.pages import blocks
from support.postgres_cases import HERE, in_duckdb, policies, schemas
from support.servers.postgres import PASSWORD, VARIABLE, Server

__all__ = ["schemas"]  # fixtures

dbapi = pytest.importorskip("adbc_driver_postgresql.dbapi", reason="the extra postgres is not installed")
pytestmark = pytest.mark.slow


def figures(result: sqlanon.Result) -> dict[str, Any]:
    names = ("generalization", "score", "classes", "smallest_class", "suppressed_rows", "released_rows", "nodes")
    return {name: getattr(result, name) for name in names} | {"rows": result.rows, "optimal": result.optimal}


def multiset_here(release: sqlanon.Release) -> Counter[tuple[Any, ...]]:
    with duckdb.connect(str(release.path), read_only=True) as connection:
        query = f"SELECT CAST(COLUMNS(*) AS VARCHAR) FROM {release.manifest.table_name}"
        return _plain(connection.execute(query).fetchall(), release)


def multiset_there(server: Server, release: sqlanon.Release, name: str = "shared.r") -> Counter[tuple[Any, ...]]:
    columns = ", ".join(f"{quote_name(column.name)}::text" for column in release.manifest.columns)
    return _plain(server.rows(f"SELECT {columns} FROM {name}"), release)


def _plain(rows: Sequence[tuple[Any, ...]], release: sqlanon.Release) -> Counter[tuple[Any, ...]]:
    """Each engine writes floating-point numbers in its own way: here as the nearest of their width."""
    widths = [{"FLOAT": "f", "DOUBLE": "d"}.get(column.type) for column in release.manifest.columns]
    return Counter(
        tuple(
            value if width is None or value is None else repr(struct.unpack(width, struct.pack(width, float(value))))
            for value, width in zip(row, widths, strict=True)
        )
        for row in rows
    )


def check_same(server: Server, tree: Mapping[str, Any], connection: duckdb.DuckDBPyConnection, folder: Path) -> None:
    """Both find the same, and release the same rows: to PostgreSQL, to a file, and from DuckDB to PostgreSQL."""
    local_policy, remote_policy = policies(tree)
    with sqlanon.connect(connection) as db:
        try:
            expected = db.anonymize(local_policy)
        except sqlanon.InfeasibleError as error:
            with sqlanon.connect() as remote_db, pytest.raises(sqlanon.InfeasibleError) as outcome:
                remote_db.anonymize(remote_policy)
            assert str(outcome.value) == str(error)
            return
        file = expected.publish(folder / "here.duckdb")
        rows = multiset_here(file)
        with sqlanon.connect() as remote_db:
            outcome = remote_db.anonymize(remote_policy)
            assert figures(outcome) == figures(expected)
            published = outcome.publish()
            assert published.manifest.digest == file.manifest.digest
            assert published.manifest.columns == file.manifest.columns
            assert multiset_there(server, file) == rows
            assert published.verify().verified
            verification = remote_db.verify(HERE, remote_policy, "shared.r")
            assert verification.verified, verification.failures
            copied = outcome.publish(folder / "from_there.duckdb", "r")
            assert copied.manifest.digest == file.manifest.digest
            assert multiset_here(copied) == rows
        out = sqlanon.Policy(
            **{**local_policy.model_dump(), "release": {**remote_policy.release.model_dump(exclude_none=True)}}
        )
        sent = db.anonymize(out).publish()
        assert sent.manifest.digest == file.manifest.digest
        assert multiset_there(server, file) == rows
        assert db.verify(HERE, out, "shared.r").verified


NASTY = {
    'zip "code"': ("text", "VARCHAR"),
    "Born": ("date", "DATE"),
    "balance": ("numeric(9,2)", "DECIMAL(9,2)"),
    "age'; --": ("smallint", "SMALLINT"),
    "<script>": ("boolean", "BOOLEAN"),
    "diagnosis": ("character varying(20)", "VARCHAR"),
    "id": ("uuid", "UUID"),
    "weight": ("double precision", "DOUBLE"),
    "half": ("real", "FLOAT"),
    "seen": ("timestamp(3) without time zone", "TIMESTAMP"),
    "seen_at": ("timestamp with time zone", "TIMESTAMP WITH TIME ZONE"),
    "at": ("time without time zone", "TIME"),
    "big": ("bigint", "BIGINT"),
    "name": ("text", "VARCHAR"),
}


def nasty_rows(random_: random.Random, count: int) -> list[list[Any]]:
    """Values with NULLs, case, accents, quotes, blanks at the end, negative and great numbers."""

    def some(*values: Any) -> Any:
        return None if random_.random() < 0.1 else random_.choice(values)

    return [
        [
            some("02139", "02138", "o'2139", "É2139", "é2139", "0213 ", "0213", '0"1'),
            some(*(date(1980, 1, 1) + timedelta(days=400 * i) for i in range(6)), date(1899, 12, 31)),
            some("-10.50", "0.00", "10.50", "9999999.99", "-0.01"),
            some(-5, 0, 3, 17, 18, 42),
            some("true", "false"),
            some("flu", "Flu", "flü", "angina", "<b>x</b>"),
            f"{random_.getrandbits(128):032x}",
            some("1.5", "-0.0", "1e20", "0.1", "nan", "123456789012345680"),
            some("0.1", "-2.5", "3e10"),
            some("2020-01-02 03:04:05.5", "1999-12-31 23:59:59", "infinity"),
            some("2020-01-02 03:04:05.25+02", "2020-06-02 00:00:00+00"),
            some("00:00:00", "23:59:59.999999"),
            some(-(2**63), 2**63 - 1, 0),
            "secret",
        ]
        for _ in range(count)
    ]


def nasty_tree(random_: random.Random) -> dict[str, Any]:
    rules: dict[str, Any] = {
        'zip "code"': {"role": "quasi", "hierarchy": {"mask": random_.choice(["right", "left"])}},
        "Born": {"role": "quasi", "hierarchy": {"dates": ["month", "year", "decade"]}},
        "balance": {"role": "quasi", "hierarchy": {"intervals": [10, 100]}},
        "age'; --": {"role": "quasi", "hierarchy": {"intervals": [5, 20]}},
        "<script>": {"role": "quasi", "hierarchy": "suppress"},
    }
    insensitive = random_.sample(list(rules), random_.randint(1, 3))
    attributes = {
        name: rules.get(name, {"role": "insensitive"})
        if name in insensitive or name not in rules
        else {"role": "insensitive"}
        for name in NASTY
    }
    attributes["diagnosis"] = {"role": "sensitive"}
    attributes["name"] = {"role": "identifying"}
    privacy: dict[str, Any] = {"k": random_.randint(2, 4)}
    if random_.random() < 0.5:
        privacy["l_diversity"] = [{"attribute": "diagnosis", "kind": random_.choice(["distinct", "entropy"]), "l": 2}]
    if random_.random() < 0.3:
        privacy["t_closeness"] = [{"attribute": "diagnosis", "distance": "equal", "t": 0.5}]
    return {
        "attributes": attributes,
        "privacy": privacy,
        "search": {"suppression_limit": random_.choice([0, 0.1, 0.3])},
        "release": {"suppressed": random_.choice(["drop", "mask"])},
    }


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(6))
def test_random_small_tables_are_found_and_released_as_in_duckdb(schemas: Server, tmp_path: Path, seed: int) -> None:
    random_ = random.Random(seed)
    rows = nasty_rows(random_, (60, 60, 12, 0, 90, 30)[seed])
    schemas.load("clinic.t", {name: kind for name, (kind, _) in NASTY.items()}, rows)
    connection = in_duckdb({name: kind for name, (_, kind) in NASTY.items()}, rows)
    check_same(schemas, nasty_tree(random_), connection, tmp_path)


SMALL = {"zip": "text", "age": "integer", "born": "date", "diagnosis": "text", "cost": "numeric(8,2)", "name": "text"}


def small_rows(count: int = 400) -> list[list[Any]]:
    return [
        [
            f"{i % 7:05}",
            20 + i % 11,
            None if i % 5 == 0 else date(1990, 1, 1) + timedelta(days=i % 60),
            "abc"[i % 3],
            i % 9,
            f"person {i}",
        ]
        for i in range(count)
    ]


def small_tree(**sections: Any) -> dict[str, Any]:
    return {
        "source": {"postgres": HERE, "table": "clinic.t"},
        "attributes": {
            "zip": {"role": "quasi", "hierarchy": {"mask": "right"}},
            "age": {"role": "quasi", "hierarchy": {"intervals": [5, 10]}},
            "born": {"role": "quasi", "hierarchy": {"dates": ["month", "year"]}},
            "diagnosis": {"role": "sensitive"},
            "cost": {"role": "insensitive"},
            "name": {"role": "identifying"},
        },
        "privacy": {"k": 5, "l_diversity": [{"attribute": "diagnosis", "kind": "distinct", "l": 2}]},
        "search": {"suppression_limit": 0.05},
        "release": {"postgres": HERE, "table": "shared.r"},
        **sections,
    }


@pytest.fixture
def small(schemas: Server) -> Server:
    schemas.load("clinic.t", SMALL, small_rows())
    return schemas


def publish(**sections: Any) -> Any:
    with sqlanon.connect() as db:
        return db.anonymize(sqlanon.Policy(**small_tree(**sections))).publish()


def relations(server: Server, schema: str = "shared") -> dict[str, str]:
    query = f"SELECT relname::text, relkind::text FROM pg_class WHERE relnamespace = '{schema}'::regnamespace"
    return {name: kind for name, kind in server.rows(query) if kind in "rvm"}


@pytest.mark.thorough
def test_statements_fetch_no_source_rows(small: Server) -> None:
    before = len(small.log())
    with sqlanon.connect() as db:
        policy = sqlanon.Policy(**small_tree())
        db.anonymize(policy).publish()
        assert db.verify(HERE, policy, "shared.r").verified
    parts = re.split(r"LOG:  (?:statement|execute [^:]*):", small.log()[before:])
    over_source = [
        statement for statement in parts if '"clinic"."t"' in statement and "to_regclass" not in statement.lower()
    ]
    # Figures of columns show which column numbers people, if one does.
    people = [statement for statement in over_source if '"rows_there"' in statement]
    of_columns = re.compile(r'\s*COPY \((SELECT COUNT\(DISTINCT|WITH .*\) SELECT "chance"\."attribute" AS )', re.DOTALL)
    assert len(people) >= 2
    assert [person for person in people if of_columns.match(person) is None] == []
    over_source = [statement for statement in over_source if statement not in people]
    released = [statement for statement in over_source if "INSERT INTO" in statement]
    grouped = [statement for statement in over_source if "GROUP BY" in statement]
    person_counts = [statement for statement in over_source if "COUNT(DISTINCT" in statement]
    recoded = [statement for statement in over_source if "COPY" in statement and "sqlanon_shipped" in statement]
    assert len(released) == 1 and "sqlanon_shipped" in released[0] and "COPY" not in released[0]
    # Anonymize counts once, verify once more, and reads back what it recoded there.
    assert len(grouped) == 2 and len(person_counts) == 1 and len(recoded) == 1
    # Narrowing is measured in a table that stays on the server: only figures of groups are fetched.
    temporary = [statement for statement in over_source if 'TEMPORARY TABLE "sqlanon_narrowing"' in statement]
    measured = [
        statement for statement in parts if '"pg_temp"."sqlanon_narrowing"' in statement and "ANALYZE" not in statement
    ]
    assert len(temporary) == 1 and "COPY" not in temporary[0]
    figures = [statement for statement in measured if "GROUP BY" in statement and "ALIKE" in statement.upper()]
    distinct = [
        statement
        for statement in measured
        if re.match(r"\s*COPY \(SELECT COUNT\(DISTINCT [^,()]+\)(, COUNT\(DISTINCT [^,()]+\))* FROM", statement)
    ]
    assert figures and len(figures) + len(distinct) == len(measured)
    assert len(over_source) == 6
    assert not any("person 17" in statement for statement in parts)


def test_a_plan_reads_no_rows_and_shows_remote_statements(small: Server) -> None:
    before = len(small.log())
    with sqlanon.connect() as db:
        plan = str(db.plan(sqlanon.Policy(**small_tree())))
    assert 'FROM "clinic"."t"' not in small.log()[before:]
    first = plan.partition("\n\n")[0]
    assert "count in PostgreSQL" in first and "GROUP BY" in first
    assert "to a new table in PostgreSQL" in plan and 'JOIN "pg_temp"."coded_0"' in plan
    assert 'ARRAY["s"."born"] = ARRAY["h2"."value"]' in plan


@pytest.mark.thorough
def test_rows_with_nulls_are_recoded_by_hash_joins(schemas: Server) -> None:
    born = [None if i % 50 == 0 else date(1940, 1, 1) + timedelta(days=i * 7907 % 9001) for i in range(30_000)]
    rows = [[f"{i * 7919 % 500:05}", i * 31 % 80, day, "a", i % 1000, "x"] for i, day in enumerate(born)]
    schemas.load("clinic.t", SMALL, rows)
    schemas.run("ANALYZE clinic.t")
    attributes = small_tree()["attributes"]
    for name in ("zip", "age", "born"):
        attributes[name]["max_level"] = 0
    with sqlanon.connect() as db:
        # Labels of thousands of values are looked up behind the sort, whose size the planner cannot estimate.
        result = db.anonymize(sqlanon.Policy(**small_tree(attributes=attributes, privacy={"k": 1})))
        source = result._search_input.source
        assert isinstance(source, PostgresSource)
        engine = source.engine
        with (
            engine.rolled_back_unless_committed(),
            source.ship_tables(db._workspace.engine, _query(result)) as query,
            engine.connection.cursor() as cursor,
        ):
            cursor.adbc_statement.set_options(**{"adbc.postgresql.use_copy": "false"})  # COPY explains nothing
            cursor.execute("EXPLAIN " + query.sql("postgres"))
            plan = "\n".join(line for (line,) in cursor.fetchall())
    assert "Hash Join" in plan and "Nested Loop" not in plan, plan


def _query(result: sqlanon.Result) -> Any:
    return result._draft.statement.select()


def test_the_rows_are_not_in_the_order_of_the_source(schemas: Server) -> None:
    schemas.load(
        "clinic.t", {**SMALL, "cost": "integer"}, [[*row[:4], i, row[5]] for i, row in enumerate(small_rows())]
    )
    publish(privacy={**small_tree()["privacy"], "dependencies": "warn"})  # it says when somebody was born
    costs = [cost for (cost,) in schemas.rows("SELECT cost FROM shared.r_v1 ORDER BY ctid")]
    ordered = sorted(costs)
    assert costs != ordered and len(costs) > 300
    # Of shuffled rows about half stand before a smaller one.
    rises = sum(cost < next_cost for cost, next_cost in itertools.pairwise(costs))
    assert 0.4 < rises / len(costs) < 0.6


def test_a_reader_sees_the_release_and_not_the_source(small: Server) -> None:
    small.run(
        "DROP ROLE IF EXISTS analyst",
        "CREATE ROLE analyst LOGIN PASSWORD 'of the analyst'",
        "GRANT USAGE ON SCHEMA shared TO analyst",
        "ALTER DEFAULT PRIVILEGES IN SCHEMA shared GRANT SELECT ON TABLES TO analyst",
    )
    release = publish()
    analyst = small.address("analyst", "of the analyst").replace(" ", "%20")
    reader = dbapi.connect(analyst)
    try:
        with reader.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM shared.r")
            assert cursor.fetchone() == (release.manifest.released_rows,)
        for forbidden in ("SELECT * FROM clinic.t", "SELECT 1 FROM clinic.t", "DELETE FROM shared.r"):
            reader.rollback()
            with reader.cursor() as cursor, pytest.raises(dbapi.ProgrammingError, match="permission denied"):
                cursor.execute(forbidden)
                cursor.fetchall()
        reader.rollback()
        with reader.cursor() as cursor:  # nor what the server knows of the source's values
            cursor.execute("SELECT count(*) FROM pg_stats WHERE schemaname = 'clinic'")
            assert cursor.fetchone() == (0,)
    finally:
        reader.close()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ANALYST", analyst)
        with sqlanon.connect() as db:
            assert release_location("env:ANALYST", "shared.r").verify().verified
            tree = small_tree(source={"postgres": "env:ANALYST", "table": "clinic.t"})
            with pytest.raises(sqlanon.SourceError, match=r"permission denied|no table or view"):
                db.anonymize(sqlanon.Policy(**tree))


def test_comments_describe_the_release_to_readers(small: Server) -> None:
    release = publish()
    comment = small.rows("SELECT obj_description('shared.r'::regclass, 'pg_class')")[0][0]
    assert f"{release.manifest.released_rows} rows in {release.manifest.classes} classes" in comment
    columns = dict(
        small.rows(
            "SELECT attname, col_description(attrelid, attnum) FROM pg_attribute "
            "WHERE attrelid = 'shared.r'::regclass AND attnum > 0"
        )
    )
    assert list(columns) == [column.name for column in release.manifest.columns]
    assert all(comment.startswith(("quasi-identifier: ", "sensitive", "insensitive")) for comment in columns.values())


def test_a_new_version_replaces_the_older_one_and_keeps_its_readers(small: Server) -> None:
    first = publish()
    small.run("DROP ROLE IF EXISTS watcher", "CREATE ROLE watcher", "GRANT SELECT ON shared.r TO watcher, PUBLIC")
    assert relations(small) == {"r": "v", "r_v1": "r", "sqlanon_manifest": "r"}
    class_sizes = (
        "SELECT size, count(*) FROM (SELECT count(*) AS size FROM shared.r GROUP BY zip, age, born) AS c GROUP BY 1"
    )
    assert first.class_sizes() == sorted(small.rows(class_sizes))
    attributes = small_tree()["attributes"]
    attributes["age"] = {"role": "quasi", "hierarchy": {"intervals": [5, 10]}, "min_level": 2}
    attributes["zip"] = {"role": "quasi", "hierarchy": "suppress"}
    second = publish(attributes=attributes)
    assert relations(small) == {"r": "v", "r_v2": "r", "sqlanon_manifest": "r"}
    assert {age for (age,) in small.rows("SELECT DISTINCT age FROM shared.r")} <= {"20-29", "30-39", "*"}
    assert second.verify().verified
    granted = small.rows("SELECT has_table_privilege('watcher', 'shared.r', 'SELECT')")
    everybody = small.rows(
        "SELECT count(*) FROM pg_class, aclexplode(relacl) AS a WHERE oid = 'shared.r'::regclass AND a.grantee = 0"
    )
    assert granted == [(True,)] and everybody == [(1,)]
    small.run("DROP OWNED BY watcher", "DROP ROLE watcher")


@pytest.mark.thorough
def test_a_source_that_changes_before_publishing_is_refused_without_leftovers(small: Server) -> None:
    first = publish()
    before = relations(small)
    with sqlanon.connect() as db:
        result = db.anonymize(sqlanon.Policy(**small_tree(privacy={"k": 3})))
        small.run("DELETE FROM clinic.t WHERE age = 21")
        with pytest.raises(sqlanon.AuditError, match=r"should be|has the source changed"):
            result.publish()
    assert relations(small) == before
    assert first.verify().verified
    assert small.rows("SELECT count(*) FROM shared.r") == [(first.manifest.released_rows,)]


def test_a_release_that_was_changed_is_not_verified(small: Server) -> None:
    release = publish()
    small.run("UPDATE shared.r_v1 SET cost = cost + 1 WHERE ctid = (SELECT min(ctid) FROM shared.r_v1)")
    verification = release.verify()
    assert [check.name for check in verification.checks if not check.passed] == ["content digest"]
    small.run("ALTER TABLE shared.r_v1 RENAME TO hidden", "DROP VIEW shared.r", "CREATE VIEW shared.r AS SELECT 1 AS a")
    changed = [check.name for check in release.verify().checks if check.passed is False]
    assert changed == ["view", "table", "comments"]  # a view of something else is not read
    small.run("UPDATE shared.sqlanon_manifest SET manifest = '[]'")
    with pytest.raises(sqlanon.errors.BrokenReleaseError):
        release.verify()
    small.run("DELETE FROM shared.sqlanon_manifest")
    with pytest.raises(sqlanon.ReleaseError, match="not a release of sqlanon"):
        release.verify()


@pytest.mark.thorough
def test_rows_that_were_changed_with_their_digest_are_found_with_the_source(small: Server) -> None:
    release = publish()
    small.run("UPDATE shared.r_v1 SET cost = cost + 1 WHERE ctid = (SELECT min(ctid) FROM shared.r_v1)")
    forged = release.verify().digest
    small.run(
        f"UPDATE shared.sqlanon_manifest SET manifest = replace(manifest, '{release.manifest.digest}', '{forged}')"
    )
    assert release.verify().verified
    with sqlanon.connect() as db:
        verification = db.verify(HERE, sqlanon.Policy(**small_tree()), "shared.r")
        assert [check.name for check in verification.checks if not check.passed] == [
            "against the source: recoded source"
        ]
        with pytest.raises(sqlanon.ReleaseError, match="sha256 needs a file"):
            db.verify(HERE, sqlanon.Policy(**small_tree()), "shared.r", sha256="0" * 64)
    (message,) = [check.message for check in verification.checks if check.passed is False]
    assert "rows that the source does not give: 1; rows missing in the release: 1" in message
    assert release.sha256 is None


@pytest.mark.thorough
def test_names_may_have_quotes_and_dots(schemas: Server) -> None:
    schemas.run('DROP SCHEMA IF EXISTS "a.b" CASCADE', 'CREATE SCHEMA "a.b"')
    schemas.load('clinic."we""ird; --"', SMALL, small_rows())
    source = {"postgres": HERE, "table": 'clinic."we""ird; --"'}
    for version in (1, 2):
        release = publish(source=source, release={"postgres": HERE, "table": '"a.b"."pa\'ti""ents"'})
        assert release.verify().verified
        assert sorted(relations(schemas, '"a.b"')) == ["pa'ti\"ents", f"pa'ti\"ents_v{version}", "sqlanon_manifest"]
    with pytest.raises(sqlanon.SourceError, match="with the exact upper and lower case"):
        publish(source={"postgres": HERE, "table": 'clinic."WE""IRD; --"'})


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["quality", "class_sizes", "age_labels"])
def test_file_only_relation_names_are_available_as_columns(small: Server, name: str) -> None:
    attributes = small_tree()["attributes"]
    attributes["age"]["min_level"] = 1
    release = publish(attributes=attributes, release={"postgres": HERE, "table": f"shared.{name}"})
    assert relations(small) == {name: "v", f"{name}_v1": "r", "sqlanon_manifest": "r"}
    assert release.manifest.table_name == name and release.verify().verified


def test_nothing_but_a_release_is_replaced(small: Server) -> None:
    small.run("CREATE TABLE shared.r AS SELECT 1 AS mine")
    with pytest.raises(sqlanon.ReleaseError, match="exists and is not a release"):
        publish()
    assert small.rows("SELECT mine FROM shared.r") == [(1,)]
    assert relations(small) == {"r": "r"}
    with pytest.raises(sqlanon.ReleaseError, match="schema 'absent' does not exist"):
        publish(release={"postgres": HERE, "table": "absent.r"})


@pytest.mark.thorough
def test_replaced_view_keeps_grants_and_dependent_views(small: Server) -> None:
    publish()
    small.run(
        "DROP ROLE IF EXISTS watcher",
        "CREATE ROLE watcher",
        "GRANT SELECT (zip) ON shared.r TO watcher",
        "GRANT SELECT ON shared.r TO watcher WITH GRANT OPTION",
        "CREATE VIEW clinic.theirs AS SELECT zip FROM shared.r",
    )
    rights = "SELECT relacl::text FROM pg_class WHERE oid = 'shared.r'::regclass UNION ALL "
    rights += "SELECT attacl::text FROM pg_attribute WHERE attrelid = 'shared.r'::regclass AND attname = 'zip'"
    before = small.rows(rights)
    try:
        second = publish()
        assert relations(small) == {"r": "v", "r_v2": "r", "sqlanon_manifest": "r"} and second.verify().verified
        assert small.rows(rights) == before and "watcher=r*/" in str(before) and "watcher=r/" in str(before)
        rows = second.manifest.released_rows
        assert small.rows("SELECT count(*) FROM clinic.theirs") == [(rows,)]
        attributes = {**small_tree()["attributes"], "cost": {"role": "identifying"}}
        with pytest.raises(
            sqlanon.ReleaseError, match=r"shared\.r has other columns now.*: clinic\.theirs; drop"
        ) as no:
            publish(attributes=attributes)
        assert "SQLSTATE" not in str(no.value)
        small.run("DROP VIEW clinic.theirs", "CREATE VIEW clinic.theirs AS SELECT zip FROM shared.r_v2")
        with pytest.raises(sqlanon.ReleaseError, match=r"shared\.r_v2 is dropped.*: clinic\.theirs; drop"):
            publish()
        assert second.verify().verified
        small.run("DROP VIEW clinic.theirs")
        assert publish(attributes=attributes).verify().verified
        assert small.rows("SELECT has_table_privilege('watcher', 'shared.r', 'SELECT')") == [(True,)]
    finally:
        small.run("DROP OWNED BY watcher", "DROP ROLE watcher")


@pytest.mark.thorough
def test_a_view_of_something_else_is_not_verified(small: Server) -> None:
    release = publish()
    columns = ", ".join(column.name for column in release.manifest.columns)
    small.run(
        "CREATE TABLE clinic.copied AS SELECT * FROM shared.r",
        "CREATE TABLE clinic.r_v1 AS SELECT * FROM shared.r",
        "CREATE VIEW shared.middle AS SELECT * FROM shared.r_v1",
    )
    for query in (
        f"SELECT {columns} FROM clinic.copied",
        f"SELECT {columns} FROM clinic.r_v1",
        f"SELECT {columns} FROM shared.middle",
        f"SELECT {columns} FROM shared.r_v1 WHERE true",
        f"SELECT {columns} FROM shared.r_v1 UNION ALL SELECT {columns} FROM clinic.copied WHERE false",
    ):
        small.run("DROP VIEW shared.r", f"CREATE VIEW shared.r AS {query}")
        verification = release.verify()
        assert [check.name for check in verification.checks if check.passed is False] == ["view", "comments"], query
        assert "'r_v1'" in verification.failures[0]
    columns = columns.replace("zip", 'zip COLLATE "C.utf8"')
    small.run("DROP VIEW shared.r, shared.middle", f"CREATE VIEW shared.r AS SELECT {columns} FROM clinic.copied")
    assert not release.verify().verified
    assert publish().verify().verified


@pytest.mark.thorough
def test_a_table_that_is_named_as_another_version_is_not_verified(small: Server) -> None:
    release = publish()
    small.run("CREATE TABLE shared.r_v9 AS SELECT * FROM clinic.t")
    assert release.verify().failures == ("versions: not of the release: r_v9",)
    assert not release_location(HERE, "shared.r").verify().verified


@pytest.mark.thorough
def test_values_that_readers_can_distinguish_are_counted_apart(schemas: Server) -> None:
    schemas.run(
        "DROP TYPE IF EXISTS clinic.mood, clinic.postcode",
        "CREATE TYPE clinic.mood AS ENUM ('sad', 'glad', 'never said')",
        "CREATE DOMAIN clinic.postcode AS character varying(5)",
        "CREATE COLLATION clinic.loose (provider = icu, locale = 'und-u-ks-level1', deterministic = false)",
        "CREATE TABLE clinic.t (place text COLLATE clinic.loose, mood clinic.mood, zip clinic.postcode, code char(4))",
        "INSERT INTO clinic.t SELECT (array['a', 'A', 'á'])[1 + i % 3], 'glad', '02139', 'ab' "
        "FROM generate_series(1, 9) AS i",
    )
    assert schemas.rows("SELECT count(*) FROM (SELECT FROM clinic.t GROUP BY place) AS g") == [(1,)]
    policy = sqlanon.Policy(
        source={"postgres": HERE, "table": "clinic.t"},
        attributes={name: {"role": "quasi", "hierarchy": "suppress"} for name in ("place", "mood", "zip", "code")},
        privacy={"k": 3},
        release={"postgres": HERE, "table": "shared.r"},
    )
    with sqlanon.connect() as db:
        release = db.anonymize(policy).publish()
    assert (release.manifest.classes, release.manifest.smallest_class) == (3, 3)
    assert set(schemas.rows("SELECT DISTINCT * FROM shared.r")) == {(letter, "glad", "02139", "ab") for letter in "aAá"}
    kinds = schemas.rows(
        "SELECT DISTINCT format_type(atttypid, atttypmod) FROM pg_attribute "
        "WHERE attrelid = 'shared.r'::regclass AND attnum > 0"
    )
    assert kinds == [("text",)]  # an enumeration would reveal moods without rows


def test_types_without_equality_are_refused_and_a_query_can_cast_them(schemas: Server) -> None:
    schemas.run("CREATE TABLE clinic.t AS SELECT '{}'::jsonb AS doc, 1.5 AS loose, '1 day'::interval AS wait, 1 AS a")
    attributes = {name: {"role": "insensitive"} for name in ("doc", "loose", "wait")}
    attributes["a"] = {"role": "quasi", "hierarchy": "suppress"}
    source = {"postgres": HERE, "table": "clinic.t"}
    policy = sqlanon.Policy(source=source, attributes=attributes, privacy={"k": 1})
    with sqlanon.connect() as db:
        with pytest.raises(sqlanon.SourceError, match=r"'doc' \(jsonb\), 'loose' \(numeric\), 'wait' \(interval\)"):
            db.anonymize(policy)
        query = "SELECT doc::text AS doc, loose::numeric(8,2) AS loose, wait::text AS wait, a FROM clinic.t -- so"
        cast = sqlanon.Policy(source={"postgres": HERE, "query": query}, attributes=attributes, privacy={"k": 1})
        assert db.anonymize(cast).rows == 1
        for wrong in ("DELETE FROM clinic.t", "SELECT 1 AS a; DROP TABLE clinic.t", "SELECT FROM WHERE ("):
            bad = sqlanon.Policy(source={"postgres": HERE, "query": wrong}, attributes=attributes, privacy={"k": 1})
            with pytest.raises(sqlanon.SourceError, match="one SELECT"):
                db.anonymize(bad)
    assert schemas.rows("SELECT count(*) FROM clinic.t") == [(1,)]


def test_a_failure_while_reading_names_the_server(schemas: Server) -> None:
    schemas.run("CREATE TABLE clinic.t AS SELECT i AS a FROM generate_series(0, 999) AS s(i)")
    policy = sqlanon.Policy(
        source={"postgres": HERE, "query": "SELECT 'private ' || a / (a - 500) AS b FROM clinic.t"},
        attributes={"b": {"role": "quasi", "hierarchy": "suppress"}},
        privacy={"k": 1},
    )
    with sqlanon.connect() as db, pytest.raises(sqlanon.SourceError, match=r"source\.postgres") as error:
        db.anonymize(policy)
    assert "private" not in str(error.value) and "broken file" not in str(error.value)


@pytest.mark.thorough
def test_ctrl_c_cancels_the_statement_on_the_server(small: Server, tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    slow = 'query = "SELECT t.*, pg_sleep(1)::text AS s FROM clinic.t AS t"\nundeclared = "drop"'
    policy.write_text(
        TOML.replace('table = "clinic.t"', slow)
        .replace("[privacy]", "[privacy]\naverage_risk = 1", 1)
        .replace("[attributes]", '[attributes]\ns = { role = "quasi", hierarchy = "suppress" }')
    )
    process = subprocess.Popen([sys.executable, "-m", "sqlanon", "anonymize", str(policy)], stderr=subprocess.PIPE)
    asks = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND application_name = 'sqlanon' "
    asks += "AND query LIKE 'COPY%GROUP BY%'"
    deadline = time.monotonic() + 600
    while small.rows(asks) == [(0,)] and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=600)
    assert process.returncode == 130, stderr
    assert b"Traceback" not in stderr
    assert small.rows(asks) == [(0,)]


@pytest.mark.parametrize("role", ["quasi", "insensitive"])
@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("0044-03-15 BC", "date"),
        ("0044-03-15 BC", "timestamp"),
        ("0044-03-15 12:30:01.5 BC", "timestamp(1)"),
        ("0044-03-15 BC", "timestamptz"),
        ("294276-01-01", "timestamp"),
        ("NaN", "numeric(8,2)"),
    ],
)
def test_a_value_that_cannot_travel_is_an_error_and_no_other_value(
    schemas: Server, tmp_path: Path, value: str, kind: str, role: str
) -> None:
    schemas.run(f"CREATE TABLE clinic.t AS SELECT '{value}'::{kind} AS odd, date '1990-01-01' AS born, 'x' AS b")
    suppressed = {"role": "quasi", "hierarchy": "suppress"}
    attributes = {"odd": suppressed if role == "quasi" else {"role": role}, "born": {"role": "insensitive"}}
    source = {"postgres": HERE, "table": "clinic.t"}
    release = {"postgres": HERE, "table": "shared.r"}
    policy = sqlanon.Policy(
        source=source, attributes={**attributes, "b": suppressed}, privacy={"k": 1}, release=release
    )
    places: list[Path | None] = [None] if role == "quasi" else [None, tmp_path / "r.duckdb"]
    for place in places:
        with sqlanon.connect() as db, pytest.raises(sqlanon.SourceError, match="'odd' cannot be read: NaN") as error:
            db.anonymize(policy).publish(place)
        assert "0044" not in str(error.value) and "born" not in str(error.value)
    assert relations(schemas) == {}


def test_a_release_does_not_go_into_the_schema_of_its_source(small: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELSEWHERE", small.address())
    monkeypatch.setenv("BY_NAME", small.address().replace("127.0.0.1", "localhost"))
    schemas = relations(small, "clinic")
    for place in ("env:ELSEWHERE", "env:BY_NAME"):
        policy = sqlanon.Policy(**small_tree(release={"postgres": place, "table": "clinic.r"}))
        with sqlanon.connect() as db:
            for verb in (db.anonymize, db.plan):
                with pytest.raises(sqlanon.SourceError, match="is in the source's schema 'clinic'"):
                    verb(policy)
    small.run("ALTER ROLE holder SET search_path TO clinic")
    try:
        without = small_tree(source={"postgres": HERE, "table": "t"}, release={"postgres": HERE, "table": "clinic.r"})
        with sqlanon.connect() as db, pytest.raises(sqlanon.SourceError, match="is in the source's schema 'clinic'"):
            db.anonymize(sqlanon.Policy(**without))
    finally:
        small.run("ALTER ROLE holder RESET search_path")
    with sqlanon.connect() as db:
        result = db.anonymize(sqlanon.Policy(**small_tree()))
        with pytest.raises(sqlanon.SourceError, match="is in the source's schema 'clinic'"):
            result.publish(table="clinic.r")
    assert relations(small, "clinic") == schemas


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda address: address.replace(PASSWORD, "wrong-secret"), "the user or the password is wrong"),
        (lambda address: address.replace("/postgres", "/absent"), "no such database"),
        (lambda address: re.sub(r":\d+/", ":1/", address), "no server is listening there"),
        (lambda address: re.sub(r":\d+/", ":no-port/", address), "not well formed"),
    ],
)
def test_errors_do_not_reveal_the_address(
    small: Server, monkeypatch: pytest.MonkeyPatch, change: Any, message: str
) -> None:
    address = change(small.address())
    monkeypatch.setenv(VARIABLE, address)
    with sqlanon.connect() as db, pytest.raises(sqlanon.SourceError, match=message) as error:
        db.anonymize(sqlanon.Policy(**small_tree()))
    for secret in (PASSWORD, "wrong-secret", "127.0.0.1", "holder", str(small.port)):
        assert secret not in str(error.value)
    with pytest.raises(sqlanon.ReleaseError, match=message):
        release_location(HERE, "shared.r").verify()


@pytest.mark.thorough
def test_neither_catalog_nor_release_holds_the_address(small: Server, tmp_path: Path) -> None:
    catalog = tmp_path / "private.catalog.duckdb"
    publish(catalog={"database": str(catalog)})
    (manifest,) = small.rows("SELECT manifest FROM shared.sqlanon_manifest")[0]
    with duckdb.connect(str(catalog), read_only=True) as connection:
        catalog_text = str(
            connection.execute("FROM sqlanon.runs").fetchall() + connection.execute("FROM sqlanon.releases").fetchall()
        )
    for secret in (PASSWORD, "holder"):
        assert secret not in manifest and secret not in catalog_text
    assert "127.0.0.1" not in manifest and "clinic" not in manifest


@pytest.mark.thorough
def test_the_ledger_holds_later_releases_against_those_in_postgres(small: Server, tmp_path: Path) -> None:
    catalog = {"database": str(tmp_path / "private.catalog.duckdb")}
    attributes = small_tree()["attributes"]
    coarse = {**attributes, "age": {"role": "quasi", "hierarchy": "suppress", "min_level": 1}}
    fine = {**attributes, "zip": {"role": "quasi", "hierarchy": "suppress", "min_level": 1}}
    plain = {"k": 5}
    publish(catalog=catalog, attributes=coarse, privacy=plain)
    for release in (
        {"postgres": HERE, "table": "shared.other"},
        {"database": str(tmp_path / "other.duckdb"), "table": "o"},
    ):
        with pytest.raises(sqlanon.AuditError, match="together with postgresql://") as refused:
            publish(catalog=catalog, attributes=fine, privacy=plain, release=release)
        (query,) = refused.value.queries
        assert "joined with it" in str(refused.value) and "-- earlier: a copy of postgresql://" in query
    assert "other" not in relations(small) and not (tmp_path / "other.duckdb").exists()
    with sqlanon.connect() as db:
        result = db.anonymize(sqlanon.Policy(**small_tree(catalog=catalog, attributes=coarse, privacy=plain)))
        again = result.publish(tmp_path / "same.duckdb", "same")
    assert again.verify().verified
    assert result.held_against == (f"postgresql://127.0.0.1:{small.port}/postgres/shared.r",)


@pytest.mark.thorough
def test_a_draft_in_postgres_is_marked_and_replaces_no_release(small: Server, tmp_path: Path) -> None:
    catalog = {"database": str(tmp_path / "private.catalog.duckdb")}
    release = {"postgres": HERE, "table": "shared.r", "draft": True}
    assert publish(catalog=catalog, release=release).manifest.draft
    assert publish(catalog=catalog, release=release).verify().manifest.draft  # the place of a draft is free
    (comment,) = small.rows("SELECT obj_description('shared.r'::regclass)")[0]
    assert comment.startswith("DRAFT")
    assert not publish(catalog=catalog).manifest.draft
    with pytest.raises(sqlanon.ReleaseError, match="a draft does not replace"):
        publish(catalog=catalog, release=release)
    with pytest.raises(sqlanon.ReleaseError, match="a draft does not replace"):  # without the ledger
        publish(release=release)


@pytest.mark.thorough
def test_commands_run_on_postgres_and_hide_the_password(small: Server, tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text(TOML)
    done = command("anonymize", str(policy), "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["table"] == "shared.r" and document["release"].endswith("/postgres/shared.r")
    assert PASSWORD not in done.stdout + done.stderr
    assert command("verify", HERE, "--table", "shared.r").returncode == 0
    verified = json.loads(command("verify", HERE, "--table", "shared.r", "--json").stdout)
    place = f"postgresql://127.0.0.1:{small.port}/postgres/shared.r"
    assert [(entry["release"], entry["table"]) for entry in (document, verified)] == [(place, "shared.r")] * 2
    completed = command("verify", HERE, "--table", "shared.r", "--policy", str(policy))
    assert completed.returncode == 0 and "against the source: recoded source" in completed.stdout, completed.stdout
    assert command("verify", HERE).returncode == 2
    assert command("compare", str(policy), "--strategies", "optimal,datafly").returncode == 0
    refused = command("risk", str(policy))
    assert refused.returncode == 2 and "its rows never leave it" in refused.stderr
    small.run("UPDATE shared.r_v1 SET cost = 0")
    assert command("verify", HERE, "--table", "shared.r").returncode == 1


TOML = f"""
[source]
postgres = "{HERE}"
table = "clinic.t"

[attributes]
zip       = {{ role = "quasi", hierarchy = {{ mask = "right" }} }}
age       = {{ role = "quasi", hierarchy = {{ intervals = [5, 10] }} }}
born      = {{ role = "quasi", hierarchy = {{ dates = ["month", "year"] }} }}
diagnosis = {{ role = "sensitive" }}
cost      = {{ role = "insensitive" }}
name      = {{ role = "identifying" }}

[privacy]
k = 5

[search]
suppression_limit = 0.05

[release]
postgres = "{HERE}"
table = "shared.r"
"""


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "sqlanon", *arguments], capture_output=True, text=True, check=False)


DOCS = (Path(__file__).resolve().parents[2] / "docs" / "how-to" / "postgres.md").read_text(encoding="utf-8")


@pytest.mark.thorough
def test_the_documentation_is_true(schemas: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (toml,), (sql,) = blocks("toml", DOCS), blocks("sql", DOCS)
    rows = [[f"person {i}", f"{i % 4:05}", 20 + i % 13, "fm"[i % 2], "abc"[i % 3]] for i in range(600)]
    columns = {"name": "text", "zip": "text", "age": "integer", "sex": "char(1)", "diagnosis": "text"}
    schemas.load("clinic.patients", columns, rows)
    schemas.run("DROP ROLE IF EXISTS analysts", *filter(str.strip, sql.split(";")))
    policy = tmp_path / "postgres.toml"
    policy.write_text(toml)
    monkeypatch.setenv("HOSPITAL", schemas.address())
    try:
        for words in re.findall(r"^sqlanon ([^#\n]*)", "".join(blocks("sh", DOCS)), re.MULTILINE):
            done = command(*words.replace("postgres.toml", str(policy)).split())
            assert done.returncode == 0, (words, done.stdout, done.stderr)
        assert relations(schemas) == {"patients": "v", "patients_v1": "r", "sqlanon_manifest": "r"}
        allowed = "has_table_privilege('analysts', 'shared.patients', 'SELECT')"
        denied = "has_schema_privilege('analysts', 'clinic', 'USAGE')"
        assert schemas.rows(f"SELECT {allowed}, {denied}") == [(True, False)]
    finally:
        schemas.run("DROP OWNED BY analysts", "DROP ROLE analysts")


@pytest.mark.thorough
def test_a_population_in_a_file_and_hierarchies_of_sensitive_values(schemas: Server, tmp_path: Path) -> None:
    rows = [
        [f"{i % 4:05}", 20 + i % 13, ["flu", "cold", "ulcer", "gastritis"][i % 4 if i % 5 else 0]] for i in range(300)
    ]
    schemas.load("clinic.t", {"zip": "text", "age": "integer", "diagnosis": "text"}, rows)
    connection = in_duckdb({"zip": "VARCHAR", "age": "INTEGER", "diagnosis": "VARCHAR"}, rows)
    population = tmp_path / "voters.parquet"
    connection.execute(f"COPY (SELECT zip, age FROM t, range(2)) TO '{population}'")
    tree_of_diagnoses = {"categories": {"lungs": ["flu", "cold"], "stomach": ["ulcer", "gastritis"]}}
    tree = {
        "attributes": {
            "zip": {"role": "quasi", "hierarchy": {"mask": "right"}},
            "age": {"role": "quasi", "hierarchy": {"intervals": [5, 10]}},
            "diagnosis": {"role": "sensitive", "hierarchy": tree_of_diagnoses},
        },
        "population": {"files": str(population)},
        "privacy": {
            "k_map": 20,
            "t_closeness": [{"attribute": "diagnosis", "distance": "hierarchical", "t": 0.4}],
        },
        "search": {"suppression_limit": 0.1},
    }
    check_same(schemas, tree, connection, tmp_path)


@pytest.mark.thorough
def test_unknown_values_are_suppressed_in_postgres_too(schemas: Server, tmp_path: Path) -> None:
    rows = [["abcx"[i % 4] if i % 20 else "strange", i % 3] for i in range(120)] + [[None, 1]] * 7
    schemas.load("clinic.t", {"letter": "text", "n": "integer"}, rows)
    (tmp_path / "letters.csv").write_text("a;vowel;*\nb;other;*\nc;other;*\nx;other;*\n")
    letters = {"role": "quasi", "hierarchy": {"file": str(tmp_path / "letters.csv")}, "on_unknown": "suppress"}
    for suppressed in ("drop", "mask"):
        tree = {
            "attributes": {"letter": letters, "n": {"role": "quasi", "hierarchy": "suppress"}},
            "privacy": {"k": 4},
            "search": {"suppression_limit": 0.2},
            "release": {"suppressed": suppressed},
        }
        check_same(schemas, tree, in_duckdb({"letter": "VARCHAR", "n": "INTEGER"}, rows), tmp_path)
        assert relations(schemas)["r"] == "v"


@pytest.mark.thorough
def test_a_source_in_postgres_is_released_as_parquet(small: Server, tmp_path: Path) -> None:
    release = publish(release={"file": str(tmp_path / "r.parquet")})
    other_release = publish()
    assert release.verify().verified and release.manifest.digest == other_release.manifest.digest


@pytest.mark.thorough
def test_another_address_of_the_same_server_is_sent_the_rows(small: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELSEWHERE", small.address() + "?application_name=elsewhere")
    first = publish()
    second = publish(release={"postgres": "env:ELSEWHERE", "table": "shared.second"})
    assert second.verify().verified and second.manifest.digest == first.manifest.digest


def test_types_that_postgres_lacks_are_refused(schemas: Server) -> None:
    connection = duckdb.connect()
    connection.execute("CREATE TABLE t AS SELECT i % 2 AS a, i::UTINYINT AS tiny, [i] AS list FROM range(9) AS r(i)")
    policy = sqlanon.Policy(
        source={"table": "t"},
        attributes={
            "a": {"role": "quasi", "hierarchy": "suppress"},
            "tiny": {"role": "insensitive"},
            "list": {"role": "insensitive"},
        },
        privacy={"k": 2},
        release={"postgres": HERE, "table": "shared.r"},
    )
    with sqlanon.connect(connection) as db:
        result = db.anonymize(policy)
        with pytest.raises(sqlanon.ReleaseError, match=r"'tiny' \(UTINYINT\), 'list' \(BIGINT\[\]\)"):
            result.publish()
    assert relations(schemas) == {}


@pytest.mark.thorough
def test_noise_and_decoys_of_a_duckdb_source_go_to_postgres(schemas: Server) -> None:
    connection = duckdb.connect()
    connection.execute("CREATE TABLE t AS SELECT i % 40 AS a, i % 3 AS b FROM range(130) AS r(i)")
    policy = sqlanon.Policy(
        source={"table": "t"},
        attributes={"a": {"role": "quasi", "hierarchy": {"intervals": [7]}}, "b": {"role": "sensitive"}},
        privacy={"k": 20},
        search={"suppression_limit": 0.2},
        release={"postgres": HERE, "table": "shared.r", "decoys": True},
    )
    with sqlanon.connect(connection) as db:
        result = db.anonymize(policy)
        release = result.publish()
        assert result.decoys is not None
        assert schemas.rows("SELECT count(*) FROM shared.r") == [(result.released_rows,)]
        assert release.verify().verified
        with pytest.raises(sqlanon.ReleaseError, match="as a file"):
            db.verify(HERE, policy, "shared.r")


@pytest.mark.thorough
def test_a_reader_that_never_ends_its_transaction_is_not_waited_for(
    small: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = publish()
    monkeypatch.setitem(postgres_engine._SETTINGS, "lock_timeout", "200ms")
    reader = dbapi.connect(small.address())
    try:
        with reader.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM shared.r")
            cursor.fetchall()
        with pytest.raises(sqlanon.ReleaseError, match="is locked by another"):
            publish()
    finally:
        reader.close()
    assert first.verify().verified and relations(small) == {"r": "v", "r_v1": "r", "sqlanon_manifest": "r"}
