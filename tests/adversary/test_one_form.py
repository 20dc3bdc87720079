"""One form and one text of each value on all engines: a table of odd values of each type, released by each."""

from __future__ import annotations

from collections import Counter
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sqlanon
from adversary.odd_values import odd_floats
from support.postgres_cases import HERE, in_duckdb, policies, schemas  # noqa: F401  (a fixture)

pytestmark = pytest.mark.thorough

POSTGRES: dict[str, tuple[str, tuple[str, ...]]] = {
    "smallint": ("SMALLINT", ("-32768", "0", "7")),
    "bigint": ("BIGINT", ("-9223372036854775808", "9223372036854775807", "0")),
    "real": ("FLOAT", ("0", "-0", "nan", "inf", "-inf", "1e-45", "0.1", "16777216", "3e38", "1e10", "1e-7", "100000")),
    "double precision": (
        "DOUBLE",
        ("0", "-0", "nan", "inf", "-inf", "5e-324", "1e15", "1e16", "1e17", "9999999999999998", "0.0001", "0.00001",
         "1e22", "123456789012345680", "0.30000000000000004", "1e300", "100000", "-1.5"),
    ),
    "boolean": ("BOOLEAN", ("true", "false")),
    "text": ("VARCHAR", ("a", "A", " a ", "", "é", "e\u0301", "NULL", "**", "\\x", "日", "1:'\"")),
    "character(5)": ("VARCHAR", ("a", "ab", "a b")),
    "numeric(2,2)": ("DECIMAL(2,2)", ("0.00", "-0.50", "0.05")),
    "numeric(9,2)": ("DECIMAL(9,2)", ("0.00", "-0.01", "1000000.50")),
    "numeric(38,10)": ("DECIMAL(38,10)", ("0.0000000001", "-1234567890123456789012345678.5")),
    "date": ("DATE", ("2020-02-29", "infinity", "-infinity", "0001-01-01", "10000-01-01")),
    "time": ("TIME", ("00:00:00", "24:00:00", "12:00:00.5", "12:00:00.000001")),
    "timestamp": ("TIMESTAMP", ("2020-01-01 00:00:00.5", "infinity", "-infinity", "0001-01-01 00:00:00",
                                "12000-01-01 00:00:00")),
    "timestamp with time zone": (
        "TIMESTAMP WITH TIME ZONE",
        ("2020-01-01 00:00:00+00", "2020-07-01 00:00:00.25+02", "infinity", "-infinity", "1800-01-01 00:00:00+00"),
    ),
    "uuid": ("UUID", ("00000000-0000-0000-0000-000000000001", "F0000000-0000-0000-0000-000000000001")),
}  # fmt: skip
"""By PostgreSQL's type, DuckDB's, and texts of values that both read."""

NANS = {"real": "float4", "double precision": "float8"}


def odd_rows(types: dict[str, tuple[str, tuple[str, ...]]], copies: int = 2) -> list[list[Any]]:
    """Rows that are alike in twos, each type with all its values and NULL; and two that are like no other."""
    columns = [(*values, None) for _, values in types.values()]
    count = max(map(len, columns))
    rows = [[column[j % len(column)] for column in columns] for j in range(count) for _ in range(copies)]
    rows += [[column[(j * 5 + i) % len(column)] for i, column in enumerate(columns)] for j in (1, 2)]
    return [[i, *row, *row, *row] for i, row in enumerate(rows)]


def names_of(types: dict[str, tuple[str, tuple[str, ...]]]) -> list[str]:
    return ["id", *(f"{role}_{kind}" for role in "qis" for kind in types)]


def tree_of(types: dict[str, tuple[str, tuple[str, ...]]], strategy: str, suppressed: str) -> dict[str, Any]:
    quasi = {"role": "quasi", "hierarchy": "suppress"}
    return {
        "attributes": {
            "id": {"role": "identifying"},
            **{f"q_{kind}": quasi for kind in types},
            **{f"i_{kind}": {"role": "insensitive"} for kind in types},
            **{f"s_{kind}": {"role": "sensitive"} for kind in types},
        },
        "privacy": {"k": 2, "l_diversity": []},
        "search": {"suppression_limit": 0.1, "strategy": strategy},
        "release": {"suppressed": suppressed},
    }


