"""`sqlanon attack` and `sqlanon.attack`: on releases, with and without the policy, the source, a table from outside."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import duckdb
import pytest

import sqlanon
from sqlanon.attacks import NAMES, Attacks
from sqlanon.attacks.findings import AvoidableGeneralization
from sqlanon.cli.printing import print_attacks
from sqlanon.errors import BrokenReleaseError, PolicyError, ReleaseError, SourceError
from support.commands import cli
from support.databases import quote_name
from support.lanes import some

ATTRIBUTES: dict[str, Any] = {
    "name": {"role": "identifying"},
    "zip": {"role": "quasi", "hierarchy": {"mask": "right"}},
    'my "age"': {"role": "quasi", "hierarchy": {"intervals": [10, 20]}},
    "problem": {
        "role": "sensitive",
        "hierarchy": {"categories": {"infection": ["flu", "cold", "mumps"], "injury": ["burn", "cut", "bruise"]}},
    },
    "cost": {"role": "insensitive"},
}
ROWS = '''
    SELECT i AS name, (2138 + if(i < 240, i % 4, 0))::VARCHAR AS zip,
        if(i < 240, (i * i + i // 7) % 60, 3) AS "my ""age""",
        ['flu', 'cold', 'mumps', 'burn', 'cut', 'bruise'][1 + (i * i) % 6] AS problem, 10.5 + i AS cost
    FROM range(248) AS t(i)
