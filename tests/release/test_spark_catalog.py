"""Spark's catalog is compared with what sqlanon creates, without a session: one difference, one flaw."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from sqlanon.engines.limits import NO_LIMITS
from sqlanon.errors import BrokenReleaseError, ReleaseError
from sqlanon.publish.targets.spark import rows as spark_rows
from sqlanon.publish.targets.spark.catalog import CatalogEntry, ReleaseCatalog, ReleaseComments, check_persistence
from sqlanon.publish.targets.spark.rows import Combinations, checked_columns, count_release
from sqlanon.publish.targets.spark.target import (
    SparkLocation,
    drop_older_versions,
    drop_unpublished,
    find_next_version,
)
from sqlanon.release.manifest import ReleasedColumn
from sqlanon.support.expressions import quote_name, table

LOCATION = SparkLocation(None, "shared", "r")
COLUMNS = [ReleasedColumn("Zip", "VARCHAR", "quasi"), ReleasedColumn("ill", "VARCHAR", "sensitive")]
CLAIMS: Any = SimpleNamespace(columns=COLUMNS, types={"Zip": "VARCHAR", "ill": "VARCHAR"})


@pytest.mark.parametrize(
    ("query", "version"),
    [
        ("SELECT Zip FROM shared.r_v3", 3),
        ("SELECT Zip FROM Shared.R_V3", 3),
        ("SELECT Zip FROM `shared`.`r_v3` AS t", 3),
        ("SELECT Zip FROM r_v3", None),  # of the schema of the session
        ("SELECT Zip FROM other.r_v3", None),
        ("SELECT Zip FROM elsewhere.shared.r_v3", None),
        ("SELECT Zip FROM shared.s_v3", None),
        ("SELECT Zip FROM shared.r_v3_manifest", None),
        ("SELECT Zip FROM shared.r_v3, shared.r_v2", None),
        ("SELECT Zip FROM shared.r_v3 WHERE Zip IN (SELECT Zip FROM shared.other)", None),
        ("no query (", None),
        (None, None),
    ],
)
def test_a_view_shows_the_version_whose_table_it_reads(query: str | None, version: int | None) -> None:
    assert CatalogEntry({"type": "VIEW", "view_text": query}).shown_version(LOCATION) == version
    assert CatalogEntry({"type": "MANAGED", "view_text": query}).shown_version(LOCATION) is None


QUERY = "SELECT `Zip`, `ill` FROM `shared`.`r_v3`"
COMMENTS = ReleaseComments("the newest version", "figures", {"Zip": "first digits"})
VIEW: dict[str, Any] = {
    "type": "VIEW",
    "view_text": QUERY,
    "view_original_text": QUERY,
    "view_query_output_columns": ["Zip", "ill"],
    "view_catalog_and_namespace": "`spark_catalog`.`default`",
    "catalog_name": "spark_catalog",
    "columns": [{"name": "Zip", "comment": "first digits"}, {"name": "ill"}],
    "comment": "the newest version",
    "view_schema_mode": "BINDING",
    "table_properties": {"transient_lastDdlTime": "7"},
}
NO_LIST, FOREIGN = "'r' is not a view of exactly the columns of the table 'r_v3'", "it has foreign properties"
COMMENTED = "its comments do not match the manifest"


@pytest.mark.parametrize(
    ("change", "flaws"),
    [
        ({}, []),
        ({"view_original_text": None}, [NO_LIST]),
        ({"type": "MANAGED"}, [NO_LIST]),
        ({"view_text": f"{QUERY} WHERE ill = 'flu'"}, [NO_LIST]),
        ({"view_original_text": f"{QUERY} WHERE ill = 'flu'"}, [NO_LIST]),
        ({"view_query_output_columns": ["Zip"]}, [NO_LIST]),
        ({"columns": [{"name": "Zip", "comment": "first digits"}, {"name": "John"}]}, [NO_LIST]),
        ({"view_catalog_and_namespace": "other.default"}, [NO_LIST]),
        ({"view_schema_mode": "TYPE EVOLUTION"}, ["its columns follow changes of the table"]),
        ({"table_properties": {"told": "John"}}, [FOREIGN]),
        ({"table_properties": {"numRows": "John"}}, [FOREIGN]),
        ({"comment": "John"}, [COMMENTED]),
        ({"columns": [{"name": "Zip", "comment": "John"}, {"name": "ill"}]}, [COMMENTED]),
        ({"columns": [{"name": "Zip", "comment": "first digits"}, {"name": "ill", "comment": ""}]}, [COMMENTED]),
    ],
)
def test_each_difference_of_a_view_is_a_flaw(change: dict[str, Any], flaws: list[str]) -> None:
    rows = LOCATION.version_table(3)
    assert CatalogEntry(VIEW | change).find_view_flaws(LOCATION, rows, CLAIMS, COMMENTS) == flaws


TABLE: dict[str, Any] = {
    "type": "MANAGED",
    "provider": "PARQUET",
    "table_properties": {"sqlanon.release": "r", "numFiles": "2"},
    "storage_properties": {"serialization.format": "1"},
    "columns": [{"name": "Zip", "type": {"name": "string"}, "nullable": True, "comment": "first digits"}],
    "comment": "figures",
    "partition_columns": [],
}
NOT_PLAIN, OF_OTHERS = "it is not a plain table of Parquet files", "it has comments or defaults of others"


@pytest.mark.parametrize(
    ("change", "flaws"),
    [
        ({}, []),
        ({"table_properties": {"sqlanon.release": "*********(redacted)"}}, []),
        ({"table_properties": {"sqlanon.release": "s"}}, ["not part of the release"]),
        ({"table_properties": {}}, ["not part of the release"]),
        ({"type": "VIEW"}, ["not part of the release"]),
        ({"type": "EXTERNAL"}, [NOT_PLAIN]),
        ({"provider": "csv"}, [NOT_PLAIN]),
        ({"partition_columns": ["Zip"]}, [NOT_PLAIN]),
        ({"bucket_columns": ["Zip"]}, [NOT_PLAIN]),
        ({"table_properties": {"sqlanon.release": "r", "told": "John"}}, [FOREIGN]),
        ({"storage_properties": {"path": "John"}}, [FOREIGN]),
        ({"comment": "John"}, [OF_OTHERS]),
        ({"columns": []}, [OF_OTHERS]),
        ({"columns": [TABLE["columns"][0] | {"default": "'John'"}]}, [OF_OTHERS]),
    ],
)
def test_each_difference_of_a_table_is_a_flaw(change: dict[str, Any], flaws: list[str]) -> None:
    assert CatalogEntry(TABLE | change).find_table_flaws("r", "figures", {"Zip": "first digits"}) == flaws


@pytest.mark.parametrize(
    ("names", "view_version", "version"),
    [
        ([], None, 1),
        (["r_v7"], None, 8),  # left by an interrupted publication
        (["r_v7_manifest"], None, 8),
        (["r", "r_v2", "r_v2_manifest"], 2, 3),
        (["r", "r_v2", "r_v2_manifest", "r_v9", "r_view"], 2, 10),
        (["r", "r_v2"], 2, None),  # a table of others, or without a manifest
        (["r"], None, None),
    ],
)
def test_the_next_version_is_above_all_that_are_there(
    names: list[str], view_version: int | None, version: int | None
) -> None:
    catalog: Any = SimpleNamespace(location=LOCATION, names=frozenset(names), shown_version=view_version)
    if version is None:
        with pytest.raises(ReleaseError, match=r"shared\.r exists and is not a release of sqlanon"):
            find_next_version(catalog)
    else:
        assert find_next_version(catalog) == version


def test_the_columns_of_requirements_are_found_in_any_case_of_letters() -> None:
    columns = [*COLUMNS, ReleasedColumn("Cost", "DOUBLE", "insensitive"), ReleasedColumn("Test", "DATE", "sensitive")]
    privacy = {"k": 2, "l_diversity": [{"attribute": "ILL", "kind": "distinct", "l": 2}]}
    assert checked_columns({"k": 2}, ["zip"], columns) == {"Zip": "VARCHAR"}
    assert checked_columns(privacy, ["ZIP"], columns) == {"Zip": "VARCHAR", "ill": "VARCHAR"}


@pytest.mark.parametrize("rows", [4, 5, 6])
def test_rows_that_change_while_they_are_read_are_refused(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five rows are in the combinations that were fetched."""

    def fetch(self: Combinations, *_: Any) -> None:
        query = f"SELECT 'a' AS Zip, 'flu' AS ill, 5::BIGINT AS {quote_name(self.count_column)}"
        self.engine.connection.execute(f"CREATE TEMPORARY TABLE {self.relation.name} AS {query}")

    monkeypatch.setattr(spark_rows, "types_of", lambda server, relation: CLAIMS.types)
    monkeypatch.setattr(spark_rows, "_count_combinations", lambda *_: nullcontext((table("counted"), 1)))
    monkeypatch.setattr(spark_rows, "_count_invalid_texts", lambda *_: {})
    monkeypatch.setattr(Combinations, "fetch", fetch)
    server: Any = SimpleNamespace(rows=lambda query: [(rows, 7)])
    counting = count_release(server, table("r_v3"), COLUMNS, CLAIMS.types, NO_LIMITS)
    with nullcontext() if rows == 5 else pytest.raises(BrokenReleaseError, match="changed while"), counting as release:
        assert release.digest == "7"


