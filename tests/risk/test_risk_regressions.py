"""Faults of risk, attacks and decoys that were found once: each of them stays mended."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sqlanon
from sqlanon.attacks.findings import Attacks
from sqlanon.cli.printing import print_attackers, print_attacks, print_suda
from sqlanon.errors import PolicyError, SourceError
from sqlanon.risk import Risk
from sqlanon.support.resources import macro_script, read_sql_file
from support.commands import cli
from support.databases import connect_to, live_connection, without_tables
from support.lanes import examples, some
from support.policies import make_policy

QUASI = {"ward": "suppress"}


@pytest.fixture(scope="module")
def shared_connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with live_connection() as connection:
        yield connection


@pytest.fixture
def people(shared_connection: duckdb.DuckDBPyConnection) -> Iterator[duckdb.DuckDBPyConnection]:
    """Two wards of 6 people and one of 1; everybody of a ward has the same job, and one of two illnesses."""
    with without_tables(shared_connection) as connection:
        connection.execute("""
            CREATE TABLE t AS
            SELECT i // 6 AS ward, ['nurse', 'clerk', 'cook'][1 + i // 6] AS job, ['flu', 'gout'][1 + i % 2] AS ill
            FROM range(13) AS t(i)
        """)
        connection.execute("CREATE TABLE none AS FROM t LIMIT 0")
        yield connection


def publish(db: duckdb.DuckDBPyConnection, path: Path, **policy: Any) -> Path:
    with connect_to(db) as database:
        return database.anonymize(make_policy(**policy)).publish(path).path


# --- attacks ----------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_attacks_report_the_number_of_decoys(
    people: duckdb.DuckDBPyConnection, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """k counts them, and so do the victims: who reads these has to know."""
    attributes = {
        "ward": {"role": "quasi", "hierarchy": "suppress", "max_level": 0},
        "job": "sensitive",
        "ill": "sensitive",
    }
    arguments = {"attributes": attributes, "k": 3, "search": {"suppression_limit": 0.5}}
    with_decoys = publish(people, tmp_path / "with.duckdb", **arguments, release={"decoys": True, "table": "t"})
    without = publish(people, tmp_path / "without.duckdb", **arguments, release={"table": "t"})

    outcome = sqlanon.attack(with_decoys, only=["homogeneity"])
    assert [finding.decoys for finding in outcome["homogeneity"].findings] == [2, 2]
    assert outcome["homogeneity"].to_dict()["decoys"] == 2
    assert outcome.decoys == {str(with_decoys): 2}
    print_attacks(outcome, with_sql=False)
    message = f"{with_decoys} has 2 decoys: k, classes and victims count them"
    assert message in capsys.readouterr().out.splitlines()

    (pair,) = sqlanon.attack([without, with_decoys], only=["complementary_release"])["complementary_release"].findings
    assert pair.decoys == 2
    alone = sqlanon.attack(without, only=["homogeneity"])
    assert (alone["homogeneity"].to_dict()["decoys"], alone.decoys) == (0, {})
    print_attacks(alone, with_sql=False)
    assert "decoys" not in capsys.readouterr().out


@pytest.mark.thorough
def test_composition_finds_every_sensitive_attribute(people: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    arguments = {"attributes": {**QUASI, "job": "sensitive", "ill": "sensitive"}, "k": 3}
    limits = {"search": {"suppression_limit": 0.5}, "release": {"table": "t"}}
    paths = [publish(people, tmp_path / f"{name}.duckdb", **arguments, **limits) for name in ("one", "two")]
    outcome = sqlanon.attack(paths, only=["composition"])["composition"]
    assert {finding.figures["attribute"]: finding.victims for finding in outcome.findings} == {"job": 12, "ill": 0}
    assert outcome.victims == 12
    assert len(outcome.to_dict()["findings"]) == 2


@pytest.mark.thorough
def test_victims_of_added_and_removed_rows_have_attribute_names(
    people: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    """This holds also if one of the releases lacks an attribute that comes before others."""
    without = {"ward": "insensitive", "job": "suppress", "ill": "insensitive"}
    first = publish(people, tmp_path / "one.duckdb", attributes=without | {"ward": "identifying"}, k=1)
    people.execute("INSERT INTO t VALUES (0, 'nurse', 'flu')")
    second = publish(people, tmp_path / "two.duckdb", attributes=without | {"ward": "suppress"}, k=1)
    outcome = sqlanon.attack([first, second], only=["temporal"])["temporal"]
    with duckdb.connect() as client:
        description = [client.execute(statement.query) for statement in client.extract_statements(outcome.sql or "")][
            -1
        ].description
    assert [column[0] for column in description or []] == ["rows", "job"]


@pytest.mark.thorough
def test_labels_of_one_level_are_compared_with_the_trees_of_the_policy(tmp_path: Path) -> None:
    """Two releases whose manifests show one rule, made by other trees: with the policy, they are not compared."""
    trees = {"one": {"x": ["a", "b"], "y": ["c", "d"]}, "two": {"p": ["a", "c"], "q": ["b", "d"]}}
    policies: dict[str, sqlanon.Policy] = {}
    with duckdb.connect() as connection:
        connection.execute(
            "CREATE TABLE t AS SELECT ['a', 'b', 'c', 'd'][1 + i % 4] AS v, i // 4 AS cost FROM range(8) AS t(i)"
        )
        with sqlanon.connect(connection) as db:
            for name, categories in trees.items():
                spec = {"role": "quasi", "hierarchy": {"categories": categories}, "min_level": 1, "max_level": 1}
                policies[name] = make_policy({"v": spec, "cost": "insensitive"}, release={"table": "t"})
                db.anonymize(policies[name]).publish(tmp_path / f"{name}.duckdb")
        connection.execute(f"COPY t TO '{tmp_path / 'source.parquet'}'")
    paths, only = [tmp_path / "one.duckdb", tmp_path / "two.duckdb"], ["temporal"]
    assert sqlanon.attack(paths, only=only)["temporal"].skipped is None  # taken for labels of one tree
    source = {"source": {"files": tmp_path / "source.parquet"}}
    policy = sqlanon.Policy(**(policies["one"].model_dump(exclude_none=True) | source))
    with_policy = sqlanon.attack(paths, policy, only=only)["temporal"]
    assert "needs labels that can be compared" in (with_policy.skipped or "")


def test_attacks_are_found_by_name() -> None:
    with pytest.raises(KeyError, match="nothing"):
        Attacks(())["nothing"]


# --- risk -------------------------------------------------------------------------------------------

SEVERAL = """
    CREATE TABLE several AS
    SELECT i % 4 AS "my ""q", i // 3 AS home, if(i = 7, NULL, i // 2) AS person, 1.0 + i % 3 AS weight
    FROM range(11) AS t(i) WHERE i <> 3
