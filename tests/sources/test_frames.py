"""Data frames: every library's, its types, its missing values, and what is said of what cannot be read."""

from __future__ import annotations

import datetime
import decimal
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from traceback import format_exception
from types import SimpleNamespace
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import sqlanon
from sqlanon import SourceError
from support.databases import connection_of
from support.policies import make_policy

pd = pytest.importorskip("pandas", reason="the extra pandas is not installed")
pl = pytest.importorskip("polars", reason="the extra polars is not installed")
nw = pytest.importorskip("narwhals", reason="narwhals comes with the extra report, which is not installed")

pytestmark = pytest.mark.extras

ROLES = {"zip": "mask", "age": "suppress"}
PEOPLE = {"zip": [f"0213{i % 2}" for i in range(8)], "age": [i % 2 for i in range(8)]}
RELEASED = Counter({("02130", 0): 4, ("02131", 1): 4})


class Capsule:
    """A frame of no known library, which can be read once."""

    def __init__(self, frame: Any) -> None:
        self.given, self.reads = frame, 0

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        self.reads += 1
        assert self.reads == 1, "a stream can be read once only"
        return self.given.__arrow_c_stream__(requested_schema)


@pytest.fixture(scope="module")
def people() -> Iterator[duckdb.DuckDBPyRelation]:
    with duckdb.connect() as connection:
        yield connection.sql("SELECT '0213' || i % 2 AS zip, i % 2 AS age FROM range(8) AS r(i)")


MAKERS: Mapping[str, Callable[[], Any]] = {
    "pandas": lambda: pd.DataFrame(PEOPLE),
    "pandas with an index": lambda: pd.DataFrame(PEOPLE, index=pd.Index([f"p{i}" for i in range(8)], name="person")),
    "polars": lambda: pl.DataFrame(PEOPLE),
    "polars, lazy": lambda: pl.LazyFrame(PEOPLE),
    "narwhals": lambda: nw.from_native(pd.DataFrame(PEOPLE)),
    "narwhals, lazy": lambda: nw.from_native(pl.LazyFrame(PEOPLE)),
    "a stream": lambda: Capsule(pa.table(PEOPLE)),
    "a reader": lambda: pa.table(PEOPLE).to_reader(max_chunksize=3),
    "a batch": lambda: pa.table(PEOPLE).to_batches()[0],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MAKERS)
def test_frames_of_all_libraries_are_read(name: str) -> None:
    """The index of a pandas frame is not read."""
    frame = MAKERS[name]()
    assert types_and_rows(frame) == (
        ["VARCHAR", "BIGINT"],
        [(zip_, str(age)) for zip_, age in zip(*PEOPLE.values(), strict=True)],
    )


@pytest.mark.slow
def test_relations_and_datasets_are_read(people: duckdb.DuckDBPyRelation) -> None:
    datasets = pytest.importorskip("pyarrow.dataset")
    for frame in (people, datasets.dataset(pa.table(PEOPLE))):
        assert types_and_rows(frame)[1] == types_and_rows(pa.table(PEOPLE))[1]


@pytest.mark.thorough
@pytest.mark.parametrize("name", MAKERS)
def test_a_frame_gives_the_same_release_as_a_table(name: str) -> None:
    """The search reads rows several times, even of an object that can be read only once."""
    with sqlanon.connect(MAKERS[name]()) as db:
        result = db.anonymize(make_policy(ROLES, table=None))
        assert Counter(result.relation().fetchall()) == RELEASED


def types_and_rows(frame: Any) -> tuple[list[str], list[tuple[Any, ...]]]:
    """A frame as the engine receives it: its types, and its rows as texts."""
    with sqlanon.connect(frame) as db:
        relation = connection_of(db).sql("SELECT COLUMNS(*)::VARCHAR FROM sqlanon_work.arrow")
        return [str(name) for name in connection_of(db).sql("FROM sqlanon_work.arrow").types], relation.fetchall()


def test_missing_values_of_pandas_are_null() -> None:
    missing = pd.DataFrame(
        {
            "object": pd.Series(["a", None, float("nan")], dtype="object"),
            "float": [1.5, float("nan"), None],
            "Int64": pd.Series([1, None, pd.NA], dtype="Int64"),
            "boolean": pd.Series([True, None, pd.NA], dtype="boolean"),
            "category": pd.Categorical(["a", None, float("nan")]),
            "datetime": pd.to_datetime(["2020-01-01", None, "NaT"]),
            "nothing": pd.Series([None, None, None], dtype="object"),
        }
    )
    types, read_rows = types_and_rows(missing)
    assert read_rows == [("a", "1.5", "1", "true", "a", "2020-01-01 00:00:00", None), (None,) * 7, (None,) * 7]
    assert types[:5] == ["VARCHAR", "DOUBLE", "BIGINT", "BOOLEAN", "VARCHAR"]


