"""Databases that bring macros, types, views and settings named like those that statements use: nothing may change."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import pytest

import sqlanon
from sqlanon.attacks import NAMES as ATTACKS
from sqlanon.audit.verify import verify_file
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.support.resources import macro_script
from support.databases import quote_name
from support.lanes import some

pytestmark = pytest.mark.slow

ROWS = [
    (
        f"021{i % 3}{i % 7}",
        20 + i * 7 % 40,
        "fm"[i % 2],
        ("flu", "flu", "cold", "asthma", "flu")[i * 3 % 5],
        i * 0.5,
        f"person {i}",
    )
    for i in range(90)
]
ATTRIBUTES = {
    "zip": {"role": "quasi", "hierarchy": {"mask": "right"}},
    "age": {"role": "quasi", "hierarchy": {"intervals": [10, 20]}},
    "sex": {"role": "quasi", "hierarchy": "suppress"},
    "diagnosis": {"role": "sensitive"},
    "cost": {"role": "insensitive"},
    "name": {"role": "identifying"},
}
DELTA = {"delta_disclosure": [{"attribute": "diagnosis", "delta": 2.5}]}
PRIVACY: Mapping[str, Mapping[str, Any]] = {
    "k": {"k": 3},
    "many": {
        "k": 3,
        **DELTA,
        "l_diversity": [{"attribute": "diagnosis", "kind": kind, "l": 2} for kind in ("distinct", "entropy")],
        "t_closeness": [{"attribute": "diagnosis", "distance": kind, "t": 0.7} for kind in ("equal", "ordered")],
        "beta_likeness": [{"attribute": "diagnosis", "beta": 4}],
        "alpha_k": [{"attribute": "diagnosis", "alpha": 0.9}],
    },
}
CASES: Mapping[str, dict[str, Any]] = {
    "optimal": {"privacy": PRIVACY["many"], "search": {"suppression_limit": 0.2}},
    "discernibility": {"privacy": PRIVACY["k"], "search": {"measure": "discernibility", "strategy": "ola"}},
    "entropy": {"privacy": PRIVACY["k"], "search": {"measure": "entropy", "strategy": "incognito"}},
    "masks": {"privacy": PRIVACY["k"], "search": {"suppression_limit": 0.3}, "release": {"suppressed": "mask"}},
    "cells": {"privacy": PRIVACY["k"], "search": {"suppression": "cells", "suppression_limit": 0.3}},
    "mondrian": {"privacy": PRIVACY["many"], "search": {"strategy": "mondrian"}},
    "k-similar": {"privacy": PRIVACY["k"], "search": {"strategy": "k-similar"}},
    "forest": {"privacy": PRIVACY["k"], "search": {"strategy": "forest"}, "source": {"key": "name"}},
    "subtree": {"privacy": PRIVACY["k"], "search": {"strategy": "subtree"}},
    "local": {"privacy": PRIVACY["k"], "search": {"strategy": "local"}},
    "samarati": {"privacy": PRIVACY["k"], "search": {"strategy": "samarati", "suppression_limit": 0.1}},
    "datafly": {"privacy": PRIVACY["k"], "search": {"strategy": "datafly", "suppression_limit": 0.1}},
    "table": {"privacy": {"k": 3, "average_risk": 0.3, "population_uniqueness": {"limit": 0.5, "population": 900}}},
    "population": {"privacy": {"k_map": 3}, "population": {"table": "voters"}},
    "presence": {"privacy": {"k": 2, "delta_presence": {"max": 1.0}}, "population": {"table": "voters"}},
}
PLACES = ("table", "view", "query", "schema", "live table", "live view", "live query", "live temporary", "temporary")


def rows_table(connection: duckdb.DuckDBPyConnection, name: str) -> None:
    connection.execute(
        f"CREATE TABLE {name} (zip VARCHAR, age INTEGER, sex VARCHAR, diagnosis VARCHAR, cost DOUBLE, name VARCHAR)"
    )
    connection.executemany(f"INSERT INTO {name} VALUES (?, ?, ?, ?, ?, ?)", ROWS)


def macro(name: str, value: str, schema: str = "", temporary: str = "", most: int = 4) -> Iterator[str]:
    """Statements that make macros of a name, for rows and in FROM, of any number of arguments."""
    full = f"{schema}{quote_name(name)}"
    arguments = ["(" + ", ".join("abcdef"[:count]) + ")" for count in range(most + 1)]
    yield f"CREATE {temporary} MACRO {full} " + ", ".join(f"{argument} AS {value}" for argument in arguments)
    yield f"CREATE {temporary} MACRO {full} " + ", ".join(
        f"{argument} AS TABLE (SELECT {value} AS {quote_name(name)})" for argument in arguments
    )


def shadow(connection: duckdb.DuckDBPyConnection, names: Iterable[str], value: str = "0.0::DOUBLE", **more: str) -> int:
    """Make macros, in the database in use; their number. Some names the parser does not let have macros."""
    statements = []
    for statement in (text for name in sorted(names) for text in macro(name, value, **more)):
        with contextlib.suppress(duckdb.ParserException):
            statements += connection.extract_statements(statement)
    connection.execute("BEGIN")
    for command in statements:
        connection.execute(command)
    connection.execute("COMMIT")
    return len(statements)


@cache
def system_names() -> frozenset[str]:
    with duckdb.connect() as connection:
        rows = connection.execute("SELECT DISTINCT function_name FROM duckdb_functions() WHERE internal").fetchall()
    return frozenset(name.lower() for (name,) in rows)


IMPLICIT = {
    "+", "-", "*", "/", "//", "%", "||", "&", "|", "~~", "!~~", "<<", ">>", "count_star", "list_value", "struct_pack",
    "struct_extract", "array_extract", "list_extract", "row", "unnest", "date_part", "to_days", "to_months",
}  # fmt: skip
"""What operators and literals become."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("clean")


