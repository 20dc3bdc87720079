"""What a review of risk, attacks and decoys found: each of them stays mended."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from conftest import make_policy

import sqlanon
from sqlanon.attacks.report import Attacks
from sqlanon.printing import print_attacks

QUASI = {"ward": "suppress"}


@pytest.fixture
def people() -> Iterator[duckdb.DuckDBPyConnection]:
    """Two wards of 6 people and one of 1; everybody of a ward has the same job, and one of two illnesses."""
    with duckdb.connect() as connection:
        connection.execute("""
            CREATE TABLE t AS
            SELECT i // 6 AS ward, ['nurse', 'clerk', 'cook'][1 + i // 6] AS job, ['flu', 'gout'][1 + i % 2] AS ill
            FROM range(13) AS t(i)
        """)
        yield connection


def publish(db: duckdb.DuckDBPyConnection, path: Path, **policy: Any) -> Path:
    with sqlanon.connect(db) as own:
        return own.anonymize(make_policy(**policy)).publish(path).path


# --- attacks ----------------------------------------------------------------------------------------


def test_attacks_tell_how_many_rows_are_decoys(
    people: duckdb.DuckDBPyConnection, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """k counts them, and so do the victims: who reads these has to know."""
    attributes = {
        "ward": {"role": "quasi", "hierarchy": "suppress", "max_level": 0},
        "job": "sensitive",
        "ill": "sensitive",
    }
    asked = {"attributes": attributes, "k": 3, "search": {"suppression_limit": 0.5}}
    with_decoys = publish(people, tmp_path / "with.duckdb", **asked, release={"decoys": True, "table": "t"})
    without = publish(people, tmp_path / "without.duckdb", **asked, release={"table": "t"})

    found = sqlanon.attack(with_decoys, only=["homogeneity"])
    assert [one.decoys for one in found["homogeneity"].findings] == [2, 2]
    assert found["homogeneity"].to_dict()["decoys"] == 2
    assert found.decoys == {str(with_decoys): 2}
    print_attacks(found, with_sql=False)
    told = f"2 of the rows of {with_decoys} are decoys, rows of nobody: k, classes and victims count them"
    assert told in capsys.readouterr().out.splitlines()

    (pair,) = sqlanon.attack([without, with_decoys], only=["complementary_release"])["complementary_release"].findings
    assert pair.decoys == 2
    alone = sqlanon.attack(without, only=["homogeneity"])
    assert (alone["homogeneity"].to_dict()["decoys"], alone.decoys) == (0, {})
    print_attacks(alone, with_sql=False)
    assert "decoys" not in capsys.readouterr().out


def test_composition_finds_every_sensitive_attribute(people: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    asked = {"attributes": {**QUASI, "job": "sensitive", "ill": "sensitive"}, "k": 3}
    limits = {"search": {"suppression_limit": 0.5}, "release": {"table": "t"}}
    paths = [publish(people, tmp_path / f"{name}.duckdb", **asked, **limits) for name in ("one", "two")]
    found = sqlanon.attack(paths, only=["composition"])["composition"]
    assert {one.figures["attribute"]: one.victims for one in found.findings} == {"job": 12, "ill": 0}
    assert found.victims == 12
    assert len(found.to_dict()["findings"]) == 2


def test_the_victims_of_what_came_and_went_have_the_names_of_the_attributes(
    people: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    """Also where one of the releases lacks an attribute that comes before others."""
    without = {"ward": "insensitive", "job": "suppress", "ill": "insensitive"}
    first = publish(people, tmp_path / "one.duckdb", attributes=without | {"ward": "identifying"}, k=1)
    people.execute("INSERT INTO t VALUES (0, 'nurse', 'flu')")
    second = publish(people, tmp_path / "two.duckdb", attributes=without | {"ward": "suppress"}, k=1)
    found = sqlanon.attack([first, second], only=["temporal"])["temporal"]
    with duckdb.connect() as client:
        shown = [client.execute(one.query) for one in client.extract_statements(found.sql or "")][-1].description
    assert [column[0] for column in shown or []] == ["rows", "job"]


def test_attacks_are_found_by_name() -> None:
    with pytest.raises(KeyError, match="nothing"):
        Attacks(())["nothing"]