def test_nan_of_polars_is_a_value() -> None:
    types, values = types_and_rows(pl.DataFrame({"x": [float("nan"), None, 1.0]}))
    assert (types, values) == (["DOUBLE"], [("nan",), (None,), ("1.0",)])


@pytest.mark.slow
def test_types_of_polars() -> None:
    day = datetime.datetime(2020, 6, 1, 12)
    frame = pl.DataFrame(
        {
            "categorical": pl.Series(["b"], dtype=pl.Categorical),
            "enum": pl.Series(["b"], dtype=pl.Enum(["a", "b"])),
            "decimal": [decimal.Decimal("1.20")],
            "list": [[1, None]],
            "struct": [{"a": 1, "b": "x"}],
            "zoned": pl.Series([day]).dt.replace_time_zone("Europe/Berlin"),
            "date": [day.date()],
            "array": pl.Series([[1, 2]], dtype=pl.Array(pl.Int8, 2)),
        }
    )
    types, values = types_and_rows(frame)
    assert types[:5] == ["VARCHAR", "VARCHAR", "DECIMAL(38,2)", "BIGINT[]", "STRUCT(a BIGINT, b VARCHAR)"]
    assert types[5:] == ["TIMESTAMP WITH TIME ZONE", "DATE", "TINYINT[2]"]
    expected = ("b", "b", "1.20", "[1, NULL]", "{'a': 1, 'b': x}", "2020-06-01 10:00:00+00", "2020-06-01", "[1, 2]")
    assert values == [expected]


def test_times_of_pandas_have_their_zone() -> None:
    zoned = pd.Series(pd.to_datetime(["2020-06-01 12:00"])).dt.tz_localize("Europe/Berlin")
    _, values = types_and_rows(pd.DataFrame({"zoned": zoned.astype("datetime64[us, Europe/Berlin]")}))
    assert values == [("2020-06-01 10:00:00+00",)]


@pytest.mark.slow
def test_names_of_pandas_columns_are_texts() -> None:
    with sqlanon.connect(pd.DataFrame([[1, 2], [1, 2]])) as db:
        result = db.anonymize(make_policy({"0": "suppress", "1": "insensitive"}, table=None))
        assert result.arrow().to_pylist() == [{"0": 1, "1": 2}] * 2


@pytest.mark.slow
def test_unused_categories_are_not_uploaded(tmp_path: Path) -> None:
    """A dictionary may name persons whose rows were filtered out before."""
    frames = (
        pd.DataFrame({"zip": pd.Categorical(["ward"] * 4, categories=["ward", "the absent patient"]), "age": [1] * 4}),
        pl.DataFrame({"zip": pl.Series(["ward"] * 4, dtype=pl.Enum(["ward", "the absent patient"])), "age": [1] * 4}),
    )
    roles = {"zip": "insensitive", "age": "suppress"}
    for number, frame in enumerate(frames):
        with sqlanon.connect(frame) as db:
            result = db.anonymize(make_policy(roles, table=None))
            release = result.publish(tmp_path / f"{number}.parquet")
            for rows_object in (result, release):
                assert b"absent" not in stream_of(rows_object.arrow())
                assert "absent" not in str(
                    getattr(rows_object.df()["zip"], "cat", SimpleNamespace(categories=())).categories
                )
                assert b"absent" not in stream_of(rows_object.pl().to_arrow())
        assert b"absent" not in release.path.read_bytes()


