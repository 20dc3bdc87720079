"""Several files are one source: their columns are matched by name, and files with other columns are refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from united_files import FIRST, ROLES, WRITERS, reorder, write_csv, write_files

import sqlanon
from sqlanon import SourceError
from support.lanes import examples
from support.policies import make_policy
from support.published_tables import publish_and_read


def refusal(files: Sequence[str], roles: dict[str, Any] = ROLES) -> str:
    with sqlanon.connect() as db, pytest.raises(SourceError) as caught:
        db.anonymize(make_policy(roles, source={"files": list(files)}, k=1))
    return str(caught.value)


@pytest.mark.thorough
@pytest.mark.parametrize("one_pattern", [False, True], ids=["a list", "one pattern"])
@pytest.mark.parametrize("ending", WRITERS)
def test_columns_in_another_order_are_matched_by_name(ending: str, one_pattern: bool, tmp_path: Path) -> None:
    files = write_files(tmp_path, ending, [FIRST, reorder(FIRST, "age", "name", "zip", "diagnosis")])
    files_option = [str(tmp_path / f"f*.{ending}")] if one_pattern else files
    rows, types = publish_and_read(None, ROLES, tmp_path, source={"files": files_option}, k=1)
    expected = Counter(zip(*FIRST.values(), strict=True))
    assert list(types) == list(FIRST)
    assert Counter((zip_, *values) if ending == "json" else (str(zip_), *values) for zip_, *values in rows) == Counter(
        {row: 2 * n for row, n in expected.items()}
    )


@pytest.mark.slow
@pytest.mark.parametrize("ending", WRITERS)
def test_missing_and_extra_columns_are_named(ending: str, tmp_path: Path) -> None:
    second = {**reorder(FIRST, "zip", "name", "age"), "illness": FIRST["diagnosis"]}
    message = refusal(write_files(tmp_path, ending, [FIRST, second]))
    assert f"f1.{ending} lacks 'diagnosis' of f0.{ending}" in message
    assert f"f1.{ending} has 'illness', which f0.{ending} lacks" in message


@pytest.mark.slow
@pytest.mark.parametrize("ending", WRITERS)
def test_an_extra_column_alone_is_refused(ending: str, tmp_path: Path) -> None:
    """DuckDB's own scan of several Parquet files leaves it out without a word."""
    message = refusal(write_files(tmp_path, ending, [FIRST, {**FIRST, "ward": [1, 1, 1, 1]}]))
    assert f"f1.{ending} has 'ward', which f0.{ending} lacks" in message


def test_other_types_in_parquet_are_named(tmp_path: Path) -> None:
    """DuckDB's own scan would round 2.5 to the whole numbers of the first file."""
    files = write_files(tmp_path, "parquet", [FIRST, {**FIRST, "age": [1.5, 2.5, 3.5, 4.5]}])
    assert "'age' is BIGINT in f0.parquet and DOUBLE in f1.parquet" in refusal(files)


@pytest.mark.thorough
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_names_in_another_case_are_the_same_columns(ending: str, tmp_path: Path) -> None:
    files = write_files(tmp_path, ending, [FIRST, {name.upper(): values for name, values in FIRST.items()}])
    rows, types = publish_and_read(None, ROLES, tmp_path, source={"files": files}, k=1)
    assert list(types) == list(FIRST)
    assert len(rows) == 8
    assert {row[2] for row in rows} == {"a", "b", "c", "d"}


def test_keys_in_another_case_are_other_keys_of_json(tmp_path: Path) -> None:
    """DuckDB would read them as NULL."""
    files = write_files(tmp_path, "json", [FIRST, {**reorder(FIRST, "zip", "name", "age"), "Diagnosis": ["x"] * 4}])
    assert "f1.json lacks 'diagnosis' of f0.json" in refusal(files)


@pytest.mark.thorough
def test_a_json_file_without_rows_lacks_nothing(tmp_path: Path) -> None:
    files = write_files(tmp_path, "json", [FIRST])
    (tmp_path / "f9.json").write_text("[]\n")
    rows, _ = publish_and_read(None, ROLES, tmp_path, source={"files": [*files, str(tmp_path / "f9.json")]}, k=1)
    assert len(rows) == 4


def test_files_of_one_name_are_distinguished_by_their_folders(tmp_path: Path) -> None:
    for folder, columns in (("a", FIRST), ("b", {**FIRST, "ward": [1] * 4})):
        (tmp_path / folder).mkdir()
        write_csv(tmp_path / folder / "people.csv", columns)
    message = refusal([str(tmp_path / "*" / "people.csv")])
    assert f"{tmp_path}/b/people.csv has 'ward', which {tmp_path}/a/people.csv lacks" in message


@pytest.mark.slow
def test_many_differences_are_counted(tmp_path: Path) -> None:
    files = write_files(tmp_path, "csv", [FIRST, *({**FIRST, f"x{i}": [1] * 4} for i in range(9))])
    assert "and 4 more differences" in refusal(files)


@pytest.mark.thorough
@settings(max_examples=examples(20))
@given(
    st.sampled_from(sorted(WRITERS)),
    st.lists(st.permutations(["zip", "a", "b", "c"]), min_size=1, max_size=4),
    st.randoms(use_true_random=False),
)
def test_each_value_stays_in_its_column(
    tmp_path_factory: pytest.TempPathFactory, ending: str, orders: list[list[str]], draw: Any
) -> None:
    """A value begins with the name of its column, whatever file it is in."""
    files = [
        {name: [f"{name}{draw.randrange(5)}" for _ in range(draw.randrange(1, 5))] for name in order}
        for order in orders
    ]
    for columns in files:
        rows = min(map(len, columns.values()))
        columns.update({name: values[:rows] for name, values in columns.items()})
    folder = tmp_path_factory.mktemp("files")
    paths = write_files(folder, ending, files)
    roles = {"zip": "suppress", "a": "insensitive", "b": "sensitive", "c": "insensitive"}
    rows_, types = publish_and_read(None, roles, folder, source={"files": paths}, k=1)
    names = list(types)
    expected = [row for columns in files for row in zip(*(columns[name] for name in names), strict=True)]
    assert Counter(rows_) == Counter(expected)