"""
HIDDEN = {'my "q': "suppress"}


def several(risk: dict[str, Any] | None = None, person: bool = False, privacy: dict[str, Any] | None = None) -> Any:
    source = {"table": "several", "undeclared": "drop"} | ({"person": "person"} if person else {})
    tree: dict[str, Any] = {"source": source, "privacy": privacy or {"k": 1}} | ({"risk": risk} if risk else {})
    attributes = {name: {"role": "quasi", "hierarchy": rule} for name, rule in HIDDEN.items()}
    return sqlanon.Policy(attributes=attributes, **tree)


@pytest.mark.cases(1)
@pytest.mark.parametrize("person", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("section", "privacy"),
    [
        ({"weights": "weight"}, None),
        ({"weights": "weight", "population": 500}, None),
        ({"population": 40}, None),
        ({"sampling_fraction": 0.3}, None),
        ({}, None),
        ({}, {"population_uniqueness": {"limit": 1, "population": 77}}),
        ({}, {"population_uniqueness": {"limit": 1, "sampling_fraction": 0.2}}),
        ({"population": 40}, {"population_uniqueness": {"limit": 1, "sampling_fraction": 0.2}}),
    ],
)
def test_the_risks_of_rows_are_those_of_the_table(
    section: dict[str, Any], privacy: dict[str, Any] | None, person: bool, people: duckdb.DuckDBPyConnection
) -> None:
    """One share of the population for both, wherever the policy sets it."""
    people.execute(SEVERAL)
    requested_policy = several({"household": "home", **section}, person, privacy)
    with connect_to(people) as db:
        risk, rows = db.risk(requested_policy), db.row_risks(requested_policy)
        names = [name for name in ("household_risk", "individual") if name in rows.columns]
        highest = dict(
            zip(names, rows.aggregate(", ".join(f"max({name})" for name in names)).fetchall()[0], strict=True)
        )
    assert risk.household is not None
    assert highest["household_risk"] == pytest.approx(risk.household.highest, rel=1e-12)
    if "weights" in section:
        assert risk.individual is not None
        assert highest["individual"] == pytest.approx(risk.individual.highest, rel=1e-12)
    elif section or privacy:
        assert highest["individual"] == pytest.approx(risk.journalist.highest, rel=1e-9)
    else:
        assert "individual" not in highest


@pytest.mark.slow
def test_the_risks_of_rows_need_a_population_that_has_the_source(people: duckdb.DuckDBPyConnection) -> None:
    people.execute(SEVERAL)
    with connect_to(people) as db:
        for requested_policy in (
            several({"population": 9}),
            several(privacy={"population_uniqueness": {"limit": 1, "population": 9}}),
        ):
            for ask in (db.risk, db.row_risks, db.suda):
                with pytest.raises(SourceError, match=r"population: is 9, but the source alone has 10"):
                    ask(requested_policy)
        assert db.row_risks(several({"population": 9}, person=True)).fetchall()
        assert db.row_risks(several({"population": 9, "weights": "weight"})).fetchall()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("section", "privacy", "person", "fraction", "by"),
    some(
        [
            ({"sampling_fraction": 0.25}, None, False, 0.25, "policy"),
            ({"population": 40}, None, False, 0.25, "policy"),
            ({"population": 40}, None, True, 7 / 40, "policy"),  # persons 0 to 5, and rows without a person
            ({}, {"population_uniqueness": {"limit": 1, "population": 100}}, False, 0.1, "policy"),
            ({}, None, False, 0.01, "default"),
        ],
        3,
    ),
)
def test_special_uniques_know_the_share_of_the_population(
    section: dict[str, Any],
    privacy: dict[str, Any] | None,
    person: bool,
    fraction: float,
    by: str,
    people: duckdb.DuckDBPyConnection,
    capsys: pytest.CaptureFixture[str],
) -> None:
    people.execute(SEVERAL.replace("i % 4 AS", "i % 7 AS"))
    requested_policy = several(section, person, privacy)
    with connect_to(people) as db:
        by_policy, by_call, same = (
            db.suda(requested_policy),
            db.suda(requested_policy, fraction=0.5),
            db.suda(requested_policy, fraction=fraction),
        )
        assert "CREATE TABLE" in db.suda_sql(requested_policy)
    assert (by_policy.fraction, by_policy.fraction_by) == (pytest.approx(fraction), by)
    assert (by_call.fraction, by_call.fraction_by) == (0.5, "call")
    assert by_policy.dis is not None
    assert by_call.dis is not None
    assert by_policy.dis == pytest.approx(same.dis) != by_call.dis
    assert by_policy.to_dict()["fraction_by"] == by
    print_suda(by_policy)
    words = {"policy": "(of the policy)", "default": "(the default)"}
    assert f"at a sampling fraction of {fraction:g} {words[by]}" in capsys.readouterr().out


def test_special_uniques_on_the_command_line_know_it_too(
    people: duckdb.DuckDBPyConnection,
    tmp_path: Path,
) -> None:
    people.execute(SEVERAL)
    people.execute(f"COPY several TO '{tmp_path / 'several.parquet'}'")
    (tmp_path / "policy.toml").write_text(
        "[source]\nfiles = 'several.parquet'\nundeclared = 'drop'\n"
        "[attributes]\n'my \"q' = { role = 'quasi', hierarchy = 'suppress' }\n"
        "[privacy]\nk = 2\n[risk]\npopulation = 20\n"
    )
    document = json.loads(cli("risk", tmp_path / "policy.toml", "--suda", "--json").out)
    assert (document["suda"]["fraction"], document["suda"]["fraction_by"]) == (0.5, "policy")


@pytest.mark.thorough
def test_the_shares_of_rows_above_a_threshold(
    people: duckdb.DuckDBPyConnection, capsys: pytest.CaptureFixture[str]
) -> None:
    """Classes of 6, 6 and 1 rows, in a population of twice as many."""
    policy = make_policy({**QUASI, "job": "insensitive", "ill": "insensitive"}, risk={"threshold": [0.1, 0.5]})
    with connect_to(people) as db:
        risk = db.risk(policy)
        of_nobody = db.risk(policy.model_copy(update={"source": policy.source.model_copy(update={"table": "none"})}))
    assert risk.prosecutor.rows_above == {"0.1": 13, "0.5": 1}
    assert risk.prosecutor.share_above == {"0.1": 1.0, "0.5": 1 / 13} == risk.journalist.share_above
    assert risk.to_dict()["prosecutor"]["share_above"] == {"0.1": 1.0, "0.5": 1 / 13}
    assert risk.to_dict()["journalist"]["share_above"] == {"0.1": 1.0, "0.5": 1 / 13}
    assert of_nobody.prosecutor.share_above == {"0.1": 0.0, "0.5": 0.0} == of_nobody.journalist.share_above
    print_attackers(risk)
    assert "rows with a prosecutor's risk above 50 %: 1 (7.69 %)" in capsys.readouterr().out
    assert {"prosecutor", "journalist", "marketer", "class_sizes"} <= {
        field.name for field in fields(Risk) if field.default is MISSING and field.default_factory is MISSING
    }


def test_a_matrix_is_of_attributes_whatever_their_case(people: duckdb.DuckDBPyConnection) -> None:
    policy = make_policy({"Ward": "suppress", "job": "suppress", "ill": "insensitive"})
    with connect_to(people) as db:
        matrix = db.uniques_matrix(policy, "ward", "JOB")
        assert (matrix.attributes, matrix.uniques) == (("Ward", "job"), ((1, 1), (1, 0)))
        for first, second, message in (
            ("ill", "job", "--matrix: 'ill' is not a quasi-identifier with a hierarchy: choose from Ward, job"),
            ("ward", "WARD", "--matrix: needs two attributes, and both are 'ward'"),
        ):
            with pytest.raises(PolicyError, match=re.escape(message)):
                db.uniques_matrix(policy, first, second)


# --- macros -----------------------------------------------------------------------------------------

CELLS = st.tuples(st.sampled_from([None, 1, 2, 3]), st.sampled_from(["a", None, "b"]))


@pytest.mark.thorough
@settings(max_examples=examples(25), deadline=None)
@given(
    source_rows=st.lists(CELLS, max_size=8),
    theirs=st.lists(CELLS, max_size=12),
    threshold=st.sampled_from([0, 0.2, 0.5]),
)
def test_the_journalist_of_the_macros_is_that_of_risk(source_rows: Any, theirs: Any, threshold: float) -> None:
    policy = sqlanon.Policy(
        source={"table": "own"},
        population={"table": "theirs"},
        attributes={name: {"role": "quasi", "hierarchy": "suppress"} for name in ("theirs", 'my "n')},
        privacy={"k": 1},
        risk={"threshold": threshold},
    )
    with duckdb.connect() as connection:
        connection.execute(read_sql_file("macros_risk.sql"))
        for name, rows in {"own": source_rows, "theirs": theirs}.items():
            connection.execute(f'CREATE TABLE {name} (theirs INTEGER, "my ""n" VARCHAR)')  # a name of the macro's own
            for row in rows:
                connection.execute(f"INSERT INTO {name} VALUES (?, ?)", list(row))
        with sqlanon.connect(connection) as db:
            risk = db.risk(policy)
        call = f"sqlanon.journalist_risk('own', ['THEIRS', 'my \"n'], 'theirs', threshold := {threshold})"
        relation = connection.execute(f"FROM {call}")
        figures = dict(zip([column[0] for column in relation.description or []], relation.fetchall()[0], strict=True))
    journalist = risk.journalist
    assert figures == {
        "highest": pytest.approx(journalist.highest),
        "average": pytest.approx(journalist.average),
        "rows_at_highest": journalist.rows_at_highest,
        "rows_above": journalist.rows_above[f"{threshold:g}"],
        "expected": pytest.approx(risk.marketer.expected),
        "classes_of_nobody": journalist.classes_of_nobody,
        "rows_of_nobody": journalist.rows_of_nobody,
        "rows": len(source_rows),
    }


@pytest.mark.slow
@pytest.mark.parametrize("names", ["['nope']", "['ward', 'nope']", "['w.*']", "[]", "NULL"])
def test_a_name_that_is_not_there_is_an_error(names: str, people: duckdb.DuckDBPyConnection) -> None:
    people.execute(read_sql_file("macros_risk.sql"))
    with pytest.raises(duckdb.Error):
        people.execute(f"FROM sqlanon.journalist_risk('t', {names}, 't')")


@pytest.mark.thorough
def test_a_file_of_the_releases_version_has_the_macros_word_by_word(tmp_path: Path) -> None:
    """`verify` compares them so: what is read is what was written, in any DuckDB."""
    query = "SELECT function_name, macro_definition FROM duckdb_functions() WHERE schema_name = 'sqlanon' AND "
    with duckdb.connect() as connection:
        connection.execute(macro_script())
        connection.execute(f"ATTACH '{tmp_path / 'release.duckdb'}' AS release (STORAGE_VERSION 'v1.0.0'); USE release")
        connection.execute(macro_script())
        connection.execute(f"USE memory; DETACH release; ATTACH '{tmp_path / 'release.duckdb'}' AS release (READ_ONLY)")
        created, read = (
            set(connection.execute(f"{query} database_name = ?", [name]).fetchall()) for name in ("memory", "release")
        )
    assert {"temporal_classes", "complementary_classes", "journalist_risk"} <= {name for name, _ in created}
    assert created == read


@pytest.mark.thorough
def test_a_stranger_does_not_turn_linking_off(tmp_path: Path) -> None:
    """One person of 101 in the outside table would write all ages with three digits."""
    with duckdb.connect(str(tmp_path / "s.duckdb")) as connection:
        connection.execute("CREATE TABLE t AS SELECT 20 + i AS age, 'd' || i % 3 AS illness FROM range(70) AS r(i)")
        connection.execute("CREATE TABLE voters AS SELECT age, 'p' || age AS name FROM t UNION ALL SELECT 101, 'p101'")
    policy = sqlanon.Policy(
        source={"database": tmp_path / "s.duckdb", "table": "t"},
        attributes={
            "age": {"role": "quasi", "hierarchy": {"intervals": [10, 20]}, "min_level": 1, "max_level": 1},
            "illness": {"role": "sensitive"},
        },
        privacy={"average_risk": 1},
        release={"database": tmp_path / "a.duckdb", "table": "t"},
    )
    with sqlanon.connect() as db:
        db.anonymize(policy).publish()
    outcome = sqlanon.attack(tmp_path / "a.duckdb", policy=policy, outside="voters", only=["linking"])["linking"]
    assert outcome.worst is not None
    assert (outcome.worst.figures["matched"], outcome.worst.figures["none"]) == (70, 1)
