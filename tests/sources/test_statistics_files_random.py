"""Random tables, written as files of SPSS, Stata and SAS, are read as the values that were written."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from statistics_reading import read

from sqlanon.sources.files.scan import ReadingChoices
from support.lanes import examples

pandas = pytest.importorskip("pandas", reason="the extra pandas is not installed")
pyreadstat = pytest.importorskip("pyreadstat", reason="the extra stats is not installed")
pytestmark = [pytest.mark.extras, pytest.mark.slow]

SPSS, OTHERS = datetime(1582, 10, 14), datetime(1960, 1, 1)
DAY = 86_400
DATES = st.dates(date(1583, 1, 1), date(2999, 12, 31))
MOMENTS = st.datetimes(datetime(1583, 1, 1), datetime(2999, 12, 31)).map(lambda moment: moment.replace(microsecond=0))
TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), max_size=6)
WHOLE = st.integers(-(2**31) + 28, 2**31 - 28)  # Stata's integers of four bytes
NUMBERS = st.floats(-1e9, 1e9, allow_subnormal=False).map(lambda number: number + 0.0)


def columns(values: Any) -> Any:
    return st.lists(st.none() | values, min_size=4, max_size=4)


@pytest.mark.thorough
@settings(max_examples=examples(60))
@given(
    st.sampled_from(["sav", "dta", "xpt"]),
    columns(WHOLE),
    columns(NUMBERS),
    columns(DATES),
    columns(MOMENTS),
    columns(TEXTS),
)
def test_values_are_read_as_they_were_written(
    tmp_path_factory: pytest.TempPathFactory,
    ending: str,
    whole: list[int | None],
    numbers: list[float | None],
    dates: list[date | None],
    moments: list[datetime | None],
    texts: list[str | None],
) -> None:
    path = tmp_path_factory.mktemp("random") / f"people.{ending}"
    origin = SPSS if ending == "sav" else OTHERS
    of_day, of_second = (DAY if ending == "sav" else 1), (1000 if ending == "dta" else 1)
    rows = pandas.DataFrame(
        {
            "WHOLE": pandas.Series(whole, dtype="float64"),
            "NUMBER": pandas.Series(numbers, dtype="float64"),
            "DAY": pandas.Series(
                [None if day is None else (day - origin.date()).days * of_day for day in dates], dtype="float64"
            ),
            "MOMENT": pandas.Series(
                [
                    None if moment is None else (moment - origin) // timedelta(seconds=1) * of_second
                    for moment in moments
                ],
                dtype="float64",
            ),
            "TEXT": pandas.Series([text or "" for text in texts], dtype="object"),
        }
    )
    formats = {
        "sav": {"DAY": "EDATE10", "MOMENT": "DATETIME20"},
        "dta": {"DAY": "%tdDD/NN/CCYY", "MOMENT": "%tc"},
        "xpt": {"DAY": "DDMMYYP10.", "MOMENT": "DATETIME20."},
    }
    write = {"sav": pyreadstat.write_sav, "dta": pyreadstat.write_dta, "xpt": pyreadstat.write_xport}[ending]
    write(rows, path, variable_format=formats[ending])
    types, values_by_column = read(path)
    assert values_by_column["WHOLE"] == whole
    if ending != "xpt":  # which has numbers of base 16
        assert values_by_column["NUMBER"] == numbers
    assert (types["DAY"], values_by_column["DAY"]) == ("DATE", dates)
    assert (types["MOMENT"], values_by_column["MOMENT"]) == ("TIMESTAMP", moments)
    assert values_by_column["TEXT"] == [text or None for text in texts]


CODE = st.integers(0, 6)


@settings(max_examples=examples(60))
@given(
    st.lists(st.none() | CODE, min_size=5, max_size=5),
    st.dictionaries(CODE, st.sampled_from(["a", "b", "c"]), min_size=1),
    st.lists(CODE, max_size=2, unique=True),
    st.tuples(CODE, CODE).map(sorted),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
def test_labels_and_missing_codes_of_spss(
    tmp_path_factory: pytest.TempPathFactory,
    values: list[int | None],
    labels: dict[int, str],
    single: list[int],
    bounds: list[int],
    has_range: bool,
    keeps: bool,
    reads_labels: bool,
) -> None:
    path: Path = tmp_path_factory.mktemp("labels") / "people.sav"
    low, high = bounds
    missing: list[Any] = [*single[:1], {"lo": low, "hi": high}] if has_range else [*single]
    rows = pandas.DataFrame({"code": pandas.Series(values, dtype="float64")})
    pyreadstat.write_sav(
        rows, path, variable_value_labels={"code": labels}, missing_ranges={"code": missing} if missing else None
    )

    def is_missing(code: int) -> bool:
        return code in single[: 1 if has_range else 2] or (has_range and low <= code <= high)

    values_kept = [code if code is None or keeps or not is_missing(code) else None for code in values]
    is_labelled = any(keeps or not is_missing(code) for code in labels)
    choices = ReadingChoices(("code",) if reads_labels else False, "keep" if keeps else "missing")
    _, values_by_column = read(path, choices=choices)
    if reads_labels and is_labelled:
        assert values_by_column["code"] == [
            None if code is None else labels.get(code, str(code)) for code in values_kept
        ]
    else:
        assert values_by_column["code"] == values_kept
