"""Noise inside classes: what is released of it, what a run says, what verify finds, and what never happens."""

from __future__ import annotations

import json
import math
import random
import shutil
import struct
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from datetime import date
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import pyarrow
import pytest

import sqlanon
import sqlanon.publish.targets.file.target as publishing
from oracles import oracle_noise
from properties.noise_cases import number, read_columns
from sqlanon.audit.verify import verify_file
from support.commands import cli
from support.databases import change, fetch
from support.lanes import some
from support.policies import make_policy
from support.private_values import plain
from support.verification import manifest_text

dp = pytest.importorskip("opendp.prelude", reason="the extra dp is not installed")

pytestmark = [pytest.mark.extras, pytest.mark.usefixtures("plain_macros")]


def rarely(*values: Any) -> list[Any]:
    """Parameters that wait for the slow lane."""
    arguments = [value if isinstance(value, tuple) else (value,) for value in values]
    return [pytest.param(*value, marks=pytest.mark.slow) for value in arguments]


ROWS = 600
ATTRIBUTES: dict[str, Any] = {
    "name": "identifying",
    "sex": "suppress",
    "zip": "mask",
    "height": {"role": "quasi", "noise": {"epsilon": 1.0}},
    "weight": {"role": "quasi", "noise": {"epsilon": 0.5, "bounds": [20, 300], "round": 0.5}},
    "born": {"role": "quasi", "noise": {"epsilon": 2.0}},
    "illness": "sensitive",
    "id": "insensitive",
}
NOISY = ("height", "weight", "born")
EPSILONS = (1.0, 0.5, 2.0)
# Heights have odd digits, so that none is on a grid by chance. One person's zip is like no other's.
SOURCE = f"""
    CREATE TABLE patients AS
    SELECT 'Person ' || i AS name, ['f', 'm'][1 + i % 2] AS sex, '021' || 30 + i % 3 AS zip,
           CAST(150 + i % 50 + sqrt(i) / 7 AS DOUBLE) AS height,
           CAST(50 + (i * 37 % 401) / 10 AS DECIMAL(5, 1)) AS weight,
           CAST(DATE '1950-01-01' + CAST(i * 7919 % 15000 AS INTEGER) AS DATE) AS born,
           ['flu', 'gout', 'cold'][1 + i % 3] AS illness, CAST(i AS INTEGER) AS id
    FROM range({ROWS}) AS r(i)
    UNION ALL SELECT 'Odd One', 'f', '99999', 251.5, 180.1, DATE '1901-02-03', 'flu', {ROWS}
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("source") / "hospital.duckdb"
    change(path, SOURCE)
    return path


def policy_for(source: Path, attributes: dict[str, Any] | None = None, **changes: Any) -> sqlanon.Policy:
    sections: dict[str, Any] = {
        "source": {"database": str(source), "table": "patients"},
        "search": {"suppression_limit": 0.01},
    }
    return make_policy({**ATTRIBUTES, **(attributes or {})}, k=5, table=None, **(sections | changes))


def with_privacy(policy: sqlanon.Policy, **privacy: Any) -> sqlanon.Policy:
    tree = policy.model_dump()
    tree["privacy"] |= privacy
    return sqlanon.Policy(**tree)


@pytest.fixture(scope="module")
def usual(source: Path) -> Iterator[sqlanon.Result]:
    """The result of the usual policy."""
    with sqlanon.connect() as db:
        yield db.anonymize(policy_for(source))


@pytest.fixture(scope="module")
def published_release(usual: sqlanon.Result, tmp_path_factory: pytest.TempPathFactory) -> sqlanon.Release:
    return usual.publish(tmp_path_factory.mktemp("r") / "release.duckdb", "patients")


@pytest.fixture
def copy(published_release: sqlanon.Release, tmp_path: Path) -> Path:
    """A copy of the release, to be tampered with."""
    return Path(shutil.copy(published_release.path, tmp_path / "copy.duckdb"))


def check_noise(values: str, type_: str, noise: dict[str, Any], check: Callable[..., Any], **more: Any) -> Any:
    """What ``check`` says of the result on one class of these values, which stand in SQL: and of the table it makes."""
    attribute = {"role": "quasi", "noise": {"epsilon": 1.0, **noise}, **more.pop("attribute", {})}
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE t AS SELECT 'a' AS q, CAST(v AS {type_}) AS x FROM (VALUES {values}) AS r(v)")
        with sqlanon.connect(connection) as db:
            return check(db.anonymize(make_policy({"q": "suppress", "x": attribute}, **more)))


def column(result: sqlanon.Result) -> list[Any]:
    """The released values of x."""
    connection = result._run.engine.connection
    return [row[0] for row in connection.execute(f"SELECT x FROM ({result.sql()}) AS s").fetchall()]


def type_of(result: sqlanon.Result) -> str:
    (type_,) = (released_column.type for released_column in result._draft.columns() if released_column.name == "x")
    return type_


# --- what a run says --------------------------------------------------------------------------------


@pytest.mark.thorough
def test_the_records_with_noise_are_shown_to_the_holder(usual: sqlanon.Result) -> None:
    relation = usual.noisy
    assert relation is not None
    types = dict(zip(relation.columns, map(str, relation.types), strict=True))
    assert {"class", "x_0", "y_0", "x_1", "y_1", "x_2", "y_2", "released"} <= set(types)
    assert {types[f"{letter}_{j}"] for letter in "xy" for j in range(3)} == {"DOUBLE"}
    assert types["released"] == "BOOLEAN"


def test_a_result_reports_the_expected_error_of_noise(usual: sqlanon.Result) -> None:
    result, records = usual, read_columns(usual, 3).records
    assert result.epsilon == 3.5
    assert result.noise is not None and list(result.noise) == list(NOISY)
    assert result.confidence is None
    assert len(records) == ROWS == result.released_rows  # the odd one has no class, so no noise
    printed = result.to_dict()
    json.dumps(printed, allow_nan=False)
    for name in ("epsilon", "noise", "linking_risk", "linking_risk_strict"):
        assert printed[name] == getattr(result, name)
    assert "confidence" not in printed
    assert 0 <= printed["linking_risk_strict"] <= printed["linking_risk"] <= 1
    for j, name in enumerate(NOISY):
        assert result.noise[name]["expected_error"] == pytest.approx(
            oracle_noise.expected_error(records, EPSILONS, j), rel=1e-9
        )


def test_a_result_shows_no_value_of_anybody(usual: sqlanon.Result) -> None:
    text = repr(usual)
    for value in ("150.", "251", "Odd One", "1901", "180.1"):
        assert value not in text


# --- values -----------------------------------------------------------------------------------------

TYPES = {
    "TINYINT": "INTEGER", "SMALLINT": "INTEGER", "INTEGER": "INTEGER", "UTINYINT": "INTEGER", "USMALLINT": "INTEGER",
    "BIGINT": "BIGINT", "UINTEGER": "BIGINT",
    "UBIGINT": "DECIMAL(38,0)", "HUGEINT": "DECIMAL(38,0)", "UHUGEINT": "DECIMAL(38,0)",
    "DECIMAL(4,1)": "DECIMAL(18,1)", "DECIMAL(18,3)": "DECIMAL(24,3)", "DECIMAL(38,10)": "DECIMAL(38,10)",
    "DECIMAL(12,0)": "DECIMAL(18,0)", "FLOAT": "DOUBLE", "DOUBLE": "DOUBLE",
}  # fmt: skip


@pytest.mark.thorough
def test_released_types_have_room_for_noise(tmp_path: Path) -> None:
    """A table with a column of every type, with noise far beyond the range of the type."""
    date_ = "(DATE '2000-01-01' + i)"
    types = {f"c{j}": type_ for j, type_ in enumerate([*TYPES, "DATE"])}
    with duckdb.connect() as connection:
        columns = ", ".join(f"{date_ if type_ == 'DATE' else 'i'}::{type_} AS {name}" for name, type_ in types.items())
        connection.execute(f"CREATE TABLE t AS SELECT 'a' AS q, {columns} FROM (VALUES (1), (1), (100), (90)) AS r(i)")
        noise = {"role": "quasi", "noise": {"epsilon": 0.01}}
        with sqlanon.connect(connection) as db:
            policy = make_policy({"q": "suppress", **dict.fromkeys(types, noise)})
            release = db.anonymize(policy).publish(tmp_path / "r.duckdb")
            assert db.verify(release.path, policy).verified
    expected = {name: TYPES.get(type_, "DATE") for name, type_ in types.items()}
    claimed = json.loads(fetch(release.path, "SELECT columns FROM sqlanon.manifest")[0][0])
    assert {type_entry["name"]: type_entry["type"] for type_entry in claimed} == {"q": "VARCHAR", **expected}
    rows = fetch(release.path, f"SELECT DISTINCT {', '.join(f'typeof({name})' for name in types)} FROM t")
    assert rows == [tuple(expected.values())]


@pytest.mark.slow
@pytest.mark.parametrize(
    "type_",
    ["VARCHAR", "TIMESTAMP", *rarely("BOOLEAN", "TIMESTAMPTZ", "TIME", "INTERVAL", "INTEGER[]", "ENUM ('1', '2')")],
)
def test_noise_is_for_numbers_and_dates(type_: str) -> None:
    values = {
        "TIMESTAMP": "now()", "TIMESTAMPTZ": "now()", "TIME": "TIME '10:00'", "INTERVAL": "INTERVAL 1 DAY",
        "INTEGER[]": "[1]", "BOOLEAN": "true",
    }.get(type_, "'1'")  # fmt: skip
    with pytest.raises(sqlanon.SourceError) as caught:
        check_noise(f"({values}), ({values})", type_, {}, lambda result: None)
    assert "'x'" in str(caught.value)
    assert "noise" in str(caught.value) and "numbers" in str(caught.value) and "dates" in str(caught.value)


@pytest.mark.slow
def test_floats_are_multiples_of_a_power_of_two() -> None:
    """A grid that is made from the range of a class would show the range in the digits: π / 1024 here."""
    values = ", ".join(f"({math.pi * i / 40!r})" for i in range(41))

    def check(result: sqlanon.Result) -> None:
        values = [Fraction(value) for value in column(result)]
        r = oracle_noise.granularity(Fraction(math.pi), Fraction(1), any_sign=True)
        assert r == Fraction(1, 256)
        assert all((value / r).denominator == 1 for value in values)
        assert any((value / (2 * r)).denominator != 1 for value in values)  # no coarser than it has to be
        assert len(set(values)) > 30

    check_noise(values, "DOUBLE", {}, check)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("type_", "noise", "r"),
    [
        ("INTEGER", {}, Fraction(8)),  # of 5,000 / 1,024
        ("INTEGER", {"round": 3}, Fraction(6)),
        ("DECIMAL(9,2)", {}, Fraction(512, 100)),
        ("DOUBLE", {"round": 10}, Fraction(10)),
        *rarely(
            ("INTEGER", {"round": 100}, Fraction(100)),
            ("DECIMAL(9,2)", {"round": 0.5}, Fraction(8)),
            ("DOUBLE", {}, Fraction(8)),
            ("DOUBLE", {"round": 0.5}, Fraction(8)),
        ),
    ],
)
def test_the_granularity_covers_the_grid_of_the_range(type_: str, noise: dict[str, Any], r: Fraction) -> None:
    values = ", ".join(f"({i * 100})" for i in range(51))

    def check(result: sqlanon.Result) -> None:
        values = [number(value) for value in column(result)]
        assert all((value / r).denominator == 1 for value in values), sorted(values)
        assert any((value / (2 * r)).denominator != 1 for value in values)

    check_noise(values, type_, noise, check)


@pytest.mark.slow
def test_a_granularity_in_decimals_is_released_in_floats() -> None:
    """0.1 is not a binary fraction: the released value is the double nearest to a multiple of it."""
    values = ", ".join(f"({i * 0.7!r})" for i in range(60))

    def check(result: sqlanon.Result) -> None:
        values = column(result)
        assert all(value == float(round(Decimal(value), 1)) for value in values), sorted(values)

    check_noise(values, "DOUBLE", {"round": 0.1}, check)


@pytest.mark.slow
def test_zero_has_no_sign() -> None:
    """-0.0 equals 0.0, and reads like it."""

    def check(result: sqlanon.Result) -> None:
        values = column(result)
        assert 0.0 in values
        assert not any(value == 0 and math.copysign(1, value) < 0 for value in values)

    check_noise(", ".join(f"({i % 4 - 2})" for i in range(400)), "DOUBLE", {"round": 1}, check)


@pytest.mark.slow
def test_dates_are_whole_days_and_rounded_from_1970() -> None:
    values = ", ".join(f"(DATE '1980-01-01' + {i})" for i in range(60))

    def check(result: sqlanon.Result) -> None:
        values = column(result)
        assert all(type(value) is date for value in values)
        assert all((value - date(1970, 1, 1)).days % 7 == 0 for value in values)

    check_noise(values, "DATE", {"round": 7}, check)


@pytest.mark.slow
def test_dates_stay_dates_however_large_the_noise() -> None:
    """Years are 1 to 9999: values beyond are moved to the ends."""
    values = ", ".join(f"(DATE '0900-01-01' + {i * 30_000})" for i in range(100))

    def check(result: sqlanon.Result) -> None:
        values = column(result)
        assert len(values) == 100
        assert {date.min, date.max} & set(values)
        assert all(date.min <= value <= date.max for value in values)

    check_noise(values, "DATE", {"epsilon": 0.001}, check)


@pytest.mark.slow
def test_bounds_are_the_least_and_the_greatest() -> None:
    values = ", ".join(f"({i})" for i in range(100))

    def check(result: sqlanon.Result) -> None:
        values = column(result)
        assert (min(values), max(values)) == (10, 90)
        assert len(set(values)) > 2

    check_noise(values, "INTEGER", {"bounds": [10, 90]}, check)


@pytest.mark.slow
def test_by_default_the_range_of_a_class_bounds_nothing() -> None:
    values = ", ".join(f"({i})" for i in range(200))

    def check(result: sqlanon.Result) -> None:
        values = column(result)
        # Each is beyond the range with a probability of more than 0.31 (1/(2e) at the ends), twice 99 times.
        assert min(values) < 0 and max(values) > 199
        assert Counter(values).most_common(1)[0][1] < 20

    check_noise(values, "INTEGER", {}, check)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bounds", "type_"),
    [
        ([date(1990, 1, 1), date(2000, 1, 1)], "INTEGER"),
        ([0, 9], "DATE"),
        ([date(1990, 1, 1), date(2000, 1, 1)], "DOUBLE"),
    ],
)
def test_bounds_are_of_the_type_of_the_column(bounds: list[Any], type_: str) -> None:
    values = "(DATE '2000-01-01'), (DATE '2001-01-01')" if type_ == "DATE" else "(1), (2)"
    with pytest.raises(sqlanon.SqlanonError, match="bounds"):
        check_noise(values, type_, {"bounds": bounds}, lambda result: None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("round_", "type_"), some([(0.5, "INTEGER"), (1.5, "BIGINT"), (0.25, "DATE"), (0.05, "DECIMAL(5,1)")], 3)
)
def test_a_granularity_is_of_the_type_of_the_column(round_: float, type_: str) -> None:
    """Otherwise released values would be rounded once more, or would not fit."""
    values = "(DATE '2000-01-01'), (DATE '2001-01-01')" if type_ == "DATE" else "(1), (2)"
    with pytest.raises(sqlanon.SqlanonError, match="round"):
        check_noise(values, type_, {"round": round_}, lambda result: None)


@pytest.mark.thorough
def test_a_class_of_one_value_gets_no_noise(tmp_path: Path) -> None:
    with duckdb.connect() as connection:
        connection.execute(
            "CREATE TABLE t AS SELECT ['a', 'b'][1 + i % 2] AS q, "
            "CASE WHEN i % 2 = 0 THEN 7.3 ELSE i END::DOUBLE AS x, "
            "CASE WHEN i % 2 = 0 THEN i ELSE 7 END AS y FROM range(40) AS r(i)"
        )
        attributes = {"q": "suppress", **{name: {"role": "quasi", "noise": {"epsilon": 1.0}} for name in ("x", "y")}}
        with sqlanon.connect(connection) as db:
            result = db.anonymize(make_policy(attributes))
            release = result.publish(tmp_path / "r.duckdb")
            records = read_columns(result, 2).records
    assert fetch(release.path, "SELECT DISTINCT x FROM t WHERE q = 'a'") == [(7.3,)]
    assert fetch(release.path, "SELECT DISTINCT y FROM t WHERE q = 'b'") == [(7,)]
    assert len(fetch(release.path, "SELECT DISTINCT x FROM t WHERE q = 'b'")) > 10
    assert Counter(min(deltas) for deltas in oracle_noise.ranges(records).values()) == {0.0: 2}


@pytest.mark.slow
def test_a_class_of_one_value_is_rounded_on_request() -> None:
    def check(result: sqlanon.Result) -> None:
        assert set(column(result)) == {7.5}

    check_noise("(7.3), (7.3), (7.3)", "DOUBLE", {"round": 0.5}, check)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("values", "type_"),
    [
        ("(0), (5e-324), (0), (5e-324)", "DOUBLE"),  # the range divided by 1024 is 0
        ("(1e100), (-1e100), (1e-300), (0)", "DOUBLE"),
        *rarely(
            ("(1), (1.0000000000000002), (1), (1.0000000000000002)", "DOUBLE"),
            ("(1e308 / 1e208), (-1e100), (0), (1e100)", "DOUBLE"),
            ("(1e15), (1e15 + 1), (1e15 + 0.125)", "DOUBLE"),
            ("(18446744073709551615), (0), (7)", "UBIGINT"),
            ("(9.9999999999999999999999999999999999999), (-9.9), (0)", "DECIMAL(38,37)"),
            ("(170141183460469231731687303715884105727), (0)", "HUGEINT"),
        ),
        ("(9223372036854775807), (-9223372036854775808), (0)", "BIGINT"),
        (
            "(99999999999999999999999999999999999999), (-99999999999999999999999999999999999999), (0)",
            "DECIMAL(38,0)",
        ),
    ],
)
@pytest.mark.parametrize("epsilon", [1.0, *(pytest.param(value, marks=pytest.mark.slow) for value in (0.001, 1000.0))])
def test_values_at_the_ends_of_their_types(values: str, type_: str, epsilon: float, tmp_path: Path) -> None:
    """A release, or an error that a reader of the policy understands: nothing of the engine's, no NaN, no infinity."""

    def check(result: sqlanon.Result) -> None:
        release = result.publish(tmp_path / "r.duckdb")
        assert all(value is not None and math.isfinite(value) for (value,) in fetch(release.path, "SELECT x FROM t"))
        assert result.noise is not None
        json.dumps(result.to_dict(), allow_nan=False)

    try:
        check_noise(values, type_, {"epsilon": epsilon}, check)
    except sqlanon.SourceError as error:
        assert "'x'" in str(error)
        for value in values.replace("(", "").replace(")", "").split(", "):
            assert len(value) < 6 or value not in str(error)


