"""One catalog a folder: what older versions kept in catalogs of single policies is found, and merged."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import duckdb
import pytest
from support import change, cli, folder_again, kept, opened_catalog

import sqlanon
from sqlanon.errors import SourceError
from sqlanon.ledger import merging

pytestmark = pytest.mark.usefixtures("plain_macros")

POLICY = """
[source]
database = "hospital.duckdb"
table = "patients"
key = ["id"]
[attributes]
age = {{ role = "quasi", hierarchy = {{ intervals = [10, 20] }}, min_level = {age}, max_level = {age} }}
zip = {{ role = "quasi", hierarchy = {{ mask = "right" }}, min_level = {zip}, max_level = {zip} }}
illness = {{ role = "insensitive" }}
[privacy]
k = 5
dependencies = "warn"
[search]
suppression_limit = 0.9
[release]
database = "{name}.duckdb"
table = "patients"
"""


def write(folder: Path, name: str, age: int, zip_: int) -> Path:
    path = folder / f"{name}.toml"
    path.write_text(POLICY.format(age=age, zip=zip_, name=name))
    return path


@pytest.fixture(scope="module")
def folder_of_before(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two policies, each with a release in a catalog of its own; and a third, whose release is not safe beside them."""
    folder = tmp_path_factory.mktemp("catalogs")
    change(
        folder / "hospital.duckdb",
        "CREATE TABLE patients AS SELECT i AS id, CAST(hash(i) % 80 AS INTEGER) AS age, "
        "CAST(2130 + hash(i + 1000) % 300 AS VARCHAR) AS zip, 'illness ' || hash(i + 2000) % 200 AS illness "
        "FROM range(600) AS r(i)",
    )
    for name, age, zip_ in (("one", 3, 1), ("two", 3, 2), ("three", 1, 4)):
        path = write(folder, name, age, zip_)
        if name != "three":
            with pytest.MonkeyPatch.context() as patch:  # as in older versions
                patch.setattr("sqlanon.policy.models.SHARED_CATALOG", f"{name}.catalog.duckdb")
                assert cli("anonymize", path).status == 0
    return kept(folder)


@pytest.fixture
def folder(folder_of_before: tuple[Path, Path]) -> Path:
    return folder_again(*folder_of_before)


def catalogs(folder: Path) -> list[str]:
    return sorted(one.name for one in folder.glob("*.catalog.duckdb*"))


def test_a_folder_has_one_catalog_by_default(tmp_path: Path) -> None:
    policy = sqlanon.Policy.load(write(tmp_path, "new", 1, 1))
    assert policy.catalog is not None and policy.catalog.database == tmp_path / "sqlanon.catalog.duckdb"
    (tmp_path / "new.catalog.duckdb").touch()  # from before
    before = sqlanon.Policy.load(tmp_path / "new.toml")
    assert before.catalog is not None and before.catalog.database == tmp_path / "new.catalog.duckdb"
    assert policy.made(before.fingerprint()) and before.made(policy.fingerprint())
    other = sqlanon.Policy.load(write(tmp_path, "other", 2, 1))
    assert not other.made(policy.fingerprint())


@pytest.mark.slow
def test_merged_catalogs_hold_releases_against_one_another(folder: Path) -> None:
    told = cli("anonymize", folder / "three.toml", "--output", folder / "elsewhere.duckdb").err
    lines = [line for line in told.splitlines() if "catalog" in line]
    assert len(lines) == 1 and "merge-catalogs" in lines[0] and "one.catalog.duckdb" in lines[0]
    (folder / "elsewhere.duckdb").unlink()
    (folder / "sqlanon.catalog.duckdb").unlink()

    done = cli("merge-catalogs", folder)
    assert done.status == 0
    assert catalogs(folder) == ["one.catalog.duckdb.merged", "sqlanon.catalog.duckdb", "two.catalog.duckdb.merged"]
    assert (folder / "sqlanon.catalog.duckdb").stat().st_mode & 0o777 == 0o600
    refused = cli("anonymize", folder / "three.toml")
    assert refused.status == 1 and "one.duckdb" in refused.err
    assert cli("verify", folder / "one.duckdb", "--policy", folder / "one.toml").status == 0
    assert "nothing" not in cli("merge-catalogs", folder).err  # once more, there is nothing to do


@pytest.mark.slow
def test_the_commands_of_a_refusal_list_the_rows(folder: Path) -> None:
    merging.merge_catalogs(folder)
    refused = cli("anonymize", "three.toml", cwd=folder).err
    assert len(refused.splitlines()) < 15 and "SELECT" not in refused
    draft, attack = [shlex.split(line)[1:] for line in refused.splitlines() if line.startswith("      sqlanon ")]
    assert cli(*draft, cwd=folder).status == 0
    found = cli(*attack, "--json", cwd=folder)
    assert found.status == 0
    worst = json.loads(found.out)["complementary_release"]
    assert f"({worst['victims']} rows in all" in refused
    with duckdb.connect() as connection:
        assert connection.execute(worst["sql"]).fetchall()


