"""Policies with PostgreSQL, checked without a server."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import sqlanon
from sqlanon.engines.dialects import postgres as postgres_dialect
from sqlanon.errors import MissingLibraryError
from sqlanon.places.addresses import format_location, resolve_postgres_address, server_address
from sqlanon.publish.targets.base import release_location
from sqlanon.support.expressions import col, null_safe_equal, select, table
from support.policies import make_policy

HERE = "postgresql://holder@db.example/hospital"
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
        "postgresql://holder:s3cret@db/hospital",
        "postgresql://holder%3As3cret@db/hospital",
        "postgres://:s3cret@db",
        "postgresql://db/hospital?password=s3cret",
        "postgresql://holder@db/hospital?sslmode=require&sslpassword=s3cret",
        "host=db password=s3cret",
        "postgresql:s3cret",
        "postgresql://holder@db/hospital?sslmode=disable& password=s3cret",
        "postgresql://holder@db/hospital?sslmode=disable&%70assword=s3cret",
        "postgresql://holder@db/hospital?%20password%20=s3cret",
        "postgresql://holder@db/hospital?\tpassword=s3cret",
        "postgresql://holder@db/hospital?PassWord=s3cret",
        "postgresql://holder@db/hospital?password%00=s3cret",
        "postgresql://holder@db/hospital?\u00a0password=s3cret",
        "postgresql://holder@db/hospital?sslmode=require;password=s3cret",
        "postgresql://holder@db/hospital?scram_client_key=s3cret",
        "postgresql://holder:s3cret?x@db/hospital",
        "postgresql://holder:s3cret@",
        "postgresql://db:s3cret/hospital",
        "postgresql://db/hospital s3cret",
        "postgresql://db/hospital\ns3cret",
        "postgresql://db/hospital#s3cret",
        "postgresql://db/hospital?s3cret",
    ],
)
@pytest.mark.parametrize("section", ["source", "release"])
def test_passwords_are_refused_and_not_repeated(section: str, address: str) -> None:
    sections = {"source": {"postgres": HERE, "table": "clinic.t"}, "release": {"postgres": HERE, "table": "shared.r"}}
    sections[section]["postgres"] = address
    problems = problems_of(**sections)
    assert list(problems) == [f"{section}.postgres"]
    assert "s3cret" not in str(problems)


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://holder@db.example:5433/hospital?sslmode=verify-full&sslrootcert=/etc/ca.pem&passfile=/run/pgpass",
        "postgres://db",
        "postgresql://",
        "postgresql:///hospital?host=/run/pg&port=5433&options=-c%20search_path%3Dclinic",
        "postgresql://some%20body@%2Frun%2Fpg:5433,[::1]:5432,other/hospit%C3%A4l",
        "postgresql://zoë@db/hospitäl",
    ],
)
def test_addresses_without_a_password_may_stand_in_a_policy(address: str) -> None:
    policy = make_policy(ZIP, source={"postgres": address, "table": "t"}, table=None)
    assert policy.source.postgres == address


def test_password_is_left_out_of_locations() -> None:
    assert server_address("postgresql://holder:a?b@db/hospital") == "postgresql://db/hospital"


def test_all_features_that_need_rows_are_refused_together() -> None:
    problems = problems_of(
        source={"postgres": HERE, "table": "clinic.t", "key": ["id"]},
        attributes={
            "zip": {"role": "quasi", "hierarchy": {"table": "geo"}},
            "cost": {"role": "quasi", "noise": {"epsilon": 1.0}},
        },
        population={"table": "voters"},
        risk={"household": "home"},
        search={"strategy": "mondrian"},
        release={"postgres": HERE, "table": "clinic.r", "decoys": True, "after": "all"},
    )
    expected = {
        "source.key",
        "attributes.zip.hierarchy",
        "attributes.cost.noise",
        "population",
        "risk",
        "search",
        "release.decoys",
        "release.after",
        "release.table",
    }
    assert expected <= set(problems)


@pytest.mark.parametrize(
    ("section", "place", "message"),
    [
        ({"source": {"postgres": HERE}}, "source", "no table"),
        ({"source": {"postgres": HERE, "table": "t", "database": "a.duckdb"}}, "source.postgres", "only one"),
        ({"source": {"postgres": HERE, "table": "t", "files": "a.csv"}}, "source.postgres", "only one"),
        ({"source": {"postgres": "env:", "table": "t"}}, "source.postgres", "env:NAME"),
        ({"source": {"postgres": 5, "table": "t"}}, "source.postgres", "address in quotes"),
        ({"release": {"postgres": HERE}}, "release.table", "schema.name"),
        ({"release": {"postgres": HERE, "table": "r"}}, "release.table", "schema.name"),
        ({"release": {"postgres": HERE, "table": "a.b.r"}}, "release.table", "schema.name"),
        ({"release": {"postgres": HERE, "table": f"a.{'r' * 56}"}}, "release.table", "too long"),
        ({"release": {"postgres": HERE, "table": "a.sqlanon_manifest"}}, "release.table", "manifest"),
        ({"release": {"postgres": HERE, "table": "a.r", "file": "r.parquet"}}, "release.postgres", "only one"),
        ({"release": {"postgres": HERE, "table": "a.r", "keep": 2}}, "release.keep", "one version"),
    ],
)
def test_missing_and_surplus_keys_are_named(section: dict[str, Any], place: str, message: str) -> None:
    problems = problems_of(**section)
    assert list(problems) == [place] and message in problems[place]


def test_a_release_is_not_named_after_a_source_without_a_schema() -> None:
    problems = problems_of(source={"postgres": HERE, "table": "clinic.t"}, release={"postgres": HERE})
    assert "release.table" in problems


def test_policies_without_postgres_keep_their_fingerprint() -> None:
    policy = make_policy(ZIP, release={"database": "r.duckdb"})
    tree = policy.model_dump(mode="json")
    assert "postgres" not in tree["source"] and "postgres" not in tree["release"]
    postgres_policy = make_policy(ZIP, source={"postgres": HERE, "table": "t"}, table=None)
    assert postgres_policy.fingerprint() != make_policy(ZIP).fingerprint()
    assert sqlanon.Policy(**postgres_policy.model_dump(exclude_none=True)) == postgres_policy


def test_a_manifest_shows_no_address() -> None:
    policy = make_policy(
        ZIP, source={"postgres": HERE, "table": "clinic.t"}, table=None, release={"postgres": HERE, "table": "shared.r"}
    )
    text = str(policy.redact())
    assert not any(word in text for word in ("db.example", "holder", "hospital", "clinic", "shared", "postgres"))


def test_an_address_can_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOSPITAL", "postgresql://holder:s3cret@db/hospital")
    assert resolve_postgres_address("env:HOSPITAL").endswith("s3cret@db/hospital")
    assert server_address(resolve_postgres_address("env:HOSPITAL")) == "postgresql://db/hospital"
    monkeypatch.setenv("HOSPITAL", "s3cret")
    with pytest.raises(sqlanon.SourceError, match="HOSPITAL holds no address") as error:
        resolve_postgres_address("env:HOSPITAL")
    assert "s3cret" not in str(error.value)
    monkeypatch.delenv("HOSPITAL")
    with pytest.raises(sqlanon.SourceError, match="HOSPITAL is not set"):
        resolve_postgres_address("env:HOSPITAL")


def test_options_and_address_name_the_same_place() -> None:
    assert server_address("postgresql:///hospital?host=/run/pg&port=5433") == "postgresql://%2Frun%2Fpg:5433/hospital"
    assert server_address("postgresql://me@db:1/?dbname=x") == server_address("postgresql://you:pw@db:1/x")


def test_missing_extra_names_the_installation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "adbc_driver_postgresql", None)
    monkeypatch.setitem(sys.modules, "adbc_driver_postgresql.dbapi", None)
    policy = make_policy(ZIP, source={"postgres": HERE, "table": "t"}, table=None)
    with sqlanon.connect() as db, pytest.raises(MissingLibraryError, match=r"pip install '\.\[postgres\]'"):
        db.anonymize(policy)
    with pytest.raises(MissingLibraryError, match=r"pip install '\.\[postgres\]'"):
        release_location(HERE, "shared.r").verify()


@pytest.mark.parametrize(
    "place",
    [
        "postgresql://db.example:5433/hospital/shared.patients",
        "postgresql:///hospital/shared.patients",
        "postgresql://%2Frun%2Fpg:5433/hospital/shared.patients",
    ],
)
def test_the_place_of_a_release_is_shown_as_an_address(place: str) -> None:
    assert format_location(Path(place)) == place


def test_the_place_of_a_file_is_its_path() -> None:
    assert format_location(Path("/postgresql/r.duckdb")) == "/postgresql/r.duckdb"


def test_a_source_in_postgres_is_named_by_the_policy() -> None:
    with pytest.raises(sqlanon.SourceError, match=r"\[source\] postgres") as error:
        sqlanon.connect("postgresql://holder:s3cret@db/hospital")
    assert "s3cret" not in str(error.value)


def test_verbs_that_need_rows_are_refused_before_the_first_statement() -> None:
    policy = make_policy(ZIP, source={"postgres": HERE, "table": "t"}, table=None)
    with sqlanon.connect() as db:
        for verb in (db.risk, db.suda, db.extend):
            with pytest.raises(sqlanon.SourceError, match="its rows never leave it"):
                verb(policy)


def test_a_file_has_no_table_and_a_server_needs_one(tmp_path: Path) -> None:
    policy = make_policy(ZIP)
    with sqlanon.connect() as db:
        with pytest.raises(sqlanon.ReleaseError, match="leave it out"):
            db.verify(tmp_path / "r.duckdb", policy, "shared.r")
        with pytest.raises(sqlanon.ReleaseError, match=r"--table schema\.name"):
            db.verify(HERE, policy)
        with pytest.raises(sqlanon.ReleaseError, match=r"write schema\.name"):
            db.verify(HERE, policy, "r")


@pytest.mark.parametrize(
    ("remote_type", "local_type"),
    [
        ("numeric(38,0)", "DECIMAL(38,0)"),
        ("numeric(39,0)", None),
        ("numeric(3,5)", None),
        ("numeric(2,-3)", None),
        ("character varying(20)", "VARCHAR"),
        ("character varying(20)[]", None),
        ("text[]", None),
        ("timestamp(6) with time zone", "TIMESTAMP WITH TIME ZONE"),
        ("time with time zone", None),
        ("interval", None),
        ("money", None),
        ("bytea", None),
        ("inet", None),
    ],
)
def test_source_types_are_validated(remote_type: str, local_type: str | None) -> None:
    assert postgres_dialect.to_duckdb_type(remote_type) == local_type


def test_types_that_would_come_back_as_others_are_not_sent() -> None:
    sent = (
        "SMALLINT",
        "INTEGER",
        "BIGINT",
        "FLOAT",
        "DOUBLE",
        "BOOLEAN",
        "VARCHAR",
        "DATE",
        "TIME",
        "TIMESTAMP",
        "UUID",
    )
    for type_ in (*sent, "DECIMAL(5,2)", "TIMESTAMP WITH TIME ZONE"):
        assert postgres_dialect.to_duckdb_type(postgres_dialect.from_duckdb_type(type_) or "") == type_
    for type_ in (
        "TINYINT",
        "UTINYINT",
        "HUGEINT",
        "BLOB",
        "INTERVAL",
        "INTEGER[]",
        "STRUCT(a INTEGER)",
        "TIMESTAMP_NS",
    ):
        assert postgres_dialect.from_duckdb_type(type_) is None


def test_joins_that_take_null_for_a_value_can_be_hashed() -> None:
    on = null_safe_equal(col("a", "s"), col("value", "h"))
    query = select([col("a", "s")], table("s")).join(table("h", "run_1", "work"), on=on, copy=False)
    sql = postgres_dialect.translate_to_postgres(query, {'"work"."run_1"."h"': table("shipped", "pg_temp")}).sql(
        "postgres"
    )
    assert 'JOIN "pg_temp"."shipped" AS "h" ON ARRAY["s"."a"] = ARRAY["h"."value"]' in sql
    assert "DISTINCT FROM" in query.sql("postgres")  # the input is unchanged
