"""Files of SPSS, Stata and SAS: types, dates, value labels and missing codes, and what the policy must decide.

The files are in ``statistics_files/``, and `write_files.py` there says what is in them.
"""

from __future__ import annotations

import gzip
import importlib.util
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import date, datetime, time, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from statistics_reading import FOLDER, read

import sqlanon
from sqlanon.errors import MissingLibraryError
from sqlanon.policy import SourceSection
from sqlanon.sources.files import statistics_files
from sqlanon.sources.files.scan import ReadingChoices
from sqlanon.sources.files.statistics_files import UndecidedReadingError
from sqlanon.sources.relation import source_errors
from support.commands import cli
from support.lanes import examples


def needs_pyreadstat(test: Callable[..., None]) -> Callable[..., None]:
    is_missing = importlib.util.find_spec("pyreadstat") is None
    return pytest.mark.extras(pytest.mark.skipif(is_missing, reason="the extra stats is not installed")(test))


def unpack(name: str, folder: Path) -> Path:
    path = folder / name
    path.write_bytes(gzip.decompress((FOLDER / f"{name}.gz").read_bytes()))
    return path


def policy(**source: object) -> sqlanon.Policy:
    return sqlanon.Policy(
        source={"files": str(FOLDER / "survey.sav"), "undeclared": "drop", "person": False, **source},
        attributes={"sex": {"role": "quasi", "hierarchy": "suppress"}, "income": {"role": "insensitive"}},
        privacy={"k": 2},
        search={"suppression_limit": 0.5},
    )


@pytest.mark.thorough
@needs_pyreadstat
def test_numbers_dates_and_texts_of_spss_are_read_as_they_are() -> None:
    types, columns = read("survey.sav")
    assert types == {
        "sex": "BIGINT",
        "age": "BIGINT",
        "region": "VARCHAR",
        "zip": "BIGINT",
        "income": "DOUBLE",
        "number": "BIGINT",
        "born": "DATE",
        "seen": "TIMESTAMP",
        "day": "TIMESTAMP",
        "clock": "TIME",
        "stay": "BIGINT",
    }
    assert columns["sex"] == [1, 2, None, None, 1, 2]
    assert columns["age"] == [34, 98, None, 18, None, 41]
    assert columns["region"] == ["N", "S", None, None, "N", "S"]
    assert columns["income"] == [1250.5, 0.1, -3.0, None, 99.25, 12.0]
    assert columns["number"] == [2**53, 1, 2, 3, 4, 5]
    last = date(1899, 12, 31)
    assert columns["born"] == [date(1981, 2, 28), date(1582, 10, 15), date(2000, 2, 29), None, last, last]
    assert columns["seen"][:2] == [datetime(2024, 1, 31, 23, 59, 59, 250000), datetime(1900, 1, 1)]
    assert columns["day"][:2] == [datetime(2024, 1, 31, 12), datetime(2024, 2, 1)]  # a date that hides a time of day
    assert columns["clock"][:3] == [time(0), time(23, 59, 59), time(1)]
    assert columns["stay"][:3] == [90000, 0, 3600]  # more than a day is a duration, in seconds


@pytest.mark.thorough
@needs_pyreadstat
def test_policy_can_keep_user_missing_values() -> None:
    _, columns = read("survey.sav", choices=ReadingChoices(value_labels=False, user_missing="keep"))
    assert columns["sex"] == [1, 2, 9, None, 1, 2]
    assert columns["age"] == [34, 98, 999, 18, None, 41]
    assert columns["region"] == ["N", "S", "X", None, "N", "S"]


@pytest.mark.thorough
@needs_pyreadstat
def test_labels_replace_codes_and_a_value_without_a_label_stays_its_code() -> None:
    choices = ReadingChoices(value_labels=("SEX", "age", "region"), user_missing="keep")
    types, columns = read("survey.sav", choices=choices)
    assert {types[name] for name in ("sex", "age", "region")} == {"VARCHAR"}
    assert columns["sex"] == ["male", "female", "no answer", None, "male", "female"]
    assert columns["age"] == ["34", "98 or more", "refused", "18", None, "41"]
    assert columns["region"] == ["North", "South", "unknown", None, "North", "South"]
    _, columns = read("survey.sav", choices=ReadingChoices(("sex",), "missing"))
    assert columns["sex"] == ["male", "female", None, None, "male", "female"]
    assert columns["age"] == [34, 98, None, 18, None, 41]


@pytest.mark.thorough
@needs_pyreadstat
@pytest.mark.parametrize(("name", "column"), [("survey.sav", "zip"), ("survey.xpt", "ZIP")])
def test_a_column_of_texts_has_the_zeros_that_its_format_shows(name: str, column: str) -> None:
    types, columns = read(name, text_columns=("zip",))
    assert types[column] == "VARCHAR"
    assert columns[column][:3] == (["02139", "00501", "94110"])


