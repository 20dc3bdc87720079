"""Others create in a schema on the holder's search path: nothing of theirs is taken in place of PostgreSQL's own."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import duckdb
import pytest

import sqlanon
from properties.warehouse_cases import COLUMNS, HERE, rows
from properties.warehouse_cases import policy as warehouse_policy
from sqlanon.publish.targets.base import release_location
from support.databases import quote_name
from support.servers.postgres import Server
from support.servers.postgres import psql as run_psql
from support.warehouse_checks import THERE, from_set

pytest.importorskip("adbc_driver_postgresql", reason="the extra postgres is not installed")

pytestmark = pytest.mark.thorough

DATABASE = "trapped"
PLACE = "SQLANON_TEST_TRAPPED"

TYPES = [
    *("text", "name", '"char"', "int2", "int4", "int8", "float4", "float8", "numeric", "bool", "oid", "regclass"),
    *("regproc", "regtype", "date", "timestamp", "timestamptz", "uuid", "text[]", "int4[]", "int8[]", "bool[]"),
    *("date[]", "aclitem[]", "oid[]"),
]
"""Types of the arguments of traps."""

PAIRS = ["text", "name", "int4", "int8", "float8", "oid", "bool"]

SYMBOLS = ["=", "<>", "<", ">", "<=", ">=", "+", "-", "*", "/", "||", "~", "!~"]


def psql(server: Server, script: str, database: str = DATABASE, path: str | None = "pg_catalog") -> str:
    return run_psql(server, script, database, path)


def source() -> str:
    """A table with an enumeration, whose cast to text is a function of its owner; and a view over it."""
    return """
        CREATE SCHEMA clinic;
        CREATE SCHEMA shared;
        CREATE TYPE clinic.mood AS ENUM ('sad', 'glad');
        CREATE TABLE clinic.t AS SELECT
            lpad((i % 7)::text, 5, '0') AS zip, 20 + i % 11 AS age,
            CASE WHEN i % 5 > 0 THEN date '1990-01-01' + i % 60 END AS born,
            (ARRAY['a', 'b', 'c'])[1 + i % 3]::varchar(9) AS diagnosis, (i % 9)::numeric(8, 2) AS cost,
            (i % 4)::float8 / 2 AS weight, (ARRAY['sad', 'glad'])[1 + i % 2]::clinic.mood AS mood,
            'person ' || i AS name
        FROM generate_series(1, 400) AS s(i);
    """


def names_used(log: str, server: Server) -> list[tuple[str, list[int], list[str]]]:
    """The functions that the statements in a log call: name, numbers of arguments, signatures in pg_catalog."""
    statements = re.findall(r"LOG:  (?:statement|execute [^:]*): (.*)", log)
    called = {"abs", "ln", "row_number"}  # of printed audits
    called |= {name.lower() for statement in statements for name in re.findall(r"([A-Za-z_]\w*)\s*\(", statement)}
    functions: dict[str, tuple[set[int], set[str]]] = {}
    query = """
        SELECT proname::text, pronargs::int, array_to_string(proargtypes::regtype[], ',')
        FROM pg_catalog.pg_proc WHERE pronamespace = 'pg_catalog'::regnamespace
    """
    for name, count, signature in server.rows(query):
        if name in called:
            counts, signatures = functions.setdefault(name, (set(), set()))
            counts.add(count)
            if not re.search(r"\bany|internal|cstring|\"any\"", signature):
                signatures.add(signature)
    return [(name, sorted(counts), sorted(signatures)) for name, (counts, signatures) in sorted(functions.items())]


def traps(functions: list[tuple[str, list[int], list[str]]]) -> str:
    """A script that creates functions and operators in ``public`` that fit better than PostgreSQL's, or as well."""
    body = "LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'the trap %', '{}'; END $$;"
    lines = ["CREATE SEQUENCE public.made;"]
    for left, right in product(TYPES, TYPES):
        lines.append(f"CREATE FUNCTION public.compared({left}, {right}) RETURNS bool {body.format('operator')}")
        lines.append(f"CREATE FUNCTION public.computed({left}, {right}) RETURNS {left} {body.format('operator')}")
        for symbol in SYMBOLS:
            function = "computed" if symbol in "+-*/||" else "compared"
            operands = f"LEFTARG = {left}, RIGHTARG = {right}"
            lines.append(f"CREATE OPERATOR public.{symbol} ({operands}, FUNCTION = public.{function});")
    for name, counts, own_signatures in functions:
        signatures = set(own_signatures)
        signatures |= set(TYPES) if 1 in counts else set()
        signatures |= {f"{left},{right}" for left, right in product(PAIRS, PAIRS)} if 2 in counts else set()
        for signature in sorted(signatures):
            if signature or name != "count":
                lines.append(
                    f'CREATE OR REPLACE FUNCTION public."{name}"({signature}) RETURNS text {body.format(name)}'
                )
    lines += [
        f"CREATE FUNCTION public.counted(int8) RETURNS int8 {body.format('count')}",
        "CREATE AGGREGATE public.count(*) (SFUNC = public.counted, STYPE = int8, INITCOND = '0');",
        f"CREATE FUNCTION public.cast_of(clinic.mood) RETURNS text {body.format('cast')}",
        "CREATE CAST (clinic.mood AS text) WITH FUNCTION public.cast_of(clinic.mood) AS IMPLICIT;",
        "CREATE COLLATION public.\"C\" (provider = icu, locale = 'und-u-ks-level1', deterministic = false);",
        *(
            f"CREATE TABLE public.{name} ();"
            for name in ("pg_class", "pg_attribute", "pg_type", "pg_roles", "pg_namespace")
        ),
        *(
            f"CREATE DOMAIN public.{name} AS pg_catalog.bool;"
            for name in ("text", "oid", "regclass", "name", "uuid", "date")
        ),
    ]
    return "\n".join(lines)


