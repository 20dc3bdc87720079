"""Sets that are released as lists: the same rows, and what else is made of a release still holds."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest

import sqlanon
from sqlanon import PolicyError
from support.commands import cli
from support.databases import change, fetch, insert

CITIES = ["a", "b, c", 'd"e', "{x", "[y", "w\\z", None, "NULL", "q's", "", " ", "ä{}", *(f"c{i}" for i in range(8))]
POLICY = """
[source]
database = "source.duckdb"
table = "t"
[attributes]
city = {{ role = "quasi", hierarchy = "suppress" }}
zip = {{ role = "quasi", hierarchy = "suppress" }}
age = {{ role = "quasi", hierarchy = {{ intervals = [10] }} }}
d = {{ role = "sensitive" }}
[privacy]
k = 10
[search]
strategy = "mondrian"
summary = "set"
sets = "{sets}"
suppression_limit = 0.1
[release]
{place}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A source, and a policy that releases lists."""
    folder, rng = tmp_path_factory.mktemp("lists"), random.Random(4)
    rows = [
        (rng.choice(CITIES), rng.randint(20, 80), rng.choice("uvwxyz"), rng.choice(["flu", "cold", "gout"]))
        for _ in range(400)
    ]
    with duckdb.connect(folder / "source.duckdb") as connection:
        connection.execute("CREATE TABLE t (city VARCHAR, age INTEGER, zip VARCHAR, d VARCHAR)")
        insert(connection, "t", rows)
    return folder


def release_path(folder: Path, name: str, sets: str = "list", place: str | None = None) -> Path:
    place = place or f'database = "{name}.duckdb"'
    place += "" if "[catalog]" in place else f'\n[catalog]\ndatabase = "{name}.catalog.duckdb"'
    (folder / f"{name}.toml").write_text(POLICY.format(sets=sets, place=place), encoding="utf-8")
    ended = cli("anonymize", f"{name}.toml", "--json", cwd=folder)
    assert ended.status == 0, ended
    return Path(json.loads(ended.out)["release"])


@pytest.mark.thorough
def test_lists_have_the_values_of_the_sets(folder: Path) -> None:
    text, lists = (release_path(folder, sets, sets) for sets in ("text", "list"))
    members = "CASE WHEN {0} IS NOT NULL THEN sqlanon.members({0}) END"
    query = "SELECT {}, {}, age, d, count(*) FROM t GROUP BY ALL ORDER BY ALL"
    rows = fetch(lists, query.format("city", "zip"))
    assert rows == fetch(text, query.format(members.format("city"), members.format("zip")))
    assert {city for cities, *_ in rows if cities for city in cities} > {"b, c", 'd"e', "{x", "NULL", "", " ", "w\\z"}
    assert dict(fetch(lists, "SELECT name, type FROM (DESCRIBE t) AS d(name, type, a, b, c, e)")) == {
        "city": "VARCHAR[]", "zip": "VARCHAR[]", "age": "VARCHAR", "d": "VARCHAR"
    }  # fmt: skip
    figures = "FROM sqlanon.k_anonymity('t', ['city', 'zip', 'age'])"
    assert fetch(lists, figures) == fetch(text, figures)
    assert cli("verify", lists, "--policy", "list.toml", cwd=folder).status == 0


@pytest.mark.thorough
@pytest.mark.parametrize("place", ['database = "m.duckdb"\nsuppressed = "mask"', 'file = "m.parquet"'])
def test_masked_rows_and_parquet_files_have_lists(folder: Path, place: str) -> None:
    name = "parquet" if "parquet" in place else "masked"
    path = release_path(folder, name, place=place)
    assert cli("verify", path, "--policy", f"{name}.toml", cwd=folder).status == 0
    if path.suffix == ".parquet":
        cities = pq.read_table(path)["city"].to_pylist()
    else:
        cities = [city for (city,) in fetch(path, "SELECT city FROM t")]
    assert all(city is None or isinstance(city, list) for city in cities)
    assert any(city and len(city) > 1 for city in cities)


@pytest.mark.thorough
def test_reports_attacks_and_the_ledger_take_lists(folder: Path) -> None:
    """The ledger cannot look into sets, as text or as lists: it refuses a second release after the first."""
    catalog = 'database = "second.duckdb"\nkeep = 2\n[catalog]\ndatabase = "own.duckdb"'
    path = release_path(folder, "second", place=catalog)
    assert cli("verify", path, cwd=folder).status == 0
    assert cli("report", "second.toml", "-o", "page.html", cwd=folder).status == 0
    ended = cli("attack", path, "--policy", "second.toml", cwd=folder)
    assert ended.status == 0 and "homogeneity" in ended.out
    again = cli("anonymize", "second.toml", cwd=folder)
    assert again.status == 1 and "sets" in again.err
    change(path, "UPDATE t_v1 SET city = ['c0'] WHERE rowid = 0")
    assert cli("verify", path, cwd=folder).status == 1


@pytest.mark.parametrize(
    ("section", "place", "message"),
    [
        ({"search": {"strategy": "mondrian", "sets": "list"}}, "search.sets", "released sets"),
        ({"search": {"strategy": "optimal", "summary": "set", "sets": "list"}}, "search.sets", "released sets"),
        ({"release": {"postgres": "postgresql://x/y", "table": "s.t"}}, "search.sets", "PostgreSQL"),
        ({"release": {"spark": True, "table": "s.t"}}, "search.sets", "Spark"),
        ({"source": {"spark": "sc://x", "table": "t"}}, "search.sets", "where sqlanon runs"),
    ],
)
def test_lists_are_refused_where_a_target_lacks_them(section: dict[str, Any], place: str, message: str) -> None:
    policy = {
        "source": {"table": "t"},
        "attributes": {"a": {"role": "quasi", "hierarchy": "suppress"}},
        "privacy": {"k": 2},
        "search": {"strategy": "mondrian", "summary": "set", "sets": "list"},
    }
    with pytest.raises(PolicyError) as raised:
        sqlanon.Policy(**{**policy, **section})
    assert any(problem.place == place and message in problem.message for problem in raised.value.problems)


def test_a_policy_without_the_key_keeps_its_fingerprint() -> None:
    def fingerprint(**search: str) -> str:
        return sqlanon.Policy(
            source={"table": "t"},
            attributes={"a": {"role": "quasi", "hierarchy": "suppress"}},
            privacy={"k": 2},
            search={"strategy": "mondrian", "summary": "set", **search},
        ).fingerprint()

    assert fingerprint() == fingerprint(sets="text") != fingerprint(sets="list")