@pytest.mark.parametrize(("strategy", "suppressed"), [("optimal", "mask"), ("optimal", "drop"), ("samarati", "mask")])
def test_postgres_and_duckdb_release_equal_rows(schemas: Any, tmp_path: Path, strategy: str, suppressed: str) -> None:  # noqa: F811
    """This includes NaN with and without a sign: PostgreSQL treats them as equal, and keeps the sign."""
    rows, names = odd_rows(POSTGRES), names_of(POSTGRES)
    theirs = dict(zip(names, ["integer", *POSTGRES, *POSTGRES, *POSTGRES], strict=True))
    ours = {name: "INTEGER" if name == "id" else POSTGRES[name[2:]][0] for name in names}
    schemas.load("clinic.t", theirs, rows)
    for name, kind in theirs.items():
        if kind in NANS:
            negative = f"('Infinity'::{NANS[kind]} - 'Infinity'::{NANS[kind]})"
            quoted = f'"{name}"'
            schemas.run(f"UPDATE clinic.t SET {quoted} = {negative} WHERE {quoted} = 'NaN' AND id % 2 = 0")
            sent = schemas.rows(
                f"SELECT DISTINCT {NANS[kind]}send({quoted})::text FROM clinic.t WHERE {quoted} = 'NaN'"
            )
            assert len(sent) == 2, "it has both"
    signed = [
        [
            "-nan" if value == "nan" and row[0] % 2 == 0 else value
            for value in row
        ]
        for row in rows
    ]  # fmt: skip
    local_policy, remote_policy = policies(tree_of(POSTGRES, strategy, suppressed))
    with sqlanon.connect(in_duckdb(ours, signed)) as db, sqlanon.connect() as remote_db:
        file = db.anonymize(local_policy).publish(tmp_path / "here.duckdb")
        assert file.verify().verified and db.verify(file.path, local_policy).verified
        result = remote_db.anonymize(remote_policy)
        published = result.publish()
        assert published.manifest.columns == file.manifest.columns
        assert published.manifest.digest == file.manifest.digest
        verification = remote_db.verify(HERE, remote_policy, "shared.r")
        assert published.verify().verified and verification.verified, verification.failures
        assert result.publish(tmp_path / "from_there.duckdb", "r").manifest.digest == file.manifest.digest
    types = {column.name: column.type for column in file.manifest.columns}
    assert file.manifest.suppressed_rows == 2 and (types["q_real"] == "VARCHAR") == (suppressed == "mask")
    with duckdb.connect(str(file.path), read_only=True) as release:
        for name, kind in theirs.items():
            if types.get(name) == "VARCHAR":
                expected = Counter(release.execute(f'SELECT "{name}" FROM r').fetchall())
                assert Counter(schemas.rows(f'SELECT "{name}" FROM shared.r')) == expected, name
            elif name in types and kind in NANS:
                sent = f'SELECT DISTINCT {NANS[kind]}send("{name}")::text FROM shared.r WHERE "{name}" = \'NaN\''
                assert schemas.rows(sent) == [("\\x7fc00000",) if kind == "real" else ("\\x7ff8000000000000",)]
                assert schemas.rows(f"SELECT count(*) FROM shared.r WHERE \"{name}\"::text = '-0'") == [(0,)]


SPARK: dict[str, pa.Array] = {
    "tiny": pa.array([-128, 127, 0, 7], pa.int8()),
    "big": pa.array([-(2**63), 2**63 - 1, 0], pa.int64()),
    "flag": pa.array([True, False]),
    "text": pa.array(["a", "A", " a ", "", "é", "e\u0301", "NULL", "**", "${x}", "日"]),
    "float": pa.concat_arrays([odd_floats("FLOAT")["x"].combine_chunks(), pa.array([0.1, 1e10, 3e38], pa.float32())]),
    "double": pa.concat_arrays(
        [
            odd_floats("DOUBLE")["x"].combine_chunks(),
            pa.array([1e15, 1e16, 1e-4, 1e-5, 1e22, 0.30000000000000004, 1e5], pa.float64()),
        ]
    ),
    "fraction": pa.array([Decimal("0.00"), Decimal("-0.50"), Decimal("0.05")], pa.decimal128(2, 2)),
    "decimal": pa.array([Decimal("0.00"), Decimal("-0.01"), Decimal("1000000.50")], pa.decimal128(9, 2)),
    "day": pa.array([date(2020, 2, 29), date(1, 1, 1), date(9999, 12, 31)]),
    "time": pa.array([datetime(2020, 1, 1, 0, 0, 0, 500000), datetime(1969, 12, 31, 23, 59, 59)], pa.timestamp("us")),
    "instant": pa.array([datetime(2020, 1, 1), datetime(1890, 1, 1)], pa.timestamp("us", tz="UTC")),
}
"""By name, odd values that a table in Spark may have: bits of floating-point numbers as they are."""