def stream_of(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


REFUSED: Mapping[str, tuple[Callable[[], Any], str]] = {
    "several types": (
        lambda: pd.DataFrame({"ok": [1, 2], "x": ["secret", 2]}),
        r"^column 'x': values of several types",
    ),
    "periods": (lambda: pd.DataFrame({"x": pd.period_range("2020-01", periods=2, freq="M")}), r"'x': pandas periods"),
    "float16": (
        lambda: pd.DataFrame({"x": pd.Series([1, 2], dtype="float16")}),
        r"^column 'x': DuckDB does not read.*halffloat",
    ),
    "equal names": (lambda: pd.DataFrame([[1, 2]], columns=["a", "a"]), r"pandas DataFrame: columns 'a', 'a'"),
    "names in two cases": (lambda: pl.DataFrame({"a": [1], "A": [2]}), r"polars DataFrame: columns 'a', 'A'"),
    "objects": (
        lambda: pl.DataFrame({"x": pl.Series([object()], dtype=pl.Object)}),
        r"column 'x': Object has no Arrow",
    ),
    "a series": (lambda: pd.Series([1]), r"a pandas Series is one column: give a data frame"),
    "a dictionary": (lambda: PEOPLE, r"type dict: give a path, .* a pandas or polars data frame, or any Arrow table"),
    "a number": (lambda: 7, r"type int: give a path"),
    "a broken stream": (
        lambda: Capsule(SimpleNamespace()),
        r"test_frames Capsule cannot be converted to an Arrow table .AttributeError",
    ),
}


@pytest.mark.cases(4)
@pytest.mark.parametrize("name", REFUSED)
def test_unsupported_frames_are_refused(name: str) -> None:
    make, message = REFUSED[name]
    with pytest.raises(SourceError, match=message) as caught:
        sqlanon.connect(make())
    assert "secret" not in str(caught.value)
    assert "secret" not in "".join(format_exception(caught.value)), "a traceback shows what caused an error"


def test_frames_of_spark_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading one would bring all rows here, which stay in Spark."""

    def never(*arguments: Any) -> Any:
        raise AssertionError("its rows were read")

    kind = type("DataFrame", (), {"__arrow_c_stream__": never, "collect": never, "__module__": "pyspark.sql.dataframe"})
    wrapped = type("LazyFrame", (), {"to_native": lambda self: kind(), "__module__": "narwhals.dataframe"})
    for frame in (kind(), wrapped()):
        with pytest.raises(SourceError, match="Spark data frame is not read: make it a view"):
            sqlanon.connect(frame)


@pytest.mark.slow
def test_a_frame_is_not_shown(people: duckdb.DuckDBPyRelation) -> None:
    """Neither in the repr, nor on the way there: the text of a relation runs its query."""
    frame = pd.DataFrame(PEOPLE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(frame), "__str__", lambda self: pytest.fail("it was shown"))
        with sqlanon.connect(frame) as db:
            assert repr(db) == "Database('pandas DataFrame')"
    with sqlanon.connect(people) as db:
        assert repr(db) == "Database('duckdb DuckDBPyRelation')"


@pytest.mark.thorough
def test_suggest_writes_a_policy_for_a_frame() -> None:
    """The text is a policy for the same frame, and has no place of a source."""
    frame = pl.DataFrame({"age": [20 + i % 40 for i in range(200)], "ward": [f"w{i % 3}" for i in range(200)]})
    if sys.version_info < (3, 11):
        pytest.skip("tomllib comes with Python 3.11")
    import tomllib  # noqa: PLC0415

    with sqlanon.connect(frame) as db:
        tree = tomllib.loads(db.suggest())
        assert not tree.get("source")
        assert db.anonymize(sqlanon.Policy(**{**tree, "release": None})).released_rows


def test_an_object_of_a_script_is_named_by_its_type_alone() -> None:
    table = type("Table", (), {"__module__": "__main__"})
    with pytest.raises(SourceError) as refused:
        sqlanon.connect(table())
    assert "Table" in str(refused.value) and "main__" not in str(refused.value)


@pytest.mark.thorough
def test_times_of_pandas_with_a_zone_have_calendar_levels(tmp_path: Path) -> None:
    times = pd.to_datetime(["2020-12-31 23:59:59.999999999", "2021-01-01 00:00:00.000000000"] * 3, utc=True)
    frame = pd.DataFrame({"seen": times.astype("datetime64[ns, UTC]")})
    policy = make_policy(
        {"seen": {"role": "quasi", "hierarchy": {"dates": ["day", "year"]}, "min_level": 1}}, table=None
    )
    with sqlanon.connect(frame) as db:
        release = db.anonymize(policy).publish(tmp_path / "release.parquet")
        assert release.verify().verified
        assert 'dates = ["day", ' in str(db.suggest())
    assert set(pd.read_parquet(tmp_path / "release.parquet").seen) == {"2020-12-31", "2021-01-01"}
