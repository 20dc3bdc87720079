"""The columns of a source, matched with the attributes of a policy by name; and the files that patterns name."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pytest

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.errors import SourceError
from sqlanon.policy import SourceSection
from sqlanon.sources.columns import match_columns
from sqlanon.sources.files.binding import _match_paths, _refuse_keys_of_other_formats
from sqlanon.sources.files.typed_columns import ColumnReading
from sqlanon.sources.source import Source
from sqlanon.support.expressions import table
from support.policies import make_policy

TYPES = {"ID": "BIGINT", "Zip": "VARCHAR", "ILL": "VARCHAR", "note": "VARCHAR", "w": "DOUBLE"}
ATTRIBUTES: dict[str, Any] = {"zip": "mask", "ill": "sensitive", "Note": "insensitive"}


def match(types: dict[str, str] = TYPES, attributes: dict[str, Any] = ATTRIBUTES, **sections: Any) -> Any:
    source = {"table": "t", **sections.pop("source", {})}
    return match_columns(make_policy(attributes, source=source, **sections), Source(table("t"), types))


def test_names_are_matched_in_any_case() -> None:
    columns = match(
        source={"person": "id", "key": ["id"]},
        risk={"weights": "W"},
        privacy={"k": 2, "l_diversity": [{"attribute": "ill", "kind": "distinct", "l": 2}]},
    )
    assert columns.by_attribute == {"zip": "Zip", "ill": "ILL", "Note": "note"}
    assert (columns.generalized, columns.sensitive, columns.sensitive_names) == (("Zip",), ("ILL",), ("ill",))
    assert (columns.person, columns.key, columns.weights) == ("ID", ("ID",), "w")
    assert [column.name for column in columns.released] == ["Zip", "ILL", "note"]


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"source": {"person": "id"}, "risk": {"weights": "w"}}, None),
        ({"source": {"undeclared": "drop"}}, None),
        ({"source": {"key": ["ID"]}}, "columns without a role: 'w'"),
        ({"source": {"person": "id"}}, "columns without a role: 'w'"),
        ({"risk": {"weights": "w"}}, "columns without a role: 'ID'"),
        ({"source": {"undeclared": "drop", "person": "idd"}}, "source.person: the source has no column 'idd'"),
        ({"source": {"undeclared": "drop", "key": ["ID", "no"]}}, "source.key: the source has no column 'no'"),
        ({"source": {"undeclared": "drop"}, "risk": {"weights": "v"}}, "risk.weights: the source has no column 'v'"),
        (
            {"source": {"undeclared": "drop"}, "attributes": {**ATTRIBUTES, "zips": "identifying"}},
            "attributes without a column in the source: 'zips'; did you mean 'Zip'?",
        ),
    ],
)
def test_each_column_has_a_role_and_each_attribute_a_column(sections: dict[str, Any], message: str | None) -> None:
    if message is None:
        match(**sections)
    else:
        with pytest.raises(SourceError) as refused:
            match(**sections)
        assert message in str(refused.value)


@pytest.mark.parametrize(
    ("nested", "privacy", "is_matched"),
    [
        ("note", {"k": 2}, True),
        ("Zip", {"k": 2}, False),
        ("ILL", {"k": 2}, True),  # no requirement examines it
        ("ILL", {"k": 2, "l_diversity": [{"attribute": "ill", "kind": "distinct", "l": 2}]}, False),
    ],
)
def test_nested_values_form_no_classes_and_are_not_examined(
    nested: str, privacy: dict[str, Any], is_matched: bool
) -> None:
    types = TYPES | {nested: "STRUCT(a INTEGER)"}
    if is_matched:
        match(types, source={"undeclared": "drop"}, privacy=privacy)
    else:
        with pytest.raises(SourceError, match=f"cannot have nested types: '{nested.lower()}'"):
            match(types, source={"undeclared": "drop"}, privacy=privacy)


def test_a_file_that_several_patterns_match_is_read_once(tmp_path: Path) -> None:
    for name in ("b1.csv", "a2.csv", "a1.csv"):
        (tmp_path / name).touch()
    with closing(DuckDBEngine(duckdb.connect())) as engine:
        patterns = [str(tmp_path / pattern) for pattern in ("a*.csv", "*1.csv", "a1.csv", "none*.csv")]
        paths = [str(tmp_path / name) for name in ("a1.csv", "a2.csv", "b1.csv")]
        assert _match_paths(engine, patterns, ()) == paths
        with pytest.raises(SourceError, match=r"no file matches none\*\.csv"):
            _match_paths(engine, patterns[3:], ("none*.csv",))


@pytest.mark.parametrize(
    ("keys", "readings", "formats", "message"),
    [
        ({"csv": {"delimiter": ";"}}, {}, {"csv"}, "source.csv: applies to CSV files"),
        ({"csv": {}}, {}, {"csv", "excel", "parquet", "json", "spss"}, ""),
        ({"value_labels": True}, {}, {"spss"}, "source.value_labels: applies to files of SPSS, Stata and SAS"),
        ({"user_missing": "keep"}, {}, {"spss"}, "source.user_missing: applies to files of SPSS, Stata and SAS"),
        ({}, {"age": ColumnReading("age", "integer")}, {"csv", "excel", "parquet", "json"}, "attributes.age: type"),
    ],
)
def test_keys_of_one_format_are_refused_for_others(
    keys: dict[str, Any], readings: dict[str, ColumnReading], formats: set[str], message: str
) -> None:
    section = SourceSection(files=["x"], **keys)
    for name in ("csv", "excel", "parquet", "json", "spss"):
        if name in formats:
            _refuse_keys_of_other_formats(section, name, readings)
        else:
            with pytest.raises(SourceError) as refused:
                _refuse_keys_of_other_formats(section, name, readings)
            assert message in str(refused.value)