@pytest.fixture(scope="module")
def used_functions(folder: Path) -> set[str]:
    """The names of the system's functions in the statements of some runs, as they are recorded."""
    texts: list[str] = []
    usual, usual_script = DuckDBEngine.sql, DuckDBEngine.script

    def record_statement(engine: DuckDBEngine, expression: Any) -> str:
        texts.append(usual(engine, expression))
        return texts[-1]

    def recorded_script(engine: DuckDBEngine, *scripts: str) -> None:
        texts.extend(scripts)
        usual_script(engine, *scripts)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DuckDBEngine, "sql", record_statement)
        patch.setattr(DuckDBEngine, "script", recorded_script)
        FOUND["optimal"] = outcome("table", CASES["optimal"], folder / "optimal", shadowed=())
        assert FOUND["optimal"]["verified"]
    words = {word.lower() for text in texts for word in re.findall(r'([a-z_]\w*)"?\s*\(', text, re.IGNORECASE)}
    names = words & system_names() | IMPLICIT
    assert {"sum", "min", "ln", "dense_rank", "hash", "count_star", "duckdb_tables"} <= names
    return names


def policy_for(case: Mapping[str, Any], source: Mapping[str, Any]) -> sqlanon.Policy:
    sections = {name: dict(section) for name, section in case.items()}
    release = {"table": "people", **sections.pop("release", {})}
    source = {**source, **sections.pop("source", {})}
    return sqlanon.Policy(source=source, attributes=ATTRIBUTES, release=release, **sections)


def outcome(
    place: str,
    case: Mapping[str, Any],
    path: Path,
    shadowed: Iterable[str],
    setting: Iterable[str] = (),
    also: Callable[[sqlanon.Database, sqlanon.Policy, Path], Any] = lambda *_: None,
) -> dict[str, Any]:
    """Results, releases and verifications are equal for equal rows, wherever they are and whatever else is in their
    database."""
    path.mkdir(exist_ok=True)
    file = path / "hospital.duckdb"
    names = list(shadowed)
    is_live = place.startswith("live")
    connection = duckdb.connect(str(file))
    try:
        connection.execute("CREATE SCHEMA clinic")
        rows_table(connection, "people")
        rows_table(connection, "clinic.people_there")
        rows_table(connection, "voters")
        connection.execute("CREATE VIEW people_seen AS SELECT * FROM people WHERE age IS NOT NULL")
        sources: dict[str, dict[str, Any]] = {
            "table": {"table": "people"},
            "view": {"table": "people_seen"},
            "query": {"query": "SELECT zip, age, sex, diagnosis, cost, name FROM people"},
            "schema": {"table": "clinic.people_there"},
        }
        if names:
            shadow(connection, names)
            shadow(connection, names, schema="clinic.")
        if is_live and place.endswith("temporary"):
            connection.execute("CREATE TEMP TABLE t AS FROM people")
            if names:
                shadow(connection, names, temporary="TEMP")
            source = {"table": "t"}
        else:
            source = sources[place.rpartition(" ")[2]]
        if not is_live:
            connection.close()
            source = {"database": file, **source}
        policy, target = policy_for(case, source), path / "release.duckdb"
        for statement in setting:
            connection.execute(statement)
        with sqlanon.connect(*([connection] if is_live else [])) as db:
            result = db.anonymize(policy)
            result.publish(target)
            verification = db.verify(target, policy)
            more = also(db, policy, target)
    finally:
        connection.close()
    document = json.loads(json.dumps(verification.manifest.row(), default=str))
    for name in ("published_at", "policy", "policy_hash"):
        document.pop(name)
    checks = [(check.name, check.passed, check.message) for check in verification.checks]
    return {"verified": verification.verified, "manifest": document, "checks": checks, "more": more}


