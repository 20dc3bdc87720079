"""A role that may create in the schema of releases, or forges a release: nothing of it runs with others' rights."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from typing import Any

import duckdb
import pytest

import sqlanon
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.engines.limits import NO_LIMITS
from sqlanon.publish.targets.base import release_location
from sqlanon.publish.targets.postgres.reader import PostgresLocation, PostgresRelease
from sqlanon.release.manifest import Manifest
from sqlanon.release.metadata import comment_statements
from sqlanon.support.expressions import text
from support.lanes import examples
from support.servers.intruder import INTRUDER, changed_before
from support.servers.postgres import VARIABLE, Server

dbapi: Any = pytest.importorskip("adbc_driver_postgresql.dbapi", reason="the extra postgres is not installed")

HERE = f"env:{VARIABLE}"
READER = "hostile_reader"


@pytest.fixture
def shared_schemas(postgres: Server) -> Iterator[Server]:
    """Schemas of a source and of releases, in which the intruder may create; and a role that reads."""
    drop = ("DROP SCHEMA IF EXISTS clinic CASCADE", "DROP SCHEMA IF EXISTS shared CASCADE")
    postgres.run(
        *drop,
        "CREATE SCHEMA clinic",
        "CREATE SCHEMA shared",
        "CREATE TABLE clinic.t AS SELECT i % 4 AS a, 'x' || i % 3 AS b FROM generate_series(1, 60) AS s(i)",
        f"CREATE ROLE {READER} LOGIN PASSWORD 'x'",
        f"GRANT USAGE ON SCHEMA shared TO {READER}",
    )
    postgres.intruder.sprung()
    yield postgres
    postgres.run(*drop, f"DROP OWNED BY {READER}", f"DROP ROLE {READER}")


def policy(place: str = HERE, suppressed: str = "drop") -> sqlanon.Policy:
    return sqlanon.Policy(
        source={"postgres": HERE, "table": "clinic.t"},
        attributes={"a": {"role": "quasi", "hierarchy": "suppress"}, "b": {"role": "insensitive"}},
        privacy={"k": 5},
        release={"postgres": place, "table": "shared.r", "suppressed": suppressed},
    )


def publish() -> Any:
    with sqlanon.connect() as db:
        return db.anonymize(policy()).publish()


MANIFESTS = "shared.sqlanon_manifest (table_name text PRIMARY KEY, version integer, manifest text)"


def trap_trigger(table: str) -> str:
    return f"CREATE TRIGGER t BEFORE INSERT OR UPDATE OR DELETE ON {table} FOR EACH ROW EXECUTE FUNCTION traps.of_row()"


LAID = (
    f"CREATE TABLE {MANIFESTS}",
    trap_trigger("shared.sqlanon_manifest"),
    "GRANT ALL ON shared.sqlanon_manifest TO PUBLIC",
    "CREATE VIEW shared.r AS SELECT 1 AS a, 'x' AS b WHERE traps.spring()",
    *(
        statement
        for name in ("r_v1", "r_v2", "r_v3")
        for statement in (f"CREATE TABLE shared.{name} (a bigint, b text)", trap_trigger(f"shared.{name}"))
    ),
    "CREATE FUNCTION shared.hashtext(text) RETURNS integer LANGUAGE sql AS 'SELECT traps.constant(1)'",
)
"""Attempts of the intruder, one at a time."""

OTHERS_LAID = (
    "CREATE VIEW shared.sqlanon_manifest AS SELECT 'r'::text AS table_name, 1 AS version, '{}'::text AS manifest "
    "WHERE traps.spring()",
    "CREATE RULE w AS ON INSERT TO shared.sqlanon_manifest DO INSTEAD SELECT traps.spring()",
    "CREATE RULE d AS ON DELETE TO shared.sqlanon_manifest DO INSTEAD SELECT traps.spring()",
    "CREATE MATERIALIZED VIEW shared.r AS SELECT 1 AS a",
    "CREATE VIEW shared.r_v1 AS SELECT 1 AS a, 'x' AS b WHERE traps.spring()",
    "CREATE VIEW shared.r_v2 AS SELECT 1 AS a, 'x' AS b WHERE traps.spring()",
    "CREATE TYPE shared.r_v3 AS ENUM ()",
)


def attack_between(server: Server, chosen: int | str, laid: tuple[str, ...], again: bool) -> str:
    """Publish, after the intruder planted objects before a statement; return the outcome, once it is known to be
    right."""
    server.run("DROP SCHEMA shared CASCADE", "CREATE SCHEMA shared")
    published = publish().manifest if again else None

    def is_chosen(number: int, text: str) -> bool:
        return number == chosen if isinstance(chosen, int) else chosen in text

    with changed_before(is_chosen, lambda: server.intruder.attempt(*laid)) as statements:
        try:
            published, outcome = publish().manifest, "published"
        except sqlanon.SqlanonError as error:
            outcome = f"refused: {error}"
    assert statements.changed, chosen
    assert server.intruder.sprung() == [], (chosen, outcome)
    if published is None:
        left = "SELECT relname::text FROM pg_class WHERE relowner = 10 AND relnamespace = 'shared'::regnamespace"
        assert server.rows(left) == [], (chosen, outcome)
    else:
        verification = release_location(HERE, "shared.r").verify()
        assert published.fingerprint() == verification.manifest.fingerprint()
        # Tables that are named as other versions are there: `verify` reports them.
        failing = {check.name for check in verification.checks if check.passed is False}
        assert failing <= {"versions"}, (chosen, outcome, verification.failures)
        assert server.intruder.sprung() == [], (chosen, outcome)
    return outcome


CRITICAL = {
    "the manifests are made": 'CREATE TABLE "shared"."sqlanon_manifest"',
    "the view is made": 'CREATE VIEW "shared"."r"',
    "the rows are written": 'INSERT INTO "shared"."r_v1"',
    "it is checked whether there are manifests": "PG_ADVISORY_XACT_LOCK(HASHTEXT('sqlanon shared'))",
}
"""State of a first publication, before anything is laid out."""


@pytest.mark.thorough
@pytest.mark.parametrize("name", CRITICAL)
def test_objects_planted_before_a_critical_statement_never_run(shared_schemas: Server, name: str) -> None:
    for laid in (LAID, OTHERS_LAID):
        attack_between(shared_schemas, CRITICAL[name], laid, again=False)


@pytest.mark.thorough
@pytest.mark.parametrize("laid", [LAID, OTHERS_LAID], ids=["tables", "views"])
@pytest.mark.parametrize("again", [False, True], ids=["first", "again"])
def test_objects_planted_between_two_statements_never_run(
    shared_schemas: Server, laid: tuple[str, ...], again: bool
) -> None:
    """SQLANON_EXAMPLES=1 plants objects between any two statements."""
    if again:
        publish()
    with changed_before(lambda number, text: False, lambda: None) as statements:
        publish()
    numbers = range(len(statements.texts))
    outcomes = [
        attack_between(shared_schemas, number, laid, again) for number in random.sample(numbers, examples(len(numbers)))
    ]
    assert all(outcome == "published" or outcome.startswith("refused") for outcome in outcomes)


# Forged releases

INDEXED = "CREATE INDEX ON {} ((traps.constant(1)))"
VIEW = "CREATE OR REPLACE VIEW shared.r AS SELECT {} FROM shared.r_v1"

FORGED: dict[str, tuple[str, ...]] = {
    "a function of the view": (VIEW.format("a, CASE WHEN traps.spring() THEN b END AS b"),),
    "a condition of the view": (VIEW.format("a, b") + " WHERE traps.spring()",),
    "a constant of the view": (VIEW.format("a, b") + " WHERE traps.constant(1) = 1",),
    "a subquery of the view": (VIEW.format("a, (SELECT 'x' COLLATE \"C\" WHERE traps.spring()) AS b"),),
    "a function in FROM": (VIEW.format("a, b") + ", traps.spring() AS t",),
    "a function for a column": (VIEW.format("a, b") + " ORDER BY traps.spring()",),
    "an operator of the view": (VIEW.format("a, b") + " WHERE 1::bigint OPERATOR(traps.===) 2::bigint",),
    "a cast of the view": (VIEW.format("a, 'a'::traps.mood::text COLLATE \"C\" AS b"),),
    "a view of a view": (
        VIEW.format("a, b") + " WHERE false",
        "CREATE VIEW shared.r_v9 AS SELECT a, b FROM shared.r_v1 WHERE traps.spring()",
        "CREATE OR REPLACE VIEW shared.r AS SELECT a, b FROM shared.r_v9",
    ),
    "a view in place of the table": (
        "ALTER TABLE shared.r_v1 RENAME TO hidden",
        "CREATE VIEW shared.r_v1 AS SELECT a, b FROM shared.hidden WHERE traps.spring()",
        VIEW.format("a, b"),
    ),
    "a materialized view": (
        "DROP VIEW shared.r",
        "CREATE MATERIALIZED VIEW shared.r AS SELECT a, b FROM shared.r_v1",
        f"GRANT SELECT ON shared.r TO {READER}",
        INDEXED.format("shared.r"),
    ),
    "a type with a cast": (
        "DROP VIEW shared.r",
        "ALTER TABLE shared.r_v1 ALTER b TYPE traps.mood USING 'a'",
        "CREATE VIEW shared.r AS SELECT a, b FROM shared.r_v1",
        f"GRANT SELECT ON shared.r TO {READER}",
    ),
    "an index of the table": (INDEXED.format("shared.r_v1"),),
    "a condition of an index": ("CREATE INDEX ON shared.r_v1 (a) WHERE traps.constant(1) = 1",),
    "statistics of the table": ("CREATE STATISTICS shared.s ON (a + traps.constant(1)), b FROM shared.r_v1",),
    "a constraint": (
        "ALTER TABLE shared.r_v1 ADD CHECK (a >= traps.constant(0))",
        f"ALTER ROLE {READER} SET constraint_exclusion = on",
    ),
    "row security": (
        "ALTER TABLE shared.r_v1 ENABLE ROW LEVEL SECURITY",
        "ALTER TABLE shared.r_v1 FORCE ROW LEVEL SECURITY",
        "CREATE POLICY p ON shared.r_v1 USING (traps.spring())",
    ),
    "a child table": (
        "CREATE TABLE shared.child () INHERITS (shared.r_v1)",
        INDEXED.format("shared.child"),
    ),
    "manifests with an index": (INDEXED.format("shared.sqlanon_manifest"),),
    "manifests with row security": (
        "ALTER TABLE shared.sqlanon_manifest ENABLE ROW LEVEL SECURITY",
        "CREATE POLICY p ON shared.sqlanon_manifest USING (traps.spring())",
    ),
    "manifests with a condition": (
        "CREATE UNIQUE INDEX ON shared.sqlanon_manifest (table_name) WHERE traps.constant(1) = 1",
    ),
    "manifests with statistics": (
        "CREATE STATISTICS shared.s ON (version + traps.constant(1)), table_name FROM shared.sqlanon_manifest",
    ),
    "a view of manifests": (
        "ALTER TABLE shared.sqlanon_manifest RENAME TO hidden",
        "CREATE VIEW shared.sqlanon_manifest AS SELECT * FROM shared.hidden WHERE traps.spring()",
        f"GRANT SELECT ON shared.sqlanon_manifest TO {READER}",
    ),
    "manifests with a child": (
        "CREATE TABLE shared.child () INHERITS (shared.sqlanon_manifest)",
        INDEXED.format("shared.child"),
    ),
}
"""Forgeries of a release that the forger owns, by name."""

NOT_BY_A_PLAIN_READ = {"a constraint", "a type with a cast"}
"""What ``SELECT *`` does not evaluate: other queries and settings do."""


@pytest.fixture
def forged_release(shared_schemas: Server, monkeypatch: pytest.MonkeyPatch) -> tuple[Server, Manifest]:
    """A release that the intruder published in a separate schema, and its claims."""
    shared_schemas.run(
        f"ALTER SCHEMA shared OWNER TO {INTRUDER}",
        f"GRANT USAGE ON SCHEMA clinic TO {INTRUDER}",
        f"GRANT SELECT ON clinic.t TO {INTRUDER}",
    )
    monkeypatch.setenv("INTRUDER", shared_schemas.intruder.address)
    monkeypatch.setenv("READER", shared_schemas.address(READER, "x"))
    with sqlanon.connect() as db:
        manifest = db.anonymize(policy("env:INTRUDER")).publish().manifest
    for relation in ("r", "sqlanon_manifest"):
        shared_schemas.intruder.run(f"GRANT SELECT ON shared.{relation} TO {READER}")
    shared_schemas.intruder.sprung()
    return shared_schemas, manifest


def read_as(server: Server, role: str) -> None:
    """Read the release as a role that checks nothing before."""
    with closing(dbapi.connect(server.address(role, "x"))) as connection:
        for relation in ("shared.r", "shared.sqlanon_manifest WHERE table_name = 'r'"):
            with suppress(dbapi.Error), connection.cursor() as cursor:
                cursor.execute(f"SELECT * FROM {relation}")
                cursor.fetchall()
            connection.rollback()


@pytest.mark.slow
@pytest.mark.parametrize("case", FORGED)
def test_nothing_of_a_forged_release_is_evaluated(forged_release: tuple[Server, Manifest], case: str) -> None:
    server, manifest = forged_release
    for statement in FORGED[case]:
        (server if "ALTER ROLE" in statement else server.intruder).run(statement)
    read_as(server, READER)
    assert bool(server.intruder.sprung()) == (case not in NOT_BY_A_PLAIN_READ)  # whoever just reads it steps into it
    for variable in (VARIABLE, "READER"):
        place = PostgresLocation.parse(f"env:{variable}", "shared.r")
        try:
            verification = place.verify()
            assert not verification.verified and ("rows", None) in [
                (check.name, check.passed) for check in verification.checks
            ]
        except sqlanon.ReleaseError as error:
            assert "sqlanon_manifest differs from the table that sqlanon creates, and is not read" in str(error)
        with duckdb.connect() as connection:
            engine = DuckDBEngine(connection)
            with suppress(sqlanon.ReleaseError):
                place.read_manifests(NO_LIMITS)
            with pytest.raises(sqlanon.ReleaseError, match="not read"), place.rows(engine, manifest):
                pass
            with pytest.raises(sqlanon.ReleaseError, match="not read"), place.open_version(NO_LIMITS, None, None, True):
                pass
            with pytest.raises(sqlanon.ReleaseError, match="not read"):
                PostgresRelease(place, manifest).class_sizes()
        assert server.intruder.sprung() == []


@pytest.mark.slow
def test_a_manifest_that_names_a_type_of_the_forger_runs_no_cast(forged_release: tuple[Server, Manifest]) -> None:
    """The catalog agrees with the manifest, but no release in PostgreSQL can have such a column."""
    server, manifest = forged_release
    place = PostgresLocation.parse(HERE, "shared.r")
    columns = tuple(replace(column, type="traps.mood") if column.name == "b" else column for column in manifest.columns)
    forged_manifest = replace(manifest, columns=columns)
    for statement in (
        *FORGED["a type with a cast"],
        f"UPDATE shared.sqlanon_manifest SET manifest = {text(forged_manifest.to_json()).sql('postgres')}",
        *(
            statement.sql("postgres")
            for statement in comment_statements("VIEW", place.table, forged_manifest, "shared.sqlanon_manifest")
        ),
    ):
        server.intruder.run(statement)
    for variable in (VARIABLE, "READER"):
        place = PostgresLocation.parse(f"env:{variable}", "shared.r")
        failed = {check.name: check.message for check in place.verify().checks if check.passed is False}
        assert failed == {"table": "the manifest names types that no release in PostgreSQL has, of 'b'"}
        with pytest.raises(sqlanon.ReleaseError, match="not read"):
            looked_at(place, forged_manifest)["rows"]()
    assert server.intruder.sprung() == []


SWAP = (
    "ALTER SCHEMA shared RENAME TO was",
    "ALTER SCHEMA elsewhere RENAME TO shared",
    "ALTER SCHEMA was RENAME TO elsewhere",
)
"""A schema cannot be locked: whoever owns it can rename it at any moment."""


@pytest.fixture
def two_schemas(forged_release: tuple[Server, Manifest]) -> Iterator[tuple[Server, Manifest]]:
    """Another schema of the same owner, next to that of the release, with the same names and traps."""
    server, manifest = forged_release
    server.run("DROP SCHEMA IF EXISTS elsewhere CASCADE", f"CREATE SCHEMA elsewhere AUTHORIZATION {INTRUDER}")
    server.run(f"GRANT CREATE ON DATABASE postgres TO {INTRUDER}")
    trap = "traps.constant(1) = 1 AND traps.spring()"
    for name in ("r", "sqlanon_manifest"):
        server.intruder.run(f"CREATE VIEW elsewhere.{name} AS SELECT * FROM shared.{name} WHERE {trap}")
        server.intruder.run(f"GRANT SELECT ON elsewhere.{name} TO {READER}")
    server.intruder.run("CREATE TABLE elsewhere.r_v1 AS TABLE shared.r_v1")
    server.intruder.run(f"GRANT USAGE ON SCHEMA elsewhere TO {READER}")
    server.intruder.sprung()
    yield server, manifest
    server.run("DROP SCHEMA elsewhere CASCADE")
    server.run(f"REVOKE CREATE ON DATABASE postgres FROM {INTRUDER}")


def looked_at(place: PostgresLocation, manifest: Manifest) -> dict[str, Any]:
    """The results of everything that reads a release which may be forged."""

    def copy(source: Any) -> None:
        with source:
            pass

    engine = DuckDBEngine(duckdb.connect())
    return {
        "verify": place.verify,
        "manifests": lambda: place.read_manifests(NO_LIMITS),
        "rows": lambda: copy(place.rows(engine, manifest)),
        "opened": lambda: copy(place.open_version(NO_LIMITS, None, None, True)),
        "class sizes": lambda: PostgresRelease(place, manifest).class_sizes(),
    }


@pytest.mark.thorough
@pytest.mark.parametrize("reader_name", ["verify", "manifests", "rows", "opened", "class sizes"])
@pytest.mark.parametrize("variable", [VARIABLE, "READER"])
def test_a_schema_that_is_renamed_between_two_statements_runs_nothing(
    two_schemas: tuple[Server, Manifest], reader_name: str, variable: str
) -> None:
    server, manifest = two_schemas
    place = PostgresLocation.parse(f"env:{variable}", "shared.r")
    number, is_there = 0, True
    while is_there:

        def is_chosen(at: int, _: str, chosen: int = number) -> bool:
            return at == chosen

        changed = changed_before(is_chosen, lambda: server.intruder.attempt(*SWAP))
        with changed as statements, suppress(sqlanon.SqlanonError):
            looked_at(place, manifest)[reader_name]()
        is_there = statements.changed
        assert server.intruder.sprung() == [], (reader_name, number, statements.texts[number - 1 : number + 1])
        if is_there:
            assert server.intruder.attempt(*SWAP) == len(SWAP)
        number += 1
    assert number > 5


@pytest.mark.thorough
def test_renamed_schema_does_not_hide_other_relations(
    forged_release: tuple[Server, Manifest],
) -> None:
    """The checks of the schema are of the schema with the relations that are read, whatever it is called by then."""
    server, _ = forged_release
    server.intruder.run("CREATE TABLE shared.r_v7 (a bigint, b text)")
    server.run("DROP SCHEMA IF EXISTS elsewhere CASCADE", f"CREATE SCHEMA elsewhere AUTHORIZATION {INTRUDER}")
    server.run(f"GRANT CREATE ON DATABASE postgres TO {INTRUDER}")
    place = PostgresLocation.parse("env:READER", "shared.r")
    number, is_there, verified = 0, True, 0
    while is_there:

        def is_chosen(at: int, _: str, chosen: int = number) -> bool:
            return at == chosen

        changed = changed_before(is_chosen, lambda: server.intruder.attempt(*SWAP))
        with changed as statements, suppress(sqlanon.SqlanonError):
            checks = {check.name: check for check in place.verify().checks}
            verified += statements.changed
            assert checks["versions"].message == "not of the release: r_v7", statements.texts[number]
            assert "r_v7" in checks["schema"].message, statements.texts[number]
        is_there = statements.changed
        if is_there:
            assert server.intruder.attempt(*SWAP) == len(SWAP)
        number += 1
    assert verified > 5
    server.run("DROP SCHEMA elsewhere CASCADE", f"REVOKE CREATE ON DATABASE postgres FROM {INTRUDER}")


@pytest.mark.slow
def test_manifests_that_are_exchanged_between_two_statements_run_nothing(shared_schemas: Server) -> None:
    """In a schema of the verifier, in which a role may create objects, the locked relations are those that are read."""
    shared_schemas.intruder.run(f"CREATE TABLE {MANIFESTS}")
    shared_schemas.intruder.run("CREATE TABLE shared.r_v1 (a bigint, b text)")
    shared_schemas.intruder.run("CREATE VIEW shared.r AS SELECT a, b FROM shared.r_v1")
    trap = "traps.constant(1) = 1 AND traps.spring()"
    exchange = (
        "ALTER TABLE shared.sqlanon_manifest RENAME TO hidden",
        f"CREATE VIEW shared.sqlanon_manifest AS SELECT * FROM shared.hidden WHERE {trap}",
    )
    undo = ("DROP VIEW shared.sqlanon_manifest", "ALTER TABLE shared.hidden RENAME TO sqlanon_manifest")
    place, taken = PostgresLocation.parse(HERE, "shared.r"), 0
    for read in (place.verify, lambda: place.read_manifests(NO_LIMITS)):
        number, is_there = 0, True
        while is_there:

            def is_chosen(at: int, _: str, chosen: int = number) -> bool:
                return at == chosen

            done: list[int] = []
            changed = changed_before(is_chosen, lambda to=done: to.append(shared_schemas.intruder.attempt(*exchange)))
            with changed as statements, suppress(sqlanon.SqlanonError):
                read()
            is_there, number = statements.changed, number + 1
            assert shared_schemas.intruder.sprung() == [], statements.texts[number - 2 : number]
            taken += done == [2]
            shared_schemas.intruder.attempt(*undo)
    assert taken > 5