# --- unknown values ---------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("value", ["NULL", "'nan'", "1.1e100", *rarely("'inf'", "'-inf'", "-1.1e100")])
def test_a_value_that_no_noise_can_be_added_to_is_an_error(value: str) -> None:
    with pytest.raises(sqlanon.SourceError) as caught:
        check_noise(f"(1), (2), ({value}::DOUBLE), ({value}::DOUBLE)", "DOUBLE", {}, lambda result: None)
    message = str(caught.value)
    assert "'x'" in message and "2 rows" in message and 'on_unknown = "suppress"' in message
    assert "1.1e" not in message


@pytest.mark.slow
@pytest.mark.parametrize("value", ["NULL", *rarely("'nan'", "'inf'", "-1.1e100")])
def test_rows_with_unknown_values_are_suppressed_on_request(value: str) -> None:
    def check(result: sqlanon.Result) -> None:
        assert (result.suppressed_rows, result.released_rows) == (2, 4)
        assert len(column(result)) == 4
        assert len(read_columns(result, 1).records) == 4
        assert oracle_noise.ranges(read_columns(result, 1).records) == {
            read_columns(result, 1).records[0].place: (9.0,)
        }

    check_noise(
        f"(1), (2), (10), (3), ({value}::DOUBLE), ({value}::DOUBLE)", "DOUBLE", {}, check,
        attribute={"on_unknown": "suppress"}, search={"suppression_limit": 0.34},
    )  # fmt: skip


