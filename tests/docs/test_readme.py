"""The README and the pages of docs/ are true: their policies, commands, Python and SQL run unchanged."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import shutil
from pathlib import Path

import duckdb
import pytest

from sqlanon import Policy, connect
from sqlanon.demo.hospital import make_hospital
from sqlanon.demo.story import clinic_figures, figures, run_demo
from sqlanon.ledger.catalog import init_database
from sqlanon.measures import MEASURES, Measure
from sqlanon.noise.statements import NoisyColumn, can_be_noisy
from sqlanon.policy.models import parse_toml
from sqlanon.policy.strategies import STRATEGIES as STRATEGIES_BY_NAME
from sqlanon.requirements import requirement_types
from support.commands import cli
from support.databases import opened_catalog
from support.files import ROOT
from support.lanes import some
from support.pages import FIRST_POLICY, FOLDER, README, SPARK, blocks

FIRST_RELEASE = (ROOT / "docs" / "tutorial" / "first-release.md").read_text(encoding="utf-8")
MORE_THAN_K = (ROOT / "docs" / "how-to" / "requirements.md").read_text(encoding="utf-8")
PICK_A_STRATEGY = (ROOT / "docs" / "how-to" / "strategy.md").read_text(encoding="utf-8")
FROM_PYTHON = (ROOT / "docs" / "how-to" / "python.md").read_text(encoding="utf-8")
LARGE_TABLES = (ROOT / "docs" / "how-to" / "large-tables.md").read_text(encoding="utf-8")
PRIVATE_FILES = (ROOT / "docs" / "explanation" / "private-files.md").read_text(encoding="utf-8")
REQUIREMENTS = (ROOT / "docs" / "reference" / "requirements.md").read_text(encoding="utf-8")
STRATEGIES = (ROOT / "docs" / "reference" / "strategies.md").read_text(encoding="utf-8")
NOISE = (ROOT / "docs" / "explanation" / "noise.md").read_text(encoding="utf-8")
PUBLISH_AGAIN = (ROOT / "docs" / "how-to" / "publish-again.md").read_text(encoding="utf-8")
DECOYS = (ROOT / "docs" / "explanation" / "decoys.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the demo's hospital and the tutorial's policies."""
    folder = tmp_path_factory.mktemp("readme")
    (folder / FOLDER).mkdir()
    make_hospital(folder / FOLDER / "hospital.duckdb")
    (first,), (privacy, _) = blocks("toml", FIRST_POLICY), blocks("toml", MORE_THAN_K)
    second = re.sub(r"^\[privacy\]\n.*?(?=^\[search\])", lambda _: privacy, first, flags=re.MULTILINE | re.DOTALL)
    (folder / FOLDER / "first.toml").write_text(first, encoding="utf-8")
    (folder / FOLDER / "second.toml").write_text(second.replace("first.duckdb", "second.duckdb"), encoding="utf-8")
    return folder


def commands() -> list[list[str]]:
    """The arguments of the tutorial's commands."""
    lines = [shlex.split(line, comments=True) for line in blocks("sh", FIRST_POLICY)[1].splitlines()]
    assert all(program == "sqlanon" for program, *_ in lines)
    return [arguments for _, *arguments in lines]


@pytest.fixture(scope="module")
def tutorial_output(hospital: Path) -> dict[str, str]:
    """Output of the tutorial's commands, by command, in this process and with a smaller hospital."""
    return {" ".join(arguments): run_command(arguments, hospital) for arguments in commands()}


@pytest.fixture(scope="module")
def first_release(hospital: Path) -> Path:
    """The release of the tutorial, of a smaller hospital."""
    path = hospital.with_name("first.duckdb")
    if not path.exists():  # the transcript has made it
        (anonymize,) = (arguments for arguments in commands() if arguments[0] == "anonymize")
        run_command(anonymize, hospital)
    return path


def run_command(arguments: list[str], hospital: Path) -> str:
    """Output of a command of the tutorial."""
    done = cli(*arguments, cwd=hospital.parents[1])
    assert (done.status, done.err) == (0, ""), arguments
    return done.out