class Server:
    """A server that lists the statements that it is given."""

    def __init__(self) -> None:
        self.statements = list[str]()

    def execute(self, statement: Any) -> None:
        self.statements.append(statement.sql("spark"))


def made_tables(names: list[str]) -> dict[str, int]:
    """The version of each table that sqlanon made: of those in the tests, all but foreign ones."""
    return {name: int(name.split("_")[1].removeprefix("v")) for name in names}


@pytest.mark.parametrize(
    ("view_version", "dropped"),
    [
        (3, ["r_v1", "r_v2", "r_v2_manifest"]),
        (2, ["r_v1"]),  # the view could not be switched
        (4, ["r_v1", "r_v2", "r_v2_manifest"]),  # another publication has overtaken this one, and drops its tables
    ],
)
def test_older_versions_are_dropped_that_no_reader_sees(
    view_version: int, dropped: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = made_tables(["r_v1", "r_v2", "r_v2_manifest", "r_v3", "r_v3_manifest", "r_v4"])
    catalog = SimpleNamespace(
        shown_version=view_version, find_release_tables=lambda: tables, warn_of_foreign_tables=lambda names: []
    )
    monkeypatch.setattr(ReleaseCatalog, "read", lambda server, location: catalog)
    server: Any = Server()
    assert drop_older_versions(server, LOCATION, 3) == []
    assert server.statements == [f"DROP TABLE IF EXISTS `shared`.`{name}`" for name in dropped]


@pytest.mark.parametrize(
    ("view_version", "dropped"), [(3, []), (2, ["r_v3_manifest", "r_v3"]), (None, ["r_v3_manifest", "r_v3"])]
)
def test_a_version_that_the_view_shows_is_not_dropped(
    view_version: int | None, dropped: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ReleaseCatalog, "read", lambda server, location: SimpleNamespace(shown_version=view_version))
    server: Any = Server()
    drop_unpublished(server, LOCATION, 3)
    assert server.statements == [f"DROP TABLE IF EXISTS `shared`.`{name}`" for name in dropped]


@pytest.mark.parametrize(
    ("leftovers", "foreign", "passed", "message"),
    [
        ([], [], True, "no other relations"),
        (["r_v2", "r_v2_manifest"], [], None, "left by an interrupted publication, and removed by the next one: "),
        (["r_v2"], ["r_v1_manifest"], False, "not of the release: r_v1_manifest"),
        ([], ["r_v7", "r_v1"], False, "not of the release: r_v1, r_v7"),
    ],
)
def test_tables_named_like_versions_are_left_by_sqlanon_or_foreign(
    leftovers: list[str], foreign: list[str], passed: bool | None, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server: Any = Server()
    catalog = ReleaseCatalog(
        server, LOCATION, frozenset(["r", "r_v3", "r_v3_manifest", "r_view", *leftovers, *foreign])
    )
    monkeypatch.setattr(
        ReleaseCatalog,
        "find_release_tables",
        lambda self, names: made_tables([name for name in names if name in leftovers]),
    )
    check = catalog._check_other_versions(3)
    assert check.passed is passed and check.message.startswith(message)


@pytest.mark.parametrize(
    ("query", "names", "version"),
    [
        ("SELECT Zip FROM shared.r_v2", ["r_v2_manifest", "r_v3_manifest"], 2),
        ("SELECT Zip FROM shared.r_v4", ["r_v2_manifest", "r_v3_manifest"], 3),  # without a manifest
        ("SELECT 1 AS Zip", ["r_v2_manifest", "r_v10_manifest", "r_x_manifest"], 10),
        ("SELECT Zip FROM shared.r_v2", ["r_v2"], None),
    ],
)
def test_the_manifest_of_the_version_that_the_view_shows_is_read(
    query: str, names: list[str], version: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = CatalogEntry({"type": "VIEW", "view_text": query})
    monkeypatch.setattr(CatalogEntry, "read", lambda server, relation: entry)
    server: Any = Server()
    catalog = ReleaseCatalog(server, LOCATION, frozenset(["r", *names]))
    with nullcontext() if version is not None else pytest.raises(ReleaseError, match="has no manifest"):
        assert catalog.readable_version == version


@pytest.mark.parametrize(
    ("implementation", "replacement", "is_warned"),
    [
        ("in-memory", "builtin", True),
        ("in-memory", "<undefined>", True),
        ("in-memory", "org.apache.iceberg.spark.SparkSessionCatalog", False),
        ("hive", "builtin", False),
    ],
)
def test_a_catalog_that_ends_with_spark_is_warned_of(implementation: str, replacement: str, is_warned: bool) -> None:
    settings = {
        "spark.sql.catalogImplementation": implementation, "spark.sql.catalog.spark_catalog": replacement
    }  # fmt: skip
    server: Any = SimpleNamespace(rows=lambda command: [(command.expression, settings[str(command.expression)])])
    assert [check.passed for check in check_persistence(server)] == ([None] if is_warned else [])
