"""Policies with Spark, and the statements that its engine permits, checked without Spark."""

from __future__ import annotations

from typing import Any

import pytest

import sqlanon
from sqlanon.errors import SourceError
from sqlanon.places.addresses import format_spark_address, is_spark, resolve_spark_address
from support.policies import make_policy

HERE = "sc://cluster.example:15002"
ZIP = {"zip": "suppress"}


def problems_of(**sections: Any) -> dict[str, str]:
    """The problems of a policy by their places."""
    attributes = sections.pop("attributes", {"zip": {"role": "quasi", "hierarchy": "suppress"}})
    with pytest.raises(sqlanon.PolicyError) as error:
        sqlanon.Policy(attributes=attributes, privacy={"k": 2}, **sections)
    return {problem.place: problem.message for problem in error.value.problems}


@pytest.mark.parametrize(
    "address",
    [
        "sc://db:15002/;token=s3cret",
        "sc://db:15002/;use_ssl=true;token=s3cret;user_id=me",
        "sc://db/;TOKEN=s3cret",
        "sc://db/; token=s3cret",
        "sc://me:s3cret@db",
        "sc://db?token=s3cret",
        "sc://db;token=s3cret",
        "sc://db/s3cret",
        "sc://",
        "spark:s3cret",
        "local[s3cret]",
        "postgresql://s3cret/db",
        "s3cret",
    ],
)
def test_a_token_is_refused_and_not_repeated(address: str) -> None:
    problems = problems_of(source={"spark": address, "table": "clinic.t"})
    assert list(problems) == ["source.spark"]
    assert "s3cret" not in str(problems)


@pytest.mark.parametrize(
    "address",
    [
        "sc://db",
        "sc://db:15002",
        "sc://db:15002/;use_ssl=true;user_id=me",
        "local",
        "local[2]",
        "local[*]",
        "local-cluster[2,1,1024]",
        "local-cluster[2, 1, 1024]",
        "spark://host:7077",
        "spark://a:7077,b:7077",
        "yarn",
        "env:HERE",
    ],
)
def test_spark_addresses_are_validated(address: str) -> None:
    policy = make_policy(ZIP, source={"spark": address, "table": "t"}, table=None)
    assert policy.source.spark == address
    assert is_spark(address) == (address != "env:HERE")


def test_all_features_that_need_rows_are_refused_together() -> None:
    problems = problems_of(
        source={"spark": HERE, "table": "clinic.t", "key": ["id"]},
        attributes={"zip": {"role": "quasi", "hierarchy": {"table": "geo"}}},
        population={"table": "voters"},
        risk={"household": "home"},
        release={"spark": True, "table": "open.r", "decoys": True, "after": "all"},
    )
    expected = {"source.key", "attributes.zip.hierarchy", "population", "risk", "release.decoys"}
    assert expected | {"release.after"} <= set(problems)


@pytest.mark.parametrize(
    ("section", "place", "message"),
    [
        ({"source": {"spark": HERE}}, "source", "no table"),
        ({"source": {"spark": HERE, "table": "t", "database": "a.duckdb"}}, "source.spark", "only one"),
        ({"source": {"spark": HERE, "table": "t", "postgres": "postgresql://db"}}, "source.spark", "only one"),
        ({"source": {"spark": HERE, "files": "a.csv"}}, "source.files", "Parquet"),
        ({"source": {"spark": "env:", "table": "t"}}, "source.spark", "env:NAME"),
        ({"source": {"spark": 5, "table": "t"}}, "source.spark", "address in quotes"),
        ({"source": {"spark": HERE, "table": "t", "fetch_limit": 0}}, "source.fetch_limit", "1"),
        ({"source": {"files": "a.csv"}, "release": {"spark": True, "table": "a.r"}}, "release.spark", "elsewhere"),
        ({"release": {"spark": True}}, "release.table", "schema.name"),
        ({"release": {"spark": True, "table": "r"}}, "release.table", "schema.name"),
        ({"release": {"spark": True, "table": "a.r", "file": "r.parquet"}}, "release.spark", "only one"),
        ({"release": {"spark": True, "table": "a.r", "keep": 2}}, "release.keep", "one version"),
    ],
)  # fmt: skip
def test_missing_and_surplus_keys_are_named(section: dict[str, Any], place: str, message: str) -> None:
    problems = problems_of(**section)
    assert list(problems) == [place] and message in problems[place]


def test_policies_without_spark_keep_their_fingerprint() -> None:
    tree = make_policy(ZIP, release={"database": "r.duckdb"}).model_dump(mode="json")
    assert not {"spark", "fetch_limit", "scratch"} & set(tree["source"]) and "spark" not in tree["release"]
    policy = make_policy(ZIP, source={"spark": HERE, "table": "t"}, table=None)
    assert policy.fingerprint() != make_policy(ZIP).fingerprint()
    assert sqlanon.Policy(**policy.model_dump(exclude_none=True)) == policy


def test_a_manifest_shows_no_address() -> None:
    source = {"spark": HERE, "table": "clinic.t", "scratch": "/shared/scratch"}
    policy = make_policy(ZIP, source=source, table=None, release={"spark": True, "table": "open.r"})
    text = str(policy.redact())
    assert not any(word in text for word in ("cluster", "clinic", "open", "spark", "scratch"))


def test_an_address_can_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLUSTER", "sc://db:15002/;token=s3cret")
    assert format_spark_address(resolve_spark_address("env:CLUSTER")) == "sc://db:15002"
    monkeypatch.setenv("CLUSTER", "s3cret")
    with pytest.raises(SourceError, match="CLUSTER holds no address") as error:
        resolve_spark_address("env:CLUSTER")
    assert "s3cret" not in str(error.value)
    monkeypatch.delenv("CLUSTER")
    with pytest.raises(SourceError, match="CLUSTER is not set"):
        resolve_spark_address("env:CLUSTER")