FOUND: dict[str, dict[str, Any]] = {}


def clean(case: str, folder: Path) -> dict[str, Any]:
    """Results for a source with nothing else in its database, once for all tests."""
    if case not in FOUND:
        FOUND[case] = outcome("table", CASES[case], folder / case, shadowed=())
    return FOUND[case]


QUICK = {("optimal", "live query")}
PAIRS = [
    pytest.param(case, place, marks=[] if (case, place) in QUICK else [pytest.mark.slow])
    for case, place in itertools.product(CASES, PLACES)
    if place != "temporary" and (case == "optimal" or place in ("table", "live table", "live query"))
]


@pytest.mark.thorough
@pytest.mark.parametrize(("case", "place"), PAIRS)
def test_macros_beside_the_source_change_nothing(
    case: str, place: str, used_functions: set[str], folder: Path, tmp_path: Path
) -> None:
    assert outcome(place, CASES[case], tmp_path / "run", used_functions) == clean(case, folder)


@pytest.mark.thorough
def test_macros_of_all_the_systems_names_change_nothing(folder: Path, tmp_path: Path) -> None:
    names = system_names() | IMPLICIT
    assert outcome("table", CASES["optimal"], tmp_path / "file", names) == clean("optimal", folder)
    assert outcome("live temporary", CASES["optimal"], tmp_path / "live", names) == clean("optimal", folder)


SETTINGS = (
    "SET default_null_order = 'nulls_first'",
    "SET default_order = 'desc'",
    "SET integer_division = true",
    "SET ieee_floating_point_ops = false",
    "SET old_implicit_casting = true",
    "SET scalar_subquery_error_on_multiple_rows = false",
    "SET order_by_non_integer_literal = true",
    "SET preserve_insertion_order = false",
    "SET default_collation = 'nocase'",
    "SET preserve_identifier_case = false",
    "SET errors_as_json = true",
    "SET max_expression_depth = 20",
)


@pytest.mark.thorough
@pytest.mark.parametrize("scope", ["SESSION", pytest.param("GLOBAL", marks=pytest.mark.slow)])
@pytest.mark.parametrize("place", ["live table", pytest.param("live query", marks=pytest.mark.slow)])
def test_settings_of_a_connection_change_nothing(scope: str, place: str, folder: Path, tmp_path: Path) -> None:
    setting = [statement.replace("SET", f"SET {scope}") for statement in SETTINGS]
    assert outcome(place, CASES["optimal"], tmp_path / "run", (), setting) == clean("optimal", folder)


def hidden_policy(connection: duckdb.DuckDBPyConnection) -> sqlanon.Policy:
    """Two classes: of one a quarter has the flu, of the other three quarters, of all the half: δ is ln 2, 0.693."""
    connection.execute(
        "CREATE TABLE people AS SELECT i % 2 AS ward, "
        "CASE WHEN (i // 2 < 3) = (i % 2 = 0) THEN 'flu' ELSE 'cold' END AS diagnosis, i AS number "
        "FROM range(24) AS t(i)"
    )
    return sqlanon.Policy(
        source={"table": "people"},
        attributes={
            "ward": {"role": "quasi", "hierarchy": "suppress", "max_level": 0},
            "diagnosis": {"role": "sensitive"},
            "number": {"role": "identifying"},
        },
        privacy={"k": 2, "delta_disclosure": [{"attribute": "diagnosis", "delta": 0.5}]},
    )


