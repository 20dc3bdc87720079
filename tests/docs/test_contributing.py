"""CONTRIBUTING.md and EXTENDING.md: the map is the tree, and each recipe works as a file outside the package."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import duckdb
import pytest

import sqlanon
from support.files import ROOT
from support.recipes import PAGE, REGISTRIES, code, registrations, run, section

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

RECIPES = {
    "A requirement": "others",
    "A measure": "steepest",
    "A strategy": "descent",
    "A source": "listing",
    "An engine": "vault",
    "A release target": "bucket",
}
POLICY = """
[source]
database = "hospital.duckdb"
table = "patients"
[attributes]
zip = { role = "quasi", hierarchy = { mask = "right" } }
age = { role = "quasi", hierarchy = { intervals = [5, 10, 20, 40] } }
illness = { role = "sensitive" }
[privacy]
k = 3
[search]
suppression_limit = 0.1
"""
ROWS = [
    {"zip": f"0213{i * 7 % 4}", "age": 20 + i * 13 % 50, "illness": ("flu", "flu", "flu", "asthma", "HIV")[i * 3 % 5]}
    for i in range(120)
]

CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")

# The map


def top_level() -> set[str]:
    """The folders and modules of the package, as the page writes them."""
    package = ROOT / "sqlanon"
    names = {f"{path.parent.name}/" for path in package.glob("*/__init__.py")}
    return names | {path.name for path in package.glob("*.py") if not path.name.startswith("__")}


def test_the_map_has_each_folder_and_module_once() -> None:
    page = CONTRIBUTING[: CONTRIBUTING.index("Outside the package")]
    rows = re.findall(r"^\| (`[^|]*`) \| [^|]+ \|$", page, re.MULTILINE)
    names = [name for row in rows for name in re.findall(r"`([^`]+)`", row) if name != "sqlanon/"]
    assert len(names) == len(set(names))
    assert set(names) == top_level()


def test_the_layers_are_those_of_the_linter() -> None:
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    contracts = tools["importlinter"]["contracts"]
    (layers,) = (contract["layers"] for contract in contracts if contract.get("containers") == ["sqlanon"])
    assert "".join(f"    {layer}\n" for layer in layers) in CONTRIBUTING


def test_named_paths_exist() -> None:
    """Except for the files that a recipe would add to the package."""
    pages = CONTRIBUTING + PAGE
    words = re.findall(r"`([\w./-]+/[\w.-]*|[\w-]+\.(?:md|toml))`", pages)
    words += re.findall(
        r"(?<![\w/])((?:tests|benchmarks|\.ci)/[\w./]+)", "".join(re.findall(r"```sh\n.*?```", pages, re.S))
    )
    added = re.findall(r"^In the package: `(sqlanon/[\w/]+\.py)`", PAGE, re.MULTILINE)
    assert [Path(path).parent.name if Path(path).stem == "target" else Path(path).stem for path in added] == [
        name for name in RECIPES.values() if name != "steepest"
    ]
    places = (
        ROOT,
        ROOT / "sqlanon",
        ROOT / "tests",
        *(ROOT / "sqlanon" / folder for folder in ("engines", "ledger", "publish", "strategies", "support")),
    )
    missing = [word for word in words if word not in added and not any((place / word).exists() for place in places)]
    assert len(words) > 50 and missing == []


def test_contributing_names_exist_in_the_code() -> None:
    """Names that the text of a recipe uses, and its code does not show."""
    for name, path in (
        ("StrategyInfo", "policy/strategies.py"),
        ("parse_connect_argument", "sources/kinds.py"),
        ("SourceSection", "policy/sections.py"),
        ("ReleaseSection", "policy/sections.py"),
        ("RemoteEngine", "engines/base.py"),
        ("RemoteDialect", "engines/dialects/remote.py"),
        ("ReleaseLocation", "publish/targets/base.py"),
    ):
        assert f"`{name}`" in PAGE
        assert re.search(rf"\b{name}\b", (ROOT / "sqlanon" / path).read_text(encoding="utf-8")), name


def test_the_readme_links_to_contributing_and_extending() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "(CONTRIBUTING.md)" in readme and "(EXTENDING.md)" in readme


# The recipes


def test_each_recipe_has_one_file_of_at_most_a_screen() -> None:
    assert re.findall(r"^### (.+)", PAGE, re.MULTILINE) == list(RECIPES)
    for title, name in RECIPES.items():
        assert code(name) in section(title)
        assert len(code(name).splitlines()) <= 60


@pytest.fixture
def registered_recipe(request: pytest.FixtureRequest) -> Iterator[ModuleType]:
    """A recipe, run as a module: its last line registers the class."""
    with registrations():
        yield run(request.param)


def with_recipe(name: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("registered_recipe", [name], indirect=True)


def policy_of(title: str, folder: Path) -> sqlanon.Policy:
    """A policy in TOML next to its source, with the keys of the recipe."""
    with duckdb.connect(str(folder / "hospital.duckdb")) as connection:
        fill(connection)
    added = re.findall(r"^```toml\n(.*?)^```$", section(title), re.MULTILINE | re.DOTALL)
    text = POLICY
    for snippet in added:
        head, _, keys = snippet.partition("\n")
        text = text.replace(f"{head}\n", snippet, 1) if f"{head}\n" in text else f"{text}{head}\n{keys}"
    (folder / "policy.toml").write_text(text, encoding="utf-8")
    return sqlanon.Policy.load(folder / "policy.toml")


def fill(connection: duckdb.DuckDBPyConnection) -> None:
    connection.execute("CREATE TABLE patients (zip VARCHAR, age INTEGER, illness VARCHAR)")
    connection.executemany("INSERT INTO patients VALUES (?, ?, ?)", [tuple(row.values()) for row in ROWS])


def smallest_class(path: Path) -> int:
    with duckdb.connect(str(path), read_only=True) as release:
        query = "SELECT min(n) FROM (SELECT count(*) AS n FROM patients GROUP BY zip, age)"
        return int(release.execute(query).fetchall()[0][0])


def publish_and_read(db: sqlanon.Database, policy: sqlanon.Policy, path: Path) -> tuple[sqlanon.Result, list[str]]:
    """Anonymize, publish, verify: the result, and the checks that passed against the source."""
    result = db.anonymize(policy)
    release = result.publish(path, "patients")
    assert isinstance(release, sqlanon.Release)
    assert release.verify().verified
    against_source = db.verify(path, policy)
    assert against_source.verified, against_source.failures
    assert smallest_class(path) >= 3
    return result, [check.name for check in against_source.checks if check.passed]


@pytest.mark.thorough
@with_recipe("others")
def test_requirement_recipe_is_audited(registered_recipe: ModuleType, tmp_path: Path) -> None:
    policy = policy_of("A requirement", tmp_path)
    assert policy.privacy.others == (registered_recipe.Others(attribute="illness", rows=2),)
    with sqlanon.connect() as db:
        _, passed = publish_and_read(db, policy, tmp_path / "release.duckdb")
    assert "2 others of illness" in passed
    with duckdb.connect(str(tmp_path / "release.duckdb"), read_only=True) as release:
        counts = "SELECT zip, age, count(*) AS n FROM patients GROUP BY zip, age, illness"
        fewest = release.execute(f"SELECT min(o) FROM (SELECT sum(n) - max(n) AS o FROM ({counts}) GROUP BY zip, age)")
        assert fewest.fetchall()[0][0] >= 2


@pytest.mark.thorough
@with_recipe("steepest")
@pytest.mark.usefixtures("registered_recipe")
def test_measure_recipe_scores_a_release(tmp_path: Path) -> None:
    policy = policy_of("A measure", tmp_path)
    assert policy.search.measure == "steepest"
    with sqlanon.connect() as db:
        result, _ = publish_and_read(db, policy, tmp_path / "release.duckdb")
    lost = result.suppressed_rows / len(ROWS)
    steepest = max(level / height for level, height in zip(result.generalization.values(), (5, 5), strict=True))
    assert result.score == pytest.approx(steepest * (1 - lost) + lost) and result.optimal


@with_recipe("descent")
@pytest.mark.thorough
@pytest.mark.usefixtures("registered_recipe")
def test_strategy_recipe_publishes_a_release(tmp_path: Path) -> None:
    policy = policy_of("A strategy", tmp_path)
    assert policy.search.strategy == "descent"
    with sqlanon.connect() as db:
        result, _ = publish_and_read(db, policy, tmp_path / "release.duckdb")
    assert not result.optimal
    assert any(level < 5 for level in result.generalization.values())


@with_recipe("listing")
@pytest.mark.thorough
def test_source_recipe_is_read(registered_recipe: ModuleType, tmp_path: Path) -> None:
    policy = policy_of("A source", tmp_path)
    (tmp_path / "hospital.duckdb").unlink()  # the rows are those of the listing
    with sqlanon.connect(registered_recipe.Listing(ROWS)) as db:
        result, _ = publish_and_read(db, policy, tmp_path / "release.duckdb")
    assert result.rows == len(ROWS)


@with_recipe("vault")
@pytest.mark.slow
def test_engine_recipe_runs_a_policy(registered_recipe: ModuleType, tmp_path: Path) -> None:
    policy = policy_of("An engine", tmp_path)
    (tmp_path / "hospital.duckdb").unlink()
    connection = duckdb.connect()
    fill(connection)
    with sqlanon.connect(registered_recipe.VaultEngine(connection)) as db:
        assert "-- in the vault" in str(db.plan(policy))
        result, _ = publish_and_read(db, policy, tmp_path / "release.duckdb")
        with pytest.raises(sqlanon.SourceError, match="in the vault, and its rows never leave it"):
            db.risk(policy)
    assert result.rows == len(ROWS)


@pytest.mark.thorough
@with_recipe("bucket")
def test_release_target_recipe_publishes_and_verifies(registered_recipe: ModuleType, tmp_path: Path) -> None:
    policy = policy_of("A release target", tmp_path)
    with sqlanon.connect() as db:
        result = db.anonymize(policy)
        release: Any = result.publish("bucket:clinic", "patients")
    assert list(registered_recipe.BUCKET) == ["bucket:clinic"]
    assert release.verify().verified
    (tmp_path / "copy.parquet").write_bytes(registered_recipe.BUCKET["bucket:clinic"])
    with duckdb.connect() as connection:
        relation = connection.from_parquet(str(tmp_path / "copy.parquet"))
        assert relation.columns == ["zip", "age", "illness"]
        assert relation.shape[0] == result.released_rows == release.manifest.released_rows


@pytest.mark.parametrize("name", RECIPES.values())
def test_a_name_is_registered_once_and_taken_out_again(name: str) -> None:
    before = [names() for names, _ in REGISTRIES]
    with registrations():
        run(name)
        assert [names() for names, _ in REGISTRIES] != before
        with pytest.raises(ValueError, match="already"):
            run(name)
    assert [names() for names, _ in REGISTRIES] == before