@pytest.mark.thorough
def test_tutorial_commands_print_the_documented_figures(tutorial_output: dict[str, str]) -> None:
    suggest, risk, plan, anonymize, *verifications, attack = tutorial_output.values()
    assert "[attributes]" in suggest
    assert risk.startswith("5,000 rows in ")
    assert "requirements: " in plan and "Nothing was run. To print the statements: sqlanon plan " in plan
    assert "optimal" in anonymize
    assert all("\nVerified: " in text for text in verifications)
    assert len(verifications) == 2
    assert "homogeneity" in attack


@pytest.mark.thorough
def test_the_policy_with_several_requirements_verifies(workshop: Path) -> None:
    policy = Policy.load(workshop / FOLDER / "second.toml")
    with connect() as db:
        release = db.anonymize(policy).publish(force=True)  # in addition to first.duckdb, where a test published that
        alone, with_policy = release.verify(), db.verify(release.path, policy)
    assert alone.verified
    assert with_policy.verified
    (unknown,) = (check.name for check in alone.checks if check.passed is None)
    assert unknown == "equal 0.4-closeness of diagnosis"
    assert f"against the source: {unknown}" in {check.name for check in with_policy.checks if check.passed}


@pytest.mark.slow
def test_tutorial_sql_reads_the_release(first_release: Path) -> None:
    (script,) = blocks("sql", FIRST_POLICY)
    statements = [text for line in script.splitlines() if (text := line.partition("--")[0].strip())]
    with duckdb.connect(first_release, read_only=True) as connection:
        patients, overview, labels, k_anonymity, classes, *figures, manifest = (
            connection.execute(statement).fetchall() for statement in statements
        )
    assert len(patients) == 5
    assert ("zip", "quasi") in [row[:2] for row in overview]
    assert [row[1] for row in labels] == list(range(1, len(labels) + 1))
    assert k_anonymity[0][0] >= 5
    assert k_anonymity[0][3] == 0
    assert len(classes) == 5
    assert [len(rows) for rows in figures] == [1] * len(figures)
    assert all(len(set(row)) > 1 and None not in row for (row,) in figures)
    assert len(manifest) == 1


@pytest.mark.slow
def test_catalog_tables_match_the_page(first_release: Path) -> None:
    catalog = first_release.with_name("sqlanon.catalog.duckdb")
    if os.name == "posix":
        assert catalog.stat().st_mode & 0o777 == 0o600
    with opened_catalog(catalog) as connection:
        for table in ("runs", "lattice", "hierarchies", "releases"):
            assert f"`sqlanon.{table}`" in PRIVATE_FILES
            (counts,) = connection.execute(f"SELECT count(*) FROM sqlanon.{table}").fetchall()
            assert counts[0] > 0, table


@pytest.mark.thorough
def test_python_example_prints_the_documented_figures(
    workshop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (program,) = blocks("python", FROM_PYTHON)
    folder = shutil.copytree(workshop, tmp_path / "workshop")  # releases of other tests would be compared with its own
    (folder / "sqlanon-demo" / "sqlanon.catalog.duckdb").unlink(missing_ok=True)
    monkeypatch.chdir(folder)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(program, "python.md", "exec"), {})
    lines = printed.getvalue().splitlines()
    (output,) = re.findall(r"print\(result.generalization\)\s*# (.*)", program)
    assert lines[0] == output
    assert lines[1].endswith(" True")


def test_ci_calls_the_commands_of_the_readme() -> None:
    demo, test, _ = (block.strip() for block in blocks("sh"))
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    assert test in ci
    assert demo in ci


# --- README.md


