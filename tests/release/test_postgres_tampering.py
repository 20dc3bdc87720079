"""Changes around a release in PostgreSQL are reported; the rights of its readers stay as the holder granted them."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from types import SimpleNamespace
from typing import Any, cast

import duckdb
import pytest

import sqlanon
from sqlanon.engines.postgres.engine import PostgresEngine
from sqlanon.errors import ReleaseError
from sqlanon.publish.targets.base import release_location
from sqlanon.publish.targets.postgres import statements as release_statements
from sqlanon.publish.targets.postgres.checks import (
    Relations,
    _CatalogAudit,
    _compare_table,
    index_name,
    relation_number,
)
from sqlanon.publish.targets.postgres.reader import PostgresLocation
from sqlanon.publish.targets.postgres.target import ReleaseInSchema, ReplacedRelease
from sqlanon.release.manifest import ReleasedColumn
from support.databases import quote_name
from support.servers.postgres import VARIABLE, Server

dbapi: Any = pytest.importorskip("adbc_driver_postgresql.dbapi", reason="the extra postgres is not installed")

HERE = f"env:{VARIABLE}"
SCHEMA = "tampered"
READER = "tampering_reader"
OTHER = "tampering_other"


@pytest.fixture
def empty(postgres: Server) -> Iterator[Server]:
    """A schema for releases, and two roles that may use it."""
    postgres.run(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE", f"CREATE SCHEMA {SCHEMA}")
    for role in (READER, OTHER):
        postgres.run(f"CREATE ROLE {role} LOGIN PASSWORD 'x'", f"GRANT USAGE ON SCHEMA {SCHEMA} TO {role}")
    yield postgres
    postgres.run(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE", "DROP PUBLICATION IF EXISTS john_doe")
    for role in (READER, OTHER):
        postgres.run(f"DROP OWNED BY {role}", f"DROP ROLE {role}")


def publish(
    columns: str = "i % 4 AS a, chr((97 + i % 3)::INT) AS b, i / 2 AS c", place: str = HERE, name: str = "r"
) -> Any:
    connection = duckdb.connect()
    connection.execute(f"CREATE TABLE t AS SELECT {columns} FROM range(60) AS r(i)")
    names = [column[0] for column in connection.execute("FROM t").description]
    policy = sqlanon.Policy(
        source={"table": "t"},
        attributes={
            name: {"role": "quasi", "hierarchy": "suppress"} if name == "a" else {"role": "insensitive"}
            for name in names
        },
        privacy={"k": 5},
        release={"postgres": place, "table": f"{SCHEMA}.{name}"},
    )
    with sqlanon.connect(connection) as db:
        return db.anonymize(policy).publish()


@pytest.fixture(scope="module")
def holder(postgres: Server) -> Iterator[PostgresEngine]:
    with closing(PostgresEngine.open(postgres.address(), "the release")) as server:
        yield server


@contextmanager
def new_version(
    server: PostgresEngine, types: Mapping[str, str] = {"a": "INTEGER"}
) -> Iterator[tuple[ReleaseInSchema, ReplacedRelease]]:
    """A transaction that ends with the publication of an empty table as the next version, without an audit."""
    location = PostgresLocation.parse(HERE, f"{SCHEMA}.r")
    with server.rolled_back_unless_committed(ReleaseError):
        release = ReleaseInSchema(server, location)
        replaced = release.find_replaced()
        relation = location.version_table(replaced.next_version)
        server.execute(release_statements.create_version_table(relation.copy(), types))
        yield release, replaced
        release.replace_view(relation, replaced, [*types])
        release.store_manifest(replaced.next_version, "{}")
        release.drop_replaced_table(replaced)
        server.commit()


def failing(release: Any) -> list[str]:
    return [check.name for check in release.verify().checks if check.passed is False]


NOTHING = "RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'"
LIST = "SELECT a, b, c FROM tampered.r_v1"
ANEW = "DROP VIEW tampered.r", f"CREATE VIEW tampered.r AS {LIST}"

TAMPERING: dict[str, tuple[str, tuple[str, ...]]] = {
    "a column": ("table", ("ALTER TABLE tampered.r_v1 ADD COLUMN name text",)),
    "a column that came and went": (
        "table",
        ("ALTER TABLE tampered.r_v1 ADD COLUMN name text", "ALTER TABLE tampered.r_v1 DROP COLUMN name"),
    ),
    "a generated column": ("table", ("ALTER TABLE tampered.r_v1 ADD COLUMN g int GENERATED ALWAYS AS (1) STORED",)),
    "a child table": ("table", ("CREATE TABLE tampered.child (name text) INHERITS (tampered.r_v1)",)),
    "a parent table": (
        "table",
        ("CREATE TABLE tampered.parent ()", "ALTER TABLE tampered.r_v1 INHERIT tampered.parent"),
    ),
    "a default": ("table", ("ALTER TABLE tampered.r_v1 ALTER COLUMN b SET DEFAULT 'John Doe'",)),
    "a constraint": ("table", ("ALTER TABLE tampered.r_v1 ADD CONSTRAINT k CHECK (b <> 'John Doe')",)),
    "an index over a condition": ("table", ("CREATE INDEX i ON tampered.r_v1 (a) WHERE b = 'John Doe'",)),
    "an index with a telling name": ("table", ("CREATE INDEX john_doe_has_hiv ON tampered.r_v1 (a)",)),
    "an index over an expression": ("table", ("CREATE INDEX ON tampered.r_v1 ((b || 'John Doe'))",)),
    "an index with options": ("table", ("CREATE INDEX ON tampered.r_v1 (a) WITH (fillfactor = 50)",)),
    "an index with a collation": (
        "table",
        (
            'CREATE COLLATION tampered.john_doe FROM "C"',
            "CREATE INDEX ON tampered.r_v1 (b COLLATE tampered.john_doe)",
        ),
    ),
    "a column of an index": (
        "table",
        ("CREATE INDEX ON tampered.r_v1 (a)", "ALTER TABLE tampered.r_v1_a_idx RENAME COLUMN a TO john_doe"),
    ),
    "a comment of an index": (
        "comments",
        ("CREATE INDEX ON tampered.r_v1 (a)", "COMMENT ON INDEX tampered.r_v1_a_idx IS 'John Doe has HIV'"),
    ),
    "a unique constraint": ("table", ("ALTER TABLE tampered.r_v1 ADD CONSTRAINT john_doe UNIQUE (a, b, c)",)),
    "a primary key with a telling name": (
        "table",
        ("ALTER TABLE tampered.r_v1 ADD CONSTRAINT john_doe PRIMARY KEY (a, b, c)",),
    ),
    "a column that may not be NULL": ("table", ("ALTER TABLE tampered.r_v1 ALTER COLUMN a SET NOT NULL",)),
    "statistics": ("table", ("CREATE STATISTICS tampered.john_doe_has_hiv ON a, b FROM tampered.r_v1",)),
    "a target of statistics": ("table", ("ALTER TABLE tampered.r_v1 ALTER COLUMN a SET STATISTICS 77",)),
    "options of a column": ("table", ("ALTER TABLE tampered.r_v1 ALTER COLUMN a SET (n_distinct = 77)",)),
    "storage of a column": ("table", ("ALTER TABLE tampered.r_v1 ALTER COLUMN b SET STORAGE EXTERNAL",)),
    "compression of a column": ("table", ("ALTER TABLE tampered.r_v1 ALTER COLUMN b SET COMPRESSION pglz",)),
    "options of the table": ("table", ("ALTER TABLE tampered.r_v1 SET (fillfactor = 77)",)),
    "options of long values": ("table", ("ALTER TABLE tampered.r_v1 SET (toast.autovacuum_enabled = false)",)),
    "replica identity": ("table", ("ALTER TABLE tampered.r_v1 REPLICA IDENTITY FULL",)),
    "a type of the table": (
        "table",
        (
            'CREATE TYPE tampered.john_doe AS (a bigint, b text COLLATE "C", c float8)',
            "ALTER TABLE tampered.r_v1 OF tampered.john_doe",
        ),
    ),
    "a sequence": (
        "table",
        ("CREATE SEQUENCE tampered.john_doe", "ALTER SEQUENCE tampered.john_doe OWNED BY tampered.r_v1.a"),
    ),
    "a publication": ("table", ("CREATE PUBLICATION john_doe FOR TABLE tampered.r_v1",)),
    "a rule": ("table", ("CREATE RULE n AS ON UPDATE TO tampered.r_v1 DO INSTEAD NOTHING",)),
    "a trigger": (
        "table",
        (
            f"CREATE FUNCTION tampered.f() {NOTHING}",
            "CREATE TRIGGER t BEFORE INSERT ON tampered.r_v1 FOR EACH ROW EXECUTE FUNCTION tampered.f()",
        ),
    ),
    "row security": ("table", ("ALTER TABLE tampered.r_v1 ENABLE ROW LEVEL SECURITY",)),
    "a policy": ("table", ("CREATE POLICY p ON tampered.r_v1 USING (true)",)),
    "no log": ("table", ("ALTER TABLE tampered.r_v1 SET UNLOGGED",)),
    "another type": ("table", ("DROP VIEW tampered.r", "ALTER TABLE tampered.r_v1 ALTER b TYPE varchar(9)", ANEW[1])),
    "another collation": (
        "table",
        ("DROP VIEW tampered.r", 'ALTER TABLE tampered.r_v1 ALTER b TYPE text COLLATE "C.utf8"', ANEW[1]),
    ),
    "a partitioned table": (
        "table",
        (
            "DROP VIEW tampered.r",
            "ALTER TABLE tampered.r_v1 RENAME TO part",
            "CREATE TABLE tampered.r_v1 (LIKE tampered.part) PARTITION BY LIST (a)",
            "CREATE TABLE tampered.rest PARTITION OF tampered.r_v1 DEFAULT",
            "INSERT INTO tampered.r_v1 SELECT * FROM tampered.part",
            ANEW[1],
        ),
    ),
    "a view as another version": ("versions", ("CREATE VIEW tampered.r_v2 AS SELECT 'John Doe' AS name",)),
    "a materialized view as another version": (
        "versions",
        ("CREATE MATERIALIZED VIEW tampered.r_v7 AS SELECT 1 AS a",),
    ),
    "a sequence as another version": ("versions", ("CREATE SEQUENCE tampered.r_v3",)),
    "the name in capitals": ("versions", ('CREATE VIEW tampered."R" AS SELECT 1 AS a',)),
    "a version in capitals": ("versions", ('CREATE VIEW tampered."R_V2" AS SELECT 1 AS a',)),
    "a view with a condition": ("view", (f"CREATE OR REPLACE VIEW tampered.r AS {LIST} WHERE a IS NOT NULL",)),
    "a view of another table": (
        "view",
        (
            f"CREATE TABLE tampered.other AS {LIST}",
            ANEW[0],
            "CREATE VIEW tampered.r AS SELECT a, b, c FROM tampered.other",
        ),
    ),
    "a view with the reader's rights": ("view", ("ALTER VIEW tampered.r SET (security_invoker = true)",)),
    "a trigger of the view": (
        "view",
        (
            f"CREATE FUNCTION tampered.f() {NOTHING}",
            "CREATE TRIGGER t INSTEAD OF DELETE ON tampered.r FOR EACH ROW EXECUTE FUNCTION tampered.f()",
        ),
    ),
    "a default of the view": ("view", ("ALTER VIEW tampered.r ALTER COLUMN b SET DEFAULT 'John Doe'",)),
    "a rule of the view": ("view", ("CREATE RULE n AS ON INSERT TO tampered.r DO INSTEAD NOTHING",)),
    "a version": ("one manifest", ("UPDATE tampered.sqlanon_manifest SET version = 7",)),
    "a second manifest": (
        "one manifest",
        (
            "ALTER TABLE tampered.sqlanon_manifest DROP CONSTRAINT sqlanon_manifest_pkey",
            "INSERT INTO tampered.sqlanon_manifest SELECT * FROM tampered.sqlanon_manifest",
        ),
    ),
    "a manifest of another name": (
        "one manifest",
        ("UPDATE tampered.sqlanon_manifest SET manifest = replace(manifest, '\"r\"', '\"q\"')",),
    ),
    "a column of the manifests": ("one manifest", ("ALTER TABLE tampered.sqlanon_manifest ADD COLUMN name text",)),
    "an index of the manifests": ("one manifest", ("CREATE INDEX ON tampered.sqlanon_manifest (version)",)),
    "the key of the manifests": (
        "one manifest",
        ("ALTER TABLE tampered.sqlanon_manifest RENAME CONSTRAINT sqlanon_manifest_pkey TO john_doe",),
    ),
    "a column of the key of the manifests": (
        "one manifest",
        ("ALTER TABLE tampered.sqlanon_manifest_pkey RENAME COLUMN table_name TO john_doe",),
    ),
    "statistics of the manifests": (
        "one manifest",
        ("CREATE STATISTICS tampered.john_doe ON table_name, version FROM tampered.sqlanon_manifest",),
    ),
    "a trigger of the manifests": (
        "one manifest",
        (
            f"CREATE FUNCTION tampered.f() {NOTHING}",
            "CREATE TRIGGER t AFTER INSERT ON tampered.sqlanon_manifest FOR EACH ROW EXECUTE FUNCTION tampered.f()",
        ),
    ),
    "a comment of the view": ("comments", ("COMMENT ON VIEW tampered.r IS 'John Doe has HIV'",)),
    "a comment of a column": ("comments", ("COMMENT ON COLUMN tampered.r.a IS 'John Doe has HIV'",)),
    "no comment": ("comments", ("COMMENT ON VIEW tampered.r IS NULL",)),
    "a comment of the table": ("comments", ("COMMENT ON COLUMN tampered.r_v1.a IS 'John Doe has HIV'",)),
    "a comment of the view's type": ("comments", ("COMMENT ON TYPE tampered.r IS 'John Doe has HIV'",)),
    "a comment of the table's array type": ("comments", ("COMMENT ON TYPE tampered._r_v1 IS 'John Doe has HIV'",)),
    "a comment of the view's rule": ("comments", ("COMMENT ON RULE \"_RETURN\" ON tampered.r IS 'John Doe has HIV'",)),
    "a comment of the manifests' key": (
        "comments",
        ("COMMENT ON CONSTRAINT sqlanon_manifest_pkey ON tampered.sqlanon_manifest IS 'John Doe has HIV'",),
    ),
    "a comment of the manifests' index": (
        "comments",
        ("COMMENT ON INDEX tampered.sqlanon_manifest_pkey IS 'John Doe has HIV'",),
    ),
    "a comment of the manifests": ("comments", ("COMMENT ON TABLE tampered.sqlanon_manifest IS 'John Doe has HIV'",)),
    "the owner of the view": (
        "rights",
        (f"ALTER VIEW tampered.r OWNER TO {OTHER}", f"GRANT SELECT ON tampered.r_v1 TO {OTHER}"),
    ),
    "the owner of the table": ("rights", (f"ALTER TABLE tampered.r_v1 OWNER TO {OTHER}",)),
    "the owner of the manifests": ("rights", (f"ALTER TABLE tampered.sqlanon_manifest OWNER TO {OTHER}",)),
    "a reader of the table": ("rights", (f"GRANT SELECT ON tampered.r_v1 TO {OTHER}",)),
    "a reader of the table, by a manifest of another sqlanon": (
        "rights",
        (
            f"GRANT SELECT ON tampered.r_v1 TO {OTHER}",
            "UPDATE tampered.sqlanon_manifest SET manifest = regexp_replace(manifest::text, "
            """'"sqlanon_version": "[^"]*"', '"sqlanon_version": "0.0.1"')""",
        ),
    ),
    "a reader of a column": ("rights", (f"GRANT SELECT (a) ON tampered.r_v1 TO {OTHER}",)),
    "a writer of the view": ("rights", (f"GRANT UPDATE ON tampered.r TO {OTHER}",)),
    "a writer of the table": ("rights", ("GRANT INSERT ON tampered.r_v1 TO PUBLIC",)),
    "a writer of the manifests": ("rights", (f"GRANT DELETE ON tampered.sqlanon_manifest TO {OTHER}",)),
}
"""Changes by name: the check that finds each, and its statements."""


@pytest.mark.thorough
@pytest.mark.parametrize("case", TAMPERING)
def test_changes_around_a_release_are_reported(empty: Server, case: str) -> None:
    release = publish()
    assert failing(release) == []
    check, statements = TAMPERING[case]
    empty.run(*statements)
    # A view or a table that is made anew has lost its comments, and its rights are others.
    assert set(failing(release)) - {"comments", "rights"} <= {check}
    assert check in failing(release)
    assert not release_location(HERE, f"{SCHEMA}.r").verify().verified


@pytest.mark.thorough
def test_more_grants_on_the_view_and_plain_indexes_are_the_holders_own(empty: Server) -> None:
    release = publish()
    empty.run(
        f"GRANT SELECT ON {SCHEMA}.r, {SCHEMA}.sqlanon_manifest TO {READER}",
        f"CREATE INDEX ON {SCHEMA}.r_v1 (a)",
        f"CREATE UNIQUE INDEX ON {SCHEMA}.r_v1 (c DESC, b, a)",
        f"ALTER VIEW {SCHEMA}.r SET (security_barrier = true)",
        f"ANALYZE {SCHEMA}.r_v1",
    )
    assert failing(release) == []
    (message,) = (check.message for check in release.verify().checks if check.name == "table")
    assert message.endswith("plain indexes that sqlanon did not create: r_v1_a_idx, r_v1_c_b_a_idx")
    empty.run(f"CREATE INDEX faster ON {SCHEMA}.r_v1 (b)")
    assert failing(release) == ["table"]
    (message,) = (check.message for check in release.verify().checks if check.name == "table")
    assert "'faster' does not have PostgreSQL's default name: drop it, or rename it to 'r_v1_b_idx'" in message
    empty.run(f"ALTER INDEX {SCHEMA}.faster RENAME TO r_v1_b_idx")
    assert failing(release) == []


@pytest.mark.slow
def test_the_names_of_indexes_are_those_that_postgresql_gives(empty: Server) -> None:
    for i, (table, *names) in enumerate(
        [
            ("t" * 5, "a"),
            ("t" * 63, "a" * 63),
            ("t" * 20, "a" * 63, "b" * 63, "c"),
            ("t" * 50, "a" * 20),
            ("é" * 31, "ü" * 20, "b" * 7),
            ("s" * 59, "é"),
        ]
    ):
        text = ", ".join(f'"{name}" int' for name in names)
        empty.run(
            f'CREATE TABLE {SCHEMA}."{table}" ({text})',
            f'CREATE INDEX ON {SCHEMA}."{table}" ({", ".join(map(quote_name, names))})',
            f'ALTER TABLE {SCHEMA}."{table}" ADD PRIMARY KEY ("{names[0]}")',
        )
        query = "SELECT c.relname::text, indisprimary FROM pg_index JOIN pg_class AS c "
        query += f"ON c.oid = indexrelid WHERE indrelid = '{SCHEMA}.{quote_name(table)}'::regclass ORDER BY 2"
        index_names = [name for name, _ in empty.rows(query)]
        assert index_names == [index_name(table, "_".join(names), "idx"), index_name(table, "", "pkey")], i


def notes(release: Any) -> str:
    """The message of `verify` about other objects in the schema, which do not fail the verification."""
    (check,) = (item for item in release.verify().checks if item.name == "schema")
    return check.message if check.passed is None else ""


@pytest.mark.thorough
def test_foreign_objects_in_the_schema_are_named_and_fail_nothing(empty: Server) -> None:
    release = publish()
    publish(name="another")
    assert notes(release) == ""
    empty.run(
        f"CREATE TABLE {SCHEMA}.theirs (name text PRIMARY KEY)",
        f"CREATE FUNCTION {SCHEMA}.f() {NOTHING}",
        f"CREATE VIEW {SCHEMA}.dashboard AS SELECT a, count(*) AS n FROM {SCHEMA}.r GROUP BY a",
        f"CREATE FUNCTION {SCHEMA}.name(one {SCHEMA}.r) RETURNS text LANGUAGE sql AS $$ SELECT 'John Doe' $$",
        f"INSERT INTO {SCHEMA}.sqlanon_manifest VALUES ('John Doe', 1, '')",
        f"COMMENT ON SCHEMA {SCHEMA} IS 'John Doe has HIV'",
    )
    text = notes(release)
    for name in ("table tampered.theirs", "view tampered.dashboard", "function tampered.f()", "comment of the schema"):
        assert name in text
    assert "built upon the release: " in text and "tampered.name(tampered.r)" in text.partition("built upon")[2]
    assert "manifests without a release: 'John Doe'" in text and "another" not in text
    assert failing(release) == []
    empty.run(*(f"CREATE VIEW {SCHEMA}.v{i} AS SELECT {i} AS a" for i in range(9)))
    assert ", and 8 more" in notes(release)
    assert failing(publish()) == []  # nothing of it is in the way of the next version


def reads(server: Server, name: str, role: str = READER) -> bool:
    """Whether a role that really connects can read a relation."""
    with closing(dbapi.connect(server.address(role, "x"))) as connection, connection.cursor() as cursor:
        try:
            cursor.execute(f"SELECT count(*) FROM {SCHEMA}.{name}")
            return bool(cursor.fetchone()[0] > 0)
        except dbapi.ProgrammingError as error:
            assert "permission denied" in str(error)
            return False


@pytest.mark.slow
def test_reader_sees_granted_views_and_no_version_tables(empty: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    defaults = f"ALTER DEFAULT PRIVILEGES IN SCHEMA {SCHEMA}"
    empty.run(f"{defaults} GRANT SELECT ON TABLES TO {READER}", f"{defaults} GRANT ALL ON TABLES TO {OTHER}")
    monkeypatch.setenv("READER", empty.address(READER, "x"))
    assert failing(publish()) == []
    assert (reads(empty, "r"), reads(empty, "r_v1"), reads(empty, "sqlanon_manifest")) == (True, False, True)
    assert (reads(empty, "r", OTHER), reads(empty, "r_v1", OTHER)) == (True, False)
    assert release_location("env:READER", f"{SCHEMA}.r").verify().verified
    empty.run(f"REVOKE SELECT ON {SCHEMA}.r FROM {READER}")
    assert failing(publish()) == []  # the same columns: the view is replaced
    assert (reads(empty, "r"), reads(empty, "r_v2")) == (False, False)
    assert failing(publish("i % 4 AS a, i AS d")) == []  # others: it is made anew
    assert (reads(empty, "r"), reads(empty, "r_v3"), reads(empty, "r", OTHER)) == (False, False, True)
    with pytest.raises(sqlanon.ReleaseError, match=rf"may not read {SCHEMA}\.r: verify needs SELECT"):
        release_location("env:READER", f"{SCHEMA}.r").verify()


@pytest.mark.slow
def test_grant_options_are_carried_over_to_a_view_with_other_columns(empty: Server) -> None:
    publish()
    empty.run(f"GRANT SELECT ON {SCHEMA}.r TO {READER} WITH GRANT OPTION", f"GRANT SELECT ON {SCHEMA}.r TO PUBLIC")
    publish("i % 4 AS a, i AS d")
    query = "SELECT grantee::text, is_grantable::text FROM information_schema.role_table_grants WHERE table_name = 'r' "
    query += f"AND table_schema = '{SCHEMA}' AND privilege_type = 'SELECT' AND grantee <> 'holder'"
    assert sorted(empty.rows(query)) == [("PUBLIC", "NO"), (READER, "YES")]


READERS = f"""
    SELECT grantee::text, privilege_type::text, is_grantable::text
    FROM information_schema.role_table_grants
    WHERE table_schema = '{SCHEMA}' AND table_name = 'r' AND grantee <> 'holder'
    UNION ALL
    SELECT grantee::text, column_name::text, is_grantable::text
    FROM information_schema.role_column_grants
    WHERE table_schema = '{SCHEMA}' AND table_name = 'r' AND grantee = '{OTHER}'
    ORDER BY 1, 2
