"""The catalog: what `init` installs, what runs leave in it, and that it is for its owner's eyes only."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pytest

import sqlanon
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.errors import SourceError
from sqlanon.ledger import catalog
from sqlanon.ledger.catalog import init_database
from support.commands import cli
from support.databases import change, fetch, opened_catalog, quote_name
from support.files import DOCS, folder_again, folder_and_copy
from support.lanes import some
from support.thresholds import PATIENCE

pytestmark = pytest.mark.usefixtures("plain_macros")

TABLES = {
    *("runs", "hierarchies", "lattice", "releases", "released_keys", "released_hierarchies", "decoys", "secret"),
    *("catalog_format", "source_samples", "source_people", "released_people", "exports", "released_noise"),
}
MACROS = {
    *("equivalence_classes", "k_anonymity", "digest", "person_k_anonymity", "person_k_anonymity_classes"),
    *("average_risk", "k_map", "delta_presence", "presence_classes", "l_diversity", "l_diversity_classes"),
    *("reidentification_risk", "class_sizes", "leakage", "distinction", "linkage", "homogeneous_classes"),
    *("background_knowledge_classes", "skewness_classes", "composition_classes", "unsorted_matching"),
    *("journalist_risk", "complementary_classes", "temporal_classes"),
    *("alpha", "delta_disclosure", "beta_likeness", "disclosure_classes", "t_closeness", "t_closeness_classes"),
    *("overlaps", "share", "estimated_count", "estimated_average", "members", "estimated_members"),
    "suppressed_values",
    *("level", "parent", "roll_up"),
}
POLICY = """
[source]
database = "hospital.duckdb"
table = "patients"
[attributes]
name = { role = "identifying" }
zip = { role = "quasi", hierarchy = { mask = "right" } }
sex = { role = "quasi", hierarchy = "suppress" }
illness = { role = "sensitive" }
[privacy]
k = 4
[search]
suppression_limit = 0.1
[release]
database = "release.duckdb"
"""


def fill(folder: Path) -> Path:
    """Put a source and a policy in a folder."""
    with duckdb.connect(folder / "hospital.duckdb") as connection:
        connection.execute(
            "CREATE TABLE patients AS SELECT 'Person ' || i AS name, CAST(2130 + i % 9 AS VARCHAR) AS zip, "
            "CASE i % 2 WHEN 0 THEN 'f' ELSE 'm' END AS sex, 'illness ' || i % 3 AS illness FROM range(100) AS r(i)"
        )
    (folder / "policy.toml").write_text(POLICY)
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a source and a policy in it."""
    return fill(tmp_path)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def contents(path: Path) -> tuple[set[str], set[str]]:
    tables = fetch(path, "SELECT table_name FROM duckdb_tables() WHERE schema_name = 'sqlanon'")
    macros = fetch(path, "SELECT function_name FROM duckdb_functions() WHERE schema_name = 'sqlanon'")
    return {name for (name,) in tables}, {name for (name,) in macros}


# init