@pytest.mark.thorough
@pytest.mark.parametrize("temporary", some(["", "TEMP"], 3))
@pytest.mark.parametrize("function", ["ln", "abs", "greatest"])
def test_a_macro_does_not_hide_a_disclosure(temporary: str, function: str) -> None:
    with duckdb.connect() as connection:
        policy = hidden_policy(connection)
        for statement in macro(function, "0.0::DOUBLE", temporary=temporary):
            connection.execute(statement)
        with sqlanon.connect(connection) as db, pytest.raises(sqlanon.InfeasibleError):
            db.anonymize(policy)


@pytest.mark.thorough
def test_a_macro_does_not_hide_a_disclosure_in_a_file(tmp_path: Path) -> None:
    with duckdb.connect(str(tmp_path / "hospital.duckdb")) as connection:
        policy = hidden_policy(connection)
        connection.execute("CREATE MACRO ln(x) AS 0.0::DOUBLE")
    with sqlanon.connect(tmp_path / "hospital.duckdb") as db, pytest.raises(sqlanon.InfeasibleError):
        db.anonymize(policy)


@pytest.mark.thorough
@pytest.mark.parametrize("live", [False, True])
def test_a_macro_random_does_not_order_the_release_as_the_source(live: bool, tmp_path: Path) -> None:
    file = tmp_path / "hospital.duckdb"
    connection = duckdb.connect(str(file))
    connection.execute("CREATE TABLE people AS SELECT 1 AS ward, i AS cost FROM range(300) AS t(i)")
    for name in ("random", "hash", "uuid"):
        shadow(connection, [name], "0.5::DOUBLE")
    policy = sqlanon.Policy(
        source={"table": "people"},
        attributes={"ward": {"role": "quasi", "hierarchy": "suppress"}, "cost": {"role": "insensitive"}},
        privacy={"k": 2},
        release={"table": "people"},
    )
    if not live:
        connection.close()
    with sqlanon.connect(connection if live else file) as db:
        db.anonymize(policy).publish(tmp_path / "release.duckdb")
    connection.close()
    with duckdb.connect(str(tmp_path / "release.duckdb"), read_only=True) as reader:
        costs = [cost for (cost,) in reader.execute("SELECT cost FROM people").fetchall()]
    assert sorted(costs) == list(range(300))
    assert sum(cost < next_cost for cost, next_cost in itertools.pairwise(costs)) < 200, "about half of the pairs"


@pytest.mark.thorough
@pytest.mark.parametrize("live", some([False, True], 2))
def test_the_holders_own_macros_count_in_the_holders_query(live: bool, tmp_path: Path) -> None:
    """Also one that is named as a function of the system: it is the holder's query."""
    file = tmp_path / "hospital.duckdb"
    connection = duckdb.connect(str(file))
    connection.execute("CREATE TABLE people AS SELECT i AS age FROM range(40) AS t(i)")
    connection.execute("CREATE MACRO decade(x) AS x // 10")
    policy = sqlanon.Policy(
        source={"query": "SELECT decade(age) AS decade, lower(CAST(age AS VARCHAR)) AS low FROM people"},
        attributes={name: {"role": "quasi", "hierarchy": "suppress"} for name in ("decade", "low")},
        privacy={"k": 10},
        release={"table": "people"},
    )
    for number, statement in enumerate(
        ["SELECT 1", "CREATE MACRO lower(x) AS 'holder ' || (CAST(x AS INTEGER) // 20)"]
    ):
        if connection is None:
            connection = duckdb.connect(str(file))
        connection.execute("CREATE OR REPLACE MACRO upper(x) AS x")  # a name of the system's
        connection.execute(statement)
        if not live:
            connection.close()
        with sqlanon.connect(connection if live else file) as db:
            db.anonymize(policy).publish(tmp_path / f"release_{number}.duckdb")
        if not live:
            connection = None
    if connection is not None:
        connection.close()
    with duckdb.connect(str(tmp_path / "release_1.duckdb"), read_only=True) as reader:
        assert sorted(reader.execute("SELECT decade, low, count(*) FROM people GROUP BY ALL").fetchall()) == [
            (0, "holder 0", 10),
            (1, "holder 0", 10),
            (2, "holder 1", 10),
            (3, "holder 1", 10),
        ]
    with duckdb.connect(str(tmp_path / "release_0.duckdb"), read_only=True) as reader:
        assert reader.execute("SELECT DISTINCT low FROM people").fetchall() == [("*",)]


