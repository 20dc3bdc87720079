"""What Spark's catalog describes is compared with what sqlanon makes, without a session: one difference, one flaw."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from sqlanon.errors import ReleaseError
from sqlanon.publish.targets.spark.catalog import CatalogEntry, ReleaseComments
from sqlanon.publish.targets.spark.rows import checked_columns
from sqlanon.publish.targets.spark.target import SparkLocation, find_next_version
from sqlanon.release.manifest import ReleasedColumn

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
    ("names", "shown", "version"),
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
def test_the_next_version_is_above_all_that_are_there(names: list[str], shown: int | None, version: int | None) -> None:
    catalog: Any = SimpleNamespace(location=LOCATION, names=frozenset(names), shown_version=shown)
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