@needs_pyreadstat
def test_dates_of_stata_are_read_by_their_formats() -> None:
    types, columns = read("survey.dta")
    assert columns["city"] == ["Köln", None, "Bonn", "Bonn", "Köln", "Köln"]
    assert columns["born"][:4] == [date(1960, 1, 1), date(1959, 12, 31), date(2006, 3, 1), None]
    second = datetime(1960, 1, 1) + timedelta(milliseconds=1706745599250)
    assert columns["seen"][:3] == [datetime(1960, 1, 1), second, datetime(1959, 12, 31, 23, 59, 59, 999000)]
    assert columns["clock"][:3] == [time(0), time(23, 59, 59), time(1)]
    assert columns["month"][:3] == [date(1993, 5, 1), date(1959, 12, 1), date(1960, 1, 1)]
    # A year has 52 weeks in Stata: the last one has eight or nine days.
    assert columns["week"][:3] == [date(1960, 1, 1), date(1961, 1, 1), date(1959, 12, 24)]
    assert columns["quarter"][:3] == [date(1960, 1, 1), date(1961, 4, 1), date(1959, 10, 1)]
    assert columns["half"][:3] == [date(1960, 1, 1), date(1961, 7, 1), date(1959, 7, 1)]
    assert columns["year"][:3] == [1999, 2024, 1960]
    assert (types["seen"], types["week"], types["year"]) == ("TIMESTAMP", "DATE", "BIGINT")


@pytest.mark.slow
@needs_pyreadstat
def test_the_missing_codes_of_stata_become_null_or_are_kept_with_their_labels() -> None:
    assert read("survey.dta")[1]["sex"] == [1, 2, None, None, None, 1]
    types, columns = read("survey.dta", choices=ReadingChoices(False, "keep"))
    assert (types["sex"], columns["sex"]) == ("VARCHAR", ["1", "2", ".a", None, ".z", "1"])
    assert types["age"] == "BIGINT"
    labels = read("survey.dta", choices=ReadingChoices(True, "keep"))[1]["sex"]
    assert labels == ["male", "female", "refused", None, ".z", "male"]


@pytest.mark.thorough
@needs_pyreadstat
def test_stata_floats_keep_their_decimal_digits() -> None:
    types, columns = read("floats.dta")
    assert types == {"dose": "FLOAT", "whole": "BIGINT"}
    assert columns["whole"] == [1, 2, None]
    assert read("floats.dta", text_columns=("dose",))[1]["dose"] == ["0.1", "2.5", None]


@pytest.mark.thorough
@needs_pyreadstat
def test_leap_seconds_of_stata_are_refused_unless_the_column_is_left_out() -> None:
    with pytest.raises(sqlanon.SourceError, match=r"column 'leap' counts leap seconds \(%tC\).*cofC"):
        read("leap.dta")
    assert read("leap.dta", wanted=("age",))[1]["age"] == [1, 2]


@needs_pyreadstat
def test_transport_files_of_sas() -> None:
    types, columns = read("survey.xpt", choices=ReadingChoices())
    assert columns["AGE"] == [34, None, 18]
    assert columns["DOSE"] == [0.5, 1.25, None]
    assert columns["CITY"] == ["Bonn", None, "Kiel"]
    assert columns["BORN"] == [date(1960, 1, 1), date(1959, 12, 31), date(2024, 1, 31)]
    assert columns["SEEN"] == [
        datetime(1960, 1, 1, 0, 0, 0, 500000),
        datetime(1959, 12, 31, 23, 59, 59),
        datetime(2024, 1, 31, 23, 59, 59, 250000),
    ]
    assert columns["CLOCK"] == [time(0), time(23, 59, 59), None]
    assert types["BORN"] == "DATE"


@pytest.mark.thorough
@needs_pyreadstat
def test_files_of_sas(tmp_path: Path) -> None:
    types, columns = read(unpack("date_test.sas7bdat", tmp_path))
    assert columns["patno"][:2] == [1001, 1002]
    assert columns["dtc1"][:2] == [date(2022, 1, 1), date(2023, 1, 1)]
    assert columns["tm1"][0] == time(11, 20, 10)
    assert columns["dt1"][0] == datetime(2020, 12, 9, 14, 5)
    assert types["yr"] == "DATE"  # the format shows the year of a date
    codes = unpack("missing_test.sas7bdat", tmp_path)
    codes_kept = read(codes, choices=ReadingChoices(False, "keep"))[1]
    assert [values[0] for values in codes_kept.values()] == [".A", ".B", ".C", ".X", ".Y", ".Z", "._", None, 1]
    assert [values[0] for values in read(codes)[1].values()] == [None] * 8 + [1]