@pytest.mark.parametrize(
    ("setup", "query", "expected"),
    some(
        [
            ("SET integer_division = true", "SELECT age / 10 AS q FROM people", [0, 1, 2, 3]),
            ("CREATE TEMP TABLE people AS SELECT 7 AS age FROM range(4)", "SELECT age AS q FROM people", [7]),
            ("CREATE TEMP MACRO tens(x) AS x // 10", "SELECT tens(age) AS q FROM people", [0, 1, 2, 3]),
            ("CREATE TABLE lattice AS SELECT 8 AS age FROM range(4)", "SELECT age AS q FROM lattice", [8]),
            ("CREATE SCHEMA s; USE s", "SELECT current_schema() AS q FROM main.people", ["s"]),
        ],
        2,
    ),
)
def test_source_query_resolves_names_like_the_users_connection(
    setup: str, query: str, expected: list[Any], tmp_path: Path
) -> None:
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE people AS SELECT i AS age FROM range(40) AS t(i)")
        connection.execute(setup)
        policy = sqlanon.Policy(
            source={"query": query},
            attributes={"q": {"role": "quasi", "hierarchy": "suppress"}},
            privacy={"k": 4},
            release={"table": "people"},
        )
        with sqlanon.connect(connection) as db:
            db.anonymize(policy).publish(tmp_path / "release.duckdb")
    with duckdb.connect(str(tmp_path / "release.duckdb"), read_only=True) as reader:
        assert sorted(value for (value,) in reader.execute("SELECT DISTINCT q FROM people").fetchall()) == expected


def test_a_temporary_hierarchy_hides_one_of_the_database(tmp_path: Path) -> None:
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE people AS SELECT 'abcd'[i % 4 + 1] AS q FROM range(40) AS t(i)")
        connection.execute("CREATE TABLE geo AS SELECT 'a' AS q, 'x' AS one, '*' AS every")
        connection.execute("CREATE TEMP TABLE geo AS SELECT q, 'half ' || (q < 'c') AS half, '*' AS every FROM people")
        connection.execute("CREATE OR REPLACE TEMP TABLE geo AS SELECT DISTINCT * FROM temp.main.geo")
        policy = sqlanon.Policy(
            source={"table": "people"},
            attributes={"q": {"role": "quasi", "hierarchy": {"table": "geo"}, "min_level": 1, "max_level": 1}},
            privacy={"k": 2},
            release={"table": "people"},
        )
        with sqlanon.connect(connection) as db:
            db.anonymize(policy).publish(tmp_path / "release.duckdb")
    with duckdb.connect(str(tmp_path / "release.duckdb"), read_only=True) as reader:
        assert sorted(reader.execute("SELECT DISTINCT q FROM people").fetchall()) == [("half false",), ("half true",)]


def test_functions_of_python_under_names_of_the_system_are_refused() -> None:
    pytest.importorskip("numpy")  # an older DuckDB needs it for functions of Python
    with duckdb.connect() as connection:
        policy = hidden_policy(connection)
        connection.create_function("ln", lambda x: 0.0, ["BIGINT"], "DOUBLE")
        with pytest.raises(sqlanon.SourceError, match="ln"):
            sqlanon.connect(connection)
    with duckdb.connect() as connection:
        policy = hidden_policy(connection)
        connection.create_function("of_the_holder", lambda x: 0.0, ["BIGINT"], "DOUBLE")
        with sqlanon.connect(connection) as db, pytest.raises(sqlanon.InfeasibleError):
            db.anonymize(policy)


def looked_at(db: sqlanon.Database, policy: sqlanon.Policy, release: Path) -> dict[str, Any]:
    """Other messages about the source and the release."""
    risk = db.risk(policy)
    is_file, table = policy.source.database is not None, policy.source.table
    attacks = sqlanon.attack(release, policy) if is_file else {}
    return {
        "risk": risk.to_dict(),
        "rows": sorted(db.row_risks(policy).fetchall()),
        "suda": db.suda(policy).to_dict(),
        "distinction": sorted(db.distinction(table).fetchall(), key=str) if not is_file else (),
        "matrix": db.uniques_matrix(policy, "zip", "age").to_dict(),
        "attacks": {name: attacks[name].victims for name in ATTACKS} if is_file else {},
    }