@pytest.mark.slow
def test_a_merged_catalog_that_was_moved_away_is_missed(folder: Path) -> None:
    """A new one would know nothing of what was published before."""
    merging.merge_catalogs(folder)
    assert "merged" not in cli("anonymize", folder / "three.toml", "--force").err
    (folder / "three.duckdb").unlink()
    (folder / "sqlanon.catalog.duckdb").unlink()
    told = cli("anonymize", folder / "three.toml")
    assert told.status == 0
    assert "sqlanon.catalog.duckdb is not the catalog that one.catalog.duckdb.merged, two.catalog.duckdb.merged" in (
        told.err.replace("\n", " ")
    )
    for name in ("one", "two"):  # as it says
        (folder / f"{name}.catalog.duckdb.merged").rename(folder / f"{name}.catalog.duckdb")
    assert cli("merge-catalogs", folder).status == 0
    again = cli("anonymize", folder / "three.toml", "--output", folder / "four.duckdb")
    assert again.status == 1 and "one.duckdb" in again.err


@pytest.mark.slow
def test_a_catalog_that_was_merged_is_not_made_again(folder: Path) -> None:
    """Not by a run that began before: it would be held against nothing."""
    one = sqlanon.Policy.load(folder / "one.toml")
    with sqlanon.connect() as db:
        result = db.anonymize(one)
        merging.merge_catalogs(folder)
        with pytest.raises(SourceError, match=r"was merged into sqlanon\.catalog\.duckdb"):
            result.publish(folder / "fine.duckdb")
    assert not (folder / "one.catalog.duckdb").exists() and not (folder / "fine.duckdb").exists()


@pytest.mark.slow
def test_keys_and_samples_keep_the_secrets_that_they_were_hashed_with(folder: Path) -> None:
    merging.merge_catalogs(folder)
    with opened_catalog(folder / "sqlanon.catalog.duckdb") as catalog:
        counts = catalog.execute(
            "SELECT (SELECT count(*) FROM sqlanon.secret), "
            "(SELECT count(DISTINCT secret) FROM sqlanon.merged_secrets), "
            "(SELECT count(DISTINCT run_id) FROM sqlanon.released_keys), "
            "(SELECT count(*) FROM sqlanon.source_samples)"
        ).fetchone()
    assert counts == (1, 1, 2, 1200)
    change(
        folder / "hospital.duckdb", "INSERT INTO patients SELECT 1000 + i, 30, '2131', 'illness 1' FROM range(50) t(i)"
    )
    for name in ("one", "two"):  # rows are known by their keys, in spite of the two secrets
        extended = cli("extend", folder / f"{name}.toml", "--json", "--force")
        assert extended.status == 0 and '"added_rows": 50' in extended.out
        again = cli("extend", folder / f"{name}.toml", "--json", "--force")
        assert again.status == 0 and '"added_rows": 0' in again.out
    change(folder / "hospital.duckdb", "CREATE VIEW copies AS SELECT id, age AS years, zip, illness FROM patients")
    text = (
        (folder / "three.toml").read_text().replace('"patients"\nkey', '"copies"\nkey').replace("\nage =", "\nyears =")
    )
    (folder / "three.toml").write_text(text)
    refused = cli("anonymize", folder / "three.toml")
    assert refused.status == 1 and "one.duckdb" in refused.err and "shares about" in refused.err
    forced = json.loads(cli("anonymize", folder / "three.toml", "--force", "--json").out)
    assert {Path(place).stem for place in forced["held_against"]} == {
        "one",
        "two",
    }  # both are known to be of its source


@pytest.mark.slow
def test_a_merge_that_was_stopped_is_done_again(folder: Path) -> None:
    """Nothing is lost, nothing is there twice, and what was published meanwhile is merged, too."""
    with pytest.MonkeyPatch.context() as patch:

        def stop(self: Path, target: Path) -> Path:
            raise KeyboardInterrupt

        patch.setattr(Path, "rename", stop)
        with pytest.raises(KeyboardInterrupt):
            merging.merge_catalogs(folder)
    assert "one.catalog.duckdb" in catalogs(folder)
    assert cli("anonymize", folder / "one.toml").status == 0  # replaces its release, in its own catalog
    merging.merge_catalogs(folder)
    with opened_catalog(folder / "sqlanon.catalog.duckdb") as catalog:
        rows = catalog.execute(
            "SELECT parse_filename(path), replaced_at IS NULL FROM sqlanon.releases ORDER BY ALL"
        ).fetchall()
        runs, once = catalog.execute("SELECT count(*), count(DISTINCT run_id) FROM sqlanon.runs").fetchall()[0]
        keys = catalog.execute(
            "SELECT count(*) FROM (SELECT * FROM sqlanon.released_keys GROUP BY ALL HAVING count(*) > 1)"
        )
        assert keys.fetchone() == (0,)
    assert rows == [("one.duckdb", False), ("one.duckdb", True), ("two.duckdb", True)]
    assert runs == once == 3