def test_suppressed_rows_of_unknown_values_count() -> None:
    with pytest.raises(sqlanon.InfeasibleError) as caught:
        check_noise(
            "(1), (2), (10), (NULL)", "DOUBLE", {}, lambda result: None,
            attribute={"on_unknown": "suppress"}, search={"suppression_limit": 0.2},
        )  # fmt: skip
    assert caught.value.allowed_rows == 0


@pytest.mark.slow
def test_all_unknown_is_infeasible() -> None:
    with pytest.raises(sqlanon.InfeasibleError):
        check_noise(
            "(NULL), (NULL)", "DOUBLE", {}, lambda result: None,
            attribute={"on_unknown": "suppress"}, search={"suppression_limit": 1},
        )  # fmt: skip


@pytest.mark.thorough
@pytest.mark.parametrize(("measure", "score"), [("precision", None), ("height", 0)])
def test_a_score_that_counts_suppressed_rows_is_not_shown_with_noise(
    measure: str, score: float | None, tmp_path: Path
) -> None:
    """Rows may be suppressed for the noise that was drawn: how many, the score would show."""

    def check(result: sqlanon.Result) -> None:
        release = result.publish(tmp_path / "r.duckdb")
        assert (result.score, release.manifest.score) == (0, score)
        assert release.verify().verified

    check_noise("(1), (2), (3), (4)", "INTEGER", {}, check, search={"measure": measure})