@pytest.mark.thorough
@needs_pyreadstat
@pytest.mark.parametrize("name", ["survey.sav", pytest.param("survey.xpt", marks=pytest.mark.slow)])
def test_a_file_that_is_read_in_pieces_is_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = read(name)
    for rows in (1, 4):
        monkeypatch.setattr(statistics_files, "_BATCH_CELLS", rows * len(whole[0]))
        assert read(name) == whole


@pytest.mark.slow
@needs_pyreadstat
def test_several_data_sets_in_a_transport_file_are_refused(tmp_path: Path) -> None:
    content = (FOLDER / "survey.xpt").read_bytes()
    path = tmp_path / "both.xpt"
    path.write_bytes(content + content[240:])  # the library header is of 240 bytes
    with pytest.raises(sqlanon.SourceError, match=r"both\.xpt has 2 data sets"):
        read(path)


@needs_pyreadstat
@pytest.mark.thorough
def test_a_broken_file_is_refused_by_its_name(tmp_path: Path) -> None:
    for name in ("survey.sav", "survey.dta", "survey.xpt"):
        content = (FOLDER / name).read_bytes()
        for size in (10, len(content) // 2 - 1, len(content) - 41):
            path = tmp_path / name
            path.write_bytes(content[:size])
            with pytest.raises(sqlanon.SourceError, match=name.replace(".", r"\.")):
                read(path)


@pytest.mark.slow
@needs_pyreadstat
def test_a_file_that_crashes_the_library_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = tmp_path / "reader.py"
    monkeypatch.setattr(statistics_files, "_READER", reader)
    crash = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"
    rows = (FOLDER.parents[2] / "sqlanon" / "sources" / "files" / "statistics_reader.py").read_text(encoding="utf-8")
    after_rows = rows.replace("        out.close()", f"        out.flush(); {crash}")
    for script in (crash, after_rows):
        assert "SIGSEGV" in script
        reader.write_text(script, encoding="utf-8")
        with pytest.raises(sqlanon.SourceError, match=r"survey\.xpt cannot be read.*the file is broken"):
            read("survey.xpt")


@needs_pyreadstat
@pytest.mark.slow
@settings(max_examples=examples(100))
@given(
    st.sampled_from(["survey.sav", "small.sav", "survey.dta", "survey.xpt"]),
    st.lists(st.tuples(st.integers(0, 9000), st.integers(0, 255)), min_size=1, max_size=8),
)
def test_changed_bytes_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, name: str, changes: list[tuple[int, int]]
) -> None:
    path = tmp_path_factory.mktemp("changed") / name
    content = bytearray((FOLDER / name).read_bytes())
    for place, byte in changes:
        content[place % len(content)] = byte
    path.write_bytes(bytes(content))
    with suppress(sqlanon.SourceError), source_errors():
        read(path)


@needs_pyreadstat
@pytest.mark.thorough
def test_a_code_with_another_label_in_another_file_is_refused_unless_labels_are_read(tmp_path: Path) -> None:
    second_wave = tmp_path / "wave2.sav"
    content = (FOLDER / "survey.sav").read_bytes()
    assert content.count(b"female") == 1
    second_wave.write_bytes(content.replace(b"female", b"unsure"))
    with pytest.raises(sqlanon.SourceError, match=r"code 2 of 'sex' is 'female' in survey\.sav and 'unsure' in wave2"):
        read("survey.sav", second_wave)
    _, columns = read("survey.sav", second_wave, choices=ReadingChoices(("sex",), "missing"))
    assert columns["sex"][:6] == ["male", "female", None, None, "male", "female"]
    assert columns["sex"][6:] == ["male", "unsure", None, None, "male", "unsure"]


@pytest.mark.slow
@needs_pyreadstat
def test_labels_and_missing_codes_that_are_not_decided_are_refused_with_the_keys() -> None:
    with sqlanon.connect() as db, pytest.raises(sqlanon.SourceError) as refused:
        db.anonymize(policy())
    message = str(refused.value)
    assert "1 column has value labels: sex (1 = male, 2 = female)" in message
    assert 'value_labels = ["sex"] reads the labels of these columns, false reads codes' in message
    assert "1 column has user-missing values: sex (1 value)" in message
    assert "age" not in message  # it is not released
    assert isinstance(refused.value, UndecidedReadingError)
    assert refused.value.proposal == {"value_labels": ["sex"], "user_missing": "missing"}  # which `suggest` writes
    with sqlanon.connect() as db, pytest.raises(sqlanon.SourceError, match="value_labels"):
        db.anonymize(policy(user_missing="missing"))
    with sqlanon.connect() as db, pytest.raises(sqlanon.SourceError, match="user_missing"):
        db.anonymize(policy(value_labels=False))
    with sqlanon.connect() as db, pytest.raises(sqlanon.SourceError, match="value labels"):
        db.plan(policy())