@pytest.mark.slow
def test_two_policies_that_published_to_one_place(folder: Path) -> None:
    """What is there now has replaced the other, which no later release is compared with."""
    text = (folder / "two.toml").read_text().replace('database = "two.duckdb"', 'database = "one.duckdb"')
    (folder / "two.toml").write_text(text)
    assert cli("anonymize", folder / "two.toml").status == 0
    merging.merge_catalogs(folder)
    with opened_catalog(folder / "sqlanon.catalog.duckdb") as catalog:
        rows = catalog.execute(
            "SELECT parse_filename(path), count(*) FROM sqlanon.releases WHERE replaced_at IS NULL "
            "GROUP BY ALL ORDER BY ALL"
        ).fetchall()
    assert rows == [("one.duckdb", 1), ("two.duckdb", 1)]


@pytest.mark.slow
def test_what_is_gone_or_strange_is_not_lost(folder: Path) -> None:
    (folder / "one.duckdb").unlink()  # its release still counts, with a warning
    merging.merge_catalogs(folder)
    warned = cli("anonymize", folder / "three.toml", "--force").err
    assert "one.duckdb" in warned and "not compared" in warned
    (folder / "letter.catalog.duckdb").write_text("a letter to somebody")
    refused = cli("merge-catalogs", folder)
    assert refused.status == 2 and "letter.catalog.duckdb" in refused.err
    (folder / "letter.catalog.duckdb").unlink()
    with duckdb.connect(folder / "views.catalog.duckdb") as connection:
        connection.execute("CREATE SCHEMA sqlanon")
        connection.execute("CREATE TABLE sqlanon.catalog_format AS SELECT 7 AS format")
        connection.execute("CREATE VIEW sqlanon.releases AS SELECT error('it was read') AS source")
    refused = cli("merge-catalogs", folder)
    assert refused.status == 2 and "it was read" not in refused.err
    assert (folder / "views.catalog.duckdb").exists()


@pytest.mark.slow
def test_catalogs_of_older_versions_are_merged(folder: Path) -> None:
    change(
        folder / "one.catalog.duckdb",
        "DROP VIEW sqlanon.ledger",
        "ALTER TABLE sqlanon.releases DROP COLUMN draft",
        "ALTER TABLE sqlanon.exports DROP COLUMN draft",
        "DROP TABLE sqlanon.merged_secrets",
        "UPDATE sqlanon.catalog_format SET format = 5",
    )
    merging.merge_catalogs(folder)
    refused = cli("anonymize", folder / "three.toml")
    assert refused.status == 1 and "one.duckdb" in refused.err


def test_a_database_of_somebody_else_is_not_merged(folder: Path) -> None:
    change(folder / "shop.catalog.duckdb", "CREATE TABLE goods AS SELECT 1 AS id")
    before = (folder / "shop.catalog.duckdb").read_bytes()
    told = cli("merge-catalogs", folder)
    assert (told.status, "not catalogs: shop.catalog.duckdb" in told.err) == (2, True)
    assert (folder / "shop.catalog.duckdb").read_bytes() == before
    assert catalogs(folder) == ["one.catalog.duckdb", "shop.catalog.duckdb", "two.catalog.duckdb"]
    (folder / "shop.catalog.duckdb").unlink()
    assert cli("init", folder / "shop.catalog.duckdb").status == 0
    change(folder / "shop.catalog.duckdb", "CREATE TABLE goods AS SELECT 1 AS id")
    assert cli("merge-catalogs", folder).status == 2


@pytest.mark.slow
def test_a_draft_in_the_place_of_a_release_that_was_moved_does_not_replace_it(folder: Path) -> None:
    """Before catalogs are merged, the draft's does not know of the release."""
    (folder / "one.duckdb").rename(folder / "copy.duckdb")
    draft = folder / "draft.toml"
    draft.write_text((folder / "three.toml").read_text().replace("three.duckdb", "one.duckdb"))
    assert cli("anonymize", draft, "--draft").status == 0
    assert cli("merge-catalogs", folder).status == 0
    told = cli("anonymize", folder / "three.toml")
    assert told.status == 1 and "one.duckdb" in told.err