# --- confidence -------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_confidence_suppresses_whom_few_are_near() -> None:
    """Three together, and one alone far off: with little noise it is near itself only."""

    def check(result: sqlanon.Result) -> None:
        records = read_columns(result, 1)
        assert result.confidence is not None
        assert records.suppressed.count(True) == result.confidence["suppressed_rows"] == result.suppressed_rows
        gone = oracle_noise.too_few(records.records, [1000.0], 0.99, 2)
        assert {records.records[i].xs for i in gone} <= {(1000.0,)}
        assert result.released_rows == len(column(result))

    values = ", ".join("(0), (0.01), (0.02)" for _ in range(5)) + ", (1000)"
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE t AS SELECT 'a' AS q, v::DOUBLE AS x FROM (VALUES {values}) AS r(v)")
        attributes = {"q": "suppress", "x": {"role": "quasi", "noise": {"epsilon": 1000.0}}}
        policy = make(attributes, {"k": 2, "confidence": 0.99}, search={"suppression_limit": 0.9})
        with sqlanon.connect(connection) as db:
            check(db.anonymize(policy))


def make(attributes: dict[str, Any], privacy: dict[str, Any], **sections: Any) -> sqlanon.Policy:
    tree = make_policy(attributes, **sections).model_dump()
    tree["privacy"] |= privacy
    return sqlanon.Policy(**tree)


@pytest.mark.slow
def test_where_too_many_are_suppressed_for_confidence_it_is_infeasible() -> None:
    """Two groups of three far from each other, and k = 4: one fewer than k is near each of them."""
    values = "(0), (0), (0), (100), (100), (100)"
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE t AS SELECT 'a' AS q, v::DOUBLE AS x FROM (VALUES {values}) AS r(v)")
        attributes = {"q": "suppress", "x": {"role": "quasi", "noise": {"epsilon": 1000.0}}}
        with sqlanon.connect(connection) as db:
            for limit in (0.5, 1):  # without rows, no release is possible
                policy = make(attributes, {"k": 4, "confidence": 0.99}, search={"suppression_limit": limit})
                with pytest.raises(sqlanon.InfeasibleError) as caught:
                    db.anonymize(policy)
                assert caught.value.suppressed_rows == 6
                assert caught.value.allowed_rows == 6 * limit
                assert "confidence" in str(caught.value)


@pytest.mark.slow
def test_released_rows_of_a_view_are_judged_by_the_values_of_the_whole_source() -> None:
    """A view is scanned once, and the scan is dropped, except for the values that are needed after noise."""
    rows = "SELECT i % 3 AS zip, i AS cost, 'ill' || i % 2 AS ill FROM range(60) AS t(i)"
    attributes = {"zip": "suppress", "cost": {"role": "quasi", "noise": {"epsilon": 1.0}}, "ill": "sensitive"}
    privacy = {
        "k": 2,
        "confidence": 0.5,
        "t_closeness": [{"attribute": "ill", "distance": "equal", "t": 0.5}],
        "l_diversity": [{"attribute": "ill", "kind": "distinct", "l": 2}],
    }
    with duckdb.connect() as connection, sqlanon.connect(connection) as db:
        connection.execute(f"CREATE VIEW t AS {rows}")
        result = db.anonymize(make(attributes, privacy, search={"suppression_limit": 0.5}))
        records = read_columns(result, 1)
        gone = oracle_noise.too_few(records.records, [1.0], 0.5, 2)
        assert set(records.released) == set(range(60)) - gone


@pytest.mark.slow
def test_confident_releases_verify_and_report_suppression(source: Path, tmp_path: Path) -> None:
    policy = with_privacy(policy_for(source, search={"suppression_limit": 0.5}), confidence=0.9)
    with sqlanon.connect() as db:
        result = db.anonymize(policy)
        release = result.publish(tmp_path / "r.duckdb", "patients")
        records = read_columns(result, 3)
        gone = oracle_noise.too_few(records.records, EPSILONS, 0.9, 5)
        survivors = oracle_noise.kept_records(records.records, gone, lambda members: len(members) >= 5)
        assert set(records.released) == survivors
        verification = db.verify(release.path, policy)
        assert verification.verified, verification.failures
    assert release.verify().verified
    document = json.loads(fetch(release.path, "SELECT confidence FROM sqlanon.manifest")[0][0])
    assert document == {"beta": 0.9}
    assert result.confidence == {"beta": 0.9, "suppressed_rows": len(records.records) - len(survivors)}
    assert result.to_dict()["confidence"] == result.confidence
    assert result.suppressed_rows == ROWS + 1 - len(survivors)
    assert fetch(release.path, "SELECT suppressed_rows, released_rows FROM sqlanon.manifest") == [
        (result.suppressed_rows, len(survivors))
    ]


# --- the release ------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_noise_only_where_it_is_declared(source: Path, published_release: sqlanon.Release, tmp_path: Path) -> None:
    """The rest is the release of the same policy without noise, bit for bit."""
    plain = policy_for(source, dict.fromkeys(NOISY, "insensitive"))
    with sqlanon.connect() as db:
        publication = db.anonymize(plain).publish(tmp_path / "plain.duckdb", "patients")
    query = "SELECT sex, zip, illness, id FROM patients ORDER BY id"
    assert fetch(published_release.path, query) == fetch(publication.path, query)
    values = "SELECT height, weight, born FROM patients ORDER BY id"
    pairs = zip(fetch(published_release.path, values), fetch(publication.path, values), strict=True)
    assert sum(first == second for pair in pairs for first, second in zip(*pair, strict=True)) < 3 * ROWS * 0.05
    names = "SELECT column_name FROM duckdb_columns() WHERE table_name = 'patients' ORDER BY column_index"
    assert fetch(published_release.path, names) == fetch(publication.path, names)
    claims = (
        "SELECT generalization, rows, released_rows, suppressed_rows, classes, smallest_class, score, optimal FROM "
    )
    assert fetch(published_release.path, claims + "sqlanon.manifest") == fetch(
        publication.path, claims + "sqlanon.manifest"
    )


@pytest.mark.slow
def test_identifiers_are_removed_and_rows_are_shuffled(published_release: sqlanon.Release) -> None:
    rows = fetch(published_release.path, "SELECT id FROM patients")
    assert rows != sorted(rows) and rows != sorted(rows, reverse=True)
    names = [
        name
        for (name,) in fetch(
            published_release.path, "SELECT column_name FROM duckdb_columns() WHERE table_name = 'patients'"
        )
    ]
    assert set(names) == set(ATTRIBUTES) - {"name"}


@pytest.mark.thorough
def test_publishing_twice_shows_the_same_noise_and_two_runs_do_not(
    source: Path, published_release: sqlanon.Release, tmp_path: Path
) -> None:
    ordered = "SELECT height, weight, born, id FROM patients ORDER BY id"
    with sqlanon.connect() as db:
        result = db.anonymize(policy_for(source))
        before = sorted(result.noisy.fetchall())
        rows = [fetch(result.publish(tmp_path / f"{i}.duckdb", "patients").path, ordered) for i in range(2)]
        parquet = result.publish(tmp_path / "r.parquet", "patients").path
        rows.append(duckdb.connect().execute(ordered.replace("patients", f"'{parquet}'")).fetchall())
        rows.append(sorted(db._workspace.engine.connection.execute(result.sql()).fetchall(), key=lambda row: row[-1]))
        assert rows[0] == rows[1] == rows[2]
        assert sorted(result.noisy.fetchall()) == before
        db.anonymize(policy_for(source))
        again = fetch(published_release.path, ordered)
        # The first result has its own noise still.
        assert sorted(result.noisy.fetchall()) == before
    assert sum(first[:3] == second[:3] for first, second in zip(rows[0], again, strict=True)) < ROWS / 20