@pytest.mark.slow
def test_init_makes_a_private_file_with_the_catalog_and_the_macros(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "new.duckdb"
    assert cli("init", path).status == 0
    assert str(path) in capsys.readouterr().out
    assert mode(path) == 0o600
    assert contents(path) == (TABLES, MACROS)
    assert [file.name for file in tmp_path.iterdir()] == ["new.duckdb"]


@pytest.mark.thorough
def test_init_can_be_repeated_and_keeps_the_records(tmp_path: Path) -> None:
    path = tmp_path / "c.duckdb"
    init_database(path)
    with duckdb.connect(path) as connection:
        row = "('r', TIMESTAMP '2026-01-01', '/r.duckdb', 't', 1, 'd')"
        connection.execute(
            f"INSERT INTO sqlanon.releases (run_id, published_at, path, table_name, released_rows, digest) VALUES {row}"
        )
    init_database(path)
    init_database(path)
    assert contents(path) == (TABLES, MACROS)
    assert fetch(path, "SELECT run_id, digest FROM sqlanon.releases") == [("r", "d")]


@pytest.mark.thorough
def test_init_of_an_existing_database_keeps_its_tables_and_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "mine.duckdb"
    with duckdb.connect(path) as connection:
        connection.execute("CREATE TABLE patients AS SELECT i AS zip FROM range(10) AS r(i)")
    path.chmod(0o640)
    init_database(path)
    assert mode(path) == 0o640
    assert contents(path) == (TABLES, MACROS)
    assert fetch(path, "FROM sqlanon.k_anonymity('patients', ['zip'])") == [(1, 10, 10, 10)]


def letter(path: Path) -> None:
    path.write_text("a letter to somebody")


def folder_there(path: Path) -> None:
    path.mkdir()


def nothing_around(path: Path) -> None:
    assert not path.parent.exists()


@pytest.mark.parametrize(
    ("make", "name"), [(letter, "c.duckdb"), (folder_there, "c.duckdb"), (nothing_around, "no/where/c.duckdb")]
)
def test_init_of_another_file_fails_and_changes_nothing(
    make: Any, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name
    make(path)
    before = sorted(tmp_path.rglob("*")), path.read_bytes() if path.is_file() else b""
    assert cli("init", path).status == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert str(path) in output.err
    assert "Traceback" not in output.err
    assert (sorted(tmp_path.rglob("*")), path.read_bytes() if path.is_file() else b"") == before


# What runs leave in it


@pytest.fixture(scope="module")
def run_before(tmp_path_factory: pytest.TempPathFactory) -> tuple[tuple[Path, Path], Any]:
    folder = fill(tmp_path_factory.mktemp("run"))
    ended = cli("anonymize", folder / "policy.toml", "--json")
    assert ended.status == 0
    return folder_and_copy(folder), json.loads(ended.out)


@pytest.fixture
def after(run_before: tuple[tuple[Path, Path], Any]) -> tuple[Path, Any]:
    """The catalog after `sqlanon anonymize`, and the output."""
    folders, printed = run_before
    return folder_again(*folders) / "sqlanon.catalog.duckdb", printed


@pytest.mark.thorough
def test_the_catalog_is_beside_the_policy_and_private(after: tuple[Path, Any]) -> None:
    path, _ = after
    assert mode(path) == 0o600
    assert {file.name for file in path.parent.iterdir()} == {
        "hospital.duckdb", "policy.toml", "sqlanon.catalog.duckdb", "release.duckdb",
    }  # fmt: skip


@pytest.mark.thorough
def test_a_run_is_a_row_with_the_figures_of_the_run(after: tuple[Path, Any]) -> None:
    path, printed = after
    folder = path.parent
    with opened_catalog(path) as connection:
        runs = connection.execute("FROM sqlanon.runs")
        names = [column[0] for column in runs.description or []]
        ((row),) = [dict(zip(names, values, strict=True)) for values in runs.fetchall()]
    for name in ("rows", "suppressed_rows", "classes", "score", "measure", "optimal"):
        assert row[name] == printed[name], name
    assert (row["nodes"], row["checked"]) == (printed["lattice"]["nodes"], printed["lattice"]["checked"])
    assert json.loads(row["generalization"]) == printed["generalization"]
    assert row["strategy"] == "optimal"
    assert row["policy_hash"] == sqlanon.Policy.load(folder / "policy.toml").fingerprint()
    # Here the policy is whole: the catalog is private.
    assert json.loads(row["policy"])["source"]["table"] == "patients"


@pytest.mark.slow
def test_the_release_is_a_row_that_leads_to_the_file(after: tuple[Path, Any]) -> None:
    path, printed = after
    query = "SELECT path, table_name, released_rows, digest FROM sqlanon.releases SEMI JOIN sqlanon.runs USING (run_id)"
    ((place, table, rows, digest),) = fetch(path, query)
    assert (place, table, rows) == (printed["release"], "patients", printed["released_rows"])
    assert fetch(Path(place), "SELECT digest FROM sqlanon.manifest") == [(digest,)]


@pytest.mark.thorough
def test_the_lattice_can_be_queried(after: tuple[Path, Any]) -> None:
    path, printed = after
    rows = fetch(path, "SELECT levels, height, status, classes, suppressed_rows, score FROM sqlanon.lattice")
    chosen = list(printed["generalization"].values())
    by_levels = {tuple(row[0]): row for row in rows}
    assert len(by_levels) == len(rows) <= printed["lattice"]["nodes"]
    assert all(row[1] == sum(row[0]) for row in rows)
    assert {row[2] for row in rows} <= {"satisfies", "violates", "open"}
    best = by_levels[tuple(chosen)]
    assert best[2:] == ("satisfies", printed["classes"], printed["suppressed_rows"], printed["score"])
    assert sum(row[3] is not None for row in rows) == printed["lattice"]["checked"]
    assert min(row[5] for row in rows if row[5] is not None) == printed["score"]


@pytest.mark.slow
def test_the_hierarchies_are_tables_leaf_to_root(after: tuple[Path, Any]) -> None:
    path, _ = after
    query = "SELECT attribute, rule, height, leaves, table_name FROM sqlanon.hierarchies ORDER BY attribute DESC"
    (zip_, sex) = fetch(path, query)
    assert (zip_[0], zip_[2], zip_[3]) == ("zip", 4, 9)
    assert (sex[0], sex[2], sex[3]) == ("sex", 1, 2)
    assert "mask" in zip_[1]
    rows = fetch(path, f'SELECT level_0, level_1, level_3, level_4 FROM sqlanon."{zip_[4]}" ORDER BY ALL')
    assert rows == [(str(2130 + i), "213*", "2***", "*") for i in range(9)]
    assert fetch(path, f'FROM sqlanon."{sex[4]}" ORDER BY ALL') == [("f", "*"), ("m", "*")]


def hierarchy_tables(path: Path) -> set[str]:
    rows = fetch(path, "SELECT table_name FROM duckdb_tables() WHERE table_name LIKE 'hierarchy\\_%' ESCAPE '\\'")
    return {name for (name,) in rows}


@pytest.mark.thorough
def test_the_same_policy_again_replaces_its_hierarchies_and_adds_a_run(after: tuple[Path, Any]) -> None:
    path, _ = after
    folder = path.parent
    before = hierarchy_tables(path)
    with duckdb.connect(folder / "hospital.duckdb") as connection:
        connection.execute("INSERT INTO patients SELECT 'New', '99999', 'f', 'illness 1' FROM range(5)")
    assert cli("anonymize", folder / "policy.toml").status == 0
    assert hierarchy_tables(path) == before
    assert fetch(path, "SELECT count(*) FROM sqlanon.runs") == [(2,)]
    assert fetch(path, "SELECT count(*), count(DISTINCT run_id) FROM sqlanon.releases") == [(2, 2)]
    assert fetch(path, "SELECT count(DISTINCT run_id) FROM sqlanon.lattice") == [(2,)]
    ((table, height, leaves),) = fetch(
        path, "SELECT table_name, height, leaves FROM sqlanon.hierarchies WHERE attribute = 'zip'"
    )
    assert (height, leaves) == (5, 10)  # of the new data, whose longest ZIP has five digits
    assert ("99999",) in fetch(path, f'SELECT level_0 FROM sqlanon."{table}"')


@pytest.mark.thorough
def test_another_policy_keeps_the_hierarchies_of_the_first(after: tuple[Path, Any]) -> None:
    path, _ = after
    folder = path.parent
    (folder / "policy.toml").write_text(POLICY.replace("k = 4", "k = 5"))
    assert cli("anonymize", folder / "policy.toml").status == 0
    assert len(hierarchy_tables(path)) == 4
    assert fetch(path, "SELECT count(*), count(DISTINCT policy_hash) FROM sqlanon.hierarchies") == [(4, 2)]


@pytest.mark.thorough
def test_hostile_names_of_attributes_in_the_catalog(tmp_path: Path) -> None:
    names = ['"; DROP TABLE runs; --', "select", "größe x", "a.b"]
    private = tmp_path / "c.duckdb"
    with duckdb.connect() as connection:
        columns = ", ".join("i % 2 AS " + quote_name(name) for name in names)
        connection.execute(f"CREATE TABLE t AS SELECT {columns} FROM range(8) AS r(i)")
        policy = sqlanon.Policy(
            source={"table": "t"},
            attributes={name: {"role": "quasi", "hierarchy": "suppress"} for name in names},
            privacy={"k": 2},
            catalog={"database": str(private)},
        )
        with sqlanon.connect(connection) as db:
            db.anonymize(policy)
    rows = fetch(private, "SELECT attribute, table_name FROM sqlanon.hierarchies")
    assert {attribute for attribute, _ in rows} == set(names)
    for _, table in rows:
        assert fetch(private, f"SELECT count(*) FROM sqlanon.{quote_name(table)}") == [(2,)]


@pytest.mark.thorough
def test_a_catalog_keeps_the_contents_of_its_database(folder: Path) -> None:
    """`[catalog] database` may name any DuckDB file, whose contents stay."""
    private = folder / "private.duckdb"
    with duckdb.connect(private) as connection:
        connection.execute("CREATE TABLE notes AS SELECT 'mine' AS note")
    (folder / "policy.toml").write_text(POLICY + '[catalog]\ndatabase = "private.duckdb"\n')
    assert cli("anonymize", folder / "policy.toml").status == 0
    assert fetch(private, "FROM notes") == [("mine",)]
    assert contents(private)[0] >= TABLES
    assert not (folder / "sqlanon.catalog.duckdb").exists()


@pytest.mark.slow
def test_release_or_source_is_refused_as_catalog(after: tuple[Path, Any]) -> None:
    """Policies, ground values and the secret would go to the readers of the release."""
    folder = after[0].parent
    release, source = folder / "release.duckdb", folder / "hospital.duckdb"
    before = [(database.read_bytes(), mode(database)) for database in (release, source)]
    command = "anonymize", folder / "policy.toml", "--output", folder / "second.duckdb"
    refused = cli(*command, "--set", f"catalog.database={release}")
    assert refused.status == 2 and "release.duckdb is a release, and the catalog is private" in refused.err
    refused = cli(*command, "--set", f"catalog.database={source}")
    assert refused.status == 2 and "is the source" in refused.err
    assert [(database.read_bytes(), mode(database)) for database in (release, source)] == before
    assert not (folder / "second.duckdb").exists()


@pytest.mark.slow
def test_names_in_the_catalog_are_read_as_the_documentation_writes_them(after: tuple[Path, Any]) -> None:
    """In sqlanon.catalog.duckdb the name sqlanon is that of the database, too."""
    path, _ = after
    assert path.name == "sqlanon.catalog.duckdb"
    pages = [(DOCS / folder / "ledger.md").read_text(encoding="utf-8") for folder in ("explanation", "reference")]
    examples = [block for page in pages for block in re.findall(r"```sql\n(.*?)```", page, re.DOTALL)]
    blocks = [block for block in examples if "ATTACH" in block]
    with duckdb.connect() as connection, pytest.MonkeyPatch.context() as patch:
        patch.chdir(path.parent)
        for block in blocks:
            connection.execute(block)
            connection.execute("DETACH private")
    with duckdb.connect(path, read_only=True) as connection:
        assert connection.execute("SELECT count(*) FROM sqlanon.sqlanon.runs").fetchall() == [(1,)]
    assert len(blocks) == 2 and "sqlanon.sqlanon.runs" in pages[0]


@pytest.mark.thorough
def test_a_report_of_a_policy_makes_no_catalog(folder: Path) -> None:
    pytest.importorskip("altair", reason="reports need altair")
    assert cli("report", folder / "policy.toml", "-o", folder / "report.html").status == 0
    assert not (folder / "sqlanon.catalog.duckdb").exists()


@pytest.mark.slow
def test_a_run_is_in_the_catalog_as_a_whole_or_not_at_all(
    after: tuple[Path, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, _ = after
    folder = path.parent
    everything = "SELECT (SELECT count(*) FROM sqlanon.runs), (SELECT count(*) FROM sqlanon.lattice)"
    before = fetch(path, everything), hierarchy_tables(path)
    real = catalog.insert_records

    def dying(engine: Any, name: str, *rows: Any) -> None:
        real(engine, name, *rows)
        if name == "hierarchies":  # the last
            raise OSError(28, "No space left on device")

    (folder / "policy.toml").write_text(POLICY.replace("k = 4", "k = 5"))
    with monkeypatch.context() as patch:
        patch.setattr(catalog, "insert_records", dying)
        assert cli("anonymize", folder / "policy.toml").status == 2
    assert "disk is full" in capsys.readouterr().err
    assert (fetch(path, everything), hierarchy_tables(path)) == before
    assert cli("anonymize", folder / "policy.toml").status == 0
    assert fetch(path, "SELECT count(*) FROM sqlanon.runs") == [(2,)]


@pytest.mark.thorough
def test_without_a_catalog_nothing_is_written(folder: Path) -> None:
    tree = sqlanon.Policy.load(folder / "policy.toml").model_copy(update={"catalog": None})
    with sqlanon.connect() as db:
        db.anonymize(tree).publish()
    assert {path.name for path in folder.iterdir()} == {"hospital.duckdb", "policy.toml", "release.duckdb"}


# Who can see it, and what if it cannot be had


@pytest.mark.thorough
def test_catalog_files_are_always_private(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The write-ahead log has the contents of the catalog; a new file is private before anything is in it."""
    seen: dict[str, int] = {}
    real = catalog.DuckDBEngine.execute

    def looking(engine: Any, *arguments: Any, **keywords: Any) -> None:
        real(engine, *arguments, **keywords)
        for path in folder.glob("*catalog*"):
            seen[path.name] = seen.get(path.name, 0) | mode(path)

    monkeypatch.setattr(catalog.DuckDBEngine, "execute", looking)
    for _ in range(2):
        assert cli("anonymize", folder / "policy.toml").status == 0
    assert "sqlanon.catalog.duckdb" in seen
    assert {name: oct(bits) for name, bits in seen.items() if bits & 0o077} == {}


@pytest.mark.slow
def test_a_new_catalog_is_private_before_it_is_filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who opens it in the moment before a chmod reads on for ever after."""
    modes: list[int] = []
    monkeypatch.setattr(Path, "chmod", lambda self, bits, **_: modes.append(mode(self)))
    before = os.umask(0o022)
    try:
        init_database(tmp_path / "c.duckdb")
    finally:
        os.umask(before)
    assert [oct(bits) for bits in [*modes, mode(tmp_path / "c.duckdb")] if bits & 0o077] == []


HOLDER = """
import duckdb, sys
with duckdb.connect(sys.argv[1], read_only=sys.argv[2] == "reading"):
    print("open", flush=True)
    sys.stdin.read()
"""


@contextmanager
def hold_open(path: Path, how: str) -> Iterator[None]:
    """Another process has the file open."""
    arguments = [sys.executable, "-c", HOLDER, path, how]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        yield
        process.communicate("")


@pytest.mark.thorough
@pytest.mark.parametrize("how", some(["reading", "writing"], 2))
def test_a_catalog_that_is_held_is_a_clear_error_and_nothing_is_published(
    how: str,
    after: tuple[Path, Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path, _ = after
    folder = path.parent
    monkeypatch.setattr(PATIENCE, 0.1)
    before = (folder / "release.duckdb").read_bytes()
    with hold_open(path, how):
        assert cli("anonymize", folder / "policy.toml").status == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert str(path) in output.err
    assert "catalog" in output.err
    assert "Traceback" not in output.err
    assert (folder / "release.duckdb").read_bytes() == before
    assert cli("anonymize", folder / "policy.toml").status == 0


@pytest.mark.thorough
@pytest.mark.parametrize("how", some(["reading", "writing"], 2))
def test_a_run_waits_for_a_catalog_that_is_held_for_a_moment(
    how: str, after: tuple[Path, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Like simultaneous runs, which look for releases of the same source in all catalogs of the folder."""
    waited = []
    with ExitStack() as holder:
        holder.enter_context(hold_open(after[0], how))

        def sleep(seconds: float) -> None:
            waited.append(seconds)
            holder.close()

        monkeypatch.setattr(catalog.time, "sleep", sleep)
        assert cli("anonymize", after[0].with_name("policy.toml")).status == 0
    assert waited


@pytest.mark.slow
def test_init_of_a_database_that_is_held_is_a_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "c.duckdb"
    init_database(path)
    with hold_open(path, "writing"), pytest.raises(SourceError, match="cannot be opened for writing"):
        init_database(path)


@pytest.mark.thorough
def test_catalog_file_of_another_format_is_a_clear_error(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    letter(folder / "sqlanon.catalog.duckdb")
    assert cli("anonymize", folder / "policy.toml").status == 2
    assert "sqlanon.catalog.duckdb" in capsys.readouterr().err
    assert (folder / "sqlanon.catalog.duckdb").read_text() == "a letter to somebody"
    assert not (folder / "release.duckdb").exists()


def test_a_catalog_that_another_run_of_this_process_holds(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PATIENCE, 0.1)
    path = folder / "held.catalog.duckdb"
    engine, second = (DuckDBEngine(duckdb.connect()) for _ in range(2))
    with catalog.open_catalog(engine, path):
        with (
            pytest.raises(sqlanon.SourceError, match="another run in this process holds it") as error,
            catalog.open_catalog(second, path),
        ):
            pass
        assert "file handle" not in str(error.value)
    with catalog.open_catalog(second, path):
        pass


@pytest.mark.slow
def test_a_catalog_of_a_newer_duckdb_is_explained_by_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "sqlanon.catalog.duckdb"
    init_database(path)

    def refuse(*_: Any, **__: Any) -> None:
        raise duckdb.IOException(
            "Trying to read a database file with version number 999, but we can only read 64 to 68."
        )

    with duckdb.connect() as connection:
        engine = DuckDBEngine(connection)
        monkeypatch.setattr(DuckDBEngine, "attach", refuse)
        with pytest.raises(SourceError) as refused, catalog.open_catalog(engine, path):
            pass
    assert f"written by DuckDB {catalog.read_duckdb_version(path)}, and this is DuckDB {duckdb.__version__}" in str(
        refused.value
    )
    assert catalog.read_duckdb_version(path) == duckdb.__version__


OTHER_FORMATS = {
    "an older format": "UPDATE sqlanon.catalog_format SET format = 10",
    "a newer format": "UPDATE sqlanon.catalog_format SET format = 12",
    "no format": "DROP TABLE sqlanon.catalog_format",
    "another table of formats": "CREATE OR REPLACE TABLE sqlanon.catalog_format AS SELECT 11 AS layout",
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "change_format",
    [
        pytest.param(format_change, marks=[pytest.mark.slow] if i else [])
        for i, format_change in enumerate(OTHER_FORMATS)
    ],
)
def test_a_catalog_of_another_format_is_refused_and_unchanged(after: tuple[Path, Any], change_format: str) -> None:
    path, _ = after
    change(path, OTHER_FORMATS[change_format])
    before = path.read_bytes()
    words = "format 10, and this version of sqlanon uses format 12" if "older" in change_format else "uses format 12"
    policy = sqlanon.Policy.load(path.with_name("policy.toml"))
    for job in (
        lambda db: db.anonymize(policy).publish(),
        lambda db: db.verify(path.with_name("release.duckdb"), policy),
        lambda db: init_database(path),
    ):
        with sqlanon.connect() as db, pytest.raises(SourceError, match=words):
            job(db)
    assert path.read_bytes() == before


def test_the_policies_of_a_folder_share_a_catalog(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}.toml").write_text(POLICY)
        (tmp_path / f"{name}.catalog.duckdb").touch()
        policy = sqlanon.Policy.load(tmp_path / f"{name}.toml")
        assert policy.catalog is not None
        assert policy.catalog.database == tmp_path / "sqlanon.catalog.duckdb"