@pytest.mark.thorough
def test_the_readme_makes_a_release(tmp_path: Path) -> None:
    """Its two commands, and the policy that it shows, on a file with the columns of that policy."""
    with duckdb.connect() as connection:
        connection.execute(
            "COPY (SELECT 'n' || i AS name, lpad((i % 40)::VARCHAR, 5, '0') AS zip, i % 70 AS age, "
            f"'d' || i % 7 AS diagnosis FROM range(2000) AS t(i)) TO '{tmp_path / 'patients.csv'}'"
        )
    for line in blocks("sh")[2].splitlines():
        done = cli(*shlex.split(line, comments=True)[1:], cwd=tmp_path)
        assert done.status == 0, done.err
    (policy,) = blocks("toml")
    (tmp_path / "policy.toml").write_text(policy, encoding="utf-8")
    assert cli("anonymize", "policy.toml", "--force", cwd=tmp_path).status == 0
    assert cli("verify", "patients_release.duckdb", cwd=tmp_path).status == 0


@pytest.mark.thorough
def test_the_table_of_the_readme_is_the_demo(tmp_path: Path) -> None:
    demo = run_demo(tmp_path, 100_000)
    assert cells(README)[2:6] == figures(demo.before, demo.after)
    assert demo.clinic is not None
    assert cells(README)[8:14] == clinic_figures(demo.clinic.before, demo.clinic.after)


# --- docs/tutorial/first-release.md


@pytest.mark.thorough
def test_first_release_blocks_run_and_give_the_stated_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run each block in order, and compare the results that the page states."""
    monkeypatch.chdir(tmp_path)
    printed = io.StringIO()
    for language, block in re.findall(r"^```(sh|python)\n(.*?)^```$", FIRST_RELEASE, re.MULTILINE | re.DOTALL):
        if language == "python":
            with contextlib.redirect_stdout(printed):
                exec(compile(block, "first-release.md", "exec"), {})
            continue
        for line in block.splitlines():
            done = cli(*shlex.split(line, comments=True)[1:], cwd=tmp_path)
            assert done.status == 0, (line, done.err)
    (smallest, unique) = re.findall(r"classes has (\d+) rows; (\d+) rows are unique", printed.getvalue())[0]
    assert int(smallest) >= 5 and int(unique) == 0
    with duckdb.connect(tmp_path / "patients_release.duckdb", read_only=True) as release:
        overview = release.execute("SELECT attribute, role FROM release_overview").fetchall()
    wanted = dict.fromkeys(("zip", "birth_date", "sex", "ethnicity"), "quasi") | {"diagnosis": "sensitive"}
    assert wanted.items() <= dict(overview).items()


# --- docs/how-to/large-tables.md


@pytest.mark.thorough
def test_search_limit_examples_run(hospital: Path, tmp_path: Path) -> None:
    check_example(0, LARGE_TABLES, hospital, tmp_path)
    (command,) = blocks("sh", LARGE_TABLES)
    assert cli(*shlex.split(command)[1:], "--dry-run", cwd=hospital.parents[1]).status == 0


# --- docs/reference/requirements.md


@pytest.fixture(scope="module")
def hospital(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A smaller hospital, with the tutorial's policy next to it."""
    folder = tmp_path_factory.mktemp("requirements") / FOLDER
    folder.mkdir()
    make_hospital(folder / "hospital.duckdb", rows=5000)
    (folder / "first.toml").write_text(blocks("toml", FIRST_POLICY)[0], encoding="utf-8")
    return folder / "hospital.duckdb"


def check_example(number: int, page: str, hospital: Path, folder: Path) -> None:
    """A policy of a page finds something, which passes its audit and its verification."""
    (folder / "example.toml").write_text(blocks("toml", page)[number], encoding="utf-8")
    first, example = parse_toml(hospital.with_name("first.toml")), parse_toml(folder / "example.toml")
    tree = first | example | {"release": {"table": "patients"}}
    tree["attributes"] = first["attributes"] | example.get("attributes", {})
    tree["source"] = tree["source"] | {"database": hospital}
    tree["catalog"] = {"database": folder / "sqlanon.catalog.duckdb"}  # as on the command line
    policy = Policy(**tree)
    with connect() as db:  # publishing audits it with the source
        assert db.anonymize(policy).publish(folder / "release.duckdb").verify().verified