@pytest.mark.slow
def test_noise_is_never_in_a_view(usual: sqlanon.Result, published_release: sqlanon.Release) -> None:
    """Who reads a view with a random function in it often enough averages the noise away."""
    views = fetch(published_release.path, "SELECT sql FROM duckdb_views() WHERE NOT internal")
    assert not any("random(" in sql.lower() or "ln(" in sql.lower() for (sql,) in views)
    first, second = (fetch(published_release.path, "FROM patients ORDER BY id") for _ in range(2))
    assert first == second
    connection = usual._run.engine.connection
    views = connection.execute("SELECT sql FROM duckdb_views() WHERE NOT internal").fetchall()
    assert not any("random(" in sql.lower() or "ln(" in sql.lower() for (sql,) in views)
    first, second = (sorted(connection.execute(usual.sql()).fetchall(), key=str) for _ in range(2))
    assert first == second  # its random() is of the order


@pytest.mark.slow
def test_masked_rows_are_dropped_with_a_warning(source: Path, tmp_path: Path) -> None:
    with sqlanon.connect() as db:
        policy = policy_for(source, release={"suppressed": "mask"})
        result = db.anonymize(policy)
        assert result.released_rows == ROWS == result.rows - result.suppressed_rows
        assert any("dropped" in warning for warning in result.warnings)
        release = result.publish(tmp_path / "r.duckdb", "patients")
        assert db.verify(release.path, policy).verified
    assert fetch(release.path, f"SELECT count(*) FROM patients WHERE id = {ROWS}") == [(0,)]


@pytest.mark.slow
def test_persons_are_counted_beside_noise(tmp_path: Path) -> None:
    """Ten rows of five persons in each class: noise is on rows, k is of persons."""
    with duckdb.connect() as connection:
        connection.execute(
            "CREATE TABLE t AS SELECT ['a', 'b'][1 + i % 2] AS q, 'p' || i // 4 AS who, i::DOUBLE AS x, i AS id "
            "FROM range(20) AS r(i)"
        )
        attributes = {"q": "suppress", "x": {"role": "quasi", "noise": {"epsilon": 1.0}}, "id": "insensitive"}
        policy = make_policy(attributes, k=5, source={"table": "t", "person": "who"}, table=None)
        with sqlanon.connect(connection) as db:
            result = db.anonymize(policy)
            assert (result.generalization, result.released_rows) == ({"q": 0}, 20)
            assert len(read_columns(result, 1).records) == 20
            release = result.publish(tmp_path / "r.duckdb", "t")
            assert db.verify(release.path, policy).verified
            with pytest.raises(sqlanon.InfeasibleError):  # six persons form no class
                db.anonymize(make_policy(attributes, k=6, source={"table": "t", "person": "who"}, table=None))
    assert "who" not in str(fetch(release.path, "SELECT columns FROM sqlanon.manifest"))


@pytest.mark.slow
def test_the_manifest_describes_noise(
    source: Path, usual: sqlanon.Result, published_release: sqlanon.Release, tmp_path: Path
) -> None:
    result, release = usual, published_release
    parquet = result.publish(tmp_path / "r.parquet", "patients")
    query = "SELECT epsilon, noise, confidence FROM sqlanon.manifest"
    epsilon, noise, confidence = fetch(release.path, query)[0]
    assert epsilon == 3.5
    assert json.loads(noise) == {
        "height": {"epsilon": 1.0},
        "weight": {"epsilon": 0.5, "bounds": [20, 300], "round": 0.5},
        "born": {"epsilon": 2.0},
    }
    assert result.linking_risk is not None
    assert confidence is None
    types = "SELECT column_name, data_type FROM duckdb_columns() WHERE table_name = 'manifest'"
    manifest_types = dict(fetch(release.path, types))
    assert manifest_types["epsilon"] == "DOUBLE"
    assert not [
        name for name in manifest_types if "risk" in name
    ]  # it changes with one record where the noisy values do not
    assert manifest_types["noise"] == manifest_types["confidence"] == manifest_types["policy"]  # JSON, as text
    for text in (manifest_text(release), manifest_text(parquet)):
        # Effect of one outlier: it shows its distance from all others.
        assert "expected" not in text and "observed" not in text and "strict" not in text
        for value in ("Odd One", "251.5", "180.1", "1901-02-03", str(source)):
            assert value not in text
    columns = json.loads(fetch(release.path, "SELECT columns FROM sqlanon.manifest")[0][0])
    assert {entry["name"]: entry["role"] for entry in columns if entry["name"] in NOISY} == dict.fromkeys(
        NOISY, "quasi"
    )


def test_a_release_with_noise_has_the_generalization_of_the_others_only(published_release: sqlanon.Release) -> None:
    assert set(published_release.manifest.generalization) == {"sex", "zip"}
    sizes = fetch(published_release.path, "SELECT k, classes FROM sqlanon.k_anonymity('patients', ['sex', 'zip'])")
    assert sizes == [(published_release.manifest.smallest_class, published_release.manifest.classes)]


# --- leaks ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["duckdb", *rarely("parquet")])
def searchable_release(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Path, list[tuple[Any, ...]]]]:
    """A release that bytes can be searched in, and the rows of its source: values with all their digits."""

    path = tmp_path_factory.mktemp("leaks") / f"release.{request.param}"
    with duckdb.connect() as connection, pytest.MonkeyPatch.context() as patch:
        connection.execute("SET GLOBAL force_compression = 'uncompressed'")
        connection.execute(
            "CREATE TABLE people AS SELECT ['north', 'south'][1 + i % 2] AS region, "
            "sin(i) * 1000 + 1 / (i + 3) AS income, i * 48611 + 7000000000007 AS account, "
            "DATE '1900-01-01' + CAST(i * 97 AS INTEGER) AS born, 'note ' || i AS note FROM range(200) AS r(i)"
        )
        noise = {"role": "quasi", "noise": {"epsilon": 1.0}}
        attributes = {
            "region": "suppress", "income": noise, "born": noise, "note": "insensitive",
            "account": {"role": "quasi", "noise": {"epsilon": 1.0, "round": 1000}},
        }  # fmt: skip
        patch.setattr(publishing.DuckDBEngine, "execute", plain(publishing.DuckDBEngine.execute))
        with sqlanon.connect(connection) as db:
            db.anonymize(make_policy(attributes, k=3, table="people")).publish(path, "people")
        yield path, connection.execute("SELECT region, income, account, born, note FROM people").fetchall()


@pytest.mark.thorough
def test_no_original_value_is_in_a_release(searchable_release: tuple[Path, list[tuple[Any, ...]]]) -> None:
    """Neither the values nor the least and the greatest of a class, in binary or as text."""
    path, rows = searchable_release
    content = path.read_bytes()
    assert all(row[4].encode() in content for row in rows)  # the control: what is released is found
    query = (
        f"SELECT income, account FROM '{path}'" if path.suffix == ".parquet" else "SELECT income, account FROM people"
    )
    with duckdb.connect() as connection:
        if path.suffix != ".parquet":
            connection.execute(f"ATTACH '{path}' AS r (READ_ONLY)")
            query = query.replace("people", "r.people")
        released = connection.execute(query).fetchall()
    assert all(
        struct.pack("<d", income) in content and struct.pack("<q", account) in content for income, account in released
    )
    leaks = []
    for region, income, account, born, _ in rows:
        needles = {
            "income": struct.pack("<d", income), "its text": repr(income).encode(),
            "account": struct.pack("<q", account), "account's text": str(account).encode(), "date": str(born).encode(),
        }  # fmt: skip
        leaks += [(region, name) for name, needle in needles.items() if needle in content]
    assert leaks == []
    spans: dict[str, list[float]] = defaultdict(list)
    for region, income, *_ in rows:
        spans[region].append(income)
    for incomes in spans.values():
        delta = max(incomes) - min(incomes)
        for value in (delta, delta / 1024, delta / 1.0):
            assert struct.pack("<d", value) not in content and repr(value).encode() not in content