"""


def test_a_view_with_other_columns_is_read_by_those_who_read_all_of_it(empty: Server, holder: PostgresEngine) -> None:
    """The grant option is kept; a role that reads one column gets no right to the new ones."""
    with new_version(holder):
        pass
    view = f"{SCHEMA}.r"
    empty.run(f"GRANT SELECT ON {view} TO {READER} WITH GRANT OPTION", f"GRANT SELECT (a) ON {view} TO {OTHER}")
    with new_version(holder, {"a": "INTEGER", "b": "VARCHAR"}):
        assert empty.rows(READERS) == [(OTHER, "a", "NO"), (READER, "SELECT", "YES")]
    assert empty.rows(READERS) == [(READER, "SELECT", "YES")]


def test_a_view_that_was_replaced_meanwhile_is_not_overwritten(empty: Server, holder: PostgresEngine) -> None:
    """Another session of the same role can replace the view until this one locks it."""
    with new_version(holder):
        pass
    again = f"DROP VIEW {SCHEMA}.r", f"CREATE VIEW {SCHEMA}.r AS SELECT 1 AS a"
    with pytest.raises(ReleaseError, match=r"\.r was replaced while the release was written"), new_version(holder):
        empty.run(*again)
    assert empty.rows(f"SELECT a FROM {SCHEMA}.r") == [(1,)]


def test_a_manifest_replaces_that_of_the_same_release(empty: Server, holder: PostgresEngine) -> None:
    with holder.rolled_back_unless_committed(ReleaseError):
        for name, version in (("r", 1), ("other", 1), ("r", 2)):
            location = PostgresLocation.parse(HERE, f"{SCHEMA}.{name}")
            ReleaseInSchema(holder, location).store_manifest(version, "{}")
        holder.commit()
    manifests = f"SELECT table_name, version FROM {SCHEMA}.sqlanon_manifest ORDER BY 1"
    assert empty.rows(manifests) == [("other", 1), ("r", 2)]


def test_relations_that_read_like_the_release_are_named(empty: Server, holder: PostgresEngine) -> None:
    """In any case of letters; other names are not taken for it."""
    names = ("r", "r_v1", "sqlanon_manifest", "R", "R_V2", "r_v3", "r_vip", "R_")
    empty.run(*(f'CREATE TABLE {SCHEMA}."{name}" ()' for name in names))
    location, claims = PostgresLocation.parse(HERE, f"{SCHEMA}.r"), SimpleNamespace(version=1)
    with holder.read_only_committed(ReleaseError):
        relations = Relations.by_name(holder, location)
        check = _CatalogAudit(holder, location, cast(Any, claims), relations)._check_versions()
    assert (check.passed, check.message) == (False, "not of the release: R, R_V2, r_v3")


def test_only_the_view_is_read_and_the_manifest_is_of_its_version(empty: Server, holder: PostgresEngine) -> None:
    with new_version(holder):
        pass
    location = PostgresLocation.parse(HERE, f"{SCHEMA}.r")

    def find_faults(version: int = 1, table_name: str = "r") -> list[str]:
        claims: Any = SimpleNamespace(version=version, table_name=table_name)
        with holder.read_only_committed(ReleaseError):
            audit = _CatalogAudit(holder, location, claims, Relations.by_name(holder, location))
            checks = audit.check_privileges(), audit._check_manifest_table()
        return [check.message for check in checks if not check.passed]

    empty.run(f"GRANT SELECT ON {SCHEMA}.r TO PUBLIC", f"GRANT SELECT ON {SCHEMA}.sqlanon_manifest TO {READER}")
    assert find_faults() == []
    for version in (0, 2):
        assert find_faults(version) == [f"it is of version {version}, but stored as version 1"]
    assert find_faults(table_name="s") == ["it belongs to a release with another name"]
    empty.run(f"GRANT SELECT ON {SCHEMA}.r_v1 TO {READER}", f"GRANT UPDATE ON {SCHEMA}.r TO {OTHER}")
    assert find_faults() == [f"{OTHER} has UPDATE on 'r'; {READER} has SELECT on 'r_v1'"]


@pytest.mark.parametrize(
    ("columns", "difference"),
    [
        ('a integer, b text COLLATE "C"', ""),
        ('b text COLLATE "C", a integer', "has its columns in another order"),
        ('a integer, b text COLLATE "C", c integer', "has column 'c'"),
        ("a integer, b text", "has column 'b', no column 'b' of type text"),
        ("a integer", "has no column 'b' of type text"),
        ('a integer NOT NULL, b text COLLATE "C"', "has NOT NULL of column a"),
    ],
)
def test_a_table_has_the_released_columns_in_their_order(
    columns: str, difference: str, empty: Server, holder: PostgresEngine
) -> None:
    empty.run(f"CREATE TABLE {SCHEMA}.t ({columns})")
    with holder.read_only_committed(ReleaseError):
        number = relation_number(holder, SCHEMA, "t")
        assert _compare_table(holder, number, {"a": "integer", "b": "text"}, "C") == difference


def test_a_view_shows_the_table_of_its_own_schema(empty: Server, holder: PostgresEngine) -> None:
    claims: Any = SimpleNamespace(version=1, columns=[ReleasedColumn("a", "INTEGER", "quasi")])
    location = PostgresLocation.parse(HERE, f"{SCHEMA}.r")
    empty.run(*(f"CREATE TABLE {SCHEMA}.{name} (a integer)" for name in ("r_v1", "sqlanon_manifest")))
    empty.run(f"CREATE SCHEMA {SCHEMA}_beside", f"CREATE TABLE {SCHEMA}_beside.r_v1 (a integer)")
    try:
        results = list[bool | None]()
        for schema in (SCHEMA, f"{SCHEMA}_beside"):
            empty.run(f"CREATE OR REPLACE VIEW {SCHEMA}.r AS SELECT a FROM {schema}.r_v1")
            with holder.read_only_committed(ReleaseError):
                audit = _CatalogAudit(holder, location, claims, Relations.by_name(holder, location))
                results.append(audit._check_view().passed)
    finally:
        empty.run(f"DROP SCHEMA {SCHEMA}_beside CASCADE")
    assert results == [True, False]


@pytest.mark.parametrize("kind", ["TABLE", "VIEW"])
def test_a_relation_without_a_manifest_is_not_replaced(kind: str, empty: Server, holder: PostgresEngine) -> None:
    empty.run(f"CREATE {kind} {SCHEMA}.r AS SELECT 1 AS a")
    with pytest.raises(ReleaseError, match=rf"{SCHEMA}\.r exists and is not a release of sqlanon"), new_version(holder):
        pass
    assert empty.rows(f"SELECT a FROM {SCHEMA}.r") == [(1,)]


def test_a_schema_is_trusted_if_nobody_else_can_replace_it(empty: Server) -> None:
    """Its owner is the user, or a superuser."""
    with closing(PostgresEngine.open(empty.address(OTHER, "x"), "the release")) as server:
        owners = list[tuple[str, bool]]()
        for owner in ("holder", OTHER, READER):
            empty.run(f"ALTER SCHEMA {SCHEMA} OWNER TO {owner}")
            with server.read_only_committed(ReleaseError):
                owners += [row[2:] for row in server.rows(release_statements.schema_properties(), [SCHEMA])]
    assert owners == [("holder", True), (OTHER, True), (READER, False)]


@pytest.mark.extras
@pytest.mark.parametrize(
    ("relation", "columns", "name"),
    [
        ("r" * 55, "abc", "r" * 55 + "_abc_idx"),  # 63 bytes
        ("r" * 56, "abc", "r" * 55 + "_abc_idx"),
        ("abc", "c" * 56, "abc_" + "c" * 55 + "_idx"),
        ("r" * 40, "c" * 40, "r" * 29 + "_" + "c" * 29 + "_idx"),
    ],
)
def test_default_names_of_indexes_have_at_most_63_bytes(relation: str, columns: str, name: str) -> None:
    """The names are those that a server chooses: the longer part is shortened."""
    assert index_name(relation, columns, "idx") == name


@pytest.mark.slow
def test_foreign_objects_of_the_release_name_are_not_written_to(empty: Server) -> None:
    empty.run(f"CREATE TABLE {SCHEMA}.ran (who name)", f"GRANT CREATE ON SCHEMA {SCHEMA} TO {OTHER}")
    body = f"BEGIN INSERT INTO {SCHEMA}.ran SELECT current_user; RETURN NEW; END"
    laid = (
        f"CREATE TABLE {SCHEMA}.sqlanon_manifest (table_name text PRIMARY KEY, version integer, manifest text)",
        f"CREATE FUNCTION {SCHEMA}.f() RETURNS trigger LANGUAGE plpgsql AS $$ {body} $$",
        f"CREATE TRIGGER t BEFORE INSERT ON {SCHEMA}.sqlanon_manifest FOR EACH ROW EXECUTE FUNCTION {SCHEMA}.f()",
    )
    empty.run(f"SET SESSION AUTHORIZATION {OTHER}", *laid, "RESET SESSION AUTHORIZATION")
    with pytest.raises(sqlanon.ReleaseError, match=rf"sqlanon_manifest belongs to {OTHER}"):
        publish()
    empty.run(f"ALTER TABLE {SCHEMA}.sqlanon_manifest OWNER TO holder")
    with pytest.raises(sqlanon.ReleaseError, match="has trigger t"):
        publish()
    assert empty.rows(f"SELECT * FROM {SCHEMA}.ran") == []
    empty.run(f"DROP TABLE {SCHEMA}.sqlanon_manifest")
    publish()
    empty.run(f"ALTER VIEW {SCHEMA}.r OWNER TO {OTHER}")
    with pytest.raises(sqlanon.ReleaseError, match=rf"\.r belongs to {OTHER}"):
        publish()


@pytest.mark.thorough
def test_first_publications_at_the_same_time_all_succeed(empty: Server) -> None:
    errors: list[BaseException] = []

    def publish_one(number: int) -> None:
        try:
            publish(name=f"r{number}")
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=publish_one, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert empty.rows(f"SELECT count(*) FROM {SCHEMA}.sqlanon_manifest") == [(4,)]
    assert all(release_location(HERE, f"{SCHEMA}.r{number}").verify().verified for number in range(4))


def in_postgres(source: dict[str, Any], place: str, schema: str = SCHEMA) -> sqlanon.Policy:
    attributes = {"a": {"role": "quasi", "hierarchy": "suppress"}, "b": {"role": "insensitive"}}
    return sqlanon.Policy(
        source={"postgres": place, **source},
        attributes=attributes,
        privacy={"k": 5},
        release={"postgres": place, "table": f"{schema}.r"},
    )


@pytest.mark.slow
def test_messages_name_the_missing_right(empty: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTHER", empty.address(OTHER, "x"))
    publish()
    for missing, message in (
        (f"REVOKE ALL ON {SCHEMA}.r FROM {OTHER}", rf"may not read {SCHEMA}\.sqlanon_manifest"),
        (f"GRANT SELECT ON {SCHEMA}.sqlanon_manifest TO {OTHER}", rf"may not read {SCHEMA}\.r:"),
        (f"REVOKE USAGE ON SCHEMA {SCHEMA} FROM {OTHER}", f"may not use the schema '{SCHEMA}'"),
    ):
        empty.run(missing)
        with pytest.raises(sqlanon.ReleaseError, match=message) as error:
            release_location("env:OTHER", f"{SCHEMA}.r").verify()
        assert "manifest is broken" not in str(error.value)
    with pytest.raises(sqlanon.ReleaseError, match=f"may not use the schema '{SCHEMA}'"):
        publish(place="env:OTHER")
    empty.run(f"GRANT USAGE ON SCHEMA {SCHEMA} TO {OTHER}")
    with pytest.raises(sqlanon.ReleaseError, match="belongs to holder"):
        publish(place="env:OTHER")
    anew = (f"DROP SCHEMA {SCHEMA} CASCADE", f"CREATE SCHEMA {SCHEMA}", f"GRANT USAGE ON SCHEMA {SCHEMA} TO {OTHER}")
    empty.run(*anew)
    with pytest.raises(sqlanon.ReleaseError, match=f"permission denied for schema {SCHEMA}"):
        publish(place="env:OTHER")


@pytest.mark.slow
def test_commands_without_temporary_tables_need_no_right_to_them(
    empty: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTHER", empty.address(OTHER, "x"))
    empty.run(
        f"CREATE TYPE {SCHEMA}.mood AS ENUM ('sad', 'glad')",
        f"CREATE TABLE {SCHEMA}.t AS SELECT i % 3 AS a, 'sad'::{SCHEMA}.mood AS b, 1.5::numeric(4,2) AS c "
        "FROM generate_series(1, 30) AS s(i)",
        f"GRANT SELECT ON {SCHEMA}.t TO {OTHER}",
        "CREATE SCHEMA shown",
        f"GRANT CREATE, USAGE ON SCHEMA shown TO {OTHER}",
        f"ALTER ROLE {OTHER} SET search_path = {SCHEMA}",
        f"ALTER ROLE {OTHER} SET default_transaction_isolation = 'serializable'",
        f"ALTER ROLE {OTHER} SET quote_all_identifiers = on",
        "REVOKE TEMPORARY ON DATABASE postgres FROM PUBLIC",
    )
    query = {"query": "SELECT a, b FROM t"}
    try:
        with sqlanon.connect() as db:
            first = db.anonymize(in_postgres(query, "env:OTHER", "shown"))
            assert (first.rows, first.released_rows) == (30, 30)
            with pytest.raises(sqlanon.ReleaseError, match="permission denied to create temporary tables"):
                first.publish()
            loose = in_postgres({"query": "SELECT a, c AS b FROM t"}, "env:OTHER", "shown")
            with pytest.raises(sqlanon.SourceError, match=r"'b' \(numeric\)"):
                db.anonymize(loose)
        empty.run("GRANT TEMPORARY ON DATABASE postgres TO PUBLIC")
        monkeypatch.setenv(VARIABLE, empty.address())
        with sqlanon.connect() as db:
            again = db.anonymize(in_postgres(query, "env:OTHER", "shown"))
            assert (again.generalization, again.score) == (first.generalization, first.score)
            assert db.anonymize(loose).rows == 30
            assert again.publish().verify().verified
    finally:
        empty.run(
            "GRANT TEMPORARY ON DATABASE postgres TO PUBLIC",
            f"ALTER ROLE {OTHER} RESET ALL",
            "DROP SCHEMA shown CASCADE",
        )


@pytest.mark.slow
def test_names_of_a_query_are_found_on_the_path_and_functions_of_others_need_their_schema(empty: Server) -> None:
    empty.run(
        f"CREATE TABLE {SCHEMA}.t AS SELECT i % 3 AS a, 'x'::text AS b FROM generate_series(1, 30) AS s(i)",
        f'CREATE TABLE {SCHEMA}."We""ird" AS SELECT 0 AS a',
        f"CREATE FUNCTION {SCHEMA}.own(int) RETURNS int LANGUAGE sql AS 'SELECT $1'",
        "CREATE SCHEMA IF NOT EXISTS elsewhere",
        f"ALTER ROLE holder SET search_path = {SCHEMA}",
    )
    queries = {
        "SELECT a, b FROM T -- t": 30,
        'SELECT t.a, b FROM t JOIN ONLY "We""ird" AS w ON w.a = t.a WHERE b <> \'é FROM t\'': 10,
        "WITH w AS (SELECT 1 AS a) SELECT t.a, t.b FROM t, w WHERE EXISTS (SELECT FROM t AS u WHERE u.a = w.a)": 30,
        f"SELECT {SCHEMA}.own(a) AS a, b FROM t": 30,
    }
    try:
        with sqlanon.connect() as db:
            for query, rows in queries.items():
                policy = in_postgres({"query": query}, HERE)
                policy = policy.model_copy(update={"release": None})
                assert db.anonymize(policy).rows == rows
            for query in ("SELECT own(a) AS a, b FROM t", "SELECT a, b FROM t, absent"):
                policy = in_postgres({"query": query}, HERE).model_copy(update={"release": None})
                with pytest.raises(
                    sqlanon.SourceError,
                    match=r"does not exist; in source\.query, write your functions, operators",
                ):
                    db.anonymize(policy)
    finally:
        empty.run("ALTER ROLE holder RESET search_path")
