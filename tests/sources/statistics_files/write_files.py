"""Writes the files of this folder again, but for those of SAS, which are from pyreadstat's own tests (Apache-2.0).

It needs pandas and pyreadstat: ``python tests/sources/statistics_files/write_files.py``.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pandas as pd
import pyreadstat

FOLDER = Path(__file__).parent


def seconds(*moment: int) -> float:
    """Seconds since 1582-10-14, as SPSS counts."""
    return (datetime(*moment) - datetime(1582, 10, 14)).total_seconds()  # type: ignore[arg-type]


def write_spss() -> None:
    rows = pd.DataFrame(
        {
            "sex": [1.0, 2.0, 9.0, None, 1.0, 2.0],
            "age": [34.0, 98.0, 999.0, 18.0, None, 41.0],
            "region": ["N", "S", "X", "", "N", "S"],
            "zip": [2139.0, 501.0, 94110.0, 2139.0, 501.0, 10001.0],
            "income": [1250.5, 0.1, -3.0, None, 99.25, 12.0],
            "number": [2.0**53, 1.0, 2.0, 3.0, 4.0, 5.0],
            "born": [
                seconds(1981, 2, 28),
                seconds(1582, 10, 15),
                seconds(2000, 2, 29),
                None,
                *[seconds(1899, 12, 31)] * 2,
            ],
            "seen": [seconds(2024, 1, 31, 23, 59, 59) + 0.25, seconds(1900, 1, 1), *[None] * 4],
            "day": [seconds(2024, 1, 31, 12), seconds(2024, 2, 1), *[None] * 4],
            "clock": [0.0, 86399.0, 3600.0, *[None] * 3],
            "stay": [90000.0, 0.0, 3600.0, *[None] * 3],
        }
    )
    pyreadstat.write_sav(
        rows,
        FOLDER / "survey.sav",
        variable_value_labels={
            "sex": {1: "male", 2: "female", 9: "no answer"},
            "age": {98: "98 or more", 999: "refused"},
            "region": {"N": "North", "S": "South", "X": "unknown"},
        },
        missing_ranges={"sex": [9], "age": [{"lo": 900, "hi": 999}], "region": ["X"]},
        variable_format={
            "sex": "F1.0",
            "age": "F3.0",
            "zip": "N5",
            "income": "F8.2",
            "born": "DATE11",
            "seen": "DATETIME23.2",
            "day": "SDATE10",
            "clock": "TIME8",
            "stay": "TIME8",
        },
    )


def write_small() -> None:
    codes = [1.0 + i % 2 for i in range(38)] + [9.0, 9.0]
    rows = pd.DataFrame({"sex": codes, "age": [20.0 + i % 4 for i in range(39)] + [98.0]})
    pyreadstat.write_sav(
        rows,
        FOLDER / "small.sav",
        variable_value_labels={"sex": {1: "male", 2: "female", 9: "no answer"}, "age": {98: "98 or more"}},
        missing_ranges={"sex": [9]},
        variable_format={"sex": "F1.0", "age": "F3.0"},
    )


def write_stata() -> None:
    rows = pd.DataFrame(
        {
            "sex": [1, 2, "a", None, "z", 1],
            "age": [34.0, 41.0, 18.0, None, 77.0, 5.0],
            "city": ["Köln", "", "Bonn", "Bonn", "Köln", "Köln"],
            "born": [0.0, -1.0, 16861.0, None, 3.0, 4.0],
            "seen": [0.0, 1706745599250.0, -1.0, None, 3.0, 4.0],
            "clock": [0.0, 86399000.0, 3600000.0, None, 3000.0, 4000.0],
            "month": [400.0, -1.0, 0.0, None, 11.0, 12.0],
            "week": [0.0, 52.0, -1.0, None, 51.0, 53.0],
            "quarter": [0.0, 5.0, -1.0, None, 4.0, 3.0],
            "half": [0.0, 3.0, -1.0, None, 2.0, 1.0],
            "year": [1999.0, 2024.0, 1960.0, None, 1.0, 2.0],
        }
    )
    formats = {
        "born": "%td",
        "seen": "%tc",
        "clock": "%tcHH:MM:SS",
        "month": "%tm",
        "week": "%tw",
        "quarter": "%tq",
        "half": "%th",
        "year": "%ty",
    }
    pyreadstat.write_dta(
        rows,
        FOLDER / "survey.dta",
        missing_user_values={"sex": ["a", "z"]},
        variable_value_labels={"sex": {1: "male", 2: "female", "a": "refused"}},
        variable_format=formats,
    )
    floats = pd.DataFrame({"dose": pd.Series([0.1, 2.5, None], dtype="float32"), "whole": [1.0, 2.0, None]})
    floats.to_stata(FOLDER / "floats.dta", write_index=False)
    leap = pd.DataFrame({"age": [1.0, 2.0], "leap": [0.0, 1000.0]})
    pyreadstat.write_dta(leap, FOLDER / "leap.dta", variable_format={"leap": "%tC"})


def write_transport() -> None:
    rows = pd.DataFrame(
        {
            "AGE": [34.0, None, 18.0],
            "DOSE": [0.5, 1.25, None],
            "ZIP": [2139.0, 501.0, 94110.0],
            "CITY": ["Bonn", "", "Kiel"],
            "BORN": [0.0, -1.0, 23406.0],
            "SEEN": [0.5, -1.0, 2022364799.25],
            "CLOCK": [0.0, 86399.0, None],
        }
    )
    formats = {"ZIP": "Z5.", "BORN": "DATE9.", "SEEN": "DATETIME20.", "CLOCK": "TIME8."}
    pyreadstat.write_xport(rows, FOLDER / "survey.xpt", file_format_version=5, variable_format=formats)


if __name__ == "__main__":
    write_spss()
    write_small()
    write_stata()
    write_transport()