@pytest.mark.thorough
def test_an_error_of_noise_shows_no_value(source: Path) -> None:
    """With little noise, few values are near to any other, and almost all rows would have to be suppressed."""
    attributes = {name: {"role": "quasi", "noise": {"epsilon": 1000.0}} for name in ("height", "born")}
    policy = with_privacy(policy_for(source, attributes | {"weight": "insensitive"}), confidence=0.9, k=50)
    with sqlanon.connect() as db, pytest.raises(sqlanon.InfeasibleError) as caught:
        db.anonymize(policy)
    assert not any(value in str(caught.value) for value in ("Odd One", "251.5", "180.1", "1901", "199.", "150."))


# --- verify -----------------------------------------------------------------------------------------


def failures(path: Path, policy: sqlanon.Policy | None = None) -> tuple[str, ...]:
    if policy is None:
        return tuple(verify_file(path).failures)
    with sqlanon.connect() as db:
        return tuple(db.verify(path, policy).failures)


DIGEST = "UPDATE sqlanon.manifest SET digest = (SELECT digest FROM sqlanon.digest('patients'))"


def tamper(path: Path, source: Path, *statements: str) -> None:
    """Change a release together with its digest; the source is attached as ``s.patients``."""
    with duckdb.connect(path) as connection:
        connection.execute(f"ATTACH '{source}' AS s (READ_ONLY)")
        for statement in (*statements, DIGEST):
            connection.execute(statement)


@pytest.mark.thorough
def test_verify_alone_checks_k_without_the_noise(copy: Path) -> None:
    """If values with noise counted, every row would be a class."""
    verification = verify_file(copy)
    assert verification.verified
    assert {check.name for check in verification.checks if check.passed} >= {"5-anonymity", "classes", "content digest"}
    change(copy, "UPDATE patients_v1 SET zip = 'elsewhere' WHERE rowid = 5")
    assert any("5-anonymity" in failure for failure in failures(copy))


@pytest.mark.slow
def test_verify_alone_finds_a_changed_value_by_the_digest(copy: Path) -> None:
    change(copy, "UPDATE patients_v1 SET height = height + 1 WHERE rowid = 5")
    assert failures(copy) != ()


@pytest.mark.slow
def test_verify_with_the_policy_finds_floats_without_noise_on_their_grid(copy: Path, source: Path) -> None:
    """Originals rounded to multiples of 1/4, a multiple of every granularity here: only their size reveals them."""
    tamper(
        copy,
        source,
        "UPDATE patients_v1 SET height = round(o.height * 4) / 4 FROM s.patients AS o WHERE patients_v1.id = o.id",
    )
    assert failures(copy) == ()
    assert failures(copy, policy_for(source)) != ()


@pytest.mark.slow
@pytest.mark.cases(2)
@pytest.mark.parametrize(
    "changed",
    [
        "UPDATE patients_v1 SET weight = 301 WHERE rowid = 5",
        pytest.param("UPDATE patients_v1 SET weight = 19.5 WHERE rowid = 5", marks=pytest.mark.slow),
        pytest.param("UPDATE patients_v1 SET weight = 70.1 WHERE rowid = 5", marks=pytest.mark.slow),
        "UPDATE patients_v1 SET height = height + 1e-9 WHERE rowid = 5",
        pytest.param("UPDATE patients_v1 SET height = 'nan' WHERE rowid = 5", marks=pytest.mark.slow),
        pytest.param("UPDATE patients_v1 SET height = 'inf' WHERE rowid = 5", marks=pytest.mark.slow),
        "UPDATE patients_v1 SET height = NULL WHERE rowid = 5",
    ],
)
def test_verify_with_the_policy_finds_values_off_their_grid_or_bounds(changed: str, copy: Path, source: Path) -> None:
    tamper(copy, source, changed)
    assert failures(copy, policy_for(source)) != ()


@pytest.mark.slow
@pytest.mark.parametrize(
    "changed",
    [
        "epsilon = 0.35",
        pytest.param("epsilon = NULL", marks=pytest.mark.slow),
        """noise = replace(noise::VARCHAR, '"epsilon": 1.0', '"epsilon": 0.1')""",
        pytest.param("noise = NULL", marks=pytest.mark.slow),
        """confidence = '{"beta": 0.99, "suppressed_rows": 1}'""",
        pytest.param("""policy = replace(policy, '"epsilon": 1.0', '"epsilon": 0.1')""", marks=pytest.mark.slow),
    ],
)
def test_verify_with_the_policy_finds_a_false_claim_of_noise(changed: str, copy: Path, source: Path) -> None:
    before = fetch(copy, "SELECT epsilon, noise, confidence, policy FROM sqlanon.manifest")
    change(copy, f"UPDATE sqlanon.manifest SET {changed}")
    assert fetch(copy, "SELECT epsilon, noise, confidence, policy FROM sqlanon.manifest") != before
    assert failures(copy, policy_for(source)) != ()


@pytest.mark.slow
def test_verify_with_another_budget_fails(published_release: sqlanon.Release, source: Path) -> None:
    other_policy = policy_for(source, {"height": {"role": "quasi", "noise": {"epsilon": 0.1}}})
    assert failures(published_release.path, other_policy) != ()


@pytest.mark.slow
def test_a_confident_release_is_part_of_its_source(source: Path, tmp_path: Path) -> None:
    policy = with_privacy(policy_for(source, search={"suppression_limit": 0.5}), confidence=0.9)
    with sqlanon.connect() as db:
        release = db.anonymize(policy).publish(tmp_path / "r.duckdb", "patients")
    assert failures(release.path, policy) == ()
    tamper(release.path, source, "UPDATE patients_v1 SET illness = 'odd' WHERE rowid = 5")
    assert failures(release.path, policy) != ()


# --- OpenDP -----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_missing_opendp_names_the_extra_at_once(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "opendp"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opendp", None)
    with sqlanon.connect() as db:
        with pytest.raises(sqlanon.SqlanonError) as caught:
            db.anonymize(policy_for(source))
        assert "pip install '.[dp]'" in str(caught.value)
        # Without drawn noise, OpenDP is not needed.
        db.risk(policy_for(source))
        db.plan(policy_for(source))


class Mechanism:
    """An OpenDP mechanism that remembers its arguments."""

    def __init__(self, real: Any, arguments: list[Any]) -> None:
        self.real, self.given = real, arguments

    def __call__(self, values: Any) -> Any:
        self.given.append(values)
        return self.real(values)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)