@pytest.mark.thorough
@pytest.mark.parametrize("place", ["table", "live table"])
def test_macros_of_the_source_change_no_message(place: str, used_functions: set[str], tmp_path: Path) -> None:
    names = used_functions | {
        "round",
        "sqrt",
        "power",
        "exp",
        "lgamma",
        "stddev_pop",
        "quantile_cont",
        "list",
        "max",
        "avg",
    }
    case = {"privacy": PRIVACY["k"]}
    clean_ones = outcome(place, case, tmp_path / "clean", (), also=looked_at)
    assert outcome(place, case, tmp_path / "run", names, also=looked_at)["more"] == clean_ones["more"]


@pytest.mark.thorough
def test_macros_change_no_suggestion(used_functions: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sqlanon.suggest.trials.SECONDS", 0.0)  # the strategies are looked at above
    texts = []
    for names in ((), used_functions | {"regexp_full_match", "approx_count_distinct", "strip_accents", "epoch", "avg"}):
        file = tmp_path / "hospital.duckdb"
        file.unlink(missing_ok=True)
        with duckdb.connect(str(file)) as connection:
            rows_table(connection, "people")
            shadow(connection, names)
        with sqlanon.connect(file) as db:
            texts.append(db.suggest("people"))
    assert texts[0] == texts[1]


@pytest.mark.thorough
def test_macros_of_a_population_a_hierarchy_and_a_catalog_change_nothing(
    used_functions: set[str], tmp_path: Path
) -> None:
    """Each is in a separate database, whose schema sqlanon also has macros with the names of the library."""
    ours = set(re.findall(r"MACRO sqlanon\.(\w+)", macro_script(), re.IGNORECASE))
    assert {"k_anonymity", "digest", "k_map"} <= ours
    outcomes = []
    for names in ((), used_functions):
        folder = tmp_path / f"{bool(names)}"
        folder.mkdir()
        for name in ("hospital", "register", "private"):
            with duckdb.connect(str(folder / f"{name}.duckdb")) as connection:
                rows_table(connection, "people")
                connection.execute("CREATE TABLE sexes AS SELECT DISTINCT sex, '*' AS every FROM people")
                if names:
                    connection.execute("CREATE SCHEMA sqlanon")
                    shadow(connection, names)
                    shadow(connection, names | ours, schema="sqlanon.", value="1")
        policy = sqlanon.Policy(
            source={"database": folder / "hospital.duckdb", "table": "people"},
            attributes=ATTRIBUTES | {"sex": {"role": "quasi", "hierarchy": {"table": "sexes"}}},
            population={"database": folder / "register.duckdb", "table": "people"},
            privacy={"k": 3, "k_map": 3},
            release={"table": "people"},
            catalog={"database": folder / "private.duckdb"},
        )
        with sqlanon.connect() as db:
            db.anonymize(policy).publish(folder / "release.duckdb")
            verification = db.verify(folder / "release.duckdb", policy)
        assert verification.verified
        outcomes.append((verification.manifest.digest, [vars(check) for check in verification.checks]))
    assert outcomes[0] == outcomes[1]


# Releases


@pytest.mark.thorough
def test_macros_in_a_release_are_found_and_change_no_other_check(
    used_functions: set[str], folder: Path, tmp_path: Path
) -> None:
    clean_checks = {name: passed for name, passed, _ in clean("optimal", folder)["checks"]}
    release = Path(shutil.copy(folder / "optimal" / "release.duckdb", tmp_path / "release.duckdb"))
    with duckdb.connect(str(release)) as connection:
        shadow(connection, used_functions)
        shadow(connection, used_functions, schema="sqlanon.")
    verification = verify_file(release)
    checks = {check.name: check.passed for check in verification.checks}
    assert not verification.verified
    assert {name for name, passed in checks.items() if passed is False} == {"macros"}
    assert {name: passed for name, passed in checks.items() if name != "macros"}.items() <= clean_checks.items()


# Live views

LIVE_PRIVACY = {
    "k": 3,
    **DELTA,
    "l_diversity": [
        {"attribute": "diagnosis", "kind": "distinct", "l": 2},
        {"attribute": "diagnosis", "kind": "entropy", "l": 1.5},
        {"attribute": "diagnosis", "kind": "recursive", "l": 2, "c": 9},
    ],
    "t_closeness": [{"attribute": "diagnosis", "distance": kind, "t": 0.7} for kind in ("equal", "ordered")],
    "beta_likeness": [{"attribute": "diagnosis", "beta": 4}],
    "alpha_k": [{"attribute": "diagnosis", "alpha": 0.9}],
}


def live_rows(path: Path) -> tuple[Any, ...]:
    with duckdb.connect(str(path), read_only=True) as reader:
        return (
            sorted(reader.execute("FROM people_live").fetchall()),
            reader.execute('SELECT rows, suppressed, "limit", search_advised FROM sqlanon.live_views').fetchall(),
        )


@pytest.mark.thorough
@pytest.mark.parametrize("when", some(["before", "after"], 2))
def test_macros_change_no_live_view(when: str, used_functions: set[str], tmp_path: Path) -> None:
    outcomes = []
    names = used_functions | {
        "try",
        "len",
        "length",
        "list_reduce",
        "list_sum",
        "list_aggregate",
        "nullif",
        "typeof",
        "error",
    }
    for shadowed in (False, True):
        file = tmp_path / f"{shadowed}.duckdb"
        with duckdb.connect(str(file)) as connection:
            rows_table(connection, "people")
            if shadowed and when == "before":
                shadow(connection, names)
        policy = policy_for({"privacy": LIVE_PRIVACY, "search": {"suppression_limit": 0.3}}, {"table": "people"})
        with sqlanon.connect(file) as db:
            view = db.live(policy)
        if shadowed:
            with duckdb.connect(str(file)) as connection:
                connection.execute("CREATE SCHEMA IF NOT EXISTS sqlanon")
                shadow(connection, names, schema="sqlanon.")
                if when == "after":
                    shadow(connection, names)
        description = asdict(view)
        outcomes.append((description, live_rows(file)))
    assert outcomes[0] == outcomes[1]
    assert outcomes[0][1][0], "the view shows rows"


@pytest.mark.parametrize("person", some([False, True], 2))
def test_all_functions_in_live_views_have_full_names(person: bool) -> None:
    """The functions are those that the engine's own parser finds in the statements, without the system's macros."""
    with duckdb.connect() as connection:
        rows_table(connection, "people")
        connection.execute(
            "CREATE TABLE tree AS SELECT DISTINCT diagnosis AS d, 'ill' AS ill, '*' AS every FROM people"
        )
        closeness = [{"attribute": "diagnosis", "distance": "hierarchical", "t": 0.7}]
        attributes = {
            **ATTRIBUTES,
            "diagnosis": {"role": "sensitive", "hierarchy": {"table": "tree"}},
            "sex": {**ATTRIBUTES["sex"], "forbidden": ["*"]},
        }
        policy = sqlanon.Policy(
            source={"table": "people", **({"person": "name"} if person else {})},
            attributes=attributes,
            privacy={**LIVE_PRIVACY, "t_closeness": [*LIVE_PRIVACY["t_closeness"], *closeness]},
            search={"suppression_limit": 0.3},
        )
        with sqlanon.connect(connection) as db:
            statements = connection.extract_statements(db.live_sql(policy))
        query = "SELECT function_name FROM duckdb_functions() WHERE internal AND function_type = 'macro'"
        own_macros = {name for (name,) in connection.execute(query).fetchall()}
        seen = set()
        for statement in statements:
            text = statement.query
            if not re.search(r"\bAS\s+(WITH|SELECT)\b", text):
                continue
            body = text[re.search(r"\bAS\s+(WITH|SELECT)\b", text).start() + 2 :].rstrip().rstrip(";")
            tree = json.loads(connection.execute("SELECT json_serialize_sql(?)", [body]).fetchone()[0])
            assert not tree["error"], tree
            seen |= set(functions(tree))
    # The parameters of a lambda are parsed as a row. They are none: the macros above change nothing.
    assert {name for catalog, name in seen if catalog != "system"} <= {"row"}
    assert {name for _, name in seen} & own_macros == set()
    assert {"sum", "+", "count_star", "ln"} <= {name for _, name in seen}


def functions(tree: Any) -> Iterator[tuple[str, str]]:
    """The functions in a serialized statement: catalog and name."""
    if isinstance(tree, dict):
        if "function_name" in tree:
            yield tree.get("catalog", ""), tree["function_name"]
        for value in tree.values():
            yield from functions(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from functions(value)
