"""The command line as the contract has it: exit statuses, what goes to stdout and stderr, JSON, and no traceback."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest

from sqlanon.audit.verify import verify_file
from support.command_folder import folder, prepared_folder, rewrite, sqlanon_process
from support.commands import Ended, cli
from support.databases import change, fetch
from support.hospital import HOSPITAL_POLICY
from support.lanes import some

__all__ = ["folder", "prepared_folder"]  # fixtures


@pytest.fixture(scope="module")
def anonymized_folder(prepared_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Ended]:
    """A folder with a source, a policy and its release, which tests must not change, and the output of the command."""
    place = tmp_path_factory.mktemp("published")
    shutil.copy(prepared_folder, place)
    (place / "policy.toml").write_text(HOSPITAL_POLICY)
    return place, cli("anonymize", place / "policy.toml")


@pytest.fixture
def published_release(anonymized_folder: tuple[Path, Ended]) -> Path:
    """The folder with the published release."""
    return anonymized_folder[0]


@pytest.fixture
def copied_folder(published_release: Path, tmp_path: Path) -> Path:
    """A copy of that folder."""
    return Path(shutil.copytree(published_release, tmp_path / "copied"))


# Done: 0


@pytest.mark.thorough
def test_a_release_that_breaks_an_earlier_one_is_only_published_with_force(folder: Path) -> None:
    policy = rewrite(folder, 'database = "release.duckdb"', 'database = "one.duckdb"\n[catalog]\ndatabase = "c.duckdb"')
    assert cli("anonymize", policy).status == 0
    change(folder / "hospital.duckdb", "INSERT INTO patients SELECT * FROM patients LIMIT 1")
    rewrite(folder, '"one.duckdb"', '"two.duckdb"')
    ended = cli("anonymize", policy)
    assert (ended.status, "together with" in ended.err, "--force" in ended.err) == (1, True, True)
    assert not (folder / "two.duckdb").exists()
    assert cli("anonymize", policy, "--force").status == 0
    assert (folder / "two.duckdb").exists()


@pytest.mark.thorough
def test_anonymize_prints_one_json_object(folder: Path) -> None:
    ended = cli("anonymize", folder / "policy.toml", "--json")
    assert (ended.status, ended.err) == (0, "")
    assert ended.out.count("\n") == 1
    printed = json.loads(ended.out)
    manifest = verify_file(folder / "release.duckdb").manifest
    assert set(printed) >= {
        "rows", "released_rows", "suppressed_rows", "classes", "smallest_class", "generalization", "measure", "score",
        "lattice", "optimal", "release", "table", "seconds",
    }  # fmt: skip
    for name in (
        "rows",
        "released_rows",
        "suppressed_rows",
        "classes",
        "smallest_class",
        "measure",
        "optimal",
    ):
        assert printed[name] == getattr(manifest, name), name
    assert manifest.score is None  # loss follows from values that are not released
    assert printed["generalization"] == manifest.generalization
    assert list(printed["generalization"]) == ["zip", "age"]
    assert printed["lattice"]["nodes"] == 30
    assert 0 < printed["lattice"]["checked"] <= 30
    assert (printed["release"], printed["table"]) == (str(folder / "release.duckdb"), "patients")
    assert set(printed["seconds"]) >= {"load", "search", "publish", "total"}
    assert all(value >= 0 for value in printed["seconds"].values())
    assert printed["seconds"]["total"] >= printed["seconds"]["search"] + printed["seconds"]["publish"]


@pytest.mark.thorough
def test_a_dry_run_publishes_and_records_nothing(folder: Path) -> None:
    policy = rewrite(folder, 'database = "release.duckdb"', "")  # and it needs no place
    outcome = cli("anonymize", policy, "--dry-run")
    assert (outcome.status, outcome.err) == (0, "")
    assert "rows to be released" in outcome.out and "optimal among full-domain generalizations" in outcome.out
    printed = json.loads(cli("anonymize", policy, "--dry-run", "--json", "--set", "privacy.k=9").out)
    assert printed["dry_run"] is True and printed["smallest_class"] >= 9 and "release" not in printed
    assert {path.name for path in folder.iterdir()} == {"hospital.duckdb", "policy.toml"}


@pytest.mark.thorough
def test_dry_run_refuses_unpublishable_policies(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sqlanon.result.Result.refusals", ("age gives zip away",))
    ended = cli("anonymize", folder / "policy.toml", "--dry-run")
    assert (ended.status, ended.out) == (1, "")
    assert "age gives zip away" in ended.err


@pytest.mark.thorough
def test_the_catalog_records_overridden_settings(folder: Path) -> None:
    policy, changes = folder / "policy.toml", ("--set", "privacy.k=9")
    ended = cli("anonymize", policy, *changes, "--strategy", "datafly", "--output", "other.duckdb", cwd=folder)
    assert ended.status == 0
    assert verify_file(folder / "other.duckdb").manifest.smallest_class >= 9
    (catalog,) = folder.glob("*catalog.duckdb")
    assert fetch(catalog, "SELECT strategy FROM sqlanon.runs") == [("datafly",)]
    again = (*changes, "--set", "search.strategy=datafly", "--set", "release.database=other.duckdb")
    assert cli("verify", folder / "other.duckdb", "--policy", policy, *again).status == 0
    assert cli("verify", folder / "other.duckdb", "--policy", policy).status == 1  # the file has another k


@pytest.mark.thorough
@pytest.mark.parametrize("output", ["other.duckdb", "other.parquet"])
def test_a_release_is_verified_with_its_policy_wherever_it_was_published_to(folder: Path, output: str) -> None:
    assert cli("anonymize", folder / "policy.toml", "--output", output, cwd=folder).status == 0
    ended = cli("verify", folder / output, "--policy", folder / "policy.toml")
    assert (ended.status, ended.err) == (0, "")
    other_policy = rewrite(folder, "k = 5", "k = 4")
    assert "the release was made by this policy" in cli("verify", folder / output, "--policy", other_policy).out
    assert cli("verify", folder / output, "--policy", other_policy).status == 1


@pytest.mark.thorough
def test_warnings_go_to_stderr_and_leave_the_json_alone(folder: Path) -> None:
    ended = cli("anonymize", rewrite(folder, '"identifying"', '"insensitive"'), "--json")
    assert ended.status == 0
    assert "warning: column 'name' is nearly unique" in ended.err
    assert json.loads(ended.out)["rows"] == 400


ADULT = ["sex", "age", "race", "marital-status", "education", "native-country", "workclass", "salary-class"]


def adult_policy(data: Path, folder: Path) -> Path:
    lines = [
        "[source]",
        f"files = {json.dumps(str(data / 'adult' / 'adult.csv'))}",
        'undeclared = "drop"',
        "[attributes]",
    ]
    for name in ADULT:
        file = json.dumps(str(data / "adult" / f"hierarchy_{name}.csv"))
        lines.append(f'{name} = {{ role = "quasi", hierarchy = {{ file = {file} }} }}')
    lines += ["[privacy]", "k = 5", "[search]", "suppression_limit = 0.05"]
    lines += ["[release]", 'database = "release.duckdb"', 'table = "patients"']
    (folder / "adult.toml").write_text("\n".join(lines))
    return folder / "adult.toml"


@pytest.mark.slow
def test_risk_prints_the_risk_of_the_source(folder: Path) -> None:
    with duckdb.connect(folder / "hospital.duckdb", read_only=True) as connection:
        sizes = [n for (n,) in connection.execute("SELECT count(*) FROM patients GROUP BY zip, age").fetchall()]
    ended = cli("risk", folder / "policy.toml", "--json")
    assert (ended.status, ended.err) == (0, "")
    printed = json.loads(ended.out)
    expected = {
        "rows": 400, "classes": len(sizes), "smallest_class": min(sizes), "uniques": sizes.count(1), "k": 5,
        "rows_below_k": sum(n for n in sizes if n < 5), "highest_risk": 1 / min(sizes),
        "average_risk": len(sizes) / 400,
        "requirements": [{
            "requirement": "5-anonymity", "holds": False, "classes": sum(n < 5 for n in sizes),
            "rows": sum(n for n in sizes if n < 5),
        }],
    }  # fmt: skip
    assert {name: printed[name] for name in expected} == expected
    outcome = cli("risk", folder / "policy.toml")
    assert outcome.status == 0
    assert f"unique rows: {sizes.count(1)} (" in outcome.out
    assert "5-anonymity" in outcome.out
    assert {path.name for path in folder.iterdir()} == {"hospital.duckdb", "policy.toml"}


def verdict(done: Ended) -> str:
    """From what was verified to the end."""
    return done.out[done.out.index("\nVerified: ") + 1 :]


@pytest.mark.slow
def test_verify_prints_passed_checks(published_release: Path) -> None:
    release, policy = published_release / "release.duckdb", published_release / "policy.toml"
    outcome = cli("verify", release)
    assert (outcome.status, outcome.err) == (0, "")
    assert verdict(outcome).splitlines()[:3] == [
        "Verified: 5-anonymity and 14 other checks",
        "Needs the source: whether the rows come from it. To check: add --policy POLICY.toml",
        "Unverified claims of the manifest: published_at, sqlanon_version, engine, version, policy_hash, rows, "
        "suppressed_rows, optimal. To check: add --sha256 HEX",
    ]
    whole = verdict(cli("verify", release, "--policy", policy))
    assert whole.startswith("Verified: 5-anonymity and ") and "Needs" not in whole and "claims" not in whole.lower()
    printed = json.loads(cli("verify", release, "--policy", policy, "--json").out)
    assert (printed["verified"], printed["release"], printed["table"]) == (True, str(release), "patients")
    assert printed["claims"] == []
    assert all(check["passed"] for check in printed["checks"])
    names = {check["name"] for check in printed["checks"]}
    assert {"content digest", "columns", "rows", "against the source: generalization"} <= names


@pytest.mark.thorough
def test_verify_of_a_release_with_a_changed_row_is_1(copied_folder: Path) -> None:
    release, policy = copied_folder / "release.duckdb", copied_folder / "policy.toml"
    change(release, "UPDATE patients_v1 SET illness = 'none' WHERE rowid = 3")
    outcome = cli("verify", release)
    assert outcome.status == 1
    assert re.search(r"^FAILED +content digest  ", outcome.out, re.MULTILINE)
    assert outcome.out.splitlines()[-1] == "NOT verified: content digest"
    ended = cli("verify", release, "--policy", policy, "--json")
    assert ended.status == 1
    assert json.loads(ended.out)["verified"] is False


@pytest.mark.thorough
def test_verify_names_the_requirements_that_need_the_source(folder: Path) -> None:
    close = "k = 5\n[[privacy.t_closeness]]\nattribute = 'illness'\ndistance = 'equal'\nt = 0.9"
    policy = rewrite(folder, "k = 5", close)
    assert cli("anonymize", policy).status == 0
    last = verdict(cli("verify", folder / "release.duckdb"))
    assert last.startswith("Verified: 5-anonymity and ")
    assert "\nNeeds the source: equal 0.9-closeness of illness, whether the rows come from it. To check: add " in last
    last = verdict(cli("verify", folder / "release.duckdb", "--policy", policy))
    assert last.startswith("Verified: 5-anonymity, equal 0.9-closeness of illness and ")


@pytest.mark.slow
def test_relative_paths_start_at_the_policy_or_the_current_folder(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    monkeypatch.chdir(elsewhere)
    assert cli("anonymize", os.path.relpath(folder / "policy.toml")).status == 0
    assert list(elsewhere.iterdir()) == []
    monkeypatch.chdir(folder)
    assert json.loads(cli("verify", "release.duckdb", "--json").out)["release"] == str(folder / "release.duckdb")
    assert str(folder / "new.duckdb") in cli("init", "new.duckdb").out


# plan: reads no rows

FORBIDDEN = (
    "SELECT error(name) AS name, error(zip) AS zip, error(name)::INTEGER AS age, error(zip) AS illness FROM patients"
)


@pytest.mark.thorough
def test_plan_shows_the_stages_and_their_sql(folder: Path) -> None:
    ended = cli("plan", folder / "policy.toml", "--sql")
    assert (ended.status, ended.err) == (0, "")
    stages = re.findall(r"^-- \d+\. ([^:]+):", ended.out, re.MULTILINE)
    before = ["scan", "hierarchies", "frequency set", "search", "dependencies"]
    assert stages == [*before, "recode and suppress", "audit and publish"]
    for statement in ("GROUP BY", "CREATE TABLE", "RANDOM()", "sqlanon"):
        assert statement in ended.out
    assert "depends on the data" in ended.out  # on the longest ZIP
    assert {path.name for path in folder.iterdir()} == {"hospital.duckdb", "policy.toml"}


@pytest.mark.thorough
def test_plan_has_a_summary_on_one_screen(folder: Path) -> None:
    policy = folder / "policy.toml"
    ended = cli("plan", policy)
    assert (ended.status, ended.err) == (0, "")
    *lines, command = ended.out.splitlines()
    assert max(map(len, lines)) <= 80 and len(lines) < 24
    text = " ".join(" ".join(lines).split())
    every = cli("plan", policy, "--sql").out
    for number, name in re.findall(r"^-- (\d+)\. ([^:]+):", every, re.MULTILINE):
        statements = every.partition(f"-- {number}. ")[2].partition("\n")[2].partition("\n\n")[0].split(";\n")
        assert f"{name} ({len(statements)})" in text, number
    assert text.startswith("source: table patients of hospital.duckdb release: release.duckdb, table patients")
    assert "requirements: 5-anonymity strategy: optimal: the best of all generalizations (their number depends" in text
    assert "measure: loss, at most 10 % of the rows suppressed identifying: name sensitive: illness" in text
    assert "zip mask from the right age intervals of 5, 10" in text
    assert command == f"Nothing was run. To print the statements: sqlanon plan {policy} --sql"


@pytest.mark.thorough
def test_a_plan_of_many_columns_and_long_names_fits_on_a_screen(tmp_path: Path) -> None:
    names = [f"{'a_rather_long_name_of_a_column_' * 2}{i}" for i in range(20)]
    columns = ", ".join(f"1 AS {name}" for name in [*names, *(f"i{i}" for i in range(40))])
    with duckdb.connect(tmp_path / "wide.duckdb") as connection:
        connection.execute(f"CREATE TABLE t AS SELECT {columns}")
    roles = [f'{name} = {{ role = "quasi", hierarchy = "suppress" }}' for name in names]
    roles += [f'i{i} = {{ role = "identifying" }}' for i in range(40)]
    policy = tmp_path / "policy.toml"
    policy.write_text(
        '[source]\ndatabase = "wide.duckdb"\ntable = "t"\n[attributes]\n' + "\n".join(roles)
        + '\n[privacy]\nk = 2\n[search]\nstrategy = "mondrian"\nsummary = "set"\n'
    )  # fmt: skip
    lines = cli("plan", policy).out.splitlines()[:-1]
    assert len(lines) < 24 and max(map(len, lines)) <= 80
    assert "  and 13 more" in lines and not any("lattice" in line for line in lines)


@pytest.mark.slow
def test_plan_knows_the_size_of_a_lattice_that_depends_on_no_data(data: Path, tmp_path: Path) -> None:
    ended = cli("plan", adult_policy(data, tmp_path))
    assert ended.status == 0
    assert "4,320 generalizations" in ended.out


@pytest.mark.thorough
def test_plan_reads_no_rows_of_a_database(folder: Path) -> None:
    """Every value of this source is an error to read."""
    policy = rewrite(folder, 'table = "patients"', f'query = "{FORBIDDEN}"')
    assert cli("plan", policy).status == 0
    assert cli("anonymize", policy).status == 2
    with duckdb.connect(folder / "hospital.duckdb") as connection:
        connection.execute(f"CREATE VIEW seen AS {FORBIDDEN}")
    policy.write_text(HOSPITAL_POLICY.replace('table = "patients"', 'table = "seen"'))
    assert cli("plan", policy).status == 0
    assert cli("anonymize", policy).status == 2


@pytest.mark.slow
def test_plan_reads_no_rows_of_parquet(folder: Path) -> None:
    """The pages are broken; the schema, at the end, is not."""
    path = folder / "patients.parquet"
    with duckdb.connect(folder / "hospital.duckdb", read_only=True) as connection:
        connection.execute(f"COPY patients TO '{path}'")
    content = bytearray(path.read_bytes())
    end = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    content[4:end] = bytes(end - 4)
    path.write_bytes(content)
    policy = rewrite(folder, 'database = "hospital.duckdb"\ntable = "patients"', 'files = "patients.parquet"')
    assert cli("plan", policy).status == 0
    assert cli("anonymize", policy).status == 2


@pytest.mark.thorough
def test_plan_reads_only_the_csv_rows_that_decide_the_schema(folder: Path) -> None:
    """A line far down has a field too many."""
    lines = ["name,zip,age,illness", *(f"Person {i},0213{i % 9},{i % 90},illness {i % 7}" for i in range(200_000))]
    lines[150_000] += ",more"
    (folder / "patients.csv").write_text("\n".join(lines))
    policy = rewrite(folder, 'database = "hospital.duckdb"\ntable = "patients"', 'files = "patients.csv"')
    assert cli("plan", policy).status == 0
    assert cli("anonymize", policy).status == 2


# The answer is no: 1


@pytest.mark.slow
def test_a_source_without_rows_is_1(folder: Path) -> None:
    ended = cli("anonymize", rewrite(folder, 'table = "patients"', 'query = "SELECT * FROM patients LIMIT 0"'))
    assert (ended.status, ended.out) == (1, "")
    assert "0 rows" in ended.err or "no rows" in ended.err


# The request is wrong: 2


def test_five_mistakes_get_five_messages_each_with_its_place(folder: Path) -> None:
    policy = folder / "policy.toml"
    policy.write_text(
        HOSPITAL_POLICY.replace('{ mask = "right" }', '{ mask = "middle" }')
        .replace("[5, 10, 20, 40]", "[5, 12]")
        .replace('"sensitive"', '"delicate"')
        .replace("k = 5", "k = 0")
        .replace("suppression_limit = 0.1", "suppression_limit = 1.5")
    )
    for command in ("anonymize", "plan", "risk"):
        ended = cli(command, policy)
        assert (ended.status, ended.out) == (2, "")
        assert "5 problems in the policy" in ended.err
        messages = [line for line in ended.err.splitlines() if line.startswith("  - ")]
        places = ["attributes.zip.hierarchy", "attributes.age.hierarchy", "attributes.illness.role", "privacy.k",
                  "search.suppression_limit"]  # fmt: skip
        assert len(messages) == 5
        for place in places:
            assert sum(message.startswith(f"  - {place}") for message in messages) == 1, place


HOSTILE = {
    "nothing": b"",
    "binary": bytes(range(256)) * 40,
    "zeros": bytes(1000),
    "a DuckDB file": None,
    "not TOML": b"[source\ndatabase = 'x'",
    "the same section twice": b"[privacy]\nk = 5\n[privacy]\nk = 6\n",
    "arrays in arrays": b"x = " + b"[" * 50_000,
    "tables in tables": b"[" + b".".join([b"a"] * 20_000) + b"]\nk = 1",
    "a number too long": b"[privacy]\nk = " + b"9" * 50_000,
    "a key of control characters": b'"\\u0000\\u001b[31m" = 1',
    "not a table": b"attributes = 5\nprivacy = []\nsource = 'x'\nsearch = true\nrelease = 1.5\ncatalog = 2020-01-01",
    "tables for values": b"[attributes]\nzip = { role = { role = 'quasi' }, hierarchy = [[[{}]]] }\n[privacy]\nk = {}",
    "values for tables": b"[attributes]\nzip = 'quasi'\nage = [1, [2, [3]]]\n[privacy]\nk = 'five'",
    "odd numbers": b"[attributes.a]\nrole = 'quasi'\nhierarchy = { intervals = [nan, inf, -1, 0, 1e400] }\n"
    b"weight = -0.0\n"
    b"[privacy]\nk = true\n[search]\nsuppression_limit = nan",
    "null in a path": b"[source]\ndatabase = \"a\\u0000b\"\ntable = \"t\\u0000\"\n[attributes]\nx = {role='quasi', "
    b"hierarchy='suppress'}\n[privacy]\nk = 2\n[release]\ndatabase = \"r\\u0000\"",
    "a path too long": b"[source]\ndatabase = '" + b"a" * 5000 + b"'\ntable = 't'\n[attributes]\nx = {role='quasi', "
    b"hierarchy='suppress'}\n[privacy]\nk = 2\n[release]\ndatabase = 'r.duckdb'",
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", some(HOSTILE, 2))
def test_a_hostile_policy_is_2_with_a_message(name: str, folder: Path) -> None:
    content = HOSTILE[name]
    (folder / "policy.toml").write_bytes((folder / "hospital.duckdb").read_bytes() if content is None else content)
    before = {path.name for path in folder.iterdir()}
    for command in ("anonymize", "plan"):
        ended = cli(command, folder / "policy.toml")
        assert (ended.status, ended.out) == (2, "")
        assert ended.err.startswith("error: ")
        assert len(ended.err) < 20_000
        assert "internal error" not in ended.err
        assert "\x1b" not in ended.err
        assert "\x00" not in ended.err
    assert {path.name for path in folder.iterdir()} == before


def a_directory(folder: Path) -> Path:
    (folder / "directory.toml").mkdir()
    return folder / "directory.toml"


def a_missing_file(folder: Path) -> Path:
    return folder / "missing.toml"


def a_path_through_a_file(folder: Path) -> Path:
    return folder / "policy.toml" / "policy.toml"


@pytest.mark.parametrize("make", [a_directory, a_missing_file, a_path_through_a_file])
def test_a_missing_policy_file_exits_with_2(make: Callable[[Path], Path], folder: Path) -> None:
    path = make(folder)
    for arguments in (["anonymize", path], ["plan", path], ["risk", path]):
        ended = cli(*arguments)
        assert (ended.status, ended.out) == (2, "")
        assert str(path) in ended.err


WRONG = {
    "a database that is missing": ('"hospital.duckdb"', '"missing.duckdb"', "missing.duckdb"),
    "a table that is missing": ('table = "patients"', 'table = "people"', "patients"),  # says which there are
    "a database that is none": ('"hospital.duckdb"', '"policy.toml"', "policy.toml"),
    "a column that is missing": ("illness = ", "disease = ", "disease"),
    "a column without a role": ('illness = { role = "sensitive" }', "", "illness"),
    "a query that is none": ('table = "patients"', 'query = "SELECT FROM WHERE"', "query"),
    "a query that writes": ('table = "patients"', 'query = "DROP TABLE patients"', "SELECT"),
    "two queries": ('table = "patients"', 'query = "SELECT 1; DROP TABLE patients"', "one SELECT"),
    "a hierarchy file that is missing": ('{ mask = "right" }', '{ file = "no.csv" }', "no.csv"),
    "a hierarchy file that is a directory": ('{ mask = "right" }', '{ file = "." }', "hierarchy"),
    "a hierarchy file that is binary": ('{ mask = "right" }', '{ file = "hospital.duckdb" }', "attributes.zip"),
    "a hierarchy table that is missing": ('{ mask = "right" }', '{ table = "no_such" }', "no_such"),
    "a rule for another type": ("{ intervals = [5, 10, 20, 40] }", '{ dates = ["year"] }', "attributes.age"),
    "files that are missing": ('database = "hospital.duckdb"\ntable = "patients"', 'files = "*.csv"', "*.csv"),
    "files of no kind": (
        'database = "hospital.duckdb"\ntable = "patients"',
        'files = "*.toml"',
        "has an unknown format; known: ",
    ),
    "a release in no folder": ('"release.duckdb"', '"no/where/release.duckdb"', "where"),
    "a release that is a folder": ('"release.duckdb"', '"."', "error"),
    "no place for a release": ('database = "release.duckdb"', "", "release"),
    "a release over the source": ('"release.duckdb"', '"hospital.duckdb"', "source"),
}


@pytest.mark.cases(1)
@pytest.mark.parametrize("name", WRONG)
def test_wrong_request_exits_with_2_and_an_explanation(name: str, folder: Path) -> None:
    old, new, message = WRONG[name]
    before = (folder / "hospital.duckdb").read_bytes()
    ended = cli("anonymize", rewrite(folder, old, new), "--json")
    assert (ended.status, ended.out) == (2, "")
    assert ended.err.startswith("error: ")
    assert message in ended.err
    assert "internal error" not in ended.err
    assert not (folder / "release.duckdb").exists()
    assert (folder / "hospital.duckdb").read_bytes() == before


@pytest.mark.cases(1)
@pytest.mark.parametrize(
    "arguments",
    [
        ["anonymise"],
        ["anonymize"],
        ["anonymize", "--jsn"],
        ["anonymize", "a", "b"],
        ["verify"],
        ["init"],
        ["demo", "--rows", "0"],
        ["demo", "--rows", "many"],
        ["--nonsense"],
    ],
)
def test_wrong_usage_is_2(arguments: list[str]) -> None:
    ended = cli(*arguments)
    assert (ended.status, ended.out) == (2, "")
    assert ended.err != ""


def make_text(path: Path) -> None:
    path.write_text("a letter")


def make_binary(path: Path) -> None:
    path.write_bytes(bytes(range(256)) * 100)


def make_empty(path: Path) -> None:
    path.touch()


def make_directory(path: Path) -> None:
    path.mkdir()


def make_database(path: Path) -> None:
    duckdb.connect(path if path.suffix == ".duckdb" else path.with_suffix(".other")).close()


@pytest.mark.cases(1)
@pytest.mark.parametrize("name", ["r.duckdb", "r.parquet"])
@pytest.mark.parametrize("make", some([make_text, make_binary, make_empty, make_directory, make_database, None], 3))
def test_verify_exits_with_2_on_other_files(make: Callable[[Path], None] | None, name: str, folder: Path) -> None:
    path = folder / name
    if make is not None:
        make(path)
    for more in ([], ["--policy", folder / "policy.toml"]):
        ended = cli("verify", path, *more, "--json")
        assert (ended.status, ended.out) == (2, "")
        assert str(path) in ended.err
        assert "internal error" not in ended.err


@pytest.mark.slow
def test_a_source_that_is_held_for_writing_is_2(folder: Path) -> None:
    holder = "import duckdb, sys; c = duckdb.connect(sys.argv[1]); print('open', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", holder, folder / "hospital.duckdb"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        ended = cli("anonymize", folder / "policy.toml")
        process.communicate("")
    assert (ended.status, ended.out) == (2, "")
    assert "hospital.duckdb" in ended.err
    assert "close" in ended.err


def test_an_error_within_is_2_and_no_traceback(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: Any) -> None:
        raise ZeroDivisionError("Person 7")

    monkeypatch.setattr("sqlanon.pipeline.prepare_with_earlier_releases", failing)
    ended = cli("anonymize", folder / "policy.toml")
    assert (ended.status, ended.out) == (2, "")
    assert ended.err.startswith("error: internal error (ZeroDivisionError)")
    assert "SQLANON_DEBUG" in ended.err
    assert "Person 7" not in ended.err


# As a process of its own


@pytest.mark.thorough
def test_the_process_ends_with_the_status_and_shows_no_progress_in_a_pipe(folder: Path) -> None:
    arguments = ("anonymize", folder / "policy.toml", "--json")
    with sqlanon_process(*arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        out, err = process.communicate()
    assert (process.returncode, err) == (0, "")
    assert json.loads(out)["rows"] == 400
    # A release takes the mode of a new file; the catalog is private.
    assert stat.S_IMODE((folder / "sqlanon.catalog.duckdb").stat().st_mode) == 0o600


@pytest.mark.thorough
def test_a_reader_who_leaves_early_causes_no_traceback(folder: Path) -> None:
    arguments = ("plan", folder / "policy.toml")
    with sqlanon_process(*arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        err = process.stderr.read()
    assert err == b""


COMMANDS, CLOSED = ("--version", "risk policy.toml", "anonymize policy.toml"), (">&-", "2>&-", ">&- 2>&-")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("command", "closed"), some([(command, closed) for command in COMMANDS for closed in CLOSED], 12)
)
def test_a_stream_that_is_closed_from_the_start_changes_no_exit_status(folder: Path, command: str, closed: str) -> None:
    line = f"{shlex.quote(sys.executable)} -m sqlanon {command} {closed}"
    done = subprocess.run(line, shell=True, cwd=folder, check=False, capture_output=True, text=True)
    assert done.returncode == 0
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.slow
def test_the_worst_line_is_of_the_finding_that_affects_the_most_people(tmp_path: Path) -> None:
    """All rows are in a district of four ZIP codes; few have a rare district, which is said of them alone."""
    with duckdb.connect(str(tmp_path / "people.duckdb")) as connection:
        connection.execute("""
            CREATE TABLE people AS
            SELECT lpad((hash(i) % 1000)::VARCHAR, 4, '0') AS zip, 'd' || hash(i) % 1000 // 4 AS district
            FROM range(8000) AS r(i)
        """)
    (tmp_path / "policy.toml").write_text(
        '[source]\ndatabase = "people.duckdb"\ntable = "people"\n[attributes]\n'
        'zip = { role = "quasi", hierarchy = { mask = "right" } }\ndistrict = { role = "insensitive" }\n'
        '[privacy]\nk = 20\n[release]\ndatabase = "out.duckdb"\n',
        encoding="utf-8",
    )
    lines = cli("anonymize", tmp_path / "policy.toml").out.splitlines()
    assert lines[-3].startswith("Narrowing columns: district narrows a label of zip from 10.0 to 3.")
    price = re.fullmatch(
        r"What prevents it costs: loss ([\d.]+) instead of ([\d.]+), on a sample of .* rows\.", lines[-2]
    )
    assert price is not None and float(price[1]) > float(price[2])