@pytest.mark.thorough
@pytest.mark.parametrize(
    "number",
    [pytest.param(n, marks=[pytest.mark.slow] if n > 0 else []) for n in range(len(blocks("toml", REQUIREMENTS)))],
)
def test_requirement_policies_run(number: int, hospital: Path, tmp_path: Path) -> None:
    check_example(number, REQUIREMENTS, hospital, tmp_path)


@pytest.mark.thorough
def test_requirement_sql_runs(tmp_path: Path) -> None:
    database = tmp_path / "practice.duckdb"
    init_database(database)
    called = set()
    with duckdb.connect(database) as connection:
        for statement in re.findall(
            r"^(?:CREATE|FROM sqlanon)[^;]*;(?: *-- .*)?$", "".join(blocks("sql", REQUIREMENTS)), re.M
        ):
            query, _, output = statement.partition(";")
            relation = connection.sql(query)
            called |= set(re.findall(r"^FROM sqlanon\.(\w+)", query))
            if relation is None:
                continue
            row, *_ = relation.fetchall()
            text = ", ".join(f"{name} {value:.6g}" for name, value in zip(relation.columns, row, strict=True) if output)
            assert text == output.strip(" -"), query
    assert called >= {macro.name for kind in requirement_types() for macro in kind.entry.macros}


@pytest.mark.thorough
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(REQUIREMENTS, marks=pytest.mark.slow),
        pytest.param(STRATEGIES, marks=pytest.mark.slow),
        PUBLISH_AGAIN,
    ],
    ids=["requirements", "strategies", "publish-again"],
)
def test_python_blocks_print_the_documented_output(
    page: str, hospital: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.chdir(request.getfixturevalue("workshop") if page == REQUIREMENTS else hospital.parents[1])
    for program in blocks("python", page):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(program, "page.md", "exec"), {})
        *_, output = re.findall(r"# (.*)", program)
        assert printed.getvalue().strip() == output


# --- docs/reference/strategies.md


@pytest.mark.thorough
@pytest.mark.parametrize(
    "number", [pytest.param(n, marks=pytest.mark.slow) for n in range(len(blocks("toml", STRATEGIES)))]
)
def test_strategy_policies_run(number: int, hospital: Path, tmp_path: Path) -> None:
    check_example(number, STRATEGIES, hospital, tmp_path)


@pytest.mark.thorough
def test_comparison_of_strategies_matches_the_page(hospital: Path) -> None:
    (command,) = blocks("sh", STRATEGIES)
    compare(command, hospital)


@pytest.mark.thorough
def test_the_documented_comparison_runs(hospital: Path) -> None:
    (command,) = blocks("sh", PICK_A_STRATEGY)
    compare(command, hospital)


def compare(command: str, hospital: Path) -> None:
    """A command compares the strategies that it names, and each finds something."""
    _, *arguments = shlex.split(command)
    done = cli(*arguments, "--json", cwd=hospital.parents[1])
    assert (done.status, done.err) == (0, "")
    document = json.loads(done.out)
    assert [row["strategy"] for row in document] == arguments[-1].split(",")
    assert [row["error"] for row in document] == [None] * len(document)


def cells(page: str) -> list[list[str]]:
    """The rows of the tables of a page."""
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in page.splitlines() if line[:1] == "|"]


def test_every_registered_strategy_is_documented() -> None:
    assert all(f"`{name}`" in PICK_A_STRATEGY for name in STRATEGIES_BY_NAME)
    rows = [row[:3] for row in cells(STRATEGIES) if row[0][0] == "`" and row[1] in ("full-domain", "local")]
    wanted = [
        [f"`{name}`", "local" if strategy.traits.is_local else "full-domain", strategy.description]
        for name, strategy in STRATEGIES_BY_NAME.items()
    ]
    assert rows == wanted


# --- docs/reference/measures.md