@needs_pyreadstat
@pytest.mark.slow
def test_all_labels_are_read_only_where_all_values_have_one() -> None:
    with pytest.raises(sqlanon.SourceError, match=r"3 values of 'age' in survey\.sav have no label"):
        read("survey.sav", choices=ReadingChoices(True, "missing"))
    columns = read("survey.sav", choices=ReadingChoices(True, "missing"), wanted=("sex", "region"))[1]
    assert columns["sex"][:3] == ["male", "female", None]


@needs_pyreadstat
@pytest.mark.slow
@pytest.mark.parametrize(
    ("labels", "message"),
    [(("sx",), "has no column 'sx'"), (("income",), "'income' of survey.sav has no value labels")],
)
def test_labels_of_a_column_that_has_none_are_refused(labels: tuple[str, ...], message: str) -> None:
    with pytest.raises(sqlanon.SourceError, match=message):
        read("survey.sav", choices=ReadingChoices(labels, "missing"))


@needs_pyreadstat
@pytest.mark.thorough
def test_suggest_reports_its_decision_and_its_policy_runs(tmp_path: Path) -> None:
    (tmp_path / "small.sav").write_bytes((FOLDER / "small.sav").read_bytes())
    assert cli("suggest", "small.sav", "-o", "policy.toml", cwd=tmp_path).status == 0
    text = (tmp_path / "policy.toml").read_text(encoding="utf-8")
    assert 'value_labels = ["sex"]' in text  # not each value of age has a label
    assert 'user_missing = "missing"' in text
    assert cli("plan", "policy.toml", cwd=tmp_path).status == 0
    assert cli("anonymize", "policy.toml", cwd=tmp_path).status == 0
    with duckdb.connect(str(tmp_path / "small_release.duckdb"), read_only=True) as connection:
        values = {value for (value,) in connection.execute("SELECT DISTINCT sex FROM small").fetchall()}
    assert values <= {"male", "female", "*", None}


@needs_pyreadstat
@pytest.mark.thorough
def test_the_release_is_that_of_the_same_rows_in_a_table() -> None:
    with duckdb.connect() as connection:
        connection.execute(
            "CREATE TABLE people AS SELECT * FROM (VALUES ('male', 1250.5), ('female', 0.1), (NULL, -3.0), "
            "(NULL, NULL), ('male', 99.25), ('female', 12.0)) AS t(sex, income)"
        )
        same = policy().model_copy(update={"source": SourceSection(table="people", person=False)})
        with sqlanon.connect(connection) as db:
            expected = db.anonymize(same)
        with sqlanon.connect() as db:
            result = db.anonymize(policy(value_labels=["sex"], user_missing="missing"))
        assert (result.generalization, result.score) == (expected.generalization, expected.score)
        with sqlanon.connect(FOLDER / "survey.sav") as db:
            from_file = db.anonymize(policy(value_labels=["sex"], user_missing="missing"))
        assert from_file.score == expected.score


def test_keys_of_statistics_files_are_refused_for_other_files(tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text("sex,income\nm,1\nf,2\n", encoding="utf-8")
    with sqlanon.connect() as db, pytest.raises(sqlanon.SourceError, match="user_missing: applies to files of SPSS"):
        db.anonymize(policy(files=str(tmp_path / "people.csv"), user_missing="missing"))
    with pytest.raises(sqlanon.PolicyError, match="value_labels: applies to files of SPSS"):
        policy(files=(), database="x.duckdb", table="t", value_labels=True)


@pytest.mark.cases(2)
@pytest.mark.parametrize("name", ["a.sav", "a.zsav", "a.dta", "a.sas7bdat", "a.xpt"])
def test_without_the_library_the_error_names_the_extra(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyreadstat", None)
    (tmp_path / name).write_bytes(b"x" * 100)
    with sqlanon.connect(tmp_path / name) as db, pytest.raises(MissingLibraryError, match=r"'\.\[stats\]'"):
        db.anonymize(policy())


def test_codes_without_a_label_are_counted_over_all_files() -> None:
    """In a file without labels, all of its values are."""
    files: Any = []
    for labels, without_label, count in (({1: "a"}, 2, 9), ({}, 0, 5), ({1: "a"}, 0, 7)):
        variable = SimpleNamespace(labels=labels, figures=SimpleNamespace(without_label=without_label, count=count))
        files.append(SimpleNamespace(variable=lambda _, variable=variable: variable))
    assert statistics_files._count_rows_without_label(files, "sex") == 7
    assert statistics_files._count_rows_without_label(files[2:], "sex") == 0
