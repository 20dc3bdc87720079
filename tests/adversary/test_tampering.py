"""Mutation tests of `verify`: a release is changed in one way, and each way is found, by itself and with the policy.

SQL changes are written into a new file, so that unused blocks do not reveal them.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest

import sqlanon
from adversary import parquet_bytes as pb
from sqlanon.audit.verify import verify_file
from sqlanon.errors import SqlanonError
from sqlanon.publish.targets.base import release_location
from support.databases import DUCKDB_1, compact_file, fetch
from support.lanes import some
from support.policies import make_policy

SECRET = "John Doe has HIV"
CITIES = {"Uplands": ["Hilltown", "Stonebridge"], "Lowlands": ["Fenmarsh", "Delta Port"]}
SOURCE = """
    CREATE TABLE patients AS
    SELECT 'Person ' || i AS name,
           ['Hilltown', 'Stonebridge', 'Fenmarsh', 'Delta Port'][1 + i % 4] AS city,
           CAST(20 + (i * 7) % 40 AS INTEGER) AS age,
           ['flu', 'asthma', 'gout'][1 + i % 3] AS illness,
           CAST(i % 5 AS DOUBLE) AS score,
           CAST(i AS BIGINT) AS stay,
           [i % 7, i % 2] AS visits
    FROM range(240) AS r(i)
    UNION ALL SELECT 'Odd One', 'Fenmarsh', 101, 'gout', 0.0, 240, [1, 1]
"""
DIGEST = "UPDATE sqlanon.manifest SET digest = (SELECT digest FROM sqlanon.digest('patients'))"

Change = Callable[[Path], None]


def _policy(folder: Path) -> sqlanon.Policy:
    return make_policy(
        {
            "name": "identifying",
            "city": {"role": "quasi", "hierarchy": {"categories": CITIES}, "min_level": 1},
            "age": {"role": "quasi", "hierarchy": {"intervals": [5, 10, 20]}, "min_level": 1},
            "illness": "sensitive",
            "score": "insensitive",
            "stay": "insensitive",
            "visits": "insensitive",
        },
        k=5,
        privacy={"dependencies": "warn"},  # with the visits, some groups have one row
        source={"database": str(folder / "hospital.duckdb"), "table": "patients"},
        table=None,
        search={"suppression_limit": 0.01, "measure": "discernibility"},
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source, and a release of each kind."""
    folder = tmp_path_factory.mktemp("tampering")
    with duckdb.connect(folder / "hospital.duckdb") as connection:
        connection.execute(SOURCE)
    with sqlanon.connect() as db:
        result = db.anonymize(_policy(folder))
        for name in ("release.duckdb", "release.parquet"):
            result.publish(folder / name, "patients")
    return folder