@pytest.fixture(scope="module")
def trapped_database(postgres: Server) -> Iterator[tuple[Server, dict[str, Any]]]:
    """A database with traps in ``public``, and the result and release from before they were added."""
    for statement in (f"DROP DATABASE IF EXISTS {DATABASE}", f"CREATE DATABASE {DATABASE}"):
        psql(postgres, statement, "postgres")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(PLACE, postgres.address(database=DATABASE))
        psql(postgres, source())
        before = len(postgres.log())
        honest = run_all(postgres)
        functions = names_used(postgres.log()[before:], postgres)
        assert {"pg_advisory_xact_lock", "pg_get_viewdef", "random", "count"} <= {name for name, _, _ in functions}
        psql(postgres, traps(functions))
        yield postgres, honest
    psql(postgres, f"DROP DATABASE {DATABASE} WITH (FORCE)", "postgres")


def policy(**sections: Any) -> sqlanon.Policy:
    place = f"env:{PLACE}"
    attributes: dict[str, Any] = {
        "zip": {"role": "quasi", "hierarchy": {"mask": "right"}},
        "age": {"role": "quasi", "hierarchy": {"intervals": [5, 10]}},
        "born": {"role": "quasi", "hierarchy": {"dates": ["month", "year"]}},
        "mood": {"role": "quasi", "hierarchy": "suppress"},
        "diagnosis": {"role": "sensitive"},
        "cost": {"role": "insensitive"},
        "weight": {"role": "insensitive"},
        "name": {"role": "identifying"},
    }
    tree = {
        "source": {"postgres": place, "table": "clinic.t"},
        "attributes": attributes,
        "privacy": {
            "k": 5,
            "dependencies": "warn",
            "l_diversity": [{"attribute": "diagnosis", "kind": "entropy", "l": 1.5}],
        },
        "search": {"suppression_limit": 0.05},
        "release": {"postgres": place, "table": "shared.r"},
    }
    return sqlanon.Policy(**{**tree, **sections})