def test_every_registered_measure_is_documented() -> None:
    page = (ROOT / "docs" / "reference" / "measures.md").read_text(encoding="utf-8")

    def row(measure: type[Measure]) -> list[str]:
        answers = [measure.aggregates, not measure.needs_levels, not measure.counts_classes]
        return [f"`{measure.name}`", measure.formula, *("yes" if answer else "no" for answer in answers)]

    assert cells(page)[2:] == [row(measure) for measure in MEASURES.values()]


# --- docs/explanation/noise.md


@pytest.mark.thorough
@pytest.mark.parametrize("number", some(range(len(blocks("toml", NOISE))), 3))
def test_noise_policies_run(number: int, hospital: Path, tmp_path: Path) -> None:
    check_example(number, NOISE, hospital, tmp_path)


@pytest.mark.thorough
def test_the_policy_with_noise_runs(hospital: Path, tmp_path: Path) -> None:
    check_example(1, MORE_THAN_K, hospital, tmp_path)


def test_every_type_with_noise_is_documented() -> None:
    documented = dict(re.findall(r"^\| ([A-Z, ]+) \| ([A-Z]+)", NOISE, re.MULTILINE))
    for types, released in documented.items():
        for name in types.split(", "):
            assert NoisyColumn("x", name, 0, 1.0).released_type.startswith(released), name
            assert can_be_noisy(name), name
    assert {name for types in documented for name in types.split(", ")} >= {
        "INTEGER",
        "BIGINT",
        "HUGEINT",
        "DOUBLE",
        "DATE",
    }


# --- docs/explanation/decoys.md


@pytest.mark.thorough
def test_decoys_page_states_the_figures_of_its_policy(
    workshop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its policy gives the figures that it shows, and its SQL runs next to the release and the catalog."""
    (policy,) = blocks("toml", DECOYS)
    (tmp_path / "example.toml").write_text(policy, encoding="utf-8")
    tree = parse_toml(workshop / FOLDER / "first.toml") | parse_toml(tmp_path / "example.toml")
    tree["source"] |= {"database": workshop / FOLDER / "hospital.duckdb"}
    tree["catalog"] = {"database": tmp_path / "sqlanon.catalog.duckdb"}
    monkeypatch.chdir(tmp_path)
    with connect() as db:
        result = db.anonymize(Policy(**tree))
        checks = result.publish("first.duckdb").verify().checks
        decoys = sorted(result.decoy_rows.fetchall(), key=repr)
    (example,) = re.findall(r"`\"decoys\": ({.*?})`", DECOYS)
    assert result.to_dict()["decoys"] == json.loads(example)
    (message,) = re.findall(r'"(k counts \d+ decoys, which are invented rows)"', DECOYS)
    assert [check.passed for check in checks if message in check.message] == [True]
    (script,) = blocks("sql", DECOYS)
    with duckdb.connect() as connection:
        ((run_id, name, rows),) = connection.execute(script).fetchall()[0:1]
        assert (run_id, rows) == (result.run_id, result.decoys.rows)
        assert sorted(connection.execute(f'FROM private.sqlanon."{name}"').fetchall(), key=repr) == decoys
        last = script.splitlines()[-1].removeprefix("-- ").replace("<table_name>", f'"{name}"')
        assert len(connection.execute(last).fetchall()) == result.rows - result.suppressed_rows


# --- docs/how-to/spark.md: what runs it is in test_spark_release.py


def test_the_spark_policy_matches_its_commands(tmp_path: Path) -> None:
    (text,) = blocks("toml", SPARK)
    (tmp_path / "spark.toml").write_text(text, encoding="utf-8")
    policy = Policy.load(tmp_path / "spark.toml")
    assert (policy.source.spark, policy.source.table) == ("sc://cluster.example:15002", "clinic.patients")
    assert (policy.release.spark, policy.release.table) == (True, "shared.patients")
    commands = "".join(blocks("sh", SPARK))
    assert f"sqlanon verify {policy.source.spark} --table {policy.release.table}" in commands