@pytest.fixture(params=[False, pytest.param(True, marks=pytest.mark.slow)], ids=["alone", "with the policy"])
def with_policy(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def find_failures(path: Path, policy: sqlanon.Policy | None) -> str:
    """Failed checks of a release; empty if it is verified."""
    try:
        if policy is None:
            return "; ".join(verify_file(path).failures)
        with sqlanon.connect() as db:
            return "; ".join(db.verify(path, policy).failures)
    except SqlanonError as error:
        return f"{error}"


# DuckDB files


def by_sql(path: Path, *statements: str) -> None:
    with duckdb.connect(path) as connection:
        for statement in statements:
            connection.execute(statement)
    compact_file(path)


def set_claim(path: Path, name: str, value: str) -> None:
    by_sql(path, f"UPDATE sqlanon.manifest SET {name} = {value}")


def in_policy(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the policy that the manifest shows."""
    policy = json.loads(fetch(path, "SELECT policy FROM sqlanon.manifest")[0][0])
    change(policy)
    text = json.dumps(policy, ensure_ascii=False).replace("'", "''")
    set_claim(path, "policy", f"'{text}'")


def macro_with(path: Path, name: str, old: str, new: str) -> None:
    """Make a macro again with a part of its statement changed."""
    text = "\n".join(file.read_text() for file in sorted((Path(sqlanon.__file__).parents[1] / "sql").glob("*.sql")))
    statement = next(part for part in text.split("CREATE OR REPLACE ") if part.startswith(f"MACRO sqlanon.{name}("))
    statement = re.split(r"\n\);\n|\n\n--", statement)[0] + "\n)"
    assert old in statement
    by_sql(path, f"CREATE OR REPLACE {statement.replace(old, new, 1)}")


def recreate_table(path: Path, columns: str) -> None:
    """The table of the rows, made again with other definitions of its columns."""
    by_sql(
        path,
        f"CREATE TABLE other ({columns})",
        "INSERT INTO other SELECT city, age, illness, score, stay, visits FROM patients_v1",
        "DROP TABLE patients_v1",
        "ALTER TABLE other RENAME TO patients_v1",
    )


def at_byte(path: Path, place: int, content: bytes) -> None:
    data = bytearray(path.read_bytes())
    data[place : place + len(content)] = content
    path.write_bytes(data)


def with_checksum(path: Path, header: int, place: int, content: bytes) -> None:
    """Write into a header of a DuckDB file, and its checksum anew, so that the engine reads it."""
    at_byte(path, header + place, content)
    data = path.read_bytes()
    at_byte(path, header, _checksum(data[header + 8 : header + 4096]).to_bytes(8, "little"))


def _checksum(data: bytes) -> int:
    """DuckDB's hash: words of 8 bytes, each times a prime, by XOR; longer values are not supported."""
    assert len(data) % 8 == 0
    result = 5381
    for at in range(0, len(data), 8):
        result ^= int.from_bytes(data[at : at + 8], "little") * 0xBF58476D1CE4E5B9 & (2**64 - 1)
    return result


def append_bytes(path: Path, content: bytes) -> None:
    path.write_bytes(path.read_bytes() + content)


def with_wal(path: Path) -> None:
    """Changes that are next to the file, as a process leaves them that dies."""
    with duckdb.connect(path) as connection:
        connection.execute("PRAGMA disable_checkpoint_on_shutdown")
        connection.execute("SET checkpoint_threshold = '1TB'")
        connection.execute(f"COMMENT ON TABLE sqlanon.manifest IS '{SECRET}'")


def with_deleted_rows(path: Path) -> None:
    """A dropped table whose blocks are still in the file."""
    with duckdb.connect(path) as connection:
        connection.execute(
            f"CREATE TABLE gone AS SELECT '{SECRET}' || i || md5(i::VARCHAR) AS x FROM range(300000) r(i)"
        )
        connection.execute("CREATE TABLE behind AS SELECT md5(i::VARCHAR) AS x FROM range(100000) r(i)")
        connection.execute("CHECKPOINT")
        connection.execute("DROP TABLE gone")
        connection.execute("CHECKPOINT")
        connection.execute("DROP TABLE behind")


def with_trigger(path: Path, statement: str) -> None:
    """Write the file anew in the storage version that has triggers, with a trigger."""
    fresh = path.with_suffix(".fresh")
    with duckdb.connect() as connection:
        connection.execute(f"ATTACH '{path}' AS changed (READ_ONLY)")
        connection.execute(f"ATTACH '{fresh}' AS fresh (STORAGE_VERSION 'v2.0.0')")
        connection.execute("COPY FROM DATABASE changed TO fresh")
        connection.execute("USE fresh")
        connection.execute(f"CREATE TRIGGER john AFTER INSERT ON patients_v1 FOR EACH STATEMENT {statement}")
    fresh.replace(path)


PLAIN = "city VARCHAR, age VARCHAR, illness VARCHAR, score DOUBLE, stay BIGINT, visits BIGINT[]"
STABLE = "city, age, illness, score, stay, visits"


def sql(*statements: str) -> Change:
    return partial(_by_sql, statements=statements)


def _by_sql(path: Path, statements: tuple[str, ...]) -> None:
    by_sql(path, *statements)


def claim(name: str, value: str) -> Change:
    return lambda path: set_claim(path, name, value)


def policy_with(change: Callable[[dict[str, Any]], object]) -> Change:
    return lambda path: in_policy(path, change)


def macro(name: str, old: str, new: str) -> Change:
    return lambda path: macro_with(path, name, old, new)


def columns(old: str, new: str) -> Change:
    return lambda path: recreate_table(path, PLAIN.replace(old, new))


DUCKDB: Mapping[str, tuple[Change, str]] = {
    # rows
    "a row is deleted": (sql("DELETE FROM patients_v1 WHERE stay = 7"), "rows:"),
    "a row is there twice": (sql("INSERT INTO patients_v1 FROM patients_v1 LIMIT 1"), "rows:"),
    "a value is changed": (sql("UPDATE patients_v1 SET illness = 'HIV' WHERE stay = 7"), "content digest"),
    "a value is NULL": (sql("UPDATE patients_v1 SET illness = NULL WHERE stay = 7"), "content digest"),
    "an element of a list is changed": (sql("UPDATE patients_v1 SET visits = [9] WHERE stay = 7"), "content digest"),
    "a row alone in its class": (sql("UPDATE patients_v1 SET age = '100-104' WHERE stay = 7", DIGEST), "5-anonymity"),
    "a ground value in place of a label": (
        sql("UPDATE patients_v1 SET city = 'Fenmarsh' WHERE stay = 7", DIGEST),
        "5-anonymity",
    ),
    "zero with a sign": (
        sql(
            "CREATE TABLE other AS SELECT * REPLACE (if(stay = 5, '-0.0'::DOUBLE, score) AS score) FROM patients_v1",
            "DROP TABLE patients_v1",
            "ALTER TABLE other RENAME TO patients_v1",
            DIGEST,
        ),
        "signs:.*'score'",
    ),
    "NaN with a sign": (
        sql("UPDATE patients_v1 SET score = 'inf'::DOUBLE - 'inf'::DOUBLE WHERE stay = 7", DIGEST),
        "signs:.*'score'",
    ),
    # definitions
    "a column is added": (sql(f"ALTER TABLE patients_v1 ADD COLUMN note VARCHAR DEFAULT '{SECRET}'"), "columns:"),
    "a column has another type": (sql("ALTER TABLE patients_v1 ALTER stay TYPE INTEGER"), "columns:"),
    "a column with a collation": (columns("city VARCHAR", "city VARCHAR COLLATE NOCASE"), "contents:.*patients_v1"),
    "a column with a default": (columns("stay BIGINT", "stay BIGINT DEFAULT 7"), "contents:"),
    "a generated column": (
        columns("stay BIGINT", "stay BIGINT, more VARCHAR GENERATED ALWAYS AS ('x')"),
        "columns:|contents:",
    ),
    "a condition": (columns("stay BIGINT", f"stay BIGINT CHECK (illness <> '{SECRET}')"), "contents:"),
    "a key": (columns("stay BIGINT", "stay BIGINT PRIMARY KEY"), "contents:"),
    "a column that is not NULL": (columns("stay BIGINT", "stay BIGINT NOT NULL"), "contents:"),
    "a collation in the labels": (
        sql(
            "CREATE TABLE other (city VARCHAR COLLATE NOCASE, city_order INTEGER)",
            "INSERT INTO other FROM city_labels",
            "DROP TABLE city_labels",
            "ALTER TABLE other RENAME TO city_labels",
        ),
        "contents:.*city_labels",
    ),
    "a default in our own table": (
        sql(f"ALTER TABLE sqlanon.figures ALTER meaning SET DEFAULT '{SECRET}'"),
        "contents:",
    ),
    "one more table": (sql("CREATE TABLE backup AS FROM patients"), "contents:.*backup"),
    "one more empty table": (sql(f'CREATE TABLE "{SECRET}" (i INTEGER)'), "contents:"),
    "one more view": (sql(f"CREATE VIEW v AS SELECT '{SECRET}' AS x"), "contents:"),
    "one more schema": (sql(f'CREATE SCHEMA "{SECRET}"'), "contents:"),
    "one more type": (sql(f"CREATE TYPE names AS ENUM ('{SECRET}')"), "contents:"),
    "one more sequence": (sql("CREATE SEQUENCE john"), "contents:"),
    "one more index": (sql("CREATE INDEX john ON patients_v1 (stay)"), "contents:"),
    "one more trigger": (
        lambda path: with_trigger(path, f"UPDATE sqlanon.suppression SET value = '{SECRET}'"),
        "contents: trigger main.john is not part",
    ),
    "the rows are a view": (
        sql("ALTER TABLE patients_v1 RENAME TO rows_", "CREATE VIEW patients_v1 AS FROM rows_"),
        "contents:",
    ),
    "the view shows other rows": (
        sql(f"CREATE OR REPLACE VIEW patients AS SELECT {STABLE} FROM patients_v1 WHERE illness <> 'gout'"),
        "view:",
    ),
    "the view shows a constant": (
        sql(
            "CREATE OR REPLACE VIEW patients AS "
            f"SELECT city, age, '{SECRET}' AS illness, score, stay, visits FROM patients_v1"
        ),
        "view:",
    ),
    "the view has its columns in another order": (
        sql("CREATE OR REPLACE VIEW patients AS SELECT age, city, illness, score, stay, visits FROM patients_v1"),
        "view:",
    ),
    "a view of the release lies": (
        sql("CREATE OR REPLACE VIEW class_sizes AS SELECT 99 AS class_size, 1 AS classes, 1 AS rows"),
        "comments and views:.*class_sizes",
    ),
    "a comment on the table": (sql(f"COMMENT ON TABLE patients_v1 IS '{SECRET}'"), "comments and views"),
    "a comment on a column": (sql(f"COMMENT ON COLUMN patients.city IS '{SECRET}'"), "comments and views"),
    "a comment on the manifest": (sql(f"COMMENT ON TABLE sqlanon.manifest IS '{SECRET}'"), "comments and views"),
    "a comment on a column of the manifest": (
        sql(f"COMMENT ON COLUMN sqlanon.manifest.digest IS '{SECRET}'"),
        "comments and views",
    ),
    "a comment on a macro": (sql(f"COMMENT ON MACRO TABLE sqlanon.digest IS '{SECRET}'"), "comments and views"),
    "no comment": (sql("COMMENT ON TABLE patients_v1 IS NULL"), "comments and views"),
    "a figure": (sql("UPDATE sqlanon.figures SET value = 0 WHERE figure = 'score'"), "comments and views:.*figures"),
    "the meaning of a figure": (
        sql(f"UPDATE sqlanon.figures SET meaning = '{SECRET}'"),
        "comments and views:.*figures",
    ),
    "what was done to an attribute": (
        sql(f"UPDATE sqlanon.attributes SET what_was_done = '{SECRET}'"),
        "comments and views:.*attributes",
    ),
    "one more label": (sql(f"INSERT INTO city_labels VALUES ('{SECRET}', 3)"), "comments and views:.*city_labels"),
    "the ends of a label": (sql("UPDATE age_labels SET age_low = 0"), "comments and views:.*age_labels"),
    "a suppressed row is recorded": (
        sql("INSERT INTO sqlanon.suppression VALUES ('city', 'Uplands', 1, 120)"),
        "suppression by value",
    ),
    # macros
    "one more macro": (sql(f"CREATE MACRO leak() AS '{SECRET}'"), "macros:.*leak"),
    "a macro less": (sql("DROP MACRO TABLE sqlanon.t_closeness"), "macros:.*t_closeness"),
    "a macro answers something else": (
        sql("CREATE OR REPLACE MACRO sqlanon.alpha(rel, qi, sensitive, person := NULL) AS TABLE SELECT 0.1 AS alpha"),
        "macros:.*alpha",
    ),
    "the default of a macro": (
        macro("t_closeness", "distance := 'equal'", "distance := 'ordered'"),
        "macros:.*t_closeness",
    ),
    "the default of a macro is a text": (
        macro("l_diversity", "person := NULL", f"person := '{SECRET}'"),
        "macros:.*l_diversity",
    ),
    "the parameters of a macro in another order": (
        macro("k_anonymity", "(rel, qi)", "(qi, rel)"),
        "macros:.*k_anonymity",
    ),
    "one more parameter of a macro": (
        macro("k_anonymity", "(rel, qi)", f"(rel, qi, john := '{SECRET}')"),
        "macros:.*k_anonymity",
    ),
    "a scalar macro in place of a table's": (
        sql("DROP MACRO TABLE sqlanon.alpha", "CREATE MACRO sqlanon.alpha(rel, qi, sensitive, person := NULL) AS 0.1"),
        "macros:.*alpha",
    ),
    "a macro with an overload": (
        sql(
            "CREATE MACRO sqlanon.leak(a) AS a, (a, b) AS a + b",
        ),
        "macros:.*leak",
    ),
    # the manifest
    "k is another": (policy_with(lambda policy: policy["privacy"].update(k=200)), "200-anonymity"),
    "an unknown key of the policy": (policy_with(lambda policy: policy.update(note=SECRET)), "policy.note"),
    "an unknown key of an attribute": (
        policy_with(lambda policy: policy["attributes"]["city"].update(note=SECRET)),
        "policy.attributes.city.note",
    ),
    "an unknown key of a rule": (
        policy_with(lambda policy: policy["attributes"]["age"]["hierarchy"][0].update(note=SECRET)),
        "policy.attributes.age.hierarchy",
    ),
    "an unknown rule": (
        policy_with(lambda policy: policy["attributes"]["age"]["hierarchy"].append({"rule": SECRET})),
        "policy.attributes.age.hierarchy",
    ),
    "a text for a number": (
        policy_with(lambda policy: policy["attributes"]["city"].update(weight=SECRET)),
        "policy.attributes.city.weight",
    ),
    "the ground values of a rule": (
        policy_with(lambda policy: policy["attributes"]["city"]["hierarchy"][0].update(categories=CITIES)),
        "policy.attributes.city.hierarchy",
    ),
    "an unknown requirement": (policy_with(lambda policy: policy["privacy"].update(note=SECRET)), "policy.privacy"),
    "an unknown key of the search": (policy_with(lambda policy: policy["search"].update(note=SECRET)), "policy.search"),
    "an unknown strategy": (policy_with(lambda policy: policy["search"].update(strategy=SECRET)), "policy.search"),
    "a requirement of another column": (
        policy_with(
            lambda policy: policy["privacy"].update(t_closeness=[{"attribute": SECRET, "distance": "equal", "t": 1.0}])
        ),
        "requirements:|policy.privacy",
    ),
    "no requirement": (policy_with(lambda policy: policy["privacy"].clear()), "manifest.*:"),
    "another role": (
        policy_with(lambda policy: policy["attributes"]["illness"].update(role="insensitive")),
        "manifest.*:.*roles",
    ),
    "a key twice": (
        claim("policy", f"""replace(policy, '{{"undeclared"', '{{"undeclared": "{SECRET}", "undeclared"')"""),
        "manifest is broken: its JSON has duplicate keys",
    ),
    "space in the JSON": (claim("generalization", "generalization || ' '"), "duplicate keys or extra space"),
    "an unknown attribute is generalized": (
        claim("generalization", f"""replace(generalization, '}}', ', "{SECRET}": 1}}')"""),
        "manifest.*:.*generalization",
    ),
    "another level": (
        claim("generalization", "replace(generalization, '\"age\": ', '\"age\": 1')"),
        "manifest.*:.*heights|words",
    ),
    "the height of an unknown attribute": (
        claim("heights", f"""replace(heights, '}}', ', "{SECRET}": 1}}')"""),
        "manifest.*:.*heights",
    ),
    "an unknown key of a column": (
        claim("columns", f"""replace(columns, '"role": "sensitive"', '"role": "sensitive", "note": "{SECRET}"')"""),
        "manifest is broken",
    ),
    "rows of the source": (claim("rows", "rows + 1"), "manifest.*:.*row counts"),
    "classes": (claim("classes", "classes + 1"), "classes:"),
    "the smallest class": (claim("smallest_class", "smallest_class + 1"), "smallest class:"),
    "the score": (claim("score", "score + 1"), "score:"),
    "a score of another measure": (claim("measure", "'suppression'"), "manifest.*:.*measure"),
    "a guarantee": (claim("guarantee", f"'{SECRET}'"), "manifest.*:.*guarantee"),
    "the version of sqlanon": (claim("sqlanon_version", f"'{SECRET}'"), "manifest.*:.*sqlanon_version"),
    "the engine": (claim("engine", f"'{SECRET}'"), "manifest.*:.*engine"),
    "the hash of the policy": (claim("policy_hash", f"'{SECRET}'"), "manifest.*:.*policy_hash"),
    "the digest": (claim("digest", "'1'"), "content digest"),
    "the digest's algorithm": (claim("digest_algorithm", f"'{SECRET}'"), "manifest.*:.*format|manifest.*:"),
    "the format": (claim("format", "2"), "manifest.*:.*format"),
    "noise in a release without it": (claim("epsilon", "1.0"), "manifest.*:.*noise"),
    "confidence without a policy for it": (claim("confidence", f"""'{{"{SECRET}": 1}}'"""), "manifest.*:.*confidence"),
    "decoys without a policy for them": (claim("decoys", "7"), "manifest.*:.*decoys|row counts"),
    "a second manifest": (sql("INSERT INTO sqlanon.manifest FROM sqlanon.manifest"), "manifest"),
    "a column of the manifest": (
        sql(f"ALTER TABLE sqlanon.manifest ADD COLUMN note VARCHAR DEFAULT '{SECRET}'"),
        "manifest",
    ),
    # the file
    "a log next to it": (with_wal, r"comments and views|\.wal"),
    "bytes behind its end": (lambda path: append_bytes(path, SECRET.encode()), "file: it has [0-9,]+ bytes"),
    "a block behind its end": (
        lambda path: append_bytes(path, SECRET.encode().ljust(262144)),
        "file: it has [0-9,]+ bytes",
    ),
    "text in the first header": (lambda path: with_checksum(path, 0, 2000, SECRET.encode()), "file: the header"),
    "text for the version of the writer": (
        lambda path: with_checksum(path, 0, 52, SECRET.encode()),
        "file: the header",
    ),
    "text in the commit of the writer": (
        lambda path: with_checksum(path, 0, 84, SECRET.encode().hex().encode()),
        "file: the header",
    ),
    "text after the version of the writer": (
        lambda path: with_checksum(path, 0, 52, b"v2.0.1-john.doe.has.hiv"),
        "file: the header",
    ),
    "text in a header of the blocks": (
        lambda path: with_checksum(path, 4096, 3000, SECRET.encode()),
        "file: a header",
    ),
    "rows that were deleted": (with_deleted_rows, "file: .*of its blocks are not in use"),
}

OF_THE_SOURCE: Mapping[str, tuple[Change, str]] = {
    "a sensitive value, and the digest": (
        sql("UPDATE patients_v1 SET illness = 'HIV' WHERE stay = 7", DIGEST),
        "against the source: recoded source",
    ),
    "two rows swap a value, and the digest": (
        sql(
            "UPDATE patients_v1 SET illness = CASE stay WHEN 7 THEN 'gout' ELSE 'asthma' END WHERE stay IN (7, 8)",
            DIGEST,
        ),
        "against the source: recoded source",
    ),
    "k and the policy": (
        policy_with(lambda policy: policy["privacy"].update(k=2)),
        "against the source: manifest",
    ),
    "the suppression limit": (
        policy_with(lambda policy: policy["search"].update(suppression_limit=1)),
        "against the source: manifest",
    ),
    "the hash of another policy": (claim("policy_hash", f"'{'0' * 64}'"), "against the source: policy"),
    "the name of an attribute that is not released": (
        policy_with(lambda policy: policy["attributes"].update({SECRET: policy["attributes"].pop("name")})),
        "against the source: manifest",
    ),
    "an attribute that is not released": (
        policy_with(lambda policy: policy["attributes"].update({SECRET: {"role": "identifying"}})),
        "against the source: manifest",
    ),
}
"""Consistent changes: only the source reveals them, the release alone does not. (Descriptions of attributes follow
the manifest: alone they are detected, too, unless they are changed with it.)"""


# Parquet files


def rewrite_parquet(path: Path, query: str = "SELECT * FROM rows", metadata: str = "", options: str = "") -> None:
    """Write a Parquet file again with its manifest."""
    manifest = fetch_manifest(path).replace("'", "''")
    fresh = path.with_suffix(".fresh")
    with duckdb.connect() as connection:
        connection.execute(f"CREATE VIEW rows AS FROM read_parquet('{path}')")
        connection.execute(
            f"COPY ({query}) TO '{fresh}' (FORMAT PARQUET, KV_METADATA {{sqlanon: '{manifest}'{metadata}}}{options})"
        )
    fresh.replace(path)


def fetch_manifest(path: Path) -> str:
    with duckdb.connect() as connection:
        query = f"SELECT decode(value) FROM parquet_kv_metadata('{path}') WHERE decode(key) = 'sqlanon'"
        return str(connection.execute(query).fetchall()[0][0])


def in_manifest(path: Path, change: Callable[[str], str]) -> None:
    """Change the text of the manifest in a file's footer."""

    def change_entry(footer: pb.Struct) -> None:
        entry = footer[5][1][1][0]
        before = entry[2][1].decode()
        entry[2] = (pb.BINARY, change(before).encode())
        assert entry[2][1].decode() != before

    pb.footer_changed(path, change_entry)


def manifest_with(**fields: Any) -> Change:
    return lambda path: in_manifest(path, lambda text: json.dumps({**json.loads(text), **fields}, ensure_ascii=False))


def footer(change: Callable[[pb.Struct], object]) -> Change:
    return lambda path: pb.footer_changed(path, change)


def put(struct: pb.Struct, field: int, kind: int, value: Any) -> None:
    struct[field] = (kind, value)


def statistics_of(footer: pb.Struct, place: int) -> pb.Struct:
    statistics: pb.Struct = pb.column(footer, place)[12][1]
    return statistics


def before_the_footer(path: Path, content: bytes) -> None:
    body, footer_bytes = pb.parts(path)
    pb.put(path, body + content, footer_bytes)


def in_the_footer(path: Path, content: bytes) -> None:
    body, footer_bytes = pb.parts(path)
    pb.put(path, body, footer_bytes + content)


def bloom_filled(path: Path) -> None:
    """A Bloom filter in which everything is."""

    def zero_block(footer: pb.Struct) -> None:
        start, length = pb.column(footer, 0)[14][1], pb.column(footer, 0)[15][1]
        places.append((start, length))

    places: list[tuple[int, int]] = []
    pb.footer_changed(path, zero_block)
    ((start, length),) = places
    at_byte(path, start + length - 32, b"\xff" * 32)


def without_bloom(footer: pb.Struct) -> None:
    """The filter is not said of any more: its bytes are there."""
    for field in (14, 15):
        del pb.column(footer, 0)[field]


def by_another_writer(path: Path) -> None:
    pq.write_table(pq.read_table(path), path)


ENUM = "SELECT * REPLACE (illness::ENUM ('asthma', 'flu', 'gout', 'John Doe has HIV') AS illness) FROM rows"
HEIGHT = int.from_bytes(SECRET.encode(), "big")
CITY, ILLNESS, SCORE, STAY, VISITS = 0, 2, 3, 4, 5

PARQUET: Mapping[str, tuple[Change, str]] = {
    "a row is deleted": (lambda path: rewrite_parquet(path, "FROM rows WHERE stay <> 7"), "rows:"),
    "a row is there twice": (
        lambda path: rewrite_parquet(path, "FROM rows UNION ALL FROM rows WHERE stay = 7"),
        "rows:",
    ),
    "a value is changed": (
        lambda path: rewrite_parquet(path, "SELECT * REPLACE (if(stay = 7, 'HIV', illness) AS illness) FROM rows"),
        "content digest",
    ),
    "a row alone in its class": (
        lambda path: rewrite_parquet(path, "SELECT * REPLACE (if(stay = 7, '100-104', age) AS age) FROM rows"),
        "classes:|5-anonymity",
    ),
    "zero with a sign": (
        lambda path: rewrite_parquet(path, "SELECT * REPLACE (if(score = 0, -0.0::DOUBLE, score) AS score) FROM rows"),
        "signs:.*'score'",
    ),
    "one more column": (lambda path: rewrite_parquet(path, f"SELECT *, '{SECRET}' AS note FROM rows"), "columns:"),
    "another type": (
        lambda path: rewrite_parquet(path, "SELECT * REPLACE (stay::INTEGER AS stay) FROM rows"),
        "columns:",
    ),
    "unused entries of a dictionary": (
        lambda path: rewrite_parquet(path, ENUM),
        "contents: the dictionary of column 'illness'",
    ),
    "one more key": (
        lambda path: rewrite_parquet(path, metadata=f", note: '{SECRET}'"),
        "contents: its metadata has the key 'note'",
    ),
    "a key of the engine with another value": (
        lambda path: rewrite_parquet(path, metadata=f", 'duckdb.interval_bloom_filter': '{SECRET}'"),
        "contents: its metadata has the key",
    ),
    "the manifest twice": (
        footer(lambda tree: tree[5][1][1].append({1: (pb.BINARY, b"sqlanon"), 2: (pb.BINARY, SECRET.encode())})),
        "manifest|contents",
    ),
    "a key without a value": (
        footer(lambda tree: tree[5][1][1].append({1: (pb.BINARY, SECRET.encode())})),
        "contents: its metadata",
    ),
    "no manifest": (footer(lambda tree: tree.pop(5)), "no manifest"),
    "keys of a column": (
        footer(
            lambda tree: put(
                pb.column(tree, CITY),
                8,
                pb.LIST,
                (pb.STRUCT, [{1: (pb.BINARY, b"note"), 2: (pb.BINARY, SECRET.encode())}]),
            )
        ),
        "contents: column 'city'",
    ),
    "an unknown field of the footer": (
        footer(lambda tree: put(tree, 99, pb.BINARY, SECRET.encode())),
        "contents: the footer",
    ),
    "an unknown field of a row group": (
        footer(lambda tree: put(tree[4][1][1][0], 99, pb.BINARY, SECRET.encode())),
        "contents: a row group",
    ),
    "an unknown field of a column": (
        footer(lambda tree: put(pb.column(tree, STAY), 99, pb.BINARY, SECRET.encode())),
        "contents: column 'stay'",
    ),
    "an unknown field of the statistics": (
        footer(lambda tree: put(statistics_of(tree, STAY), 99, pb.BINARY, SECRET.encode())),
        "contents: the statistics of column 'stay'",
    ),
    "the rows are said to be sorted": (
        footer(
            lambda tree: put(
                tree[4][1][1][0], 4, pb.LIST, (pb.STRUCT, [{1: (pb.I32, 4), 2: (pb.FALSE, None), 3: (pb.FALSE, None)}])
            )
        ),
        "contents: a row group",
    ),
    "a column in another file": (
        footer(lambda tree: put(tree[4][1][1][0][1][1][1][CITY], 1, pb.BINARY, SECRET.encode())),
        "contents: column 'city'|cannot be read",
    ),
    "another name of a column in a row group": (
        footer(lambda tree: put(pb.column(tree, CITY), 3, pb.LIST, (pb.BINARY, [SECRET.encode()]))),
        "contents: column 'city'",
    ),
    "another name of the schema": (
        footer(lambda tree: put(tree[2][1][1][0], 4, pb.BINARY, SECRET.encode())),
        "contents: its schema",
    ),
    "another writer": (footer(lambda tree: put(tree, 6, pb.BINARY, SECRET.encode())), "contents: it was not written"),
    "text in the version of the writer": (
        footer(lambda tree: put(tree, 6, pb.BINARY, b"DuckDB version v2.0.1-John_Doe_has_HIV.7 (build 8d78114e90)")),
        "contents: it was not written",
    ),
    "text in the build of the writer": (
        footer(
            lambda tree: put(
                tree, 6, pb.BINARY, b"DuckDB version v2.0.1 (build " + SECRET.encode().hex().encode() + b")"
            )
        ),
        "contents: it was not written",
    ),
    "written by another program": (by_another_writer, "contents:"),
    "the least value of a column": (
        footer(lambda tree: put(statistics_of(tree, ILLNESS), 6, pb.BINARY, SECRET.encode())),
        "contents: the statistics of column 'illness'",
    ),
    "the greatest value of a column": (
        footer(lambda tree: put(statistics_of(tree, ILLNESS), 5, pb.BINARY, b"zoster")),
        "contents: the statistics of column 'illness'",
    ),
    "the least value, as older readers have it": (
        footer(lambda tree: put(statistics_of(tree, ILLNESS), 2, pb.BINARY, SECRET.encode())),
        "contents: the statistics of column 'illness'",
    ),
    "the greatest number of a column": (
        footer(lambda tree: put(statistics_of(tree, STAY), 5, pb.BINARY, (240).to_bytes(8, "little"))),
        "contents: the statistics of column 'stay'",
    ),
    "the greatest element of a list": (
        footer(lambda tree: put(statistics_of(tree, VISITS), 5, pb.BINARY, (77).to_bytes(8, "little"))),
        "contents: the statistics of column 'visits'",
    ),
    "how many values a column has": (
        footer(lambda tree: put(statistics_of(tree, CITY), 4, pb.I64, 4)),
        "contents: the statistics of column 'city'",
    ),
    "a Bloom filter of more values": (bloom_filled, "contents: the Bloom filter of column 'city'"),
    "the bytes of a Bloom filter that is not said of": (footer(without_bloom), "contents: it has [0-9]+ bytes"),
    "bytes before the footer": (lambda path: before_the_footer(path, SECRET.encode()), "contents: it has 16 bytes"),
    "bytes in the footer": (lambda path: in_the_footer(path, SECRET.encode()), "contents: the footer has 16 bytes"),
    "bytes behind the end": (lambda path: append_bytes(path, SECRET.encode()), "cannot be read"),
    "an unknown claim": (manifest_with(note=SECRET), "manifest is broken"),
    "a height that is a text": (
        manifest_with(heights=json.dumps({"city": HEIGHT, "age": 4})),
        "manifest fields: .*heights",
    ),
    "a claim twice": (
        lambda path: in_manifest(path, lambda text: text.replace('{"', f'{{"table_name": "{SECRET}", "', 1)),
        "manifest is broken: its JSON has duplicate keys",
    ),
    "a text for a switch": (manifest_with(optimal=SECRET), "manifest.*:.*optimal"),
    "a text for the score": (manifest_with(score=SECRET), "score"),
    "a text for the version": (manifest_with(version=SECRET), "manifest"),
    "a version of a file that has none": (
        manifest_with(version=4711),
        "manifest is broken: a Parquet file has no versions",
    ),
    "a text for the time": (manifest_with(published_at=SECRET), "manifest is broken"),
    "a time in a zone": (manifest_with(published_at="2026-01-01T00:00:00+01:00"), "manifest"),
    "the engine": (manifest_with(engine=SECRET), "manifest.*:.*engine"),
    "the score": (manifest_with(score=1.0), "score:"),
    "the digest": (manifest_with(digest="1"), "content digest"),
    "classes": (manifest_with(classes=3), "classes:"),
    "an unknown key of the policy": (
        lambda path: in_manifest(
            path, lambda text: text.replace('{\\"undeclared', f'{{\\"note\\": \\"{SECRET}\\", \\"undeclared')
        ),
        "policy.note",
    ),
}

WAITING: Mapping[str, tuple[Change, str]] = {}
"""Findings of `verify --policy`, which compares rows and not digests: several values are changed so that the
digest stays as it is. The attack itself has its test where the digest has its own."""


def test_at_least_sixty_kinds_of_tampering_are_tried() -> None:
    assert len(DUCKDB) >= 60
    assert len({*DUCKDB, *PARQUET, *OF_THE_SOURCE}) >= 100


@pytest.mark.thorough
@pytest.mark.parametrize("name", some(["release.duckdb", "release.parquet"], 4))
def test_an_unchanged_release_is_verified(folder: Path, name: str, with_policy: bool) -> None:
    assert find_failures(folder / name, _policy(folder) if with_policy else None) == ""


@pytest.mark.thorough
def test_a_rewritten_release_is_verified(folder: Path, tmp_path: Path) -> None:
    """Failures of the tests below are therefore due to the change, not to the rewriting."""
    path = Path(shutil.copy(folder / "release.duckdb", tmp_path))
    by_sql(path)
    assert find_failures(path, None) == ""
    path = Path(shutil.copy(folder / "release.parquet", tmp_path))
    rewrite_parquet(path)
    assert find_failures(path, None) == ""


@pytest.mark.slow
@pytest.mark.parametrize("tampering", some(DUCKDB, 16))
def test_tampering_with_a_duckdb_file_is_found(tampering: str, folder: Path, tmp_path: Path, with_policy: bool) -> None:
    if DUCKDB_1 and "collation" in tampering:
        pytest.skip("written anew by this DuckDB, it loses its collation")
    if DUCKDB_1 and "trigger" in tampering:
        pytest.skip("this DuckDB has no triggers")
    change, expected = DUCKDB[tampering]
    path = Path(shutil.copy(folder / "release.duckdb", tmp_path))
    change(path)
    assert re.search(expected, find_failures(path, _policy(folder) if with_policy else None))


@pytest.mark.slow
@pytest.mark.parametrize("tampering", some(PARQUET, 5))
def test_tampering_with_a_parquet_file_is_found(
    tampering: str, folder: Path, tmp_path: Path, with_policy: bool
) -> None:
    change, expected = PARQUET[tampering]
    path = Path(shutil.copy(folder / "release.parquet", tmp_path))
    change(path)
    assert re.search(expected, find_failures(path, _policy(folder) if with_policy else None))


@pytest.mark.thorough
@pytest.mark.parametrize("tampering", some(OF_THE_SOURCE, 7))
def test_consistent_forgeries_are_found_with_the_policy(tampering: str, folder: Path, tmp_path: Path) -> None:
    change, expected = OF_THE_SOURCE[tampering]
    path = Path(shutil.copy(folder / "release.duckdb", tmp_path))
    change(path)
    assert re.search(expected, find_failures(path, _policy(folder)))


@pytest.mark.thorough
def test_bytes_hidden_in_the_end_of_a_block_need_the_sha256_and_verify_reports_it(folder: Path, tmp_path: Path) -> None:
    path = Path(shutil.copy(folder / "release.duckdb", tmp_path))
    published, headers, size = path.read_bytes(), 3 * 4096, 2**18
    ends = range(headers + size, len(published) + 1, size)
    hidden = next(end for end in ends if not any(published[end - 4096 : end]))
    at_byte(path, hidden - 16, SECRET.encode())
    data = path.read_bytes()[hidden - size + 8 : hidden]
    at_byte(path, hidden - size, _checksum(data).to_bytes(8, "little"))
    alone = release_location(path, None).verify()
    (message,) = (check.message for check in alone.checks if check.name == "file")
    assert alone.verified and "unused ends" in message and "--sha256, --policy" in message
    held = release_location(path, None).verify(sha256=hashlib.sha256(published).hexdigest())
    assert [check.name for check in held.checks if check.passed is False] == ["sha256"]
    page = release_location(folder / "release.parquet", None).verify()
    assert any("unused ends" in check.message for check in page.checks if check.name == "contents")