def run_all(server: Server, table: str = "clinic.t") -> dict[str, Any]:
    """The results of everything that runs in PostgreSQL."""
    place, outcomes = f"env:{PLACE}", dict[str, Any]()
    sources = {"table": {"table": table}, "query": {"query": f"SELECT * FROM {table} AS q WHERE age IS NOT NULL"}}
    psql(server, "DROP SCHEMA shared CASCADE; CREATE SCHEMA shared;")
    for name, its in sources.items():
        requested_policy = policy(source={"postgres": place, **its})
        with sqlanon.connect() as db:
            db.plan(requested_policy)
            result = db.anonymize(requested_policy)
            release = result.publish()
            assert release.verify().verified, release.verify().failures
            assert db.verify(place, requested_policy, "shared.r").verified
            outcomes[name] = (dict(result.generalization), result.score, release.manifest.digest, release.class_sizes())
    coarse = policy(source={"postgres": place, **sources["table"]})
    coarse = coarse.model_copy(update={"attributes": {k: v for k, v in coarse.attributes.items() if k != "weight"}})
    with sqlanon.connect() as db:  # other columns: the view is made anew
        dropped = policy(
            source={"postgres": place, **sources["table"], "undeclared": "drop"}, attributes=coarse.attributes
        )
        outcomes["other columns"] = db.anonymize(dropped).publish().manifest.digest
    connection = duckdb.connect()
    connection.execute("CREATE TABLE t AS SELECT i % 9 AS a, 'x' AS b, i::DOUBLE AS c FROM range(90) AS r(i)")
    sent = sqlanon.Policy(
        source={"table": "t"},
        attributes={
            "a": {"role": "quasi", "hierarchy": "suppress"},
            "b": {"role": "insensitive"},
            "c": {"role": "insensitive"},
        },
        privacy={"k": 5, "dependencies": "warn"},
        release={"postgres": place, "table": "shared.sent"},
    )
    with sqlanon.connect(connection) as db:
        outcomes["sent"] = db.anonymize(sent).publish().manifest.digest
    assert release_location(place, "shared.sent").verify().verified
    return outcomes


NAMED = """
    DROP SCHEMA IF EXISTS traps CASCADE;
    CREATE SCHEMA traps;
    CREATE FUNCTION traps.fell() RETURNS int8 LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'the trap'; END $$;
    CREATE FUNCTION traps.times(float8, int8) RETURNS float8 LANGUAGE sql AS 'SELECT traps.fell()::float8';
    CREATE OPERATOR traps.* (LEFTARG = float8, RIGHTARG = int8, FUNCTION = traps.times);
    CREATE FUNCTION traps.same(int4[], int4[]) RETURNS bool LANGUAGE sql AS 'SELECT traps.fell() = 0';
    CREATE OPERATOR traps.= (LEFTARG = int4[], RIGHTARG = int4[], FUNCTION = traps.same);
    CREATE FUNCTION traps.unlike(regproc, int4) RETURNS bool LANGUAGE sql AS 'SELECT traps.fell() = 0';
    CREATE OPERATOR traps.!= (LEFTARG = regproc, RIGHTARG = int4, FUNCTION = traps.unlike);
    CREATE FUNCTION traps.random() RETURNS float8 LANGUAGE sql AS 'SELECT traps.fell()::float8';
    CREATE FUNCTION traps.pg_advisory_xact_lock(int4) RETURNS int8 LANGUAGE sql AS 'SELECT traps.fell()';
    CREATE FUNCTION traps.pg_get_viewdef(regclass) RETURNS text LANGUAGE sql AS 'SELECT traps.fell()::text';
    DROP SCHEMA IF EXISTS clinic, shared CASCADE;
"""