@pytest.mark.thorough
def test_no_private_value_reaches_opendp(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only noise is drawn: as many zeros as records, for each attribute."""
    inputs: list[Any] = []
    real = dp.m.make_laplace
    monkeypatch.setattr(dp.m, "make_laplace", lambda *some, **keywords: Mechanism(real(*some, **keywords), inputs))
    with sqlanon.connect() as db:
        db.anonymize(policy_for(source))
    assert sum(len(values) for values in inputs) == 3 * ROWS
    assert {value for values in inputs for value in values} == {0}


@pytest.mark.thorough
def test_noise_has_no_seed(source: Path) -> None:
    """Neither the seed of the engine nor that of Python determines the noise."""
    drawings = []
    for _ in range(2):
        random.seed(1)
        with sqlanon.connect() as db:
            db._workspace.engine.connection.execute("SELECT setseed(0.5)")
            drawings.append(sorted(db.anonymize(policy_for(source)).noisy.fetchall()))
    assert drawings[0] != drawings[1]


class Failing(Mechanism):
    """One that is interrupted while it draws."""

    def __call__(self, values: Any) -> Any:
        raise self.given[0]


@pytest.mark.slow
@pytest.mark.parametrize("error", [KeyboardInterrupt, *rarely(MemoryError)])
def test_an_interrupted_run_leaves_nothing_and_can_be_run_again(
    error: type[BaseException], source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spill = tmp_path / "spill"
    spill.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(spill))
    real, before = dp.m.make_laplace, source.read_bytes()
    with sqlanon.connect() as db:
        with monkeypatch.context() as patch:
            patch.setattr(dp.m, "make_laplace", lambda *some, **keywords: Failing(real(*some, **keywords), [error]))
            with pytest.raises((error, sqlanon.SqlanonError)):
                db.anonymize(policy_for(source))
        result = db.anonymize(policy_for(source))
        assert len(read_columns(result, 3).records) == ROWS
        result.publish(tmp_path / "r.duckdb", "patients")
    assert list(spill.iterdir()) == []
    assert source.read_bytes() == before
    assert {path.name for path in tmp_path.iterdir()} == {"spill", "r.duckdb"}


# --- risk -------------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_risk_reports_the_cost_of_each_epsilon(source: Path, usual: sqlanon.Result) -> None:
    with sqlanon.connect() as db:
        noise = db.risk(policy_for(source), epsilons=(0.5, 2, 1)).noise
    records = read_columns(usual, 3).records
    assert noise is not None and list(noise) == list(NOISY)
    for j, name in enumerate(NOISY):
        assert [figures["epsilon"] for figures in noise[name]] == [0.5, 2, 1]
        for figures in noise[name]:
            every = [figures["epsilon"]] * 3
            assert set(figures) == {"epsilon", "expected_relative_error", "expected_error"}
            assert figures["expected_error"] == pytest.approx(oracle_noise.expected_error(records, every, j), rel=1e-9)
            if name == "born":
                assert figures["expected_relative_error"] is None
            else:
                expected = oracle_noise.expected_relative_error(records, every, j)
                assert figures["expected_relative_error"] == pytest.approx(expected, rel=1e-9)


@pytest.mark.slow
def test_risk_draws_nothing(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: Any, **__: Any) -> None:
        raise AssertionError("drawn")

    monkeypatch.setattr(dp.m, "make_laplace", failing)
    with sqlanon.connect() as db:
        assessment = db.risk(policy_for(source))
        db.plan(policy_for(source))
    assert assessment.noise is not None
    assert [figures["epsilon"] for figures in assessment.noise["height"]] == [0.1, 0.25, 0.5, 1, 2, 4]
    assert assessment.to_dict()["noise"] == assessment.noise
    # The rest is of the source as it stands: all quasi-identifiers make classes.
    assert (assessment.rows, assessment.classes) == (ROWS + 1, ROWS + 1)


# --- the command line -------------------------------------------------------------------------------

POLICY = """
[source]
database = "hospital.duckdb"
table = "patients"
undeclared = "drop"
[attributes]
name = { role = "identifying" }
sex = { role = "quasi", hierarchy = "suppress" }
zip = { role = "quasi", hierarchy = { mask = "right" } }
height = { role = "quasi", noise = { epsilon = 1.0 } }
weight = { role = "quasi", noise = {} }
illness = { role = "sensitive" }
[privacy]
k = 5
epsilon = 1.5
[search]
suppression_limit = 0.9
[release]
database = "release.duckdb"
table = "patients"
"""


@pytest.fixture
def folder(source: Path, tmp_path: Path) -> Path:
    """A folder with a source and a policy."""
    shutil.copy(source, tmp_path)
    (tmp_path / "policy.toml").write_text(POLICY)
    return tmp_path


@pytest.mark.slow
def test_anonymize_prints_noise_figures(folder: Path) -> None:
    text = POLICY.replace("epsilon = 1.5", "epsilon = 1.5\nconfidence = 0.9")
    (folder / "policy.toml").write_text(text)
    ended = cli("anonymize", folder / "policy.toml")
    assert ended.status == 0, ended.err
    for word in ("height", "weight", "noise", "link", "confiden"):
        assert word in ended.out, word
    ended = cli("anonymize", folder / "policy.toml", "--json", "--force")
    confidence = json.loads(ended.out)["confidence"]
    assert confidence["beta"] == 0.9
    assert set(confidence) == {"beta", "suppressed_rows"}


def test_an_infeasible_confidence_is_no(folder: Path) -> None:
    text = POLICY.replace("epsilon = 1.5", "epsilon = 1.5\nconfidence = 0.1").replace("0.9\n", "0.0017\n", 1)
    (folder / "policy.toml").write_text(text.replace("k = 5", "k = 90"))
    ended = cli("anonymize", folder / "policy.toml")
    assert ended.status == 1
    assert "confidence" in ended.err
    assert not (folder / "release.duckdb").exists()


@pytest.mark.slow
def test_risk_prints_the_errors_of_each_epsilon(folder: Path) -> None:
    ended = cli("risk", folder / "policy.toml", "--json", "--epsilon", "0.1,0.5,1")
    assert (ended.status, ended.err) == (0, "")
    noise = json.loads(ended.out)["noise"]
    assert list(noise) == ["height", "weight"]
    assert [figures["epsilon"] for figures in noise["height"]] == [0.1, 0.5, 1]
    errors = [figures["expected_error"] for figures in noise["height"]]
    assert errors == pytest.approx([10 * errors[2], 2 * errors[2], errors[2]])
    ended = cli("risk", folder / "policy.toml")
    assert ended.status == 0
    assert "height" in ended.out and "0.25" in ended.out
    ended = cli("risk", folder / "policy.toml", "--json")
    assert [entry["epsilon"] for entry in json.loads(ended.out)["noise"]["weight"]] == [0.1, 0.25, 0.5, 1, 2, 4]


@pytest.mark.parametrize("wrong", ["0", "a", "1,,2", *rarely("-1", "", "nan", "inf", "1;2")])
def test_risk_refuses_invalid_epsilons(wrong: str, folder: Path) -> None:
    ended = cli("risk", folder / "policy.toml", "--epsilon", wrong)
    assert ended.status == 2
    assert "epsilon" in ended.err.lower()


def test_plan_shows_the_stage_without_reading_a_row(folder: Path) -> None:
    ended = cli("plan", folder / "policy.toml")
    assert (ended.status, ended.err) == (0, "")
    assert "noise" in ended.out.lower()


@pytest.mark.slow
def test_compare_leaves_out_noisy_attributes(folder: Path) -> None:
    ended = cli("compare", folder / "policy.toml", "--strategies", "optimal,mondrian", "--json")
    assert ended.status == 0, ended.err
    assert [entry["strategy"] for entry in json.loads(ended.out)] == ["optimal", "mondrian"]
    ended = cli("compare", folder / "policy.toml", "--strategies", "mu-argus")
    assert ended.status == 2 or "mu-argus" in ended.out + ended.err


# --- regressions ------------------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize(
    "noise",
    some(
        [
            {
                "born": {"epsilon": 2.0, "bounds": [date(1949, 1, 1), date(2000, 12, 31)]}
            },  # in a manifest they are texts
            {"weight": {"epsilon": 0.5, "bounds": [20, 99.3]}},  # which is on no step
            {"height": {"epsilon": 100.0, "round": 40}},  # rounding moves values more than noise does
        ],
        3,
    ),
)
def test_a_release_is_verified_with_its_policy(noise: dict[str, Any], source: Path, tmp_path: Path) -> None:
    attributes = {name: {"role": "quasi", "noise": settings} for name, settings in noise.items()}
    policy = policy_for(source, attributes)
    with sqlanon.connect() as db:
        release = db.anonymize(policy).publish(tmp_path / "release.duckdb", "patients")
        verification = db.verify(release.path, policy)
    assert verification.verified, verification.failures


@pytest.mark.thorough
def test_a_population_gets_no_noise(tmp_path: Path) -> None:
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t AS SELECT ['a', 'b'][1 + i % 2] AS q, i * 1.5 AS x FROM range(20) AS r(i)")
        connection.execute("CREATE TABLE town AS FROM t UNION ALL FROM t")
        policy = sqlanon.Policy(
            source={"table": "t"},
            population={"table": "town"},
            attributes={
                "q": {"role": "quasi", "hierarchy": "suppress"},
                "x": {"role": "quasi", "noise": {"epsilon": 1.0}},
            },
            privacy={"k": 3, "k_map": 15},
        )
        with sqlanon.connect(connection) as db:
            release = db.anonymize(policy).publish(tmp_path / "release.duckdb")
            verification = db.verify(release.path, policy)
    assert verification.verified, verification.failures
    assert any(check.name == "against the source: 15-map" and check.passed for check in verification.checks)


@pytest.mark.slow
@pytest.mark.parametrize("claim", ["[1]", '"x"'])
def test_a_malformed_confidence_is_a_broken_manifest(claim: str, copy: Path) -> None:
    change(copy, f"UPDATE sqlanon.manifest SET confidence = '{claim}'")
    with pytest.raises(sqlanon.ReleaseError, match="its manifest is broken"):
        verify_file(copy)


@pytest.mark.slow
@pytest.mark.parametrize(("type_", "bounds"), [("INTEGER", [0, 77.3]), ("DECIMAL(9, 1)", [0.25, 5])])
def test_bounds_are_values_of_the_type(type_: str, bounds: list[float]) -> None:
    with pytest.raises(sqlanon.SourceError, match=r"bounds, .*, must be a multiple of"):
        check_noise("(1), (2), (3), (4)", type_, {"bounds": bounds}, lambda result: result)


def test_risk_counts_attributes_before_noise() -> None:
    table = pyarrow.table({"q": ["a", "b"] * 50, "x": list(range(100))})
    policy = make_policy({"q": "suppress", "x": {"role": "quasi", "noise": {"epsilon": 1.0}}}, k=5, table=None)
    with sqlanon.connect(table) as db:
        assessment = db.risk(policy)
        with pytest.raises(sqlanon.PolicyError, match="the policy has none"):
            db.risk(make_policy({"q": "suppress"}, table=None), epsilons=[1.0])
    assert (assessment.rows, assessment.classes, assessment.uniques, assessment.highest_risk) == (100, 100, 100, 1.0)
    assert (assessment.k, assessment.rows_below_k) == (5, 0)
    assert [(requirement.requirement, requirement.holds) for requirement in assessment.requirements] == [
        ("5-anonymity", True)
    ]


@pytest.mark.slow
def test_rounding_does_not_change_confidence() -> None:
    """51 is the only value released as 100: no released value is near to it, but drawn values are."""
    values = ", ".join(["(49.0)"] * 19 + ["(51.0)"])
    more = {"k": 5, "search": {"suppression_limit": 0.5}}
    noise = {"epsilon": 10.0, "round": 100}

    def check(result: sqlanon.Result) -> int:
        assert result.confidence is not None
        return int(result.confidence["suppressed_rows"])

    attribute = {"role": "quasi", "noise": noise}
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE t AS SELECT 'a' AS q, CAST(v AS DOUBLE) AS x FROM (VALUES {values}) AS r(v)")
        with sqlanon.connect(connection) as db:
            policy = make_policy({"q": "suppress", "x": attribute}, **more)
            assert check(db.anonymize(with_privacy(policy, confidence=0.99))) >= 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "confidence"),
    some([("release.parquet", 0.9), ("release.duckdb", None), ("release.parquet", None), ("release.duckdb", 0.9)], 4),
)
def test_a_class_beyond_the_bounds_is_verified(target: str, confidence: float | None, tmp_path: Path) -> None:
    with duckdb.connect() as connection:
        connection.execute(
            "CREATE TABLE t AS SELECT 'young' AS q, 20 + i % 30 AS x FROM range(200) AS r(i) "
            "UNION ALL SELECT 'old', 91 + i % 9 FROM range(200) AS r(i)"
        )
        noise = {"role": "quasi", "noise": {"epsilon": 1.0, "bounds": [0, 90]}}
        policy = make_policy({"q": "suppress", "x": noise}, search={"suppression_limit": 0.5})
        policy = policy if confidence is None else with_privacy(policy, confidence=confidence)
        with sqlanon.connect(connection) as db:
            release = db.anonymize(policy).publish(tmp_path / target)
            verification = db.verify(release.path, policy)
    assert verification.verified, verification.failures


@pytest.mark.thorough
def test_values_without_noise_keep_every_digit() -> None:
    """In a class where all are equal, and without a warning that is not true."""
    for type_, value in (("BIGINT", "4611686018427387903"), ("DECIMAL(20, 2)", "123456789012345678.89")):
        released = check_noise(", ".join([f"({value})"] * 5), type_, {}, column)
        assert [str(value_) for value_ in released] == [value] * 5


@pytest.mark.slow
def test_values_too_large_for_their_type_are_refused() -> None:
    for type_, value in (("BIGINT", 2**63 - 1), ("HUGEINT", 2 * 10**37), ("DECIMAL(38, 37)", 5)):
        with pytest.raises(sqlanon.SourceError, match="too large for its type"):
            check_noise(", ".join([f"({value})"] * 5), type_, {}, lambda result: result)


@pytest.mark.parametrize("round_", [Decimal("1e-320"), Decimal("1e400")])
def test_a_granularity_is_a_number_that_can_be_counted_with(round_: Decimal) -> None:
    with pytest.raises(sqlanon.PolicyError, match="round: must be at"):
        make_policy({"q": "suppress", "x": {"role": "quasi", "noise": {"epsilon": 1.0, "round": round_}}})


@pytest.mark.slow
def test_a_confidence_next_to_1_suppresses_no_rows() -> None:
    noise = {"role": "quasi", "noise": {"epsilon": 1.0}}
    table = pyarrow.table({"q": ["a"] * 9, "x": list(range(9)), "y": list(range(9))})
    policy = make_policy({"q": "suppress", "x": noise, "y": noise}, table=None)
    with sqlanon.connect(table) as db:
        result = db.anonymize(with_privacy(policy, confidence=1 - 1e-16))
    assert result.confidence is not None and result.confidence["suppressed_rows"] == 0


@pytest.mark.thorough
def test_a_warning_shows_the_linking_risk_of_noise_that_the_policy_lets_be_weak() -> None:
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t AS SELECT 'a' AS q, i AS x FROM range(40) AS r(i)")
        with sqlanon.connect(connection) as db:
            weak = db.anonymize(make_policy({"q": "suppress", "x": {"role": "quasi", "noise": {"epsilon": 1000.0}}}))
            usual = db.anonymize(make_policy({"q": "suppress", "x": {"role": "quasi", "noise": {"epsilon": 10.0}}}))
            assert weak.linking_risk is not None and weak.linking_risk > 0.9
            warnings = [warning for warning in weak.warnings if "links" in warning]
            assert len(warnings) == 1 and f"links {weak.linking_risk:.1%} of the released rows" in warnings[0]
            assert not any("links" in warning for warning in usual.warnings)