NOT_RELEASED_THERE = "float"
"""A release in Spark has no numbers of 32 bits but as text."""


def spark_table() -> pa.Table:
    """Rows that are alike in twos to an engine; and two that are like no other. By their bits, most are alone."""
    count = max(map(len, SPARK.values())) + 1
    columns: dict[str, pa.Array] = {}
    for role in "qis":
        for number, (name, values) in enumerate(SPARK.items()):
            if role != "q" and name == NOT_RELEASED_THERE:
                continue
            with_null = pa.concat_arrays([values, pa.nulls(1, values.type)])
            places = [j % len(with_null) for j in range(count) for _ in range(2)]
            places += [(j * 5 + number) % len(with_null) for j in (1, 2)]
            columns[f"{role}_{name}"] = with_null.take(pa.array(places))
    return pa.table({"id": list(range(2 * count + 2)), **columns})


@pytest.mark.spark
@pytest.mark.parametrize(("strategy", "suppressed"), [("optimal", "mask"), ("optimal", "drop"), ("local", "mask")])
def test_spark_and_duckdb_release_equal_rows(session: Any, tmp_path: Path, strategy: str, suppressed: str) -> None:
    pq.write_table(spark_table(), tmp_path / "odd.parquet")
    for name in ("clinic", "shared"):
        session.sql(f"DROP SCHEMA IF EXISTS {name} CASCADE")
        session.sql(f"CREATE SCHEMA {name}")
    session.read.parquet(str(tmp_path / "odd.parquet")).write.saveAsTable("clinic.t")
    names = spark_table().column_names
    tree = {
        "attributes": {
            name: {"role": "quasi", "hierarchy": "suppress"}
            if name.startswith("q_")
            else {"role": {"id": "identifying", "i": "insensitive", "s": "sensitive"}[name.partition("_")[0]]}
            for name in names
        },
        "privacy": {"k": 2},
        "search": {"suppression_limit": 0.1, "strategy": strategy},
    }
    policy = sqlanon.Policy(
        **tree,
        source={"files": str(tmp_path / "odd.parquet")},
        release={"file": str(tmp_path / "here.parquet"), "suppressed": suppressed},
    )
    in_spark = {"spark": True, "table": "shared.r", "suppressed": suppressed}
    remote_policy = sqlanon.Policy(**tree, source={"table": "clinic.t"}, release=in_spark)
    plain = suppressed == "mask"  # else a release in Spark would have numbers of 32 bits
    with sqlanon.connect() as db, sqlanon.connect(session) as remote_db:
        file = db.anonymize(policy).publish()
        assert file.verify().verified and db.verify(file.path, policy).verified
        result = remote_db.anonymize(remote_policy)
        copied = result.publish(tmp_path / "from_there.duckdb", "r")
        assert copied.manifest.digest == file.manifest.digest
        if plain:
            published = result.publish()
            assert published.manifest.digest == file.manifest.digest
            verification = remote_db.verify(session, remote_policy, "shared.r")
            assert verification.verified, verification.failures
    with duckdb.connect(str(copied.path), read_only=True) as release:
        for name in ("q_double", "i_double", "s_double"):
            type_, found_nan, forms, zeros = release.execute(
                f"SELECT typeof(any_value({name})), count(*) FILTER ({name}::DOUBLE = 'nan'), "
                f"count(DISTINCT {name}::VARCHAR) FILTER ({name}::DOUBLE = 'nan'), "
                f"count(*) FILTER ({name}::VARCHAR = '-0.0') FROM r WHERE {name}::VARCHAR IS DISTINCT FROM '*'"
            ).fetchall()[0]
            assert type_ == ("VARCHAR" if plain and name.startswith("q") else "DOUBLE")
            assert found_nan and (forms, zeros) == (1, 0), name