def test_the_traps_that_were_found_first_are_not_called(postgres: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    psql(postgres, NAMED + source(), "postgres")
    path = "traps,pg_catalog"
    for control in ("2.5::float8 * 2::int8", "ARRAY[1] = ARRAY[1]", "random()", "pg_get_viewdef('pg_class'::regclass)"):
        with pytest.raises(RuntimeError, match="the trap"):
            psql(postgres, f"SELECT {control}", "postgres", path)
    monkeypatch.setenv(PLACE, f"{postgres.address()}?options=-csearch_path%3D{path}")
    with sqlanon.connect() as db:
        release = db.anonymize(policy()).publish()
    assert release.verify().verified and release.class_sizes()
    psql(postgres, "DROP SCHEMA traps, clinic, shared CASCADE", "postgres")


CONTROLS = {
    "public.*(float8, int8)": "SELECT 2.5::float8 * 2::int8",
    "public.=(int4[], int4[])": "SELECT ARRAY[1] = ARRAY[1]",
    "public.random()": "SELECT random()",
    "public.pg_advisory_xact_lock(int4)": "SELECT pg_advisory_xact_lock(hashtext('x'))",
    "public.pg_get_viewdef(regclass)": "SELECT pg_get_viewdef('shared.r'::pg_catalog.regclass)",
    "the cast of an enumeration": "SELECT CAST(mood AS pg_catalog.text) FROM clinic.t",
}
"""Where a trap is stepped into, on a path that has ``public``."""

PATHS = ['"$user", public', "public, pg_catalog", "clinic, public, pg_catalog"]


@pytest.mark.parametrize("path", PATHS)
def test_nothing_on_the_path_of_the_holder_is_called(
    trapped_database: tuple[Server, dict[str, Any]], path: str
) -> None:
    server, honest = trapped_database
    psql(server, f"ALTER DATABASE {DATABASE} SET search_path = {path}")
    implicit = path.startswith('"$user"')
    for name, statement in CONTROLS.items():
        if implicit and name == "public.random()":
            continue  # pg_catalog stands first, and has the very same
        with pytest.raises(RuntimeError, match="the trap"):
            psql(server, statement, path=None)
    assert run_all(server, "t" if "clinic" in path else "clinic.t") == honest


def test_printed_sql_holds_on_any_search_path(trapped_database: tuple[Server, dict[str, Any]], tmp_path: Path) -> None:
    server, _ = trapped_database
    definitions = {name: HERE[kind] for name, kind in COLUMNS.items()}
    text = ", ".join(f"{quote_name(name)} {kind}" for name, kind in COLUMNS.items())
    psql(server, f"CREATE TABLE clinic.patients ({text})")
    psql(server, _insert_statement("clinic.patients", list(COLUMNS.values()), rows()))
    local_policy = warehouse_policy(tmp_path, "mask")
    with duckdb.connect() as connection:
        connection.execute(
            f"CREATE TABLE patients ({', '.join(f'{quote_name(n)} {k}' for n, k in definitions.items())})"
        )
        connection.executemany("INSERT INTO patients VALUES (?, ?, ?, ?, ?, ?)", rows())
        names = ", ".join(quote_name(name) for name in list(COLUMNS)[1:5])
        count = f"SELECT {names}, count(*) AS n FROM patients GROUP BY ALL"
        connection.execute(f"COPY ({count}) TO '{tmp_path}/f.parquet'")
        (combinations,) = connection.execute(f"SELECT count(*) FROM ({count})").fetchone() or (0,)
    remote_policy = from_set(local_policy, tmp_path / "f.parquet", source={"table": "clinic.patients"})
    remote_policy = sqlanon.Policy(
        **{**remote_policy.model_dump(exclude_none=True), "release": {"table": "shared.printed", "suppressed": "mask"}}
    )
    with sqlanon.connect() as db:
        (query,) = db.plan(remote_policy, dialect="postgres").stages[0].sql
        result = db.anonymize(remote_policy)
        folder = result.export(tmp_path / "export", "postgres")
    with duckdb.connect() as connection:
        for file in folder.glob("*.parquet"):
            relation = connection.read_parquet(str(file))
            types = [THERE[str(type_)] for type_ in relation.types]
            columns = ", ".join(
                f"{quote_name(name)} {type_}" for name, type_ in zip(relation.columns, types, strict=True)
            )
            psql(server, f"CREATE TABLE clinic.{quote_name(file.stem)} ({columns})")
            values = connection.execute("SELECT CAST(COLUMNS(*) AS VARCHAR) FROM relation").fetchall()
            psql(server, _insert_statement(f"clinic.{quote_name(file.stem)}", types, values))
    statements = [query, (folder / "release.sql").read_text(), (folder / "audit.sql").read_text()]
    for path in ("clinic, public", "clinic, public, pg_catalog"):
        psql(server, f"ALTER DATABASE {DATABASE} SET search_path = {path}; DROP TABLE IF EXISTS shared.printed")
        combination_rows, _, audited = (psql(server, statement, path=None) for statement in statements)
        assert len(combination_rows.strip().splitlines()) == combinations
        assert psql(server, "SELECT count(*) FROM shared.printed").strip() == str(result.released_rows)
        # Two lines of figures for people, which begin with the rows; and no row of what breaks a requirement.
        figures = [line.partition("|")[0] for line in audited.strip().splitlines()]
        assert figures == [str(result.released_rows)] * 2, audited


def _insert_statement(table: str, types: Sequence[str], values: Sequence[Sequence[Any]]) -> str:
    def literal(value: Any, type_: str) -> str:
        return "NULL" if value is None else "'" + str(value).replace("'", "''") + f"'::{type_}"

    tuples = ("(" + ", ".join(map(literal, row, types)) + ")" for row in values)
    return f"INSERT INTO {table} VALUES {', '.join(tuples)}"