'''


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database of people and voters, and releases of the people at different levels."""
    place = tmp_path_factory.mktemp("attacks")
    with duckdb.connect(place / "people.duckdb") as connection:
        connection.execute(f"CREATE TABLE people AS {ROWS}")
        connection.execute('CREATE TABLE voters AS SELECT name, zip, "my ""age""" FROM people WHERE name % 3 = 0')
        connection.execute("CREATE TABLE strangers AS SELECT 'x' AS unknown")
        connection.execute("COPY voters TO '" + str(place / "voters.csv") + "'")
    for name, limits in {"one": {"zip": 0, 'my "age"': 3}, "two": {"zip": 4, 'my "age"': 1}}.items():
        publish(place, name, policy_of(place, name, limits))
    return place


def policy_of(place: Path, name: str, levels: dict[str, int], **sections: Any) -> sqlanon.Policy:
    """A policy that permits exactly these levels."""
    attributes = {
        key: attribute | ({"min_level": levels[key], "max_level": levels[key]} if key in levels else {})
        for key, attribute in ATTRIBUTES.items()
    }
    file = name if name.endswith(".parquet") else f"{name}.duckdb"
    target = {"file" if name.endswith(".parquet") else "database": place / file, "table": "people"}
    tree: dict[str, Any] = {
        "source": {"database": place / "people.duckdb", "table": "people"},
        "attributes": attributes,
        "privacy": {"k": 8},
        "release": target,
    }
    return sqlanon.Policy(**(tree | sections))


def publish(place: Path, name: str, policy: sqlanon.Policy) -> Path:
    with sqlanon.connect() as db:
        return db.anonymize(policy).publish().path


def rows_of_statements(sql: str) -> list[list[dict[str, Any]]]:
    """Results of the printed statements, each SELECT by itself, run by any client."""
    with duckdb.connect() as connection:
        tables = []
        for statement in connection.extract_statements(sql):
            cursor = connection.execute(statement.query)
            if statement.type == duckdb.StatementType.SELECT:
                names = [column[0] for column in cursor.description or []]
                tables.append([dict(zip(names, row, strict=True)) for row in cursor.fetchall()])
        return tables


@pytest.fixture(scope="module")
def policy(folder: Path) -> sqlanon.Policy:
    return policy_of(folder, "one", {"zip": 0, 'my "age"': 3})


@pytest.fixture(scope="module")
def all_of_them(folder: Path, policy: sqlanon.Policy) -> Attacks:
    return sqlanon.attack([folder / "one.duckdb", folder / "two.duckdb"], policy, outside="voters")


@pytest.mark.thorough
def test_every_attack_is_made(all_of_them: Attacks) -> None:
    assert tuple(all_of_them) == NAMES
    assert all(outcome.findings for outcome in all_of_them.values())


@pytest.mark.thorough
@pytest.mark.parametrize("name", some(NAMES, 4))
def test_the_sql_shows_the_victims(name: str, all_of_them: Attacks) -> None:
    """The queries run in any DuckDB client; with two releases, each group counts as often as it is in a combination."""
    for finding in all_of_them[name].findings:
        affected_rows = sum(row["rows"] for rows in rows_of_statements(finding.sql) for row in rows)
        if name == "linking":
            assert affected_rows == finding.figures["fewer"]
        elif finding.kept is not None:
            assert (affected_rows, finding.victims) == (finding.kept.rows, 0)
        elif name == "unsorted_matching" and not finding.figures["ordered"]:
            assert finding.victims == 0
        else:
            assert affected_rows >= finding.victims
            assert (affected_rows > 0) == (finding.victims > 0)


@pytest.mark.thorough
def test_joining_releases_at_different_levels_finds_more_victims(all_of_them: Attacks) -> None:
    """The cost is everybody's own: joined on it, everybody has a ZIP and an age group."""
    outcome = all_of_them["complementary_release"]
    assert outcome.worst is not None
    (rows,) = rows_of_statements(outcome.worst.sql)
    assert {frozenset(row) for row in rows} == {frozenset(["rows", "zip", 'my "age"'])}
    assert all(row["rows"] < 8 for row in rows)
    expected = 'SELECT count(*) FROM people GROUP BY zip, "my ""age""" // 10 HAVING count(*) < 8'
    with duckdb.connect(outcome.worst.releases[0].replace("one", "people"), read_only=True) as connection:
        sizes = [n for (n,) in connection.execute(expected).fetchall()]
    assert sorted(row["rows"] for row in rows) == sorted(sizes)
    assert outcome.victims == sum(sizes)
    assert outcome.worst.figures["k"] == 8


@pytest.mark.slow
def test_the_order_of_shuffled_rows_reveals_nothing(all_of_them: Attacks) -> None:
    findings = all_of_them["unsorted_matching"].findings
    assert len(findings) == 3
    assert {finding.releases[1].rsplit("/", 1)[-1] for finding in findings} == {"two.duckdb", "source"}
    assert not any(finding.figures["ordered"] for finding in findings)


@pytest.mark.thorough
def test_a_release_in_the_order_of_the_source_is_found(folder: Path, tmp_path: Path, policy: sqlanon.Policy) -> None:
    """Somebody sorted the released rows as they came."""
    target = tmp_path / "sorted.duckdb"
    shutil.copy(folder / "one.duckdb", target)
    with duckdb.connect(target) as connection:
        connection.execute("CREATE TABLE copied AS FROM people ORDER BY cost")
        connection.execute("DELETE FROM people_v1")
        connection.execute("INSERT INTO people_v1 FROM copied ORDER BY cost")
        connection.execute("DROP TABLE copied")
    outcome = sqlanon.attack(target, policy, only=["unsorted_matching"])["unsorted_matching"]
    assert outcome.worst is not None
    assert outcome.worst.figures["ordered"]
    assert outcome.worst.figures["agreeing"] == 1.0
    # ZIP and age of all persons: these do not occur eight times in the other release.
    assert (
        outcome.victims == sum(row["rows"] for (rows,) in [rows_of_statements(outcome.worst.sql)] for row in rows) > 0
    )


@pytest.mark.slow
def test_attack_without_policy_names_the_missing_policy(folder: Path) -> None:
    outcomes = sqlanon.attack([folder / "one.duckdb", folder / "two.duckdb"])
    assert outcomes["homogeneity"].skipped is None
    for name in ("complementary_release", "temporal", "composition"):
        assert outcomes[name].victims is None
        assert "hierarchies of 'zip', 'my \"age\"'" in str(outcomes[name].skipped)
    assert "policy" in str(outcomes["linking"].skipped)
    assert "policy" in str(outcomes["minimality"].skipped)
    alone = sqlanon.attack(folder / "one.duckdb")
    assert alone["temporal"].skipped == "needs two releases of one table"


@pytest.mark.thorough
def test_linking_with_an_outside_table_counts_matching_rows(folder: Path, policy: sqlanon.Policy) -> None:
    """From the database and from a file the same: who of the list fits how many released rows."""
    of_table, of_file = (
        sqlanon.attack(folder / "one.duckdb", policy, outside=outside, only=["linking"])["linking"].worst
        for outside in ("voters", folder / "voters.csv")
    )
    assert of_table is not None
    assert of_file is not None
    assert of_table.figures == of_file.figures
    with duckdb.connect() as connection:
        connection.execute(f"ATTACH '{folder / 'one.duckdb'}' AS one (READ_ONLY)")
        connection.execute(f"ATTACH '{folder / 'people.duckdb'}' AS people (READ_ONLY)")
        fits = [n for (n,) in connection.execute("""
            SELECT (SELECT count(*) FROM one.people AS r WHERE r.zip = v.zip) FROM people.voters AS v
        """).fetchall()]  # fmt: skip
    figures = of_table.figures
    assert (figures["none"], figures["one"], figures["fewer"]) == (0, 0, 0)
    assert figures["matched"] == 248
    assert min(fits) >= 8


@pytest.mark.slow
def test_one_table_cannot_be_a_table_from_outside(folder: Path, policy: sqlanon.Policy) -> None:
    with pytest.raises(SourceError, match="none of the quasi-identifiers"):
        sqlanon.attack(folder / "one.duckdb", policy, outside="strangers")
    with pytest.raises(SourceError, match="--outside nobody"):
        sqlanon.attack(folder / "one.duckdb", policy, outside="nobody")
    with pytest.raises(PolicyError, match="needs a policy"):
        sqlanon.attack(folder / "one.duckdb", outside="voters")


@pytest.mark.slow
def test_wrong_requests_are_refused(folder: Path) -> None:
    with pytest.raises(PolicyError, match="unknown attack 'guessing'") as error:
        sqlanon.attack(folder / "one.duckdb", only=["guessing"], known=-1)
    assert len(error.value.problems) == 2
    with pytest.raises(ReleaseError, match="does not exist"):
        sqlanon.attack(folder / "nothing.duckdb")
    with pytest.raises(ReleaseError):
        sqlanon.attack(folder / "people.duckdb")


@pytest.mark.slow
def test_a_view_in_place_of_the_rows_is_refused(folder: Path, tmp_path: Path, policy: sqlanon.Policy) -> None:
    """A view could read files of the user who attacks the release."""
    target = tmp_path / "bad.duckdb"
    shutil.copy(folder / "one.duckdb", target)
    with duckdb.connect(target) as connection:
        connection.execute("DROP VIEW class_sizes")
        connection.execute("DROP VIEW people")
        connection.execute("ALTER TABLE people_v1 RENAME TO rows_of_people")
        connection.execute("CREATE VIEW people_v1 AS FROM rows_of_people")
    for policy_given in (None, policy):
        with pytest.raises(BrokenReleaseError, match="not in a plain table"):
            sqlanon.attack(target, policy_given)


@pytest.mark.thorough
def test_parquet_releases_have_the_victims_of_duckdb_releases(folder: Path, policy: sqlanon.Policy) -> None:
    path = publish(folder, "three.parquet", policy_of(folder, "three.parquet", {"zip": 4, 'my "age"': 1}))
    outcomes = sqlanon.attack([folder / "one.duckdb", path], policy, only=["complementary_release", "homogeneity"])
    same = sqlanon.attack([folder / "one.duckdb", folder / "two.duckdb"], policy, only=["complementary_release"])
    assert outcomes["complementary_release"].victims == same["complementary_release"].victims
    worst = outcomes["complementary_release"].worst
    assert worst is not None
    assert sum(row["rows"] for (rows,) in [rows_of_statements(worst.sql)] for row in rows) == worst.victims
    assert sqlanon.attack(path)["homogeneity"].victims is not None


@pytest.mark.slow
def test_medians_are_not_compared(folder: Path, policy: sqlanon.Policy) -> None:
    """They do not name the values of a class: the attack reports this instead of finding nothing."""
    search = {"strategy": "mondrian", "summary": "median"}
    path = publish(folder, "median", policy_of(folder, "median", {}, search=search))
    outcomes = sqlanon.attack([folder / "one.duckdb", path], policy, "voters")
    for name in ("complementary_release", "temporal", "composition"):
        assert "medians, more than 4,000 ranges" in str(outcomes[name].skipped)
    for name in ("unsorted_matching", "linking"):
        assert "medians, more than 4,000 ranges" in str(outcomes[name].skipped)
        assert [finding.releases[0] for finding in outcomes[name].findings] == [str(folder / "one.duckdb")]


@pytest.mark.thorough
def test_ranges_are_linked(folder: Path, policy: sqlanon.Policy) -> None:
    """Every voter fits the class that he is in, and so at least k rows."""
    path = publish(folder, "ranges", policy_of(folder, "ranges", {}, search={"strategy": "mondrian"}))
    with duckdb.connect(path, read_only=True) as connection:
        (ranges,) = connection.execute('SELECT count(*) FILTER (contains("my ""age""", \'-\')) FROM people').fetchall()[
            0
        ]
    assert ranges > 100
    outcomes = sqlanon.attack([folder / "one.duckdb", path], policy, "voters", ["linking", "temporal"])
    figures = outcomes["linking"].findings[1].figures
    assert (figures["none"], figures["one"], figures["fewer"]) == (0, 0, 0)
    assert figures["matched"] > 200
    assert outcomes["temporal"].victims == 0


@pytest.mark.thorough
@pytest.mark.parametrize("strategy", ["subtree"])
def test_releases_of_several_levels_can_be_attacked(strategy: str, folder: Path, policy: sqlanon.Policy) -> None:
    path = publish(folder, strategy, policy_of(folder, strategy, {}, search={"strategy": strategy}))
    outcomes = sqlanon.attack([folder / "one.duckdb", path], policy, only=["complementary_release", "temporal"])
    assert outcomes["complementary_release"].skipped is None
    assert outcomes["temporal"].victims == 0


@pytest.mark.thorough
def test_masked_rows_are_at_the_top(folder: Path, policy: sqlanon.Policy) -> None:
    masking = policy_of(
        folder, "masked", {"zip": 0, 'my "age"': 2}, privacy={"k": 22}, search={"suppression_limit": 0.95},
        release={"database": folder / "masked.duckdb", "table": "people", "suppressed": "mask"},
    )  # fmt: skip
    path = publish(folder, "masked", masking)
    outcomes = sqlanon.attack([folder / "one.duckdb", path], policy, only=["complementary_release", "temporal"])
    assert outcomes["temporal"].victims == 0
    assert outcomes["complementary_release"].skipped is None


@pytest.mark.thorough
def test_temporal_finds_the_row_that_was_added(folder: Path, policy: sqlanon.Policy, tmp_path: Path) -> None:
    shutil.copy(folder / "people.duckdb", tmp_path / "people.duckdb")
    with duckdb.connect(tmp_path / "people.duckdb") as connection:
        connection.execute("INSERT INTO people VALUES (999, '2138', 3, 'flu', 999)")
    later = publish(tmp_path, "later", policy_of(tmp_path, "later", {"zip": 0, 'my "age"': 3}))
    outcome = sqlanon.attack([later, folder / "one.duckdb"], only=["temporal"])["temporal"]
    assert outcome.worst is not None
    added = (
        {"added": 1, "removed": 0} if outcome.worst.releases[0].endswith("one.duckdb") else {"added": 0, "removed": 1}
    )
    assert {name: outcome.worst.figures[name] for name in added} == added
    assert outcome.victims == 1


@pytest.mark.slow
def test_attack_sql_is_the_same_sql(folder: Path, policy: sqlanon.Policy, all_of_them: Attacks) -> None:
    text = sqlanon.attack_sql([folder / "one.duckdb", folder / "two.duckdb"], policy, outside="voters")
    for outcome in all_of_them.values():
        assert f"-- {outcome.name}\n" in text
        assert all(finding.sql in text for finding in outcome.findings)
    assert "needs two releases" in sqlanon.attack_sql(folder / "one.duckdb", only=["temporal"])


def test_attack_command_prints_outcomes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    command_line = ["attack", "one.duckdb", "two.duckdb"]
    done = cli(*command_line, "--only", "homogeneity,temporal", "--json")
    assert (done.status, done.err) == (0, "")
    document = json.loads(done.out)
    assert list(document) == ["homogeneity", "temporal"]
    assert document["homogeneity"]["victims"] is not None
    assert document["homogeneity"]["sql"].startswith("ATTACH")
    assert document["temporal"]["victims"] is None
    assert document["temporal"]["skipped"].startswith("needs a policy")
    for arguments in (["--only", "x"], ["--outside", "voters"], ["--known", "-1"]):
        done = cli("attack", "one.duckdb", *arguments)
        assert done.status == 2
        assert arguments[0] in done.err and "Traceback" not in done.err
    done = cli("attack", "one.duckdb")
    assert done.status == 0
    assert "background knowledge" in done.out


PROBLEM = {"attribute": "problem"}
POLICIES: dict[str, dict[str, Any]] = {
    "distinct": {"privacy": {"k": 8, "l_diversity": [PROBLEM | {"kind": "distinct", "l": 2}]}},
    "entropy": {"privacy": {"k": 8, "l_diversity": [PROBLEM | {"kind": "entropy", "l": 2}]}},
    "recursive": {"privacy": {"k": 8, "l_diversity": [PROBLEM | {"kind": "recursive", "l": 2, "c": 4}]}},
    "equal": {"privacy": {"k": 8, "t_closeness": [PROBLEM | {"distance": "equal", "t": 0.5}]}},
    "ordered": {"privacy": {"k": 8, "t_closeness": [PROBLEM | {"distance": "ordered", "t": 0.5}]}},
    "hierarchical": {"privacy": {"k": 8, "t_closeness": [PROBLEM | {"distance": "hierarchical", "t": 0.5}]}},
    "delta": {"privacy": {"k": 8, "delta_disclosure": [PROBLEM | {"delta": 3}]}},
    "beta": {"privacy": {"k": 8, "beta_likeness": [PROBLEM | {"beta": 6}]}},
    "alpha": {"privacy": {"k": 8, "alpha_k": [PROBLEM | {"alpha": 0.8}]}},
    "shield": {"privacy": {"k": 8, "k_anonymity": [{"quasi": ["zip"], "k": 20}]}},
    "average": {"privacy": {"k": 8, "average_risk": 0.1}},
    "masked": {"search": {"suppression_limit": 0.5}, "suppressed": "mask"},
    "mondrian": {"search": {"strategy": "mondrian"}},
    "sets": {"search": {"strategy": "mondrian", "summary": "set"}},
    "k-similar": {"search": {"strategy": "k-similar"}},
    "subtree": {"search": {"strategy": "subtree"}},
    "local": {
        "search": {"strategy": "local"},
        "privacy": {"k": 8, "l_diversity": [PROBLEM | {"kind": "distinct", "l": 2}]},
    },
    "mu-argus": {"search": {"strategy": "mu-argus"}},
    "cells": {"search": {"suppression_limit": 0.5, "suppression": "cells"}},
}


@pytest.mark.thorough
@pytest.mark.parametrize("name", POLICIES)
def test_all_attacks_run_on_releases_of_all_kinds_of_policies(name: str, folder: Path, tmp_path: Path) -> None:
    """Each attack has findings, or says what it needs; two releases are attacked together."""
    more = dict(POLICIES[name])
    masked = {"suppressed": more.pop("suppressed")} if "suppressed" in more else {}
    release = {"database": tmp_path / "r.duckdb", "table": "people", **masked}
    policy = policy_of(folder, name, {}, release=release, **more)
    published = publish(folder, name, policy)
    shutil.copy(published, tmp_path / "again.duckdb")
    outcomes = sqlanon.attack([published, tmp_path / "again.duckdb"], policy, outside="voters")
    assert tuple(outcomes) == NAMES
    for outcome in outcomes.values():
        assert outcome.findings or outcome.skipped
        assert all(0 <= finding.victims <= finding.rows for finding in outcome.findings)
        json.dumps(outcome.to_dict())
    assert outcomes["homogeneity"].findings
    if outcomes["downcoding"].skipped is None:
        assert len(outcomes["downcoding"].findings) == 2


@pytest.mark.slow
def test_unneeded_detail_is_not_a_breach(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One group of 30 needs coarse ages, so all rows of a full-domain release have them; this creates no victims."""
    with duckdb.connect(folder / "uneven.duckdb") as connection:
        rows = """SELECT i AS name, if(i < 30, i, 40 + 10 * (i % 2)) AS age, if(i < 30, 'a', 'b') AS ward
            FROM range(130) AS t(i)"""
        connection.execute(f"CREATE TABLE people AS {rows}")
    tree: dict[str, Any] = {
        "source": {"database": folder / "uneven.duckdb", "table": "people"},
        "attributes": {
            "name": {"role": "identifying"},
            "age": {"role": "quasi", "hierarchy": {"intervals": [10, 40]}},
            "ward": {"role": "quasi", "hierarchy": "suppress"},
        },
        "privacy": {"k": 25},
        "release": {"database": folder / "coarse.duckdb", "table": "people"},
    }
    policy = sqlanon.Policy(**tree)
    with sqlanon.connect() as db:
        result = db.anonymize(policy)
        finer = db.anonymize(sqlanon.Policy(**tree, search={"strategy": "local"}))
        release = result.publish()
    assert result.generalization == {"age": 2, "ward": 0}
    outcomes = sqlanon.attack(release.path, policy, only=["downcoding", "homogeneity"])
    assert outcomes["downcoding"].victims == 0
    assert outcomes["downcoding"].worst is not None
    # Those of ward b are 40 or 50 years old, 50 of each.
    assert outcomes["downcoding"].worst.kept == AvoidableGeneralization(100, "local")
    assert outcomes["downcoding"].to_dict()["could_be_finer"] == 100
    assert finer.classes > result.classes
    print_attacks(outcomes, with_sql=False)
    printed = capsys.readouterr()
    text = " ".join((printed.out + printed.err).split())
    assert "downcoding (no breach): 100 rows (76.9 %) of " in text
    assert 'strategy = "local"' in text


@pytest.mark.slow
@pytest.mark.parametrize("name", some(["district", "label", "Ground", "n", "c0"], 4))
def test_a_column_that_gives_a_generalized_one_away_is_found_whatever_its_name(name: str, tmp_path: Path) -> None:
    people = "people" if name == "district" else 'all "people".'  # no name that can be taken apart
    with duckdb.connect(tmp_path / "people.duckdb") as connection:
        connection.execute(
            f"CREATE TABLE {quote_name(people)} AS "
            f"SELECT (i % 3)::VARCHAR AS zip, 'of ' || i % 3 AS {name} FROM range(240) AS t(i)"
        )
    policy = sqlanon.Policy(
        source={"database": str(tmp_path / "people.duckdb"), "table": people},
        attributes={
            "zip": {"role": "quasi", "hierarchy": {"mask": "right"}, "min_level": 1},
            name: {"role": "sensitive"},
        },
        privacy={"k": 5},
        release={"database": str(tmp_path / "release.duckdb"), "table": "people"},
    )
    with sqlanon.connect() as db:
        db.anonymize(policy).publish()
    outcomes = sqlanon.attack([tmp_path / "release.duckdb"], policy=policy, only=["dependencies"])
    assert outcomes.to_dict()["dependencies"]["victims"] == 240
